"""Rebalance `grow-elsewhere`: a job in place whose node is full goes where GPUs idle, and who stays where it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.points import Share
from muster.types import PRODUCT, JobKey, PodRecord
from muster_plugins.grow_elsewhere import TRIES, GrowElsewhere, _some
from muster_plugins.max_min import MaxMin
from muster_plugins.optimus import Optimus
from muster_plugins.resize_cost import ResizeCost
from muster_plugins.tiresias_l import TiresiasL
from tests.cluster_fake import node
from tests.core.devices.circle import Circle

SOON: dict[str, float] = {"horizon": 100.0, "cost": 10.0, "ending": 5.0, "cooldown": 10.0}


def two_nodes(share: Share | None = None, gpus: int = 4, **arguments: float) -> Circle:
    """Of so many GPUs each."""
    return Circle(gpus=gpus, nodes=2, share=share, rebalance=(GrowElsewhere(**{**SOON, **arguments}),))


def crowded(going: Circle, first: str = "", **notes: str) -> None:
    """a and c share one node, b has the other for itself, and then b's is free. first: speeds of a; notes: of c."""
    going.train("a", "1-4", **({"speed": first} if first else {}))
    going.seconds(6)
    going.train("b", "4")
    going.seconds(6)
    going.train("c", "1-4", **notes)
    going.seconds(10)
    assert (going.using("a"), going.using("b"), going.using("c")) == (2, 4, 2)
    going.cluster.end(going.pod("b").uid)


def nobody_goes(circle: Circle, seconds: int) -> None:
    """No pod ends or comes meanwhile."""
    before = circle.starts()
    circle.seconds(seconds)
    assert circle.starts() == before


def test_one_of_two_on_a_full_node_goes_to_the_idle_one_once_and_both_have_all() -> None:
    going = two_nodes()
    crowded(going)
    before = going.starts()
    going.seconds(100)  # of a pod that is gone GPUs come free when its agent's lease is over
    assert (going.using("a"), going.using("c")) == (4, 4)
    assert {going.pod("a").node, going.pod("c").node} == {"n0", "n1"}
    assert len(before - going.starts()) == 1
    nobody_goes(going, 100)


def test_whoever_gains_most_goes() -> None:
    going = two_nodes(cooldown=1.0)
    crowded(going, speed="1=1,2=1.2,4=4")
    before = {name: going.pod(name).uid for name in ("a", "c")}
    going.seconds(20)
    assert (going.pod("a").uid == before["a"], going.pod("c").uid == before["c"]) == (True, False)


@pytest.mark.parametrize(
    "arguments",
    [{"cost": 1000.0}, {"cooldown": 1000.0}, {"horizon": 5.0}],
    ids=["a change costs more than it gains", "it has just started", "it gains less than a change costs"],
)
def test_who_does_not_gain_by_it_stays(arguments: dict[str, float]) -> None:
    going = two_nodes(**arguments)
    crowded(going)
    nobody_goes(going, 40)
    assert (going.using("a"), going.using("c")) == (2, 2)


def test_nobody_goes_while_another_job_waits_for_these_gpus() -> None:
    going = two_nodes()
    crowded(going)
    going.cluster.job("big", 2, gpus=4)  # two nodes' worth: it finds no room
    before = going.starts()
    going.seconds(40)
    assert going.starts() >= before
    assert (going.using("a"), going.using("c")) == (2, 2)


def test_a_job_of_several_pods_stays_where_they_are() -> None:
    going = two_nodes()
    going.train("pair", "1-4", pods=2)
    going.seconds(6)
    going.train("b", "2")
    going.seconds(30)
    nobody_goes(going, 60)


