# Over 300 lines: what is rendered of one chart is tried in one place.
"""What helm makes of the chart: rendered without a cluster, by both Helms, for every supported Kubernetes."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kind.cluster import SMALL
from e2e.lab import places
from muster.core.bounds import NOTE, POINTS, ROLES
from muster.server.kube_scheduler import STEADY, TIMEOUT
from muster.settings import load_settings, profile_of

CHART = Path(__file__).resolve().parents[2] / "charts" / "muster"
SUPPORTED = ["v1.34.0", "v1.35.2", "v1.36.0", "v1.37.1"]
IMAGE = "image.repository=registry.example/muster"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
HOOK = "hooks.release.enabled=true"
"""Rendered without a cluster there is no hook."""

MAJOR = ContextVar("MAJOR", default=4)
"""Of helm; tests of the chart run with each of them (conftest.py)."""

Manifest = dict[str, Any]


def helm() -> str:
    return _helm(MAJOR.get())


@functools.cache
def _helm(major: int) -> str:
    built = sorted((places.cache() / "bin").glob(f"helm-v{major}.*"))
    program = str(built[-1]) if built else _on_path(major)
    if program is None:
        reason = f"no helm {major}: `make lab-build ONLY={'helm-3' if major == 3 else 'helm'}` brings one"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return program


def _on_path(major: int) -> str | None:
    """The machine's own, where it is of that version."""
    if (program := shutil.which("helm")) is None:
        return None
    said = subprocess.run([program, "version", "--short"], capture_output=True, text=True, check=False).stdout
    return program if said.startswith(f"v{major}.") else None


Done = subprocess.CompletedProcess[str]


def template(*values: str, version: str = "v1.37.1", flags: Iterable[str] = ()) -> Done:
    return _template(helm(), values, version, tuple(flags))


@functools.cache
def _template(program: str, values: tuple[str, ...], version: str, flags: tuple[str, ...]) -> Done:
    release = ["muster", str(CHART), "--namespace=muster-system"]
    command = [program, "template", *release, *([f"--kube-version={version}"] if version else [])]
    command += [f"--set={value}" for value in values]
    return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=120, check=False)


def rendered(*values: str, version: str = "v1.37.1", flags: Iterable[str] = ()) -> list[Manifest]:
    done = template(*values, version=version, flags=flags)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.load_all(done.stdout, Loader=yaml.CSafeLoader) if manifest]


def refused(*values: str, version: str = "v1.37.1") -> str:
    done = template(*values, version=version)
    assert done.returncode != 0, "helm rendered it"
    return done.stderr


def named(manifests: list[Manifest], kind: str, name: str = "muster") -> Manifest:
    found = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}: found {len(found)}"
    return found[0]


def kinds(manifests: list[Manifest]) -> set[str]:
    return {manifest["kind"] for manifest in manifests}


