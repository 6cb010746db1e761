# Over 300 lines: every way that was found round the queue is closed by a test.
"""No way round the queue: what a pod says of itself opens nothing; others start, and what waits has a turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.core.cycle import cycle
from muster.core.reasons.waiting import NO_PLAN
from muster.core.views.extender_rules import ExtenderRules
from muster.points import Profile
from muster.types import (
    GPU,
    Evict,
    GangRecord,
    GangSeen,
    JobKey,
    Namespaces,
    NamespaceSeen,
    Owner,
    OwnerRecord,
    Phase,
    PodRecord,
    PodSeen,
    Requirement,
    Reservation,
    Shape,
)
from tests.cluster_fake import FakeCluster, Muster

EIGHT = Shape(requests=(("cpu", 1000), (GPU, 8)))


def pod(name: str, pin: str = "n0", **what: Any) -> PodRecord:
    """A bare pod of another tenant whose gate is off and that names its node."""
    values: dict[str, Any] = {
        "uid": f"uid-{name}",
        "namespace": "other",
        "name": name,
        "created": 1_000_000.0,
        "phase": Phase.UNGATED,
        "pin": pin,
        "shape": EIGHT,
        **what,
    }
    return PodRecord(**values)


def comes(muster: Muster, one: PodRecord, *, new: bool = True) -> PodRecord:
    """It is created, and the watch tells."""
    made = muster.cluster.update(one)
    muster.ledger.apply(PodSeen(made, new=new), muster.cluster.now)
    return made


def passes(muster: Muster, uid: str) -> list[str]:
    """The nodes on which the verbs let a pod be bound after the next plan."""
    snapshot = muster.ledger.snapshot(muster.cluster.now)
    plan = cycle(snapshot, muster.ledger.profile)
    view = muster.ledger.view(snapshot, plan, leading=True, synced=True)
    return ExtenderRules(view).passes(uid, list(muster.cluster.nodes))[0]


def settle(muster: Muster) -> None:
    """Turns, with a kube-scheduler in between that asks the filter verb, until nothing happens any more."""
    cluster = muster.cluster
    for _ in range(12):
        done, bound = muster.turn(), 0
        for one in [p for p in cluster.pods.values() if p.phase in (Phase.UNGATED, Phase.RELEASED)]:
            for node in passes(muster, one.uid):
                used = sum(
                    p.shape.gpus for p in cluster.pods.values() if p.node == node and not p.phase.ended
                )
                if one.pin in ("", node) and used + one.shape.gpus <= cluster.nodes[node].allocatable[GPU]:
                    cluster.update(one, phase=Phase.BOUND, node=node, refusal="")
                    bound += 1
                    break
        if not done and not bound:
            return


def free(muster: Muster, node: str) -> int:
    """GPUs of a node that nothing is charged for."""
    snapshot = muster.ledger.snapshot(muster.cluster.now)
    row, column = snapshot.nodes.index[node], snapshot.nodes.resources.index(GPU)
    return int(snapshot.free[row, column])


@pytest.mark.parametrize("new", [True, False])
def test_a_pin_that_muster_has_not_recorded_is_no_place(new: bool) -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    own = comes(muster, pod("own"), new=new)
    assert free(muster, "n0") == 8
    assert passes(muster, own.uid) == []
    train = cluster.job("train", 1, gpus=8, priority=1)[0]
    settle(muster)
    assert (cluster.pods[train.uid].node, passes(muster, own.uid)) == ("n0", [])


def test_a_pod_with_a_pin_of_its_own_waits_for_its_turn_on_the_node_that_it_names() -> None:
    cluster = FakeCluster(nodes=2)
    running = cluster.job("first", 1, gpus=8)[0]
    muster = Muster(cluster)
    settle(muster)
    node = cluster.pods[running.uid].node
    own = comes(muster, pod("own", node))
    muster.turn()
    assert passes(muster, own.uid) == []
    cluster.end(running.uid)
    settle(muster)
    assert (cluster.pods[own.uid].phase, cluster.pods[own.uid].node) == (Phase.BOUND, node)


def test_pods_of_a_daemon_set_are_neither_queued_nor_bound() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster)
    owner = Owner("apps/v1", "DaemonSet", "agent", "ds-1")
    agents = [comes(muster, pod(f"agent-{n}", f"n{n}", controller=owner)) for n in range(2)]
    settle(muster)
    assert muster.state("daemonset-agent", "other") == "Invalid"
    assert [passes(muster, agent.uid) for agent in agents] == [[], []]
    assert (free(muster, "n0"), free(muster, "n1")) == (8, 8)


def test_a_plan_that_its_own_creator_wrote_on_a_pod_places_nobody() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster)
    labels = {"muster.dev/job": "sly"}
    reservations = (Reservation("worker", "n0", "a", "uid-a"), Reservation("worker", "n1", "b", "uid-b"))
    first = comes(muster, pod("a", "n0", labels=labels, carries=reservations))
    second = comes(muster, pod("b", "", labels=labels, phase=Phase.GATED))
    assert (free(muster, "n0"), free(muster, "n1")) == (8, 8)
    assert [passes(muster, one.uid) for one in (first, second)] == [[], []]


def test_a_plan_that_does_not_name_the_pod_that_carries_it_counts_for_nothing() -> None:
    cluster = FakeCluster(nodes=2)
    labels = {"muster.dev/job": "sly"}
    cluster.update(pod("a", "n0", labels=labels, carries=(Reservation("worker", "n1", "b", "uid-b"),)))
    cluster.update(pod("b", "", labels=labels, phase=Phase.GATED))
    muster = Muster(cluster)
    assert (free(muster, "n0"), free(muster, "n1")) == (8, 8)


def test_a_pod_that_came_without_the_gate_is_not_released_whatever_it_says() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    sly = comes(muster, pod("sly", "", phase=Phase.RELEASED))
    assert passes(muster, sly.uid) == []
    settle(muster)
    assert muster.state("pod-sly", "other") == "Running", "its turn came: it alone waits"


def test_a_gate_of_its_own_makes_no_pod_one_that_waited_behind_ours() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    sly = comes(muster, pod("sly", "", phase=Phase.HELD, foreign=True))
    comes(muster, replace(sly, phase=Phase.RELEASED, foreign=False), new=False)
    assert passes(muster, sly.uid) == []


def test_a_pod_that_waited_behind_the_gate_can_be_released() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    waiting = comes(muster, pod("wide", "", phase=Phase.GATED, shape=Shape(requests=((GPU, 9),))))
    settle(muster)
    comes(muster, replace(waiting, phase=Phase.RELEASED), new=False)
    assert passes(muster, waiting.uid) == ["n0"]


def test_nothing_more_starts_of_a_job_with_a_pod_that_was_made_with_a_node() -> None:
    cluster = FakeCluster(nodes=2)
    muster = Muster(cluster)
    labels, notes = {"muster.dev/job": "sly"}, {"muster.dev/roles": "worker=2"}
    comes(muster, pod("a", "", phase=Phase.BOUND, node="n0", labels=labels, annotations=notes))
    rest = comes(muster, pod("b", "", phase=Phase.GATED, labels=labels, annotations=notes))
    train = cluster.job("train", 1, gpus=8)[0]
    settle(muster)
    assert (free(muster, "n0"), cluster.pods[train.uid].node) == (0, "n1")
    assert cluster.pods[rest.uid].phase is Phase.GATED
    assert muster.plan.statuses[JobKey("other", "sly")].message == (
        "pod a was created with spec.nodeName, past the queue: nothing else of the job starts while it is there"
    )


def test_pins_count_after_a_restart_whatever_comes_first() -> None:
    cluster = FakeCluster(nodes=4)
    cluster.job("train", 2, gpus=8)
    leader = Muster(cluster)
    leader.turn()
    leader.turn()
    assert sorted(p.pin for p in cluster.pods.values()) == ["n0", "n1"]
    follower = Muster(FakeCluster(nodes=0))
    for event in reversed(cluster.events()):  # pods before Gangs, each before the pod that carries the plan
        follower.ledger.apply(event, cluster.now)
    follower.ledger.take_over()
    follower.cluster = cluster
    assert [free(follower, node) for node in ("n0", "n1", "n2", "n3")] == [0, 0, 8, 8]
    assert {uid: passes(follower, uid) for uid in cluster.pods} == {
        u: [p.pin] for u, p in cluster.pods.items()
    }


def test_a_controller_of_another_namespace_counts_for_nothing() -> None:
    cluster = FakeCluster(nodes=2)
    victim = cluster.job("train", 2, gpus=8)
    muster = Muster(cluster)
    settle(muster)
    thief = comes(muster, pod("thief", "", phase=Phase.GATED, controller=victim[0].controller))
    muster.turn()
    assert muster.ledger.job_of[thief.uid] == JobKey("other", "pod-thief", thief.uid)
    assert muster.state("job-train") == "Running"


def test_a_controller_that_turns_out_to_be_of_another_namespace_is_forgotten() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    owner = Owner("batch/v1", "Job", "train", "job-1")
    thief = comes(muster, pod("thief", "", phase=Phase.GATED, controller=owner))
    cluster.owners["job-1"] = OwnerRecord(owner, "team", size=64)
    muster.turn()
    assert muster.ledger.job_of[thief.uid] == JobKey("other", "pod-thief", thief.uid)


def refused(cluster: FakeCluster, one: PodRecord, why: str = "node(s) had no room") -> None:
    cluster.update(cluster.pods[one.uid], refusal=why)


def test_a_bare_pod_that_is_refused_gives_its_place_back_and_tries_again() -> None:
    cluster = FakeCluster(nodes=1)
    bare = cluster.bare("alone", "alone", gpus=8)
    muster = Muster(cluster)
    muster.turn()
    assert cluster.pods[bare.uid].pin == "n0"
    refused(cluster, bare)
    muster.turn()
    muster.turn(seconds=5)
    assert free(muster, "n0") == 8
    assert muster.plan.statuses[JobKey("team", "alone")].message.startswith(
        "pod alone is pinned and cannot start: kube-scheduler found node n0 unfit: node(s) had no room"
    )
    train = cluster.job("train", 1, gpus=8)[0]
    settle(muster)
    assert cluster.pods[train.uid].node == "n0"
    cluster.end(train.uid)
    refused(cluster, bare, NO_PLAN)
    muster.turn(seconds=10)
    settle(muster)
    assert cluster.pods[bare.uid].node == "n0"
    assert not [a for a in cluster.sent if isinstance(a, Evict)]


def test_a_bare_pod_that_came_ungated_and_is_refused_gives_its_place_back_too() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    bare = comes(muster, pod("alone", ""))
    refused(cluster, bare, NO_PLAN)
    muster.turn()
    assert free(muster, "n0") == 0, "it is its turn, and that it had no plan before is no evidence"
    refused(cluster, bare)
    muster.turn()
    muster.turn(seconds=muster.ledger.profile.timeout)
    assert free(muster, "n0") == 8


def test_a_forged_gang_places_no_pod_that_came_without_the_gate() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    own = comes(muster, pod("own"))
    muster.ledger.apply(
        GangSeen(
            GangRecord(
                JobKey("other", "pod-own", own.uid),
                "pod-own",
                "gang-1",
                placement=(Reservation("worker", "n0", "own", own.uid),),
            )
        ),
        cluster.now,
    )
    assert passes(muster, own.uid) == []


OPTED = Namespaces((Requirement("team", "In", ("ml",)),), frozenset({"kube-system"}))


@pytest.mark.parametrize("listed_first", ["pods", "namespaces"])
@pytest.mark.parametrize(
    ("labels", "named"), [({"team": "web"}, "other"), ({}, "other"), ({"team": "ml"}, "kube-system")]
)
def test_what_pods_say_counts_nowhere_but_in_namespaces_that_have_opted_in(
    labels: dict[str, str], named: str, listed_first: str
) -> None:
    """Nobody gates such pods, so it may stand on one from its creation, and a restart does not see that."""
    cluster = FakeCluster(nodes=2)
    free_of = cluster.update(pod("a", "", namespace=named, phase=Phase.RELEASED))
    carrying = cluster.update(
        pod("b", "n0", namespace=named, carries=(Reservation("worker", "n0", "b", "uid-b"),), uid="uid-b")
    )
    muster = Muster(FakeCluster(nodes=0), Profile(namespaces=OPTED))
    events = [NamespaceSeen(named, labels), *cluster.events()]
    for event in events if listed_first == "namespaces" else reversed(events):
        muster.ledger.apply(event, cluster.now)
    muster.ledger.take_over()
    muster.cluster = cluster
    settle(muster)
    assert [passes(muster, one.uid) for one in (free_of, carrying)] == [[], []]
    assert (free(muster, "n0"), free(muster, "n1")) == (8, 8)
    assert muster.plan.statuses[JobKey(named, "pod-a", free_of.uid)].message.startswith(
        f"namespace {named} has not opted in to Muster"
    )


def test_in_namespaces_that_have_opted_in_all_goes_on() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.job("train", 2, gpus=8)
    free_of = cluster.update(pod("wide", "", phase=Phase.RELEASED, shape=Shape(requests=((GPU, 9),))))
    muster = Muster(cluster, Profile(namespaces=OPTED))
    for name in ("team", "other"):
        muster.ledger.apply(NamespaceSeen(name, {"team": "ml"}), cluster.now)
    settle(muster)
    assert muster.state("job-train") == "Running"
    assert passes(muster, free_of.uid) == ["n0", "n1"]
