"""How long a job runs, and when it is expected to end."""

from dataclasses import replace

from muster.core.progress.attained_service import attained
from muster.core.progress.estimate import declared
from muster.core.progress.eta import outlook
from muster.core.progress.runtime import duration, expected_end
from muster.types import Config, Facts, Meter
from tests.scenario import NOW, job, role


def test_length_and_end_come_from_what_the_owner_declares() -> None:
    unknown = job("a", worker=4)
    assert (duration(unknown), expected_end(unknown, NOW)) == (None, None)
    assert duration(replace(unknown, remaining_work=400.0)) == 100.0
    assert duration(replace(unknown, remaining_work=400.0, speed=((1, 1.0), (4, 2.0)))) == 200.0
    running = job("b", worker=1, on=["n0"], remaining_work=1500.0)
    assert expected_end(running, NOW) == NOW + 500
    assert expected_end(running, NOW + 800) == NOW + 1100, "300 s late: 300 more"
    trains = replace(running, facts=Facts(progress=Meter(1000.0, 2.0, NOW)))
    assert (expected_end(trains, NOW), expected_end(trains, NOW + 400)) == (NOW + 250, NOW + 550)


def test_the_expected_end_of_a_job_with_servers_stays_where_it_is_while_it_runs() -> None:
    roles = [role("server", 2, gpus=0, on=["n0"] * 2), role("worker", 2, on=["n0"] * 2)]
    facts = attained(Facts(), roles, Config(), (), NOW, changing=False)
    runs = job("ps", roles=roles, remaining_work=1000.0, facts=facts, started_at=NOW)
    assert duration(runs) == 500.0
    for seconds in (0, 60, 400):
        now = NOW + seconds
        assert (outlook(runs, declared(runs, now), now).end, expected_end(runs, now)) == (
            NOW + 500,
            NOW + 500,
        )
