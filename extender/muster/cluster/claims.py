"""Persistent volume claims of pods that wait: read by name, and again while they are not bound.

Only `get` is needed, on claims and volumes, and only for what pods of ours name: no watch holds every volume of the
cluster in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from muster.cluster.api import Api, message
from muster.core.volumes import Claim
from muster.errors import ClusterError
from muster.types import ClaimSeen

AGAIN = 10.0
"""Seconds after which a claim that is an obstacle is read again: it may have been bound meanwhile."""
ZONED = frozenset(
    {
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
"""Labels of a volume by which kube-scheduler's VolumeZone keeps its pods in a zone, node affinity or not."""
ALONE = "ReadWriteOncePod"
"""An access mode that kube-scheduler checks against other pods (VolumeRestrictions): not modelled."""

Json = Mapping[str, Any]


def claims(api: Api) -> Callable[[Claim], tuple[ClaimSeen, float]]:
    """For a Reader. A volume's node affinity does not come later, and a claim that is bound stays so."""

    def read(claim: Claim) -> tuple[ClaimSeen, float]:
        anywhere = usable_anywhere(api, claim)
        return ClaimSeen(*claim, anywhere), math.inf if anywhere else AGAIN

    return read


def usable_anywhere(api: Api, claim: Claim) -> bool:
    """Whether the claim is bound to a volume that any node can use; not where it may not be read.

    Raises ClusterError where the API server has no answer yet.
    """
    namespace, name = claim
    found = _get(api, f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(name)}")
    if found is None or found.get("status", {}).get("phase") != "Bound":
        return False
    spec = found.get("spec", {})
    if ALONE in spec.get("accessModes", ()):
        return False
    volume = _get(api, f"/api/v1/persistentvolumes/{quote(spec.get('volumeName', ''))}")
    if volume is None:
        return False
    labels = volume.get("metadata", {}).get("labels") or {}
    return not volume.get("spec", {}).get("nodeAffinity") and not ZONED & labels.keys()


def _get(api: Api, path: str) -> Json | None:
    status, data = api.request("GET", path)
    if status in (401, 403, 404):
        return None
    if status != 200:
        raise ClusterError(message(data), status)
    found: Json = json.loads(data)
    return found
