# Over 300 lines: its scenarios follow the paper's two algorithms step by step.
"""SideCar's reshaping, and what it is compared with: scenarios through the whole cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from muster.core.cycle import cycle
from muster.errors import ConfigurationError
from muster.live_recipes import on_a_cluster
from muster.points import Profile, load
from muster.policylib.completion import Overheads, forecast
from muster.profiles import NAMED, build
from muster.types import PRODUCT, Config, Facts, Job, NodeRecord, Plan, Report
from muster_plugins.reshape import POINTS, Reshape
from muster_plugins.sidecar_default import drawn
from tests.scenario import NOW, job, key, node, role, snapshot

RESHAPE = build("reshape")
TERMINATION = build("termination")
RESNET = {1: 1.0, 2: 1.7, 4: 2.4}
"""The introduction's ResNet: iterations/s by GPUs."""


def training(
    name: str,
    *,
    left: float = 10_000.0,
    on: Sequence[str] = (),
    sizes: Sequence[int] = (1, 2, 4),
    speeds: Mapping[int, float] | None = None,
    products: Mapping[str, float] | None = None,
    since: float = 1000.0,
    submitted: float = NOW - 60.0,
    report: Report | None = None,
) -> Job:
    """A job of one container: iterations left, the nodes of its GPUs, its profile, seconds since its start. After
    110 s of it training reports a speed (at this very moment, so that it has no past)."""
    speeds = speeds or RESNET
    samples = {
        Config((("worker", n),), (n,), product): v * factor
        for n, v in speeds.items()
        for product, factor in (products or {"": 1.0}).items()
    }
    facts = Facts(first_start=NOW - since, run_start=NOW - since) if on else Facts()
    return job(
        name,
        roles=[role("worker", max(sizes), least=min(sizes), sizes=sizes, on=on, job=name)],
        samples=samples,
        facts=facts,
        submitted=submitted,
        report=report or Report(at=NOW, step=0.0, total=left, speed=1.0 if on and since > 110.0 else 0.0),
    )


def shares(plan: Plan) -> dict[str, int]:
    return {k.name: n for k, n in plan.shares.items()}


def planned(
    jobs: Sequence[Job], nodes: Sequence[NodeRecord] | int = 1, *, profile: Profile = RESHAPE
) -> Plan:
    gpus = 4 if isinstance(nodes, int) else 0
    plan = cycle(snapshot(nodes, gpus, jobs), profile)
    assert not plan.plugin_errors
    return plan


# ---- Algorithm 1 ----


def test_the_case_study_two_of_four_gpus_go_to_the_job_that_arrives() -> None:
    plan = planned([training("one", on=["n0"] * 4), training("two", sizes=(2,), speeds={2: 1.0})])
    assert shares(plan) == {"one": 2, "two": 2}
    assert [s.pod for s in plan.shrinks] == ["one-worker-3", "one-worker-2"]
    assert [h.node for h in plan.later[key("two")]] == ["n0", "n0"]
    assert plan.shrinks[0].cause == "2 of its GPUs go to team/two, which arrives"


def test_a_job_that_arrives_on_an_idle_node_gets_the_count_that_ends_first() -> None:
    assert shares(planned([training("one")])) == {"one": 4}


def test_counts_that_change_no_makespan_are_equal_and_the_fewest_gpus_win() -> None:
    """Algorithm 1 alone: the running job ends last whatever the new one gets (line 18: strictly smaller)."""
    only_down = Profile(shares=(load("reshape", {"up": False}),), resize="hand-over")
    jobs = [training("long", left=1e6, on=["n0"] * 4), training("short", left=10.0)]
    assert shares(planned(jobs, [node("n0", 8)], profile=only_down)) == {"long": 4, "short": 1}


def test_gpus_are_taken_from_the_job_whose_loss_costs_the_makespan_least() -> None:
    jobs = [
        training("long", left=20_000.0, on=["n0"] * 4),
        training("short", left=200.0, on=["n0"] * 4),
        training("new", left=2_000.0),
    ]
    plan = planned(jobs, [node("n0", 8)])
    assert shares(plan)["long"] == 4
    assert shares(plan)["short"] < 4
    assert shares(plan)["new"] == 4 - shares(plan)["short"]


