"""One command on devices that change: it is held until there are some, and started again with others.

    ready ──order, locks──▶ running ──order, lease, its own end──▶ stopping ──swept──▶ ready | ended
                              └──muster.devices()──▶ running with others

The main thread never waits for anything but its next look: output is passed on by a thread of its own, and Muster is
asked by another (poll.py), so a lease that runs out ends the training whatever else hangs.
"""

from __future__ import annotations

import collections
import selectors
import signal
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from muster_report.agent.child import Child, Launcher, end_as, hold_standard_descriptors, say
from muster_report.agent.descendants import descendants, kill, users
from muster_report.agent.lines import Lines, Tail
from muster_report.agent.locks import Locks
from muster_report.agent.outputs import LOOK, Outputs
from muster_report.agent.poll import Poll, boottime
from muster_report.agent.preload import Preloaded
from muster_report.agent.signals import Signals
from muster_report.agent.standing import Answer, Device, Order, Standing
from muster_report.agent.stopping import Stop
from muster_report.agent.trainer import Trainer, environment
from muster_report.report import AT_EXIT, Reporter

SOON = 0.02
"""Seconds between looks while something is awaited that wakes nobody: a lock, the end of a daemon."""
SWEPT = 10.0
"""Seconds that the agent's own end waits for processes that SIGKILL does not end."""
FATAL = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
"""Signals by which the pod is asked to end: no process is started any more."""


@dataclass(frozen=True)
class Settings:
    """grace: seconds from the first signal to KILL; checkpoint: the signal on which the training saves; locks: folder
    of the devices' locks; preload: modules to import before there are devices; gpus: numbers of devices that it can
    train on, as the pod says."""

    grace: float = 30.0
    checkpoint: int | None = None
    locks: str | None = None
    preload: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()


