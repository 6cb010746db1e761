"""An API server that answers helm by hand: what the chart looks up in a cluster, and the notes of an install."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.chart.test_chart import CHART, Done, helm

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gangs.muster.dev"
NODES = "/api/v1/nodes"
POLICIES = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
KINDS = {
    "v1": ("ConfigMap", "Pod", "Secret", "Service", "ServiceAccount"),
    "apps/v1": ("Deployment",),
    "batch/v1": ("Job",),
    "policy/v1": ("PodDisruptionBudget",),
    "rbac.authorization.k8s.io/v1": ("Role", "RoleBinding"),
}
CLUSTERWIDE = {
    "v1": ("Namespace", "Node"),
    "admissionregistration.k8s.io/v1": (*POLICIES, *(f"{one}Binding" for one in POLICIES)),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
    "rbac.authorization.k8s.io/v1": ("ClusterRole", "ClusterRoleBinding"),
    "scheduling.k8s.io/v1": ("PriorityClass",),
}
"""What it serves: what the chart renders by default or with devices, and what it looks up."""


def _plural(kind: str) -> str:
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("ss") else f"{name}s"


def _discovery(version: str) -> dict[str, Any]:
    """By path: the groups, and what each has."""
    found: dict[str, Any] = {
        "/version": {"major": version[1], "minor": version.split(".")[1], "gitVersion": version},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
    }
    groups = []
    for served in sorted({*KINDS, *CLUSTERWIDE}):
        group, _, name = served.rpartition("/")
        told = {"groupVersion": served, "version": name}
        if group:
            groups.append({"name": group, "versions": [told], "preferredVersion": told})
        found[f"/apis/{served}" if group else "/api/v1"] = {
            "kind": "APIResourceList",
            "groupVersion": served,
            "resources": [
                {"name": _plural(kind), "kind": kind, "namespaced": kinds is KINDS, "verbs": ["get", "list"]}
                for kinds in (KINDS, CLUSTERWIDE)
                for kind in kinds.get(served, ())
            ],
        }
    found["/apis"] = {"kind": "APIGroupList", "groups": groups}
    return found


@contextmanager
def answering(objects: Mapping[str, Any], version: str) -> Iterator[str]:
    """The URL of a cluster of this version with these objects, by path."""
    answers = {
        NODES: {"kind": "NodeList", "apiVersion": "v1", "items": []},
        "/api/v1/namespaces/kube-system": {"kind": "Namespace", "metadata": {"name": "kube-system"}},
        **_discovery(version),
        **objects,
    }

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = answers.get(urlsplit(self.path).path)
            missing = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
            }
            body = json.dumps(found or missing).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def installed(
    folder: Path,
    *values: str,
    flags: Iterable[str] = (),
    objects: Mapping[str, Any] | None = None,
    version: str = "v1.37.1",
    chart: Path = CHART,
) -> Done:
    """`helm install --dry-run=server` before such a cluster, with its hooks and notes on stdout."""
    with answering(objects or {}, version) as url:
        file = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
        }
        file.write_text(yaml.safe_dump(config))
        homes = {"HOME": str(folder)} | {
            f"HELM_{kind}_HOME": str(folder / "helm") for kind in ("CACHE", "CONFIG", "DATA")
        }
        command = [helm(), "install", "muster", str(chart), "--namespace=muster-system", "--dry-run=server"]
        command += [
            "--disable-openapi-validation",
            f"--kubeconfig={file}",
            *(f"--set={value}" for value in values),
            *flags,
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=homes)
