"""Rebalance `defragment`: whole places for a job that waits, and jobs on fewer nodes (design §4).

Two reasons to place a running job again, in this order:
1 *room* (`defragment_room`): a waiting job's minimum is free by count, but scattered. The jobs on the nodes that are
  cleared with the fewest GPUs are placed on others, if the waiting job then fits. Gain: it starts up to `horizon` s
  sooner, counted by its GPUs; cost: what a change costs each moved job, counted by theirs.
2 *speed* (`defragment_speed`): a job fits on fewer nodes, and its speed there is known (the profile's
  `Estimation.speed`, else what was measured with as many replicas). Gain: (v' - v) / v of the time that it still
  runs, `horizon` at most; cost: of a change.
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

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from muster.core.sharing.moving import (
    can_change,
    changed_at,
    on_its_way,
    on_shared_gpus,
    rows_on,
    speed_of,
    waits_for_room,
)
from muster.types import Job, JobKey, Move, SharingSnapshot
from muster_plugins.defragment_room import room_for
from muster_plugins.defragment_speed import faster
from muster_plugins.defragment_terms import Terms


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
        if sum(1 for job in snapshot.jobs.values() if on_its_way(job)) >= self.most:
            return []
        shared = on_shared_gpus(snapshot)
        terms = Terms(snapshot, self.horizon, self.cost, self.most, self.rack)
        if heads:
            movable = {k: job for k, job in snapshot.jobs.items() if self._movable(job, terms, shared)}
            for head in heads if movable else ():
                found = room_for(head, movable, terms)
                if found:
                    return found
        return faster([job for job in spread if self._movable(job, terms, shared)], terms)

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        """When the next running job's cooldown is over."""
        ends = [changed_at(job) + self.cooldown for job in snapshot.jobs.values() if job.started]
        return min((end for end in ends if end > snapshot.now), default=None)

    # ---- who may move ----

    def _movable(self, job: Job, terms: Terms, shared: Collection[JobKey]) -> bool:
        if not job.started or not job.bound or terms.snapshot.now < changed_at(job) + self.cooldown:
            return False
        return can_change(job, shared) and terms.left(job) > self.ending

    def _heads(self, snapshot: SharingSnapshot) -> list[Job]:
        waiting = [job for job in snapshot.jobs.values() if waits_for_room(job, snapshot.now)]
        return sorted(waiting, key=lambda j: (-j.priority, j.submitted, j.key))[: self.heads]

    def _spread(self, snapshot: SharingSnapshot) -> list[Job]:
        """Jobs that run on several nodes, and whose speed on fewer may be known."""
        jobs = [job for job in snapshot.jobs.values() if job.started and job.bound > 1]
        return [j for j in jobs if speed_of(j, snapshot) is not None and len(rows_on(j, snapshot.nodes)) > 1]