def test_a_removal_must_leave_an_allowed_count_and_be_exactly_what_is_missing() -> None:
    """{4} can't shrink; of {1, 2, 4} at 4, two or three GPUs can be taken, never one, though one would do."""
    one_idle = [node("n0", 5)]
    assert shares(
        planned([training("rigid", sizes=(4,), on=["n0"] * 4), training("new", sizes=(2,))], one_idle)
    ) == {
        "rigid": 4,
        "new": 0,
    }
    assert (
        shares(planned([training("old", on=["n0"] * 4), training("new", sizes=(2,))], one_idle))["old"] == 4
    )
    assert shares(
        planned([training("old", on=["n0"] * 4), training("new", sizes=(3,), speeds={3: 2.0})], one_idle)
    ) == {
        "old": 2,
        "new": 3,
    }


def test_line_9_as_printed_would_forbid_what_the_text_allows() -> None:
    """{4, 5} goes from 5 to 4: one GPU is removed, which "ranges from N_min to N_max" leaves out."""
    old = training("old", sizes=(4, 5), speeds={4: 2.4, 5: 2.5}, on=["n0"] * 5)
    assert shares(planned([old, training("new", sizes=(1,))], [node("n0", 5)])) == {"old": 4, "new": 1}


def test_a_job_is_one_container_so_idle_gpus_of_two_nodes_do_not_add_up() -> None:
    nodes = [node("n0", 2), node("n1", 2)]
    plan = planned([training("four", sizes=(4,))], nodes)
    assert shares(plan) == {"four": 0}
    assert plan.statuses[key("four")].message
    assert shares(planned([training("two", sizes=(1, 2))], nodes)) == {"two": 2}


def test_each_job_that_waits_is_served_in_order_on_what_the_one_before_left() -> None:
    """One donor serves one arrival: then it is adjusting, and the arrival is not running yet."""
    jobs = [training("old", on=["n0"] * 4), training("a"), training("b")]
    granted = shares(planned(jobs))
    assert granted["old"] + granted["a"] == 4
    assert granted["old"] < 4
    assert granted["b"] == 0


def test_a_job_that_adjusts_or_has_just_been_started_is_no_donor_and_a_cycle_is_asked_for() -> None:
    plan = planned([training("old", on=["n0"] * 4, since=50.0), training("new")])
    assert shares(plan) == {"old": 4, "new": 0}
    assert plan.requeue_at == NOW + 10.0
    silent = replace(training("old", on=["n0"] * 4, since=50.0), report=None)
    assert shares(planned([silent, training("new")])) == {"old": 4, "new": 0}
    older = replace(training("old", on=["n0"] * 4, since=250.0), report=None)
    assert shares(planned([older, training("new")]))["old"] < 4


def test_the_faster_product_is_taken_when_the_makespan_leaves_it_open() -> None:
    nodes = [
        node("a-slow", 4, labels={PRODUCT: "P100"}),
        node("b-fast", 4, labels={PRODUCT: "V100"}),
    ]
    products = {"P100": 1.0, "V100": 1.4}
    plan = planned([training("new", products=products)], nodes)
    assert {h.node for h in plan.reservations[key("new")]} == {"b-fast"}


# ---- Algorithm 2 ----


def test_idle_gpus_go_to_the_job_that_ends_last() -> None:
    jobs = [training("short", left=500.0, on=["n0"]), training("long", left=50_000.0, on=["n0"])]
    assert shares(planned(jobs, [node("n0", 5)])) == {"short": 1, "long": 4}


def test_gpus_that_are_added_or_go_are_counted_as_gpus_and_one_is_one() -> None:
    report = Report(at=NOW, step=0.0, total=9000.0, speed=1.0)
    pairs = job("pairs", roles=[role("worker", 2, gpus=2, least=1, sizes=(1, 2), on=["n0"], job="pairs")],
                samples={Config((("worker", n),), (n,)): float(n) for n in (1, 2)}, report=report,
                facts=Facts(first_start=NOW - 1000.0, run_start=NOW - 1000.0))  # fmt: skip
    assert planned([pairs]).whys[key("pairs")] == "2 idle GPUs are added; at its maximum"
    one = planned([training("one", sizes=(3, 4), on=["n0"] * 3)])
    assert one.whys[key("one")] == "1 idle GPU is added; at its maximum"
    gives = planned(
        [training("old", on=["n0"] * 4, sizes=(3, 4)), training("new", sizes=(1,), speeds={1: 1.0})]
    )
    assert gives.shrinks[0].cause == "1 of its GPUs goes to team/new, which arrives"


