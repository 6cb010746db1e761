# Over 300 lines: every Share profile is tried on each cluster on which GPUs once idled.
"""No GPU idles for a job that can't take it: what holds after a cycle under every Share profile, as a cluster has it.

The oracle counts by itself: what each node has, less every pod and every place of the plan, now and once those that
leave have left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from muster import live_recipes, profiles
from muster.core.cycle import cycle
from muster.points import Profile
from muster.types import (
    GPU,
    Facts,
    Job,
    JobKey,
    Meter,
    NodeRecord,
    Phase,
    Plan,
    Reason,
    Role,
    Shape,
    Snapshot,
    State,
    Taint,
    Toleration,
)
from tests.scenario import NOW, RACK, asks, job, key, node, plan, role, said, snapshot, starts

SHARING = sorted(name for name, recipe in profiles.NAMED.items() if recipe.shares)
ZONE = "zone"
Free = dict[str, dict[str, int]]
"""By node and resource."""


@cache
def live(name: str, *, resize_cost: bool = True) -> Profile:
    """The profile as a cluster has it."""
    return profiles.build(
        name, own={name: live_recipes.on_a_cluster(profiles.NAMED[name], resize_cost, "reported")}
    )


# ---- the oracle ----


def admits(record: NodeRecord, shape: Shape) -> bool:
    """Of the constraints that `worlds` draws."""
    if any(record.labels.get(label) != value for label, value in shape.selector):
        return False
    taints = [t.key for t in record.taints] + (["cordoned"] if record.unschedulable else [])
    return not taints or bool(shape.tolerations)


def uses(shape: Shape) -> Counter[str]:
    return Counter(dict(shape.requests)) + Counter({"pods": 1})


def left(before: Snapshot, after: Plan, *, gone: bool) -> Free:
    """What is free with all that is on nodes and all places of the plan, those for later too; gone: and without the
    pods that leave."""
    free: Free = {r.name: dict(r.allocatable) for r in before.nodes.records}
    leaving = {shrink.uid for shrink in after.shrinks}

    def take(where: str, shape: Shape) -> None:
        for resource, amount in uses(shape).items():
            free[where][resource] = free[where].get(resource, 0) - amount

    for k, each in before.jobs.items():
        shapes = {r.name: r.shape for r in each.roles}
        placed = {m.uid for r in each.roles for m in r.members if m.node}
        for r in each.roles:
            for m in r.members:
                out = m.uid in leaving or k in after.preempted or m.phase is Phase.ENDING
                if m.node and not (gone and out):
                    take(m.node, m.shape)
        for reservation in (*after.reservations.get(k, ()), *after.later.get(k, ())):
            if not reservation.uid or reservation.uid not in placed or reservation.uid in leaving:
                take(reservation.node, shapes[reservation.role])
    return free


def finds_a_place(before: Snapshot, each: Job, free: Free, *, sure: bool) -> bool:
    """Whether its least finds a place. sure: however its roles are placed one after another, each fits although all
    others were on the same nodes (first fit may miss a cleverer arrangement, and says so); else each role alone."""
    shared = next((r for r in each.roles if r.max > r.min), each.roles[0])
    needs = [(r, max(1, r.min) if r is shared else r.min) for r in each.roles]
    needs = [(r, count) for r, count in needs if count]
    domains: dict[str, list[NodeRecord]] = {}
    for record in before.nodes.records:
        if each.topology_required:
            label = record.labels.get(each.topology_required)
            if label is not None:
                domains.setdefault(label, []).append(record)
        else:
            domains.setdefault("", []).append(record)
    return any(_takes(before, each, records, needs, free, sure) for records in domains.values())


def _takes(
    before: Snapshot,
    each: Job,
    records: Sequence[NodeRecord],
    needs: Sequence[tuple[Role, int]],
    free: Free,
    sure: bool,
) -> bool:
    for r, count in needs:
        others: Counter[str] = Counter()
        for other, number in needs:
            if sure and other is not r:
                for resource, amount in uses(other.shape).items():
                    others[resource] += amount * number
        node_backoffs = before.node_backoffs.get((each.key, r.name), {})
        places = 0
        for record in records:
            if record.name in node_backoffs or not admits(record, r.shape):
                continue
            have = {x: n - others[x] for x, n in free[record.name].items()}
            places += max(0, min(have.get(x, 0) // n for x, n in uses(r.shape).items()))
        if places < count:
            return False
    return True


def complete(each: Job) -> bool:
    return not each.invalid and all(r.ready >= r.min for r in each.roles)


def kept_for(before: Snapshot, after: Plan, each: Job, profile: Profile) -> list[JobKey]:
    """The jobs for which GPUs may be kept from this one: they wait, could start on the empty cluster, and it is known
    when, or they have waited for long."""
    empty: Free = {r.name: dict(r.allocatable) for r in before.nodes.records}
    known = any(
        j.started and (j.remaining_work is not None or any(m.phase is Phase.ENDING for m in r.members))
        for j in before.jobs.values()
        for r in j.roles
    )
    return [
        k
        for k, other in before.jobs.items()
        if k != each.key
        and after.statuses[k].state is State.WAITING
        and not other.started
        and finds_a_place(before, other, empty, sure=False)
        and (known or NOW - other.submitted >= profile.patience)
    ]


# ---- worlds ----

SHAPES: Mapping[str, Shape] = {
    "one": asks(1, cpu=1000),
    "two": asks(2, cpu=2000),
    "four": asks(4, cpu=4000),
    "zone a": asks(1, cpu=1000, selector=((ZONE, "a"),)),
    "nowhere": asks(1, selector=((ZONE, "typing error"),)),
    "much cpu": asks(1, cpu=20_000),
    "too much cpu": asks(1, cpu=200_000),
    "tolerates": asks(1, tolerations=(Toleration("", "Exists"),)),
}


@st.composite
def records(draw: st.DrawFn) -> list[NodeRecord]:
    """Two to five nodes in two zones and two racks, one without a rack; few have a taint or are cordoned."""
    return [
        node(
            f"n{i}",
            draw(st.sampled_from([4, 8])),
            cpu=32,
            labels={ZONE: draw(st.sampled_from("ab")), **({RACK: f"r{i % 2}"} if i < 4 else {})},
            taints=[Taint("team")] if draw(st.integers(0, 7)) == 0 else [],
            cordoned=draw(st.integers(0, 9)) == 0,
        )
        for i in range(draw(st.integers(2, 5)))
    ]


def fitting(free: Free, nodes: Sequence[NodeRecord], shape: Shape) -> list[str]:
    return [
        n.name
        for n in nodes
        if admits(n, shape) and all(free[n.name].get(x, 0) >= a for x, a in uses(shape).items())
    ]


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """Jobs of one or two roles, elastic and rigid, that wait (some in vain), run, or are leaving in part."""
    nodes = draw(records())
    free: Free = {n.name: dict(n.allocatable) for n in nodes}
    jobs: list[Job] = []
    node_backoffs = {}
    for i in range(draw(st.integers(2, 9))):
        name = f"j{i}"
        several = draw(st.integers(0, 3)) == 0
        runs = draw(st.booleans())
        what = st.sampled_from([*SHAPES, "one", "one", "two"])
        roles = []
        whole = True
        for each in ["lead", "worker"] if several else ["worker"]:
            shape = SHAPES[draw(what)] if each == "worker" else asks(draw(st.integers(0, 1)), cpu=500)
            least = 1 if each == "lead" else draw(st.sampled_from([1, 1, 2, 4, 8]))
            most = least if each == "lead" else least + draw(st.sampled_from([0, 0, 3, 12]))
            on: list[str] = []
            for _ in range(draw(st.integers(least, most)) if runs else 0):
                open_nodes = fitting(free, nodes, shape)
                if not open_nodes:
                    break
                where = draw(st.sampled_from(open_nodes))
                for x, a in uses(shape).items():
                    free[where][x] -= a
                on.append(where)
            if runs and len(on) < least:
                whole = False
            ending = 1 if len(on) > least and draw(st.integers(0, 3)) == 0 else 0
            there = on[: len(on) - ending]
            roles.append(
                role(
                    each, least, job=name, least=least, most=most, shape=shape, present=most,
                    on=there, ending=on[len(on) - ending :],
                )
            )  # fmt: skip
        if runs and not whole:
            for r in roles:
                for m in r.on:
                    for x, a in uses(r.shape).items():
                        free[m.node][x] += a
            continue
        age = draw(st.sampled_from([10.0, 200.0, 5000.0]))
        ran = Meter(200.0, 1.0, NOW - 5.0)
        jobs.append(
            job(
                name,
                roles=roles,
                priority=draw(st.sampled_from([0, 0, 0, 5])),
                submitted=NOW - age,
                newest_pod=NOW - age,
                topology_required="" if runs or several else draw(st.sampled_from(["", "", RACK, "no-such"])),
                remaining_work=draw(st.sampled_from([None, None, 900.0, 86_400.0])),
                speed=draw(st.sampled_from([(), ((1, 1.0), (2, 1.8), (4, 2.5), (8, 3.0))])),
                facts=Facts(NOW - 5.0, NOW - 5.0, ran, ran, ran) if runs else Facts(),
            )
        )
        if not runs and draw(st.integers(0, 5)) == 0:
            node_backoffs[name, "worker"] = {nodes[0].name: NOW + 60.0}
    made = snapshot(nodes=nodes, jobs=jobs, node_backoffs=node_backoffs)
    return replace(made, seed=1, shared_at=draw(st.sampled_from([0.0, NOW - 400.0])))


def told(before: Snapshot, after: Plan) -> str:
    """A world and its plan, a line for each node and job."""
    lines = [
        f"{r.name} {r.allocatable.get(GPU)} GPUs {dict(r.labels)} {len(r.taints)} taints, cordoned {r.unschedulable}"
        for r in before.nodes.records
    ]
    for k, each in before.jobs.items():
        parts = [
            f"{r.name} {r.min}..{r.max} {dict(r.shape.requests)} {r.shape.selector} "
            f"{[f'{m.phase.name} {m.node}' for m in r.members if m.node]}"
            for r in each.roles
        ]
        places = [f"{h.role}@{h.node}" for h in after.reservations.get(k, ())]
        later = [f"{h.role}@{h.node}" for h in after.later.get(k, ())]
        lines.append(
            f"{k.name} priority {each.priority}, {NOW - each.submitted} s, {each.topology_required} {parts} share "
            f"{after.shares.get(k)} holds {places} later {later} stops {after.preempted.get(k)} {after.statuses[k]}"
        )
    return "\n".join([*lines, f"shrinks {[(s.job.name, s.node) for s in after.shrinks]}"])


# ---- properties ----


@given(
    name=st.sampled_from(SHARING),
    before=worlds(),
    resize_cost=st.booleans(),
    preemption=st.booleans(),
)
@settings(max_examples=200)
def test_nobody_waits_that_fits_nothing_is_over_committed_and_nobody_is_stopped_for_nothing(
    name: str, before: Snapshot, resize_cost: bool, preemption: bool
) -> None:
    profile = replace(live(name, resize_cost=resize_cost), preemption=preemption)
    after = cycle(before, profile)
    no_job_waits_that_fits_into_gpus_which_nobody_uses_or_is_about_to(before, after, profile)
    if not any(grant.beside for grant in after.grants.values()):
        no_node_is_over_committed_and_nobody_is_stopped_for_nothing(before, after)


def no_job_waits_that_fits_into_gpus_which_nobody_uses_or_is_about_to(
    before: Snapshot, after: Plan, profile: Profile
) -> None:
    free = left(before, after, gone=False)
    for k, each in before.jobs.items():
        if each.started or not complete(each) or after.reservations.get(k) or k in after.later:
            continue
        status = after.statuses[k]
        assert status.message, f"{k} waits and is not told why"
        if not finds_a_place(before, each, free, sure=True) or status.reason is Reason.PLUGIN:
            continue
        event(f"fits and waits: {status.reason}")
        assert status.reason is Reason.RESERVED, f"{k}:\n{told(before, after)}"
        assert kept_for(before, after, each, profile), (
            f"{k} waits for the head, but nobody is:\n{told(before, after)}"
        )


def no_node_is_over_committed_and_nobody_is_stopped_for_nothing(before: Snapshot, after: Plan) -> None:
    free = left(before, after, gone=True)
    assert all(n >= 0 for have in free.values() for n in have.values()), free
    now: Free = left(before, replace(after, later={}), gone=False)
    assert all(n >= 0 for have in now.values() for n in have.values()), now
    for k, words in after.preempted.items():
        each = before.jobs[k]
        if "preempted whole" in words:
            continue  # for the head of those that are not shared, whose places are not in the plan yet
        stays: Counter[tuple[str, str]] = Counter()
        for r in each.roles:
            for m in r.members:
                if m.phase is Phase.BOUND:
                    for x, a in uses(m.shape).items():
                        stays[m.node, x] += a
        event("stopped")
        assert any(free[where].get(x, 0) < n for (where, x), n in stays.items()), (
            f"{k} is stopped for nobody:\n{told(before, after)}"
        )


# ---- the cases of the lab ----


def stray(shape: Shape, count: int = 40, **what: object) -> list[Job]:
    """Pods of the same typing error, each a job of its own."""
    return [
        job(name, roles=[role("worker", 1, job=name, shape=shape)], submitted=NOW - 100, **what)
        for name in [f"stray-{i:02d}" for i in range(count)]
    ]


@pytest.mark.parametrize("profile", ["max-min", "afs-l", "srtf", "themis", "tiresias-l"])
@pytest.mark.parametrize(
    ("shape", "rack", "why"),
    [
        (
            asks(1),
            "no.such/label",
            " in one label: no label is large enough; no node has the label no.such/label",
        ),
        (
            asks(1, selector=(("pool", "gup"),)),
            "",
            ": no node of 4 has the labels it selects and only taints it tolerates",
        ),
        (asks(1, cpu=500_000), "", ": no node is large enough for 1 GPU: the largest has 96 cpu"),
    ],
    ids=["topology", "selector", "cpu"],
)
def test_forty_pods_that_fit_nowhere_keep_nothing_from_another_job(
    profile: str, shape: Shape, rack: str, why: str
) -> None:
    other = job("train", worker=2, gpus=4, submitted=NOW - 10)
    before = snapshot(nodes=4, gpus=8, jobs=[*stray(shape, topology_required=rack), other])
    after = cycle(before, live(profile))
    assert starts(after) == {"train": {"n0": 2}}
    assert {words for name, words in said(after).items() if name != "train"} == {
        f"Waiting NeverFits: needs 1 GPU{why}"
    }
    assert after.shares == {key("train"): 2}


def test_what_finds_no_place_now_is_granted_to_those_that_do() -> None:
    """CPU that others use: the forty would fit on the empty cluster, so they are in the queue."""
    hog = job(
        "hog", roles=[role("worker", 4, job="hog", shape=asks(cpu=90_000), on=[f"n{i}" for i in range(4)])]
    )
    other = job("train", worker=2, gpus=4, submitted=NOW - 10)
    before = snapshot(nodes=4, gpus=8, jobs=[hog, *stray(asks(1, cpu=10_000)), other])
    after = cycle(before, live("max-min"))
    assert starts(after) == {"train": {"n0": 2}}
    assert said(after)["stray-00"] == "Waiting Resources: needs 1 GPU; 0 of 1 replica fits now"


def test_an_elastic_job_that_may_use_few_nodes_leaves_the_others_to_the_rest() -> None:
    near = asks(1, selector=(("kubernetes.io/hostname", "n0"),))
    jobs = [
        job("near", roles=[role("worker", 1, job="near", least=1, most=32, present=32, shape=near)]),
        job("wide", worker=32, gpus=1, least=1, most=32),
    ]
    nodes = [node(f"n{i}", labels={"kubernetes.io/hostname": f"n{i}"}) for i in range(4)]
    after = cycle(snapshot(nodes, jobs=jobs), live("max-min"))
    assert after.shares == {key("near"): 8, key("wide"): 24}
    assert starts(after)["near"] == {"n0": 8}


@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize(("gpus", "reason"), [(5, Reason.NEVER_FITS), (4, Reason.RESOURCES)])
def test_a_job_of_high_priority_that_finds_no_place_stops_and_shrinks_nobody(
    gpus: int, reason: Reason, preemption: bool
) -> None:
    """One of 5 GPUs fits nowhere; one of 4 needs a whole node, and a job that nothing re-creates has one of each."""
    bare = [job(f"bare-{i}", worker=1, gpus=1, on=[f"n{i}"], evictable=False) for i in range(2)]
    lower = job("lower", worker=6, gpus=1, least=1, most=6, on=["n0", "n1"] * 3)
    urgent = job("urgent", worker=1, gpus=gpus, priority=9)
    before = snapshot(nodes=2, gpus=4, jobs=[*bare, lower, urgent])
    after = cycle(before, replace(live("max-min", resize_cost=False), preemption=preemption))
    assert (after.shrinks, dict(after.preempted), after.later) == ((), {}, {})
    assert after.statuses[key("urgent")].reason is reason


def test_what_is_kept_for_the_head_is_not_granted_to_who_comes_after_it() -> None:
    """16 GPUs are the head's, on two whole nodes; four are free on each node, and one job has waited for long."""
    runs = [job(f"r{i}", worker=4, gpus=1, on=[f"n{i}"] * 4, submitted=NOW - 900) for i in range(4)]
    head = job("head", worker=2, gpus=8, submitted=NOW - 600)
    small = [job(f"s{i}", worker=1, gpus=4, submitted=NOW - 60 + i) for i in range(4)]
    after = cycle(snapshot(nodes=4, gpus=8, jobs=[*runs, head, *small]), live("max-min"))
    assert len(starts(after)) == 2
    told = [said(after)[each.key.name].split(":")[0] for each in small]
    assert sorted(told) == ["Starting Binding"] * 2 + ["Waiting Reserved"] * 2
    assert (
        said(after)["head"] == "Waiting Resources: needs 16 GPUs (2 replicas of 8); 0 of 2 replicas fit now"
    )
    young = replace(head, submitted=NOW - 100)
    after = cycle(snapshot(nodes=4, gpus=8, jobs=[*runs, young, *small]), live("max-min"))
    assert len(starts(after)) == 4


