# Over 300 lines: each fault that the doctor finds has a test.
"""`muster doctor` before an API server that answers by hand: each fault is found, with what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from muster.doctor import rights
from muster.doctor.checks import NEWEST, OLDEST
from muster.doctor.finding import Finding, Level
from muster.doctor.patient import Patient
from muster.doctor.visit import Place, before_start, examine, text
from muster.errors import ClusterError, ConfigurationError
from muster.points import Profile
from muster.settings import load_settings
from tests.chart.test_chart import CHART, IMAGE, rendered

Json = dict[str, Any]
OWN = "/namespaces/muster-system"
DEPLOYMENT = f"/apis/apps/v1{OWN}/deployments/muster"
CONFIGURATION = f"/api/v1{OWN}/configmaps/muster"
LEASE = f"/apis/coordination.k8s.io/v1{OWN}/leases/muster-scheduler"
NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
PROXY = f"/api/v1{OWN}/services/http:muster:service/proxy/readyz"
SAR = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
GANGS = "/apis/muster.dev/v1alpha1/gangs"


def node(name: str, *taints: str, gpus: int = 8) -> Json:
    given = [{"key": taint, "effect": "NoSchedule"} for taint in taints]
    amounts = {"cpu": "64", "nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "64"}
    return {"metadata": {"name": name}, "spec": {"taints": given}, "status": {"allocatable": amounts}}


def stranger(on: str, gpus: int = 1) -> Json:
    amounts = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"resources": {"requests": amounts}}
    return {"metadata": {"name": "other"}, "spec": {"nodeName": on, "containers": [container]}}


class Cluster:
    """A healthy installation; tests change `answers` (by path) and what pods and accounts get."""

    def __init__(self, configuration: str = "") -> None:
        images = {"muster": "registry.example/muster:0.1.0", "kube-scheduler": "k8s/kube-scheduler:v1.37.1"}
        pod = {
            "serviceAccountName": "muster",
            "containers": [{"name": n, "image": i} for n, i in images.items()],
        }
        renewed = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        held = {"holderIdentity": "muster-0_1", "renewTime": renewed, "leaseDurationSeconds": 15}
        self.images = images
        self.answers: dict[str, Any] = {
            "/version": {"gitVersion": "v1.37.1"},
            CONFIGURATION: {"data": {"muster.yaml": configuration or "{}"}},
            DEPLOYMENT: {"spec": {"replicas": 2, "template": {"spec": pod}}, "status": {"readyReplicas": 2}},
            LEASE: {"spec": held},
            PROXY: {},
            WHO: {"status": {"userInfo": {"username": "me"}}},
            "/api/v1/nodes": {
                "items": [node("gpu-0", "gpus"), node("gpu-1", "gpus"), node("cpu", "control", gpus=0)]
            },
            "/api/v1/pods": {"items": [stranger("cpu", gpus=0)]},
            GANGS: {"items": []},
        }
        self.gates = [{"name": "muster.dev/queue"}]
        self.labels: dict[str, str] = {}
        self.pins_refused = True
        self.denied: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, str, Any]] = []

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        where = path.partition("?")[0]
        self.asked.append((method, path, body))
        if where in (SAR, SELF):
            about = body["spec"]["resourceAttributes"]
            allowed = (about["verb"], about["resource"]) not in self.denied
            return 201, json.dumps({"status": {"allowed": allowed}}).encode()
        if method == "POST" and where == PODS and where not in self.answers:
            if body["spec"].get("nodeName") and self.pins_refused:
                return 422, b'{"message": "refused"}'
            return 201, json.dumps(self._made(body)).encode()
        found = self.answers.get(where, 404)
        if isinstance(found, ClusterError):
            raise found
        if isinstance(found, int):
            return found, json.dumps({"message": f"no {where}"}).encode()
        if isinstance(found, tuple):
            return found[0], json.dumps({"message": found[1]}).encode()
        return 200, json.dumps(found).encode()

    def _made(self, body: Json) -> Json:
        spec = body["spec"] | {"schedulingGates": self.gates}
        if self.labels:
            spec["schedulerName"] = "default-scheduler"
        return {"metadata": {"labels": self.labels}, "spec": spec}


def found(cluster: Cluster, **place: Any) -> dict[str, Finding]:
    """By what they are about; those that are bad win."""
    worst = (Level.OK, Level.WARN, Level.UNKNOWN, Level.FAIL)
    told = sorted(examine(cluster, Place(**place), "0.1.0"), key=lambda one: worst.index(one.level))
    for one in told:
        assert one.level is Level.OK or one.do, f"{one} says not what to do"
    return {one.about: one for one in told}


def only_bad(cluster: Cluster) -> Finding:
    bad = [one for one in found(cluster).values() if one.level is not Level.OK]
    assert len(bad) == 1, bad
    return bad[0]


def test_of_a_healthy_installation_everything_is_ok_and_nothing_is_changed() -> None:
    cluster = Cluster()
    told = found(cluster)
    assert {one.level for one in told.values()} == {Level.OK}
    assert list(told) == [
        "kubernetes", "muster", "versions", "leader", "admission", "rights", "nodes", "report port", "put aside",
    ]  # fmt: skip
    for method, path, _ in cluster.asked:
        reviews = ("accessreviews", "selfsubjectreviews")
        assert method == "GET" or "dryRun=All" in path or path.endswith(reviews), (method, path)


@pytest.mark.parametrize("version", ["v1.33.4", "v1.38.0", "v1.38.0-eks-1"])
def test_an_unsupported_kubernetes_is_named(version: str) -> None:
    cluster = Cluster()
    cluster.answers["/version"] = {"gitVersion": version}
    assert found(cluster)["kubernetes"].level is Level.FAIL


def test_the_supported_versions_are_the_charts() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == (
        f">=1.{OLDEST}.0-0 <1.{NEWEST + 1}.0-0"
    )


@pytest.mark.parametrize(
    ("container", "image", "level", "said"),
    [
        ("kube-scheduler", "k8s/kube-scheduler:v1.38.0", Level.FAIL, "does not support a newer scheduler"),
        ("kube-scheduler", "k8s/kube-scheduler:v1.35.0", Level.WARN, "more than one minor behind"),
        ("kube-scheduler", "k8s/kube-scheduler:v1.36.0", Level.OK, "kube-scheduler is 1.36"),
        ("muster", "registry.example:5000/muster:0.2.0", Level.WARN, "the cluster's muster is 0.2.0"),
        ("muster", "registry.example:5000/muster@sha256:abc", Level.OK, "kube-scheduler is 1.37"),
    ],
)
def test_versions_that_do_not_go_together_are_named(
    container: str, image: str, level: Level, said: str
) -> None:
    cluster = Cluster()
    for one in cluster.answers[DEPLOYMENT]["spec"]["template"]["spec"]["containers"]:
        if one["name"] == container:
            one["image"] = image
    told = found(cluster)["versions"]
    assert (told.level, said in told.says) == (level, True), told


@pytest.mark.parametrize(
    ("ready", "level", "said"),
    [(0, Level.FAIL, "none of 2 replicas"), (1, Level.WARN, "1 of 2 replicas"), (2, Level.OK, "2 replicas")],
)
def test_replicas_that_are_not_ready_are_counted(ready: int, level: Level, said: str) -> None:
    cluster = Cluster()
    cluster.answers[DEPLOYMENT]["status"]["readyReplicas"] = ready
    told = found(cluster)["muster"]
    assert (told.level, said in told.says) == (level, True), told


def test_where_muster_is_not_installed_the_place_is_asked_for_and_nothing_else_looked_at() -> None:
    cluster = Cluster()
    del cluster.answers[CONFIGURATION]
    [told] = examine(cluster, Place())
    assert (told.level, told.about) == (Level.FAIL, "installation")
    assert "--namespace and --release" in told.do
    assert "not installed where none is listed (config/quickstart.md)" in told.do


@pytest.mark.parametrize(
    ("status", "do"),
    [
        (
            401,
            "log in again: the API server does not take these credentials (kubectl auth whoami asks the same)",
        ),
        (
            403,
            "it takes the right to get configmaps in muster-system, which an administrator gives: ask somebody ",
        ),
        (503, "run it again in a minute; "),
    ],
)
def test_who_may_not_read_the_configuration_is_not_sent_to_look_for_muster(status: int, do: str) -> None:
    cluster = Cluster()
    cluster.answers[CONFIGURATION] = (status, "no")
    [told] = examine(cluster, Place())
    assert (told.level, told.about) == (Level.FAIL, "installation")
    assert told.do.startswith(do)
    assert "helm list" not in told.do


def test_a_configuration_that_muster_refuses_is_told_in_its_words() -> None:
    [told] = examine(Cluster("{profile: afsl}"), Place())
    assert (told.level, told.about) == (Level.FAIL, "configuration")
    assert "did you mean 'afs-l'?" in told.says


@pytest.mark.parametrize("age", [None, 90])
def test_a_lease_that_nobody_renews_means_that_nothing_starts(age: int | None) -> None:
    cluster = Cluster()
    if age is None:
        del cluster.answers[LEASE]
    else:
        old = datetime.now(UTC) - timedelta(seconds=age)
        cluster.answers[LEASE]["spec"]["renewTime"] = old.isoformat()
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.FAIL, "leader")
    assert told.says.endswith("nothing starts")


def test_a_pod_without_the_gate_and_one_that_goes_past_the_queue_are_found() -> None:
    cluster = Cluster()
    cluster.gates = []
    assert "comes without the gate" in only_bad(cluster).says
    cluster = Cluster()
    cluster.pins_refused = False
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.FAIL, "admission")
    assert "past the queue" in told.says


def test_a_gate_that_admission_refuses_is_a_fault_and_a_caller_without_rights_none() -> None:
    cluster = Cluster()
    cluster.answers[PODS] = (422, "ValidatingAdmissionPolicy 'muster-gate': no gate")
    assert only_bad(cluster).level is Level.FAIL
    cluster.answers[PODS] = (403, 'pods is forbidden: User "me" cannot create resource "pods"')
    assert only_bad(cluster).level is Level.UNKNOWN


def test_a_whitelist_of_tolerations_that_lacks_that_of_musters_taint_is_told_what_to_add() -> None:
    """As kube-apiserver 1.37 with PodTolerationRestriction says it, by 500."""
    cluster = Cluster()
    merged = "pod tolerations (possibly merged with namespace default tolerations)"
    said = f"{merged} conflict with its namespace whitelist"
    cluster.answers[PODS] = (500, said)
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.FAIL, "admission")
    assert told.says == f"a pod of Muster's in namespace default is refused: {said}"
    assert told.do.startswith(
        'add {"key": "muster.dev/scheduler", "operator": "Exists"}, without an effect, '
    )
    bound_by_the_clusters = Cluster("{binder: cluster}")  # whose pods get no toleration
    bound_by_the_clusters.answers[PODS] = (500, said)
    assert "helm upgrade" in only_bad(bound_by_the_clusters).do


def test_a_namespace_that_has_not_opted_in_is_no_fault_and_no_pod_is_tried_there() -> None:
    cluster = Cluster('{namespaceSelector: {matchLabels: {muster.dev/enabled: "true"}}}')
    cluster.answers[NAMESPACE] = {"metadata": {"labels": {"kubernetes.io/metadata.name": "default"}}}
    cluster.gates = []
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.WARN, "admission")
    assert told.says.startswith("namespace default has not opted in (namespaceSelector)")
    assert ("hooks.test.namespace" in told.do, "--probe-namespace" in told.do) == (True, True)
    assert PODS not in {path.partition("?")[0] for _, path, _ in cluster.asked}
    cluster.answers[NAMESPACE]["metadata"]["labels"]["muster.dev/enabled"] = "true"
    assert only_bad(cluster).says.endswith("comes without the gate")
    cluster.gates = [{"name": "muster.dev/queue"}]
    assert found(cluster)["admission"].level is Level.OK
    cluster.answers[NAMESPACE] = (403, "namespaces is forbidden")
    assert found(cluster)["admission"].level is Level.OK
    cluster.gates = []
    assert only_bad(cluster).do.startswith("if it has opted in, which its labels say and you may not read: ")


def test_namespaces_that_are_selected_by_name_are_known_without_a_look() -> None:
    cluster = Cluster("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team}}}")
    assert only_bad(cluster).level is Level.WARN
    assert NAMESPACE not in {path for _, path, _ in cluster.asked}


def test_in_mode_observe_a_gate_is_the_fault() -> None:
    cluster = Cluster("{mode: observe}")
    assert "never comes off" in only_bad(cluster).says
    cluster.gates = []
    assert found(cluster)["admission"].level is Level.OK


def test_with_the_clusters_binder_pods_have_to_be_handed_over_and_nodes_may_be_shared() -> None:
    cluster = Cluster("{binder: cluster, leader: {own: true}}")
    cluster.answers["/api/v1/nodes"] = {"items": [node("gpu-0")]}
    assert "is not handed to the cluster's scheduler" in only_bad(cluster).says
    cluster.labels = {"muster.dev/scheduler": "muster"}
    assert {one.level for one in found(cluster).values()} == {Level.OK}


def test_a_right_that_musters_account_lacks_is_named() -> None:
    cluster = Cluster()
    cluster.denied = {("patch", "pods"), ("create", "gangs")}
    told = only_bad(cluster)
    assert told.says == ("the account muster may not create gangs.muster.dev, patch pods, patch pods/status")
    assert {path for _, path, _ in cluster.asked if "access" in path} == {SAR}


def test_muster_itself_asks_for_its_own_rights() -> None:
    cluster = Cluster()
    user = "system:serviceaccount:muster-system:muster"
    cluster.answers[WHO] = {"status": {"userInfo": {"username": user}}}
    assert found(cluster)["rights"].level is Level.OK
    asked = {path: body for _, path, body in cluster.asked if "access" in path}
    assert set(asked) == {SELF}
    assert "user" not in asked[SELF]["spec"]


@pytest.mark.parametrize(
    "values",
    [
        (),
        ("binder=cluster",),
        ("devices.enabled=true",),
        ("namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=team",),
    ],
)
def test_the_chart_gives_each_right_that_the_doctor_asks_for(values: tuple[str, ...]) -> None:
    manifests = rendered(IMAGE, *values)
    settings = next(m for m in manifests if m["kind"] == "ConfigMap" and m["metadata"]["name"] == "muster")
    patient = Patient(
        Cluster(), "muster-system", "muster", load_settings(settings["data"]["muster.yaml"]), "default"
    )
    given = {
        (verb, group, resource, one["metadata"].get("namespace", ""))
        for one in manifests
        if one["kind"] in ("ClusterRole", "Role") and one["metadata"]["name"] == "muster"
        for rule in one["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    wanted = {(right.verb, right.group, right.resource, where) for right, where in rights.needed(patient)}
    assert wanted - given == set()


def test_gpu_nodes_that_another_scheduler_may_use_are_named_and_used_ones_are_a_fault() -> None:
    cluster = Cluster()
    cluster.answers["/api/v1/nodes"]["items"] += [
        node("gpu-2", "node.kubernetes.io/not-ready"), node("gpu-3"), node("gpu-4"), node("gpu-5"),
    ]  # fmt: skip
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.FAIL, "nodes")
    assert told.says == "no taint keeps other schedulers off gpu-2, gpu-3, gpu-4 and 1 more"
    assert "kubectl taint nodes" in told.do
    cluster.answers[CONFIGURATION]["metadata"] = {"annotations": {"muster.dev/shared-nodes": "true"}}
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.WARN, "nodes"), "the chart was told that they are shared"
    cluster.answers["/api/v1/pods"]["items"].append(stranger("gpu-0"))
    told = found(cluster)["nodes"]
    assert (told.level, "hold GPUs on gpu-0" in told.says) == (Level.FAIL, True)
    [query] = {path for _, path, _ in cluster.asked if path.startswith("/api/v1/pods?")}
    assert "spec.schedulerName%21%3Dmuster" in query


@pytest.mark.parametrize("taint", ["nvidia.com/gpu", "amd.com/gpu", "google.com/tpu"])
def test_a_taint_by_a_devices_name_keeps_nobody_off_who_asks_for_devices(taint: str) -> None:
    """The commonest taint of GPU nodes: ExtendedResourceToleration lets every pod that asks for GPUs by."""
    cluster = Cluster("deviceResources: [nvidia.com/gpu, google.com/tpu]")
    offers = node("gpu-2", "team.example/gpu")  # that no node offers: nobody's pod tolerates it
    offers["status"]["allocatable"][taint] = "8"
    cluster.answers["/api/v1/nodes"]["items"] = [node("gpu-0", taint), node("gpu-1", taint, "team"), offers]
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.FAIL, "nodes")
    assert told.says == (
        f"no taint ({taint} is none: pods that ask for GPUs tolerate it) keeps other schedulers off gpu-0"
    )


def test_where_no_node_has_gpus_open_nodes_are_warned_of_since_both_schedulers_count_cpus() -> None:
    cluster = Cluster()
    cluster.answers["/api/v1/nodes"]["items"] = [node("cpu-0", gpus=0), node("cpu-1", "team", gpus=0)]
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.WARN, "nodes")
    assert told.says.startswith("no node has GPUs, and no taint keeps other schedulers off cpu-0: ")
    assert "kubectl taint nodes" in told.do
    cluster.answers["/api/v1/nodes"]["items"] = [node("cpu-1", "team", gpus=0)]
    kept = "no node has GPUs; a taint keeps other schedulers off 1 node"
    assert found(cluster)["nodes"] == Finding(Level.OK, "nodes", kept)


def test_open_nodes_without_gpus_beside_guarded_ones_are_warned_of_unless_nodes_are_shared() -> None:
    cluster = Cluster()
    more = [
        node("cpu-0", gpus=0),
        node("cpu-1", "team", gpus=0),
        node("cpu-2", "node.kubernetes.io/x", gpus=0),
    ]
    cluster.answers["/api/v1/nodes"]["items"] += more
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.WARN, "nodes")
    assert told.says.startswith("no taint keeps other schedulers off cpu-0, cpu-2, without GPUs: ")
    assert told.do.startswith("give gangs without GPUs a nodeSelector ")
    both = [one for one in examine(cluster, Place(), "0.1.0") if one.about == "nodes"]
    guarded = "a taint keeps other schedulers off 2 GPU nodes"
    assert both == [Finding(Level.OK, "nodes", guarded), told]
    cluster.answers[CONFIGURATION]["metadata"] = {"annotations": {"muster.dev/shared-nodes": "true"}}
    assert found(cluster)["nodes"] == Finding(Level.OK, "nodes", guarded)


def test_nodes_with_other_devices_count_where_the_configuration_lists_them() -> None:
    for configuration, said in (("", False), ("deviceResources: [nvidia.com/gpu, google.com/tpu]", True)):
        cluster = Cluster(configuration)
        tpus = node("tpu-0", gpus=0)
        tpus["status"]["allocatable"]["google.com/tpu"] = "4"
        cluster.answers["/api/v1/nodes"]["items"].append(tpus)
        told = found(cluster)["nodes"]
        assert "schedulers off tpu-0" in told.says
        assert (told.level is Level.FAIL, "without GPUs" not in told.says) == (said, said)


def test_a_profile_that_weighs_nodes_by_use_wants_a_metrics_server_and_others_ask_for_none() -> None:
    where = "/apis/metrics.k8s.io/v1beta1/nodes"
    plain = Cluster()
    assert "use" not in found(plain)
    assert where not in {path for _, path, _ in plain.asked}
    cluster = Cluster("profile: specon")
    told = only_bad(cluster)
    assert (told.level, told.says) == (
        Level.WARN,
        "metrics.k8s.io is not served: specon weighs nodes by what pods request",
    )
    cluster.answers[where] = (503, "the server is currently unable to handle the request")
    assert "unable to handle the request: specon weighs" in only_bad(cluster).says
    cluster.answers[where] = {"items": [{}]}
    assert found(cluster)["use"] == Finding(Level.OK, "use", "metrics.k8s.io tells it of 1 node")


def test_gpu_products_that_the_configuration_names_are_looked_for_on_nodes() -> None:
    assert "products" not in found(Cluster("profile: gavel-max-min-perf")), "its defaults are the paper's"
    cluster = Cluster("{profile: gavel-max-min-perf, pluginArgs: {gavel-max-min: {products: [a100, T4]}}}")
    labels = cluster.answers["/api/v1/nodes"]["items"][0]["metadata"].setdefault("labels", {})
    names = "pluginArgs.gavel-max-min.products"
    assert only_bad(cluster) == Finding(
        Level.WARN,
        "products",
        f"{names} names a100, T4: of no effect while no node has the label nvidia.com/gpu.product",
        "kubectl get nodes -L nvidia.com/gpu.product shows what they are called",
    )
    labels["nvidia.com/gpu.product"] = "A100"
    assert only_bad(cluster).says == f"{names} names T4: of no effect while nodes have A100"
    cluster.answers["/api/v1/nodes"]["items"].append(node("t4"))
    labels = cluster.answers["/api/v1/nodes"]["items"][-1]["metadata"].setdefault("labels", {})
    labels["nvidia.com/gpu.product"] = "t4"
    assert found(cluster)["products"] == Finding(Level.OK, "products", f"nodes have all that {names} names")


def test_long_lists_are_read_to_their_end() -> None:
    cluster = Cluster()
    pages = iter([{"items": [node("gpu-8")], "metadata": {"continue": "more"}}, {"items": [node("gpu-9")]}])

    class Paged(Cluster):
        def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
            if path.startswith("/api/v1/nodes"):
                return 200, json.dumps(next(pages)).encode()
            return cluster.request(method, path, body)

    [told] = [one for one in examine(Paged(), Place()) if one.about == "nodes"]
    assert told.says == "no taint keeps other schedulers off gpu-8, gpu-9"


def test_a_report_port_that_nobody_reaches_is_found_by_the_proxy_or_by_its_url() -> None:
    cluster = Cluster()
    cluster.answers[PROXY] = (503, "no endpoints available for service")
    told = only_bad(cluster)
    assert "no endpoints available" in told.says
    assert "training can't report" in told.says
    told = found(Cluster(), url="http://127.0.0.1:9/")["report port"]
    assert told.level is Level.FAIL
    assert told.says.startswith("http://127.0.0.1:9/readyz: ")


def test_in_a_pod_the_service_is_asked_by_its_name() -> None:
    assert Place(inside=True).service(load_settings("{}")) == "http://muster.muster-system.svc:8080"
    tls = load_settings("{tls: {certificates: /etc/tls}, ports: {service: 8443}}")
    assert Place(inside=True, release="gangs").service(tls) == "https://gangs.muster-system.svc:8443"


def test_jobs_that_were_put_aside_are_named() -> None:
    cluster = Cluster()
    cluster.answers[GANGS]["items"] = [
        {
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"job": name},
            "status": {"state": "Invalid", "reason": reason},
        }
        for name, reason in (("job-a", "Internal"), ("job-b", "BadAnnotation"))
    ]
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.FAIL, "put aside")
    assert told.says == "1 job over an error of Muster's own: team/job-a"


def test_what_the_caller_may_not_see_is_said_and_the_rest_is_looked_at() -> None:
    cluster = Cluster()
    cluster.answers["/api/v1/nodes"] = (403, 'nodes is forbidden: User "me" cannot list')
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.UNKNOWN, "nodes")
    assert "nodes is forbidden" in told.says


@pytest.mark.parametrize(
    ("status", "do"),
    [
        (401, "log in again"),
        (404, "kubectl api-resources"),
        (500, "run it again in a minute"),
        (503, "the API server's log"),
    ],
)
def test_what_could_not_be_looked_at_for_another_reason_has_something_to_do_too(status: int, do: str) -> None:
    cluster = Cluster()
    cluster.answers["/api/v1/nodes"] = (status, "etcdserver: leader changed")
    told = only_bad(cluster)
    assert (told.level, told.about) == (Level.UNKNOWN, "nodes")
    assert told.says == "can't be looked at: /api/v1/nodes: etcdserver: leader changed"
    assert do in told.do


def test_an_api_server_that_does_not_answer_is_no_finding() -> None:
    class Gone(Cluster):
        def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:  # noqa: ARG002
            raise ClusterError(f"{method} {path}: refused")

    with pytest.raises(ClusterError, match="refused"):
        examine(Gone(), Place())


def test_each_finding_is_a_line_with_what_to_do_below_it() -> None:
    told = text(
        [Finding(Level.OK, "leader", "a holds it"), Finding(Level.FAIL, "nodes", "two share", "taint one")]
    )
    assert told == (
        "ok       leader  a holds it\nfail     nodes   two share\n                 -> taint one\n"
    )


def test_all_that_is_wrong_with_a_configuration_stands_in_lines_of_their_own() -> None:
    told = text([Finding(Level.FAIL, "configuration", "patience: is none\norder: is none", "correct them")])
    assert told == (
        "fail     configuration  patience: is none\n"
        "                        order: is none\n"
        "                        -> correct them\n"
    )


# Before muster starts: as its own account


def test_what_has_no_effect_is_a_warning_and_what_simulations_alone_read_is_told() -> None:
    own = "[{name: own, shares: [max-min], resize: in-place}]"
    cluster = Cluster(f"{{order: strict, patience: 10m, profiles: {own}}}")
    told = [one for one in examine(cluster, Place(), "0.1.0") if one.about == "configuration"]
    assert [(one.level, one.says) for one in told] == [
        (Level.WARN, "patience: is looked at only with order backfill; found 600 s"),
        (
            Level.OK,
            "profiles[0].resize: in-place is how jobs change in simulations; here each job says it "
            "(muster.dev/resize, muster.dev/gpus)",
        ),
    ]
    assert all(one.do for one in told if one.level is Level.WARN)


SERVED = "/apis/muster.dev/v1alpha1"


def before(cluster: Cluster, config: str = "") -> dict[str, tuple[Level, str]]:
    found = before_start(cluster, Place(), config)
    return {one.about: (one.level, one.says) for one in found}


def test_before_muster_starts_its_own_account_asks_for_version_gangs_and_rights_alone() -> None:
    cluster = Cluster()
    cluster.answers[SERVED] = {"resources": [{"name": "gangs"}, {"name": "gangs/status"}]}
    assert before(cluster) == {
        "kubernetes": (Level.OK, "v1.37.1; 1.34 to 1.37 are supported"),
        "gangs": (Level.OK, "gangs.muster.dev/v1alpha1 is served"),
        "rights": (Level.OK, "this account may what it has to"),
    }
    asked = {(method, path) for method, path, _ in cluster.asked}
    assert asked == {("GET", "/version"), ("GET", SERVED), ("POST", SELF)}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("patience: soon", ["patience: must be a time such as 90s"]),
        ("profile: mine", ["profile: must be one of afs-l, "]),
        (
            "pluginArgs: {pack: {weight: 1}}",
            ["pluginArgs.pack.weight: not a parameter of pack; it has: none"],
        ),
        (
            "{profile: mine, profiles: [{name: mine, shares: [theirs]}], pluginArgs: {ours: {a: 1}}}",
            ["profile mine: shares: plugin 'theirs' is not installed; ", "pluginArgs.ours: not a plugin; "],
        ),
    ],
)
def test_a_configuration_that_muster_refuses_keeps_it_from_starting_and_nobody_is_asked(
    config: str, said: list[str]
) -> None:
    cluster = Cluster()
    found = before(cluster, config)
    assert (found.keys(), cluster.asked) == ({"configuration"}, [])
    level, says = found["configuration"]
    assert level is Level.FAIL
    for line, wanted in zip(says.splitlines(), said, strict=True):
        assert line.removeprefix("configuration: ").startswith(wanted)


def test_a_profile_that_can_not_be_sent_to_the_verbs_keeps_muster_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which `muster serve` looks at, too."""

    def refuses(profile: Profile) -> Profile:
        raise ConfigurationError(f"profile {profile.name}: can't be sent")

    monkeypatch.setattr("muster.doctor.visit.sendable", refuses)
    assert before(Cluster()) == {"configuration": (Level.FAIL, "profile fifo: can't be sent")}


