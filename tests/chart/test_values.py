"""What a team may set of the chart beside Muster's own settings, and that a typing error is refused by helm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from muster.cli import main
from tests.chart import schema
from tests.chart.cluster import installed
from tests.chart.test_chart import CHART, HOOK, IMAGE, containers, helm, kinds, named, refused, rendered

ROOT = CHART.parents[1]
NO_UID = [f"podSecurityContext.{field}=null" for field in ("runAsUser", "runAsGroup", "fsGroup")]
DIGEST = f"sha256:{'0123456789abcdef' * 4}"


def test_the_schema_of_the_values_is_that_of_the_code() -> None:
    found = json.loads(schema.FILE.read_text())
    assert found == schema.schema(), "values.schema.json is not up to date: run `make docs`"
    assert schema.NAMES.read_text() == schema.names(), (
        "templates/_profiles.tpl is not up to date: run `make docs`"
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("profile=afsl", "at '/profile': value must be one of 'afs-l'"),
        ("profile=kube-default", "at '/profile': value must be one of"),
        ("config.ordr=strict", "at '/config': additional properties 'ordr' not allowed"),
        ("config.gang.timeot=2m", "at '/config/gang': additional properties 'timeot' not allowed"),
        ("config.gang.timeout=2x", "at '/config/gang/timeout': '2x' does not match"),
        ("config.pluginArgs.resize-cost.cst=1", "additional properties 'cst' not allowed"),
        ("autoscaler.after=soon", "at '/autoscaler/after': 'soon' does not match"),
        ("deviceResources={cpu}", "at '/deviceResources/0': 'cpu' does not match"),
        ("image.digest=latest", "at '/image/digest': 'latest' does not match"),
        ("podSecurityContext.runAsNonRot=true", "additional properties 'runAsNonRot' not allowed"),
        ("securityContext.seccompProfile.typ=x", "additional properties 'typ' not allowed"),
        ("securityContext.readOnlyRootFilesytem=true", "'readOnlyRootFilesytem' not allowed"),
        ("tolerations[0].ky=x", "at '/tolerations/0': additional properties 'ky' not allowed"),
        ("extraContainers[0].imge=x", "additional properties 'imge' not allowed"),
    ],
)
def test_a_typing_error_is_refused_by_helm_and_not_in_the_pod(value: str, said: str) -> None:
    assert said in refused(IMAGE, value)


@pytest.mark.parametrize(
    ("value", "label"), [("podLabels", "app.kubernetes.io/name"), ("commonLabels", "helm.sh/chart")]
)
def test_a_label_that_the_chart_sets_is_refused(value: str, label: str) -> None:
    said = refused(IMAGE, f"{value}.{label.replace('.', chr(92) + '.')}=x")
    assert f"{value}: expected labels beside the chart's own, found {label}" in said


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("profile=afs-l", "profile"),
        ("binder=cluster", "binder"),
        ("schedulerName=gangs", "schedulerName"),
        ("ports.service=9000", "ports.service"),
        ("leader.own=true", "scheduler.enabled"),
        ("reporting.enabled=false", "reporting.enabled"),
    ],
)
def test_what_has_a_value_of_its_own_is_refused_in_config(config: str, value: str) -> None:
    """The chart would go by one word and Muster by the other."""
    key, _, found = config.partition("=")
    said = refused(IMAGE, f"config.{config}")
    assert f"config.{key}: expected none, found " in said
    assert found in said
    assert f"Say it by the value {value}: the chart makes more of it" in said


def test_a_profile_that_is_neither_musters_nor_the_teams_own_is_refused_beside_these() -> None:
    said = refused(IMAGE, "profile=afsl", "config.profiles[0].name=mine")
    assert "profile: expected one of config.profiles (mine) or of those that Muster has (afs-l, " in said
    assert ", found afsl." in said
    rendered(IMAGE, "profile=afs-l", "config.profiles[0].name=mine")


@pytest.mark.parametrize(
    ("values", "mistyped"),
    [
        (("config.pluginArgs.tidee.hold=1",), "tidee"),
        (("config.pluginArgs.tide.hold=1", "config.pluginArgs.pakc.x=1"), "pakc"),
        (("config.profiles[0].name=mine", "config.profiles[0].sort=theirs", "config.pluginArgs.mine.x=1"), "mine"),
    ],
)  # fmt: skip
def test_arguments_of_a_plugin_that_nobody_names_are_refused(values: tuple[str, ...], mistyped: str) -> None:
    said = refused(IMAGE, *values)
    assert (
        "config.pluginArgs: expected plugins that Muster has or that one of config.profiles names (" in said
    )
    assert ", tide, " in said
    assert f"), found {mistyped}." in said


@pytest.mark.parametrize(
    "at", ["sort=x", "filters={x}", "scores[0].name=x", "shares={x}", "rebalance={x}", "estimate=x"]
)
def test_a_plugin_that_a_profile_of_the_teams_own_names_may_have_arguments(at: str) -> None:
    own = ("config.profiles[0].name=mine", f"config.profiles[0].{at}")
    data = named(rendered(IMAGE, *own, "config.pluginArgs.x.any=1"), "ConfigMap")["data"]
    assert yaml.safe_load(data["muster.yaml"])["pluginArgs"] == {"x": {"any": 1}}


def test_a_config_with_nothing_in_it_is_none() -> None:
    """`config:` alone in a values file, all of it commented out."""
    assert rendered(IMAGE, "config=null") == rendered(IMAGE)


def test_a_teams_own_profile_and_plugin_may_have_any_name() -> None:
    own = ("profile=mine", "config.profiles[0].name=mine", "config.profiles[0].shares={theirs}")
    data = named(rendered(IMAGE, *own, "config.pluginArgs.theirs.any=1"), "ConfigMap")["data"]
    assert yaml.safe_load(data["muster.yaml"])["profile"] == "mine"


def test_helm_template_renders_nothing_that_destroys() -> None:
    """Who applies what it prints would run a hook at once."""
    assert "Job" not in kinds(rendered(IMAGE))
    assert not [m for m in rendered(IMAGE) if "helm.sh/hook" in m["metadata"].get("annotations", {})]
    assert "Job" not in kinds(rendered(IMAGE, "hooks.release.enabled=false"))
    assert "Job" in kinds(rendered(IMAGE, HOOK))


def test_helm_test_runs_the_doctor_with_an_account_that_goes_with_it() -> None:
    tests = [
        m
        for m in rendered(IMAGE, "hooks.test.enabled=true")
        if m["metadata"]["name"].startswith("muster-test")
    ]
    assert {m["metadata"]["annotations"]["helm.sh/hook"] for m in tests} == {"test"}
    [pod] = [m for m in tests if m["kind"] == "Pod"]
    assert pod["spec"]["serviceAccountName"] == "muster-test"
    [container] = pod["spec"]["containers"]
    command, *options = container["args"]
    assert command == "doctor"
    doctor = main.get_command(click.Context(main), "doctor")
    assert doctor is not None
    doctor.make_context("doctor", options)
    for one in tests:
        if one is not pod:
            assert "hook-failed" in one["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
            assert one["metadata"]["annotations"]["helm.sh/hook-weight"] == "-5"
    assert not any(m["metadata"]["name"].startswith("muster-test") for m in rendered(IMAGE))


def test_images_by_digest() -> None:
    found = containers(rendered(IMAGE, f"image.digest={DIGEST}", f"scheduler.image.digest={DIGEST}"))
    assert {name: one["image"] for name, one in found.items()} == {
        "muster": f"registry.example/muster@{DIGEST}",
        "kube-scheduler": f"registry.k8s.io/kube-scheduler@{DIGEST}",
    }


def test_openshift_gives_the_uid() -> None:
    manifests = rendered(IMAGE, HOOK, *NO_UID)
    for kind, name in (("Deployment", "muster"), ("Job", "muster-release")):
        pod = named(manifests, kind, name)["spec"]["template"]["spec"]
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_what_stands_on_containers_and_pods_is_the_teams_to_add() -> None:
    manifests = rendered(
        IMAGE,
        "extraArgs={--log-level=debug}",
        "extraEnv[0].name=HTTPS_PROXY",
        "extraEnv[0].value=http://proxy:3128",
        "extraVolumes[0].name=ours",
        "extraVolumes[0].emptyDir.medium=Memory",
        "extraVolumeMounts[0].name=ours",
        "extraVolumeMounts[0].mountPath=/ours",
        "scheduler.extraArgs={--feature-gates=GenericWorkload=true}",
        "topologySpreadConstraints[0].topologyKey=zone",
        "securityContext.privileged=false",
    )
    pod = named(manifests, "Deployment")["spec"]["template"]["spec"]
    muster, scheduler = containers(manifests)["muster"], containers(manifests)["kube-scheduler"]
    assert muster["args"][-1] == "--log-level=debug"
    assert muster["env"] == [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    assert muster["volumeMounts"][-1] == {"name": "ours", "mountPath": "/ours"}
    assert pod["volumes"][0] == {"name": "ours", "emptyDir": {"medium": "Memory"}}
    assert scheduler["command"][-1] == "--feature-gates=GenericWorkload=true"
    assert pod["topologySpreadConstraints"] == [{"topologyKey": "zone"}]
    assert all(one["securityContext"]["privileged"] is False for one in (muster, scheduler))


def test_labels_and_annotations_of_the_team_are_on_the_objects_and_select_nothing() -> None:
    manifests = rendered(IMAGE, "commonLabels.team=ml", "commonAnnotations.owner=me")
    assert {m["metadata"]["labels"].get("team") for m in manifests} == {"ml"}
    for kind in ("Deployment", "Service", "ServiceAccount"):
        assert named(manifests, kind)["metadata"]["annotations"]["owner"] == "me"
    assert "team" not in named(manifests, "Deployment")["spec"]["selector"]["matchLabels"]
    assert "team" not in named(manifests, "Service")["spec"]["selector"]


def test_labels_of_the_team_are_on_pods_of_hooks_too_which_no_service_or_budget_selects() -> None:
    manifests = rendered(IMAGE, HOOK, "hooks.test.enabled=true", "commonLabels.team=ml")
    assert {m["metadata"]["labels"].get("team") for m in manifests} == {"ml"}
    pods = [m["metadata"] for m in manifests if m["kind"] == "Pod"]
    pods += [m["spec"]["template"]["metadata"] for m in manifests if m["kind"] in ("Deployment", "Job")]
    assert {pod["labels"]["app.kubernetes.io/name"]: pod["labels"].get("team") for pod in pods} == {
        "muster": "ml",
        "muster-release": "ml",
        "muster-test": "ml",
        "muster-uninstalled": "ml",
    }


def test_another_name_is_that_of_every_object_and_of_the_lease() -> None:
    manifests = rendered(IMAGE, "nameOverride=gangs")
    assert not [m for m in manifests if m["metadata"]["name"].startswith("muster")]
    data = named(manifests, "ConfigMap", "gangs")["data"]
    assert yaml.safe_load(data["muster.yaml"])["leader"]["lease"] == "gangs-scheduler"


def test_an_account_of_the_teams_own_gets_the_roles_and_the_trust_of_admission() -> None:
    manifests = rendered(IMAGE, "serviceAccount.create=false", "serviceAccount.name=theirs")
    assert not [
        m
        for m in manifests
        if m["kind"] == "ServiceAccount" and m["metadata"]["name"] in ("muster", "theirs")
    ]
    assert named(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "theirs"
    bound = [
        m["metadata"]["name"]
        for m in manifests
        if m["kind"].endswith("RoleBinding") or m["kind"] == "RoleBinding"
        for who in m["subjects"]
        if who["name"] == "theirs"
    ]
    assert bound == ["muster", "muster"]
    policies = [json.dumps(m) for m in manifests if m["kind"] == "ValidatingAdmissionPolicy"]
    assert any("system:serviceaccount:muster-system:theirs'" in policy for policy in policies)
    assert not any("system:serviceaccount:muster-system:muster'" in policy for policy in policies)


def test_arguments_of_kube_schedulers_plugins_reach_musters_profile() -> None:
    given = ("name=NodeResourcesFit", "args.scoringStrategy.type=MostAllocated")
    values = [f"scheduler.pluginConfig[0].{one}" for one in given]
    data = named(rendered(IMAGE, *values), "ConfigMap")["data"]
    [profile] = yaml.safe_load(data["scheduler.yaml"])["profiles"]
    assert profile["pluginConfig"] == [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    ]


def test_prometheus_scrapes_the_kube_scheduler_too() -> None:
    manifests = rendered(IMAGE, "serviceMonitor.enabled=true")
    ports = [one["port"] for one in named(manifests, "ServiceMonitor")["spec"]["endpoints"]]
    assert ports == ["service", "scheduler"]
    served = [one["name"] for one in named(manifests, "Service")["spec"]["ports"]]
    assert served == ["service", "scheduler"]
    for less in ("serviceMonitor.scheduler=false", "binder=cluster"):
        manifests = rendered(IMAGE, "serviceMonitor.enabled=true", less)
        assert [one["port"] for one in named(manifests, "ServiceMonitor")["spec"]["endpoints"]] == ["service"]


def test_the_chart_says_who_made_it() -> None:
    chart = yaml.safe_load((schema.FILE.parent / "Chart.yaml").read_text())
    assert chart["icon"].startswith("data:image/svg+xml;base64,")
    assert [one["name"] for one in chart["maintainers"]] == ["The Muster maintainers"]


def test_a_released_chart_leads_to_the_pages_of_its_version(tmp_path: Path) -> None:
    about = ("REGISTRY=registry.example/me", f"DIGEST={DIGEST}", "SOURCE=https://git.example/me/muster")
    make = ["make", "--no-print-directory", "chart"]
    helm()  # else make would build one
    done = subprocess.run([*make, *about], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    folder = ROOT / "out" / "chart" / "muster"
    chart = yaml.safe_load((folder / "Chart.yaml").read_text())
    at = f"https://git.example/me/muster/tree/v{chart['version']}"
    assert (chart["home"], chart["sources"]) == (at, [f"{at}/charts/muster"])
    [page] = [one["url"] for one in chart["maintainers"]]
    where, _, file = page.partition(f"/blob/v{chart['version']}/")
    assert (where, (ROOT / file).is_file()) == ("https://git.example/me/muster", True)
    assert f"The pages of this version: {at}\n" in installed(tmp_path, chart=folder).stdout
    for less in about[:1], about[2:]:
        lacking = subprocess.run([*make, *less], cwd=ROOT, capture_output=True, text=True, check=False)
        assert (lacking.returncode, "is missing, e.g. " in lacking.stderr) == (2, True)
