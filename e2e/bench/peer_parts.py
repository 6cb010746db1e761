"""The parts of `python -m e2e.bench peers`, each run of one peer on its lab (letters: peers.py)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any

from e2e.bench import raw
from e2e.bench.course import SHARED, STILL, Course
from e2e.bench.figures import Binds, held_in_part, median
from e2e.bench.peer import PODS, Made, Peer
from e2e.cluster import Cluster, Json
from e2e.lab.errors import LabError
from e2e.scenario import RUN_SECONDS, a_namespace

Found = dict[str, Any]
GPUS = 8
"""Of a node."""
SAID_WITHIN, STARTED_WITHIN, WHOLE_WITHIN = 60.0, 60.0, 120.0
"""Seconds after which a part is given up: until something is said; until a gang is bound; until it is whole again."""
SMALL_GPUS, SMALL_SECONDS, PRESSURE = 4, 8, 1.2
"""(e): GPUs and seconds of a small job, and how much of the cluster's GPU-seconds they ask for."""
FIRST = 10.0
"""Seconds of small jobs before the big one."""
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
"""What an administrator writes on a node that is dead
(https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown)."""


class On:
    """One peer on its lab."""

    def __init__(self, peer: Peer, course: Course, cluster: Cluster, nodes: int) -> None:
        self.peer, self.course, self.cluster, self.nodes = peer, course, cluster, nodes
        self.wire = course.wire

    def submit(self, made: Made) -> None:
        """One after another, as a user's kubectl does."""
        for where, body in made:
            self.wire.ask("POST", where, body)

    def bound(self, namespace: str) -> list[Json]:
        """Pods that have a node and are not ending."""
        pods = self.wire.ask("GET", PODS.format(namespace))["items"]
        return [
            one
            for one in pods
            if one["spec"].get("nodeName") and not one["metadata"].get("deletionTimestamp")
        ]

    @property
    def processes(self) -> tuple[str, ...]:
        return (*SHARED, *self.peer.processes)


def _in_a_namespace(on: On, part: Callable[[str], Found]) -> Found:
    with a_namespace(on.cluster, "peers") as namespace:
        on.peer.prepare(on.cluster, namespace)
        time.sleep(1.0)
        return part(namespace)


def many(on: On, gangs: int, size: int) -> Found:
    """(a). What it leaves goes with the lab: to delete thousands of pods takes longer than to bind them."""
    namespace = f"peers-many-{int(time.time())}"
    raw.create_namespace(on.wire, namespace)
    on.peer.prepare(on.cluster, namespace)
    made = [one for i in range(gangs) for one in on.peer.gang(namespace, f"g{i:05d}", size, gpus=1)]
    paths = [path for path, _ in on.peer.gang(namespace, "", 1)]
    made.sort(key=lambda one: paths.index(one[0]))
    watch = raw.bound(on.wire, namespace)
    time.sleep(1.0)
    used = on.course.cpu(on.processes)
    started = time.monotonic()
    for path, some in groupby(made, key=lambda one: one[0]):
        on.wire.create(path, raw.bodies(body for _, body in some))
    created = time.monotonic() - started
    watch.wait(gangs * size, STILL, what=f"{on.peer.name}: pods bound")
    after = on.course.cpu(on.processes)
    watch.close()
    binds = Binds(started, tuple(watch.seen.values()))
    spent = {name: 1000 * (value - used.get(name, 0.0)) / (gangs * size) for name, value in after.items()}
    return {
        "pods_per_s": round(binds.rate_from_start, 1),
        "first_s": round(binds.first, 2),
        "last_s": round(binds.whole, 2),
        "submitted_s": round(created, 2),
        "cpu_ms": {name: round(value, 2) for name, value in spent.items()},
    }


def idle(on: On, tries: int, pods: int = 8) -> Found:
    """(b)"""

    def part(namespace: str) -> Found:
        watch = raw.bound(on.wire, namespace)
        began = time.monotonic()
        on.submit(on.peer.gang(namespace, "idle", pods, gpus=1))
        watch.wait(pods, STARTED_WITHIN, what=f"{on.peer.name}: pods bound")
        watch.close()
        return {"s": max(watch.seen.values()) - began}

    times = [_in_a_namespace(on, part)["s"] for _ in range(tries)]
    return {"median_s": round(median(times), 2), "worst_s": round(max(times), 2)}


