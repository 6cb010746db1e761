"""The short form of `make chaos`: a minute in which something breaks every few seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.chaos.__main__ import LIFE, RATE, shape_of, summary
from e2e.chaos.drive import drive
from e2e.cluster import Cluster
from e2e.kind.lab import not_on_kind
from e2e.lab import Lab, Shape
from e2e.labs import ON_KIND
from e2e.scenario import a_namespace
from e2e.soak.arrivals import Course

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]
COURSE = Course(seconds=60.0, rate=RATE, life=LIFE, seed=7)


# Its own referee has bounds for who is frozen and killed on purpose.
@pytest.mark.unsound("the bounds of scenarios are none for a lab in which everything breaks")
def test_whatever_breaks_for_a_minute_every_job_is_done_whole_or_says_why_it_waits(
    new_lab: Callable[[Shape], Lab], tmp_path: Path
) -> None:
    if ON_KIND:
        not_on_kind("troubles for each process of a lab by itself")
    lab = new_lab(shape_of("max-min", tmp_path / "values.yaml"))
    cluster = Cluster(lab.kubeconfig)
    with a_namespace(cluster, "chaos") as namespace:
        outcome = drive(lab, cluster, namespace, COURSE, tmp_path / "troubles.log", print)
    assert outcome.faults == [], summary(outcome)
    assert outcome.troubles >= 5, summary(outcome)
    assert outcome.arrivals >= 10, summary(outcome)
    assert outcome.reports, summary(outcome)
