"""How pods of ours are ended and come back: evictions, whole gangs sent back, nodes left out after a refusal.

`evict` is the one action that ends a pod of ours (design §1); a pod is never asked for twice while an answer is
awaited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from muster.core.entry import Entry
from muster.core.halfdone import by_job
from muster.core.memory import Memory
from muster.core.owners import succeeded
from muster.core.telling import told
from muster.types import Action, Bar, Evict, Hold, JobKey, Phase, Retrack

BAR_FIRST, BAR_MOST = 5.0, 1280.0
"""Seconds for which a refused node is left out for a role: the first time, doubling up to the most. Short at first:
kube-scheduler's cache may only have been behind, and the gang may have no other node."""
BACKOFF_FIRST, BACKOFF_DOUBLINGS = 10.0, 6
"""Seconds before a job whose start did not complete is tried again, doubling so many times."""
BUDGETS_READ = 2.0
"""Seconds that an Event about a budget waits for what the budget counts."""


class Endings(Memory):
    """What is remembered, and how pods are ended; the Ledger says when."""

    def _leftovers(self, entry: Entry, now: float) -> Iterator[Action]:
        """A work-queue Job ends when one pod has succeeded and all have ended: those that wait are taken away."""
        held: set[str] | None = None
        over: dict[str, bool] = {}  # by owner: asked once for all of its pods
        for pod in entry.pods.values():
            if pod.phase is not Phase.GATED or pod.controller is None:
                continue
            uid = pod.controller.uid
            if uid not in over:
                record = self._owners.records.get(uid)
                over[uid] = bool(record and record.queue and succeeded(record, entry.pods.values()))
            if not over[uid]:
                continue
            if held is None:
                held = {h.uid for h in entry.planned}
            if pod.uid not in held:
                yield from self._evict(entry.key, pod.uid, "a replica of its work queue has succeeded", now)

    def _busy(self, uid: str, now: float) -> bool:
        if any(
            (kind, uid) in self._in_flight for kind in ("ungate", "nominate", "evict", "expose", "retrack")
        ):
            return True
        until = self._retry.get(uid, 0.0)
        if until > now:
            self._wakes.add(until)
            return True
        return False

    def _evict(self, key: JobKey, uid: str, cause: str, now: float) -> Iterator[Action]:
        entry = self._entries.get(key)
        pod = entry.pods.get(uid) if entry is not None else None
        if entry is None or pod is None or pod.phase.ended or pod.deleting or self._busy(uid, now):
            return
        self._in_flight.add(("evict", uid))
        if pod.controller is not None:
            entry.returning = now
        yield Evict(key, uid, pod.name, pod.version, pod.tracked, cause, by_job(pod))

    def _goes(self, entry: Entry, uid: str) -> None:
        """The API has taken the eviction: the pod is on its way out before the watch tells, and not evicted again."""
        pod = entry.pods.get(uid)
        if pod is not None and not pod.deleting and not pod.phase.ended:
            on_node = pod.phase is Phase.BOUND
            self._join(replace(pod, deleting=True, phase=Phase.ENDING if on_node else pod.phase))

    def _put_back(self, now: float) -> Iterator[Action]:
        """Evictions that were begun, and that nobody goes on with: their pods stay, and are counted again. A Job that
        is over or gone counts nothing any more, and takes its finalizers off by itself."""
        for uid in sorted(self._half_done):
            entry = self._entries.get(self._job_of[uid])
            pod = entry.pods.get(uid) if entry is not None else None
            if entry is None or pod is None or pod.controller is None or self._busy(uid, now):
                continue
            record = self._owners.records.get(pod.controller.uid)
            if record is None or not record.size:
                continue
            self._in_flight.add(("retrack", uid))
            yield Retrack(entry.key, uid, pod.name, "it stays after all, and its Job is to count it")

    def _guard(self, now: float) -> Iterator[Action]:
        """Jobs that a PodDisruptionBudget keeps from becoming smaller: budgets are read, and owners are told."""
        wanted = frozenset((key.namespace,) for key in self._guarded)
        if wanted != self.guarded:
            self.guarded = wanted
            for namespace in self._budgets.keys() - {name for (name,) in wanted}:
                del self._budgets[namespace]
        for key in sorted(self._guarded):
            entry = self._entries[key]
            job = entry.job
            if job is None or not job.keeps or job.keeps == entry.keeps_said:
                continue
            if (
                key.namespace not in self._budgets
                and entry.keeps_until - now > entry.keeps_for - BUDGETS_READ
            ):
                self._wakes.add(entry.keeps_until - entry.keeps_for + BUDGETS_READ)
                continue
            entry.keeps_said = job.keeps
            yield from told(key, job, "DisruptionBudget", job.keeps, warning=True)

    def _leave_out(self, key: JobKey, role: str, node: str, now: float) -> None:
        """The node was refused: the next plans do without it for that role, for a time that doubles."""
        entry = self._entries.get(key)
        if entry is None:
            return
        before = entry.barred.get((role, node))
        if before is not None and before.until > now:
            return
        length = min(before.length * 2 if before is not None else BAR_FIRST, BAR_MOST)
        self._bar(entry, Bar(role, node, now + length, length))

    def _send_back(self, key: JobKey, why: str, now: float) -> Iterator[Action]:
        """A start that did not complete: every replica that can come back does, after a growing pause."""
        entry = self._entries.get(key)
        if entry is None or entry.job is None:
            return
        if entry.not_before <= now:
            entry.backoff += 1
            pause = BACKOFF_FIRST * 2 ** min(entry.backoff - 1, BACKOFF_DOUBLINGS)
            entry.not_before = now + pause
            self._wakes.add(entry.not_before)
        yield from self._all_back(key, why, now)

    def _all_back(self, key: JobKey, why: str, now: float) -> Iterator[Action]:
        """Every replica that an owner re-creates is evicted, and the job's places are given up."""
        entry = self._entries.get(key)
        if entry is None or entry.job is None:
            return
        self._set_holds(entry, tuple(h for h in entry.planned if self._cannot_return(entry, h)))
        entry.below_since, entry.sent_back = 0.0, True
        self._dirty.add(key)
        for member in (m for r in entry.job.roles for m in r.members if m.evictable):
            if member.phase in (Phase.UNGATED, Phase.BOUND):
                yield from self._evict(key, member.uid, why, now)

    def _cannot_return(self, entry: Entry, hold: Hold) -> bool:
        """A bare pod whose gate is off keeps its place: nothing would re-create it."""
        pod = entry.pods.get(hold.uid) if hold.uid else None
        return pod is not None and pod.phase is Phase.UNGATED and pod.controller is None
