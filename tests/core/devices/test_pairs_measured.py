"""Two jobs on one GPU are measured as the pair that they are, and taken apart where that is too slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from muster.core.progress.pairs import name_beside, parts_kept, too_slow
from muster.types import PRODUCT, Config, Job, Report, Reported, State
from muster_plugins.similarity import Similarity
from tests.core.devices.circle import Circle
from tests.core.devices.test_pairs_in_plans import charged, empty, status

ALONE = Config((("worker.gpus", 1),), (1,))


def trains(circle: Circle, seconds: int, **speeds: tuple[float, float]) -> None:
    """These jobs report each second while they have a GPU; speeds: iterations/s of each alone, and beside another."""
    for _ in range(seconds):
        using = {name: circle.using(name) for name in speeds}
        for name, (alone, beside) in speeds.items():
            if using[name]:
                job = of(circle, name)
                step = (job.report.step if job.report is not None else 0.0) + (
                    beside if job.beside else alone
                )
                tell(circle, name, step)
        circle.second()


def tell(circle: Circle, name: str, step: float) -> None:
    report = Report(circle.cluster.now, step, 1e6)
    circle.ledger.apply(Reported(circle.pod(name).uid, report), circle.cluster.now)


def of(circle: Circle, name: str) -> Job:
    return circle.ledger.jobs[circle.key(f"job-{name}")]


def seen(circle: Circle, name: str) -> Job:
    """The job as policies see it."""
    return circle.ledger.snapshot(circle.cluster.now).jobs[circle.key(f"job-{name}")]


def submit(circle: Circle, name: str, model: str = "") -> None:
    circle.train(name, "1", **{"gpu-memory": "4Gi"}, **({"model": model} if model else {}))
    circle.seconds(8)


def until(circle: Circle, what: Callable[[], bool]) -> None:
    for _ in range(60):
        if what():
            return
        circle.second()
    raise AssertionError("not within a minute")


def pair(*models: str, gpus: int = 1) -> Circle:
    """a was alone for a while, then b came beside it."""
    circle = empty(gpus)
    one, two = models or ("ResNet50", "VGG16")
    submit(circle, "a", one)
    trains(circle, 30, a=(10.0, 6.0))
    submit(circle, "b", two)
    assert (circle.using("a"), circle.using("b")) == (1, 1)
    return circle


def test_what_a_job_tells_while_it_shares_its_gpu_is_the_pairs_speed_and_not_its_own() -> None:
    circle = pair()
    trains(circle, 70, a=(10.0, 6.0), b=(8.0, 5.0))
    beside = replace(ALONE, beside="VGG16")
    assert of(circle, "a").samples == {ALONE: pytest.approx(10.0), beside: pytest.approx(6.0)}
    assert of(circle, "b").samples == {replace(ALONE, beside="ResNet50"): pytest.approx(5.0)}
    assert of(circle, "a").facts.costs == (), "that another one sat down beside it cost it no restart"
    circle.cluster.end(circle.pod("b").uid)
    trains(circle, 40, a=(10.0, 6.0))
    assert of(circle, "a").samples[ALONE] == pytest.approx(10.0), "and alone again it has its own"
    assert of(circle, "a").beside == ""


def test_until_its_neighbour_trains_a_job_is_not_measured_beside_it() -> None:
    circle = pair()
    trains(circle, 45, a=(10.0, 10.0))
    assert list(of(circle, "a").samples) == [ALONE]
    trains(circle, 60, a=(10.0, 6.0), b=(8.0, 5.0))
    assert of(circle, "a").samples[replace(ALONE, beside="VGG16")] == pytest.approx(6.0)


def test_a_pair_of_which_one_never_tells_anything_is_measured_after_a_while() -> None:
    circle = pair()
    trains(circle, 120, a=(10.0, 6.0))
    assert of(circle, "a").samples[replace(ALONE, beside="VGG16")] == pytest.approx(6.0)


def test_a_pair_that_does_little_more_than_taking_turns_is_taken_apart_and_not_tried_again() -> None:
    circle = pair()
    a = circle.pod("a").uid
    trains(circle, 60, a=(10.0, 5.2), b=(8.0, 4.0))
    assert (circle.using("a"), circle.using("b")) == (1, 0)
    assert status(circle, "b") == (
        State.WAITING,
        "on one GPU with another job the two trained at 1.04 times the speed of one alone, and they share one from "
        "1.1 times on",
    )
    assert circle.pod("a").uid == a, "the first one goes on"
    trains(circle, 20, a=(10.0, 5.2))
    assert (circle.using("a"), circle.using("b")) == (1, 0)
    circle.restart()
    circle.seconds(20)
    assert (circle.using("a"), circle.using("b")) == (1, 0), "Muster that starts again remembers it"
    submit(circle, "c", "VGG16")
    assert circle.using("c") == 0, "another one of the same kind isn't tried either"


def by_similarity() -> Circle:
    """One GPU that the similarity policy has references of; a trains on it, measured alone."""
    circle = empty()
    (name,) = circle.cluster.nodes
    found = circle.cluster.nodes[name]
    circle.cluster.nodes[name] = replace(found, labels={**found.labels, PRODUCT: "Tesla-T4"})
    shares = (Similarity(mode="gpu", jp=True),)
    circle.ledger.profile = circle.profile = replace(circle.profile, shares=shares)
    submit(circle, "a", "ResNet50")
    trains(circle, 30, a=(10.0, 6.0))
    return circle


def test_similarity_takes_another_one_for_a_partner_that_was_measured_to_be_too_slow() -> None:
    circle = by_similarity()
    submit(circle, "b", "MobileNet")
    submit(circle, "c", "VGG16")
    assert [circle.using(name) for name in "abc"] == [1, 1, 0], "by its references"
    trains(circle, 60, a=(10.0, 5.0), b=(8.0, 4.0))
    until(circle, lambda: [circle.using(name) for name in "abc"] == [1, 0, 1])
    trains(circle, 60, a=(10.0, 7.0), c=(8.0, 7.0))
    assert [circle.using(name) for name in "abc"] == [1, 0, 1]
    state, words = status(circle, "b")
    assert state is State.WAITING
    assert words.startswith(
        "on one GPU with another job the two trained at 1.00 times the speed of one alone"
    )
    submit(circle, "d", "VGG16")
    circle.cluster.end(circle.pod("c").uid)
    until(circle, lambda: circle.using("d") == 1)
    assert circle.using("b") == 0


def test_a_pair_that_trains_well_stays() -> None:
    circle = pair()
    uids = circle.pod("a").uid, circle.pod("b").uid
    trains(circle, 70, a=(10.0, 6.0), b=(8.0, 5.0))
    assert (circle.using("a"), circle.using("b")) == (1, 1)
    assert (circle.pod("a").uid, circle.pod("b").uid) == uids


def test_one_slow_moment_takes_no_pair_apart() -> None:
    circle = pair()
    trains(circle, 60, a=(10.0, 6.0), b=(8.0, 5.0))
    trains(circle, 20, a=(10.0, 3.0), b=(8.0, 2.0))
    trains(circle, 20, a=(10.0, 6.0), b=(8.0, 5.0))
    assert (circle.using("a"), circle.using("b")) == (1, 1)


def test_who_left_a_slow_pair_has_the_next_gpu_that_comes_free_alone() -> None:
    circle = pair()
    trains(circle, 60, a=(10.0, 5.0), b=(8.0, 4.0))
    assert circle.using("b") == 0
    circle.cluster.end(circle.pod("a").uid)
    until(circle, lambda: circle.using("b") == 1)
    trains(circle, 30, b=(8.0, 4.0))
    assert of(circle, "b").samples[ALONE] == pytest.approx(8.0)


def test_one_of_a_pair_moves_in_place_to_a_gpu_that_comes_free_on_its_node() -> None:
    circle = empty(gpus=2)
    for name in "axb":
        submit(circle, name)
    b = circle.pod("b").uid
    assert (of(circle, "a").beside != "", of(circle, "b").beside != "", charged(circle)) == (True, True, 2)
    circle.cluster.end(circle.pod("x").uid)
    circle.seconds(10)
    assert (circle.using("a"), circle.using("b"), charged(circle)) == (1, 1, 2)
    assert (of(circle, "a").beside, of(circle, "b").beside) == ("", "")
    assert circle.pod("b").uid == b


def test_jobs_without_a_model_are_a_pair_of_their_own() -> None:
    circle = empty()
    submit(circle, "a")
    trains(circle, 30, a=(10.0, 5.0))
    submit(circle, "b")
    trains(circle, 60, a=(10.0, 5.0), b=(8.0, 4.0))
    assert circle.using("b") == 0
    circle.cluster.end(circle.pod("b").uid)
    submit(circle, "c")
    until(circle, lambda: circle.using("c") == 1)


def test_another_tenants_model_is_not_told_but_is_known_again() -> None:
    circle = pair()
    a, b = of(circle, "a"), of(circle, "b")
    theirs = replace(b, key=b.key._replace(namespace="theirs"))
    again = replace(theirs, key=theirs.key._replace(name="again", uid="x"))
    assert name_beside(a, b) == "VGG16"
    assert "VGG16" not in name_beside(a, theirs)
    assert name_beside(a, theirs) == name_beside(a, again) != name_beside(a, replace(again, model="ResNet50"))


def test_what_jobs_of_their_kinds_have_taught_keeps_two_apart_that_never_met() -> None:
    circle = pair()
    trains(circle, 60, a=(10.0, 5.0), b=(8.0, 4.0))
    for name in "ab":
        circle.cluster.end(circle.pod(name).uid)
    circle.seconds(10)
    submit(circle, "c", "ResNet50")
    until(circle, lambda: circle.using("c") == 1)
    submit(circle, "d", "VGG16")
    assert (circle.using("c"), circle.using("d")) == (1, 0)
    c, d = seen(circle, "c"), seen(circle, "d")
    assert parts_kept(c, d, "") == pytest.approx((0.5, 0.5))
    assert "trained at 1.00 times" in too_slow(d, c, "")
    assert parts_kept(c, d, "Tesla-T4") is None, "on another product nobody knows"
