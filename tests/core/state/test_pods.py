# Over 300 lines: whose a pod is depends on what came before, so each order has a test.
"""Which job a pod belongs to, how many it has, and how long a pod stands apart until that is known."""

from __future__ import annotations

import pytest

from muster.core.ledger import Ledger
from muster.points import Profile
from muster.types import (
    DeclaredRole,
    GangGone,
    GroupSeen,
    NodeSeen,
    Owner,
    OwnerGone,
    OwnerRecord,
    Phase,
    PodRecord,
    PodSeen,
    RecordEvent,
    WriteGang,
)
from tests.cluster_fake import FakeCluster, Muster


def test_bare_pods_of_one_label_wait_until_all_roles_are_there() -> None:
    cluster = FakeCluster(nodes=1)
    roles = "scheduler=1,server=1,worker=2"
    cluster.bare("s", "ps", 0, role="scheduler", roles=roles)
    cluster.bare("w0", "ps", 2, role="worker")
    cluster.bare("w1", "ps", 2, role="worker")
    muster = Muster(cluster)
    cluster.now += 60
    muster.settle()
    assert muster.plan.statuses[muster.key("ps")].message == "3 of 4 pods exist; missing: 1 server"
    assert cluster.bound("") == []
    cluster.bare("p", "ps", 1, role="server")
    muster.settle()
    assert len(cluster.bound("")) == 4


def test_the_pods_of_one_owner_do_not_start_without_those_of_a_role_that_nobody_makes_yet() -> None:
    """However long its StatefulSet has made nothing more: it has made all of its pods."""
    cluster = FakeCluster(nodes=2)
    notes: dict[str, str] = {"muster.dev/roles": "server=1,worker=2"}
    owner = Owner("apps/v1", "StatefulSet", "ps", "sts-1")
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=1)
    server = cluster.pod(owner, 0, gpus=0)
    cluster.update(
        server, labels={"muster.dev/job": "both"}, annotations={**notes, "muster.dev/role": "server"}
    )
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 60
    muster.settle()
    assert muster.plan.statuses[muster.key("both")].message == "1 of 3 pods exist; missing: 2 worker"
    assert cluster.bound("ps") == []
    workers = cluster.job("workers", 2, gpus=2)
    for worker in workers:
        cluster.update(
            worker, labels={"muster.dev/job": "both"}, annotations={**notes, "muster.dev/role": "worker"}
        )
    muster.settle()
    assert len(cluster.bound("ps") + cluster.bound("workers")) == 3


def test_gated_pods_wait_for_their_owner_from_when_they_are_seen_not_from_when_they_were_made() -> None:
    """Who stood still for a while may read the pods before the Jobs that made them."""
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 4, gpus=4, exist=2)
    ledger = Ledger(Profile())
    pods = [event for event in cluster.events() if isinstance(event, PodSeen)]
    for event in cluster.events():
        if isinstance(event, NodeSeen):
            ledger.apply(event, cluster.now)
    ledger.take_over()
    now = cluster.now + 6
    for seen in pods:
        ledger.apply(seen, now)
    assert ledger.snapshot(now).jobs == {}
    for event in cluster.events():
        ledger.apply(event, now)
    (job,) = ledger.snapshot(now).jobs.values()
    assert [(role.min, role.ready) for role in job.roles] == [(4, 2)]