def containers(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Containers of Muster's pod that go on, by name, in the order of starting."""
    pod = named(manifests, "Deployment")["spec"]["template"]["spec"]
    before = [one for one in pod.get("initContainers", ()) if one.get("restartPolicy") == "Always"]
    return {one["name"]: one for one in (*before, *pod["containers"])}


def checking(manifests: list[Manifest]) -> Manifest:
    """The container that looks before Muster starts, and ends."""
    (found,) = (
        one
        for one in named(manifests, "Deployment")["spec"]["template"]["spec"]["initContainers"]
        if one.get("restartPolicy") != "Always"
    )
    return dict(found)


# Versions


@pytest.mark.parametrize("version", SUPPORTED)
def test_the_scheduler_image_follows_the_cluster(version: str) -> None:
    images = {name: c["image"] for name, c in containers(rendered(IMAGE, version=version)).items()}
    assert images == {
        "kube-scheduler": f"registry.k8s.io/kube-scheduler:{version}",
        "muster": f"registry.example/muster:{VERSION}",
    }


def test_a_vendor_suffix_is_no_part_of_the_scheduler_tag() -> None:
    image = containers(rendered(IMAGE, version="v1.36.2-gke.1234000"))["kube-scheduler"]["image"]
    assert image == "registry.k8s.io/kube-scheduler:v1.36.2"


def test_a_scheduler_newer_than_the_apiserver_is_refused() -> None:
    assert "scheduler.image.tag v1.37.0 is newer than the apiserver (v1.36)" in refused(
        IMAGE, "scheduler.image.tag=v1.37.0", version="v1.36.9"
    )


def test_an_older_scheduler_is_the_platform_teams_choice() -> None:
    image = containers(rendered(IMAGE, "scheduler.image.tag=v1.36.4"))["kube-scheduler"]["image"]
    assert image == "registry.k8s.io/kube-scheduler:v1.36.4"


def builtin() -> str:
    """The version that helm takes where nobody says one."""
    return refused(IMAGE, version="").partition("helm sees no cluster here: ")[2].partition(" ")[0]


def test_a_scheduler_tag_that_nobody_can_know_is_refused_with_what_to_say() -> None:
    said = refused(IMAGE, version="")
    assert re.search(r"helm sees no cluster here: v1\.\d+\.0 is what helm v[\d.]+ takes of itself\. ", said)
    assert "Say it with --kube-version (`kubectl version` shows it) or, also where it is" in said
    assert said == refused(IMAGE, version=builtin()), "nothing tells these two apart"
    for knows in ("binder=cluster", "replicas=0", f"scheduler.image.digest=sha256:{'0' * 64}"):
        rendered(IMAGE, knows, version="")


@pytest.mark.parametrize("tag", ["v1.34.4", "v1.37.0"])
def test_a_scheduler_tag_that_is_given_is_not_held_against_what_helm_guesses(tag: str) -> None:
    found = containers(rendered(IMAGE, f"scheduler.image.tag={tag}", version=""))
    assert found["kube-scheduler"]["image"] == f"registry.k8s.io/kube-scheduler:{tag}"


def test_argo_cd_tells_what_the_cluster_serves_so_its_version_is_taken_as_it_is() -> None:
    told = ("--api-versions=apps/v1", "--api-versions=apps/v1/Deployment")
    image = containers(rendered(IMAGE, version=builtin(), flags=told))["kube-scheduler"]["image"]
    assert image == f"registry.k8s.io/kube-scheduler:{builtin()}"


@pytest.mark.parametrize("version", ["v1.33.5", "v1.38.0"])
def test_other_versions_of_kubernetes_are_refused_with_a_sentence(version: str) -> None:
    said = refused(IMAGE, version=version)
    assert "chart requires kubeVersion: >=1.34.0-0 <1.38.0-0" in said
    assert f"incompatible with Kubernetes {version}" in said


@pytest.mark.parametrize(
    ("version", "served", "expected"),
    [
        ("v1.34.0", (), "MutatingWebhookConfiguration"),
        ("v1.35.0", ("v1beta1",), "admissionregistration.k8s.io/v1beta1"),
        ("v1.36.0", (), "admissionregistration.k8s.io/v1"),
        ("v1.37.1", ("v1beta1", "v1"), "admissionregistration.k8s.io/v1"),
    ],
)
def test_auto_takes_the_policy_where_it_is_served_and_else_the_webhook(
    version: str, served: tuple[str, ...], expected: str
) -> None:
    flags = [f"--api-versions=admissionregistration.k8s.io/{v}/MutatingAdmissionPolicy" for v in served]
    manifests = rendered("replicas=0", version=version, flags=flags)
    gates = [m for m in manifests if m["kind"] in ("MutatingAdmissionPolicy", "MutatingWebhookConfiguration")]
    # By policy, what lets a pod report is a policy of its own; muster's webhook does both.
    assert [m["metadata"]["name"] for m in gates] == ["muster-gate", "muster-report"][: len(gates)]
    assert len(gates) == (1 if expected == "MutatingWebhookConfiguration" else 2)
    assert all(expected in (m["apiVersion"], m["kind"]) for m in gates)


def test_policy_where_it_is_not_served_is_refused_and_not_installed_in_vain() -> None:
    said = refused("replicas=0", "admission.mode=policy", version="v1.35.0")
    assert "policy needs the MutatingAdmissionPolicy API, which this cluster (v1.35.0) does not serve" in said


# Values


def test_a_missing_image_says_how_to_build_push_and_load_one() -> None:
    said = refused()
    for line in (
        "image.repository is not set, and Muster has no public image",
        f"docker build -t REGISTRY/muster:{VERSION} .",
        f"docker push REGISTRY/muster:{VERSION}",
        f"kind load docker-image muster:{VERSION}",
        " ".join(f"--set {value}" for value in SMALL),
        "--set image.repository=REGISTRY/muster",
    ):
        assert line in said


def test_without_replicas_no_image_is_needed() -> None:
    assert kinds(rendered("replicas=0")).isdisjoint({"Deployment", "PodDisruptionBudget", "Job"})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("replicas=-1", "at '/replicas': minimum"),
        ("mode=passive", "at '/mode': value must be one of 'active', 'observe'"),
        ("order=lifo", "at '/order': value must be one of 'strict', 'backfill'"),
        ("admission.mode=none", "at '/admission/mode': value must be one of 'auto', 'policy', 'webhook'"),
        ("admission.webhook.url=http://127.0.0.1/mutate", "at '/admission/webhook/url'"),
        ("binder=theirs", "at '/binder': value must be one of 'own', 'cluster'"),
        ("ports.service=80", "at '/ports/service': minimum"),
        ("schedulerName=My_Scheduler", "at '/schedulerName'"),
        ("schedulername=x", "additional properties 'schedulername' not allowed"),
        ("image.repo=x", "at '/image': additional properties 'repo' not allowed"),
        ("scheduler.image.tag=latest", "at '/scheduler/image/tag'"),
        ("namespaceSelector.team=x", "at '/namespaceSelector': additional properties 'team' not allowed"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(value: str, said: str) -> None:
    assert said in refused(value)


def test_the_clusters_scheduler_binds_without_a_second_one() -> None:
    manifests = rendered(IMAGE, "binder=cluster", "networkPolicy.enabled=true")
    assert set(containers(manifests)) == {"muster"}
    data = named(manifests, "ConfigMap")["data"]
    assert set(data) == {"muster.yaml"}
    settings = yaml.safe_load(data["muster.yaml"])
    assert settings["leader"]["own"] is True
    assert (settings["binder"], settings["clusterScheduler"]) == ("cluster", "default-scheduler")
    assert settings["ports"] == {"service": 8080}, "nobody calls the extender's"
    ports = [p["port"] for p in named(manifests, "NetworkPolicy")["spec"]["ingress"][0]["ports"]]
    assert ports == ["service"]
    roles = {m["roleRef"]["name"] for m in manifests if m["kind"] in ("ClusterRoleBinding", "RoleBinding")}
    assert not {name for name in roles if name.startswith(("system:", "extension-"))}, "rights of a scheduler"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("mode=active",), ["gate"]),
        (("mode=active", "binder=cluster"), ["label", "name", "gate"]),
        (("mode=observe", "binder=cluster"), ["label", "name"]),
    ],
)
def test_admission_hands_pods_to_the_clusters_scheduler_with_a_label_that_keeps_their_choice(
    values: tuple[str, ...], expected: list[str]
) -> None:
    policy = named(rendered("replicas=0", *values), "MutatingAdmissionPolicy", "muster-gate")
    mutation = policy["spec"]["mutations"][0]["applyConfiguration"]["expression"]
    found = {
        "label": 'labels: {"muster.dev/scheduler": "muster"}' in mutation,
        "name": 'schedulerName: "default-scheduler"' in mutation,
        "gate": 'name: "muster.dev/queue"' in mutation,
    }
    assert [what for what, there in found.items() if there] == expected


