"""The value `tls`: HTTPS on the service port, and all who call it."""

from __future__ import annotations

import pytest
import yaml

from muster.settings import load_settings
from tests.chart.test_chart import IMAGE, Manifest, containers, named, refused, rendered, roles

MODES = {
    "secret": ("tls.mode=secret", "tls.secret=ours"),
    "certManager": ("tls.mode=certManager", "tls.certManager.issuerRef.name=house"),
    "chart": ("tls.mode=chart", "tls.hosts={muster.example}"),
}
HOSTS = ["muster.muster-system.svc", "muster.muster-system.svc.cluster.local", "muster.muster-system"]


def configured(manifests: list[Manifest]) -> Manifest:
    text = named(manifests, "ConfigMap")["data"]["muster.yaml"]
    load_settings(text)
    found: Manifest = yaml.safe_load(text)
    return found


def probes(manifests: list[Manifest]) -> list[Manifest]:
    """Of both containers, those that ask the service port."""
    found = [one[kind] for one in containers(manifests).values() for kind in one if kind.endswith("Probe")]
    return [probe["httpGet"] for probe in found if probe["httpGet"]["port"] in ("service", 8080)]


def test_without_tls_nothing_of_it_is_there() -> None:
    manifests = rendered(IMAGE)
    assert "tls" not in configured(manifests)
    assert len(probes(manifests)) == 4
    assert not any("scheme" in probe for probe in probes(manifests))
    assert not [m for m in manifests if m["metadata"]["name"] in ("muster-ca", "muster-tls")]


@pytest.mark.parametrize("mode", MODES)
def test_who_calls_the_service_port_does_so_by_https_in_every_mode(mode: str) -> None:
    monitored = ("serviceMonitor.enabled=true",)
    manifests = rendered(IMAGE, *MODES[mode], *monitored)
    assert [probe["scheme"] for probe in probes(manifests)] == ["HTTPS"] * 4
    assert named(manifests, "ServiceMonitor")["spec"]["endpoints"][:1] == [
        {
            "port": "service",
            "path": "/metrics",
            "interval": "30s",
            "scheme": "https",
            "tlsConfig": {
                "ca": {"configMap": {"name": "muster-ca", "key": "ca.crt"}},
                "serverName": "muster.muster-system.svc",
            },
        }
    ]
    assert configured(manifests)["tls"]["publish"] == "muster-ca"
    named(manifests, "ConfigMap", "muster-ca")
    policy = yaml.safe_dump(named(manifests, "MutatingAdmissionPolicy", "muster-report"))
    assert "https://muster.muster-system.svc:8080" in policy.replace("\\\n", "")
    assert "MUSTER_CA" in policy
    binding = named(manifests, "MutatingAdmissionPolicyBinding", "muster-report")["spec"]
    assert binding["paramRef"] == {
        "name": "muster-ca",
        "namespace": "muster-system",
        "parameterNotFoundAction": "Allow",
    }


@pytest.mark.parametrize(("mode", "secret"), [("secret", "ours"), ("certManager", "muster-tls")])
def test_a_certificate_that_others_renew_is_mounted_and_no_right_on_secrets_is_given(
    mode: str, secret: str
) -> None:
    manifests = rendered(IMAGE, *MODES[mode])
    assert configured(manifests)["tls"] == {"certificates": "/etc/muster-tls", "publish": "muster-ca"}
    pod = named(manifests, "Deployment")["spec"]["template"]["spec"]
    assert {"name": "tls", "secret": {"secretName": secret}} in pod["volumes"]
    mounts = containers(manifests)["muster"]["volumeMounts"]
    assert {"name": "tls", "mountPath": "/etc/muster-tls", "readOnly": True} in mounts
    assert not [rule for role in roles(manifests) for rule in role["rules"] if "secrets" in rule["resources"]]


def test_cert_manager_is_asked_for_the_service_s_names() -> None:
    spec = named(rendered(IMAGE, *MODES["certManager"], "tls.hosts={a.example,10.0.0.1}"), "Certificate")[
        "spec"
    ]
    assert (spec["dnsNames"], spec["ipAddresses"]) == ([*HOSTS, "a.example"], ["10.0.0.1"])
    assert (spec["secretName"], spec["issuerRef"], spec["duration"]) == (
        "muster-tls",
        {"name": "house"},
        "2160h",
    )


def test_of_its_own_certificate_muster_may_read_and_patch_that_secret_only() -> None:
    manifests = rendered(IMAGE, *MODES["chart"])
    assert configured(manifests)["tls"] == {
        "secret": "muster-tls",
        "hosts": [*HOSTS, "localhost", "127.0.0.1", "::1", "muster.example"],
        "life": "2160h",
        "publish": "muster-ca",
    }
    given = {
        (role["kind"], role["metadata"].get("namespace"), *rule["resourceNames"], *rule["verbs"])
        for role in roles(manifests)
        for rule in role["rules"]
        if "secrets" in rule["resources"]
    }
    assert given == {("Role", "muster-system", "muster-tls", "get", "patch")}
    assert "data" not in named(manifests, "Secret", "muster-tls"), (
        "an upgrade takes nothing from what muster wrote"
    )


def test_a_url_of_the_team_s_own_brings_no_authority_of_ours_along() -> None:
    manifests = rendered(IMAGE, *MODES["chart"], "reporting.url=https://gate.example:1")
    policy = named(manifests, "MutatingAdmissionPolicy", "muster-report")
    assert "MUSTER_CA" not in yaml.safe_dump(policy)
    assert "paramKind" not in policy["spec"]
    webhook = rendered(
        IMAGE, *MODES["chart"], "reporting.url=https://gate.example:1", "admission.mode=webhook"
    )
    assert configured(webhook)["reporting"] == {"url": "https://gate.example:1", "tellAuthority": False}
    own = rendered(IMAGE, *MODES["chart"], "admission.mode=webhook")
    assert configured(own)["reporting"] == {"url": "https://muster.muster-system.svc:8080"}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (("tls.mode=secret",), "tls.secret: with tls.mode: secret it must name a Secret"),
        (
            ("tls.mode=certManager",),
            "tls.certManager.issuerRef.name: with tls.mode: certManager it must name",
        ),
        (("tls.mode=on",), "tls/mode"),
        (("tls.life=soon",), "tls/life"),
    ],
)
def test_what_can_not_work_is_refused(values: tuple[str, ...], why: str) -> None:
    assert why in refused(IMAGE, *values)
