"""What others set against a job's plan: budgets that keep it from becoming smaller, quotas that keep its pods out.

Both are read by name, only while they stand in some job's way; what they say is told to the job's owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.core.devices.charged import REFUSED, UNREAD
from muster.core.state.job_state import JobState
from muster.core.state.state import QUIET, LedgerState
from muster.core.workload import disruption_budgets
from muster.core.workload.job_events import told
from muster.types import Action, Budget, Job, JobKey, Outcome, Quota

KEEPS_ANYWAY = 600.0
"""Seconds: what a budget keeps for longer (a job that was to go whole) does not end with one eviction allowed."""

BUDGETS_READ = 2.0
"""Seconds that an Event about a budget waits for what the budget counts."""

QUOTAS_READ = 2.0
"""Seconds that "3 of 12 pods exist" waits for what the quotas say: else two Events tell of one thing."""

CHARGES_READ = 30.0
"""Seconds that a job in place gets no GPUs while the quotas to which they are charged can't be read."""

KEEPS_FIRST, KEEPS_MOST, KEEPS_WHOLE = 5.0, 300.0, 1800.0
"""Seconds for which a job is not made smaller after a refused eviction: the first time, doubling up to the most; and
where the whole job was to go: a budget that lets a part of it go costs it a restart for nothing each time."""


def budgets_seen(state: LedgerState, namespace: str, found: tuple[Budget, ...], now: float) -> None:
    """News of a namespace's budgets; jobs that one kept large are tried again as soon as it allows that."""
    news = state.budgets.get(namespace) != found
    state.budgets[namespace] = found
    for key in [key for key in state.guarded_jobs if key.namespace == namespace]:
        job_state = state.entries[key]
        if job_state.shrink_blocked_for < KEEPS_ANYWAY and disruption_budgets.allows(
            job_state.shrink_blocked_by, found
        ):
            job_state.shrink_blocked_until = now
            state.dirty.add(key)
        elif news:
            state.dirty.add(key)


def keeps(state: LedgerState, job_state: JobState, job: Job) -> str:
    """Why it can't become smaller, as far as the budget that refused is known."""
    known = state.budgets.get(job_state.key.namespace, ())
    return (
        disruption_budgets.words(job_state.shrink_blocked_by, known, job)
        if job_state.shrink_blocked_by
        else ""
    )


def forget_budgets(state: LedgerState) -> None:
    """Those of namespaces where none keeps a job from becoming smaller any more, and which are to be read now."""
    wanted = frozenset((key.namespace,) for key in state.guarded_jobs)
    if wanted != state.guarded:
        state.guarded = wanted
        for namespace in state.budgets.keys() - {name for (name,) in wanted}:
            del state.budgets[namespace]


def tell_guarded(state: LedgerState, key: JobKey, now: float) -> Iterator[Action]:
    """The owner of a job that a PodDisruptionBudget keeps from becoming smaller is told."""
    job_state = state.entries[key]
    job = job_state.job
    if job is None or not job.shrink_blocked_by or job.shrink_blocked_by == job_state.shrink_blocked_event:
        return
    if (
        key.namespace not in state.budgets
        and job_state.shrink_blocked_until - now > job_state.shrink_blocked_for - BUDGETS_READ
    ):
        state.requeue_at.add(job_state.shrink_blocked_until - job_state.shrink_blocked_for + BUDGETS_READ)
        return
    job_state.shrink_blocked_event = job.shrink_blocked_by
    yield from told(
        key, job, job_state.recorded.gang, "DisruptionBudget", job.shrink_blocked_by, warning=True
    )


def stays(state: LedgerState, job_state: JobState, outcome: Outcome, length: float, now: float) -> None:
    """A PodDisruptionBudget does not let it go: it keeps its size for so many seconds, and its owner is told."""
    job_state.shrink_blocked_for = length
    job_state.shrink_blocked_by, job_state.shrink_blocked_until = outcome.message, now + length
    state.again(job_state.key, job_state.shrink_blocked_until)
    state.guarded_jobs.add(job_state.key)


def ask_for_quotas(state: LedgerState, job_state: JobState, now: float) -> None:
    """Where an owner's pods don't appear, a quota may be why."""
    if now - job_state.newest_pod >= QUIET:
        state.short_jobs.add(job_state.key)
        state.short_since.setdefault(job_state.key.namespace, now)
    else:
        state.requeue_at.add(job_state.newest_pod + QUIET)


def forget_quotas(state: LedgerState, now: float) -> None:
    """Those of namespaces where no job is short of pods or in place any more, and which are to be read now."""
    charged = {key.namespace for key in state.in_place.sizes} if state.in_place is not None else set()
    for namespace in charged:
        state.short_since.setdefault(namespace, now)
    wanted = frozenset({(key.namespace,) for key in state.short_jobs} | {(name,) for name in charged})
    if wanted != state.short:
        state.short = wanted
        names = {name for (name,) in wanted}
        for namespace in state.quotas.keys() - names:
            del state.quotas[namespace]
        state.quotas_refused &= names
        for namespace in state.short_since.keys() - names:
            del state.short_since[namespace]


def quotas_in_place(
    state: LedgerState, jobs: Iterable[JobKey], now: float
) -> dict[str, tuple[Quota, ...] | str]:
    """Quotas to which jobs in place are charged, by namespace; why they are not known where they are still awaited or
    may not be read."""
    found: dict[str, tuple[Quota, ...] | str] = {}
    known = state.in_place.sizes if state.in_place is not None else {}
    for name in sorted({key.namespace for key in (*jobs, *known)}):
        until = state.short_since.get(name, now) + CHARGES_READ
        if name in state.quotas_refused:
            found[name] = REFUSED
        elif name in state.quotas:
            found[name] = state.quotas[name]
        elif now < until:
            found[name] = UNREAD
            state.requeue_at.add(until)
    return found


def quotas_awaited(state: LedgerState, job_state: JobState) -> float:
    """Until when (Unix s) the quotas that may keep its pods out are awaited; 0 where none are, or they are known."""
    name = job_state.key.namespace
    if job_state.key not in state.short_jobs or name in state.quotas:
        return 0.0
    return state.short_since[name] + QUOTAS_READ
