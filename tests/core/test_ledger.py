"""The circle, in memory: what the Ledger does between a plan and the next, and across a crash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.points import Profile
from muster.types import (
    Evict,
    GroupSeen,
    Owner,
    OwnerGone,
    OwnerRecord,
    Phase,
    PodSeen,
    Say,
    Ungate,
    WriteGang,
)
from tests.cluster_fake import FakeCluster, Muster


def bound(cluster: FakeCluster, job: str) -> list[str]:
    """Nodes of a job's bound pods, by pod."""
    return [p.node for p in cluster.pods.values() if p.phase is Phase.BOUND and p.name.startswith(job)]


def test_a_gang_is_recorded_before_its_first_gate_comes_off() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 4, gpus=4)
    muster = Muster(cluster)
    muster.turn()
    assert [type(a) for a in cluster.sent] == [WriteGang]
    muster.turn()
    assert [type(a) for a in cluster.sent[1:]] == [Ungate] * 4
    cluster.bind()
    muster.settle()
    assert sorted(bound(cluster, "train")) == ["n0", "n0", "n1", "n1"]
    assert muster.state("job-train") == "Running"
    assert cluster.counts == {"gang-writes": 2, "patches": 4}


def test_a_gang_that_does_not_fit_whole_keeps_every_gate_on() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("small", 3, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    cluster.job("big", 2, gpus=4)
    muster.settle()
    assert bound(cluster, "big") == []
    assert muster.state("job-big") == "Waiting"
    assert cluster.gangs[("team", "job-big")].reason == "needs 8 GPUs (2 replicas of 4)"
    assert [s.message for s in cluster.said] == [
        "needs 8 GPUs (2 replicas of 4); 1 of 2 replicas fit now"
    ] * 2  # on its pod and on its owner


def test_the_next_job_starts_when_capacity_is_freed() -> None:
    cluster = FakeCluster(nodes=1)
    first = cluster.job("first", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    cluster.job("second", 2, gpus=4)
    muster.settle()
    for pod in first:
        cluster.end(pod.uid)
    muster.settle()
    assert bound(cluster, "second") == ["n0", "n0"]
    assert muster.state("job-first") == "Finished"


@pytest.mark.parametrize("step", range(12))
def test_a_crash_between_any_two_requests_loses_nothing(step: int) -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("a", 4, gpus=3)
    cluster.job("b", 2, gpus=2)
    cluster.job("c", 2, gpus=8)
    muster = Muster(cluster)
    left = step
    for _ in range(4):
        done = muster.turn(die_after=left)
        cluster.check()
        left -= done
        if left <= 0:
            break
        cluster.bind()
    successor = Muster(cluster)
    successor.settle(20)
    assert len(bound(cluster, "a")) == 4
    assert len(bound(cluster, "b")) == 2
    assert bound(cluster, "c") == []


def test_starting_one_of_many_waiting_jobs_writes_nothing_to_the_others() -> None:
    cluster = FakeCluster(nodes=1)
    running = cluster.job("running", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    for number in range(200):
        cluster.now += 0.001
        cluster.job(f"wait{number}", 1, gpus=8)
    muster.settle()
    cluster.sent.clear()
    cluster.end(running[0].uid)
    muster.settle()
    assert bound(cluster, "wait0-") == ["n0"]
    touched = {a.job.name for a in cluster.sent}
    assert touched == {"job-running", "job-wait0"}


def test_a_node_that_goes_before_the_bind_is_replaced_on_evidence() -> None:
    cluster = FakeCluster(nodes=3)
    cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()  # pinned now
    lost = next(p.pin for p in cluster.pods.values() if p.pin)
    del cluster.nodes[lost]
    muster.settle(30, seconds=1.0)
    assert len(bound(cluster, "train")) == 2
    assert lost not in bound(cluster, "train")
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 1


def test_a_refused_pin_is_undone_after_five_seconds_and_the_node_left_out() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 1, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    pod = next(p for p in cluster.pods.values() if p.pin)
    refused = pod.pin
    cluster.update(pod, refusal="node(s) didn't match pod anti-affinity rules")
    muster.turn(seconds=3.0)
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    muster.turn(seconds=6.0)
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 1
    muster.settle(20, seconds=0.1)
    assert bound(cluster, "train")
    assert bound(cluster, "train") != [refused]


def test_a_gang_below_its_minimum_goes_back_to_the_gate_after_the_timeout() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    first = next(p for p in cluster.pods.values() if p.pin)
    cluster.update(first, phase=Phase.BOUND, node=first.pin)
    for _ in range(5):
        muster.turn(seconds=20.0)
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    for _ in range(4):
        muster.turn(seconds=20.0)
    evicted = [a for a in cluster.sent if isinstance(a, Evict)]
    assert len(evicted) >= 2
    muster.settle(40, seconds=3.0)
    assert len(bound(cluster, "train")) == 2


def test_a_member_deleted_while_gated_planned_or_bound_is_replaced() -> None:
    for turns in (1, 2, 3):
        cluster = FakeCluster(nodes=2)
        pods = cluster.job("train", 4, gpus=4)
        muster = Muster(cluster)
        for _ in range(turns):
            muster.turn()
            cluster.bind()
        cluster.delete(pods[1].uid)
        muster.settle(20)
        assert len(bound(cluster, "train")) == 4, turns


def test_an_owner_that_waits_for_its_first_pods_starts_on_a_reservation() -> None:
    cluster = FakeCluster(nodes=2)
    pods = cluster.job("train", 4, gpus=4, exist=1)
    muster = Muster(cluster)
    muster.settle()
    assert muster.state("job-train") == "Incomplete"
    cluster.now += 12
    muster.settle()
    assert len(bound(cluster, "train")) == 1
    cluster.now += 1
    cluster.job("other", 1, gpus=8)
    muster.settle()
    assert bound(cluster, "other") == []  # the rest of train holds the place
    owner = pods[0].controller
    assert owner is not None
    for index in (1, 2, 3):
        cluster.pod(owner, index, gpus=4)
        muster.settle()
        assert len(bound(cluster, "train")) == index + 1


def test_bare_pods_of_one_label_wait_until_all_roles_are_there() -> None:
    cluster = FakeCluster(nodes=1)
    roles = "scheduler=1,server=1,worker=2"
    cluster.bare("s", "ps", 0, role="scheduler", roles=roles)
    cluster.bare("w0", "ps", 2, role="worker")
    cluster.bare("w1", "ps", 2, role="worker")
    muster = Muster(cluster)
    cluster.now += 60
    muster.settle()
    assert muster.plan.statuses[muster.key("ps")].waits == "3 of 4 pods exist; missing: 1 server"
    assert bound(cluster, "") == []
    cluster.bare("p", "ps", 1, role="server")
    muster.settle()
    assert len(bound(cluster, "")) == 4


def test_a_gate_taken_off_by_hand_gets_no_place_before_its_turn() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("first", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    cheat = cluster.job("cheat", 2, gpus=8)[0]
    cluster.update(cheat, phase=Phase.UNGATED)
    muster.settle()
    view = muster.ledger.view(muster.ledger.snapshot(cluster.now), muster.plan, leading=True, synced=True)
    assert cheat.uid not in view.holds


def test_min_starts_and_the_rest_follows_as_it_fits() -> None:
    cluster = FakeCluster(nodes=1)
    other = cluster.job("other", 1, gpus=4)
    cluster.now += 1
    cluster.job("train", 4, gpus=2, min_replicas="1", max_replicas="4")
    muster = Muster(cluster)
    muster.settle()
    assert len(bound(cluster, "train")) == 2
    cluster.end(other[0].uid)
    muster.settle()
    assert len(bound(cluster, "train")) == 4


def test_the_same_name_again_is_a_new_job() -> None:
    cluster = FakeCluster(nodes=1)
    old = cluster.job("train", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    for pod in old:
        cluster.update(cluster.pods[pod.uid], phase=Phase.ENDING, deleting=True)
    cluster.owners.clear()
    cluster.now += 1
    cluster.job("train", 2, gpus=4)
    muster.settle()
    assert bound(cluster, "train") == []  # its predecessor still uses the node
    for pod in old:
        del cluster.pods[pod.uid]
    muster.settle()
    assert len(bound(cluster, "train")) == 2
    assert len(cluster.gangs) == 1


def test_contradicting_pods_are_named_and_block_nobody() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.bare("a", "odd", 1, roles="worker=2")
    cluster.bare("b", "odd", 1, roles="worker=3")
    cluster.job("fine", 1, gpus=8)
    muster = Muster(cluster, Profile(order="strict"))
    muster.settle()
    assert bound(cluster, "fine") == ["n0"]
    assert muster.state("odd") == "Invalid"
    said = [s.message for s in cluster.said if isinstance(s, Say)]
    assert said == [
        "muster.dev/roles: expected the same on every pod that carries it; found worker=2 on a and worker=3 on b"
    ]


def test_preemption_is_off_by_default() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("low", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.job("high", 1, gpus=8, priority=1000)
    muster.settle()
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    assert len(bound(cluster, "low")) == 2


def test_a_higher_priority_gang_sends_the_fewest_latest_lower_gangs_back_whole() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster, Profile(preemption=True))
    for name, gpus, priority in (("old", 4, 0), ("new", 4, 0), ("other", 8, 5)):
        cluster.now += 10
        cluster.job(name, 1, gpus=gpus, priority=priority)
        muster.settle()
    cluster.now += 10
    cluster.job("high", 1, gpus=4, priority=1000)
    muster.settle(20)
    assert {a.job.name for a in cluster.sent if isinstance(a, Evict)} == {"job-new"}
    assert len(bound(cluster, "high")) == 1
    assert len(bound(cluster, "old")) == 1
    assert muster.state("job-new") == "Waiting"


def test_a_gang_is_preempted_whole_and_comes_back_when_there_is_room() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("low", 2, gpus=4)
    muster = Muster(cluster, Profile(preemption=True))
    muster.settle()
    cluster.now += 10
    high = cluster.job("high", 1, gpus=4, priority=1000)
    muster.settle(20)
    assert bound(cluster, "low") == []
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 2
    cluster.end(high[0].uid)
    muster.settle(20)
    assert len(bound(cluster, "low")) == 2


def test_nobody_else_is_preempted_while_a_gang_is_half_way_back() -> None:
    cluster = FakeCluster(nodes=3)
    cluster.job("low", 2, gpus=8)
    muster = Muster(cluster, Profile(preemption=True))
    muster.settle()
    cluster.now += 10
    cluster.job("bystander", 1, gpus=4)
    muster.settle()
    cluster.now += 10
    cluster.job("high", 2, gpus=8, priority=1000)
    muster.turn(die_after=1)  # one eviction has reached the API, the other has no answer yet
    for _ in range(3):
        muster.turn()
    assert len(bound(cluster, "bystander")) == 1
    assert len([p for p in cluster.pods.values() if p.name.startswith("low") and p.phase is Phase.BOUND]) <= 1


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
    record = cluster.owners.pop(owner.uid)  # its controller takes a moment to make the pods anew
    muster.turn()
    assert not [p for p in cluster.pods.values() if p.name.startswith("low")]
    muster.turn()
    assert muster.state(label or "job-low") == "Incomplete"
    cluster.owners[owner.uid] = record
    for pod in low:
        cluster.update(cluster.pod(owner, low.index(pod), gpus=4), labels=pod.labels)
    muster.settle(20)
    assert len(bound(cluster, "high")) == 2
    again = muster.ledger.snapshot(cluster.now).jobs[muster.key(label or "job-low")]
    assert again.submitted == submitted
    for pod in high:
        cluster.end(pod.uid)
    muster.settle(20)
    assert (len(bound(cluster, "low")), bound(cluster, "later")) == (2, [])


def test_a_custom_owner_declares_its_roles_before_their_pods_exist() -> None:
    cluster = FakeCluster(nodes=2)
    owner = Owner("kubeflow.org/v1", "PyTorchJob", "llm", "uid-llm")
    master = cluster.pod(owner, 0, gpus=1, annotations={"role": "master"})
    muster = Muster(cluster)
    assert muster.ledger.unknown_owners == {"uid-llm": ("team", owner)}
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", roles=(("master", 1), ("worker", 3)))
    muster.settle()
    assert muster.plan.statuses[muster.key("pytorchjob-llm")].waits == "1 of 4 pods exist; missing: 3 worker"
    for index in range(3):
        cluster.pod(owner, index, gpus=4, annotations={"role": "worker"})
    muster.settle()
    assert len(bound(cluster, "llm")) == 4
    assert master.uid in cluster.pods
    cluster.owners.clear()
    for uid in list(cluster.pods):
        cluster.delete(uid)
    muster.settle()
    assert muster.ledger.unknown_owners == {}


def test_a_custom_owner_is_read_before_its_first_pod_starts() -> None:
    cluster = FakeCluster(nodes=1)
    owner = Owner("kubeflow.org/v1", "PyTorchJob", "llm", "uid-llm")
    muster = Muster(cluster)
    cluster.pod(owner, 0)
    muster.settle()
    assert (bound(cluster, "llm"), muster.ledger.unread_owners) == ([], True)
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", roles=(("worker", 2),))
    muster.settle()
    assert muster.plan.statuses[muster.key("pytorchjob-llm")].waits == "1 of 2 pods exist; missing: 1 worker"
    cluster.pod(owner, 1)
    muster.settle()
    assert len(bound(cluster, "llm")) == 2


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
    assert (len(bound(cluster, "silent")), bound(cluster, "unread")) == (1, [])
    cluster.now += 30
    muster.settle()
    assert len(bound(cluster, "unread")) == 1


def test_a_custom_owner_is_known_as_long_as_any_of_its_jobs_has_a_pod() -> None:
    cluster = FakeCluster(nodes=1)
    top = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", "uid-llm")
    children = [Owner("batch/v1", "Job", f"llm-{role}-0", f"uid-{role}") for role in ("driver", "worker")]
    cluster.owners[top.uid] = OwnerRecord(top, "team", roles=(("driver", 1), ("worker", 2)))
    for child in children:
        cluster.owners[child.uid] = OwnerRecord(child, "team", size=2, parent=top)
    driver = cluster.pod(children[0], 0, annotations={"role": "driver"})
    for index in range(2):
        cluster.pod(children[1], index, annotations={"role": "worker"})
    muster = Muster(cluster)
    muster.settle()
    assert len(bound(cluster, "llm")) == 3
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
    assert bound(cluster, "mpi") == []
    muster.ledger.apply(GroupSeen("team", "mpi", 2), cluster.now)
    muster.settle()
    assert muster.plan.statuses[muster.key("podgroup-mpi")].waits == "1 of 2 pods exist; missing: 1 worker"
    cluster.update(cluster.bare("mpi-1", "x"), labels=label)
    muster.settle()
    assert len(bound(cluster, "mpi")) == 2
    cluster.update(cluster.bare("lonely", "x"), labels={"scheduling.x-k8s.io/pod-group": "nobody"})
    cluster.now += 5
    muster.settle()
    assert len(bound(cluster, "lonely")) == 1


def test_a_leader_worker_set_group_is_a_gang_of_its_size() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    labels = {"leaderworkerset.sigs.k8s.io/name": "serve", "leaderworkerset.sigs.k8s.io/group-index": "1"}
    for index in range(2):
        pod = cluster.bare(f"serve-1-{index}", "x", 2)
        cluster.update(pod, labels=labels, annotations={"leaderworkerset.sigs.k8s.io/size": "3"})
    muster.settle()
    assert muster.plan.statuses[muster.key("leaderworkerset-serve-1")].waits == (
        "2 of 3 pods exist; missing: 1 worker"
    )


def test_a_job_that_was_released_by_hand_is_neither_planned_nor_sent_back() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("big", 2, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.update(pods[0], phase=Phase.BOUND, node="n0")
    cluster.update(pods[1], phase=Phase.RELEASED)
    cluster.sent.clear()
    for _ in range(6):
        muster.turn(seconds=60.0)
    assert not [a for a in cluster.sent if isinstance(a, Evict | Ungate)]
    assert muster.plan.statuses[muster.key("job-big")].code == "Released"


def test_a_pod_created_without_the_gate_is_counted_said_once_and_takes_its_turn() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("first", 1, gpus=8)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 1
    stray = cluster.job("stray", 1, gpus=8)[0]
    cluster.update(stray, phase=Phase.UNGATED)
    muster.settle()
    muster.turn()
    assert [s.reason for s in cluster.said if s.uid == stray.uid].count("CreatedUngated") == 1
    assert muster.ledger.created_ungated == {stray.uid}
    assert bound(cluster, "stray") == []
    cluster.end(next(p.uid for p in cluster.pods.values() if p.name.startswith("first")))
    muster.settle()
    assert bound(cluster, "stray") == ["n0"]


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
    assert len(bound(cluster, "web")) == 2
    assert [k.name for k in muster.plan.statuses] == ["deployment-web"]


def test_what_waits_of_a_work_queue_is_taken_away_when_a_replica_has_succeeded() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("queue", 4, gpus=4, min_replicas="1")
    owner = pods[0].controller
    assert owner is not None
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=4, queue=True)
    muster = Muster(cluster)
    muster.settle()
    assert len(bound(cluster, "queue")) == 2
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=2, queue=True)  # re-creates nothing now
    cluster.end(next(p.uid for p in cluster.pods.values() if p.node))
    muster.turn()
    waiting = {p.uid for p in pods if not cluster.pods.get(p.uid, pods[0]).node}
    assert {a.uid for a in cluster.sent if isinstance(a, Evict)} == waiting
    assert len(bound(cluster, "queue")) == 1


def test_an_indexed_job_without_a_success_policy_starts_whole_whatever_its_annotations_say() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("rigid", 3, gpus=4, min_replicas="1")
    owner = pods[0].controller
    assert owner is not None
    cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=3, completions=3, whole=True)
    muster = Muster(cluster)
    muster.settle()
    assert bound(cluster, "rigid") == []
    assert muster.state("job-rigid") == "Waiting"


def test_a_bare_pod_pinned_to_a_cordoned_node_is_said_to_be_stuck_and_never_ended() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.bare("alone", "alone", gpus=8)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()
    cluster.nodes["n0"] = replace(cluster.nodes["n0"], unschedulable=True)
    muster.settle()
    assert str(muster.plan.statuses[muster.key("alone")].code) == "Stuck"
    assert not [a for a in cluster.sent if isinstance(a, Evict)]
    cluster.nodes["n0"] = replace(cluster.nodes["n0"], unschedulable=False)
    muster.settle()
    assert muster.state("alone") == "Running"


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
    assert bound(cluster, "next") == ["n0"]


def test_another_profile_makes_every_job_anew() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("first", 1, gpus=8)
    muster = Muster(cluster, Profile(placement="scored"))
    muster.settle()
    cluster.job("second", 1, gpus=8)
    muster.settle()
    muster.ledger.use(Profile())
    jobs = muster.ledger.snapshot(cluster.now).jobs
    assert [job.scored for job in jobs.values()] == [(), ()]
