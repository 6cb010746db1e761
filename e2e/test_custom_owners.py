"""Groups that pods name, and owners that no real operator could have: the CRDs in crds/ have no schema.

The operators are not here, nor played where they are: what their jobs do is in test_operators*.py. PodGroups of
scheduler-plugins have no operator: whoever makes the pods makes the group, too.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterable, Iterator

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.lab import Lab
from e2e.operators import custom, owned, pytorch_job, pytorch_pod, serve, withdraw
from e2e.scenario import (
    bound,
    configured,
    gated,
    in_state,
    job,
    pod,
    runs_whole,
    show,
    stays,
    wait_until,
)
from e2e.test_words import metrics

pytestmark = pytest.mark.lab

SLOWLY = 0.7
"""Seconds between the pods of an operator: longer than Muster needs to plan what is there."""
JUST_AFTER = 3.0
"""Seconds after its pods in which a PodGroup comes in time: less than the 5 for which they wait for it, as their
creation is told in whole seconds."""


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Cluster]]:
    """Definitions that this module made, by name; they go when it ends."""
    found: dict[str, Cluster] = {}
    yield found
    for name, cluster in found.items():
        withdraw(cluster, name)


@pytest.fixture
def patient(lab: Lab) -> Iterator[None]:
    """However slowly these operators are played, Muster takes them to be at work."""
    with configured(lab, gang={"ownerPause": "1h"}):
        yield


@pytest.fixture(autouse=True)
def definitions(lab: Lab, cluster: Cluster, made: dict[str, Cluster]) -> None:
    """The cluster serves all of them, and Muster watches the groups among them."""
    made |= dict.fromkeys(serve(cluster), cluster)
    wait_until(
        lambda: "podgroups of scheduling.x-k8s.io/v1alpha1 are served" in lab.log("muster-0").read_text(),
        what="muster watches the PodGroups of scheduler-plugins",
    )


# --- playing operator ---------------------------------------------------------------------------------------


def create_slowly(cluster: Cluster, namespace: str, manifests: Iterable[Json]) -> None:
    for manifest in manifests:
        cluster.submit(manifest, namespace=namespace)
        time.sleep(SLOWLY)


def runs(cluster: Cluster, namespace: str, name: str, pods: int) -> Json:
    """The status of the Gang once it runs and so many pods of the namespace are bound."""
    wait_until(
        lambda: bound(cluster.pods(namespace), pods),
        what=f"{pods} pods are bound",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    return wait_until(
        lambda: in_state(cluster, namespace, name, "Running"),
        what=f"the Gang {name} is Running",
        also=lambda: str(cluster.gangs(namespace)),
    )


def waits_incomplete(cluster: Cluster, namespace: str, name: str, pods: int, message: str) -> None:
    """It says what is missing, and for a while nothing of it starts."""
    wait_until(
        lambda: in_state(cluster, namespace, name, "Incomplete").get("message") == message,
        what=f"{name} is Incomplete: {message}",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    stays(
        cluster,
        lambda: len(gated(cluster.pods(namespace))) == pods,
        what=f"all {pods} pods wait behind the gate",
    )


# --- owners -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "spec",
    [
        {"pytorchReplicaSpecs": None},
        {"pytorchReplicaSpecs": {"Master": None, "Worker": {"replicas": "three"}}},
        {},
    ],
    ids=["nothing", "no-numbers", "empty"],
)
def test_a_custom_owner_that_makes_no_sense_hurts_nobody_else(
    cluster: Cluster, namespace: str, spec: Json
) -> None:
    """Played, since the real definition's schema refuses such a spec; that of another version, or one that somebody
    wrote without a schema, does not."""
    strange = cluster.submit(custom("PyTorchJob", "strange", spec), namespace=namespace)[0]
    cluster.submit(pytorch_pod(strange, "worker", 0), namespace=namespace)
    wait_until(
        lambda: bound(cluster.pods(namespace), 1),
        what="what declares no size starts as it comes",
        also=lambda: str(cluster.gangs(namespace)),
    )
    owner = cluster.submit(pytorch_job("bert", workers=1), namespace=namespace)[0]
    create_slowly(cluster, namespace, [pytorch_pod(owner, "master", 0)])
    waits_incomplete(cluster, namespace, "kubeflow-bert", 1, "1 of 2 pods exist; missing: 1 worker")


def test_owners_and_claims_whose_names_lead_elsewhere_are_asked_for_nowhere_and_keep_nobody_waiting(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Nobody's operator makes such pods: their author does."""
    names = [
        ("../healthz", "PyTorchJob", "x"),
        ("kubeflow.org/v1", "PyTorchJob", "../../../../../../healthz"),
    ]
    for number, (version, kind, name) in enumerate(names):
        owner = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": str(uuid.uuid4())}}
        cluster.submit(owned(pod(f"strange-{number}"), owner), namespace=namespace)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "../../../../../healthz"}}
    cluster.submit(pod("claims", volumes=[claim]), namespace=namespace)
    cluster.submit(job("bert", 2), namespace=namespace)
    runs_whole(cluster, namespace, "bert", 2)

    def log() -> str:
        return lab.log("muster-0").read_text()

    wait_until(
        lambda: "is not read: expected the name of an object, found '../../../../../../healthz'" in log(),
        what="Muster's log says that one is not read",
    )
    assert "PyTorchJob x is not read" not in log(), "of a kind that nobody knows nothing is asked"


