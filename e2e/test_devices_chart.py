# Over 300 lines: one lab shows what the policies of devices take and refuse.
"""Devices in place as the chart sets them up, on a real apiserver: what Muster may do in the namespace of the pods
that hold them, and a hostile tenant may not, whatever rights it has; what pods in place are given, and which are
refused. Nodes are fake: the scenario plays the agent and the device plugin."""

from __future__ import annotations

import contextlib
import copy
import threading
import uuid
from collections.abc import Callable, Iterator

import httpx
import pytest

from e2e.cluster import Cluster, Json, Pod, Refused
from e2e.in_place import GPU_NUMBERS, SPACE, holders
from e2e.lab import Lab, NodeGroup, Shape
from e2e.labs import own_lab
from e2e.reports import token
from e2e.scenario import bound, job, pod, show, wait_until
from e2e.test_admission import MUSTER, Kubectl
from muster.cluster.holder_records import ASSIGNED
from muster.cluster.holders import holder_object
from muster.cluster.holding import Holding
from muster.types import JobKey
from muster.types.holders import CreateHolder

RUNS_ON_KIND = True
pytestmark = pytest.mark.lab
VALUES = (
    "devices.enabled=true",
    "devices.access=envvar",
    "devices.image=example.com/pause:1",
    "devices.keep=1s",
    "devices.lease=30s",
)
HOW = Holding(SPACE, "muster", "example.com/pause:1", SPACE, 35)
PODS = f"/api/v1/namespaces/{SPACE}/pods"


@pytest.fixture(scope="module")
def chart() -> Iterator[Lab]:
    with own_lab("devices", Shape(groups=(NodeGroup(1, gpus=4),), racks=0, set_values=VALUES)) as lab:
        cluster = Cluster(lab.kubeconfig)
        cluster.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"muster.dev/devices": "true"}}})
        made = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        cluster.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", made)
        yield lab


@pytest.fixture
def cluster(chart: Lab) -> Cluster:
    return Cluster(chart.kubeconfig)


@pytest.fixture
def tenant(chart: Lab) -> Kubectl:
    """Somebody with every right of RBAC."""
    return Kubectl(chart.kubeconfig, SPACE).as_("mallory", "system:masters")


@contextlib.contextmanager
def agent(lab: Lab, cluster: Cluster, of: Pod) -> Iterator[Callable[[], Json]]:
    """An agent that is ready for one GPU; what it was answered last."""
    bearer, name, over, said = (
        token(cluster, of, of.namespace),
        uuid.uuid4().hex,
        threading.Event(),
        list[Json]([{}]),
    )

    def ask(state: str, order: int = 0) -> None:
        body: Json = {"incarnation": name, "state": state, "order": order, "devices": [], "gpus": [1]}
        answer = httpx.post(
            f"{lab.service_url()}/v1/agents",
            json=body,
            headers={"Authorization": f"Bearer {bearer}"},
            timeout=60,
            trust_env=False,
        )
        if answer.status_code == 200:
            said[0] = answer.json()
        else:
            over.wait(1)

    def go_on() -> None:
        while not over.is_set():
            with contextlib.suppress(httpx.HTTPError):
                ask("ready")
            over.wait(0.2)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield lambda: said[0]
    finally:
        over.set()
        thread.join()
        ask("ended", (said[0].get("order") or {"number": 0})["number"])


AGENT = ["muster-agent", "--devices", "--", "train"]


def in_place(name: str) -> Json:
    made = job(name, 1, gpus=0, annotations={GPU_NUMBERS: "1"})
    made["spec"]["template"]["spec"]["containers"][0]["command"] = AGENT
    return made


@pytest.fixture
def held(chart: Lab, cluster: Cluster) -> Iterator[Pod]:
    """A pod that holds a device for a job that waits for it; Muster has noted whose it is."""
    cluster.submit(in_place("train"))
    [one] = wait_until(lambda: bound(cluster.pods("default", "train"), 1), what="train is bound")
    with agent(chart, cluster, one) as answered:
        [holder] = wait_until(lambda: bound(holders(cluster), 1), what="Muster holds a GPU", also=answered)
        status = wait_until(
            lambda: cluster.get(f"{PODS}/{holder.name}")["status"].get("containerStatuses"), what="it runs"
        )
        device = {"resourceID": f"GPU-{holder.uid}", "health": "Healthy"}
        status[0]["allocatedResourcesStatus"] = [{"name": "nvidia.com/gpu", "resources": [device]}]
        cluster.patch(f"{PODS}/{holder.name}/status", {"status": {"containerStatuses": status}})
        wait_until(lambda: answered().get("order"), what="the agent is told of its device", also=answered)
        found = cluster.pod(SPACE, holder.name)
        assert found is not None
        assert found.annotations[ASSIGNED]
        yield found
    cluster.delete("/apis/batch/v1/namespaces/default/jobs/train", propagationPolicy="Background")
    wait_until(
        lambda: not holders(cluster), what="Muster has let go of the GPU", also=lambda: show(holders(cluster))
    )


