"""What keeps the queue honest where the cluster's own scheduler binds (`binder: cluster`): admission alone.

The objects are those of test_hostile_objects.py and test_no_way_round.py, and what a tenant writes who knows by which
mark Muster's pods are known there. Each is refused, or waits behind the gate, and another tenant's gang starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from e2e.cluster import Cluster, Pod, Refused
from e2e.elastic import shared_by
from e2e.lab import Lab, NodeGroup, Shape
from e2e.labs import own_lab
from e2e.scenario import bound, delete_job, gated, job, planned_after, pod, runs_whole, show, wait_until
from e2e.test_hostile_objects import (
    hurts_nobody_else,
    test_a_foreign_pod_bound_by_hand_fills_its_node_and_no_other,
    test_a_job_that_runs_for_thirty_thousand_years_has_no_expected_end,
    test_owners_that_own_themselves_hang_nobody,
    test_twenty_thousand_roles_are_refused_at_admission,
)
from e2e.test_no_way_round import (
    NO_TURN,
    NODES,
    SOON,
    Attack,
    daemon_set,
    of_a_daemon_set,
    test_nobody_farms_a_place_in_the_queue_with_a_job_that_is_not_whole,
    that_carries_a_plan,
    that_says_released,
    with_a_forged_gang,
    with_a_forged_owner,
    with_a_pin,
    with_strange_names,
)

__all__ = [  # these scenarios are run here as they are, on this module's lab
    "test_a_foreign_pod_bound_by_hand_fills_its_node_and_no_other",
    "test_a_job_that_runs_for_thirty_thousand_years_has_no_expected_end",
    "test_nobody_farms_a_place_in_the_queue_with_a_job_that_is_not_whole",
    "test_owners_that_own_themselves_hang_nobody",
    "test_twenty_thousand_roles_are_refused_at_admission",
]
RUNS_ON_KIND = True
pytestmark = pytest.mark.lab

MARK = "muster.dev/scheduler"
MARKED = {"scheduler": "default-scheduler", "labels": {MARK: "muster"}}
"""A pod that says itself what admission makes of one of ours."""


@pytest.fixture(scope="module", name="_session_lab")
def binder_lab() -> Iterator[Lab]:
    shape = Shape(groups=(NodeGroup(16),), racks=4, set_values=("binder=cluster",))
    with own_lab("binder-hostile", shape) as lab:
        yield lab


def test_no_number_of_one_tenant_keeps_the_gang_of_another_from_starting(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    """Under one profile: who binds is no matter of numbers."""
    with shared_by(lab, "afs-l"):
        hurts_nobody_else(lab, cluster, namespace, new_namespace())


# --- what is written on pods --------------------------------------------------------------------------------


def sly(name: str, **what: object) -> dict[str, object]:
    return pod(name, gpus=8, **{**MARKED, **NO_TURN, **what})


def with_the_mark(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(*(sly(f"marked-{number}") for number in range(2)), namespace=namespace)


def with_the_mark_and_a_gate_of_its_own(cluster: Cluster, namespace: str, _: Pod) -> None:
    """Which whoever made it may take off again."""
    gate = {"schedulingGates": [{"name": "example.com/mine"}]}
    cluster.submit(sly("gated", **gate), namespace=namespace)
    mine = {"schedulingGates": [{"$patch": "delete", "name": "example.com/mine"}]}
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/gated", {"spec": mine}, kind="strategic-merge")


def with_the_mark_and_a_node(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(sly("on-a-node", nodeName=NODES[0]), namespace=namespace)


def of_a_daemon_set_with_the_mark(cluster: Cluster, namespace: str, _: Pod) -> None:
    made = daemon_set()
    template = made["spec"]["template"]
    template["spec"]["schedulerName"] = "default-scheduler"
    template["metadata"]["labels"][MARK] = "muster"
    cluster.submit(made, namespace=namespace)


def that_takes_its_gate_off(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(pod("ungated", gpus=8, **NO_TURN), namespace=namespace)
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/ungated", {"spec": {"schedulingGates": None}})


def that_takes_its_mark_off(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(pod("unmarked", gpus=8, **NO_TURN), namespace=namespace)
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/unmarked", {"metadata": {"labels": {MARK: None}}})


def that_is_bound_by_hand(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(pod("by-hand", gpus=8, **NO_TURN), namespace=namespace)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "by-hand"}}
    target = {"apiVersion": "v1", "kind": "Node", "name": NODES[0]}
    where = f"/api/v1/namespaces/{namespace}/pods/by-hand/binding"
    cluster.request("POST", where, {**binding, "target": target})


def that_notes_its_release_later(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(pod("later", gpus=8, **NO_TURN), namespace=namespace)
    notes = {"metadata": {"annotations": {"muster.dev/released": "true"}}}
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/later", notes)


def with_a_gang_that_says_it_starts(cluster: Cluster, namespace: str, _: Pod) -> None:
    cluster.submit(pod("forged", gpus=8, **NO_TURN), namespace=namespace)
    wait_until(lambda: cluster.gangs(namespace).get("sly"), what="the job has its Gang")
    where = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/gangs/sly"
    cluster.patch(where, {"status": {"state": "Starting", "submitted": "2020-01-01T00:00:00Z"}})


WAITS = ""
ATTACKS: Mapping[Attack, str] = {
    of_a_daemon_set: "Muster does not schedule the pods of a DaemonSet",
    of_a_daemon_set_with_the_mark: "Muster does not schedule the pods of a DaemonSet",
    with_a_pin: "a node affinity by metadata.name (matchFields) pins the pod to one node",
    with_a_forged_owner: "a node affinity by metadata.name (matchFields) pins the pod to one node",
    that_says_released: "annotation muster.dev/released: expected none",  # by whichever of two policies is first
    that_notes_its_release_later: "annotation muster.dev/released: expected none of yours",
    that_carries_a_plan: "a node affinity by metadata.name (matchFields) pins the pod to one node",
    with_a_forged_gang: "a node affinity by metadata.name (matchFields) pins the pod to one node",
    with_a_gang_that_says_it_starts: "only Muster writes and deletes it",
    with_strange_names: WAITS,
    with_the_mark: WAITS,
    with_the_mark_and_a_gate_of_its_own: WAITS,
    with_the_mark_and_a_node: "spec.nodeName is set (node-00): no scheduler is asked",
    that_takes_its_gate_off: "the gate muster.dev/queue is taken off by Muster when the whole job starts",
    that_takes_its_mark_off: f"label {MARK} decides which job the pod belongs to and is frozen",
    that_is_bound_by_hand: "schedulingGates",
}
"""What the API server answers, or that it takes the object, and its pods wait behind the gate."""


@pytest.mark.parametrize("profile", ["fifo", "afs-l"])
def test_what_would_go_past_the_queue_is_refused_or_waits_and_others_start(
    lab: Lab, cluster: Cluster, new_namespace: Callable[[], str], profile: str
) -> None:
    tenant = new_namespace()
    answers = {}
    with shared_by(lab, profile):
        cluster.submit(job("victim", 2, gpus=1), namespace=tenant)
        victim = runs_whole(cluster, tenant, "victim", 2)[0]
        for attack, answer in ATTACKS.items():
            attacker, name = new_namespace(), f"after-{attack.__name__.replace('_', '-')}"
            try:
                attack(cluster, attacker, victim)
            except Refused as refused:
                answers[attack] = answer if answer and answer in str(refused) else str(refused)
            else:
                answers[attack] = WAITS
            cluster.submit(job(name, 2, gpus=8), namespace=tenant)
            runs_whole(cluster, tenant, name, 2, within=SOON)
            planned_after(cluster, tenant)
            there = cluster.pods(attacker)
            assert len(gated(there)) == len(there), f"{attack.__name__}: {show(there)}"
            delete_job(cluster, tenant, name)
        assert answers == ATTACKS
        assert len(bound(cluster.pods(tenant, "victim"))) == 2
