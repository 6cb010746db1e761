# Over 300 lines: each part of the cluster fails in a scenario, and all look for the same losses.
"""When things go wrong: nothing is lost, double-booked or left half-started.

To hold a start half-way these scenarios freeze kube-scheduler (SIGSTOP): the gates are off and the pins are on, and
nothing binds until it goes on."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.kind.lab import KIND
from e2e.lab import Lab, LabError, NodeGroup, Shape
from e2e.scenario import (
    bound,
    configured,
    delete_job,
    gang,
    gated,
    holds_for,
    in_state,
    job,
    made,
    on_node,
    pod,
    priority_class,
    runs_whole,
    said,
    show,
    stays,
    wait_until,
)

pytestmark = pytest.mark.lab

RACK = "topology.kubernetes.io/rack"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-scheduler"
LASTS, LONG = 15, 600  # seconds: a kube-scheduler's Lease, and that of one that is frozen
# Seconds: age of a refusal that counts, 5, told in whole seconds; how long its node is left out at first.
EVIDENCE, LEFT_OUT = 4.0, 5.0
BREAK_GLASS = ("--as=somebody", "--as-group=muster:break-glass", "--as-group=system:masters")


def pinned(cluster: Cluster, namespace: str, name: str, replicas: int) -> list[Pod]:
    """The pods once all of them have their pin, in the order of their names; none is bound."""
    return wait_until(
        lambda: (
            (found := [p for p in cluster.pods(namespace, name) if p.pinned_to and not p.node])
            and len(found) == replicas
            and found
        ),
        what=f"the {replicas} pods of {name} are pinned",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def waits(cluster: Cluster, namespace: str, name: str, replicas: int) -> None:
    """The job is in the queue, whole."""
    wait_until(
        lambda: (
            in_state(cluster, namespace, f"job-{name}", "Waiting")
            and len(gated(cluster.pods(namespace, name))) == replicas
        ),
        what=f"{name} waits, all {replicas} pods behind the gate",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


@contextlib.contextmanager
def frozen(lab: Lab, *names: str, leads: bool = True) -> Iterator[None]:
    """The processes stand still inside of the block.

    The Lease of a kube-scheduler lasts as long, however slow this machine is: Muster acts for who holds it. Its
    holder writes the usual length with its next renewal; for one that was killed meanwhile it is written here.
    leads: it has renewed its Lease when the block ends."""
    for name in names:
        lab.pause(name)
    holders = [name for name in names if name.startswith("kube-scheduler")]
    if holders:
        lease_lasts(lab, LONG)
    try:
        yield
    finally:
        still = [name for name in holders if lab.state(name) == "paused"]
        woke = time.time()
        for name in names:
            with contextlib.suppress(LabError):
                lab.resume(name)
        if not all(lab.alive(name) for name in holders):
            lease_lasts(lab, LASTS)
    for name in still if leads else ():
        leads_again(lab, name, woke)


def leads_again(lab: Lab, name: str, woke: float) -> None:
    """The kube-scheduler goes on since `woke` (Unix s). One that stood still while it renewed its Lease may find that
    too late and end; the kubelet would start it again."""
    cluster = Cluster(lab.kubeconfig)

    def renews() -> bool:
        if not lab.alive(name):
            lease_lasts(lab, LASTS)
            lab.start(name, wait=False)
        return renewed(cluster) > woke

    wait_until(renews, what=f"{name} renews its Lease", also=lambda: cluster.get(LEASE))


def lease_lasts(lab: Lab, seconds: int) -> None:
    Cluster(lab.kubeconfig).patch(LEASE, {"spec": {"leaseDurationSeconds": seconds}})


def renewed(cluster: Cluster) -> float:
    """When the holder of the Lease renewed it last (Unix s)."""
    return datetime.fromisoformat(cluster.get(LEASE)["spec"]["renewTime"]).timestamp()


def cannot_bind(lab: Lab, cluster: Cluster, one: Pod, trouble: Callable[[], object]) -> None:
    """The trouble with the planned node of the pod comes, and kube-scheduler, frozen until now, learns of it. It gets
    pods and nodes by two watches; while filter does not answer it binds nothing, and says Unschedulable only of what
    it finds unfit by itself. So Muster stands still from before the trouble: it would act on it, too."""

    def reason() -> str:
        found = cluster.pod(one.namespace, one.name)
        return str(((found and found.condition("PodScheduled")) or {}).get("reason"))

    with frozen(lab, "muster-0"):
        trouble()
        woke = time.time()
        lab.resume("kube-scheduler-0")
        leads_again(lab, "kube-scheduler-0", woke)
        wait_until(
            lambda: reason() == "Unschedulable",
            what=f"kube-scheduler finds no node for {one.name}",
            also=reason,
        )


def refusals(seconds: float) -> int:
    """How many pins of one replica on one node may be undone in this time, at the most: each needs its evidence, and
    leaves the node out for a time that doubles."""
    count, at, left_out = 0, EVIDENCE, LEFT_OUT
    while at <= seconds:
        count, at, left_out = count + 1, at + left_out + EVIDENCE, left_out * 2
    return count


def foreign(name: str, node: str, **what: object) -> Json:
    """A pod of somebody else, put on the node by hand."""
    return pod(name, scheduler=None, nodeName=node, **what)


# --- muster dies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "die after 0 POST gangs",
        "die-sent after 0 POST gangs",
        "die-sent after 0 PATCH gangs",
        "die after 0 PATCH pods",
        "die after 1 PATCH pods",
        "die after 2 PATCH pods",
        "die-sent after 2 PATCH pods",
        "die after 0 PATCH gangs",
    ],
)
def test_muster_killed_at_any_step_of_a_start_goes_on_where_it_was(
    lab: Lab, cluster: Cluster, namespace: str, fault: str
) -> None:
    rack = {RACK: "rack-1"}
    waited = fault.endswith("PATCH gangs")  # there is a Gang already when it starts
    if waited:
        cluster.submit(job("holder", 2, gpus=8, node_selector=rack), namespace=namespace)
        runs_whole(cluster, namespace, "holder", 2)
    else:
        lab.kill("muster-0")
    cluster.submit(job("train", 3, gpus=8, node_selector=rack), namespace=namespace)
    if waited:
        wait_until(
            lambda: in_state(cluster, namespace, "job-train", "Waiting"),
            what="it waits",
            also=lambda: str(cluster.gangs(namespace)),
        )
        lab.kill("muster-0")
        delete_job(cluster, namespace, "holder")
        wait_until(lambda: not cluster.pods(namespace, "holder"), what="the room is free")
    before = wait_until(
        lambda: (found := gated(cluster.pods(namespace, "train"))) and len(found) == 3 and found,
        what="three gated pods exist",
    )
    lab.start("muster-0", env={"MUSTER_FAULTS": fault}, wait=False)
    wait_until(lambda: not lab.alive("muster-0"), within=180, what=f"muster has died: {fault}")
    asked = max(datetime.fromisoformat(one.raw["metadata"]["creationTimestamp"]) for one in before)
    time.sleep(max(0.0, asked.timestamp() + 1.0 - time.time()))  # creation times have whole seconds
    # Meanwhile another gang comes that the room left over is too small for.
    cluster.submit(job("other", 2, gpus=8, node_selector=rack), namespace=namespace)
    lab.start("muster-0", env={})
    after = runs_whole(cluster, namespace, "train", 3)
    assert {one.uid for one in after} == {one.uid for one in before}
    waits(cluster, namespace, "other", 2)


def test_a_muster_that_is_away_lets_nothing_bind_and_goes_on_when_it_is_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(job("train", 2, gpus=8), namespace=namespace)
        pinned(cluster, namespace, "train", 2)
        lab.kill("muster-0")
    if lab.name != KIND:  # there kube-scheduler goes with Muster's pod
        # The extender is not ignorable: without it filter lets nobody pass.
        wait_until(
            lambda: all(map(unguarded, cluster.pods(namespace, "train"))),
            what="kube-scheduler has tried both, and nothing binds unguarded",
            also=lambda: show(cluster.pods(namespace)),
        )
    assert bound(cluster.pods(namespace, "train")) == []
    cluster.submit(job("later", 2), namespace=namespace)
    lab.start("muster-0", env={})
    runs_whole(cluster, namespace, "train", 2)
    runs_whole(cluster, namespace, "later", 2)


def unguarded(one: Pod) -> bool:
    """Whether kube-scheduler says that it could not ask about the pod."""
    said = one.condition("PodScheduled") or {}
    return (said.get("status"), said.get("reason")) == ("False", "SchedulerError")


def test_of_two_replicas_the_other_takes_over_a_start_that_is_half_done(
    new_lab: Callable[[Shape], Lab],
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(4),), replicas=2))
    cluster = Cluster(lab.kubeconfig)
    leader = lab.leader()
    assert leader is not None
    cluster.submit(job("running", 1, gpus=8))
    before = runs_whole(cluster, "default", "running", 1)
    with frozen(lab, f"kube-scheduler-{leader}"):
        cluster.submit(job("half", 2, gpus=8))
        half = pinned(cluster, "default", "half", 2)
        lab.kill(f"muster-{leader}")
        lab.kill(f"kube-scheduler-{leader}")
    cluster.submit(job("waiting", 2, gpus=8))
    wait_until(lambda: lab.leader() == 1 - leader, what="the other replica leads")
    after = runs_whole(cluster, "default", "half", 2)
    assert [(one.uid, one.node) for one in after] == [(one.uid, one.pinned_to) for one in half]
    waits(cluster, "default", "waiting", 2)
    assert [one.uid for one in bound(cluster.pods("default", "running"))] == [before[0].uid]
    delete_job(cluster, "default", "running")
    runs_whole(cluster, "default", "waiting", 2)
    # What was the leader comes back as a follower, and changes nothing.
    lab.start(f"muster-{leader}")
    lab.start(f"kube-scheduler-{leader}")
    cluster.submit(job("one-more", 1, gpus=8))
    waits(cluster, "default", "one-more", 1)  # all four nodes are in use
    stays(cluster, lambda: lab.leader() == 1 - leader, what="who took over leads on")


# --- the control plane --------------------------------------------------------------------------------------


def test_kube_scheduler_killed_between_pin_and_bind_binds_after_its_restart(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(job("train", 3, gpus=8), namespace=namespace)
        before = pinned(cluster, namespace, "train", 3)
        lab.kill("kube-scheduler-0")
    cluster.submit(job("later", 2), namespace=namespace)
    lab.start("kube-scheduler-0")
    # Its successor waits until the Lease has run out (15 s). A scheduler that is down is no evidence.
    after = runs_whole(cluster, namespace, "train", 3)
    assert [(one.uid, one.node) for one in after] == [(one.uid, one.pinned_to) for one in before]
    runs_whole(cluster, namespace, "later", 2)


def test_an_apiserver_that_is_away_for_30_seconds_costs_nothing_but_time(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    rack = {RACK: "rack-2"}
    cluster.submit(job("running", 1, gpus=8, node_selector=rack), namespace=namespace)
    before = runs_whole(cluster, namespace, "running", 1)
    cluster.submit(job("waiting", 4, gpus=8, node_selector=rack), namespace=namespace)
    waits(cluster, namespace, "waiting", 4)
    with frozen(lab, "kube-scheduler-0", leads=False):
        cluster.submit(job("half", 2, gpus=8, node_selector=rack), namespace=namespace)
        half = pinned(cluster, namespace, "half", 2)
        lease_lasts(lab, LASTS)  # its holder will not come to it
        lab.pause("kube-apiserver")
    try:
        time.sleep(30)
    finally:
        lab.resume("kube-apiserver")
    lab.wait_ready("kube-apiserver")
    back = time.time()

    def comes_back() -> bool:
        lab.revive()  # it ends when it can't renew its Lease, and the kubelet would start it again
        return lab.ready("kube-scheduler-0") and renewed(cluster) > back

    wait_until(comes_back, what="kube-scheduler leads again", also=lambda: cluster.get(LEASE))
    after = runs_whole(cluster, namespace, "half", 2)
    assert [(one.uid, one.node) for one in after] == [(one.uid, one.pinned_to) for one in half]
    assert [one.uid for one in bound(cluster.pods(namespace, "running"))] == [before[0].uid]
    waits(cluster, namespace, "waiting", 4)
    delete_job(cluster, namespace, "running")
    delete_job(cluster, namespace, "half")
    runs_whole(cluster, namespace, "waiting", 4)


@pytest.mark.parametrize(
    "faults",
    [
        "409 after 0 PATCH pods x3",
        "429 after 0 PATCH pods x3",
        "fail after 0 PATCH pods x3",
        "timeout after 0 PATCH pods x3",
        "lost after 0 PATCH pods x3",
        "409 after 0 POST gangs x1; timeout after 0 POST gangs x1; lost after 0 POST gangs x1",
        "409 after 0 PATCH gangs x1; 429 after 0 PATCH gangs x1; lost after 0 PATCH gangs x1",
        "timeout after 2 GET leases x3; fail after 0 POST events x2",
    ],
    ids=["409", "429", "500", "timeout", "lost", "gang-created", "gang-written", "lease-and-events"],
)
def test_what_the_api_refuses_or_does_not_answer_is_tried_again(
    lab: Lab, cluster: Cluster, namespace: str, faults: str
) -> None:
    lab.restart("muster-0", env={"MUSTER_FAULTS": faults})
    made = cluster.submit(job("train", 4, gpus=8, node_selector={RACK: "rack-3"}), namespace=namespace)
    pods = runs_whole(cluster, namespace, "train", 4)
    assert len(cluster.pods(namespace, "train")) == 4
    assert {one.owner["uid"] for one in pods if one.owner} == {made[0]["metadata"]["uid"]}


# --- a planned node -----------------------------------------------------------------------------------------


def delete_it(cluster: Cluster, namespace: str, node: str) -> None:  # noqa: ARG001
    cluster.delete(f"/api/v1/nodes/{node}")


def cordon_it(cluster: Cluster, namespace: str, node: str) -> None:  # noqa: ARG001
    cluster.cordon(node)


def taint_it(cluster: Cluster, namespace: str, node: str) -> None:  # noqa: ARG001
    taints = [{"key": "maintenance", "value": "", "effect": "NoSchedule"}]
    cluster.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})


def fill_it(cluster: Cluster, namespace: str, node: str) -> None:
    cluster.submit(foreign("stranger", node, gpus=8), namespace=namespace)


@pytest.mark.parametrize("trouble", [delete_it, cordon_it, taint_it, fill_it])
def test_trouble_with_a_planned_node_before_the_bind_moves_the_replica(
    lab: Lab, cluster: Cluster, namespace: str, trouble: Callable[[Cluster, str, str], None]
) -> None:
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(job("train", 2, gpus=8), namespace=namespace)
        moved, stays = pinned(cluster, namespace, "train", 2)
        cannot_bind(lab, cluster, moved, lambda: trouble(cluster, namespace, moved.pinned_to))
    pods = runs_whole(cluster, namespace, "train", 2)
    assert moved.pinned_to not in {one.node for one in pods}
    assert stays.uid in {one.uid for one in pods}
    status = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/train")["status"]
    assert not status.get("failed"), "undoing a pin is no failure of the Job's"


def test_a_pin_that_something_unmodelled_makes_impossible_is_undone_once(
    cluster: Cluster, namespace: str
) -> None:
    """Another pod's anti-affinity: the planner prefers that node, since it is in use."""
    capacity = on_node("node-12", "node-13")
    cluster.submit(foreign("lonely", "node-12", gpus=4, affinity=repels("train")), namespace=namespace)
    began = time.monotonic()
    cluster.submit(
        job("train", 1, gpus=4, affinity=capacity, labels={"app": "train"}),
        namespace=namespace,
    )
    pods = wait_until(
        lambda: bound(cluster.pods(namespace, "train"), 1),
        what="train runs",
        also=lambda: show(cluster.pods(namespace)),
    )
    assert [one.node for one in pods] == ["node-13"]
    # One pod refused, one that runs; where a successor takes longer than the node is left out, it may be tried again.
    most = 1 + max(1, refusals(time.monotonic() - began))
    wait_until(
        lambda: {pods[0].name} < made(cluster, namespace, "train"),
        what="the Job's Events tell of a pod before it",
        also=lambda: str(made(cluster, namespace, "train")),
    )
    assert len(made(cluster, namespace, "train")) <= most


