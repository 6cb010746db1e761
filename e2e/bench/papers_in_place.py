"""A run of `papers` whose jobs are in place: devices that come and leave are replicas, and each job reports."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from e2e.bench.by_physics import WORKER, ByPhysics
from e2e.bench.live import Dumping, Going, Run, told_of, trains
from e2e.bench.on_devices import SPACE, counted, with_agents
from e2e.bench.paper import InPlace
from e2e.bench.papers_live import Reporting, products_of, reported, trained
from e2e.bench.trainings import Seen, Trained, Trainings
from e2e.cluster import Cluster, Json
from e2e.demo.drive import under_way
from e2e.lab import Lab
from e2e.reports import AsPods


class OnDevices(ByPhysics):
    """Trainings of which a replica is a device, JOB/DEVICE. releases: s from when a job gave one, or was done with
    it, until another has it that came before. A job that is measured on fewer gives none to others."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._given: dict[str, tuple[str, float]] = {}

    def saw(self, seen: Seen, now: float) -> None:
        device = seen.pod.partition("/")[2]
        if seen.over:
            self._gives(seen.job, [device], now)
        elif device in self._given:
            who, at = self._given.pop(device)
            if who != seen.job and at >= self.jobs[seen.job].submitted:
                self.releases.append(now - at)
        super().saw(seen, now)

    def due(self, now: float) -> list[str]:
        found = super().due(now)
        for name in found:
            self._gives(name, [one.partition("/")[2] for one in self.jobs[name].on], now)
        return found

    def starts(self) -> float:
        """Median s from a submission until its job trained."""
        return statistics.median(t.started - t.submitted for t in self.jobs.values() if t.started is not None)

    def _gives(self, name: str, devices: Sequence[str], now: float) -> None:
        self._given |= dict.fromkeys(devices, (name, now))

    def _taken(self, *_: object) -> None:
        """Which place was given up last says nothing here: devices have names."""


def manifest(one: Trained) -> Json:
    """The Job of one pod, of which only the numbers of GPUs are declared."""
    return counted(one.name, f"{one.least}-{one.most}")


def run(going: Going, lab: Lab, paper: InPlace, folder: Path, later: float) -> Run:
    """All jobs of the workload, begun so much later (s). LabError where they come to no end."""
    going.over.wait(later)
    cluster, workload = Cluster(lab.kubeconfig), paper.workload()
    jobs = {one.name: one for one in trained(workload, paper.speed)}
    counting = OnDevices(workload, paper.speed, paper.round, products_of(cluster), lambda _: WORKER)

    def sizes(name: str) -> Sequence[int]:
        return range(jobs[name].least, jobs[name].most + 1)

    with with_agents(lab, cluster, manifest, sizes) as agents, ThreadPoolExecutor(6) as several:
        reports = Reporting(lab.service_url(), AsPods(lab, cluster), agents.pods)
        dumping = Dumping(lab, cluster, folder, several)
        calls: list[Future[None]] = []

        def meanwhile(now: float, trainings: Trainings) -> None:
            nonlocal calls
            agents.meanwhile(now, trainings)
            calls += [several.submit(reports.tell, counting, *one) for one in reports.due(counting, now)]
            calls = under_way(calls)
            dumping.look(now)

        _, seconds = trains(
            going, paper.profile, cluster, SPACE, list(jobs.values()), counting,
            submit=agents.submit, finish=agents.finish, meanwhile=meanwhile,
        )  # fmt: skip
    return told_of(counting, seconds, dumping) | reported(counting, reports) | {"starts_s": counting.starts()}
