"""Apathetic Future Share: every way to a scan's winner is the scan (papers/afs-coddl, Algorithm 1)."""

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.policylib import afs, afs_compiled
from muster.policylib.afs import ladders
from muster.policylib.ladders import Ladders
from tests.policylib.plain_scan import plain_scan


def steps(*speeds: Sequence[float]) -> Ladders:
    """Ladders of GPUs from 1, a class for each list of speeds."""
    width = max(len(s) for s in speeds)
    matrix = np.array([[0.0, *s, *[s[-1]] * (width - len(s))] for s in speeds])
    return ladders(matrix, [range(1, len(s) + 1) for s in speeds], [1] * len(speeds))


# Not concave, with flat and falling steps, and values that give ties.
curve = st.lists(st.sampled_from([0.5, 0.9, 1.0, 1.0, 1.3, 1.5, 2.0]), min_size=0, max_size=6).map(
    lambda growth: np.cumprod([1.0, *growth]).tolist()
)


@st.composite
def crowds(draw: st.DrawFn, most: int = 12) -> tuple[Ladders, list[int], list[float], int]:
    curves = draw(st.lists(curve, min_size=1, max_size=4))
    kinds = draw(st.lists(st.integers(0, len(curves) - 1), min_size=1, max_size=most))
    lengths = st.one_of(st.sampled_from([1.0, 2.0, 3.0, np.inf]), st.floats(0.1, 100.0))
    remaining = draw(st.lists(lengths, min_size=len(kinds), max_size=len(kinds)))
    return steps(*curves), kinds, remaining, draw(st.integers(0, 40))


def test_the_longer_job_takes_the_gpu_when_it_gains_at_least_what_the_shorter_would() -> None:
    flat, steep = [1.0, 1.2], [1.0, 1.9]
    assert plain_scan(steps(flat, steep), [0, 1], [10.0, 20.0], 1) == [0, 1]
    assert plain_scan(steps(flat, steep), [0, 1], [20.0, 10.0], 1) == [0, 1]


def test_of_two_alike_the_shorter_takes_the_gpu_and_equality_goes_to_the_longer() -> None:
    alike = [1.0, 1.9]
    assert plain_scan(steps(alike), [0, 0], [20.0, 10.0], 1) == [0, 1]
    nothing = [1.0, 1.0]  # gain and loss are 0: equal
    assert plain_scan(steps(nothing), [0, 0], [10.0, 20.0], 1) == [0, 1]
    assert plain_scan(steps(nothing), [0, 0], [20.0, 10.0], 1) == [1, 0]


def test_the_winner_depends_on_the_order_since_the_relation_is_not_transitive() -> None:
    """x beats y and y beats z, both as the shorter one, and z, the longest, beats x."""
    x, y, z = [1.0, 1.30], [1.0, 1.40], [1.0, 1.45]
    cycle = steps(x, y, z)
    assert cycle.gain[0, 0] > cycle.loss[1, 0]
    assert cycle.gain[1, 0] > cycle.loss[2, 0]
    assert cycle.loss[2, 0] >= cycle.gain[0, 0]
    winners = set()
    for order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        lengths = [[10.0, 20.0, 30.0][k] for k in order]
        winners.add(order[plain_scan(cycle, order, lengths, 1).index(1)])
    assert winners == {0, 1, 2}


@given(crowd=crowds())
def test_the_scan_that_goes_on_where_the_last_one_stays_valid_is_the_plain_scan(
    crowd: tuple[Ladders, list[int], list[float], int],
) -> None:
    ladder, kinds, remaining, left = crowd
    assert afs._scan(ladder, kinds, remaining, left) == plain_scan(ladder, kinds, remaining, left)


@given(crowd=crowds(), prices=st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_steps_of_several_gpus_are_skipped_where_they_do_not_fit(
    crowd: tuple[Ladders, list[int], list[float], int], prices: list[int]
) -> None:
    ladder, kinds, remaining, left = crowd
    price = np.array([prices[: ladder.price.shape[1]]] * len(ladder.price))
    dear = Ladders(ladder.count, price, ladder.speed, ladder.gain, ladder.loss, ladder.length)
    expected = plain_scan(dear, kinds, remaining, left)
    assert afs._scan(dear, kinds, remaining, left) == expected
    compiled = afs_compiled.spread(dear, np.array(kinds), np.array(remaining), left)
    assert compiled.tolist() == expected
    spent = sum(int(price[k, :n].sum()) for k, n in zip(kinds, expected, strict=True))
    assert spent <= left


@given(crowd=crowds())
def test_the_compiled_scan_is_the_plain_scan(crowd: tuple[Ladders, list[int], list[float], int]) -> None:
    ladder, kinds, remaining, left = crowd
    compiled = afs_compiled.spread(ladder, np.array(kinds), np.array(remaining), left)
    assert compiled.tolist() == plain_scan(ladder, kinds, remaining, left)


@given(crowd=crowds(), seed=st.integers(0, (1 << 62) - 1))
def test_coins_fall_the_same_in_python_and_compiled(
    crowd: tuple[Ladders, list[int], list[float], int], seed: int
) -> None:
    ladder, kinds, _, left = crowd
    compiled = afs_compiled.spread_unknown(ladder, np.array(kinds), left, seed)
    assert compiled.tolist() == afs._scan_unknown(ladder, kinds, left, seed)


@pytest.mark.parametrize("seed", range(6))
def test_skipping_blocks_changes_nothing(seed: int) -> None:
    """Measured curves are not concave either; lengths are rounded so that many are equal."""
    rng = np.random.default_rng(seed)
    curves = [np.cumprod([1.0, *rng.uniform(1.001, 1.7, rng.integers(2, 20))]).tolist() for _ in range(5)]
    ladder = steps(*curves)
    kinds = rng.integers(0, 5, 400)
    remaining = np.round(rng.lognormal(0.0, 1.0, 400), seed % 3)
    ranks = afs_compiled._ranks(ladder)
    assert ranks is not None
    for left in (1, 100, 3000):
        place = np.zeros(400, dtype=np.int64)
        afs_compiled._ranked(
            *(ladder.gain, ladder.loss, ladder.speed, ladder.length), *ranks, kinds, remaining, left, place
        )
        assert place.tolist() == afs._scan(ladder, kinds.tolist(), remaining.tolist(), left)


def test_steps_without_gain_are_left_to_the_scan_that_skips_nothing() -> None:
    assert afs_compiled._ranks(steps([1.0, 1.0, 2.0])) is None


def test_without_lengths_the_longer_known_to_gain_more_wins_without_a_coin() -> None:
    apart = steps([1.0, 1.1], [1.0, 1.9])
    for seed in range(8):
        assert afs._scan_unknown(apart, [0, 1], 1, seed) == [0, 1]
    alike = steps([1.0, 1.5])
    assert {tuple(afs._scan_unknown(alike, [0, 0], 1, seed)) for seed in range(16)} == {(0, 1), (1, 0)}


def test_without_a_directory_to_write_to_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    real = afs_compiled.njit

    def nowhere(**options: bool) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(afs_compiled, "njit", nowhere)
    assert afs_compiled._compiled(lambda x: x + 1)(1) == 2


def test_who_asks_for_help_does_not_wait_for_the_compiler() -> None:
    code = "import sys, muster.cli, muster_plugins.afs_l, muster.sim.engine; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
