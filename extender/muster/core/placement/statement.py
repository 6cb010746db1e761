"""A trial on which jobs start, grow and shrink: capacity now and afterwards, who leaves, who shares GPUs with whom.

`capacity` is what is free now, `after` what will be free once the replicas that leave are gone. A place that is free
in both is taken at once; one that comes free only later is named in `later`. A job placed *beside* another uses its
GPUs: they are counted once, and stay in use while one of the two is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muster.core.placement.capacity import AnyCapacity, Capacity, CapacityPair
from muster.core.placement.cycle_state import CycleState, HeadReservation
from muster.core.placement.preemption import releasing
from muster.types import (
    EndReason,
    Grant,
    Job,
    JobKey,
    Member,
    Reservation,
    Role,
    Shape,
    Shrink,
    Snapshot,
    Status,
)


class Statement:
    """What one step of a cycle decides. Where nobody leaves (a job that starts, or takes one more place), it writes
    to the cycle's reservations as it goes; `of_shares` makes one whose decisions count once they are committed."""

    def __init__(
        self,
        run: CycleState,
        snapshot: Snapshot | None = None,
        *,
        settled: bool = False,
        guard: HeadReservation | None = None,
    ) -> None:
        self.snapshot, self.profile, self.capacity = snapshot or run.snapshot, run.profile, run.capacity
        self.settled, self.guard = settled, guard
        self.after: Capacity | None = None
        self.reservations = run.reservations
        self.later: dict[JobKey, tuple[Reservation, ...]] = {}
        self.leaving: dict[JobKey, list[tuple[Role, Member, str]]] = {}
        self.moving: set[JobKey] = set()  # of these: those placed again
        self.whole: dict[JobKey, str] = {}  # jobs that go back whole, with why
        self.grants: dict[JobKey, Grant] = {}
        self.statuses: dict[JobKey, Status] = {}
        self.partner: dict[JobKey, JobKey] = {}
        self.gone: set[JobKey] = set()
        self.found: set[JobKey] = set()  # placed again: what still leaves is not wanted any more
        self.astray: set[JobKey] = set()  # not on the very nodes that they are granted: one was not free

    @classmethod
    def of_shares(
        cls, run: CycleState, snapshot: Snapshot, *, settled: bool, guard: HeadReservation | None
    ) -> Statement:
        """One on which jobs shrink, too; nothing of it is in the plan before `commit`."""
        made = cls(run, snapshot, settled=settled, guard=guard)
        made.reservations = dict(run.reservations)
        for job in snapshot.jobs.values():
            beside = job.grant.beside if job.grant else None
            if beside is not None and beside in snapshot.jobs and (job.started or job.reservations):
                made.partner[job.key] = beside
                made.partner[beside] = job.key
        for row, shape in releasing(snapshot):
            made.later_room().give(row, shape)
        return made

    def commit(self, run: CycleState) -> None:
        """All that it decided is in the plan."""
        run.reservations, run.later, run.grants = self.reservations, self.later, self.grants
        for key in self.astray & self.grants.keys():  # where it found its places it stays
            run.grants[key] = replace(self.grants[key], nodes=())
        run.statuses.update(self.statuses)
        run.preempted.update(self.whole)
        run.ends.update(dict.fromkeys(self.whole, EndReason.SHARE))
        run.shrinks = tuple(
            Shrink(
                key,
                role.name,
                member.uid,
                member.pod,
                member.node,
                why,
                EndReason.MOVE if key in self.moving else EndReason.SHARE,
            )
            for key, leavers in self.leaving.items()
            if key not in self.whole
            for role, member, why in leavers
        )

    def later_room(self) -> Capacity:
        if self.after is None:
            capacity = self.capacity
            self.after = Capacity(
                replace(self.snapshot, free=capacity.free, ports=capacity.ports, ours_on=capacity.ours)
            )
        return self.after

    def free(self, row: int, shape: Shape) -> None:
        """A place that was only held is free, now and afterwards."""
        self.capacity.give(row, shape)
        if self.after is not None:
            self.after.give(row, shape)
        if self.guard is not None:
            self.guard.ceiling.give(row, shape)

    def guarded(self, capacity: AnyCapacity, job: Job) -> AnyCapacity:
        """The room as far as this job may use it: what is kept for the head is not there for who comes after it."""
        guard = self.guard
        if guard is None or job.key in guard.ahead or guard.passes(job, self.snapshot.now):
            return capacity
        return CapacityPair(capacity, guard.ceiling)

    def mark(self) -> tuple[int, ...]:
        """A place to return to: of capacity only, nothing else may be decided until then."""
        return tuple([capacity.mark() for capacity in self._rooms()])

    def undo(self, mark: tuple[int, ...]) -> None:
        """Give back all capacity that was taken since the mark."""
        for capacity, before in zip(self._rooms(), mark, strict=True):
            capacity.undo(before)

    def _rooms(self) -> list[Capacity]:
        kept = () if self.guard is None else (self.guard.ceiling,)
        return [self.capacity, *(() if self.after is None else (self.after,)), *kept]

    def leave(self, job: Job, role: Role, member: Member, why: str) -> None:
        """A bound replica goes; its place is free afterwards, but for GPUs that a partner goes on using."""
        row = self.snapshot.nodes.index.get(member.node)
        if row is not None:
            self.later_room().give(row, self.frees(job, role))
            if self.guard is not None:
                self.guard.ceiling.give(row, self.frees(job, role))
        self.leaving.setdefault(job.key, []).append((role, member, why))

    def return_(self, job: Job) -> bool:
        """All that was to leave stays, if its places are still free afterwards."""
        after = self.later_room()
        mark = after.mark()
        for role, member, _ in self.leaving.get(job.key, []):
            row = self.snapshot.nodes.index.get(member.node)
            if row is None:
                continue
            shape = self.frees(job, role)
            if after.fits(shape)[row] < 1:
                after.undo(mark)
                return False
            after.take(row, shape)
            if self.guard is not None:
                self.guard.ceiling.take(row, shape)
        self.leaving.pop(job.key, None)
        self.whole.pop(job.key, None)
        self.gone.discard(job.key)
        return True

    def hold(self, job: Job, reservations: Sequence[Reservation]) -> bool:
        """Takes these places, if all of them are free."""
        shapes = {role.name: role.shape for role in job.roles}
        capacity = CapacityPair(self.capacity, self.after) if self.after is not None else self.capacity
        mark = capacity.mark()
        for hold in reservations:
            row = self.snapshot.nodes.index[hold.node]
            if capacity.fits(shapes[hold.role])[row] < 1:
                capacity.undo(mark)
                return False
            capacity.take(row, shapes[hold.role])
        return True

    def part(self, key: JobKey) -> None:
        """Two jobs share GPUs no more: each has, or needs, its own."""
        other = self.partner.pop(key, None)
        if other is not None and self.partner.get(other) == key:
            del self.partner[other]

    def frees(self, job: Job, role: Role) -> Shape:
        partner = self.partner.get(job.key)
        return without_gpus(role.shape) if partner is not None and partner not in self.gone else role.shape


def without_gpus(shape: Shape) -> Shape:
    """What a replica uses that shares another's GPUs."""
    return replace(shape, requests=tuple(r for r in shape.requests if not shape.devices.has(r[0])))
