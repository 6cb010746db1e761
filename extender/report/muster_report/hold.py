"""`muster hold`: what a pod that holds a device runs where its status doesn't say which one that is (Kubernetes
before 1.36). It tells Muster, POST /v1/holders with the pod's own token, until that is recorded; then it waits.

The device is what NVIDIA's device plugin, with the strategy `envvar`, writes into the container's environment:
NVIDIA_VISIBLE_DEVICES. What is no id of one whole device there (`void` with CDI, a number, several) is refused by
Muster, and the refusal said here: `kubectl logs`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from muster_report.report import Refused, addresses, connection_to, exchange, pod_token

PATH = "/v1/holders"
DEVICES = "NVIDIA_VISIBLE_DEVICES"
TIMEOUT = 5.0
AGAIN = 0.2
"""Seconds until it is asked again whether it is recorded, doubling up to LONGEST."""
LONGEST = 10.0


def main() -> None:
    """Until SIGTERM, which a container's first process ignores unless it says otherwise."""
    signal.signal(signal.SIGTERM, _end)
    tell(os.environ.get(DEVICES, ""))
    while True:
        signal.pause()


def tell(device: str) -> None:
    """Tell Muster, until that is recorded; says each problem once, on stdout."""
    said, pause = "", AGAIN
    while True:
        try:
            if told(device):
                print(f"holds {device}", flush=True)
                return
        except Refused as refused:
            if str(refused) != said:
                said = str(refused)
                print(f"muster hold: {DEVICES} is {device[:200]!r}: {refused}", flush=True)
        time.sleep(pause)
        pause = min(LONGEST, 2 * pause)


def told(device: str) -> bool:
    """Whether Muster has recorded it, of the replica that leads. Raises Refused."""
    last = Refused(0, "MUSTER_URL is not set: it is in what Muster makes")
    body, token = json.dumps({"device": device}).encode(), pod_token()
    for url in addresses() * 2:  # another connection may reach the replica that leads
        connection = connection_to(url, TIMEOUT)
        try:
            found: dict[str, Any] = exchange(connection, url, PATH, token, body, {"Connection": "close"})
            return found.get("recorded") is True
        except Refused as refused:
            last = refused
            if refused.status not in (0, 421, 502, 503):
                raise
        finally:
            connection.close()
    raise last


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    sys.exit(0)


if __name__ == "__main__":
    main()
