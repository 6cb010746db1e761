# Over 300 lines: each way in which an owner changes its mind has a scenario.
"""Nothing healthy is ended: whatever an owner asks for, what runs goes on; and each end has a reason.

Times are short here: `gang.timeout` is 3 s."""

from __future__ import annotations

import contextlib
import re
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
    lets_go,
    planned_after,
    priority_class,
    show,
    stateful_set,
    wait_until,
)

pytestmark = pytest.mark.lab

TIMEOUT, PATIENT = 3.0, 10.0
"""Seconds; the second where what is bound one by one has to be in time."""
SHARING = pytest.mark.parametrize("profile", ["fifo", "max-min", "afs-l"])
ABOVE = pytest.mark.unsound("its owner asks for more than there is, and what ran goes on")


@contextlib.contextmanager
def hasty(lab: Lab, timeout: float = TIMEOUT, **changes: Any) -> Iterator[None]:
    """A gang that is not whole goes back after `timeout` seconds; what a change costs is not weighed. Where it is not
    about a start, that comes before: a slow machine may need longer."""
    with configured(lab, gang={"timeout": f"{timeout:g}s"}, resizeCost=False, **changes):
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
    cluster.submit(deployment("serve", 4, gpus=8), namespace=namespace)
    before = runs(cluster, namespace, "deployment-serve", 4)
    with hasty(lab, profile=profile):
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
    cluster.submit(manifest, namespace=namespace)
    before = runs(cluster, namespace, f"{manifest['kind'].lower()}-serve", 4)
    with hasty(lab):
        cluster.patch(f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}", change)
        goes_on(cluster, namespace, before, 16)


@ABOVE
def test_a_rollout_that_finds_no_room_keeps_what_runs(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """A typing error in the new template: the replicas that the rolling update has not taken away go on."""
    cluster.submit(deployment("serve", 4, gpus=8), namespace=namespace)
    before = runs(cluster, namespace, "deployment-serve", 4)
    with hasty(lab):
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
    cluster.submit(deployment("serve", 4, gpus=4), namespace=namespace)
    before = runs(cluster, namespace, "deployment-serve", 4)
    with hasty(lab):
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
    cluster.submit(deployment("serve", 4, gpus=4, min_replicas=4), namespace=namespace)
    before = runs(cluster, namespace, "deployment-serve", 4)
    with hasty(lab):
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


def ready_now(cluster: Cluster, namespace: str, name: str) -> None:
    """The pod is ready as soon as it is bound."""
    wait_until(
        lambda: (one := cluster.pod(namespace, name)) is not None and one.node,
        what=f"{name} is bound",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    notes = {"metadata": {"annotations": {START_SECONDS: "0"}}}
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", notes)


def test_an_owner_that_takes_its_time_between_two_pods_has_it(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """As a LeaderWorkerSet with LeaderReady: the next pod comes when the one before is ready, after the timeout."""
    slow = {START_SECONDS: "600"}
    with hasty(lab, timeout=PATIENT):
        cluster.submit(stateful_set("serve", 3, ordered=True, gpus=8, annotations=slow), namespace=namespace)
        status = wait_until(
            lambda: (
                (status := gang(cluster, namespace, "statefulset-serve")).get("reason") == "PodsMissing"
                and status.get("state") == "Starting"
                and status
            ),
            what="it says what it waits for",
            also=lambda: str(cluster.gangs(namespace)),
        )
        assert status["message"] == "waits for its owner to create 2 more pods"
        (first,) = bound(cluster.pods(namespace))
        comes_to_hold(
            lambda: [one.uid for one in bound(cluster.pods(namespace))] == [first.uid],
            seconds=1.5 * PATIENT,
            what="the first one goes on",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
        for number in range(3):
            ready_now(cluster, namespace, f"serve-{number}")
        assert first.uid in runs(cluster, namespace, "statefulset-serve", 3)
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
    cluster.submit(deployment("serve", 4, gpus=8), namespace=namespace)
    before = runs(cluster, namespace, "deployment-serve", 4)
    with hasty(lab):
        cluster.patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/serve", {"spec": {"replicas": 40}})
        goes_on(cluster, namespace, before, 4)
        was = counted(lab, "EndedLostMembers")
        lost(cluster, nodes[0], cluster.pods(namespace))
        wait_until(
            lambda: not bound(cluster.pods(namespace)),
            what="it is back behind the gate, whole",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
        said = wait_until(lambda: ends(cluster, namespace), what="an Event says why")
        assert {line.partition(":")[0] for line in said} == {"EndedLostMembers"}
        assert re.search(r"it lost replicas and has had 3 of 4 for \d+s", said[0]), said
        wait_until(lambda: counted(lab, "EndedLostMembers") == was + 3, what="the metric counts the three")
        cluster.patch(f"/api/v1/nodes/{nodes[0]}", {"spec": {"unschedulable": None}})
        runs(cluster, namespace, "deployment-serve", 4)


def leave(cluster: Cluster, namespace: str, count: int, reason: str) -> None:
    """So many pods are on their way out, this reason stands on each, and then they may go."""

    def all_leave() -> list[Pod]:
        found = [one for one in cluster.pods(namespace) if one.deleted]
        told = {one.annotations.get("muster.dev/leaving") for one in found}
        return found if len(found) == count and told == {reason} else []

    wait_until(
        all_leave,
        what=f"{count} pods leave, and carry their reason: {reason}",
        also=lambda: show(cluster.pods(namespace)),
    )
    lets_go(cluster, *cluster.pods(namespace))


@pytest.mark.ends("EndedByShare")
def test_a_replica_that_its_share_ends_carries_the_reason(
    cluster: Cluster,
    namespace: str,
    max_min: None,  # noqa: ARG001
) -> None:
    cluster.submit(train("a", stop_seconds=60), namespace=namespace)
    has(cluster, namespace, "a", 16)
    cluster.submit(train("b"), namespace=namespace)
    leave(cluster, namespace, 8, "EndedByShare")
    settles(cluster, namespace, {"a": 8, "b": 8})


@pytest.mark.ends("EndedByPreemption")
def test_a_gang_that_makes_way_carries_the_reason(lab: Lab, cluster: Cluster, namespace: str) -> None:
    only(lab, cluster, *ROOM)
    high = f"high-{namespace}"
    cluster.submit(priority_class(high, 1000))
    try:
        cluster.submit(deployment("low", 2, gpus=8, stop_seconds=60), namespace=namespace)
        runs(cluster, namespace, "deployment-low", 2)
        with hasty(lab, preemption=True):
            cluster.submit(job("high", 2, gpus=8, priority=high), namespace=namespace)
            leave(cluster, namespace, 2, "EndedByPreemption")
            wait_until(lambda: in_state(cluster, namespace, "job-high", "Running"), what="high runs")
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{high}")
