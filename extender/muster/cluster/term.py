"""The number of a term of leading: it rises with each, whatever process, replica or release leads (types/devices.py).

A ConfigMap keeps the last one. It is written on the version that was read, so no two terms have one number; and no
term begins below the epochs of holders, should the ConfigMap be lost.
"""

from __future__ import annotations

import json

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.errors import ClusterError

NAME = "muster-term"
KEY = "term"
TRIES = 3


def next_term(api: Api, namespace: str, least: int = 1) -> int:
    """The number of a term that begins now: above all before it, `least` at least. Raises ClusterError where it can't
    be kept, or what is kept is no number."""
    where = path("v1", "configmaps", namespace, NAME)
    status, data = 0, b""
    for _ in range(TRIES):
        status, data = api.request("GET", where)
        if status == 404:
            number = max(1, least)
            body = {"metadata": {"name": NAME}, "data": {KEY: str(number)}}
            status, data = api.request("POST", path("v1", "configmaps", namespace), body)
        elif status == 200:
            found = json.loads(data)
            number = max(_number(namespace, (found.get("data") or {}).get(KEY, "0")) + 1, least)
            status, data = api.request("PUT", where, {**found, "data": {KEY: str(number)}})
        if 200 <= status < 300:
            return number
        if status != 409:
            break
    raise ClusterError(
        f"the number of this term can't be kept in ConfigMap {namespace}/{NAME}: {message(data)}", status
    )


def _number(namespace: str, text: object) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ClusterError(
            f"ConfigMap {namespace}/{NAME}: {KEY}: expected a whole number, found {str(text)[:80]!r}; write the "
            "highest one that any agent has heard, or delete the ConfigMap while nothing trains in place"
        )
    return int(text)