# --- pod groups ---------------------------------------------------------------------------------------------


def grouped(name: str, group: str, **what: object) -> Json:
    return pod(name, labels={"scheduling.x-k8s.io/pod-group": group}, **what)


@pytest.mark.usefixtures("patient")
def test_pods_that_name_a_podgroup_start_when_its_min_member_exists(cluster: Cluster, namespace: str) -> None:
    cluster.submit(custom("PodGroup", "mpi", {"minMember": 3}), namespace=namespace)
    create_slowly(cluster, namespace, [grouped(f"mpi-{i}", "mpi") for i in range(2)])
    waits_incomplete(cluster, namespace, "podgroup-mpi", 2, "2 of 3 pods exist; missing: 1 worker")
    cluster.submit(grouped("mpi-2", "mpi"), namespace=namespace)
    runs(cluster, namespace, "podgroup-mpi", 3)


@pytest.mark.usefixtures("patient")
def test_a_podgroup_that_comes_just_after_its_pods_counts_too(cluster: Cluster, namespace: str) -> None:
    for group in (f"mpi-{number}" for number in itertools.count()):
        began = time.time()
        pods = cluster.submit(*(grouped(f"{group}-{i}", group) for i in range(2)), namespace=namespace)
        time.sleep(SLOWLY)
        cluster.submit(custom("PodGroup", group, {"minMember": 3}), namespace=namespace)
        if time.time() - began < JUST_AFTER:
            break
        for one in pods:  # this machine stood still meanwhile: that was no moment
            cluster.delete_pod(Pod(one), grace=0)
    waits_incomplete(cluster, namespace, f"podgroup-{group}", 2, "2 of 3 pods exist; missing: 1 worker")


@pytest.mark.complains(
    "a group can't be read on purpose", "put aside in decode: podgroups", "has put objects"
)
def test_pods_of_a_podgroup_that_cannot_be_read_do_not_start_until_it_can(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Its definition allows anything, as those of operators may."""
    cluster.submit(custom("PodGroup", "mpi", {"minMember": "two"}), namespace=namespace)
    cluster.submit(
        *(grouped(f"mpi-{i}", "mpi") for i in range(2)), grouped("other", "others"), namespace=namespace
    )
    runs(cluster, namespace, "podgroup-others", 1)  # as long as that nobody waits for a group
    gang = wait_until(lambda: in_state(cluster, namespace, "podgroup-mpi", "Invalid"), what="mpi is Invalid")
    assert (gang["reason"], gang["message"]) == (
        "Internal",
        "an error of Muster's own: one of its objects could not be read; what runs of it goes on, none of it starts; "
        "it is tried again by itself and when its pods change (muster's log has the error)",
    )
    assert metrics(lab)["muster_quarantined_total decode"] >= 1
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups/mpi"
    cluster.patch(path, {"spec": {"minMember": 2}})
    runs(cluster, namespace, "podgroup-mpi", 3)


def test_pods_that_name_a_group_nobody_makes_start_as_they_come(cluster: Cluster, namespace: str) -> None:
    cluster.submit(grouped("lonely", "nobody"), namespace=namespace)
    runs(cluster, namespace, "podgroup-nobody", 1)
