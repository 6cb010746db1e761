"""Reports of training as pods make them: each with the token of its own pod, as the kubelet projects it."""

from __future__ import annotations

import json

import httpx

from e2e.cluster import Cluster, Json, Pod
from e2e.lab import Lab


def token(cluster: Cluster, of: Pod | None, namespace: str, audience: str = "muster.dev") -> str:
    """A token of the pod's account for the audience, bound to the pod (None: to nothing)."""
    spec: Json = {"audiences": [audience], "expirationSeconds": 3600}
    if of is not None:
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": of.name, "uid": of.uid}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    answer = cluster.request("POST", path, {"spec": spec})
    return str(answer["status"]["token"])


def tell(lab: Lab, bearer: str, body: object, replica: int = 0, timeout: float = 60.0) -> httpx.Response:
    """POST /v1/report; a body of bytes goes as it is. timeout: s."""
    return httpx.post(
        f"{lab.service_url(replica)}/v1/report",
        content=body if isinstance(body, bytes) else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {bearer}"} if bearer else {},
        timeout=timeout,
        trust_env=False,
    )


class AsPods:
    """Reports of trainings, each with the token of the pod that it is from."""

    def __init__(self, lab: Lab, cluster: Cluster) -> None:
        self._lab, self._cluster = lab, cluster
        self._bearers: dict[str, str] = {}

    def tell(self, one: Pod, body: Json) -> bool:
        """Whether it was taken: not where the pod has ended meanwhile, muster is told more often than it wants, or it
        does not lead for a moment (its Lease was late, on a machine that does much else)."""
        answer = tell(self._lab, self.bearer(one), body)
        assert answer.status_code in (200, 401, 403, 404, 421, 429), answer.text
        return answer.status_code == 200

    def bearer(self, one: Pod) -> str:
        """The pod's token, asked for once."""
        if one.uid not in self._bearers:
            self._bearers[one.uid] = token(self._cluster, one, one.namespace)
        return self._bearers[one.uid]