def test_muster_holds_a_device_for_a_training_and_nobody_gets_at_it(
    cluster: Cluster, tenant: Kubectl, held: Pod
) -> None:
    for part in ("exec?command=true&stdout=true", "attach?stdout=true", "portforward?ports=80", "proxy"):
        name, _, query = part.partition("?")
        asked = dict(one.split("=") for one in query.split("&") if one)
        with pytest.raises(Refused) as refused:
            cluster.request("GET", f"{PODS}/{held.name}/{name}", query=asked)
        assert f"nobody has pods/{name} of them" in refused.value.message
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}  # else PodSecurity is first
    debug = [{"name": "look", "image": "busybox", "securityContext": safe}]
    with pytest.raises(Refused, match="nobody has pods/ephemeralcontainers of them"):
        cluster.patch(
            f"{PODS}/{held.name}/ephemeralcontainers",
            {"spec": {"ephemeralContainers": debug}},
            "strategic-merge",
        )
    for theirs in ("me", None):
        answer = tenant.patch(held.name, {"metadata": {"annotations": {ASSIGNED: theirs}}}, "merge")
        assert "only Muster creates and changes pods there, not mallory" in answer.said
    answer = tenant.patch(held.name, {"metadata": {"labels": {"muster.dev/holder": None}}}, "merge")
    assert "only Muster creates and changes pods there" in answer.said
    image = {"spec": {"containers": [{"name": "hold", "image": "busybox"}]}}
    assert "only Muster creates and changes pods there" in tenant.patch(held.name, image).said
    muster = Kubectl(cluster.kubeconfig, SPACE).as_(MUSTER)
    assert not muster.patch(held.name, image).ok, "by two policies: this one, and muster-own"
    # what a network plugin or an administrator notes is nobody's business
    assert tenant.patch(held.name, {"metadata": {"annotations": {"example.com/ip": "10.0.0.1"}}}, "merge").ok


def holder() -> Json:
    """As Muster makes it."""
    return holder_object(CreateHolder("holder-1-1", "node-0", JobKey("default", "job-train"), ""), HOW)


def test_only_muster_creates_pods_there(cluster: Cluster, tenant: Kubectl) -> None:
    said = tenant.ask(holder()).said
    assert f"namespace {SPACE} is for the pods by which Muster holds GPUs" in said
    assert "not mallory. Use another namespace." in said
    assert Kubectl(cluster.kubeconfig, SPACE).as_(MUSTER).ask(holder()).ok


def changed(**changes: object) -> Json:
    """A pod that holds a device, but "container.x", "spec.y" or "label.z" are these."""
    made = copy.deepcopy(holder())
    parts = {
        "spec": made["spec"],
        "first": made["spec"]["containers"][0],
        "labels": made["metadata"]["labels"],
        "security": made["spec"]["containers"][0]["securityContext"],
    }
    for where, value in changes.items():
        part, _, name = where.partition("_")
        parts[part][name] = value
    return made


