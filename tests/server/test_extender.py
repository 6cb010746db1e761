"""The extender verbs over HTTP: what kube-scheduler sends and what nobody should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from muster.core.reasons.waiting import NO_PLAN
from muster.core.views.extender_rules import NO_ROOM, OTHER_NODE, UNKNOWN
from muster.core.views.view import Board, View, empty_view
from muster.server.extender import MOST, NO_NODES, NONE_KNOWN, NOT_SYNCED, make_extender_app
from muster.server.extender_metrics import ExtenderMetrics
from tests.scenario import FIFO, job, snapshot
from tests.server.reading import viewed

GOLDEN = Path(__file__).parent.parent / "wire" / "golden"


@pytest.fixture
def board() -> Board:
    jobs = [
        job("train", worker=2, gpus=8),
        job("free", worker=1, gpus=8, scored=("asked for",)),
        job("whole", worker=1, gpus=0, on=["n3"]),
    ]
    return Board(viewed(snapshot(jobs=jobs)))


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def client(board: Board, registry: CollectorRegistry) -> Iterator[TestClient]:
    with TestClient(make_extender_app(board, ExtenderMetrics(registry).note)) as client:
        yield client


def args(uid: str, names: list[str] | None, nodes: Any = None) -> dict[str, Any]:
    pod = {"metadata": {"uid": uid, "name": uid, "namespace": "team"}, "spec": {}}
    return {"Pod": pod, "Nodes": nodes, "NodeNames": names}


def answer(names: list[str] | None, failed: dict[str, str] | None, error: str = "") -> dict[str, Any]:
    return {
        "Nodes": None,
        "NodeNames": names,
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": failed,
        "Error": error,
    }


def test_filter_believes_a_released_pod_before_the_view_knows_of_it(client: TestClient) -> None:
    said = {"muster.dev/released": "true"}
    asked = args("train-worker-0", ["n0", "n1"])
    assert client.post("/filter", json=asked).json()["NodeNames"] == ["n0"]
    asked["Pod"]["metadata"]["annotations"] = said
    got = client.post("/filter", json=asked).json()
    assert (got["NodeNames"], got["Error"]) == (["n0", "n1"], "")
    stranger = args("never-gated", ["n0", "n1"])
    stranger["Pod"]["metadata"]["annotations"] = said
    assert client.post("/filter", json=stranger).json()["NodeNames"] == []


def test_filter_lets_pods_of_other_schedulers_everywhere_also_before_the_first_sync() -> None:
    """A team's own scheduler asks about them where they are marked, so that their preemptions are looked at."""
    asked = args("foreign", ["n0", "n1"])
    asked["Pod"]["spec"]["schedulerName"] = "default-scheduler"
    for board in (Board(viewed(snapshot(jobs=[]))), Board(empty_view(FIFO))):
        with TestClient(make_extender_app(board, scheduler="batch")) as client:
            assert client.post("/filter", json=asked).json() == answer(["n0", "n1"], None)
    ours = args("ours", ["n0", "n1"])
    ours["Pod"]["spec"]["schedulerName"] = "batch"
    with TestClient(make_extender_app(Board(viewed(snapshot(jobs=[]))), scheduler="batch")) as client:
        assert client.post("/filter", json=ours).json()["NodeNames"] == []


class Lagging(Board):
    """A follower's: shows an older View at first, then what the leader has recorded meanwhile."""

    def __init__(self, older: View, newer: View, reads: int) -> None:
        self._older, self._newer, self._left = older, newer, reads

    @property  # type: ignore[override]
    def view(self) -> View:
        self._left -= 1
        return self._older if self._left >= 0 else self._newer


def test_a_follower_looks_again_before_it_refuses_what_the_leader_may_just_have_planned() -> None:
    jobs = [job("train", worker=2, gpus=8)]
    older = viewed(snapshot(jobs=[]), leading=False)
    newer = viewed(snapshot(jobs=jobs), leading=False)
    asked = args("train-worker-0", ["n0", "n1"])
    with TestClient(make_extender_app(Lagging(older, newer, 4))) as client:
        assert client.post("/filter", json=asked).json()["NodeNames"] == ["n0"]
    with TestClient(make_extender_app(Board(older), late=0.1)) as client:
        assert client.post("/filter", json=asked).json()["NodeNames"] == [], "not for ever"
    with TestClient(make_extender_app(Lagging(replace(older, leading=True), newer, 4))) as client:
        assert client.post("/filter", json=asked).json()["NodeNames"] == [], "a leader knows"


