"""What /metrics tells of the newest View, worked out at each scrape; what changed over time is in `resizes`.

Counts only: a label a job would make a series of every job that ever was.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster.core.views.safe_rendering import shown
from muster.core.views.view import Board, View
from muster.types import EndReason, Job, Phase, Role, State

FRESH = 1.0
"""Seconds for which what was counted is told again."""


class ViewCollector(Collector):
    """Gauges of jobs, queue, GPUs and this replica's part: counted once in FRESH seconds, however many ask, since
    going over all jobs takes the time that the verbs and the planner want."""

    def __init__(self, board: Board, fresh: float = FRESH, clock: Callable[[], float] = monotonic) -> None:
        self._board, self._fresh, self._clock = board, fresh, clock
        self._counted: list[Metric] = []
        self._until = -math.inf
        self._turn = threading.Lock()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing known beforehand: names are unique by their prefix."""
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """One reading of one View, not older than FRESH seconds."""
        with self._turn:
            if self._clock() >= self._until:
                self._counted = shown(self._board, lambda view: list(self._count(view)))
                self._until = self._clock() + self._fresh
            counted = self._counted
        yield from counted

    def _count(self, view: View) -> Iterator[Metric]:
        snapshot, plan = view.snapshot, view.plan
        states = Counter(status.state for status in plan.statuses.values())
        jobs = GaugeMetricFamily("muster_jobs", "Jobs by state.", labels=["state"])
        for state in State:
            jobs.add_metric([state.value], states[state])
        yield jobs
        reasons = Counter(s.reason for s in plan.statuses.values() if s.state is State.WAITING)
        waiting = GaugeMetricFamily(
            "muster_jobs_waiting", "Waiting jobs by what they wait for.", labels=["reason"]
        )
        for reason, count in sorted(reasons.items()):
            waiting.add_metric([reason.value], count)
        yield waiting
        ended = CounterMetricFamily("muster_evictions", "Pods that Muster ended, by why.", labels=["reason"])
        for why in EndReason:
            ended.add_metric([why.value], view.ended.get(why, 0))
        yield ended
        silent = sum(1 for job in snapshot.jobs.values() if job.silent)
        text = "Running jobs whose training reported, and has been silent for too long."
        yield GaugeMetricFamily("muster_jobs_silent", text, silent)
        longest = max((snapshot.now - snapshot.jobs[k].submitted for k in plan.order), default=0.0)
        yield GaugeMetricFamily(
            "muster_longest_wait_seconds", "Age of the oldest job in the queue.", max(0.0, longest)
        )
        for name, text, rows in (
            ("muster_gpus", "GPUs that nodes offer, of any maker, and MIG devices.", snapshot.nodes.total),
            ("muster_gpus_free", "GPUs that no pod uses and no plan holds.", view.free),
        ):
            yield GaugeMetricFamily(name, text, int(snapshot.nodes.gpus(rows).sum()))
        for name, text, rows in (
            (
                "muster_mig_slices",
                "Compute slices of the MIG devices that nodes offer.",
                snapshot.nodes.total,
            ),
            ("muster_mig_slices_free", "Those of MIG devices that no pod uses and no plan holds.", view.free),
        ):
            yield GaugeMetricFamily(name, text, int(snapshot.nodes.mig_slices(rows).sum()))
        yield from _shares(view)
        for name, text, value in (
            ("muster_nodes", "Nodes known.", len(snapshot.nodes)),
            ("muster_held_pods", "Pods that the plan holds a place for.", len(view.reservations)),
            ("muster_ungated_pods", "Pods of ours created without the gate; left alone.", view.ungated),
            ("muster_leading", "1 where this replica acts.", int(view.leading)),
            ("muster_synced", "1 after the first list of every watch.", int(view.synced)),
            ("muster_snapshot_timestamp_seconds", "Unix time of the newest plan.", snapshot.now),
        ):
            yield GaugeMetricFamily(name, text, value)


APART = frozenset({State.FINISHED, State.SUSPENDED, State.INVALID, State.INCOMPLETE})
"""States of jobs that want no GPUs now."""


def _shares(view: View) -> Iterator[GaugeMetricFamily]:
    """What jobs are granted, between what they need at least and what they may have at most."""
    jobs, reservations = view.snapshot.jobs, view.plan.reservations
    granted = least = most = 0
    at: Counter[str] = Counter()
    for key, job in jobs.items():
        status = view.plan.statuses.get(key)
        if status is None or status.state in APART:
            continue
        held = Counter(
            reservation.role
            for reservation in reservations.get(key, ())
            if reservation.uid not in _bound(job)
        )
        counts = {role.name: role.bound + held[role.name] for role in job.roles}
        granted += sum(counts[role.name] * role.shape.gpus for role in job.roles)
        least += job.gpus
        most += sum(role.max * role.shape.gpus for role in job.roles)
        if job.elastic is not None:
            at[_place(counts[job.elastic.name], job.elastic)] += 1
    yield GaugeMetricFamily("muster_gpus_granted", "GPUs of replicas that run or have a place.", granted)
    wanted = GaugeMetricFamily(
        "muster_gpus_wanted",
        "GPUs that jobs need to start, and that they may have at most.",
        labels=["bound"],
    )
    wanted.add_metric(["least"], least)
    wanted.add_metric(["most"], most)
    yield wanted
    shares = GaugeMetricFamily(
        "muster_jobs_by_share",
        "Jobs by where their share is between their minimum and maximum.",
        labels=["share"],
    )
    for share in ("none", "fixed", "least", "between", "most"):
        shares.add_metric([share], at[share])
    yield shares


def _bound(job: Job) -> set[str]:
    return {m.uid for role in job.roles for m in role.on if m.phase is Phase.BOUND}


def _place(count: int, role: Role) -> str:
    if not count:
        return "none"
    if role.min == role.max:
        return "fixed"
    if count >= role.max:
        return "most"
    return "least" if count <= max(1, role.min) else "between"
