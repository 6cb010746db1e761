"""HTTPS on the service port, by the chart's value `tls`: made and renewed by Muster, or brought by the team."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster import Cluster, Pod
from e2e.lab import Lab, NodeGroup, Shape, credentials
from e2e.reports import token
from e2e.scenario import job, wait_until
from muster import signing

pytestmark = pytest.mark.lab

SPACE = "/api/v1/namespaces/muster-system"
LIFE = 45
"""Seconds of a certificate: Muster makes the next one after 30."""


def authority(cluster: Cluster) -> str:
    """Who signed, as everybody may read it."""
    found = cluster.get(f"{SPACE}/configmaps/muster-ca").get("data", {})
    return str(found.get("ca.crt", ""))


def served(lab: Lab, trusted: str) -> x509.Certificate:
    """The certificate of a connection that was verified against that authority and the port's name."""
    context = ssl.create_default_context(cadata=trusted)
    address = ("127.0.0.1", int(lab.service_url().rsplit(":", 1)[1]))
    with (
        socket.create_connection(address, timeout=60) as line,
        context.wrap_socket(line, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return x509.load_der_x509_certificate(found)


def scraped(lab: Lab, trusted: str) -> str:
    """/metrics, as a Prometheus reads it that verifies."""
    context = ssl.create_default_context(cadata=trusted)
    return httpx.get(f"{lab.service_url()}/metrics", verify=context, trust_env=False, timeout=60).text


def told(pod: Pod, cluster: Cluster, namespace: str) -> dict[str, str]:
    """What admission told the pod's container, by variable."""
    found = cluster.get(f"/api/v1/namespaces/{namespace}/pods/{pod.name}")
    return {one["name"]: one.get("value", "") for one in found["spec"]["containers"][0].get("env", ())}


def reports(lab: Lab, cluster: Cluster, tmp_path: Path, name: str, trusts: bool = True) -> tuple[int, str]:
    """One report of a new job's pod, by who signed as admission told it; exit code and what was said."""
    reported = {"muster.dev/report": "true"}
    cluster.submit(job(name, 1, gpus=1, annotations=reported))
    pod = wait_until(lambda: next(iter(cluster.pods("default", name)), None), what=f"{name} has a pod")
    said = told(pod, cluster, "default")
    assert said["MUSTER_URL"].startswith("https://muster.muster-system.svc:")
    wait_until(lambda: name in str(cluster.gangs("default")), what="Muster knows the job")
    (tmp_path / "token").write_text(token(cluster, pod, "default"))
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")},
        "MUSTER_URL": lab.service_url(),
        "MUSTER_TOKEN_FILE": str(tmp_path / "token"),
        **({"MUSTER_CA": said["MUSTER_CA"]} if trusts else {}),
    }
    command = [sys.executable, "-m", "muster_report.report", "--step", "3"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def bring(lab: Lab, made: dict[str, bytes], tmp_path: Path) -> None:
    """The Secret `ours`, as a team makes and replaces it."""
    files = {name: value for name, value in made.items() if name != "ca.key"}
    data = {name: credentials.encoded(value) for name, value in files.items()}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": "ours", "namespace": "muster-system"},
        "data": data,
    }
    file = tmp_path / "secret.json"
    file.write_text(json.dumps(secret))
    lab.kubectl("apply", "-f", str(file))


def test_muster_s_own_certificate_is_verified_told_to_pods_and_renewed_while_it_runs(
    new_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(1, gpus=8),), set_values=("tls.mode=chart", f"tls.life={LIFE}s")))
    cluster = Cluster(lab.kubeconfig)
    trusted = wait_until(lambda: authority(cluster), what="who signed is told")
    first, process = served(lab, trusted), lab.pid("muster")
    assert "muster_certificate_end_timestamp_seconds" in scraped(lab, trusted)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{lab.service_url()}/metrics", trust_env=False, timeout=60)
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{lab.service_url()}/metrics".replace("https", "http"), trust_env=False, timeout=60)
    code, said = reports(lab, cluster, tmp_path, "trusts")
    assert (code, '"accepted": true' in said) == (0, True), said
    code, said = reports(lab, cluster, tmp_path, "doubts", trusts=False)
    assert (code, "certificate verify failed" in said) == (1, True), said

    def renewed() -> x509.Certificate | None:
        """What is served, told by /metrics and kept is one certificate, and not the first: read in turn, a slow
        machine may find two."""
        now = served(lab, trusted)
        families = text_string_to_metric_families(scraped(lab, trusted))
        ends = [one.samples for one in families if one.name == "muster_certificate_end_timestamp_seconds"]
        kept = cluster.get(f"{SPACE}/secrets/muster-tls")["data"]
        alike = x509.load_pem_x509_certificate(base64.b64decode(kept["tls.crt"])) == now and [
            sample.value for sample in ends[0]
        ] == [now.not_valid_after_utc.timestamp()]
        return now if alike and now.serial_number != first.serial_number else None

    second = wait_until(renewed, what="another certificate is served, told and kept")
    assert first.not_valid_after_utc < second.not_valid_after_utc
    assert authority(cluster) == trusted
    assert lab.pid("muster") == process
    may = ("auth", "can-i", "get", "--as=system:serviceaccount:muster-system:muster", "-n", "muster-system")
    assert lab.kubectl(*may, "secrets/muster-tls").strip() == "yes"
    assert lab.kubectl(*may, "secrets/muster-scheduler-token", check=False).startswith("no")


@pytest.mark.complains("wrong certificates are brought", "the last good certificate stays in force")
def test_a_certificate_that_the_team_brings_is_served_again_when_it_is_replaced(
    new_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(1, gpus=8),)))
    cluster = Cluster(lab.kubeconfig)
    now = time.time()
    made = signing.renewed({}, ["127.0.0.1"], 3600.0, now) or {}
    bring(lab, made, tmp_path)
    lab.upgrade("--set", "tls.mode=secret,tls.secret=ours,admission.mode=webhook")
    lab.wait_ready("muster")
    trusted = made["ca.crt"].decode()
    wait_until(lambda: authority(cluster) == trusted, what="who signed is told")
    first, process = served(lab, trusted), lab.pid("muster")
    assert x509.load_pem_x509_certificate(made["tls.crt"]) == first
    code, said = reports(lab, cluster, tmp_path, "by-webhook")
    assert (code, '"accepted": true' in said) == (0, True), said

    following = (
        signing.renewed({"ca.crt": made["ca.crt"], "ca.key": made["ca.key"]}, ["127.0.0.1"], 3600.0, now)
        or {}
    )
    bring(lab, following, tmp_path)
    lab.mount()
    expected = x509.load_pem_x509_certificate(following["tls.crt"])
    wait_until(lambda: served(lab, trusted) == expected, what="the new one is served")

    ended = (
        signing.renewed({"ca.crt": made["ca.crt"], "ca.key": made["ca.key"]}, ["127.0.0.1"], 60.0, now - 90)
        or {}
    )
    for wrong, why in (
        ({**following, "tls.key": made["tls.key"]}, "expected the key of tls.crt"),
        (ended, "found one that ended"),
    ):
        bring(lab, wrong, tmp_path)
        lab.mount()
        wait_until(lambda why=why: why in lab.log("muster").read_text(), what=f"muster says {why}")  # type: ignore[misc]
        assert served(lab, trusted) == expected
    assert lab.pid("muster") == process
