"""etcd set back to an older backup under a Muster that goes on: what was learned since never happened.

As a cluster's administrator does it: etcd and all that reads the API are stopped, the backup is put in place, and
they are started again; Muster is not. A backup is a copy of the data of an etcd that stands still. `bumped` is what
`etcdutl snapshot restore --bump-revision --mark-compacted` makes, as Kubernetes recommends: versions go on above all
that anybody knows, and every watch has expired."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from e2e.cluster import Cluster
from e2e.kind.lab import not_on_kind
from e2e.lab import Lab, NodeGroup, Shape
from e2e.labs import ON_KIND
from e2e.scenario import bound, delete_job, gated, in_state, job, runs_whole, show, wait_until, waits_because

pytestmark = pytest.mark.lab

READERS = ("kube-controller-manager", "kube-scheduler-0", "default-scheduler", "kwok")
NEEDS_ALL = "needs 32 GPUs (4 replicas of 8)"
BUMP = 2000
"""Revisions by which etcd goes on after a restore: more than there were since the backup."""


def backup(lab: Lab, to: Path) -> None:
    lab.stop("etcd")
    shutil.copytree(lab.folder / "etcd", to)
    lab.start("etcd")
    lab.wait_ready("kube-apiserver")
    lab.revive()


def restored(lab: Lab, kept: Path, bump: int) -> None:
    for name in (*READERS, "kube-apiserver"):
        lab.kill(name)
    lab.stop("etcd")
    shutil.rmtree(lab.folder / "etcd")
    shutil.copytree(kept, lab.folder / "etcd")
    lab.start("etcd")
    if bump:
        goes_on(lab, bump)
    lab.start("kube-apiserver")
    for name in READERS:
        lab.start(name)


def goes_on(lab: Lab, revisions: int) -> None:
    """etcd counts so many revisions further, and has compacted all before."""
    with httpx.Client(base_url=f"http://127.0.0.1:{lab.ports['etcd']}/v3/kv", trust_env=False) as etcd:
        body = {"key": base64.b64encode(b"/e2e/bump").decode(), "value": ""}
        for _ in range(revisions):
            answer = etcd.post("/put", json=body).raise_for_status().json()
        etcd.post("/compaction", json={"revision": answer["header"]["revision"]}).raise_for_status()


# What a watch of its own heard is not true either: this scenario looks for itself.
@pytest.mark.unsound("the referee does not follow an API server that was set back")
@pytest.mark.complains("it is said", "the API server was set back to an earlier state")
@pytest.mark.parametrize("bump", [0, BUMP], ids=["as-it-was", "bumped"])
def test_after_etcd_is_restored_who_has_never_started_waits_and_starts_once(
    new_lab: Callable[[Shape], Lab], tmp_path: Path, bump: int
) -> None:
    if ON_KIND:
        not_on_kind("etcd set back to an older backup under what goes on running")
    lab = new_lab(Shape(groups=(NodeGroup(4, gpus=8),)))
    cluster, namespace = Cluster(lab.kubeconfig), "default"
    cluster.submit(job("first", 2, gpus=8), job("second", 4, gpus=8))
    first = runs_whole(cluster, namespace, "first", 2)
    waits_because(cluster, namespace, "job-second", NEEDS_ALL)
    second = wait_until(
        lambda: found if len(found := gated(cluster.pods(namespace, "second"))) == 4 else [],
        what="all of it waits at the gate",
    )
    backup(lab, tmp_path / "etcd")

    delete_job(cluster, namespace, "first")
    runs_whole(cluster, namespace, "second", 4)
    cluster.submit(job("third", 2, gpus=8))
    wait_until(lambda: in_state(cluster, namespace, "job-third", "Waiting"), what="the third waits")

    restored(lab, tmp_path / "etcd", bump)
    waits_because(cluster, namespace, "job-second", NEEDS_ALL)
    log = lab.log("muster-0")
    wait_until(lambda: "was set back to an earlier state" in log.read_text(), what="Muster says it")
    cluster.submit(
        job("fourth", 2, gpus=8)
    )  # beside the first, as it fits: nothing of what is not there is charged
    runs_whole(cluster, namespace, "fourth", 2)
    pods = cluster.pods(namespace)
    assert {one.uid for one in bound(pods) if one.owner and one.owner["name"] == "first"} == {
        one.uid for one in first
    }
    assert {one.uid for one in gated(pods)} == {one.uid for one in second}
    assert set(cluster.gangs(namespace)) == {"job-first", "job-second", "job-fourth"}
    for name in ("first", "fourth"):
        delete_job(cluster, namespace, name)
    again = runs_whole(cluster, namespace, "second", 4)
    assert {one.uid for one in again} == {one.uid for one in second}, show(again)
    assert len({one.node for one in again}) == 4