def test_filter_lets_a_planned_pod_onto_its_node(client: TestClient) -> None:
    got = client.post("/filter", json=args("train-worker-1", ["n0", "n1"]))
    assert got.status_code == 200
    assert got.json() == answer(["n1"], {"n0": OTHER_NODE})
    again = client.post("/filter", json=args("train-worker-1", ["n0", "n1"]))
    assert again.content == got.content


def test_filter_lets_a_pod_whose_gate_was_taken_off_by_hand_nowhere(client: TestClient) -> None:
    got = client.post("/filter", json=args("jumps-the-queue", ["n0", "n3"]))
    assert got.json() == answer([], {"n0": NO_PLAN, "n3": NO_PLAN})


def test_filter_lets_a_pod_that_is_to_hold_a_device_onto_its_node_only(
    client: TestClient, board: Board
) -> None:
    board.view = replace(board.view, holders={"muster-devices/holder-1-1": "n2"})
    pod = {"metadata": {"uid": "u", "name": "holder-1-1", "namespace": "muster-devices"}, "spec": {}}
    asked = {"Pod": pod, "NodeNames": ["n0", "n2"]}
    assert client.post("/filter", json=asked).json() == answer(["n2"], {"n0": OTHER_NODE})
    pod["metadata"]["namespace"] = "team"
    assert client.post("/filter", json=asked).json() == answer([], {"n0": NO_PLAN, "n2": NO_PLAN})


def test_filter_answers_whole_nodes_with_whole_nodes(client: TestClient) -> None:
    nodes = [{"metadata": {"name": n}, "spec": {"a": [1.50, None]}} for n in ("n0", "n1")]
    got = client.post("/filter", json=args("train-worker-1", None, {"metadata": {}, "items": nodes}))
    assert got.json() == {
        **answer(None, {"n0": OTHER_NODE}),
        "Nodes": {"metadata": {}, "items": [nodes[1]]},
    }


def test_an_unknown_node_among_known_ones_fails_alone(client: TestClient) -> None:
    got = client.post("/filter", json=args("free-worker-0", ["ghost", "n0", "n2", "n3"]))
    assert got.json() == answer(["n2", "n3"], {"ghost": UNKNOWN, "n0": NO_ROOM})


def test_only_unknown_nodes_are_an_error(client: TestClient) -> None:
    got = client.post("/filter", json=args("train-worker-0", ["ghost"]))
    assert (got.status_code, got.json()) == (200, answer([], {"ghost": UNKNOWN}, NONE_KNOWN))


@pytest.mark.parametrize("names", [[], None])
def test_a_filter_without_nodes_is_an_error(client: TestClient, names: list[str] | None) -> None:
    got = client.post("/filter", json=args("train-worker-0", names))
    assert (got.status_code, got.json()) == (200, answer([], None, NO_NODES))


def test_prioritize_scores_every_node_from_0_to_10(client: TestClient) -> None:
    got = client.post("/prioritize", json=args("free-worker-0", ["n0", "n2", "n3", "ghost"]))
    scores = {host["Host"]: host["Score"] for host in got.json()}
    assert list(scores) == ["n0", "n2", "n3", "ghost"]
    assert scores["n0"] == scores["ghost"] == 0
    assert 0 < scores["n2"] <= 10
    assert client.post("/prioritize", json=args("train-worker-0", [])).json() == []


def test_preempt_vetoes_the_node_where_a_gang_would_break(client: TestClient) -> None:
    victims = {
        "n1": {"Pods": [{"UID": "of-others"}], "NumPDBViolations": 2},
        "n2": {"Pods": None, "NumPDBViolations": 0},
        "n3": {"Pods": [{"UID": "whole-worker-0"}, {"UID": "of-others"}], "NumPDBViolations": 0},
    }
    body = {"Pod": {"metadata": {}}, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
    kept = {node: victims[node] for node in ("n1", "n2")}
    assert client.post("/preempt", json=body).json() == {"NodeNameToMetaVictims": kept}


def test_preempt_answers_whole_pods_by_their_uids(client: TestClient) -> None:
    got = client.post("/preempt", content=(GOLDEN / "preempt-args-full.json").read_bytes())
    assert got.json()["NodeNameToMetaVictims"]["node-1"] == {
        "Pods": [{"UID": "uid-7"}, {"UID": "uid-8"}],
        "NumPDBViolations": 0,
    }


def test_before_the_first_sync_nothing_passes_and_nothing_is_called_unschedulable(
    client: TestClient, board: Board
) -> None:
    board.view = empty_view(FIFO)
    got = client.post("/filter", json=args("train-worker-0", ["n0"]))
    assert (got.status_code, got.json()) == (200, answer([], None, NOT_SYNCED))
    assert client.post("/prioritize", json=args("train-worker-0", ["n0"])).json() == [
        {"Host": "n0", "Score": 0}
    ]
    meta = {"NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}}}
    assert client.post("/preempt", json=meta).json() == {"NodeNameToMetaVictims": {}}


def test_a_new_view_is_read_at_once(client: TestClient, board: Board) -> None:
    board.view = viewed(snapshot(jobs=[job("later", worker=1)]))
    assert client.post("/filter", json=args("later-worker-0", ["n0"])).json() == answer(["n0"], None)
    assert client.post("/filter", json=args("train-worker-0", ["n0"])).json()["NodeNames"] == []


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"null", b"\x00\xff", b'{"Pod": 3}'])
def test_a_body_that_cannot_be_understood_gets_an_error_and_the_server_lives_on(
    client: TestClient, verb: str, body: bytes
) -> None:
    got = client.post(f"/{verb}", content=body)
    assert got.status_code == 400
    assert "can't be understood" in got.json()["Error"]
    assert client.post("/filter", json=args("train-worker-0", ["n0"])).json()["NodeNames"] == ["n0"]


