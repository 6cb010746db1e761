"""Nothing healthy is ended: whatever an owner asks for, what runs goes on; and each end has a reason.

Times are short here: `gang.timeout` is 3 s."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import ROOM, has, only, settles, train
from e2e.lab import Lab
from e2e.scenario import (
    START_SECONDS,
    bound,
    comes_to_hold,
    configured,
    deployment,
    gang,
    gated,
    in_state,
    job,
    planned_after,
    priority_class,
    show,
    stateful_set,
    wait_until,
)

pytestmark = pytest.mark.lab

TIMEOUT = 3.0
SHARING = pytest.mark.parametrize("profile", ["fifo", "max-min", "afs-l"])
ABOVE = pytest.mark.unsound("its owner asks for more than there is, and what ran goes on")


@contextlib.contextmanager
def hasty(lab: Lab, **changes: Any) -> Iterator[None]:
    """A gang that is not whole goes back after `TIMEOUT` seconds; what a change costs is not weighed."""
    with configured(lab, gang={"timeout": f"{TIMEOUT:g}s"}, resizeCost=False, **changes):
        yield


def ends(cluster: Cluster, namespace: str) -> list[str]:
    """What Muster's Events say of pods that it ended."""
    return [
        f"{event['reason']}: {event['message']}"
        for event in cluster.events(namespace)
        if event["reason"].startswith("Ended") and event.get("source", {}).get("component") == "muster"
    ]