def test_what_would_fail_at_each_cycle_keeps_muster_from_starting() -> None:
    cluster = Cluster()
    cluster.answers["/version"] = {"gitVersion": "v1.33.4"}
    cluster.denied = {("patch", "pods"), ("create", "gangs")}
    assert before(cluster) == {
        "kubernetes": (Level.FAIL, "v1.33.4 is not supported: 1.34 to 1.37 are"),
        "gangs": (
            Level.FAIL,
            "the API server serves no gangs.muster.dev/v1alpha1: nothing can be recorded",
        ),
        "rights": (
            Level.FAIL,
            "this account may not create gangs.muster.dev, patch pods, patch pods/status",
        ),
    }


@pytest.mark.parametrize("version", ["v1.38.0", "v2.0.0", "unknown"])
def test_a_control_plane_that_is_newer_keeps_no_muster_from_starting(version: str) -> None:
    cluster = Cluster()
    cluster.answers["/version"] = {"gitVersion": version}
    assert before(cluster)["kubernetes"] == (
        Level.WARN,
        f"{version} is not supported: 1.34 to 1.37 are",
    )


def test_an_api_server_that_does_not_answer_or_tell_keeps_nobody_from_starting() -> None:
    away = Cluster()
    away.answers["/version"] = ClusterError("the API server does not answer", 0)
    assert before(away) == {
        "kubernetes": (Level.UNKNOWN, "the API server does not answer: muster starts, and waits for it")
    }
    busy = Cluster()
    busy.answers |= {"/version": 503, SERVED: 429}
    assert {about: level for about, (level, _) in before(busy).items()} == {
        "kubernetes version": Level.UNKNOWN,
        "definition": Level.UNKNOWN,
        "rights": Level.OK,
    }
