"""In place in the plan: a job of one pod whose GPUs change is planned as two roles, its pod and slots of a GPU each.

The slots are within the pod's node. What was granted stands in the next snapshot as bound; so they are always whole,
their shrink and growth are the planner's as any replica's, and a plan's slots become the number of devices that the
Coordinator is to see to (`core.devices.hand_over`). What the planner is told of free GPUs leaves holders out: on each
node count what is granted or, where that is more, what is still used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from muster.core.bounds import calendar
from muster.core.devices.coordinator import Change
from muster.core.devices.hand_over import Want
from muster.types import (
    GPU,
    HOSTNAME,
    Job,
    JobKey,
    Member,
    Phase,
    Plan,
    Reservation,
    Role,
    Shape,
    Snapshot,
    State,
    Status,
)

SLOT = Shape(requests=((GPU, 1),))
SUFFIX = ".gpus"


@dataclass(frozen=True, slots=True)
class Granted:
    """Devices that a pod is to have on its node."""

    pod: str
    node: str
    count: int


Grants = Mapping[JobKey, Granted]
Sizes = Mapping[JobKey, tuple[int, ...]]
"""By job in place: numbers of GPUs that it can train on, rising."""


def standing(
    jobs: Mapping[JobKey, Job], sizes: Sizes, granted: Grants, used: Mapping[tuple[str, str], int]
) -> dict[JobKey, Granted]:
    """What of the grants still holds: their pod is there, and on its way to that node or on it. A pod that runs and
    has none (Muster was started again) has the largest of its sizes that it uses. used: devices by pod and node."""
    found = {}
    for key, of in sizes.items():
        job = jobs.get(key)
        if job is not None and job.quarantined and key in granted:
            found[key] = granted[key]  # an error of ours: what runs of it goes on
        if job is None or job.invalid or job.preempted:
            continue
        places = {h.uid: h.node for h in job.reservations}
        for member in (m for role in job.roles for m in role.members if m.phase is not Phase.ENDING):
            node = member.node or places.get(member.uid, "")
            before = granted.get(key)
            if not node:
                continue
            if before is not None and (before.pod, before.node) == (member.uid, node):
                found[key] = before
            elif count := max((n for n in of if n <= used.get((member.uid, node), 0)), default=0):
                found[key] = Granted(member.uid, node, count)
    return found


def with_slots(
    snapshot: Snapshot,
    sizes: Sizes,
    granted: Grants,
    used: Mapping[tuple[str, str], int],
    held: Mapping[str, int],
) -> Snapshot:
    """The snapshot as the planner is to see it. held: GPUs of holders that are charged, by node."""
    if not sizes and not held:
        return snapshot
    jobs = dict(snapshot.jobs)
    for key, of in sizes.items():
        if key in jobs and not jobs[key].quarantined:
            jobs[key] = _slotted(jobs[key], of, granted.get(key), snapshot.now)
    nodes, free = snapshot.nodes, snapshot.free.copy()
    taken: dict[str, int] = {}
    for (_, node), count in used.items():
        taken[node] = taken.get(node, 0) + count
    due: dict[str, int] = {}
    for grant in granted.values():
        due[grant.node] = due.get(grant.node, 0) + grant.count
    if GPU in nodes.resources:
        column = nodes.resources.index(GPU)
        for node in {*held, *taken, *due} & nodes.index.keys():
            row = nodes.index[node]
            free[row, column] += held.get(node, 0) - max(taken.get(node, 0), due.get(node, 0))
    return replace(snapshot, jobs=jobs, free=free)


def to_vacate(snapshot: Snapshot) -> dict[str, int]:
    """GPUs that holders are to give up, by node: beside them, pods that are not in place need more than is left. Of
    the snapshot as the Ledger has it, where holders are charged and slots are not."""
    nodes = snapshot.nodes
    if GPU not in nodes.resources:
        return {}
    left = snapshot.free[:, nodes.resources.index(GPU)]
    return {name: -int(left[row]) for name, row in nodes.index.items() if left[row] < 0}


def _slotted(job: Job, sizes: tuple[int, ...], granted: Granted | None, now: float) -> Job:
    if job.invalid or not job.roles:
        return job
    if len(job.roles) != 1 or job.roles[0].max > 1:
        several = sum(role.max for role in job.roles)
        why = f"muster.dev/gpus: expected a job of one pod, found up to {several}; request GPUs in its pods instead"
        return replace(job, invalid=why)
    (pod,) = job.roles
    members: tuple[Member, ...] = ()
    if granted is not None:
        members = tuple(
            Member(f"{granted.pod}/{i}", "", Phase.BOUND, SLOT, index=i, node=granted.node)
            for i in range(granted.count)
        )
    least = sizes[0] if pod.max else 0
    slots = Role(
        pod.name + SUFFIX,
        least,
        sizes[-1] if pod.max else 0,
        SLOT,
        sizes=sizes,
        members=members,
        ordered=True,
        devices=True,
    )
    # Nobody but Muster makes slots, so no pause of an owner says that there will be no more of them.
    return replace(
        job,
        roles=(pod, slots),
        topology_required=HOSTNAME,
        expects=True,
        newest_pod=now,
        request=job.request if job.request in sizes else 0,
    )


# ---- a plan with slots ----


def taken_out(
    snapshot: Snapshot, sizes: Sizes, plan: Plan, changes: Mapping[str, tuple[Change, float]] | None = None
) -> tuple[Plan, dict[JobKey, Granted]]:
    """The plan without slots, and what it grants. snapshot: the one with slots that it was made of; changes: the last
    one of each pod, and when that was, Unix s.

    A job whose GPUs others are still to give has its pod's place now, where there is room for that: its pod is to be
    there before anybody gives (`core.devices.hand_over`).
    """
    granted: dict[JobKey, Granted] = {}
    reservations = dict(plan.reservations)
    later = dict(plan.later)
    statuses = dict(plan.statuses)
    for key in sizes:
        job = snapshot.jobs.get(key)
        if job is None or job.invalid or len(job.roles) != 2:
            continue
        pod, slots = job.roles
        now, then = reservations.get(key, ()), later.pop(key, ())
        mine = [h for h in now if h.role == pod.name]
        if then and not mine and not pod.on:
            mine = _early(snapshot, plan, pod, [h for h in then if h.role == pod.name])
            then = then if mine else ()
        if key in reservations or mine:
            reservations[key] = tuple(mine)
        if key in plan.preempted or key in plan.back:
            continue
        places = [h.node for h in (*now, *then) if h.role == slots.name]
        places += [m.node for m in slots.members]
        count = len(places) - sum(1 for s in plan.shrinks if s.job == key and s.role == slots.name)
        uid = next((h.uid for h in mine if h.uid), "") or next((m.uid for m in pod.on), "")
        if uid and count > 0:
            granted[key] = Granted(uid, places[-1], count)
            change = (changes or {}).get(uid)
            statuses[key] = _told(
                statuses[key],
                granted[key],
                _gpus_of(snapshot, granted[key].node),
                bool(pod.bound),
                starts=bool(then),
                change=change,
            )
    return (
        replace(
            plan,
            reservations=reservations,
            later=later,
            statuses=statuses,
            shrinks=tuple(s for s in plan.shrinks if s.job not in granted or not s.role.endswith(SUFFIX)),
        ),
        granted,
    )


def _early(snapshot: Snapshot, plan: Plan, role: Role, then: Iterable[Reservation]) -> list[Reservation]:
    """The pod's place, if what it asks for is free there now, beside all that this plan places."""
    found = []
    for hold in then:
        row = snapshot.nodes.index[hold.node]
        free = dict(zip(snapshot.nodes.resources, (int(n) for n in snapshot.free[row]), strict=True))
        for key, places in plan.reservations.items():
            job = snapshot.jobs[key]
            shapes = {part.name: part.shape for part in job.roles}
            for place in places:
                if place.node == hold.node and place not in job.reservations:
                    for name, amount in shapes[place.role].requests:
                        free[name] = free.get(name, 0) - amount
                    free["pods"] = free.get("pods", 0) - 1
        member = next((m for m in role.members if m.ready), None)
        room = all(free.get(name, 0) >= amount for name, amount in role.shape.requests)
        if member is not None and room and free.get("pods", 1) > 0:
            found.append(replace(hold, uid=member.uid, pod=member.pod))
    return found


