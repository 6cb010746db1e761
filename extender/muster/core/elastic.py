"""Carrying out shares on nodes: shrink, then start and grow, on a trial that can be given back (design §3).

Two rooms: what is free now, and what will be free once the replicas that leave are gone (`after`). A place that is
free in both is taken at once (a hold); one that comes free only later is named in `later`: the live cluster plans it
anew when the capacity is there, the simulator, where leaving takes no time, takes it in the same instant.

What was shrunk for a job that then finds no place is given back. A job placed *beside* another uses its GPUs: they
are counted once, and stay in use while one of the two is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from muster.core import reasons
from muster.core.holds import assign, open_holds, own_rows, placed
from muster.core.place import Need, Spot, place
from muster.core.room import Both, Room
from muster.core.table import elastic_role, ending
from muster.core.whys import discreet
from muster.points import Profile
from muster.types import (
    GPU_MEMORY,
    PRODUCT,
    BoolArray,
    Code,
    Hold,
    Job,
    JobKey,
    Member,
    Move,
    Phase,
    Role,
    Shape,
    Shares,
    Shrink,
    Snapshot,
    State,
    Status,
    Want,
)

ALONE = Want()


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


class _Trial:
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
        for row, shape in ending(snapshot):
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


def carry_out(
    snapshot: Snapshot,
    profile: Profile,
    room: Room,
    holds: dict[JobKey, tuple[Hold, ...]],
    order: Sequence[Job],
    shares: Shares,
    moves: Sequence[Move] = (),
) -> Elastic:
    """Places for `shares` (rows of snapshot.table) of the jobs in `order`; `room` is left with all holds taken."""
    result = Elastic(holds)
    trial = _Trial(snapshot, profile, room, result, settled=shares.settled)
    table = snapshot.table
    jobs = [(job, table.row[job.key]) for job in order if job.key in table.row]
    if shares.order:
        place_of = {row: place for place, row in enumerate(shares.order)}
        jobs.sort(key=lambda pair: place_of.get(pair[1], len(place_of)))
    granted = {job.key: int(shares.replicas[row]) for job, row in jobs}
    wants = {job.key: shares.wants.get(row, ALONE) for job, row in jobs}
    why = {job.key: discreet(shares.why.get(row, ""), job.key.namespace, table) for job, row in jobs}
    # shrink: whole jobs, jobs that are placed anew, single replicas
    starts: list[Job] = []
    grows: list[Job] = []
    sharing: list[Job] = []
    for job, _ in jobs:
        want = wants[job.key]
        running = job.started or bool(holds.get(job.key))
        if not running:
            if granted[job.key]:
                (sharing if want.beside else starts).append(job)
            else:
                result.statuses[job.key] = waits(why[job.key])
        elif not granted[job.key]:
            _leave_whole(trial, job, why[job.key] or "its share is 0")
        elif want.beside is not None and trial.partner.get(job.key) == want.beside:
            result.wants[job.key] = want
        elif _anew(trial, job, want, granted[job.key]):
            _leave_to_move(trial, job, "it is placed anew")
            (sharing if want.beside else starts).append(job)
        elif _stays(job, holds.get(job.key, ()), granted[job.key], want):
            if want is not ALONE:
                result.wants[job.key] = want
        else:
            _shrink(trial, job, granted[job.key], want, why[job.key])
            grows.append(job)
    # start, then grow, then those that share another's GPUs
    failed = [job for job in starts if not _start(trial, job, granted[job.key], wants[job.key], shares.whole)]
    failed += [job for job in grows if not _grow(trial, job, granted[job.key], wants[job.key])]
    failed += [job for job in sharing if not _beside(trial, job, wants[job.key])]
    # rebalance: what a plugin moves, if it finds its place
    for move in moves:
        _move(trial, move)
    # what was shrunk for nothing is given back
    if failed:
        for key in list(result.leaving):
            if key not in result.later and key not in trial.found:
                trial.return_(snapshot.jobs[key])
    for job in starts + sharing:
        if job.key not in result.leaving or job.key in result.later or job.key in trial.found:
            continue
        if not trial.return_(job):
            result.whole[job.key] = "no place for it as it is to run"
    # what found no place anew for all that it is granted takes what there is where it runs
    for job in failed if not shares.whole else ():
        want = wants[job.key]
        back = job.started and job.key not in result.leaving and job.key not in result.whole
        if back and job.key not in trial.found and want.beside is None and not want.anew and not job.resize:
            _grow(trial, job, granted[job.key], want)
    # what is free already of places that others leave is nobody else's in this cycle
    for key, places in result.later.items():
        shapes = {role.name: role.shape for role in snapshot.jobs[key].roles}
        beside = result.wants.get(key, ALONE).beside is not None
        for hold in places:
            shape = shapes[hold.role]
            room.take(snapshot.nodes.index[hold.node], without_gpus(shape) if beside else shape)
    return result


def _stays(job: Job, holds: Sequence[Hold], target: int, want: Want) -> bool:
    """Nothing to shrink or grow: what most running jobs are in most cycles."""
    return len(job.roles) == 1 and not want.roles and placed(job.roles[0], holds) == target


def waits(why: str) -> Status:
    """A job whose share is 0."""
    return Status(State.WAITING, Code.SHARE, why or "its share is 0: others gain more from the GPUs")


# ---- shrink ----


def _leave_whole(trial: _Trial, job: Job, why: str) -> None:
    """Every replica goes back to the gate."""
    trial.result.whole[job.key] = why
    _leave_to_move(trial, job, why)


def _leave_to_move(trial: _Trial, job: Job, why: str) -> None:
    """Every replica leaves where it is; places that nobody has taken up yet are free at once."""
    _drop_holds(trial, job)
    _leave_all(trial, job, job.roles, why)
    trial.gone.add(job.key)


def _leave_all(trial: _Trial, job: Job, roles: Sequence[Role], why: str) -> None:
    for role in roles:
        for member in role.members:
            if _stands(member):
                trial.leave(job, role, member, why)


def _drop_holds(trial: _Trial, job: Job) -> None:
    """Places of replicas whose gate is still on are free again."""
    roles = {role.name: role for role in job.roles}
    gated = {m.uid for role in job.roles for m in role.members if m.phase is Phase.GATED}
    kept = []
    for hold in trial.result.holds.get(job.key, ()):
        row = trial.snapshot.nodes.index.get(hold.node)
        if hold.uid and hold.uid not in gated:
            kept.append(hold)
        elif row is not None:
            trial.free(row, roles[hold.role].shape)
    trial.result.holds[job.key] = tuple(kept)


def _anew(trial: _Trial, job: Job, want: Want, target: int) -> bool:
    """Whether where it runs is not where it is wanted: another product, too many nodes, another GPU to share."""
    holds = trial.result.holds.get(job.key, ())
    if want.beside is not None:
        return True
    if trial.partner.get(job.key) is not None and job.want is not None and job.want.beside is not None:
        return True  # it shared a GPU that its partner keeps
    role = elastic_role(job)
    have = placed(role, holds)
    if job.resize == "restart" and target != have:
        return True
    if not want.product and not want.max_nodes:  # nothing is said of where
        return want.anew and target != have
    nodes = trial.snapshot.nodes
    names = [nodes.names[row] for row in own_rows(nodes, job, holds)]
    if want.product and any(_label(trial, n, PRODUCT) != want.product for n in names):
        return True
    if want.max_nodes and len(names) > want.max_nodes:
        return True
    if want.max_nodes and target > have:  # it grows, but not where it is
        room = trial.after or trial.room
        fits = room.fits(role.shape)
        here = sum(int(fits[nodes.index[n]]) for n in names)
        if here < target - have and len(names) >= want.max_nodes:
            return True
    return want.anew and target != have


def _label(trial: _Trial, name: str, label: str) -> str:
    nodes = trial.snapshot.nodes
    return nodes.records[nodes.index[name]].labels.get(label, "")


def targets(job: Job, target: int, want: Want, holds: Sequence[Hold]) -> dict[str, int]:
    """Replicas by role: the elastic role's share, and what is granted of the others (at least their minimum)."""
    elastic = elastic_role(job)
    result = {}
    for role in job.roles:
        if role is elastic:
            result[role.name] = want.roles.get(role.name, target)
        else:
            result[role.name] = want.roles.get(role.name, max(role.min, placed(role, holds)))
        result[role.name] = max(role.min, min(role.max, result[role.name]))
    return result


