"""What helm makes of `devices`: nothing while they are off, and on from one place what devices in place need."""

from __future__ import annotations

import json

import pytest
import yaml

from muster.settings import DeviceSettings, load_settings
from tests.chart.test_chart import (
    IMAGE,
    Manifest,
    accounts,
    muster_configuration,
    named,
    refused,
    rendered,
    template,
)

ON = "devices.enabled=true"
SPACE = "muster-devices"
CHECKS = ("ValidatingAdmissionPolicy", "muster-devices")


def test_off_nothing_of_it_is_rendered() -> None:
    assert SPACE not in template(IMAGE).stdout
    assert "muster.dev/devices" not in template(IMAGE).stdout
    names = {(m["kind"], m["metadata"]["name"]) for m in rendered(IMAGE)}
    more = {(m["kind"], m["metadata"]["name"]) for m in rendered(IMAGE, ON)} - names
    assert {("Namespace", SPACE), ("PriorityClass", SPACE)} < more
    assert "devices" not in muster_configuration(IMAGE)


def test_the_namespace_takes_pods_that_are_restricted_and_leaves_with_the_release() -> None:
    space = named(rendered(IMAGE, ON), "Namespace", SPACE)
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert "helm.sh/resource-policy" not in space["metadata"].get("annotations", {})


def test_muster_may_there_what_it_does_there_and_nothing_else() -> None:
    manifests = rendered(IMAGE, ON)
    assert accounts(manifests, "muster") - accounts(rendered(IMAGE), "muster") == {(SPACE, "muster")}
    [role] = [m for m in manifests if m["kind"] == "Role" and m["metadata"]["namespace"] == SPACE]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["muster-term"],
            "verbs": ["get", "update"],
        },
    ]


def test_pods_that_hold_devices_preempt_nobody() -> None:
    found = named(rendered(IMAGE, ON, "devices.priority=7"), "PriorityClass", SPACE)
    assert (found["value"], found["preemptionPolicy"], found.get("globalDefault")) == (7, "Never", None)
    without = rendered(IMAGE, ON, "devices.priorityClass=")
    assert "PriorityClass" not in {m["kind"] for m in without}
    assert "priorityClassName.orValue('') ==" not in json.dumps(without)


def test_muster_is_told_by_the_same_values() -> None:
    values = ("namespace=held", "image=mirror.example/pause:9", "priorityClass=low", "lease=90s", "keep=1m")
    given = [f"devices.{value}" for value in values]
    manifests = rendered(IMAGE, ON, *given)
    text = named(manifests, "ConfigMap")["data"]["muster.yaml"]
    found = load_settings(text).devices
    assert found == DeviceSettings(
        enabled=True,
        namespace="held",
        image="mirror.example/pause:9",
        priority_class="low",
        lease=90.0,
        keep=60.0,
    )
    holders = named(manifests, "ValidatingAdmissionPolicy", "muster-holders")["spec"]
    assert holders["matchConstraints"]["namespaceSelector"] == {
        "matchLabels": {"kubernetes.io/metadata.name": "held"}
    }
    said = " ".join(one["expression"] for one in holders["validations"])
    assert "== 'mirror.example/pause:9'" in said
    assert "== 'low'" in said


def test_the_values_defaults_are_the_settings() -> None:
    told = muster_configuration(IMAGE, ON)
    assert load_settings(yaml.safe_dump(told)).devices == DeviceSettings(enabled=True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            ("config.devices.enabled=true",),
            "config.devices: expected none, found enabled. Say it by the value",
        ),
        ((ON, "config.devices.image=x", "config.devices.lease=40"), "found image, lease. Say it"),
        ((ON, "mode=observe"), "devices.enabled: needs mode: active, found observe"),
        ((ON, "reporting.enabled=false"), "devices.enabled: needs reporting.enabled: true"),
        ((ON, "devices.namespace=muster-system"), "devices.namespace: expected a namespace for the pods"),
        ((ON, "devices.lease=5"), "at '/devices/lease': minimum: got 5, want 30"),
        ((ON, "devices.lease=soon"), "at '/devices/lease': 'soon' does not match"),
        ((ON, "devices.priority=2000000000"), "at '/devices/priority': maximum"),
        ((ON, "devices.access=all"), "at '/devices/access': value must be one of '', 'envvar', 'cdi'"),
        ((ON, "devices.mps=run/mps"), "at '/devices/mps': 'run/mps' does not match pattern"),
        ((ON, "devices.mps=/run/../etc"), "at '/devices/mps': '/run/../etc' does not match pattern"),
        ((ON, "devices.nodes=3"), "at '/devices': additional properties 'nodes' not allowed"),
    ],
)
def test_what_contradicts_itself_is_refused_with_a_sentence(values: tuple[str, ...], said: str) -> None:
    assert said in refused(IMAGE, *values)


