"""Where a whole job goes: nodes, roles, topology, ports."""

from dataclasses import replace

import pytest

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need, place
from muster.types import Port, Shape, Snapshot
from tests.scenario import (
    BLOCK,
    FIFO,
    NOW,
    RACK,
    asks,
    cluster,
    job,
    key,
    node,
    plan,
    role,
    said,
    snapshot,
    starts,
    starts_by_role,
)


def test_a_small_gang_goes_to_the_fullest_node_that_takes_it_whole() -> None:
    before = snapshot(
        nodes=3,
        jobs=[
            job("a", worker=1, gpus=2, on=["n0"]),
            job("b", worker=1, gpus=5, on=["n1"]),
            job("train", worker=3, gpus=1),
        ],
    )
    assert starts(plan(before)) == {"train": {"n1": 3}}


def test_a_gang_larger_than_a_node_spans_the_fewest_nodes() -> None:
    before = snapshot(
        nodes=4,
        jobs=[
            job("a", worker=1, gpus=6, on=["n0"]),
            job("b", worker=1, gpus=5, on=["n1"]),
            job("train", worker=10, gpus=1),
        ],
    )
    # a whole node first, then the rest on the fullest node that takes it
    assert starts(plan(before)) == {"train": {"n0": 2, "n2": 8}}


def test_the_most_demanding_role_is_placed_first_and_the_rest_beside_it() -> None:
    train = job(
        "train",
        roles=[
            role("scheduler", 1, shape=asks(cpu=1000), job="train"),
            role("worker", 2, gpus=8, job="train"),
        ],
    )
    assert starts_by_role(plan(snapshot(nodes=3, jobs=[train]))) == {
        "train": {"worker": {"n0": 1, "n1": 1}, "scheduler": {"n0": 1}}
    }


@pytest.mark.parametrize(
    ("free", "bound"),
    [
        pytest.param(asks(2, cpu=8000), asks(1, selector=(("zone", "a"),)), id="few nodes"),
        pytest.param(asks(2, cpu=4000), asks(1, cpu=48000), id="few nodes that are large enough"),
    ],
)
def test_a_role_that_could_go_anywhere_leaves_the_only_node_of_another_one(free: Shape, bound: Shape) -> None:
    nodes = [node("n0", gpus=2, labels={"zone": "a"}), node("n1", gpus=2, cpu=32)]
    train = job("train", roles=[role("free", 1, shape=free), role("bound", 1, shape=bound)])
    assert starts_by_role(plan(snapshot(nodes=nodes, jobs=[train]))) == {
        "train": {"bound": {"n0": 1}, "free": {"n1": 1}}
    }


def test_a_gang_of_a_thousand_replicas_is_placed_whole() -> None:
    after = plan(snapshot(nodes=125, jobs=[job("big", worker=1000, gpus=1)]))
    assert starts(after) == {"big": {f"n{i:03d}": 8 for i in range(125)}}


def test_one_replica_too_many_and_nothing_is_placed() -> None:
    after = plan(snapshot(nodes=125, jobs=[job("big", worker=1001, gpus=1)]))
    assert starts(after) == {}


def test_a_failed_placement_leaves_the_room_as_it_was() -> None:
    before = snapshot(nodes=2)
    capacity = Capacity(before)
    # each role fits alone, together they don't
    roles = [role("a", 2, gpus=5), role("b", 2, gpus=4)]
    assert place(capacity, job("x", roles=roles), [Need(r, 2) for r in roles], FIFO, before) is None
    assert (capacity.free == before.free).all()


def test_a_required_rack_takes_the_job_whole_or_not_at_all() -> None:
    in_one = job("train", worker=3, gpus=8, topology_required=RACK)
    assert starts(plan(snapshot(nodes=6, racks=2, jobs=[in_one]))) == {"train": {"n0": 1, "n1": 1, "n2": 1}}
    after = plan(snapshot(nodes=6, racks=3, jobs=[in_one]))
    assert starts(after) == {}
    assert said(after) == {
        "train": "Waiting NeverFits: needs 24 GPUs (3 replicas of 8) in one rack: "
        "no rack is large enough; the best rack has 16 GPUs"
    }


def test_a_required_rack_is_the_one_with_least_to_spare() -> None:
    before = snapshot(
        nodes=4,
        racks=2,
        jobs=[
            job("other", worker=1, gpus=8, on=["n3"]),
            job("train", worker=2, gpus=4, topology_required=RACK),
        ],
    )
    assert starts(plan(before)) == {"train": {"n2": 2}}


def test_nodes_without_the_label_are_in_no_rack() -> None:
    nodes = [node("n0"), node("n1", labels={RACK: "r0"})]
    before = snapshot(nodes=nodes, jobs=[job("train", worker=1, topology_required=RACK)])
    assert starts(plan(before)) == {"train": {"n1": 1}}


def test_a_preferred_rack_is_used_when_it_fits_and_given_up_when_not() -> None:
    fits = job("train", worker=2, gpus=8, topology_preferred=RACK)
    assert starts(plan(snapshot(nodes=4, racks=2, jobs=[fits]))) == {"train": {"n0": 1, "n1": 1}}
    spans = job("train", worker=3, gpus=8, topology_preferred=RACK)
    assert starts(plan(snapshot(nodes=4, racks=2, jobs=[spans]))) == {"train": {"n0": 1, "n1": 1, "n2": 1}}


