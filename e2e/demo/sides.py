"""The three runs of the demo: side by side, each on a lab of its own."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from e2e.cluster import Cluster
from e2e.demo.camera import camera
from e2e.demo.course import PAUSE, Course
from e2e.demo.drive import Pace, drive
from e2e.demo.outcome import Outcome, outcome
from e2e.demo.show import Show
from e2e.demo.workload import Workload, elastic
from e2e.elastic import reader
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.say import say


@dataclass(frozen=True)
class Side:
    """One of the runs. profile: Muster's, "" = without Muster; elastic: jobs may have other numbers of workers."""

    name: str
    profile: str = ""
    elastic: bool = False

    @property
    def scheduler(self) -> str:
        return "muster" if self.profile else "default-scheduler"

    def values(self, speed: float) -> tuple[str, ...]:
        """Of the chart, with Muster's own times compressed like everything else."""
        if not self.profile:
            return ()
        found = [f"profile={self.profile}", f"config.patience={max(1.0, PATIENCE / speed):.1f}s"]
        if self.elastic:
            costs = "config.pluginArgs.resize-cost"
            found += ["config.estimate=declared", f"{costs}.cost={PAUSE / speed:g}"]
            found.append(f"{costs}.horizon={HORIZON / speed:g}")
        return tuple(found)


SIDES = (Side("default"), Side("gangs", "fifo"), Side("elastic", "afs-l", elastic=True))
SERIAL = 0.06
"""Part of a training step that more GPUs don't shorten. On 8 GPUs the nine models that the AFS paper measured have
0.00 to 0.48, and 0.06 in the middle."""
PATIENCE = 300.0  # seconds: Muster's default, the time after which the head of the queue gets a reservation
HORIZON = 600.0  # seconds: the default of plugin resize-cost
LOOKS_EVERY = 5.0  # seconds: whether something in a lab has ended
PICTURE_AT = 2400.0  # trace seconds into the elastic run: most of the hour's jobs are there


@dataclass(frozen=True)
class Setting:
    """Labs `name`-SIDE of `nodes` x `gpus`; the course's patience (trace s); page: where its picture goes."""

    name: str
    nodes: int
    gpus: int
    patience: float
    serial: float
    pace: Pace
    keep: bool
    page: Path | None
    out: Path

    def lab(self, side: Side) -> Lab:
        return Lab(f"{self.name}-{side.name}")

    def shape(self, side: Side) -> Shape:
        nodes = NodeGroup(self.nodes, gpus=self.gpus)
        return Shape(groups=(nodes,), chart=bool(side.profile), set_values=side.values(self.pace.speed))


def run_all(setting: Setting, workload: Workload) -> list[Outcome]:
    """All runs at the same time; their labs are gone afterwards unless they are to be kept."""
    total = setting.nodes * setting.gpus
    stretched = elastic(workload, total, setting.serial)
    over = threading.Event()
    with contextlib.ExitStack() as labs:
        for side in SIDES:
            labs.enter_context(_lab(setting, side))
        tokens = {side: _token(setting, side) for side in SIDES if side.profile}
        courses = {side.name: Course(setting.patience) for side in SIDES}
        with (
            Show(Console(stderr=True), total, len(workload.jobs), setting.pace.limit, courses) as show,
            ThreadPoolExecutor(len(SIDES)) as several,
        ):

            def one(side: Side) -> Outcome:
                course, todo = courses[side.name], stretched if side.elastic else workload
                return _run(setting, side, todo, course, show.step, tokens.get(side, ""), over)

            runs = [several.submit(one, side) for side in SIDES]
            try:
                for done in as_completed(runs):
                    done.result()
            finally:
                over.set()  # where one of them failed, or Ctrl-C came
        return [run.result() for run in runs]


def _run(
    setting: Setting,
    side: Side,
    workload: Workload,
    course: Course,
    show: Callable[[str, float], None],
    token: str,
    over: threading.Event,
) -> Outcome:
    lab = setting.lab(side)
    with contextlib.ExitStack() as around:
        looks: list[Callable[[float], None]] = [lambda now: show(side.name, now), _Kubelet(lab).step]
        if setting.page is not None and side.elastic:
            at = min(PICTURE_AT, 0.6 * workload.window)
            taking = around.enter_context(camera(setting.page, lab.service_url(), token, at, course))
            looks.append(taking.step)

        def step(now: float) -> None:
            for look in looks:
                look(now)

        end = drive(Cluster(lab.kubeconfig), side.scheduler, workload, course, setting.pace, step, over)
    return outcome(side.name, course, end, setting.pace.limit)


class _Kubelet:
    """Starts again what ends in a lab, as a kubelet would: a kube-scheduler does that misses its Lease's renewal, on
    a machine that stood still for 10 s, and its side would wait for nobody until it is cut off."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._next = lab, time.monotonic() + LOOKS_EVERY

    def step(self, _now: float) -> None:
        if time.monotonic() >= self._next:
            self._lab.revive()
            self._next = time.monotonic() + LOOKS_EVERY


@contextlib.contextmanager
def _lab(setting: Setting, side: Side) -> Iterator[None]:
    lab = setting.lab(side)
    try:
        lab.up(setting.shape(side))
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave half a lab
        if setting.keep:
            say(f"kept: export KUBECONFIG={lab.kubeconfig}; end it: make lab-down NAME={lab.name}")
        else:
            say(f"ending lab {lab.name}")
            lab.down()
            _file(setting, side).unlink(missing_ok=True)


def _token(setting: Setting, side: Side) -> str:
    """For the page, whose address is said. It lies in a file: nobody types it."""
    lab, file = setting.lab(side), _file(setting, side)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    token = reader(Cluster(lab.kubeconfig))
    file.write_text(token)
    say(f"the page of {side.name} while it runs: {lab.service_url()}/ (it asks for a token: {file})")
    return token


def _file(setting: Setting, side: Side) -> Path:
    return setting.out / f"{side.name}.token"
