"""A run of `papers` whose jobs are in place: devices that come and leave are replicas, and each job reports."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from e2e.bench.by_physics import WORKER, ByPhysics, Paced
from e2e.bench.live import Dumping, Going, Run, told_of, trains
from e2e.bench.on_devices import SPACE, counted, with_agents
from e2e.bench.paper_in_place import InPlace
from e2e.bench.papers_live import Reporting, products_of, reported, trained
from e2e.bench.trainings import Seen, Trained, Training, Trainings
from e2e.cluster import Cluster, Json
from e2e.demo.drive import under_way
from e2e.lab import Lab
from e2e.reports import AsPods
from muster.sim.submission import Submission


class OnDevices(ByPhysics):
    """Trainings of which a replica is a device, JOB/DEVICE, that two jobs may share. releases: s from when a job gave
    one, or was done with it, until another has it that came before. A job that is measured on fewer gives none to
    others. With rounds all counts from the last one on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._given: dict[str, tuple[str, float]] = {}
        self._users: dict[str, set[str]] = {}
        self._could: dict[str, float] = {}
        self.took: list[float] = []
        """s from when a job might begin, or go on after it had no device, until it trained."""

    def saw(self, seen: Seen, now: float) -> None:
        device = device_of(seen.pod)
        users = self._users.setdefault(device, set())
        if seen.over:
            users.discard(seen.job)
            self._gives(seen.job, [device], now)
        else:
            users.add(seen.job)
            who, at = self._given.pop(device, (seen.job, -1.0))
            if who != seen.job and at >= self.jobs[seen.job].submitted:
                self.releases.append(now - max(at, self._round_of(now)))
                self._could[seen.job] = max(at, self._could.get(seen.job, -1.0))
        super().saw(seen, now)

    def due(self, now: float) -> list[str]:
        found = super().due(now)
        for name in found:
            self._gives(name, [device_of(one) for one in self.jobs[name].on], now)
            for users in self._users.values():
                users.discard(name)
        return found

    def starts(self) -> float:
        """Median s from a submission until its job trained; with rounds from when it might, and of all runs of it."""
        if self.round:
            return statistics.median(self.took)
        return statistics.median(t.started - t.submitted for t in self.jobs.values() if t.started is not None)

    def _gives(self, name: str, devices: Sequence[str], now: float) -> None:
        self._given |= dict.fromkeys(devices, (name, now))

    def _round_of(self, now: float) -> float:
        """When the round began."""
        return math.floor((self.began + now) / self.round) * self.round - self.began if self.round else -1.0

    def _beside(self, one: Paced) -> str:
        others = {job for pod in one.on for job in self._users[device_of(pod)]} - {one.job.name}
        there = [self.paced[name] for name in sorted(others) if self.paced[name].runs is not None]
        return there[0].job.model if there else ""

    def _count(self, training: Training, now: float) -> None:
        assert isinstance(training, Paced)
        before = training.runs
        super()._count(training, now)
        if before is None and training.runs is not None:
            could = max(self._could.pop(training.job.name, -1.0), training.submitted, self._round_of(now))
            self.took.append(now - could)

    def _taken(self, *_: object) -> None:
        """Which place was given up last says nothing here: devices have names."""


def device_of(replica: str) -> str:
    return replica.partition("/")[2]


def manifest(one: Trained, submission: Submission) -> Json:
    """The Job of one pod, of which only the numbers of GPUs are declared; of one that may share them, what it needs
    of their memory, and which model it is."""
    made = counted(one.name, f"{one.least}-{one.most}" if one.least < one.most else f"{one.most}")
    if submission.gpu_memory:
        made["spec"]["template"]["metadata"]["annotations"] |= {
            "muster.dev/model": one.model,
            "muster.dev/gpu-memory": f"{submission.gpu_memory}Mi",
        }
    return made


def run(going: Going, lab: Lab, paper: InPlace, folder: Path, later: float) -> Run:
    """All jobs of the workload, begun so much later (s). LabError where they come to no end."""
    going.over.wait(later)
    cluster, workload = Cluster(lab.kubeconfig), paper.workload()
    submissions = {one.name: one for one in workload.submissions}
    jobs = {one.name: one for one in trained(workload, paper.speed)}
    counting = OnDevices(workload, paper.speed, paper.round, products_of(cluster), lambda _: WORKER)

    def sizes(name: str) -> Sequence[int]:
        return range(jobs[name].least, jobs[name].most + 1)

    def made(one: Trained) -> Json:
        return manifest(one, submissions[one.name])

    with with_agents(lab, cluster, made, sizes) as agents, ThreadPoolExecutor(6) as several:
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