def selectors(manifests: list[Manifest]) -> list[list[str]]:
    """Namespaces that each policy leaves out."""
    return [
        one["values"]
        for m in manifests
        for one in m.get("spec", {})
        .get("matchConstraints", {})
        .get("namespaceSelector", {})
        .get("matchExpressions", [])
        if one["operator"] == "NotIn"
    ]


def test_no_policy_about_pods_that_are_queued_reaches_those_that_hold_devices() -> None:
    off, on = selectors(rendered(IMAGE)), selectors(rendered(IMAGE, ON))
    assert all(SPACE in one for one in on)
    assert [one[:-1] for one in on if len(one) == 3][: len(off)] == off
    only = '--set-json=namespaceSelector={"matchLabels":{"kubernetes.io/metadata.name":"muster-devices"}}'
    roles = [m for m in rendered(IMAGE, ON, flags=(only,)) if m["kind"] == "Role"]
    assert sum(m["metadata"]["namespace"] == SPACE for m in roles) == 1


def test_with_the_clusters_binder_muster_may_note_who_uses_a_device() -> None:
    policy = named(rendered(IMAGE, ON, "binder=cluster"), "ValidatingAdmissionPolicy", "muster-own")["spec"]
    assert f"request.namespace == '{SPACE}'" in policy["matchConditions"][0]["expression"]
    assert f"request.namespace == '{SPACE}'" in policy["validations"][0]["expression"]
    holders = named(rendered(IMAGE, ON, "binder=cluster"), "ValidatingAdmissionPolicy", "muster-holders")
    assert "schedulerName.orValue('') == 'default-scheduler'" in json.dumps(holders)


def mutations(*values: str) -> str:
    policy = named(rendered(IMAGE, ON, *values), "MutatingAdmissionPolicy", "muster-devices")
    return json.dumps(policy["spec"]["mutations"])


def test_pods_get_at_devices_as_the_values_say_and_by_themselves_where_they_say_nothing() -> None:
    for text in (mutations(), mutations("devices.access=envvar"), mutations("devices.access=cdi")):
        assert "MUSTER_GPUS" in text
    assert "NVIDIA" not in mutations()
    assert "nvidia" not in mutations()
    legacy = mutations("devices.access=envvar", "devices.runtimeClassName=nvidia-legacy")
    assert "NVIDIA_VISIBLE_DEVICES" in legacy
    assert 'runtimeClassName: \\"nvidia-legacy\\"' in legacy
    assert "runtimeClassName" not in mutations("devices.access=envvar", "devices.runtimeClassName=")
    assert "management.nvidia.com/gpu=all" in mutations("devices.access=cdi")


def test_pods_that_may_share_a_gpu_meet_the_daemon_of_mps_where_the_values_say_that_there_is_one() -> None:
    assert "MPS" not in mutations("devices.access=envvar")
    text = mutations("devices.mps=/run/nvidia/mps")
    for part in (
        "/run/nvidia/mps/pipe",
        "/run/nvidia/mps/shm",
        "CUDA_MPS_PIPE_DIRECTORY",
        "MUSTER_GPU_MEMORY",
    ):
        assert part in text
    policy = named(rendered(IMAGE, ON, "devices.mps=/run/nvidia/mps"), *CHECKS)
    checked = json.dumps(policy["spec"])
    for part in ("/dev/shm/", "expected no valueFrom"):
        assert part in checked
        assert part not in json.dumps(named(rendered(IMAGE, ON), *CHECKS)["spec"])
    said = refused(IMAGE, ON, "devices.mps=/run/nvidia/mps", version="v1.35.2")
    assert "devices.mps: /run/nvidia/mps needs the MutatingAdmissionPolicy API" in said


