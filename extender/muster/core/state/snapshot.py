"""Snapshots out: everything that a plan may depend on, frozen. Only jobs of which something is new are made again."""

from __future__ import annotations

from collections.abc import Callable

from muster.core.placement.feasibility import static_mask
from muster.core.state.job_builder import is_alive
from muster.core.state.job_facts import lived, sizes_in_place
from muster.core.state.job_state import JobState
from muster.core.state.node_use import known_use
from muster.core.state.pods import place_orphans
from muster.core.state.quarantine import bare_job, put_aside, set_aside
from muster.core.state.queue_time import seniority
from muster.core.state.recreated import RETURN, recreated
from muster.core.state.reservation_usage import charge_holds, set_holds
from muster.core.state.state import LedgerState
from muster.core.state.unreadable import unread_of
from muster.types import GPU, Job, JobKey, Nodes, Snapshot


def snapshot_of(state: LedgerState, now: float) -> Snapshot:
    """Everything that a plan may depend on, at `now`."""
    state.listens = now if state.listens is None else state.listens
    place_orphans(state, [pod for pod, _ in state.orphans.values()], now)
    over = {key for key, until in state.later.items() if until <= now}
    for key in over:
        del state.later[key]
    state.dirty |= state.returning | state.heard | over
    if state.in_place is not None:
        state.dirty |= {state.job_of[pod] for pod in state.in_place.look() if pod in state.job_of}
    state.returning.clear()
    state.heard.clear()
    state.hears = False
    for key in list(state.dirty):
        _refresh(state, key, now)
    state.dirty.clear()
    state.charges.moved = False
    node_backoffs: dict[tuple[JobKey, str], dict[str, float]] = {}
    for key in state.with_node_backoffs:
        for bar in state.entries[key].node_backoffs.values():
            if bar.until > now:
                node_backoffs.setdefault((key, bar.role), {})[bar.node] = bar.until
    return Snapshot(
        now=now,
        nodes=state.charges.columns(),
        free=state.charges.free(),
        jobs=dict(state.jobs),
        ports=state.charges.ports(),
        node_backoffs=node_backoffs,
        ours_on=state.charges.ours_on(),
        shared_at=state.shared_at,
        use=known_use(state, now),
    )


def in_place(state: LedgerState) -> dict[JobKey, tuple[int, ...]]:
    """Numbers of GPUs that jobs in place can train on, as their newest living pod says."""
    valid = (one for one in state.entries.values() if one.job and not one.job.invalid)
    found = {job_state.key: sizes_in_place(job_state) for job_state in valid}
    return {key: sizes for key, sizes in found.items() if sizes}


def room(nodes: Nodes) -> Callable[[Job, int], int]:
    """How many pods of a job in place could stand on the nodes, each with so many GPUs, were nobody else there: by
    the nodes' GPUs and what the pods say of nodes, not by what else they ask for."""
    column = nodes.resource_index.get(GPU)

    def pods(job: Job, count: int) -> int:
        if column is None or not job.roles:
            return 0
        allowed = static_mask(nodes, job.roles[0].shape)
        return int((nodes.total[allowed, column] // count).sum())

    return pods


def _refresh(state: LedgerState, key: JobKey, now: float) -> None:
    """Rebuild one job's frozen view; forget a job of which nothing is left. One that can't be built is put aside."""
    job_state = state.entries.get(key)
    if job_state is None:
        return
    stage = unread_of(state, key) or put_aside(state, key, now)
    try:
        if _forgotten(state, key, job_state):
            return
        if not stage:
            _build(state, key, job_state, now)
            return
    except Exception as error:
        stage = "build"
        set_aside(state, key, stage, error, now)
    state.jobs[key] = job_state.job = bare_job(job_state, stage)


def _forgotten(state: LedgerState, key: JobKey, job_state: JobState) -> bool:
    """Whether nothing is left of the job; then all that is kept of it goes."""
    if job_state.pods or job_state.recorded.gang is not None or job_state.in_flight.gang.sent is not None:
        return False  # one that is being written is not that of the next job of its name
    if state.owners.lives(key, job_state.owner) and not _goes_by_another_name(state, key, job_state):
        return False
    set_holds(state, job_state, ())
    state.owners.forgotten(key, job_state.owner)
    state.jobs.pop(key, None)
    del state.entries[key]
    state.with_node_backoffs.discard(key)
    state.asked.discard(key)
    state.guarded_jobs.discard(key)
    state.quarantined.pop(key, None)
    state.later.pop(key, None)
    return True


def _goes_by_another_name(state: LedgerState, key: JobKey, job_state: JobState) -> bool:
    """Whether the owner's pods are those of its job under the other name that it may have (a TrainJob's, or its
    JobSet's: `pods._key`): its pods came before the Gang that tells the name, and may be gone since."""
    if job_state.owner is None or not key.uid:
        return False
    others = (other for other in state.owners.jobs_of(job_state.owner.uid) if other.uid not in ("", key.uid))
    named = [state.entries[other] for other in others]
    return any(one.pods or (one.recorded.gang is not None and not one.recorded.gang.ended) for one in named)


def _build(state: LedgerState, key: JobKey, job_state: JobState, now: float) -> None:
    if job_state.desired.reservations is None:
        charge_holds(state, job_state)  # that of another replica's plan: what carried it may be gone
    # Owners make again what we evicted. Where nobody tells us what an owner still wants, time decides.
    returns = (
        now < job_state.returning + RETURN
        and (job_state.owner.uid if job_state.owner is not None else key.uid) not in state.owners.records
        and not any(is_alive(p) for p in job_state.pods.values())
    )
    if returns:
        state.requeue_at.add(job_state.returning + RETURN)
        state.returning.add(key)
    job = seniority(state, job_state, state.made.job(job_state, state.profile, returns=returns), now)
    state.jobs[key] = job_state.job = lived(state, job_state, recreated(state, job_state, job, now), now)
    if any(not reservation.uid for reservation in job_state.planned):
        charge_holds(state, job_state)  # what its owner's template asks for may be news
