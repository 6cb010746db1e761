"""Rebalance `defragment`: whole places for a job that waits, and jobs on fewer nodes (design §4; issue 5, point 4).

Two reasons to place a running job again, in this order:
1 *room*: a waiting job's minimum is free by count, but scattered. The jobs on the nodes that are cleared with the
  fewest GPUs are placed on others, if the waiting job then fits. Gain: it starts up to `horizon` s sooner, counted
  by its GPUs; cost: what a change costs each moved job, counted by theirs.
2 *speed*: a job fits on fewer nodes, and its speed there is known (the profile's `Estimation.speed`, else what was
  measured with as many replicas). Gain: (v' - v) / v of the time that it still runs, `horizon` at most; cost: of a
  change.
A move is proposed only if it gains more than it costs.

Never moved: a job that ends within `ending` s; one that changed within `cooldown` s (a move counts as a change); one
that can't change (fixed size and not `muster.dev/resize: restart`), has a replica that nothing re-creates, may not be
evicted now, shares a GPU, is placed by kube-scheduler, or stands between two boundaries; one that is just changing. A
job never gets more nodes than before, nor more racks where it is moved for speed.

Choices: the head of the queue is looked at, and `heads` - 1 jobs behind it, by priority, submission and key. Jobs are
put where `pack` puts them. Nothing guarantees the fewest moves: nodes are cleared one by one, smallest first. Ties
end in the node's name and the job's key.
Source: none of the papers; CoDDL migrates as its placement's last resort (afs-coddl, appendix E).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Assignment, Need, place
from muster.core.progress.runtime import expected_end
from muster.core.reasons.words import plural
from muster.core.sharing.moving import (
    as_bound,
    by_node,
    can_change,
    changed_at,
    config_now,
    config_on,
    gpus_of,
    least_of,
    leave,
    leaves,
    move_to,
    on_shared_gpus,
    racks,
    rows_of,
    rows_on,
    speed_of,
    waits_for_room,
)
from muster.points import Profile
from muster.types import Job, JobKey, Move, Nodes, SharingSnapshot
from muster_plugins.pack import Pack

PACKED = Profile(scores=((Pack(), 1.0),))
"""How jobs are put on nodes here: few of them, the fullest that take them."""


@dataclass(frozen=True, slots=True)
class Defragment:
    """horizon: s over which a gain is counted. cost: s of a change of a job of which none was measured. ending: s
    before its end within which a job stays. cooldown: s after a start or a change within which it stays. most: jobs
    moved at a time. heads: waiting jobs that room is looked for. rack: node label of a rack.
    """

    horizon: float = 3600.0
    cost: float = 60.0
    ending: float = 600.0
    cooldown: float = 600.0
    most: int = 2
    heads: int = 2
    rack: str = "topology.kubernetes.io/rack"

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
        """Moves for the first waiting job that they make startable; else those that gain most speed."""
        heads, spread = self._heads(snapshot), self._spread(snapshot)
        if not heads and not spread:
            return []
        if sum(1 for job in snapshot.jobs.values() if leaves(job)) >= self.most:
            return []
        shared = on_shared_gpus(snapshot)
        if heads:
            movable = {k: job for k, job in snapshot.jobs.items() if self._movable(job, snapshot, shared)}
            for head in heads if movable else ():
                found = self._room_for(head, movable, snapshot)
                if found:
                    return found
        return self._faster([job for job in spread if self._movable(job, snapshot, shared)], snapshot)

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next running job's cooldown is over."""
        ends = [changed_at(job) + self.cooldown for job in snapshot.jobs.values() if job.started]
        return min((end for end in ends if end > snapshot.now), default=None)

    # ---- who may move ----

    def _movable(self, job: Job, snapshot: SharingSnapshot, shared: Collection[JobKey]) -> bool:
        if not job.started or not job.bound or snapshot.now < changed_at(job) + self.cooldown:
            return False
        return can_change(job, shared) and self._left(job, snapshot) > self.ending

    def _left(self, job: Job, snapshot: SharingSnapshot) -> float:
        """Seconds until it is expected to end as it runs now, infinite where nobody knows."""
        table = snapshot.table
        row = table.row.get(job.key)
        if row is not None and not math.isnan(table.remaining[row]):
            speed = float(table.curves[table.curve[row], int(table.have[row])])
            return float(table.remaining[row]) / speed if speed > 0.0 else math.inf
        end = expected_end(job)
        return math.inf if end is None else end - snapshot.now

    def _cost(self, job: Job) -> float:
        return job.facts.last_cost or self.cost

    # ---- 1 room for a job that waits ----

    def _heads(self, snapshot: SharingSnapshot) -> list[Job]:
        waiting = [job for job in snapshot.jobs.values() if waits_for_room(job, snapshot.now)]
        return sorted(waiting, key=lambda j: (-j.priority, j.submitted, j.key))[: self.heads]

    def _room_for(self, head: Job, movable: Mapping[JobKey, Job], snapshot: SharingSnapshot) -> list[Move]:
        """Moves after which the head's minimum fits, [] where there are none that are worth it."""
        capacity = Capacity(snapshot)
        needs = least_of(head)
        mark = capacity.mark()
        if place(capacity, head, needs, PACKED, snapshot) is not None:
            capacity.undo(mark)
            return []  # it waits for something else than room
        nodes = snapshot.nodes
        cleared: list[Job] = []
        standing = by_node(movable)
        for row in self._clearings(needs, standing, capacity, nodes):
            for job in standing[nodes.names[row]]:
                if job not in cleared:
                    leave(capacity, job, nodes)
                    cleared.append(job)
            if len(cleared) > self.most:
                break
            assignments = self._both(head, needs, cleared, capacity, snapshot)
            if assignments is not None:
                return self._worth(head, needs, cleared, assignments, snapshot)
        capacity.undo(mark)
        return []

    def _clearings(
        self, needs: Sequence[Need], standing: Mapping[str, Sequence[Job]], capacity: Capacity, nodes: Nodes
    ) -> Iterator[int]:
        """Nodes that would take more of the head without their movable jobs, fewest GPUs to clear first."""
        largest = needs[0].role.shape
        fits = capacity.fits(largest).copy()
        found = []
        for name, jobs in standing.items():
            row = nodes.index.get(name)
            if row is None or not nodes.open[row]:
                continue
            mark = capacity.mark()
            for job in jobs:
                leave(capacity, job, nodes)
            more = int(capacity.fits(largest)[row] - fits[row])
            capacity.undo(mark)
            if more > 0:
                gpus = sum(
                    m.shape.gpus for job in jobs for role in job.roles for m in role.on if m.node == name
                )
                found.append((gpus / more, name, row))
        for _, _, row in sorted(found):
            yield row

    def _both(
        self,
        head: Job,
        needs: Sequence[Need],
        cleared: Sequence[Job],
        capacity: Capacity,
        snapshot: SharingSnapshot,
    ) -> dict[JobKey, list[Assignment]] | None:
        """Spots of the cleared jobs beside the head, which is placed first; None where one finds none."""
        mark = capacity.mark()
        if place(capacity, head, needs, PACKED, snapshot) is None:
            capacity.undo(mark)
            return None
        assignments: dict[JobKey, list[Assignment]] = {}
        for job in sorted(cleared, key=lambda j: (-gpus_of(j), j.key)):
            found = place(capacity, job, as_bound(job), PACKED, snapshot)
            if found is None or len(rows_of(found)) > len(rows_on(job, snapshot.nodes)):
                capacity.undo(mark)
                return None
            assignments[job.key] = found
        capacity.undo(mark)
        return assignments

    def _worth(
        self,
        head: Job,
        needs: Sequence[Need],
        cleared: Sequence[Job],
        assignments: Mapping[JobKey, Sequence[Assignment]],
        snapshot: SharingSnapshot,
    ) -> list[Move]:
        """The moves, if the head gains more GPU-seconds than they cost; those that stay where they are left out."""
        moved = [job for job in cleared if rows_of(assignments[job.key]) != rows_on(job, snapshot.nodes)]
        sooner = min(self.horizon, self._until_room(head, needs, cleared, snapshot))
        gain = sooner * sum(need.count * need.role.shape.gpus for need in needs)
        cost = sum(self._cost(job) * gpus_of(job) for job in moved)
        if not moved or gain <= cost:
            return []
        asks = sum(need.count * need.role.shape.gpus for need in needs)
        return [
            move_to(
                job,
                assignments[job.key],
                snapshot.nodes,
                sooner,
                self._cost(job),
                f"makes room for {head.key.name}, whose {asks} GPUs are free but scattered: it starts up to "
                f"{sooner:.0f} s sooner, a change costs this job {self._cost(job):.0f} s",
            )
            for job in moved
        ]

    def _until_room(
        self, head: Job, needs: Sequence[Need], cleared: Sequence[Job], snapshot: SharingSnapshot
    ) -> float:
        """Seconds until the head would start anyhow: the first known end that makes room for it; infinite if none."""
        capacity = Capacity(snapshot)
        waiting = {job.key for job in cleared}
        known = [
            (left, key)
            for key, job in snapshot.jobs.items()
            if job.bound and key not in waiting and (left := self._left(job, snapshot)) <= self.horizon
        ]
        for left, key in sorted(known)[:32]:
            leave(capacity, snapshot.jobs[key], snapshot.nodes)
            mark = capacity.mark()
            if place(capacity, head, needs, PACKED, snapshot) is not None:
                return max(0.0, left)
            capacity.undo(mark)
        return math.inf

    # ---- 2 fewer nodes for a job that runs ----

    def _spread(self, snapshot: SharingSnapshot) -> list[Job]:
        """Jobs that run on several nodes, and whose speed on fewer may be known."""
        jobs = [job for job in snapshot.jobs.values() if job.started and job.bound > 1]
        return [j for j in jobs if speed_of(j, snapshot) is not None and len(rows_on(j, snapshot.nodes)) > 1]

    def _faster(self, jobs: Sequence[Job], snapshot: SharingSnapshot) -> list[Move]:
        """The moves to fewer nodes that gain most GPU-seconds, each in the room that those before it leave."""
        capacity = Capacity(snapshot)
        found: list[tuple[float, JobKey]] = []
        for job in jobs:
            mark = capacity.mark()
            move = self._on_fewer(job, capacity, snapshot)
            capacity.undo(mark)
            if move is not None:
                found.append(((move.cost - move.gain) * gpus_of(job), job.key))
        result: list[Move] = []
        for _, key in sorted(found):
            mark = capacity.mark()
            move = self._on_fewer(snapshot.jobs[key], capacity, snapshot) if len(result) < self.most else None
            if move is None:
                capacity.undo(mark)  # a move before it took the place
            else:
                result.append(move)
        return result

    def _on_fewer(self, job: Job, capacity: Capacity, snapshot: SharingSnapshot) -> Move | None:
        """The move to fewer nodes, taken in the room; None where there is none that is worth it."""
        before, speed = rows_on(job, snapshot.nodes), speed_of(job, snapshot)
        leave(capacity, job, snapshot.nodes)
        assignments = place(capacity, job, as_bound(job), PACKED, snapshot)
        if speed is None or assignments is None or len(rows_of(assignments)) >= len(before):
            return None
        if racks(rows_of(assignments), snapshot.nodes, self.rack) > racks(before, snapshot.nodes, self.rack):
            return None
        now, then = speed(config_now(job, snapshot)), speed(config_on(job, assignments, snapshot))
        if not (now > 0.0 and then > now and math.isfinite(then)):
            return None
        gain, cost = (then - now) / now * min(self.horizon, self._left(job, snapshot)), self._cost(job)
        if gain <= cost:
            return None
        words = (
            f"on {plural(len(rows_of(assignments)), 'node')} in place of {len(before)} it would gain {gain:.0f} s "
            f"within {self.horizon:.0f} s, a change costs {cost:.0f} s"
        )
        return move_to(job, assignments, snapshot.nodes, gain, cost, words)
