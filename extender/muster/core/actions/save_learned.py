"""What jobs that ended taught, kept for those of the same image and model."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.types import Action, Job, Phase, WriteLearned

TEACH_EVERY = 60.0
"""Seconds between two writes of what jobs taught."""


def learn(state: LedgerState, job_state: JobState, job: Job) -> None:
    """What the job taught, for those of its image and model that come after it."""
    phases = {pod.phase for pod in job_state.pods.values()}
    well = Phase.SUCCEEDED in phases and Phase.FAILED not in phases
    state.lessons.learn(job, job_state.track, ended_well=well)
    state.teacher = job_state.key


def teach(state: LedgerState, now: float) -> Iterator[Action]:
    """What was learned since the last time, at most every TEACH_EVERY seconds."""
    if not state.lessons.changed:
        return
    due = state.taught_at + TEACH_EVERY
    if now < due:
        state.requeue_at.add(due)
        return
    state.taught_at = now
    yield WriteLearned(state.teacher, state.lessons.plain(), "jobs have ended")
