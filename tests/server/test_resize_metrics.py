"""What is counted of elastic jobs from one View to the next: what was observed, and why, by the plan before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from muster.core.views.view import View
from muster.points import Profile
from muster.server.resize_metrics import Resizes
from muster.types import Config, Facts, Job, Plan, Reason, Reservation, Shrink, State, Status
from tests.scenario import FIFO, job, key, snapshot


def view(
    *jobs: Job,
    plan: Plan | None = None,
    leading: bool = True,
    profile: Profile = FIFO,
    state: State = State.RUNNING,
) -> View:
    """A View of jobs, each in one state."""
    statuses = {one.key: Status(state, Reason.OK, "") for one in jobs}
    plan = replace(plan or Plan(), statuses=statuses)
    return View(snapshot(jobs=jobs), plan, profile, leading=leading)


def elastic(
    on: int,
    shares: Sequence[int] = (),
    speeds: Mapping[int, float] | None = None,
    costs: Sequence[float] = (),
    moves: int = 0,
    ended: int = 0,
) -> Job:
    """A job of 1 to 8 replicas on `on` nodes: the last shares (one a second), measured speeds, costs."""
    facts = Facts(
        shares=tuple((float(at), count) for at, count in enumerate(shares)), costs=tuple(costs), moves=moves
    )
    samples = {Config((("worker", count),)): speed for count, speed in (speeds or {}).items()}
    nodes = [f"n{n}" for n in range(on)]
    return job("train", worker=8, least=1, on=nodes, facts=facts, samples=samples, ended=ended)


TRAIN = key("train")
GROWS = Plan(reservations={TRAIN: (Reservation("worker", "n1"),)}, shares={TRAIN: 2})
SHRINKS = Plan(shrinks=(Shrink(TRAIN, "worker", "u", "p", "n1", "its share is 1"),), shares={TRAIN: 1})


def counted(*views: View) -> dict[str, float]:
    """What is not 0 after the Views: resizes by direction/cause, sums of the histograms by name."""
    registry = CollectorRegistry()
    resizes = Resizes(registry)
    for one in views:
        resizes.look(one)
    found: dict[str, float] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = "/".join(value for name, value in sample.labels.items() if name != "le")
            if sample.value and sample.name.endswith(("_total", "_sum")):
                found[f"{sample.name.removeprefix('muster_')} {labels}".strip()] = round(sample.value, 3)
    return found


def test_a_growth_that_was_planned_is_counted_when_it_is_seen() -> None:
    assert counted(view(elastic(1, [1]), plan=GROWS)) == {}
    assert counted(view(elastic(1, [1]), plan=GROWS), view(elastic(2, [1, 2]))) == {
        "resizes_total grow/share": 1
    }


def test_a_restart_counts_nothing_again_and_who_does_not_lead_counts_nothing() -> None:
    assert counted(view(elastic(2, [1, 2, 1, 2]))) == {}
    standing_by = [view(elastic(1, [1]), plan=GROWS, leading=False), view(elastic(2, [1, 2]), leading=False)]
    assert counted(*standing_by) == {}
    assert counted(*standing_by, view(elastic(1, [1, 2, 1]))) == {"resizes_total shrink/other": 1}


def test_causes_are_told_by_the_plan_in_force_before() -> None:
    two, one, none = elastic(2, [2]), elastic(1, [2, 1]), elastic(0, [2, 0])
    after = view(one)
    assert counted(view(two, plan=SHRINKS), after) == {"resizes_total shrink/share": 1}
    assert counted(view(two), after) == {"resizes_total shrink/other": 1}  # a node died
    back = Plan(back={TRAIN: "not whole in time"})
    assert counted(view(two, plan=back), view(none)) == {"resizes_total stop/timeout": 1}
    way = Plan(preempted={TRAIN: "preempted whole by a job of priority 5"})
    assert counted(view(two, plan=way), view(none)) == {"resizes_total stop/preempted": 1}
    nothing = Plan(preempted={TRAIN: "its share is 0"}, shares={TRAIN: 0})
    assert counted(view(two, plan=nothing), view(none)) == {"resizes_total stop/share": 1}


def test_replicas_that_have_run_to_their_end_are_no_shrink_by_anybody() -> None:
    assert counted(view(elastic(2, [2])), view(elastic(1, [2, 1], ended=1))) == {
        "resizes_total shrink/ended": 1
    }
    over = view(elastic(0, [2, 0]), state=State.FINISHED)
    assert counted(view(elastic(2, [2]), plan=SHRINKS), over) == {"resizes_total stop/ended": 1}


def test_a_move_keeps_the_number_and_changes_the_nodes() -> None:
    leaves = Shrink(TRAIN, "worker", "u", "p", "n1", "it is moved")
    moving = Plan(shrinks=(leaves,), shares={TRAIN: 2}, later={TRAIN: (Reservation("worker", "n5"),)})
    assert counted(view(elastic(2, [2]), plan=moving), view(elastic(2, [2], moves=1))) == {
        "resizes_total move/move": 1
    }


def test_several_changes_between_two_views_are_all_counted() -> None:
    assert counted(view(elastic(1, [1])), view(elastic(3, [1, 0, 2, 3]))) == {
        "resizes_total stop/other": 1,
        "resizes_total start/other": 1,
        "resizes_total grow/other": 1,
    }


def test_each_measured_cost_is_counted_once() -> None:
    before = elastic(2, [2], costs=[5.0, 6.0, 7.0])
    assert counted(view(before), view(elastic(2, [2], costs=[6.0, 7.0, 30.0]))) == {
        "resize_cost_seconds_sum": 30.0
    }
    assert counted(view(elastic(2, [2])), view(elastic(2, [2], costs=[4.0, 5.0]))) == {
        "resize_cost_seconds_sum": 9.0
    }


@pytest.mark.parametrize(("declared", "error"), [((), 0.9), (((1, 1.0), (2, 1.5)), 1.2)])
def test_what_a_size_gained_is_compared_with_what_was_expected_when_it_was_decided(
    declared: tuple[tuple[int, float], ...], error: float
) -> None:
    """Nothing declared is linear: twice as fast was expected, 1.8 times was measured."""
    alone = replace(elastic(1, [1], {1: 10.0}), speed=declared)
    grown = replace(elastic(2, [1, 2], {1: 10.0}), speed=declared)
    told = replace(elastic(2, [1, 2], {1: 10.0, 2: 18.0}), speed=declared)
    views = [view(alone, plan=GROWS), view(grown), view(told)]
    assert counted(*views, view(told)) == {
        "resizes_total grow/share": 1,
        "resize_gain_ratio_sum grow": 1.8,
        "speed_estimate_ratio_sum": error,
    }


def test_a_size_that_was_measured_before_tells_nothing_new() -> None:
    both = {1: 10.0, 2: 18.0}
    assert counted(
        view(elastic(1, [2, 1], both), plan=GROWS),
        view(elastic(2, [2, 1, 2], both)),
        view(elastic(2, [2, 1, 2], {1: 10.0, 2: 19.0})),
    ) == {"resizes_total grow/share": 1}


def test_jobs_that_are_gone_are_forgotten() -> None:
    resizes = Resizes(CollectorRegistry())
    resizes.look(view(elastic(1, [1])))
    assert len(resizes._known) == 1
    resizes.look(view())
    assert not resizes._known
