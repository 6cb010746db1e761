"""What nodes and pods use, as a metrics server tells it, and what becomes of one that tells nothing, or nonsense."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from muster.cluster.api import Api
from muster.cluster.use_reader import ABSENT, EVERY, nodes_of, pods_of, usage
from muster.core.bounds import AMOUNT
from muster.errors import ClusterError

NODES = {
    "kind": "NodeMetricsList",
    "items": [
        {
            "metadata": {"name": "n0", "labels": {"type": "kwok"}},
            "timestamp": "2026-01-01T00:00:00Z",
            "window": "10.061s",
            "usage": {"cpu": "1500000001n", "memory": "2048Ki"},
        },
        {"metadata": {"name": "n1"}, "usage": {"cpu": "2", "memory": "1Gi"}},
        {"metadata": {"name": "n2"}, "usage": {"cpu": "0"}},
    ],
}
PODS = {
    "kind": "PodMetricsList",
    "items": [
        {
            "metadata": {"name": "train-0", "namespace": "team"},
            "containers": [
                {"name": "worker", "usage": {"cpu": "100m", "memory": "10Mi"}},
                {"name": "sidecar", "usage": {"cpu": "1n", "memory": "1Ki"}},
            ],
        }
    ],
}


class Server:
    """Answers by the last part of the path, and keeps what was asked."""

    def __init__(self, nodes: Any = NODES, pods: Any = PODS, status: int = 200) -> None:
        self.answers = {"nodes": nodes, "pods": pods}
        self.status, self.asked = status, list[str]()

    def request(self, method: str, path: str, *, patient: bool = True) -> tuple[int, bytes]:
        assert not patient, "a metrics server that is busy is asked again with the next look"
        self.asked.append(f"{method} {path}")
        answer = self.answers[path.rpartition("/")[2]]
        if isinstance(answer, Exception):
            raise answer
        return self.status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def test_what_nodes_and_pods_use_is_read_in_the_planners_units() -> None:
    assert nodes_of(json.dumps(NODES).encode()) == {
        "n0": (1501, 2 << 20),
        "n1": (2000, 1 << 30),
        "n2": (0, 0),
    }
    assert pods_of(json.dumps(PODS).encode()) == {("team", "train-0"): (101, (10 << 20) + 1024)}


@pytest.mark.parametrize("most", ["9e30", "999999999999999999Ki", "9E"])
def test_what_nobody_believes_is_bounded(most: str) -> None:
    told = {"items": [{"metadata": {"name": "n0"}, "usage": {"cpu": most, "memory": most}}]}
    assert max(nodes_of(json.dumps(told).encode())["n0"]) <= AMOUNT.most


def test_one_look_is_two_lists_whatever_there_is() -> None:
    server = Server()
    seen, again = usage(cast(Api, server))(("",))
    assert server.asked == ["GET /apis/metrics.k8s.io/v1beta1/nodes", "GET /apis/metrics.k8s.io/v1beta1/pods"]
    assert seen is not None
    assert set(seen.use.nodes) == {"n0", "n1", "n2"}
    assert seen.use.pods == {("team", "train-0"): (101, (10 << 20) + 1024)}
    assert again == EVERY


def test_where_nobody_serves_it_the_log_says_so_once_and_it_is_looked_for_seldom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    server = Server(status=404)
    read = usage(cast(Api, server))
    assert [read(("",)) for _ in range(3)] == [(None, ABSENT)] * 3
    assert len(server.asked) == 3, "no second list where the first is not there"
    server.status = 200
    assert read(("",))[0] is not None
    assert caplog.messages == [
        "metrics.k8s.io/v1beta1: it is not served (no metrics server); nodes are weighed by what pods request until "
        "it tells what they use",
        "metrics.k8s.io/v1beta1 tells what nodes and pods use",
    ]


@pytest.mark.parametrize(
    "broken",
    [
        Server(status=503, nodes={"message": "the server is currently unable to handle the request"}),
        Server(status=500, nodes=b"<html>"),
        Server(nodes=ClusterError("no answer")),
        Server(pods=ClusterError("no answer")),
        Server(nodes=b"not JSON"),
        Server(nodes={"items": None}),
        Server(nodes={"items": [{"metadata": {"name": "n0"}, "usage": {"cpu": "much"}}]}),
        Server(pods={"items": [{"metadata": {"name": "n0"}, "containers": [{"usage": {"memory": "1e"}}]}]}),
        Server(nodes={"items": [{"metadata": {}, "usage": {}}]}),
    ],
)
def test_a_metrics_server_that_fails_or_talks_nonsense_is_asked_again_and_is_no_error(broken: Server) -> None:
    assert usage(cast(Api, broken))(("",)) == (None, EVERY)
