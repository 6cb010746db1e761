"""SpeCon's R from real use: kwok's pods say what they use, the real metrics server reads it, the API server serves it
as metrics.k8s.io, and Muster weighs nodes by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import replayed, settles, shared_by, snapshot_of
from e2e.lab import Lab, NodeGroup, Shape
from e2e.scenario import looking, on_node, runs_whole, wait_until
from e2e.test_families import by, whole
from e2e.test_families_more import SLOW, Reporting, nodes_of
from muster.core import snapshot_codec
from muster.types import Use

OWN_LAB = "want a metrics server, and nodes that it can read"
pytestmark = [pytest.mark.lab, pytest.mark.operators("metrics-server"), pytest.mark.referee(again=10)]

SPECON = by("specon", alpha=0.0005, interval=2.0, smoothing=0.0)


def uses(name: str, node: str, cores: str, **what: Any) -> Json:
    """A job of one GPU that stays on a node, and uses so many cores whatever it requests."""
    return whole(name, 1, affinity=on_node(node), annotations={"e2e.muster.dev/uses-cpu": cores}, **what)


def told(lab: Lab, cluster: Cluster) -> Use:
    """What nodes and pods use, as the newest plan knows it."""
    return snapshot_codec.load(snapshot_of(lab, cluster))[0].use or Use(0.0)


def test_a_converged_job_goes_where_least_is_used_and_not_where_least_is_requested(
    new_lab: Callable[..., Lab],
) -> None:
    groups = (NodeGroup(3),)
    lab = new_lab(
        Shape(groups=groups, racks=0, operators=("metrics-server",), set_values=("profile=specon",))
    )
    cluster = Cluster(lab.kubeconfig)
    stay = {"more": {"node-00"}, "busy": {"node-01"}, "calm": {"node-02"}}
    with shared_by(lab, "specon", **SPECON):
        cluster.submit(
            uses("more", "node-00", "1"),
            uses("busy", "node-01", "60", cpu="1"),
            uses("calm", "node-02", "1", cpu="32"),
        )
        settles(cluster, "default", dict.fromkeys(stay, 1))
        for node in ("node-01", "node-02"):
            cluster.cordon(node)
        cluster.submit(whole("ask", 1))
        settles(cluster, "default", dict.fromkeys((*stay, "ask"), 1))
        for node in ("node-01", "node-02"):
            cluster.cordon(node, unschedulable=False)

        def measured() -> bool:
            use = told(lab, cluster)
            return len(use.pods) == 4 and use.nodes.get("node-01", (0, 0))[0] > 50_000 and len(use.nodes) == 3

        wait_until(measured, within=SLOW, what="all is measured", also=lambda: told(lab, cluster))
        cores = {node: cpu // 1000 for node, (cpu, _) in told(lab, cluster).nodes.items()}
        assert cores["node-00"] < cores["node-01"] > cores["node-02"], cores

        def converges(passed: float) -> Json:
            return {"step": passed, "loss": 1.0 + 2.0 ** (-passed / 2.0)}

        with looking(Reporting(lab, cluster, "default", ask=converges), 0.9):
            wait_until(  # line 17: both other nodes have the least score; by requests it would be node-01
                lambda: nodes_of(cluster, "default") == stay | {"ask": {"node-02"}},
                within=SLOW,
                what="it is where least is used",
                also=lambda: f"{nodes_of(cluster, 'default')}\n{cluster.gangs('default')}",
            )
        replayed(lab, cluster)
        events = [one["message"] for one in cluster.get("/api/v1/namespaces/default/events")["items"]]
        assert any("of 2 nodes with the least score node-02 is used least" in one for one in events), events
        assert "metrics.k8s.io tells it of 3 nodes" in lab.muster("doctor", check=False).stdout
        said = lab.log("muster-0").stat().st_size
        lab.kill("metrics-server")
        cluster.submit(whole("later", 1))
        runs_whole(cluster, "default", "later", 1)
        wait_until(
            lambda: b"nodes are weighed by what pods request" in lab.log("muster-0").read_bytes()[said:],
            what="the log says that nobody tells what nodes use",
        )
        assert told(lab, cluster).nodes, "what was told before counts for a while"
        lab.start("metrics-server")
