"""Why a job is where it is, in words for its owner: short, true, the same while it waits for the same thing.

`waits` names what the job needs (written to the Gang and to Events), `detail` what stands in its way now.
Names of other jobs never appear here: other namespaces read these sentences only as counts (issue 3, 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from muster.core.placement.place import Need
from muster.core.reasons.words import duration, plural
from muster.core.workload.whole import rolls_out, to_come
from muster.types import (
    GPU,
    HOSTNAME,
    Job,
    Reason,
    Reservation,
    Shape,
    Snapshot,
    State,
    Status,
)

BEHIND_HEAD = Status(
    State.WAITING,
    Reason.BEHIND_HEAD,
    "waits for the job at the head of the queue (order: strict)",
)
RESERVED = Status(
    State.WAITING,
    Reason.RESERVED,
    "would fit, but the free capacity is kept for the job at the head of the queue",
)
RELEASED = Status(
    State.WAITING, Reason.RELEASED, "was released from the queue; kube-scheduler places it without a plan"
)

KIBI = 1024


def amount(resource: str, value: int) -> str:
    """A request as its owner wrote it: "2 GPUs", "500m cpu", "16Gi memory"."""
    if resource == GPU:
        return plural(value, "GPU")
    if resource == "cpu":
        return f"{value // 1000} cpu" if value % 1000 == 0 else f"{value}m cpu"
    if resource in ("memory", "ephemeral-storage"):
        for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
            if value >= KIBI**power and value % KIBI**power == 0:
                return f"{value // KIBI**power}{unit} {resource}"
        return f"{value} bytes {resource}"
    return f"{value} {resource}"


def asks(shape: Shape) -> str:
    """What one replica asks for: its GPUs if it has any, else all it requests."""
    if shape.request(GPU):
        return amount(GPU, shape.request(GPU))
    requests = [amount(name, value) for name, value in shape.requests if value]
    return " and ".join(requests) or "a place on a node"


def needs_words(job: Job, needs: Sequence[Need]) -> str:
    """ "needs 16 GPUs (4 replicas of 4) in one rack"; in place, "needs 2 GPUs of one node, in place"."""
    wanted = [n for n in needs if n.count > 0]
    gpus = sum(n.count * n.role.shape.gpus for n in wanted)
    if any(need.role.devices for need in wanted):
        pods = sum(need.count for need in wanted if not need.role.devices)
        words = f"{pods} pods with {gpus // pods} of their node each" if pods > 1 else ""
        return f"needs {plural(gpus, 'GPU')} {f'({words})' if words else 'of one node'}, in place"
    if len(wanted) == 1:
        need = wanted[0]
        if gpus and need.count > 1:
            words = f"needs {plural(gpus, 'GPU')} ({need.count} replicas of {need.role.shape.gpus})"
        elif need.count > 1:
            words = f"needs {need.count} replicas of {asks(need.role.shape)}"
        else:
            words = f"needs {asks(need.role.shape)}"
    else:
        roles = ", ".join(f"{n.count} {n.role.name}" for n in wanted)
        words = f"needs {plural(gpus, 'GPU')} ({roles})" if gpus else f"needs {roles}"
    if job.topology_required:
        words += f" in one {level(job.topology_required)}"
    return words


def on_so_few(job: Job, needs: Sequence[Need], nodes: int) -> Status:
    """There is room for it, but on more nodes than its policy allows it."""
    gpus = sum(need.count * need.role.shape.gpus for need in needs)
    room = plural(gpus, "idle GPU") if gpus else "so much room"
    one, none = "on one node", f"no node has {room}"
    if nodes > 1:
        one, none = f"on {nodes} nodes", f"no {nodes} nodes have {room}"
    return Status(State.WAITING, Reason.RESOURCES, f"{needs_words(job, needs)} {one}", none)


def level(label: str) -> str:
    """ "rack" of "topology.kubernetes.io/rack", and "node" of a node's own label."""
    return "node" if label == HOSTNAME else label.rsplit("/", 1)[-1]