def _shrink(trial: _Trial, job: Job, target: int, want: Want, why: str) -> None:
    """Held places go first, then of an indexed role the highest indexes, else those farthest from the rest."""
    holds = list(trial.result.holds.get(job.key, ()))
    goal = targets(job, target, want, holds)
    for role in job.roles:
        surplus = placed(role, holds) - goal[role.name]
        if surplus <= 0:
            continue
        gated = {m.uid for m in role.members if m.phase is Phase.GATED}
        for hold in [h for h in reversed(holds) if h.role == role.name and (not h.uid or h.uid in gated)]:
            if not surplus:
                break
            holds.remove(hold)
            trial.free(trial.snapshot.nodes.index[hold.node], role.shape)
            surplus -= 1
        for member in leavers(role, surplus):
            trial.leave(job, role, member, why or f"its share is {goal[role.name]}")
    trial.result.holds[job.key] = tuple(holds)


def _stands(member: Member) -> bool:
    """Whether it is on a node, or pinned to one on its way there: only an eviction frees its place."""
    return member.phase is Phase.BOUND or (member.phase is Phase.UNGATED and member.pinned)


def leavers(role: Role, count: int) -> list[Member]:
    """Who leaves: the highest indexes, else replicas on the nodes where fewest of the role are (then by name).
    Replicas that are on their way to their node leave, too: a growth that is overtaken is undone."""
    bound = [m for m in role.members if _stands(m)]
    if any(m.index >= 0 for m in bound):
        return sorted(bound, key=lambda m: -m.index)[:count]
    result: list[Member] = []
    on = Counter(m.node for m in bound)
    while len(result) < count and bound:
        node = min(on, key=lambda n: (on[n], n))
        last = max((m for m in bound if m.node == node), key=lambda m: m.pod)
        bound.remove(last)
        result.append(last)
        on[node] -= 1
        if not on[node]:
            del on[node]
    return result


