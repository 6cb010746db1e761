# Over 300 lines: its scenarios share one lab with Kueue; another file would start another.
"""Kueue beside Muster: Kueue says who may have GPUs, Muster when and where the whole job gets them. The real Kueue,
on a lab of 4 nodes x 8 GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import failed, indexes, settles, shared_by
from e2e.every_operator import start_in_order_of_submission
from e2e.lab import Lab
from e2e.operated import KUEUE_API, everything, has_state, jobset, operated, role, run
from e2e.queued import (
    API,
    COMPLETES_WITH_FEWER,
    GATE,
    GROUP_SIZE,
    LEAST,
    OF_GROUP,
    PRIORITY,
    QUEUE,
    created,
    is_admitted,
    kueue_configured,
    queued,
    quota,
    resources,
    true_conditions,
    waits_for_quota,
)
from e2e.scenario import (
    bound,
    ends_now,
    holds_for,
    in_state,
    job,
    pod,
    runs_whole,
    show,
    stays,
    wait_until,
    waits_because,
)

pytestmark = [pytest.mark.lab, pytest.mark.operators("jobset", "kueue")]

READY_WITHIN = 8.0
"""Seconds of waitForPodsReady.timeout where that is what a scenario is about."""


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("jobset", "kueue") as lab:
        yield lab


def held_node(cluster: Cluster, namespace: str) -> Pod:
    """A pod that no queue has takes one of the four nodes."""
    cluster.submit(pod("holder", gpus=8), namespace=namespace)
    return wait_until(lambda: bound(cluster.pods(namespace), 1), what="the holder runs")[0]


def only_the_holder_runs(cluster: Cluster, namespace: str) -> None:
    stays(
        cluster,
        lambda: [one.name for one in bound(cluster.pods(namespace))] == ["holder"],
        what="nothing else starts",
    )


def names(cluster: Cluster, namespace: str) -> list[str]:
    return sorted(one.name for one in bound(cluster.pods(namespace)))


def test_a_job_starts_once_kueue_has_quota_and_muster_has_room_for_all_of_it(
    cluster: Cluster, namespace: str
) -> None:
    """`first` has the quota and waits for the room; `second` would have the room and waits for the quota."""
    with quota(cluster, namespace, gpus=32):
        holder = held_node(cluster, namespace)
        cluster.submit(queued(job("first", 4, gpus=8)), namespace=namespace)
        is_admitted(cluster, namespace, "first")
        waits_because(cluster, namespace, "job-first", "needs 32 GPUs (4 replicas of 8)")
        cluster.submit(queued(job("second", 2, gpus=8)), namespace=namespace)
        waits_for_quota(cluster, namespace, "second")
        only_the_holder_runs(cluster, namespace)
        assert cluster.pods(namespace, "second") == []
        cluster.delete_pod(holder)
        first = runs_whole(cluster, namespace, "first", 4)
        ends_now(cluster, *first)
        is_admitted(cluster, namespace, "second")
        runs_whole(cluster, namespace, "second", 2)


def test_jobsets_that_kueue_has_admitted_start_in_order_of_submission(
    cluster: Cluster, namespace: str
) -> None:
    """There is quota for both, and room for one."""
    with quota(cluster, namespace, gpus=64):
        start_in_order_of_submission(
            cluster,
            namespace,
            lambda name: queued(jobset(name, workers=role(4, gpus=8))),
            "jobset-{}",
            4,
        )


def test_a_job_whose_pods_kueue_gates_one_by_one_starts_when_it_has_let_all_of_them_go(
    cluster: Cluster, namespace: str
) -> None:
    """The queue stands on the pods, as Kueue has it for Deployments: each is admitted alone, and has two gates."""
    with quota(cluster, namespace, gpus=16) as queue:
        train = job("train", 4, gpus=8, labels={QUEUE: "team"})
        train["metadata"]["labels"] = {"app": "train"}  # without any, the API gives it those of its pods
        cluster.submit(train, namespace=namespace)

        def ungated_by_kueue() -> list[Pod]:
            return [one for one in cluster.pods(namespace, "train") if GATE not in one.gates]

        wait_until(
            lambda: len(ungated_by_kueue()) == 2 and len(cluster.pods(namespace, "train")) == 4,
            what="Kueue has let two pods of four go",
            also=lambda: everything(cluster, namespace),
        )
        wait_until(
            lambda: (
                in_state(cluster, namespace, "job-train", "Incomplete").get("message")
                == "2 pods of 4 still carry another scheduling gate"
            ),
            what="Muster says what it waits for",
            also=lambda: everything(cluster, namespace),
        )
        stays(cluster, lambda: not bound(cluster.pods(namespace)), what="nothing starts in part")
        cluster.patch(queue, {"spec": {"resourceGroups": resources(32)}})
        runs_whole(cluster, namespace, "train", 4)


def test_a_pod_in_a_queue_waits_for_its_quota_alone(cluster: Cluster, namespace: str) -> None:
    with quota(cluster, namespace, gpus=8):
        cluster.submit(queued(pod("first", gpus=8)), namespace=namespace)
        wait_until(lambda: names(cluster, namespace) == ["first"], what="the first runs")
        cluster.submit(queued(pod("second", gpus=8)), namespace=namespace)
        waits_for_quota(cluster, namespace, "second")
        stays(cluster, lambda: names(cluster, namespace) == ["first"], what="the second waits")
        ends_now(cluster, *bound(cluster.pods(namespace)))
        wait_until(
            lambda: names(cluster, namespace) == ["second"],
            what="the second runs",
            also=lambda: everything(cluster, namespace),
        )


ANOTHER = "e2e.muster.dev/another"


def group_member(index: int) -> Json:
    """One of three pods that are a group for Kueue and a job for Muster; a third one's gate is on each."""
    member = pod(
        f"kp-{index}",
        gpus=8,
        job="kp",
        roles="worker=3",
        labels={OF_GROUP: "kp"},
        annotations={GROUP_SIZE: "3"},
        schedulingGates=[{"name": ANOTHER}],
    )
    return queued(member)


