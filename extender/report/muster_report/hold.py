"""`muster hold`: what a pod that holds a device runs where its status doesn't say which one that is (Kubernetes
before 1.36). It tells Muster, POST /v1/holders with the pod's own token, until that is recorded; then it waits.

The device is what NVIDIA's device plugin, with the strategy `envvar`, writes into the container's environment:
NVIDIA_VISIBLE_DEVICES. Where that is no id (`void`: it gives devices by CDI) it is the one GPU that NVML sees in the
container. What is no id of one whole device then (a number, several) is refused by Muster, and the refusal said here:
`kubectl logs`.

Where there is NVML it looks at its device every LOOK seconds, and tells when the device is no longer healthy (by
two looks, since NVML may fail once), or is again, and when processes come to it or have left: Muster knows whether
anybody was granted it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from types import FrameType
from typing import Any

from muster_report.nvml import Gpu, gpus
from muster_report.report import Refused, addresses, connection_to, exchange, pod_token

PATH = "/v1/holders"
DEVICES = "NVIDIA_VISIBLE_DEVICES"
TIMEOUT = 5.0
AGAIN = 0.2
"""Seconds until it is asked again whether it is recorded, doubling up to LONGEST."""
LONGEST = 10.0
LOOK = 2.0
"""Seconds between looks at the device."""
REPEAT = 30.0
"""Seconds after which a device that is not quiet is told of again: another replica may lead."""


def main() -> None:
    """Until SIGTERM, which a container's first process ignores unless it says otherwise."""
    signal.signal(signal.SIGTERM, _end)
    device = tell(os.environ.get(DEVICES, ""))
    last, at, well = Gpu(device), 0.0, True
    while True:
        now, passed = look(device), time.monotonic() - at
        before, well = well, now is None or now.healthy
        if now is not None and (well or not before) and worth_telling(last, now, passed):
            try:
                told(now._asdict())
                last, at = now, time.monotonic()
            except Refused as refused:  # it is told again at the next look
                print(f"muster hold: what NVML says of {device}: {refused}", flush=True)
        time.sleep(LOOK)


def named(device: str) -> str:
    """The device by the environment, and where that names none the one that NVML sees."""
    if device not in ("", "void", "all"):
        return device
    found = gpus() or []
    return found[0].device if len(found) == 1 else device


def look(device: str) -> Gpu | None:
    """How the device is; None where there is no NVML, or it is a part of a GPU (MIG), of which NVML's list has the
    whole. One that NVML does not see any more is not healthy."""
    found = None if device.startswith("MIG-") else gpus()
    if found is None:
        return None
    return next((gpu for gpu in found if gpu.device == device), Gpu(device, healthy=False))


def worth_telling(last: Gpu, now: Gpu, passed: float) -> bool:
    """passed: seconds since it was told last. Memory alone that goes up and down is not."""
    if (last.healthy, last.processes, last.memory >> 8) != (now.healthy, now.processes, now.memory >> 8):
        return True
    return passed >= REPEAT and not (now.healthy and now.processes == 0 and now.memory >> 8 == 0)


def tell(environment: str) -> str:
    """Tell Muster which device it is, until that is recorded; says each problem once, on stdout. The device.
    environment: what the container's says; where that names none NVML may answer a moment later."""
    said, pause = "", AGAIN
    while True:
        device = named(environment)
        try:
            if told({"device": device}):
                print(f"holds {device}", flush=True)
                return device
        except Refused as refused:
            if str(refused) != said:
                said = str(refused)
                print(f"muster hold: {DEVICES} is {device[:200]!r}: {refused}", flush=True)
        time.sleep(pause)
        pause = min(LONGEST, 2 * pause)


def told(body: dict[str, Any]) -> bool:
    """Whether Muster has recorded it, of the replica that leads. Raises Refused."""
    last = Refused(0, "MUSTER_URL is not set: it is in what Muster makes")
    text, token = json.dumps(body).encode(), pod_token()
    for url in addresses() * 2:  # another connection may reach the replica that leads
        connection = connection_to(url, TIMEOUT)
        try:
            found: dict[str, Any] = exchange(connection, url, PATH, token, text, {"Connection": "close"})
            return found.get("recorded") is True
        except Refused as refused:
            last = refused
            if refused.status not in (0, 421, 502, 503):
                raise
        finally:
            connection.close()
    raise last


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    os._exit(0)  # an exception may come where it is swallowed, as in what collects garbage


if __name__ == "__main__":
    main()
