# Over 300 lines: each kind of custom owner has its scenarios, on the same CRDs.
"""Owners that are custom resources, and groups that pods name: size and roles are theirs to say.

The operators are not here. Each scenario plays one: it creates the custom resource, then pods with the labels and
owner references that the real operator writes, one after another and not at once. The CRDs in crds/ have no schema.
JobSet and Trainer are not played: test_operators.py.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.lab import Lab
from e2e.operators import (
    custom,
    owned,
    pytorch_job,
    pytorch_pod,
    ray_pod,
    serve,
    withdraw,
)
from e2e.scenario import (
    bound,
    configured,
    gang,
    gang_versions,
    gated,
    in_state,
    planned_after,
    pod,
    show,
    stateful_set,
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


@pytest.fixture
def hasty(lab: Lab) -> Iterator[None]:
    """An operator that makes no pod for a second has made all that it will."""
    with configured(lab, gang={"ownerPause": "1s"}):
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
    all_wait(cluster, namespace, pods)


def all_wait(cluster: Cluster, namespace: str, pods: int, unwritten: Mapping[str, str] | None = None) -> None:
    """For a while. unwritten: and the Gangs stay at these versions."""

    def waits() -> bool:
        as_it_was = len(gated(cluster.pods(namespace))) == pods
        return as_it_was and unwritten in (None, gang_versions(cluster, namespace))

    stays(
        cluster,
        waits,
        what=f"all {pods} pods wait behind the gate, and a restart has nothing new to write",
    )


def holds_places(cluster: Cluster, namespace: str, name: str, count: int) -> None:
    wait_until(
        lambda: (
            [
                assignment.get("pod", "")
                for assignment in gang(cluster, namespace, name).get("placement", ())
                if not assignment.get("uid")
            ]
            == [""] * count
        ),
        what=f"{count} places are held for pods that do not exist",
        also=lambda: str(cluster.gangs(namespace)),
    )


def sizes(status: Json) -> dict[str, tuple[int, int]]:
    """(min, bound) by role."""
    return {name: (role["min"], role["bound"]) for name, role in status["roles"].items()}


# --- Kubeflow -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_a_pytorchjob_waits_for_the_last_of_its_pods_and_starts_whole(
    cluster: Cluster, namespace: str
) -> None:
    owner = cluster.submit(pytorch_job("bert", workers=3), namespace=namespace)[0]
    pods = [pytorch_pod(owner, "master", 0), *(pytorch_pod(owner, "worker", i) for i in range(3))]
    create_slowly(cluster, namespace, pods[:3])
    waits_incomplete(cluster, namespace, "kubeflow-bert", 3, "3 of 4 pods exist; missing: 1 worker")
    cluster.submit(pods[3], namespace=namespace)
    status = runs(cluster, namespace, "kubeflow-bert", 4)
    assert sizes(status) == {"master": (1, 1), "worker": (3, 3)}
    assert cluster.gangs(namespace)["kubeflow-bert"]["spec"]["owner"]["kind"] == "PyTorchJob"


@pytest.mark.usefixtures("patient")
def test_a_restart_in_the_middle_of_its_creation_does_not_start_a_pytorchjob_in_part(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    owner = cluster.submit(pytorch_job("bert", workers=3), namespace=namespace)[0]
    pods = [pytorch_pod(owner, "master", 0), *(pytorch_pod(owner, "worker", i) for i in range(3))]
    create_slowly(cluster, namespace, pods[:3])
    message = "3 of 4 pods exist; missing: 1 worker"
    waits_incomplete(cluster, namespace, "kubeflow-bert", 3, message)
    lab.kill("muster")
    before = gang_versions(cluster, namespace)
    lab.start("muster")
    all_wait(cluster, namespace, 3, unwritten=before)
    cluster.submit(pods[3], namespace=namespace)
    runs(cluster, namespace, "kubeflow-bert", 4)


def test_a_running_pytorchjob_is_left_alone_by_a_restart(lab: Lab, cluster: Cluster, namespace: str) -> None:
    owner = cluster.submit(pytorch_job("bert", workers=2), namespace=namespace)[0]
    pods = [pytorch_pod(owner, "master", 0), *(pytorch_pod(owner, "worker", i) for i in range(2))]
    cluster.submit(*pods, namespace=namespace)
    runs(cluster, namespace, "kubeflow-bert", 3)
    # What was observed since its Gang was written is worth a write after the first restart.
    for _ in range(2):
        lab.kill("muster")
        before = gang_versions(cluster, namespace)
        lab.start("muster")
        planned_after(cluster)
    assert gang_versions(cluster, namespace) == before, "nothing is written again"


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


def test_a_custom_owner_that_is_scaled_is_read_again(cluster: Cluster, namespace: str) -> None:
    owner = cluster.submit(pytorch_job("bert", workers=1), namespace=namespace)[0]
    cluster.submit(pytorch_pod(owner, "master", 0), pytorch_pod(owner, "worker", 0), namespace=namespace)
    runs(cluster, namespace, "kubeflow-bert", 2)
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/bert"
    cluster.patch(path, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    cluster.submit(pytorch_pod(owner, "worker", 1), namespace=namespace)
    wait_until(
        lambda: bound(cluster.pods(namespace), 3),
        what="the replica that was added runs",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def test_owners_and_claims_whose_names_lead_elsewhere_are_asked_for_nowhere_and_keep_nobody_waiting(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    names = [
        ("../healthz", "PyTorchJob", "x"),
        ("kubeflow.org/v1", "PyTorchJob", "../../../../../../healthz"),
    ]
    for number, (version, kind, name) in enumerate(names):
        owner = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": str(uuid.uuid4())}}
        cluster.submit(owned(pod(f"strange-{number}"), owner), namespace=namespace)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "../../../../../healthz"}}
    cluster.submit(pod("claims", volumes=[claim]), namespace=namespace)
    owner = cluster.submit(pytorch_job("bert", workers=1), namespace=namespace)[0]
    cluster.submit(pytorch_pod(owner, "master", 0), pytorch_pod(owner, "worker", 0), namespace=namespace)
    wait_until(
        lambda: in_state(cluster, namespace, "kubeflow-bert", "Running"),
        what="another job starts",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )

    def log() -> str:
        return lab.log("muster-0").read_text()

    wait_until(
        lambda: "is not read: expected the name of an object, found '../../../../../../healthz'" in log(),
        what="Muster's log says that one is not read",
    )
    assert "PyTorchJob x is not read" not in log(), "of a kind that nobody knows nothing is asked"


# --- Ray ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_a_raycluster_starts_its_head_together_with_its_workers(cluster: Cluster, namespace: str) -> None:
    groups = [{"groupName": "small", "replicas": 1}, {"groupName": "Large", "replicas": 2}]
    owner = cluster.submit(custom("RayCluster", "ray", {"workerGroupSpecs": groups}), namespace=namespace)[0]
    pods = [
        ray_pod(owner, "headgroup", 0),
        ray_pod(owner, "small", 0),
        *(ray_pod(owner, "Large", i) for i in range(2)),
    ]
    create_slowly(cluster, namespace, pods[:2])
    waits_incomplete(cluster, namespace, "raycluster-ray", 2, "2 of 4 pods exist; missing: 2 large")
    create_slowly(cluster, namespace, pods[2:])
    status = runs(cluster, namespace, "raycluster-ray", 4)
    assert sizes(status) == {"headgroup": (1, 1), "small": (1, 1), "large": (2, 2)}
    assert status["gpus"] == 6


# --- LeaderWorkerSet ----------------------------------------------------------------------------------------


def lws_set(name: str, replicas: int, first: int, role: dict[str, str], owner: Json) -> Json:
    """A StatefulSet as the LeaderWorkerSet controller makes them: one of leaders, one a group of workers."""
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        **role,
    }
    made = stateful_set(name, replicas, labels=labels, annotations={"leaderworkerset.sigs.k8s.io/size": "3"})
    made["spec"]["ordinals"] = {"start": first}
    return owned(made, owner)


@pytest.mark.usefixtures("patient")
def test_a_group_of_a_leaderworkerset_is_one_gang_of_leader_and_workers(
    cluster: Cluster, namespace: str
) -> None:
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3}}
    owner = cluster.submit(custom("LeaderWorkerSet", "serve", spec), namespace=namespace)[0]
    leaders = lws_set("serve", 1, 0, {"leaderworkerset.sigs.k8s.io/worker-index": "0"}, owner)
    cluster.submit(leaders, namespace=namespace)
    leader = wait_until(lambda: cluster.pod(namespace, "serve-0"), what="the leader's pod")
    name = "leaderworkerset-serve-0"
    waits_incomplete(cluster, namespace, name, 1, "1 of 3 pods exist; missing: 2 worker")
    reference = {"apiVersion": "v1", "kind": "Pod", "metadata": leader.raw["metadata"]}
    cluster.submit(lws_set("serve-0", 2, 1, {}, reference), namespace=namespace)
    status = runs(cluster, namespace, name, 3)
    assert sizes(status) == {"worker": (3, 3)}
    assert list(cluster.gangs(namespace)) == [name]


def test_a_leader_whose_workers_come_only_when_it_is_ready_starts_on_a_reservation(
    cluster: Cluster, namespace: str
) -> None:
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3}, "startupPolicy": "LeaderReady"}
    owner = cluster.submit(custom("LeaderWorkerSet", "serve", spec), namespace=namespace)[0]
    leaders = lws_set("serve", 1, 0, {"leaderworkerset.sigs.k8s.io/worker-index": "0"}, owner)
    cluster.submit(leaders, namespace=namespace)
    leader = wait_until(
        lambda: next((one for one in bound(cluster.pods(namespace)) if one.phase == "Running"), None),
        what="the leader runs before its workers exist",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    holds_places(cluster, namespace, "leaderworkerset-serve-0", 2)
    reference = {"apiVersion": "v1", "kind": "Pod", "metadata": leader.raw["metadata"]}
    cluster.submit(lws_set("serve-0", 2, 1, {}, reference), namespace=namespace)
    status = runs(cluster, namespace, "leaderworkerset-serve-0", 3)
    assert sizes(status) == {"worker": (3, 3)}


@pytest.mark.usefixtures("hasty")
def test_an_operator_that_makes_no_more_pods_is_waiting_for_its_first_ones(
    cluster: Cluster, namespace: str
) -> None:
    """Ray's autoscaler, and whoever makes workers for a master that is ready: the rest has its places meanwhile."""
    owner = cluster.submit(pytorch_job("bert", workers=2), namespace=namespace)[0]
    cluster.submit(pytorch_pod(owner, "master", 0), namespace=namespace)
    wait_until(
        lambda: bound(cluster.pods(namespace), 1),
        what="the master runs before its workers exist",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    holds_places(cluster, namespace, "kubeflow-bert", 2)
    cluster.submit(*(pytorch_pod(owner, "worker", i) for i in range(2)), namespace=namespace)
    assert sizes(runs(cluster, namespace, "kubeflow-bert", 3)) == {"master": (1, 1), "worker": (2, 2)}


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