def test_of_steps_that_change_no_makespan_the_one_of_fewest_gpus_comes_first() -> None:
    report = Report(at=NOW, step=0.0, total=9000.0, speed=1.0)
    since = Facts(first_start=NOW - 1000.0, run_start=NOW - 1000.0)
    fours = job("fours", roles=[role("worker", 2, gpus=4, least=1, sizes=(1, 2), on=["n0"], job="fours")],
                samples={Config((("worker", n),), (n,)): float(n) for n in (1, 2)}, report=report, facts=since,
                submitted=NOW - 90.0)  # fmt: skip
    more = training("more", left=9000.0, on=["n0"], sizes=(1, 3))
    last = training("last", left=1e6, on=["n0"], sizes=(1,))
    assert shares(planned([fours, more, last], [node("n0", 10)])) == {"fours": 1, "more": 3, "last": 1}


def test_idle_gpus_are_not_added_while_a_job_waits() -> None:
    jobs = [training("old", sizes=(1, 2, 4), on=["n0"]), training("big", sizes=(8,), speeds={8: 4.0})]
    assert shares(planned(jobs, [node("n0", 4)])) == {"old": 1, "big": 0}


def test_steps_go_on_until_nothing_idle_can_be_used() -> None:
    jobs = [training("a", on=["n0"]), training("b", on=["n0"])]
    assert shares(planned(jobs, [node("n0", 8)])) == {"a": 4, "b": 4}


def test_a_job_is_reshaped_at_a_loss_as_printed_unless_worthwhile_is_asked_for() -> None:
    nearly_done = training("done", left=20.0, on=["n0"])
    assert shares(planned([nearly_done]))["done"] > 1
    sober = Profile(shares=(load("reshape", {"worthwhile": True}),), resize="hand-over")
    assert shares(planned([nearly_done], profile=sober)) == {"done": 1}


def test_gpus_on_another_node_mean_a_restart_there_if_that_pays() -> None:
    nodes = [node("n0", 1), node("n1", 4)]
    plan = planned([training("long", left=50_000.0, on=["n0"])], nodes)
    assert shares(plan) == {"long": 4}
    places = [*plan.reservations.get(key("long"), ()), *plan.later.get(key("long"), ())]
    assert {h.node for h in places} == {"n1"}
    # 300 s left: 125 on four GPUs, but the restart takes 211
    assert shares(planned([training("short", left=300.0, on=["n0"])], nodes)) == {"short": 1}


# ---- prediction ----


def test_the_completion_time_has_all_of_its_terms() -> None:
    terms = Overheads()
    assert terms.beginning == 83.0 + 9.0
    assert terms.ending == 9.0 + 9.0 + 91.0
    assert terms.change(grows=False, restart=False) == 27.0
    assert terms.change(grows=True, restart=False) == 37.0
    assert terms.change(grows=True, restart=True) == 37.0 + 91.0 + 83.0
    one = training("one", left=240.0)
    scene = load("reshape").scene(_started(one))
    assert scene.finish(scene.jobs[0], 4, "n0") == pytest.approx(92.0 + 100.0 + 109.0)
    running = training("run", left=240.0, on=["n0"])
    scene = load("reshape").scene(_started(running))
    assert scene.finish(scene.jobs[0], 1, "n0") == pytest.approx(240.0 + 109.0)
    assert scene.finish(scene.jobs[0], 4, "n0") == pytest.approx(37.0 + 100.0 + 109.0)