CPU = {"cpu": "10m", "memory": "16Mi"}
FIRST = holder()["spec"]["containers"][0]
INIT = {key: value for key, value in FIRST.items() if key != "lifecycle"} | {"name": "i"}


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (changed(first_image="busybox"), "spec.containers[0].image: expected example.com/pause:1 (the chart value"),
        (changed(first_command=["sleep", "1"]), "expected what the image runs and a sleep at its end"),
        (changed(first_env=[{"name": "A", "value": "b"}]), "expected what the image runs and a sleep at its end"),
        (changed(first_lifecycle={"postStart": {"exec": {"command": ["x"]}}}), "expected what the image runs"),
        (changed(first_livenessProbe={"exec": {"command": ["x"]}}), "expected what the image runs"),
        (changed(spec_automountServiceAccountToken=True), "spec.serviceAccountName: expected default, with"),
        (changed(spec_volumes=[{"name": "v", "emptyDir": {}}]), "spec.volumes: expected none"),
        (changed(spec_schedulerName="other"), "spec.schedulerName: expected muster and priorityClassName"),
        (changed(spec_priorityClassName="system-node-critical"), "spec.schedulerName: expected muster and"),
        (changed(spec_nodeName="node-0"), "and no node yet"),
        (changed(first_resources={"limits": {**CPU, "nvidia.com/gpu": "2"}}), "found nvidia.com/gpu: 2"),
        (changed(first_resources={"limits": CPU}), "found nvidia.com/gpu: 0"),
        (changed(spec_initContainers=[INIT]), "expected one container and"),
        (changed(**{"labels_muster.dev/holder": "false"}), 'label muster.dev/holder: expected "true"'),
        (changed(spec_hostNetwork=True), "violates PodSecurity"),
        (changed(security_allowPrivilegeEscalation=True), "violates PodSecurity"),
    ],
)  # fmt: skip
def test_what_muster_creates_there_only_waits(cluster: Cluster, pod: Json, said: str) -> None:
    answer = Kubectl(cluster.kubeconfig, SPACE).as_(MUSTER).ask(pod)
    assert not answer.ok
    assert said in answer.said


# --- pods in place ------------------------------------------------------------------------------------------


def trains(command: list[str] | None = AGENT, gpus: str = "1,2", **first: object) -> Json:
    """A pod in place, beside whose training a container writes logs."""
    made = pod("train", gpus=0, annotations={GPU_NUMBERS: gpus})
    main = made["spec"]["containers"][0]
    made["spec"]["containers"].insert(0, {"name": "logs", "image": "logs"})
    main |= {"command": command} if command is not None else {}
    main |= first
    return made


def given(made: Json) -> Json:
    """What admission has given a pod, by container."""
    notes = made["metadata"]["annotations"]
    return {
        "env": {
            one["name"]: {e["name"]: e["value"] for e in one.get("env", ()) if e["name"] != "MUSTER_URL"}
            for one in made["spec"]["containers"]
        },
        "class": made["spec"].get("runtimeClassName"),
        "notes": {key: value for key, value in notes.items() if "nvidia" in key},
        "token": any(one["name"] == "muster-report" for one in made["spec"].get("volumes", ())),
    }


def test_the_agents_container_gets_at_the_devices_of_its_node(chart: Lab) -> None:
    ask = Kubectl(chart.kubeconfig, "default").ask
    visible = {"MUSTER_GPUS": "1,2", "NVIDIA_VISIBLE_DEVICES": "all"}
    legacy = {"env": {"logs": {}, "main": visible}, "class": "nvidia", "notes": {}, "token": True}
    assert given(ask(trains()).json()) == legacy
    brings = trains(
        env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}, {"name": "MUSTER_GPUS", "value": "2"}]
    )
    kept = {"MUSTER_GPUS": "2", "NVIDIA_VISIBLE_DEVICES": "0"}
    assert given(ask(brings).json()) == legacy | {"env": {"logs": {}, "main": kept}}
    usual = pod("usual", gpus=1)
    assert given(ask(usual | {"metadata": {"name": "usual", "annotations": {"a": "b"}}}).json()) == {
        "env": {"main": {}}, "class": None, "notes": {}, "token": False,
    }  # fmt: skip
    chart.upgrade("--set", "devices.access=cdi", restart=False)
    names = {"nvidia.cdi.k8s.io/container.main": "management.nvidia.com/gpu=all"}
    only = {"logs": {}, "main": {"MUSTER_GPUS": "1,2"}}
    wait_until(
        lambda: given(ask(trains()).json()) == {"env": only, "class": None, "notes": names, "token": True},
        what="pods in place are given the device of CDI",
        also=lambda: str(given(ask(trains()).json())),
    )
    chart.upgrade("--set", "devices.access=", restart=False)
    wait_until(
        lambda: given(ask(trains()).json()) == {"env": only, "class": None, "notes": {}, "token": True},
        what="pods in place are given no device",
    )


MPS = "/run/nvidia/mps"