def test_nobody_follows_a_job_whose_owner_is_slow_to_make_its_pod_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two left their nodes for the one that had room for one of them."""
    going = Circle(gpus=4, nodes=3, rebalance=(GrowElsewhere(**{**SOON, "cooldown": 15.0}),))
    going.train("b", "4")
    going.seconds(6)
    for name in "acde":
        going.train(name, "1-4")
        going.seconds(6)
    going.seconds(30)
    assert [going.using(name) for name in "acde"] == [2, 2, 2, 2]
    going.cluster.end(going.pod("b").uid)
    gone: list[PodRecord] = []
    monkeypatch.setattr(going.cluster, "recreate", gone.append)
    going.seconds(10)
    assert len(gone) == 1
    monkeypatch.undo()
    going.cluster.recreate(gone[0])
    going.seconds(100)
    assert sorted(going.using(name) for name in "acde") == [2, 2, 4, 4]


def test_a_muster_that_starts_again_while_a_job_goes_elsewhere_brings_it_there() -> None:
    going = two_nodes()
    crowded(going)
    before = going.starts()
    while not before - going.starts():
        going.second()
    going.restart()
    going.seconds(200)
    assert (going.using("a"), going.using("c")) == (4, 4)


@pytest.mark.parametrize("share", [Optimus(), TiresiasL()], ids=["optimus", "tiresias-l"])
def test_a_policy_that_grants_no_more_moves_nobody(share: Share) -> None:
    """Nothing is declared, so that optimus gains nothing by a second GPU; tiresias-l gives what was asked for."""
    circle = two_nodes(share=share)
    circle.train("x", "1,2", request="1")
    circle.seconds(6)
    circle.train("y", "1,2,4", request="1")
    circle.seconds(12)
    nobody_goes(circle, 200)
    assert (circle.using("x"), circle.using("y")) == (1, 1)


def test_a_job_whose_own_node_has_room_grows_there() -> None:
    going = two_nodes()
    going.train("a", "1-4")
    going.seconds(6)
    going.cluster.job("b", 1, gpus=4)
    going.seconds(3)
    going.train("c", "1-4")
    going.seconds(20)
    before = going.starts()
    going.cluster.end(going.pod("a").uid)
    going.seconds(100)
    assert going.using("c") == 4
    assert going.pod("c").uid in before


def test_nobody_takes_the_room_that_a_job_in_place_waits_for() -> None:
    """d needs all of a node: six of n0 come free before the other two do, and a, alone on n1, may not go there."""
    going = two_nodes(gpus=8)
    large = going.cluster.job("large", 1, gpus=6)[0]
    going.seconds(3)
    going.cluster.job("beside", 1, gpus=7)
    going.seconds(3)
    small = going.cluster.job("small", 1, gpus=2)[0]
    going.seconds(3)
    going.train("a", "1-4")
    going.seconds(8)
    going.train("d", "8")
    going.seconds(12)
    going.cluster.end(small.uid)
    going.seconds(60)
    going.cluster.end(large.uid)
    going.seconds(100)
    assert (going.using("a"), going.using("d")) == (1, 8)


def test_a_job_that_no_node_could_take_keeps_nobody_from_going() -> None:
    going = two_nodes()
    going.cluster.job("never", 1, gpus=100)
    crowded(going)
    going.seconds(100)
    assert (going.using("a"), going.using("c")) == (4, 4)


def test_nobody_goes_to_another_product() -> None:
    going = two_nodes()
    for name, product in (("n0", "NVIDIA-H100"), ("n1", "Tesla-K80")):
        going.cluster.nodes[name] = node(name, 4, **{PRODUCT.replace("/", "__"): product})
    going.restart()
    crowded(going)
    nobody_goes(going, 60)


def test_speeds_of_all_numbers_are_weighed_not_of_the_largest_alone() -> None:
    going = two_nodes()
    crowded(going, speed="1=1,2=1.9,3=2.8,4=2.0", first="1=1,2=1.9,3=2.8,4=2.0")
    going.seconds(100)
    assert (going.using("a"), going.using("c")) == (4, 4), "max-min grants them the fourth as well"


def test_hand_overs_that_took_no_time_make_no_restart_cheap() -> None:
    going = two_nodes(cost=1000.0)
    crowded(going)
    going.seconds(20)
    snapshot = going.ledger.snapshot(going.cluster.now)
    jobs = {key: replace(job, facts=replace(job.facts, last_cost=0.5)) for key, job in snapshot.jobs.items()}
    assert not going.ledger.plan(replace(snapshot, jobs=jobs)).shrinks


def test_who_goes_comes_back_with_all_that_it_is_granted_also_where_changes_have_to_be_worth_their_cost() -> (
    None
):
    """It had the least at first, and rested ten times as long as its restart took."""
    going = two_nodes()
    going.profile = replace(going.profile, shares=(MaxMin(), ResizeCost()))
    going.restart()
    crowded(going)
    before = going.starts()
    while going.starts() == before:
        going.second()
    (moved,) = (name for name in ("a", "c") if going.pod(name).uid not in before)
    while not going.using(moved):
        going.second()
    assert going.using(moved) == 4


def test_of_many_that_would_go_others_are_looked_at_in_each_second() -> None:
    keys = [JobKey("team", f"j{number:02d}") for number in range(40)]
    seen = [{*_some(keys, float(second))} for second in range(3)]
    assert set.union(*seen) == {*keys}
    assert max(map(len, seen)) == TRIES
    assert [*_some(keys[:TRIES], 7.0)] == keys[:TRIES]
