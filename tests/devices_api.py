"""The namespace of pods that hold devices, as an API server keeps it: versions that rise, and preconditions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from muster.cluster.api import NOT_SENT, Errand
from muster.cluster.resources import watched
from muster.errors import ClusterError
from muster.types import Event

Json = dict[str, Any]
SPACE = "muster-devices"


class DevicesApi:
    """config: the ConfigMap that keeps terms; pods by name; before_put: called before it is written. refuse: so many
    writes of pods fail."""

    def __init__(self) -> None:
        self.config: Json = {}
        self.pods: dict[str, Json] = {}
        self.before_put: Callable[[], object] = lambda: None
        self.refuse = 0
        self.sent: list[str] = []
        self._version = 0
        self._errand: Errand | None = None

    def touch(self, found: Json) -> None:
        self._version += 1
        found.setdefault("metadata", {})["resourceVersion"] = str(self._version)

    def during(self, errand: Errand) -> DevicesApi:
        own = DevicesApi.__new__(DevicesApi)
        own.__dict__ = self.__dict__.copy()
        own._errand = errand
        own.__dict__["_of"] = self
        return own

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "",  # noqa: ARG002
    ) -> tuple[int, bytes]:
        if self._errand is not None and not self._errand.may():
            raise ClusterError("not sent", NOT_SENT)
        of = self.__dict__.get("_of", self)
        of.sent.append(f"{method} {path.rpartition('/')[2]}")
        status, found = of._answer(method, path, body)
        return status, json.dumps(found if status < 300 else {"message": f"refused: {found}"}).encode()

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, Json | str]:
        if "/configmaps" in path:
            return self._config(method, body)
        if self.refuse:
            self.refuse -= 1
            return 500, "a fault"
        name = path.rpartition("/")[2]
        if method == "POST":
            made: Json = json.loads(json.dumps(body))
            if made["metadata"]["name"] in self.pods:
                return 409, "it exists"
            made["metadata"]["uid"] = f"uid-{made['metadata']['name']}"
            made["status"] = {"phase": "Pending"}
            self.touch(made)
            self.pods[made["metadata"]["name"]] = made
            return 201, made
        pod = self.pods.get(name)
        if pod is None:
            return 404, "it is not there"
        wanted = body["preconditions"] if method == "DELETE" else body["metadata"]
        if any(pod["metadata"][field] != wanted[field] for field in ("uid", "resourceVersion")):
            return 409, "another version"
        if method == "DELETE" and "deletionTimestamp" in pod["metadata"] and body["gracePeriodSeconds"]:
            self.touch(pod)  # its kubelet waits for preStop, and is not told that it is to wait for less
        elif method == "DELETE":
            del self.pods[name]
        else:
            notes = pod["metadata"]["annotations"] | body["metadata"]["annotations"]
            pod["metadata"]["annotations"] = {key: note for key, note in notes.items() if note is not None}
            self.touch(pod)
        return 200, pod

    def _config(self, method: str, body: Any) -> tuple[int, Json | str]:
        if method == "GET":
            return (200, json.loads(json.dumps(self.config))) if self.config else (404, "there is none")
        if method == "PUT":
            self.before_put()
            self.before_put = lambda: None
            if body["metadata"]["resourceVersion"] != self.config["metadata"]["resourceVersion"]:
                return 409, "another version"
        self.config = json.loads(json.dumps(body))
        self.touch(self.config)
        return 200, self.config

    # ---- the cluster ----

    def delete(self, name: str) -> None:
        """Somebody deletes a pod, which takes its time."""
        pod = self.pods[name]
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.touch(pod)

    def allocate(self, free: list[str]) -> None:
        """Pods are bound to the node that they name, and get the next device."""
        for pod in self.pods.values():
            if "nodeName" not in pod["spec"] and free:
                affinity = pod["spec"]["affinity"]["nodeAffinity"]
                (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                pod["spec"]["nodeName"] = term["matchFields"][0]["values"][0]
                resources = [{"resourceID": free.pop(0), "health": "Healthy"}]
                allocated = [{"name": "nvidia.com/gpu", "resources": resources}]
                pod["status"] = {
                    "phase": "Running",
                    "containerStatuses": [{"allocatedResourcesStatus": allocated}],
                }
                self.touch(pod)

    def told(self) -> list[Event]:
        """Every pod as the watch tells it."""
        pods = watched("muster", holders=SPACE)[-1]
        return [pods.decode(msgspec.Raw(json.dumps(pod).encode()))[1] for pod in self.pods.values()]

    def devices(self) -> dict[str, str]:
        """Device by name of the pod that holds it."""
        return {
            name: pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0][
                "resourceID"
            ]
            for name, pod in self.pods.items()
            if "containerStatuses" in pod["status"]
        }
