"""The installation that is looked at: where it is, by which settings, and requests to its API server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

from muster.cluster.api import message
from muster.cluster.paths import path
from muster.errors import ClusterError
from muster.settings import Settings

Json = Mapping[str, Any]
PAGE = 500


class Asked(Protocol):
    """muster.cluster.api.Api, as far as it is needed here."""

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]: ...


@dataclass(frozen=True)
class Patient:
    """release: the name of its objects. probe: a namespace whose pods are queued. url: of the service port, "" = by
    the API server's proxy."""

    api: Asked
    namespace: str
    release: str
    settings: Settings
    probe: str
    url: str = ""
    version: str = ""
    """Of this program."""
    shared: bool = False
    """Whether the chart was told that GPU nodes may be open to other schedulers (sharedNodes)."""

    def get(self, version: str, plural: str, name: str = "", namespace: str = "") -> Json:
        """An object. ClusterError with the API server's status and words."""
        return ask(self.api, "GET", path(version, plural, namespace, name))

    def own(self, version: str, plural: str, name: str) -> Json | None:
        """An object in Muster's namespace; None where there is none."""
        try:
            return self.get(version, plural, name, self.namespace)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def every(self, version: str, plural: str, selector: str = "") -> Iterator[Json]:
        """All objects of a kind, page by page; selector: of fields."""
        more = ""
        while True:
            query = {"limit": str(PAGE), "fieldSelector": selector, "continue": more}
            found = ask(self.api, "GET", f"{path(version, plural)}?{urlencode(query)}")
            yield from found.get("items") or ()
            more = str(found.get("metadata", {}).get("continue") or "")
            if not more:
                return


def ask(api: Asked, method: str, where: str, body: Any = None) -> Json:
    """The answer as an object. ClusterError where it is no success."""
    status, data = api.request(method, where, body)
    if not 200 <= status < 300:
        raise ClusterError(f"{where.partition('?')[0]}: {message(data)}", status)
    found = json.loads(data)
    return found if isinstance(found, dict) else {}
