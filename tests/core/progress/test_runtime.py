"""How long a job runs, and when it is expected to end."""

from dataclasses import replace

from muster.core.progress.attained_service import attained
from muster.core.progress.estimate import declared
from muster.core.progress.eta import length, outlook
from muster.core.progress.runtime import duration, expected_end, left
from muster.types import Config, Facts, Meter, Report
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


def test_what_is_left_of_a_stopped_job_is_what_it_did_not_do() -> None:
    stopped = job("a", worker=2, remaining_work=1000.0, facts=Facts(progress=Meter(950.0)))
    assert (duration(stopped), left(stopped, NOW)) == (500.0, 25.0)
    assert left(replace(stopped, facts=Facts(progress=Meter(1100.0))), NOW) == 50.0, "100 late: 100 more"
    again = replace(stopped, started=True, started_at=1.0)
    assert expected_end(again, NOW) == NOW + 25.0, "nothing of it is bound yet"
    told = replace(stopped, remaining_work=None, report=Report(at=NOW, step=190.0, total=200.0))
    assert (duration(told), left(told, NOW)) == (None, 25.0)
    assert left(replace(told, facts=Facts()), NOW) is None, "it reported once, and how fast it is nobody saw"


def test_a_job_that_is_over_its_declared_length_does_not_end_at_once() -> None:
    late = job("a", worker=1, remaining_work=100.0, facts=Facts(progress=Meter(1000.0)))
    assert length(late, declared(late, NOW), NOW) == left(late, NOW) == 900.0
