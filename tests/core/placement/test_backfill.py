"""What is kept free for the head of the queue, and who passes it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from muster.types import Facts, Job, Meter, Report, Snapshot
from tests.scenario import NOW, job, plan, queue, said, snapshot, starts


def test_a_small_job_passes_a_head_that_does_not_fit() -> None:
    jobs = [
        job("old", worker=1, gpus=6, on=["n0"]),
        job("head", worker=1, gpus=8),
        job("small", worker=1, gpus=2),
    ]
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {"small": {"n0": 1}}


def known(name: str, seconds: float, **words: Any) -> Job:
    """A job whose owner says how long it runs."""
    made = job(name, **words)
    return replace(made, remaining_work=seconds * sum(r.min for r in made.roles))


def test_with_known_run_times_only_those_pass_who_do_not_delay_the_head() -> None:
    jobs = [
        known("old", 1600, worker=1, gpus=6, on=["n0"]),  # started 1000 s ago: ends in 600 s
        known("head", 100, worker=1, gpus=8),
        known("long", 601, worker=1, gpus=1),
        known("short", 600, worker=1, gpus=1),
        job("unknown", worker=1, gpus=1),
    ]
    after = plan(snapshot(nodes=1, jobs=jobs))
    assert starts(after) == {"short": {"n0": 1}}
    assert (
        said(after)["long"]
        == said(after)["unknown"]
        == ("Waiting Reserved: would fit, but the free capacity is kept for the job at the head of the queue")
    )
    assert queue(after) == ["head", "long", "unknown"]


def test_a_stopped_job_passes_with_what_is_left_of_it() -> None:
    old, head = known("old", 1600, worker=1, gpus=6, on=["n0"]), known("head", 100, worker=1, gpus=8)
    done = Facts(first_start=1.0, run_start=1.0, progress=Meter(9500.0))
    whole = known("whole", 10_000, worker=1, gpus=1)
    stopped = known("stopped", 10_000, worker=1, gpus=1, facts=done)
    reports = job("reports", worker=1, gpus=1, facts=done, report=Report(NOW - 100.0, step=19.0, total=20.0))
    jobs = [old, head, whole, stopped, reports]
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {"stopped": {"n0": 1}, "reports": {"n0": 1}}


def test_a_long_job_passes_where_the_reservation_leaves_room() -> None:
    jobs = [
        known("old", 1600, worker=1, gpus=6, on=["n0"]),
        known("head", 100, worker=1, gpus=7),
        known("long", 10_000, worker=1, gpus=1),
        known("too-long", 10_000, worker=1, gpus=1),
    ]
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {"long": {"n0": 1}}


def test_the_reservation_is_at_the_first_end_that_is_enough() -> None:
    jobs = [
        known("first", 1100, worker=1, gpus=8, on=["n0"]),
        known("second", 1500, worker=1, gpus=8, on=["n1"]),
        known("third", 1900, worker=1, gpus=8, on=["n2"]),
        known("head", 100, worker=3, gpus=8),
        known("fits-before", 500, worker=1, gpus=8),
        known("does-not", 501, worker=1, gpus=8),
    ]
    before = snapshot(nodes=4, jobs=jobs)
    # the head needs three nodes: n3 is free, n0 and n1 are free after 500 s
    assert starts(plan(before)) == {"fits-before": {"n3": 1}}
    without = replace(before, jobs={k: j for k, j in before.jobs.items() if k.name != "fits-before"})
    assert starts(plan(without)) == {}


def test_what_comes_free_replica_by_replica_is_the_heads_not_that_of_who_needs_less() -> None:
    """A job ends, and its pods leave one after another: the first place is free before the others are."""

    def at(ending: Sequence[str]) -> Snapshot:
        over = [job("over", worker=len(ending), gpus=4, ending=ending)] if ending else []
        jobs = [
            *over,
            known("other", 1600, worker=1, gpus=8, on=["n2"]),  # where the head would fit in 600 s, too
            known("head", 100, worker=4, gpus=4),
            known("small", 500, worker=1, gpus=4),
        ]
        return snapshot(nodes=3, jobs=jobs)

    assert starts(plan(at(["n0", "n0", "n1"]))) == {}
    assert starts(plan(at(["n1"]))) == {}
    assert said(plan(at(["n1"])))["small"].startswith("Waiting Reserved: ")
    assert starts(plan(at([]))) == {"head": {"n0": 2, "n1": 2}}
    # what is ending is not enough for the head: others pass as far as they end before enough is free
    assert starts(plan(replace_head(at(["n0", "n0", "n1"]), 6))) == {"small": {"n1": 1}}


def replace_head(before: Snapshot, worker: int) -> Snapshot:
    """The head asks for so many replicas of 4 GPUs."""
    head = known("head", 100, worker=worker, gpus=4)
    return replace(
        before, jobs={key: head if key.name == "head" else one for key, one in before.jobs.items()}
    )


def test_a_big_gang_of_unknown_length_does_not_starve() -> None:
    """Small jobs pass until the head has waited longer than the profile's patience; then what comes free is its."""

    def at(now: float, busy: Sequence[str]) -> Snapshot:
        jobs = [job(f"s{i}", worker=1, gpus=4, on=[n]) for i, n in enumerate(busy)]
        jobs += [
            job("head", worker=2, gpus=8, submitted=NOW),
            *(job(f"new{i}", worker=1, gpus=4, submitted=NOW + 1 + i) for i in range(4)),
        ]
        return snapshot(nodes=2, jobs=jobs, now=now)

    impatient = plan(at(NOW + 299, ["n0", "n0", "n1"]))
    assert starts(impatient) == {"new0": {"n1": 1}}
    assert impatient.requeue_at == NOW + 300
    for busy in (["n0", "n0", "n1"], ["n0", "n1"], ["n0"]):
        assert starts(plan(at(NOW + 300, busy))) == {}
    assert starts(plan(at(NOW + 300, []))) == {"head": {"n0": 1, "n1": 1}}


def test_capacity_that_the_head_can_not_use_is_not_kept_for_it() -> None:
    jobs = [
        job("a", worker=1, gpus=4, on=["n0"]),
        job("b", worker=1, gpus=7, on=["n1"]),
        job("head", worker=1, gpus=8, submitted=NOW - 400),
        job("small", worker=1, gpus=1),
    ]
    # n0 has more free, so it is kept; n1 is not
    assert starts(plan(snapshot(nodes=2, jobs=jobs))) == {"small": {"n1": 1}}


def test_a_job_that_does_not_grow_into_the_reservation() -> None:
    jobs = [
        job("elastic", worker=4, gpus=1, least=2, most=4, on=["n0", "n0"]),
        job("head", worker=1, gpus=8, submitted=NOW - 400),
    ]
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {}
    jobs[1] = replace(jobs[1], submitted=NOW - 100)
    assert starts(plan(snapshot(nodes=1, jobs=jobs))) == {"elastic": {"n0": 2}}
