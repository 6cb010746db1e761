# Over 300 lines: starting, order and waiting of gangs are one promise.
"""Whole jobs: a gang starts complete or not at all, in the order of the queue, and says what it waits for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.lab import Lab, NodeGroup, Shape
from e2e.scenario import (
    bound,
    but_missing,
    configured,
    delete_job,
    gang,
    gated,
    in_state,
    job,
    on_node,
    pod,
    priority_class,
    runs_whole,
    said,
    scheduled_at,
    seen_at_once,
    show,
    stays,
    wait_until,
)

pytestmark = pytest.mark.lab

RACK = "topology.kubernetes.io/rack"


def waits_whole(cluster: Cluster, namespace: str, name: str, replicas: int) -> None:
    """Every replica is there and stays behind the gate, without a node or a pin."""
    pods_exist(cluster, namespace, name, replicas)
    stays(
        cluster,
        lambda: [one.pinned_to + one.node for one in gated(cluster.pods(namespace, name))] == [""] * replicas,
        what=f"all {replicas} pods of {name} wait behind the gate",
    )


def pods_exist(cluster: Cluster, namespace: str, name: str, replicas: int) -> None:
    """Their controller may take its time, and where it pauses a Gang waits (or runs) before all of them are there."""
    wait_until(
        lambda: len(cluster.pods(namespace, name)) == replicas,
        what=f"{name} has its {replicas} pods",
        also=lambda: show(cluster.pods(namespace)),
    )


def waits_for(cluster: Cluster, namespace: str, name: str, reason: str, message: str = "") -> None:
    """The job's Gang waits with this reason and, where one is given, this message."""
    wait_until(
        lambda: (
            (found := gang(cluster, namespace, name)).get("reason") == reason
            and message in ("", found["message"])
        ),
        what=f"{name} waits with reason {reason}: {message}",
        also=lambda: str(cluster.gangs(namespace)),
    )


def says(cluster: Cluster, namespace: str, about: str, sentence: str) -> None:
    """Events come after the Gang; this one, and no other."""
    wait_until(
        lambda: but_missing(said(cluster, namespace, about)) == [sentence],
        what=f"the Event on {about}: {sentence}",
        also=lambda: str(said(cluster, namespace, about)),
    )


# --- all or nothing -----------------------------------------------------------------------------------------


def test_a_job_starts_whole_on_the_nodes_that_were_planned(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("train", 4, gpus=8), namespace=namespace)
    pods = runs_whole(cluster, namespace, "train", 4)
    assert [one.node for one in pods] == [one.pinned_to for one in pods]
    assert len({one.node for one in pods}) == 4
    status = gang(cluster, namespace, "job-train")
    assert (status["replicas"], status["gpus"], status["mode"]) == ("4/4", 32, "pinned")
    assert status["roles"] == {"worker": {"min": 4, "max": 4, "granted": 4, "bound": 4}}
    assert (status["reason"], status["message"]) == ("Ok", "4 replicas running")


def test_a_gang_that_does_not_fit_waits_whole_and_says_why(cluster: Cluster, namespace: str) -> None:
    capacity = on_node("node-00", "node-01")
    cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 1)
    cluster.submit(job("big", 2, gpus=8, affinity=capacity), namespace=namespace)

    waits_for(cluster, namespace, "job-big", "Resources", "needs 16 GPUs (2 replicas of 8)")
    waits_whole(cluster, namespace, "big", 2)
    first = cluster.pods(namespace, "big")[0].name
    sentence = "Resources: needs 16 GPUs (2 replicas of 8); 1 of 2 replicas fit now"
    for about in ("big", first):
        says(cluster, namespace, about, sentence)

    delete_job(cluster, namespace, "holder")
    runs_whole(cluster, namespace, "big", 2)


def test_of_two_gangs_that_each_fit_alone_one_runs_and_the_other_follows(
    cluster: Cluster, namespace: str
) -> None:
    cluster.submit(*(job(name, 10, gpus=8, run_seconds=3) for name in ("left", "right")), namespace=namespace)

    # Never both: while one is on its nodes, no more of the other has a node or a pin than there is room for.
    def both_have_run() -> bool:
        pods = cluster.pods(namespace)
        placed = [one for one in pods if (one.node or one.pinned_to) and not one.terminal]
        assert len(placed) <= 16, show(pods)
        return sum(one.phase == "Succeeded" for one in pods) == 20

    wait_until(
        both_have_run,
        what="one runs to its end, and the other after it",
        also=lambda: show(cluster.pods(namespace)),
    )


