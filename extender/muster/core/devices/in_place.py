"""What the Ledger asks of jobs in place between two cycles: a snapshot with slots in it, and a plan without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from muster.core.culprit import culprit
from muster.core.devices.charged import Allowed, Quotas, Room, allowances, anywhere, by_job, pods_of
from muster.core.devices.coordinator import Change, whole
from muster.core.devices.device_ledger import DeviceLedger
from muster.core.devices.granted import Granted, Uses, standing
from muster.core.devices.hand_over import Decisions
from muster.core.devices.in_use import changing, neighbours_of, uses_of
from muster.core.devices.on_node import Want, wants
from muster.core.devices.pairs import pairs
from muster.core.devices.room import could_have, to_vacate
from muster.core.devices.seen import KEPT, HandOver, InPlaceSeen
from muster.core.devices.slots import Made, taken_out, with_slots
from muster.core.devices.strangers import Stranger
from muster.core.devices.transitions import PodState
from muster.types import Job, JobKey, Plan, Snapshot
from muster.types.holders import HolderAction


class Devices(NamedTuple):
    """Devices of a job in place, of all of its pods: those it is granted, and the fewest and most that it can train
    on."""

    granted: int
    least: int
    most: int


PAUSE_FIRST, PAUSE_MOST = 1.0, 64.0
"""Seconds for which nothing is decided about a pod over which it raises: the first time, doubling up to the most."""
MOST = 8
"""Such pods in one decision beyond which it is no pod's fault."""


