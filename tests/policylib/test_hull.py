"""Upper concave hulls of speed curves, and GPUs given along them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.policylib import hull
from muster.types import Table
from tests.tables import table

speeds = st.lists(st.integers(0, 40), min_size=1, max_size=8)


def climbed(of: Table, weight: list[float], hold: float = 1.0) -> list[int]:
    result: list[int] = hull.climb(of, hull.ladders(of), np.array(weight), hold).tolist()
    return result


def test_a_hull_jumps_over_a_gpu_that_gains_little_before_one_that_gains_much() -> None:
    steps = hull.hull(range(1, 5), [1.0, 1.1, 2.5, 2.6])
    assert (steps.count, steps.price) == ((1, 3, 4), (1, 2, 1))
    assert steps.slope == pytest.approx((1.0, 0.75, 0.1))
    assert steps.top == pytest.approx(2.6)


def test_a_linear_curve_has_a_step_for_every_count_and_one_that_falls_has_none_there() -> None:
    assert hull.hull(range(1, 4), [1.0, 2.0, 3.0]).price == (1, 1, 1)
    assert hull.hull(range(1, 5), [1.0, 1.5, 1.5, 1.2]).count == (1, 2)
    assert hull.hull(range(1, 3), [0.0, 0.0]).count == ()


def test_steps_count_gpus_of_replicas_and_of_the_other_roles() -> None:
    steps = hull.hull((2, 4), [2.0, 3.0], unit=4, fixed=2)
    assert (steps.count, steps.price) == ((2, 4), (10, 8))


@given(curve=speeds)
def test_a_hull_falls_lies_above_the_curve_and_touches_it(curve: list[int]) -> None:
    steps = hull.hull(range(1, len(curve) + 1), [float(s) for s in curve])
    assert all(a >= b * (1 - 1e-9) for a, b in itertools.pairwise(steps.slope))
    heights = np.cumsum(np.array(steps.price) * np.array(steps.slope)) if steps.count else np.zeros(0)
    assert heights.tolist() == pytest.approx([curve[n - 1] for n in steps.count])
    known = np.interp(range(1, len(curve) + 1), [0, *steps.count], [0.0, *heights])
    assert (known >= np.array(curve) - 1e-9).all()


@settings(max_examples=60)
@given(
    curves=st.lists(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4), min_size=1, max_size=3),
    weights=st.lists(st.floats(0.1, 9.0), min_size=3, max_size=3),
    gpus=st.integers(1, 9),
)
def test_where_speeds_are_concave_no_other_division_is_worth_more(
    curves: list[list[float]], weights: list[float], gpus: int
) -> None:
    concave = [[0.0, *itertools.accumulate(sorted(gains, reverse=True))] for gains in curves]
    jobs = table(gpus, most=[len(c) - 1 for c in concave], curve=range(len(curves)), curves=concave)
    worth = [[w * s for s in c] for w, c in zip(weights, concave, strict=False)]
    shares = climbed(jobs, weights[: len(curves)])
    best = max(
        sum(w[n] for w, n in zip(worth, division, strict=True))
        for division in itertools.product(*(range(len(c)) for c in concave))
        if sum(division) <= gpus
    )
    assert sum(shares) <= gpus
    assert sum(w[n] for w, n in zip(worth, shares, strict=True)) == pytest.approx(best)


def test_a_step_that_does_not_fit_is_passed_over_and_a_smaller_one_behind_it_is_made() -> None:
    jobs = table(5, most=[4, 8, 4], least=[1, 8, 1], curves=[[0, 1, 2, 3, 4, 5, 6, 7, 8]])
    assert climbed(jobs, [1.0, 9.0, 1.0]) == [4, 0, 1]


def test_gpus_that_a_job_holds_count_more() -> None:
    jobs = table(4, most=[4, 4], have=[0, 3], curves=[[0, 1, 2, 3, 4]])
    assert climbed(jobs, [1.05, 1.0]) == [4, 0]
    assert climbed(jobs, [1.05, 1.0], hold=1.1) == [1, 3]


def test_jobs_of_one_curve_but_other_sizes_least_or_unit_have_steps_of_their_own() -> None:
    jobs = table(
        64, most=[8, 8, 8, 6], least=[1, 4, 1, 1], unit=[1, 1, 2, 1], sizes={0: (2, 8)}, curves=[range(9)]
    )
    made = hull.ladders(jobs)
    assert [made.kinds[k].count for k in made.kind.tolist()] == [
        (2, 8),
        (4, 5, 6, 7, 8),
        (1, 2, 3, 4, 5, 6, 7, 8),
        (1, 2, 3, 4, 5, 6),
    ]
    assert made.kinds[made.kind[2]].price == (2,) * 8


@settings(max_examples=60)
@given(data=st.data(), gpus=st.integers(0, 40), hold=st.sampled_from([1.0, 1.3]))
def test_climbing_is_a_scan_over_all_jobs_for_each_step(data: st.DataObject, gpus: int, hold: float) -> None:
    curves = [[0.0, *data.draw(st.lists(st.floats(0.0, 9.0), min_size=6, max_size=6))] for _ in range(3)]
    jobs = data.draw(st.integers(1, 6))
    least = data.draw(st.lists(st.integers(1, 3), min_size=jobs, max_size=jobs))
    most = [data.draw(st.integers(low, 6)) for low in least]
    have = [
        data.draw(st.sampled_from([0, *range(low, high + 1)])) for low, high in zip(least, most, strict=True)
    ]
    unit = data.draw(st.lists(st.integers(1, 3), min_size=jobs, max_size=jobs))
    of = table(
        gpus, most=most, least=least, have=have, unit=unit, curve=[n % 3 for n in range(jobs)], curves=curves
    )
    weight = [data.draw(st.floats(0.1, 5.0)) for _ in range(jobs)]
    steps = hull.ladders(of)
    mine = [steps.kinds[k] for k in steps.kind.tolist()]
    shares, at, node_backoffs, left = [0] * jobs, [0] * jobs, set[int](), gpus

    def worth(row: int) -> float:
        kind, step = mine[row], at[row]
        below = sum(kind.price[:step])
        keeps = min(max((have[row] * unit[row] - below) / kind.price[step], 0.0), 1.0)
        return weight[row] * kind.slope[step] * (1.0 + (hold - 1.0) * keeps)

    while True:
        there = [r for r in range(jobs) if r not in node_backoffs and at[r] < len(mine[r].count)]
        if not there or not left:
            break
        row = max(there, key=lambda r: (worth(r), -r))
        if mine[row].price[at[row]] > left:
            node_backoffs.add(row)
            continue
        left -= mine[row].price[at[row]]
        shares[row] = mine[row].count[at[row]]
        at[row] += 1
    assert climbed(of, weight, hold) == shares
