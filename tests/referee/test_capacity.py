"""The referee counts what pods hold on nodes, planned ones by their pin; and asks who may end a pod."""

from __future__ import annotations

from e2e.quantities import measure, requests
from e2e.referee import Rules
from tests.referee.history import History


def test_a_pod_of_ours_on_a_node_that_is_full_is_a_fault_at_once() -> None:
    h = History()
    h.node("n0", gpus=8)
    h.pod("a", gpus=5)
    h.pod("b", gpus=4)
    h.binds("a", "n0")
    h.binds("b", "n0")
    assert h.faults == ["0.0 s: pods hold 9 of 8 nvidia.com/gpu of n0; a/b is what is too much"]


def test_every_resource_counts() -> None:
    h = History()
    h.node("n0", gpus=8, **{"hugepages-2Mi": "0"})
    for name in ("a", "b"):
        h.pod(name, gpus=1, memory="600Gi")
        h.binds(name, "n0")
    assert len(h.faults) == 1
    assert "of 1099511627776 memory of n0" in h.faults[0]


def test_a_pod_on_its_way_out_holds_its_gpus_until_it_has_ended() -> None:
    h = History()
    h.node("n0", gpus=8)
    h.pod("a", gpus=8, annotations={"muster.dev/evictable": "true"})
    h.pod("b", gpus=8)
    h.binds("a", "n0")
    h.evicted("a")
    h.ends("a", "Failed")
    h.binds("b", "n0")
    assert h.faults == []
    h.gone("a")
    h.pod("c", gpus=1)
    h.deleted("b")
    h.binds("c", "n0")
    assert len(h.faults) == 1


def test_a_pod_that_is_planned_for_a_full_node_is_a_fault_when_that_lasts() -> None:
    h = History()
    h.node("n0", gpus=8)
    h.pod("a", gpus=8)
    h.pod("b", gpus=8)
    h.binds("a", "n0")
    h.pins("b", "n0")
    h.passes(20)
    assert h.faults == []
    h.passes(1)
    assert [one.partition("s: ")[2] for one in h.faults] == [
        "pods hold or are planned for 16 of 8 nvidia.com/gpu of n0, for 21 s"
    ]


def test_a_gated_pod_and_one_whose_node_comes_free_hold_nothing_too_much() -> None:
    h = History()
    h.node("n0", gpus=8)
    h.pod("a", gpus=8)
    h.pod("b", gpus=8)
    h.binds("a", "n0")
    h.passes(100)
    h.pins("b", "n0")
    h.ends("a")
    h.passes(100)
    h.binds("b", "n0")
    assert h.faults == []


def test_what_others_put_on_a_node_by_hand_is_not_our_fault() -> None:
    h = History()
    h.node("n0", gpus=8)
    h.pod("a", gpus=8)
    h.pins("a", "n0")
    h.pod("foreign", gated=False, scheduler=None, gpus=8)
    h.binds("foreign", "n0")
    h.passes(100)
    h.binds("a", "n0")  # kube-scheduler had bound it before it knew
    assert (h.faults, h.referee.open()) == ([], [])
    h.gone("foreign")
    h.pod("b", gpus=1)
    h.binds("b", "n0")  # from here on it is ours again
    assert len(h.faults) == 1


def test_a_node_that_is_made_smaller_or_goes_is_not_our_fault() -> None:
    h = History()
    h.node("n0", gpus=8)
    h.pod("a", gpus=8)
    h.binds("a", "n0")
    h.node("n0", gpus=4)
    h.passes(100)
    assert (h.faults, h.referee.open()) == ([], [])


def test_a_bare_pod_is_nobodys_to_end_unless_it_says_so() -> None:
    h = History()
    h.pod("bare")
    h.pod("evictable", annotations={"muster.dev/evictable": "true"})
    for name in ("bare", "evictable"):
        h.binds(name, "n0")
        h.evicted(name)
    assert h.faults == ["0.0 s: a/bare was evicted: a bare pod, which nobody makes again"]


def test_a_bare_pod_that_its_user_deletes_or_that_never_ran_is_no_fault() -> None:
    h = History()
    h.pod("deleted")
    h.binds("deleted", "n0")
    h.deleted("deleted")
    h.pod("waits")
    h.evicted("waits")
    assert h.faults == []


def test_a_pod_that_runs_is_evicted_for_a_reason_that_stands_on_it() -> None:
    h = History(Rules(reasons=frozenset(("ShareShrunk", "Preempted"))))
    pods = h.gang("train", 4, min_replicas=1)
    for pod in pods[:3]:
        h.binds(pod, "n0")
    h.marked(pods[1], "Preempted")
    h.marked(pods[2], "Whim")
    for pod in pods:
        h.evicted(pod)
    assert [one.partition("s: ")[2] for one in h.faults] == [
        "a/train-0 was evicted while it ran; its reason: none",
        "a/train-2 was evicted while it ran; its reason: Whim",
    ]


def test_quantities_are_exact_however_large_and_sidecars_count_beside_init_containers() -> None:
    assert measure("cpu", "10P") == 10**19
    assert measure("memory", "7Ei") == 7 * 2**60
    assert (measure("cpu", "1n"), measure("nvidia.com/gpu", "1.5"), measure("cpu", "1e3")) == (1, 2, 10**6)

    def container(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1")],
        "initContainers": [container("2", restartPolicy="Always"), container("4")],
        "overhead": {"cpu": "250m"},
    }
    assert requests(spec) == {"cpu": 6250, "pods": 1}