def deleted(nodes: int) -> tuple[FakeCluster, Muster, list[PodRecord]]:
    """Job `train` ran whole and is deleted; its pods are still ending."""
    cluster = FakeCluster(nodes=nodes)
    old = cluster.job("train", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    for pod in old:
        cluster.update(cluster.pods[pod.uid], phase=Phase.ENDING, deleting=True)
    cluster.owners.clear()
    return cluster, muster, old


def test_the_same_name_again_is_a_new_job() -> None:
    cluster, muster, old = deleted(nodes=1)
    cluster.now += 1
    cluster.job("train", 2, gpus=4)
    muster.settle()
    assert cluster.bound("train") == []  # its predecessor still uses the node
    for pod in old:
        del cluster.pods[pod.uid]
    muster.settle()
    assert len(cluster.bound("train")) == 2
    assert len(cluster.gangs) == 1


def test_pods_that_a_dead_node_does_not_let_go_write_no_gang_and_leave_their_name_to_the_next_job() -> None:
    cluster, muster, _ = deleted(nodes=2)
    gang = cluster.gangs.pop(("team", "job-train"))  # as the garbage collector does
    muster.ledger.apply(GangGone("team", gang.name, gang.object_uid), cluster.now)
    cluster.sent.clear()
    for _ in range(10):
        muster.turn(seconds=1.0)
    assert cluster.sent == []
    cluster.job("train", 2, gpus=4)
    for _ in range(10):
        muster.turn(seconds=1.0)
        cluster.bind()
    assert cluster.bound("train") == ["n1", "n1"]
    written = [action.job for action in cluster.sent if isinstance(action, WriteGang)]
    assert gang.key not in written
    assert len(written) == 1


@pytest.mark.parametrize("how", ["deleted", "ended"])
def test_the_place_of_a_planned_member_that_is_going_is_nobody_elses(how: str) -> None:
    """Its Job's controller has a finalizer on it, so the pod is there for a while; its successor comes later."""
    cluster = FakeCluster(nodes=2)
    pods = cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    for _ in range(5):
        muster.turn(seconds=0.1)
    gone = cluster.pods[pods[0].uid]
    assert (gone.phase, gone.pin) == (Phase.UNGATED, "n0")
    cluster.update(gone, **({"deleting": True} if how == "deleted" else {"phase": Phase.FAILED}))
    cluster.job("greedy", 1, gpus=8)
    for _ in range(5):
        muster.turn(seconds=0.1)
    cluster.delete(gone.uid)
    if how == "ended":
        cluster.recreate(gone)
    for _ in range(5):
        muster.turn(seconds=0.1)
        cluster.bind()
    assert sorted(cluster.bound("train")) == ["n0", "n1"]
    assert cluster.bound("greedy") == []


def test_contradicting_pods_are_named_and_block_nobody() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.bare("a", "odd", 1, roles="worker=2")
    cluster.bare("b", "odd", 1, roles="worker=3")
    cluster.job("fine", 1, gpus=8)
    muster = Muster(cluster, Profile(order="strict"))
    muster.settle()
    assert cluster.bound("fine") == ["n0"]
    assert muster.state("odd") == "Invalid"
    said = [s.message for s in cluster.said if isinstance(s, RecordEvent) and s.pod]
    assert said == [
        "muster.dev/roles: expected the same on every pod that carries it; found worker=2 on a and worker=3 on b"
    ]


@pytest.mark.parametrize("label", [None, "low"], ids=["named by its owner", "named by label"])
def test_a_gang_that_is_gone_for_a_moment_keeps_its_place_in_the_queue(label: str | None) -> None:
    cluster = FakeCluster(nodes=1)
    low = cluster.job("low", 2, gpus=4)
    if label:
        low = [cluster.update(pod, labels={**pod.labels, "muster.dev/job": label}) for pod in low]
    owner = low[0].controller
    assert owner is not None
    muster = Muster(cluster, Profile(preemption=True))
    muster.settle()
    submitted = muster.ledger.snapshot(cluster.now).jobs[muster.key(label or "job-low")].submitted
    cluster.now += 5
    cluster.job("later", 2, gpus=4)
    muster.settle()
    cluster.now += 5
    high = cluster.job("high", 2, gpus=4, priority=1000)
    record = cluster.owners.pop(owner.uid)  # its controller takes a moment to make the pods again
    muster.turn()
    assert not [p for p in cluster.pods.values() if p.name.startswith("low")]
    muster.turn()
    assert muster.state(label or "job-low") == "Incomplete"
    cluster.owners[owner.uid] = record
    for pod in low:
        cluster.update(cluster.pod(owner, low.index(pod), gpus=4), labels=pod.labels)
    muster.settle(20)
    assert len(cluster.bound("high")) == 2
    again = muster.ledger.snapshot(cluster.now).jobs[muster.key(label or "job-low")]
    assert again.submitted == submitted
    for pod in high:
        cluster.end(pod.uid)
    muster.settle(20)
    assert (len(cluster.bound("low")), cluster.bound("later")) == (2, [])


def test_a_custom_owner_declares_its_roles_before_their_pods_exist() -> None:
    cluster = FakeCluster(nodes=2)
    owner = Owner("kubeflow.org/v1", "PyTorchJob", "llm", "uid-llm")
    master = cluster.pod(owner, 0, gpus=1, annotations={"role": "master"})
    muster = Muster(cluster)
    assert muster.ledger.unknown_owners == {"uid-llm": ("team", owner)}
    cluster.owners[owner.uid] = OwnerRecord(
        owner, "team", roles=(DeclaredRole("master", 1), DeclaredRole("worker", 3))
    )
    muster.settle()
    assert (
        muster.plan.statuses[muster.key("pytorchjob-llm")].message == "1 of 4 pods exist; missing: 3 worker"
    )
    for index in range(3):
        cluster.pod(owner, index, gpus=4, annotations={"role": "worker"})
    muster.settle()
    assert len(cluster.bound("llm")) == 4
    assert master.uid in cluster.pods
    cluster.owners.clear()
    for uid in list(cluster.pods):
        cluster.delete(uid)
    muster.settle()
    assert muster.ledger.unknown_owners == {"uid-llm": ("team", owner)}, "its job may come back"
    ((name, found),) = cluster.gangs.items()
    cluster.gangs.clear()
    muster.ledger.apply(OwnerGone(owner.uid), cluster.now)
    muster.ledger.apply(GangGone(*name, found.object_uid), cluster.now)
    muster.settle()
    assert muster.ledger.unknown_owners == {}


def test_a_custom_owner_is_read_before_its_first_pod_starts() -> None:
    cluster = FakeCluster(nodes=1)
    owner = Owner("kubeflow.org/v1", "PyTorchJob", "llm", "uid-llm")
    muster = Muster(cluster)
    cluster.pod(owner, 0)
    muster.settle()
    assert (cluster.bound("llm"), muster.ledger.unread_owners) == ([], True)
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", roles=(DeclaredRole("worker", 2),))
    muster.settle()
    assert (
        muster.plan.statuses[muster.key("pytorchjob-llm")].message == "1 of 2 pods exist; missing: 1 worker"
    )
    cluster.pod(owner, 1)
    muster.settle()
    assert len(cluster.bound("llm")) == 2


def test_a_custom_owner_that_says_nothing_or_cannot_be_read_holds_nobody_for_long() -> None:
    cluster = FakeCluster(nodes=1)
    silent = Owner("example.com/v1", "Training", "silent", "uid-silent")
    unread = Owner("example.com/v1", "Training", "unread", "uid-unread")
    muster = Muster(cluster)
    cluster.pod(silent, 0)
    cluster.pod(unread, 0)
    muster.settle()
    cluster.owners[silent.uid] = OwnerRecord(silent, "team")
    muster.settle()
    assert (len(cluster.bound("silent")), cluster.bound("unread")) == (1, [])
    cluster.now += 30
    muster.settle()
    assert len(cluster.bound("unread")) == 1


def test_a_custom_owner_is_known_as_long_as_any_of_its_jobs_has_a_pod() -> None:
    cluster = FakeCluster(nodes=1)
    top = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", "uid-llm")
    children = [Owner("batch/v1", "Job", f"llm-{role}-0", f"uid-{role}") for role in ("driver", "worker")]
    cluster.owners[top.uid] = OwnerRecord(
        top, "team", roles=(DeclaredRole("driver", 1), DeclaredRole("worker", 2))
    )
    for child in children:
        cluster.owners[child.uid] = OwnerRecord(child, "team", size=2, parent=top)
    driver = cluster.pod(children[0], 0, annotations={"role": "driver"})
    for index in range(2):
        cluster.pod(children[1], index, annotations={"role": "worker"})
    muster = Muster(cluster)
    muster.settle()
    assert len(cluster.bound("llm")) == 3
    del cluster.owners[top.uid]  # no watch delivers it: it was read once
    cluster.end(driver.uid)
    del cluster.pods[driver.uid]
    muster.settle()
    job = muster.ledger.snapshot(cluster.now).jobs[muster.key("jobset-llm")]
    assert [(role.name, role.min) for role in job.roles] == [("driver", 1), ("worker", 2)]


def test_pods_wait_a_moment_for_the_podgroup_that_they_name() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    label = {"scheduling.x-k8s.io/pod-group": "mpi"}
    cluster.update(cluster.bare("mpi-0", "x"), labels=label)
    muster.settle()
    assert cluster.bound("mpi") == []
    muster.ledger.apply(GroupSeen("team", "mpi", 2), cluster.now)
    muster.settle()
    assert muster.plan.statuses[muster.key("podgroup-mpi")].message == "1 of 2 pods exist; missing: 1 worker"
    cluster.update(cluster.bare("mpi-1", "x"), labels=label)
    muster.settle()
    assert len(cluster.bound("mpi")) == 2
    cluster.update(cluster.bare("lonely", "x"), labels={"scheduling.x-k8s.io/pod-group": "nobody"})
    muster.settle()
    cluster.now += 5
    muster.settle()
    assert len(cluster.bound("lonely")) == 1


def test_a_leader_worker_set_group_is_a_gang_of_its_size() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    labels = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "1"}
    for index in range(2):
        pod = cluster.bare(f"serve-1-{index}", "x", 2)
        cluster.update(pod, labels=labels, annotations={"leaderworkerset.sigs.k8s.io/size": "3"})
    muster.settle()
    assert muster.plan.statuses[muster.key("leaderworkerset-serve-1")].message == (
        "2 of 3 pods exist; missing: 1 worker"
    )


