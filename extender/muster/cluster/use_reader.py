"""What nodes and pods use of cpu and memory: two lists of metrics.k8s.io now and then, while the profile asks for it.

That group is served by a metrics server behind the API server's aggregation. Whatever it does (it is not there, does
not answer, answers nonsense) is no error of a plan: the log says it once, and what was told before counts for a while
(core.state.node_use).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import msgspec

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.cluster.quantities import quantity
from muster.core.bounds import AMOUNT
from muster.errors import ClusterError
from muster.types import Use, UseSeen

log = logging.getLogger(__name__)

GROUP = "metrics.k8s.io/v1beta1"
EVERY = 15.0
"""Seconds between two looks: as often as the metrics server itself looks by its own manifests (metric-resolution)."""
ABSENT = 60.0
"""Seconds until the next look where the group is not served, or may not be read."""


NUMBER = re.compile(r"[0-9]{1,18}")


class _Struct(msgspec.Struct):
    pass


class _Named(_Struct):
    name: str
    namespace: str = ""


class _Used(_Struct):
    usage: dict[str, str]


class _Node(_Struct):
    metadata: _Named
    usage: dict[str, str]


class _Pod(_Struct):
    metadata: _Named
    containers: list[_Used]


class _Nodes(_Struct):
    items: list[_Node]


class _Pods(_Struct):
    items: list[_Pod]


_nodes = msgspec.json.Decoder(_Nodes)
_pods = msgspec.json.Decoder(_Pods)


def usage(api: Api) -> Callable[[tuple[str]], tuple[UseSeen | None, float]]:
    """For a Reader, with any one key: what all nodes and pods use; None where nobody tells it now."""
    trouble: list[str] = []

    def read(_: tuple[str]) -> tuple[UseSeen | None, float]:
        try:
            found = Use(time.time(), nodes_of(_listed(api, "nodes")), pods_of(_listed(api, "pods")))
        except (ClusterError, msgspec.MsgspecError, ValueError) as error:
            status = error.status if isinstance(error, ClusterError) else 0
            absent = status in (401, 403, 404)
            if not trouble:
                log.warning(
                    "%s: %s; nodes are weighed by what pods request until it tells what they use",
                    GROUP,
                    "it is not served (no metrics server)" if status == 404 else error,
                )
            trouble[:] = [str(error)]
            return None, ABSENT if absent else EVERY
        if trouble:
            log.info("%s tells what nodes and pods use", GROUP)
        trouble.clear()
        return UseSeen(found), EVERY

    return read


def _listed(api: Api, plural: str) -> bytes:
    status, data = api.request("GET", path(GROUP, plural), patient=False)
    if status != 200:
        raise ClusterError(message(data), status)
    return data


def nodes_of(data: bytes) -> dict[str, tuple[int, int]]:
    """A NodeMetricsList: cpu (millicores) and memory (bytes) by node. Raises MsgspecError or ValueError."""
    return {node.metadata.name: _amounts(node.usage) for node in _nodes.decode(data).items}


def pods_of(data: bytes) -> dict[tuple[str, str], tuple[int, int]]:
    """A PodMetricsList: the same by namespace and name, of all containers. Raises MsgspecError or ValueError."""
    found = {}
    for pod in _pods.decode(data).items:
        each = [_amounts(container.usage) for container in pod.containers]
        found[pod.metadata.namespace, pod.metadata.name] = (
            sum(cpu for cpu, _ in each),
            sum(memory for _, memory in each),
        )
    return found


def _amounts(usage: dict[str, str]) -> tuple[int, int]:
    """As `quantity`, within bounds; what a metrics server writes is hardly ever the same twice, and kept nowhere."""
    cpu, memory = usage.get("cpu", "0"), usage.get("memory", "0")
    nano, kibi = cpu.removesuffix("n"), memory.removesuffix("Ki")
    used = (
        -(-int(nano) // 1_000_000) if nano != cpu and NUMBER.fullmatch(nano) else quantity("cpu", cpu),
        int(kibi) * 1024 if kibi != memory and NUMBER.fullmatch(kibi) else quantity("memory", memory),
    )
    return min(used[0], AMOUNT.most), min(used[1], AMOUNT.most)
