"""Pollux: places of all jobs by a genetic search over their goodput, and batch sizes with them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from muster.core.placement.capacity import Capacity
from muster.core.progress.estimate import declared
from muster.core.sharing.job_table import table_in
from muster.errors import ConfigurationError
from muster.points import load
from muster.profiles import build
from muster.types import (
    Config,
    Facts,
    Grant,
    Grants,
    Job,
    Meter,
    Report,
    SharingSnapshot,
)
from muster_plugins.pollux import Pollux
from tests.scenario import NOW, job, plan, role, snapshot

NEAR = (("resnet50", 4000.0),)
SIZES = (64, 128, 256, 512)


def elastic(name: str, most: int = 8, **words: Any) -> Job:
    return job(name, worker=most, least=1, gpus=1, **words)


def shown(jobs: Sequence[Job], nodes: int = 2, gpus: int = 4, **words: Any) -> SharingSnapshot:
    before = snapshot(nodes, gpus, jobs=jobs, **words)
    rows = list(before.jobs.values())
    return before.with_table(
        table_in(before, Capacity(before), {}, rows, lambda each: declared(each, before.now))
    )


def granted(found: Grants, at: SharingSnapshot) -> dict[str, int]:
    return {key.name: int(found.replicas[row]) for key, row in at.table.row.items()}


def nodes_of(found: Grants, at: SharingSnapshot) -> dict[str, dict[str, int]]:
    return {
        key.name: dict(Counter(found.details[row].nodes))
        for key, row in at.table.row.items()
        if row in found.details
    }


def speeds(exponent: float, most: int = 8) -> tuple[tuple[int, float], ...]:
    return tuple((n, float(n**exponent)) for n in range(1, most + 1))


def reports(*tried: tuple[int, int, float]) -> dict[Config, float]:
    """(replicas, batch, iterations/s) of a job on one node."""
    return {Config((("worker", k),), (k,), "", b): v for k, b, v in tried}


# ---- the policy ----


def test_jobs_that_scale_alike_share_alike_and_all_gpus_are_used() -> None:
    at = shown([elastic("a", speed=speeds(0.9)), elastic("b", speed=speeds(0.9))])
    found = Pollux().share(at)
    assert granted(found, at) == {"a": 4, "b": 4}
    assert all(len(on) == 1 for on in nodes_of(found, at).values()), "each on one node"


def test_who_gains_nothing_from_more_gpus_gets_one() -> None:
    at = shown([elastic("flat", speed=speeds(0.0)), elastic("steep", speed=speeds(1.0))])
    counts = granted(Pollux().share(at), at)
    assert counts["flat"] == 1
    assert counts["steep"] >= 6


def test_with_more_jobs_than_gpus_those_that_had_least_run_and_the_others_wait_with_a_reason() -> None:
    served = [elastic(f"j{n}", facts=Facts(gpu_seconds=Meter(100.0 * n))) for n in range(6)]
    at = shown(served, nodes=1, gpus=4)
    found = Pollux().share(at)
    waits = [key.name for key, row in at.table.row.items() if not found.replicas[row]]
    assert len(waits) == 2
    assert {found.why[at.table.row[key]] for key in at.table.keys if key.name in waits} == {
        "the GPUs raise the goodput of other jobs more"
    }


def test_a_job_that_was_restarted_often_stays_where_it_is() -> None:
    """Alone on the cluster another node would do as well, and one more GPU is worth less than its restarts."""
    facts = Facts(restarts=30)
    calm = elastic("calm", on=["n0"] * 3, facts=facts, submitted=NOW - 1000.0, speed=speeds(0.3))
    at = shown([calm])
    found = Pollux().share(at)
    assert nodes_of(found, at) == {"calm": {"n0": 3}}
    fresh = shown([replace(calm, facts=Facts())])
    assert granted(Pollux().share(fresh), fresh)["calm"] > 3


@pytest.mark.parametrize(
    ("restarts", "age", "kept"), [(0, 0.0, 0.0), (0, 30.0, 0.5), (2, 90.0, 0.25), (9, 90.0, 0.0)]
)
def test_what_a_restart_leaves_of_a_speedup(restarts: int, age: float, kept: float) -> None:
    old = elastic("a", submitted=NOW - age, facts=Facts(restarts=restarts))
    assert Pollux().kept(old, NOW) == pytest.approx(kept)


def test_the_same_snapshot_gives_the_same_grants_and_another_seed_may_not() -> None:
    at = shown([elastic(f"j{n}", speed=speeds(0.5 + n / 10)) for n in range(4)], nodes=3)
    assert nodes_of(Pollux().share(at), at) == nodes_of(Pollux().share(at), at)
    others = [nodes_of(Pollux().share(replace(at, seed=seed)), at) for seed in range(4)]
    assert any(one != others[0] for one in others)


def test_a_batch_size_is_chosen_with_the_gpus_where_noise_and_sizes_are_known() -> None:
    tried = reports((1, 64, 10.0), (2, 128, 9.5), (4, 256, 9.0))
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES, "samples": tried}
    at = shown([elastic("a", 4, **words), elastic("own", 4, **{**words, "model": "other"})])
    found = Pollux(noise=dict(NEAR)).share(at)
    batches = {key.name: found.details[row].batch for key, row in at.table.row.items()}
    assert batches == {"a": 512, "own": 0}
    quiet = Pollux(noise={"resnet50": 0.5}).share(at)
    assert quiet.details[at.table.row[at.table.keys[0]]].batch == 64


def test_the_noise_that_a_job_reports_counts_and_not_its_models() -> None:
    tried = reports((1, 64, 10.0), (4, 256, 9.0))
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES, "samples": tried}
    quiet = Report(step=9.0, noise=0.5)
    at = shown([elastic("a", 4, report=quiet, **words), elastic("b", 4, **words)])
    found = Pollux(noise=dict(NEAR)).share(at)
    assert [found.details[row].batch for row in (0, 1)] == [64, 512]


def test_a_job_that_has_tried_two_replicas_grows_to_four_at_most_and_a_new_one_starts_with_one() -> None:
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES}
    two = elastic("two", samples=reports((1, 64, 10.0), (2, 128, 9.9)), **words)
    at = shown([two, elastic("new", **words)])
    assert granted(Pollux(noise=dict(NEAR)).share(at), at) == {"two": 4, "new": 1}


def test_a_job_that_tried_nothing_starts_with_its_least_and_a_batch_size_for_it() -> None:
    words = {"model": "resnet50", "batch": 64, "batch_sizes": (2, 64)}
    at = shown([job("a", worker=8, least=4, gpus=1, submitted=NOW - 100.0, **words)])
    found = Pollux(noise=dict(NEAR)).share(at)
    assert granted(found, at) == {"a": 4}
    assert found.details[0].batch == 64


@pytest.mark.parametrize("samples", [{}, reports((1, 64, 10.0))])
def test_a_running_job_keeps_what_it_has_before_it_reports_of_it(samples: dict[Config, float]) -> None:
    """It starts with four at least, and no more may be looked at than two, twice what it tried."""
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES, "samples": samples}
    at = shown([job("a", worker=8, least=4, gpus=1, on=["n0"] * 4, submitted=NOW - 1000.0, **words)])
    assert granted(Pollux(noise=dict(NEAR)).share(at), at) == {"a": 4}


def test_a_gang_that_waits_gets_gpus_of_jobs_that_may_have_fewer() -> None:
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES}
    gang = job("gang", worker=2, gpus=1, submitted=NOW - 5000.0, **words)
    tried = reports((1, 64, 10.0), (2, 128, 9.9), (4, 256, 9.8))
    full = [
        elastic(f"e{n}", 4, on=[f"n{n}"] * 4, submitted=NOW - 900.0, samples=tried, **words) for n in (0, 1)
    ]
    at = shown([gang, *full])
    found = Pollux(noise=dict(NEAR)).share(at)
    assert granted(found, at)["gang"] == 2
    assert sum(granted(found, at).values()) == 8
    assert not found.why


@pytest.mark.parametrize(("nodes", "gpus", "count", "unit"), [(32, 8, 32, 8), (20, 1, 17, 1), (16, 8, 65, 1)])
def test_a_gang_starts_however_many_replicas_and_nodes_it_needs(
    nodes: int, gpus: int, count: int, unit: int
) -> None:
    at = shown([job("big", worker=count, gpus=unit, submitted=NOW - 60.0)], nodes=nodes, gpus=gpus)
    assert granted(Pollux().share(at), at) == {"big": count}


def test_a_large_running_job_is_not_cut_by_what_is_looked_at() -> None:
    on = [f"n{n // 4}" for n in range(100)]
    at = shown([elastic("large", 128, on=on, submitted=NOW - 1000.0)], nodes=25)
    assert granted(Pollux().share(at), at) == {"large": 100}


def test_why_a_gang_waits_is_told_as_it_is() -> None:
    rigid = job("rigid", worker=6, gpus=1, on=["n0"] * 4 + ["n1"] * 2)
    at = shown([rigid, job("gang", worker=4, gpus=1, submitted=NOW - 60.0)])
    assert list(Pollux().share(at).why.values()) == [
        "it starts with 4 replicas, and nodes have room for 2 beside jobs that stay"
    ]


def test_only_sizes_that_a_job_allows_are_granted_with_the_batch_size_for_them() -> None:
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES, "submitted": NOW - 60.0}
    jobs = [job(name, worker=8, least=1, gpus=1, **words) for name in "ab"]
    sized = [replace(one, roles=(replace(one.roles[0], sizes=(1, 3, 8)),)) for one in jobs]
    tried = reports((1, 64, 10.0), (3, 192, 9.9), (4, 256, 9.8))
    at = shown([replace(one, samples=tried) for one in sized])
    found = Pollux(noise=dict(NEAR)).share(at)
    assert granted(found, at) == {"a": 3, "b": 3}
    assert {grant.batch for grant in found.details.values()} == {512}


def test_a_job_that_ignores_batch_sizes_is_told_none() -> None:
    tried = reports((1, 64, 10.0), (4, 256, 9.0))
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES, "samples": tried}
    at = shown([elastic("deaf", 4, facts=Facts(batch_ignored=True), **words)])
    found = Pollux(noise=dict(NEAR)).share(at)
    assert found.details[0].batch == 0
    assert granted(found, at) == {"deaf": 4}


def test_a_running_job_that_can_not_be_restarted_stays_and_the_others_share_the_rest() -> None:
    rigid = job("rigid", worker=2, gpus=1, on=["n1", "n1"], grant=Grant(batch=64))
    at = shown([rigid, elastic("a", speed=speeds(1.0))])
    found = Pollux().share(at)
    assert granted(found, at) == {"rigid": 2, "a": 6}
    assert found.details[at.table.row[rigid.key]] == Grant(batch=64)


def test_no_job_or_no_node_is_no_error() -> None:
    assert Pollux().share(shown([])).replicas.tolist() == []
    assert Pollux().share(shown([elastic("a")], gpus=0)).replicas.tolist() == [0]


@pytest.mark.parametrize(("words", "said"), [
    ({"power": 0.0}, "power: expected a number from -50.0 to -0.01, found 0.0"),
    ({"power": -120.0}, "power: expected a number from -50.0 to -0.01, found -120.0"),
    ({"delay": -1.0}, "delay: expected seconds from 0, found -1.0"),
    ({"population": 1}, "population: expected an integer from 2 to 1000, found 1"),
    ({"population": 50.5}, "population: expected an integer from 2 to 1000, found 50.5"),
    ({"generations": 1001}, "generations: expected an integer from 2 to 1000, found 1001"),
    ({"noise": 5}, "noise: expected a mapping of models to samples, found 5"),
    ({"noise": {3: 4.0}}, "noise: expected names of models, found 3"),
    ({"noise": {"bert": 0.0}}, "noise.bert: expected samples above 0, found 0.0"),
    ({"noise": {"bert": True}}, "noise.bert: expected samples above 0, found True"),
    ({"noise": {"bert": "4000"}}, "noise.bert: expected samples above 0, found '4000'"),
    ({"trainings": 3}, "trainings: given in code only, found 3"),
])  # fmt: skip
def test_arguments_that_make_no_sense_are_refused_by_name(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load("pollux", words)
    assert str(refused.value) == f"pluginArgs.pollux: {said}"


@pytest.mark.parametrize("power", [-50.0, -0.01])
def test_as_many_jobs_run_at_the_ends_of_power(power: float) -> None:
    at = shown([elastic(f"j{n}", submitted=NOW - 1000.0) for n in range(12)])
    assert sorted(granted(Pollux(power=power).share(at), at).values()) == [0] * 4 + [1] * 8


def several(name: str, node: str = "", **words: Any) -> Job:
    """A parameter server and workers, each with a GPU."""
    on = [node] if node else []
    roles = [
        role("ps", 1, gpus=1, on=on, job=name),
        role("worker", 8, least=1, gpus=1, on=on, job=name),
    ]
    return job(name, roles=roles, submitted=NOW - 1000.0, **words)


def test_gpus_of_other_roles_stay_with_jobs_that_run_and_are_kept_for_those_that_wait() -> None:
    running = shown([several("a", "n0"), several("b", "n0"), several("c", "n1")])
    assert sum(granted(Pollux().share(running), running).values()) == 5
    waiting = shown([several("a", "n0"), several("new")])
    assert sum(granted(Pollux().share(waiting), waiting).values()) == 6


def test_a_job_whose_other_roles_have_no_free_gpus_waits_and_is_told_so() -> None:
    full = elastic("full", on=["n0"] * 4 + ["n1"] * 4, submitted=NOW - 1000.0)
    at = shown([full, several("new")])
    found = Pollux().share(at)
    assert granted(found, at) == {"full": 8, "new": 0}
    assert list(found.why.values()) == [
        "too few GPUs are free for its other roles, and no job gives any up for those"
    ]


# ---- in a cycle: the very nodes ----


def test_the_plan_puts_jobs_on_the_nodes_that_were_found() -> None:
    jobs = [elastic(f"j{n}", 4, speed=speeds(0.8, 4)) for n in range(5)]
    at = shown(jobs, nodes=4)
    expected = nodes_of(Pollux().share(at), at)
    profile = replace(build("pollux"), round=0.0)
    after = plan(snapshot(4, 4, jobs=jobs), profile)
    assert {
        key.name: dict(Counter(h.node for h in places)) for key, places in after.reservations.items()
    } == expected
    assert not after.plugin_errors