def test_a_gang_of_several_roles_starts_when_the_last_of_its_bare_pods_exists(
    cluster: Cluster, namespace: str
) -> None:
    roles = "scheduler=1,server=2,worker=4"
    counts = {"scheduler": 1, "server": 2, "worker": 4}
    every = [
        pod(f"{role}-{number}", job="coach", role=role, roles=roles, gpus=2 if role == "worker" else 0)
        for role, count in counts.items()
        for number in range(count)
    ]
    cluster.submit(*every[:-1], namespace=namespace)
    waits_for(cluster, namespace, "coach", "PodsMissing", "6 of 7 pods exist; missing: 1 worker")
    assert len(gated(cluster.pods(namespace, "coach"))) == 6

    cluster.submit(every[-1], namespace=namespace)
    wait_until(lambda: bound(cluster.pods(namespace, "coach"), 7), what="all roles of coach are bound")
    status = wait_until(lambda: in_state(cluster, namespace, "coach", "Running"), what="coach is Running")
    assert {role: found["bound"] for role, found in status["roles"].items()} == counts


def test_an_elastic_gang_starts_with_its_minimum_and_takes_the_rest_when_it_fits(
    cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-04", "node-05")
    cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 1)
    cluster.submit(
        job("elastic", 4, gpus=4, min_replicas=2, max_replicas=4, success_on="0", affinity=capacity),
        namespace=namespace,
    )
    started = runs_whole(cluster, namespace, "elastic", 2)
    assert sorted(one.labels["batch.kubernetes.io/job-completion-index"] for one in started) == ["0", "1"]
    pods_exist(cluster, namespace, "elastic", 4)
    assert len(gated(cluster.pods(namespace, "elastic"))) == 2
    message = "2 replicas running; up to 4 as capacity is free"
    waits_for(cluster, namespace, "job-elastic", "Ok", message)
    delete_job(cluster, namespace, "holder")
    runs_whole(cluster, namespace, "elastic", 4)


def test_an_indexed_job_without_a_success_policy_is_rigid(cluster: Cluster, namespace: str) -> None:
    capacity = on_node("node-04")
    cluster.submit(job("rigid", 3, gpus=4, min_replicas=1, affinity=capacity), namespace=namespace)
    waits_for(cluster, namespace, "job-rigid", "NeverFits")
    waits_whole(cluster, namespace, "rigid", 3)


# --- what it says -------------------------------------------------------------------------------------------


def test_a_gang_for_one_rack_says_how_much_the_best_rack_has(cluster: Cluster, namespace: str) -> None:
    for rack in range(4):
        cluster.submit(
            job(f"holder-{rack}", 5, gpus=4, node_selector={RACK: f"rack-{rack}"}), namespace=namespace
        )
    for rack in range(4):
        runs_whole(cluster, namespace, f"holder-{rack}", 5)
    cluster.submit(
        job("together", 4, gpus=4, annotations={"muster.dev/topology-required": RACK}), namespace=namespace
    )
    message = "needs 16 GPUs (4 replicas of 4) in one rack"
    waits_for(cluster, namespace, "job-together", "Topology", message)
    sentence = "Topology: needs 16 GPUs (4 replicas of 4) in one rack; the best rack has 12 GPUs free"
    says(cluster, namespace, "together", sentence)
    waits_whole(cluster, namespace, "together", 4)
    delete_job(cluster, namespace, "holder-2")
    pods = runs_whole(cluster, namespace, "together", 4)
    racks = {one["metadata"]["name"]: one["metadata"]["labels"].get(RACK) for one in cluster.nodes()}
    assert {racks[one.node] for one in pods} == {"rack-2"}


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (
            job("never", 1, gpus=9),
            "needs 9 GPUs: no node is large enough for 9 GPUs: the largest has 8 GPUs",
        ),
        (
            job("never", 17, gpus=8),
            "needs 136 GPUs (17 replicas of 8): all nodes together, empty, take 16 of 17 replicas",
        ),
        (
            job("never", 5, gpus=8, annotations={"muster.dev/topology-required": RACK}),
            "needs 40 GPUs (5 replicas of 8) in one rack: no rack is large enough; the best rack has 32 GPUs",
        ),
        (
            job("never", 1, gpus=1, node_selector={"pool": "none"}),
            "needs 1 GPU: no node of {nodes} has the labels it selects and only taints it tolerates",
        ),
    ],
    ids=["too-large-a-pod", "more-than-all-nodes", "more-than-a-rack", "no-such-label"],
)
def test_a_job_that_can_never_fit_says_so_at_once_and_blocks_nobody(
    cluster: Cluster, namespace: str, manifest: Json, sentence: str
) -> None:
    cluster.submit(manifest, namespace=namespace)
    sentence = sentence.format(nodes=len(cluster.nodes()))  # on kind one more: the real one
    waits_for(cluster, namespace, "job-never", "NeverFits", sentence)
    says(cluster, namespace, "never", f"NeverFits: {sentence}")
    events = [e for e in cluster.events(namespace, "never") if e.get("reportingComponent") == "muster"]
    assert [event["type"] for event in events if event["reason"] != "PodsMissing"] == ["Warning"]
    cluster.submit(job("small", 1), namespace=namespace)
    runs_whole(cluster, namespace, "small", 1)


