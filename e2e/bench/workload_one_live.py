"""A run of Workload One on a lab: jobs of one pod in place, whose agents are played, or of a pod for each GPU."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from e2e.agents import Played, PlayedAgents, in_place, playing
from e2e.bench.change_costs import BY_RESTART, IN_PLACE, Counted
from e2e.bench.course import lab_of
from e2e.bench.live import Going, Run, manifest, trains
from e2e.bench.trainings import Seen, Trained, Trainings
from e2e.cluster import Cluster, Pod
from e2e.demo.drive import Watch, under_way
from e2e.lab import Lab, NodeGroup, Shape
from e2e.reports import token
from e2e.scenario import STOP_SECONDS, delete_job
from muster.profiles import NAMED
from muster.sim.presets import sidecar

NODES, GPUS = 2, 8
SIZES = (1, 2, 4, 8)
SPACE = "default"
BY_DEVICES = "bench/in-place"
"""The label of pods whose devices are counted, and not they."""
DEVICES = (
    "devices.enabled=true",
    "devices.keep=1s",
    rf"devices.namespaceSelector.matchLabels.kubernetes\.io/metadata\.name={SPACE}",
)


def run(
    going: Going,
    name: str,
    profile: str,
    arguments: Mapping[str, Any],
    jobs: Sequence[Trained],
    speed: float,
    folder: Path,
    keep: bool = False,
) -> Run:
    """All jobs under a profile, on a lab of this name. arguments: of its plugins; speed: trace seconds in one of this
    machine's; figures are this machine's seconds. LabError where jobs are not done in time."""
    folder.mkdir(parents=True, exist_ok=True)
    # A values file: what `helm --set` is given with a point in it, it takes for text.
    values = folder / f"{profile}-values.yaml"
    config = {"resizeCost": False, "pluginArgs": arguments}
    if not NAMED[profile].estimate:
        config["estimate"] = "declared"
    values.write_text(yaml.safe_dump({"profile": profile, "config": config}))
    by_devices = profile == "reshape"
    shape = Shape(
        groups=(NodeGroup(NODES, GPUS),),
        racks=0,
        values=(str(values.resolve()),),
        set_values=DEVICES if by_devices else (),
    )
    with lab_of(name, shape, keep) as lab:
        cluster = Cluster(lab.kubeconfig)
        trainings = Counted((IN_PLACE if by_devices else BY_RESTART).compressed(speed))
        if by_devices:
            with _agents(lab, cluster, sidecar.POD / speed) as form:
                _, seconds = trains(going, name, cluster, SPACE, jobs, trainings, **form)
        else:
            _, seconds = trains(going, name, cluster, SPACE, jobs, trainings, **_pods(cluster, speed))
    waits = [t.started - t.submitted for t in trainings.jobs.values() if t.started is not None]
    return {
        "jct_s": round(trainings.jct(), 3),
        "makespan_s": round(trainings.makespan(), 3),
        "overhead": round(trainings.overhead(), 5),
        "changes": sum(t.changes for t in trainings.jobs.values()),
        "wait_s": round(trainings.wait(), 3),
        "usual_wait_s": round(statistics.median(waits), 3),
        "release_s": round(trainings.release(), 3),
        "seconds": round(seconds, 1),
        "course": trainings.course,
    }


def a_pod_a_gpu(one: Trained, speed: float) -> dict[str, Any]:
    """The Job of a pod for each GPU, which starts again with every change; pods take as long to end as Fig. 3's."""
    made = manifest(one)
    notes = made["spec"]["template"]["metadata"]["annotations"]
    notes |= {"muster.dev/resize": "restart", STOP_SECONDS: f"{sidecar.ENDING / speed:.3f}"}
    if one.least < one.most:
        notes["muster.dev/sizes"] = ",".join(str(n) for n in SIZES if one.least <= n <= one.most)
    return made


def one_pod(one: Trained) -> dict[str, Any]:
    """The Job of one pod, whose GPUs change in place."""
    made = in_place(one.name, ",".join(map(str, SIZES)))
    meta = made["spec"]["template"]["metadata"]
    meta["annotations"] |= {
        "muster.dev/remaining-work": f"{one.work:.3f}",
        "muster.dev/speed": ",".join(f"{n}={one.speeds[n]:.6f}" for n in SIZES),
    }
    meta["labels"] = {**(meta.get("labels") or {}), BY_DEVICES: one.name}
    return made


def _pods(cluster: Cluster, speed: float) -> dict[str, Callable[..., Any]]:
    def submit(one: Trained) -> None:
        cluster.submit(a_pod_a_gpu(one, speed), namespace=SPACE)

    def nothing(now: float, trainings: Trainings) -> None:
        """Pods are seen by the watch of `trains`."""

    return {
        "submit": submit,
        "finish": lambda name: delete_job(cluster, SPACE, name),
        "meanwhile": nothing,
    }


def _named(pod: Pod, gone: bool) -> tuple[str, Pod]:
    runs = pod.phase == "Running" and not gone and not pod.deleted
    return (pod.labels.get(BY_DEVICES, "") if runs else "", pod)


@contextlib.contextmanager
def _agents(lab: Lab, cluster: Cluster, starting: float) -> Iterator[dict[str, Callable[..., Any]]]:
    """Each pod that runs gets an agent after so many seconds; devices that an agent is told of count as replicas."""
    played: dict[str, tuple[Pod, Played]] = {}
    known: set[str] = set()
    have: dict[str, set[str]] = {}
    with (
        playing(lab.service_url()) as agents,
        Watch(cluster, SPACE, _named) as watch,
        ThreadPoolExecutor(16) as callers,
    ):
        calls: list[Future[None]] = []

        def meanwhile(now: float, trainings: Trainings) -> None:
            nonlocal calls
            for name, pod in watch.seen():
                if name and pod.uid not in known:
                    known.add(pod.uid)
                    calls.append(callers.submit(_play, agents, cluster, name, pod, starting, played))
            for name, (pod, agent) in list(played.items()):
                new, old = set(agent.devices), have.get(name, set())
                have[name] = new
                for device in sorted(old - new):
                    trainings.saw(Seen(name, f"{name}/{device}", pod.node, True), now)
                for device in sorted(new - old):
                    trainings.saw(Seen(name, f"{name}/{device}", pod.node, False), now)
            calls = under_way(calls)

        def finish(name: str) -> None:
            pod, _ = played.pop(name)
            agents.end(pod.uid)
            delete_job(cluster, SPACE, name)

        yield {
            "submit": lambda one: _submit(cluster, one),
            "finish": finish,
            "meanwhile": meanwhile,
        }


def _submit(cluster: Cluster, one: Trained) -> None:
    cluster.submit(one_pod(one), namespace=SPACE)


def _play(
    agents: PlayedAgents,
    cluster: Cluster,
    name: str,
    pod: Pod,
    starting: float,
    played: dict[str, tuple[Pod, Played]],
) -> None:
    time.sleep(starting)
    played[name] = (pod, agents.play(pod.uid, token(cluster, pod, SPACE), SIZES))
