"""pack: few nodes for a job, full nodes for the cluster."""

from dataclasses import replace

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need, candidates_of
from muster.types import Role
from muster_plugins.pack import Pack, greedy_for
from tests.scenario import asks, job, node, plan, role, snapshot, starts


def scores(each: Role, count: int, used: dict[str, int], nodes: int = 3) -> list[float]:
    """Scores of a cluster of 8-GPU nodes with so many GPUs in use, for `count` replicas."""
    before = snapshot(nodes=nodes, foreign={n: asks(g) for n, g in used.items()})
    candidates = candidates_of(Capacity(before), Need(each, count))
    return Pack().score(job("x", roles=[each]), each, candidates, before).tolist()


def test_the_fullest_node_that_takes_all_is_best() -> None:
    assert scores(role("worker", 2), 2, {"n0": 4, "n1": 6}) == [75.0, 87.5, 50.0]


def test_a_node_that_does_not_take_all_is_worth_nothing_while_another_does() -> None:
    assert scores(role("worker", 2), 2, {"n0": 7, "n1": 8}) == [0.0, 0.0, 50.0]


def test_where_no_node_takes_all_the_one_that_takes_most_is_best() -> None:
    found = scores(role("worker", 20), 20, {"n0": 4, "n1": 8})
    assert found[2] > found[0] > found[1] == 0.0


def test_among_nodes_that_take_as_many_the_fuller_is_better() -> None:
    """Replicas of 3 GPUs: a node with one GPU in use takes two, as an empty one does."""
    found = scores(role("worker", 5, gpus=3), 5, {"n1": 1})
    assert found[1] > found[0] == found[2] > 0.0


def test_nothing_fits_and_every_score_is_zero() -> None:
    assert scores(role("worker", 1), 1, {"n0": 8, "n1": 8, "n2": 8}) == [0.0, 0.0, 0.0]


def test_fullness_is_of_gpus_for_who_asks_gpus_and_of_the_dominant_resource_else() -> None:
    nodes = snapshot(nodes=2).nodes
    named = {name: i for i, name in enumerate(nodes.resources)}
    assert greedy_for(asks(1, cpu=90_000), nodes) == named["nvidia.com/gpu"]
    assert greedy_for(asks(cpu=1000, memory=900), nodes) == named["memory"]
    assert greedy_for(asks(cpu=90_000, memory=1), nodes) == named["cpu"]
    assert greedy_for(asks(), nodes) == -1
    assert greedy_for(replace(asks(), requests=(("example.com/fpga", 1),)), nodes) == -1


def test_nodes_without_the_resource_count_as_empty() -> None:
    before = snapshot(nodes=[node("n0", gpus=0), node("n1")])
    each = role("worker", 1)
    candidates = candidates_of(Capacity(before), Need(each, 1))
    assert Pack().score(job("x", roles=[each]), each, candidates, before).tolist() == [0.0, 50.0]


def test_small_jobs_leave_whole_nodes_free_for_large_ones() -> None:
    jobs = [job(f"s{i}", worker=1, gpus=2) for i in range(4)] + [job("large", worker=2, gpus=8)]
    placed = starts(plan(snapshot(nodes=3, jobs=jobs)))
    assert {n for name, assignments in placed.items() if name != "large" for n in assignments} == {"n0"}
    assert placed["large"] == {"n1": 1, "n2": 1}


def test_cpu_only_replicas_fill_the_fullest_node_by_cpu() -> None:
    before = snapshot(
        nodes=2, jobs=[job("cpu", worker=1, shape=asks(cpu=1000))], foreign={"n1": asks(cpu=50_000)}
    )
    assert starts(plan(before)) == {"cpu": {"n1": 1}}


def test_a_job_grows_on_the_nodes_that_it_has() -> None:
    grows = job("a", worker=4, gpus=1, least=2, most=4, on=["n0", "n0"])
    others = job("b", worker=6, gpus=1, on=["n1"] * 6)
    assert starts(plan(snapshot(nodes=2, jobs=[grows, others]))) == {"a": {"n0": 2}}, (
        "n1 is fuller, and not its own"
    )


def test_what_its_own_nodes_do_not_take_goes_where_all_of_it_fits() -> None:
    grows = job("a", worker=6, gpus=1, least=2, most=6, on=["n0", "n0"])
    others = job("b", worker=9, gpus=1, on=["n0"] * 5 + ["n1"] * 4)
    assert starts(plan(snapshot(nodes=3, jobs=[grows, others]))) == {"a": {"n1": 4}}
