"""Training processes that only count, for `python -m e2e.bench elastic`."""

from __future__ import annotations

import math

import pytest

from e2e.bench.trainings import Left, Seen, Trained, Trainings, leave

JOB = Trained("a", 0.0, 2, 1, 4, 40.0, (0.0, 1.0, 2.0, 3.0, 4.0))


def runs(trainings: Trainings, now: float, *pods: str, node: str = "n0") -> None:
    for pod in pods:
        trainings.saw(Seen("a", pod, node, over=False), now)


def test_progress_follows_the_replicas_and_a_change_stands_still_for_the_pause() -> None:
    trainings = Trainings(pause=2.0)
    trainings.submitted(JOB, 0.0)
    runs(trainings, 1.0, "p0")
    runs(trainings, 1.5, "p1")
    assert trainings.jobs["a"].changes == 0, "replicas bound one after another are one start"
    runs(trainings, 11.0, "p2", "p3")
    training = trainings.jobs["a"]
    assert (training.done, training.changes) == (0.5 + 2.0 * 9.5, 1)
    assert training.end(11.0) == 13.0 + (40.0 - 19.5) / 4.0
    assert not trainings.due(18.0)
    assert list(trainings.due(18.2)) == ["a"]
    assert (trainings.left, trainings.jct(), trainings.wait()) == (0, 18.2, 1.0)


def test_below_its_least_a_job_makes_no_progress() -> None:
    trainings = Trainings(pause=0.0)
    trainings.submitted(Trained("a", 0.0, 2, 2, 2, 10.0, (0.0, 1.0, 2.0)), 0.0)
    runs(trainings, 0.0, "p0")
    assert trainings.jobs["a"].end(5.0) == math.inf
    runs(trainings, 5.0, "p1")
    assert trainings.jobs["a"].end(5.0) == 10.0


def test_delays_are_from_the_free_place_or_the_pod_whichever_came_last() -> None:
    trainings = Trainings(pause=0.0)
    trainings.submitted(JOB, 0.0)
    trainings.saw(Seen("a", "p0", "", over=False), 1.0)
    runs(trainings, 1.5, "p0")
    trainings.saw(Seen("a", "p0", "n0", over=True), 8.0)
    trainings.saw(Seen("a", "p1", "", over=False), 2.0)
    runs(trainings, 8.25, "p1")
    assert trainings.delays == [0.5, 0.25]
    assert trainings.delay() == pytest.approx(0.375)


def test_a_place_that_is_kept_free_for_long_hardly_counts_in_the_usual_delay() -> None:
    trainings = Trainings(pause=0.0)
    trainings.delays = [0.25, 0.5, 60.0]
    assert trainings.usual_delay() == 0.5


def test_a_pod_of_a_job_that_is_done_frees_its_place_once() -> None:
    trainings = Trainings(pause=0.0)
    trainings.submitted(JOB, 0.0)
    runs(trainings, 0.0, "p0")
    assert list(trainings.due(40.0)) == ["a"]
    for at in (41.0, 42.0):
        trainings.saw(Seen("a", "p0", "n0", over=True), at)
    assert trainings._left == {"n0": [Left(41.0, 40.0)]}


def test_a_release_is_from_when_the_last_place_of_a_start_was_given_up_until_it_is_taken() -> None:
    trainings = Trainings(pause=0.0)
    trainings.submitted(JOB, 0.0)
    runs(trainings, 0.0, "p0", "p1", "p2")
    runs(trainings, 0.0, "p3", node="n1")
    assert not trainings.releases, "nobody had to leave for it"
    trainings.submitted(Trained("b", 5.0, 2, 1, 2, 10.0, (0.0, 1.0, 2.0)), 5.0)
    trainings.saw(Seen("a", "p3", "n1", over=True), 5.25)
    trainings.saw(Seen("a", "p2", "n0", over=True), 5.5)
    trainings.saw(Seen("b", "q0", "n1", over=False), 6.0)
    trainings.saw(Seen("b", "q1", "n0", over=False), 6.25)
    assert trainings.releases == [0.75]
    assert trainings.places == [0.75, 0.75]
    assert list(trainings.due(30.0)) == ["a", "b"]
    trainings.submitted(Trained("c", 29.0, 1, 1, 1, 10.0, (0.0, 1.0)), 29.0)
    trainings.saw(Seen("a", "p0", "n0", over=True), 30.5)
    trainings.saw(Seen("c", "r0", "n0", over=False), 31.0)
    assert trainings.releases == [0.75, 1.0], (
        "a job gives its places up when it is done, not when its pods are gone"
    )
    assert trainings.release() == 0.875
    assert trainings.course[-2:] == [(30.5, "over", "a", "n0"), (31.0, "bound", "c", "n0")]


def test_how_replicas_leave_together_is_read_from_the_course() -> None:
    trainings = Trainings(pause=0.0)
    trainings.submitted(JOB, 0.0)
    runs(trainings, 0.0, "p0", "p1", "p2", "p3")
    for pod, at in (("p3", 10.0), ("p2", 10.25)):
        trainings.saw(Seen("a", pod, "n0", over=True), at)
        trainings.saw(Seen("a", pod, "n0", over=True, gone=True), at + 0.5)
    assert list(trainings.due(30.0)) == ["a"]
    for pod, at in (("p0", 30.25), ("p1", 31.5)):
        trainings.saw(Seen("a", pod, "n0", over=True), at)
    assert leave(trainings.course) == (0.25, 1.25)
    assert leave(trainings.course[:3]) == (0.0, 0.0), "no two left"