@pytest.mark.parametrize("version", ["v1.34.4", "v1.36.0", "v1.37.1"])
@pytest.mark.parametrize(
    ("values", "lets_on"),
    [
        ((), True),
        (("binder=cluster",), False),
        (("binder=cluster", "mode=observe"), False),
        (("scheduler.enabled=false",), False),
    ],
)
def test_pods_tolerate_the_taint_of_the_nodes_of_the_scheduler_beside_muster(
    values: tuple[str, ...], lets_on: bool, version: str
) -> None:
    """By policy from 1.36 on, and by webhook before."""
    manifests = rendered("replicas=0", *values, version=version)
    if version < "v1.36":
        hooks = named(manifests, "MutatingWebhookConfiguration", "muster-gate")["webhooks"]
        conditions = hooks[0]["matchConditions"]
    else:
        policy = named(manifests, "MutatingAdmissionPolicy", "muster-gate")
        kinds_of = [one["patchType"] for one in policy["spec"]["mutations"]]
        assert kinds_of == ["ApplyConfiguration", *(["JSONPatch"] if lets_on else [])]
        conditions = policy["spec"]["matchConditions"]
    [settled] = [one["expression"] for one in conditions if one["name"] == "is-not-admitted-yet"]
    assert ("tolerations" in settled) is lets_on
    for one in manifests:  # a pod without it waits and says so; it is not refused
        if one["kind"] == "ValidatingAdmissionPolicy" and one["metadata"]["name"] == "muster-gate":
            assert "tolerations" not in str(one)


def test_in_mode_observe_nothing_is_mutated_where_muster_binds_itself() -> None:
    assert "MutatingAdmissionPolicy" not in kinds(rendered("replicas=0", "mode=observe"))


def test_the_webhook_hands_pods_over_in_mode_observe_too() -> None:
    manifests = rendered("replicas=0", "binder=cluster", "mode=observe", "admission.mode=webhook")
    assert "MutatingWebhookConfiguration" in kinds(manifests)
    assert "webhook" in yaml.safe_load(named(manifests, "ConfigMap")["data"]["muster.yaml"])


def test_rights_to_ask_for_nodes_come_only_with_asking() -> None:
    def rights(*values: str) -> set[str]:
        role = named(rendered("replicas=0", *values), "ClusterRole")
        return {resource for rule in role["rules"] for resource in rule["resources"]}

    asked = rights("autoscaler.ask=provisioning-request") - rights()
    assert asked == {"provisioningrequests", "podtemplates"}
    assert rights("autoscaler.ask=ungate") == rights()
    asking = muster_configuration("replicas=0", "autoscaler.ask=ungate")["autoscaler"]
    assert asking == {"ask": "ungate", "after": "30s", "limit": 1}, "no request has a class"
    said = refused("replicas=0", "autoscaler.ask=ungate", "binder=cluster")
    assert "autoscaler.ask: ungate needs binder own" in said


def test_a_name_that_is_muster_s_and_the_clusters_is_refused() -> None:
    said = refused("replicas=0", "binder=cluster", "schedulerName=team", "clusterScheduler=team")
    assert "schedulerName: team is clusterScheduler too" in said


def test_the_clusters_own_scheduler_name_is_refused() -> None:
    assert "every pod would be Muster's" in refused("replicas=0", "schedulerName=default-scheduler")


def test_every_value_has_a_comment_and_a_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        if line and line[0].isalpha() and not line.rstrip().endswith(":"):
            assert lines[number - 1].startswith("#"), f"values.yaml:{number + 1} has no comment: {line}"


# Configurations


def scheduler_configuration(*values: str) -> Manifest:
    config: Manifest = yaml.safe_load(named(rendered(*values), "ConfigMap")["data"]["scheduler.yaml"])
    return config


def test_kube_scheduler_is_configured_as_the_design_says() -> None:
    assert scheduler_configuration("replicas=0") == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "muster-scheduler",
            "resourceNamespace": "muster-system",
        },
        "clientConnection": {"qps": 1000, "burst": 2000},
        "profiles": [
            {
                "schedulerName": "muster",
                "percentageOfNodesToScore": 100,
                "plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}},
            }
        ],
        "extenders": [
            {
                "urlPrefix": "http://127.0.0.1:8081",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 150,
                "nodeCacheCapable": True,
                "httpTimeout": "1s",
                "ignorable": False,
            }
        ],
    }


def muster_configuration(*values: str) -> Manifest:
    config: Manifest = yaml.safe_load(named(rendered(*values), "ConfigMap")["data"]["muster.yaml"])
    return config


