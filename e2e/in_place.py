"""Words of scenarios about jobs in place: what to submit, which device each trained on and when, what must never be.

What used a device is read from the training's own log: from the line by which it starts on its devices to its last
step there, by the container runtime's clock."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

import pytest

import muster_report
from e2e.cluster import Cluster, Pod
from e2e.lab.places import CHECKOUT
from e2e.lab.realnode import PAUSE, PYTHON, RealNode, why_not
from e2e.scenario import delete_job, job, wait_until

ON_A_REAL_NODE = [
    pytest.mark.lab,
    pytest.mark.timeout(1800),  # the first start builds kubelet and containerd
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "-"),
]
"""Marks of a module whose scenarios need a real node."""
SPACE = "muster-devices"
GPU_NUMBERS = "muster.dev/gpus"
FOLDERS = {
    "/muster": Path(muster_report.__file__).parents[1],
    "/samples": CHECKOUT / "config" / "samples" / "in-place",
}
KEPT = "kept"
"""Folder of logs, beside those that kubelet and runtime remove."""
VALUES = (
    "profile=max-min",
    "config.resizeCost=false",
    "devices.enabled=true",
    f"devices.image={PAUSE}",
    "devices.lease=30s",
    r"devices.namespaceSelector.matchLabels.kubernetes\.io/metadata\.name=default",
)


def trains(
    cluster: Cluster,
    name: str,
    gpus: str,
    state: Path,
    *options: str,
    script: str = "/samples/train.py",
    image: str = PYTHON,
    python: str = "python",
    memory: str = "128Mi",
    mounts: Mapping[str, Path] = MappingProxyType({}),
    restart: str = "Never",
    pods: int = 1,
    notes: Mapping[str, str] = MappingProxyType({}),
    **environment: str,
) -> None:
    """A Job that trains in place on these numbers of GPUs, each of its pods by itself. options: of its agent;
    python: what runs agent and script; memory: of each pod; mounts: more folders of the node; restart: its pods'
    policy; notes: more annotations of them."""
    made = job(
        name,
        pods,
        restart=restart,
        gpus=0,
        cpu="10m",
        memory=memory,
        annotations={GPU_NUMBERS: gpus, **notes},
    )
    folders = {**FOLDERS, **mounts, "/state": state}
    known = {
        "PYTHONPATH": "/muster",
        "CHECKPOINT": f"/state/{name}{'-$(POD)' if pods > 1 else ''}.json",
        "SECONDS": "0.05",
        "STEPS": "1000000",
        **environment,
    }
    agent = (python, "-m", "muster_report.agent", "--devices", "--lock-dir", "/state", *options)
    spec = made["spec"]["template"]["spec"]
    spec |= {
        "hostNetwork": True,
        "volumes": [
            {"name": f"v{at}", "hostPath": {"path": str(path)}} for at, path in enumerate(folders.values())
        ],
    }
    # Requested only: held to 10m of CPU Python takes 15 s to start.
    del spec["containers"][0]["resources"]["limits"]["cpu"]
    spec["containers"][0] |= {
        "image": image,
        "command": [*agent, "--", python, "-u", script],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            *({"name": key, "value": value} for key, value in known.items()),
        ],
        "volumeMounts": [{"name": f"v{at}", "mountPath": where} for at, where in enumerate(folders)],
    }
    cluster.submit(made)


def said(node: RealNode, name: str) -> str:
    """What the containers of a job's pods have said, each line with its time, the pods one after another. What was
    looked at once stays, though the pod is deleted."""
    kept = node.home / KEPT
    kept.mkdir(exist_ok=True)
    for file in node.logs.glob(f"default_{name}-*/main/*.log"):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.link(file, kept / f"{file.parents[1].name}.{file.name}")
    return "".join(sorted(file.read_text() for file in kept.glob(f"default_{name}-*")))


def forget(node: RealNode) -> None:
    """What was said so far: the next job may have the name of one of these."""
    for file in (node.home / KEPT).glob("*"):
        file.unlink()


@dataclass(frozen=True)
class Use:
    """One start of a training: its devices, and from when to when (Unix s) it is known to have used them."""

    job: str
    devices: frozenset[str]
    first: float
    last: float
    steps: int


def uses(node: RealNode, name: str) -> list[Use]:
    """Every start of a job's training, in order."""
    found: list[Use] = []
    for line in said(node, name).splitlines():
        time, _, _, text = [*line.split(" ", 3), "", "", ""][:4]
        if text.startswith("from step "):
            at = datetime.fromisoformat(time).timestamp()
            found.append(Use(name, frozenset(text.split(" on ")[1].split(",")), at, at, 0))
        elif text.startswith("muster: step=") and found:
            last = found[-1]
            at = datetime.fromisoformat(time).timestamp()
            found[-1] = Use(name, last.devices, last.first, at, last.steps + 1)
    return found


def trains_on(node: RealNode, name: str) -> frozenset[str]:
    """Devices of the newest start of a job's training that has taken a step; none before."""
    found = uses(node, name)
    return found[-1].devices if found and found[-1].steps else frozenset()


def shared(node: RealNode, *names: str, pairs: AbstractSet[frozenset[str]] = frozenset()) -> list[str]:
    """Devices that two starts of trainings used at one time, in words: to be none, whatever happened. pairs: jobs
    that are to share theirs."""
    every = [use for name in names for use in uses(node, name)]
    return [
        f"{a.job} and {b.job} on {', '.join(sorted(a.devices & b.devices))} at {max(a.first, b.first)}"
        for a, b in combinations(every, 2)
        if frozenset((a.job, b.job)) not in pairs
        if a.devices & b.devices and max(a.first, b.first) < min(a.last, b.last)
    ]


def left_empty(cluster: Cluster, within: float) -> None:
    """No job any more, nor a pod or a holder, for the next scenario. within: seconds for each."""
    for made in cluster.get("/apis/batch/v1/namespaces/default/jobs")["items"]:
        delete_job(cluster, "default", made["metadata"]["name"])
    wait_until(lambda: not cluster.pods("default"), within=within, what="no pod is left")
    wait_until(lambda: not holders(cluster), within=within, what="no holder is left")


def holders(cluster: Cluster) -> list[Pod]:
    return cluster.pods(SPACE)


def names_of(pods: list[Pod]) -> list[str]:
    return sorted(one.name for one in pods)


def as_they_were(cluster: Cluster, name: str) -> list[tuple[str, int]]:
    """Uid of each pod of a job, and how often its container was started again."""
    return [
        (one.uid, sum(status["restartCount"] for status in one.raw["status"].get("containerStatuses", [])))
        for one in cluster.pods("default")
        if one.name.startswith(f"{name}-")
    ]