# --- order --------------------------------------------------------------------------------------------------


def test_gates_come_off_by_priority_and_then_by_submission(cluster: Cluster, namespace: str) -> None:
    capacity = on_node("node-08")
    urgent = f"urgent-{namespace}"
    cluster.submit(
        priority_class(urgent, 1000), job("holder", 1, gpus=8, affinity=capacity), namespace=namespace
    )
    try:
        runs_whole(cluster, namespace, "holder", 1)
        # Names run against the order, and creation times have whole seconds.
        for name, priority in (("c-first", None), ("b-second", None), ("a-urgent", urgent)):
            cluster.submit(
                job(name, 2, gpus=4, affinity=capacity, run_seconds=2, priority=priority), namespace=namespace
            )
            # A job is as old as its first pod, and all three are to be there when the room is.
            pods_exist(cluster, namespace, name, 2)
            waits_for(cluster, namespace, f"job-{name}", "Resources")
            time.sleep(1.1)
        waits_whole(cluster, namespace, "c-first", 2)
        delete_job(cluster, namespace, "holder")
        started: list[str] = []

        def all_have_run() -> bool:
            pods = [one for one in cluster.pods(namespace) if one.node and not one.name.startswith("holder")]
            for one in sorted(pods, key=scheduled_at):
                name = one.labels["batch.kubernetes.io/job-name"]
                if name not in started:
                    started.append(name)
            return len(started) == 3

        wait_until(all_have_run, what="all three have run", also=lambda: str(started))
        assert started == ["a-urgent", "c-first", "b-second"]
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{urgent}")


@pytest.mark.parametrize("order", ["strict", "backfill"])
def test_what_may_pass_a_head_that_does_not_fit(
    lab: Lab, cluster: Cluster, namespace: str, order: str
) -> None:
    capacity = on_node("node-08", "node-09")
    with configured(lab, order=order):
        cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
        runs_whole(cluster, namespace, "holder", 1)
        cluster.submit(job("head", 2, gpus=8, affinity=capacity), namespace=namespace)
        waits_for(cluster, namespace, "job-head", "Resources")
        time.sleep(1.1)
        cluster.submit(job("small", 2, gpus=2, affinity=capacity), namespace=namespace)
        # An incomplete job blocks nobody, in strict order too; a job behind the head does not pass it.
        if order == "backfill":
            runs_whole(cluster, namespace, "small", 2)
            waits_whole(cluster, namespace, "head", 2)
        else:
            message = "waits for the job at the head of the queue (order: strict)"
            waits_for(cluster, namespace, "job-small", "BehindHead", message)
            waits_whole(cluster, namespace, "small", 2)
            delete_job(cluster, namespace, "holder")
            runs_whole(cluster, namespace, "head", 2)
            # Now it is the head itself.
            waits_for(cluster, namespace, "job-small", "Resources", "needs 4 GPUs (2 replicas of 2)")


def test_an_incomplete_job_blocks_nobody_in_strict_order(lab: Lab, cluster: Cluster, namespace: str) -> None:
    with configured(lab, order="strict"):
        cluster.submit(pod("only", job="half", roles="worker=2"), namespace=namespace)
        waits_for(cluster, namespace, "half", "PodsMissing")
        time.sleep(1.1)
        cluster.submit(job("behind", 2), namespace=namespace)
        runs_whole(cluster, namespace, "behind", 2)


# --- names and sizes ----------------------------------------------------------------------------------------


