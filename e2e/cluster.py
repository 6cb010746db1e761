"""A cluster as scenarios see it: the lab's, or any other by its kubeconfig. JSON in and out, through the
official client.

Lists come back as `Pod`, a frozen view of what scenarios ask about; everything else stays JSON, because
decoding a thousand pods into the client's classes takes seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kubernetes import client, config

from e2e.lab import libyaml
from e2e.quantities import requests

Json = dict[str, Any]

GATE = "muster.dev/queue"
GPU = "nvidia.com/gpu"
MARK = "muster.dev/managed"
"""No amount of anything, and no node has it (config/existing-scheduler)."""
TERMINAL = ("Succeeded", "Failed")


class Refused(Exception):  # noqa: N818  (what the apiserver says is no error of ours; tests expect it)
    """The apiserver said no. `status` is the HTTP status, `message` what kubectl would show."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


@dataclass(frozen=True)
class Pod:
    """One pod at one moment; `raw` is the whole object."""

    raw: Json

    @property
    def name(self) -> str:
        return str(self.raw["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.raw["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        return str(self.raw["metadata"]["uid"])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.raw["metadata"].get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.raw["metadata"].get("annotations") or {}

    @property
    def owner(self) -> Json | None:
        """The controlling owner reference."""
        references = self.raw["metadata"].get("ownerReferences") or []
        return next((reference for reference in references if reference.get("controller")), None)

    @property
    def node(self) -> str:
        """ "" while it is not bound."""
        return str(self.raw["spec"].get("nodeName") or "")

    @property
    def gates(self) -> list[str]:
        return [gate["name"] for gate in self.raw["spec"].get("schedulingGates") or []]

    @property
    def gated(self) -> bool:
        return GATE in self.gates

    @property
    def pinned_to(self) -> str:
        """The node that a `matchFields metadata.name` names, "" for none."""
        affinity = self.raw["spec"].get("affinity") or {}
        required = (affinity.get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        ) or {}
        for term in required.get("nodeSelectorTerms", []):
            for field in term.get("matchFields") or []:
                if field["key"] == "metadata.name":
                    return str(field["values"][0])
        return ""

    @property
    def phase(self) -> str:
        return str(self.raw["status"].get("phase", ""))

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL

    @property
    def deleted(self) -> bool:
        """Whether somebody asked for its end."""
        return "deletionTimestamp" in self.raw["metadata"]

    @property
    def exit_code(self) -> int | None:
        """Of its first container; None while that has not ended."""
        for status in self.raw["status"].get("containerStatuses") or []:
            ended = status.get("state", {}).get("terminated")
            return None if ended is None else int(ended["exitCode"])
        return None

    @property
    def requests(self) -> dict[str, int]:
        """What kube-scheduler counts: cpu in millis, the rest in units."""
        return requests(self.raw["spec"])

    @property
    def gpus(self) -> int:
        return self.requests.get(GPU, 0)

    def condition(self, kind: str) -> Json | None:
        found = (item for item in self.raw["status"].get("conditions") or [] if item["type"] == kind)
        return next(found, None)

    def __str__(self) -> str:
        state = "gated" if self.gates else self.phase
        return f"{self.name} {state} on {self.node or 'no node'}{' (ending)' if self.deleted else ''}"


class Cluster:
    """One cluster; methods raise Refused where the apiserver says no."""

    def __init__(self, kubeconfig: Path, timeout: float = 60.0, retries: int | None = None) -> None:
        """timeout: seconds that a call may take; retries: of a call without an answer, None: as urllib3 does (3)."""
        self.kubeconfig, self._timeout, self._retries = kubeconfig, timeout, retries

    @cached_property
    def client(self) -> client.ApiClient:
        """The official client, for `kubernetes.client.CoreV1Api(cluster.client)`."""
        made: client.ApiClient = config.new_client_from_config_dict(libyaml.load(self.kubeconfig.read_text()))
        if self._retries is not None:
            made.rest_client.pool_manager.connection_pool_kw["retries"] = self._retries  # type: ignore[no-untyped-call]
        return made

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Json:
        """One call; `body` is JSON data, `timeout` seconds."""
        serialized = self.client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Content-Type": content_type, "Accept": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self.client.call_api(*serialized, _request_timeout=timeout or self._timeout)
        data: bytes = answer.read() or b"{}"  # type: ignore[no-untyped-call]
        if answer.status >= 400:
            raise _refusal(answer.status, data)
        decoded: Json = json.loads(data)
        return decoded

    def get(self, path: str, **query: str) -> Json:
        return self.request("GET", path, query=query)

    def patch(self, path: str, body: Json, kind: str = "merge", **query: str) -> Json:
        """`kind`: merge, strategic-merge or json."""
        return self.request("PATCH", path, body, f"application/{kind}-patch+json", query)

    def delete(self, path: str, **query: str) -> Json:
        return self.request("DELETE", path, query=query)

    def submit(self, *manifests: Json, namespace: str = "default", dry_run: bool = False) -> list[Json]:
        """Create objects, in order; what the apiserver made of them."""
        query = {"dryRun": "All"} if dry_run else {}
        return [
            self.request("POST", collection(manifest, namespace), manifest, query=query)
            for manifest in manifests
        ]

    def pods(self, namespace: str, job: str | None = None, labels: str = "") -> list[Pod]:
        """Pods by name. `job` is the name of a Job (label batch.kubernetes.io/job-name) or of label
        muster.dev/job."""
        answer = self.get(f"/api/v1/namespaces/{namespace}/pods", labelSelector=labels)
        found = sorted((Pod(item) for item in answer["items"]), key=lambda pod: pod.name)
        if job is None:
            return found
        keys = ("batch.kubernetes.io/job-name", "muster.dev/job")
        return [pod for pod in found if any(pod.labels.get(key) == job for key in keys)]

    def all_pods(self) -> list[Pod]:
        return [Pod(item) for item in self.get("/api/v1/pods")["items"]]

    def pod(self, namespace: str, name: str) -> Pod | None:
        """None where there is none."""
        try:
            return Pod(self.get(f"/api/v1/namespaces/{namespace}/pods/{name}"))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def nodes(self) -> list[Json]:
        found: list[Json] = self.get("/api/v1/nodes")["items"]
        return found

    def gangs(self, namespace: str) -> dict[str, Json]:
        """Gang objects by spec.job (a name that was used again: the newest; within a second by version)."""
        items = self.get(f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/gangs")["items"]
        items.sort(key=lambda item: (item["metadata"]["creationTimestamp"], _version(item)))
        return {item.get("spec", {}).get("job", item["metadata"]["name"]): item for item in items}

    def events(self, namespace: str, name: str = "") -> list[Json]:
        """Events of the namespace, of one object's name where given, oldest first.

        Times are whole seconds and names end at random: within a second the version tells the order."""
        selector = f"involvedObject.name={name}" if name else ""
        items: list[Json] = self.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)[
            "items"
        ]
        return sorted(items, key=lambda item: (item["metadata"]["creationTimestamp"], _version(item)))

    def delete_pod(self, pod: Pod, grace: int | None = None) -> None:
        """As `kubectl delete pod`; a pod that is gone is no error."""
        query = {} if grace is None else {"gracePeriodSeconds": str(grace)}
        try:
            self.delete(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", **query)
        except Refused as refused:
            if refused.status != 404:
                raise

    def cordon(self, node: str, unschedulable: bool = True) -> None:
        self.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": unschedulable or None}})


# Where objects of a kind live; others by `plural`.
_PLURALS = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses", "Ingress": "ingresses"}
_CLUSTER_WIDE = {
    "Namespace",
    "Node",
    "PriorityClass",
    "PersistentVolume",
    "StorageClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ClusterTrainingRuntime",
    "RuntimeClass",
    "DeviceClass",
}


def collection(manifest: Json, namespace: str) -> str:
    """The path that creates this object: /apis/batch/v1/namespaces/x/jobs."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind) or kind.lower() + ("es" if kind.endswith("ss") else "s")
    if kind in _CLUSTER_WIDE:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{manifest['metadata'].get('namespace', namespace)}/{plural}"


def _version(item: Json) -> int:
    """resourceVersion; of objects of one kind the greater is the newer (KEP-5504)."""
    return int(item["metadata"]["resourceVersion"])


def _refusal(status: int, data: bytes) -> Refused:
    try:
        message = str(json.loads(data).get("message", data.decode(errors="replace")))
    except ValueError:
        message = data.decode(errors="replace")
    return Refused(status, message)
