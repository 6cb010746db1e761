"""One run: pods wait, the schedulers start, and every bind is timed.

Everything that is not compared stands still or is the same: one lab for all variants, kwok stopped (in a
cluster the kubelets' status patches come from other machines), pods without owners, the schedulers that a
variant does not need stopped. The lab's apiserver has the native gang API on for every variant; only the
native variant's scheduler has its feature gate."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.bench import figures, load, raw
from e2e.bench.figures import Binds
from e2e.bench.gates import Gates
from e2e.bench.raw import Wire
from e2e.bench.report import Progress
from e2e.lab import Lab, NodeGroup, Shape, daemon
from e2e.lab.chart import LEASE
from e2e.lab.chart import NAMESPACE as RELEASE_NAMESPACE
from muster.types import GATE

NATIVE_GATE = "GenericWorkload=true"
NATIVE_FLAGS = (f"--feature-gates={NATIVE_GATE}", "--runtime-config=scheduling.k8s.io/v1beta1=true")
STILL = 120.0
"""Seconds without a bind after which a run is given up."""
SETTLE = 3.0
"""Seconds after the last bind until calls are counted: the gangs' last status writes come then."""


@dataclass(frozen=True)
class Variant:
    """Who schedules. `processes` run in this variant only; `group`: pods belong to native PodGroups; `gated`: they
    have a gate, which the measuring process takes off."""

    name: str
    scheduler: str
    processes: tuple[str, ...]
    group: bool = False
    gated: bool = False


MUSTER = Variant("muster", load.MUSTER, ("muster", "kube-scheduler"))
STOCK = Variant("stock", load.STOCK, ("default-scheduler",))
NATIVE = Variant("native", load.STOCK, ("native-scheduler",), group=True)
GATES = Variant("gates", load.STOCK, ("default-scheduler",), gated=True)
VARIANTS = {one.name: one for one in (MUSTER, STOCK, NATIVE, GATES)}
SHARED = ("kube-apiserver", "etcd", "kube-controller-manager", "kwok")


@dataclass(frozen=True)
class Run:
    """What one run gave. cpu: seconds by process (bench: the measuring one), from the schedulers' start to the last
    bind; writes: API calls that write for each pod; load: runnable processes of the machine when it began (1 min
    average)."""

    variant: str
    binds: Binds
    cpu: Mapping[str, float] = field(default_factory=dict)
    writes: Mapping[str, float] = field(default_factory=dict)
    load: float = 0.0

    def to_json(self) -> dict[str, object]:
        """For out/bench: the figures, and the binds as seconds from the start, in order."""
        return {
            "variant": self.variant,
            "pods": len(self.binds.times),
            "start_to_first_s": round(self.binds.first, 3),
            "start_to_last_s": round(self.binds.whole, 3),
            "first_to_last_s": round(self.binds.span, 3),
            "pods_per_s": round(self.binds.rate, 1),
            "pods_per_s_from_start": round(self.binds.rate_from_start, 1),
            "cpu_s": {name: round(value, 2) for name, value in self.cpu.items()},
            "writes_per_pod": {name: round(value, 3) for name, value in self.writes.items()},
            "load": round(self.load, 2),
        }


def shape(nodes: int, gpus: int = 8) -> Shape:
    """The lab of every variant."""
    return Shape(groups=(NodeGroup(nodes, gpus),), apiserver_args=NATIVE_FLAGS)


@contextlib.contextmanager
def lab_of(name: str, wanted: Shape, keep: bool = False) -> Iterator[Lab]:
    """A lab for a measure; ended with it, unless it is to be kept for the next try."""
    lab = Lab(name).up(wanted)
    try:
        yield lab
    finally:
        if not keep:
            lab.down()


