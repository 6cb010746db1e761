"""In place: the orders that wait for agents, between the thread that decides and the requests that are held.

A term begins (`begin`) with nothing known. Each request gets a serial number and is handed on as an AgentHeard;
whoever decides takes these in, in that order, and tells (`publish`) up to which serial it has, and what each agent
that it knows is ordered. No request is answered before that: an answer is a lease, and none may run that whoever
decides doesn't count on. Nor is one answered after its term: the next leader counts leases from its own beginning.

A held request costs an entry here and a coroutine, no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.types.devices import AgentAnswer, AgentKey, AgentReport, AgentState, Order

WAITING = 8
"""Requests of one pod that are held at a time: as many as it may have agents (core/devices/agents.py)."""


@dataclass(frozen=True, slots=True)
class AgentHeard:
    """A report of a pod's agent, whose request waits for its answer."""

    serial: int
    pod: str
    report: AgentReport


class Unanswered(enum.Enum):
    """Why a request has no answer."""

    WAITS = enum.auto()  # not taken in yet, or there is nothing new
    OVERTAKEN = enum.auto()  # a newer request of this agent came
    UNKNOWN = enum.auto()  # taken in, and this agent is none that gets orders
    OVER = enum.auto()  # its term is


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A request of an agent, from when it was read to its answer. Of the event loop in which it was made.

    round_trip: where it is the first after its agent was answered with an order, s since that was published."""

    key: AgentKey
    report: AgentReport
    serial: int
    term: _Term
    round_trip: float | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Look again. From any thread."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits there any more
            self.loop.call_soon_threadsafe(self.news.set)


@dataclass(slots=True, eq=False)
class _Term:
    number: int
    lease: float
    lasts: Callable[[], bool]
    heard: int
    orders: Mapping[AgentKey, Order | None] = field(default_factory=dict)
    given: dict[AgentKey, _Given] = field(default_factory=dict)


@dataclass(slots=True)
class _Given:
    """An agent's newest order. at: when it was published; told: whether a request was answered with it; arrived:
    whether the agent has asked again since."""

    number: int
    at: float
    told: bool = False
    arrived: bool = False


class AgentOrders:
    """What agents are told now. begin, publish and end by whoever decides; the rest by requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: s, of round trips."""
        self._clock = clock
        self._lock = threading.Lock()
        self._serial = 0
        self._term: _Term | None = None
        self._held: dict[AgentKey, Held] = {}
        self._new: deque[Held] = deque()  # not taken in yet

    # ---- of whoever decides ----

    def begin(self, term: int, lease: float, lasts: Callable[[], bool]) -> None:
        """A term with this number. lease: s; lasts: whether it may still be answered for, asked before each answer.
        What came before is not answered any more."""
        with self._lock:
            self._term = _Term(term, lease, lasts, self._serial)
            self._new.clear()
            self._wake()

    def publish(self, heard: int, orders: Mapping[AgentKey, Order | None]) -> None:
        """All up to serial `heard` is taken in, and these are the agents that are known, with what they are to be
        told; None: nothing. Raises ValueError where no term has begun."""
        with self._lock:
            if self._term is None:
                raise ValueError("expected a term that has begun, found none")
            term, before = self._term, self._term.orders
            term.heard, term.orders = heard, dict(orders)
            changed = {key for key in orders if key not in before or orders[key] is not before[key]}
            changed |= before.keys() - orders.keys()
            for key in changed:
                order = orders.get(key)
                if order is None:
                    term.given.pop(key, None)
                else:
                    term.given[key] = self._given(term.given.get(key), order.number)
            woken = [self._held[key] for key in changed if key in self._held]
            while self._new and self._new[0].serial <= heard:
                woken.append(self._new.popleft())
            for held in woken:  # for any other there is nothing new: with 1,000 agents that is nearly all
                if self._look(held, patient=True) is not Unanswered.WAITS:
                    held.wake()

    def took_in(self, heard: int) -> None:
        """All up to serial `heard` is taken in, and orders are as they were. Raises ValueError as publish."""
        with self._lock:
            if self._term is None:
                raise ValueError("expected a term that has begun, found none")
            self._term.heard = heard
            while self._new and self._new[0].serial <= heard:
                self._new.popleft().wake()

    def _given(self, before: _Given | None, number: int) -> _Given:
        return before if before is not None and before.number == number else _Given(number, self._clock())

    def end(self) -> None:
        """The term is over."""
        with self._lock:
            self._term = None
            self._new.clear()
            self._wake()

    def _wake(self) -> None:
        for held in self._held.values():
            held.wake()

    # ---- of requests ----

    @property
    def leading(self) -> bool:
        """Whether requests are answered now."""
        term = self._term
        return term is not None and term.lasts()

    def hold(self, pod: str, report: AgentReport) -> Held | None:
        """A request that waits from now on; the one that its agent had before is overtaken. None: as many of this pod
        are held as may be, or the term is over."""
        key = AgentKey(pod, report.incarnation)
        with self._lock:
            before = self._held.get(key)
            if self._term is None or (
                before is None and sum(other.pod == pod for other in self._held) >= WAITING
            ):
                return None
            self._serial += 1
            given, round_trip = self._term.given.get(key), None
            if given is not None and given.told and not given.arrived:
                given.arrived = True
                round_trip = self._clock() - given.at
            held = self._held[key] = Held(key, report, self._serial, self._term, round_trip)
            self._new.append(held)
            if before is not None:
                before.wake()
            return held

    def look(self, held: Held, *, patient: bool) -> AgentAnswer | Unanswered:
        """Its answer now. patient: only if there is an order above that of its report."""
        with self._lock:
            found = self._look(held, patient)
            if isinstance(found, AgentAnswer) and found.order is not None:
                given = held.term.given.get(held.key)
                if given is not None and given.number == found.order.number:
                    given.told = True
            return found

    def let_go(self, held: Held) -> None:
        """It waits no more."""
        with self._lock:
            if self._held.get(held.key) is held:
                del self._held[held.key]

    def _look(self, held: Held, patient: bool) -> AgentAnswer | Unanswered:
        term = held.term
        if term is not self._term or not term.lasts():
            return Unanswered.OVER
        if self._held.get(held.key) is not held:
            return Unanswered.OVERTAKEN
        if term.heard < held.serial:
            return Unanswered.WAITS
        if held.key not in term.orders:
            return Unanswered.UNKNOWN
        order = term.orders[held.key]
        newer = order is not None and order.number > held.report.order
        if patient and not newer and held.report.state is not AgentState.ENDED:
            return Unanswered.WAITS
        return AgentAnswer(term.number, term.lease, order)
