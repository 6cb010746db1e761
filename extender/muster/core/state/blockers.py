"""What others set against a job's plan: budgets that keep it from becoming smaller, quotas that keep its pods out.

Both are read by name, only while they stand in some job's way; what they say is told to the job's owner.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.state.job_state import JobState
from muster.core.state.state import QUIET, LedgerState
from muster.core.workload import disruption_budgets
from muster.core.workload.job_events import told
from muster.types import Action, Budget, Job, JobKey, Outcome

KEEPS_ANYWAY = 600.0
"""Seconds: what a budget keeps for longer (a job that was to go whole) does not end with one eviction allowed."""

BUDGETS_READ = 2.0
"""Seconds that an Event about a budget waits for what the budget counts."""

QUOTAS_READ = 2.0
"""Seconds that "3 of 12 pods exist" waits for what the quotas say: else two Events tell of one thing."""

KEEPS_FIRST, KEEPS_MOST, KEEPS_WHOLE = 5.0, 300.0, 1800.0
"""Seconds for which a job is not made smaller after a refused eviction: the first time, doubling up to the most; and
where the whole job was to go: a budget that lets a part of it go costs it a restart for nothing each time."""


def budgets_seen(memory: LedgerState, namespace: str, found: tuple[Budget, ...], now: float) -> None:
    """News of a namespace's budgets; jobs that one kept large are tried again as soon as it allows that."""
    news = memory.budgets.get(namespace) != found
    memory.budgets[namespace] = found
    for key in [key for key in memory.guarded_jobs if key.namespace == namespace]:
        entry = memory.entries[key]
        if entry.shrink_blocked_for < KEEPS_ANYWAY and disruption_budgets.allows(
            entry.shrink_blocked_by, found
        ):
            entry.shrink_blocked_until = now
            memory.dirty.add(key)
        elif news:
            memory.dirty.add(key)


def keeps(memory: LedgerState, entry: JobState, job: Job) -> str:
    """Why it can't become smaller, as far as the budget that refused is known."""
    known = memory.budgets.get(entry.key.namespace, ())
    return disruption_budgets.words(entry.shrink_blocked_by, known, job) if entry.shrink_blocked_by else ""


def forget_budgets(memory: LedgerState) -> None:
    """Those of namespaces where none keeps a job from becoming smaller any more, and which are to be read now."""
    wanted = frozenset((key.namespace,) for key in memory.guarded_jobs)
    if wanted != memory.guarded:
        memory.guarded = wanted
        for namespace in memory.budgets.keys() - {name for (name,) in wanted}:
            del memory.budgets[namespace]


def tell_guarded(memory: LedgerState, key: JobKey, now: float) -> Iterator[Action]:
    """The owner of a job that a PodDisruptionBudget keeps from becoming smaller is told."""
    entry = memory.entries[key]
    job = entry.job
    if job is None or not job.shrink_blocked_by or job.shrink_blocked_by == entry.shrink_blocked_event:
        return
    if (
        key.namespace not in memory.budgets
        and entry.shrink_blocked_until - now > entry.shrink_blocked_for - BUDGETS_READ
    ):
        memory.requeue_at.add(entry.shrink_blocked_until - entry.shrink_blocked_for + BUDGETS_READ)
        return
    entry.shrink_blocked_event = job.shrink_blocked_by
    yield from told(key, job, "DisruptionBudget", job.shrink_blocked_by, warning=True)


def stays(memory: LedgerState, entry: JobState, outcome: Outcome, length: float, now: float) -> None:
    """A PodDisruptionBudget does not let it go: it keeps its size for so many seconds, and its owner is told."""
    entry.shrink_blocked_for = length
    entry.shrink_blocked_by, entry.shrink_blocked_until = outcome.message, now + length
    memory.again(entry.key, entry.shrink_blocked_until)
    memory.guarded_jobs.add(entry.key)


def ask_for_quotas(memory: LedgerState, entry: JobState, now: float) -> None:
    """Where an owner's pods don't appear, a quota may be why."""
    if now - entry.newest_pod >= QUIET:
        memory.short_jobs.add(entry.key)
        memory.short_since.setdefault(entry.key.namespace, now)
    else:
        memory.requeue_at.add(entry.newest_pod + QUIET)


def forget_quotas(memory: LedgerState) -> None:
    """Those of namespaces where no job is short of pods any more, and which are to be read now."""
    wanted = frozenset((key.namespace,) for key in memory.short_jobs)
    if wanted != memory.short:
        memory.short = wanted
        names = {name for (name,) in wanted}
        for namespace in memory.quotas.keys() - names:
            del memory.quotas[namespace]
        for namespace in memory.short_since.keys() - names:
            del memory.short_since[namespace]


def quotas_awaited(memory: LedgerState, entry: JobState) -> float:
    """Until when (Unix s) the quotas that may keep its pods out are awaited; 0 where none are, or they are known."""
    name = entry.key.namespace
    if entry.key not in memory.short_jobs or name in memory.quotas:
        return 0.0
    return memory.short_since[name] + QUOTAS_READ