def test_a_group_of_pods_with_three_gates_each_starts_when_the_last_foreign_one_is_gone(
    cluster: Cluster, namespace: str
) -> None:
    with quota(cluster, namespace, gpus=24):
        cluster.submit(*map(group_member, range(3)), namespace=namespace)
        is_admitted(cluster, namespace, "kp")

        def gates() -> list[set[str]]:
            return [set(one.gates) for one in cluster.pods(namespace)]

        ours = "muster.dev/queue"
        wait_until(
            lambda: gates() == [{ours, ANOTHER}] * 3,
            what="Kueue has taken its gate from each, and no other",
            also=lambda: everything(cluster, namespace),
        )
        for index in range(2):
            lifts(cluster, namespace, f"kp-{index}")
        stays(cluster, lambda: not bound(cluster.pods(namespace)), what="nothing starts in part")
        lifts(cluster, namespace, "kp-2")
        pods = wait_until(
            lambda: bound(cluster.pods(namespace), 3),
            what="the group runs",
            also=lambda: everything(cluster, namespace),
        )
        ends_now(cluster, *pods)
        wait_until(
            lambda: "Finished" in true_conditions(cluster, namespace, "kp"),
            what="Kueue has its quota back",
        )


def lifts(cluster: Cluster, namespace: str, name: str) -> None:
    """Whoever put the third gate there takes it away."""
    where = f"/api/v1/namespaces/{namespace}/pods/{name}"
    gone = {"$patch": "delete", "name": ANOTHER}
    cluster.patch(where, {"spec": {"schedulingGates": [gone]}}, kind="strategic-merge")


