# Over 300 lines: whole places and tighter packing are tried on the same made-up clusters.
# ruff: noqa: ARG002 - plugins take what their point gives them
"""Rebalance `defragment`: whole places for a job that waits, jobs on fewer nodes, and who is left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.sharing.job_table import table_of
from muster.points import Estimation, Profile
from muster.types import (
    Config,
    Facts,
    Grant,
    Grants,
    Job,
    JobKey,
    Meter,
    Move,
    Plan,
    Report,
    Reservation,
    SharingSnapshot,
    Snapshot,
)
from muster_plugins.defragment import Defragment
from muster_plugins.max_min import MaxMin
from muster_plugins.pack import Pack
from tests.scenario import FIFO, NOW, cluster, job, key, plan, role, snapshot


class Stay:
    """A Share plugin: who runs keeps what it has, who waits waits on."""

    def share(self, snapshot: SharingSnapshot) -> Grants:
        return Grants(snapshot.table.have)


RACK = "topology.muster.dev/rack"
STAY = replace(FIFO, shares=(Stay(),))
TIDY = Defragment(rack=RACK)
LONG_AGO = Facts(first_start=NOW - 5000.0, run_start=NOW - 5000.0)


def runs(name: str, on: Sequence[str], **words: object) -> Job:
    """An elastic job of single-GPU workers that has run for long."""
    words = {"gpus": 1, "least": 1, "most": 8, "facts": LONG_AGO, "started_at": NOW - 5000.0} | words
    return job(name, worker=8, on=on, **words)


def wide(name: str = "wide", gpus: int = 8, **words: object) -> Job:
    """One replica that needs many GPUs of one node."""
    return job(name, worker=1, gpus=gpus, **words)


def proposed(before: Snapshot, plugin: Defragment = TIDY, profile: Profile = STAY) -> dict[str, Move]:
    """What the plugin proposes within a cycle, by the job's name, whether it is carried out or not."""
    seen: list[Move] = []

    class Listens:
        def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
            seen.extend(plugin.moves(snapshot))
            return []

    plan(before, profile, rebalance=(Listens(),))
    return {move.job.name: move for move in seen}


def where(after: Plan) -> dict[str, dict[str, int]]:
    """Where the plan places what it moves, by job: now, or when the place is free."""
    moved = {shrink.job for shrink in after.shrinks}
    return {key.name: dict(Counter(h.node for h in places(after, key))) for key in sorted(moved)}


def places(after: Plan, job: JobKey) -> list[Reservation]:
    return [*after.reservations.get(job, ()), *after.later.get(job, ())]


# ---- room for a job that waits ----


def test_a_scattered_cluster_is_tidied_so_that_a_waiting_job_finds_a_whole_node() -> None:
    jobs = [runs("a", ["n0"] * 2), runs("b", ["n1"] * 3), wide()]
    before = snapshot(nodes=2, gpus=8, jobs=jobs)
    assert {name: move.to for name, move in proposed(before).items()} == {"a": ("n1", "n1")}
    after = plan(before, STAY, rebalance=(TIDY,))
    assert {s.pod for s in after.shrinks} == {"a-worker-0", "a-worker-1"}
    assert where(after) == {"a": {"n1": 2}}
    assert after.shrinks[0].cause == (
        "makes room for wide, whose 8 GPUs are free but scattered: it starts up to 3600 s sooner, "
        "a change costs this job 60 s"
    )


def test_nobody_moves_while_nothing_waits_or_what_waits_fits_or_is_short_of_gpus() -> None:
    running = [runs("a", ["n0"] * 2), runs("b", ["n1"] * 3)]
    assert proposed(snapshot(nodes=2, gpus=8, jobs=running)) == {}
    assert proposed(snapshot(nodes=2, gpus=8, jobs=[*running, wide(gpus=5)])) == {}
    full = [runs("a", ["n0"] * 6), runs("b", ["n1"] * 6), wide(gpus=4)]
    assert proposed(snapshot(nodes=2, gpus=8, jobs=full), replace(TIDY, most=8)) == {}


def test_nobody_else_moves_for_room_that_one_who_was_moved_is_about_to_leave() -> None:
    jobs = [runs("c", ["n1"]), wide()]
    leaving = replace(job("x", worker=1, gpus=1, ending=["n0"]), started=True)
    assert proposed(snapshot(nodes=2, gpus=8, jobs=[*jobs, leaving])) == {}
    stays = runs("x", ["n0"])
    assert set(proposed(snapshot(nodes=2, gpus=8, jobs=[*jobs, stays]))) == {"x"}


def test_a_gang_of_two_whole_nodes_is_given_both() -> None:
    jobs = [runs("a", ["n0"]), runs("b", ["n1"]), runs("c", ["n2"] * 4), job("pair", worker=2, gpus=8)]
    before = snapshot(nodes=3, gpus=8, jobs=jobs)
    assert {n: m.to for n, m in proposed(before).items()} == {"a": ("n2",), "b": ("n2",)}
    assert proposed(before, replace(TIDY, most=1)) == {}