def test_muster_is_configured_by_the_values() -> None:
    assert muster_configuration("replicas=0") == {
        "apiVersion": "muster.dev/v1alpha1",
        "deviceResources": ["*/gpu", "nvidia.com/mig-*"],
        "kind": "MusterConfiguration",
        "schedulerName": "muster",
        "mode": "active",
        "profile": "fifo",
        "order": "backfill",
        "leader": {"namespace": "muster-system", "lease": "muster-scheduler"},
        "ports": {"service": 8080, "extender": 8081},
    }


@pytest.mark.parametrize(
    "change",
    [
        *("binder=own", "binder=cluster", "scheduler.enabled=false", "order=strict", "profile=max-min"),
        *("autoscaler.ask=ungate", "autoscaler.ask=provisioning-request"),
        *("devices.enabled=true", "tls.mode=chart", "tls.mode=secret"),
    ],
)
def test_muster_takes_what_the_chart_writes_whichever_one_value_changes(change: str) -> None:
    """Values of what is not in force stay where they are: who changes one back has them again."""
    kept = (
        *("clusterScheduler=theirs", "ports.service=8081", "ports.extender=8080", "autoscaler.limit=5"),
        *("devices.lease=2m", "tls.hosts={a.example}", "tls.life=720h", "tls.secret=theirs"),
        *("config.patience=10m", "config.resizeCost=false", "config.estimate=declared"),
    )
    profile_of(load_settings(yaml.safe_dump(muster_configuration(IMAGE, *kept, change))))


def test_config_is_merged_last() -> None:
    config = muster_configuration(
        "replicas=0", "order=strict", "config.gang.timeout=5m", "config.ports.address=127.0.0.1"
    )
    assert config["order"] == "strict"
    assert config["gang"] == {"timeout": "5m"}
    assert config["ports"] == {"address": "127.0.0.1", "service": 8080, "extender": 8081}


def test_the_webhook_is_configured_where_it_is_served_only() -> None:
    config = muster_configuration("replicas=0", "admission.mode=webhook")
    assert config["webhook"] == {"port": 9443, "certificates": "/etc/muster-webhook"}
    assert "webhook" not in muster_configuration("replicas=0", "admission.mode=webhook", "mode=observe")


def test_a_change_of_the_configuration_makes_new_pods() -> None:
    def checksum(*values: str) -> str:
        meta = named(rendered(IMAGE, *values), "Deployment")["spec"]["template"]["metadata"]
        return str(meta["annotations"]["checksum/config"])

    assert checksum() == checksum()
    assert checksum() != checksum("order=strict")


# Pods


