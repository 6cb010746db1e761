"""A pod that asks for devices in place where nothing gives it any: its own job is Invalid, and says why."""

from __future__ import annotations

import pytest

from muster.core.workload.in_place import parse_gpus, refused
from muster.errors import InputError
from muster.types import PodRecord, State
from tests.cluster_fake import FakeCluster, Muster


@pytest.mark.parametrize(
    ("text", "gpus"),
    [("", ()), ("1,2,4", (1, 2, 4)), ("1-4", (1, 2, 3, 4)), (" 4 , 2-3,2", (2, 3, 4)), ("8", (8,))],
)
def test_numbers_of_gpus_are_read_as_a_list_and_as_a_range(text: str, gpus: tuple[int, ...]) -> None:
    assert parse_gpus(text) == gpus


def in_place(cluster: FakeCluster, gpus: int) -> list[PodRecord]:
    """A Job of one pod that declares numbers of GPUs, and requests some all the same."""
    (pod,) = cluster.job("train", 1, gpus)
    return [cluster.update(pod, annotations={"muster.dev/gpus": "1,2,4"})]


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        (
            0,
            "Muster gives no devices in place here (devices.enabled is off), and the pod would wait for them",
        ),
        (
            2,
            "expected containers that request no GPU, since Muster is to give the pod its devices in place, found a",
        ),
    ],
)
def test_a_pod_in_place_makes_its_own_job_invalid_and_another_starts(gpus: int, why: str) -> None:
    cluster = FakeCluster()
    [pod] = in_place(cluster, gpus)
    cluster.job("other", 1)
    muster = Muster(cluster)
    muster.settle()
    status = muster.plan.statuses[muster.key("job-train")]
    assert status.state is State.INVALID
    assert status.message.startswith(f"pod {pod.name}: muster.dev/gpus: {why}")
    assert (cluster.bound("train"), muster.state("job-other")) == ([], State.RUNNING)


def test_a_range_that_is_said_thousands_of_times_is_refused_before_it_is_read() -> None:
    with pytest.raises(InputError, match="expected at most 128 numbers and ranges of them, found 2700"):
        parse_gpus(",".join(["1-128"] * 2700))


def test_pods_that_say_nothing_of_it_are_not_refused() -> None:
    assert refused(FakeCluster().job("train", 2)) == ""
