"""When waiting jobs are expected to start: the queue played forward on run times that owners declare or jobs report.

Jobs start in the queue's order here, each with its minimum, when enough of those before it have ended;
backfilling may start one sooner. Where a policy shares GPUs, running jobs are thought to keep the size and speed that
they have now; what the policy would change at each end is not played. What cannot be known is said so: a running job
of unknown length keeps its place for ever. For the first QUEUE_TOLD jobs, with TRIES placements at most.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Assignment, Need, place
from muster.core.progress.estimate import believed
from muster.core.progress.eta import length, outlook
from muster.core.reasons.words import plural
from muster.core.views.view import View
from muster.points import Estimation
from muster.types import BEHIND, NEVER, QUEUE_TOLD, Job, JobKey, Nodes, Plan, Reason, Reservation, Shape

TRIES = 400
"""Placements that one forecast may try: 1 to 5 ms each on 5,000 nodes."""

Places = tuple[tuple[int, Shape], ...]
"""Node row and shape of each replica."""


@dataclass(frozen=True, slots=True)
class Expected:
    """When a job is expected to start (Unix s), or why that is not known."""

    start: float | None = None
    unknown: str = ""


@dataclass
class _Play:
    """The cluster as it is thought to be at `at`; `ends` are those to come, first first. estimate: what is believed
    of a job now."""

    view: View
    estimate: Callable[[Job], Estimation]
    capacity: Capacity
    at: float
    ends: list[tuple[float, JobKey, Places]]
    endless: int  # running jobs whose length nobody declares
    tries: int = TRIES
    found: dict[JobKey, Expected] = field(default_factory=dict)


def forecast(view: View) -> Mapping[JobKey, Expected]:
    """By job, for the first QUEUE_TOLD of the queue; the last answer is kept as long as the plan is the same."""
    kept = _kept[0] if _kept else None  # once: several threads ask
    if kept is not None and kept[0] is view.plan:
        return kept[1]
    answer = _forecast(view)
    _kept[:] = [(view.plan, answer)]
    return answer


_kept: list[tuple[Plan, Mapping[JobKey, Expected]]] = []


def _forecast(view: View) -> Mapping[JobKey, Expected]:
    play = _begin(view)
    behind = ""
    positions = view.plan.positions
    for key in view.plan.order:
        job = view.snapshot.jobs.get(key)
        if positions.get(key, 0) > QUEUE_TOLD:
            play.found[key] = Expected(unknown=f"it is {BEHIND} of the queue")
        elif view.plan.statuses[key].reason is Reason.NEVER_FITS:
            play.found[key] = Expected(unknown=NEVER)
        elif view.plan.statuses[key].reason is Reason.NO_ARRANGEMENT:
            play.found[key] = Expected(unknown="no arrangement of its roles was found")
        elif job is None or view.plan.statuses[key].reason is Reason.PLUGIN:
            play.found[key] = Expected(unknown="no job that ends makes room for it")
        elif behind:
            play.found[key] = Expected(unknown=behind)
        else:
            expected = play.found[key] = _start(play, job)
            if expected.start is None:
                behind = "the start of a job ahead of it is not known"
    return play.found


def _begin(view: View) -> _Play:
    snapshot = view.snapshot
    estimate = believed(snapshot, view.profile, [])
    ends, endless = [], 0
    for job in snapshot.jobs.values():
        reservations = view.plan.reservations.get(job.key, ())
        if not (job.started or reservations):
            continue
        if job.bound:
            end = outlook(job, estimate(job), snapshot.now).end
        else:  # it is starting now
            after = length(job, estimate(job), snapshot.now)
            end = None if after is None else snapshot.now + after
        if end is None:
            endless += 1
        else:
            ends.append((max(end, snapshot.now), job.key, _places(job, reservations, snapshot.nodes)))
    capacity = Capacity(replace(snapshot, free=view.free))
    return _Play(view, estimate, capacity, snapshot.now, sorted(ends), endless)


def _places(job: Job, reservations: Sequence[Reservation], nodes: Nodes) -> Places:
    """What the job uses or will use, each replica once."""
    result = []
    for role in job.roles:
        names = {h.uid or f"open/{i}": h.node for i, h in enumerate(reservations) if h.role == role.name}
        names |= {m.uid: m.node for m in role.on}
        result += [(nodes.index[name], role.shape) for name in names.values() if name in nodes.index]
    return tuple(result)


def _start(play: _Play, job: Job) -> Expected:
    """The job starts after the fewest of the coming ends that make room for it, and takes it."""
    needs = [Need(role, role.min) for role in job.roles if role.min] or [Need(r, 1) for r in job.roles[:1]]
    base = play.capacity.mark()

    def placed_after(count: int) -> list[Assignment] | None:
        play.tries -= 1
        play.capacity.undo(base)
        for _, _, places in play.ends[:count]:
            for row, shape in places:
                play.capacity.give(row, shape)
        return place(play.capacity, job, needs, play.view.profile, play.view.snapshot)

    # Steps that double, then are halved: room only grows with ends, nearly always.
    low, high, most = -1, 0, len(play.ends)
    while placed_after(high) is None:
        if high == most or play.tries <= 0:
            play.capacity.undo(base)
            return Expected(unknown=_why(play, high == most))
        low, high = high, min(most, max(1, high * 2))
    while high - low > 1:
        middle = (low + high) // 2
        if placed_after(middle) is None:
            low = middle
        else:
            high = middle
    assignments = placed_after(high) or []
    if high:
        play.at = max(play.at, play.ends[high - 1][0])
    play.at = max(play.at, job.not_before)
    del play.ends[:high]
    after = length(job, play.estimate(job), play.view.snapshot.now)
    if after is None:
        play.endless += 1
    else:
        shapes = {role.name: role.shape for role in job.roles}
        places = tuple((row, shapes[role]) for role, row, count in assignments for _ in range(count))
        insort(play.ends, (play.at + after, job.key, places), key=lambda end: end[:2])
    return Expected(play.at)


def _why(play: _Play, all_tried: bool) -> str:
    if not all_tried:
        return "too much has to end before it to be worked out"
    if play.endless:
        declares = "declares" if play.endless == 1 else "declare"
        return f"{plural(play.endless, 'job')} before it {declares} no run time (muster.dev/remaining-work)"
    return "the ends of all jobs before it do not make room for it"