def test_a_request_without_a_pod_gets_an_error(client: TestClient) -> None:
    for verb in ("filter", "prioritize"):
        got = client.post(f"/{verb}", json={"NodeNames": ["n0"]})
        assert (got.status_code, got.json()["Error"]) == (400, "Pod: missing")


@pytest.mark.parametrize("eighths", [9, 40])
@pytest.mark.parametrize("announced", [True, False])
def test_a_body_above_8_mb_is_refused_announced_or_not(
    client: TestClient, announced: bool, eighths: int
) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(eighths):
            yield b" " * (MOST // 8)

    got = client.post("/filter", content=b" " * (MOST // 8 * eighths) if announced else parts())
    assert (got.status_code, got.json()["Error"]) == (413, f"the body is above {MOST} bytes")
    body = json.dumps(args("train-worker-0", ["n0"])).encode()
    assert client.post("/filter", content=body.ljust(MOST)).json()["NodeNames"] == ["n0"]


def test_a_plugin_that_fails_is_left_out_and_the_verbs_go_on(client: TestClient, board: Board) -> None:
    class Broken:
        def score(self, *_: Any) -> Any:
            raise ZeroDivisionError

    from dataclasses import replace

    board.view = replace(board.view, profile=replace(FIFO, scores=((Broken(), 1.0),)))
    answer = client.post("/prioritize", json=args("free-worker-0", ["n2"]))
    assert (answer.status_code, answer.json()) == (200, [{"Host": "n2", "Score": 0}])
    assert client.post("/filter", json=args("train-worker-0", ["n0"])).json()["NodeNames"] == ["n0"]


def test_calls_and_verdicts_are_counted(client: TestClient, registry: CollectorRegistry) -> None:
    client.post("/filter", json=args("train-worker-0", ["n0"]))
    client.post("/filter", json=args("nobody", ["n0"]))
    client.post("/filter", content=b"{")
    count = registry.get_sample_value
    assert count("muster_extender_requests_total", {"verb": "filter", "status": "200"}) == 2
    assert count("muster_extender_requests_total", {"verb": "filter", "status": "400"}) == 1
    assert count("muster_extender_verdicts_total", {"verb": "filter", "verdict": "passed"}) == 1
    assert count("muster_extender_verdicts_total", {"verb": "filter", "verdict": "refused"}) == 1
    assert count("muster_extender_seconds_count", {"verb": "filter"}) == 3


def test_a_caller_that_goes_away_is_counted_and_not_answered(
    board: Board, registry: CollectorRegistry
) -> None:
    app = make_extender_app(board, ExtenderMetrics(registry).note)
    received: list[Any] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return received.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/filter", "root_path": "", "headers": []}
    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    assert sent == []
    assert (
        registry.get_sample_value("muster_extender_requests_total", {"verb": "filter", "status": "499"}) == 1
    )


def test_answers_say_what_they_are_and_one_that_is_refused_ends_the_connection(client: TestClient) -> None:
    got = client.post("/filter", json=args("train-worker-0", ["n0"]))
    assert dict(got.headers) == {"content-length": str(len(got.content)), "content-type": "application/json"}
    assert client.post("/filter", content=b" " * (MOST + 1)).headers["connection"] == "close"


def test_there_is_no_bind_verb_and_no_get(client: TestClient) -> None:
    assert client.post("/bind", json={}).status_code == 404
    assert client.get("/filter").status_code == 405
