"""The real metrics server in a lab: behind the API server's aggregation, reading fake nodes where kwok serves them.

Its APIService is the one of its own module. Changed is only what a lab's network does: the Service is a name for
loopback, the certificate is signed by the lab's authority, and nodes say on which port and path their use is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.lab import credentials, manifests
from e2e.lab.api import Api

NAME = "metrics-server"
HOSTS = ("127.0.0.1", "localhost", f"{NAME}.kube-system.svc")
"""What its certificate is for: the API server asks for the Service's name."""
USE = Path(__file__).resolve().parent.parent / "kwok" / "use.yaml"
READ_BY = "metrics.k8s.io/resource-metrics-path"
"""Annotation of a node: where on it a metrics server finds what its pods use."""


def aggregate(api: Api, module: Path, port: int, authority: bytes) -> None:
    """The API server asks the metrics server of this module, on a port of loopback, for its group."""
    (service,) = manifests.objects(module / "manifests/base/service.yaml")
    service["spec"] = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    api.apply(f"/api/v1/namespaces/kube-system/services/{NAME}", service)
    (served,) = manifests.objects(module / "manifests/base/apiservice.yaml")
    del served["spec"]["insecureSkipTLSVerify"]
    served["spec"]["caBundle"] = credentials.encoded(authority)
    served["spec"]["service"]["port"] = port
    api.apply(f"/apis/apiregistration.k8s.io/v1/apiservices/{served['metadata']['name']}", served)


def command(port: int, kubeconfig: Path, certificates: Path) -> list[str]:
    """Its arguments. It reads each node as often as it may: 10 s."""
    return [
        *(f"--{who}kubeconfig={kubeconfig}" for who in ("", "authentication-", "authorization-")),
        *("--bind-address=127.0.0.1", f"--secure-port={port}"),
        f"--tls-cert-file={certificates / 'tls.crt'}",
        f"--tls-private-key-file={certificates / 'tls.key'}",
        *("--metric-resolution=10s", "--kubelet-request-timeout=5s"),
        *("--kubelet-preferred-address-types=InternalIP", "--kubelet-use-node-status-port"),
        "--deprecated-kubelet-completely-insecure",  # kwok serves HTTP
    ]


def read_by(node: dict[str, Any], operators: Sequence[str], ports: Mapping[str, int]) -> dict[str, Any]:
    """A node's manifest; where a metrics server is among the operators, with where kwok serves its use."""
    if NAME not in operators:
        return node
    name, status = node["metadata"]["name"], node["status"]
    node["metadata"]["annotations"] = {READ_BY: f"/metrics/nodes/{name}/metrics/resource"}
    status["addresses"] = [*status["addresses"], {"type": "InternalIP", "address": "127.0.0.1"}]
    status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": ports["kwok"]}}
    return node
