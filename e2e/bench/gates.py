"""Gates taken off by a bare loop, with Muster's own patch: what holding pods at a gate costs at least.

Nobody plans, records, tells or guards: each pod is pinned to the next node in turn, from as many threads as Muster
has. What is between this and Muster is Muster."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from e2e.cluster import GPU, Json
from e2e.lab.errors import LabError
from muster.cluster.act import ungate_patch
from muster.cluster.api import STRATEGIC, Api, configuration
from muster.types import JobKey, Ungate

THREADS = 16


class Gates:
    """The gates of all pods of a namespace. `kubeconfig`: of somebody who may patch pods everywhere."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._api = Api(configuration(str(kubeconfig)))
        self._pods = f"/api/v1/namespaces/{quote(namespace)}/pods"
        nodes = [item for item in self._items("/api/v1/nodes") if GPU in item["status"]["allocatable"]]
        places = [
            node["metadata"]["name"] for node in nodes for _ in range(int(node["status"]["allocatable"][GPU]))
        ]
        pods = sorted(self._items(self._pods), key=lambda pod: pod["metadata"]["name"])
        if len(pods) > len(places):
            raise LabError(f"{len(pods)} pods of one GPU, and the nodes have {len(places)}")
        self._todo = [self._patch(namespace, pod, node) for pod, node in zip(pods, places, strict=False)]
        self._thread = threading.Thread(target=self._run, args=(self._todo,), name="gates", daemon=True)

    def open(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def _items(self, path: str) -> list[Json]:
        status, data = self._api.request("GET", path)
        if status != 200:
            raise LabError(f"GET {path}: {status} {data[:300].decode(errors='replace')}")
        found: list[Json] = json.loads(data)["items"]
        return found

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

    def _run(self, todo: Sequence[tuple[str, bytes]]) -> None:
        with ThreadPoolExecutor(THREADS) as several:
            for name, body in todo:
                several.submit(self._api.request, "PATCH", f"{self._pods}/{quote(name)}", body, STRATEGIC)
