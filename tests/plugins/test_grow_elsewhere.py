"""Rebalance `grow-elsewhere`: a job in place whose node is full goes where GPUs idle, and who stays where it is."""

from __future__ import annotations

import pytest

from muster_plugins.grow_elsewhere import GrowElsewhere
from tests.core.devices.circle import Circle

SOON: dict[str, float] = {"horizon": 100.0, "cost": 10.0, "ending": 5.0, "cooldown": 10.0}


def two_nodes(**arguments: float) -> Circle:
    """Of four GPUs each."""
    return Circle(nodes=2, rebalance=(GrowElsewhere(**{**SOON, **arguments}),))


def crowded(going: Circle, **notes: str) -> None:
    """a and c share one node, b has the other for itself, and then b's is free. notes: of c."""
    going.train("a", "1-4")
    going.seconds(6)
    going.train("b", "4")
    going.seconds(6)
    going.train("c", "1-4", **notes)
    going.seconds(10)
    assert (going.using("a"), going.using("b"), going.using("c")) == (2, 4, 2)
    going.cluster.end(going.pod("b").uid)


def test_one_of_two_on_a_full_node_goes_to_the_idle_one_once_and_both_have_all() -> None:
    going = two_nodes()
    crowded(going)
    before = going.starts()
    going.seconds(100)  # of a pod that is gone GPUs come free when its agent's lease is over
    assert (going.using("a"), going.using("c")) == (4, 4)
    assert {going.pod("a").node, going.pod("c").node} == {"n0", "n1"}
    assert len(before - going.starts()) == 1
    after = going.starts()
    going.seconds(100)
    assert going.starts() == after, "nobody has more to gain"


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
    before = going.starts()
    going.seconds(40)
    assert going.starts() == before
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
    before = going.starts()
    going.seconds(60)
    assert going.starts() == before


def test_a_muster_that_starts_again_while_a_job_goes_elsewhere_brings_it_there() -> None:
    going = two_nodes()
    crowded(going)
    before = going.starts()
    while not before - going.starts():
        going.second()
    going.restart()
    going.seconds(200)
    assert (going.using("a"), going.using("c")) == (4, 4)
