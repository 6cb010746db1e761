"""Our bytes against those that k8s.io/kube-scheduler/extender/v1 writes (see README.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.errors import UsageError
from muster.server import extender_types

GOLDEN = Path(__file__).parent / "golden"
OTHER_NODE = "muster's plan keeps this pod for another node"
FAILED = {"node-0": OTHER_NODE, "node-2": OTHER_NODE}


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().strip()


def test_filter_args_with_names_are_read() -> None:
    args = extender_types.read_args(golden("args-names"))
    assert args.pod is not None
    assert args.pod.metadata == extender_types.PodMeta(
        "uid-0", "train-0", "team-a", {"muster.dev/roles": "worker=4"}
    )
    assert (args.node_names, args.nodes) == (["node-0", "node-1", "node-2"], None)


def test_filter_args_with_whole_nodes_are_read() -> None:
    args = extender_types.read_args(golden("args-nodes"))
    assert args.node_names is None
    assert args.nodes is not None
    assert args.nodes.items is not None
    assert extender_types.node_names(args.nodes.items) == ["node-0", "node-1", "node-2"]


def test_empty_and_absent_lists_are_told_apart() -> None:
    assert extender_types.read_args(golden("args-empty-names")).node_names == []
    nothing = extender_types.read_args(golden("args-nothing"))
    assert (nothing.pod, nothing.nodes, nothing.node_names) == (None, None, None)


def test_a_filter_answer_with_names_is_what_go_writes() -> None:
    assert extender_types.filter_names(["node-1"], FAILED) == golden("filter-names")


def test_a_filter_answer_with_nodes_sends_back_the_bytes_that_came() -> None:
    args = extender_types.read_args(golden("args-nodes"))
    assert args.nodes is not None
    assert args.nodes.items is not None
    assert extender_types.filter_nodes([args.nodes.items[1]], FAILED) == golden("filter-nodes")


def test_a_filter_error_is_what_go_writes() -> None:
    assert extender_types.filter_error("muster has not read the whole cluster yet") == golden("filter-error")


def test_priorities_are_what_go_writes() -> None:
    assert extender_types.priorities(["node-0", "node-1"], [0, 10]) == golden("prioritize")


def test_victims_by_uid_are_read_and_written_back() -> None:
    args = extender_types.read_preemption(golden("preempt-args-meta"))
    assert args.victims is None
    assert args.meta is not None
    kept = {node: args.meta[node] for node in ("node-1", "node-2")}
    assert extender_types.preemption(kept) == golden("preempt-result-meta")
    assert extender_types.preemption({}) == golden("preempt-result-none")


def test_victims_as_whole_pods_are_read() -> None:
    args = extender_types.read_preemption(golden("preempt-args-full"))
    assert args.meta is None
    assert args.victims is not None
    assert {n: [p.metadata.uid for p in v.pods or ()] for n, v in args.victims.items()} == {
        "node-0": ["uid-0"],
        "node-1": ["uid-7", "uid-8"],
    }
    assert [v.violations for v in args.victims.values()] == [1, 0]


@pytest.mark.parametrize("name", ["filter-names", "filter-nodes", "filter-error"])
def test_no_key_of_a_filter_answer_is_left_out(name: str) -> None:
    keys = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    ours: dict[str, Any] = json.loads(extender_types.filter_error(""))
    assert set(json.loads(golden(name))) == keys == set(ours)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"Pod": 1}',
        b'{"NodeNames": "node-0"}',
        b'{"NodeNames": [null]}',
        b'{"Pod": {"metadata": {"uid": 7}}}',
        b'{"Pod": null} trailing',
        b'{"NodeNames":' + b"[" * 100_000,
    ],
)
def test_what_is_no_request_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(UsageError, match="can't be understood"):
        extender_types.read_args(body)
