"""The genetic search, on aims whose best states are known."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.policylib.genetic import evolve, ranked, tournaments
from muster.types import FloatArray, IntArray


@dataclass
class Numbers:
    """States are (P, 6) digits from 0 to 9: far from `goal` is bad, and so is a large sum."""

    goal: int = 7

    def aims(self, states: IntArray) -> FloatArray:
        return np.column_stack([np.abs(states - self.goal).sum(axis=1), states.sum(axis=1)]).astype(float)

    def crossed(self, one: IntArray, other: IntArray, rng: np.random.Generator) -> IntArray:
        return np.where(rng.random(one.shape) < 0.5, one, other)

    def mutated(self, states: IntArray, rng: np.random.Generator) -> IntArray:
        return np.where(rng.random(states.shape) < 0.2, rng.integers(-3, 13, states.shape), states)

    def repaired(self, states: IntArray, rng: np.random.Generator) -> IntArray:  # noqa: ARG002
        return np.clip(states, 0, 9)


def found(seed: int = 0, generations: int = 60) -> tuple[IntArray, FloatArray]:
    first = np.full((1, 6), 99)
    return evolve(Numbers(), first, np.random.default_rng(seed), 40, generations)


def test_the_best_state_of_each_aim_is_found_and_all_are_legal() -> None:
    states, aims = found(generations=200)
    assert states.min() >= 0
    assert states.max() <= 9
    assert aims.min(axis=0).tolist() == [0.0, 0.0]
    assert [7] * 6 in states.tolist()
    assert [0] * 6 in states.tolist()


def test_no_state_that_is_answered_is_dominated_by_another_and_none_comes_twice() -> None:
    states, aims = found()
    assert (ranked(aims)[0] == 0).all()
    assert len({tuple(state) for state in states.tolist()}) == len(states)


def test_the_same_generator_finds_the_same_and_longer_is_never_worse_by_the_first_aim() -> None:
    assert found()[0].tolist() == found()[0].tolist()
    best = [found(generations=g)[1][:, 0].min() for g in (2, 10, 40)]
    assert best == sorted(best, reverse=True)


def test_fronts_are_numbered_and_their_ends_are_the_least_crowded() -> None:
    aims = np.array([[1.0, 4.0], [2.0, 3.0], [4.0, 1.0], [3.0, 4.0], [5.0, 5.0]])
    rank, crowding = ranked(aims)
    assert rank.tolist() == [0, 0, 0, 1, 2]
    assert crowding[[0, 2]].tolist() == [np.inf, np.inf]
    assert crowding[1] == pytest.approx(3 / 3 + 3 / 3)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_whoever_stands_in_a_later_front_is_dominated_by_one_of_the_front_before(
    points: list[tuple[int, int]],
) -> None:
    aims = np.array(points, dtype=float)
    rank, _ = ranked(aims)
    for row, front in enumerate(rank):
        above = [
            other
            for other in range(len(aims))
            if (aims[other] <= aims[row]).all() and (aims[other] < aims[row]).any()
        ]
        assert front == (1 + max(rank[other] for other in above) if above else 0)


def test_the_better_front_wins_a_tournament_and_then_the_less_crowded() -> None:
    rank, crowding = np.array([0, 0, 1]), np.array([1.0, 2.0, 9.0])
    parents = tournaments(rank, crowding, 3000, np.random.default_rng(1))
    counts = np.bincount(parents.ravel(), minlength=3) / parents.size
    assert counts == pytest.approx([3 / 9, 5 / 9, 1 / 9], abs=0.03)
