"""What of TLS lies in the cluster: the Secret in which Muster keeps the certificates that it makes (`signing`), and
the ConfigMap by which others learn who signed. The chart makes both empty; Muster may read and patch these two only.

Any replica renews: a write names the version that was read, so of two that do it at once one is told of a conflict
and takes what the other wrote.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster import signing
from muster.cluster.api import MERGE, Api, message
from muster.cluster.paths import path
from muster.errors import ClusterError

AUTHORITY = "ca.crt"
TRIES = 3


@dataclass(frozen=True, slots=True)
class Kept:
    """The Secret `name` in `namespace`; certificates for `hosts`, with a life in s."""

    api: Api
    namespace: str
    name: str
    hosts: Sequence[str]
    life: float

    def renewed(self, now: float) -> dict[str, bytes]:
        """What stands there at `now` (Unix s), made again where that was due. Raises ClusterError."""
        where = path("v1", "secrets", self.namespace, self.name)
        for _ in range(TRIES):
            found = json.loads(self.api.get(where))
            kept = _decoded(found.get("data") or {})
            made = signing.renewed(kept, self.hosts, self.life, now)
            if made is None:
                return kept
            data = {name: base64.b64encode(value).decode() for name, value in made.items()}
            body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "data": data}
            status, answer = self.api.request("PATCH", where, body, MERGE)
            if status == 200:
                return made
            if status != 409:
                raise ClusterError(f"PATCH {where}: {status} {message(answer)}", status)
        raise ClusterError(f"PATCH {where}: others write it all the time", 409)


def publish(api: Api, namespace: str, name: str, authority: bytes) -> None:
    """The ConfigMap says who signed, if it does not yet. Raises ClusterError."""
    where = path("v1", "configmaps", namespace, name)
    data = json.loads(api.get(where)).get("data") or {}
    if data.get(AUTHORITY, "") == authority.decode():
        return
    status, answer = api.request("PATCH", where, {"data": {AUTHORITY: authority.decode() or None}}, MERGE)
    if status != 200:
        raise ClusterError(f"PATCH {where}: {status} {message(answer)}", status)


def _decoded(data: Mapping[str, Any]) -> dict[str, bytes]:
    """What can be understood of a Secret's data."""
    found = {}
    for name, value in data.items():
        try:
            found[name] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError):
            continue
    return found
