"""Replicas that take their time to leave (`muster simulate --release`), against hand-computed courses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from muster.types import Grant, Job, JobKey, Phase, Snapshot

from .course import course, ends, history, job, simulated, starts


def test_a_job_that_others_make_way_for_starts_once_their_gpus_are_free() -> None:
    jobs = [job("a", 400, 0, 4, min=1), job("b", 40, 10, 2)]
    profile = course({0: {"a": 4}, 10: {"a": 2, "b": 2}})
    result = simulated(jobs, profile=profile, restart=5, release=3)
    assert starts(result) == {"a": 0, "b": 13}
    assert history(result, "a")[:3] == [(0, 10, 4, ""), (10, 15, 2, "shrink"), (15, 195, 2, "")]
    assert ends(result)["b"] == 33


def test_a_job_that_grows_trains_on_as_it_was_until_the_gpus_are_free() -> None:
    jobs = [job("a", 400, 0, 2, min=1, max=4), job("b", 40, 0, 2)]
    profile = course({0: {"a": 2, "b": 2}, 20: {"a": 4}})
    result = simulated(jobs, profile=profile, restart=5, release=3)
    # b is done at 20; a stands still only when it has its new replicas
    assert history(result, "a")[:3] == [(0, 23, 2, ""), (23, 28, 4, "grow"), (28, 116.5, 4, "")]


def test_places_of_a_job_that_is_done_are_free_later_without_shares_too() -> None:
    result = simulated([job("a", 400, 0, 4), job("b", 400, 10, 4), job("c", 40, 20, 2)], release=3)
    assert starts(result) == {"a": 0, "b": 103, "c": 206}


def test_replicas_of_one_job_leave_one_by_one_where_each_has_its_own_release() -> None:
    jobs = [job("a", 400, 0, 4), job("b", 10, 10, 1), job("c", 10, 10, 4)]
    by_seed = [starts(simulated(jobs, release=10, release_spread=0.5, seed=seed)) for seed in range(8)]
    first = [at["b"] for at in by_seed]
    assert all(105 <= at <= 115 for at in first), (
        "a is done at 100; its first GPU is free between 5 and 15 s later"
    )
    assert all(at["c"] > at["b"] for at in by_seed), "who needs one GPU starts before all four are free"
    assert len(set(first)) == 8
    again = starts(simulated(jobs, release=10, release_spread=0.5, seed=3))
    assert again == by_seed[3]
    alone = starts(simulated(jobs, release=10, release_spread=0.5, release_seed=3))
    assert alone == by_seed[3], "and policies draw with another seed"
    assert starts(simulated(jobs, release=10))["b"] == 110


def test_the_others_of_a_job_that_is_done_leave_later_than_its_first() -> None:
    jobs = [job("a", 400, 0, 4), job("b", 90, 10, 1), job("c", 10, 10, 3)]
    at = starts(simulated(jobs, release=10, release_rest=2))
    assert at == {"a": 0, "b": 110, "c": 112}, "a is done at 100"
    told = course({0: {"a": 4}, 10: {"a": 2, "b": 2}})
    assert (
        starts(
            simulated(
                [job("a", 400, 0, 4, min=1), job("b", 40, 10, 2)], profile=told, release=3, release_rest=2
            )
        )["b"]
        == 13
    ), "who is told to leave is ended like all others"


def test_a_job_that_moves_starts_where_it_was_to_go_and_nobody_takes_its_place() -> None:
    jobs = [
        job("a", 100, 0, 2, min=1, tags={"resize": "restart"}),
        job("b", 50, 0, 2, min=1),
        job("c", 40, 12, 2, min=1),
    ]
    profile = course({0: {"a": 1, "b": 1}, 10: {"a": 2, "b": 1}, 12: {"a": 2, "b": 1, "c": 1}})
    result = simulated(jobs, 3, profile=profile, restart=5, release=4)
    # One GPU is free at once and kept for it; it starts with both, although its least is one and c waits from 12 on.
    assert history(result, "a") == [(0, 10, 1, ""), (10, 14, 0, ""), (14, 19, 2, "resume"), (19, 64, 2, "")]
    assert starts(result) == {"a": 0, "b": 0, "c": 54}


def test_who_is_granted_in_a_round_what_others_are_to_leave_has_it_until_it_is_free() -> None:
    """The cycles between two rounds ask no policy: who was first in the queue took it."""
    jobs = [job("a", 400, 0, 2, min=1), job("earlier", 40, 1, 2, min=1), job("b", 40, 2, 2, min=1)]
    profile = replace(course({0: {"a": 2}, 10: {"b": 2}}), round=10.0, conserving=True)
    result = simulated(jobs, 2, profile=profile, release=3)
    assert starts(result)["b"] == 13
    assert history(result, "b") == [(2, 13, 0, ""), (13, 33, 2, "")]


def test_who_is_granted_a_place_beside_one_that_others_make_way_for_starts_with_it() -> None:
    """Its host has no place yet, and it was taken for one without a host: it waited for the next round."""
    jobs = [job("a", 400, 0, tags={"resize": "restart"}), job("b", 400, 1), job("guest", 400, 2)]
    grants = {0: {"a": 1}, 100: {"b": 1, "guest": (1, Grant(beside=JobKey("", "b")))}}
    profile = replace(course(grants), round=100.0, conserving=True)
    result = simulated(jobs, 1, profile=profile, release=3)
    assert starts(result) == {"a": 0, "b": 103, "guest": 103}


def test_the_planner_sees_who_leaves_as_on_a_cluster_a_job_that_is_done_too() -> None:
    seen: dict[float, dict[str, Job]] = {}

    @dataclass(frozen=True)
    class Looks:
        def observe(self, job: Job, snapshot: Snapshot) -> dict[str, object]:
            seen.setdefault(snapshot.now, {})[job.key.name] = job
            return {"looked": snapshot.now}

    profile = course({0: {"a": 4}, 10: {"a": 2, "b": 2}, 11: {"a": 2, "b": 2}})
    profile = replace(profile, named=(*profile.named, ("looks", Looks())))
    simulated([job("a", 60, 0, 4, min=1), job("b", 60, 10, 2)], profile=profile, release=3)
    phases = [member.phase for member in seen[11]["0-a"].roles[0].members]
    assert phases == [Phase.BOUND] * 2 + [Phase.GATED] * 2 + [Phase.ENDING] * 2
    assert [member.phase for member in seen[13]["0-a"].roles[0].members].count(Phase.ENDING) == 0
    done = seen[20]["0-a"]  # 40 until 10, 20 more on two replicas
    assert (done.over, done.started, done.running) == ("its training is done", False, 2)
    assert "0-a" not in seen[max(seen)]
