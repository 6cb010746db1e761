"""A change of a running job's size is one Event, when it is complete: from how many to how many, and why.

What changes again within EVERY is told together, so that a policy that resizes each few seconds writes two Events a
minute for a job at most: from the size that was told last to the one that stands.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.reasons.words import plural
from muster.core.state.job_state import JobState, Size
from muster.core.state.state import LedgerState
from muster.core.workload.identity import DEFAULT_ROLE
from muster.core.workload.job_events import told
from muster.types import Job, Phase, RecordEvent, Role, State, Status

EVERY = 30.0
"""Seconds between two such Events of a job."""
STOPS = (State.WAITING, State.INCOMPLETE, State.SUSPENDED, State.FINISHED)
"""States of a job that does not run: its next size is that of a start."""


def resized(
    state: LedgerState, job_state: JobState, job: Job, status: Status, now: float
) -> Iterator[RecordEvent]:
    """The Event, where the job runs with another size than was told last and nothing of it comes or goes."""
    role = job.elastic
    if status.state in STOPS or role is None:
        job_state.size = None
        return
    if status.state is not State.RUNNING or any(member.phase is Phase.ENDING for member in role.members):
        return
    before, size = job_state.size, Size(role.name, role.bound, role.max, role.ended)
    done = before is not None and size.ended > before.ended  # what has run to its end is no smaller job
    if before is None or before.role != size.role or before.replicas == size.replicas or done:
        job_state.size = size
        return
    if now < job_state.size_told_at + EVERY:
        state.again(job_state.key, job_state.size_told_at + EVERY)
        return
    job_state.size, job_state.size_told_at = size, now
    grown = size.replicas > before.replicas
    verb = "Grown" if grown else "Shrunk"
    why = _grew(state, job_state, before, size) if grown else _shrank(state, job_state, before, size)
    message = f"{verb} from {before.replicas} to {_replicas(role, size.replicas)}: {why}"
    yield from told(job_state.key, job, job_state.recorded.gang, verb, message)


def _replicas(role: Role, count: int) -> str:
    return (
        plural(count, DEFAULT_ROLE)
        if role.name == DEFAULT_ROLE
        else f"{plural(count, 'replica')} of {role.name}"
    )


def _grew(state: LedgerState, job_state: JobState, before: Size, size: Size) -> str:
    if size.most > before.most and before.replicas >= before.most:
        return f"its owner wants {size.most} now"
    return _share(state, job_state, size, "grew") or "capacity became free for it"


def _shrank(state: LedgerState, job_state: JobState, before: Size, size: Size) -> str:
    if size.most < before.replicas:
        return f"its owner wants {size.most} now"
    gone = before.replicas - size.replicas
    ended = f"{plural(gone, 'replica')} of it ended and {'has' if gone == 1 else 'have'} no place now"
    return _share(state, job_state, size, "fell") or ended


def _share(state: LedgerState, job_state: JobState, size: Size, moved: str) -> str:
    """That its share is what changed, and the sentence that says why it has that; "" where no policy decided it."""
    if state.shares.get(job_state.key) != size.replicas:
        return ""
    why = state.whys.get(job_state.key, "")
    return f"its share of the GPUs {moved}" + (f"; {why}" if why else "")
