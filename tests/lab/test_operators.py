"""Which operators a lab can be asked for, and what runs for each; no process."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.lab import build, metrics_server, operators
from e2e.lab.errors import BadRequestError
from e2e.lab.operator_config import LOOPBACK, configuration, kueue_api
from e2e.lab.shape import Shape, nodes


def test_an_operator_of_several_processes_is_asked_for_by_its_one_name() -> None:
    assert list(operators.chosen(["volcano"])) == ["volcano-admission", "volcano-controllers", "volcano"]
    assert "volcano-admission" not in operators.available()
    with pytest.raises(BadRequestError, match="OPERATORS=volcano-admission: this lab can run"):
        operators.chosen(["volcano-admission"])


def test_parts_are_built_from_the_module_of_the_whole() -> None:
    assert {binary.module for binary in operators.binaries(["volcano"]).values()} == {"volcano"}
    assert len({binary.file_name for binary in operators.binaries(["volcano"]).values()}) == 3


def test_what_is_not_built_is_told_by_the_name_to_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "is_built", lambda binary: binary.name == "volcano-controllers")
    assert operators.missing(["kueue@v0.14.8", "volcano"]) == ["kueue@v0.14.8", "volcano"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [("", "v1beta2"), ("v0.15.2", "v1beta2"), ("v0.14.8", "v1beta1"), ("v1.0.0", "v1beta2")],
)
def test_kueue_is_told_in_the_newest_version_that_it_reads(version: str, expected: str) -> None:
    assert kueue_api(version) == expected
    told = configuration("kueue", LOOPBACK, 1, 2, Path("certificates"), version)
    assert told["apiVersion"] == f"config.kueue.x-k8s.io/{expected}"


def test_nodes_say_where_a_metrics_server_reads_their_use_only_where_there_is_one() -> None:
    first = next(nodes(Shape()))
    assert metrics_server.read_by(first.manifest("now"), ("jobset",), {"kwok": 7}) == first.manifest("now")
    node = metrics_server.read_by(first.manifest("now"), ("metrics-server",), {"kwok": 7})
    where = node["metadata"]["annotations"][metrics_server.READ_BY]
    assert where == "/metrics/nodes/node-00/metrics/resource"
    assert "/metrics/nodes/{nodeName}/metrics/resource" in metrics_server.USE.read_text(), "what kwok serves"
    assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 7}}
    assert not first.differs({**node, "metadata": {**node["metadata"], "labels": dict(first.labels)}})