def test_two_jobs_of_the_same_name_in_two_namespaces_are_two_gangs(
    cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    other = new_namespace()
    capacity = on_node("node-00", "node-01")
    for place in (namespace, other):
        cluster.submit(job("train", 2, gpus=8, affinity=capacity), namespace=place)
    first = wait_until(
        lambda: next((n for n in (namespace, other) if bound(cluster.pods(n, "train"), 2)), None),
        what="one of the two runs",
    )
    second = other if first == namespace else namespace
    waits_for(cluster, second, "job-train", "Resources", "needs 16 GPUs (2 replicas of 8)")
    waits_whole(cluster, second, "train", 2)
    delete_job(cluster, first, "train")
    runs_whole(cluster, second, "train", 2)


@pytest.mark.parametrize("before", ["running", "waiting"])
def test_the_same_job_deleted_and_submitted_again_at_once_is_a_new_job(
    cluster: Cluster, namespace: str, before: str
) -> None:
    capacity = on_node("node-00", "node-01")
    train = job("train", 2, gpus=8, affinity=capacity, stop_seconds=2)
    if before == "waiting":
        cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
        runs_whole(cluster, namespace, "holder", 1)
    cluster.submit(train, namespace=namespace)
    if before == "running":
        runs_whole(cluster, namespace, "train", 2)
    else:
        waits_for(cluster, namespace, "job-train", "Resources")
    delete_job(cluster, namespace, "train")
    made = cluster.submit(train, namespace=namespace)[0]
    if before == "waiting":
        delete_job(cluster, namespace, "holder")

    def runs_again() -> list[Pod]:
        pods = cluster.pods(namespace, "train")
        return bound([one for one in pods if one.owner and one.owner["uid"] == made["metadata"]["uid"]], 2)

    wait_until(runs_again, what="the new train runs", also=lambda: show(cluster.pods(namespace)))
    wait_until(
        lambda: in_state(cluster, namespace, "job-train", "Running").get("replicas") == "2/2",
        what="the Gang of train is Running",
        also=lambda: str(cluster.gangs(namespace)),
    )
    gangs = [one for one in cluster.gangs(namespace).values() if one["spec"]["job"] == "job-train"]
    assert [one["spec"]["uid"] for one in gangs] == [made["metadata"]["uid"]]


def test_a_job_that_its_owner_scales_grows_and_shrinks(cluster: Cluster, namespace: str) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/train"
    cluster.submit(job("train", 2, gpus=4), namespace=namespace)
    runs_whole(cluster, namespace, "train", 2)
    for size in (4, 1):
        cluster.patch(path, {"spec": {"parallelism": size, "completions": size}})
        runs_whole(cluster, namespace, "train", size)
        wanted = ("Running", f"{size}/{size}", 4 * size)
        wait_until(
            lambda wanted=wanted: (  # type: ignore[misc]
                tuple(map(gang(cluster, namespace, "job-train").get, ("state", "replicas", "gpus"))) == wanted
            ),
            what=f"the Gang says {wanted}",
            also=lambda: str(cluster.gangs(namespace)),
        )


# --- many ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(1800)
def test_1000_pods_at_once_all_run_and_never_too_many(lab: Lab, cluster: Cluster, namespace: str) -> None:
    gangs, size = 250, 4
    jobs = [job(f"g{number:03d}", size, gpus=1, run_seconds=1) for number in range(gangs)]
    with seen_at_once(lab):
        with ThreadPoolExecutor(4) as several:
            list(several.map(lambda one: cluster.submit(one, namespace=namespace), jobs))
        wait_until(
            lambda: len(gated(cluster.pods(namespace))) == gangs * size,
            within=600,
            what="all 1,000 pods wait at the gate",
        )
    began = time.monotonic()
    while True:
        pods = cluster.pods(namespace)
        if sum(one.phase == "Succeeded" for one in pods) == gangs * size:
            break
        assert time.monotonic() - began < 900, Counter((one.phase, one.gated, bool(one.node)) for one in pods)
        time.sleep(1)
    assert {one.owner["uid"] for one in pods if one.owner} == owners_of_four(pods)


def owners_of_four(pods: Iterable[Pod]) -> set[str]:
    """Uids of the owners that have exactly four pods: no replica was lost, made twice or failed."""
    count = Counter(one.owner["uid"] for one in pods if one.owner)
    return {uid for uid, number in count.items() if number == 4}


def test_a_native_pod_group_is_a_gang(new_lab: Callable[[Shape], Lab]) -> None:
    lab = new_lab(
        Shape(
            groups=(NodeGroup(2),),
            feature_gates=("GenericWorkload=true",),
            apiserver_args=("--runtime-config=scheduling.k8s.io/v1beta1=true",),
        )
    )
    cluster = Cluster(lab.kubeconfig)

    def group(name: str, count: int) -> list[Json]:
        policy = {"gang": {"minCount": count}}
        return [
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name},
                "spec": {"schedulingPolicy": policy},
            },
            *(
                pod(f"{name}-{number}", gpus=4, schedulingGroup={"podGroupName": name})
                for number in range(count)
            ),
        ]

    cluster.submit(*group("first", 3))
    wait_until(
        lambda: bound([one for one in cluster.pods("default") if one.name.startswith("first")], 3),
        what="the first group runs",
        also=lambda: f"{show(cluster.pods('default'))}\n{cluster.gangs('default')}",
    )
    cluster.submit(*group("second", 2))
    waits_for(cluster, "default", "podgroup-second", "Resources", "needs 8 GPUs (2 replicas of 4)")
    assert len(gated(cluster.pods("default"))) == 2
    for one in cluster.pods("default"):
        if one.name.startswith("first"):
            cluster.delete_pod(one)
    wait_until(
        lambda: bound([one for one in cluster.pods("default") if one.name.startswith("second")], 2),
        what="the second group follows",
        also=lambda: f"{show(cluster.pods('default'))}\n{cluster.gangs('default')}",
    )
