"""Shares of time by GPU product: valid, as good as HiGHS's, unique, and what small markets come to by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.policylib import lp
from muster.policylib.lp import (
    Market,
    best_worst,
    equal_split,
    finish_time_fair,
    isolated,
    least_makespan,
    max_min,
)
from muster.types import FloatArray


def market(speed: object, gpus: object, capacity: object) -> Market:
    return Market(*(np.array(column, dtype=np.float64) for column in (speed, gpus, capacity)))


@st.composite
def markets(draw: st.DrawFn) -> Market:
    """Up to eight jobs of 1, 2 or 4 GPUs on up to three products; a job may not run on some, but on one."""
    jobs, products = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    cell = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 7.0, 30.0])
    speed = [draw(st.lists(cell, min_size=products, max_size=products)) for _ in range(jobs)]
    for row in speed:
        row[draw(st.integers(0, products - 1))] = draw(st.sampled_from([0.3, 1.0, 5.0]))
    gpus = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=jobs, max_size=jobs))
    return market(speed, gpus, draw(st.lists(st.integers(1, 6), min_size=products, max_size=products)))


def pace(found: Market, shares: FloatArray) -> FloatArray:
    """(J,) iterations/s of each job under its shares."""
    return np.asarray((found.speed * shares).sum(axis=1), dtype=np.float64)


def assert_valid(found: Market, shares: FloatArray) -> None:
    assert shares.shape == found.speed.shape
    assert (shares >= 0.0).all()
    assert (shares.sum(axis=1) <= 1.0 + 1e-5).all()
    assert ((shares * found.gpus[:, None]).sum(axis=0) <= found.capacity + 1e-4).all()


# ---- by hand ----


def test_equal_jobs_share_the_time_of_too_few_gpus_equally() -> None:
    shares = max_min(market([[1.0]] * 3, [1, 1, 1], [2]))
    assert shares == pytest.approx(np.full((3, 1), 2 / 3), abs=1e-5)


def test_a_job_of_two_gpus_gets_half_the_time_of_one_of_one() -> None:
    """Worth counts GPUs: 2 x = y, and 2 x + y <= 1 GPU-second a second on two GPUs... of which each uses its own."""
    shares = max_min(market([[1.0], [1.0]], [2, 1], [2]))
    assert shares[:, 0] == pytest.approx([0.5, 1.0], abs=1e-5)


def test_fairness_is_of_speed_over_an_equal_split_and_the_worst_job_decides() -> None:
    """An equal split gives the first 2.5 and the second 1.1 iterations/s. With a of the first product's time for the
    first job they stand at (0.4 + 1.2 a) and (1.2 - 0.2 a) / 1.1 of that: equal, and 1, at a = 1/2."""
    shares = max_min(market([[4.0, 1.0], [1.2, 1.0]], [1, 1], [1, 1]))
    assert shares == pytest.approx(np.full((2, 2), 0.5), abs=1e-4)


def test_the_least_makespan_of_two_jobs_by_hand() -> None:
    """100 iterations each; 10/s and 1/s, 10/s and 5/s. With a of the first product's time for the first job both run
    at 1 + 9 a = 10 - 5 a, so a = 9/14."""
    found = market([[10.0, 1.0], [10.0, 5.0]], [1, 1], [1, 1])
    shares = least_makespan(found, np.array([100.0, 100.0]))
    assert shares == pytest.approx(np.array([[9 / 14, 5 / 14], [5 / 14, 9 / 14]]), abs=1e-4)
    assert pace(found, shares) == pytest.approx([95 / 14, 95 / 14], abs=1e-3)


def test_isolated_shares_are_a_part_of_every_product() -> None:
    shares = isolated(market([[1.0, 1.0]] * 2, [1, 2], [2, 4]))
    assert shares == pytest.approx(np.array([[1 / 3, 2 / 3], [1 / 3, 2 / 3]]))


def test_a_job_that_can_run_nowhere_pulls_nobody_down() -> None:
    shares = max_min(market([[1.0], [0.0]], [1, 1], [1]))
    assert shares[0, 0] == pytest.approx(1.0, abs=0.5)
    assert shares[0, 0] > 0.0


def test_finish_time_fairness_helps_the_job_that_has_waited() -> None:
    """Both have 100 s of work left on one GPU, and had 200 s alone; one has waited 100 s."""
    shares = finish_time_fair(
        market([[1.0], [1.0]], [1, 1], [1]),
        np.array([100.0, 100.0]),
        np.array([0.0, 100.0]),
        np.array([200.0, 300.0]),
    )
    assert shares.sum() == pytest.approx(1.0, abs=1e-2)
    first, second = shares[:, 0]
    assert (100 / first) / 200 == pytest.approx((100 + 100 / second) / 300, rel=1e-2)


# ---- always ----


@given(markets())
def test_shares_are_valid(found: Market) -> None:
    steps = np.arange(1.0, len(found) + 1.0) * 50.0
    assert_valid(found, isolated(found))
    assert_valid(found, max_min(found))
    assert_valid(found, least_makespan(found, steps))


@given(markets())
def test_sharing_is_an_incentive_the_worst_job_does_as_well_as_with_its_isolated_share(found: Market) -> None:
    """Gavel, §4.4: with max-min fairness nobody is worse off than the worst would be with 1/n of every product."""
    fair = pace(found, equal_split(found))
    worth = found.speed * (found.gpus / np.where(fair > 0.0, fair, 1.0))[:, None]
    assert (worth * max_min(found)).sum(axis=1).min() >= (worth * isolated(found)).sum(axis=1).min() - 1e-4


@given(markets())
@settings(max_examples=12)  # each is a search by halving
def test_finish_time_fairness_is_no_worse_than_isolation(found: Market) -> None:
    steps = np.arange(1.0, len(found) + 1.0) * 50.0
    alone = steps / pace(found, isolated(found))
    shares = finish_time_fair(found, steps, np.zeros(len(found)), alone)
    assert_valid(found, shares)
    worst = (steps / np.maximum(pace(found, shares), 1e-12) / alone).max()
    assert worst <= 1.0 + 5e-3


@given(markets())
def test_the_centre_is_as_good_as_the_corner_that_highs_finds(found: Market) -> None:
    middle, reached = best_worst(found, np.ones(len(found)))
    _, best = best_worst(found, np.ones(len(found)), corner=True)
    assert reached == pytest.approx(best, rel=1e-4, abs=1e-6)
    assert (middle * found.speed).sum(axis=1).min() == pytest.approx(best, rel=1e-3, abs=1e-4)


@given(markets(), st.lists(st.floats(0.0, 4.0), min_size=8, max_size=8))
def test_the_slowest_of_jobs_that_are_orders_of_magnitude_apart_is_as_fast_as_it_can_be(
    found: Market, magnitudes: list[float]
) -> None:
    worth = 10.0 ** -np.array(magnitudes[: len(found)])
    middle, reached = best_worst(found, worth)
    _, best = best_worst(found, worth, corner=True)
    assert reached == pytest.approx(best, rel=1e-4)
    assert (pace(found, middle) * worth).min() == pytest.approx(best, rel=1e-2)  # shares have six digits


def test_who_needs_thousands_of_times_as_long_has_the_product_on_which_it_is_a_thousandth_faster() -> None:
    shares = least_makespan(
        market([[10.0, 1.0], [5.005, 5.0]], [2, 2], [2, 2]),
        np.array([200.0, 1e6]),
    )
    assert shares[1] == pytest.approx([1.0, 0.0], abs=1e-3)


@given(markets(), st.integers(0, 7))
def test_equal_jobs_get_equal_shares_wherever_they_stand(found: Market, twin: int) -> None:
    """The centre is unique, so what can't be told apart is treated alike: a corner would choose."""
    row = twin % len(found)
    both = Market(
        np.vstack([found.speed, found.speed[row]]), np.append(found.gpus, found.gpus[row]), found.capacity
    )
    shares = max_min(both)
    assert shares[row] == pytest.approx(shares[-1], abs=1e-4)


