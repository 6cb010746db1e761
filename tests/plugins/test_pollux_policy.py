"""Pollux: places of all jobs by a genetic search over their goodput, and batch sizes with them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.placement.capacity import Capacity
from muster.core.progress.estimate import declared
from muster.core.sharing.job_table import table_in
from muster.policylib.goodput import Limits
from muster.profiles import build
from muster.types import Config, Facts, Grant, Grants, Job, Meter, Report, SharingSnapshot
from muster_plugins.pollux import Pollux, capacity, placed
from muster_plugins.pollux_search import Placements
from muster_plugins.pollux_trainings import Reported, speedups
from tests.scenario import NOW, asks, job, plan, snapshot

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
    assert sum(granted(Pollux().share(replace(at, seed=3)), at).values()) <= 12


def test_a_batch_size_is_chosen_with_the_gpus_where_noise_and_sizes_are_known() -> None:
    tried = reports((1, 64, 10.0), (2, 128, 9.5), (4, 256, 9.0))
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES, "samples": tried}
    at = shown([elastic("a", 4, **words), elastic("own", 4, **{**words, "model": "other"})])
    found = Pollux(noise=dict(NEAR)).share(at)
    batches = {key.name: found.details[row].batch for key, row in at.table.row.items()}
    assert batches == {"a": 512, "own": 0}
    quiet = Pollux(noise={"resnet50": 0.0}).share(at)
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
    ({"power": 0.0}, "power: must be a number below 0; found 0.0"),
    ({"delay": -1.0}, "delay: must be seconds from 0; found -1.0"),
    ({"population": 1}, "population: must be from 2 to 1000; found 1"),
    ({"generations": 1001}, "generations: must be from 2 to 1000; found 1001"),
    ({"noise": {"bert": -2.0}}, "noise.bert: must be samples from 0; found -2.0"),
    ({"trainings": 3}, "trainings: given in code only; found 3"),
])  # fmt: skip
def test_arguments_that_make_no_sense_are_refused_by_name(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        Pollux(**words)


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


# ---- rooms and places ----


def test_the_room_is_what_these_jobs_have_and_what_is_free() -> None:
    ours = elastic("a", on=["n0", "n0"], held=[("worker", "n1", 2)])
    at = snapshot(3, 4, jobs=[ours], foreign={"n0": asks(1), "n2": asks(4)})
    names, room = capacity(at.with_table(shown([ours]).table), [ours])
    assert (names, room.tolist()) == (["n0", "n1"], [3, 4])
    assert placed(ours, names) == [2, 1]


# ---- the search ----


def problem(rng: np.random.Generator, jobs: int, nodes: int) -> Placements:
    unit = rng.integers(1, 3, jobs)
    return Placements(
        base=np.zeros((jobs, nodes), dtype=np.int64),
        room=rng.integers(0, 5, nodes),
        unit=unit,
        least=rng.integers(1, 3, jobs),
        most=rng.integers(2, 9, jobs),
        speedups=np.broadcast_to(np.arange(65.0), (jobs, nodes + 1, 65)),
        kept=np.ones(jobs),
        power=-1.0,
    )


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), jobs=st.integers(1, 5), nodes=st.integers(1, 5))
def test_whatever_is_crossed_and_mutated_is_legal_once_it_is_repaired(
    seed: int, jobs: int, nodes: int
) -> None:
    rng = np.random.default_rng(seed)
    found = problem(rng, jobs, nodes)
    states = rng.integers(0, 5, (20, jobs, nodes))
    legal = found.repaired(found.mutated(found.crossed(states, states[::-1], rng), rng), rng)
    counts = legal.sum(axis=2)
    assert (legal >= 0).all()
    assert ((legal * found.unit[:, None]).sum(axis=1) <= found.room).all(), "no more GPUs than a node has"
    assert ((counts == 0) | (counts >= found.least)).all()
    assert (counts <= found.most).all()
    wide = (legal > 0) & (np.count_nonzero(legal, axis=2, keepdims=True) > 1)
    assert (wide.sum(axis=1) <= 1).all(), "one job that spans nodes on each"


def test_aims_are_the_power_mean_with_restarts_and_the_utility_of_nodes_in_use() -> None:
    base = np.array([[2, 0], [0, 0]])
    ones = np.ones(2, dtype=np.int64)
    found = Placements(base, np.array([2, 2]), ones, ones, ones * 4,
                       np.broadcast_to(np.arange(5.0), (2, 3, 5)), np.array([0.5, 0.5]), -1.0)  # fmt: skip
    stays, moves = found.aims(np.array([[[2, 0], [0, 1]], [[0, 2], [1, 0]]]))
    part = 2 / 4  # a GPU of a node of two
    harmonic = [
        2 / (1 / (2 * part * a + 1e-3) + 1 / (1 * part * b + 1e-3)) for a, b in ((1.0, 0.5), (0.5, 0.5))
    ]
    assert [-stays[0], -moves[0]] == pytest.approx(harmonic)
    assert [-stays[1], -moves[1]] == pytest.approx([3 / 4, 3 / 4])


# ---- what jobs tell ----


def test_steps_are_read_from_reported_speeds_in_iterations_or_samples() -> None:
    tried = reports((1, 64, 10.0), (2, 128, 8.0)) | {Config((("worker", 1),), (1,), "", 64, beside="x"): 1.0}
    plain = elastic("a", samples=tried, model="resnet50", batch_sizes=SIZES)
    steps = {(one.nodes, one.replicas, one.local): one.step for one in Reported(NEAR).tried(plain)}
    assert steps == pytest.approx({(1, 1, 64): 0.1, (1, 2, 64): 0.125})
    told = replace(plain, report=Report(samples=100.0))
    assert {one.step for one in Reported(NEAR).tried(told)} == {6.4, 16.0}


def test_a_speedup_is_one_at_the_fair_share_and_nothing_beyond_what_may_be_had() -> None:
    words = {"model": "resnet50", "batch": 64, "batch_sizes": SIZES}
    job_ = elastic("a", samples=reports((1, 64, 10.0), (2, 128, 9.5), (4, 256, 9.0)), **words)
    known = Reported(NEAR)
    limits = known.limits(job_)
    assert limits == Limits(64, 64, 512, sizes=SIZES)
    found = speedups(known, job_, limits, 6, (2, 8), (1, 4))
    assert found.of.shape == (3, 9)
    assert found.of[1, 4] == pytest.approx(1.0)
    assert found.most == 6
    assert not found.of[:, 7:].any()
    assert not found.of[0].any()
    assert found.of[2, 4] <= found.of[1, 4]
    assert set(found.batches.values()) <= set(SIZES)