def test_both_programs_run_restricted_and_share_the_pod() -> None:
    manifests = rendered(IMAGE)
    pod = named(manifests, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "muster"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any(pod.get(field) for field in ("hostNetwork", "hostPID", "hostIPC"))
    restricted = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert checking(manifests)["securityContext"] == restricted
    for container in containers(manifests).values():
        assert container["securityContext"] == restricted
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
        assert 8081 not in [port["containerPort"] for port in container["ports"]]


def test_a_kube_scheduler_starts_when_the_muster_beside_it_has() -> None:
    """One whose muster can't start would hold the Lease, and nothing would be planned beside a replica that could."""
    manifests = rendered(IMAGE)
    assert list(containers(manifests)) == ["muster", "kube-scheduler"]
    assert containers(manifests)["muster"]["restartPolicy"] == "Always"
    alone = containers(rendered(IMAGE, "binder=cluster"))
    assert list(alone) == ["muster"]
    assert "restartPolicy" not in alone["muster"]


def test_a_kube_scheduler_goes_on_only_while_the_muster_beside_it_is_ready() -> None:
    """It would keep the Lease while its muster crashes again and again, and no other replica could lead."""
    probe = containers(rendered(IMAGE, "ports.service=8888"))["kube-scheduler"]["livenessProbe"]
    assert probe["httpGet"] == {"path": "/healthz/scheduler", "port": 8888}, (
        "a name would be one of its own ports"
    )
    assert probe["timeoutSeconds"] > TIMEOUT
    assert probe["initialDelaySeconds"] == STEADY, "muster starts first"
    assert probe["periodSeconds"] * probe["failureThreshold"] == 2 * STEADY, "a muster may restart once"


def test_a_kube_scheduler_reads_its_configuration_from_a_pipe_that_muster_writes() -> None:
    """The kubelet starts it again at once, whatever has become of the muster beside it."""
    manifests = rendered(IMAGE)
    muster, scheduler = containers(manifests).values()
    pipe = muster["args"][muster["args"].index("--scheduler-pipe") + 1]
    assert f"--config={pipe}" in scheduler["command"]
    for container in (muster, scheduler):
        places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert places["pipe"] == str(Path(pipe).parent)
    pod = named(manifests, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "pipe", "emptyDir": {}} in pod["volumes"], "it outlives a container and no pod"
    alone = rendered(IMAGE, "binder=cluster")
    assert "pipe" not in str(named(alone, "Deployment"))


def test_replicas_are_spread_over_nodes_also_by_an_upgrade() -> None:
    pod = named(rendered(IMAGE), "Deployment")["spec"]["template"]["spec"]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == {
        "matchLabels": {"app.kubernetes.io/name": "muster", "app.kubernetes.io/instance": "muster"}
    }
    assert spread["matchLabelKeys"] == ["pod-template-hash"]


def test_two_replicas_have_a_budget_and_one_has_none() -> None:
    assert named(rendered(IMAGE), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert "PodDisruptionBudget" not in kinds(rendered(IMAGE, "replicas=1"))


def test_an_uninstall_releases_every_pod_first() -> None:
    hook = named(rendered(IMAGE, HOOK), "Job", "muster-release")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    pod = hook["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "muster-hooks"
    args = pod["containers"][0]["args"]
    who = ["--scheduler-name=muster", "--gate-name=muster-gate"]
    assert args == ["release", "--all", *who, "--timeout=120"]


def test_when_all_is_deleted_a_hook_takes_the_lease_away_and_the_name_off_the_definition() -> None:
    """Before, who leads would make the Lease again."""
    manifests = rendered(IMAGE, HOOK, "nameOverride=gangs")
    hook = named(manifests, "Job", "gangs-uninstalled")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"
    pod = hook["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "gangs-uninstalled"
    what, *about = pod["containers"][0]["args"]
    assert (what, about) == (
        "uninstalled",
        ["--namespace=muster-system", "--release=muster", "--lease=gangs-scheduler"],
    )
    of_it = [m for m in manifests if m["metadata"]["name"] == "gangs-uninstalled" and m["kind"] != "Job"]
    assert {m["metadata"]["annotations"]["helm.sh/hook"] for m in of_it} == {"post-delete"}
    assert [rule for m in of_it for rule in m.get("rules", ())] == [
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": ["gangs.muster.dev"],
            "verbs": ["patch"],
        },
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["gangs-scheduler"],
            "verbs": ["delete"],
        },
    ]


def test_devices_that_count_are_those_of_the_values() -> None:
    for values, listed in (
        ((), ["*/gpu", "nvidia.com/mig-*"]),
        (("deviceResources={google.com/tpu}",), ["google.com/tpu"]),
    ):
        data = named(rendered("replicas=0", *values), "ConfigMap")["data"]["muster.yaml"]
        assert load_settings(data).device_resources == tuple(listed)


def test_the_crd_is_reached_by_upgrades_and_kept_by_an_uninstall() -> None:
    assert not (CHART / "crds").exists()
    crd = named(rendered("replicas=0"), "CustomResourceDefinition", "gangs.muster.dev")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if not c.get("priority")] == [
        "State", "Pos", "Free", "Start", "Replicas", "Share", "GPUs", "Done", "End", "Age", "Message",
    ]  # fmt: skip
    assert [c["name"] for c in columns if c.get("priority")] == [
        "Speed", "Fits", "Blocker", "Expected", "Reason", "Resizes", "Why",
    ]  # fmt: skip
    known = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    paths = [c["jsonPath"].split(".")[1:] for c in columns]
    assert {path[1] for path in paths if path[0] == "status"} <= set(known)


@pytest.mark.parametrize(
    ("value", "kind"),
    [("serviceMonitor.enabled=true", "ServiceMonitor"), ("networkPolicy.enabled=true", "NetworkPolicy")],
)
def test_options_are_off_until_asked_for(value: str, kind: str) -> None:
    assert kind not in kinds(rendered(IMAGE))
    assert kind in kinds(rendered(IMAGE, value))


def test_admission_warns_of_elastic_jobs_in_a_queue_of_kueues() -> None:
    """Its waitForPodsReady ends them below their maximum (e2e/test_owner_advice.py asks)."""
    manifests = rendered("replicas=0")
    for name in ("muster-advice", "muster-owners"):
        spec = named(manifests, "ValidatingAdmissionPolicy", name)["spec"]
        assert (
            "'kueue.x-k8s.io/queue-name' in "
            in {v["name"]: v["expression"] for v in spec["variables"]}["queued"]
        )
        [said] = [
            v["messageExpression"] for v in spec["validations"] if "!variables.queued " in v["expression"]
        ]
        assert "Where its waitForPodsReady is on, Kueue ends it at the timeout" in " ".join(said.split())
        news = {c["name"]: c["expression"] for c in spec["matchConditions"]}["is-new"]
        assert "'kueue.x-k8s.io/queue-name' in object.metadata" in news, "the label may come later"


def test_admission_looks_for_elastic_jobs_in_a_queue_of_each_kind_that_kueue_knows() -> None:
    """JobSets, RayClusters and groups by what they say; of a TrainJob only its patches can be seen, of a Deployment
    that each pod is admitted alone."""
    manifests = rendered("replicas=0")
    spec = named(manifests, "ValidatingAdmissionPolicy", "muster-owners")["spec"]
    asked = {one for rule in spec["matchConstraints"]["resourceRules"] for one in rule["resources"]}
    assert asked >= {"jobsets", "rayclusters", "leaderworkersets", "pytorchjobs", "trainjobs"}
    [queued] = [v["expression"] for v in spec["validations"] if "!variables.queued " in v["expression"]]
    for of in ("elasticRoles", "elasticJobs", "rayGroups", "groupResized", "patched"):
        assert f"variables.{of}" in queued
    spec = named(manifests, "ValidatingAdmissionPolicy", "muster-advice")["spec"]
    [said] = [
        v["messageExpression"] for v in spec["validations"] if "!variables.queuedAlone" in v["expression"]
    ]
    assert "Kueue admits each of its pods alone" in said


# Rights


def roles(manifests: list[Manifest]) -> list[Manifest]:
    return [m for m in manifests if m["kind"] in ("Role", "ClusterRole")]


def test_no_right_has_a_wildcard_and_none_reads_secrets_or_deletes_pods() -> None:
    for role in roles(rendered(IMAGE)):
        for rule in role["rules"]:
            name = f"{role['kind']} {role['metadata']['name']}: {rule}"
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], name
            assert "secrets" not in rule["resources"], name
            assert "impersonate" not in rule["verbs"], name
            assert "escalate" not in rule["verbs"], name
            if "pods" in rule["resources"]:
                assert {"delete", "deletecollection", "create", "update"}.isdisjoint(rule["verbs"]), name


