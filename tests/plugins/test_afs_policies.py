"""AFS and what it is compared with, each on a table small enough to work out by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from muster.errors import ConfigurationError
from muster.points import load
from muster.types import Config, Facts, Meter
from muster_plugins.afs_l import AfsL
from muster_plugins.afs_p import AfsP
from muster_plugins.afs_s import AfsS
from muster_plugins.altruistic import Altruistic
from muster_plugins.max_min import MaxMin
from muster_plugins.measured import Measured
from muster_plugins.optimus import Optimus
from muster_plugins.srsf import Srsf
from muster_plugins.srtf import Srtf
from muster_plugins.tiresias_l import TiresiasL
from tests.scenario import job, node, snapshot
from tests.tables import granted, table
from tests.tables import snapshot as shown

POOR, GOOD = [0.0, 1.0, 1.1, 1.15, 1.2], [0.0, 1.0, 1.9, 2.85, 3.7]


def test_srtf_runs_the_job_that_ends_first_and_srsf_the_one_that_costs_least() -> None:
    jobs = table(4, most=[4, 4, 4], request=[4, 1, 2], remaining=[40.0, 20.0, 50.0])
    assert granted(Srtf(), jobs) == [4, 0, 0]  # 10, 20, 25 s
    assert granted(Srsf(), jobs) == [0, 1, 2]  # 40, 20, 50 GPU-s; the first does not fit behind the second
    assert granted(Srtf("most"), jobs) == [0, 4, 0]
    with pytest.raises(ConfigurationError, match="size: must be request or most"):
        load("srtf", {"size": "half"})


def test_srsf_prefers_the_job_that_asks_for_less_to_one_that_ends_as_soon() -> None:
    jobs = table(4, most=[4, 4], request=[4, 2], remaining=[40.0, 20.0])
    assert granted(Srsf(), jobs) == [0, 2]
    assert granted(Srtf(), jobs) == [4, 0]


def test_leftover_gpus_go_where_they_add_most_speed_waiting_jobs_too() -> None:
    jobs = table(6, most=[4, 4, 4], curve=[0, 1, 1], curves=[POOR, GOOD])
    assert granted(Altruistic(), jobs, plan=[1, 1, 0]) == [1, 3, 2]  # from nothing 1.0, then 0.9, 0.95, 0.9
    assert granted(Altruistic(waiting=False), jobs, plan=[1, 1, 0]) == [2, 4, 0]


def test_max_min_gives_the_odd_gpu_to_who_runs_longest() -> None:
    jobs = table(7, most=[4, 4, 4], have=[2, 2, 0], run_start=[50.0, 10.0, np.inf])
    assert granted(MaxMin(), jobs) == [2, 3, 2]
    crowd = table(2, most=[4, 4, 4], have=[0, 1, 1], run_start=[5.0, 20.0, 10.0])
    assert granted(MaxMin(), crowd) == [0, 1, 1]  # no time slicing


def test_optimus_gives_first_gpus_in_order_and_the_rest_by_absolute_time_saved() -> None:
    jobs = table(5, most=[4, 4], curve=[0, 1], curves=[POOR, GOOD], remaining=[10_000.0, 100.0])
    assert granted(Optimus(), jobs) == [4, 1]  # 909 s against 47 s
    crowd = table(2, most=[4, 4, 4], remaining=[30.0, 20.0, 10.0])
    assert granted(Optimus(), crowd) == [1, 1, 0]


def test_tiresias_puts_who_has_used_its_service_behind_and_never_started_jobs_last() -> None:
    jobs = table(
        4,
        most=[4] * 4,
        request=[2, 2, 2, 2],
        have=[2, 2, 0, 0],
        first_start=[0.0, 5.0, np.inf, 3.0],
        run_start=[0.0, 5.0, np.inf, 3.0],
        run_gpu_seconds=[180_000.0, 10.0, 0.0, 180_000.0],
    )
    assert granted(TiresiasL(), jobs, now=90_000.0) == [0, 2, 2, 0]


def test_tiresias_wakes_when_a_run_crosses_the_threshold_and_again_as_long_after() -> None:
    jobs = table(4, most=[8], request=8, have=8, run_start=10.0)
    first = 10 + 22501  # ceil(10 + (180000 + 7) / 8)
    assert TiresiasL().wake(shown(jobs, 10.0)) == first
    assert TiresiasL().wake(shown(jobs, float(first))) == first + 22501
    assert TiresiasL().wake(shown(table(4, most=[8]), 10.0)) is None


def test_afs_l_runs_the_shortest_alone_and_stage_two_looks_at_efficiency() -> None:
    crowd = table(2, most=[4] * 3, remaining=[30.0, 20.0, 10.0])
    assert granted(AfsL(), crowd) == [0, 1, 1]
    jobs = table(5, most=[4, 4], curve=[0, 1], curves=[POOR, GOOD], remaining=[10.0, 10_000.0])
    assert granted(AfsL(), jobs) == [1, 4]  # the longer one is worth it
    twins = table(4, most=[4, 4], curve=[1, 1], curves=[POOR, GOOD], remaining=[30.0, 20.0])
    assert granted(AfsL(), twins) == [1, 3]  # alike: the shorter one


def test_afs_l_gives_gangs_their_least_first_and_then_allowed_sizes() -> None:
    jobs = table(16, most=[8, 4], least=[2, 1], unit=[1, 2], sizes={0: (2, 4, 8)}, remaining=[10.0, 20.0])
    shares = granted(AfsL(), jobs)
    assert shares[0] in (2, 4, 8)
    assert shares[0] + 2 * shares[1] <= 16
    assert shares[0] == 8
    crowd = table(5, most=[4, 4], least=[3, 3], remaining=[20.0, 10.0])
    assert granted(AfsL(), crowd) == [0, 4]


def test_gpus_that_a_jobs_least_can_not_use_go_to_the_others() -> None:
    jobs = table(8, most=[8, 8, 4], least=[1, 8, 1], remaining=[30.0, 40.0, 10.0])
    for policy in (AfsL(), load("afs-p")):
        shares = granted(policy, jobs)
        assert shares[1] == 0
        assert shares[0] + shares[2] == 8


def test_unknown_lengths_count_as_the_longest() -> None:
    crowd = table(2, most=[4] * 3, remaining=[np.nan, 20.0, 10.0])
    assert granted(AfsL(), crowd) == [0, 1, 1]
    few = table(4, most=[4, 4], curve=[1, 1], curves=[POOR, GOOD], remaining=[np.nan, 20.0])
    assert granted(AfsL(), few) == [1, 3]


@pytest.mark.parametrize("policy", [load("afs-p"), AfsS()])
def test_processor_sharing_lets_a_job_finish_its_quantum_then_who_has_run_least(policy: AfsP | AfsS) -> None:
    """Two GPUs, three jobs: a since 0, b since 3600, c waits."""
    running = {"have": [1, 1, 0], "first_start": [0.0, 3600.0, np.inf], "run_start": [0.0, 3600.0, np.inf]}
    jobs = table(2, most=[4] * 3, **running)  # type: ignore[arg-type]
    assert granted(policy, jobs, now=7000.0) == [1, 1, 0]
    assert policy.wake(shown(jobs, 7000.0)) == 7200.0
    assert granted(policy, jobs, now=7200.0) == [0, 1, 1]  # a's counter is 1 now, c's 0


@pytest.mark.parametrize("policy", [load("afs-p"), load("afs-s"), load("themis", {"lease": 7200.0})])
def test_whose_place_is_held_while_another_ends_there_uses_up_no_quantum_and_keeps_it(policy: Any) -> None:
    """Two GPUs, three jobs: c ran before, has waited for longer than a quantum, and its turn has come: its pod is
    pinned, and a's has not ended yet."""
    running = {"have": [0, 1, 1], "first_start": [0.0, 3600.0, 100.0], "run_start": [0.0, 7100.0, 100.0]}
    jobs = table(2, most=[4] * 3, **running)  # type: ignore[arg-type]
    facts = Facts(100.0, 100.0, Meter())
    held = replace(job("c", worker=1, pinned=["n0"]), key=jobs.keys[2], facts=facts)
    assert held.started
    before = replace(shown(jobs, 9000.0), jobs={held.key: held})
    assert policy.share(before).replicas.tolist()[2] == 1
    crowd = snapshot(nodes=1, gpus=1, jobs=[held, job("w", worker=1)], now=9000.0)
    assert policy.observe(held, crowd) == {"count": 0.0, "since": 0.0, "granted": 9000.0}
    there = replace(job("c", worker=1, on=["n0"]), key=held.key, facts=facts)
    assert policy.observe(there, crowd) == {"count": 1.0, "since": 9000.0, "granted": 9000.0}


