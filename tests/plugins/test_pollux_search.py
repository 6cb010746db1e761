"""What Pollux searches, and what it takes from what jobs tell."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.policylib.genetic import evolve
from muster.policylib.goodput import Limits
from muster.types import Config, Facts, FloatArray, IntArray, Meter, Report
from muster_plugins.pollux import AT_ONCE, CELLS, STATE, Pollux, capacity, placed
from muster_plugins.pollux_search import Placements
from muster_plugins.pollux_trainings import Reported, speedups
from tests.plugins.test_pollux_policy import NEAR, SIZES, elastic, granted, reports, shown
from tests.scenario import asks, snapshot

# ---- rooms and places ----


def test_the_room_is_what_these_jobs_have_and_what_is_free() -> None:
    ours = elastic("a", on=["n0", "n0"], held=[("worker", "n1", 2)])
    at = snapshot(3, 4, jobs=[ours], foreign={"n0": asks(1), "n2": asks(4)})
    names, room = capacity(at.with_table(shown([ours]).table), [ours])
    assert (names, room.tolist()) == (["n0", "n1"], [3, 4])
    assert placed(ours, names) == [2, 1]


# ---- the search ----


def problem(rng: np.random.Generator, jobs: int, nodes: int) -> Placements:
    unit, least, most = rng.integers(1, 3, jobs), rng.integers(1, 3, jobs), rng.integers(2, 9, jobs)
    counts = np.minimum(np.arange(65), most[:, None])
    return Placements(
        base=np.zeros((jobs, nodes), dtype=np.int64),
        room=rng.integers(0, 5, nodes),
        unit=unit,
        most=most,
        span=rng.integers(1, 6, jobs),
        allowed=np.where(counts < least[:, None], 0, counts - (counts - least[:, None]) % 2),
        speedups=np.broadcast_to(np.arange(65.0), (jobs, 3, 65)),
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
    assert (found.allowed[np.arange(jobs), counts] == counts).all(), "only numbers that a job may have"
    assert (np.count_nonzero(legal, axis=2) <= found.span).all()
    wide = (legal > 0) & (np.count_nonzero(legal, axis=2, keepdims=True) > 1)
    assert (wide.sum(axis=1) <= 1).all(), "one job that spans nodes on each"


def test_aims_are_the_power_mean_with_restarts_and_the_utility_of_nodes_in_use() -> None:
    base = np.array([[2, 0], [0, 0]])
    ones = np.ones(2, dtype=np.int64)
    found = Placements(base, np.array([2, 2]), ones, ones * 4, ones * 2, np.tile(np.arange(5), (2, 1)),
                       np.broadcast_to(np.arange(5.0), (2, 3, 5)), np.array([0.5, 0.5]), -1.0)  # fmt: skip
    stays, moves = found.aims(np.array([[[2, 0], [0, 1]], [[0, 2], [1, 0]]]))
    part = 2 / 4  # a GPU of a node of two
    harmonic = [
        2 / (1 / (2 * part * a + 1e-3) + 1 / (1 * part * b + 1e-3)) for a, b in ((1.0, 0.5), (0.5, 0.5))
    ]
    assert [-stays[0], -moves[0]] == pytest.approx(harmonic)
    assert [-stays[1], -moves[1]] == pytest.approx([3 / 4, 3 / 4])


# ---- what a search costs ----


@pytest.mark.parametrize(("jobs", "nodes"), [(10_000, 16), (1_000, 200)])
def test_a_search_is_bounded_however_many_jobs_wait_and_run(
    jobs: int, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In numbers of all states, in numbers of a generation, and in bytes; two generations here take what any do."""
    asked: list[tuple[int, int, int]] = []

    def few(
        search: Placements, first: IntArray, rng: np.random.Generator, population: int, generations: int
    ) -> tuple[IntArray, FloatArray]:
        asked.append((search.base.size, population, generations))
        return evolve(search, first, rng, population, 2)

    monkeypatch.setattr("muster_plugins.pollux.evolve", few)
    running = [elastic(f"r{n}", on=[f"n{n % nodes:0{len(str(nodes - 1))}}"]) for n in range(2 * nodes)]
    at = shown([*running, *(elastic(f"j{n}") for n in range(jobs))], nodes=nodes, gpus=4)
    tracemalloc.start()
    found = Pollux().share(at)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    ((cells, population, generations),) = asked
    assert cells <= STATE
    assert cells * population <= AT_ONCE
    assert cells * population * generations <= CELLS
    assert peak < 200e6
    looked_at = min(256, 4 * nodes)
    later = f"{looked_at} waiting jobs that had less service, or came before it, are looked at first"
    assert list(found.why.values()).count(later) == jobs - looked_at


def test_running_jobs_beyond_what_a_search_takes_keep_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster_plugins.pollux.STATE", 4)
    jobs = [elastic(f"j{n}", on=[f"n{n}"], facts=Facts(gpu_seconds=Meter(n))) for n in range(2)]
    at = shown([*jobs, elastic("new"), elastic("newer")])
    counts = granted(Pollux().share(at), at)
    assert counts["j1"] == 1
    assert sum(counts.values()) == 8


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
    found = speedups(known, job_, limits, 1, 6, (1, 4))
    assert found.of.shape == (3, 7)
    assert found.of[1, 4] == pytest.approx(1.0)
    assert found.most == 6
    assert not found.of[0].any()
    assert found.of[2, 4] <= found.of[1, 4]
    assert set(found.batches.values()) <= set(SIZES)