def test_only_so_many_jobs_are_moved_at_a_time_and_none_while_one_is_on_its_way() -> None:
    jobs = [runs("a", ["n0"]), runs("b", ["n0"]), runs("c", ["n1"] * 4), wide()]
    assert set(proposed(snapshot(nodes=2, gpus=8, jobs=jobs))) == {"a", "b"}
    assert proposed(snapshot(nodes=2, gpus=8, jobs=jobs), replace(TIDY, most=1)) == {}
    leaving = job("x", worker=1, gpus=0, ending=["n1"])
    one = replace(TIDY, most=1)
    assert set(proposed(snapshot(nodes=2, gpus=8, jobs=[jobs[0], jobs[2], wide()]), one)) == {"a"}
    leaving = replace(leaving, started=True)
    assert proposed(snapshot(nodes=2, gpus=8, jobs=[jobs[0], jobs[2], wide(), leaving]), one) == {}
    back = job("x", worker=1, gpus=0, facts=LONG_AGO, held=[("worker", "n1")])
    assert proposed(snapshot(nodes=2, gpus=8, jobs=[jobs[0], jobs[2], wide(), back]), one) == {}, (
        "not bound yet"
    )


def test_a_move_that_costs_more_than_the_waiting_job_gains_is_left() -> None:
    jobs = [
        runs("a", ["n0"] * 3, facts=replace(LONG_AGO, last_cost=4000.0)),  # three GPUs for 4000 s
        runs("b", ["n1"] * 2, least=2, most=2, gpus=2),
        wide(gpus=6),  # six for 3600 s
    ]
    assert proposed(snapshot(nodes=2, gpus=8, jobs=jobs), replace(TIDY, horizon=3600.0)) != {}
    assert proposed(snapshot(nodes=2, gpus=8, jobs=jobs), replace(TIDY, horizon=1900.0)) == {}


def test_what_ends_soon_makes_room_by_itself() -> None:
    soon = job("soon", worker=1, gpus=5, on=["n1"], remaining_work=30.0)
    before = snapshot(nodes=2, gpus=8, jobs=[runs("a", ["n0"] * 2), soon, wide()])
    assert proposed(before)["a"].gain == 30.0  # 30 s of 8 GPUs for 60 s of 2
    assert proposed(before, replace(TIDY, cost=200.0)) == {}


def test_what_ends_soon_and_what_is_being_left_make_room_together() -> None:
    """The node that is being left counted as one in use: the move seemed to gain all of the horizon."""
    jobs = [runs("soon", ["n1"], remaining_work=30.0), runs("a", ["n2"]), runs("b", ["n3"] * 4)]
    leaving = replace(job("x", worker=1, gpus=1, ending=["n0"]), started=True)
    before = snapshot(nodes=4, gpus=8, jobs=[*jobs, leaving, job("pair", worker=2, gpus=8)])
    assert proposed(before)["a"].gain == 30.0


LEFT_ALONE: list[tuple[str, Callable[[Job], Job]]] = [
    ("it is of a fixed size", lambda j: replace(j, roles=(replace(j.roles[0], min=2, max=2),))),
    ("nothing re-creates it", lambda j: with_members(j, evictable=False)),
    ("a budget refuses", lambda j: replace(j, shrink_blocked_by="a PodDisruptionBudget refuses")),
    ("it has just started", lambda j: replace(j, started_at=NOW - 100.0)),
    ("it has just changed", lambda j: replace(j, facts=replace(LONG_AGO, last_resize=NOW - 100.0))),
    ("it ends soon", lambda j: replace(j, remaining_work=1_100.0)),
    ("kube-scheduler places it", lambda j: replace(j, scored=("asked for",))),
    ("it is between two boundaries", lambda j: replace(j, resize_at="boundary", report=Report())),
    ("it shares a GPU", lambda j: replace(j, grant=Grant(beside=key("b")))),
    ("it goes back already", lambda j: replace(j, preempted="for another")),
]


def with_members(of: Job, **changes: object) -> Job:
    return replace(
        of,
        roles=tuple(
            replace(r, members=tuple(replace(m, **changes) for m in r.members))  # type: ignore[arg-type]
            for r in of.roles
        ),
    )


@pytest.mark.parametrize(("why", "changed"), LEFT_ALONE, ids=[why for why, _ in LEFT_ALONE])
def test_a_job_is_left_where_it_is_when(why: str, changed: Callable[[Job], Job]) -> None:
    # b can't move itself, so only a could make room
    b = with_members(runs("b", ["n1"] * 3), evictable=False)
    a = runs("a", ["n0"] * 2)
    assert set(proposed(snapshot(nodes=2, gpus=8, jobs=[a, b, wide()]))) == {"a"}
    assert proposed(snapshot(nodes=2, gpus=8, jobs=[changed(a), b, wide()])) == {}, why