def test_a_rollout_of_a_deployment_may_surge_above_its_replicas() -> None:
    cluster = FakeCluster(nodes=1)
    deployment = Owner("apps/v1", "Deployment", "web", "d")
    old, new = (Owner("apps/v1", "ReplicaSet", f"web-{n}", f"rs-{n}") for n in "ab")
    cluster.owners["d"] = OwnerRecord(deployment, "team", size=1)
    cluster.owners[old.uid] = OwnerRecord(old, "team", size=1, parent=deployment)
    cluster.pod(old, 0, gpus=1)
    muster = Muster(cluster)
    muster.settle()
    cluster.owners[new.uid] = OwnerRecord(new, "team", size=1, parent=deployment)
    cluster.pod(new, 0, gpus=1)
    muster.settle()
    assert len(cluster.bound("web")) == 2
    assert [k.name for k in muster.plan.statuses] == ["deployment-web"]


def test_an_indexed_job_without_a_success_policy_starts_whole_whatever_its_annotations_say() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("rigid", 3, gpus=4, min_replicas="1")
    owner = pods[0].controller
    assert owner is not None
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=3, completions=3, whole=True)
    muster = Muster(cluster)
    muster.settle()
    assert cluster.bound("rigid") == []
    assert muster.state("job-rigid") == "Waiting"


