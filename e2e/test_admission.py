# Over 300 lines: each rule of the admission policies has what it takes and what it refuses.
"""What `kubectl apply` answers: the chart's admission policies on a real apiserver.

Pods here carry a foreign gate too, so that no scheduler touches them while a test looks. What is only asked
for an answer is applied with --dry-run=server, which runs admission and stores nothing.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import scenario
from e2e.cluster import Cluster
from e2e.lab import Lab, NodeGroup, Shape, places
from e2e.scenario import runs_whole

GATE = "muster.dev/queue"
MUSTER = "system:serviceaccount:muster-system:muster"
HOOKS = "system:serviceaccount:muster-system:muster-hooks"
SCHEDULER = "system:serviceaccount:muster-system:muster-scheduler"
BREAK_GLASS = "muster:break-glass"
SAMPLES = Path(__file__).parent.parent / "config" / "samples"

Manifest = dict[str, Any]


class Answer:
    """What one kubectl call said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.ok = done.returncode == 0
        self.out = done.stdout
        self.said = " ".join(done.stderr.split())

    def json(self) -> Manifest:
        assert self.ok, self.said
        answer: Manifest = json.loads(self.out)
        return answer


class Kubectl:
    """kubectl as one user in one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str, *flags: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self.flags = flags

    def as_(self, user: str, *groups: str) -> Kubectl:
        flags = [f"--as={user}", *(f"--as-group={group}" for group in groups)]
        return Kubectl(self.kubeconfig, self.namespace, *flags)

    def __call__(self, *args: str, stdin: Manifest | str = "") -> Answer:
        text = stdin if isinstance(stdin, str) else json.dumps(stdin)
        command = [_kubectl(), f"--kubeconfig={self.kubeconfig}", "-n", self.namespace, *self.flags, *args]
        return Answer(
            subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
        )

    def ask(self, manifest: Manifest) -> Answer:
        """Creates nothing: what admission makes of it, as JSON."""
        return self("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=manifest)

    def create(self, manifest: Manifest) -> Manifest:
        return self("create", "-o", "json", "-f", "-", stdin=manifest).json()

    def patch(self, pod: str, body: Manifest | list[Manifest], kind: str = "strategic") -> Answer:
        return self("patch", "pod", pod, "-o", "json", "--type", kind, "-p", json.dumps(body))


Ask = Callable[[Manifest], Answer]


def _kubectl() -> str:
    built = sorted((places.cache() / "bin").glob("kubectl-v*"))
    return str(built[-1]) if built else (shutil.which("kubectl") or "kubectl")


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Iterator[Kubectl]:
    """In a fresh namespace."""
    user = Kubectl(cluster.kubeconfig, namespace)
    yield user
    # The end of a namespace takes five seconds more where pods are left in it.
    user("delete", "pods", "--all", "--force", "--grace-period=0")


@pytest.fixture
def hook_runs(lab: Lab) -> Iterator[None]:
    """The hooks' account has its rights, as while helm runs a hook."""
    with lab.hook_rights():
        yield


@pytest.fixture
def ask(cluster: Cluster) -> Ask:
    """For tests that create nothing: a namespace of their own takes a second to come and go."""
    return Kubectl(cluster.kubeconfig, "default").ask