def test_a_job_of_fixed_size_moves_if_its_owner_says_that_it_can_be_restarted() -> None:
    a = job("a", worker=2, gpus=1, on=["n0"] * 2, facts=LONG_AGO, started_at=NOW - 5000.0)
    b = with_members(runs("b", ["n1"] * 3), evictable=False)
    assert proposed(snapshot(nodes=2, gpus=8, jobs=[a, b, wide()])) == {}
    assert set(proposed(snapshot(nodes=2, gpus=8, jobs=[replace(a, resize="restart"), b, wide()]))) == {"a"}


def test_after_the_cooldown_somebody_wakes() -> None:
    before = snapshot(nodes=2, gpus=8, jobs=[runs("a", ["n0"], started_at=NOW - 100.0), wide()])
    assert TIDY.wake(before) == NOW + 500.0
    assert TIDY.wake(snapshot(nodes=2, gpus=8, jobs=[wide()])) is None


# ---- fewer nodes ----


def measured(*speeds: tuple[tuple[int, ...], float]) -> dict[Config, float]:
    """Speeds by replicas on each node."""
    return {Config((("worker", sum(nodes)),), nodes): speed for nodes, speed in speeds}


def test_a_job_that_would_be_faster_on_one_node_goes_there() -> None:
    known = measured(((2, 2), 3.0), ((4,), 3.6))
    before = snapshot(nodes=3, gpus=8, jobs=[runs("a", ["n0", "n0", "n1", "n1"], samples=known)])
    after = plan(before, STAY, rebalance=(TIDY,))
    assert len(after.shrinks) == 2, "the replicas that are where they are wanted stay"
    assert sum(where(after)["a"].values()) == 2
    assert after.shrinks[0].cause == (
        "on 1 node in place of 2 it would gain 720 s within 3600 s, a change costs 60 s"
    )


@pytest.mark.parametrize(
    ("why", "speeds", "words"),
    [
        ("it gains too little", (((2, 2), 3.0), ((4,), 3.04)), {}),
        (
            "its changes cost more",
            (((2, 2), 3.0), ((4,), 3.6)),
            {"facts": replace(LONG_AGO, last_cost=800.0)},
        ),
        ("nothing is known of one node", (((2, 2), 3.0),), {}),
        ("it would be slower", (((2, 2), 3.0), ((4,), 2.0)), {}),
        ("it ends soon", (((2, 2), 3.0), ((4,), 3.6)), {"remaining_work": 2_000.0}),
    ],
)
def test_a_job_stays_on_its_nodes_when(
    why: str, speeds: tuple[tuple[tuple[int, ...], float], ...], words: dict[str, object]
) -> None:
    spread = runs("a", ["n0", "n0", "n1", "n1"], samples=measured(*speeds), **words)
    assert proposed(snapshot(nodes=3, gpus=8, jobs=[spread])) == {}, why


class ByNodes:
    """An Estimate that knows what a network costs: a fifth for each node more."""

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        return Estimation(speed=lambda config: config.replicas * 0.8 ** (len(config.nodes) - 1))


def test_the_profiles_estimate_of_other_nodes_is_asked() -> None:
    spread = runs("a", ["n0", "n0", "n1", "n1"])
    before = snapshot(nodes=2, gpus=8, jobs=[spread])
    profile = Profile(scores=((Pack(), 1.0),), shares=(MaxMin(),), estimate=ByNodes())
    found = proposed(before, TIDY, profile)
    assert found["a"].gain == pytest.approx(0.25 * 3600.0)
    assert proposed(before, TIDY, replace(profile, estimate=None)) == {}


def test_of_several_the_one_that_gains_most_goes_first_and_no_place_is_given_twice() -> None:
    known = measured(((1, 1), 1.0), ((2,), 1.5))
    better = measured(((1, 1), 1.0), ((2,), 1.9))
    jobs = [
        runs("a", ["n0", "n1"], samples=known),
        runs("b", ["n0", "n1"], samples=better),
        job("rest", worker=2, gpus=4, on=["n0", "n1"], evictable=False),
    ]
    one = proposed(snapshot(nodes=2, gpus=7, jobs=jobs), replace(TIDY, most=1))
    assert list(one) == ["b"]
    assert where(plan(snapshot(nodes=2, gpus=7, jobs=jobs), STAY, rebalance=(TIDY,))) == {
        "a": {"n1": 2},  # its index 0 leaves n0, and 1 with it
        "b": {"n0": 1},
    }
    # with one GPU less a node, there is one place for two
    assert where(plan(snapshot(nodes=2, gpus=6, jobs=jobs), STAY, rebalance=(TIDY,))) == {}