def test_pods_whose_replica_set_goes_first_are_no_new_job() -> None:
    cluster = FakeCluster(nodes=1)
    deployment = Owner("apps/v1", "Deployment", "web", "d")
    replicas = Owner("apps/v1", "ReplicaSet", "web-a", "rs-a")
    cluster.owners["d"] = OwnerRecord(deployment, "team", size=2)
    cluster.owners[replicas.uid] = OwnerRecord(replicas, "team", size=2, parent=deployment)
    pods = [cluster.pod(replicas, i, gpus=1) for i in range(2)]
    muster = Muster(cluster)
    muster.settle()
    for uid in ("d", replicas.uid):
        del cluster.owners[uid]
        muster.ledger.apply(OwnerGone(uid), cluster.now)
    for pod in pods:
        cluster.update(cluster.pods[pod.uid], deleting=True)
    muster.settle()
    assert [k.name for k in muster.plan.statuses] == ["deployment-web"]


def test_the_late_answer_to_a_patch_does_not_bring_back_a_pod_that_is_gone() -> None:
    cluster = FakeCluster(nodes=1)
    (pod,) = cluster.job("train", 1, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    patched = cluster.pods[pod.uid]
    assert patched.pin == "n0"
    cluster.owners.clear()
    del cluster.pods[pod.uid]
    muster.sync()  # the watch says that it is gone ...
    muster.ledger.apply(PodSeen(patched), cluster.now)  # ... and then the answer to the last patch is read
    cluster.now += 1
    cluster.job("next", 1, gpus=8)
    muster.settle()
    assert cluster.bound("next") == ["n0"]