class Course:
    """A lab, and runs in it."""

    def __init__(self, lab: Lab, progress: Progress, *, kwok: bool = False) -> None:
        self.lab, self.progress = lab, progress
        self.wire = Wire(lab.kubeconfig)
        self._number = int(time.time()) % 100_000 * 100
        self._kwok = kwok

    def settle(self, writes: float = 20.0, seconds: float = 120.0) -> None:
        """Until a new lab has come to rest: the controllers still write to 5,000 nodes when it is up."""
        before, until = None, time.monotonic() + seconds
        while time.monotonic() < until:
            calls = figures.calls(self.wire.ask("GET", "/metrics"))
            if before is not None and sum(figures.writes_since(before, calls, per=1).values()) < writes:
                return
            before = calls
            time.sleep(2.0)

    def run(self, variant: Variant, gangs: int, size: int, gpus: int = 1, *, clear: bool = True) -> Run:
        """Submit gangs while nobody schedules, start the variant's schedulers, and time every bind."""
        self.halt()
        self._number += 1
        namespace = f"bench-{variant.name}-{self._number}"
        raw.create_namespace(self.wire, namespace)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        count = gangs * size
        if variant.group:
            groups = raw.bodies(load.groups(gangs, size))
            self.wire.create(f"{load.GROUP_API}/namespaces/{namespace}/podgroups", groups)
        with self.progress.steps(f"{variant.name}: creating {count} pods", count) as step:
            gate = {"schedulingGates": [{"name": GATE}]} if variant.gated else {}
            todo = raw.bodies(
                load.gangs(gangs, size, variant.scheduler, gpus=gpus, group=variant.group, **gate)
            )
            self.wire.create(pods, todo, said=step)
        time.sleep(1.0)  # what the creation set going elsewhere comes to rest
        result = self.timed(variant, namespace, count)
        if clear:
            self.halt()
            self.clear(namespace)
        return result

    def timed(self, variant: Variant, namespace: str, count: int) -> Run:
        """Start the schedulers over what waits in a namespace until `count` pods of it are bound."""
        # The administrator's: Muster's own account may change pods of Muster's only.
        gates = Gates(self.wire, self.lab.kubeconfig, namespace) if variant.gated else None
        calls = figures.calls(self.wire.ask("GET", "/metrics"))
        busy = os.getloadavg()[0]
        watch = raw.bound(self.wire, namespace)
        used = self.cpu(SHARED)
        started = time.monotonic()
        self._start(variant)
        if gates is not None:
            gates.open()
        with self.progress.reading(f"{variant.name}: binding", count) as reading:
            watch.wait(count, STILL, reading, f"{variant.name}: pods bound")
        after = self.cpu((*SHARED, *variant.processes))
        watch.close()
        time.sleep(SETTLE)
        more = figures.writes_since(calls, figures.calls(self.wire.ask("GET", "/metrics")), per=count)
        cpu = {name: value - used.get(name, 0.0) for name, value in after.items()}
        return Run(variant.name, Binds(started, tuple(watch.seen.values())), cpu, more, busy)

    def halt(self) -> None:
        """No scheduler runs, nobody holds Muster's Lease, and kwok is as this course has it."""
        for name in {name for one in VARIANTS.values() for name in one.processes}:
            if name in ("muster", "kube-scheduler") and not self.lab.pairs:
                continue
            if name == "native-scheduler":
                found = daemon.recorded(self.lab.folder).get(name)
                daemon.end([found] if found is not None else [])
            else:
                self.lab.kill(name)
        if not self._kwok:
            self.lab.stop("kwok", signal.SIGKILL)
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{RELEASE_NAMESPACE}/leases"
        self.wire.send("DELETE", f"{leases}/{LEASE}")

    def clear(self, namespace: str) -> None:
        """Remove what a run left. The gangs go last: a muster that runs would write them again."""
        for path in (
            f"/api/v1/namespaces/{namespace}/pods",
            f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/gangs",
            f"{load.GROUP_API}/namespaces/{namespace}/podgroups",
        ):
            with contextlib.suppress(Exception):
                self.wire.clear(path)

    def _start(self, variant: Variant) -> None:
        for name in variant.processes:
            if name == "native-scheduler":
                stock = daemon.recorded(self.lab.folder)["default-scheduler"]
                daemon.start(self.lab.folder, name, [*stock.argv, f"--feature-gates={NATIVE_GATE}"])
            else:
                self.lab.start(name, wait=False)

    def pid(self, name: str) -> int | None:
        """Of a process of the lab or of the native scheduler; None where it does not run."""
        if name == "native-scheduler":
            found = daemon.recorded(self.lab.folder).get(name)
            return found.pid if found is not None and found.alive else None
        return self.lab.pid(name)

    def cpu(self, names: tuple[str, ...]) -> dict[str, float]:
        """Seconds of CPU that processes have used since they started."""
        found = {"bench": time.process_time()}
        for name in names:
            pid = self.pid(name)
            if pid is None:
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[name] = _used(pid)
            if name == "muster":  # who answers the verbs is a process of its own
                found["verbs"] = sum(_used(child) for child in _children(pid))
        return found


def _used(pid: int) -> float:
    """Seconds of CPU of one process."""
    return figures.ticks(Path(f"/proc/{pid}/stat").read_text()) / os.sysconf("SC_CLK_TCK")


def _children(pid: int) -> list[int]:
    """Processes that a process has started and that run."""
    found = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for some in found for child in some]