def pod(name: str = "worker-0", annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """A pod of ours, held by a foreign gate too."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"muster.dev/job": "train"}, "annotations": annotations or {}},
        "spec": {
            "schedulerName": "muster",
            "schedulingGates": [{"name": "example.com/held"}],
            "containers": [{"name": "worker", "image": "busybox"}],
            **spec,
        },
    }


def template(annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    return {
        "metadata": {"labels": {"app": "train"}, "annotations": annotations or {}},
        "spec": {
            "schedulerName": "muster",
            "restartPolicy": "Never",
            "containers": [{"name": "worker", "image": "busybox"}],
            **spec,
        },
    }


def job(annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    spec = {"completions": 4, "parallelism": 4, "completionMode": "Indexed", **spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {**spec, "template": template(annotations)},
    }


def workload(kind: str, annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    body = template(annotations)
    body["spec"]["restartPolicy"] = "Always"
    selector = {"matchLabels": {"app": "train"}}
    if kind == "StatefulSet":
        spec = {"serviceName": "train", "podManagementPolicy": "Parallel", **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "train"},
        "spec": {"selector": selector, "template": body, **spec},
    }


def gates(manifest: Manifest) -> list[str]:
    return [gate["name"] for gate in manifest["spec"].get("schedulingGates", [])]


# The gate


def test_a_pod_of_ours_is_created_with_the_gate(kubectl: Kubectl) -> None:
    assert gates(kubectl.ask(pod(schedulingGates=[])).json()) == [GATE]


def test_the_gate_is_added_beside_foreign_gates_and_once(ask: Ask) -> None:
    assert gates(ask(pod()).json()) == ["example.com/held", GATE]
    already = pod(schedulingGates=[{"name": GATE}, {"name": "example.com/held"}])
    assert gates(ask(already).json()) == [GATE, "example.com/held"]


def test_pods_of_other_schedulers_are_left_alone(ask: Ask) -> None:
    answer = ask(pod(schedulerName="default-scheduler", annotations={"muster.dev/min-replicas": "x"}))
    assert gates(answer.json()) == ["example.com/held"]
    assert answer.said == ""


# What would go past the queue


def test_a_pod_of_ours_with_a_node_is_refused_as_a_mirror_pod_too(ask: Ask) -> None:
    for notes in ({}, {"kubernetes.io/config.mirror": "x"}):
        answer = ask(pod(nodeName="node-0", schedulingGates=[], annotations=notes))
        assert not answer.ok
        assert "spec.nodeName is set (node-0): no scheduler is asked" in answer.said
    assert ask(pod(nodeName="node-0", schedulingGates=[], schedulerName="default-scheduler")).ok


def test_a_mirror_annotation_keeps_no_pod_from_the_gate(ask: Ask) -> None:
    """The API server itself wants a node with it, so it never comes alone."""
    answer = ask(pod(annotations={"kubernetes.io/config.mirror": "x"}, schedulingGates=[]))
    assert not answer.ok


def test_a_daemonset_of_ours_and_its_pods_are_refused(ask: Ask) -> None:
    answer = ask(workload("DaemonSet"))
    assert not answer.ok
    assert "Muster does not schedule the pods of a DaemonSet" in answer.said
    member = pod(schedulingGates=[], affinity=_pin("node-0")["spec"]["affinity"])
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "train", "uid": "u", "controller": True}
    member["metadata"]["ownerReferences"] = [owner]
    answer = ask(member)
    assert not answer.ok
    assert "Muster does not schedule the pods of a DaemonSet" in answer.said
    other = workload("DaemonSet")
    del other["spec"]["template"]["spec"]["schedulerName"]
    assert ask(other).ok


def test_a_pin_of_its_own_is_refused_on_a_pod_and_on_a_template(ask: Ask) -> None:
    affinity = _pin("node-0")["spec"]["affinity"]
    pinned = job()
    pinned["spec"]["template"]["spec"]["affinity"] = affinity
    for manifest in (pod(affinity=affinity), pinned):
        answer = ask(manifest)
        assert not answer.ok
        assert "pins the pod to one node, and only Muster adds that" in answer.said


@pytest.mark.parametrize("key", ["released", "plan", "exposed", "leaving"])
def test_what_muster_notes_is_refused_on_pods_of_namespaces_that_are_not_ours_too(
    cluster: Cluster, key: str
) -> None:
    noted = pod(annotations={f"muster.dev/{key}": "true"})
    for namespace in ("kube-system", "default"):
        answer = Kubectl(cluster.kubeconfig, namespace).ask(noted)
        assert not answer.ok
        assert f"muster.dev/{key}" in answer.said
    noted["spec"]["schedulerName"] = "default-scheduler"
    assert Kubectl(cluster.kubeconfig, "default").ask(noted).ok


def test_only_muster_writes_gangs_whatever_rights_one_has(kubectl: Kubectl) -> None:
    """As an admin of the namespace with `*`, or of the cluster; a Gang that goes with its namespace is cleaned up."""
    kubectl("create", "role", "all", "--verb=*", "--resource=*.*")
    kubectl("create", "rolebinding", "all", "--role=all", "--user=tenant")
    tenant = kubectl.as_("tenant")
    own = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": "forged"},
        "spec": {"job": "forged"},
        "status": {"submitted": "2020-01-01T00:00:00Z"},
    }
    assert _in_time(lambda: tenant("auth", "can-i", "create", "gangs.muster.dev").out.strip() == "yes")
    for user in (tenant, kubectl):
        answer = user.ask(own)
        assert not answer.ok
        assert "only Muster writes and deletes it" in answer.said
    kubectl.create(pod())
    name = "gang/train"
    assert _in_time(lambda: kubectl("get", name).ok)
    forged = json.dumps({"status": {"submitted": "2020-01-01T00:00:00Z"}})
    for change in (("patch", name, "--type=merge", "-p", forged), ("delete", name)):
        answer = tenant(*change)
        assert not answer.ok
        assert "only Muster writes and deletes it, not tenant" in answer.said
    assert kubectl.as_(MUSTER)("patch", name, "--type=merge", "-p", forged).ok


def test_a_pod_in_a_namespace_that_is_left_out_gets_a_warning_and_no_gate(cluster: Cluster) -> None:
    elsewhere = Kubectl(cluster.kubeconfig, "kube-system")
    answer = elsewhere.ask(pod())
    assert gates(answer.json()) == ["example.com/held"]
    assert "namespace kube-system has not opted in to Muster" in answer.said


# Who may take it off


def test_a_user_cannot_take_the_gate_off(kubectl: Kubectl) -> None:
    kubectl.create(pod())
    answer = kubectl.patch("worker-0", _without_gate())
    assert not answer.ok
    assert "the gate muster.dev/queue is taken off by Muster when the whole job starts" in answer.said
    assert "kubectl get gangs" in answer.said
    assert "muster release JOB" in answer.said


@pytest.mark.parametrize(("user", "groups"), [(MUSTER, ()), (HOOKS, ()), ("someone", (BREAK_GLASS,))])
@pytest.mark.usefixtures("hook_runs")
def test_muster_its_hooks_and_the_break_glass_group_take_the_gate_off(
    kubectl: Kubectl, user: str, groups: tuple[str, ...]
) -> None:
    kubectl.create(pod())
    patched = kubectl.as_(user, *groups).patch("worker-0", _without_gate()).json()
    assert gates(patched) == ["example.com/held"]


def test_a_user_may_still_take_a_foreign_gate_off(kubectl: Kubectl) -> None:
    kubectl.create(pod())
    body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/held"}]}}
    body["spec"]["nodeSelector"] = {"no.such/label": "here"}  # type: ignore[assignment]
    assert gates(kubectl.patch("worker-0", body).json()) == [GATE]


def test_only_muster_pins_a_pod_that_exists(kubectl: Kubectl) -> None:
    kubectl.create(pod())
    answer = kubectl.patch("worker-0", _pin("node-3"))
    assert not answer.ok
    assert "pins the pod to one node" in answer.said
    both = {"spec": {**_without_gate()["spec"], **_pin("node-3")["spec"]}}
    patched = kubectl.as_(MUSTER).patch("worker-0", both).json()
    assert gates(patched) == ["example.com/held"]
    affinity = patched["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node-3"]


def test_a_user_may_narrow_where_a_waiting_pod_may_run_by_labels(kubectl: Kubectl) -> None:
    kubectl.create(pod())
    assert kubectl.patch("worker-0", {"spec": {"nodeSelector": {"gpu": "h200"}}}).ok


# What is frozen


@pytest.mark.parametrize(
    ("field", "key", "value"),
    [
        ("labels", "muster.dev/job", "other"),
        ("labels", "muster.dev/job", None),
        ("labels", "batch.kubernetes.io/job-name", "other"),
        ("labels", "jobset.sigs.k8s.io/jobset-name", "other"),
        ("labels", "training.kubeflow.org/job-name", "other"),
        ("labels", "leaderworkerset.sigs.k8s.io/name", "other"),
        ("annotations", "muster.dev/role", "server"),
        ("annotations", "muster.dev/roles", "worker=2"),
        ("annotations", "muster.dev/min-replicas", "1"),
        ("annotations", "muster.dev/max-replicas", "9"),
        ("annotations", "muster.dev/sizes", "1,2"),
    ],
)
def test_what_decides_identity_and_size_is_frozen_after_create(
    kubectl: Kubectl, field: str, key: str, value: str | None
) -> None:
    kubectl.create(pod())
    change = {"metadata": {field: {key: value}}}
    answer = kubectl.patch("worker-0", change, "merge")
    assert not answer.ok
    assert key in answer.said
    assert "is frozen when the pod is created" in answer.said
    assert f'found "{value or ""}"' in answer.said
    # By hand a size may be changed, and nobody makes a pod another job's (the policy muster-own).
    by_hand = kubectl.as_("someone", BREAK_GLASS).patch("worker-0", change, "merge")
    assert by_hand.ok == (field == "annotations"), by_hand.said


@pytest.mark.parametrize(
    ("key", "value", "said", "who"),
    [
        ("muster.dev/released", "true", "only `muster release` writes it", HOOKS),
        ("muster.dev/plan", "[]", "only Muster writes it", MUSTER),
        ("muster.dev/exposed", "true", "only Muster writes it", MUSTER),
        ("muster.dev/leaving", "true", "only Muster writes it", MUSTER),
    ],
)
@pytest.mark.usefixtures("hook_runs")
def test_what_muster_notes_on_a_pod_nobody_else_writes(
    kubectl: Kubectl, key: str, value: str, said: str, who: str
) -> None:
    kubectl.create(pod())
    note = {"metadata": {"annotations": {key: value}}}
    answer = kubectl.patch("worker-0", note, "merge")
    assert not answer.ok
    assert said in answer.said
    assert kubectl.as_(who).patch("worker-0", note, "merge").ok


def test_other_labels_and_annotations_stay_free(kubectl: Kubectl) -> None:
    kubectl.create(pod())
    change = {
        "metadata": {
            "labels": {"team": "vision"},
            "annotations": {"muster.dev/remaining-work": "60", "muster.dev/speed": "1=1.0,2=1.8"},
        }
    }
    assert kubectl.patch("worker-0", change, "merge").ok


def test_topology_and_placement_are_free_until_the_gate_is_off(kubectl: Kubectl) -> None:
    kubectl.create(pod(annotations={"muster.dev/topology-required": "rack"}))
    change = {"metadata": {"annotations": {"muster.dev/topology-required": "zone"}}}
    assert kubectl.patch("worker-0", change, "merge").ok
    assert kubectl.as_(MUSTER).patch("worker-0", _without_gate()).ok
    change = {"metadata": {"annotations": {"muster.dev/topology-required": "rack"}}}
    answer = kubectl.patch("worker-0", change, "merge")
    assert not answer.ok
    assert "is frozen when the job starts" in answer.said


# The grammar


def _counted(roles: int, last: str = "") -> str:
    names = [f"role-{number}" for number in range(roles)]
    return ",".join(f"{name}=1" for name in ([*names[:-1], last] if last else names))


def _speeds(counts: int) -> str:
    return ",".join(f"{count}=1.5" for count in range(1, counts + 1))


BAD = [
    (
        {"muster.dev/min-replicas": "0"},
        'muster.dev/min-replicas: expected a whole number from 1 to 10000, found "0"',
    ),
    (
        {"muster.dev/min-replicas": "two"},
        'muster.dev/min-replicas: expected a whole number from 1 to 10000, found "two"',
    ),
    (
        {"muster.dev/min-replicas": ""},
        'muster.dev/min-replicas: expected a whole number from 1 to 10000, found ""',
    ),
    (
        {"muster.dev/min-replicas": "-3"},
        'muster.dev/min-replicas: expected a whole number from 1 to 10000, found "-3"',
    ),
    (
        {"muster.dev/max-replicas": "1e6"},
        'muster.dev/max-replicas: expected a whole number from 1 to 10000, found "1e6"',
    ),
    ({"muster.dev/max-replicas": "10001"}, 'from 1 to 10000, found "10001"'),
    ({"muster.dev/max-replicas": "99999999999999999999"}, 'from 1 to 10000, found "99999999999999999999"'),
    (
        {"muster.dev/min-replicas": "8", "muster.dev/max-replicas": "4"},
        'muster.dev/min-replicas: expected at most muster.dev/max-replicas (4), found "8"',
    ),
    ({"muster.dev/roles": "worker"}, "muster.dev/roles: expected role=replicas"),
    ({"muster.dev/roles": "worker=0"}, "muster.dev/roles: expected role=replicas"),
    ({"muster.dev/roles": ""}, "muster.dev/roles: expected role=replicas"),
    ({"muster.dev/roles": "worker=2,worker=3"}, "muster.dev/roles: expected role=replicas"),
    ({"muster.dev/roles": "Worker=2"}, "muster.dev/roles: expected role=replicas"),
    ({"muster.dev/roles": "worker=2;server=1"}, "muster.dev/roles: expected role=replicas"),
    ({"muster.dev/roles": "worker=20000"}, "muster.dev/roles: expected role=replicas"),
    (
        {"muster.dev/roles": "scheduler=1,server=2,worker=4", "muster.dev/role": "evaluator"},
        'unknown role "evaluator": expected one of those in muster.dev/roles: scheduler, server,',
    ),
    (
        {"muster.dev/roles": "server=2"},
        'unknown role "worker" (the default): expected one of those in muster.dev/roles: server',
    ),
    ({"muster.dev/role": "A b"}, "muster.dev/role: expected the name of a role"),
    (
        {"muster.dev/roles": "worker=4", "muster.dev/min-replicas": "5"},
        'min-replicas: expected at most the 4 that muster.dev/roles gives to role worker, found "5"',
    ),
    (
        {"muster.dev/sizes": "1,two,4"},
        'muster.dev/sizes: expected whole numbers separated by commas, as in "1,2,4", found "1,two,4"',
    ),
    ({"muster.dev/sizes": "1,,4"}, "muster.dev/sizes: expected whole numbers separated by commas"),
    (
        {"muster.dev/batch-sizes": "64,0"},
        "muster.dev/batch-sizes: expected global batch sizes from 1 to 1000000000, separated by commas, as in "
        '"64,128", found "64,0"',
    ),
    (
        {"muster.dev/batch-sizes": ",".join(["1"] * 65)},
        "muster.dev/batch-sizes: expected at most 64 batch sizes, found 65",
    ),
    ({"muster.dev/batch-sizes": "1000000001"}, "muster.dev/batch-sizes: expected global batch sizes"),
    ({"muster.dev/batch": "64"}, "muster.dev/batch: expected none, because only Muster writes it"),
    (
        {"muster.dev/sizes": "1,2,8", "muster.dev/min-replicas": "1", "muster.dev/max-replicas": "4"},
        'sizes: expected counts from 1 to 4 (the least and the most replicas of role worker), found "1,2,8"',
    ),
    ({"muster.dev/speed": "1:1.0"}, "muster.dev/speed: expected replicas=relative speed"),
    ({"muster.dev/speed": "1=fast"}, "muster.dev/speed: expected replicas=relative speed"),
    ({"muster.dev/speed": "1=0"}, "muster.dev/speed: expected replicas=relative speed"),
    ({"muster.dev/speed": "1=1,1=2"}, "muster.dev/speed: expected replicas=relative speed"),
    ({"muster.dev/remaining-work": "soon"}, "muster.dev/remaining-work: expected seconds on one replica"),
    ({"muster.dev/remaining-work": "-1"}, "muster.dev/remaining-work: expected seconds on one replica"),
    (
        {"muster.dev/resize": "Restart"},
        'muster.dev/resize: expected "in-place" or "restart", found "Restart"',
    ),
    ({"muster.dev/resize-at": "epoch"}, 'muster.dev/resize-at: expected "boundary", found "epoch"'),
    (
        {"muster.dev/request": "0"},
        'muster.dev/request: expected a whole number from 1 to 10000, found "0"',
    ),
    ({"muster.dev/request": "10001"}, 'from 1 to 10000, found "10001"'),
    (
        {"muster.dev/gpu-memory": "20GB"},
        'muster.dev/gpu-memory: expected memory of a GPU from "1Mi" to "1024Gi", found "20GB"',
    ),
    ({"muster.dev/gpu-memory": "0Mi"}, 'from "1Mi" to "1024Gi", found "0Mi"'),
    ({"muster.dev/gpu-memory": "1025Gi"}, 'from "1Mi" to "1024Gi", found "1025Gi"'),
    (
        {"muster.dev/model": "m" * 254},
        "muster.dev/model: expected a name of at most 253 characters, found 254",
    ),
    ({"muster.dev/resize": "x" * 16_385}, "muster.dev/resize: expected at most 16384 characters"),
    ({"muster.dev/released": "true"}, "muster.dev/released: expected none"),
    ({"muster.dev/plan": "[]"}, "muster.dev/plan: expected none"),
    ({"muster.dev/exposed": "true"}, "muster.dev/exposed and muster.dev/leaving: expected none"),
    ({"muster.dev/leaving": "true"}, "muster.dev/exposed and muster.dev/leaving: expected none"),
    ({"muster.dev/evictable": "yes"}, 'muster.dev/evictable: expected "true" or "false", found "yes"'),
    (
        {"muster.dev/placement": "spread"},
        'muster.dev/placement: expected "pinned" or "scored", found "spread"',
    ),
    (
        {"muster.dev/topology-required": "not a key"},
        "muster.dev/topology-required: expected the key of a label of nodes",
    ),
    (
        {"muster.dev/topology-preferred": ""},
        "muster.dev/topology-preferred: expected the key of a label of nodes",
    ),
    # What is many is told by its number, and is not too much for the apiserver to judge.
    ({"muster.dev/roles": _counted(300)}, "muster.dev/roles: expected at most 256 roles, found 300"),
    ({"muster.dev/roles": _counted(256, last="role-0")}, "muster.dev/roles: expected role=replicas"),
    ({"muster.dev/roles": "," * 16_384}, "muster.dev/roles: expected at most 256 roles, found 16385"),
    ({"muster.dev/roles": "=" * 16_384}, "muster.dev/roles: expected role=replicas"),
    (
        {"muster.dev/roles": _counted(20_000)},
        "annotation muster.dev/roles: expected at most 16384 characters, found 248889",
    ),
    ({"muster.dev/sizes": "," * 16_384}, "muster.dev/sizes: expected whole numbers separated by commas"),
    ({"muster.dev/sizes": "1," * 8_191 + "x"}, 'as in "1,2,4", found "1,1,1,1,'),
    (
        {"muster.dev/speed": _speeds(300)},
        "muster.dev/speed: expected at most 256 counts of replicas, found 300",
    ),
    ({"muster.dev/speed": _speeds(255) + ",1=2"}, "muster.dev/speed: expected replicas=relative speed"),
    ({"muster.dev/remaining-work": "9" * 16_384}, "expected seconds on one replica, a number of 0 or more"),
    ({"muster.dev/remaining-work": "1000000000e3"}, "a number of 0 or more and below 1e12"),
]


@pytest.mark.parametrize(("annotations", "sentence"), BAD)
def test_bad_annotations_are_refused_where_they_are_applied(
    ask: Ask, annotations: dict[str, str], sentence: str
) -> None:
    for manifest in (pod(annotations=annotations), job(annotations)):
        answer = ask(manifest)
        assert not answer.ok, manifest["kind"]
        assert sentence in answer.said, manifest["kind"]


@pytest.mark.parametrize("kind", ["Job", "CronJob", "StatefulSet", "Deployment", "ReplicaSet"])
def test_every_built_in_owner_is_refused_by_its_template(ask: Ask, kind: str) -> None:
    bad = {"muster.dev/min-replicas": "8", "muster.dev/max-replicas": "4"}
    if kind in ("Job", "CronJob"):
        manifest = job(bad)
    else:
        manifest = workload(kind, bad)
    if kind == "CronJob":
        schedule = {"schedule": "0 3 * * *", "jobTemplate": {"spec": manifest["spec"]}}
        manifest = {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "train"}, "spec": schedule}
    answer = ask(manifest)
    assert not answer.ok
    assert 'expected at most muster.dev/max-replicas (4), found "8"' in answer.said


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"muster.dev/min-replicas": "1", "muster.dev/max-replicas": "10000"},
        {"muster.dev/roles": "scheduler=1,server=2,worker=4", "muster.dev/role": "server"},
        {"muster.dev/roles": "worker=4", "muster.dev/min-replicas": "2", "muster.dev/sizes": "2,4"},
        {"muster.dev/sizes": "1,2,4,8", "muster.dev/max-replicas": "8"},
        {
            "muster.dev/sizes": "1, 2",
            "muster.dev/roles": "server = 1, worker=2",
            "muster.dev/min-replicas": "1",
        },
        {"muster.dev/remaining-work": "3.6e3"},
        {"muster.dev/speed": "1=1.0,2=1.9,4=3.4", "muster.dev/remaining-work": "3600.5"},
        {
            "muster.dev/roles": _counted(256),
            "muster.dev/role": "role-255",
            "muster.dev/sizes": "1",
            "muster.dev/speed": _speeds(256),
        },
        {"muster.dev/sizes": "1," * 8_189 + "10000"},
        {"muster.dev/evictable": "true", "muster.dev/placement": "scored"},
        {"muster.dev/resize": "in-place", "muster.dev/resize-at": "boundary", "muster.dev/request": "10000"},
        {"muster.dev/resize": "restart", "muster.dev/gpu-memory": "1048576Mi", "muster.dev/model": "m" * 253},
        {"muster.dev/gpu-memory": "1024Gi"},
        {"muster.dev/batch-sizes": "64, 128,1000000000"},
        {"muster.dev/batch-sizes": ",".join(["1000000000"] * 64)},
        {
            "muster.dev/topology-required": "topology.kubernetes.io/zone",
            "muster.dev/topology-preferred": "rack",
        },
    ],
)
def test_good_annotations_pass_without_a_word(ask: Ask, annotations: dict[str, str]) -> None:
    answer = ask(pod(annotations=annotations))
    assert answer.ok, answer.said
    assert answer.said == ""


def test_a_role_that_an_operators_label_names_is_as_good_as_an_annotation(ask: Ask) -> None:
    label = "jobset.sigs.k8s.io/replicatedjob-name"
    named = pod(annotations={"muster.dev/roles": "driver=1,workers=4"})
    named["metadata"]["labels"][label] = "Workers"
    answer = ask(named)
    assert (answer.ok, answer.said) == (True, "")
    named["metadata"]["labels"][label] = "other"
    assert f'unknown role "other" (label {label}): expected one of those' in ask(named).said


def test_a_job_name_that_no_object_can_have_is_refused(ask: Ask) -> None:
    named = pod()
    named["metadata"]["labels"]["muster.dev/job"] = "My_Job"
    answer = ask(named)
    assert not answer.ok
    assert "label muster.dev/job: expected a name in lower case" in answer.said


def test_the_owner_of_a_bad_template_that_is_there_already_stays_editable(kubectl: Kubectl) -> None:
    """As after an upgrade that made the grammar stricter: only a change of the template is looked at."""
    deployment = workload("Deployment", replicas=0)
    kubectl.create(deployment)
    assert kubectl("annotate", "deployment", "train", "note=x").ok
    change = {"spec": {"template": {"metadata": {"annotations": {"muster.dev/sizes": "a"}}}}}
    answer = kubectl("patch", "deployment", "train", "--type=merge", "-p", json.dumps(change))
    assert not answer.ok
    assert "muster.dev/sizes" in answer.said


# Advice


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (
            workload("StatefulSet", podManagementPolicy="OrderedReady"),
            "spec.podManagementPolicy OrderedReady",
        ),
        (job(activeDeadlineSeconds=60), "spec.activeDeadlineSeconds counts from the creation of the Job"),
        (job({"muster.dev/min-replicas": "2"}), "an Indexed Job without spec.successPolicy"),
        (workload("Deployment", {"muster.dev/min-replicas": "4"}, replicas=2), "creates 2 pods at a time"),
        (
            pod(annotations={"muster.dev/min-replica": "2"}),
            "annotation muster.dev/min-replica is not known to Muster",
        ),
        (pod(annotations={"muster.dev/job": "x"}), "muster.dev/job is a label"),
    ],
)
def test_what_works_otherwise_than_its_author_may_think_is_a_warning(
    ask: Ask, manifest: Manifest, sentence: str
) -> None:
    answer = ask(manifest)
    assert answer.ok, answer.said
    assert sentence in answer.said


def test_an_elastic_indexed_job_with_a_success_policy_gets_no_warning(ask: Ask) -> None:
    answer = ask(job({"muster.dev/min-replicas": "2"}, successPolicy={"rules": [{"succeededIndexes": "0"}]}))
    assert answer.ok, answer.said
    assert answer.said == ""


def test_an_annotation_on_the_owner_instead_of_its_template_is_a_warning(ask: Ask) -> None:
    manifest = job()
    manifest["metadata"]["annotations"] = {"muster.dev/min-replicas": "2"}
    assert "is on the Job: Muster reads it on pods" in ask(manifest).said


@pytest.mark.parametrize(
    ("spec", "warned"),
    [({"maxUnavailable": 1}, True), ({"minAvailable": "50%"}, True), ({"minAvailable": 2}, False)],
)
def test_a_disruption_budget_that_cannot_work_with_gated_pods_is_a_warning(
    ask: Ask, spec: Manifest, warned: bool
) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train"},
        "spec": {"selector": {"matchLabels": {"muster.dev/job": "train"}}, **spec},
    }
    answer = ask(budget)
    assert answer.ok
    assert ("count as disrupted" in answer.said) is warned


# Rights


@pytest.mark.parametrize(
    ("verb", "resource", "may"),
    [
        ("list", "gangs.muster.dev", "yes"),
        ("patch", "gangs.muster.dev", "no"),
        ("create", "gangs.muster.dev", "no"),
    ],
)
def test_tenants_read_gangs_and_only_muster_writes_them(
    kubectl: Kubectl, verb: str, resource: str, may: str
) -> None:
    kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", "--user=tenant")
    # The controller manager aggregates our role into view and edit in its own time.
    assert _in_time(lambda: kubectl.as_("tenant")("auth", "can-i", verb, resource).out.strip() == may)
    assert kubectl.as_(MUSTER)("auth", "can-i", verb, resource).out.strip() == "yes"


@pytest.mark.parametrize(
    ("account", "verb", "resource", "may"),
    [
        (MUSTER, "patch", "pods", "yes"),
        (MUSTER, "create", "pods/eviction", "yes"),
        (MUSTER, "get", "secrets", "no"),
        (MUSTER, "create", "pods", "no"),
        (MUSTER, "delete", "pods", "no"),
        (MUSTER, "create", "pods/binding", "no"),
        (SCHEDULER, "create", "pods/binding", "yes"),
        (SCHEDULER, "patch", "pods", "no"),
        (SCHEDULER, "create", "pods/eviction", "no"),
        (SCHEDULER, "patch", "gangs.muster.dev", "no"),
        (MUSTER, "delete", "jobs.batch", "no"),
        (HOOKS, "patch", "pods", "yes"),
        (HOOKS, "create", "pods/eviction", "no"),
        (HOOKS, "delete", "pods", "no"),
    ],
)
@pytest.mark.usefixtures("hook_runs")
def test_the_service_accounts_may_do_what_they_need_and_no_more(
    cluster: Cluster, account: str, verb: str, resource: str, may: str
) -> None:
    kind, _, subresource = resource.partition("/")
    flags = [f"--subresource={subresource}"] if subresource else []
    asked = Kubectl(cluster.kubeconfig, "default").as_(account)("auth", "can-i", verb, kind, *flags)
    assert asked.out.strip() == may


# Policies that change under way


@pytest.mark.lab
def test_while_the_gate_policy_is_missing_pods_of_ours_are_refused_and_others_are_not(
    lab: Lab, ask: Ask
) -> None:
    lab.kubectl("delete", "mutatingadmissionpolicybinding", "muster-gate")
    try:
        assert _in_time(lambda: "is missing or did not run" in ask(pod()).said), ask(pod()).said
        assert ask(pod(schedulerName="default-scheduler")).ok
    finally:
        lab.upgrade(restart=False)
    assert _in_time(lambda: (answer := ask(pod())).ok and GATE in gates(answer.json()))


@pytest.mark.lab
def test_in_mode_observe_nothing_is_gated_or_refused(lab: Lab, ask: Ask) -> None:
    bad = {"muster.dev/min-replicas": "two"}
    lab.upgrade("--set", "mode=observe", restart=False)
    try:
        assert _in_time(lambda: (answer := ask(pod())).ok and gates(answer.json()) == ["example.com/held"])
        assert _in_time(lambda: ask(pod(annotations=bad)).ok)
        sentence = "muster.dev/min-replicas: expected a whole number"
        assert _in_time(lambda: (answer := ask(pod(annotations=bad))).ok and sentence in answer.said)
    finally:
        lab.upgrade("--set", "mode=active", restart=False)
    assert _in_time(lambda: (answer := ask(pod())).ok and GATE in gates(answer.json()))
    assert _in_time(lambda: not ask(pod(annotations=bad)).ok)


@pytest.mark.lab
def test_where_the_policy_api_is_not_served_musters_webhook_adds_the_gate_and_gangs_start(
    new_lab: Callable[..., Lab],
) -> None:
    small = new_lab(Shape(groups=(NodeGroup(1, gpus=8),), set_values=("admission.mode=webhook",)))
    assert small.kubectl("get", "mutatingadmissionpolicies", "-o", "name") == ""
    user = Kubectl(small.kubeconfig, "default")
    assert gates(user.ask(pod()).json()) == ["example.com/held", GATE]
    assert gates(user.ask(pod(schedulingGates=[])).json()) == [GATE]
    cluster = Cluster(small.kubeconfig)
    cluster.submit(scenario.job("hooked", 2, gpus=4))
    runs_whole(cluster, "default", "hooked", 2)
    small.kill("muster")
    answer = user.ask(pod())
    assert not answer.ok
    assert "gate.muster.dev" in answer.said
    assert user.ask(pod(schedulerName="default-scheduler")).ok


# The samples are what we tell people to write


@pytest.mark.parametrize(
    "sample",
    sorted(
        [
            *SAMPLES.glob("*.yaml"),
            *SAMPLES.glob("*/job.yaml"),
            *SAMPLES.glob("*/rigid-job.yaml"),
            *SAMPLES.glob("*/service.yaml"),
        ]
    ),
    ids=lambda path: path.stem,
)
def test_every_sample_passes_admission_without_a_word(cluster: Cluster, sample: Path) -> None:
    answer = Kubectl(cluster.kubeconfig, "default")("create", "--dry-run=server", "-f", str(sample))
    assert answer.ok, answer.said
    assert answer.said == ""


def _in_time(true: Callable[[], bool], seconds: float = scenario.PATIENCE) -> bool:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def _without_gate() -> Manifest:
    return {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}


def _pin(node: str) -> Manifest:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}}
