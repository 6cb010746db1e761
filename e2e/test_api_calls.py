"""What a resize costs the API server, counted in its audit log (issue 5, Measures).

`python -m e2e.bench calls` has the figures of every size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest

from e2e.bench.calls import about, by_kind, quiet, resized, shape
from e2e.cluster import Cluster
from e2e.elastic import has, train
from e2e.lab import Lab, Shape
from e2e.lab.audit import Log
from e2e.scenario import delete_job, gated, job, runs_whole, seen_at_once, wait_until
from muster.core.actions.told_later import BRIEF

pytestmark = pytest.mark.lab

WHOLE, GIVEN, SMALL = 16, 6, 4
BOOK = 8
"""Writes beside what each replica costs: usually two of the Gang, the plan and that it has come true, and two Events
that say so (on the Job and on the Gang)."""


def test_a_small_start_costs_a_patch_a_bind_and_an_event_a_pod_and_one_gang(
    new_lab: Callable[[Shape], Lab],
) -> None:
    lab = new_lab(shape())
    cluster = Cluster(lab.kubeconfig)
    log = Log(lab.audit)
    # A start that takes longer than BRIEF is told while it is under way, too: on a busy machine another one is tried.
    for name in ("small", "again", "last"):
        with seen_at_once(lab):
            cluster.submit(job(name, SMALL), namespace="default")
            wait_until(lambda name=name: len(gated(cluster.pods("default", name))) == SMALL, what="it waits")  # type: ignore[misc]
        began = time.monotonic()
        runs_whole(cluster, "default", name, SMALL)
        took = time.monotonic() - began
        start = by_kind(about(quiet(log), "default", name))
        delete_job(cluster, "default", name)
        if took < BRIEF:
            break
    ours = {kind: count for kind, count in start.items() if kind.startswith(("muster:", "kube-scheduler:"))}
    assert ours == {
        "muster: gate off": SMALL,
        "muster: create gangs": 1,
        "kube-scheduler: create pods/binding": SMALL,
        "kube-scheduler: create events": SMALL,
    }


def test_a_resize_costs_three_writes_a_replica_that_leaves_and_no_more_for_one_that_comes(
    new_lab: Callable[[Shape], Lab],
) -> None:
    lab = new_lab(shape())
    cluster = Cluster(lab.kubeconfig)
    log = Log(lab.audit)
    cluster.submit(train("a", most=WHOLE), namespace="default")
    has(cluster, "default", "a", WHOLE)
    start = by_kind(about(quiet(log), "default", "a"))
    assert start["muster: gate off"] == start["kube-scheduler: create pods/binding"] == WHOLE, start

    shrink, growth = (by_kind(found) for found in resized(lab, log, "default", "a", "rigid", WHOLE, GIVEN))
    for kind in ("muster: finalizer off", "muster: eviction"):
        assert shrink[kind] == GIVEN, f"{kind}: {shrink}"
    # When its controller makes them again is its own affair, and none of them at the growth.
    made = "job-controller: create pods"
    assert shrink[made] + growth[made] == GIVEN, f"{shrink}, {growth}"
    assert shrink["muster: dry-run eviction"] >= GIVEN, shrink
    assert _of_muster(shrink) <= 3 * GIVEN + BOOK, shrink
    assert growth["muster: gate off"] == growth["kube-scheduler: create pods/binding"] == GIVEN, growth
    # Places come free one by one: each may be recorded, and told, by itself.
    assert _of_muster(growth) <= 3 * GIVEN + BOOK, growth


def _of_muster(counts: Mapping[str, int]) -> int:
    return sum(count for kind, count in counts.items() if kind.startswith("muster:"))
