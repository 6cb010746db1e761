# Over 300 lines: every event of holders and every action on them, with what is under way between the two.
"""Events of holders and agents in, actions on holders out: the Coordinator between two decisions, with what is under
way on the API. Nothing here knows a client or a clock; `now` is of the Coordinator's clock, not the Ledger's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from muster.core.buried import Buried
from muster.core.devices.agents import answer_to, heard, pod_ended, pod_gone
from muster.core.devices.coordinator import Assign, Clear, Coordinator, seat
from muster.core.devices.fresh import Fresh
from muster.core.devices.hand_over import Decisions, decide
from muster.core.devices.holders import cleared, holder_gone, holder_seen, recorded
from muster.core.devices.on_node import Want, short_of
from muster.core.devices.settled import Settled
from muster.core.devices.strangers import Looks, Stranger
from muster.types import JobKey
from muster.types.devices import AgentAnswer, AgentKey, AgentReport
from muster.types.holders import (
    AssignHolder,
    ClearSeat,
    CreateHolder,
    DeleteHolder,
    HolderAction,
    HolderEvent,
    HolderGone,
    HolderOutcome,
    HolderRecord,
    HolderSaid,
    HolderSeen,
    TrainingEnded,
    TrainingGone,
)

RETRY = 2.0
"""Seconds before a holder is asked for again that was not made, or was not deleted."""
LONGEST_RETRY = 60.0
"""Seconds before a node is asked again whose holders were refused several times, or got no device of their own."""
SAID = 200
"""Characters of the API's words about a refusal that a job's owner reads."""
UNSEEN = 30.0
"""Seconds after the answer for which a holder counts as being made, or deleted, though the watch has not told so."""
UNSENT = 600.0
"""Seconds after which what nobody answered is asked for again. A request may wait for its turn behind thousands, so
this is long; it ends a wait for one that was never sent."""
GONE = 404


@dataclass(frozen=True, slots=True)
class _Known:
    """A holder's pod: its name, its node, the resourceVersion that the next write is to find, and whether it is being
    deleted."""

    name: str
    node: str
    version: str
    leaving: bool


def _pause(failures: int) -> float:
    """Seconds until what failed so often in a row is tried again."""
    return min(LONGEST_RETRY, RETRY * 2.0 ** min(failures - 1, 10))


@dataclass
class DeviceLedger:
    """made: node of each holder that is being made, and until when that counts, by name; going: until when a
    holder that is deleted is not deleted again, by uid; clearing: likewise of records taken off, by seat; all for
    long until there is an answer, since thousands of requests wait for their turn; uncleared: how often in a row a
    record was not taken off, by seat; retry_at: when a node is asked for holders again; failed: holders that ended
    without a device (a kubelet that has none left), or that have one that another holder has; failures: how often in
    a row, by node; refused: why holders were not made there, in the words of the API; closed: nodes that are
    cordoned, where none is made; settled: nodes about which there was nothing to decide; looks: what holders told
    last of their devices, by these; gone: holders that are; fresh: nodes about which there may be something; events:
    how many were applied."""

    coordinator: Coordinator
    holders: dict[str, _Known] = field(default_factory=dict)
    made: dict[str, tuple[str, float]] = field(default_factory=dict)
    going: dict[str, float] = field(default_factory=dict)
    clearing: dict[str, float] = field(default_factory=dict)
    uncleared: dict[str, int] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    gone: Buried = field(default_factory=Buried)
    failures: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    assigning: dict[str, Assign] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    settled: dict[str, Settled] = field(default_factory=dict)
    fresh: Fresh = field(default_factory=Fresh)
    events: int = 0
    names: int = 0
    looks: Looks = field(default_factory=Looks)

    def apply(self, event: HolderEvent, now: float) -> None:
        """Learn one event. Late and repeated ones are harmless."""
        self.events += 1
        self.fresh.learn(event, self._node_of, self.coordinator.devices)
        match event:
            case HolderSeen(record, name, version):
                known = self.holders.get(record.uid)
                if record.uid in self.gone or (known is not None and _older(version, known.version)):
                    return  # told by the watch after the answer to a request
                self.holders[record.uid] = _Known(name, record.node, version, record.leaving)
                self.made.pop(name, None)
                if self._is_held(record):
                    self._in_vain(record, now)
                    self.coordinator.pending.pop(record.uid, None)
                    return
                if record.device:
                    self.failed.discard(record.uid)  # who had its device before is gone
                self._allocated(record, now)
                holder_seen(self.coordinator, record, now)
            case HolderSaid(uid) as said:
                if uid in self.holders:
                    self.looks.told(said)
            case HolderGone(uid):
                self.looks.gone(uid)
                self.gone.add(uid)
                self.holders.pop(uid, None)
                self.going.pop(uid, None)
                self.failed.discard(uid)
                holder_gone(self.coordinator, uid, now)
            case TrainingEnded(pod):
                pod_ended(self.coordinator, pod, now)
            case TrainingGone(pod):
                pod_gone(self.coordinator, pod)
            case HolderOutcome():
                self._answered(event, now)

    def _node_of(self, holder: str) -> str:
        known = self.holders.get(holder)
        return known.node if known is not None else ""

    def heard(self, pod: str, report: AgentReport, now: float) -> AgentAnswer | None:
        """What a pod's agent is told to its report; None where the pod has too many agents. Orders that follow from
        the report are decided by the next `adopt`."""
        memory, key = self.coordinator, AgentKey(pod, report.incarnation)
        known, spoke, steps = memory.agents.get(key), memory.current.get(pod), memory.steps
        agent = heard(memory, pod, report, now)
        same = known is not None and known.report == report
        if not same or memory.current.get(pod) != spoke or memory.steps != steps:
            self.fresh.pod(pod)
        return None if agent is None else answer_to(self.coordinator, self.coordinator.agents[agent.key])

    def adopt(
        self,
        wants: Sequence[Want],
        now: float,
        vacate: Mapping[str, int] | None = None,
        aside: AbstractSet[str] = frozenset(),
        *,
        only_try: bool = False,
    ) -> tuple[tuple[HolderAction, ...], Decisions]:
        """The next steps, and what is to be done on the API for them. The decisions tell who has another order, and
        when to decide again. wants, vacate, aside: as `decide`. Nothing is changed where it raises, or `only_try`."""
        kept = self.coordinator.copy(), dict(self.going), dict(self.retry_at), self.made, dict(self.assigning)
        clearing, refused = dict(self.clearing), self.refused
        done = False
        try:
            found = self._adopt(wants, now, vacate, aside)
            done = not only_try
            return found
        finally:
            if not done:
                before, self.going, self.retry_at, self.made, self.assigning = kept
                self.clearing, self.refused = clearing, refused
                self.coordinator.go_back_to(before)
                self.fresh.every = True

    def _adopt(
        self,
        wants: Sequence[Want],
        now: float,
        vacate: Mapping[str, int] | None,
        aside: AbstractSet[str],
    ) -> tuple[tuple[HolderAction, ...], Decisions]:
        self.made = {name: (node, until) for name, (node, until) in self.made.items() if until > now}
        only = self.fresh.look(wants, vacate or {}, aside, now)
        if only is None:
            self.fresh.forget(self.pods())
        found = decide(self.coordinator, wants, now, vacate, aside, self.settled, only)
        looked = self._nodes(wants) if only is None else self.fresh.open | only
        needed = found.create.keys() | (self.refused.keys() - looked)
        self.refused = {node: why for node, why in self.refused.items() if node in needed}
        actions: list[HolderAction] = [self._assign(assign) for assign in found.assigns]
        self.clearing = {key: until for key, until in self.clearing.items() if until > now}
        self.uncleared = {k: n for k, n in self.uncleared.items() if k in self.coordinator.devices}
        actions += [self._clear(clear, now) for clear in found.clears if clear.key not in self.clearing]
        for uid in (*found.leave, *sorted(self.failed)):
            known = self.holders.get(uid)
            if known is not None and self.going.get(uid, 0.0) <= now:
                self.going[uid] = now + UNSENT
                cause = "nobody is to have its device"
                actions.append(DeleteHolder(uid, known.name, cause, known.version, known.leaving))
        making = Counter(node for node, _ in self.made.values())
        used = self.used() if found.create else {}
        for node, count in sorted(found.create.items()):
            if node in self.closed or self.retry_at.get(node, 0.0) > now:
                continue
            self.retry_at.pop(node, None)
            count = (min(count, 1) if node in self.refused else count) - making[node]
            if count > 0:
                short = short_of(wants, node, used)
                actions += [self._create(node, short, now) for _ in range(count)]
        again = [
            *self.retry_at.values(),
            *self.going.values(),
            *self.clearing.values(),
            *(until for _, until in self.made.values()),
        ]
        again += self.looks.again(self.coordinator.devices)
        wake = min((at for at in (*again, found.wake or 0.0) if at > now), default=None)
        self.fresh.decided(looked, self.settled.keys(), wake, found.idle, aside, whole=only is None)
        return tuple(actions), replace(found, wake=min(filter(None, (wake, self.fresh.first)), default=None))

    def _nodes(self, wants: Sequence[Want]) -> set[str]:
        """Those of which anything is known."""
        known = {device.node for device in self.coordinator.devices.values()}
        return known | {want.node for want in wants} | set(self.coordinator.pending.values())

    def _is_held(self, record: HolderRecord) -> bool:
        """Whether another holder, that stays, has its device already, and nobody is recorded on this one: two slices
        of a GPU by time that were told of in one moment."""
        device = self.coordinator.devices.get(record.device)
        if device is None or record.leaving or record.agent is not None or record.second is not None:
            return False
        other = self.holders.get(device.holder)
        return (
            other is not None
            and device.holder != record.uid
            and not other.leaving
            and other.node == record.node
        )

    def _allocated(self, record: HolderRecord, now: float) -> None:
        """Whether a holder got a device."""
        if record.device:
            if record.uid in self.coordinator.pending:
                self.failures.pop(record.node, None)
        elif record.leaving and record.uid not in self.going:
            self._in_vain(record, now)

    def _in_vain(self, record: HolderRecord, now: float) -> None:
        """A holder that has no device of its own, counted once: its node is asked less and less often."""
        if record.uid in self.failed:
            return
        self.failed.add(record.uid)
        self._less_often(record.node, now)

    def _less_often(self, node: str, now: float) -> None:
        count = self.failures[node] = self.failures.get(node, 0) + 1
        self.retry_at[node] = now + _pause(count)

    def _refused(self, action: CreateHolder, message: str, now: float) -> None:
        """A holder that was not made. Those that were asked for with it count as one, and the next is one alone."""
        if action.node not in self.refused:
            self.failures.pop(action.node, None)
        if self.retry_at.get(action.node, 0.0) <= now:
            self._less_often(action.node, now)
        why = message.replace(f'pods "{action.name}" is forbidden: ', "")  # each has a name of its own
        self.refused[action.node] = why[:SAID]

    def strangers(self, now: float) -> set[Stranger]:
        """Devices that are nobody's and are used all the same."""
        return self.looks.strangers(self.coordinator.devices, now)

    def pods(self) -> set[str]:
        """Pods that use devices, may use or are about to get some, or whose agents are heard of."""
        return {pod for pod, _ in self.used()} | {key.pod for key in self.coordinator.agents}

    def used(self) -> Mapping[tuple[str, str], int]:
        """Devices that a pod uses, may use or is about to get, by the pod's uid and the node."""
        counts: dict[tuple[str, str], int] = {}
        for device in self.coordinator.devices.values():
            for pod in device.pods:
                counts[pod, device.node] = counts.get((pod, device.node), 0) + 1
        return counts

    def taken(self) -> Mapping[str, int]:
        """Devices that anybody uses, may use or is about to get, by node: one that two share counts once."""
        found = {device.id: device.node for device in self.coordinator.devices.values() if device.pods}
        return Counter(found.values())

    def _assign(self, assign: Assign) -> AssignHolder:
        known = self.holders[assign.holder]
        self.assigning[assign.holder] = assign
        cause = f"its device is to be that of pod {assign.agent.pod}"
        return AssignHolder(
            assign.holder,
            known.name,
            known.version,
            assign.device,
            assign.epoch,
            assign.agent,
            cause,
            second=assign.second,
            clears=assign.clears,
        )

    def _clear(self, clear: Clear, now: float) -> ClearSeat:
        known = self.holders[clear.holder]
        self.clearing[clear.key] = now + UNSENT
        cause = "nobody is on that seat any more"
        return ClearSeat(clear.holder, known.name, known.version, clear.device, clear.second, cause)

    def _create(self, node: str, short: JobKey, now: float) -> CreateHolder:
        self.names += 1
        name = f"holder-{self.coordinator.term}-{self.names}"
        self.made[name] = node, now + UNSENT
        return CreateHolder(name, node, short, f"job {short.namespace}/{short.name} is to have its device")

    def _versioned(self, action: AssignHolder | ClearSeat, outcome: HolderOutcome) -> bool:
        """Whether a write is the newest that is known of its holder, whose version it has then."""
        known = self.holders.get(action.uid)
        done = 200 <= outcome.status < 300 and bool(outcome.version)
        if known is None or not done or known.version != action.version:
            return False
        self.holders[action.uid] = replace(known, version=outcome.version)
        return True

    def _answered(self, outcome: HolderOutcome, now: float) -> None:
        done = 200 <= outcome.status < 300
        match outcome.action:
            case CreateHolder(name, node):
                if not done and outcome.status:
                    self.made.pop(name, None)
                    self._refused(outcome.action, outcome.message or f"HTTP status {outcome.status}", now)
                    return
                if done:
                    self.refused.pop(node, None)
                if name in self.made:
                    self.made[name] = node, now + UNSEEN
            case DeleteHolder(uid):
                if outcome.status == GONE:
                    self.apply(HolderGone(uid), now)
                elif uid in self.going:
                    self.going[uid] = now + (UNSEEN if done else RETRY)
            case ClearSeat() as clear:
                key = seat(clear.device, second=clear.second)
                if self._versioned(clear, outcome):
                    self.clearing.pop(key, None)
                    self.uncleared.pop(key, None)
                    cleared(self.coordinator, key)
                elif key in self.clearing:
                    count = self.uncleared[key] = self.uncleared.get(key, 0) + 1
                    self.clearing[key] = now + _pause(count)
            case AssignHolder(uid):
                assign = self.assigning.get(uid)
                if assign is None or assign.epoch != outcome.action.epoch:
                    return  # the answer to an earlier one
                del self.assigning[uid]
                self._versioned(outcome.action, outcome)
                recorded(self.coordinator, assign, now, written=done)


def _older(version: str, known: str) -> bool:
    return version.isdigit() and known.isdigit() and int(version) < int(known)
