"""Muster's container outlives Muster while its environment has faults: what has died of them stays dead, and what
hangs stays, until the scenario has looked, as on a lab. By itself it is PID 1 there, which no SIGKILL of its own
ends, and the kubelet starts again what ends, and ends what fails its probe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from e2e.kind.inside import Process
from e2e.lab.chart import RELEASE
from muster.cluster.faults import VARIABLE as FAULTS

NAME = "muster"
"""Its container's."""
COMMAND = (
    "sh",
    "-c",
    'muster "$@" & muster=$!; trap "kill $muster; wait $muster; exit 0" TERM; wait $muster; sleep infinity & wait',
    "sh",
)
"""The chart's arguments follow."""
AFTER = "sleep"
"""What runs in its place when it has ended."""


def of_deployment(manifest: str, env: Mapping[str, str]) -> dict[str, Any]:
    """A strategic merge patch of the pod's spec: the Muster of these manifests with this environment beside its own.
    With faults its container outlives it; without, all is as the manifests have it."""
    place, own = _of_chart(yaml.safe_load_all(manifest))
    settings = [*own.get("env", ()), *({"name": key, "value": value} for key, value in env.items())]
    patch: dict[str, Any] = {"name": NAME, "env": [{"$patch": "replace"}, *settings]}
    if FAULTS in env:
        # kube-scheduler starts when Muster answers, well or not. Only the path differs: helm takes that back.
        started = {"httpGet": own["startupProbe"]["httpGet"] | {"path": "/metrics"}}
        return {place: [patch | {"command": [*COMMAND], "livenessProbe": None, "startupProbe": started}]}
    whole = {key: own.get(key) for key in ("command", "livenessProbe", "startupProbe")}
    return {place: [patch | whole]}


def _of_chart(manifests: Iterable[Any]) -> tuple[str, dict[str, Any]]:
    """Where in the pod's spec Muster's container is (it stands alone with binder=cluster), and the container."""
    for manifest in manifests:
        if manifest and manifest["kind"] == "Deployment" and manifest["metadata"]["name"] == RELEASE:
            spec = manifest["spec"]["template"]["spec"]
            for place in ("initContainers", "containers"):
                for container in spec.get(place, ()):
                    if container["name"] == NAME:
                        return place, container
    raise LookupError(f"no Deployment {RELEASE} with a container {NAME}")


def muster(processes: Sequence[Process]) -> Process | None:
    """Muster's own among those of its container that outlives it, if it runs."""
    first = processes[0] if processes else None
    return next((one for one in processes if first and one.parent == first.pid and one.name != AFTER), None)


def has_died(processes: Sequence[Process]) -> bool:
    """Whether Muster has run in its container and has ended. One that has not started yet lives: it will."""
    return muster(processes) is None and any(one.name == AFTER for one in processes)