def test_a_job_that_spans_racks_spans_as_few_as_possible() -> None:
    nodes = [node(f"n{i}", labels={RACK: f"r{rack}"}) for i, rack in enumerate((0, 1, 1, 2, 2, 3))]
    before = snapshot(nodes=nodes, jobs=[job("train", worker=4, gpus=8, topology_preferred=RACK)])
    assert starts(plan(before)) == {"train": {"n1": 1, "n2": 1, "n3": 1, "n4": 1}}


def test_levels_of_the_profile_are_tried_narrowest_first() -> None:
    before = snapshot(nodes=8, racks=4, blocks=2, jobs=[job("train", worker=3, gpus=8)])
    after = plan(before, topology_levels=(RACK, BLOCK))
    assert starts(after) == {"train": {"n0": 1, "n1": 1, "n2": 1}}
    # with a node of the first block taken, only the second holds it whole
    taken = snapshot(
        nodes=8,
        racks=4,
        blocks=2,
        jobs=[job("a", worker=2, gpus=8, on=["n0", "n2"]), job("train", worker=3, gpus=8)],
    )
    assert starts(plan(taken, topology_levels=(RACK, BLOCK))) == {"train": {"n4": 1, "n5": 1, "n6": 1}}


def test_a_replacement_stays_in_the_rack_where_the_job_runs() -> None:
    before = snapshot(
        nodes=4,
        racks=2,
        jobs=[job("train", worker=2, gpus=4, on=["n2"], topology_required=RACK)],
    )
    assert starts(plan(before)) == {"train": {"n2": 1}}


def test_replicas_with_one_host_port_go_to_nodes_of_their_own() -> None:
    shape = asks(1, ports=(Port("TCP", "0.0.0.0", 8000),))
    before = snapshot(nodes=3, jobs=[job("train", worker=2, shape=shape)], ports={"n0": [shape.ports[0]]})
    assert starts(plan(before)) == {"train": {"n1": 1, "n2": 1}}


@pytest.mark.parametrize(
    ("used", "clash"),
    [
        (Port("TCP", "0.0.0.0", 8000), True),
        (Port("TCP", "10.0.0.1", 8000), True),
        (Port("TCP", "10.0.0.2", 8000), False),
        (Port("UDP", "0.0.0.0", 8000), False),
        (Port("TCP", "0.0.0.0", 8001), False),
    ],
)
def test_host_ports_clash_as_kube_scheduler_says(used: Port, clash: bool) -> None:
    shape = asks(1, ports=(Port("TCP", "10.0.0.1", 8000),))
    before = snapshot(nodes=1, jobs=[job("train", worker=1, shape=shape)], ports={"n0": [used]})
    assert starts(plan(before)) == ({} if clash else {"train": {"n0": 1}})


def test_replicas_that_repel_pods_are_planned_one_a_node() -> None:
    shape = asks(1, unmodelled=("podAntiAffinity",))
    before = snapshot(nodes=3, jobs=[job("train", worker=3, shape=shape)])
    assert starts(plan(before)) == {"train": {"n0": 1, "n1": 1, "n2": 1}}


def test_a_node_that_refused_this_role_is_left_out_until_its_time_is_over() -> None:
    jobs = [job("train", worker=1)]
    node_backoffs = {("train", "worker"): {"n0": NOW + 30}}
    before = snapshot(nodes=2, jobs=jobs, node_backoffs=node_backoffs)
    assert starts(plan(before)) == {"train": {"n1": 1}}
    assert starts(plan(replace(before, now=NOW + 31))) == {"train": {"n0": 1}}


def test_a_node_barred_for_one_job_is_open_to_another_of_the_same_shape() -> None:
    node_backoffs = {("first", "worker"): {"n0": NOW + 30}}
    before = snapshot(
        nodes=1, jobs=[job("first", worker=1), job("second", worker=1)], node_backoffs=node_backoffs
    )
    assert starts(plan(before)) == {"second": {"n0": 1}}


def test_every_resource_counts_pods_too() -> None:
    small = node("n0", gpus=0, cpu=4)
    full = replace(small, allocatable={**small.allocatable, "pods": 3})
    before = snapshot(nodes=[full], jobs=[job("many", worker=4, shape=asks(cpu=100))])
    assert starts(plan(before)) == {}
    before = snapshot(nodes=[full], jobs=[job("few", worker=3, shape=asks(cpu=100))])
    assert starts(plan(before)) == {"few": {"n0": 3}}


def test_an_extended_resource_of_any_name_is_counted() -> None:
    nodes = [node("n0", **{"example.com/fpga": 1}), node("n1", **{"example.com/fpga": 2})]
    shape = replace(asks(), requests=(("example.com/fpga", 1),))
    before = snapshot(nodes=nodes, jobs=[job("train", worker=3, shape=shape)])
    assert starts(plan(before)) == {"train": {"n0": 1, "n1": 2}}


def test_a_job_that_asks_for_nothing_needs_a_pod_slot_only() -> None:
    before = snapshot(nodes=1, jobs=[job("idle", worker=110, shape=asks())])
    assert starts(plan(before)) == {"idle": {"n0": 110}}


def test_ties_end_in_the_lowest_node_name_whatever_the_order_of_arrival() -> None:
    nodes = cluster(4)
    wanted = {"train": {"n0": 1}}
    for records in (nodes, nodes[::-1]):
        assert starts(plan(snapshot(nodes=records, jobs=[job("train", worker=1)]))) == wanted


def test_a_cluster_without_nodes_places_nothing() -> None:
    before: Snapshot = snapshot(nodes=0, jobs=[job("train", worker=1)])
    after = plan(before)
    assert starts(after) == {}
    assert after.statuses[key("train")].message == "needs 1 GPU: the cluster has no nodes"