# ---- start and grow ----


def _start(trial: _Trial, job: Job, target: int, want: Want, whole: bool) -> bool:
    """A start, or a job that is placed anew: the whole grant, else the largest legal part of it."""
    role = elastic_role(job)
    goal = targets(job, target, want, trial.result.holds.get(job.key, ()))
    others = [Need(r, goal[r.name]) for r in job.roles if r is not role]
    if whole or want.roles or job.key in trial.result.leaving:
        steps = [goal[role.name]]
    else:
        steps = [s for s in role.sizes or range(max(1, role.min), role.max + 1) if s <= goal[role.name]]
    for step in _descending(steps, trial.later_room() if trial.after else trial.room, role):
        found = _place(trial, job, [Need(role, step), *others], want, {})
        if found is not None:
            spots, later = found
            _take_up(trial, job, spots, later)
            if want is not ALONE:
                trial.result.wants[job.key] = want
            return step == goal[role.name]
    room = trial.after or trial.room
    if job.key not in trial.result.leaving:
        trial.result.statuses[job.key] = reasons.refusal(
            room, job, [Need(role, steps[0] if steps else role.min), *others], trial.profile, trial.snapshot
        )
    return False


def _descending(steps: Sequence[int], room: Room, role: Role) -> list[int]:
    """Steps from the largest down, without those that can't fit by count."""
    fits = room.total_fits(role.shape)
    return [s for s in reversed(steps) if s <= fits]