def test_where_a_change_of_a_job_was_measured_its_seconds_take_the_place_of_the_paper_s() -> None:
    terms = Overheads().measured(20.1, restart=True)
    assert terms.change(grows=False, restart=True) == pytest.approx(20.1)
    assert (terms.job_start, terms.job_stop) == (pytest.approx(8.3), pytest.approx(9.1))
    assert Overheads(0.0, 0.0, 0.0, 0.0, 0.0, 0.0).measured(5.0, restart=True).ending == 0.0
    # 300 s left on one GPU of n0, 125 on four of n1: too short for the paper's restart, not for one of 20 s
    nodes = [node("n0", 1), node("n1", 4)]
    short = training("short", left=300.0, on=["n0"])
    known = replace(short, facts=replace(short.facts, last_cost=20.1))
    paper, live = build("reshape-restart"), on_a_cluster(NAMED["reshape-restart"], False, "")
    cluster = build("reshape-restart", live.arguments)
    assert live.arguments["reshape"] == {"measured": True, "restart": True}
    assert shares(planned([known], nodes, profile=paper)) == {"short": 1}
    assert shares(planned([short], nodes, profile=cluster)) == {"short": 1}
    assert shares(planned([known], nodes, profile=cluster)) == {"short": 4}


def test_on_a_cluster_a_job_that_requests_its_gpus_restarts_and_one_in_place_does_not() -> None:
    requests = training("t", on=["n0"])
    in_place = replace(requests, roles=tuple(replace(one, devices=True) for one in requests.roles))
    assert Reshape(measured=True).restarts(requests)
    assert not Reshape(measured=True).restarts(in_place)
    assert not Reshape().restarts(requests), "as the simulator hands over"


def test_termination_predicts_with_measured_seconds_on_a_cluster() -> None:
    live = on_a_cluster(NAMED["termination"], False, "")
    assert live.arguments["termination"] == {"measured": True}
    short = training("short", left=300.0, on=["n0"])
    known = replace(short, facts=replace(short.facts, last_cost=20.1))
    cluster = build("termination", live.arguments)
    assert shares(planned([short], profile=cluster)) == {"short": 1}
    assert shares(planned([known], profile=cluster))["short"] > 1


def test_termination_predicts_with_the_seconds_that_it_is_given() -> None:
    short = training("short", left=300.0, on=["n0"])
    assert shares(planned([short], profile=TERMINATION)) == {"short": 1}
    soon = {"job_start": 2.0, "job_stop": 2.0, "process_start": 0.2, "checkpoint": 0.2, "process_stop": 0.2}
    quick = build("termination", {"termination": soon})
    assert shares(planned([short], profile=quick))["short"] > 1
    with pytest.raises(ConfigurationError, match="at least 0"):
        build("termination", {"termination": {"job_stop": -1.0}})
    with pytest.raises(
        ConfigurationError, match=r"pluginArgs\.reshape\.job_stop: expected a number, found '0\.225'"
    ):
        build("reshape", {"reshape": {"job_stop": "0.225"}})


def _started(one: Job):  # type: ignore[no-untyped-def]
    from muster.core.sharing.job_table import table_of

    before = snapshot(1, 4, [one])
    return before.with_table(table_of(before.jobs.values(), NOW, 4))


def test_unknown_lengths_are_predicted_from_the_accuracy_curve() -> None:
    def accuracy(k: float) -> float:
        return 1.0 - (1.0 / (0.001 * k + 1.25) + 0.1)

    points = tuple((k, accuracy(k)) for k in (10.0, 200.0, 500.0))
    at = Report(at=NOW, step=1000.0, loss=accuracy(1000.0), target=accuracy(4000.0), speed=2.0)
    believed = forecast(training("one", report=at, on=["n0"]), NOW, points)
    assert believed.left == pytest.approx(3000.0, rel=1e-3)
    assert math.isnan(forecast(training("one", report=at, on=["n0"]), NOW, points[:1]).left)


def test_what_the_profile_lacks_follows_the_nearest_measured_count() -> None:
    one = replace(training("one", speeds={2: 3.4}), speed=((1, 1.0), (2, 1.7), (4, 2.4)))
    believed = forecast(one, NOW)
    assert believed.rate(2, "") == 3.4
    assert believed.rate(4, "") == pytest.approx(4.8)
    assert believed.rate(4, "V100") == pytest.approx(4.8)  # nothing is known of that product
    declared = job("plain", worker=4, on=["n0"], remaining_work=100.0)
    assert forecast(declared, NOW).training(4, "") == pytest.approx(25.0)