def _gpus_of(snapshot: Snapshot, node: str) -> int:
    nodes = snapshot.nodes
    row, column = nodes.index.get(node), nodes.resource_index.get(GPU)
    return int(nodes.total[row, column]) if row is not None and column is not None else 0


def _told(
    status: Status,
    grant: Granted,
    gpus: int,
    runs: bool,
    *,
    starts: bool,
    change: tuple[Change, float] | None = None,
) -> Status:
    """The status in GPUs of its node, which has `gpus`: those that it uses, as far as that is known, else those that
    it is to have."""
    of = f"{grant.count} of {gpus} GPUs of {grant.node}"
    if status.state in (State.RUNNING, State.RESIZING) and runs:
        if change is not None:
            last, at = change
            when = calendar(at)
            since = f" since {when:%H:%MZ}" if when is not None else ""
            if last.handed:
                took = f"hand-over took {last.took:.1f} s, GPUs idle {last.idle:.1f} s"
            else:
                took = f"taken up in {last.took:.1f} s"
            of = f"{last.count} of {gpus} GPUs of {grant.node}{since}; {took}"
        return Status(State.RUNNING, status.reason, f"in place: {of}")
    if starts:
        return Status(State.STARTING, status.reason, f"its pod starts; {of} are handed over once it is ready")
    return status


def wants(jobs: Mapping[JobKey, Job], sizes: Sizes, granted: Grants) -> list[Want]:
    """What the Coordinator is to see to, the earliest submission first."""
    order = sorted(granted, key=lambda key: (jobs[key].submitted, key))
    return [Want(key, granted[key].pod, granted[key].node, granted[key].count, sizes[key]) for key in order]
