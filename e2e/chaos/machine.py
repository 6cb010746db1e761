"""The troubles carried out on a lab and undone again, and a kubelet: what has ended is started again."""

from __future__ import annotations

import contextlib
import itertools
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from e2e.chaos.troubles import VERBS, Trouble, What
from e2e.cluster import Cluster, Pod, Refused
from e2e.lab import Lab, LabError, NotReadyError
from e2e.lab.api import answers
from e2e.lab.daemon import Daemon

CLOCK = Path(__file__).parent / "clock"
RESTARTS = 1.0
"""Seconds until the kubelet starts again what has ended."""
PERIOD, THRESHOLD = 10.0, 3
"""Seconds between two liveness probes, and how many fail in a row before a restart."""
REFUSES = (Refused, urllib3.exceptions.HTTPError, OSError)


def away(error: BaseException) -> bool:
    """Whether this is an API that is away or has too much to do."""
    return isinstance(error, urllib3.exceptions.HTTPError | OSError) or (
        isinstance(error, Refused) and (error.status >= 500 or error.status == 429)
    )


@dataclass
class Machine:
    """say: told of each trouble. faults: what nobody asked for, seen by the kubelet."""

    lab: Lab
    cluster: Cluster
    namespace: str
    say: Callable[[str], None]
    faults: list[str] = field(default_factory=list)
    _busy: set[str] = field(default_factory=set)
    _undo: list[tuple[float, int, str, Callable[[], None]]] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _looked: float = 0.0
    _probed: float = 0.0
    _failures: dict[str, int] = field(default_factory=dict)

    def begins(self, trouble: Trouble) -> None:
        """Carry it out now. One whose process is in trouble already is left out, and said to be."""
        if trouble.process in self._busy:
            self.say(f"left out, since it is in trouble: {trouble}")
            return
        try:
            about = self._carry_out(trouble)
        except REFUSES as refused:
            self.say(f"left out, since the API is away: {trouble} ({str(refused)[:80]})")
            return
        self.say(f"{trouble}{': ' if about else ''}{about}")

    def turns(self, now: float) -> None:
        """Undo what is due, and start what has ended. now: monotonic."""
        for one in sorted(self._undo)[:]:
            if one[0] <= now:
                self._undo.remove(one)
                self._undone(one)
        if now - self._looked >= RESTARTS:
            self._looked = now
            self._kubelet()

    def calms(self) -> None:
        """Undo all that is left, until every process runs."""
        while self._undo:
            one = min(self._undo)
            self._undo.remove(one)
            self._undone(one)
        self._busy.clear()
        for name in ("etcd", "kube-apiserver", *self.lab.processes):
            if not self.lab.alive(name):
                self.lab.start(name, env={}, wait=False)
        for name in self.lab.processes:
            try:
                self.lab.wait_ready(name)
            except (
                NotReadyError
            ):  # it had waited for an API that was away, and gave up: a kubelet starts it again
                self._start(name, {})
                self.lab.wait_ready(name)

    # ---- one at a time ----

    def _carry_out(self, trouble: Trouble) -> str:
        name = trouble.process
        if name.startswith(VERBS):
            return self._verbs(trouble)
        if trouble.what in (What.KILL, What.STOP):
            self._busy.add(name)
            if trouble.what is What.STOP:
                with contextlib.suppress(LabError):  # kube-apiserver waits a minute for its watches
                    self.lab.stop(name, patience=3.0)
            self.lab.kill(name)
            self._later(trouble.seconds, name, lambda: self._start(name, {}))
        elif trouble.what is What.FREEZE:
            if not self.lab.alive(name):
                return "it does not run"
            self._busy.add(name)
            self.lab.pause(name)
            self._later(trouble.seconds, name, lambda: self._resume(name))
        elif trouble.what in (What.ANSWERS, What.CLOCK):
            self._busy.add(name)
            env = {"MUSTER_FAULTS": trouble.how} if trouble.what is What.ANSWERS else clock(trouble.how)
            self.lab.kill(name)
            self._start(name, env)
            self._later(trouble.seconds, name, lambda: self._restart(name))
        elif trouble.what is What.POD:
            pods = [one for one in self.cluster.pods(self.namespace) if one.node and not one.terminal]
            return self._delete(
                trouble.pick, [f"/api/v1/namespaces/{self.namespace}/pods/{p.name}" for p in pods]
            )
        elif trouble.what is What.GANG:
            items = f"/apis/muster.dev/v1alpha1/namespaces/{self.namespace}/gangs"
            found = [f"{items}/{one['metadata']['name']}" for one in self.cluster.get(items)["items"]]
            return self._delete(trouble.pick, found)
        else:
            return self._node(trouble)
        return ""

    def _verbs(self, trouble: Trouble) -> str:
        """To a muster's process that answers the verbs: it is its planner who sees that, says so and goes on."""
        found = self.lab.children(trouble.process.removeprefix(VERBS))
        if not found:
            return "it does not run"
        child = found[-1]
        self.lab.expects(rf"the process that answers the verbs \({child.pid}\)")
        if trouble.what is What.FREEZE:
            self._busy.add(trouble.process)
            self._later(trouble.seconds, trouble.process, lambda: self._goes_on(child))
        sent = {What.KILL: signal.SIGKILL, What.STOP: signal.SIGTERM, What.FREEZE: signal.SIGSTOP}
        child.signal(sent[trouble.what])
        return f"pid {child.pid}"

    def _goes_on(self, child: Daemon) -> None:
        child.signal(signal.SIGCONT)  # if its planner has not ended it

    def _node(self, trouble: Trouble) -> str:
        node = self.lab.nodes[int(trouble.pick * len(self.lab.nodes))]
        if node in self._busy:
            return f"{node} is in trouble already"
        path = f"/api/v1/nodes/{node}"
        if trouble.what is What.CORDON:
            self.cluster.cordon(node)
            self._later(trouble.seconds, node, lambda: self.cluster.cordon(node, unschedulable=False))
        else:
            plain = self.cluster.get(path)
            plain["metadata"] = {
                key: plain["metadata"].get(key, {}) for key in ("name", "labels", "annotations")
            }
            plain["spec"] = {key: value for key, value in plain["spec"].items() if key != "unschedulable"}
            self.cluster.delete(path)
            self._later(trouble.seconds, node, lambda: self._again(plain))
        self._busy.add(node)
        return node

    def _again(self, plain: dict[str, object]) -> None:
        try:
            self.cluster.request("POST", "/api/v1/nodes", plain)
        except Refused as refused:
            if refused.status != 409:
                raise

    def _delete(self, pick: float, paths: list[str]) -> str:
        if not paths:
            return "there is none"
        path = sorted(paths)[int(pick * len(paths))]
        with contextlib.suppress(Refused):
            self.cluster.delete(path)
        return path.rpartition("/")[2]

    def _later(self, seconds: float, name: str, undo: Callable[[], None]) -> None:
        self._undo.append((time.monotonic() + seconds, next(self._numbers), name, undo))

    def _undone(self, one: tuple[float, int, str, Callable[[], None]]) -> None:
        _, number, name, undo = one
        try:
            undo()
        except REFUSES as refused:
            if not away(refused):
                raise
            self._undo.append((time.monotonic() + 1.0, number, name, undo))
            return
        self._busy.discard(name)
        self.say(f"over: {name}")

    def _start(self, name: str, env: dict[str, str]) -> None:
        if not self.lab.alive(name):
            self.lab.start(name, env=env, wait=False)

    def _resume(self, name: str) -> None:
        with contextlib.suppress(LabError):
            self.lab.resume(name)

    def _restart(self, name: str) -> None:
        self.lab.kill(name)
        self._start(name, {})

    def _kubelet(self) -> None:
        for name in self.lab.processes:
            if name in self._busy or self.lab.alive(name):
                continue
            if name.startswith("muster"):
                self.faults.append(f"{name} has ended, and nobody ended it")
            self.say(f"{name} has ended: the kubelet starts it again")
            self._busy.add(name)
            self._later(RESTARTS, name, lambda name=name: self._start(name, {}))  # type: ignore[misc]
        if time.monotonic() - self._probed >= PERIOD:
            self._probed = time.monotonic()
            self._probe()

    def _probe(self) -> None:
        """The liveness probe of each muster: one that fails too often is started again."""
        for pair in self.lab.pairs:
            name = pair.muster
            if name in self._busy or answers(f"{self.lab.service_url(pair.index)}/healthz"):
                self._failures[name] = 0
                continue
            self._failures[name] = self._failures.get(name, 0) + 1
            if self._failures[name] >= THRESHOLD:
                self._failures[name] = 0
                self.say(f"{name} fails its probe: the kubelet starts it again")
                self._restart(name)


def clock(offset: str) -> dict[str, str]:
    """The environment of a Python process whose wall clock is off by so many seconds; intervals are right."""
    return {"PYTHONPATH": str(CLOCK), "E2E_CLOCK": offset}


def running(pods: list[Pod]) -> list[Pod]:
    """Those on nodes that nobody has ended."""
    return [one for one in pods if one.node and not one.terminal and not one.deleted]
