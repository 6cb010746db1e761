"""The second half of `defragment`: moves of running jobs to fewer nodes, where they are known to be faster."""

from __future__ import annotations

import math
from collections.abc import Sequence

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import place
from muster.core.reasons.words import plural
from muster.core.sharing.moving import (
    as_bound,
    config_now,
    config_on,
    gpus_of,
    leave,
    move_to,
    racks,
    rows_of,
    rows_on,
    speed_of,
)
from muster.types import Job, JobKey, Move
from muster_plugins.defragment_terms import PACKED, Terms


def faster(jobs: Sequence[Job], terms: Terms) -> list[Move]:
    """The moves to fewer nodes that gain most GPU-seconds, each in the room that those before it leave."""
    snapshot = terms.snapshot
    capacity = Capacity(snapshot)
    found: list[tuple[float, JobKey]] = []
    for job in jobs:
        mark = capacity.mark()
        move = _on_fewer(job, capacity, terms)
        capacity.undo(mark)
        if move is not None:
            found.append(((move.cost - move.gain) * gpus_of(job), job.key))
    result: list[Move] = []
    for _, key in sorted(found):
        mark = capacity.mark()
        move = _on_fewer(snapshot.jobs[key], capacity, terms) if len(result) < terms.most else None
        if move is None:
            capacity.undo(mark)  # a move before it took the place
        else:
            result.append(move)
    return result


def _on_fewer(job: Job, capacity: Capacity, terms: Terms) -> Move | None:
    """The move to fewer nodes, taken in the room; None where there is none that is worth it."""
    snapshot = terms.snapshot
    before, speed = rows_on(job, snapshot.nodes), speed_of(job, snapshot)
    leave(capacity, job, snapshot.nodes)
    assignments = place(capacity, job, as_bound(job), PACKED, snapshot)
    if speed is None or assignments is None or len(rows_of(assignments)) >= len(before):
        return None
    if racks(rows_of(assignments), snapshot.nodes, terms.rack) > racks(before, snapshot.nodes, terms.rack):
        return None
    now, then = speed(config_now(job, snapshot)), speed(config_on(job, assignments, snapshot))
    if not (now > 0.0 and then > now and math.isfinite(then)):
        return None
    gain, cost = (then - now) / now * min(terms.horizon, terms.left(job)), terms.cost_of(job)
    if gain <= cost:
        return None
    words = (
        f"on {plural(len(rows_of(assignments)), 'node')} in place of {len(before)} it would gain {gain:.0f} s "
        f"within {terms.horizon:.0f} s, a change costs {cost:.0f} s"
    )
    return move_to(job, assignments, snapshot.nodes, gain, cost, words)