def test_a_pod_that_may_share_a_gpu_meets_the_daemon_of_mps_or_is_told_why_it_can_not(
    chart: Lab, cluster: Cluster
) -> None:
    ask = Kubectl(chart.kubeconfig, "default").ask

    def sharing(memory: str = "20Gi", **first: object) -> Json:
        made = trains(**first)
        made["metadata"]["annotations"]["muster.dev/gpu-memory"] = memory
        return made

    def met(made: Json) -> Json:
        [main] = [one for one in made["spec"]["containers"] if one["name"] == "main"]
        env = {e["name"]: e["value"] for e in main["env"] if "MPS" in e["name"] or "MEMORY" in e["name"]}
        paths = {v["name"]: v["hostPath"] for v in made["spec"].get("volumes", ()) if "hostPath" in v}
        mounts = {m["mountPath"]: paths[m["name"]] for m in main["volumeMounts"] if m["name"] in paths}
        return {"env": env, "mounts": mounts}

    chart.upgrade("--set", f"devices.mps={MPS}", restart=False)
    folders = {f"{MPS}/pipe": f"{MPS}/pipe", "/dev/shm": f"{MPS}/shm"}
    wait_until(
        lambda: (
            met(ask(sharing()).json())
            == {
                "env": {"CUDA_MPS_PIPE_DIRECTORY": f"{MPS}/pipe", "MUSTER_GPU_MEMORY": "20480"},
                "mounts": {where: {"path": path, "type": "Directory"} for where, path in folders.items()},
            }
        ),
        what="a pod that may share meets the daemon",
        also=lambda: ask(sharing()).said,
    )
    assert met(ask(trains()).json()) == {"env": {}, "mounts": {}}, "it has its GPUs alone"
    shm = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    own = sharing(**shm)
    own["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    wait_until(  # the two policies come into force one after another
        lambda: "container main: volumeMounts: expected nothing at /dev/shm" in ask(own).said,
        what="a mount of its own is refused",
        also=lambda: ask(own).said,
    )
    [main] = [one for one in own["spec"]["containers"] if one["name"] == "main"]
    aside = sharing()
    main["volumeMounts"][0]["mountPath"] += "/"
    assert "container main: volumeMounts: expected nothing at /dev/shm" in ask(own).said
    aside["spec"]["volumes"] = own["spec"]["volumes"]
    aside["spec"]["containers"].append({"name": "aside", "image": main["image"], **shm})
    assert set(met(ask(aside).json())["mounts"]) == set(folders), "another container's is its own"
    less = sharing(env=[{"name": "MUSTER_GPU_MEMORY", "value": "1"}])
    assert met(ask(less).json())["env"]["MUSTER_GPU_MEMORY"] == "20480", "as it is counted"
    elsewhere = {"fieldRef": {"fieldPath": "metadata.annotations['muster.dev/gpu-memory']"}}
    for name in ("MUSTER_GPU_MEMORY", "CUDA_MPS_PIPE_DIRECTORY"):
        from_elsewhere = sharing(env=[{"name": name, "valueFrom": elsewhere}])
        assert f"container main: env {name}: expected no valueFrom" in ask(from_elsewhere).said
        from_elsewhere["metadata"]["annotations"].pop("muster.dev/gpu-memory")
        assert ask(from_elsewhere).ok, "it has its GPUs alone"
    own["metadata"]["annotations"].pop("muster.dev/gpu-memory")
    assert ask(own).ok
    level = "pod-security.kubernetes.io/enforce"
    cluster.patch("/api/v1/namespaces/default", {"metadata": {"labels": {level: "baseline"}}})
    try:
        wait_until(
            lambda: "may have no folders of their nodes" in ask(sharing()).said,
            what="a namespace that forbids folders of nodes is told so",
            also=lambda: ask(sharing()).said,
        )
    finally:
        cluster.patch("/api/v1/namespaces/default", {"metadata": {"labels": {level: None}}})
        chart.upgrade("--set", "devices.mps=", restart=False)


PYTHON = [
    "python3.12",
    "-u",
    "-m",
    "muster_report.agent",
    "--grace",
    "9",
    "--devices",
    "--",
    "python",
    "train.py",
]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (trains(), ""),
        (trains(PYTHON), ""),
        (trains(["/usr/bin/muster"], args=["agent", *AGENT[1:]]), ""),
        (trains(gpus="1-4, 8"), ""),
        (
            trains(resources={"limits": {"nvidia.com/gpu": "1"}}),
            "container main: resources: expected no GPU beside",
        ),
        (trains(gpus="0,1"), 'expected numbers of GPUs from 1 to 128, as in "1,2,4" or "1-8", found "0,1"'),
        (trains(gpus="8-2"), "expected numbers of GPUs from 1 to 128"),
        (trains(gpus="1,300"), "expected numbers of GPUs from 1 to 128"),
        (trains(["python", "train.py"]), "expected one container whose command is the agent"),
        (trains(["sh", "-c", "muster-agent --devices -- train"]), "expected one container whose command is"),
        (trains(["muster-agent", "--", "train", "--devices"]), "expected one container whose command is"),
        (trains(["muster-agent", "--grace=9", "--devices", "--"]), "expected one container whose command is"),
        (
            trains(["python", "-c", "x", "-m", "muster.agent", "--devices", "--", "x"]),
            "expected one container",
        ),
        (trains(None), "container logs has no command, and what its image starts is not known here"),
    ],
)
def test_a_pod_in_place_is_one_that_gives_devices_back(chart: Lab, asked: Json, said: str) -> None:
    answer = Kubectl(chart.kubeconfig, "default").ask(asked)
    assert answer.ok is not bool(said), answer.said
    assert said in answer.said


