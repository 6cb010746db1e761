"""How pods that hold devices are made, and what one has beside that where it is to tell which device it got."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.types import GPU

TOKEN = "muster-report"
"""The volume with a pod's token for Muster, as in pods that report."""
MOUNTED = "/var/run/secrets/muster.dev"
COMMAND = ("muster", "hold")


@dataclass(frozen=True, slots=True)
class Holding:
    """scheduler: who binds them; stays: s that one which others delete keeps its device; url: where its container
    tells which device it got (`muster hold`), "" = the pod's status says so; authority: who signed that server's
    certificate, PEM, empty = who the container trusts."""

    namespace: str
    scheduler: str
    image: str
    priority_class: str
    stays: int
    url: str = ""
    authority: Callable[[], bytes] = bytes


def tells(spec: dict[str, Any], how: Holding) -> None:
    """Make the container of a holder tell its device: its command, address, token, and what Python needs. No limit
    of CPU: with one of 10m it would start for 15 s."""
    container = spec["containers"][0]
    says = {"MUSTER_URL": how.url}
    if authority := how.authority().decode():
        says["MUSTER_CA"] = authority
    container |= {
        "command": list(COMMAND),
        "env": [{"name": name, "value": value} for name, value in says.items()],
        "resources": {
            "limits": {GPU: "1", "memory": "96Mi"},
            "requests": {GPU: "1", "memory": "96Mi", "cpu": "10m"},
        },
        "volumeMounts": [{"name": TOKEN, "mountPath": MOUNTED, "readOnly": True}],
    }
    token = {"audience": "muster.dev", "expirationSeconds": 3600, "path": "token"}
    spec["volumes"] = [{"name": TOKEN, "projected": {"sources": [{"serviceAccountToken": token}]}}]
