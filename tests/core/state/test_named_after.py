"""A TrainJob's job is called after it, though its JobSet declares the roles; a job keeps the name of its Gang."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from muster.types import DeclaredRole, GangSeen, NodeSeen, Owner, OwnerRecord, OwnerSeen, Phase, PodSeen
from tests.cluster_fake import FakeCluster, Muster

TRAIN = Owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune", "train-uid")
SET = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "tune", "set-uid")
CHILD = Owner("batch/v1", "Job", "tune-node-0", "job-uid")
NAMED, PLAIN = ("team", "trainjob-tune"), ("team", "jobset-tune")


def jobset(*, named_after: Owner | None = TRAIN, suspended: bool = False) -> OwnerRecord:
    return OwnerRecord(
        SET, "team", roles=(DeclaredRole("node", 2),), named_after=named_after, suspended=suspended
    )


def trained(*, readable: bool = True, named_after: Owner | None = TRAIN) -> FakeCluster:
    """A TrainJob of two nodes: its JobSet, that one's Job and its pods."""
    cluster = FakeCluster(nodes=1)
    if readable:
        cluster.owners[SET.uid] = jobset(named_after=named_after)
    cluster.owners[CHILD.uid] = OwnerRecord(CHILD, "team", size=2, parent=SET)
    for index in range(2):
        made = cluster.pod(CHILD, index)
        names = {
            "jobset.sigs.k8s.io/jobset-name": "tune",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
        }
        cluster.update(made, labels={**made.labels, **names})
    return cluster


def states(cluster: FakeCluster) -> dict[tuple[str, str], str]:
    return {name: gang.state for name, gang in cluster.gangs.items()}


def by_an_older_version() -> FakeCluster:
    """A TrainJob that runs under the name of its JobSet."""
    cluster = trained(named_after=None)
    Muster(cluster).settle()
    assert states(cluster) == {PLAIN: "Running"}
    cluster.owners[SET.uid] = jobset()
    return cluster


def test_a_trainjobs_gang_is_called_after_it_and_owned_by_it() -> None:
    cluster = trained()
    Muster(cluster).settle()
    assert states(cluster) == {NAMED: "Running"}
    gang = cluster.gangs[NAMED]
    assert (gang.key.uid, gang.owner, gang.declared_by) == (TRAIN.uid, TRAIN, SET)
    assert {said.owner for said in cluster.said if said.owner} <= {TRAIN}


def test_a_jobset_of_its_own_is_named_and_owned_as_ever() -> None:
    cluster = trained(named_after=None)
    Muster(cluster).settle()
    gang = cluster.gangs[PLAIN]
    assert (gang.key.uid, gang.owner, gang.declared_by) == (SET.uid, SET, None)


@pytest.mark.parametrize("first", [GangSeen, OwnerSeen, PodSeen])
def test_after_an_upgrade_a_running_trainjob_keeps_its_name_whatever_is_listed_first(first: type) -> None:
    cluster = by_an_older_version()
    after = Muster(FakeCluster(nodes=1))
    after.cluster = cluster
    events = sorted(cluster.events(), key=lambda event: not isinstance(event, first))
    for event in sorted(events, key=lambda event: not isinstance(event, NodeSeen)):
        after.ledger.apply(event, cluster.now)
    after.ledger.take_over()
    sent = len(cluster.sent)
    after.settle()
    assert states(cluster) == {PLAIN: "Running"}
    assert cluster.sent[sent:] == []
    assert {key.name for key in after.ledger.job_of.values()} == {"jobset-tune"}


def test_a_restart_writes_one_gang_in_whatever_order_its_objects_are_read() -> None:
    """Its pods and its JobSet may come before the Gang that tells its name: by then it had the other one, too."""
    for order in itertools.permutations(range(5)):
        cluster = trained()
        Muster(cluster).settle()
        written = cluster.gangs.pop(NAMED)
        key = written.key._replace(name=PLAIN[1], uid=SET.uid)
        cluster.gangs[PLAIN] = replace(written, key=key, name=PLAIN[1], owner=SET, declared_by=None)
        cluster.now += 12  # longer than a pod waits for its owner to be read
        after = Muster(FakeCluster(nodes=1))
        after.cluster = cluster
        nodes = [event for event in cluster.events() if isinstance(event, NodeSeen)]
        others = [event for event in cluster.events() if not isinstance(event, NodeSeen)]
        for event in (*nodes, *(others[index] for index in order)):
            after.ledger.apply(event, cluster.now)
        after.ledger.take_over()
        after.settle()
        assert states(cluster) == {PLAIN: "Running"}, [type(others[index]).__name__ for index in order]