def goes_on(cluster: Cluster, namespace: str, before: set[str], count: int) -> None:
    """The pods of before are still bound, `count` in all, for twice the timeout and after a newer plan."""

    def so() -> bool:
        now = {one.uid for one in bound(cluster.pods(namespace))}
        return before <= now and len(now) == count

    comes_to_hold(
        so,
        seconds=2 * TIMEOUT,
        what=f"the {len(before)} of before run, {count} in all",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    planned_after(cluster)
    assert so()
    assert ends(cluster, namespace) == []


def runs(cluster: Cluster, namespace: str, name: str, count: int) -> set[str]:
    """Uids of the job's pods, once so many are bound and its Gang says that it runs."""
    pods = wait_until(
        lambda: bound(cluster.pods(namespace), count),
        what=f"{count} pods of {name} run",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    wait_until(lambda: in_state(cluster, namespace, name, "Running"), what=f"the Gang of {name} is Running")
    return {one.uid for one in pods}


# --- its owner asks for more --------------------------------------------------------------------------------


@ABOVE
@SHARING
def test_a_deployment_that_is_scaled_beyond_the_cluster_keeps_what_runs_when_muster_is_killed_too(
    lab: Lab, cluster: Cluster, namespace: str, profile: str
) -> None:
    with hasty(lab, profile=profile):
        cluster.submit(deployment("serve", 4, gpus=8), namespace=namespace)
        before = runs(cluster, namespace, "deployment-serve", 4)
        cluster.patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/serve", {"spec": {"replicas": 200}})
        wait_until(
            lambda: gang(cluster, namespace, "deployment-serve")["roles"]["worker"]["max"] == 200,
            what="its Gang may grow to 200",
            also=lambda: str(cluster.gangs(namespace)),
        )
        assert gang(cluster, namespace, "deployment-serve")["ledger"]["whole"] == [
            {"role": "worker", "min": 4}
        ]
        goes_on(cluster, namespace, before, 16)
        lab.kill("muster-0")
        lab.start("muster-0")
        lab.wait_ready("muster-0")
        goes_on(cluster, namespace, before, 16)


def scaled_set(count: int) -> tuple[Json, str, Json]:
    return stateful_set("serve", 4, gpus=8), "apps/v1/{}/statefulsets/serve", {"spec": {"replicas": count}}


def scaled_job(count: int) -> tuple[Json, str, Json]:
    """An elastic Indexed Job: both change together."""
    return (
        job("serve", 4, gpus=8),
        "batch/v1/{}/jobs/serve",
        {"spec": {"parallelism": count, "completions": count}},
    )


@ABOVE
@pytest.mark.parametrize("scaled", [scaled_set, scaled_job], ids=["StatefulSet", "Indexed Job"])
def test_any_owner_that_is_scaled_beyond_the_cluster_keeps_what_runs(
    lab: Lab, cluster: Cluster, namespace: str, scaled: Callable[[int], tuple[Json, str, Json]]
) -> None:
    manifest, path, change = scaled(40)
    group, version, _, plural, name = path.split("/")
    with hasty(lab):
        cluster.submit(manifest, namespace=namespace)
        before = runs(cluster, namespace, f"{manifest['kind'].lower()}-serve", 4)
        cluster.patch(f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}", change)
        goes_on(cluster, namespace, before, 16)


@ABOVE
def test_a_rollout_that_finds_no_room_keeps_what_runs(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """A typing error in the new template: the replicas that the rolling update has not taken away go on."""
    with hasty(lab):
        cluster.submit(deployment("serve", 4, gpus=8), namespace=namespace)
        before = runs(cluster, namespace, "deployment-serve", 4)
        nowhere = {"spec": {"template": {"spec": {"nodeSelector": {"e2e.muster.dev/nowhere": "true"}}}}}
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/serve"
        cluster.patch(path, nowhere)
        wait_until(
            lambda: gated(cluster.pods(namespace)), what="the new template's replicas wait behind the gate"
        )
        kept = {
            one.uid for one in wait_until(lambda: bound(cluster.pods(namespace), 3), what="three are left")
        }
        assert kept < before
        goes_on(cluster, namespace, kept, 3)
        cluster.patch(path, {"spec": {"template": {"spec": {"nodeSelector": None}}}})
        wait_until(lambda: bound(cluster.pods(namespace), 4), what="four run again")
        assert ends(cluster, namespace) == []


def test_a_rollout_of_a_full_cluster_comes_to_its_end(lab: Lab, cluster: Cluster, namespace: str) -> None:
    only(lab, cluster, *ROOM)
    with hasty(lab):
        cluster.submit(deployment("serve", 4, gpus=4), namespace=namespace)
        before = runs(cluster, namespace, "deployment-serve", 4)
        change = {"spec": {"template": {"metadata": {"annotations": {"e2e.muster.dev/round": "2"}}}}}
        cluster.patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/serve", change)
        wait_until(
            lambda: (found := bound(cluster.pods(namespace), 4)) and not before & {one.uid for one in found},
            what="four of the new template run",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
        assert ends(cluster, namespace) == []


def test_a_rollout_that_declares_another_minimum_goes_on(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """Pods of both templates are there for a while, and say different things: the newer counts."""
    only(lab, cluster, *ROOM)
    with hasty(lab):
        cluster.submit(deployment("serve", 4, gpus=4, min_replicas=4), namespace=namespace)
        before = runs(cluster, namespace, "deployment-serve", 4)
        change = {"spec": {"template": {"metadata": {"annotations": {"muster.dev/min-replicas": "2"}}}}}
        cluster.patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/serve", change)
        wait_until(
            lambda: (found := bound(cluster.pods(namespace), 4)) and not before & {one.uid for one in found},
            what="four of the new template run",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
        wait_until(
            lambda: gang(cluster, namespace, "deployment-serve")["roles"]["worker"]["min"] == 2,
            what="two are enough",
        )
        assert ends(cluster, namespace) == []


# --- its owner takes its time -------------------------------------------------------------------------------


def test_an_owner_that_takes_its_time_between_two_pods_has_it(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """As a LeaderWorkerSet with LeaderReady: the next pod comes when the one before is ready, after the timeout."""
    with hasty(lab):
        slow = {START_SECONDS: f"{3 * TIMEOUT:g}"}
        cluster.submit(stateful_set("serve", 3, ordered=True, gpus=8, annotations=slow), namespace=namespace)
        status = wait_until(
            lambda: in_state(cluster, namespace, "statefulset-serve", "Starting"), what="serve is starting"
        )
        status = wait_until(
            lambda: (
                (status := gang(cluster, namespace, "statefulset-serve")).get("code") == "PodsMissing"
                and status.get("state") == "Starting"
                and status
            ),
            what="it says what it waits for",
            also=lambda: str(cluster.gangs(namespace)),
        )
        assert status["reason"] == "waits for its owner to create 2 more pods"
        (first,) = bound(cluster.pods(namespace))
        uids = runs(cluster, namespace, "statefulset-serve", 3)
        assert first.uid in uids
        assert ends(cluster, namespace) == []


# --- ends that have a reason --------------------------------------------------------------------------------


def counted(lab: Lab, reason: str) -> float:
    """muster_evictions_total of a reason."""
    text = httpx.get(f"{lab.service_url()}/metrics", timeout=60, trust_env=False).text
    line = next(
        each for each in text.splitlines() if each.startswith(f'muster_evictions_total{{reason="{reason}"}}')
    )
    return float(line.rpartition(" ")[2])


def lost(cluster: Cluster, node: str, pods: list[Pod]) -> None:
    """The node can take nothing any more, and what ran there is gone."""
    cluster.cordon(node)
    for one in pods:
        if one.node == node:
            cluster.delete_pod(one, grace=0)


@ABOVE
@pytest.mark.ends("EndedLostMembers")
def test_a_gang_that_lost_a_replica_of_those_it_was_whole_with_goes_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Four ran, and 40 are wanted: fewer than four is no gang, and its GPUs go to others."""
    nodes = ("node-00", "node-01", "node-02", "node-03")
    only(lab, cluster, *nodes)
    with hasty(lab):
        cluster.submit(deployment("serve", 4, gpus=8), namespace=namespace)
        before = runs(cluster, namespace, "deployment-serve", 4)
        cluster.patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/serve", {"spec": {"replicas": 40}})
        goes_on(cluster, namespace, before, 4)
        was = counted(lab, "EndedLostMembers")
        lost(cluster, nodes[0], cluster.pods(namespace))
        wait_until(
            lambda: not bound(cluster.pods(namespace)),
            what="it is back behind the gate, whole",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
        said = ends(cluster, namespace)
        assert {line.partition(":")[0] for line in said} == {"EndedLostMembers"}
        assert "it lost replicas and has had 3 of 4 for 3s" in said[0]
        wait_until(lambda: counted(lab, "EndedLostMembers") == was + 3, what="the metric counts the three")
        cluster.patch(f"/api/v1/nodes/{nodes[0]}", {"spec": {"unschedulable": None}})
        runs(cluster, namespace, "deployment-serve", 4)


def leaving(cluster: Cluster, namespace: str) -> set[str]:
    """The reasons that stand on pods that are on their way out."""
    return {
        reason
        for one in cluster.pods(namespace)
        if one.deleted and (reason := one.annotations.get("muster.dev/leaving"))
    }


@pytest.mark.ends("EndedByShare")
def test_a_replica_that_its_share_ends_carries_the_reason(
    cluster: Cluster,
    namespace: str,
    max_min: None,  # noqa: ARG001
) -> None:
    cluster.submit(train("a", stop_seconds=5), namespace=namespace)
    has(cluster, namespace, "a", 16)
    cluster.submit(train("b"), namespace=namespace)
    wait_until(
        lambda: leaving(cluster, namespace) == {"EndedByShare"},
        what="what leaves carries its reason",
        also=lambda: show(cluster.pods(namespace)),
    )
    settles(cluster, namespace, {"a": 8, "b": 8})


@pytest.mark.ends("EndedByPreemption")
def test_a_gang_that_makes_way_carries_the_reason(lab: Lab, cluster: Cluster, namespace: str) -> None:
    only(lab, cluster, *ROOM)
    high = f"high-{namespace}"
    cluster.submit(priority_class(high, 1000))
    try:
        with hasty(lab, preemption=True):
            cluster.submit(deployment("low", 2, gpus=8, stop_seconds=5), namespace=namespace)
            runs(cluster, namespace, "deployment-low", 2)
            cluster.submit(job("high", 2, gpus=8, priority=high), namespace=namespace)
            wait_until(
                lambda: leaving(cluster, namespace) == {"EndedByPreemption"},
                what="what makes way carries its reason",
                also=lambda: show(cluster.pods(namespace)),
            )
            wait_until(lambda: in_state(cluster, namespace, "job-high", "Running"), what="high runs")
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{high}")