def _place(
    trial: _Trial, job: Job, needs: Sequence[Need], want: Want, own: Mapping[int, int]
) -> tuple[list[Spot], bool] | None:
    """Spots, and whether some of them come free only later; taken from the rooms. None where there are none."""
    if trial.after is None:
        spots = _within(trial, trial.room, job, needs, want, own)
        return None if spots is None else (spots, False)
    moves = job.key in trial.result.leaving
    if not moves and not trial.settled:
        spots = _within(trial, Both(trial.room, trial.after), job, needs, want, own)
        if spots is not None:
            return spots, False
    spots = _within(trial, trial.after, job, needs, want, own)
    if spots is None:
        return None
    return spots, moves or not _free_now(trial.room, job, spots)


def _free_now(room: Room, job: Job, spots: Sequence[Spot]) -> bool:
    """Takes the spots in the room as it is, or nothing where one of them comes free only later."""
    shapes = {role.name: role.shape for role in job.roles}
    mark = room.mark()
    for role, row, count in spots:
        if int(room.fits(shapes[role])[row]) < count:
            room.undo(mark)
            return False
        room.take(row, shapes[role], count)
    return True


def _within(
    trial: _Trial, room: Room | Both, job: Job, needs: Sequence[Need], want: Want, own: Mapping[int, int]
) -> list[Spot] | None:
    allowed = _allowed(trial, room, needs, want, own)
    return place(room, job, needs, trial.profile, trial.snapshot, allowed=allowed, own=own)


def _allowed(
    trial: _Trial, room: Room | Both, needs: Sequence[Need], want: Want, own: Mapping[int, int]
) -> BoolArray | None:
    """Nodes of the product, and at most so many of them: those that the job is on, then those with most room
    (of one node: the one with the least to spare that takes it whole)."""
    if not want.product and not want.max_nodes:
        return None
    nodes = trial.snapshot.nodes
    mask = np.ones(len(nodes), dtype=np.bool_)
    if want.product:
        ids, names = nodes.domains(PRODUCT)
        mask = ids == names.index(want.product) if want.product in names else np.zeros(len(nodes), np.bool_)
    if want.max_nodes:
        need = needs[0]
        fits = np.where(mask, room.fits(need.role.shape), 0)
        left = want.max_nodes - len(own)
        chosen = np.zeros(len(nodes), dtype=np.bool_)
        chosen[list(own)] = True
        count = need.count - int(fits[chosen].sum())
        enough = np.flatnonzero(~chosen & (fits >= count))
        if count > 0 and left > 0:
            if len(enough):
                chosen[enough[np.argmin(fits[enough])]] = True
            else:
                chosen[np.argsort(np.where(chosen, -1, fits), kind="stable")[::-1][:left]] = True
        mask = mask & chosen
    return mask


def _take_up(trial: _Trial, job: Job, spots: Sequence[Spot], later: bool, *, taken: bool = False) -> None:
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


def _await(trial: _Trial, job: Job, holds: Sequence[Hold]) -> None:
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


def comes(job: Job, now: float, profile: Profile) -> bool:
    """Whether replicas that do not exist yet may be planned for: their owner makes them, and has not stopped to."""
    return job.expects and (job.coming or now - job.newest_pod < profile.owner_pause)