def rights(manifests: list[Manifest], role: str) -> dict[str, set[str]]:
    """group/resource -> verbs."""
    found: dict[str, set[str]] = {}
    for rule in named(manifests, "ClusterRole", role)["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault(f"{group}/{resource}", set()).update(rule["verbs"])
    return found


def test_muster_writes_pods_gangs_and_events_and_nothing_else() -> None:
    writes = {
        resource: verbs - {"get", "list", "watch"}
        for resource, verbs in rights(rendered(IMAGE), "muster").items()
        if verbs - {"get", "list", "watch"}
    }
    assert writes == {
        "/pods": {"patch"},
        "/pods/status": {"patch"},
        "/pods/eviction": {"create"},
        "muster.dev/gangs": {"create", "patch", "delete"},
        "muster.dev/gangs/status": {"patch"},
        "/events": {"create"},
        "authentication.k8s.io/tokenreviews": {"create"},
        "authorization.k8s.io/subjectaccessreviews": {"create"},
    }


def accounts(manifests: list[Manifest], account: str) -> set[tuple[str, str]]:
    """Roles that are bound to a service account of Muster's: namespace ("" = everywhere) and name."""
    return {
        (m["metadata"].get("namespace", ""), m["roleRef"]["name"])
        for m in manifests
        if m["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in m["subjects"]
        if subject["kind"] == "ServiceAccount" and subject["name"] == account
    }


def test_muster_and_the_kube_scheduler_beside_it_have_an_account_each() -> None:
    manifests = rendered(IMAGE)
    assert accounts(manifests, "muster") == {("", "muster"), ("muster-system", "muster")}
    assert accounts(manifests, "muster-scheduler") == {
        ("", "system:kube-scheduler"),
        ("", "system:volume-scheduler"),
        ("kube-system", "extension-apiserver-authentication-reader"),
        ("muster-system", "muster-scheduler"),
    }
    pod = named(manifests, "Deployment")["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("muster", False)
    tokens = {
        name: [m["name"] for m in c["volumeMounts"] if m["mountPath"].endswith("/serviceaccount")]
        for name, c in [*containers(manifests).items(), ("check", checking(manifests))]
    }
    assert tokens == {"muster": ["account"], "kube-scheduler": ["scheduler-account"], "check": ["account"]}
    secret = next(v["secret"] for v in pod["volumes"] if v["name"] == "scheduler-account")
    token = named(manifests, "Secret", secret["secretName"])
    assert token["metadata"]["annotations"]["kubernetes.io/service-account.name"] == "muster-scheduler"


@pytest.mark.parametrize("values", [("binder=cluster",), ("scheduler.enabled=false",)])
def test_without_a_kube_scheduler_of_its_own_there_is_one_account_and_no_secret(
    values: tuple[str, ...],
) -> None:
    manifests = rendered(IMAGE, *values)
    assert accounts(manifests, "muster-scheduler") == set()
    assert not [m for m in manifests if m["kind"] == "Secret" and "token" in m["metadata"]["name"]]


def test_the_rights_of_a_hook_are_there_only_while_it_runs() -> None:
    of_hooks = [m for m in rendered(IMAGE, HOOK) if m["metadata"]["name"] == "muster-hooks"]
    assert kinds(of_hooks) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    for one in of_hooks:
        notes = one["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == "pre-delete"
        assert notes["helm.sh/hook-weight"] == "-5", "before the Job, whose weight is 0"
        assert set(notes["helm.sh/hook-delete-policy"].split(",")) == {
            "before-hook-creation", "hook-succeeded", "hook-failed",
        }  # fmt: skip
    assert "muster-hooks" not in {
        m["metadata"]["name"] for m in rendered("replicas=0", "hooks.release.enabled=false")
    }


@pytest.mark.parametrize(
    ("selector", "namespaces"),
    [
        ('{"matchLabels":{"kubernetes.io/metadata.name":"team-a"}}', ["team-a"]),
        (
            '{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"In","values":["b","a","kube-system"]}]}',
            ["a", "b"],
        ),
        ('{"matchLabels":{"team":"a"}}', []),
        (
            '{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["x"]}]}',
            [],
        ),
        ("{}", []),
    ],
)
def test_in_fixed_namespaces_what_muster_does_to_pods_it_may_do_there_only(
    selector: str, namespaces: list[str]
) -> None:
    manifests = rendered("replicas=0", flags=(f"--set-json=namespaceSelector={selector}",))
    everywhere = rights(manifests, "muster")
    inside = [
        m["metadata"]["namespace"]
        for m in manifests
        if m["kind"] == "Role" and any("pods/eviction" in rule["resources"] for rule in m["rules"])
    ]
    assert inside == namespaces
    assert {("", "muster"), *((n, "muster") for n in namespaces)} <= accounts(manifests, "muster")
    assert ("/pods/eviction" in everywhere, "patch" in everywhere["/pods"]) == (
        not namespaces,
        not namespaces,
    )


def test_muster_s_own_accounts_are_held_to_pods_of_ours_in_every_mode() -> None:
    for mode in ("active", "observe"):
        manifests = rendered("replicas=0", f"mode={mode}")
        policy = named(manifests, "ValidatingAdmissionPolicy", "muster-own")["spec"]
        assert policy["failurePolicy"] == "Fail"
        assert "namespaceSelector" not in policy["matchConstraints"], "in every namespace"
        assert named(manifests, "ValidatingAdmissionPolicyBinding", "muster-own")["spec"][
            "validationActions"
        ] == ["Deny"]


def test_tenants_read_gangs_by_the_role_view() -> None:
    role = named(rendered(IMAGE), "ClusterRole", "muster-view")
    assert role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    assert role["rules"] == [
        {"apiGroups": ["muster.dev"], "resources": ["gangs"], "verbs": ["get", "list", "watch"]}
    ]
    alone = named(rendered(IMAGE, "aggregateToView=false"), "ClusterRole", "muster-view")
    assert "rbac.authorization.k8s.io/aggregate-to-view" not in alone["metadata"]["labels"]


def test_a_teams_own_owners_are_readable_by_muster() -> None:
    more = ("extraOwners[0].apiGroup=example.com", "extraOwners[0].resources={trainings}")
    assert rights(rendered(IMAGE, *more), "muster")["example.com/trainings"] == {"get"}


# Admission


def admission(manifests: list[Manifest]) -> list[Manifest]:
    return [m for m in manifests if m["apiVersion"].startswith("admissionregistration.k8s.io/")]


def test_observe_adds_no_gate_and_refuses_nothing() -> None:
    found = admission(rendered(IMAGE, "mode=observe"))
    assert kinds(found) == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    actions = {m["metadata"]["name"]: m["spec"]["validationActions"] for m in found if "Binding" in m["kind"]}
    assert actions.pop("muster-own") == ["Deny"], "that is about muster itself"
    assert actions.pop("muster-gangs") == ["Deny"], "these are muster's own objects"
    assert all(action == ["Warn"] for action in actions.values())


def test_in_mode_active_what_goes_past_the_queue_is_refused() -> None:
    found = admission(rendered(IMAGE))
    actions = {
        m["metadata"]["name"]: m["spec"]["validationActions"]
        for m in found
        if "Validating" in m["kind"] and "Binding" in m["kind"]
    }
    denies = {name for name, action in actions.items() if action == ["Deny"]}
    assert denies == {
        f"muster-{name}" for name in ("annotations", "gangs", "gate", "hold", "notes", "own", "unqueued")
    }


def test_every_policy_is_bound_and_every_binding_has_its_policy() -> None:
    found = admission(rendered(IMAGE))
    for kind in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"):
        policies = {m["metadata"]["name"] for m in found if m["kind"] == kind}
        bound = {m["spec"]["policyName"] for m in found if m["kind"] == f"{kind}Binding"}
        assert policies == bound


def test_what_is_frozen_on_a_pod_is_so_by_its_subresource_status_too() -> None:
    """A write of pods/status may bring other labels and annotations along."""
    manifests = rendered(IMAGE)
    for name in ("muster-hold", "muster-notes", "muster-own"):
        policy = named(manifests, "ValidatingAdmissionPolicy", name)["spec"]
        assert [rule["resources"] for rule in policy["matchConstraints"]["resourceRules"]] == [
            ["pods", "pods/status"]
        ], name


def test_what_every_write_of_a_pod_asks_is_one_condition() -> None:
    """All conditions of a policy are worked out, and where they are true all validations and messages, whatever they
    say: kubelets, schedulers and Muster write pods all the time."""
    for manifest in admission(rendered(IMAGE)):
        if manifest["kind"] != "ValidatingAdmissionPolicy":
            continue
        for rule in manifest["spec"]["matchConstraints"]["resourceRules"]:
            if "UPDATE" in rule["operations"] and "pods" in rule["resources"]:
                assert len(manifest["spec"]["matchConditions"]) == 1, manifest["metadata"]["name"]


def test_admission_has_the_bounds_of_muster_itself() -> None:
    """What it lets by muster reads, and what it reads admission lets by."""
    policy = named(rendered(IMAGE), "ValidatingAdmissionPolicy", "muster-annotations")["spec"]
    said = " ".join(one.get("messageExpression", "") for one in policy["validations"])
    for bound, of in ((NOTE, "characters"), (ROLES, "roles"), (POINTS, "counts of replicas")):
        assert f"expected at most {bound.most} {of}, found" in said


@pytest.mark.parametrize("mode", ["policy", "webhook"])
def test_admission_asks_for_our_scheduler_name_first_and_honours_the_namespace_selector(mode: str) -> None:
    values = (IMAGE, f"admission.mode={mode}", "schedulerName=gangs", "namespaceSelector.matchLabels.team=ml")
    for manifest in admission(rendered(*values)):
        name = manifest["metadata"]["name"]
        if "Binding" in manifest["kind"] or name in ("muster-own", "muster-gangs"):  # in all namespaces
            continue
        spec = manifest["webhooks"][0] if "webhooks" in manifest else manifest["spec"]
        if name != "muster-budgets":
            assert "== 'gangs'" in spec["matchConditions"][0]["expression"], name
        if name == "muster-namespaces":
            assert '"team" in namespaceObject' in spec["validations"][0]["expression"]
            continue
        if name == "muster-notes":  # what Muster writes counts nowhere where somebody else wrote it
            assert "namespaceSelector" not in spec["matchConstraints"]
            continue
        selector = spec.get("namespaceSelector") or spec["matchConstraints"]["namespaceSelector"]
        assert selector == {
            "matchLabels": {"team": "ml"},
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "muster-system"],
                }
            ],
        }, name


def test_the_webhooks_certificate_is_for_the_service_and_the_url() -> None:
    values = ("replicas=0", "admission.mode=webhook", "admission.webhook.url=https://127.0.0.1:9443/mutate")
    manifests = rendered(*values)
    secret = named(manifests, "Secret", "muster-webhook")
    hosts = "muster.muster-system.svc,muster.muster-system.svc.cluster.local,127.0.0.1"
    assert secret["metadata"]["annotations"]["muster.dev/hosts"] == hosts
    assert set(secret["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    client = named(manifests, "MutatingWebhookConfiguration", "muster-gate")["webhooks"][0]["clientConfig"]
    assert client == {"url": "https://127.0.0.1:9443/mutate", "caBundle": secret["data"]["ca.crt"]}


def test_registered_with_a_running_scheduler_muster_holds_its_lease_itself() -> None:
    manifests = rendered(IMAGE, "scheduler.enabled=false")
    assert set(containers(manifests)) == {"muster"}
    config = yaml.safe_load(named(manifests, "ConfigMap")["data"]["muster.yaml"])
    assert config["leader"] == {"namespace": "muster-system", "lease": "muster-scheduler", "own": True}


# Reports of training


def test_pods_are_told_the_service_or_what_the_values_say() -> None:
    def told(*values: str) -> str:
        policy = named(rendered("replicas=0", *values), "MutatingAdmissionPolicy", "muster-report")
        return str(policy["spec"]["mutations"][1]["applyConfiguration"]["expression"])

    assert 'value: "http://muster.muster-system.svc:8080"' in told()
    assert 'value: "http://muster.muster-system.svc:9999"' in told("ports.service=9999")
    assert 'value: "https://muster.example:443"' in told("reporting.url=https://muster.example:443")


def test_by_webhook_muster_itself_tells_pods_where_to_report() -> None:
    by_webhook = rendered("replicas=0", "admission.mode=webhook")
    hooks = named(by_webhook, "MutatingWebhookConfiguration", "muster-gate")["webhooks"]
    assert [(hook["name"], hook["failurePolicy"]) for hook in hooks] == [
        ("gate.muster.dev", "Fail"),
        ("report.muster.dev", "Ignore"),
    ]
    assert muster_configuration("replicas=0", "admission.mode=webhook")["reporting"] == {
        "url": "http://muster.muster-system.svc:8080"
    }


@pytest.mark.parametrize("values", [("reporting.enabled=false",), ("mode=observe",)])
@pytest.mark.parametrize("mode", ["policy", "webhook"])
def test_where_nobody_may_report_no_pod_is_told_to(values: tuple[str, ...], mode: str) -> None:
    manifests = rendered("replicas=0", f"admission.mode={mode}", *values)
    assert "report.muster.dev" not in json.dumps(manifests)
    assert not [m for m in manifests if m["metadata"]["name"] == "muster-report"]
    configured = yaml.safe_load(named(manifests, "ConfigMap")["data"]["muster.yaml"])
    assert configured.get("reporting", {}) == ({} if values == ("mode=observe",) else {"enabled": False})


def test_the_network_policy_lets_pods_of_any_namespace_report_and_nobody_outside() -> None:
    (rule,) = named(rendered("replicas=0", "networkPolicy.enabled=true"), "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"namespaceSelector": {}}]
    assert {"protocol": "TCP", "port": "service"} in rule["ports"]
    peer = "networkPolicy.from[0].namespaceSelector.matchLabels.team=ml"
    (rule,) = named(rendered("replicas=0", "networkPolicy.enabled=true", peer), "NetworkPolicy")["spec"][
        "ingress"
    ]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"team": "ml"}}}]


