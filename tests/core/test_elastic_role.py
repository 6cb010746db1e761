"""Which role of a job is shared (`Job.elastic`)."""

from __future__ import annotations

import pytest

from muster.types import GPU, Job, JobKey, Role, Shape

GPU_1, NONE = Shape(requests=((GPU, 1),)), Shape(requests=(("cpu", 1000),))


@pytest.mark.parametrize(
    ("roles", "shared"),
    [
        ((Role("server", 1, 2, NONE), Role("worker", 1, 2, GPU_1)), "worker"),
        ((Role("server", 1, 2, NONE), Role("worker", 2, 2, GPU_1)), "server"),
        ((Role("driver", 1, 1, GPU_1), Role("worker", 1, 2, GPU_1)), "worker"),
        ((Role("server", 2, 2, NONE), Role("worker", 2, 2, GPU_1)), "worker"),
    ],
    ids=[
        "both have a range, one has GPUs",
        "only the other has a range",
        "one has a range",
        "none has a range",
    ],
)
def test_the_role_that_is_shared_has_a_range_and_where_there_are_several_gpus(
    roles: tuple[Role, ...], shared: str
) -> None:
    elastic = Job(key=JobKey("team", "net"), priority=0, submitted=0.0, roles=roles).elastic
    assert elastic is not None
    assert elastic.name == shared
