"""Objects that can't be decoded: their jobs are put aside, what was known of them stays, a later version is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from muster.core.state.quarantine import PAUSE_FIRST, sentence
from muster.types import (
    Gone,
    GroupSeen,
    NodeGone,
    OwnerGone,
    PodGone,
    PodRecord,
    Reason,
    State,
    Status,
    Unreadable,
)
from tests.cluster_fake import FakeCluster, Muster

ERROR = ValueError("made up")
INTERNAL = Status(State.INVALID, Reason.INTERNAL, sentence("decode"))


def unreadable(gone: Gone, pod: PodRecord | None = None) -> Unreadable:
    return Unreadable("things team/thing", "team", ERROR, gone, pod)


def sketched(pod: PodRecord) -> PodRecord:
    """What can be told of a pod that can't be read."""
    names = ("uid", "namespace", "name", "version", "created", "controller", "labels", "phase", "node")
    return PodRecord(**{name: getattr(pod, name) for name in names})


class Broken:
    """A cluster of a gang of two and another job, where something of the gang can't be read."""

    def __init__(self, **pods: object) -> None:
        self.cluster = FakeCluster(nodes=2)
        self.pods = self.cluster.job("bad", 2, gpus=2)
        self.pods = [self.cluster.update(pod, **pods) for pod in self.pods]
        self.hidden: list[PodRecord] = []
        self.muster = Muster(FakeCluster(nodes=0))
        self.muster.cluster = self.cluster

    def hide(self, pod: PodRecord) -> None:
        """Only Muster's own eyes fail: the pod is where it is."""
        self.hidden.append(self.cluster.pods.pop(pod.uid))

    def turns(self, event: Unreadable | None = None) -> None:
        for _ in range(8):
            if event is not None:
                self.muster.ledger.apply(event, self.cluster.now)
            self.muster.turn()
            self.cluster.bind()


def test_a_job_of_which_a_pod_cannot_be_read_does_not_start_and_another_does() -> None:
    it = Broken()
    it.cluster.job("good", 2, gpus=2, namespace="other")
    it.hide(it.pods[0])
    it.turns(unreadable(PodGone(it.pods[0].uid), sketched(it.pods[0])))
    assert it.cluster.bound("bad") == []
    assert len(it.cluster.bound("good")) == 2
    assert it.muster.plan.statuses[it.muster.key("job-bad")] == INTERNAL
    assert it.cluster.gangs[("team", "job-bad")].message == INTERNAL.message
    faults = it.muster.ledger.take_faults()
    assert {(f.stage, f.subject) for f in faults} == {
        ("decode", f"{it.muster.key('job-bad')} (things team/thing)")
    }
    assert [f.again for f in faults] == [False] + [True] * (len(faults) - 1)


def test_a_job_of_one_pod_that_cannot_be_read_is_shown() -> None:
    cluster = FakeCluster(nodes=2)
    (pod,) = cluster.job("bad", 1)
    del cluster.pods[pod.uid]
    muster = Muster(cluster)
    muster.ledger.apply(unreadable(PodGone(pod.uid), sketched(pod)), cluster.now)
    muster._known.discard(pod.uid)
    muster.turn()
    assert muster.plan.statuses == {muster.key("job-bad"): INTERNAL}


def test_a_later_version_that_can_be_read_brings_the_job_back() -> None:
    it = Broken()
    it.hide(it.pods[0])
    it.turns(unreadable(PodGone(it.pods[0].uid), sketched(it.pods[0])))
    it.cluster.pods[it.pods[0].uid] = it.hidden.pop()  # even the same version
    it.cluster.now += PAUSE_FIRST * 64
    it.turns()
    assert len(it.cluster.bound("bad")) == 2
    assert it.muster.ledger.unread == {}


def test_what_runs_stays_charged_while_its_newest_version_cannot_be_read() -> None:
    it = Broken()
    it.muster.settle()
    assert len(it.cluster.bound("bad")) == 2
    free = it.muster.ledger.charges.free().tolist()
    it.turns(unreadable(PodGone(it.pods[0].uid), sketched(it.cluster.pods[it.pods[0].uid])))
    it.muster.ledger.apply(unreadable(PodGone(it.pods[0].uid)), it.cluster.now)
    it.muster.ledger.snapshot(it.cluster.now)
    assert it.muster.ledger.charges.free().tolist() == free
    assert len(it.cluster.bound("bad")) == 2


@pytest.mark.parametrize(
    "of",
    [
        lambda it: OwnerGone(it.pods[0].controller.uid),
        lambda _: GroupSeen("team", "four", 0),
    ],
    ids=["owner", "group"],
)
def test_a_job_whose_owner_or_group_cannot_be_read_does_not_start(of: Callable[[Broken], Gone]) -> None:
    it = Broken(
        labels={"batch.kubernetes.io/job-completion-index": "0", "scheduling.x-k8s.io/pod-group": "four"}
    )
    gone = of(it)
    owners, it.cluster.owners = it.cluster.owners, {}
    if isinstance(gone, GroupSeen):
        it.cluster.owners = owners
    event = unreadable(gone)
    it.muster.ledger.apply(event, it.cluster.now)
    for _ in range(4):
        it.muster.turn(seconds=5.0)  # nobody waits for the owner any more
        it.cluster.bind()
    assert it.cluster.bound("bad") == []
    assert list(it.muster.plan.statuses.values()) == [INTERNAL]
    it.cluster.owners = owners
    it.cluster.now += 100.0
    if isinstance(gone, GroupSeen):
        it.muster.ledger.apply(replace(gone, min_count=2), it.cluster.now)
    it.turns()
    assert len(it.cluster.bound("bad")) == 2


def test_a_node_that_cannot_be_read_stays_what_it_was_and_is_nobodys_fault() -> None:
    it = Broken()
    it.muster.sync()
    it.muster.ledger.apply(unreadable(NodeGone("n0")), it.cluster.now)
    it.turns()
    assert len(it.cluster.bound("bad")) == 2
    assert [(f.stage, f.subject) for f in it.muster.ledger.take_faults()] == [("decode", "things team/thing")]


def test_a_pod_that_ends_while_it_cannot_be_read_is_forgotten() -> None:
    it = Broken()
    it.muster.settle()
    uid = it.pods[0].uid
    it.muster.ledger.apply(unreadable(PodGone(uid)), it.cluster.now)
    it.muster.ledger.apply(PodGone(uid), it.cluster.now)
    assert it.muster.ledger.unread == {}
    it.muster.ledger.apply(unreadable(PodGone(uid)), it.cluster.now)  # a late one
    assert it.muster.ledger.unread == {}
    assert uid not in it.muster.ledger.job_of
