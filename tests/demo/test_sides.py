"""What the demo's three runs change of Muster, and what is shown of them."""

from __future__ import annotations

import io

from rich.console import Console

from e2e.demo.course import Course, Sighting
from e2e.demo.show import Show
from e2e.demo.sides import SIDES
from e2e.demo.workload import Submission


def test_the_sides_differ_by_scheduler_and_profile_and_musters_times_are_compressed() -> None:
    default, gangs, elastic = SIDES
    assert (default.scheduler, gangs.scheduler, elastic.scheduler) == (
        "default-scheduler",
        "muster",
        "muster",
    )
    assert [side.elastic for side in SIDES] == [False, False, True]
    assert default.values(30.0) == ()
    assert gangs.values(30.0) == ("profile=fifo", "config.patience=10.0s")
    assert elastic.values(30.0) == (
        "profile=afs-l",
        "config.patience=10.0s",
        "config.estimate=declared",
        "config.pluginArgs.resize-cost.cost=1",
        "config.pluginArgs.resize-cost.horizon=20",
    )


def test_without_a_terminal_each_run_has_lines_of_its_own() -> None:
    course = Course(0.0)
    course.submitted(Submission("a", 0.0, 60.0, pods=2, pod_gpus=4), 0.0)
    course.saw(Sighting("a", 1, "a-0", bound=True), 1.0)
    out = io.StringIO()
    courses = {"gangs": course, "elastic": Course(0.0)}
    with Show(Console(file=out, width=200), gpus=16, jobs=1, limit=7200.0, courses=courses) as show:
        show.step("gangs", 61.0)
        show.step("gangs", 62.0)  # a moment later: no line
        show.step("elastic", 61.0)
    first, second = out.getvalue().splitlines()
    assert first.startswith("gangs    0:01:01 of at most 2:00:00  queue   0  running   0  partly bound  1")
    assert first.endswith("GPUs:   0 busy,   4 held,  12 free")
    assert second.startswith("elastic  0:01:01")