def test_without_the_api_for_it_no_pod_is_promised_devices() -> None:
    said = refused(IMAGE, ON, "devices.access=cdi", version="v1.35.2")
    assert "devices.access: cdi needs the MutatingAdmissionPolicy API, which this cluster (v1.35.2)" in said
    manifests = rendered(IMAGE, ON, version="v1.35.2")
    assert "MutatingAdmissionPolicy" not in {m["kind"] for m in manifests}
    assert named(manifests, "ValidatingAdmissionPolicy", "muster-devices")


DEFAULT = {"key": "muster.dev/devices", "operator": "In", "values": ["true"]}
EXISTS = '{"matchLabels":{"team":"ml"},"matchExpressions":[{"key":"gpus","operator":"Exists"}]}'


@pytest.mark.parametrize(
    ("selector", "allowed", "elsewhere"),
    [
        ("{}", [DEFAULT], [DEFAULT | {"operator": "NotIn"}]),
        (
            EXISTS,
            [{"key": "gpus", "operator": "Exists"}, {"key": "team", "operator": "In", "values": ["ml"]}],
            [
                {"key": "gpus", "operator": "DoesNotExist"},
                {"key": "team", "operator": "NotIn", "values": ["ml"]},
            ],
        ),
    ],
)
def test_where_pods_may_be_in_place_is_opted_in(
    selector: str, allowed: list[Manifest], elsewhere: list[Manifest]
) -> None:
    """A selector can't be negated: a namespace that lacks any of the requirements is elsewhere."""
    manifests = rendered(IMAGE, ON, flags=(f"--set-json=devices.namespaceSelector={selector}",))
    gives = named(manifests, "MutatingAdmissionPolicy", "muster-devices")["spec"]["matchConstraints"]
    assert gives["namespaceSelector"]["matchExpressions"][1:] == allowed
    refuses = [
        m["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        for m in manifests
        if m.get("spec", {}).get("policyName") == "muster-devices-elsewhere"
    ]
    assert refuses == [[one] for one in elsewhere]


def test_a_pod_in_place_gets_its_token_without_asking() -> None:
    def conditions(*values: str) -> str:
        return json.dumps(named(rendered(IMAGE, *values), "MutatingAdmissionPolicy", "muster-report"))

    assert "'muster.dev/gpus' in" in conditions(ON)
    assert "muster.dev/gpus" not in conditions()


@pytest.mark.parametrize(
    ("report", "version", "holds"),
    [
        ("auto", "v1.35.2", True),
        ("auto", "v1.36.0", False),
        ("auto", "v1.36.0-rc.1", False),
        ("hold", "v1.37.1", True),
        ("status", "v1.34.0", False),
    ],
)
def test_before_1_36_containers_tell_which_device_they_got(report: str, version: str, holds: bool) -> None:
    manifests = rendered(IMAGE, ON, "image.tag=v9", f"devices.report={report}", version=version)
    told = load_settings(named(manifests, "ConfigMap")["data"]["muster.yaml"]).devices
    said = json.dumps(named(manifests, "ValidatingAdmissionPolicy", "muster-holders")["spec"]["validations"])
    if holds:
        url = "http://muster.muster-system.svc:8080"
        assert (told.report, told.url) == ("hold", url)
        assert told.image.endswith(":v9")
        assert "['muster', 'hold']" in said
        assert f"e.value == '{url}'" in said
    else:
        assert told == DeviceSettings(enabled=True)
        assert "hold'" not in said
        assert "spec.volumes: expected none" in said


def test_the_gpus_of_a_pod_in_place_are_frozen_behind_the_gate_and_past_it() -> None:
    """Taken off or changed, by others than Muster and break-glass (on an API server: e2e/test_devices_chart.py)."""
    hold = named(rendered(IMAGE, ON), "ValidatingAdmissionPolicy", "muster-hold")["spec"]
    (frozen,) = (one["expression"] for one in hold["variables"] if one["name"] == "changedAnnotations")
    always, _, until_it_starts = frozen.partition("isGated")
    assert '"muster.dev/gpus"' in always
    assert '"muster.dev/gpus"' not in until_it_starts