@pytest.mark.parametrize("policy", [load("afs-p"), load("afs-s"), load("themis")])
def test_no_more_is_kept_for_a_quantum_than_there_is(policy: Any) -> None:
    """One of four was to start again on two GPUs while it seemed that there were three jobs; the fourth is back."""
    running = {"have": [2, 1, 1, 1], "first_start": [0.0] * 4, "run_start": [30.0, 10.0, 20.0, 5.0]}
    jobs = table(4, most=[4] * 4, **running)  # type: ignore[arg-type]
    shares = granted(policy, jobs, now=100.0)
    assert sum(shares) <= 4
    assert shares[1:] == [1, 1, 1], "whose quanta began first"


def test_afs_s_evens_out_and_afs_p_looks_at_speed_when_jobs_are_few() -> None:
    jobs = table(5, most=[4, 4], curve=[0, 1], curves=[POOR, GOOD])
    assert granted(AfsS(), jobs, now=1.0) == [3, 2]
    assert granted(load("afs-p"), jobs, now=1.0) == [1, 4]


def test_coins_of_afs_p_fall_the_same_way_as_long_as_the_jobs_are_the_same() -> None:
    """A cluster decides again at each report: three equal jobs share eight GPUs by coins, and keep them."""
    jobs = table(8, most=[8] * 3, curve=[0, 0, 0], curves=[[0.0, *range(1, 9)]])
    first = granted(load("afs-p"), jobs, now=1.0)
    assert all(granted(load("afs-p"), jobs, now=1.0 + second) == first for second in range(40))
    seeds = [load("afs-p").share(shown(jobs, 1.0, seed)).replicas.tolist() for seed in range(8)]
    assert any(found != first for found in seeds), "coins of another seed"


