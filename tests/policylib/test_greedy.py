"""All or nothing in an order, level by level, and by marginal gain, on hand-made tables."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.policylib import greedy
from tests.tables import table

counts = st.lists(st.integers(1, 9), min_size=1, max_size=10)


def test_what_does_not_fit_is_skipped_and_a_later_job_runs() -> None:
    jobs = table(8, most=[9, 9, 9, 9])
    order = np.array([2, 0, 1, 3])
    assert greedy.in_order(jobs, order, np.array([4, 3, 6, 2])).tolist() == [0, 0, 6, 2]


@given(need=counts, gpus=st.integers(0, 30), data=st.data())
def test_in_order_is_one_job_after_another(need: list[int], gpus: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(need))))
    expected, left = [0] * len(need), gpus
    for row in order:
        if need[row] <= left:
            expected[row] = need[row]
            left -= need[row]
    jobs = table(gpus, most=[9] * len(need))
    assert greedy.in_order(jobs, np.array(order), np.array(need)).tolist() == expected


@given(most=counts, gpus=st.integers(0, 60), data=st.data())
def test_level_is_round_after_round(most: list[int], gpus: int, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(most))))
    expected, left = [0] * len(most), gpus
    while left and any(e < m for e, m in zip(expected, most, strict=True)):
        for row in order:
            if left and expected[row] < most[row]:
                expected[row] += 1
                left -= 1
    jobs = table(gpus, most=most)
    assert greedy.level(jobs, np.array(order), gpus).tolist() == expected


def test_level_climbs_sizes_and_counts_a_replicas_gpus() -> None:
    jobs = table(14, most=[4, 4, 4], unit=[2, 1, 1], sizes={1: (2, 4)})
    assert greedy.level(jobs, np.arange(3), 14).tolist() == [3, 4, 4]


@given(
    key=st.lists(st.sampled_from([1.0, 2.0, 3.0, np.nan]), min_size=1, max_size=12), gpus=st.integers(0, 14)
)
def test_the_shortest_are_found_without_a_sort(key: list[float], gpus: int) -> None:
    jobs = table(gpus, most=[3] * len(key))
    values = np.array(key)
    expected = greedy.by_key(jobs, values, jobs.min)
    assert greedy.shortest(jobs, values).tolist() == expected.tolist()


@given(most=counts, gpus=st.integers(0, 40), seed=st.integers(0, 1000))
def test_by_gain_is_a_scan_over_all_jobs_for_each_gpu(most: list[int], gpus: int, seed: int) -> None:
    worth = (
        np.random.default_rng(seed).integers(-1, 4, (len(most), 11)).astype(float)
    )  # not concave, with ties
    jobs = table(gpus, most=most)
    expected, left = [0] * len(most), gpus
    while left:
        best = max(
            (row for row in range(len(most)) if expected[row] < most[row]),
            key=lambda row: (worth[row, expected[row]], -row),
            default=None,
        )
        if best is None or worth[best, expected[best]] <= 0:
            break
        expected[best] += 1
        left -= 1
    rows = np.arange(len(most))
    found = greedy.by_gain(jobs, np.zeros(len(most), dtype=np.int64), gpus, lambda r, n, _: worth[r, n], rows)
    assert found.tolist() == expected