class InPlace:
    """The agent of one container, from its start to its end."""

    def __init__(
        self,
        command: list[str],
        settings: Settings,
        reporter: Reporter,
        sought: Lines | None,
        watched: Tail | None,
    ) -> None:
        self._settings, self._reporter, self._watched = settings, reporter, watched
        hold_standard_descriptors()
        self._signals = Signals()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._signals.wake, selectors.EVENT_READ)
        self._outputs = Outputs(selectors.DefaultSelector(), sought, self._tell)
        self._launcher = Launcher(command, self._outputs, self._signals, dies_with_us=True)
        self._preloaded = Preloaded(command, settings.preload, self._launcher) if settings.preload else None
        self._poll = Poll(self._hear, say)
        self._heard: collections.deque[tuple[Answer, float]] = collections.deque()
        self._locks = Locks(settings.locks)
        self._standing = Standing(str(uuid.uuid4()))
        self._child: Child | None = None
        self._trainer: Trainer | None = None
        self._devices: tuple[Device, ...] = ()  # that the child may be using
        self._stop: Stop | None = None
        self._change: tuple[Order, float] | None = None  # told to the trainer, and when
        self._status: int | None = None  # of a child that ended by itself
        self._until = 0.0  # then: when what it left is waited for no more
        self._leaving: int | None = None  # the signal by which the pod was asked to end
        self._early: int | None = None  # that signal, where the training was just being started
        self._saved = False
        self._said: set[str] = set()
        self._told: dict[str, Any] = {}
        self._signals.forward(self._deliver)

    def to_the_end(self) -> NoReturn:
        """Follow Muster's orders until the command has ended by itself or the pod is asked to end; end as it did."""
        copied = self._outputs.copied()  # what imports print, too, or they stand still at a full pipe
        if self._preloaded is not None:
            self._preloaded.wait(lambda: self._leaving is not None)
        self._report()
        self._poll.start()
        while not self._over():
            now = boottime()
            self._mind_lease(now)  # before anything that came while we stood still
            self._take_in(now)
            self._step(now)
            self._report()
            for _ in self._selector.select(self._pause(boottime())):
                self._signals.taken()
        self._end(copied)

    # ---- what came ----

    def _take_in(self, now: float) -> None:
        """Answers, ends of processes, what the trainer says, and what is written in the watched file."""
        while self._heard:
            self._standing = self._standing.heard(*self._heard.popleft(), now)
        (self._child or Child(-1)).reap()  # without one: orphans only
        if self._trainer is not None and not self._trainer.listen():
            self._close_trainer()
        if self._watched is not None:
            self._tell(self._watched.look())

    def _mind_lease(self, now: float) -> None:
        """Without an answer the training is asked to end before the lease does, and killed at its end."""
        if now >= self._standing.stop_by and self._child is not None and self._stop is None:
            say("no answer from Muster: the training is stopped before its lease ends")
            self._begin_stop(now, min(self._settings.grace, max(0.0, self._standing.until - now)))
        if now >= self._standing.until:
            self._standing = self._standing.expired()
            if self._child is not None:
                kill(self._descendants())

    # ---- one step towards what is ordered ----

    def _step(self, now: float) -> None:
        wanted = self._standing.wanted
        if self._child is None:
            held = now < self._standing.stop_by
            if wanted is not None and held and self._leaving is None and self._lock(wanted):
                self._start(wanted)
        elif self._child.status is not None:
            self._sweep(now)
        elif self._stop is not None:
            for number in self._stop.signals(now, self._saved):
                if number == signal.SIGKILL:
                    kill(self._descendants())
                else:
                    self._child.signal(number)
        elif wanted is not None and self._leaving is None:
            self._change_to(wanted, now)

    def _start(self, order: Order) -> None:
        if order.devices:
            self._trainer = trainer = Trainer()
            self._selector.register(trainer, selectors.EVENT_READ)
            told = environment(trainer, order.ids)
            self._child = None
            if self._preloaded is not None:
                self._child = self._preloaded.launch(told, (trainer.theirs, *self._locks.held.values()))
            if self._child is None:
                self._child = self._launcher.launch(told)
            early, self._early = self._early, None
            if early is not None:
                self._child.signal(early)
            trainer.started()
        self._devices = order.devices
        self._standing = self._standing.carried_out(order)

    def _change_to(self, order: Order, now: float) -> None:
        """From the devices that the child has to others, without a restart where it can."""
        if self._change is None and set(order.ids) == {device.id for device in self._devices}:
            self._carried_out(order)
        elif self._change is not None and self._change[0].number == order.number:
            self._follow_change(order, now)
        elif self._trainer is None or self._trainer.order is None or not order.devices:
            self._begin_stop(now)
        elif self._lock(order):
            have = {device.id for device in self._devices}
            files = [
                self._locks.held[one] for one in order.ids if one not in have and one in self._locks.held
            ]
            self._devices = tuple(sorted({*self._devices, *order.devices}))  # it may use both until it says
            self._change = (order, now)
            if not self._trainer.tell(order.number, order.ids, files):
                self._begin_stop(now)

    def _follow_change(self, order: Order, now: float) -> None:
        """Wait for the trainer's word, and look that the workers of devices that are gone have ended."""
        assert self._child is not None
        lost = {device.id for device in self._devices} - set(order.ids)
        told = self._trainer is not None and self._trainer.order == order.number
        if told and not users(lost, self._descendants() - {self._child.pid}):
            self._carried_out(order)
        elif now - self._change[1] > self._settings.grace:  # type: ignore[index]
            say("the training has not changed its devices within --grace: it is started again with others")
            self._begin_stop(now)

    def _carried_out(self, order: Order) -> None:
        self._locks.keep(order.ids)
        self._devices, self._change = order.devices, None
        self._standing = self._standing.carried_out(order)

    def _lock(self, order: Order) -> bool:
        why = self._locks.take(order.devices)
        if why is not None and why not in self._said:
            self._said.add(why)
            say(why)
        return why is None

    # ---- the end of a child ----

    def _begin_stop(self, now: float, grace: float | None = None) -> None:
        self._saved, self._change = False, None
        self._stop = Stop(now, self._settings.grace if grace is None else grace, self._settings.checkpoint)

    def _sweep(self, now: float) -> None:
        """The child has ended: whatever it left is ended, too, and only then is it gone."""
        assert self._child is not None
        left = self._descendants()
        kill(left)
        if self._status is None and (self._stop is None or not self._stop.begun or self._leaving is not None):
            self._status, self._until = self._child.status, now + SWEPT
        if left and (self._status is None or now < self._until):
            return
        if left:
            say(f"processes {', '.join(map(str, sorted(left)))} are left: SIGKILL does not end them")
        else:
            self._devices = ()
            self._locks.keep(())
        self._close_trainer()
        self._child = self._stop = self._change = None

    def _close_trainer(self) -> None:
        if self._trainer is not None:
            self._selector.unregister(self._trainer)
            self._trainer.close()
            self._trainer = None

    def _descendants(self) -> set[int]:
        return descendants(() if self._preloaded is None else self._preloaded.pids)

    def _over(self) -> bool:
        return self._child is None and (self._status is not None or self._leaving is not None)

    def _end(self, copied: Callable[[], None]) -> NoReturn:
        self._report()
        copied()
        if self._watched is not None:
            for _ in range(2):
                self._tell(self._watched.look())
        self._poll.flush(AT_EXIT)
        self._reporter.flush(AT_EXIT)
        self._launcher.take_terminal()
        end_as(self._leaving or 0 if self._status is None else self._status)

    # ---- what is told ----

    def _report(self) -> None:
        told = {
            "incarnation": self._standing.incarnation,
            "state": self._state(),
            "order": self._standing.done,
            "devices": [{"id": device.id, "epoch": device.epoch} for device in self._devices],
            "gpus": list(self._settings.gpus),
        }
        if told != self._told:
            self._told = told
            self._poll.tell(told)

    def _state(self) -> str:
        """As muster.types.devices.AgentState has them. Ended is only who uses no device any more, for good."""
        if self._child is None and not self._devices:
            return "ended" if self._over() else "ready"
        ending = self._child is None or self._stop is not None or self._child.status is not None
        return "stopping" if ending or self._leaving is not None else "running"

    def _tell(self, found: list[dict[str, Any]]) -> None:
        for values in found:
            if values.get("boundary"):
                self._saved = True
                self._signals.poke()
            self._reporter.report(**values)

    def _hear(self, answer: Answer, sent: float) -> None:
        self._heard.append((answer, sent))
        self._signals.poke()

    def _deliver(self, number: int) -> None:
        if number in FATAL:
            self._leaving = number
        if self._child is not None:
            self._child.signal(number)
        elif number in FATAL:
            self._early = number

    def _pause(self, now: float) -> float:
        """Seconds until the next look."""
        if self._stop is not None or self._change is not None or self._standing.wanted is not None:
            return SOON
        if self._child is not None and self._child.status is not None:
            return SOON
        return max(0.0, min(LOOK, self._standing.stop_by - now if self._child is not None else LOOK))
