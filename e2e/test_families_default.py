"""What two papers compare their policies with: SpeCon's first places without its moves (`specon-default`), and what
the SideCar paper calls Kubernetes's default scheduler (`sidecar-default`)."""

from __future__ import annotations

import time
from itertools import count

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import only, replayed, settles, shared_by, shares, train
from e2e.kind.lab import not_on_kind
from e2e.lab import Lab
from e2e.labs import ON_KIND
from e2e.scenario import delete_job, job, seen_at_once, stays, wait_until, waits_because
from e2e.test_families import NODE, all_gated, whole
from e2e.test_families_more import nodes_of
from muster.types import JobKey
from muster_plugins.sidecar_default import drawn

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

ROUND = ("node-00", "node-01", "node-02", "node-03")
SIZES = (1, 2, 4, 8)


def test_specon_default_places_one_job_on_each_node_in_the_order_of_submission_and_then_begins_again(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """No matter which is the fullest, the emptiest, or first by the name of the job."""
    if ON_KIND:
        not_on_kind("a round of the lab's nodes alone: the cluster's own is one of it")
    only(lab, cluster, *ROUND)
    with shared_by(lab, "specon-default"):
        names = ("d", "c", "b", "a")
        with seen_at_once(lab):
            for name in names:
                cluster.submit(job(name, 1), namespace=namespace)
                time.sleep(1.1)  # whole seconds count
            all_gated(cluster, namespace, **dict.fromkeys(names, 1))
        placed = {name: {node} for name, node in zip(names, ROUND, strict=True)}
        are_on(cluster, namespace, placed)
        delete_job(cluster, namespace, "c")
        wait_until(lambda: not cluster.pods(namespace, "c"), what="the second node is empty")
        del placed["c"]
        for name, node in zip("ef", ROUND, strict=False):
            cluster.submit(job(name, 1), namespace=namespace)
            placed[name] = {node}
            are_on(cluster, namespace, placed)
        replayed(lab, cluster)


def are_on(cluster: Cluster, namespace: str, placed: dict[str, set[str]]) -> None:
    wait_until(
        lambda: len(nodes_of(cluster, namespace)) == len(placed),
        what=f"{len(placed)} jobs run",
        also=lambda: cluster.gangs(namespace),
    )
    assert nodes_of(cluster, namespace) == placed


def test_sidecar_default_leaves_a_job_with_the_size_that_was_drawn_and_skips_one_that_does_not_fit(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "sidecar-default"):
        half, pair = (whose_draw_is(namespace, gpus) for gpus in (4, 2))
        cluster.submit(of_any_size(half), namespace=namespace)
        settles(cluster, namespace, {half: 4})
        stays(cluster, lambda: shares(cluster, namespace) == {half: 4}, what="it leaves four GPUs idle")
        cluster.submit(whole("all", 8), namespace=namespace)
        waits_because(cluster, namespace, "job-all", "no node has 8 idle GPUs")
        cluster.submit(of_any_size(pair), namespace=namespace)
        settles(cluster, namespace, {half: 4, pair: 2})
        stays(
            cluster,
            lambda: shares(cluster, namespace) == {half: 4, pair: 2},
            what="two are left idle, and who came before the pair waits",
            also=lambda: cluster.gangs(namespace),
        )
        delete_job(cluster, namespace, half)
        settles(cluster, namespace, {pair: 2})
        stays(cluster, lambda: shares(cluster, namespace) == {pair: 2}, what="six are not enough for eight")
        delete_job(cluster, namespace, pair)
        settles(cluster, namespace, {"all": 8})
        replayed(lab, cluster)


def of_any_size(name: str) -> Json:
    """Also one that is restarted by a change: nothing but the policy keeps its size."""
    return train(name, most=8, sizes=",".join(map(str, SIZES)), work=1e6, restart=True)


def whose_draw_is(namespace: str, gpus: int) -> str:
    """The name of a job for which this number is drawn: by its namespace and name, whatever else there is."""
    names = (f"draws-{gpus}-{number}" for number in count())
    return next(name for name in names if drawn(SIZES, 0, JobKey(namespace, f"job-{name}")) == gpus)
