"""The Grafana dashboard asks for what /metrics has: every query parses, and names metrics and labels that exist.

Grafana itself does not run here: what a panel looks like is not tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from muster.core.views.view import Board
from muster.serve import cycle_metrics
from muster.server.agent_orders import AgentOrders
from muster.server.device_metrics import DeviceMetrics
from muster.server.extender_metrics import ExtenderMetrics
from muster.server.service import make_service_app
from tests.scenario import job, snapshot
from tests.server.reading import viewed

FILE = Path(__file__).resolve().parents[1] / "config" / "grafana" / "muster.json"
SUFFIXES = ("_bucket", "_sum", "_count", "_total")
OF_THE_SCRAPE = {"job", "le"}
"""Labels that Prometheus adds, or that a histogram has."""


class Nobody:
    """Rights and pods of nobody: /metrics needs none."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


@pytest.fixture(scope="module")
def families() -> dict[str, Metric]:
    """What /metrics of a Muster with jobs in several states shows, by name without suffix."""
    board = Board(
        viewed(snapshot(nodes=2, jobs=[job("runs", worker=1, on=["n0"]), job("big", worker=3, gpus=8)]))
    )
    registry = CollectorRegistry()
    observe = cycle_metrics(registry, board)
    ExtenderMetrics(registry)
    DeviceMetrics(registry)
    agents = AgentOrders(), lambda _: None
    app = make_service_app(board, Nobody(), registry, reports=lambda _: None, pods=Nobody(), agents=agents)
    observe(0.01, board.view.plan)
    with TestClient(app) as client:
        text = client.get("/metrics").text
    return {family.name: family for family in text_string_to_metric_families(text)}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text())["panels"]
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Panel and query, with Grafana's variables filled in."""
    for panel in panels():
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m").replace("$job", ".*")


@pytest.mark.parametrize(("panel", "query"), list(queries()))
def test_every_query_parses_and_asks_for_metrics_and_labels_that_are_there(
    panel: str, query: str, families: dict[str, Metric]
) -> None:
    pretty = promql_parser.parse(query).prettify()
    names = set(re.findall(r"\bmuster_[a-z_]+", pretty))
    assert names, panel
    known = set(OF_THE_SCRAPE)
    for name in names:
        base = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
        assert base in families, f"{panel}: no metric {name}"
        if families[base].type == "counter":
            assert name.endswith("_total"), f"{panel}: {name} is a counter"
        if families[base].type == "histogram":
            assert name.endswith(("_bucket", "_sum", "_count")), f"{panel}: {name} is a histogram"
        known |= {label for sample in families[base].samples for label in sample.labels}
        if not families[base].samples:  # a labelled counter before its first count
            known |= {"result", "verb"}
    for labels in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", pretty):
        assert {label.strip() for label in labels.split(",")} <= known, f"{panel}: {labels}"
    for label, value in re.findall(r'(\w+)="([^"]*)"', pretty):
        values = {s.labels.get(label) for name in names if name in families for s in families[name].samples}
        assert value in values, f"{panel}: no {label}={value}"


def test_every_metric_of_muster_has_a_place_on_the_dashboard_or_a_reason_not_to(
    families: dict[str, Metric],
) -> None:
    shown = set(re.findall(r"\bmuster_[a-z_]+", " ".join(query for _, query in queries())))
    bare = {next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name) for name in shown}
    left_out = {name for name in families if name.startswith("muster_")} - bare
    assert {name for name in left_out if not name.endswith("_created")} == {
        "muster_nodes",  # the cluster's own dashboards have them
        "muster_held_pods",  # between two cycles only
        "muster_synced",
        "muster_snapshot_timestamp_seconds",
        "muster_extender_requests",  # answers count in muster_extender_seconds
        "muster_extender_verdicts",
        "muster_extender_starts",  # /healthz tells where nobody answers
    }


def test_panels_have_ids_and_places_of_their_own_and_the_chosen_source() -> None:
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert not re.search(r"https?://|/root|/work", FILE.read_text())


def test_no_metric_has_a_label_a_job(families: dict[str, Metric]) -> None:
    labels = {label for family in families.values() for s in family.samples for label in s.labels}
    assert labels <= {
        "state",
        "reason",
        "share",
        "bound",
        "direction",
        "cause",
        "result",
        "verb",
        "verdict",
        "le",
        "status",
    }
