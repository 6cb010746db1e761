"""When waiting jobs are expected to start: the queue played forward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.views import queue_eta as forecasts
from muster.core.views.queue_eta import Expected, forecast
from muster.profiles import build
from muster.types import NEVER, Config, Facts, Job, Meter, Report
from muster_plugins.reported import Reported
from tests.scenario import FIFO, NOW, asks, job, node, role, snapshot
from tests.server.reading import viewed


def runs(name: str, node: str, left: float | None, **words: Any) -> Job:
    """A job that fills a node for `left` seconds more (None: nobody knows)."""
    declared = {} if left is None else {"remaining_work": left + 100.0}
    return job(name, worker=1, gpus=8, on=[node], started_at=NOW - 100.0, **declared, **words)


def expected(*jobs: Job, nodes: int = 2) -> dict[str, float | str]:
    """Seconds from now, or why it is not known."""
    view = viewed(snapshot(nodes=nodes, jobs=jobs))
    return {
        key.name: one.unknown if one.start is None else one.start - NOW for key, one in forecast(view).items()
    }


def test_each_job_waits_for_those_before_it() -> None:
    assert expected(
        runs("short", "n0", 100.0),
        runs("long", "n1", 1000.0),
        job("first", worker=1, gpus=8, remaining_work=300.0),
        job("second", worker=1, gpus=8, remaining_work=50.0),
        job("third", worker=2, gpus=8, remaining_work=50.0),
        job("fourth", worker=1, gpus=8),
    ) == {"first": 100.0, "second": 400.0, "third": 1000.0, "fourth": 1025.0}


def test_what_a_job_did_before_it_was_stopped_is_not_expected_again() -> None:
    done = Facts(first_start=1.0, run_start=1.0, progress=Meter(total=950.0))
    report = Report(at=NOW - 100.0, step=190.0, total=200.0)
    for told in ({"remaining_work": 1000.0}, {"report": report}):
        assert expected(
            runs("runs", "n0", 100.0),
            job("stopped", worker=1, gpus=8, facts=done, **told),
            job("behind", worker=1, gpus=8),
            nodes=1,
        ) == {"stopped": 100.0, "behind": 150.0}, told


def test_a_job_that_starts_again_ends_when_the_rest_of_it_is_done() -> None:
    done = Facts(first_start=1.0, run_start=1.0, progress=Meter(total=950.0))
    again = job(
        "again",
        worker=1,
        gpus=8,
        held=[("worker", "n0")],
        started=True,
        started_at=1.0,
        facts=done,
        remaining_work=1000.0,
    )
    assert expected(again, job("behind", worker=1, gpus=8), nodes=1) == {"behind": 50.0}


def test_where_reports_are_believed_the_rest_takes_as_long_as_they_say_at_the_least_replicas() -> None:
    report = Report(at=NOW - 100.0, step=190.0, total=200.0)
    samples = {Config((("worker", 1),), ("n0",)): 0.1, Config((("worker", 2),), ("n0",)): 0.125}
    stopped = job("stopped", worker=2, least=2, most=2, gpus=4, report=report, samples=samples)
    waits = [stopped, job("behind", worker=1, gpus=8)]
    view = viewed(
        snapshot(nodes=1, jobs=[runs("runs", "n0", 100.0), *waits]), replace(FIFO, estimate=Reported())
    )
    assert {key.name: one.start for key, one in forecast(view).items()} == {
        "stopped": NOW + 100.0,
        "behind": NOW + 180.0,  # 10 steps of 8 s
    }


def test_jobs_start_together_where_there_is_room_for_both() -> None:
    assert expected(
        runs("runs", "n0", 100.0),
        runs("other", "n1", 500.0),
        job("first", worker=1, gpus=4, remaining_work=50.0),
        job("second", worker=1, gpus=4, remaining_work=50.0),
        job("third", worker=1, gpus=8, remaining_work=50.0),
    ) == {"first": 100.0, "second": 100.0, "third": 150.0}


def test_a_job_of_unknown_length_keeps_its_place_for_ever_and_what_waits_for_it_says_so() -> None:
    assert expected(
        runs("known", "n0", 100.0),
        runs("endless", "n1", None),
        job("first", worker=1, gpus=8, remaining_work=10.0),
        job("both", worker=2, gpus=8),
        job("behind", worker=1, gpus=8),
    ) == {
        "first": 100.0,
        "both": "1 job before it declares no run time (muster.dev/remaining-work)",
        "behind": "the start of a job ahead of it is not known",
    }


def test_a_job_that_never_fits_is_told_so_and_holds_nobody_up() -> None:
    assert expected(
        runs("a", "n0", 100.0),
        runs("b", "n1", 200.0),
        job("huge", worker=3, gpus=8, priority=1),
        job("small", worker=1, gpus=8),
    ) == {"huge": NEVER, "small": 100.0}


def test_when_a_gang_starts_for_which_no_arrangement_is_found_is_not_known_and_it_holds_nobody_up() -> None:
    nodes = [node("n0", cpu=96), node("n1", cpu=32), node("n2", gpus=4, cpu=64)]
    roles = [role("a", 2, shape=asks(4, cpu=16000)), role("b", 3, shape=asks(4, cpu=32000))]
    jobs = [
        runs("a", "n0", 100.0),
        runs("b", "n1", 200.0),
        job("hard", roles=roles),
        job("c", worker=1, gpus=8),
    ]
    found = forecast(viewed(snapshot(nodes=nodes, jobs=jobs)))
    assert {key.name: one.unknown or one.start for key, one in found.items()} == {
        "hard": "no arrangement of its roles was found",
        "c": NOW + 100.0,
    }


def test_what_foreign_pods_hold_is_not_expected_back() -> None:
    foreign = {"n0": job("x", worker=1, gpus=8).roles[0].shape}
    view = viewed(
        snapshot(nodes=2, jobs=[runs("a", "n1", 50.0), job("both", worker=2, gpus=8)], foreign=foreign)
    )
    (one,) = forecast(view).values()
    assert one == Expected(unknown="the ends of all jobs before it do not make room for it")


def test_only_the_first_of_a_long_queue_are_worked_out_and_once_a_view() -> None:
    waiting = [job(f"w{i:03d}", worker=1, gpus=8, remaining_work=10.0) for i in range(103)]
    view = viewed(snapshot(nodes=1, jobs=[runs("a", "n0", 50.0), *waiting]))
    found = list(forecast(view).values())
    assert [one.start for one in found[:3]] == [NOW + 50.0, NOW + 60.0, NOW + 70.0]
    assert [one.unknown for one in found[99:101]] == ["", "it is behind the first 100 of the queue"]
    assert forecast(view) is forecast(view)


def test_too_many_tries_end_in_an_honest_word(monkeypatch: Any) -> None:
    monkeypatch.setattr(forecasts, "TRIES", 0)
    jobs = [*(runs(f"r{i}", f"n{i}", 10.0 + i) for i in range(8)), job("whole", worker=8, gpus=8)]
    play = forecasts._begin(viewed(snapshot(nodes=8, jobs=jobs)))
    play.tries = 1
    assert forecasts._start(play, jobs[-1]).unknown == "too much has to end before it to be worked out"


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(1, 500)), min_size=1, max_size=12),
    st.lists(st.integers(1, 500), min_size=3, max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_nobody_is_expected_before_one_ahead_of_it_nor_before_now(
    waiting: list[tuple[int, int, int]], left: list[int]
) -> None:
    running = [runs(f"r{i}", f"n{i}", float(seconds)) for i, seconds in enumerate(left)]
    jobs = [
        job(f"w{i:02d}", worker=count, gpus=gpus, remaining_work=float(work))
        for i, (count, gpus, work) in enumerate(waiting)
    ]
    view = viewed(snapshot(nodes=3, jobs=[*running, *jobs]))
    starts = [one.start for one in forecast(view).values()]
    assert len(starts) == len(view.plan.order)
    known = [start for start in starts if start is not None]
    assert known == sorted(known)
    assert all(start >= NOW for start in known)
    assert None not in starts, "every length is declared, and three nodes hold any of these jobs"


def test_where_a_policy_shares_gpus_jobs_are_thought_to_keep_their_size_and_speed() -> None:
    half = ((1, 1.0), (2, 1.6), (4, 2.0))
    jobs = [
        job(
            name,
            worker=4,
            least=4,
            most=4,
            gpus=2,
            on=[node] * 4,
            started_at=NOW - 100.0,
            speed=half,
            remaining_work=left,
            facts=Facts(progress=Meter(0.0, 2.0, NOW)),
        )
        for name, node, left in (("short", "n0", 500.0), ("long", "n1", 900.0))
    ]
    view = viewed(snapshot(nodes=2, jobs=[*jobs, job("waits", worker=1, gpus=8)]), build("max-min"))
    assert {key.name: one.start for key, one in forecast(view).items()} == {"waits": NOW + 250.0}


def test_what_training_reports_tells_when_a_job_makes_room() -> None:
    report = Report(at=NOW, step=50.0, total=150.0, speed=2.0)
    runs_on = job("reports", worker=1, gpus=8, on=["n0"], report=report)
    view = viewed(snapshot(nodes=1, jobs=[runs_on, job("waits", worker=1, gpus=8)]))
    assert {key.name: one.start for key, one in forecast(view).items()} == {"waits": NOW + 50.0}