def test_after_the_job_of_the_older_version_has_ended_the_next_one_has_the_new_name() -> None:
    cluster = by_an_older_version()
    after = Muster(cluster)
    cluster.owners[SET.uid] = replace(jobset(), over="Completed")
    cluster.owners[CHILD.uid] = replace(cluster.owners[CHILD.uid], size=0, over="Complete")
    for uid in list(cluster.pods):
        cluster.end(uid)
    after.settle()
    assert states(cluster) == {PLAIN: "Finished"}
    # the Job controller takes finalizers off, when it comes to that
    for pod in list(cluster.pods.values()):
        cluster.update(pod, tracked=False)
    for muster in (after, Muster(cluster)):
        muster.settle()
        assert states(cluster) == {PLAIN: "Finished"}
        assert {key.name for key in muster.ledger.job_of.values()} == {"jobset-tune"}
    cluster.pods.clear()
    again = SET._replace(uid="set-again"), CHILD._replace(uid="job-again")
    train = TRAIN._replace(uid="train-again")
    cluster.owners = {
        again[0].uid: replace(jobset(named_after=train), owner=again[0]),
        again[1].uid: OwnerRecord(again[1], "team", size=2, parent=again[0]),
    }
    for index in range(2):
        made = cluster.pod(again[1], index)
        cluster.update(made, labels={**made.labels, "jobset.sigs.k8s.io/replicatedjob-name": "node"})
    after.turn()  # its JobSet is wanted now, and read
    after.settle()
    assert states(cluster) == {PLAIN: "Finished", NAMED: "Running"}


def test_a_jobset_that_cannot_be_read_in_time_gives_its_name_and_the_job_keeps_it() -> None:
    cluster = trained(readable=False)
    muster = Muster(cluster)
    muster.settle()
    assert states(cluster) == {}
    cluster.now += 31  # UNREAD_PATIENCE: it starts as its pods come
    muster.settle()
    assert states(cluster) == {PLAIN: "Running"}
    cluster.owners[SET.uid] = jobset()
    muster.settle()
    assert states(cluster) == {PLAIN: "Running"}


def test_pods_on_nodes_are_renamed_when_their_jobset_is_read_and_nothing_was_written_yet() -> None:
    cluster = trained(readable=False)
    for pod in list(cluster.pods.values()):
        cluster.update(pod, phase=Phase.BOUND, node="n0")
    muster = Muster(cluster)
    assert {key.name for key in muster.ledger.job_of.values()} == {"jobset-tune"}
    cluster.owners[SET.uid] = jobset()
    muster.settle()
    assert states(cluster) == {NAMED: "Running"}


def test_after_a_restart_a_job_keeps_its_trainjobs_name_though_the_jobset_cannot_be_read() -> None:
    cluster = trained()
    Muster(cluster).settle()
    del cluster.owners[SET.uid]
    sent = len(cluster.sent)
    after = Muster(cluster)
    after.settle()
    assert {key.name for key in after.ledger.job_of.values()} == {"trainjob-tune"}
    assert states(cluster) == {NAMED: "Running"}
    assert cluster.sent[sent:] == []
    (job,) = after.ledger.snapshot(cluster.now).jobs.values()
    assert job.owner == TRAIN


def test_a_suspended_trainjob_without_a_pod_is_the_same_job_after_a_restart() -> None:
    cluster = trained()
    muster = Muster(cluster)
    muster.settle()
    submitted = cluster.gangs[NAMED].submitted
    cluster.owners[SET.uid] = jobset(suspended=True)
    cluster.owners[CHILD.uid] = replace(cluster.owners[CHILD.uid], size=0, suspended=True)
    pods = list(cluster.pods.values())
    cluster.pods.clear()
    muster.settle()
    assert states(cluster) == {NAMED: "Suspended"}
    cluster.now += 100
    after = Muster(cluster)
    after.settle()
    assert states(cluster) == {NAMED: "Suspended"}
    cluster.owners[SET.uid] = jobset()
    cluster.owners[CHILD.uid] = replace(cluster.owners[CHILD.uid], size=2, suspended=False)
    for index, old in enumerate(pods):
        made = cluster.pod(CHILD, index)
        cluster.update(made, labels=old.labels)
    after.settle()
    assert states(cluster) == {NAMED: "Running"}
    assert cluster.gangs[NAMED].submitted == submitted


def test_two_jobs_of_one_owner_stay_two_whatever_is_recorded() -> None:
    cluster = FakeCluster(nodes=1)
    top = Owner("example.com/v1", "Workflow", "flow", "flow-uid")
    cluster.owners[top.uid] = OwnerRecord(top, "team")
    muster = Muster(cluster)
    for name in ("a", "b"):
        made = cluster.pod(top, 0)
        cluster.update(made, labels={**made.labels, "ray.io/cluster": name})
        muster.turn()
        muster.settle()
    assert states(cluster) == {("team", "raycluster-a"): "Running", ("team", "raycluster-b"): "Running"}
    assert {key.name for key in Muster(cluster).ledger.job_of.values()} == {"raycluster-a", "raycluster-b"}


def test_pods_that_go_at_a_restart_before_anything_is_planned_leave_no_second_job_behind() -> None:
    """They are listed before the Gang that tells the name; those that the JobSet makes next are of the same job."""
    cluster = trained()
    Muster(cluster).settle()
    after = Muster(FakeCluster(nodes=1))
    after.cluster, after._known = cluster, set(cluster.pods)
    first = (NodeSeen, PodSeen, OwnerSeen, GangSeen)
    for event in sorted(cluster.events(), key=lambda event: first.index(type(event))):
        after.ledger.apply(event, cluster.now + 12)  # longer than a pod waits for its owner to be read
    after.ledger.take_over()
    old = list(cluster.pods.values())
    cluster.pods.clear()
    after.settle()
    cluster.now += 3
    after.settle()
    for index, one in enumerate(old):
        made = cluster.pod(CHILD, index)
        cluster.update(made, labels=one.labels)
    after.settle()
    assert states(cluster) == {NAMED: "Running"}
