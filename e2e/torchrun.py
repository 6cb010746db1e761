"""Trainings of config/samples/pytorch under torchrun, and what their logs say: for test_pytorch*.py."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster import Json, Refused, collection
from e2e.lab.places import CHECKOUT
from e2e.lab.ports import reserve
from e2e.scenario import bound, gated, wait_until
from e2e.test_training import SLOW, SPACE, Training, come, environment_of, fitted, go

SAMPLE = CHECKOUT / "config" / "samples" / "pytorch"
EVERY = 20
"""Steps between two checkpoints."""


@dataclass(frozen=True)
class Ddp(Training):
    """The sample's Job, and what its log says."""

    name: str = "pytorch"

    def goes_on(self, workers: int, what: str) -> None:
        """Wait for steps by so many workers, in what is logged from now on."""
        self._has_steps(workers, what, len(self.log))

    def starts_again(self, workers: int, what: str, since: int) -> None:
        """Wait for a start that is logged after so many entries, and steps by so many workers after it."""
        wait_until(
            lambda: any("start" in entry for entry in self.log[since:]),
            within=SLOW,
            what=f"{what}: a start",
            also=self.said,
        )
        first = next(at for at, entry in enumerate(self.log) if at >= since and "start" in entry)
        self._has_steps(workers, what, first)

    def _has_steps(self, workers: int, what: str, since: int) -> None:
        wait_until(
            lambda: workers in [entry["workers"] for entry in self.log[since:] if "step" in entry],
            within=SLOW,
            what=f"{what}: steps by {workers} workers",
            also=self.said,
        )

    def kills(self, what: str, *settings: str) -> int:
        """Kill a process as nothing announces it. How long the log was."""
        found = self._process(what, *settings)
        seen = len(self.log)
        os.kill(found, signal.SIGKILL)
        return seen

    @contextlib.contextmanager
    def stands_still(self, what: str, *settings: str) -> Iterator[None]:
        """Inside of the block a process does nothing, as on a machine that is short of CPUs."""
        found = self._process(what, *settings)
        os.kill(found, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(found, signal.SIGCONT)

    def _process(self, what: str, *settings: str) -> int:
        """The one process of its containers that has these in its environment and `what` on its command line."""
        wanted = {each.encode() for each in settings}
        (found,) = {
            pid
            for node in self.lab.real_nodes
            for pid in node.cgroup.pids()
            if wanted <= set(environment_of(pid).split(b"\0")) and what in command_of(pid)
        }
        return found


def command_of(pid: int) -> list[str]:
    """Its command line's words, of paths the last part."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [word.rpartition("/")[2] for word in words]


def as_job(spec: Json) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "any"}, "spec": spec}


def fits(training: Ddp, steps: int) -> Callable[[Json], Json]:
    """How a Job of a sample is fitted to this machine, with so many steps."""
    own = f"rendezvous-{training.folder.name}"
    port = str(reserve(training.lab.folder, [own])[own])  # loopback is everybody's

    def fit(job: Json) -> Json:
        own = {"STEPS": str(steps), "EVERY": str(EVERY)}
        found = fitted(training.lab, job, training.folder, SAMPLE, own)
        found["spec"]["template"]["spec"]["containers"][0]["env"].append({"name": "PORT", "value": port})
        return found

    return fit


def is_moved(training: Ddp, name: str, few: int, many: int) -> None:
    """Guests of this name have all GPUs for a while, and then the node of index 0 takes nobody: all of it starts on
    the other one, as few as have room there, the rendezvous as well; and it is many again when the node is open."""
    node = training.leaders_node
    assert node
    come(training, name, 4)
    wait_until(
        lambda: len(gated(training.pods)) == 8, within=SLOW, what="all workers wait", also=training.said
    )
    training.cluster.cordon(node)
    go(training, name)
    training.goes_on(few, "moved")
    assert {one.node for one in bound(training.pods)} == {"real-0", "real-1"} - {node}
    training.cluster.cordon(node, False)
    training.goes_on(many, "grown after the move")


def is_complete(training: Ddp) -> None:
    wait_until(
        lambda: training.status.get("completionTime"),
        within=SLOW,
        what="its Job is complete",
        also=training.said,
    )


def remove(training: Ddp, made: Json) -> None:
    """The next training has its name, or its JobSet's: an operator that finds one on its way out makes none."""
    where = f"{collection(made, SPACE)}/{made['metadata']['name']}"
    training.cluster.delete(where, propagationPolicy="Foreground")

    def gone() -> bool:
        try:
            training.cluster.get(where)
        except Refused as refused:
            return refused.status == 404 and not training.pods
        return False

    wait_until(gone, within=SLOW, what="it and its pods are gone", also=training.said)


def no_step_is_lost(log: list[Json]) -> None:
    """Every start goes on from the last checkpoint; all changes but a death of rank 0 had one of their own step."""
    last = saved = 0
    again = []
    for entry in log:
        if "start" in entry:
            assert entry["start"] == saved, entry
            if last != saved:
                again.append(last - saved)
            last = saved
        elif "checkpoint" in entry:
            assert entry["checkpoint"] == last, entry
            saved = last
        else:
            assert entry["step"] == last + 1, entry
            last = entry["step"]
    assert len(again) <= 2, again  # index 0 may have had rank 0, too
    assert all(steps < EVERY for steps in again), again
