"""The demo's state machine: what counts as running, as held, as stuck."""

from __future__ import annotations

from e2e.demo.course import PAUSE, STARTING, Course, Finish, Moment, Resubmit, Sighting, Stay
from e2e.demo.outcome import comparison, figures, outcome
from e2e.demo.workload import Submission

GANG = Submission("gang", at=0.0, duration=600.0, pods=2, pod_gpus=4)
PATIENCE = 300.0


def course(*jobs: Submission) -> Course:
    made = Course(PATIENCE)
    for job in jobs:
        made.submitted(job, 0.0)
    return made


def bound(pod: str, attempt: int = 1, job: str = "gang") -> Sighting:
    return Sighting(job, attempt, pod, bound=True)


def refused(pod: str) -> Sighting:
    return Sighting("gang", 1, pod, bound=False, refused=True)


def test_a_gang_runs_from_its_last_bind_and_is_done_its_duration_later() -> None:
    run = course(GANG)
    run.saw(bound("a"), 10.0)
    run.saw(bound("b"), 40.0)
    assert run.due(639.0) == []
    assert run.due(640.0) == [Finish("gang", 1)]
    assert run.due(641.0) == []
    assert run.moments == [
        Moment(0.0, waiting=1),
        Moment(10.0, held_gpus=4, partly=1),
        Moment(40.0, running_gpus=8, running=1),
        Moment(640.0, done=1),
    ]


def test_a_gang_that_waits_too_long_for_its_members_gives_up_and_is_submitted_again() -> None:
    run = course(GANG)
    run.saw(bound("a"), 10.0)
    run.saw(refused("b"), 11.0)
    assert run.due(309.0) == []
    assert run.due(310.0) == [Resubmit("gang", 1)]
    assert run.due(311.0) == []
    assert run.stays == [Stay("gang", 10.0, 310.0, refused=True, gave_up=True)]
    run.saw(bound("a"), 312.0)  # a late sight of the first attempt
    assert run.now == Moment(310.0, waiting=1) or run.now.partly == 0
    run.saw(bound("c", 2), 400.0)
    run.saw(bound("d", 2), 400.0)
    assert run.due(1000.0) == [Finish("gang", 2)]


def test_without_patience_a_gang_holds_what_it_has_for_ever() -> None:
    run = Course(0.0)
    run.submitted(GANG, 0.0)
    run.saw(bound("a"), 10.0)
    assert run.due(1e9) == []


def test_a_start_that_is_under_way_is_no_gang_that_sits() -> None:
    assert not Stay("gang", 0.0, 59.0, refused=True, gave_up=False).sat
    assert not Stay("gang", 0.0, 600.0, refused=False, gave_up=False).sat
    assert Stay("gang", 0.0, 61.0, refused=True, gave_up=False).sat


def test_a_running_gang_that_loses_a_worker_starts_over() -> None:
    run = course(GANG)
    run.saw(bound("a"), 0.0)
    run.saw(bound("b"), 0.0)
    run.saw(Sighting("gang", 1, "b", bound=True, over=True), 100.0)
    assert run.now == Moment(100.0, held_gpus=4, partly=1)
    run.saw(bound("c"), 200.0)
    assert run.due(799.0) == []
    assert run.due(800.0) == [Finish("gang", 1)]
    assert run.jobs["gang"].interrupted == 1


def test_the_figures_count_gpu_hours_of_both_kinds_and_waits_that_were_cut_off() -> None:
    single = Submission("single", at=0.0, duration=3600.0, pods=1, pod_gpus=2)
    run = course(GANG, single)
    run.saw(bound("one", job="single"), 1800.0)
    run.saw(bound("a"), 3600.0)
    run.saw(refused("b"), 3600.0)
    run.patience = 0.0
    run.due(5400.0)
    run.close(7200.0)
    found = outcome("default-scheduler", run, 7200.0, 7200.0)
    assert figures(found) == {
        "jobs": 2,
        "jobs_completed": 1,
        "jobs_never_started": 1,
        "gangs_partly_bound": 1,
        "gangs_partly_bound_hours": 1.0,
        "gangs_partly_bound_longest_minutes": 60.0,
        "gangs_given_up": 0,
        "gpu_hours_held": 4.0,
        "gpu_hours_run": 2.0,
        "time_to_start_mean_minutes": 75.0,
        "time_to_start_p50_minutes": 75.0,
        "time_to_start_p95_minutes": 115.5,
        "jct_mean_minutes": 105.0,
        "jct_p50_minutes": 105.0,
        "jct_p95_minutes": 118.5,
        "resizes": 0,
        "makespan_hours": None,
        "run_hours": 2.0,
    }
    rows = dict(comparison([found]))
    assert rows["makespan"] == ["over 2.00 h (cut off)"]
    assert rows["time to start [2], mean"] == ["≥ 75.0 min"]
    assert rows["completion time (JCT) [1], mean"] == ["≥ 105.0 min"]


ELASTIC = Submission("gang", at=0.0, duration=600.0, pods=2, pod_gpus=1, speeds=(0.0, 1.0, 1.6, 2.0, 2.4))


def test_an_elastic_job_runs_from_its_first_worker_on_at_the_speed_of_those_that_it_has() -> None:
    run = course(ELASTIC)
    run.saw(bound("a"), 10.0)
    assert run.now == Moment(10.0, running_gpus=1, running=1)
    # On one worker it is 1/1.6 as fast as on the two that it asks for.
    assert run.due(10.0 + 959.0) == []
    assert run.due(10.0 + 960.0) == [Finish("gang", 1)]
    assert run.jobs["gang"].resized == 0


def test_the_workers_that_come_with_the_first_one_are_its_start_and_no_change() -> None:
    run = course(ELASTIC)
    for number, pod in enumerate("abcd"):
        run.saw(bound(pod), number * STARTING / 3)
    job = run.jobs["gang"]
    assert (job.started, job.resized, job.paused_until) == (0.0, 0, 0.0)
    assert run.stays == []


def test_a_change_of_its_workers_costs_a_pause_and_nothing_that_is_done() -> None:
    run = course(ELASTIC)
    run.saw(bound("a"), 0.0)
    run.saw(bound("b"), 0.0)
    run.saw(bound("c"), 300.0)
    run.saw(bound("d"), 300.0)  # in the same pause: one change
    job = run.jobs["gang"]
    assert (job.done, job.resized, job.interrupted) == (300.0, 1, 0)
    assert job.end == 300.0 + PAUSE + 300.0 / (2.4 / 1.6)
    for pod in "abcd":
        run.saw(Sighting("gang", 1, pod, bound=True, over=True), 430.0)
    assert job.done == 300.0 + (430.0 - 300.0 - PAUSE) * 1.5
    assert (job.state, job.started) == ("waiting", 0.0)
    assert run.due(1e9) == []
