"""Tide on tables small enough to work out by hand, and what it keeps to on any."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.reasons import shares as whys
from muster.errors import ConfigurationError
from muster.points import load
from muster.types import JobKey
from muster_plugins.tide import Tide
from tests.tables import granted, snapshot, table

PLAIN = Tide(late=0.0, waited=0.0, hold=1.0)
GOOD = [0.0, 1.0, 1.9, 2.7, 3.4]


def test_of_jobs_of_one_curve_the_shorter_has_more_and_the_longest_still_something() -> None:
    jobs = table(8, most=[4, 4, 4], curves=[GOOD], remaining=[900.0, 10.0, 100.0])
    # weights 2, sqrt 6, sqrt 5; of the last steps 0.8 x 2 < 0.7 x sqrt 6 = 1.71 > 0.7 x sqrt 5 = 1.57 < 1.6
    assert granted(PLAIN, jobs) == [2, 3, 3]
    assert granted(replace(PLAIN, p=3.0), jobs) == [0, 4, 4]


def test_rank_counts_and_not_length() -> None:
    few = table(6, most=[4, 4, 4], curves=[GOOD], remaining=[3.0, 2.0, 1.0])
    far = table(6, most=[4, 4, 4], curves=[GOOD], remaining=[1e9, 1e3, 1.0])
    assert granted(PLAIN, few) == granted(PLAIN, far)


def test_in_a_crowd_a_short_job_may_have_several_gpus_while_long_ones_wait() -> None:
    jobs = table(
        3, most=[4] * 40, curves=[[0.0, 1.0, 2.0, 3.0, 4.0]], remaining=[float(n) for n in range(40, 0, -1)]
    )
    assert granted(PLAIN, jobs)[-1] == 3


def test_equal_jobs_are_served_by_submission() -> None:
    jobs = table(3, most=[2, 2], curves=[GOOD], remaining=50.0)
    assert granted(PLAIN, jobs) == [2, 1]


def test_a_job_of_unknown_length_has_as_much_left_as_it_has_done_and_ten_minutes_at_least() -> None:
    jobs = table(1, most=[4, 4, 4], remaining=[np.nan, 500.0, 700.0])
    assert granted(PLAIN, jobs) == [0, 1, 0]
    jobs.remaining = np.array([np.nan, 900.0, 700.0])
    assert granted(PLAIN, jobs) == [1, 0, 0]
    jobs.progress = np.array([800.0, 0.0, 0.0])
    assert granted(PLAIN, jobs) == [0, 0, 1]


def test_who_ends_last_even_at_its_fastest_has_more_with_the_guard_but_never_what_the_shortest_has() -> None:
    jobs = table(12, most=[8] * 6, curves=[[0.0, 1.0, 1.9, 2.7, 3.4, 4.0, 4.5, 4.9, 5.2]],
                 remaining=[9000.0, 10.0, 9.0, 8.0, 7.0, 6.0])  # fmt: skip
    assert [granted(replace(PLAIN, late=late), jobs)[0] for late in (0.0, 0.5, 1.0)] == [0, 2, 3]
    alone = table(1, most=[8, 8], remaining=[9000.0, 10.0], submitted=[0.0, 5.0])
    assert granted(replace(PLAIN, late=0.9), alone) == [0, 1]


def test_a_job_that_waits_is_not_passed_for_ever_by_shorter_ones() -> None:
    """One GPU, and whenever a job ends the next one of an hour is there."""
    policy, now, waiting = Tide(), 0.0, 0
    while waiting < 1000:
        jobs = table(
            1, most=[4, 4], remaining=[36_000.0, 3600.0], submitted=[0.0, now], curves=[GOOD], have=[0, 0]
        )
        if granted(policy, jobs, now)[0]:
            break
        now += 3600.0
        waiting += 1
    assert waiting == 300  # then 10 h / (1 + 0.3 x 300 h / 10 h) = 1 h


def test_what_is_not_a_parameter_in_range_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="hold of at least 1"):
        load("tide", {"hold": 0.9})
    with pytest.raises(ConfigurationError, match="found -1,"):
        load("tide", {"p": -1.0})


def test_an_owner_reads_how_many_jobs_have_more_left_and_who_gains_more() -> None:
    jobs = table(
        6,
        most=[4, 4, 4],
        curve=[0, 1, 1],
        curves=[[0.0, 1.0, 1.1, 1.15, 1.2], GOOD],
        remaining=[1.0, 2.0, 3.0],
    )
    shares = Tide().share(snapshot(jobs))
    said = whys.words(jobs, shares, rule=Tide.RULE)
    assert shares.replicas.tolist() == [1, 3, 2]
    assert said[JobKey("test", "job-0")] == (
        "2 jobs have more left than it, what they waited counted; at its minimum; "
        "1 more GPU would speed it up by 10 %; job-1 is 42 % faster with it"
    )
    assert said[JobKey("test", "job-2")].startswith("it has the most left of all jobs")


@given(
    most=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    gpus=st.integers(0, 60),
    lengths=st.lists(st.sampled_from([0.0, 1.0, 5.0, 5.0, 1e7, np.nan, np.inf]), min_size=12, max_size=12),
    now=st.sampled_from([0.0, 3.0, 1e7]),
)
def test_shares_are_legal_and_no_gpu_that_speeds_a_job_up_is_left(
    most: list[int], gpus: int, lengths: list[float], now: float
) -> None:
    jobs = table(gpus, most=most, remaining=lengths[: len(most)], curves=[np.sqrt(range(13)).tolist()])
    shares = granted(Tide(), jobs, now)
    assert all(0 <= share <= high for share, high in zip(shares, most, strict=True))
    assert sum(shares) == min(gpus, sum(most))
