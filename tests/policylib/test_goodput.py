"""Goodput: what is fitted to the configurations that a job has tried, and the batch size that is best on others."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.cached import CACHES
from muster.policylib.goodput import Limits, Theta, Tried, _Error, best, efficiency, fitted

EXAMPLE = Theta(compute=(0.02, 0.001), network=(0.05, 0.002), node=(0.01, 0.001), overlap=1.5)
LIMITS = Limits(initial=64, least=64, most=4096, least_local=8, most_local=256)

seconds = st.floats(1e-4, 1.0)
thetas = st.builds(
    lambda a, b, p, q, g: Theta((a, b), (p * 2, q * 2), (p, q), g),
    seconds,
    st.floats(1e-5, 1e-2),
    seconds,
    st.floats(0.0, 0.1),
    st.floats(1.0, 10.0),
)
noises = st.floats(0.0, 1e6)


def on_one_node(theta: Theta, noise: float, limits: Limits, counts: tuple[int, ...]) -> list[float]:
    return best(theta, noise, limits, (1,) * len(counts), counts).goodput.tolist()


def step(theta: Theta, nodes: int, replicas: int, local: int) -> tuple[float, float]:
    """Seconds of a step and of its exchange where nothing overlaps."""
    first, further = theta.network if nodes > 1 else theta.node if replicas > 1 else (0.0, 0.0)
    sync = first + further * max(0, replicas - 2)
    return theta.compute[0] + theta.compute[1] * local + sync, sync


# ---- efficiency ----


def test_a_sample_is_worth_one_at_the_initial_batch_size_and_half_at_twice_it_without_noise() -> None:
    assert efficiency(64.0, 64, 1e3) == pytest.approx(1.0)
    assert efficiency(128.0, 64, 0.0) == pytest.approx(0.5)


@given(noise=noises, sizes=st.tuples(st.integers(64, 10**6), st.integers(64, 10**6)))
def test_a_larger_batch_is_worth_less_a_sample_and_never_less_in_all(
    noise: float, sizes: tuple[int, int]
) -> None:
    small, large = sorted(sizes)
    worth = efficiency(np.array([small, large], dtype=float), 64, noise)
    assert 0.0 < worth[1] <= worth[0] <= 1.0
    assert worth[1] * large >= worth[0] * small * (1 - 1e-9)


# ---- the best batch size ----


@settings(max_examples=50)
@given(theta=thetas, noise=noises)
def test_goodput_is_never_above_throughput_and_batches_are_within_limits(theta: Theta, noise: float) -> None:
    pairs = [(n, k) for k in range(1, 65) for n in range(1, min(k, 16) + 1)]
    nodes, replicas = zip(*pairs, strict=True)
    found = best(theta, noise, LIMITS, nodes, replicas)
    assert (found.goodput > 0.0).all()
    assert (found.goodput <= found.throughput * (1 + 1e-9)).all()
    assert ((found.batch >= LIMITS.least) & (found.batch <= LIMITS.most)).all()
    assert (found.batch >= LIMITS.least_local * np.array(replicas)).all()


@settings(max_examples=50)
@given(theta=thetas, noises=st.tuples(noises, noises))
def test_more_noise_never_asks_for_a_smaller_batch(theta: Theta, noises: tuple[float, float]) -> None:
    low, high = (best(theta, noise, LIMITS, (1, 1, 2), (1, 4, 8)).batch for noise in sorted(noises))
    assert (low <= high).all()


@settings(max_examples=50)
@given(theta=thetas, noise=noises)
def test_speedup_grows_by_less_and_less_where_one_batch_size_is_taken(theta: Theta, noise: float) -> None:
    """Without exchanges a step falls with the samples of a replica; what remains constant makes it concave."""
    free = theta._replace(network=(1e-8, 1e-8), node=(1e-8, 1e-8))
    limits = Limits(64, 960, 960, sizes=(960,))
    counts = (2, 3, 4, 5, 6, 8, 10, 12, 15, 16)
    speeds = on_one_node(free, noise, limits, counts)
    gains = [
        (b - a) / (k - j)
        for (a, b), (j, k) in zip(itertools.pairwise(speeds), itertools.pairwise(counts), strict=True)
    ]
    assert all(gain >= -1e-6 * speeds[-1] for gain in gains)
    even = (2, 4, 8, 16)  # each takes 960 in equal parts
    equal = on_one_node(free, noise, limits, even)
    slopes = [
        (b - a) / (k - j)
        for (a, b), (j, k) in zip(itertools.pairwise(equal), itertools.pairwise(even), strict=True)
    ]
    assert all(one >= other - 1e-6 * equal[-1] for one, other in itertools.pairwise(slopes))


def test_without_noise_the_smallest_batch_is_best_on_one_replica_and_with_much_a_large_one() -> None:
    assert best(EXAMPLE, 0.0, LIMITS, (1,), (1,)).batch.tolist() == [64]
    assert best(EXAMPLE, 1e9, LIMITS, (1,), (8,)).batch.tolist() == [4096]  # one exchange for two passes


def test_several_passes_make_up_a_batch_that_replicas_have_no_memory_for() -> None:
    small = Limits(64, 1024, 1024, least_local=8, most_local=128)
    found = best(EXAMPLE, 0.0, small, (1, 1), (2, 4))
    pass_of_128, exchange = 0.02 + 0.001 * 128, 0.01
    last = [(pass_of_128**1.5 + (exchange + extra) ** 1.5) ** (1 / 1.5) for extra in (0.0, 0.002)]
    assert found.throughput.tolist() == pytest.approx(
        [1024 / (3 * pass_of_128 + last[0]), 1024 / (pass_of_128 + last[1])], rel=1e-6
    )


def test_one_replica_trains_a_larger_batch_in_one_pass_but_where_noise_is_measured_between_passes() -> None:
    one = Limits(64, 128, 128)
    found = [
        best(EXAMPLE, 0.0, limits, (1,), (1,)).throughput[0] for limits in (one, one._replace(halves=True))
    ]
    assert found == pytest.approx([128 / (0.02 + 0.128), 128 / (2 * (0.02 + 0.064))])


def test_more_replicas_than_the_largest_batch_has_parts_can_not_run() -> None:
    found = best(EXAMPLE, 1e3, LIMITS._replace(most=128), (1, 4, 4), (4, 16, 17))
    assert found.batch.tolist() == [128, 128, 0]
    assert found.goodput[2] == found.throughput[2] == 0.0


def test_only_sizes_that_a_job_takes_are_chosen() -> None:
    limits = Limits(64, 64, 1024, sizes=(64, 256, 1024))
    assert set(best(EXAMPLE, 500.0, limits, (1, 1, 1, 2), (1, 2, 4, 8)).batch.tolist()) <= {64, 256, 1024}
    assert best(EXAMPLE, 1e9, limits, (2,), (8,)).batch.tolist() == [1024]
    assert best(EXAMPLE, 0.0, limits, (1,), (1,)).batch.tolist() == [64]


# ---- the fit ----


def test_a_fit_finds_the_times_that_it_was_made_of() -> None:
    truth = EXAMPLE._replace(overlap=1.0)
    shapes = [(1, 1, 64), (1, 1, 128), (1, 2, 64), (1, 4, 32), (2, 8, 32), (3, 12, 64), (4, 16, 128)]
    tried = frozenset(Tried(n, k, m, *step(truth, n, k, m)) for n, k, m in shapes)
    found = fitted(tried)
    for n, k, m in [(1, 3, 64), (2, 6, 64), (4, 12, 32)]:
        limits = Limits(m * k, m * k, m * k)
        expected = m * k / step(truth, n, k, m)[0]
        assert best(found, 0.0, limits, (n,), (k,)).throughput[0] == pytest.approx(expected, rel=0.05)


def test_what_was_never_tried_is_taken_as_free() -> None:
    """After one replica alone: every further one adds as much (section 4.1)."""
    found = fitted(frozenset({Tried(1, 1, 64, 0.1, 0.0)}))
    limits = Limits(64, 64, 4096, 8, 64)
    speeds = on_one_node(found, 1e12, limits, (1, 2, 4))
    assert speeds[2] == pytest.approx(2 * speeds[1], rel=1e-3)
    assert found.compute[0] == pytest.approx(0.05)
    assert found.network[0] >= found.node[0]


def test_exchanges_that_nobody_timed_are_found_from_steps() -> None:
    truth = EXAMPLE._replace(overlap=1.0)
    shapes = [(1, 1, 64), (1, 1, 32), (1, 2, 64), (1, 4, 64), (2, 4, 64), (2, 8, 64)]
    tried = frozenset(
        Tried(n, k, m, step(truth, n, k, m)[0], 0.0 if k == 1 else math.nan) for n, k, m in shapes
    )
    found = best(fitted(tried), 0.0, Limits(256, 256, 256), (1, 2), (4, 4)).throughput
    assert found.tolist() == pytest.approx([256 / step(truth, n, 4, 64)[0] for n in (1, 2)], rel=0.05)


@settings(max_examples=20, deadline=None)
@given(
    times=st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(1, 512), seconds), min_size=1, max_size=6
    )
)
def test_a_fit_is_the_same_whatever_the_order_and_within_its_bounds(
    times: list[tuple[int, int, int, float]],
) -> None:
    tried = [Tried(min(n, k), k, m, s, 0.0 if k == 1 else s / 4) for n, k, m, s in times]
    found = fitted(frozenset(tried))
    CACHES["goodput"].clear()
    assert fitted(frozenset(reversed(tried))) == found
    assert 1.0 <= found.overlap <= 10.0
    assert min(*found.compute, *found.network, *found.node) > 0.0


@given(
    logs=st.tuples(*[st.floats(-6.0, 2.0)] * 6, st.floats(0.01, 2.3)),
    times=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(1, 512), seconds), min_size=1),
)
def test_the_slopes_of_what_a_fit_minimises_are_those_by_differences(
    logs: tuple[float, ...], times: list[tuple[int, int, int, float]]
) -> None:
    n, k, m, s = np.array(times, dtype=float).T
    known = k == 1
    error = _Error(n, np.maximum(n, k), m, np.log(s), known, np.log(s[known] / 2))
    at, tiny = np.array(logs), 1e-6
    by_differences = [
        (error(at + tiny * one)[0] - error(at - tiny * one)[0]) / (2 * tiny) for one in np.eye(7)
    ]
    wrong, slopes = error(at)
    assert slopes == pytest.approx(by_differences, abs=1e-4 * (1.0 + wrong))


def test_a_fit_asks_for_its_error_a_few_hundred_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    counted = _Error.__call__
    monkeypatch.setattr(_Error, "__call__", lambda self, logs: asked.append(1) or counted(self, logs))
    rng = np.random.default_rng(0)
    shapes = [(1 + (k > 4), k, m) for k in range(1, 9) for m in (32, 64, 128)]
    fitted(frozenset(Tried(n, k, m, step(EXAMPLE, n, k, m)[0] * rng.uniform(0.9, 1.1)) for n, k, m in shapes))
    assert 0 < len(asked) < 300


def test_nothing_tried_is_an_error() -> None:
    with pytest.raises(ValueError, match="tried: must be one configuration or more"):
        fitted(frozenset())