def incomplete(job: Job, present: Mapping[str, int], held_back: int) -> Status:
    """Fewer pods than the minimum: it is not in the queue yet and blocks nobody."""
    of_pods = [r for r in job.roles if not r.devices]
    least = sum(r.min for r in of_pods)
    here = sum(min(present[r.name], r.min) for r in of_pods)
    if held_back:
        return Status(
            State.INCOMPLETE,
            Reason.NOT_OURS_YET,
            f"{plural(held_back, 'pod')} of {least} still carry another scheduling gate",
        )
    words, numbers, _ = job.quota
    if words:
        return Status(State.INCOMPLETE, Reason.QUOTA, f"{here} of {least} pods exist; {words}", numbers)
    missing = [f"{r.min - present[r.name]} {r.name}" for r in of_pods if present[r.name] < r.min]
    return Status(
        State.INCOMPLETE,
        Reason.PODS_MISSING,
        f"{here} of {least} pods exist; missing: {', '.join(missing)}",
    )


def over(job: Job) -> Status:
    """Of a job that has no replica left and whose owner wants none: for ever, or for now."""
    if job.over:
        return Status(State.FINISHED, Reason.OK, job.over)
    return Status(
        State.SUSPENDED, Reason.SUSPENDED, "its owner is suspended; it goes on when that is resumed"
    )


def backing_off(job: Job, snapshot: Snapshot) -> Status:
    """After a start that failed."""
    return Status(
        State.WAITING,
        Reason.BACKING_OFF,
        "its last start did not complete; it tries again after a pause",
        f"in {duration(job.not_before - snapshot.now)}",
    )


def starting(job: Job, reservations: Sequence[Reservation]) -> Status:
    """Placed; gates come off and kube-scheduler binds."""
    of_pods = {role.name for role in job.roles if not role.devices}
    absent = sum(1 for h in reservations if not h.uid and h.role in of_pods)
    words = "all replicas have a place; they are being started"
    if absent:
        words = f"all replicas have a place; {plural(absent, 'pod')} not created yet"
    return Status(State.STARTING, Reason.BINDING, words)


def owner_pauses(job: Job) -> Status:
    """What it misses is not Muster's to give: it goes on as it is until then."""
    short = sum(max(0, role.min - role.bound) for role in job.roles if not role.devices)
    if any(rolls_out(role) for role in job.roles):
        words = f"its owner rolls out another template; {plural(short, 'replica')} still to be bound"
        return Status(State.STARTING, Reason.BINDING, words)
    created = to_come(job)
    if not created:
        carries = "carries" if short == 1 else "carry"
        words = f"{plural(short, 'pod')} still to be bound {carries} another scheduling gate"
        return Status(State.STARTING, Reason.NOT_OURS_YET, words)
    words = f"waits for its owner to create {plural(created, 'more pod')}"
    ending = sum(len(role.on) - role.bound for role in job.roles if not role.devices)
    if ending:
        words += f"; {plural(ending, 'pod')} that {'is' if ending == 1 else 'are'} ending may have to be gone first"
    quota, numbers, _ = job.quota
    if quota:
        return Status(State.STARTING, Reason.QUOTA, f"{words}; {quota}", numbers)
    return Status(State.STARTING, Reason.PODS_MISSING, words)


def stuck(pod: str, why: str, *, started: bool = True) -> Status:
    """A pin that can't work, on a pod that nobody would create again: its owner has to choose. Its place is given
    back meanwhile, and it waits for its turn to try again."""
    return Status(
        State.STARTING if started else State.WAITING,
        Reason.STUCK,
        f"pod {pod} is pinned and cannot start: {why}; it has no owner that would create it again, "
        "so delete and recreate it, or repair the node",
    )


def running(job: Job, reservations: Sequence[Reservation]) -> Status:
    """At or above the minimum."""
    if reservations:
        grown = job.bound + len(reservations)
        return Status(State.RESIZING, Reason.BINDING, f"grows from {job.bound} to {grown} replicas")
    return _steady(job.bound, job.max)


def shrinking(job: Job, leaving: int) -> Status:
    """Some of its replicas leave."""
    return Status(
        State.RESIZING, Reason.SHARE, f"shrinks from {job.bound} to {max(0, job.bound - leaving)} replicas"
    )


@lru_cache(4096)
def _steady(bound: int, most: int) -> Status:
    more = f"; up to {most} as capacity is free" if bound < most else ""
    return Status(State.RUNNING, Reason.OK, f"{plural(bound, 'replica')} running{more}")


NO_PLAN = "muster has no plan for this pod"