def test_a_quantum_is_remembered_the_same_job_by_job_and_by_columns() -> None:
    """Live, memory is in the jobs; in the fluid engine in columns."""
    waiting = job("w", worker=1)
    runs = replace(job("r", worker=1, on=["n0"]), facts=Facts(0.0, 0.0, Meter()))
    crowd = snapshot(nodes=1, gpus=2, jobs=[waiting, runs])
    kept = load("afs-p").observe(runs, replace(crowd, now=7200.0))
    assert kept == {"count": 1.0, "since": 7200.0, "granted": 7200.0}
    again = load("afs-p").observe(replace(runs, memory={"afs-p": kept}), replace(crowd, now=7300.0))
    assert again == kept
    alone = snapshot(nodes=2, gpus=8, jobs=[runs])
    renewed = {"count": 0.0, "since": 500.0, "granted": 500.0}
    assert load("afs-p").observe(runs, replace(alone, now=500.0)) == renewed
    over = snapshot(nodes=2, gpus=8, jobs=[runs, *(job(f"d{n}", worker=0) for n in range(16))])
    assert load("afs-p").observe(runs, replace(over, now=500.0)) == renewed, "who is over wants no GPU"
    cordoned = snapshot([node("n0", 2), node("n1", 8, cordoned=True)], jobs=[waiting, runs])
    assert load("afs-p").observe(runs, replace(cordoned, now=7200.0)) == kept, (
        "a closed node's GPUs are nobody's"
    )


def test_themis_leaves_leases_alone_and_offers_the_rest_to_the_worst_off() -> None:
    jobs = table(4, most=[4] * 3, have=[2, 0, 0], run_start=[900.0, np.inf, np.inf], first_start=0.0)
    shares = granted(load("themis"), jobs, now=1000.0)
    assert shares[0] >= 2
    assert sum(shares) == 4
    assert shares[1] >= 1  # submitted first of those that have nothing
    over = granted(load("themis", {"lease": 50.0}), jobs, now=1000.0)
    assert sum(over) == 4


def test_of_jobs_that_hold_nothing_themis_offers_to_who_is_farthest_behind_not_to_who_came_first() -> None:
    jobs = table(4, least=4, most=[4, 4])
    assert granted(load("themis"), jobs, now=1000.0) == [4, 0]
    jobs.progress = np.array([4000.0, 0.0])  # it has had a lease that is over; both wait
    assert granted(load("themis"), jobs, now=1000.0) == [0, 4]


def test_a_job_of_which_nothing_is_measured_is_linear_up_to_its_fair_part() -> None:
    one = job("x", worker=8, least=1)
    others = [job(f"o{n}", worker=1) for n in range(3)]
    seen = snapshot(nodes=2, gpus=8, jobs=[one, *others])
    assert Measured().estimate(one, seen).speeds == (0.0, 1.0, 2.0, 3.0, 4.0)
    over = [job(f"d{n}", worker=0) for n in range(9)]  # their owners are still on the API
    done = snapshot(nodes=2, gpus=8, jobs=[one, *others, *over])
    assert Measured().estimate(one, done).speeds == (0.0, 1.0, 2.0, 3.0, 4.0)
    waits = replace(job("bad", worker=1), invalid="it asks for nonsense")
    assert snapshot(nodes=2, gpus=8, jobs=[one, waits]).contending == 1
    holds = replace(job("bad", worker=1, on=["n0"]), invalid="it asks for nonsense")
    assert snapshot(nodes=2, gpus=8, jobs=[one, holds]).contending == 2
    closed = [node(f"n{n}", 4, cordoned=n > 1) for n in range(4)]
    two = snapshot(closed, jobs=[one, others[0]])
    assert Measured().estimate(one, two).speeds == (0.0, 1.0, 2.0, 3.0, 4.0)
    role = one.roles[0].name
    samples = {Config(roles=((role, 1),)): 2.0, Config(roles=((role, 4),)): 4.0}
    speeds = Measured().estimate(replace(one, samples=samples), seen).speeds
    assert speeds[:2] == (0.0, 1.0)
    assert speeds[2] == pytest.approx(1.2)  # an iteration takes 0.5 s on 1 and 0.25 s on 4: 0.4167 s on 2
    assert speeds[4:] == pytest.approx((2.0, 2.5, 3.0, 3.5, 4.0))


def test_chains_give_each_plugin_what_the_one_before_granted() -> None:
    jobs = table(6, most=[4, 4, 4], request=[4, 1, 4], remaining=[100.0, 10.0, 300.0])
    first = Srtf().share(shown(jobs))
    assert first.replicas.tolist() == [4, 1, 0]
    assert Altruistic().adjust(first, shown(jobs)).replicas.tolist() == [
        4,
        2,
        0,
    ]  # linear: the earlier of equals
