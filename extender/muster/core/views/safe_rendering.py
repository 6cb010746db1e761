"""Pages and figures of a View, without what can't be shown of a job over which they raise.

Rendering is pure, so the culprit is found by rendering again (core.state.quarantine). Its row says so and has its
places; where not even these can be shown, it has nothing else. All others are shown as ever, and nothing else changes
for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from muster.core.culprit import culprit
from muster.core.state.quarantine import FEW, SPACES
from muster.core.views.view import Board, View
from muster.types import Job, JobKey, Reason, Role, State, Status

T = TypeVar("T")
Plain = Callable[[Job, float], Job]
"""What is left of a job, at a time (Unix s)."""
SENTENCE = (
    "an error of Muster's own: what is known of it can't be shown here; nothing else changes for it (muster's log "
    "has the error)"
)


def shown(board: Board, render: Callable[[View], T], view: View | None = None) -> T:
    """What `render` makes of a View (None: the newest); `Board.aside` is called with each job that it does without.

    Raises what `render` raises where that is no job's fault.
    """
    view = board.view if view is None else view
    try:
        return render(view)
    except Exception as error:
        for plain in (_with_its_places, _by_its_name):
            made = _without_culprits(view, render, plain, error)
            if made is not None:
                for key, raised in made.culprits.items():
                    board.aside(key, raised)
                return made.value
        raise


@dataclass(frozen=True, slots=True)
class _Made(Generic[T]):
    value: T
    culprits: Mapping[JobKey, Exception]


def _without_culprits(
    view: View, render: Callable[[View], T], plain: Plain, error: Exception
) -> _Made[T] | None:
    """What is rendered where of the culprits only `plain` is left; None where not even that can be. error: what was
    raised over all."""
    real = sorted(view.snapshot.jobs)
    found: dict[JobKey, Exception] = {}

    def step(keys: Collection[JobKey]) -> T:
        return render(_without(view, set(keys), plain))

    while (key := culprit(real, step)) is not None:
        found[key] = error
        many = sum(1 for one in found if one.namespace == key.namespace) > FEW
        all_of_them = len({one.namespace for one in found}) > SPACES
        found |= {one: error for one in real if all_of_them or (many and one.namespace == key.namespace)}
        real = [one for one in real if one not in found]
        try:
            return _Made(step(real), found)
        except Exception as another:
            error = another
    return None


def _without(view: View, real: Collection[JobKey], plain: Plain) -> View:
    """The View, with as little as can be of all other jobs."""
    others = {key: job for key, job in view.snapshot.jobs.items() if key not in real}
    statuses = dict(view.plan.statuses)
    for key in others:
        state = statuses[key].state if key in statuses else State.WAITING
        statuses[key] = Status(state, Reason.INTERNAL, SENTENCE)
    jobs = {
        key: plain(job, view.snapshot.now) if key in others else job
        for key, job in view.snapshot.jobs.items()
    }
    whys = {key: why for key, why in view.plan.whys.items() if key not in others}
    plan = replace(view.plan, statuses=statuses, whys=whys)
    return replace(view, plan=plan, snapshot=replace(view.snapshot, jobs=jobs))


def _with_its_places(job: Job, now: float) -> Job:
    roles = tuple(Role(r.name, r.min, r.max, r.shape, members=r.members) for r in job.roles)
    named = _by_its_name(job, now)
    return replace(
        named, submitted=job.submitted, roles=roles, reservations=job.reservations, started=job.started
    )


def _by_its_name(job: Job, now: float) -> Job:
    return Job(job.key, submitted=now, roles=(), invalid=SENTENCE, quarantined=True)
