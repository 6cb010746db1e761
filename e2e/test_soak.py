"""The short form of `make soak`: 60 seconds of 50 arrivals a minute, watched by the referee."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.cluster import Cluster
from e2e.elastic import replayed, shared_by
from e2e.lab import Lab
from e2e.soak.__main__ import COST, summary
from e2e.soak.arrivals import Course
from e2e.soak.checker import Rules
from e2e.soak.drive import drive

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

COURSES = (
    Course(seconds=60.0, rate=50.0, life=30.0, seed=5, after=5.0),
    Course(seconds=240.0, rate=20.0, life=120.0, seed=5, after=30.0),
)
"""The second one is for a machine on which the jobs of the first hardly begin before they are over."""


def test_jobs_that_come_and_go_all_the_time_break_no_rule(
    lab: Lab, cluster: Cluster, new_namespace: Callable[[], str]
) -> None:
    # On a machine that others use, too, what `make soak` allows 10 s may stand still for longer.
    rules = Rules(dict.fromkeys(lab.nodes, 8), idle=30.0, cost=COST["cost"], overhead=COST["overhead"])
    snapshots = changes = 0

    def show(*_: object) -> None:
        nonlocal snapshots
        snapshots += 1
        if snapshots % 10 == 0:
            replayed(lab, cluster)

    with shared_by(lab, "max-min", resizeCost=True, pluginArgs={"resize-cost": COST}):
        for course in COURSES:
            outcome = drive(cluster, new_namespace(), rules, course, show)
            told = summary(outcome)
            assert outcome.faults == [], told
            assert outcome.tally.starts >= 0.9 * (outcome.tally.arrivals - outcome.tally.brief), told
            changes += outcome.tally.growths + outcome.tally.shrinks
            if changes > 10:
                break
    assert changes > 10, told
