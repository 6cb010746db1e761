"""What a scenario leaves behind that has a lab to itself: gone again from a cluster that stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from e2e.lab.api import Api, ApiError
from e2e.lab.errors import LabError

GONE_WITHIN = 120.0
"""Seconds: kwok's pods end within their grace period, and a namespace after them."""
OF_THE_CLUSTER = (
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/api/v1/persistentvolumes",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/api/v1/namespaces",
)
IN_DEFAULT = (
    *("batch/v1/cronjobs", "batch/v1/jobs", "apps/v1/deployments", "apps/v1/statefulsets"),
    *("apps/v1/daemonsets", "apps/v1/replicasets", "v1/pods", "v1/services", "v1/configmaps", "v1/secrets"),
    *("v1/serviceaccounts", "v1/persistentvolumeclaims", "v1/resourcequotas", "v1/podtemplates"),
    *("policy/v1/poddisruptionbudgets", "rbac.authorization.k8s.io/v1/roles"),
    "rbac.authorization.k8s.io/v1/rolebindings",
)
"""Owners before their pods."""
DEFAULT = "/api/v1/namespaces/default"
OF_SCENARIOS = "e2e-"
"""How the names of their namespaces begin."""


def end_scenarios(kubeconfig: Path) -> None:
    """Namespaces that scenarios made go: a run that was killed left them, with its jobs. Nobody else's do."""
    path = "/api/v1/namespaces"
    with Api(kubeconfig) as api:
        deadline = time.monotonic() + GONE_WITHIN
        while left := [f"{path}/{name}" for name in _names(api, path) if name.startswith(OF_SCENARIOS)]:
            _delete_all(api, left, deadline)


@contextlib.contextmanager
def left_as_found(kubeconfig: Path) -> Iterator[None]:
    """Objects of the cluster and of namespace `default` that are made in the block are gone after it, and that
    namespace has its labels."""
    paths = (*map(_in_default, IN_DEFAULT), *OF_THE_CLUSTER)
    with Api(kubeconfig) as api:
        before = {path: set(_names(api, path)) for path in paths}
        labels = api.get(DEFAULT)["metadata"]["labels"]
        try:
            yield
        finally:
            now = api.get(DEFAULT)["metadata"]["labels"]
            api.patch(DEFAULT, {"metadata": {"labels": dict.fromkeys(now) | labels}})
            deadline = time.monotonic() + GONE_WITHIN
            while left := [
                f"{path}/{name}" for path in paths for name in _names(api, path) if name not in before[path]
            ]:
                _delete_all(api, left, deadline)


def _delete_all(api: Api, left: Sequence[str], deadline: float) -> None:
    """Asked for once more; LabError once the deadline has passed."""
    if time.monotonic() > deadline:
        raise LabError(f"still there after {GONE_WITHIN:.0f} s: {', '.join(left)}")
    for one in left:
        with contextlib.suppress(ApiError):
            _delete(api, one)
    time.sleep(0.5)


def _delete(api: Api, path: str) -> None:
    whole: dict[str, Any] = {"propagationPolicy": "Background"}
    if path.startswith(_in_default("v1/pods")):
        whole["gracePeriodSeconds"] = 0
    api.delete(path, **{name: str(value) for name, value in whole.items()})


def _names(api: Api, path: str) -> list[str]:
    found = [one["metadata"] for one in api.get(path)["items"]]
    if path == _in_default("v1/configmaps"):
        return [one["name"] for one in found if one["name"] != "kube-root-ca.crt"]
    return [one["name"] for one in found if one["name"] != "default" or "serviceaccounts" not in path]


def _in_default(kind: str) -> str:
    group, plural = kind.rsplit("/", 1)
    return f"/{'apis' if '/' in group else 'api'}/{group}/namespaces/default/{plural}"
