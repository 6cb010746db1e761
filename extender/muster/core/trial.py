"""The trial on which shares are carried out: two rooms, who leaves, who takes places up, who shares GPUs with whom.

`room` is what is free now, `after` what will be free once the replicas that leave are gone. A place that is free in
both is taken at once (a hold); one that comes free only later is named in `later`. A job placed *beside* another uses
its GPUs: they are counted once, and stay in use while one of the two is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from muster.core.holds import assign, open_holds
from muster.core.place import Spot
from muster.core.preempt import coming
from muster.core.room import Room
from muster.points import Profile
from muster.types import Hold, Job, JobKey, Member, Role, Shape, Shrink, Snapshot, Status, Want


@dataclass
class Elastic:
    """What carrying out shares decided: parts of the Plan, by job."""

    holds: dict[JobKey, tuple[Hold, ...]]
    later: dict[JobKey, tuple[Hold, ...]] = field(default_factory=dict)
    leaving: dict[JobKey, list[tuple[Role, Member, str]]] = field(default_factory=dict)
    whole: dict[JobKey, str] = field(default_factory=dict)  # jobs that go back whole, with why
    wants: dict[JobKey, Want] = field(default_factory=dict)
    statuses: dict[JobKey, Status] = field(default_factory=dict)

    def shrinks(self) -> tuple[Shrink, ...]:
        return tuple(
            Shrink(key, role.name, member.uid, member.pod, member.node, why)
            for key, leavers in self.leaving.items()
            if key not in self.whole
            for role, member, why in leavers
        )


class Trial:
    """The rooms, who leaves, and who shares GPUs with whom."""

    def __init__(
        self, snapshot: Snapshot, profile: Profile, room: Room, result: Elastic, *, settled: bool = False
    ) -> None:
        self.snapshot, self.profile, self.room, self.result = snapshot, profile, room, result
        self.settled = settled
        self.after: Room | None = None
        self.partner: dict[JobKey, JobKey] = {}
        for job in snapshot.jobs.values():
            beside = job.want.beside if job.want else None
            if beside is not None and beside in snapshot.jobs and (job.started or job.holds):
                self.partner[job.key] = beside
                self.partner[beside] = job.key
        self.gone: set[JobKey] = set()
        self.found: set[JobKey] = set()  # placed anew: what still leaves is not wanted any more
        for row, shape in coming(snapshot):
            self.later_room().give(row, shape)

    def later_room(self) -> Room:
        if self.after is None:
            room = self.room
            self.after = Room(replace(self.snapshot, free=room.free, ports=room.ports, ours_on=room.ours))
        return self.after

    def free(self, row: int, shape: Shape) -> None:
        """A place that was only held is free, now and afterwards."""
        self.room.give(row, shape)
        if self.after is not None:
            self.after.give(row, shape)

    def leave(self, job: Job, role: Role, member: Member, why: str) -> None:
        """A bound replica goes; its place is free afterwards, but for GPUs that a partner goes on using."""
        row = self.snapshot.nodes.index.get(member.node)
        if row is not None:
            self.later_room().give(row, self.frees(job, role))
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
        self.result.leaving.pop(job.key, None)
        self.result.whole.pop(job.key, None)
        self.gone.discard(job.key)
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


def take_up(trial: Trial, job: Job, spots: Sequence[Spot], later: bool, *, taken: bool = False) -> None:
    """Holds for the spots. Replicas of a job placed anew that are where they are wanted stay. taken: what the spots
    need stands in both rooms already."""
    result, nodes = trial.result, trial.snapshot.nodes
    leaving = result.leaving.get(job.key)
    if leaving:
        wanted = Counter({(role, nodes.names[row]): count for role, row, count in _merged(spots)})
        stay = []
        for part in leaving if job.resize != "restart" else ():
            role, member, _ = part
            if wanted[role.name, member.node]:
                wanted[role.name, member.node] -= 1
                stay.append(part)
        result.leaving[job.key] = [part for part in leaving if part not in stay]
        if not result.leaving[job.key]:
            del result.leaving[job.key]
        holds = [Hold(role, node) for (role, node), count in wanted.items() for _ in range(count)]
        trial.gone.discard(job.key)
        trial.part(job.key)
        trial.found.add(job.key)
        if taken:
            result.later[job.key] = (*result.later.get(job.key, ()), *holds)
        else:
            _await(trial, job, holds)
        return
    holds = open_holds(nodes, spots)
    if not holds:
        return
    if later:
        result.later[job.key] = (*result.later.get(job.key, ()), *holds)
    else:
        result.holds[job.key] = tuple(assign(job, [*result.holds.get(job.key, ()), *holds]))


def _await(trial: Trial, job: Job, holds: Sequence[Hold]) -> None:
    """Places for the successors of replicas that leave: kept for them from now on where they are free, else later."""
    result, nodes = trial.result, trial.snapshot.nodes
    shapes = {role.name: role.shape for role in job.roles}
    for hold in holds:
        row = nodes.index[hold.node]
        if int(trial.room.fits(shapes[hold.role])[row]) < 1:
            result.later[job.key] = (*result.later.get(job.key, ()), hold)
            continue
        trial.room.take(row, shapes[hold.role])
        result.holds[job.key] = (*result.holds.get(job.key, ()), hold)


def _merged(spots: Sequence[Spot]) -> list[Spot]:
    counts: Counter[tuple[str, int]] = Counter()
    for role, row, count in spots:
        counts[role, row] += count
    return [(role, row, count) for (role, row), count in counts.items()]
