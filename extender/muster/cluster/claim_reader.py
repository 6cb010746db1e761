"""Persistent volume claims of pods that wait: read by name, and again while they are not bound.

Only `get` is needed, on claims and volumes, and only for what pods of ours name: no watch holds every volume of the
cluster in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.core.workload.volumes import Claim
from muster.errors import ClusterError, InputError
from muster.types import ClaimSeen

AGAIN, CREATED = 10.0, 3.0
"""Seconds after which a claim that is an obstacle is read again: it may have been bound meanwhile. And one that does
not exist: an ephemeral volume's is created a moment after its pod."""
ZONED = frozenset(
    {
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
"""Labels of a volume by which kube-scheduler's VolumeZone keeps its pods in a zone, node affinity or not."""
GONE = 404
ALONE = "ReadWriteOncePod"
"""An access mode that kube-scheduler checks against other pods (VolumeRestrictions): not modelled."""

Json = Mapping[str, Any]


def claims(api: Api) -> Callable[[Claim], tuple[ClaimSeen, float]]:
    """For a Reader. A volume's node affinity does not come later, and a claim that is bound stays so."""

    def read(claim: Claim) -> tuple[ClaimSeen, float]:
        found = seen(api, claim)
        return found, math.inf if found.anywhere else CREATED if found.missing else AGAIN

    return read


def seen(api: Api, claim: Claim) -> ClaimSeen:
    """Whether the claim is there, and bound to a volume that any node can use; not where it may not be read.

    Raises ClusterError where the API server has no answer yet.
    """
    namespace, name = claim
    try:
        status, found = _get(api, path("v1", "persistentvolumeclaims", namespace, name))
    except InputError:
        status, found = GONE, None  # no object has such a name
    return ClaimSeen(namespace, name, _anywhere(api, found), missing=status == GONE)


def _anywhere(api: Api, found: Json | None) -> bool:
    if found is None or found.get("status", {}).get("phase") != "Bound":
        return False
    spec = found.get("spec", {})
    if ALONE in spec.get("accessModes", ()):
        return False
    if not spec.get("volumeName"):
        return False
    _, volume = _get(api, path("v1", "persistentvolumes", name=spec["volumeName"]))
    if volume is None:
        return False
    labels = volume.get("metadata", {}).get("labels") or {}
    return not volume.get("spec", {}).get("nodeAffinity") and not ZONED & labels.keys()


def _get(api: Api, where: str) -> tuple[int, Json | None]:
    status, data = api.request("GET", where)
    if status in (401, 403, GONE):
        return status, None
    if status != 200:
        raise ClusterError(message(data), status)
    found: Json = json.loads(data)
    return status, found
