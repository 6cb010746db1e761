"""What /metrics tells of the newest View, worked out at each scrape.

Counts only: a label a job would make a series of every job that ever was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from muster.core.view import Board
from muster.types import GPU, State


class ViewCollector(Collector):
    """Gauges of jobs, queue, GPUs and this replica's part."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing known beforehand: names are unique by their prefix."""
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One reading of one View."""
        view = self._board.view
        snapshot, plan = view.snapshot, view.plan
        states = Counter(status.state for status in plan.statuses.values())
        jobs = GaugeMetricFamily("muster_jobs", "Jobs by state.", labels=["state"])
        for state in State:
            jobs.add_metric([state.value], states[state])
        yield jobs
        codes = Counter(s.code for s in plan.statuses.values() if s.state is State.WAITING)
        waiting = GaugeMetricFamily(
            "muster_jobs_waiting", "Waiting jobs by what they wait for.", labels=["code"]
        )
        for code, count in sorted(codes.items()):
            waiting.add_metric([code.value], count)
        yield waiting
        longest = max((snapshot.now - snapshot.jobs[k].submitted for k in plan.order), default=0.0)
        yield GaugeMetricFamily(
            "muster_longest_wait_seconds", "Age of the oldest job in the queue.", max(0.0, longest)
        )
        column = snapshot.nodes.resource_index.get(GPU)
        for name, text, rows in (
            ("muster_gpus", "GPUs that nodes offer.", snapshot.nodes.total),
            ("muster_gpus_free", "GPUs that no pod uses and no plan holds.", view.free),
        ):
            yield GaugeMetricFamily(name, text, 0 if column is None else int(rows[:, column].sum()))
        for name, text, value in (
            ("muster_nodes", "Nodes known.", len(snapshot.nodes)),
            ("muster_held_pods", "Pods that the plan holds a place for.", len(view.holds)),
            ("muster_ungated_pods", "Pods of ours created without the gate; left alone.", view.ungated),
            ("muster_leading", "1 where this replica acts.", int(view.leading)),
            ("muster_synced", "1 after the first list of every watch.", int(view.synced)),
            ("muster_snapshot_timestamp_seconds", "Unix time of the newest plan.", snapshot.now),
        ):
            yield GaugeMetricFamily(name, text, value)