def test_a_job_is_refused_where_it_is_applied(cluster: Cluster) -> None:
    made = in_place("other")
    made["spec"]["template"]["spec"]["containers"][0]["command"] = ["train"]
    with pytest.raises(Refused, match='container main runs "train"'):
        cluster.submit(made, dry_run=True)


def test_in_place_is_where_the_platform_team_allows_it(chart: Lab, cluster: Cluster) -> None:
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    wait_until(
        lambda: Kubectl(chart.kubeconfig, "elsewhere")("get", "serviceaccount", "default").ok,
        what="it is usable",
    )
    elsewhere = Kubectl(chart.kubeconfig, "elsewhere").ask
    answer = elsewhere(trains())
    assert "annotation muster.dev/gpus: expected none in namespace elsewhere" in answer.said
    assert '[{"key":"muster.dev/devices","operator":"In","values":["true"]}]' in answer.said
    plain = trains()
    del plain["metadata"]["annotations"]
    assert elsewhere(plain).ok
    overruled = {"labels": {"muster.dev/devices": "true"}, "annotations": {"muster.dev/any-command": "true"}}
    cluster.patch("/api/v1/namespaces/elsewhere", {"metadata": overruled})
    wait_until(lambda: elsewhere(trains(["python", "train.py"])).ok, what="another command is allowed there")
    assert given(elsewhere(trains(None)).json())["env"]["logs"]["MUSTER_GPUS"] == "1,2"
    cluster.delete("/api/v1/namespaces/elsewhere")


def test_a_pod_becomes_one_in_place_at_its_creation_only(chart: Lab) -> None:
    user = Kubectl(chart.kubeconfig, "default")
    made = pod("later", gpus=0, schedulingGates=[{"name": "example.com/held"}])
    user.create(made)
    answer = user.patch("later", {"metadata": {"annotations": {GPU_NUMBERS: "8"}}}, "merge")
    assert "annotation muster.dev/gpus decides the size" in answer.said
    user("delete", "pod", "later", "--force", "--grace-period=0")


@pytest.mark.parametrize("gpus", [None, "1,2,4"])
def test_a_pod_in_place_keeps_the_gpus_that_it_was_created_with(chart: Lab, gpus: str | None) -> None:
    """Taken off or changed, behind the gate and past it: what its agent says would count no more."""
    user = Kubectl(chart.kubeconfig, "default")
    user.create(trains())
    change = {"metadata": {"annotations": {GPU_NUMBERS: gpus}}}
    frozen = f'is frozen when the pod is created: it was "1,2", found "{gpus or ""}"'
    assert frozen in user.patch("train", change, "merge").said
    assert user.as_(MUSTER).patch("train", {"spec": {"schedulingGates": []}}, "merge").ok
    assert frozen in user.patch("train", change, "merge").said
    user("delete", "pod", "train", "--force", "--grace-period=0")


def test_an_uninstall_takes_everything_along(chart: Lab, cluster: Cluster, tenant: Kubectl) -> None:
    """The last one of this lab."""
    Kubectl(cluster.kubeconfig, SPACE).as_(MUSTER).create(holder())
    chart.helm("uninstall", "muster", "--namespace", "muster-system", "--no-hooks")
    wait_until(
        lambda: SPACE not in [one["metadata"]["name"] for one in cluster.get("/api/v1/namespaces")["items"]],
        what="the namespace is gone",
        also=lambda: show(holders(cluster)),
    )
    assert not tenant("get", "priorityclass", SPACE).ok
    left = tenant("get", "validatingadmissionpolicies,mutatingadmissionpolicies", "-o", "name")
    assert left.out == "", "policies that would refuse what comes next"
