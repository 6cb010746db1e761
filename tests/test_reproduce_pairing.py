"""Pairs that `make reproduce PAPERS=own` measures, on jobs few enough to work out by hand."""

import numpy as np
import pytest

from e2e.reproduce._pairing import Jobs, completion, paired


def speeds(weight: list[float], beside: list[list[float]], granted: list[int], gpus: int) -> list[float]:
    alone = np.array(granted, dtype=float)
    return paired(np.array(granted), alone, np.array(weight), np.array(beside), gpus).tolist()


ALIKE = [[0.7] * 3] * 3


def test_a_waiting_job_goes_beside_whoever_loses_least_by_it() -> None:
    beside = [[0.0, 0.7, 0.7], [0.7, 0.0, 0.9], [0.7, 0.9, 0.0]]
    assert speeds([2.0, 2.0, 1.9], beside, [1, 1, 0], 2) == [1.0, 0.9, 0.9]


def test_nobody_is_put_beside_a_job_that_loses_more_weighed_than_it_gains() -> None:
    assert speeds([10.0, 10.0, 1.0], ALIKE, [1, 1, 0], 2) == [1.0, 1.0, 0.0]


def test_no_pair_while_every_job_could_have_a_gpu_or_where_both_do_little_more_than_one() -> None:
    assert speeds([1.0, 1.0, 1.0], ALIKE, [1, 1, 0], 3) == [1.0, 1.0, 0.0]
    assert speeds([1.0, 1.0, 1.0], [[0.54] * 3] * 3, [1, 1, 0], 2) == [1.0, 1.0, 0.0]


def test_three_equal_jobs_of_a_minute_on_one_gpu_end_sooner_two_at_a_time() -> None:
    jobs = Jobs(np.zeros(3), np.full(3, 60.0), np.zeros(3, dtype=np.int64), np.array([[0.0, 1.0]]), ((1,),),
                np.array([[0.75]]))  # fmt: skip
    assert sorted(completion(jobs, 1, "tide")) == [60.0, 120.0, 180.0]
    # 80 s for the first two at 0.75 each; then the last alone
    assert sorted(completion(jobs, 1, "tide", pairs=True)) == pytest.approx([80.0, 80.0, 140.0])
