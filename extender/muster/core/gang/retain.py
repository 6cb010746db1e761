"""Step 3 of a cycle: what runs keeps its places, what has started is completed.

Missing members of started jobs have their places before every start, whatever a plugin says. A pin is undone on
evidence only, never by time alone (design §2); a gang that stays below its minimum goes back to the gate whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.placement.cycle_state import CycleState
from muster.core.placement.feasibility import static_mask
from muster.core.placement.place import Need, demand, place
from muster.core.placement.preemption import in_use
from muster.core.placement.reservations import assign, members_expected, open_holds, own_rows, placed
from muster.core.placement.statement import Statement
from muster.core.placement.take_up import grow
from muster.core.reasons import refusals, waiting
from muster.core.reasons.words import duration
from muster.core.workload.whole import awaited
from muster.types import EndReason, Job, Member, Phase, Reservation, Role, Seconds, State, Unpin


def keep(run: CycleState, job: Job) -> bool:
    """What the job has; its missing members get places first, all of them or, in the end, `as_many_as_fit`. False
    when it goes back to waiting whole."""
    if job.released:
        run.statuses[job.key] = waiting.RELEASED._replace(state=State.STARTING)
        run.reservations[job.key] = job.reservations
        return True
    if job.preempted:  # until all of it is back: a gang goes whole, and others are not ended in its stead
        run.preempted[job.key] = job.preempted
        run.ends[job.key] = job.ends or EndReason.PREEMPTION
        return True
    if job.not_before > run.snapshot.now:
        run.back[job.key] = "it was not whole in time; the rest of it goes back to the gate"
        run.ends[job.key] = job.ends or _why_back(job)
        return True
    if not job.reservations and not job.unbound:  # whole: what most running jobs are in most cycles
        run.reservations[job.key] = ()
        return True
    reservations = assign(job, _still_good(run, job))
    missing = _missing(job, reservations)
    if missing and job.key not in run.stuck:  # the place that did not work is left out from the next cycle on
        assignments = place(
            run.capacity,
            job,
            missing,
            run.profile,
            run.snapshot,
            own=own_rows(run.snapshot.nodes, job, reservations),
        )
        if assignments is not None:
            reservations = assign(job, reservations + open_holds(run.snapshot.nodes, assignments))
        elif job.started and _comes_back(run, job, missing, reservations):
            run.reservations[job.key] = tuple(reservations)
            as_many_as_fit(run, job)
            reservations = list(run.reservations[job.key])
        elif job.started:
            run.short.append(job)
    if not job.started and (not job.max or any(role.min > placed(role, reservations) for role in job.roles)):
        # all of it has ended, there is no place for all of it, or a pod that nobody makes again is gone
        _release(run, job, reservations)
        return False
    run.reservations[job.key] = tuple(reservations)
    if job.started and (missing or job.unbound):
        _watch_the_clock(run, job)
    return True


def _missing(job: Job, reservations: Sequence[Reservation]) -> list[Need]:
    """What the job needs and has no place for."""
    return [
        Need(role, min(role.min - placed(role, reservations), _startable(job, role, reservations)))
        for role in job.roles
        if role.min > placed(role, reservations) and _startable(job, role, reservations)
    ]


def as_many_as_fit(run: CycleState, job: Job) -> None:
    """Places that are free now for missing members that don't all fit: nobody is to start on them meanwhile. The most
    demanding role first, and the next ones once that has all: it might need what they take."""
    missing = _missing(job, run.reservations[job.key]) if job.key not in run.back else []
    for need in sorted(missing, key=demand):
        have = placed(need.role, run.reservations[job.key])
        whole = have + need.count
        if grow(Statement(run), job, need.role, have, range(have + 1, whole + 1)) < whole:
            break
    if left := _missing(job, run.reservations[job.key]):
        short = refusals.refusal(run.capacity, job, left, run.profile, run.snapshot)
        run.statuses[job.key] = short._replace(state=State.STARTING)


def _comes_back(
    run: CycleState, job: Job, missing: Sequence[Need], reservations: Sequence[Reservation]
) -> bool:
    """Whether all of that fits once replicas of the job itself have ended: of a gang that its owner takes back they
    end one after another. Of other jobs, those that can be whole now come first."""
    nodes, capacity = run.snapshot.nodes, run.capacity
    mark = capacity.mark()
    going = in_use(job, nodes, (Phase.ENDING,))
    for row, shape in going:
        capacity.give(row, shape)
    own = own_rows(nodes, job, reservations)
    found = bool(going) and place(capacity, job, missing, run.profile, run.snapshot, own=own) is not None
    capacity.undo(mark)
    return found


def _startable(job: Job, role: Role, reservations: Sequence[Reservation]) -> int:
    """Replicas without a place that could take one: those that exist, or any that an owner will create."""
    if job.expects:
        return role.min
    taken = {h.uid for h in reservations}
    return sum(1 for m in role.members if m.ready and m.uid not in taken)


def _still_good(run: CycleState, job: Job) -> list[Reservation]:
    """Holds whose node is there, admits the replica and is not over-committed; pins are undone on evidence.

    A hold of a replica that is gone stays as an open one: its successor takes it (design §3).
    """
    nodes = run.snapshot.nodes
    members = {m.uid: (role, m) for role in job.roles for m in role.members}
    roles = {role.name: role for role in job.roles}
    kept: list[Reservation] = []
    for reservation in job.reservations:
        role = roles.get(reservation.role)
        if role is None:
            continue
        row = nodes.index.get(reservation.node)
        member = members.get(reservation.uid, (role, None))[1] if reservation.uid else None
        if member is not None and member.phase is Phase.UNGATED and (member.pinned or not member.evictable):
            patience = run.profile.evidence if member.pinned else run.profile.timeout
            why = _evidence(run, member, reservation.node, patience)
            if why:
                ends = member.evictable
                run.unpins.append(
                    Unpin(job.key, role.name, member.uid, member.pod, reservation.node, why, ends)
                )
                if not ends:  # nobody makes it again: it stays, and others may use the place
                    run.stuck.setdefault(job.key, waiting.stuck(member.pod, why))
                    if row is not None:
                        run.capacity.give(row, role.shape)
                    continue
            elif member.refused_at:
                run.requeue_at.append(member.refused_at + patience)
            if member.pinned:
                kept.append(reservation)  # it uses the node until it is gone
                continue
        if row is None:
            continue
        unfit = (
            not static_mask(nodes, role.shape)[row]
            or reservation.node in run.snapshot.node_backoffs.get((job.key, role.name), {})
            or run.capacity.overcommitted(row, role.shape)
        )
        have = placed(role, kept)
        spare = not reservation.uid and (have >= role.max or not _startable(job, role, kept))
        if (
            not reservation.uid
            and have >= role.min
            and role.min
            and not members_expected(job, run.snapshot.now, run.profile)
        ):
            spare = True  # its owner makes no more of them
        if unfit or spare:
            run.capacity.give(row, role.shape)
            continue
        kept.append(reservation)
    return kept


def _evidence(run: CycleState, member: Member, node: str, patience: float) -> str:
    """Why a place can't work, or "" (design §2: only on evidence, never by time alone). patience: age in seconds of a
    refusal that is evidence."""
    nodes = run.snapshot.nodes
    row = nodes.index.get(node)
    if row is None:
        return f"node {node} is gone"
    if not nodes.open[row] and not static_mask(nodes, member.shape)[row]:  # some pods tolerate a cordon
        return f"node {node} is unschedulable"
    if member.refused_at and run.snapshot.now - member.refused_at >= patience:
        return f"kube-scheduler found node {node} unfit: {member.refusal}"
    return ""


def _release(run: CycleState, job: Job, reservations: Sequence[Reservation]) -> None:
    roles = {role.name: role for role in job.roles}
    for reservation in reservations:
        row = run.snapshot.nodes.index.get(reservation.node)
        if row is not None:
            run.capacity.give(row, roles[reservation.role].shape)
    run.reservations[job.key] = ()


def _watch_the_clock(run: CycleState, job: Job) -> None:
    """A started gang below its minimum goes back to the gate whole after the timeout (design §3), but not for what
    its owner is still to create (core.workload.whole)."""
    since = job.below_since
    if not since or not awaited(job):
        return
    if run.snapshot.now - since < run.profile.timeout:
        run.requeue_at.append(since + run.profile.timeout)
        return
    out = [m for role in job.roles for m in role.members if m.phase in (Phase.BOUND, Phase.UNGATED)]
    if not any(m.evictable for m in out):
        return  # bare pods are never ended by us: there is no way back to the gate
    bound = sum(1 for m in out if m.phase is Phase.BOUND)
    least = sum(role.min for role in job.roles)
    late = duration(Seconds(run.snapshot.now - since))
    run.ends[job.key] = _why_back(job)
    run.back[job.key] = (
        f"it lost replicas and has had {bound} of {least} for {late}; the whole job goes back to the gate"
        if job.once_whole
        else f"{bound} of {least} replicas were bound {late} after the first; the whole job goes back to the gate"
    )


def _why_back(job: Job) -> EndReason:
    return EndReason.LOST_MEMBERS if job.once_whole else EndReason.START_FAILED
