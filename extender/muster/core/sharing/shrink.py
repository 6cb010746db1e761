"""Who leaves on the trial: whole jobs, jobs that are placed again, single replicas.

Held places go first: nothing is ended for them. Then of an indexed role the highest indexes, else the replicas
that are farthest from the rest. A place that a lower index waits for is kept before a higher one that runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from muster.core.placement.reservations import own_rows, placed
from muster.core.placement.statement import Statement
from muster.core.sharing.grants import targets
from muster.types import PRODUCT, Grant, Job, Member, Phase, Reservation, Role, elastic_role


def leave_whole(statement: Statement, job: Job, why: str) -> None:
    """Every replica goes back to the gate."""
    statement.whole[job.key] = why
    leave_to_move(statement, job, why)


def leave_to_move(statement: Statement, job: Job, why: str) -> None:
    """Every replica leaves where it is; places that nobody has taken up yet are free at once."""
    _drop_holds(statement, job)
    leave_all(statement, job, job.roles, why)
    statement.gone.add(job.key)


def leave_all(statement: Statement, job: Job, roles: Sequence[Role], why: str) -> None:
    """Every replica of these roles leaves, to run elsewhere or not at all."""
    statement.moving.add(job.key)
    for role in roles:
        for member in role.members:
            if stands(member):
                statement.leave(job, role, member, why)


def _drop_holds(statement: Statement, job: Job) -> None:
    """Places of replicas whose gate is still on are free again."""
    roles = {role.name: role for role in job.roles}
    gated = {m.uid for role in job.roles for m in role.members if m.phase is Phase.GATED}
    kept = []
    for reservation in statement.reservations.get(job.key, ()):
        row = statement.snapshot.nodes.index.get(reservation.node)
        if reservation.uid and reservation.uid not in gated:
            kept.append(reservation)
        elif row is not None:
            statement.free(row, roles[reservation.role].shape)
    statement.reservations[job.key] = tuple(kept)


def must_move(statement: Statement, job: Job, grant: Grant, target: int) -> bool:
    """Whether where it runs is not where it is wanted: another product, too many nodes, another GPU to share."""
    reservations = statement.reservations.get(job.key, ())
    if grant.beside is not None:
        return True
    if statement.partner.get(job.key) is not None and job.grant is not None and job.grant.beside is not None:
        return True  # it shared a GPU that its partner keeps
    role = elastic_role(job)
    have = placed(role, reservations)
    if job.resize == "restart" and target != have:
        return True
    if not grant.nodes and not grant.product and not grant.max_nodes:  # nothing is said of where
        return grant.restart and target != have
    after = _nodes_after(statement, job, targets(job, target, grant, reservations))
    if grant.nodes and after - Counter(grant.nodes):
        return True
    nodes, names = statement.snapshot.nodes, list(after)
    if grant.product and any(label(statement, n, PRODUCT) != grant.product for n in names):
        return True
    if grant.max_nodes and len(names) > grant.max_nodes:
        return True
    if grant.max_nodes and target > have:  # it grows, but not where it is
        capacity = statement.after or statement.capacity
        fits = capacity.fits(role.shape)
        here = sum(int(fits[nodes.index[n]]) for n in names)
        if here < target - have and len(names) >= grant.max_nodes:
            return True
    return grant.restart and target != have


def _nodes_after(statement: Statement, job: Job, goal: Mapping[str, int]) -> Counter[str]:
    """Replicas of the job by node once it has shrunk to so many of each role, and who leaves already is gone."""
    nodes, reservations = statement.snapshot.nodes, statement.reservations.get(job.key, ())
    names = Counter({nodes.names[row]: count for row, count in own_rows(nodes, job, reservations).items()})
    for role in (role for role in job.roles if not role.devices):
        dropped, gone = departing(role, reservations, placed(role, reservations) - goal[role.name])
        names.subtract(hold.node for hold in dropped)
        names.subtract(member.node for member in gone)
        names.subtract(member.node for member in role.on if member.phase is Phase.ENDING)
    return +names


def label(statement: Statement, name: str, key: str) -> str:
    """A label of a node, "" where it has none."""
    nodes = statement.snapshot.nodes
    return nodes.records[nodes.index[name]].labels.get(key, "")


def shrink(statement: Statement, job: Job, target: int, grant: Grant, why: str) -> None:
    """Held places go first, then of an indexed role the highest indexes, else those farthest from the rest
    (`departing`)."""
    reservations = list(statement.reservations.get(job.key, ()))
    goal = targets(job, target, grant, reservations)
    for role in job.roles:
        dropped, gone = departing(role, reservations, placed(role, reservations) - goal[role.name])
        for reservation in dropped:
            reservations.remove(reservation)
            statement.free(statement.snapshot.nodes.index[reservation.node], role.shape)
        for member in gone:
            statement.leave(job, role, member, why or f"its share is {goal[role.name]}")
    statement.reservations[job.key] = tuple(reservations)


def departing(
    role: Role, reservations: Sequence[Reservation], surplus: int
) -> tuple[list[Reservation], list[Member]]:
    """Which held places and which replicas a role gives up to have so many less: places first, but of an indexed role
    none whose pod is there, and lower than a replica that would stay: that one leaves instead. Replicas that are on
    their way to their node leave, too: a growth that is overtaken is undone."""
    if surplus <= 0:
        return [], []
    gated = {m.uid: m.index for m in role.members if m.phase is Phase.GATED}
    held = [h for h in reversed(reservations) if h.role == role.name and (not h.uid or h.uid in gated)]
    standing = [m for m in role.members if stands(m)]
    if not any(m.index >= 0 for m in standing):
        return held[:surplus], _leavers(standing, max(0, surplus - len(held)))
    highest = sorted(
        [*((gated.get(h.uid, math.inf), h) for h in held), *((m.index, m) for m in standing)],
        key=lambda pair: -pair[0],
    )
    going = [either for _, either in highest[:surplus]]
    return [h for h in going if isinstance(h, Reservation)], [m for m in going if isinstance(m, Member)]


def stands(member: Member) -> bool:
    """Whether it is on a node, or pinned to one on its way there: only an eviction frees its place."""
    return member.phase is Phase.BOUND or (member.phase is Phase.UNGATED and member.pinned)


def _leavers(standing: Sequence[Member], count: int) -> list[Member]:
    """Who leaves of a role without indexes: replicas on the nodes where fewest of it are (then by name)."""
    bound = list(standing)
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
