"""In-process: one planning cycle of a large cluster, what a whole turn costs, and pod events a second.

5,000 nodes that are full of 2,000 running jobs, 10,000 jobs waiting, profile fifo, order backfill. "Nothing
kept": columns, masks and jobs are made again, as after a start; then a turn after one arrival, which is what a
driver does. Events go as bytes through the reflector, as from a watch, on one core."""

from __future__ import annotations

import gc
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from e2e.bench import load, raw, synthetic
from e2e.bench.figures import median
from e2e.bench.report import Progress, Result
from muster import threads
from muster.cluster import resources
from muster.cluster.api import Api
from muster.cluster.watch import Reflector
from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.points import Profile
from muster.settings import load_settings, profile_of
from muster.types import Event, NodeGone, NodeSeen

T = TypeVar("T")
CYCLE_AIM, EVENTS_AIM, MEMORY_AIM = 0.1, 3000.0, 1024.0
TIMES = 5


def profile() -> Profile:
    """fifo, backfill, with the lab's topology levels."""
    levels = ", ".join(synthetic.LEVELS)
    return profile_of(load_settings(f"profile: fifo\norder: backfill\ntopologyLevels: [{levels}]"))


def measure(progress: Progress, *, nodes: int = 5000, running: int = 2000, waiting: int = 10_000) -> Result:
    """The rows of all that is measured without a cluster."""
    result = Result("planning", f"in-process: {nodes} nodes, {running} running and {waiting} waiting jobs")
    result.data["arguments"] = {"nodes": nodes, "running": running, "waiting": waiting}
    gc.set_threshold(*threads.YOUNG)  # as the driver does
    progress.say("planning: building the cluster")
    _cycles(result, progress, nodes, running, waiting)
    progress.say("planning: events")
    _events(result)
    progress.say("planning: memory")
    used = memory(nodes, running, waiting)
    result.data["memory_mib"] = round(used)
    result.row("memory of the core at that size (RSS of a process)", f"{used:.0f} MiB")
    return result


def _cycles(result: Result, progress: Progress, nodes: int, running: int, waiting: int) -> None:
    began = time.monotonic()
    chosen = profile()
    ledger = synthetic.ledger_of(chosen, nodes, running, waiting)
    progress.say(f"  {time.monotonic() - began:.1f} s")
    now = synthetic.NOW + 1
    first, snapshot = timed(lambda: ledger.snapshot(now))
    result.row("first snapshot: every job and column made", _ms(first))
    colds = []
    for _ in range(TIMES):  # a node that comes and goes: new columns, no mask or fit is kept
        ledger.apply(NodeSeen(_spare()), now)
        ledger.apply(NodeGone(_spare().name), now)
        fresh = ledger.snapshot(now)
        colds.append(timed(lambda view=fresh: cycle(view, chosen))[0])  # type: ignore[misc]
    result.row("one cycle, nothing kept", _ms(median(colds)), "< 100 ms", median(colds) < CYCLE_AIM)
    plan = cycle(snapshot, chosen)
    acted, actions = timed(lambda: ledger.adopt(snapshot, plan))
    result.row(f"first diff into actions ({len(actions)} actions)", _ms(acted))
    for event in synthetic.written(actions):  # the server took them all
        ledger.apply(event, now)
    _turn(ledger, now, chosen)
    parts: dict[str, list[float]] = {}
    chance = random.Random(2)
    for number in range(TIMES):
        for event in synthetic.arrival(f"new-{number:03d}", chance):
            ledger.apply(event, now)
        for name, seconds in _turn(ledger, now + number, chosen).items():
            parts.setdefault(name, []).append(seconds)
    found = {name: median(values) for name, values in parts.items()}
    result.row("one cycle after one arrival", _ms(found["cycle"]), "< 100 ms", found["cycle"] < CYCLE_AIM)
    result.row(
        "the whole turn after one arrival", _ms(sum(found.values())) + " (" + ", ".join(
            f"{name} {_ms(seconds)}" for name, seconds in found.items()
        ) + ")",
    )  # fmt: skip
    result.data["cycle_cold_s"] = colds
    result.data["turn_s"] = parts


def _turn(ledger: Ledger, now: float, chosen: Profile) -> dict[str, float]:
    """What the driver does between events, in its order; seconds of each part."""
    snapping, snapshot = timed(lambda: ledger.snapshot(now))
    planning, plan = timed(lambda: cycle(snapshot, chosen))
    adopting, _ = timed(lambda: ledger.adopt(snapshot, plan))
    viewing, _ = timed(lambda: ledger.view(snapshot, plan, leading=True, synced=True))
    return {"snapshot": snapping, "cycle": planning, "adopt": adopting, "view": viewing}