def test_a_job_does_not_get_more_racks_for_fewer_nodes() -> None:
    known = measured(((1, 1, 1, 1), 2.0), ((3, 1), 2.8), ((2, 2), 2.8))
    on = ["n0", "n1", "n2", "n3"]
    full = job("full", worker=4, gpus=6, on=on, evictable=False)
    # two free places in n0 to n3 each hold one replica of a; rack r1 is empty but for the rest of a fifth node
    before = snapshot(cluster(8, 8, racks=2), jobs=[runs("a", on, samples=known), full])
    found = proposed(before)
    assert (
        not found
        or len({before.nodes.records[before.nodes.index[n]].labels[RACK] for n in found["a"].to}) == 1
    )


# ---- whatever the cluster ----


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """One to five nodes in two racks, jobs of every kind, some of which wait."""
    count = draw(st.integers(1, 5))
    free = {f"n{i}": 4 for i in range(count)}
    jobs: list[Job] = []
    for i in range(draw(st.integers(1, 6))):
        name, gpus = f"j{i}", draw(st.sampled_from([1, 1, 2, 4]))
        least = draw(st.integers(1, 3))
        most = draw(st.integers(least, 6))
        on: list[str] = []
        if draw(st.integers(0, 3)):
            for _ in range(draw(st.integers(least, most))):
                fitting = sorted(n for n in free if free[n] >= gpus)
                if not fitting:
                    break
                on.append(draw(st.sampled_from(fitting)))
                free[on[-1]] -= gpus
        if len(on) < least:
            free.update({n: free[n] + gpus * on.count(n) for n in set(on)})
            on = []
        spans = tuple(sorted(Counter(on).values(), reverse=True))
        known = measured((spans, 1.0), ((len(on),), draw(st.sampled_from([1.0, 1.5, 3.0])))) if on else {}
        ran = Meter(200.0, float(len(on)), NOW - 5.0)
        jobs.append(
            job(
                name,
                roles=[
                    role(
                        "worker",
                        most,
                        job=name,
                        gpus=gpus,
                        least=least,
                        most=most,
                        on=on,
                        evictable=draw(st.integers(0, 4)) > 0,
                    )
                ],
                started_at=NOW - draw(st.sampled_from([10.0, 5000.0])) if on else 0.0,
                remaining_work=draw(st.sampled_from([None, 300.0, 90_000.0])),
                samples=known,
                facts=replace(LONG_AGO, progress=ran) if on else Facts(),
                resize=draw(st.sampled_from(["", "restart"])),
            )
        )
    return snapshot(cluster(count, 4, racks=min(2, count)), jobs=jobs)


def describe(before: Snapshot, after: Plan) -> str:
    lines = [
        f"{k.name}: {j.roles[0].min}..{j.roles[0].max} x {j.roles[0].shape.gpus} {j.resize} on "
        f"{[m.node for m in j.roles[0].members if m.node]}, leave "
        f"{[s.uid for s in after.shrinks if s.job == k]}, get {[h.node for h in places(after, k)]}"
        for k, j in before.jobs.items()
    ]
    return "\n".join(lines)


@given(before=clusters(), most=st.integers(1, 4))
@settings(max_examples=300)
def test_a_move_is_legal_worth_it_and_never_of_a_job_about_to_end(before: Snapshot, most: int) -> None:
    plugin = replace(TIDY, most=most)
    after = plan(before, STAY, rebalance=(plugin,))
    again = plan(before, STAY, rebalance=(plugin,))
    assert (after.shrinks, after.reservations, after.later) == (
        again.shrinks,
        again.reservations,
        again.later,
    )
    moved = {shrink.job for shrink in after.shrinks}
    assert len(moved) <= most
    used: Counter[str] = Counter()
    for each in before.jobs.values():
        gone = {s.uid for s in after.shrinks if s.job == each.key}
        stay = [m.node for m in each.roles[0].members if m.node and m.uid not in gone]
        new = [h.node for h in places(after, each.key)]
        used.update({n: c * each.roles[0].shape.gpus for n, c in Counter([*stay, *new]).items()})
        if each.key not in moved:
            continue
        was = [m.node for m in each.roles[0].members if m.node]
        assert len(stay) + len(new) == len(was), "as many replicas as before"
        assert len({*stay, *new}) <= len(set(was)), "on no more nodes"
        assert all(m.evictable for m in each.roles[0].members)
        assert each.resize == "restart" or each.roles[0].max > each.roles[0].min
        assert each.remaining_work is None or each.remaining_work / len(was) > plugin.ending
        assert each.started_at <= NOW - plugin.cooldown
    assert all(count <= 4 for count in used.values()), describe(before, after)
    for move in plugin.moves(before.with_table(table_of([], NOW, 0))):
        assert move.gain > 0.0
        assert move.why