@dataclass
class InPlace:
    """sizes: by job, numbers of GPUs that it can train on; granted: what the last plan grants; beside: of it, by job
    that shares another one's GPUs, that one; planned: whether there was one in this term, before which nothing is
    taken from anybody; slotted: whether the last snapshot has slots; changes: the last one of each pod's devices, and
    when that was seen, Unix s; hand_overs: the last KEPT of them; held: GPUs of holders that the last snapshot
    charged, by node; allowed: what quotas leave jobs; aside: pods over which deciding raised, with until when nothing
    is decided about them and how long that is; failed: what it raised since that was last taken, by job (None: of a
    pod of no job that is planned); uses, neighbours, adjusting: GPUs in use at the last look, by pod the one with
    which it shares its, and pods on their way to another number then; strangers: devices that are nobody's and are
    used all the same; warned: jobs that were told of one; made: jobs with slots, as the last snapshot has them;
    changing: jobs on their way to what the last plan grants them, with the time of the plan since which they are."""

    devices: DeviceLedger
    sizes: dict[JobKey, tuple[int, ...]] = field(default_factory=dict)
    granted: dict[JobKey, tuple[Granted, ...]] = field(default_factory=dict)
    beside: dict[JobKey, JobKey] = field(default_factory=dict)
    planned: bool = False
    jobs: Mapping[JobKey, Job] = field(default_factory=dict)
    vacate: dict[str, int] = field(default_factory=dict)
    slotted: bool = False
    seen: tuple[object, ...] = ()
    changes: dict[str, tuple[Change, float]] = field(default_factory=dict)
    hand_overs: tuple[HandOver, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    allowed: Mapping[JobKey, Allowed] = field(default_factory=dict)
    aside: dict[str, tuple[float, float]] = field(default_factory=dict)
    failed: dict[JobKey | None, Exception] = field(default_factory=dict)
    uses: Uses = field(default_factory=dict)
    neighbours: Mapping[str, str] = field(default_factory=dict)
    adjusting: set[str] = field(default_factory=set)
    strangers: set[Stranger] = field(default_factory=set)
    warned: set[tuple[JobKey, str]] = field(default_factory=set)
    made: dict[JobKey, Made] = field(default_factory=dict)
    changing: dict[JobKey, float] = field(default_factory=dict)
    _wanted: tuple[tuple[object, ...], list[Want]] = ((), [])
    _stood: tuple[tuple[int, int], tuple[object, ...]] | None = None

    def look(self) -> set[str]:
        """Take in what pods use now; the uids of those whose number or neighbour has changed since the last look."""
        devices = self.devices.coordinator.devices
        before, self.uses = self.uses, uses_of(devices)
        beside, self.neighbours = self.neighbours, neighbours_of(devices)
        states = self.devices.coordinator.pods
        self.adjusting = {pod for pod, state in states.items() if state is PodState.ADJUSTING}
        pods = before.keys() | self.uses.keys()
        changed = {pod for pod in pods if before.get(pod) != self.uses.get(pod)}
        return changed | {pod for pod in pods if beside.get(pod) != self.neighbours.get(pod)}

    def snapshot(
        self,
        found: Snapshot,
        declared: Mapping[JobKey, tuple[int, ...]],
        charged: Callable[[str], bool],
        quotas: Quotas = MappingProxyType({}),
        job_of: Mapping[str, JobKey] = MappingProxyType({}),
        room: Room = anywhere,
    ) -> Snapshot:
        """With slots. declared: by job, what its pods say; a job without a pod keeps what they said. charged: whether
        a holder's GPU counts in the snapshot; quotas: of the jobs' namespaces; job_of: by uid of a pod that there
        is; room: what nodes could take of a job."""
        self.slotted = False
        self.sizes = {key: of for key, of in {**self.sizes, **declared}.items() if key in found.jobs}
        self.jobs = found.jobs
        used = self.devices.used()
        self.seen = self._now()
        self.granted = self._kept(standing(found.jobs, self.sizes, self.granted, used), used)
        self.vacate = to_vacate(found)
        nodes = found.nodes
        self.devices.closed = frozenset(name for name, row in nodes.index.items() if not nodes.open[row])
        self._look_back(found.now)
        held: dict[str, int] = {}
        for uid, known in self.devices.holders.items():
            if charged(uid):
                held[known.node] = held.get(known.node, 0) + 1
        self.held = held
        self.beside = pairs(self.granted, {key: found.jobs[key].grant for key in self.granted})
        uses = by_job(used, job_of)
        here = could_have(found, held, {one.node for grants in self.granted.values() for one in grants})
        self.allowed = allowances(found.jobs, self.sizes, self.granted, quotas, uses, room, here)
        taken = self.devices.taken()
        found = with_slots(
            found, self.sizes, self.granted, taken, held, self.allowed, self.beside, used, self.made
        )
        self.slotted = True
        return found

    def _look_back(self, now: float) -> None:
        """What changed of pods' devices since the last snapshot; now: Unix s."""
        before = self.changes
        self.changes = {
            pod: before[pod] if pod in before and before[pod][0] is last else (last, now)
            for pod, last in self.devices.coordinator.changes.items()
        }
        of = {one.pod: (key, one.node) for key, grants in self.granted.items() for one in grants}
        found = [
            HandOver(*of[pod], now, last)
            for pod, (last, at) in self.changes.items()
            if at == now and last.handed and pod in of
        ]
        self.hand_overs = (*self.hand_overs, *found)[-KEPT:]

    def shown(self) -> InPlaceSeen:
        """As it stands, for readers."""
        return InPlaceSeen(
            whole(self.devices.coordinator.devices),
            tuple(self._wants()),
            self.held,
            self.changes,
            self.hand_overs,
        )

    def _kept(
        self, granted: dict[JobKey, tuple[Granted, ...]], used: Mapping[tuple[str, str], int]
    ) -> dict[JobKey, tuple[Granted, ...]]:
        """What is granted, where whoever was to have GPUs of others is gone before they were told to give them: they
        have them again, and the plan decides again."""
        every = [one for grants in granted.values() for one in grants]
        short = {one.node for one in every if used.get((one.pod, one.node), 0) < one.uses}
        found = dict(granted)
        for key, grants in granted.items():
            told = min(self._told(one.pod) for one in grants)
            if told > grants[0].count and not short & {one.node for one in grants}:
                most = max((n for n in self.sizes[key] if n <= told), default=grants[0].count)
                found[key] = tuple(replace(one, count=most) for one in grants)
        return found

    def _told(self, pod: str) -> int:
        """Devices in the newest order of a pod's agent."""
        agent = self.devices.coordinator.speaker(pod)
        return len(agent.order.devices) if agent is not None and agent.order is not None else 0

    def _trains_on(self) -> Uses:
        """`uses` less what agents were told of and have not told of yet that they use any."""
        known = self.devices.coordinator
        waits = {
            pod
            for pod in self.adjusting & self.uses.keys() - self.changes.keys()
            if (agent := known.speaker(pod)) is not None and not agent.report.devices
        }
        return {pod: on for pod, on in self.uses.items() if pod not in waits} if waits else self.uses

    def plan(self, snapshot: Snapshot, plan: Plan) -> Plan:
        """Without slots: they are what is granted from now on. Where the snapshot could get none, what was granted
        stands."""
        if not self.slotted:
            return plan
        uses = self._trains_on()
        plan, granted = taken_out(
            snapshot, self.sizes, plan, self.changes, self.allowed, uses, self.changing, self.devices.refused
        )
        aside = {key: of for key, of in self.granted.items() if snapshot.jobs[key].quarantined}
        before, self.granted = self.granted, {**aside, **granted}
        shared = {
            key: plan.grants.get(key) if key in plan.shares else snapshot.jobs[key].grant
            for key in self.granted
        }
        self.beside = pairs(self.granted, shared)
        self.jobs, self.planned = snapshot.jobs, True
        found = changing(self.granted, self.uses, self.adjusting)
        same = {key for key in found & self.changing.keys() if before.get(key) == self.granted[key]}
        self.changing = {key: self.changing[key] if key in same else snapshot.now for key in found}
        return plan

    def to_warn(self) -> list[tuple[JobKey, str]]:
        """Jobs on nodes of which a device is used that is nobody's, told once while that lasts, with the words."""
        on = [(key, one.node) for key, grants in self.granted.items() for one in grants]
        about = {(key, s.device): s.words for s in self.strangers for key, node in on if node == s.node}
        before, self.warned = self.warned, set(about)
        return [(which[0], words) for which, words in sorted(about.items()) if which not in before]

    def take_failed(self) -> dict[JobKey | None, Exception]:
        """What deciding raised since this was last asked."""
        failed, self.failed = self.failed, {}
        return failed

    def culprits(self, snapshot: Snapshot, plan: Plan | None = None) -> dict[JobKey | None, Exception]:
        """Jobs that alone can be given no slots, or can't be taken out of a plan, with what they raise."""
        found: dict[JobKey | None, Exception] = {}
        for key, sizes in self.sizes.items():
            try:
                if plan is not None:
                    taken_out(snapshot, {key: sizes}, plan)
                else:
                    granted = standing(snapshot.jobs, {key: sizes}, self.granted, {})
                    with_slots(snapshot, {key: sizes}, granted, {}, {})
            except Exception as error:
                found[key] = error
        return found

    def devices_of(self, key: JobKey) -> Devices | None:
        """None: of no job in place."""
        sizes, grants, job = self.sizes.get(key), self.granted.get(key, ()), self.jobs.get(key)
        if not sizes:
            return None
        pods = max(1, pods_of(job, grants) if job is not None else 0)
        return Devices(sum(one.count for one in grants), pods * sizes[0], pods * sizes[-1])

    @property
    def moved(self) -> bool:
        """Whether devices changed hands since the last snapshot, or could not."""
        return bool(self.failed) or self.seen != self._now()

    def adopt(self, now: float) -> tuple[tuple[HolderAction, ...], Decisions]:
        """What is to be done about holders, after a plan and after each word of an agent or a holder. now: of the
        Coordinator's clock. Pods over which it raises are put aside; raises where it is no pod's fault."""
        if not self.planned:
            return (), Decisions()
        self.strangers = self.devices.strangers(now)
        wanted = self._wants()
        self.aside = {pod: kept for pod, kept in self.aside.items() if now < sum(kept)}
        found_out = 0
        while True:
            aside = {pod for pod, (until, _) in self.aside.items() if now < until}
            try:
                actions, found = self.devices.adopt(wanted, now, self.vacate, aside)
            except Exception as error:
                pod = self._culprit(wanted, now, aside) if found_out < MOST else None
                if pod is None:
                    raise
                self._put_aside(pod, wanted, error, now)
                found_out += 1
                continue
            again = [self.aside[pod][0] for pod in aside]
            return actions, replace(found, wake=min((*again, *filter(None, [found.wake])), default=None))

    def _culprit(self, wanted: Sequence[Want], now: float, aside: set[str]) -> str | None:
        others = sorted((self.devices.pods() | {want.pod for want in wanted}) - aside)

        def only(pods: Sequence[str]) -> None:
            left_out = aside | (set(others) - set(pods))
            self.devices.adopt(wanted, now, self.vacate, left_out, only_try=True)

        return culprit(others, only)

    def _put_aside(self, pod: str, wanted: Sequence[Want], error: Exception, now: float) -> None:
        _, before = self.aside.get(pod, (0.0, 0.0))
        length = min(2.0 * before, PAUSE_MOST) if before else PAUSE_FIRST
        self.aside[pod] = (now + length, length)
        self.failed[next((want.job for want in wanted if want.pod == pod), None)] = error

    def _wants(self) -> list[Want]:
        """What the Coordinator is to see to: the same list as before where nothing else is granted."""
        made_of = self.jobs, self.sizes, self.granted, self.beside
        before, found = self._wanted
        if len(before) != len(made_of) or any(a is not b for a, b in zip(before, made_of, strict=True)):
            found = wants(*made_of)
            self._wanted = made_of, found
        return found

    def _now(self) -> tuple[object, ...]:
        """What a plan depends on: looked at again where a device or a pod has gone from a state to another."""
        devices = self.devices
        at = devices.coordinator.steps, devices.events
        if self._stood is None or self._stood[0] != at:
            changes = {pod: last.at for pod, last in devices.coordinator.changes.items()}
            self._stood = at, (devices.used(), set(devices.holders), changes, dict(devices.refused))
        return (*self._stood[1], frozenset(one.device for one in self.strangers))