@pytest.mark.parametrize("name", ["max-min", "afs-l", "srtf"])
def test_rigid_jobs_start_under_a_policy_where_they_start_under_fifo(name: str) -> None:
    """Each role of a start, the head that waits for two whole nodes, and who may pass it: one path for both."""
    runs = [job(f"r{i}", worker=4, gpus=1, on=[f"n{i}"] * 4, submitted=NOW - 900) for i in range(4)]
    head = job("head", worker=2, gpus=8, submitted=NOW - 600)
    parts = [role("server", 1, job="set", shape=asks(cpu=1000)), role("worker", 2, job="set", gpus=2)]
    small = [job("set", roles=parts), *[job(f"s{i}", worker=1, gpus=4) for i in range(3)]]
    before = snapshot(nodes=4, gpus=8, jobs=[*runs, head, *small])
    after, by_default = cycle(before, live(name)), plan(before)
    assert starts(after) == starts(by_default) == {"set": {"n2": 3}, "s0": {"n3": 1}}
    assert said(after) == said(by_default)


def test_a_rigid_job_whose_first_role_has_no_gpus_has_a_share_like_any_other() -> None:
    """A JobSet's driver, a launcher: its workers had no share, and waited for ever behind one that takes all."""
    hog = job("hog", worker=32, gpus=1, least=1, most=32, on=[f"n{i // 8}" for i in range(32)])
    parts = [role("driver", 1, job="set", shape=asks(cpu=1000)), role("worker", 2, job="set", gpus=4)]
    after = cycle(
        snapshot(nodes=4, gpus=8, jobs=[hog, job("set", roles=parts)]), live("max-min", resize_cost=False)
    )
    assert after.shares == {key("hog"): 24, key("set"): 2}
    assert {s.node for s in after.shrinks} == {"n3"}
    assert Counter(h.role for h in after.later[key("set")]) == {"driver": 1, "worker": 2}