def test_pins_that_fail_everywhere_are_no_livelock(cluster: Cluster, namespace: str) -> None:
    cluster.submit(foreign("lonely", "node-12", gpus=4, affinity=repels("train")), namespace=namespace)
    began = time.monotonic()
    cluster.submit(
        job("train", 1, gpus=4, affinity=on_node("node-12"), labels={"app": "train"}), namespace=namespace
    )

    def incarnations() -> int:
        return len(made(cluster, namespace, "train"))

    wait_until(lambda: incarnations() >= 2, what="the refused pod has come back")
    wait_until(
        lambda: in_state(cluster, namespace, "job-train", "Waiting"),
        what="the job waits and says so",
        also=lambda: str(cluster.gangs(namespace)),
    )
    holds_for(
        lambda: incarnations() <= 1 + refusals(time.monotonic() - began),
        seconds=15,
        what="it is tried again seldom, and ever more seldom",
    )
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/lonely")
    pods = wait_until(
        lambda: bound(cluster.pods(namespace, "train"), 1),
        within=180,
        what="train runs when the obstacle is gone and the time is over",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    assert [one.node for one in pods] == ["node-12"]


def repels(app: str) -> Json:
    """An affinity of a pod that keeps pods with this label `app` off its node."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.ends("EndedStartFailed")
def test_a_start_that_cannot_complete_goes_back_to_the_gate_whole(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-12", "node-13")
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(job("train", 2, gpus=8, affinity=capacity), namespace=namespace)
        first, second = pinned(cluster, namespace, "train", 2)
        cannot_bind(lab, cluster, first, lambda: taint_it(cluster, namespace, first.pinned_to))
    wait_until(
        lambda: [one.uid for one in bound(cluster.pods(namespace, "train"))] == [second.uid],
        what="one is bound and the other has no place",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    with configured(lab, gang={"timeout": "5s"}):
        wait_until(
            lambda: len(gated(cluster.pods(namespace, "train"))) == 2 and not bound(cluster.pods(namespace)),
            what="after the timeout both wait behind the gate, and neither holds a GPU",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
        waits(cluster, namespace, "train", 2)
    cluster.submit(job("other", 1, gpus=8, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "other", 1)
    cluster.patch(f"/api/v1/nodes/{first.pinned_to}", {"spec": {"taints": None}})
    delete_job(cluster, namespace, "other")
    runs_whole(cluster, namespace, "train", 2)
    status = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/train")["status"]
    assert not status.get("failed"), "going back to the gate is no failure of the Job's"


def test_a_bare_pod_whose_planned_node_is_cordoned_says_that_it_is_stuck_and_is_not_ended(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(pod("alone", gpus=8), namespace=namespace)
        one = wait_until(
            lambda: (found := cluster.pod(namespace, "alone")) and found.pinned_to and found,
            what="alone is pinned",
        )
        cannot_bind(lab, cluster, one, lambda: cordon_it(cluster, namespace, one.pinned_to))
    status = wait_until(
        lambda: found if (found := gang(cluster, namespace, "pod-alone")).get("reason") == "Stuck" else {},
        what="its Gang says Stuck",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    assert status["message"] == (
        f"pod alone is pinned and cannot start: node {one.pinned_to} is unschedulable; it has no owner that would "
        "create it again, so delete and recreate it, or repair the node"
    )
    wait_until(
        lambda: any(
            sentence.startswith("Stuck: pod alone") for sentence in said(cluster, namespace, "alone")
        ),
        what="an Event on the pod says so, too",
        also=lambda: str(said(cluster, namespace, "alone")),
    )
    again = cluster.pod(namespace, "alone")
    assert again is not None
    assert again.uid == one.uid
    cluster.cordon(one.pinned_to, False)
    wait_until(
        lambda: bound(cluster.pods(namespace), 1),
        what="it starts when the node is mended",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def test_a_bare_pod_that_kube_scheduler_refuses_gives_its_node_to_others_and_starts_when_it_can(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-14")
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(pod("alone", gpus=8, affinity=capacity), namespace=namespace)
        one = wait_until(
            lambda: (found := cluster.pod(namespace, "alone")) and found.pinned_to and found,
            what="alone is pinned",
        )
        cannot_bind(lab, cluster, one, lambda: taint_it(cluster, namespace, one.pinned_to))
    bears_it = [{"operator": "Exists"}]
    cluster.submit(job("other", 1, gpus=8, affinity=capacity, tolerations=bears_it), namespace=namespace)
    runs_whole(cluster, namespace, "other", 1)
    delete_job(cluster, namespace, "other")
    cluster.patch("/api/v1/nodes/node-14", {"spec": {"taints": None}})
    found = wait_until(
        lambda: bound([p for p in cluster.pods(namespace) if p.name == "alone"], 1),
        what="it starts when its node takes it",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    assert [p.uid for p in found] == [one.uid]


# --- priority and gates -------------------------------------------------------------------------------------


def test_a_higher_priority_at_a_full_node_ends_nobody_even_without_its_gate(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-14")
    urgent = f"urgent-{namespace}"
    cluster.submit(priority_class(urgent, 100_000))
    try:
        cluster.submit(job("quiet", 2, gpus=4, affinity=capacity), namespace=namespace)
        before = {one.uid for one in runs_whole(cluster, namespace, "quiet", 2)}
        cluster.submit(
            pod("loud", gpus=8, affinity=capacity, priority=urgent),
            job("loud-too", 1, gpus=8, affinity=capacity, priority=urgent),
            namespace=namespace,
        )
        waits(cluster, namespace, "loud-too", 1)
        take_gate_off(lab, namespace, "loud")
        stays(
            cluster,
            lambda: {one.uid for one in bound(cluster.pods(namespace, "quiet"))} == before,
            what="nothing of the running job is ended",
        )
        delete_job(cluster, namespace, "quiet")
        wait_until(
            lambda: bound((p for p in cluster.pods(namespace) if p.name.startswith("loud")), 1),
            what="one of the urgent ones follows",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
        )
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{urgent}")


def take_gate_off(lab: Lab, namespace: str, name: str, *impersonation: str) -> str:
    patch = json.dumps({"spec": {"schedulingGates": [{"$patch": "delete", "name": "muster.dev/queue"}]}})
    return lab.kubectl(
        *("-n", namespace, "patch", "pod", name, "--type=strategic", "-p", patch),
        *(impersonation or BREAK_GLASS),
    )


def test_a_gate_taken_off_by_hand_does_not_jump_the_queue(lab: Lab, cluster: Cluster, namespace: str) -> None:
    capacity = on_node("node-14", "node-15")
    cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 1)
    cluster.submit(job("train", 2, gpus=8, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "train", 2)
    first = cluster.pods(namespace, "train")[0]
    with pytest.raises(LabError, match="is taken off by Muster when the whole job starts, not by somebody"):
        take_gate_off(lab, namespace, first.name, "--as=somebody", "--as-group=system:masters")
    take_gate_off(lab, namespace, first.name)
    # One node is free, and the pod fits on it.
    stays(
        cluster,
        lambda: bound(cluster.pods(namespace, "train")) == [],
        what="the pod without a gate does not bind",
    )
    assert len(cluster.pods(namespace, "train")) == 2
    delete_job(cluster, namespace, "holder")
    pods = runs_whole(cluster, namespace, "train", 2)
    assert first.uid in {one.uid for one in pods}


ADMISSION = "/apis/admissionregistration.k8s.io/v1/"
GATE_ADDED = "mutatingadmissionpolicybindings/muster-gate"
GATE_DEMANDED = "validatingadmissionpolicybindings/muster-gate"


@contextlib.contextmanager
def without(cluster: Cluster, *paths: str) -> Iterator[None]:
    """Objects of the admission API are gone inside of the block, and back after it."""
    there = [cluster.get(ADMISSION + path) for path in paths]
    for path in paths:
        cluster.delete(ADMISSION + path)
    try:
        yield
    finally:
        for path, found in zip(paths, there, strict=True):
            kept = {key: found["metadata"][key] for key in ("name", "labels", "annotations")}
            cluster.request("POST", ADMISSION + path.split("/")[0], found | {"metadata": kept})
        wait_until(lambda: comes_back_gated(cluster), what="pods get the gate again")


def comes_back_gated(cluster: Cluster) -> bool:
    probe = cluster.submit(pod("probe"), dry_run=True)[0]
    return Pod(probe).gated


def test_pods_are_refused_while_nothing_adds_the_gate_and_come_when_it_is_back(
    cluster: Cluster, namespace: str
) -> None:
    with without(cluster, GATE_ADDED):
        wait_until(
            lambda: "the gate muster.dev/queue, which the admission of Muster adds" in refusal(cluster),
            what="a pod without the gate is refused, with a sentence",
            also=lambda: refusal(cluster),
        )
        cluster.submit(job("train", 2, gpus=8), namespace=namespace)
        wait_until(
            lambda: "FailedCreate" in {one["reason"] for one in cluster.events(namespace, "train")},
            what="its Job has tried to create one",
        )
        assert cluster.pods(namespace) == []
    # The Job controller's pause doubles while it is refused.
    runs_whole(cluster, namespace, "train", 2, within=240)


def refusal(cluster: Cluster) -> str:
    try:
        cluster.submit(pod("probe"), dry_run=True)
    except Exception as refused:
        return str(refused)
    return ""


def test_a_pod_created_without_a_gate_is_counted_said_and_still_does_not_jump_the_queue(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-14", "node-15")
    cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 1)
    with without(cluster, GATE_ADDED, GATE_DEMANDED):
        wait_until(
            lambda: not Pod(cluster.submit(pod("probe"), dry_run=True)[0]).gated,
            what="the policies are out of force",
        )
        cluster.submit(
            pod("stray", gpus=8, affinity=capacity, job="pair", roles="worker=2"), namespace=namespace
        )
    wait_until(
        lambda: any(
            sentence.startswith("CreatedUngated: was created without the scheduling gate muster.dev/queue")
            for sentence in said(cluster, namespace, "stray")
        ),
        what="an Event on the pod says that it was created without the gate",
        also=lambda: str(said(cluster, namespace, "stray")),
    )
    wait_until(lambda: metric(lab, "muster_ungated_pods") == 1, what="it is counted")
    # A node is free and it fits on it, but its gang is not whole.
    stays(
        cluster,
        lambda: (one := cluster.pod(namespace, "stray")) is not None and not one.node and not one.deleted,
        what="it is neither bound nor ended",
    )
    cluster.submit(
        pod("second", gpus=8, affinity=capacity, job="pair", roles="worker=2"), namespace=namespace
    )
    stays(cluster, lambda: not bound(cluster.pods(namespace, "pair")), what="one node for the two")
    delete_job(cluster, namespace, "holder")
    wait_until(
        lambda: bound(cluster.pods(namespace, "pair"), 2),
        what="both start when both fit",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def metric(lab: Lab, name: str) -> float:
    import httpx

    text = httpx.get(f"{lab.service_url()}/metrics", timeout=60, trust_env=False).text
    found = re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    assert found, f"no {name} in\n{text}"
    return float(found[1])


# --- members and owners go ----------------------------------------------------------------------------------


def test_a_member_deleted_while_it_waits_comes_back_and_the_job_stays_whole(
    cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-10", "node-11")
    cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 1)
    cluster.submit(job("train", 2, gpus=8, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "train", 2)
    submitted = gang(cluster, namespace, "job-train")["submitted"]
    first = cluster.pods(namespace, "train")[0]
    cluster.delete_pod(first)
    wait_until(
        lambda: (
            (found := gated(cluster.pods(namespace, "train")))
            and len(found) == 2
            and first.uid not in {one.uid for one in found}
        ),
        what="the Job controller has made it again (after its back-off of 10 s)",
        also=lambda: show(cluster.pods(namespace)),
    )
    delete_job(cluster, namespace, "holder")
    runs_whole(cluster, namespace, "train", 2)
    assert gang(cluster, namespace, "job-train")["submitted"] == submitted, "its place in the queue is kept"


@pytest.mark.parametrize("when", ["planned", "bound"])
def test_a_member_deleted_while_it_is_planned_or_bound_gets_its_place_back_first(
    lab: Lab, cluster: Cluster, namespace: str, when: str
) -> None:
    capacity = on_node("node-10", "node-11")
    if when == "planned":
        with frozen(lab, "kube-scheduler-0"):
            cluster.submit(job("train", 2, gpus=8, affinity=capacity), namespace=namespace)
            gone = pinned(cluster, namespace, "train", 2)[0]
            cluster.delete_pod(gone)
    else:
        cluster.submit(job("train", 2, gpus=8, affinity=capacity), namespace=namespace)
        gone = runs_whole(cluster, namespace, "train", 2)[0]
        cluster.delete_pod(gone)
    # Somebody who would like the place that is free for the moment.
    cluster.submit(job("greedy", 1, gpus=8, affinity=capacity), namespace=namespace)
    wait_until(
        lambda: (
            (found := bound(cluster.pods(namespace, "train"), 2))
            and gone.uid not in {one.uid for one in found}
        ),
        what="train is whole again",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    waits(cluster, namespace, "greedy", 1)


@pytest.mark.parametrize("when", ["waiting", "planned", "bound"])
def test_an_owner_that_is_deleted_leaves_nothing_behind(
    lab: Lab, cluster: Cluster, namespace: str, when: str
) -> None:
    capacity = on_node("node-10", "node-11")
    if when == "waiting":
        cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
        runs_whole(cluster, namespace, "holder", 1)
    train = job("train", 2, gpus=8, affinity=capacity)
    if when == "planned":
        with frozen(lab, "kube-scheduler-0"):
            cluster.submit(train, namespace=namespace)
            pinned(cluster, namespace, "train", 2)
            delete_job(cluster, namespace, "train")
    else:
        cluster.submit(train, namespace=namespace)
        if when == "bound":
            runs_whole(cluster, namespace, "train", 2)
        else:
            waits(cluster, namespace, "train", 2)
        delete_job(cluster, namespace, "train")
    wait_until(
        lambda: not cluster.pods(namespace, "train") and not gang(cluster, namespace, "job-train"),
        what="its pods and its Gang are gone",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    if when == "waiting":
        delete_job(cluster, namespace, "holder")
    cluster.submit(job("next", 2, gpus=8, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "next", 2)


# --- the verbs ----------------------------------------------------------------------------------------------


def test_duplicate_and_late_calls_of_the_verbs_get_the_same_answer(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    import httpx

    names = lab.nodes
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(job("train", 1, gpus=8), namespace=namespace)
        one = pinned(cluster, namespace, "train", 1)[0]

        def ask() -> Sequence[str]:
            body = {"Pod": one.raw, "Nodes": None, "NodeNames": names}
            answer = httpx.post(f"{lab.extender_url()}/filter", json=body, timeout=60, trust_env=False).json()
            return [*answer["NodeNames"], answer["Error"]]

        assert [ask() for _ in range(3)] == [[one.pinned_to, ""]] * 3
    runs_whole(cluster, namespace, "train", 1)
    delete_job(cluster, namespace, "train")
    wait_until(lambda: not cluster.pods(namespace), what="train is gone")
    # Too late: it has no plan any more, and passes nowhere.
    wait_until(lambda: ask() == [""], what="a late call for a pod that is gone passes nowhere")