def _grow(trial: _Trial, job: Job, target: int, want: Want) -> bool:
    """More replicas for a job that runs: the whole step, else the largest part of it."""
    nodes = trial.snapshot.nodes
    if want is not ALONE:
        trial.result.wants[job.key] = want
    done = True
    for role in job.roles:
        holds = trial.result.holds.get(job.key, ())
        goal = targets(job, target, want, holds)[role.name]
        have = placed(role, holds) - sum(1 for r, _, _ in trial.result.leaving.get(job.key, ()) if r is role)
        if goal <= have:
            continue
        if not comes(job, trial.snapshot.now, trial.profile):  # only replicas that exist can start
            taken = {h.uid for h in holds}
            goal = min(goal, have + sum(1 for m in role.members if m.ready and m.uid not in taken))
        steps = [s for s in role.sizes or range(have + 1, goal + 1) if have < s <= goal]
        own = own_rows(nodes, job, holds)
        room = trial.after or trial.room
        fits = room.total_fits(role.shape)
        for step in [s for s in reversed(steps) if s - have <= fits]:
            found = _place(trial, job, [Need(role, step - have)], want, own)
            if found is not None:
                _take_up(trial, job, *found)
                done = done and step == goal
                break
        else:
            done = done and not steps
    return done


# ---- two jobs on the same GPUs ----


def _beside(trial: _Trial, job: Job, want: Want) -> bool:
    """Places on the GPUs of another job, if it is placed, alone on them, and both fit their memory."""
    snapshot, result = trial.snapshot, trial.result
    other = snapshot.jobs.get(want.beside) if want.beside is not None else None
    role = elastic_role(job)
    if other is None or other.key in trial.gone:
        return False
    before = trial.partner.get(other.key)
    if before is not None and before not in trial.gone:
        return False
    leaving = {m.uid for _, m, _ in result.leaving.get(other.key, ())}
    theirs = elastic_role(other)
    names = [m.node for m in theirs.members if m.phase is Phase.BOUND and m.uid not in leaving]
    names += [h.node for h in (*result.holds.get(other.key, ()), *result.later.get(other.key, ()))]
    need = max(1, role.min)
    if len(names) < need or role.shape.gpus > theirs.shape.gpus:
        return False
    rows = [snapshot.nodes.index[n] for n in sorted(names)[:need]]
    beside = result.wants.get(other.key, other.want or ALONE)
    for row in rows:
        memory = snapshot.nodes.records[row].labels.get(GPU_MEMORY, "")
        if memory.isdigit() and _memory(job, want) + _memory(other, beside) > int(memory):
            return False
    shape = without_gpus(role.shape)
    later = other.key in result.later
    room = Both(trial.room, trial.after) if trial.after is not None else trial.room
    mark = room.mark()
    for row in rows:
        if room.fits(shape)[row] < 1:
            room.undo(mark)
            return False
        room.take(row, shape)
    trial.part(other.key)
    _take_up(
        trial, job, [(role.name, row, 1) for row in rows], later or job.key in result.leaving, taken=True
    )
    trial.partner[job.key], trial.partner[other.key] = other.key, job.key
    result.wants[job.key] = want
    return True


def _memory(job: Job, want: Want) -> int:
    """MiB of each GPU: at the batch size that it is granted, else as its owner says."""
    return want.gpu_memory or job.gpu_memory


# ---- rebalance ----


def _move(trial: _Trial, move: Move) -> None:
    """A running job, or a role of it, somewhere else; nothing changes if it finds no place."""
    job = trial.snapshot.jobs.get(move.job)
    if job is None or not job.started or job.keeps or job.key in trial.result.leaving:
        return
    if job.key in trial.result.whole:
        return
    if not all(m.evictable for role in job.roles for m in role.members if m.phase is Phase.BOUND):
        return
    nodes = trial.snapshot.nodes
    after = trial.later_room()
    mark = after.mark()
    roles = [role for role in job.roles if not move.role or role.name == move.role]
    _leave_all(trial, job, roles, move.why or "it is moved")
    needs = [Need(role, role.bound) for role in roles if role.bound]
    allowed = None
    if move.to:
        allowed = np.isin(np.arange(len(nodes)), [nodes.index[n] for n in move.to if n in nodes.index])
    spots = place(after, job, needs, trial.profile, trial.snapshot, allowed=allowed)
    if spots is None:
        after.undo(mark)
        trial.result.leaving.pop(job.key, None)
        return
    _take_up(trial, job, spots, later=True)
