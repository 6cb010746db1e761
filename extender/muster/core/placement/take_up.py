"""Places on a statement: found, and taken up. Every start and every growth of a cycle goes this way.

Places that are free now come before those that replicas are still to leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from muster.core.placement.capacity import AnyCapacity, Capacity, CapacityPair
from muster.core.placement.place import Assignment, Need, place
from muster.core.placement.reservations import assign, open_holds, own_rows
from muster.core.placement.statement import Statement
from muster.types import PRODUCT, BoolArray, Grant, Job, Member, Phase, Reservation, Role

Which = tuple[int, str]
"""Index, and of which of its owners."""
Part = tuple[Role, Member, str]
Found = tuple[list[Assignment], bool]
"""Where, and whether some of these places come free only later."""


def find(
    statement: Statement,
    job: Job,
    needs: Sequence[Need],
    grant: Grant | None = None,
    own: Mapping[int, int] | None = None,
) -> Found | None:
    """Places for all needs, and whether some of them come free only later; taken from the statement's capacity. None
    where there are none. own: replicas that the job has, by node row."""
    found = _found(statement, job, needs, grant, own)
    guard = statement.guard
    if found is not None and guard is not None and job.key in guard.ahead:
        shapes = {need.role.name: need.role.shape for need in needs}
        for role, row, count in found[0]:
            guard.ceiling.take(row, shapes[role], count)
    return found


def find_largest(
    statement: Statement,
    job: Job,
    steps: Sequence[Sequence[Need]],
    grant: Grant | None = None,
    own: Mapping[int, int] | None = None,
) -> tuple[int, Found] | None:
    """Places for the largest of the rising steps that fits, as `find`, and which one that is; None where not even the
    first does.

    The last is tried first, then the steps are halved: what takes more takes less, nearly always.
    """
    if not steps:
        return None
    found = find(statement, job, steps[-1], grant, own)
    if found is not None:
        return len(steps) - 1, found
    low, high = 0, len(steps) - 1  # the first `low` steps fit, those from `high` on don't
    while low < high:
        middle = (low + high + 1) // 2
        mark = statement.mark()
        if find(statement, job, steps[middle - 1], grant, own) is None:
            high = middle - 1
        else:
            low = middle
            statement.undo(mark)
    found = find(statement, job, steps[low - 1], grant, own) if low else None
    return None if found is None else (low - 1, found)


def sizes_between(role: Role, have: int, most: int) -> list[int]:
    """Sizes that the role may have beyond `have`, up to `most`, rising."""
    return [size for size in role.sizes or range(have + 1, most + 1) if have < size <= most]


def grow(
    statement: Statement, job: Job, role: Role, have: int, sizes: Sequence[int], grant: Grant | None = None
) -> int:
    """A role that has `have` places gets those of the largest rising size that fits; how many it has then."""
    if not role.devices and any(one.devices for one in job.roles):
        return have  # a pod in place starts with its GPUs or not at all
    space = statement.guarded(statement.after or statement.capacity, job)
    most = have + space.total_fits(role.shape)
    steps = [size for size in sizes if size <= most]
    if not steps:
        return have
    places = (*statement.reservations.get(job.key, ()), *statement.later.get(job.key, ()))
    own = own_rows(statement.snapshot.nodes, job, places)
    found = find_largest(statement, job, [[Need(role, size - have)] for size in steps], grant, own)
    if found is None:
        return have
    take_up(statement, job, *found[1])
    return steps[found[0]]


def _found(
    statement: Statement, job: Job, needs: Sequence[Need], grant: Grant | None, own: Mapping[int, int] | None
) -> Found | None:
    if statement.after is None:
        assignments = _places_in(statement, statement.capacity, job, needs, grant, own)
        return None if assignments is None else (assignments, False)
    moves = job.key in statement.leaving
    if not moves and not statement.settled:
        assignments = _places_in(
            statement, CapacityPair(statement.capacity, statement.after), job, needs, grant, own
        )
        if assignments is not None:
            return assignments, False
    assignments = _places_in(statement, statement.after, job, needs, grant, own)
    if assignments is None:
        return None
    return assignments, moves or not _free_now(statement.capacity, job, assignments)


def _free_now(capacity: Capacity, job: Job, assignments: Sequence[Assignment]) -> bool:
    """Takes the spots in the room as it is, or nothing where one of them comes free only later."""
    shapes = {role.name: role.shape for role in job.roles}
    mark = capacity.mark()
    for role, row, count in assignments:
        if int(capacity.fits(shapes[role])[row]) < count:
            capacity.undo(mark)
            return False
        capacity.take(row, shapes[role], count)
    return True


def _places_in(
    statement: Statement,
    space: AnyCapacity,
    job: Job,
    needs: Sequence[Need],
    grant: Grant | None,
    own: Mapping[int, int] | None,
) -> list[Assignment] | None:
    capacity = statement.guarded(space, job)
    if grant is not None and grant.nodes and len(needs) == 1:
        named = _named(statement, capacity, job, needs[0], grant.nodes, own or {})
        if named is not None:
            statement.astray.discard(job.key)
            return named
        statement.astray.add(job.key)
    allowed = None if grant is None else _allowed(statement, capacity, needs, grant, own or {})
    return place(capacity, job, needs, statement.profile, statement.snapshot, allowed=allowed, own=own)


def _named(
    statement: Statement,
    capacity: AnyCapacity,
    job: Job,
    need: Need,
    names: Sequence[str],
    own: Mapping[int, int],
) -> list[Assignment] | None:
    """Places on the nodes that are named, beyond those that it has there; None where one of them does not take it."""
    nodes, mark = statement.snapshot.nodes, capacity.mark()
    wanted = Counter(nodes.index[name] for name in names if name in nodes.index)
    here, left = Counter(own), need.count
    found: list[Assignment] = []
    for row, count in (wanted - here).items():
        count = min(count, left)
        only = np.arange(len(nodes)) == row
        part = count and place(
            capacity,
            job,
            [Need(need.role, count)],
            statement.profile,
            statement.snapshot,
            allowed=only,
            own=here,
        )
        if part is None:
            break
        if part:
            found += part
            here[row] += count
            left -= count
    if left:
        capacity.undo(mark)
        return None
    return found


def _allowed(
    statement: Statement, capacity: AnyCapacity, needs: Sequence[Need], grant: Grant, own: Mapping[int, int]
) -> BoolArray | None:
    """Nodes of the product, and at most so many of them: those that the job is on, then those with most room
    (of one node: the one with the least to spare that takes it whole)."""
    if not grant.product and not grant.max_nodes:
        return None
    nodes = statement.snapshot.nodes
    mask = np.ones(len(nodes), dtype=np.bool_)
    if grant.product:
        ids, names = nodes.domains(PRODUCT)
        mask = ids == names.index(grant.product) if grant.product in names else np.zeros(len(nodes), np.bool_)
    if grant.max_nodes:
        need = needs[0]
        fits = np.where(mask, capacity.fits(need.role.shape), 0)
        left = grant.max_nodes - len(own)
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


def take_up(
    statement: Statement, job: Job, assignments: Sequence[Assignment], later: bool, *, taken: bool = False
) -> None:
    """Holds for the spots. Replicas of a job placed again that are where they are wanted stay, of an indexed role
    those that run afterwards (`_lowest`). taken: what the spots need stands in both rooms already."""
    nodes = statement.snapshot.nodes
    leaving = statement.leaving.get(job.key)
    if leaving:
        wanted = Counter({(role, nodes.names[row]): count for role, row, count in _merged(assignments)})
        stay, lowest = [], {role.name: _lowest(job, role, wanted, leaving) for role in job.roles}
        for part in leaving if job.resize != "restart" else ():
            role, member, _ = part
            if wanted[role.name, member.node] and (member.index < 0 or _which(member) in lowest[role.name]):
                wanted[role.name, member.node] -= 1
                stay.append(part)
        statement.leaving[job.key] = [part for part in leaving if part not in stay]
        if not statement.leaving[job.key]:
            del statement.leaving[job.key]
        reservations = [Reservation(role, node) for (role, node) in wanted.elements()]
        statement.gone.discard(job.key)
        statement.part(job.key)
        statement.found.add(job.key)
        if taken:
            statement.later[job.key] = (*statement.later.get(job.key, ()), *reservations)
        else:
            _await(statement, job, reservations)
        return
    reservations = open_holds(nodes, assignments)
    if not reservations:
        return
    if later and job.key in statement.gone:  # its replicas are on their way out
        _await(statement, job, reservations)
    elif later:
        statement.later[job.key] = (*statement.later.get(job.key, ()), *reservations)
    else:
        statement.reservations[job.key] = tuple(
            assign(job, [*statement.reservations.get(job.key, ()), *reservations])
        )


def _lowest(job: Job, role: Role, wanted: Counter[tuple[str, str]], leaving: Sequence[Part]) -> set[Which]:
    """Those that a role runs which has so many places: a prefix, or who waits for the end of index 0 (a rendezvous, a
    successPolicy) waits for what does not run. Who has another gate can't. While index 0 leaves nobody stays where
    all of the job is one role of one owner, and not in place; else its places would not be kept (`restart_on`)."""
    count = sum(places for (name, _), places in wanted.items() if name == role.name)
    found = {_which(m) for m in role.members if m.index >= 0 and m.phase is not Phase.HELD}
    lost = any(m.index == 0 and not wanted[r.name, m.node] for r, m, _ in leaving if r is role)
    on = {(r.name, m.revision[0]) for r in job.roles for m in r.on}
    return set() if lost and len(on) == 1 else set(sorted(found)[:count])


def _which(member: Member) -> Which:
    return member.index, member.revision[0]


def _await(statement: Statement, job: Job, reservations: Sequence[Reservation]) -> None:
    """Places for the successors of replicas that leave: kept for them from now on where they are free, else later.

    Of a job that is started again whenever its number changes all later, until the last one is free: who starts on a
    part of them would be ended at once to start on all.
    """
    nodes = statement.snapshot.nodes
    shapes = {role.name: role.shape for role in job.roles}
    mark, free, later = statement.capacity.mark(), [], []
    for hold in reservations:
        row = nodes.index[hold.node]
        if int(statement.capacity.fits(shapes[hold.role])[row]) < 1:
            later.append(hold)
            continue
        statement.capacity.take(row, shapes[hold.role])
        free.append(hold)
    grant = statement.grants.get(job.key)
    if later and (job.resize == "restart" or (grant is not None and grant.restart)):
        statement.capacity.undo(mark)
        free, later = [], [*reservations]
    if later:
        statement.later[job.key] = (*statement.later.get(job.key, ()), *later)
    if free:
        statement.reservations[job.key] = (*statement.reservations.get(job.key, ()), *free)


def _merged(assignments: Sequence[Assignment]) -> list[Assignment]:
    counts: Counter[tuple[str, int]] = Counter()
    for role, row, count in assignments:
        counts[role, row] += count
    return [(role, row, count) for (role, row), count in counts.items()]
