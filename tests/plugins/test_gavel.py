# Over 300 lines: rounds, pairs and every policy of Gavel share its clusters and jobs.
"""Gavel's rounds: shares of time by product become who runs where, round after round."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from muster.errors import ConfigurationError
from muster.points import Profile, load
from muster.policylib.lp import Market
from muster.profiles import NAMED, build
from muster.sim.engine import simulate
from muster.sim.models.gavel import Configuration
from muster.sim.options import Options
from muster.sim.result import Result
from muster.sim.submission import Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import PRODUCT, Config, Facts, Grant, Job, Meter, Plan
from muster_plugins.gavel import Asking, Gavel
from muster_plugins.gavel_draws import Draws
from muster_plugins.gavel_facts import speeds, steps_left
from muster_plugins.gavel_fifo import GavelFifo
from muster_plugins.gavel_pairs import BEST, TRIED, rode, with_pairs
from tests.scenario import NOW, job, node, plan, snapshot

ROUND = 360.0
NODES = [node("a", 1, labels={PRODUCT: "v100"}), node("b", 1, labels={PRODUCT: "k80"})]
FAST = Configuration("fast", {("v100", 1): 4.0, ("k80", 1): 1.0})
SLOW = Configuration("slow", {("v100", 1): 1.2, ("k80", 1): 1.0})
WIDE = Configuration("wide", {("v100", 2): 2.0, ("k80", 2): 1.0})
MODELS = {m.name: m for m in (FAST, SLOW, WIDE)}


def profile(plugin: Gavel) -> Profile:
    return Profile(shares=(plugin,), named=((plugin.memory.name, plugin),))


def trained(name: str, samples: Mapping[str, float], count: int = 1, **more: object) -> Job:
    """A job whose speed was measured on these products."""
    known = {Config((("worker", count),), (1,) * count, p): s for p, s in samples.items()}
    return job(name, worker=count, samples=known, request=count, **more)


def remembered(found: Job, plugin: Gavel, share: Mapping[str, float], jobs: int, **more: object) -> Job:
    """A job with a share of time that was made 1,000 s ago."""
    kept = {"at": NOW - 1000.0, "jobs": jobs, "share": share, "had": {}, "owed": {}, **more}
    return replace(found, memory={plugin.memory.name: kept})


def on(result: Plan) -> dict[str, str]:
    """Who is given which node."""
    return {
        key.name: reservation.node
        for key, reservations in result.reservations.items()
        for reservation in reservations
    }


def simulated(
    *submissions: tuple[str, str, float], name: str, gpus: str = "v100=1,k80=1", **options: object
) -> Result:
    """Submissions (name, model, iterations) on nodes of one GPU."""
    groups = [part.split("=") for part in gpus.split(",")]
    jobs = [
        Submission(n, 0.0, m, work, k, k, k, tags={"profiled": 1.0})
        for n, m, work in submissions
        for k in [MODELS[m].max]
    ]
    cluster = Cluster(tuple(Group(int(count), 1, product) for product, count in groups))
    return simulate(Workload(jobs, MODELS), cluster, build(name), Options(**options))  # type: ignore[arg-type]


# ---- one round ----


def test_a_new_job_runs_in_the_round_in_which_its_share_is_made() -> None:
    plugin = load("gavel-max-min")
    found = plan(snapshot(NODES, jobs=[trained("x", {"v100": 2.0, "k80": 1.0})]), profile(plugin))
    assert on(found) == {"x": "a"}
    assert {key.name: set(kept) for key, kept in found.memory.items()} == {"x": {plugin.memory.name}}


def test_an_allocation_stands_for_its_interval_and_who_comes_meanwhile_waits_for_the_next() -> None:
    plugin = load("gavel-max-min")
    old = remembered(trained("old", {"k80": 1.0, "v100": 0.0}), plugin, {"k80": 1.0}, jobs=1)
    new = trained("new", {"v100": 1.0, "k80": 1.0}, submitted=NOW - 10)
    found = plan(snapshot(NODES, jobs=[old, new]), profile(plugin))
    assert on(found) == {"old": "b"}
    assert not found.memory
    assert [s.message for k, s in found.statuses.items() if k.name == "new"] == [
        "it came after the last allocation of time, and runs from the next one on"
    ]
    assert on(plan(snapshot(NODES, jobs=[old, new]), profile(load("gavel-max-min", {"idle": False})))) == {
        "old": "b",
        "new": "a",
    }
    later = replace(snapshot(NODES, jobs=[old, new]), now=NOW + 1000.0)
    assert {key.name for key in plan(later, profile(plugin)).memory} == {"old", "new"}


def test_the_job_that_has_had_less_of_its_share_goes_first() -> None:
    plugin = load("gavel-max-min")
    one = NODES[:1]
    half = {"v100": 0.5}
    first = remembered(trained("first", {"v100": 1.0}), plugin, half, jobs=2)
    ran = replace(first, facts=Facts(by_product={"v100": Meter(ROUND)}))
    second = remembered(trained("second", {"v100": 1.0}), plugin, half, jobs=2)
    assert on(plan(snapshot(one, jobs=[first, second]), profile(plugin))) == {"first": "a"}
    assert on(plan(snapshot(one, jobs=[ran, second]), profile(plugin))) == {"second": "a"}
    much = remembered(ran, plugin, {"v100": 0.9}, jobs=2)  # 0.9 / (180 + 360) > 0.1 / 180
    little = remembered(second, plugin, {"v100": 0.1}, jobs=2)
    assert on(plan(snapshot(one, jobs=[much, little]), profile(plugin))) == {"first": "a"}


def test_a_gang_that_does_not_fit_what_is_left_is_skipped_and_one_behind_it_runs() -> None:
    plugin = load("gavel-max-min")
    gang = remembered(trained("gang", {"v100": 1.0}, count=2), plugin, {"v100": 1.0}, jobs=2)
    single = remembered(trained("single", {"v100": 1.0}), plugin, {"v100": 0.1}, jobs=2)
    assert on(plan(snapshot(NODES[:1], jobs=[gang, single]), profile(plugin))) == {"single": "a"}


def test_no_gpu_idles_for_a_share_of_0_but_one_on_which_the_job_cannot_run() -> None:
    plugin = load("gavel-max-min")
    able = remembered(trained("able", {"v100": 1.0, "k80": 1.0}), plugin, {"v100": 0.0}, jobs=1)
    unable = remembered(trained("able", {"v100": 0.0, "k80": 1.0}), plugin, {}, jobs=1)
    assert on(plan(snapshot(NODES[:1], jobs=[able]), profile(plugin))) == {"able": "a"}
    assert on(plan(snapshot(NODES[:1], jobs=[unable]), profile(plugin))) == {}


def test_products_are_handed_out_in_the_order_given_whatever_their_names_look_like() -> None:
    names = ("NVIDIA-A100-SXM4-80GB", "Tesla-T4")
    now = snapshot([], NODES)
    for given in (names, names[::-1]):
        assert load("gavel-max-min", {"products": list(given)})._order(names, [], now) == list(given)


def test_a_product_that_was_not_measured_counts_as_good_as_the_best_that_was() -> None:
    assert speeds(trained("x", {"v100": 3.0, "k80": 1.0}), ["k80", "p100", "v100"]) == [1.0, 3.0, 3.0]
    assert speeds(job("y", worker=2), ["k80", "v100"]) == [1.0, 1.0]


def test_what_is_left_of_a_job_that_reports_nothing_is_what_its_owner_declared() -> None:
    declared = trained("x", {"v100": 2.0}, remaining_work=100.0)
    assert steps_left(declared, NOW) == 200.0
    assert steps_left(replace(declared, facts=Facts(progress=Meter(30.0))), NOW) == 140.0


# ---- the courses that come of it ----


def test_two_equal_jobs_take_turns_on_one_gpu() -> None:
    result = simulated(
        ("x", "fast", 4 * 720.0), ("y", "fast", 4 * 720.0), name="gavel-max-min-perf", gpus="v100=1"
    )
    assert sorted(result.ended.tolist()) == [3 * ROUND, 4 * ROUND]
    assert result.restarts.tolist() == [1, 1]


@pytest.mark.parametrize("name", sorted(n for n in NAMED if n.startswith("gavel-")))
def test_every_policy_finishes_every_job_and_twice_the_same_way(name: str) -> None:
    jobs = [(f"j{i}", ("fast", "slow", "wide")[i % 3], 400.0 * (1 + i % 4)) for i in range(9)]
    first = simulated(*jobs, name=name, gpus="v100=2,k80=3", seed=3)
    again = simulated(*jobs, name=name, gpus="v100=2,k80=3", seed=3)
    assert np.isfinite(first.ended).all()
    assert first.ended.tolist() == again.ended.tolist()


def test_knowing_speeds_by_product_is_worth_something() -> None:
    """Half of the jobs gain fourfold from a V100, the others hardly."""
    jobs = [(f"j{i}", ("fast", "slow")[i % 2], 4000.0) for i in range(6)]
    known, blind = (simulated(*jobs, name=f"gavel-max-min{e}", gpus="v100=2,k80=2") for e in ("-perf", ""))
    assert known.ended.mean() < blind.ended.mean()


# ---- pairs ----

GOOD = Configuration("good", {("v100", 1): 1.0}, {("v100", 1, "good"): 0.8, ("v100", 1, "bad"): 0.2})
BAD = Configuration("bad", {("v100", 1): 1.0}, {("v100", 1, "good"): 0.2, ("v100", 1, "bad"): 0.2})


def on_one_gpu(name: str, *models: Configuration, work: float = 1440.0) -> list[float]:
    """When jobs of these models end that share one GPU."""
    jobs = [
        Submission(f"j{i}", 0.0, m.name, work, 1, 1, 1, tags={"profiled": 1.0}) for i, m in enumerate(models)
    ]
    workload = Workload(jobs, {m.name: m for m in (GOOD, BAD)})
    result = simulate(workload, Cluster((Group(1, 1, "v100"),)), build(name), Options())
    return [float(x) for x in result.ended]


@pytest.mark.parametrize("policy", ["max-min", "ftf", "min-total-duration"])
def test_two_jobs_that_hardly_slow_each_other_run_on_one_gpu_together(policy: str) -> None:
    assert on_one_gpu(f"gavel-{policy}-packed", GOOD, GOOD) == [1800.0, 1800.0]
    assert max(on_one_gpu(f"gavel-{policy}-perf", GOOD, GOOD)) == 2880.0


def test_jobs_that_are_worse_off_together_take_turns() -> None:
    assert max(on_one_gpu("gavel-max-min-packed", GOOD, BAD)) == 2880.0


def test_a_third_job_takes_turns_with_pairs() -> None:
    """Of three alike each pair has a third of the time: 2/3 x 0.8 iterations/s for everybody."""
    ends = on_one_gpu("gavel-max-min-packed", GOOD, GOOD, GOOD)
    assert max(ends) <= 1440 / (2 / 3 * 0.8) + 2 * ROUND
    assert max(ends) < 3 * 1440


def test_jobs_in_place_are_a_pair_once_untested_and_then_by_what_was_measured() -> None:
    def in_place(name: str, **samples: float) -> Job:
        one = trained(name, {"v100": 1.0}, on=["a"])
        measured = {Config((("worker", 1),), (1,), "v100", beside=other): s for other, s in samples.items()}
        roles = tuple(replace(role, devices=True) for role in one.roles)
        return replace(one, model=name, roles=roles, samples={**one.samples, **measured})

    def pairs(*jobs: Job, untried: float) -> dict[tuple[int, int], list[float]]:
        market = Market(np.ones((len(jobs), 1)), np.ones(len(jobs)), np.ones(1))
        found = with_pairs(market, jobs, ["v100"], untried)
        return {pair: both[:, 0].tolist() for pair, both in zip(found.pairs, found.together, strict=True)}

    a, b = in_place("a"), in_place("b")
    assert pairs(a, b, untried=0.0) == {}
    assert pairs(a, b, untried=1.2) == {(0, 1): [0.6, 0.6]}
    assert pairs(in_place("a", b=0.9), in_place("b", a=0.4), untried=1.2) == {(0, 1): [0.9, 0.4]}
    assert pairs(in_place("a", b=0.6), in_place("b", a=0.45), untried=1.2) == {}, "it is worth 1.05"
    many = [in_place("a", b=0.9), in_place("b", a=0.4), *(in_place(f"j{i}") for i in range(100))]
    found = pairs(*many, untried=1.2)
    assert len(found) <= TRIED * len(many), "not one for each two"
    assert found[0, 1] == [0.9, 0.4]
    assert {first for first, second in found if second == 50} == {46, 47, 48, 49}
    met = {f"j{i}": 0.6 + 0.01 * (i % 3) for i in range(100)}
    known = pairs(*(in_place(f"j{i}", **met) for i in range(100)), untried=1.2)
    assert len(known) == sum(min(BEST, i) for i in range(100)), "nor where all have met"
    assert {first for first, second in known if second == 50} == {26, 29, 32, 35, 38, 41, 44, 47}
    last = pairs(*many[2:], in_place("a", b=0.9), in_place("b", a=0.4), in_place("c", a=0.9), untried=1.2)
    assert last[100, 102] == [0.9, 0.9], "who was measured with it comes beside those that are tried"


def test_two_in_place_are_a_pair_only_on_products_whose_memory_takes_both() -> None:
    """Others were granted one GPU round after round, and refused it each time with all that depended on it."""

    def needs(name: str, memory: int) -> Job:
        one = trained(name, {"v100": 1.0, "k80": 1.0}, on=["a"])
        roles = tuple(replace(role, devices=True) for role in one.roles)
        return replace(one, model=name, roles=roles, gpu_memory=memory)

    jobs = [needs("small", 6000), needs("other", 6000), needs("large", 12000)]
    market = Market(np.ones((3, 2)), np.ones(3), np.ones(2))
    found = with_pairs(market, jobs, ["k80", "v100"], 1.2, {"k80": 12000, "v100": 16000})
    assert found.pairs == ((0, 1),)
    wider = with_pairs(market, jobs, ["k80", "v100"], 1.2, {"k80": 12000, "v100": 18000})
    assert wider.pairs == ((0, 1), (0, 2), (1, 2))
    assert wider.together[1].tolist() == [[0.0, 0.6], [0.0, 0.6]]
    assert with_pairs(market, jobs, ["k80", "v100"], 1.2, {}).pairs == (), "no node says what it has"


def test_an_allocation_that_fails_is_tried_once_a_snapshot_and_the_last_one_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = load("gavel-max-min")
    tries: list[Asking] = []

    def fails(_: Gavel, asking: Asking) -> None:
        tries.append(asking)
        raise ValueError("no solution")

    monkeypatch.setattr(type(policy), "allocate", fails)
    jobs = [trained(name, {"v100": 1.0}) for name in "abc"]
    for number in (1, 2):
        found = snapshot(NODES, jobs=jobs)
        with pytest.raises(ValueError, match="no solution"):
            policy.observe(jobs[0], found)
        assert [policy.observe(job, found) for job in jobs[1:]] == [None, None]
        assert len(tries) == number


def test_time_on_the_gpu_of_another_is_counted_to_the_pair() -> None:
    owner = trained("owner", {"v100": 1.0}, on=["a"])
    rider = remembered(
        trained("rider", {"v100": 1.0}, on=["a"]), load("gavel-max-min"), {"v100": 0.1}, jobs=2
    )
    rider = replace(
        rider, grant=Grant(product="v100", beside=owner.key), facts=Facts(by_product={"v100": Meter(ROUND)})
    )
    found = snapshot(NODES, jobs=[owner, rider])
    once = rode(rider, rider.memory["gavel-max-min"], found)
    assert once is not None
    assert once["rode"] == {str(owner.key): {"v100": ROUND}}
    twice = rode(replace(rider, facts=Facts(by_product={"v100": Meter(ROUND + 60.0)})), once, found)
    assert twice is not None
    assert twice["rode"] == {str(owner.key): {"v100": ROUND + 60.0}}


# ---- FIFO ----


def test_draws_are_pythons_own_from_wherever_they_were_left() -> None:
    """The artifact draws with random.Random(seed).randrange; a policy keeps only how far it has read."""
    counts = [3, 2, 1, 3, 5, 2, 3, 7, 1, 2] * 5
    theirs = random.Random(4)
    read, drawn = 0, []
    for count in counts:
        draws = Draws(4, read)
        drawn.append(draws.below(count))
        read = draws.read
    assert drawn == [theirs.randrange(count) for count in counts]


def test_products_are_shuffled_as_pythons_own_shuffle_does() -> None:
    names, theirs, read = ["v100", "p100", "k80"], random.Random(5), 0
    for _ in range(20):
        expected = names.copy()
        theirs.shuffle(expected)
        draws = Draws(5, read)
        assert draws.shuffled(names) == expected
        read = draws.read


def asking(
    need: Mapping[str, int], capacity: Mapping[str, int], placed: Sequence[tuple[str, str, int]] = ()
) -> Asking:
    """Jobs by name and GPUs; who was given what last time, the jobs that have ended since among them."""
    names = sorted(capacity)
    jobs = [trained(name, {}, count) for name, count in need.items()]
    market = Market(
        np.ones((len(need), len(names))),
        np.array(list(need.values()), dtype=float),
        np.array([capacity[n] for n in names], dtype=float),
    )
    told = {"at": 1.0, "read": 5, "placed": [[f"team/{n}", p, g] for n, p, g in placed]} if placed else {}
    return Asking(jobs, names, market, [told] * len(jobs), NOW, 0)


def given(policy: GavelFifo, found: Asking) -> dict[str, str]:
    """Who is given which product, as the policy wants to be told next time."""
    shares, told = policy.allocate(found)
    result = {name.partition("/")[2]: product for name, product, _ in told[0]["placed"]}
    rows = {job.key.name: row for row, job in enumerate(found.jobs)}
    assert shares.sum() == len(result)
    assert all(shares[rows[name], found.products.index(product)] == 1.0 for name, product in result.items())
    return result


def test_published_fifo_passes_over_a_product_that_has_too_few_gpus_altogether() -> None:
    assert given(load("gavel-fifo"), asking({"a": 3}, {"k80": 8, "v100": 2})) == {"a": "k80"}


def test_published_fifo_gives_the_last_product_that_has_any_gpu_left() -> None:
    """The slip of the artifact: a gang of four is sent to three V100 although it fits on the K80."""
    assert given(load("gavel-fifo"), asking({"a": 1, "b": 4}, {"k80": 8, "v100": 4})) == {
        "a": "v100",
        "b": "v100",
    }


def test_fifo_as_the_paper_has_it_gives_a_product_with_room_and_the_first_without_ends_it() -> None:
    found = asking({"a": 4, "b": 8, "c": 1}, {"k80": 4, "v100": 3})
    assert given(load("gavel-fifo", {"pick": "random"}), found) == {"a": "k80"}


def test_fifo_keeps_a_job_on_its_product() -> None:
    found = asking({"a": 1, "b": 1}, {"k80": 1, "v100": 1}, [("a", "k80", 1)])
    assert given(load("gavel-fifo", {"pick": "random"}), found) == {"a": "k80", "b": "v100"}
    assert load("gavel-fifo").allocate(found)[1][0]["read"] > 5


def test_the_head_of_the_queue_follows_a_job_that_has_ended_on_its_product() -> None:
    """Though the V100 would be the published choice."""
    found = asking({"a": 1, "b": 1, "c": 1}, {"k80": 2, "v100": 2}, [("gone", "k80", 1), ("a", "k80", 1)])
    assert given(load("gavel-fifo"), found) == {"a": "k80", "b": "k80", "c": "v100"}


def test_it_does_not_follow_where_its_gpus_are_not_left() -> None:
    found = asking({"a": 1, "b": 2}, {"k80": 2, "v100": 2}, [("a", "k80", 1), ("gone", "k80", 1)])
    assert given(load("gavel-fifo"), found) == {"a": "k80", "b": "v100"}


@pytest.mark.parametrize("wrong", ["v100", [5], {"v100": 1, 2: 3}])
def test_products_are_a_list_of_names(wrong: object) -> None:
    with pytest.raises(
        ConfigurationError, match="gavel-ftf: products: must be a list of GPU products; found"
    ):
        load("gavel-ftf", {"products": wrong})


def test_pick_is_one_of_two() -> None:
    with pytest.raises(ValueError, match="published or random"):
        GavelFifo(pick="first")


def test_shares_of_a_cluster_without_products_are_of_all_its_gpus() -> None:
    plugin = load("gavel-max-min")
    found = snapshot([node("a", 2)], jobs=[trained("x", {}), trained("y", {})])
    assert on(plan(found, profile(plugin))) == {"x": "a", "y": "a"}
