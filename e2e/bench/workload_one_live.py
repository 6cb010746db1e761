"""A run of Workload One on a lab: jobs of one pod in place, whose agents are played, or of a pod for each GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e.bench.change_costs import BY_RESTART, IN_PLACE, Counted
from e2e.bench.course import lab_of
from e2e.bench.live import Going, Run, manifest, trains
from e2e.bench.on_devices import DEVICES, SPACE, counted, with_agents
from e2e.bench.predicted import estimated
from e2e.bench.trainings import Trained, Trainings
from e2e.cluster import Cluster
from e2e.lab import NodeGroup, Shape
from e2e.scenario import STOP_SECONDS, delete_job
from muster.sim.presets import sidecar

NODES, GPUS = 2, 8
SIZES = (1, 2, 4, 8)


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
    config = {"resizeCost": False, "pluginArgs": arguments, **estimated(profile, "declared")}
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
            with with_agents(lab, cluster, one_pod, lambda _: SIZES, sidecar.POD / speed) as agents:
                _, seconds = trains(
                    going, name, cluster, SPACE, jobs, trainings,
                    submit=agents.submit, finish=agents.finish, meanwhile=agents.meanwhile,
                )  # fmt: skip
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
    made = counted(one.name, ",".join(map(str, SIZES)))
    made["spec"]["template"]["metadata"]["annotations"] |= {
        "muster.dev/remaining-work": f"{one.work:.3f}",
        "muster.dev/speed": ",".join(f"{n}={one.speeds[n]:.6f}" for n in SIZES),
    }
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
