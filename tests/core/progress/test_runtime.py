"""How long a job runs, and when it is expected to end."""

from dataclasses import replace

from muster.core.progress.runtime import duration, expected_end
from muster.types import Facts, Meter
from tests.scenario import NOW, job


def test_length_and_end_come_from_what_the_owner_declares() -> None:
    unknown = job("a", worker=4)
    assert (duration(unknown), expected_end(unknown, NOW)) == (None, None)
    assert duration(replace(unknown, remaining_work=400.0)) == 100.0
    assert duration(replace(unknown, remaining_work=400.0, speed=((4, 2.0),))) == 200.0
    running = job("b", worker=1, on=["n0"], remaining_work=1500.0)
    assert expected_end(running, NOW) == NOW + 500
    assert expected_end(running, NOW + 800) == NOW + 1100, "300 s late: 300 more"
    trains = replace(running, facts=Facts(progress=Meter(1000.0, 2.0, NOW)))
    assert (expected_end(trains, NOW), expected_end(trains, NOW + 400)) == (NOW + 250, NOW + 550)
