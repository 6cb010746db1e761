"""Step 4 of a cycle, first half: what runs keeps its places, what has started is completed.

Missing members of started jobs have their places before every start, whatever a plugin says. A pin is undone on
evidence only, never by time alone (design §2); a gang that stays below its minimum goes back to the gate whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.core import reasons
from muster.core.constraints import static_mask
from muster.core.granted import comes
from muster.core.holds import assign, open_holds, own_rows, placed
from muster.core.place import Need, place
from muster.core.planning import Planning
from muster.types import Hold, Job, Member, Phase, Role, Seconds, State, Undo


def keep(run: Planning, job: Job) -> bool:
    """What the job has; its missing members get places first. False when it goes back to waiting whole."""
    if job.released:
        run.statuses[job.key] = reasons.RELEASED._replace(state=State.STARTING)
        run.holds[job.key] = job.holds
        return True
    if job.preempted:  # until all of it is back: a gang goes whole, and others are not ended in its stead
        run.preempted[job.key] = job.preempted
        return True
    if job.not_before > run.snapshot.now:
        run.back[job.key] = "its last start did not complete; the rest of it goes back to the gate"
        return True
    if not job.holds and not job.unbound:  # whole: what most running jobs are in most cycles
        run.holds[job.key] = ()
        return True
    holds = assign(job, _still_good(run, job))
    missing = [
        Need(role, min(role.min - placed(role, holds), _startable(job, role, holds)))
        for role in job.roles
        if role.min > placed(role, holds) and _startable(job, role, holds)
    ]
    if missing:
        spots = place(
            run.room, job, missing, run.profile, run.snapshot, own=own_rows(run.snapshot.nodes, job, holds)
        )
        if spots is not None:
            holds = assign(job, holds + open_holds(run.snapshot.nodes, spots))
        elif job.started:
            short = reasons.refusal(run.room, job, missing, run.profile, run.snapshot)
            run.statuses[job.key] = short._replace(state=State.STARTING)
    if not job.started and any(role.min > placed(role, holds) for role in job.roles):
        _release(run, job, holds)  # no place for all of it, or a pod that nobody makes again is gone
        return False
    run.holds[job.key] = tuple(holds)
    if job.started and (missing or job.unbound):
        _watch_the_clock(run, job)
    return True


def _startable(job: Job, role: Role, holds: Sequence[Hold]) -> int:
    """Replicas without a place that could take one: those that exist, or any that an owner will create."""
    if job.expects:
        return role.min
    taken = {h.uid for h in holds}
    return sum(1 for m in role.members if m.ready and m.uid not in taken)


def _still_good(run: Planning, job: Job) -> list[Hold]:
    """Holds whose node is there, admits the replica and is not over-committed; pins are undone on evidence.

    A hold of a replica that is gone stays as an open one: its successor takes it (design §3).
    """
    nodes = run.snapshot.nodes
    members = {m.uid: (role, m) for role in job.roles for m in role.members}
    roles = {role.name: role for role in job.roles}
    kept: list[Hold] = []
    for hold in job.holds:
        role = roles.get(hold.role)
        if role is None:
            continue
        row = nodes.index.get(hold.node)
        member = members.get(hold.uid, (role, None))[1] if hold.uid else None
        if member is not None and member.phase is Phase.UNGATED and member.pinned:
            why = _evidence(run, member, row)
            if why and member.evictable:
                run.undo.append(Undo(job.key, role.name, member.uid, member.pod, hold.node, why))
            elif why:
                run.stuck.setdefault(job.key, reasons.stuck(member, why))
            elif member.refused_at:
                run.wakes.append(member.refused_at + run.profile.evidence)
            kept.append(hold)  # it uses the node until it is gone
            continue
        if row is None:
            continue
        unfit = (
            not static_mask(nodes, role.shape)[row]
            or hold.node in run.snapshot.barred.get((job.key, role.name), {})
            or run.room.overcommitted(row, role.shape)
        )
        have = placed(role, kept)
        spare = not hold.uid and (have >= role.max or not _startable(job, role, kept))
        if not hold.uid and have >= role.min and role.min and not comes(job, run.snapshot.now, run.profile):
            spare = True  # its owner makes no more of them
        if unfit or spare:
            run.room.give(row, role.shape)
            continue
        kept.append(hold)
    return kept


def _evidence(run: Planning, member: Member, row: int | None) -> str:
    """Why a pin can't work, or "" (design §2: only on evidence, never by time alone)."""
    if row is None:
        return f"node {member.node} is gone"
    nodes = run.snapshot.nodes
    if not nodes.open[row] and not static_mask(nodes, member.shape)[row]:  # some pods tolerate a cordon
        return f"node {member.node} is unschedulable"
    if member.refused_at and run.snapshot.now - member.refused_at >= run.profile.evidence:
        return f"kube-scheduler found node {member.node} unfit: {member.refusal}"
    return ""


def _release(run: Planning, job: Job, holds: Sequence[Hold]) -> None:
    roles = {role.name: role for role in job.roles}
    for hold in holds:
        row = run.snapshot.nodes.index.get(hold.node)
        if row is not None:
            run.room.give(row, roles[hold.role].shape)
    run.holds[job.key] = ()


def _watch_the_clock(run: Planning, job: Job) -> None:
    """A started gang below its minimum goes back to the gate whole after the timeout (design §3)."""
    if not job.below_since:
        return
    since = max(job.below_since, job.newest_pod if job.ordered else 0.0)
    if run.snapshot.now - since < run.profile.timeout:
        run.wakes.append(since + run.profile.timeout)
        return
    out = [m for role in job.roles for m in role.members if m.phase in (Phase.BOUND, Phase.UNGATED)]
    if not any(m.evictable for m in out):
        return  # bare pods are never ended by us: there is no way back to the gate
    bound = sum(1 for m in out if m.phase is Phase.BOUND)
    least = sum(role.min for role in job.roles)
    run.back[job.key] = (
        f"{bound} of {least} replicas were bound {reasons.duration(Seconds(run.snapshot.now - since))} "
        "after the first; the whole job goes back to the gate"
    )
