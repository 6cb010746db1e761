"""Numbers and sizes that no cluster has: each object stops nobody but itself (core/bounds.py).

After each of them another tenant's gang starts soon, nothing of the attacker's is bound, and nothing had to be
put aside: that Muster could not go on would be in its log, which the lab judges. Objects about pins, owners and paths
are in test_no_way_round.py; both with `binder: cluster`, in test_binder_hostile.py; what is drawn at random, in
tests/test_anything.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.cluster import Cluster, Json, Refused
from e2e.elastic import shared_by
from e2e.lab import Lab
from e2e.scenario import bound, in_state, job, on_node, pod, show, wait_until, waits_because
from e2e.test_words import metrics

pytestmark = pytest.mark.lab

SOON = 60.0
"""Seconds within which a gang of another tenant starts, whatever else is there: a slow machine's, and less than any
after which Muster gives up on what does not start (gang.timeout, 2 min)."""


def asking(name: str, **requests: str) -> Json:
    """A pod of two containers that ask for this each."""
    found = pod(name, job=name)
    (first,) = found["spec"]["containers"]
    first["resources"] = {"requests": requests, "limits": requests}
    found["spec"]["containers"].append({**first, "name": "second"})
    return found


def noted(name: str, **notes: str) -> Json:
    return pod(
        name,
        job=name,
        annotations={f"muster.dev/{key.replace('_', '-')}": text for key, text in notes.items()},
    )


def of_billions(name: str) -> list[Json]:
    """A Job of as many pods as the API takes; a quota lets its controller make one."""
    quota: Json = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": {"count/pods": "1"}},
    }
    return [quota, job(name, 2_147_483_647, indexed=False)]


def by_label(name: str) -> list[Json]:
    return [job(name, 1, labels={"jobset.sigs.k8s.io/replicatedjob-replicas": "9" * 63})]


def of_no_volume() -> list[Json]:
    """As many as would take every GPU: each mounts a claim that nobody has made."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "dtaa"}}
    return [pod(f"typo-{i}", gpus=8, job=f"typo-{i}", volumes=[volume]) for i in range(40)]


HOSTILE: dict[str, Callable[[], list[Json]]] = {
    "cpu 10P": lambda: [pod("cpu", job="cpu", cpu="10P")],
    "two containers of 7Ei": lambda: [asking("memory", memory="7Ei", cpu="1")],
    "GPUs 9e18": lambda: [pod("gpus", job="gpus", gpus=9_000_000_000_000_000_000)],
    "ephemeral storage 9Ei": lambda: [asking("disk", **{"ephemeral-storage": "9Ei"})],
    "a size of 63 nines": lambda: by_label("nines"),
    "a role for each of 260 pods": lambda: [
        pod(f"role-{i}", job="roles", role=f"r{i}", schedulingGates=[{"name": "example.com/all-there"}])
        for i in range(260)
    ],
    "200 topology keys": lambda: [
        pod(f"key-{i}", job=f"key-{i}", annotations={"muster.dev/topology-required": f"example.com/key-{i}"})
        for i in range(200)
    ],
    "work for 30,000 years that never starts": lambda: [
        pod(
            "years",
            job="years",
            annotations={"muster.dev/remaining-work": "999999999999", "muster.dev/roles": "worker=9"},
        )
    ],
    "forty pods of a claim that does not exist": of_no_volume,
    "a job of two billion pods": lambda: of_billions("billions"),
}


def starts(cluster: Cluster, namespace: str, name: str, after: str) -> None:
    """Another tenant's gang starts soon; then it goes."""
    cluster.submit(job(name, 2, gpus=4), namespace=namespace)
    wait_until(
        lambda: bound(cluster.pods(namespace, name), 2),
        within=SOON,
        what=f"{name} starts after {after}",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    cluster.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", propagationPolicy="Background")
    wait_until(lambda: not cluster.pods(namespace, name), what=f"{name} is gone")


def test_twenty_thousand_roles_are_refused_at_admission(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(Refused, match="muster-annotations"):
        cluster.submit(
            noted("roles", role="r0", roles=",".join(f"r{i}=1" for i in range(20_000))), namespace=namespace
        )


@pytest.mark.parametrize("profile", ["fifo", "max-min", "afs-l"])
def test_no_number_of_one_tenant_keeps_the_gang_of_another_from_starting(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    new_namespace: Callable[[], str],
    profile: str,
) -> None:
    with shared_by(lab, profile):
        hurts_nobody_else(lab, cluster, namespace, new_namespace())


def hurts_nobody_else(lab: Lab, cluster: Cluster, namespace: str, attacker: str) -> None:
    """After each of HOSTILE another tenant's gang starts; nothing of it runs, and nothing was put aside."""
    for number, (what, objects) in enumerate(HOSTILE.items()):
        for each in objects():
            cluster.submit(each, namespace=attacker)
        wait_until(lambda: cluster.pods(attacker), what=f"pods of {what} are there")
        starts(cluster, namespace, f"after-{number}", what)
        assert bound(cluster.pods(attacker)) == [], what
    counted = metrics(lab)
    assert in_state(cluster, attacker, "cpu", "Invalid")["message"] == (
        "pod cpu: requests of cpu (millicores): expected at most 140 737 488 355 328 (128 TiB in bytes), "
        "found 10000000000000000000"
    )
    assert {name: value for name, value in counted.items() if "quarantined" in name and value} == {}
    assert counted["muster_cycles_failed_total"] == 0.0


def test_a_foreign_pod_bound_by_hand_fills_its_node_and_no_other(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    attacker, node = new_namespace(), lab.nodes[0]
    cluster.submit(pod("by-hand", scheduler=None, cpu="10P", nodeName=node), namespace=attacker)
    wait_until(lambda: bound(cluster.pods(attacker)), what="it is where it was bound to")
    starts(cluster, namespace, "after", "a foreign pod with cpu 10P")
    cluster.submit(job("here", 1, affinity=on_node(node)), namespace=namespace)
    waits_because(cluster, namespace, "job-here", "needs 1 GPU")


def test_a_job_that_runs_for_thirty_thousand_years_has_no_expected_end(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    attacker = new_namespace()
    cluster.submit(noted("years", remaining_work="999999999999"), namespace=attacker)
    wait_until(lambda: bound(cluster.pods(attacker), 1), what="it runs, as its turn has come")
    starts(cluster, namespace, "after", "a job of 30,000 years")
    assert metrics(lab)["muster_cycles_failed_total"] == 0.0


def test_owners_that_own_themselves_hang_nobody(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    attacker = new_namespace()
    (made,) = cluster.submit(job("round", 1, job_spec={"suspend": True}), namespace=attacker)
    path = f"/apis/batch/v1/namespaces/{attacker}/jobs/round"
    itself = {"apiVersion": "batch/v1", "kind": "Job", "name": "round", "uid": made["metadata"]["uid"]}
    cluster.patch(path, {"metadata": {"ownerReferences": [{**itself, "controller": True}]}})
    cluster.patch(path, {"spec": {"suspend": False}})
    wait_until(lambda: bound(cluster.pods(attacker), 1), what="the Job that owns itself runs")
    starts(cluster, namespace, "after", "a Job that owns itself")
    assert metrics(lab)["muster_cycles_failed_total"] == 0.0