def full(on: On, tries: int) -> Found:
    """(c)"""

    def late(number: int, namespace: str) -> Found:
        waits = on.peer.waits
        where = waits.path.format(namespace)
        before = set(on.wire.names(where))
        watch = raw.Watch(on.wire, where, counts=lambda line: waits.needle in line)
        name = f"late-{number}"
        began = time.monotonic()
        on.submit(on.peer.gang(namespace, name, 2, gpus=GPUS))
        try:
            watch.wait(1, SAID_WITHIN, what=f"{on.peer.name}: said that it waits")
        finally:
            watch.close()
        items = on.wire.ask("GET", where)["items"]
        words = [waits.words(one) for one in items if one["metadata"]["name"] not in before]
        return {"s": min(watch.seen.values()) - began, "words": next(filter(None, words), "")}

    def part(namespace: str) -> Found:
        watch = raw.bound(on.wire, namespace)
        on.submit(on.peer.gang(namespace, "all", on.nodes, gpus=GPUS))
        watch.wait(on.nodes, STARTED_WITHIN, what=f"{on.peer.name}: the gang that fills the cluster is bound")
        watch.close()
        found = [_in_a_namespace(on, functools.partial(late, number)) for number in range(tries)]
        times = [one["s"] for one in found]
        return {
            "median_s": round(median(times), 2),
            "worst_s": round(max(times), 2),
            "words": found[-1]["words"],
        }

    return _in_a_namespace(on, part)


def stream(on: On, seconds: float) -> Found:
    """(e): the big gang needs half of the nodes, and each small job half of a node."""
    pods = on.nodes // 2
    every = SMALL_SECONDS * SMALL_GPUS / (on.nodes * GPUS * PRESSURE)

    def part(small: str) -> Found:
        with a_namespace(on.cluster, "peers-big") as big, ThreadPoolExecutor(8) as callers:
            on.peer.prepare(on.cluster, big)
            watch = raw.bound(on.wire, big)
            began = time.monotonic()
            submitted, number = 0.0, 0
            small_ones: list[Future[None]] = []
            while (now := time.monotonic() - began) < FIRST + seconds:
                if not submitted and now >= FIRST:
                    submitted = time.monotonic()
                    on.submit(on.peer.gang(big, "big", pods, gpus=GPUS))
                if now >= number * every:
                    made = on.peer.gang(
                        small,
                        f"s{number:04d}",
                        1,
                        gpus=SMALL_GPUS,
                        annotations={RUN_SECONDS: str(SMALL_SECONDS)},
                    )
                    small_ones.append(callers.submit(on.submit, made))
                    number += 1
                time.sleep(0.01)
            ended = time.monotonic()
            for one in small_ones:
                one.result()  # one that was refused makes the stream smaller than it is said to be
            within = sorted(at - submitted for at in watch.seen.values() if at <= ended)
            whole = len(within) >= pods
            try:
                watch.wait(pods, STARTED_WITHIN, what="the big gang")
                after = round(max(watch.seen.values()) - submitted, 1)
            except LabError:
                after = None
            watch.close()
            return {
                "started_s": round(within[pods - 1], 1) if whole else None,
                "stream_s": round(ended - submitted, 1),
                "bound": len(within),
                "of": pods,
                "started_at_last_s": after,
                "held_in_part_gpu_s": round(held_in_part(within, pods, ended - submitted, GPUS), 1),
                "small_jobs": number,
            }

    return _in_a_namespace(on, part)


def dead(on: On) -> Found:
    """(f): the gang has half of the nodes, so there is room for another start."""
    pods = on.nodes // 2

    def part(namespace: str) -> Found:
        watch = raw.bound(on.wire, namespace)
        on.submit(on.peer.gang(namespace, "train", pods, gpus=GPUS))
        watch.wait(pods, STARTED_WITHIN, what=f"{on.peer.name}: the gang is bound")
        watch.close()
        time.sleep(2.0)  # its pods run
        before = on.bound(namespace)
        node = str(before[0]["spec"]["nodeName"])
        on_it = {one["metadata"]["uid"] for one in before if one["spec"]["nodeName"] == node}
        where = f"/api/v1/nodes/{node}"
        began = time.monotonic()
        on.cluster.patch(where, {"spec": {"taints": [OUT_OF_SERVICE]}})
        try:
            again, took = None, 0.0
            while again is None and took < WHOLE_WITHIN:
                time.sleep(0.1)
                took = time.monotonic() - began
                now = on.bound(namespace)
                alive = [one for one in now if one["status"].get("phase") in ("Pending", "Running")]
                if len(alive) == pods and all(one["spec"]["nodeName"] != node for one in alive):
                    again = {one["metadata"]["uid"] for one in alive}
            kept = {one["metadata"]["uid"] for one in before} - on_it
            return {
                "whole_again_s": round(took, 1) if again is not None else None,
                "healthy_ended": len(kept - (again if again is not None else _uids(on, namespace))),
                "of": pods,
            }
        finally:
            on.cluster.patch(where, {"spec": {"taints": None}})

    return _in_a_namespace(on, part)


def _uids(on: On, namespace: str) -> set[str]:
    return {one["metadata"]["uid"] for one in on.bound(namespace)}
