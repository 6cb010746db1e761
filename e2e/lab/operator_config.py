"""The configuration files of those operators that have one: one process, certificates of the cluster's authority."""

from __future__ import annotations

from pathlib import Path

from e2e.lab.api import Json

LOOPBACK = "127.0.0.1"
_GROUPS = {
    "jobset": "jobset.x-k8s.io/v1alpha1",
    "lws": "lws.x-k8s.io/v1alpha1",
    "trainer": "trainer.kubeflow.org/v1alpha1",
    "kueue": "kueue.x-k8s.io",  # its version: kueue_api
}
# Jobs and pods of its queues, and the kinds of the operators beside it; those that a lab lacks are passed over.
_KUEUE: Json = {
    "integrations": {
        "frameworks": [
            *("batch/job", "pod", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"),
            *("kubeflow.org/pytorchjob", "ray.io/raycluster", "ray.io/rayjob"),
        ]
    },
    "clientConnection": {"qps": 50, "burst": 100},  # as its manifests have it
    "managedJobsNamespaceSelector": {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "kueue-system", "muster-system"],
            }
        ]
    },
}


def kueue_api(version: str) -> str:
    """Of Kueue's objects and of its configuration: the newest that this version of it serves ("": the pinned one)."""
    numbers = tuple(int(part) for part in version.lstrip("v").split(".")[:2]) if version else (0, 15)
    return "v1beta2" if numbers >= (0, 15) else "v1beta1"


def configuration(
    name: str, host: str, health: int, webhook: int, certificates: Path, version: str = ""
) -> Json:
    """Of an operator by name, in the pinned version or another; {} where it has none. host: where its webhooks are
    called; its health is asked for on loopback."""
    if name not in _GROUPS:
        return {}
    management = "certManagement" if name == "trainer" else "internalCertManagement"
    served: Json = {"host": host, "port": webhook}
    if name != "trainer":  # it has no such field
        served["certDir"] = str(certificates)
    return {
        "apiVersion": f"config.{_GROUPS[name]}" + (f"/{kueue_api(version)}" if name == "kueue" else ""),
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        management: {"enable": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
        "webhook": served,
        **(_KUEUE if name == "kueue" else {}),
    }
