"""The Gittins index that `make reproduce PAPERS=own` measures with, on samples small enough to work out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.reproduce._learning import index

ONE = np.ones


def of(lengths: list[float], attained: float, running: list[float] = []) -> float:  # noqa: B006
    values = np.array([*lengths, *running])
    over = np.array([1.0] * len(lengths) + [0.0] * len(running))
    return float(index(values, ONE(len(values)), over, np.array([attained]))[0])


def test_where_all_jobs_are_as_long_the_index_is_what_is_left() -> None:
    assert [of([100.0] * 7, a) for a in (0.0, 30.0, 99.0)] == pytest.approx([100.0, 70.0, 1.0])


def test_most_jobs_are_short_so_a_new_one_is_tried_and_one_that_outlived_them_is_long() -> None:
    """Nine of 1 s, one of 100 s: of a new one 1 s ends nine tenths, at 1 s each; then 99 s are left."""
    lengths = [1.0] * 9 + [100.0]
    assert of(lengths, 0.0) == pytest.approx(1.0 / 0.9)
    assert of(lengths, 1.0) == pytest.approx(99.0)


def test_beyond_the_longest_that_ended_nothing_is_known() -> None:
    assert math.isnan(of([1.0, 5.0], 5.0))


def test_jobs_that_still_run_make_the_long_lengths_likelier() -> None:
    """Of four jobs one ended at 10 s and one at 40 s; two more than 20 s old still run: 3 of 4 outlive 10 s, then all
    that is left ends at 40 s."""
    assert of([10.0, 40.0], 0.0, [20.0, 20.0]) == pytest.approx(min(10.0 / 0.25, (10.0 + 0.75 * 30.0) / 1.0))
    assert of([10.0, 40.0], 0.0) == pytest.approx(10.0 / 0.5)


@given(
    lengths=st.lists(st.floats(1.0, 1e6), min_size=1, max_size=12),
    running=st.lists(st.floats(1.0, 1e6), max_size=4),
    part=st.floats(0.0, 0.99),
)
def test_the_index_is_above_0_and_at_most_the_mean_that_is_left(
    lengths: list[float], running: list[float], part: float
) -> None:
    attained = part * max(lengths)
    found = of(lengths, attained, running)
    assert 0.0 < found <= max(lengths) - attained + 1e-6 * max(lengths) or running
    if not running:
        left = [x - attained for x in lengths if x > attained]
        assert found <= sum(left) / len(left) * (1.0 + 1e-9)
