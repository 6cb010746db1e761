# Over 300 lines: the arithmetic of gain and cost is followed number by number.
"""`resize-cost`: running jobs change only where that gains more than it costs, and never too often."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.progress import learned
from muster.core.reasons.words import clock
from muster.core.sharing import chain
from muster.types import Config, Facts, Grant, Grants, Job, Role, Shape, SharingSnapshot, Table
from muster_plugins.resize_cost import ResizeCost
from tests import tables
from tests.scenario import job as job_of

NOW = 10_000.0
FALLING = [0.0, 1.0, 1.8, 2.0, 1.5, 1.2, 1.0, 0.9, 0.8]
AMDAHL = [0.0, 1.0, 1.6, 2.0, 2.3, 2.5, 2.65, 2.77, 2.87]


def before(
    of: Table, facts: Mapping[int, Facts] | None = None, **fields: Mapping[int, object]
) -> SharingSnapshot:
    """A snapshot of the table at NOW whose jobs have what is given by row; the others nothing."""
    jobs = {}
    for row, key in enumerate(of.keys):
        made = Job(key, facts=(facts or {}).get(row, Facts()))
        for name, values in fields.items():
            if row in values:
                made = replace(made, **{name: values[row]})  # type: ignore[arg-type]
        jobs[key] = made
    return replace(tables.snapshot(of, NOW), jobs=jobs)


def shares(plan: Sequence[int], **words: object) -> Grants:
    return Grants(np.array(plan, dtype=np.int64), **words)  # type: ignore[arg-type]


def granted(
    of: Table, plan: Sequence[int], plugin: ResizeCost = ResizeCost(), **words: object
) -> tuple[list[int], dict[int, str]]:
    """Replicas, and why."""
    result = plugin.adjust(shares(plan), before(of, **words))  # type: ignore[arg-type]
    return result.replicas.tolist(), dict(result.why)


def long_ago(jobs: int) -> list[float]:
    return [NOW - 5000.0] * jobs


# ---- gain ----


def test_a_growth_is_kept_where_it_gains_more_than_it_costs() -> None:
    of = tables.table(8, most=[8], have=2, remaining=10_000.0, run_start=long_ago(1), curves=[AMDAHL])
    assert granted(of, [4]) == ([4], {})  # (2.3 - 1.6) / 1.6 x 600 = 262 s


def test_a_growth_of_a_job_that_is_about_to_end_is_left_out_and_says_why() -> None:
    of = tables.table(8, most=[8], have=2, remaining=64.0, run_start=long_ago(1), curves=[AMDAHL])
    assert granted(of, [4]) == (
        [2],
        {0: "4 replicas would gain 17 s within 40 s, a resize costs 30 s"},
    )


def test_the_measured_cost_counts_then_what_was_learned_then_the_assumed_one() -> None:
    of = tables.table(8, most=[8], have=2, remaining=np.nan, run_start=long_ago(1), curves=[AMDAHL])
    lesson = {"learned": learned.plain_lesson(learned.Lesson(cost=270.0))}
    assert granted(of, [4], facts={0: Facts(last_cost=300.0)})[0] == [2]
    assert granted(of, [4], memory={0: lesson})[0] == [2]
    assert granted(of, [4], memory={0: lesson}, facts={0: Facts(last_cost=10.0)})[0] == [4]
    assert granted(of, [4], ResizeCost(cost=270.0))[0] == [2]
    assert granted(of, [4], ResizeCost(horizon=60.0))[0] == [2]


def test_a_job_that_became_slower_by_growing_comes_back_although_nobody_needs_its_gpus() -> None:
    of = tables.table(8, most=[8], have=8, remaining=np.nan, run_start=long_ago(1), curves=[FALLING])
    assert granted(of, [3]) == ([3], {})


# ---- need ----


def test_one_of_eight_gpus_in_place_costs_more_than_the_only_replica_of_another_job() -> None:
    # A start of one needs one of the two that are proposed; linear, so a GPU loses either the same work.
    linear = [float(n) for n in range(9)]
    of = tables.table(
        10,
        most=[8, 2, 1],
        have=[8, 2, 0],
        remaining=np.nan,
        run_start=[*long_ago(2), np.inf],
        curves=[linear] * 3,
    )
    assert granted(of, [7, 1, 1])[0] == [7, 2, 1], "by evict, the part of its speed that each loses"
    slots = Role("worker.gpus", 1, 8, Shape((("nvidia.com/gpu", 1),)), devices=True)
    pod = Role("worker", 1, 1, Shape(()))
    assert granted(of, [7, 1, 1], roles={0: (pod, slots)})[0] == [8, 1, 1], "840 GPU-seconds against 660"
    quick = {0: Facts(last_cost=1.0)}  # it changes without a restart
    assert granted(of, [7, 1, 1], roles={0: (pod, slots)}, facts=quick)[0] == [7, 2, 1], "608 against 660"


def test_a_shrink_that_nobody_needs_is_given_back() -> None:
    of = tables.table(8, most=[8], have=6, run_start=long_ago(1), curves=[AMDAHL])
    assert granted(of, [2]) == ([6], {0: "no other job needs the GPUs that it would give up"})


def test_shrinks_are_kept_as_far_as_a_start_needs_them_and_who_loses_most_gets_back_first() -> None:
    of = tables.table(
        8, most=[8, 8, 8], have=[4, 4, 0], run_start=[*long_ago(2), np.inf], curve=[0, 1, 0],
        curves=[[float(n) for n in range(9)], AMDAHL],
    )  # fmt: skip
    # Both would give up two for a start of one: the linear one would lose half of its speed, the other less.
    assert granted(of, [2, 2, 1]) == (
        [4, 3, 1],
        {0: "no other job needs the GPUs that it would give up"},
    )


def test_a_stop_is_taken_back_before_a_shrink() -> None:
    of = tables.table(8, most=[8, 8, 8], have=[4, 4, 0], run_start=[*long_ago(2), np.inf], curves=[AMDAHL])
    assert granted(of, [0, 2, 2])[0] == [4, 2, 2]


def test_a_growth_that_is_not_worth_it_needs_nobodys_gpus() -> None:
    of = tables.table(
        8, most=[8, 8], have=[4, 4], remaining=[20.0, np.nan], run_start=long_ago(2), curves=[AMDAHL]
    )
    assert granted(of, [6, 2])[0] == [4, 4]


def test_a_job_that_cannot_become_smaller_now_stays_and_says_why() -> None:
    of = tables.table(8, most=[8, 8], have=[8, 0], run_start=[NOW - 5000.0, np.inf], curves=[AMDAHL])
    kept = "the PodDisruptionBudget web allows no eviction"
    assert granted(of, [4, 4], shrink_blocked_by={0: kept}) == (
        [8, 0],
        {0: kept, 1: "the jobs that are to make room for it can't change yet"},
    )


# ---- rest ----


@pytest.mark.parametrize("to", [0, 2, 8])
def test_a_job_rests_after_a_change_or_another_start_in_every_direction(to: int) -> None:
    of = tables.table(
        8, most=[8], have=4, first_start=0.0, run_start=[NOW - 100.0], curves=[AMDAHL], remaining=np.nan
    )
    assert granted(of, [to]) == (
        [4],
        {0: f"it changed a short while ago, and may again at {clock(NOW + 200.0, NOW)}"},
    )
    assert granted(of, [to], facts={0: Facts(last_cost=10.0)}) == (
        ([4], {0: "no other job needs the GPUs that it would give up"}) if to < 4 else ([8], {})
    )
    of.last_resize = np.array([NOW - 20.0])
    assert granted(of, [to], facts={0: Facts(last_cost=10.0)})[0] == [4]


def test_a_job_that_was_just_started_makes_room_at_once_for_one_that_arrives_and_rests_then() -> None:
    of = tables.table(
        8, most=[8, 8, 8], have=[8, 0, 0], curves=[AMDAHL], remaining=np.nan,
        first_start=NOW - 5.0, run_start=[NOW - 5.0, np.inf, np.inf],
    )  # fmt: skip
    assert granted(of, [4, 4, 0])[0] == [4, 4, 0]
    of.last_resize = np.array([NOW - 1.0, -np.inf, -np.inf])
    of.have = np.array([4, 4, 0])
    of.run_start = np.array([NOW - 5.0, NOW - 1.0, np.inf])
    of.first_start = np.array([NOW - 5.0, NOW - 1.0, np.inf])
    assert granted(of, [2, 4, 2])[0] == [4, 4, 0]
    assert granted(of, [4, 2, 2])[0] == [4, 2, 2]


def test_a_start_that_fits_is_never_withheld_though_others_rest() -> None:
    of = tables.table(
        8,
        most=[8, 8, 8],
        have=[4, 0, 0],
        first_start=0.0,
        run_start=[NOW - 1.0, np.inf, np.inf],
        curves=[AMDAHL],
    )
    assert granted(of, [1, 6, 1]) == (
        [4, 4, 0],
        {
            0: f"it changed a short while ago, and may again at {clock(NOW + 299.0, NOW)}",
            2: "the jobs that are to make room for it can't change yet",
        },
    )


def test_growths_give_way_before_starts() -> None:
    of = tables.table(
        8, most=[8, 8, 8], have=[4, 2, 0], remaining=np.nan,
        first_start=0.0, run_start=[NOW - 1.0, NOW - 5000.0, np.inf], curves=[AMDAHL],
    )  # fmt: skip
    assert granted(of, [1, 5, 2]) == (
        [4, 2, 2],
        {
            0: f"it changed a short while ago, and may again at {clock(NOW + 299.0, NOW)}",
            1: "those who are to give up GPUs for it can't change yet",
        },
    )


def test_a_policy_whose_grants_are_whole_gets_them_whole_or_not() -> None:
    of = tables.table(
        8, most=[8, 8], have=[4, 0], first_start=0.0, run_start=[NOW - 1.0, np.inf], curves=[AMDAHL]
    )
    found = ResizeCost().adjust(shares([1, 6], whole=True), before(of))
    assert (found.replicas.tolist(), found.whole) == ([4, 0], True)


def test_a_job_that_rests_keeps_its_product_and_nodes_too() -> None:
    of = tables.table(
        8, most=[8, 8], have=[4, 2], first_start=0.0, run_start=[NOW - 1.0, NOW - 1.0], curves=[AMDAHL]
    )
    was = Grant(product="A100", max_nodes=1)
    grants = {0: Grant(product="T4"), 1: Grant(product="T4")}
    found = ResizeCost().adjust(shares([4, 2], details=grants), before(of, grant={0: was}))
    assert found.details == {0: was}
    assert found.replicas.tolist() == [4, 2]


def test_nothing_changes_where_nothing_runs() -> None:
    of = tables.table(8, most=[8, 8])
    given_ = shares([4, 4])
    assert ResizeCost().adjust(given_, before(of)) is given_


# ---- wake ----


def test_a_cycle_is_asked_for_when_the_first_job_may_change_again() -> None:
    of = tables.table(8, most=[8, 8], have=[4, 2], first_start=0.0, run_start=[NOW - 1.0, NOW - 100.0])
    made = before(of)
    jobs = {
        key: replace(job_of(key.name, worker=8, least=1, on=["n0"] * int(of.have[row])), key=key)
        for row, key in enumerate(of.keys)
    }
    assert ResizeCost().wake(replace(made, jobs=jobs)) == NOW + 200.0
    of.have = np.array([6, 2])  # as decided just now
    assert ResizeCost().wake(replace(made, jobs=jobs)) == NOW + 200.0
    of.have = np.array([6, 0])
    assert ResizeCost().wake(replace(made, jobs=jobs)) == NOW + 300.0
    of.have = np.array([0, 0])
    assert ResizeCost().wake(replace(made, jobs=jobs)) is None


@pytest.mark.parametrize("wrong", [{"horizon": -1.0}, {"cost": -1.0}, {"overhead": 0.0}, {"overhead": 2.0}])
def test_parameters_that_mean_nothing_are_refused_with_what_was_found(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"expected a horizon .* found .*"):
        ResizeCost(**wrong)


# ---- whatever is proposed ----


@st.composite
def situations(draw: st.DrawFn) -> tuple[Table, list[int], dict[int, Facts]]:
    """A legal state of a few jobs, and anything legal or not that a policy may propose."""
    count = draw(st.integers(1, 6))
    most = [draw(st.integers(1, 6)) for _ in range(count)]
    least = [draw(st.integers(1, m)) for m in most]
    unit = [draw(st.integers(1, 3)) for _ in range(count)]
    have = [draw(st.sampled_from([0, *range(low, high + 1)])) for low, high in zip(least, most, strict=True)]
    used = sum(h * u for h, u in zip(have, unit, strict=True))
    gpus = used + draw(st.integers(0, 8))
    starts = [NOW - draw(st.sampled_from([1.0, 299.0, 301.0, 9000.0])) if h else np.inf for h in have]
    of = tables.table(
        gpus, most=most, least=least, unit=unit, have=have, run_start=starts,
        first_start=[start - draw(st.sampled_from([0.0, 50.0])) for start in starts],
        remaining=[draw(st.sampled_from([np.nan, 1.0, 1e5])) for _ in most],
        curve=[draw(st.integers(0, 2)) for _ in most],
        curves=[AMDAHL, FALLING, [float(n) for n in range(9)]],
    )  # fmt: skip
    plan = [draw(st.integers(0, m)) for m in most]
    plan = [n if n >= low else 0 for n, low in zip(plan, least, strict=True)]
    total = 0
    for row, n in enumerate(plan):  # as the core would cut it
        total += n * unit[row]
        if total > gpus:
            total -= n * unit[row]
            plan[row] = 0
    facts = {row: Facts(last_cost=draw(st.sampled_from([0.0, 1.0, 100.0]))) for row in range(count)}
    return of, plan, facts


@given(situation=situations())
def test_the_result_is_legal_and_withholds_no_start_that_fits(
    situation: tuple[Table, list[int], dict[int, Facts]],
) -> None:
    of, plan, facts = situation
    found = ResizeCost().adjust(shares(plan), before(of, facts=facts))
    plugin_errors: list[str] = []
    assert chain.legal(found, of, plugin_errors).replicas.tolist() == found.replicas.tolist()
    assert plugin_errors == []
    used = int((found.replicas * of.unit).sum())
    fastest = ResizeCost().fastest(shares(plan), of, {}).replicas.tolist()
    for row, wished in enumerate(fastest):
        if wished and not of.have[row]:
            got = int(found.replicas[row])
            assert got <= wished
            larger = [n for n in range(max(1, int(of.min[row])), wished + 1) if n > got]
            assert all(used + (n - got) * of.unit[row] > of.gpus for n in larger[:1])
        if of.have[row] and found.replicas[row] != of.have[row]:
            cost = facts[row].last_cost or 30.0
            first = of.run_start[row] == of.first_start[row]
            assert first or NOW - of.run_start[row] >= cost / 0.1
            assert min(wished, of.have[row]) <= found.replicas[row] <= max(wished, of.have[row])


@given(
    plans=st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=60),
    cost=st.sampled_from([5.0, 30.0]),
)
def test_a_job_changes_at_most_as_often_as_the_rule_allows_whatever_is_proposed(
    plans: list[list[int]], cost: float
) -> None:
    plugin, have = ResizeCost(cost=cost, horizon=1e9), [0, 0, 0]
    start, first, resized, changes = [np.inf] * 3, [np.inf] * 3, [-np.inf] * 3, [0, 0, 0]
    for n, plan in enumerate(plans):
        now = 20.0 * n
        while sum(plan) > 8:
            plan[plan.index(max(plan))] -= 1
        of = tables.table(
            8,
            most=[4, 4, 4],
            have=have,
            first_start=first,
            run_start=start,
            remaining=np.nan,
            curves=[AMDAHL],
        )
        of.last_resize = np.array(resized)
        snapshot = replace(before(of), now=now)
        given_ = plugin.adjust(shares(plan), snapshot).replicas.tolist()
        for row, (was, to) in enumerate(zip(have, given_, strict=True)):
            if was == to:
                continue
            if was:
                changes[row] += 1
                resized[row] = now if to else resized[row]  # a stop is told by the next start only
            else:
                start[row] = now
                first[row] = min(first[row], now)
        have = given_
    seconds = 20.0 * (len(plans) - 1)
    assert all(count <= 1 + seconds * 0.1 / cost for count in changes)


def test_samples_by_configuration_are_not_its_business() -> None:
    of = tables.table(8, most=[8], have=2, remaining=np.nan, run_start=long_ago(1), curves=[AMDAHL])
    assert granted(of, [4], samples={0: {Config((("worker", 2),)): 1.0}})[0] == [4]


# ---- more that is less ----


def test_a_start_gets_no_replicas_that_only_slow_it_down() -> None:
    of = tables.table(8, most=[8], curves=[FALLING])
    assert granted(of, [8]) == ([3], {0: "3 replicas are faster than 8 (2 against 0.8)"})


def test_of_allowed_sizes_the_fastest_is_taken() -> None:
    of = tables.table(8, most=[8], curves=[FALLING], sizes={0: (1, 2, 4, 8)})
    assert granted(of, [8])[0] == [2]


def test_a_running_job_that_its_policy_leaves_too_large_becomes_smaller_when_that_is_worth_it() -> None:
    of = tables.table(8, most=[8], have=8, remaining=np.nan, run_start=long_ago(1), curves=[FALLING])
    assert granted(of, [8]) == ([3], {0: "3 replicas are faster than 8 (2 against 0.8)"})
    of = tables.table(8, most=[8], have=8, remaining=10.0, run_start=long_ago(1), curves=[FALLING])
    assert granted(of, [8])[0] == [8]


def test_a_growth_ends_where_the_job_is_fastest() -> None:
    of = tables.table(8, most=[8], have=1, remaining=np.nan, run_start=long_ago(1), curves=[FALLING])
    assert granted(of, [8])[0] == [3]


def test_a_curve_that_stays_level_is_no_slower_job_and_a_whole_grant_is_left_alone() -> None:
    of = tables.table(8, most=[8, 8], curves=[[0.0, 1.0, 2.0, 2.0, 2.0, 1.99]])
    assert granted(of, [5, 0])[0] == [5, 0]
    of = tables.table(8, most=[8], curves=[FALLING])
    assert ResizeCost().adjust(shares([8], whole=True), before(of)).replicas.tolist() == [8]
