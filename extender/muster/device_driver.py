# Over 300 lines: what is heard, decided and sent of devices in one term, in one order.
"""The live driver of devices in place: between the Ledger's jobs, agents beside training, and pods that hold devices.

    agents ──AgentHeard──▶ ┌──────────────┐ ──orders──▶ agents (server/agent_orders.py)
    watch  ──PodSeen─────▶ │ DeviceDriver │ ──holders──▶ API (cluster/holders.py)
    API    ──outcomes────▶ └──────────────┘ ──where each holder may go──▶ the verbs

It has no thread: whoever turns the circle (live.py) calls it, between two cycles and within one, too. A term begins
with a number of its own and with the holders that the watch knows; what it decides raises nothing beyond `turn`:
where a decision fails, trainings go on with what they have, and it is tried again later.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.cluster.api import Api
from muster.cluster.holders import HolderExecutor
from muster.cluster.holding import Holding
from muster.cluster.lease import Term
from muster.cluster.term import next_term
from muster.core.devices.coordinator import Coordinator
from muster.core.devices.device_ledger import DeviceLedger
from muster.core.devices.seen import InPlaceSeen, looked_on
from muster.core.ledger import Ledger
from muster.core.workload.identity import GPUS
from muster.errors import ClusterError
from muster.server.agent_orders import AgentHeard, AgentOrders
from muster.server.device_metrics import DeviceMetrics
from muster.settings import Settings
from muster.types import Event, PodGone, PodRecord, PodSeen
from muster.types.devices import PER_TERM, AgentKey, Order
from muster.types.holders import (
    AssignHolder,
    CreateHolder,
    HolderAction,
    HolderGone,
    HolderOutcome,
    HolderRecord,
    HolderSaid,
    HolderSeen,
    NameDevice,
    TrainingEnded,
    TrainingGone,
)

log = logging.getLogger(__name__)

Word = AgentHeard | HolderOutcome | HolderSaid
"""What agents and holders say, and the API of these."""
REFUSED = 0.5
"""Seconds until a record that was refused counts as not written: the watch tells the holder's version meanwhile, but
where a cycle takes longer."""
LOOK = 1.0
"""Seconds between looks for the metrics while nothing is new."""
FIRST, LONGEST = 1.0, 64.0
"""Seconds before a term is begun again, or decided in again, that failed; doubling."""


def boottime() -> float:
    """Seconds by the clock on which leases are counted: nobody sets it, and it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class InPlaceSettings:
    """lease, grace, keep: s (settings.DeviceSettings)."""

    lease: float
    grace: float
    keep: float
    holding: Holding


def in_place_settings(settings: Settings, authority: Callable[[], bytes]) -> InPlaceSettings:
    """As configured. authority: who signed the service port's certificate, PEM."""
    of = settings.devices
    binder = settings.cluster_scheduler if settings.binder == "cluster" else settings.scheduler_name
    url = of.url if of.report == "hold" else ""
    known = authority if settings.reporting.tell_authority else bytes
    stays = math.ceil(of.lease + of.grace)
    holding = Holding(of.namespace, binder, of.image, of.priority_class, stays, url, known)
    return InPlaceSettings(of.lease, of.grace, of.keep, holding)


