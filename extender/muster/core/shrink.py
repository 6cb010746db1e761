"""Who leaves on the trial: whole jobs, jobs that are placed anew, single replicas.

Held places go first: nothing is ended for them. Then of an indexed role the highest indexes, else the replicas
that are farthest from the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from muster.core.granted import targets
from muster.core.holds import own_rows, placed
from muster.core.table import elastic_role
from muster.core.trial import Trial
from muster.types import PRODUCT, Job, Member, Phase, Role, Want


def leave_whole(trial: Trial, job: Job, why: str) -> None:
    """Every replica goes back to the gate."""
    trial.result.whole[job.key] = why
    leave_to_move(trial, job, why)


def leave_to_move(trial: Trial, job: Job, why: str) -> None:
    """Every replica leaves where it is; places that nobody has taken up yet are free at once."""
    _drop_holds(trial, job)
    leave_all(trial, job, job.roles, why)
    trial.gone.add(job.key)


def leave_all(trial: Trial, job: Job, roles: Sequence[Role], why: str) -> None:
    for role in roles:
        for member in role.members:
            if stands(member):
                trial.leave(job, role, member, why)


def _drop_holds(trial: Trial, job: Job) -> None:
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


def must_move(trial: Trial, job: Job, want: Want, target: int) -> bool:
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


def _label(trial: Trial, name: str, label: str) -> str:
    nodes = trial.snapshot.nodes
    return nodes.records[nodes.index[name]].labels.get(label, "")


def shrink(trial: Trial, job: Job, target: int, want: Want, why: str) -> None:
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


def stands(member: Member) -> bool:
    """Whether it is on a node, or pinned to one on its way there: only an eviction frees its place."""
    return member.phase is Phase.BOUND or (member.phase is Phase.UNGATED and member.pinned)


def leavers(role: Role, count: int) -> list[Member]:
    """Who leaves: the highest indexes, else replicas on the nodes where fewest of the role are (then by name).
    Replicas that are on their way to their node leave, too: a growth that is overtaken is undone."""
    bound = [m for m in role.members if stands(m)]
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
