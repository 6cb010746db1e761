"""The live driver of the circle event -> Ledger -> Snapshot -> plan -> actions -> outcome.

One thread turns the circle; reflectors and senders feed its inbox; the two web servers only read the Board.
"""

from __future__ import annotations

import gc
import logging
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.cluster import lease
from muster.cluster.act import Hands
from muster.cluster.api import REQUEST_TIMEOUT, Api
from muster.cluster.budgets import budgets
from muster.cluster.claims import claims
from muster.cluster.owners import Owners
from muster.cluster.quotas import quotas
from muster.cluster.reader import Reader
from muster.cluster.resources import watched
from muster.cluster.shelf import Shelf
from muster.cluster.watch import Reflector
from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.core.view import Board, View
from muster.errors import ClusterError
from muster.points import Profile
from muster.types import Event, Plan, Snapshot

log = logging.getLogger(__name__)

COALESCE = 0.05
"""Seconds between cycles: events that arrive meanwhile are planned together (design §3)."""
REST, LONGEST_REST = 8.0, 0.7
"""A cycle that used t seconds of CPU is followed by a rest of REST times t, LONGEST_REST at most: it holds
Python's lock, and where cycles of 100 ms follow each other the threads that send patches and read watches get a
tenth of the time (measured: 5,000 nodes, 1,000 gangs starting)."""
CROWDED_REST = 2.0
"""While many requests of starts wait to be sent, cycles are this many seconds apart: what they add would only
wait, too, and each takes from the sending (measured: half of Muster's CPU while 1,000 gangs start)."""
SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one go on (Python's own is 5 ms). Each verb that
kube-scheduler waits for, and each patch, gives the lock away several times: at 5 ms a filter call during a cycle
took 8 ms, and kube-scheduler has one thread (measured by `python -m e2e.bench verbs`)."""
YOUNG = (100_000, 50, 100)
"""Objects and collections after which Python looks for cycles of garbage. Its own (700, 10, 10) walks a large
cluster's records again and again and finds nothing: a quarter of a cycle's time, and pauses of 150 ms in every
thread (measured: 5,000 nodes, 12,000 jobs)."""
OWNERS_READ = 10.0
"""Seconds that the first plan waits for the sizes that custom owners declare: without them a running job would look
whole, and one that is not there yet would start in part."""
LEASE_EVERY = 1.0
"""Seconds between looks at the scheduler's Lease."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the driver needs of the configuration."""

    scheduler: str
    observe: bool
    lease_namespace: str
    lease_name: str
    learned: str = ""  # name of the ConfigMap beside the Lease that keeps what jobs taught


class Driver:
    """Turns the circle for a live cluster."""

    def __init__(self, api: Api, board: Board, settled: Settled, profile: Profile) -> None:
        self._api, self._board, self._settled = api, board, settled
        self._ledger = Ledger(profile)
        self._inbox: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self._reflectors = [Reflector(api, r, self.take) for r in watched(settled.scheduler)]
        self._shelf = Shelf(api, settled.lease_namespace, settled.learned)
        self._hands = Hands(api, self.take, settled.scheduler, shelf=self._shelf)
        self._owners = Owners(api, self.take)
        self._claims = Reader("claims", claims(api), self.take)
        self._quotas = Reader("quotas", quotas(api), self.take)
        self._budgets = Reader("budgets", budgets(api), self.take)
        self._host = socket.gethostname()
        self._holder = lease.Holder()
        self._stop = threading.Event()
        self._leading = False
        self._next_profile: Profile | None = None
        self.cycles = 0
        self.opened: Callable[[], bool] = lambda: True
        """Whether kube-scheduler can call the verbs: before that no gate comes off, since it would be refused."""
        self.observe_cycle: Callable[[float, Plan], None] | None = None
        self.observe_report: Callable[[float], None] | None = None
        """Called with the seconds from a report that told something new to the plan that knew it."""

    def take(self, events: list[Event]) -> None:
        """Called from the threads of reflectors, senders and the service port."""
        self._inbox.put(events)

    # ---- threads ----

    def start(self) -> None:
        """Begin watching; `run` plans."""
        for reflector in self._reflectors:
            reflector.start()
        self._owners.start()
        self._claims.start()
        self._quotas.start()
        self._budgets.start()
        threading.Thread(target=self._follow_lease, name="lease", daemon=True).start()

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()
        self._owners.stop()
        self._claims.stop()
        self._quotas.stop()
        self._budgets.stop()
        self._inbox.put([])

    def use(self, profile: Profile) -> None:
        """Plan with another profile from the next cycle on (a configuration was reloaded)."""
        self._next_profile = profile
        self._inbox.put([])

    @property
    def missing(self) -> list[str]:
        """Resources whose first list has not arrived."""
        return [r.resource.name for r in self._reflectors if not r.synced.is_set()]

    def _follow_lease(self) -> None:
        while not self._stop.wait(LEASE_EVERY if self._holder.identity and self.opened() else 0.2):
            try:
                holder = lease.read(self._api, self._settled.lease_namespace, self._settled.lease_name)
            except ClusterError as error:
                log.warning("reading the scheduler's Lease: %s", error)
                continue
            if holder.identity != self._holder.identity:
                log.info("the scheduler's Lease is held by %s", holder.identity or "nobody")
            self._holder = holder
            if self._leads() != self._leading:
                self._inbox.put([])

    def _leads(self) -> bool:
        return self.opened() and self._holder.leads(self._host, time.time())

    def _acts(self) -> bool:
        return self._leads() and not self._settled.observe

    # ---- the circle ----

    def run(self) -> None:
        """Turn the circle until `stop`. An error in a cycle is logged and does not end it."""
        sys.setswitchinterval(SWITCH)
        gc.set_threshold(*YOUNG)
        self._await_lists()
        gc.freeze()  # what is known now is not walked again; it goes when the last reference does
        log.info("first lists are in: %s", ", ".join(f"{r.resource.name}" for r in self._reflectors))
        previous = ""
        due = 0.0
        while not self._stop.is_set():
            self._gather(due)
            began, used = time.monotonic(), time.thread_time()
            try:
                leads = self._leads()
                if leads and not self._leading:
                    self._take_over(previous)
                if not leads and self._leading:
                    log.warning(
                        "no longer leading: the scheduler's Lease is held by %s", self._holder.identity
                    )
                    self._ledger.step_down()
                changed = leads != self._leading or self._next_profile is not None
                self._leading = leads
                if not leads and self._holder.identity:
                    previous = self._holder.identity
                if changed or self._ledger.due(time.time()):
                    self._turn(leads)
            except Exception:
                log.exception("a cycle failed; the next one starts from what was observed")
                self._stop.wait(1.0)
            rest = min(REST * (time.thread_time() - used), LONGEST_REST)
            due = max(began + COALESCE, time.monotonic() + rest)
        self._hands.close()

    def _await_lists(self) -> None:
        while self.missing and not self._stop.is_set():
            self._drain(0.05)
        self._drain(0.0)
        until = time.monotonic() + OWNERS_READ
        while self._ledger.unread_owners and time.monotonic() < until and not self._stop.is_set():
            self._drain(0.05)

    def _gather(self, due: float) -> None:
        """Wait for something to happen or to be due, then collect what comes until `due` (monotonic), or longer
        while the hands are full."""
        wake = self._ledger.wake
        patience = 1.0 if wake is None else min(1.0, max(0.0, wake - time.time()))
        self._drain(patience)
        began = time.monotonic()
        while not self._stop.is_set():
            pause = max(due, began + CROWDED_REST * self._hands.crowded) - time.monotonic()
            if pause <= 0:
                break
            time.sleep(min(pause, COALESCE))
            self._drain(0.0)
            if self._leading and self._acts():  # a cycle decided; what it waited for is on the API now
                self._hands.carry_out(self._ledger.proceed(time.time()))

    def _drain(self, patience: float) -> None:
        try:
            events = self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait()
        except queue.Empty:
            return
        while True:
            now = time.time()
            for event in events:
                self._ledger.apply(event, now)
            try:
                events = self._inbox.get_nowait()
            except queue.Empty:
                break
        self._owners.want(self._ledger.unknown_owners, self._ledger.grown_owners())
        self._claims.want(self._ledger.claims)
        self._quotas.want(self._ledger.short)
        self._budgets.want(self._ledger.guarded)

    def _take_over(self, previous: str) -> None:
        """A new leader waits out the old one's requests and lists afresh (design §6)."""
        if previous and not previous.startswith(f"{self._host}_"):
            log.info("taking over from %s: its last requests end, then everything is listed afresh", previous)
            self._stop.wait(REQUEST_TIMEOUT)
            self._reflectors = [reflector.successor() for reflector in self._reflectors]
            for reflector in self._reflectors:
                reflector.start()
            self._await_lists()
        log.info("leading")
        for event in self._shelf.read():
            self._ledger.apply(event, time.time())
        self._ledger.take_over()

    def _turn(self, leads: bool) -> None:
        if self._next_profile is not None:
            self._ledger.use(self._next_profile)
            self._next_profile = None
        began = time.monotonic()
        snapshot = self._ledger.snapshot(time.time())
        plan = cycle(snapshot, self._ledger.profile)
        for complaint in plan.complaints:
            log.error("%s", complaint)
        if leads and not self._settled.observe:
            actions = self._ledger.adopt(snapshot, plan)
            self._board.view = self._view(snapshot, plan, leads)
            if self._leads():
                self._hands.call_back(self._ledger.overtaken)
                self._hands.carry_out(actions)
            else:  # adopted and not sent: the next term must take over from what the API says
                self._leading = False
        else:
            self._ledger.rest(snapshot.now, plan)
            self._board.view = self._view(snapshot, plan, leads)
        self.cycles += 1
        told, self._ledger.told = self._ledger.told, []
        if self.observe_report is not None:
            for at in told:
                self.observe_report(time.time() - at)
        if self.observe_cycle is not None:
            self.observe_cycle(time.monotonic() - began, plan)

    def _view(self, snapshot: Snapshot, plan: Plan, leads: bool) -> View:
        view = self._ledger.view(snapshot, plan, leading=leads, synced=True)
        return replace(view, observe=True) if self._settled.observe else view
