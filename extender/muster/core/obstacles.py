"""What others set against a job's plan: budgets that keep it from becoming smaller, quotas that keep its pods out.

Both are read by name, only while they stand in some job's way; what they say is told to the job's owner.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core import budgets
from muster.core.entry import Entry
from muster.core.memory import QUIET, Memory
from muster.core.telling import told
from muster.types import Action, Budget, Job, Outcome

KEEPS_ANYWAY = 600.0
"""Seconds: what a budget keeps for longer (a job that was to go whole) does not end with one eviction allowed."""

BUDGETS_READ = 2.0
"""Seconds that an Event about a budget waits for what the budget counts."""

QUOTAS_READ = 2.0
"""Seconds that "3 of 12 pods exist" waits for what the quotas say: else two Events tell of one thing."""

KEEPS_FIRST, KEEPS_MOST, KEEPS_WHOLE = 5.0, 300.0, 1800.0
"""Seconds for which a job is not made smaller after a refused eviction: the first time, doubling up to the most; and
where the whole job was to go: a budget that lets a part of it go costs it a restart for nothing each time."""


def budgets_seen(memory: Memory, namespace: str, found: tuple[Budget, ...], now: float) -> None:
    """News of a namespace's budgets; jobs that one kept large are tried again as soon as it allows that."""
    news = memory.budgets.get(namespace) != found
    memory.budgets[namespace] = found
    for key in [key for key in memory.guarded_jobs if key.namespace == namespace]:
        entry = memory.entries[key]
        if entry.keeps_for < KEEPS_ANYWAY and budgets.allows(entry.keeps, found):
            entry.keeps_until = now
            memory.dirty.add(key)
        elif news:
            memory.dirty.add(key)


def keeps(memory: Memory, entry: Entry, job: Job) -> str:
    """Why it can't become smaller, as far as the budget that refused is known."""
    known = memory.budgets.get(entry.key.namespace, ())
    return budgets.words(entry.keeps, known, job) if entry.keeps else ""


def tell_guarded(memory: Memory, now: float) -> Iterator[Action]:
    """Jobs that a PodDisruptionBudget keeps from becoming smaller: budgets are read, and owners are told."""
    wanted = frozenset((key.namespace,) for key in memory.guarded_jobs)
    if wanted != memory.guarded:
        memory.guarded = wanted
        for namespace in memory.budgets.keys() - {name for (name,) in wanted}:
            del memory.budgets[namespace]
    for key in sorted(memory.guarded_jobs):
        entry = memory.entries[key]
        job = entry.job
        if job is None or not job.keeps or job.keeps == entry.keeps_said:
            continue
        if key.namespace not in memory.budgets and entry.keeps_until - now > entry.keeps_for - BUDGETS_READ:
            memory.wakes.add(entry.keeps_until - entry.keeps_for + BUDGETS_READ)
            continue
        entry.keeps_said = job.keeps
        yield from told(key, job, "DisruptionBudget", job.keeps, warning=True)


def stays(memory: Memory, entry: Entry, outcome: Outcome, length: float, now: float) -> None:
    """A PodDisruptionBudget does not let it go: it keeps its size for so many seconds, and its owner is told."""
    entry.keeps_for = length
    entry.keeps, entry.keeps_until = outcome.message, now + length
    memory.again(entry.key, entry.keeps_until)
    memory.guarded_jobs.add(entry.key)


def ask_for_quotas(memory: Memory, entry: Entry, now: float) -> None:
    """Where an owner's pods don't appear, a quota may be why."""
    if now - entry.newest_pod >= QUIET:
        memory.short_jobs.add(entry.key)
        memory.short_since.setdefault(entry.key.namespace, now)
    else:
        memory.wakes.add(entry.newest_pod + QUIET)


def forget_quotas(memory: Memory) -> None:
    """Those of namespaces where no job is short of pods any more, and which ones are to be read now."""
    wanted = frozenset((key.namespace,) for key in memory.short_jobs)
    if wanted != memory.short:
        memory.short = wanted
        names = {name for (name,) in wanted}
        for namespace in memory.quotas.keys() - names:
            del memory.quotas[namespace]
        for namespace in memory.short_since.keys() - names:
            del memory.short_since[namespace]


def quotas_awaited(memory: Memory, entry: Entry) -> float:
    """Until when (Unix s) the quotas that may keep its pods out are awaited; 0 where none are, or they are known."""
    name = entry.key.namespace
    if entry.key not in memory.short_jobs or name in memory.quotas:
        return 0.0
    return memory.short_since[name] + QUOTAS_READ