def test_two_jobs_that_hardly_slow_each_other_share_a_gpu_all_the_time() -> None:
    """Each at 0.9 of its speed beside the other, against half of the time alone."""
    apart = market([[1.0], [1.0]], [1, 1], [1])
    packed = replace(apart, pairs=((0, 1),), together=np.array([[[0.9], [0.9]]]))
    shares, worst = best_worst(packed, np.ones(2))
    assert shares[:, 0] == pytest.approx([0.0, 0.0, 1.0], abs=1e-4)
    assert worst == pytest.approx(0.9, abs=1e-4)
    slow = replace(packed, together=np.array([[[0.4], [0.4]]]))
    assert best_worst(slow, np.ones(2))[0][:, 0] == pytest.approx([0.5, 0.5, 0.0], abs=1e-4)


@given(markets())
def test_pairs_are_valid_and_never_a_loss(found: Market) -> None:
    like = [(a, b) for a in range(len(found)) for b in range(a) if found.gpus[a] == found.gpus[b]]
    together = np.array([[found.speed[a] * 0.7, found.speed[b] * 0.6] for a, b in like])
    packed = replace(found, pairs=tuple(like), together=together.reshape(-1, 2, found.speed.shape[1]))
    shares, worst = best_worst(packed, np.ones(len(found)))
    assert worst >= best_worst(found, np.ones(len(found)))[1] * (1.0 - 1e-4) - 1e-6
    gpus = np.concatenate([found.gpus, [found.gpus[a] for a, _ in like]])
    assert ((shares * gpus[:, None]).sum(axis=0) <= found.capacity + 1e-3).all()
    for row in range(len(found)):
        mine = [row] + [len(found) + q for q, pair in enumerate(like) if row in pair]
        assert shares[mine].sum() <= 1.0 + 1e-4


def test_beyond_its_size_a_corner_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lp, "LARGEST", 1)
    found = market([[1.0, 2.0], [3.0, 1.0]], [1, 1], [1, 1])
    first, second = pace(found, max_min(found)) / [1.5, 2.0]  # of an equal split
    assert first == pytest.approx(4 / 3)  # all of the second product's time
    assert 4 / 3 - 1e-5 <= second <= 3 / 2
