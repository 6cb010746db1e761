"""Index 0 runs before higher ones of its owner: replicas meet there, and a successPolicy waits for its end.

While index 0 is away, crashed or evicted, a higher one may have its place: GPUs don't idle for a pod that may never
come. Once its pod is there, waits behind our gate only and finds no place within the job's share, the highest index
that runs leaves, and its place is index 0's; between two boundaries, too, since without it none comes. So:

- one that has succeeded, that its owner does not make again, or that has another gate ends nobody;
- one that crashes again and again ends one replica each time that its owner has made it again, and how often that is
  its owner's back-off limits; meanwhile as many run as are granted;
- it comes to rest: no index is lower than 0, so who was let in is let go for nobody. While a higher one is on its way
  out, or a place is open, no other leaves.

The places of higher indexes are not put right so: who trains would be restarted for the sake of its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from muster.core.placement.place import Need, place
from muster.core.placement.statement import Statement
from muster.core.sharing.shrink import stands
from muster.types import Job, Member, Phase, Reservation, Role


def let_first_in(statement: Statement, job: Job) -> None:
    """The highest index leaves for an index 0 that has no place; nobody where the job changes already, may not
    become smaller, shares its GPUs, or is below its minimum: then its missing replicas come first anyway."""
    key = job.key
    if (
        key in statement.leaving
        or key in statement.later
        or key in statement.whole
        or key in statement.partner
    ):
        return
    if job.unbound or job.shrink_blocked_by:
        return
    held = {reservation.uid for reservation in statement.reservations.get(key, ())}
    if "" in held:
        return
    for role in job.roles:
        for first in _waiting(role):
            if first.uid not in held and _has_place_of_another(statement, job, role, first):
                return


def _waiting(role: Role) -> Sequence[Member]:
    """Pods of index 0 that wait behind our gate only, of each of the role's owners that has one."""
    if not (role.ready and role.bound) or role.members[0].index != 0:  # nearly every role
        return ()
    firsts = list(takewhile(lambda member: member.index == 0, role.members))  # they are sorted by index
    there = {member.revision[0] for member in firsts if not member.ready and member.phase is not Phase.ENDING}
    return [member for member in firsts if member.ready and member.revision[0] not in there]


def _has_place_of_another(statement: Statement, job: Job, role: Role, first: Member) -> bool:
    """Whether a higher index of its owner leaves for it: the highest whose node would take it."""
    others = [m for m in role.members if m.index > 0 and m.revision[0] == first.revision[0]]
    if any(member.phase is Phase.ENDING for member in others):
        return False
    nodes, room, guard = statement.snapshot.nodes, statement.later_room(), statement.guard
    for member in sorted((m for m in others if stands(m) and m.evictable), key=lambda m: -m.index):
        row = nodes.index.get(member.node)
        if row is None:
            continue
        mark, only = statement.mark(), np.arange(len(nodes)) == row
        statement.leave(job, role, member, "index 0 runs in its place")
        if place(room, job, [Need(role, 1)], statement.profile, statement.snapshot, allowed=only) is not None:
            if guard is not None:
                guard.ceiling.take(row, role.shape)
            statement.moving.add(job.key)
            statement.later[job.key] = (Reservation(role.name, member.node),)
            return True
        statement.undo(mark)
        del statement.leaving[job.key]
    return False