class DeviceDriver:
    """Of one thread, into whose inbox the endpoint and the executor's threads put what they have. outcome: takes
    that of the executor's; clock: s, as `boottime`."""

    def __init__(
        self,
        api: Api,
        settings: InPlaceSettings,
        orders: AgentOrders,
        outcome: Callable[[HolderOutcome], None],
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._api, self._settings, self._orders, self._clock = api, settings, orders, clock
        self._hands = HolderExecutor(api, settings.holding, outcome)
        self._holders: dict[str, PodRecord] = {}
        self._ended: dict[str, bool] = {}
        """Pods in place, by uid: whether they are in a terminal phase."""
        self._ledger: Ledger | None = None
        self._term: Term | None = None
        self._devices: DeviceLedger | None = None
        self._serial = self._published = 0
        self._news = False
        self._looked_on: InPlaceSeen | None = None
        self._naming: set[str] = set()
        """Uids of holders whose device is being recorded."""
        self._ill: set[str] = set()
        """Uids of holders whose device is not healthy by NVML."""
        self._wake: float | None = None
        self._pauses = 0
        self._not_before = 0.0
        self._looked = -math.inf
        self._later: list[tuple[float, int, HolderOutcome]] = []
        self._count = itertools.count()
        self.metrics: DeviceMetrics | None = None

    # ---- terms ----

    def lead(self, ledger: Ledger, term: Term) -> None:
        """This replica leads; the term begins with the next `turn`."""
        self.rest(ledger)
        self._term, self._not_before, self._pauses = term, 0.0, 0

    def rest(self, ledger: Ledger) -> None:
        """It leads no more, or not yet. Jobs in place are none of it, and no request of an agent is answered."""
        self._orders.end()
        self._hands.drop()
        self._naming.clear()
        self._ill.clear()  # told again, within hold.REPEAT s, by those who are: to whoever leads then
        self._ledger, self._term, self._devices = ledger, None, None
        self._later.clear()
        ledger.give_devices(None)

    def close(self) -> None:
        """Stop sending."""
        self._orders.end()
        self._hands.close()

    def forget(self) -> None:
        """Everything is listed afresh."""
        self._holders.clear()
        self._ended.clear()
        self._looked_on = None

    def _begin(self, term: Term, now: float) -> None:
        holders = [pod.holder for pod in self._holders.values() if pod.holder is not None]
        epochs = [max(holder.epoch, holder.second_epoch) for holder in holders]
        least = max(epochs, default=0) // PER_TERM + 1
        number = next_term(self._api, self._settings.holding.namespace, least)
        of = self._settings
        self._devices = DeviceLedger(Coordinator(number, now, of.lease, of.grace, of.keep))
        for pod in self._holders.values():
            self._devices.apply(self._seen(pod), now)
        for uid, ended in self._ended.items():
            if ended:
                self._devices.apply(TrainingEnded(uid), now)
        assert self._ledger is not None
        self._ledger.give_devices(self._devices)
        self._orders.begin(number, of.lease, term.open)
        self._news = True
        log.info("devices in place: term %d begins, with %d holders", number, len(self._holders))

    # ---- what is heard ----

    def learn(self, event: Event) -> None:
        """What the watch tells of holders and of pods in place."""
        now, devices = self._clock(), self._devices
        match event:
            case PodSeen(pod) if pod.holder is not None:
                self._looked_on = None
                known = self._holders.get(pod.uid)
                if known is None or int(pod.version or 0) >= int(known.version or 0):
                    self._holders[pod.uid] = pod
                    self._tell(devices, self._seen(pod), now)
            case PodSeen(pod) if pod.ours and GPUS in pod.annotations:
                before = self._ended.get(pod.uid)
                self._ended[pod.uid] = pod.phase.ended
                if pod.phase.ended and not before:
                    self._tell(devices, TrainingEnded(pod.uid), now)
            case PodGone(uid):
                if self._holders.pop(uid, None) is not None:
                    self._looked_on = None
                    self._ill.discard(uid)
                    self._tell(devices, HolderGone(uid), now)
                elif self._ended.pop(uid, None) is not None:
                    self._tell(devices, TrainingGone(uid), now)

    def hear(self, heard: AgentHeard) -> None:
        """An agent's report. Of a pod that is not in place nothing is kept: its agent gets no orders."""
        self._serial = max(self._serial, heard.serial)
        if self._devices is not None and heard.pod in self._ended:
            known = self._devices.coordinator
            before, steps = known.agents.get(AgentKey(heard.pod, heard.report.incarnation)), known.steps
            self._devices.heard(heard.pod, heard.report, self._clock())
            # Who only asks again has its lease renewed; with 1,000 agents that is most of what is heard.
            self._news |= before is None or before.report != heard.report or known.steps != steps

    def knows(self, word: Word) -> bool:
        """Whether the watch has told of the pod that says it."""
        match word:
            case AgentHeard():
                return word.pod in self._ended
            case HolderSaid():
                return word.uid in self._holders
            case _:
                return True

    def holder(self, uid: str) -> HolderRecord | None:
        """What the watch tells of a holder. From any thread."""
        pod = self._holders.get(uid)
        return None if pod is None else pod.holder

    def said(self, said: HolderSaid) -> None:
        """Which device a holder's container got: it is recorded, unless another one has that."""
        pod, term = self._holders.get(said.uid), self._term
        if said.looked and pod is not None:
            self._looked_at(pod, said)
        if pod is None or pod.holder is None or pod.holder.device or said.uid in self._naming or term is None:
            return
        for other in self._holders.values():
            held = other.holder
            if held is not None and held.device == said.device and not held.leaving:
                log.warning(
                    "%s says that it holds %s, as %s does: time slices?", pod.name, said.device, other.name
                )
                return
        self._naming.add(said.uid)
        self._send((NameDevice(said.uid, pod.name, pod.version, said.device, "its container says so"),), term)

    def _looked_at(self, pod: PodRecord, said: HolderSaid) -> None:
        """How NVML finds a device: its health counts, and who uses it though nobody was granted it."""
        if said.healthy == (said.uid in self._ill):
            (self._ill.discard if said.healthy else self._ill.add)(said.uid)
            log.warning("%s of %s is %s by NVML", said.device, pod.name, "healthy" if said.healthy else "ill")
            self._tell(self._devices, self._seen(pod), self._clock())
        self._tell(self._devices, said, self._clock())

    def _seen(self, pod: PodRecord) -> HolderSeen:
        assert pod.holder is not None
        healthy = pod.holder.healthy and pod.uid not in self._ill
        return HolderSeen(replace(pod.holder, healthy=healthy), pod.name, pod.version)

    def answered(self, outcome: HolderOutcome) -> None:
        """What became of an action."""
        if isinstance(outcome.action, NameDevice):
            self._naming.discard(
                outcome.action.uid
            )  # the watch tells what came of it; else its container asks again
            return
        assigns = isinstance(outcome.action, AssignHolder)
        refused = assigns and outcome.status >= 400
        if assigns and outcome.status == 200 and self.metrics is not None and self._another(outcome.action):
            self.metrics.handed_over()
        if refused:
            heapq.heappush(self._later, (self._clock() + REFUSED, next(self._count), outcome))
        else:
            self._tell(self._devices, outcome, self._clock())

    def _another(self, action: HolderAction) -> bool:
        """Whether an assignment is to another pod than the last one that the watch has told of."""
        known = self._holders.get(action.uid) if isinstance(action, AssignHolder) else None
        before = known.holder.agent if known is not None and known.holder is not None else None
        if not isinstance(action, AssignHolder) or action.second or before is None:
            return False  # nobody gives a seat beside himself up
        return before.pod != action.agent.pod

    def _tell(
        self,
        devices: DeviceLedger | None,
        event: HolderSeen | HolderSaid | HolderGone | HolderOutcome | TrainingEnded | TrainingGone,
        now: float,
    ) -> None:
        if devices is not None:
            devices.apply(event, now)
            self._news = True

    # ---- what is decided ----

    def looked_on(self, charged: Callable[[str], bool]) -> InPlaceSeen:
        """What the watch tells of holders, for the pages of a replica that does not lead."""
        if self._looked_on is None:
            records = [pod.holder for pod in self._holders.values() if pod.holder is not None]
            self._looked_on = looked_on(records, charged)
        return self._looked_on

    @property
    def places(self) -> dict[str, str]:
        """Nodes of holders that are not bound yet or are being made, by namespace/name: where the verbs let them."""
        space = self._settings.holding.namespace
        found = {
            f"{space}/{pod.name}": pod.holder.node
            for pod in self._holders.values()
            if pod.holder is not None and not pod.node and pod.holder.node
        }
        if self._devices is not None:
            found |= {f"{space}/{name}": node for name, (node, _) in self._devices.made.items()}
        return found

    def turn(self, show: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        """Decide and send, where anything is new or due. show: called before a holder is made, so that the verbs know
        where it may go; failed: with what raised."""
        now, news = self._clock(), self._news
        self._decide(now, show, failed)
        if self.metrics is not None and (news or now - self._looked >= LOOK):
            self._looked = now
            known = self._devices.coordinator if self._devices is not None else None
            in_place = self._ledger.in_place if self._ledger is not None else None
            self.metrics.look(known, now, len(in_place.strangers) if in_place is not None else 0)

    def _decide(self, now: float, show: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        term = self._term
        if term is None or not term.open():
            return
        if now < self._not_before:
            if self._serial != self._published:
                self._publish()  # who asks is answered all the same: leases go on
            return
        try:
            if self._devices is None:
                self._begin(term, now)
            self._turn(term, now, show)
        except Exception as error:
            self._news = True  # what was not decided is still to be
            self._pauses += 1
            self._not_before = now + min(LONGEST, FIRST * 2.0 ** min(self._pauses - 1, 10))
            if isinstance(error, ClusterError):
                log.warning("devices in place: %s; tried again", error)
            else:
                failed(error)
            self._publish()
            return
        self._pauses = 0

    def _turn(self, term: Term, now: float, show: Callable[[], None]) -> None:
        devices, ledger = self._devices, self._ledger
        assert devices is not None
        assert ledger is not None
        assert ledger.in_place is not None
        while self._later and self._later[0][0] <= now:
            self._tell(devices, heapq.heappop(self._later)[2], now)
        if not self._news and (self._wake is None or now < self._wake):
            if self._serial != self._published:
                self._published = self._serial
                self._orders.took_in(self._serial)
            return
        self._news = False
        actions, found = ledger.in_place.adopt(now)
        self._wake = found.wake
        if any(isinstance(action, CreateHolder) for action in actions):
            show()
        self._send(actions, term)
        self._publish()

    def planned(self) -> None:
        """A plan was adopted: what it grants is to be seen to."""
        self._news = True

    def _send(self, actions: tuple[HolderAction, ...], term: Term) -> None:
        for action in actions:
            log.info("%s %s: %s", type(action).__name__, action.name, action.cause)
        self._hands.carry_out(actions, term)

    def _publish(self) -> None:
        if self._devices is None or not self._orders.leading:
            return
        self._published = self._serial
        orders: dict[AgentKey, Order | None] = {
            key: None if agent.settled else agent.order
            for key, agent in self._devices.coordinator.agents.items()
        }
        self._orders.publish(self._serial, orders)
