"""The extender verbs of a running muster: what nobody should send, calls twice and too late, and the guard.

What the answers look like on the wire is pinned by tests/wire; here is what the stock kube-scheduler makes of
them."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest

from e2e.cluster import GATE, Cluster, Pod
from e2e.lab import Lab
from e2e.scenario import bound, gated, job, pod, show, stays, wait_until
from muster.server.extender import PATIENCE

pytestmark = pytest.mark.lab

MIB = 1024 * 1024
NO_PLAN = "muster has no plan for this pod"


def post(lab: Lab, verb: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{lab.extender_url(lab.leader() or 0)}/{verb}", timeout=60, trust_env=False, **body)


def ask(lab: Lab, one: Pod) -> dict[str, Any]:
    """The filter's answer for a pod and all nodes."""
    answer = post(lab, "filter", json={"Pod": one.raw, "Nodes": None, "NodeNames": lab.nodes})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def take_the_gate_off(lab: Lab, namespace: str, name: str) -> None:
    """As somebody of the break-glass group does: kubectl patch."""
    patch = f'{{"spec": {{"schedulingGates": [{{"name": "{GATE}", "$patch": "delete"}}]}}}}'
    lab.kubectl(
        "--as=somebody",
        "--as-group=muster:break-glass",
        "--as-group=system:masters",
        *("patch", "pod", name, "-n", namespace, "--type=strategic", "-p", patch),
    )


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
def test_what_nobody_should_send_gets_an_error_and_pods_are_bound_all_the_same(
    lab: Lab, cluster: Cluster, namespace: str, verb: str
) -> None:
    for body in (b"", b"{", b"null", b"[]", b"\xff\x00", b'{"Pod": 7}', b'{"Pod": []}'):
        answer = post(lab, verb, content=body)
        assert (answer.status_code, bool(answer.json()["Error"])) == (400, True), body
    for size in (9 * MIB, 40 * MIB):
        for content in (b" " * size, itertools.repeat(b" " * MIB, size // MIB)):
            try:
                assert post(lab, verb, content=content).status_code == 413
            except (
                httpx.TransportError
            ):  # who sends on after PATIENCE bytes may lose the answer with the connection
                assert size > PATIENCE

    cluster.submit(job("after", 2), namespace=namespace)
    wait_until(lambda: bound(cluster.pods(namespace, "after"), 2), what="the next job is bound")


def test_unknown_nodes_and_empty_lists_get_an_error(lab: Lab, cluster: Cluster, namespace: str) -> None:
    cluster.submit(pod("lonely", roles="worker=2"), namespace=namespace)
    (one,) = cluster.pods(namespace)
    for names in ([], ["no-such-node"]):
        answer = post(lab, "filter", json={"Pod": one.raw, "Nodes": None, "NodeNames": names}).json()
        assert answer["NodeNames"] == []
        assert answer["Error"]
    wait_until(  # nodes that the scenario before took away are new to Muster, too
        lambda: ask(lab, one)["FailedAndUnresolvableNodes"] == dict.fromkeys(lab.nodes, NO_PLAN),
        what="all nodes are refused since there is no plan",
        also=lambda: ask(lab, one),
    )


def test_a_pod_whose_gate_was_taken_off_by_hand_waits_for_its_gang(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """It does not jump the queue; when the rest of its gang is there, it starts with it."""
    pods = [pod(f"half-{i}", job="half", roles="worker=2") for i in range(2)]
    cluster.submit(pods[0], namespace=namespace)
    wait_until(lambda: gated(cluster.pods(namespace)), what="the first pod is behind the gate")
    take_the_gate_off(lab, namespace, "half-0")

    def refused() -> bool:
        one = cluster.pod(namespace, "half-0")
        condition = one.condition("PodScheduled") if one else None
        return bool(condition) and NO_PLAN in str(condition)

    wait_until(refused, what="kube-scheduler says that muster has no plan for it")
    stays(cluster, lambda: not bound(cluster.pods(namespace)), what="no pod of half a gang is bound")

    cluster.submit(pods[1], namespace=namespace)
    wait_until(
        lambda: bound(cluster.pods(namespace), 2),
        what="both pods are bound once the gang is whole",
        also=lambda: show(cluster.pods(namespace)),
    )


def test_calls_twice_and_too_late_change_nothing(lab: Lab, cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("train", 2), pod("lonely", job="lonely", roles="worker=2"), namespace=namespace)
    placed = wait_until(lambda: bound(cluster.pods(namespace, "train"), 2), what="train is bound")
    wait_until(
        lambda: all(ask(lab, one)["NodeNames"] == [] for one in placed),
        what="Muster knows that train is bound",
        also=lambda: [ask(lab, one) for one in placed],
    )
    (waits,) = cluster.pods(namespace, "lonely")
    for one in (*placed, waits):
        answers = [ask(lab, one) for _ in range(20)]
        assert answers == [answers[0]] * 20
        assert answers[0]["NodeNames"] == []
    assert [one.node for one in cluster.pods(namespace, "train")] == [one.node for one in placed]
    assert not bound(cluster.pods(namespace, "lonely"))
