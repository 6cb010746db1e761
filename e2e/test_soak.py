"""The short form of `make soak`: 60 seconds of 50 arrivals a minute, watched by the referee."""

from __future__ import annotations

import pytest

from e2e.cluster import Cluster
from e2e.elastic import replayed, shared_by
from e2e.lab import Lab
from e2e.soak.__main__ import COST, summary
from e2e.soak.checker import Rules
from e2e.soak.drive import Course, drive

pytestmark = pytest.mark.lab


def test_jobs_that_come_and_go_all_the_time_break_no_rule(lab: Lab, cluster: Cluster, namespace: str) -> None:
    course = Course(seconds=60.0, rate=50.0, life=30.0, seed=5, after=5.0)
    rules = Rules(dict.fromkeys(lab.nodes, 8), cost=COST["cost"], overhead=COST["overhead"])
    with shared_by(lab, "max-min", resizeCost=True, pluginArgs={"resize-cost": COST}):
        snapshots = 0

        def show(*_: object) -> None:
            nonlocal snapshots
            snapshots += 1
            if snapshots % 10 == 0:
                replayed(lab, cluster)

        outcome = drive(cluster, namespace, rules, course, show)
    told = summary(outcome)
    assert outcome.faults == [], told
    assert outcome.tally.starts >= 0.9 * outcome.tally.arrivals, told
    assert outcome.tally.growths + outcome.tally.shrinks > 10, told
