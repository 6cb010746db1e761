"""What jobs that ended taught, kept for those of the same image and model."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import Action, Job, Phase, WriteLearned

TEACH_EVERY = 60.0
"""Seconds between two writes of what jobs taught."""


def learn(memory: LedgerState, entry: JobState, job: Job) -> None:
    """What the job taught, for those of its image and model that come after it."""
    phases = {pod.phase for pod in entry.pods.values()}
    well = Phase.SUCCEEDED in phases and Phase.FAILED not in phases
    memory.lessons.learn(job, entry.track, ended_well=well)
    memory.teacher = entry.key


def teach(memory: LedgerState, now: float) -> Iterator[Action]:
    """What was learned since the last time, at most every TEACH_EVERY seconds."""
    if not memory.lessons.changed:
        return
    due = memory.taught_at + TEACH_EVERY
    if now < due:
        memory.requeue_at.add(due)
        return
    memory.taught_at = now
    yield WriteLearned(memory.teacher, memory.lessons.plain(), "jobs have ended")
