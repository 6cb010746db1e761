"""Tiresias and Optimus as Pollux's artifact has them: their rules, and every job of its workload 6 to the second."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.reproduce import pollux as reference
from muster.points import Profile, load
from muster.profiles import build
from muster.types import Facts, Job, Meter, Plan, Report
from tests.scenario import NOW, job, plan, snapshot

TIRESIAS, OPTIMUS = build("tiresias-pollux"), build("optimus-pollux")
HOURS_16 = 16 * 3600.0


def at_a_round(profile: Profile) -> Profile:
    """The profile without its rounds: scenarios are at any time."""
    return replace(profile, round=0.0)


def rigid(name: str, count: int, served: float = 0.0, **more: object) -> Job:
    return job(name, worker=count, request=count, least=1, facts=Facts(gpu_seconds=Meter(served)), **more)


def granted(found: Plan) -> dict[str, int]:
    return {key.name: count for key, count in found.shares.items() if count}


def places(found: Plan) -> dict[str, list[str]]:
    """Nodes of new places, in the order in which they were given."""
    new: dict[str, list[str]] = {}
    for source in (found.reservations, found.later):
        for key, reservations in source.items():
            new.setdefault(key.name, []).extend(h.node for h in reservations)
    return {name: nodes for name, nodes in new.items() if nodes}


# ---- Tiresias ----


def tiresias(jobs: list[Job], nodes: int = 2, gpus: int = 4) -> Plan:
    return plan(snapshot(nodes, gpus, jobs=jobs), at_a_round(TIRESIAS))


def test_a_job_of_sixteen_gpu_hours_falls_behind_those_that_have_had_less() -> None:
    """Though it was submitted first. It never comes back: what it fell at is kept."""
    old = rigid("old", 8, HOURS_16, submitted=NOW - 90)
    found = tiresias([old, rigid("new", 8)])
    assert granted(found) == {"new": 8}
    assert {key.name: kept for key, kept in found.memory.items()} == {
        "old": {"tiresias-pollux": {"fell": NOW}}
    }


def test_below_the_threshold_submission_decides() -> None:
    found = tiresias([rigid("old", 8, HOURS_16 - 1, submitted=NOW - 90), rigid("new", 8)])
    assert granted(found) == {"old": 8}
    assert not found.memory


def test_the_second_queue_is_in_the_order_in_which_jobs_fell() -> None:
    def fell(at: float) -> Mapping[str, object]:
        return {"tiresias-pollux": {"fell": at}}

    late = rigid("late", 8, HOURS_16, memory=fell(NOW - 10), submitted=NOW - 99)
    early = rigid("early", 8, HOURS_16, memory=fell(NOW - 20))
    assert granted(tiresias([late, early])) == {"early": 8}


def test_a_job_that_does_not_fit_is_skipped_and_gets_nothing_rather_than_a_part() -> None:
    assert granted(tiresias([rigid("a", 6), rigid("b", 4), rigid("c", 2)])) == {"a": 6, "c": 2}


def test_a_job_that_is_not_among_them_goes_back_whole_and_others_stay_where_they_are() -> None:
    stays = rigid("stays", 4, on=["n0"] * 4)
    goes = rigid("goes", 4, HOURS_16, on=["n1"] * 4)
    found = tiresias([stays, goes, rigid("comes", 4)])
    assert set(found.preempted) == {goes.key}
    assert places(found) == {"comes": ["n1"] * 4}


def test_the_emptiest_node_is_filled_first_as_it_is_when_all_that_leaves_is_gone() -> None:
    """n0 has three free GPUs now, n1 four once its job has gone."""
    one, goes = rigid("one", 1, on=["n0"]), rigid("goes", 4, HOURS_16, on=["n1"] * 4)
    assert places(tiresias([one, goes, rigid("two", 2), rigid("five", 5)])) == {
        "two": ["n1"] * 2,
        "five": ["n0"] * 3 + ["n1"] * 2,
    }


# ---- Optimus ----


def elastic(
    name: str, work: float, *, most: int = 8, step: float = 0.0, on: list[str] | None = None, **more: object
) -> Job:
    """A job of `work` seconds on one GPU that halves its time with two, and so on: n^0.8 times as fast with n."""
    speed = tuple((n, n**0.8) for n in range(1, most + 1))
    words = {"report": Report(NOW, step=step, total=100.0), **more}
    return job(name, worker=most, least=1, speed=speed, remaining_work=work, on=on or [], **words)


def optimus(jobs: list[Job], nodes: int = 2, gpus: int = 4) -> Plan:
    return plan(snapshot(nodes, gpus, jobs=jobs), at_a_round(OPTIMUS))


def test_each_job_gets_one_gpu_first_in_order_of_submission() -> None:
    jobs = [elastic(f"j{i}", 1000.0 * i) for i in range(10)]
    assert granted(optimus(jobs)) == {f"j{i}": 1 for i in range(8)}


def test_then_each_gpu_goes_where_it_takes_most_off_the_remaining_time() -> None:
    """1,000 s: 1 -> 2 GPUs saves 426, 2 -> 3 159, 3 -> 4 85; 100 s: a tenth of it. Six more to give."""
    assert granted(optimus([elastic("small", 100.0), elastic("large", 1000.0)])) == {"small": 2, "large": 6}


def test_what_is_left_is_what_the_job_reports() -> None:
    """95 of its 100 iterations are done: 1,000 s of work are 50."""
    assert granted(optimus([elastic("small", 100.0), elastic("large", 1000.0, step=95.0)])) == {
        "small": 5,
        "large": 3,
    }


def test_a_job_gets_no_more_than_its_most_and_one_that_gains_nothing_stays_at_one() -> None:
    flat = job("flat", worker=8, least=1, speed=((1, 1.0), (2, 0.9), (3, 5.0)), remaining_work=9e9)
    assert granted(optimus([flat, elastic("few", 500.0, most=3)])) == {"flat": 1, "few": 3}


def test_a_job_whose_number_changes_is_placed_again_fewest_first_and_others_stay() -> None:
    """`same` keeps its GPU; `grows` leaves n1 and takes what is emptiest."""
    same = elastic("same", 1.0, most=1, on=["n0"])
    grows = elastic("grows", 1000.0, most=5, on=["n1"] * 2)
    found = optimus([grows, same])
    assert granted(found) == {"grows": 5, "same": 1}
    assert not found.shrinks  # what it has on n1 is part of where it is wanted
    assert places(found) == {"grows": ["n1", "n1", "n0"]}


def test_unknown_jobs_get_one_gpu() -> None:
    assert granted(optimus([job("x", worker=4, least=1), elastic("y", 10.0, most=3)])) == {"x": 1, "y": 3}


def test_the_threshold_is_a_parameter() -> None:
    assert load("tiresias-pollux", {"threshold": 5.0}).observe(rigid("a", 1, 5.0), snapshot()) == {
        "fell": NOW
    }
    assert load("tiresias-pollux", {"threshold": 5.1}).observe(rigid("a", 1, 5.0), snapshot()) is None


# ---- the artifact ----


@pytest.mark.parametrize("policy", ["tiresias", "optimus"])
def test_every_job_of_workload_6_ends_and_restarts_as_in_the_artifact(traces: Path, policy: str) -> None:
    assert reference.differing(traces, policy) == []
