"""`muster uninstalled`: what helm leaves behind, seen to. Run by the chart when the release is gone.

The Lease is deleted: kube-scheduler made it, so helm knows nothing of it. The definition of Gangs is kept, with all
Gangs; helm would let nobody but a release of the same name and namespace have it, so these two come off.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.errors import ClusterError

JSON_PATCH = "application/json-patch+json"
NAME, NAMESPACE = (f"/metadata/annotations/meta.helm.sh~1release-{part}" for part in ("name", "namespace"))
DEFINITION = "gangs.muster.dev"


def delete_lease(api: Api, namespace: str, name: str, say: Callable[[str], None]) -> None:
    """Raises ClusterError with the API server's words; one that is not there is no matter."""
    status, data = api.request("DELETE", path("coordination.k8s.io/v1", "leases", namespace, name))
    if status == 200:
        say(f"Lease {namespace}/{name} deleted")
    elif status != 404:
        raise ClusterError(f"Lease {namespace}/{name} stays: {message(data)}", status)


def disown_definition(api: Api, namespace: str, release: str, say: Callable[[str], None]) -> None:
    """In one request that does nothing where it is another release's already, or nobody's.

    Raises ClusterError with the API server's words; a definition that is not there is no matter.
    """
    patch = [
        {"op": "test", "path": NAME, "value": release},
        {"op": "test", "path": NAMESPACE, "value": namespace},
        {"op": "remove", "path": NAME},
        {"op": "remove", "path": NAMESPACE},
    ]
    where = path("apiextensions.k8s.io/v1", "customresourcedefinitions", "", DEFINITION)
    status, data = api.request("PATCH", where, patch, JSON_PATCH)
    if status == 200:
        say(f"{DEFINITION} stays with its Gangs, and any release may have it now (Helm 3: --take-ownership)")
    elif status == 422:
        say(f"{DEFINITION} is not of release {namespace}/{release}: left as it is")
    elif status != 404:
        raise ClusterError(f"{DEFINITION} stays of release {namespace}/{release}: {message(data)}", status)