def test_an_elastic_job_of_a_queue_gives_and_takes_and_stays_admitted(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """What it gave away stays in its quota: Kueue counts what was admitted."""
    elastic = {"gpus": 4, "min_replicas": 1, "max_replicas": 8, "success_on": "0"}
    with quota(cluster, namespace, gpus=32), shared_by(lab, "max-min"):
        cluster.submit(queued(job("train", 8, **elastic)), namespace=namespace)  # type: ignore[arg-type]
        settles(cluster, namespace, {"train": 8})
        cluster.submit(job("other", 8, **elastic), namespace=namespace)  # type: ignore[arg-type]
        settles(cluster, namespace, {"train": 4, "other": 4})
        cluster.submit(queued(job("later", 1, gpus=4)), namespace=namespace)
        waits_for_quota(cluster, namespace, "later")
        # Its leader's success is the Job's, whose controller then takes the others away.
        ends_now(cluster, *(one for one in bound(cluster.pods(namespace, "other")) if indexes([one]) == [0]))
        settles(cluster, namespace, {"train": 8})
        assert failed(cluster, namespace, "train") == 0
        assert not true_conditions(cluster, namespace, "train").keys() & {"Evicted", "Preempted", "Finished"}


def test_a_job_that_kueue_admits_in_part_is_a_gang_of_that_part(cluster: Cluster, namespace: str) -> None:
    with quota(cluster, namespace, gpus=16):
        partial = {LEAST: "2", COMPLETES_WITH_FEWER: "true"}
        cluster.submit(queued(job("train", 4, gpus=8), annotations=partial), namespace=namespace)
        is_admitted(cluster, namespace, "train")
        pods = runs_whole(cluster, namespace, "train", 2)
        ends_now(cluster, *pods)
        has_state(cluster, namespace, "job-train", "Finished")


def urgent_there(cluster: Cluster) -> None:
    urgent = {"kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    created(cluster, f"{API}/workloadpriorityclasses", urgent)


def test_a_job_that_kueue_preempts_is_suspended_and_comes_back_whole(
    cluster: Cluster, namespace: str
) -> None:
    urgent_there(cluster)
    with quota(cluster, namespace, gpus=32, preemption={"withinClusterQueue": "LowerPriority"}):
        cluster.submit(queued(job("train", 4, gpus=8)), namespace=namespace)
        before = runs_whole(cluster, namespace, "train", 4)
        cluster.submit(queued(job("now", 2, gpus=8), labels={PRIORITY: "urgent"}), namespace=namespace)
        now = runs_whole(cluster, namespace, "now", 2)
        has_state(cluster, namespace, "job-train", "Suspended")
        wait_until(lambda: cluster.pods(namespace, "train") == [], what="its pods are gone")
        ends_now(cluster, *now)
        after = runs_whole(cluster, namespace, "train", 4)
        assert {one.uid for one in after}.isdisjoint(one.uid for one in before)


def test_a_jobset_of_a_queue_starts_whole_and_comes_back_whole_when_kueue_has_preempted_it(
    cluster: Cluster, namespace: str
) -> None:
    """Kueue admits the JobSet, not its Jobs; the driver needs no GPU, and waits with its workers for a node."""
    urgent_there(cluster)
    with quota(cluster, namespace, gpus=32, preemption={"withinClusterQueue": "LowerPriority"}):
        holder = held_node(cluster, namespace)
        llm = jobset("llm", driver=role(1, gpus=0), workers=role(4, gpus=8))
        cluster.submit(queued(llm), namespace=namespace)
        is_admitted(cluster, namespace, "llm")
        has_state(cluster, namespace, "jobset-llm", "Waiting")
        only_the_holder_runs(cluster, namespace)
        cluster.delete_pod(holder)
        run(cluster, namespace, {"driver": 1, "workers": 4})
        cluster.submit(queued(job("now", 2, gpus=8), labels={PRIORITY: "urgent"}), namespace=namespace)
        now = runs_whole(cluster, namespace, "now", 2)
        has_state(cluster, namespace, "jobset-llm", "Suspended")
        wait_until(
            lambda: len(bound(cluster.pods(namespace))) == 2,
            what="nothing of it runs",
            also=lambda: everything(cluster, namespace),
        )
        ends_now(cluster, *now)
        run(cluster, namespace, {"driver": 1, "workers": 4}, beside="now")


def test_a_job_of_a_queue_that_is_not_for_muster_gets_no_gate_of_ours(
    cluster: Cluster, namespace: str
) -> None:
    """Without schedulerName: Kueue admits it, the other scheduler binds it pod by pod, and it has no Gang."""
    with quota(cluster, namespace, gpus=16):
        cluster.submit(queued(job("theirs", 2, gpus=8, scheduler=None)), namespace=namespace)
        is_admitted(cluster, namespace, "theirs")
        cluster.submit(queued(job("ours", 2, gpus=8)), namespace=namespace)
        theirs = wait_until(
            lambda: bound(cluster.pods(namespace, "theirs"), 2),
            what="theirs runs",
            also=lambda: everything(cluster, namespace),
        )
        waits_for_quota(cluster, namespace, "ours")
        assert "job-theirs" not in cluster.gangs(namespace)
        assert not any("muster.dev/queue" in one.gates or one.pinned_to for one in theirs)
        ends_now(cluster, *theirs)
        runs_whole(cluster, namespace, "ours", 2)


# --- waitForPodsReady ---------------------------------------------------------------------------------------


def impatient() -> Json:
    again = {"backoffBaseSeconds": 1, "backoffMaxSeconds": 2, "timestamp": "Creation"}
    on = {"enable": True} if KUEUE_API == "v1beta1" else {}  # later ones are on where they are there
    return {"timeout": f"{READY_WITHIN:.0f}s", "requeuingStrategy": again, **on}


def evicted_for_it(cluster: Cluster, namespace: str, name: str) -> None:
    wait_until(
        lambda: any("PodsReady" in one["message"] for one in evictions(cluster, namespace, name)),
        what=f"Kueue takes {name} back, as it isn't ready",
        also=lambda: f"{cluster.events(namespace)}\n{everything(cluster, namespace)}",
    )


def evictions(cluster: Cluster, namespace: str, name: str) -> list[Json]:
    """Kueue's Events of them."""
    return [
        one
        for one in cluster.events(namespace)
        if "Evicted" in one["reason"] and name in one["involvedObject"]["name"]
    ]


def test_a_job_that_waits_longer_than_kueue_does_is_suspended_and_starts_whole_later(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """waitForPodsReady runs while Muster lets the job wait: it is sent back to Kueue, with no pod lost that ran."""
    with (
        kueue_configured(lab, waitForPodsReady=impatient()),
        quota(cluster, namespace, gpus=32),
    ):
        holder = held_node(cluster, namespace)
        cluster.submit(queued(job("train", 4, gpus=8)), namespace=namespace)
        evicted_for_it(cluster, namespace, "train")
        only_the_holder_runs(cluster, namespace)
        cluster.delete_pod(holder)
        pods = wait_until(  # bound in the last moment of a try, it may still be taken back
            lambda: (
                {one.uid for one in bound(cluster.pods(namespace, "train"), 4)}
                if "PodsReady" in true_conditions(cluster, namespace, "train")
                else None
            ),
            what="it is ready, by Kueue's own word",
            also=lambda: everything(cluster, namespace),
        )
        holds_for(
            lambda: {one.uid for one in bound(cluster.pods(namespace))} == pods,
            seconds=1.5 * READY_WITHIN,
            what=f"it is ready, and goes on: {show(cluster.pods(namespace))}",
        )


def test_an_elastic_job_below_its_maximum_is_not_ready_for_kueue(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """The one thing not to combine (config/limitations.md): it trains on three nodes of four, and Kueue ends it."""
    elastic = {"gpus": 8, "min_replicas": 1, "max_replicas": 4, "success_on": "0"}
    with (
        kueue_configured(lab, waitForPodsReady=impatient()),
        quota(cluster, namespace, gpus=32),
        shared_by(lab, "max-min"),
    ):
        held_node(cluster, namespace)
        cluster.submit(queued(job("train", 4, **elastic)), namespace=namespace)  # type: ignore[arg-type]
        three = wait_until(
            lambda: bound(cluster.pods(namespace, "train"), 3),
            what="it runs on three nodes",
            also=lambda: everything(cluster, namespace),
        )
        wait_until(
            lambda: {one.uid for one in three}.isdisjoint(
                one.uid for one in bound(cluster.pods(namespace, "train"))
            ),
            what="all three are ended",
            also=lambda: everything(cluster, namespace),
        )
        evicted_for_it(cluster, namespace, "train")
