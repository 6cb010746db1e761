"""Gates taken off by a bare loop, with Muster's own patch: what holding pods at a gate costs at least.

Nobody plans, records, tells or guards: each pod is pinned to the next node in turn, from as many threads as Muster
has. What is between this and Muster is Muster."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from e2e.bench.raw import Wire
from e2e.cluster import GPU
from e2e.lab.errors import LabError
from muster.cluster.action_bodies import ungate_patch
from muster.cluster.api import STRATEGIC, Api
from muster.cluster.credentials import configuration
from muster.types import JobKey, Ungate

THREADS = 16


class Gates:
    """The gates of all pods of a namespace. `kubeconfig`: of somebody who may patch pods everywhere."""

    def __init__(self, wire: Wire, kubeconfig: Path, namespace: str) -> None:
        self._api = Api(configuration(str(kubeconfig)))
        self._pods = f"/api/v1/namespaces/{quote(namespace)}/pods"
        nodes = [
            item for item in wire.ask("GET", "/api/v1/nodes")["items"] if GPU in item["status"]["allocatable"]
        ]
        places = [
            node["metadata"]["name"] for node in nodes for _ in range(int(node["status"]["allocatable"][GPU]))
        ]
        pods = sorted(wire.ask("GET", self._pods)["items"], key=lambda pod: pod["metadata"]["name"])
        if len(pods) > len(places):
            raise LabError(f"{len(pods)} pods of one GPU, and the nodes have {len(places)}")
        self._todo = [self._patch(namespace, pod, node) for pod, node in zip(pods, places, strict=False)]
        self._thread = threading.Thread(target=self._run, name="gates", daemon=True)

    def open(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    @staticmethod
    def _patch(namespace: str, pod: dict[str, Any], node: str) -> tuple[str, bytes]:
        meta = pod["metadata"]
        job = JobKey(namespace, "gates")
        return meta["name"], ungate_patch(
            Ungate(
                job,
                meta["uid"],
                meta["name"],
                meta["resourceVersion"],
                node,
                pin=True,
                cause="",
                applied=False,
            )
        )

    def _run(self) -> None:
        with ThreadPoolExecutor(THREADS) as several:
            for name, body in self._todo:
                several.submit(self._api.request, "PATCH", f"{self._pods}/{quote(name)}", body, STRATEGIC)