def _spare() -> Any:
    event = next(iter(synthetic.nodes(1)))
    assert isinstance(event, NodeSeen)
    return replace(event.node, name="spare")


def timed(what: Callable[[], T]) -> tuple[float, T]:
    """Seconds of wall time, and what came back."""
    began = time.perf_counter()
    value = what()
    return time.perf_counter() - began, value


# ---- events ----


class Tape:
    """An Api that plays a first list and a watch from memory."""

    def __init__(self, listed: bytes, lines: list[bytes]) -> None:
        self._listed, self._lines = listed, lines
        self.played = threading.Event()

    def get(self, path: str) -> bytes:  # noqa: ARG002
        return self._listed

    def lines(self, path: str) -> Iterator[bytes]:  # noqa: ARG002
        yield from self._lines
        self.played.set()
        threading.Event().wait()  # the watch stays open


def _events(result: Result, pods: int = 3000, each: int = 4) -> None:
    """Decode and apply a watch's events of `pods` pods: each created gated, ungated, bound, running."""
    rate = events_per_second(pods, each)
    result.data["events_per_s"] = round(rate)
    result.row(
        "pod events a second on one core: decode and apply", f"{rate:.0f}", ">= 3,000", rate >= EVENTS_AIM
    )


def events_per_second(pods: int, each: int) -> float:
    """The rate at which a reflector and a ledger take the events of pods as an apiserver sends them."""
    lines = [_line(i, phase, phase * pods + i + 10) for phase in range(each) for i in range(pods)]
    tape = Tape(b'{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}', lines)
    ledger = Ledger(profile())
    for event in synthetic.nodes(pods // 8 + 1):
        ledger.apply(event, synthetic.NOW)
    ledger.snapshot(synthetic.NOW)
    took = [0]

    def take(events: list[Event]) -> None:
        for event in events:
            ledger.apply(event, synthetic.NOW)
        took[0] += len(events)

    watched = next(one for one in resources.watched(load.MUSTER) if one.name == "pods")
    reflector = Reflector(cast(Api, tape), watched, take)
    began = time.perf_counter()
    reflector.start()
    tape.played.wait()
    seconds = time.perf_counter() - began
    reflector.stop()
    assert took[0] == len(lines)
    return len(lines) / seconds


_MANAGED: list[dict[str, Any]] = [
    {"manager": name, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
     "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {
         ".": {}, "f:image": {}, "f:name": {}, "f:resources": {"f:limits": {"f:cpu": {}, "f:memory": {}}}}},
         "f:schedulerName": {}, "f:terminationGracePeriodSeconds": {}}}}
    for name in ("kube-controller-manager", "muster")
]  # fmt: skip


def _line(number: int, phase: int, version: int) -> bytes:
    """A watch event of about the size that an apiserver sends (2 to 3 kB)."""
    gang = number // 3
    pod = load.pod(f"g{gang}-{number % 3}", f"g{gang}", 3, load.MUSTER)
    meta, spec = pod["metadata"], pod["spec"]
    meta |= {
        "namespace": "bench",
        "uid": f"00000000-0000-0000-0000-{number:012d}",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": _MANAGED,
    }
    spec["tolerations"] = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    spec["volumes"] = [{"name": "kube-api-access", "projected": {"sources": [{"serviceAccountToken": {}}]}}]
    node = f"node-{number // 8:04d}"
    if phase == 0:
        spec["schedulingGates"] = [{"name": "muster.dev/queue"}]
    else:
        name = {"key": "metadata.name", "operator": "In", "values": [node]}
        terms = {"nodeSelectorTerms": [{"matchFields": [name]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if phase >= 2:
        spec["nodeName"] = node
    pod["status"] = {"phase": "Running" if phase >= 3 else "Pending"}
    return raw.bodies([{"type": "ADDED" if phase == 0 else "MODIFIED", "object": pod}])[0]


# ---- memory ----


def memory(nodes: int, running: int, waiting: int) -> float:
    """MiB that a fresh process needs for a ledger, a plan and a view of that size (its highest RSS)."""
    code = "from e2e.bench.planning import _child; _child()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, (nodes, running, waiting))],
        capture_output=True, text=True, check=True, cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    return float(done.stdout)


def _child() -> None:
    import muster.serve  # noqa: F401  (the servers' libraries count)

    nodes, running, waiting = map(int, sys.argv[1:])
    chosen = profile()
    ledger = synthetic.ledger_of(chosen, nodes, running, waiting)
    snapshot = ledger.snapshot(synthetic.NOW)
    plan = cycle(snapshot, chosen)
    view = ledger.view(snapshot, plan, leading=True, synced=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    del view


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
