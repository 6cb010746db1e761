"""Shares that fit nodes, on nodes: what `network-packing` grants stands on as few of them as it can (issue 5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster import profiles
from muster.points import Profile
from muster.types import EndReason, Evict, Facts, Job, Plan, Snapshot
from tests.cluster_fake import FakeCluster, Muster
from tests.scenario import NOW, cluster, job, key, plan, snapshot, starts

PACKED = [profiles.build(name) for name in ("afs-l-packed", "afs-p-packed")]
SPEEDS = ((1, 1.0), (2, 1.9), (4, 3.6), (8, 6.5))


def train(name: str, *, most: int = 8, on: tuple[str, ...] = (), work: float = 3600.0) -> Job:
    """An elastic job of single-GPU workers that scales well; its replicas have no index."""
    facts = Facts(first_start=NOW - 900.0, run_start=NOW - 900.0) if on else Facts()
    made = job(
        name, worker=most, gpus=1, least=1, most=most, on=on, speed=SPEEDS, remaining_work=work, facts=facts
    )
    members = tuple(replace(m, index=-1) for m in made.roles[0].members)
    return replace(made, roles=(replace(made.roles[0], members=members),))


def standing(before: Snapshot, after: Plan) -> dict[str, dict[str, int]]:
    """Replicas by node of each job once all of the plan is carried out."""
    result = {}
    for each, found in before.jobs.items():
        gone = {s.uid for s in after.shrinks if s.job == each}
        names = [m.node for m in found.roles[0].on if m.uid not in gone and each not in after.preempted]
        names += [h.node for h in (*after.reservations.get(each, ()), *after.later.get(each, ()))]
        result[each.name] = dict(Counter(names))
    return result


@pytest.mark.parametrize("profile", PACKED, ids=lambda p: p.name)
def test_shares_are_parts_of_a_node_or_whole_nodes_and_stand_on_the_fewest(profile: object) -> None:
    before = snapshot(
        nodes=4, gpus=4, jobs=[train(name, work=900.0 * n) for n, name in enumerate("abcde", 1)]
    )
    after = plan(before, profile)  # type: ignore[arg-type]
    assert sum(after.shares.values()) == 16
    for name, nodes in starts(after).items():
        share = sum(nodes.values())
        assert share in (1, 2, 4, 8)
        assert len(nodes) == -(-share // 4), f"{name} has {share} GPUs on {nodes}"


def test_a_job_that_grows_over_a_node_takes_the_whole_of_it_first() -> None:
    # a stands on half of n0, b ends: a grows to all of n0 and then to n1
    before = snapshot(nodes=2, gpus=4, jobs=[train("a", on=("n0", "n0"))])
    assert standing(before, plan(before, PACKED[0]))["a"] == {"n0": 4, "n1": 4}


def test_a_job_that_stands_on_more_nodes_than_it_needs_is_placed_again_once_it_is_shrunk() -> None:
    jobs = [train("a", on=("n0", "n0", "n1", "n1")), train("b", work=60.0), train("c", work=60.0)]
    before = snapshot(nodes=2, gpus=4, jobs=jobs)
    after = plan(before, PACKED[0])
    found = standing(before, after)
    assert sum(after.shares.values()) == 8
    assert all(len(nodes) == -(-after.shares[key(name)] // 4) for name, nodes in found.items()), found


def test_a_job_that_finds_no_node_for_its_whole_share_takes_what_its_own_has() -> None:
    """Seen on the lab: a is granted 8, b and c 4 each; a stands beside b, so no node has 8 for it."""
    jobs = [
        train("a", on=("n0",), work=36_000.0),
        train("b", on=("n0",) * 4, work=72_000.0),
        train("c", on=("n1",) * 4, work=108_000.0),
    ]
    before = snapshot(nodes=2, gpus=8, jobs=jobs)
    after = plan(before, PACKED[0])
    assert after.shares == {key("a"): 8, key("b"): 4, key("c"): 4}
    assert standing(before, after) == {"a": {"n0": 4}, "b": {"n0": 4}, "c": {"n1": 4}}


@pytest.mark.parametrize("profile", PACKED, ids=lambda p: p.name)
def test_a_start_that_has_no_legal_share_is_finished_where_nobody_wants_its_gpus(profile: Profile) -> None:
    """Three GPUs of a node of eight are none that network-packing grants; what is idle is given to it all the same,
    and not taken back between its first pod and its second."""
    fake = FakeCluster(nodes=1)
    fake.stateful_set("serve", 3)
    muster = Muster(fake, replace(profile, conserving=True))
    muster.settle()
    assert fake.bound("serve") == ["n0"] * 3


def test_a_job_that_asks_for_more_than_its_node_has_is_moved_by_name() -> None:
    """That all of a share stands on the fewest nodes is what network-packing is for: what ran begins again there."""
    fake = FakeCluster(nodes=2)
    fake.stateful_set("other", 4)
    muster = Muster(fake, replace(PACKED[0], conserving=True))
    muster.settle()
    serve = fake.stateful_set("serve", 4)
    muster.settle()
    assert fake.bound("serve") == ["n0"] * 4
    fake.now += 100.0
    fake.scale(serve, 8)
    muster.settle(30, seconds=5.0)
    assert fake.bound("serve") == ["n1"] * 8
    assert {each.reason for each in fake.sent if isinstance(each, Evict)} == {EndReason.MOVE}


@given(
    count=st.integers(1, 6),
    gpus=st.sampled_from([2, 4, 8]),
    mosts=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 16]), min_size=1, max_size=10),
    works=st.lists(st.sampled_from([60.0, 900.0, 3600.0, 86_400.0]), min_size=10, max_size=10),
)
@settings(max_examples=150)
def test_on_an_empty_cluster_every_share_stands_on_its_fewest_nodes(
    count: int, gpus: int, mosts: list[int], works: list[float]
) -> None:
    jobs = [train(f"j{i}", most=most, work=works[i]) for i, most in enumerate(mosts)]
    after = plan(snapshot(cluster(count, gpus), jobs=jobs), PACKED[0])
    placed = starts(after)
    for each, share in after.shares.items():
        nodes = placed.get(each.name, {})
        assert sum(nodes.values()) == share, f"{each.name} is granted {share}, has {nodes}"
        assert len(nodes) == -(-share // gpus), f"{each.name} has {share} GPUs on {nodes}"
