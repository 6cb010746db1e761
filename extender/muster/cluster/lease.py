"""Who may act: the replica whose kube-scheduler holds the scheduler's Lease (design §6)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from muster.cluster import wire
from muster.cluster.api import Api
from muster.cluster.decode import seconds
from muster.errors import ClusterError

_lease = msgspec.json.Decoder(wire.Lease)


@dataclass(frozen=True, slots=True)
class Holder:
    """The Lease as read at one moment. `until` is when it runs out unless it is renewed (Unix seconds)."""

    identity: str = ""
    until: float = 0.0

    def leads(self, host: str, now: float) -> bool:
        """Whether the scheduler on `host` holds it: identities are the host's name, "_" and a uid."""
        return self.identity.startswith(f"{host}_") and now < self.until


def read(api: Api, namespace: str, name: str) -> Holder:
    """The Lease now; nobody where there is none. Raises ClusterError when the server does not answer."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
    try:
        spec = _lease.decode(api.get(path)).spec
    except ClusterError as error:
        if error.status == 404:
            return Holder()
        raise
    return Holder(spec.holder_identity or "", seconds(spec.renew_time) + (spec.lease_duration_seconds or 0))
