"""The trial on which shares are carried out: two rooms, who leaves, who takes places up, who shares GPUs with whom.

`room` is what is free now, `after` what will be free once the replicas that leave are gone. A place that is free in
both is taken at once (a hold); one that comes free only later is named in `later`. A job placed *beside* another uses
its GPUs: they are counted once, and stay in use while one of the two is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.core.placement.capacity import AnyCapacity, Capacity, CapacityPair
from muster.core.placement.place import Assignment
from muster.core.placement.preemption import releasing
from muster.core.placement.reservations import assign, open_holds
from muster.core.progress.runtime import duration
from muster.points import Profile
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


@dataclass
class Elastic:
    """What carrying out shares decided: parts of the Plan, by job."""

    reservations: dict[JobKey, tuple[Reservation, ...]]
    later: dict[JobKey, tuple[Reservation, ...]] = field(default_factory=dict)
    leaving: dict[JobKey, list[tuple[Role, Member, str]]] = field(default_factory=dict)
    moving: set[JobKey] = field(default_factory=set)  # of these: those placed anew
    whole: dict[JobKey, str] = field(default_factory=dict)  # jobs that go back whole, with why
    grants: dict[JobKey, Grant] = field(default_factory=dict)
    statuses: dict[JobKey, Status] = field(default_factory=dict)

    def shrinks(self) -> tuple[Shrink, ...]:
        return tuple(
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


@dataclass(frozen=True)
class HeadReservation:
    """What is kept for the head of the queue (`core.placement.backfill`). ceiling: capacity at its reserved start
    (`until`), less the head; ahead: jobs that come before it in the queue, which it does not keep from anything."""

    ceiling: Capacity
    until: float
    ahead: frozenset[JobKey]

    def passes(self, job: Job, now: float) -> bool:
        """Whether it ends before the head starts."""
        length = duration(job)
        return length is not None and now + length <= self.until


class Statement:
    """The rooms, who leaves, and who shares GPUs with whom."""

    def __init__(
        self,
        snapshot: Snapshot,
        profile: Profile,
        capacity: Capacity,
        result: Elastic,
        *,
        settled: bool = False,
        guard: HeadReservation | None = None,
    ) -> None:
        self.snapshot, self.profile, self.capacity, self.result = snapshot, profile, capacity, result
        self.settled, self.guard = settled, guard
        self.after: Capacity | None = None
        self.partner: dict[JobKey, JobKey] = {}
        for job in snapshot.jobs.values():
            beside = job.grant.beside if job.grant else None
            if beside is not None and beside in snapshot.jobs and (job.started or job.reservations):
                self.partner[job.key] = beside
                self.partner[beside] = job.key
        self.gone: set[JobKey] = set()
        self.found: set[JobKey] = set()  # placed anew: what still leaves is not wanted any more
        for row, shape in releasing(snapshot):
            self.later_room().give(row, shape)

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

    def leave(self, job: Job, role: Role, member: Member, why: str) -> None:
        """A bound replica goes; its place is free afterwards, but for GPUs that a partner goes on using."""
        row = self.snapshot.nodes.index.get(member.node)
        if row is not None:
            self.later_room().give(row, self.frees(job, role))
            if self.guard is not None:
                self.guard.ceiling.give(row, self.frees(job, role))
        self.result.leaving.setdefault(job.key, []).append((role, member, why))

    def return_(self, job: Job) -> bool:
        """All that was to leave stays, if its places are still free afterwards."""
        after = self.later_room()
        mark = after.mark()
        for role, member, _ in self.result.leaving.get(job.key, []):
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
        self.result.leaving.pop(job.key, None)
        self.result.whole.pop(job.key, None)
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
    return replace(shape, requests=tuple(r for r in shape.requests if not r[0].endswith("/gpu")))


def take_up(
    statement: Statement, job: Job, assignments: Sequence[Assignment], later: bool, *, taken: bool = False
) -> None:
    """Holds for the spots. Replicas of a job placed again that are where they are wanted stay. taken: what the spots
    need stands in both rooms already."""
    result, nodes = statement.result, statement.snapshot.nodes
    leaving = result.leaving.get(job.key)
    if leaving:
        wanted = Counter({(role, nodes.names[row]): count for role, row, count in _merged(assignments)})
        stay = []
        for part in leaving if job.resize != "restart" else ():
            role, member, _ = part
            if wanted[role.name, member.node]:
                wanted[role.name, member.node] -= 1
                stay.append(part)
        result.leaving[job.key] = [part for part in leaving if part not in stay]
        if not result.leaving[job.key]:
            del result.leaving[job.key]
        reservations = [
            Reservation(role, node) for (role, node), count in wanted.items() for _ in range(count)
        ]
        statement.gone.discard(job.key)
        statement.part(job.key)
        statement.found.add(job.key)
        if taken:
            result.later[job.key] = (*result.later.get(job.key, ()), *reservations)
        else:
            _await(statement, job, reservations)
        return
    reservations = open_holds(nodes, assignments)
    if not reservations:
        return
    if later:
        result.later[job.key] = (*result.later.get(job.key, ()), *reservations)
    else:
        result.reservations[job.key] = tuple(
            assign(job, [*result.reservations.get(job.key, ()), *reservations])
        )


def _await(statement: Statement, job: Job, reservations: Sequence[Reservation]) -> None:
    """Places for the successors of replicas that leave: kept for them from now on where they are free, else later."""
    result, nodes = statement.result, statement.snapshot.nodes
    shapes = {role.name: role.shape for role in job.roles}
    for hold in reservations:
        row = nodes.index[hold.node]
        if int(statement.capacity.fits(shapes[hold.role])[row]) < 1:
            result.later[job.key] = (*result.later.get(job.key, ()), hold)
            continue
        statement.capacity.take(row, shapes[hold.role])
        result.reservations[job.key] = (*result.reservations.get(job.key, ()), hold)


def _merged(assignments: Sequence[Assignment]) -> list[Assignment]:
    counts: Counter[tuple[str, int]] = Counter()
    for role, row, count in assignments:
        counts[role, row] += count
    return [(role, row, count) for (role, row), count in counts.items()]