def test_points_of_the_curve_are_kept_and_thinned() -> None:
    plugin = load("reshape")
    one = training("one", on=["n0"], report=Report(at=NOW, step=1.0, loss=0.1, target=0.9))
    for step in range(1, 200):
        one = replace(one, report=Report(at=NOW, step=float(step), loss=step / 400.0, target=0.9))
        kept = plugin.observe(one, snapshot(1, 4, [one]))
        if kept is not None:
            one = replace(one, memory={"reshape": kept})
    points = plugin.points(one)
    assert len(points) <= POINTS
    assert points[-1] == (199.0, 199 / 400.0)
    assert plugin.observe(one, snapshot(1, 4, [one])) is None  # nothing new
    known = training("known", on=["n0"])
    assert plugin.observe(known, snapshot(1, 4, [known])) is None


# ---- what it is compared with ----


def test_termination_starts_with_one_gpu_and_never_takes_any_away() -> None:
    jobs = [training("old", on=["n0"] * 4), training("new")]
    assert shares(planned(jobs, profile=TERMINATION)) == {"old": 4, "new": 0}
    assert shares(planned([training("new")], profile=TERMINATION)) == {"new": 1}


def test_termination_adds_one_step_at_a_time_to_the_job_that_gains_most_and_waits_for_its_restart() -> None:
    jobs = [training("long", left=50_000.0, on=["n0"]), training("short", left=5_000.0, on=["n0"])]
    assert shares(planned(jobs, [node("n0", 3)], profile=TERMINATION)) == {"long": 2, "short": 1}
    assert shares(planned(jobs, [node("n0", 8)], profile=TERMINATION)) == {"long": 2, "short": 2}
    young = [training("young", left=50_000.0, on=["n0"], since=100.0)]
    plan = planned(young, profile=TERMINATION)
    assert shares(plan) == {"young": 1}
    assert plan.requeue_at == NOW + 10.0


def test_termination_leaves_a_job_that_a_restart_would_make_later() -> None:
    assert shares(planned([training("short", left=300.0, on=["n0"])], profile=TERMINATION)) == {"short": 1}


def test_the_default_draws_a_number_that_stays_and_skips_what_does_not_fit() -> None:
    default = build("sidecar-default")
    counts = [drawn((1, 2, 4), 0, key(f"job-{i}")) for i in range(300)]
    assert min(counts.count(n) for n in (1, 2, 4)) > 80
    request = build("sidecar-default", {"sidecar-default": {"draw": False}})
    jobs = [
        training("old", on=["n0"] * 2),
        replace(training("big"), request=4),
        replace(training("small"), request=2),
    ]
    assert shares(planned(jobs, profile=request)) == {"old": 2, "big": 0, "small": 2}
    assert shares(planned([training("old", on=["n0"])], profile=default)) == {"old": 1}  # stays


def test_the_default_draws_no_number_that_no_node_has() -> None:
    default = build("sidecar-default")
    for number in range(20):
        one = training(f"job-{number}", sizes=(1, 2, 8), speeds={1: 1.0, 2: 1.7, 8: 4.0})
        assert shares(planned([one], profile=default))[f"job-{number}"] in (1, 2)


def test_the_default_s_job_waits_for_a_node_of_its_own_size_also_where_no_gpu_is_to_idle() -> None:
    """One container: it neither starts on GPUs of two nodes nor is started again when one node has them all."""
    request = build("sidecar-default", {"sidecar-default": {"draw": False}})
    nodes = [node("n0", 4), node("n1", 4)]
    big = replace(training("big", sizes=(6,), speeds={6: 3.0}), request=6)
    small = replace(training("small", sizes=(2,), speeds={2: 1.7}), request=2)
    plan = planned([big, small], nodes, profile=replace(request, conserving=True))
    assert shares(plan) == {"big": 0, "small": 2}
    assert plan.statuses[key("big")].message == "no node has 6 idle GPUs"
    full = [training("runs", sizes=(4,), on=["n0"] * 4), training("one", sizes=(1,), speeds={1: 1.0})]
    assert planned(full, profile=request).statuses[key("one")].message == "no node has 1 idle GPU"


@pytest.mark.parametrize("wrong", [{"job_start": -1.0}, {"settling": -1.0}])
def test_times_are_not_negative(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Reshape(**wrong)
