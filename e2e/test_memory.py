"""What outlives a restart in the Gang, and what a Gang says while its job is on the way back or scaled."""

from __future__ import annotations

import pytest

from e2e.cluster import Cluster, Json
from e2e.lab import Lab
from e2e.scenario import (
    bound,
    configured,
    gang,
    gated,
    in_state,
    job,
    made,
    on_node,
    pod,
    priority_class,
    runs_whole,
    show,
    stateful_set,
    wait_until,
)

pytestmark = pytest.mark.lab

ROOM = on_node("node-10", "node-11")


@pytest.mark.ends("EndedPinUndone")
def test_a_node_left_out_after_a_refusal_stays_left_out_when_muster_is_killed(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Else the next leader, which prefers that node as well, would run into it again and again."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}}
    lonely = pod(
        "lonely",
        scheduler=None,
        gpus=4,
        affinity=ROOM | {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
    )
    cluster.submit(lonely, namespace=namespace)
    taken = wait_until(lambda: bound(cluster.pods(namespace), 1), what="lonely runs")[0].node
    cluster.submit(job("train", 1, gpus=4, affinity=ROOM, labels={"app": "train"}), namespace=namespace)

    def barred() -> list[Json]:
        found: list[Json] = (gang(cluster, namespace, "job-train").get("ledger") or {}).get("barred") or []
        return found

    (bar,) = wait_until(
        barred, what="the Gang remembers the node", also=lambda: str(cluster.gangs(namespace))
    )
    assert (bar["role"], bar["node"]) == ("worker", taken)
    lab.kill("muster-0")
    lab.start("muster-0")

    (one,) = wait_until(
        lambda: bound(cluster.pods(namespace, "train"), 1),
        what="train runs",
        also=lambda: show(cluster.pods(namespace)),
    )
    assert one.node != taken

    def refused() -> int:
        """Pods that its Job made before this one: the five seconds may be over before the next leader plans; then it
        knows that the next time is the second."""
        return len(made(cluster, namespace, "train")) - 1

    def doubled() -> bool:
        """Each refused pod doubled the time, from 5 s; one that takes longer to go than that does so again."""
        ((where, seconds),) = [(bar["node"], bar["seconds"]) for bar in barred()]
        least = 5 * 2 ** (refused() - 1)
        return where == taken and seconds in (least, 2 * least, 4 * least)

    wait_until(doubled, what="nothing is forgotten", also=lambda: f"{refused()} refused; {barred()}")


def test_a_waiting_gang_shows_the_size_that_its_owner_was_scaled_to(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("holder", 2, gpus=8, affinity=ROOM), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 2)
    cluster.submit(stateful_set("serve", 3, gpus=8, min_replicas=2, affinity=ROOM), namespace=namespace)
    name = "statefulset-serve"
    wait_until(
        lambda: (
            in_state(cluster, namespace, name, "Waiting").get("roles", {}).get("worker", {}).get("max") == 3
        ),
        what="serve waits, 2 to 3 replicas",
        also=lambda: str(cluster.gangs(namespace)),
    )
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/serve"
    for size in (6, 4):
        cluster.patch(path, {"spec": {"replicas": size}})
        wait_until(
            lambda size=size: gang(cluster, namespace, name)["roles"]["worker"]["max"] == size,  # type: ignore[misc]
            what=f"its Gang shows {size}",
            also=lambda: str(cluster.gangs(namespace)),
        )
    wait_until(lambda: len(gated(cluster.pods(namespace))) == 4, what="four pods wait")


def test_a_job_named_by_a_label_is_not_finished_while_its_pods_are_on_their_way_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    high = f"high-{namespace}"
    cluster.submit(priority_class(high, 1000))
    try:
        with configured(lab, preemption=True):
            _goes_and_comes_back(cluster, namespace, high)
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{high}")


def _goes_and_comes_back(cluster: Cluster, namespace: str, high: str) -> None:
    cluster.submit(job("low", 2, gpus=8, job="low", affinity=ROOM, backoff_limit=0), namespace=namespace)
    wait_until(lambda: in_state(cluster, namespace, "low", "Running"), what="low runs")
    first = {one.uid for one in cluster.pods(namespace, "low")}
    cluster.submit(job("high", 2, gpus=8, priority=high, affinity=ROOM), namespace=namespace)
    states: list[str] = []

    def back() -> bool:
        states.append(str(gang(cluster, namespace, "low").get("state")))
        waiting = {one.uid for one in gated(cluster.pods(namespace, "low"))}
        return len(waiting - first) == 2 and states[-1] == "Waiting"

    wait_until(back, what="low waits whole", also=lambda: f"{states} {show(cluster.pods(namespace))}")
    assert "Finished" not in states
    runs_whole(cluster, namespace, "high", 2)