def test_beside_a_teams_own_scheduler_no_second_one_runs_and_the_proxys_port_is_open() -> None:
    values = ["-f", str(CHART.parents[1] / "config" / "existing-scheduler" / "values.yaml")]
    manifests = rendered(IMAGE, "networkPolicy.enabled=true", flags=values)
    assert set(containers(manifests)) == {"muster", "extender-tls"}
    pods, hosts = named(manifests, "NetworkPolicy")["spec"]["ingress"]
    assert [port["port"] for port in pods["ports"]] == ["service"]
    assert ([port["port"] for port in hosts["ports"]], "from" in hosts) == (["extender-tls"], False)


@pytest.mark.parametrize(
    ("values", "watches"),
    [
        ((), False),
        (("namespaceSelector.matchLabels.team=ml",), True),
        (("namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=ml",), False),
    ],
)
def test_muster_knows_which_namespaces_have_opted_in_and_watches_them_where_labels_decide(
    values: tuple[str, ...], watches: bool
) -> None:
    manifests = rendered(IMAGE, *values)
    configured = yaml.safe_load(named(manifests, "ConfigMap")["data"]["muster.yaml"])
    assert ("namespaceSelector" in configured) is bool(values)
    rules = named(manifests, "ClusterRole")["rules"]
    assert any("namespaces" in rule["resources"] for rule in rules) is watches
