"""What is kept free for the head of the queue: its reservation (backfilling), and gangs that make way for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import numpy as np

from muster.core.placement.capacity import Capacity
from muster.core.placement.cycle_state import CycleState, HeadReservation
from muster.core.placement.place import Assignment, Need, place
from muster.core.placement.preemption import OUT, in_use, make_way, releasing
from muster.core.progress.estimate import believed
from muster.core.progress.runtime import expected_end
from muster.points import Candidates
from muster.types import EndReason, FloatArray, Job, Role, Shape, Snapshot


def first_needs(job: Job) -> list[Need]:
    """What a job needs to start: its minimum, or one replica where all of it is optional."""
    needs = [Need(role, role.min) for role in job.roles if role.min > 0]
    return needs or [Need(role, 1) for role in job.roles[:1]]


def reserve(run: CycleState, head: Job, needs: Sequence[Need]) -> None:
    """EASY backfilling: others may pass while they don't delay the head's reservation.

    What is ending already counts as free: replicas of one job leave one after another, and others would take the
    first before the head could have all. With known run times the head is placed on what is free at the first time
    at which it fits. Without, it is placed as if the running jobs of ours were gone, where most is free now, and
    freed capacity there is kept for it, but only once it has waited longer than the profile's patience.
    """
    snapshot = run.snapshot
    now = replace(snapshot, free=run.capacity.free, ports=run.capacity.ports, ours_on=run.capacity.ours)
    ending = releasing(snapshot)
    running = [job for job in snapshot.jobs.values() if job.started and not job.preempted]
    ends = sorted((end, job.key) for job in running if (end := expected_end(job, snapshot.now)) is not None)

    @cache
    def leaves(number: int) -> list[tuple[int, Shape]]:
        return in_use(snapshot.jobs[ends[number][1]], snapshot.nodes, OUT)

    def placed_after(count: int) -> Capacity | None:
        """The room with the head in it once the first `count` jobs have ended, None where it does not fit."""
        capacity = Capacity(now)
        capacity.give_all(chain(ending, chain.from_iterable(map(leaves, range(count)))))
        return None if place(capacity, head, needs, run.profile, snapshot) is None else capacity

    if ending and (capacity := placed_after(0)) is not None:
        run.reserved = HeadReservation(capacity, snapshot.now)
        return
    first = _least(len(ends), lambda count: placed_after(count) is not None)
    if first is not None and (capacity := placed_after(first)) is not None:
        run.reserved = HeadReservation(
            capacity, ends[first - 1][0], estimate=believed(snapshot, run.profile, [])
        )
        return
    ripe = head.submitted + run.profile.patience
    if snapshot.now < ripe:
        run.requeue_at.append(ripe)
        return
    later = Capacity(now)
    later.give_all(chain(ending, chain.from_iterable(in_use(job, snapshot.nodes, OUT) for job in running)))
    most_free = replace(run.profile, scores=((_MostFree(run.capacity, needs), 1.0),))
    assignments = place(later, head, needs, most_free, snapshot)
    if assignments is None:
        return
    _keep_free(run, needs, assignments)


def preempt(run: CycleState, head: Job, needs: Sequence[Need]) -> bool:
    """Whole gangs of lower priority make way for the head; false where that would not be enough."""
    way = make_way(run.capacity, head, needs, run.profile, run.snapshot, run.reservations)
    if way is None:
        return False
    victims, assignments = way
    for victim in victims:
        run.ends[victim.key] = EndReason.PREEMPTION
        run.preempted[victim.key] = f"preempted whole by a job of priority {head.priority}"
    _keep_free(run, needs, assignments)
    return True


def _keep_free(run: CycleState, needs: Sequence[Need], assignments: Sequence[Assignment]) -> None:
    """What is free on the head's spots is nobody else's from here on."""
    kept = Capacity(
        replace(run.snapshot, free=run.capacity.free, ports=run.capacity.ports, ours_on=run.capacity.ours)
    )
    shapes = {n.role.name: n.role.shape for n in needs}
    for role, row, count in assignments:
        kept.take(row, shapes[role], count)
    run.reserved = HeadReservation(kept)


def _least(most: int, enough: Callable[[int], bool]) -> int | None:
    """The least number from 1 to `most` that is enough, tried in steps that double, then halved; or None.

    More ended jobs are nearly always enough when fewer were; where first fit makes an exception, the number
    found is still enough, only not the least.
    """
    low, high = 0, 1
    while high < most and not enough(high):
        low, high = high, high * 2
    high = min(high, most)
    if not most or not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, slots=True)
class _MostFree:
    """Where most replicas fit now, so that the head's reservation has the least to wait for."""

    capacity: Capacity
    needs: Sequence[Need]

    def score(
        self,
        job: Job,  # noqa: ARG002
        role: Role,
        candidates: Candidates,  # noqa: ARG002
        snapshot: Snapshot,  # noqa: ARG002
    ) -> FloatArray:
        """Replicas that fit now, as a share of the most that fit anywhere."""
        fits = self.capacity.fits(role.shape).astype(np.float64)
        scores: FloatArray = 100.0 * fits / max(1.0, float(fits.max(initial=0.0)))
        return scores
