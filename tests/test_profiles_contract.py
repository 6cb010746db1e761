"""What every named profile keeps to on any cluster and any jobs, whatever its plugins are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import live_recipes, profiles
from muster.core.cycle import cycle
from muster.core.snapshot_codec import dump
from muster.core.views.view import View
from muster.points import Profile
from muster.types import GPU_MEMORY, PRODUCT, Facts, Job, Meter, Report, Snapshot
from tests.scenario import NOW, job, node, role, snapshot

NAMES = sorted(profiles.NAMED)


SHARING = sorted(name for name, recipe in profiles.NAMED.items() if recipe.shares)


@cache
def profile(name: str, *, live: bool = False) -> Profile:
    """live: as on a cluster, with resize-cost last of the chain."""
    if not live:
        return profiles.build(name)
    own = {name: live_recipes.on_a_cluster(profiles.NAMED[name], True, "reported", devices=True)}
    return profiles.build(name, own=own)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """A cluster of one or two products with jobs that wait and run, of known and unknown length and speed."""
    products = draw(st.sampled_from([("V100",), ("V100", "K80")]))
    records = [
        node(f"{p.lower()}-{i}", 4, labels={PRODUCT: p, GPU_MEMORY: "16000"})
        for p in products
        for i in range(draw(st.integers(1, 2)))
    ]
    free = {record.name: 4 for record in records}
    jobs: list[Job] = []
    for i in range(draw(st.integers(1, 6))):
        name = f"j{i}"
        least = draw(st.integers(1, 2))
        most = draw(st.integers(least, 8))
        on: list[str] = []
        if draw(st.booleans()) and sum(free.values()) >= least:
            for _ in range(draw(st.integers(least, min(most, sum(free.values()))))):
                where = draw(st.sampled_from(sorted(n for n in free if free[n])))
                free[where] -= 1
                on.append(where)
        known = draw(st.booleans())
        age = draw(st.sampled_from([10.0, 500.0, 90_000.0]))
        speeds = draw(st.sampled_from([(), ((1, 1.0), (2, 1.8), (4, 2.5), (8, 3.0)), ((1, 2.0), (2, 1.5))]))
        ran = Meter(200.0, float(len(on)), NOW - 5.0)
        jobs.append(
            job(
                name,
                roles=[role("worker", most, job=name, least=least, most=most, on=on)],
                submitted=NOW - age,
                newest_pod=NOW - age,
                request=draw(st.integers(least, most)),
                remaining_work=draw(st.sampled_from([1.0, 900.0, 86_400.0])) if known else None,
                speed=speeds,
                model=draw(st.sampled_from(["", "resnet", "VGG16:32"])),
                gpu_memory=draw(st.sampled_from([0, 6000, 12000])),
                facts=Facts(NOW - 5.0, NOW - 5.0, ran, ran, ran) if on else Facts(),
                report=draw(st.sampled_from([None, Report(NOW, 50.0, 100.0, 2, 10.0, 0.4, 1.0, True)])),
            )
        )
    return replace(snapshot(records, jobs=jobs), seed=1)


@st.composite
def disturbed(draw: st.DrawFn) -> Snapshot:
    """The same, where running jobs have lost replicas, or were scaled down below what they have; some name their
    sizes, some rest after a change; of one there may be no pod any more, so that it has no role."""
    before = draw(clusters())
    for key, each in before.jobs.items():
        (worker,) = each.roles
        low, high = worker.min, worker.max
        what = draw(st.sampled_from(["as it was", "lost", "scaled down"])) if worker.bound else "as it was"
        if what == "lost":
            low = min(high, worker.bound + 1)
        elif what == "scaled down":
            high = max(low, worker.bound - draw(st.integers(1, 3)))
        sizes = draw(st.sampled_from([(), (low, high)])) if low < high else ()
        changed = draw(st.sampled_from([None, NOW - 5.0])) if worker.bound else None
        before.jobs[key] = replace(
            each,
            roles=(replace(worker, min=low, max=high, sizes=sizes),),
            facts=replace(each.facts, last_resize=changed),
        )
    if draw(st.booleans()):
        over = job("over", roles=[], submitted=NOW - 500.0, facts=Facts(NOW - 400.0, NOW - 400.0))
        before.jobs[over.key] = over
    return before


@pytest.mark.parametrize("name", NAMES)
@given(before=clusters())
@settings(max_examples=8)
def test_a_profile_plans_without_complaints_the_same_again_and_within_capacity(
    name: str, before: Snapshot
) -> None:
    plan = cycle(before, profile(name))
    assert plan.plugin_errors == ()
    again = cycle(before, profile(name))
    assert dump(View(before, plan, profile(name))) == dump(View(before, again, profile(name)))
    used: Counter[str] = Counter()
    for key, each in before.jobs.items():
        gone = {shrink.uid for shrink in plan.shrinks if shrink.job == key}
        back = key in plan.preempted
        stay = [m.node for m in each.roles[0].members if m.node and m.uid not in gone and not back]
        places = [h.node for h in (*plan.reservations.get(key, ()), *plan.later.get(key, ()))]
        count = len(stay) + len(places)
        assert count == 0 or each.roles[0].min <= count <= each.roles[0].max
        grant = plan.grants.get(key)
        if grant is None or grant.beside is None:
            used.update([*stay, *places])
        assert each.started or count or plan.statuses[key].message, f"{key} waits and is not told why"
    assert all(count <= 4 for count in used.values())


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("name", SHARING)
@given(before=disturbed())
@settings(max_examples=8)
def test_no_policy_fails_on_a_disturbed_job_or_grants_what_it_may_not_have(
    name: str, live: bool, before: Snapshot
) -> None:
    """More than there is may be promised (coach guesses at places); then the last in the queue wait."""
    plugin_errors = cycle(before, profile(name, live=live)).plugin_errors
    assert not [words for words in plugin_errors if "clipped" in words or "left out" in words]


LIVE = sorted(name for name, recipe in profiles.NAMED.items() if not recipe.simulation_only)


@st.composite
def lies(draw: st.DrawFn) -> Report:
    """Numbers that no training has, as far as the filter of reports lets them by: finite, only losses below 0."""
    huge = st.sampled_from([0.0, 1e-9, 1.0, 1e9, 1e15])
    return Report(
        at=NOW,
        step=draw(huge),
        total=draw(huge),
        epoch=int(draw(huge)),
        steps_per_epoch=draw(huge),
        loss=draw(st.sampled_from([None, -1e15, 0.0, 1e15])),
        speed=draw(huge),
        target=draw(st.sampled_from([None, 0.0, 1e15])),
        samples=draw(huge),
        workers=int(draw(huge)),
    )


@pytest.mark.parametrize("name", LIVE)
@given(lie=lies(), more=lies(), running=st.integers(1, 3), waiting=st.integers(0, 3))
@settings(max_examples=8)
def test_a_job_that_lies_and_one_that_reports_nothing_harm_no_rigid_one_and_stop_no_cycle(
    name: str, lie: Report, more: Report, running: int, waiting: int
) -> None:
    known = {"remaining_work": 500.0, "speed": ((1, 1.0), (2, 1.9), (4, 3.2))}
    ran = Facts(first_start=NOW - 600.0, run_start=NOW - 600.0)
    jobs = [
        job(
            "liar", roles=[role("worker", 4, least=1, on=["n0"] * running, job="liar")], report=lie, facts=ran
        ),
        job("silent", roles=[role("worker", 4, least=1, on=["n1"], job="silent")], facts=ran, **known),
        job(
            "rigid",
            roles=[role("worker", 2, on=["n1", "n1"], job="rigid")],
            facts=ran,
            rigid="it has one size",
        ),
        *(
            job(
                f"w{i}",
                roles=[role("worker", 4, least=1 + i, job=f"w{i}")],
                report=more if i else None,
                **known,
            )
            for i in range(waiting)
        ),
    ]
    before = snapshot(
        [node("n0", 4, labels={PRODUCT: "V100"}), node("n1", 4, labels={PRODUCT: "V100"})], jobs=jobs
    )
    plan = cycle(before, profile(name, live=True))
    assert not [words for words in plan.plugin_errors if "left out" in words]
    assert {key.name for key in plan.statuses} == {each.key.name for each in jobs}, (
        "each is told how it stands"
    )
    assert "rigid" not in {shrink.job.name for shrink in plan.shrinks}
    assert plan.requeue_at is None or NOW < plan.requeue_at < float("inf")
