# Over 300 lines: one loop drives everything, and its state is read nowhere else.
"""The live driver of the circle event -> Ledger -> Snapshot -> plan -> actions -> outcome.

One thread turns the circle; reflectors and senders feed its inbox; the service port only reads the Board, and the
process that answers the verbs is told of each View.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from muster.cluster import lease
from muster.cluster.action_executor import ActionExecutor
from muster.cluster.api import REQUEST_TIMEOUT, Api
from muster.cluster.budget_reader import budgets
from muster.cluster.claim_reader import claims
from muster.cluster.learned_store import Shelf
from muster.cluster.owner_watches import Owners
from muster.cluster.quota_reader import quotas
from muster.cluster.reader import Reader
from muster.cluster.resources import watched
from muster.cluster.use_reader import usage
from muster.cluster.watch import Reflector
from muster.core.ledger import Ledger
from muster.core.reasons.products import named_products, unknown_products
from muster.core.state.quarantine import stumbled
from muster.core.views.view import Board, View
from muster.device_driver import DeviceDriver, InPlaceSettings, Word
from muster.errors import ClusterError
from muster.points import Profile
from muster.server.agent_orders import AgentHeard, AgentOrders
from muster.server.device_metrics import DeviceMetrics
from muster.threads import STALLED, YOUNG, beat, supervised
from muster.types import PRODUCT, Event, Plan, Snapshot
from muster.types.holders import HolderOutcome, HolderRecord, HolderSaid

log = logging.getLogger(__name__)

COALESCE = 0.05
"""Seconds between cycles: events that arrive meanwhile are planned together (design §3)."""
REST, LONGEST_REST = 8.0, 0.7
"""A cycle that used t seconds of CPU is followed by a rest of REST times t, LONGEST_REST at most: it holds
Python's lock, and where cycles of 100 ms follow each other the threads that send patches and read watches get a
tenth of the time (measured: 5,000 nodes, 1,000 gangs starting)."""
CROWDED_REST, CROWDED_LONGEST = 2.0, 5.0
"""While many requests of starts wait to be sent, cycles are this many seconds apart: what they add would only
wait, too, and each takes from the sending (measured: half of Muster's CPU while 1,000 gangs start)."""
CROWDED_SHARE = 20.0
"""One that used t seconds of CPU then is followed by CROWDED_SHARE times t, CROWDED_LONGEST at most: else a machine
that is half as fast makes twice as many cycles, each twice as dear, for the same starts."""
SWITCH = 0.0005
"""Seconds after which a thread that computes lets another one go on (Python's own is 5 ms). Each verb that
kube-scheduler waits for, and each patch, gives the lock away several times: at 5 ms a filter call during a cycle
took 8 ms, and kube-scheduler has one thread (measured by `python -m e2e.bench verbs`)."""
OWNERS_READ = 10.0
"""Seconds that the first plan waits for the sizes that custom owners declare: without them a running job would look
whole, and one that is not there yet would start in part."""
USE: frozenset[tuple[str]] = frozenset({("",)})
"""What the reader of use is asked for: one look at all nodes and pods."""
LEASE_EVERY = 1.0
"""Seconds between looks at the scheduler's Lease."""
FAILED_PAUSE = 1.0
"""Seconds after a cycle that failed."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the driver needs of the configuration."""

    scheduler: str
    observe: bool
    lease_namespace: str
    lease_name: str
    learned: str = ""  # name of the ConfigMap beside the Lease that keeps what jobs taught
    devices: InPlaceSettings | None = None  # None: no GPU of a running pod changes
    lets_on: bool = False  # admission gives pods of ours the toleration of our nodes' taint


class Driver:
    """Turns the circle for a live cluster."""

    def __init__(self, api: Api, board: Board, settled: Settled, profile: Profile) -> None:
        self._api, self._board, self._settled = api, board, settled
        self._ledger = Ledger(profile)
        self._inbox: queue.SimpleQueue[Sequence[Event]] = queue.SimpleQueue()
        self._words: queue.SimpleQueue[Word] = queue.SimpleQueue()
        """What agents and holders say, and the API of these: heard between the stages of a cycle, too."""
        self._unheard: list[Word] = []
        self._urgent = threading.Event()
        """Set where an agent, or the API about who has a device, said something: trainings wait for what follows."""
        self._past = threading.Event()
        """Set where the API server was set back: what the Ledger has learned is not true any more."""
        self.orders = AgentOrders()
        self._devices: DeviceDriver | None = None
        space = ""
        if settled.devices is not None:
            space = settled.devices.holding.namespace
            self._devices = DeviceDriver(api, settled.devices, self.orders, self._put)
            self._devices.rest(self._ledger)
        resources = watched(settled.scheduler, namespaces=profile.namespaces.by_labels, holders=space)
        self._reflectors = [Reflector(api, r, self.take, self._past.set) for r in resources]
        self._shelf = Shelf(api, settled.lease_namespace, settled.learned)
        self._hands = ActionExecutor(api, self.take, settled.scheduler, shelf=self._shelf)
        self._owners = Owners(api, settled.scheduler, self.take, lets_on=settled.lets_on)
        self._claims = Reader("claims", claims(api), self.take, workers=2)
        self._quotas = Reader("quotas", quotas(api), self.take)
        self._budgets = Reader("budgets", budgets(api), self.take)
        self._use = Reader("use", usage(api), self.take)
        self._host = socket.gethostname()
        self._following = lease.Following(self._host)
        self._stop = threading.Event()
        self._unknown_products = ""
        """What was last said of products that no node has."""
        self._term: lease.Term | None = None
        """The term that the Ledger plans for; None while another replica leads."""
        self._before = lease.NOBODY  # the Lease as the last turn saw it
        self._next_profile: Profile | None = None
        self._taken_up: Profile | None = None
        """Two, for one thread writes each: one that was told while another was being taken up is not lost."""
        self._good = time.monotonic()
        """When the circle last went round without an error."""
        self._error = ""
        self.cycles = 0
        self.opened: Callable[[], bool] = lambda: True
        """Whether kube-scheduler can call the verbs: before that no gate comes off, since it would be refused."""
        self.shown: Callable[[View], None] = lambda view: None  # noqa: ARG005
        """Called with each View; returns when no verb is answered by an older one. Only then is anything sent: kube-
        scheduler must not ask about a pod without its gate, and be refused by a View that has no place for it."""
        self.observe_cycle: Callable[[float, Plan], None] | None = None
        self.observe_report: Callable[[float], None] | None = None
        """Called with the seconds from a report that told something new to the plan that knew it."""
        self.injected: Callable[[], None] = lambda: None
        """Fault injection: called at the beginning of each cycle."""
        self.quarantined: Callable[[str], None] = lambda stage: None  # noqa: ARG005
        """Called with the stage in which an object or a job was put aside."""
        self.failed: Callable[[], None] = lambda: None
        """Called after a cycle that failed as a whole."""

    @property
    def starting(self) -> bool:
        """Whether requests of starts wait to be sent."""
        return self._hands.starting

    def take(self, events: list[Event]) -> None:
        """Called from the threads of reflectors, senders and the service port."""
        self._inbox.put(events)

    def count_devices(self, metrics: DeviceMetrics) -> None:
        """Where devices are given in place: what is counted of that."""
        if self._devices is not None:
            self._devices.metrics = metrics

    def hear(self, heard: AgentHeard) -> None:
        """Called from the thread of the service port, with each report of an agent."""
        self._put(heard)

    def _put(self, word: Word) -> None:
        self.note(word)
        self._urgent.set()

    def holder(self, uid: str) -> HolderRecord | None:
        """A pod that holds a device, by uid. Called from the thread of the service port."""
        return None if self._devices is None else self._devices.holder(uid)

    def note(self, word: Word) -> None:
        """Called from the thread of the service port, with what a holder's container tells."""
        self._words.put(word)
        self._inbox.put([])  # whoever waits there wakes up

    def ailing(self, now: float, within: float) -> list[str]:
        """What /healthz names, at `now` (monotonic): the circle has not gone round well for `within` seconds. It does
        several times a minute where there is nothing to do, too."""
        silent = now - self._good
        if silent <= within:
            return []
        why = self._error or f"the one that was due is not done, {self._inbox.qsize()} lists of events wait"
        return [f"no good cycle for {silent:.0f} s: {why}"]

    # ---- threads ----

    def start(self) -> None:
        """Begin watching; `run` plans."""
        for reflector in self._reflectors:
            reflector.start()
        self._owners.start()
        self._claims.start()
        self._quotas.start()
        self._budgets.start()
        self._use.start()
        supervised("lease", self._follow_lease, within=STALLED)

    def stop(self) -> None:
        """End `run` soon."""
        self._stop.set()
        self._owners.stop()
        self._claims.stop()
        self._quotas.stop()
        self._budgets.stop()
        self._use.stop()
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
        following = self._following

        def read() -> lease.Record:
            return lease.read(self._api, self._settled.lease_namespace, self._settled.lease_name)

        while not self._stop.wait(LEASE_EVERY if following.record.identity and self.opened() else 0.2):
            beat()
            before = following.record.identity
            try:
                following.look(read)
            except ClusterError as error:
                log.warning("reading the scheduler's Lease: %s", error)
            if following.record.identity != before:
                log.info("the scheduler's Lease is held by %s", following.record.identity or "nobody")
            if self._now() is not self._term:
                self._inbox.put([])

    def _now(self) -> lease.Term | None:
        """The term in which this replica leads now."""
        term = self._following.term
        return term if term is not None and self.opened() and term.open() else None

    # ---- the circle ----

    def run(self) -> None:
        """Turn the circle until `stop`. An error in a cycle is logged and does not end it."""
        sys.setswitchinterval(SWITCH)
        gc.set_threshold(*YOUNG)
        self._await_lists()
        gc.freeze()  # what is known now is not walked again; it goes when the last reference does
        log.info("first lists are in: %s", ", ".join(f"{r.resource.name}" for r in self._reflectors))
        due = crowded_due = 0.0
        while not self._stop.is_set():
            self._gather(due, crowded_due)
            began, used = time.monotonic(), time.thread_time()
            try:
                self.injected()
                if self._past.is_set():
                    self._start_over()
                term, found = self._now(), self._following.record
                changed = (
                    term is not self._term or self._next_profile is not self._taken_up or bool(self._error)
                )
                if self._term is not None and term is not self._term:
                    self._step_down()
                if term is not None and term is not self._term:
                    self._take_over(found)
                    if self._devices is not None:
                        self._devices.lead(self._ledger, term)
                        self._hand_over()
                self._term, self._before = term, found
                if changed or self._ledger.due(time.time()):
                    self._error = ""
                    self._turn(term)
                if not self._error:
                    self._good = time.monotonic()
            except Exception as error:
                log.exception("a cycle failed; the next one starts from what was observed")
                self._error = f"{type(error).__name__}: {error}"
                self.failed()
                self._confess()
                self._stop.wait(FAILED_PAUSE)
            ended, used = time.monotonic(), time.thread_time() - used
            due = max(began + COALESCE, ended + min(REST * used, LONGEST_REST))
            crowded_due = ended + min(CROWDED_SHARE * used, CROWDED_LONGEST)
        for reflector in self._reflectors:  # those of now: taking over, and starting over, bring others
            reflector.stop()
        self._hands.close()
        if self._devices is not None:
            self._devices.close()

    def _await_lists(self) -> None:
        while self.missing and not self._stop.is_set():
            self._drain(0.05)
            self._good = time.monotonic()  # an API server that is away is no fault of this process
        self._drain(0.0)
        until = time.monotonic() + OWNERS_READ
        while self._ledger.unread_owners and time.monotonic() < until and not self._stop.is_set():
            self._drain(0.05)

    def _gather(self, due: float, crowded_due: float) -> None:
        """Wait for something to happen or to be due, then collect what comes until `due` (monotonic), while the hands
        are full until `crowded_due` and CROWDED_REST; no longer where this replica begins to lead, or ends."""
        wake = self._ledger.wake
        patience = 1.0 if wake is None else min(1.0, max(0.0, wake - time.time()))
        self._drain(patience)
        began = time.monotonic()
        while not self._stop.is_set():
            until = max(due, crowded_due, began + CROWDED_REST) if self._hands.crowded else due
            pause = until - time.monotonic()
            if pause <= 0 or self._now() is not self._term:
                break
            self._urgent.wait(min(pause, COALESCE))
            self._urgent.clear()
            self._drain(0.0)
            term = self._term
            if term is not None and term.open() and not self._settled.observe:
                # A cycle decided; what it waited for is on the API now.
                self._hands.carry_out(self._ledger.proceed(time.time()), term)

    def _drain(self, patience: float) -> None:
        try:
            events = self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait()
        except queue.Empty:
            return
        while True:
            words = self._said()
            new = [word for word in words if not self._knows(word)]
            self._hear([word for word in words if self._knows(word)])
            with contextlib.suppress(queue.Empty):
                while True:
                    now = time.time()
                    for event in events:
                        self._apply(event, now)
                    events = self._inbox.get_nowait()
            self._hear(new)  # the watch has told of their pods by now
            if self._words.empty():
                break
            events = []
        self._hand_over()
        self._confess()
        self._owners.want(self._ledger.unknown_owners, self._ledger.grown_owners())
        self._claims.hurry(self._ledger.new_claims(), time.monotonic())
        self._claims.want(self._ledger.claims)
        self._quotas.want(self._ledger.short)
        self._budgets.want(self._ledger.guarded)

    def _apply(self, event: Event, now: float) -> None:
        self._ledger.apply(event, now)
        if self._devices is not None:
            try:
                self._devices.learn(event)
            except Exception as error:
                stumbled(self._ledger, "devices", error)

    def _said(self) -> list[Word]:
        """What agents and holders have said, and was not heard yet."""
        words, self._unheard = self._unheard, []
        with contextlib.suppress(queue.Empty):
            while True:
                words.append(self._words.get_nowait())
        return words

    def _knows(self, word: Word) -> bool:
        return self._devices is not None and self._devices.knows(word)

    def _hear(self, words: Sequence[Word]) -> None:
        if self._devices is None:
            return
        for word in words:
            try:
                match word:
                    case AgentHeard():
                        self._devices.hear(word)
                    case HolderOutcome():
                        self._devices.answered(word)
                    case HolderSaid():
                        self._devices.said(word)
            except Exception as error:
                stumbled(self._ledger, "devices", error)

    def _between(self) -> None:
        """Between two stages of a cycle: a training that waits for a word is not to wait for the plan of all jobs.
        Who the watch may just have told of is heard after it, and who speaks after him."""
        if self._words.empty():
            return
        words = self._said()
        # An answer to a request says that all before it were heard, too.
        first = next((at for at, word in enumerate(words) if not self._knows(word)), len(words))
        self._unheard = words[first:]
        self._hear(words[:first])
        self._hand_over()

    def _hand_over(self) -> None:
        """Devices in place: what is next, where anything is."""
        if self._devices is not None:
            self._devices.turn(self._show_holders, lambda error: stumbled(self._ledger, "devices", error))

    def _show_holders(self) -> None:
        """The verbs are to know where a holder may go before it is made."""
        if self._devices is not None:
            self._board.view = replace(self._board.view, holders=self._devices.places)
            self.shown(self._board.view)

    def _step_down(self) -> None:
        """What was decided and not sent is dropped: the next leader plans."""
        log.warning("no longer leading: the scheduler's Lease is held by %s", self._following.record.identity)
        if self._term is not None:
            self._term.end()
        dropped = self._hands.drop()
        if dropped:
            log.warning("%d actions are not sent", dropped)
        self._ledger.step_down()
        if self._devices is not None:
            self._devices.rest(self._ledger)

    def _take_over(self, found: lease.Record) -> None:
        """A new leader waits out the old one's requests and lists afresh (design §6)."""
        before = self._before
        if before.identity and not found.follows(before, self._host):
            log.info(
                "taking over from %s: its last requests end, then everything is listed afresh",
                before.identity,
            )
            self._stop.wait(REQUEST_TIMEOUT)
            self._reflectors = [reflector.successor() for reflector in self._reflectors]
            for reflector in self._reflectors:
                reflector.start()
            self._await_lists()
        else:
            self._await_answers()
        log.info("leading")
        for event in self._shelf.read():
            self._ledger.apply(event, time.time())
        self._ledger.take_over(time.time())

    def _await_answers(self) -> None:
        """What was sent in the last term of this replica's own is answered before the next one begins: such an answer
        would end a request of that one."""
        until = time.monotonic() + REQUEST_TIMEOUT
        while not self._hands.idle and time.monotonic() < until and not self._stop.is_set():
            self._drain(0.05)
        self._drain(0.0)
        if not self._hands.idle:
            log.warning("requests of the last term are not answered after %.0f s", REQUEST_TIMEOUT)

    def _start_over(self) -> None:
        """etcd was restored from an older backup. What happened after that has not happened, and versions count
        again: all that was learned is forgotten, as at a start of the process."""
        log.error("the API server was set back to an earlier state; everything is listed afresh")
        if self._term is not None:
            self._step_down()
            self._term = None
        self._reflectors = [reflector.successor(afresh=True) for reflector in self._reflectors]
        self._past.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                self._inbox.get_nowait()
        self._ledger = Ledger(self._ledger.profile)
        if self._devices is not None:
            self._devices.forget()
            self._devices.rest(self._ledger)
        for reflector in self._reflectors:
            reflector.start()
        self._await_lists()

    def _turn(self, term: lease.Term | None) -> None:
        profile = self._next_profile
        if profile is not None and profile is not self._taken_up:
            self._ledger.use(profile)
            self._taken_up = profile
        began = time.monotonic()
        leads = term is not None
        self._use.want(USE if leads and self._ledger.profile.reads_use else frozenset())
        snapshot = self._ledger.snapshot(time.time())
        self._between()
        plan = self._ledger.plan(snapshot)
        self._between()
        for complaint in plan.plugin_errors:
            log.error("%s", complaint)
        if leads:
            self._tell_of_products(snapshot)
        if term is not None and not self._settled.observe:
            actions = self._ledger.adopt(snapshot, plan)
            if self._devices is not None:
                self._devices.planned()
            self._show(snapshot, self._ledger.queue, leads, plan)  # as it was adopted: without slots
            self._hands.call_back(self._ledger.overtaken)
            self._hands.carry_out(actions, term)  # none is sent where the term has ended meanwhile
            self._hand_over()
        else:
            self._ledger.rest(snapshot.now, plan)
            self._show(snapshot, plan, leads)
        self._confess()
        self.cycles += 1
        told, self._ledger.told = self._ledger.told, []
        if self.observe_report is not None:
            for at in told:
                self.observe_report(time.time() - at)
        if self.observe_cycle is not None:
            self.observe_cycle(time.monotonic() - began, plan)

    def _tell_of_products(self, snapshot: Snapshot) -> None:
        """Products that the configuration names and no node has: once, and again when that changes."""
        named = named_products(self._ledger.profile)
        said = unknown_products(named, snapshot.nodes.domains(PRODUCT)[1]) if named else ""
        if said and said != self._unknown_products:
            log.warning("%s", said)
        elif named and self._unknown_products and not said:
            log.info("nodes have all products that %s names", ", ".join(named))
        self._unknown_products = said

    def _show(self, snapshot: Snapshot, plan: Plan, leads: bool, made: Plan | None = None) -> None:
        """Hang the new View out; where that fails, the verbs go on by the last one, and the cycle was no good one."""
        try:
            view = replace(self._ledger.view(snapshot, plan, leading=leads, synced=True), made=made)
        except Exception as error:
            log.exception("no view could be made of a cycle; the last one stays")
            self._error = f"no view could be made: {type(error).__name__}: {error}"
            self.quarantined("view")
            return
        if self._devices is not None:
            seen = view.in_place or self._devices.looked_on(self._ledger.charges.charged)
            view = replace(view, holders=self._devices.places, in_place=seen)
        self._board.view = replace(view, observe=True) if self._settled.observe else view
        self.shown(self._board.view)

    def _confess(self) -> None:
        """What raised in the core and was put aside (core.state.quarantine): each new error once, with its
        traceback."""
        for fault in self._ledger.take_faults():
            self.quarantined(fault.stage)
            if not fault.again:
                log.error("put aside in %s: %s", fault.stage, fault.subject or "-", exc_info=fault.error)
