"""What the Ledger asks of jobs in place between two cycles: a snapshot with slots in it, and a plan without them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from muster.core.devices.device_ledger import DeviceLedger
from muster.core.devices.hand_over import Decisions
from muster.core.devices.slots import Granted, standing, taken_out, to_vacate, wants, with_slots
from muster.types import Job, JobKey, Plan, Snapshot
from muster.types.holders import HolderAction


class Devices(NamedTuple):
    """Devices of a job in place: those it is granted, and the fewest and most that it can train on."""

    granted: int
    least: int
    most: int


@dataclass
class InPlace:
    """sizes: by job, numbers of GPUs that it can train on; granted: what the last plan grants; planned: whether there
    was one in this term, before which nothing is taken from anybody; slotted: whether the last snapshot has slots."""

    devices: DeviceLedger
    sizes: dict[JobKey, tuple[int, ...]] = field(default_factory=dict)
    granted: dict[JobKey, Granted] = field(default_factory=dict)
    planned: bool = False
    jobs: Mapping[JobKey, Job] = field(default_factory=dict)
    vacate: dict[str, int] = field(default_factory=dict)
    slotted: bool = False
    seen: tuple[object, ...] = ()

    def snapshot(
        self,
        found: Snapshot,
        declared: Mapping[JobKey, tuple[int, ...]],
        charged: Callable[[str], bool],
    ) -> Snapshot:
        """With slots. declared: by job, what its pods say; a job without a pod keeps what they said. charged: whether
        a holder's GPU counts in the snapshot."""
        self.slotted = False
        self.sizes = {key: of for key, of in {**self.sizes, **declared}.items() if key in found.jobs}
        self.jobs = found.jobs
        used = self.devices.used()
        self.seen = self._now()
        self.granted = standing(found.jobs, self.sizes, self.granted, used)
        self.vacate = to_vacate(found)
        held: dict[str, int] = {}
        for uid, known in self.devices.holders.items():
            if charged(uid):
                held[known.node] = held.get(known.node, 0) + 1
        found = with_slots(found, self.sizes, self.granted, used, held)
        self.slotted = True
        return found

    def plan(self, snapshot: Snapshot, plan: Plan) -> Plan:
        """Without slots: they are what is granted from now on. Where the snapshot could get none, what was granted
        stands."""
        if not self.slotted:
            return plan
        plan, granted = taken_out(snapshot, self.sizes, plan)
        aside = {key: of for key, of in self.granted.items() if snapshot.jobs[key].quarantined}
        self.granted = {**aside, **granted}
        self.jobs, self.planned = snapshot.jobs, True
        return plan

    def culprits(self, snapshot: Snapshot, plan: Plan | None = None) -> dict[JobKey, Exception]:
        """Jobs that alone can be given no slots, or can't be taken out of a plan, with what they raise."""
        found = {}
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
        sizes, grant = self.sizes.get(key), self.granted.get(key)
        return Devices(grant.count if grant is not None else 0, sizes[0], sizes[-1]) if sizes else None

    def left_out(self, plan: Plan) -> Plan:
        """The plan without jobs in place: they stay as they are."""

        def others(of: Mapping[JobKey, Any]) -> dict[JobKey, Any]:
            return {key: value for key, value in of.items() if key not in self.sizes}

        return replace(
            plan,
            reservations=others(plan.reservations),
            later=others(plan.later),
            statuses=others(plan.statuses),
            preempted=others(plan.preempted),
            back=others(plan.back),
            shrinks=tuple(s for s in plan.shrinks if s.job not in self.sizes),
        )

    @property
    def moved(self) -> bool:
        """Whether devices changed hands since the last snapshot."""
        return self.seen != self._now()

    def adopt(self, now: float) -> tuple[tuple[HolderAction, ...], Decisions]:
        """What is to be done about holders, after a plan and after each word of an agent or a holder. now: of the
        Coordinator's clock."""
        if not self.planned:
            return (), Decisions()
        return self.devices.adopt(wants(self.jobs, self.sizes, self.granted), now, self.vacate)

    def _now(self) -> tuple[object, ...]:
        return tuple(sorted(self.devices.used().items())), tuple(sorted(self.devices.holders))
