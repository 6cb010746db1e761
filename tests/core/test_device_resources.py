"""Resources that a configuration counts as GPUs (deviceResources): in shares, Gangs, sums, picture and replay."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from muster.core.bounds import GPUS
from muster.core.cycle import cycle
from muster.core.snapshot_codec import dump, load
from muster.core.views import cluster_view
from muster.core.views.view import View
from muster.core.views.view_changes import NOTHING, Copy, changes
from muster.points import Profile
from muster.types import (
    DEVICES,
    GPU,
    DeclaredRole,
    DeviceNames,
    NodeRecord,
    Nodes,
    OwnerRecord,
    Shape,
    device_names,
)
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster, Muster

TPU = "google.com/tpu"
TPUS = device_names(["*/gpu", "nvidia.com/mig-*", TPU])
SHARED = Profile("sharing", shares=(MaxMin(),), devices=TPUS)


@pytest.mark.parametrize(
    ("patterns", "requests", "gpus"),
    [
        (["*/gpu", "nvidia.com/mig-*"], {GPU: 2, "tencent.com/gpu": 2}, 2),  # the same devices by two names
        (["*/gpu", "nvidia.com/mig-*"], {"amd.com/gpu": 2, "nvidia.com/mig-1g.10gb": 3}, 5),
        (["*/gpu", "nvidia.com/mig-*"], {TPU: 4, "nvidia.com/gpu.shared": 4}, 0),
        (["*/gpu", TPU, "habana.ai/*"], {TPU: 4, "habana.ai/gaudi": 8, "nvidia.com/mig-1g.10gb": 3}, 12),
        ([TPU], {GPU: 8, "amd.com/gpu": 2, TPU: 1}, 1),
        ([GPU], {GPU: 8, "amd.com/gpu": 2}, 8),
    ],
)
def test_what_is_listed_counts_on_nodes_as_in_pods(
    patterns: list[str], requests: dict[str, int], gpus: int
) -> None:
    devices = device_names(patterns)
    assert Shape(tuple(sorted(requests.items())), devices=devices).gpus == gpus
    nodes = Nodes([NodeRecord("n0", allocatable=requests), NodeRecord("n1", allocatable={"cpu": 1})], devices)
    assert nodes.gpus(nodes.total).tolist() == [gpus, 0]


def test_without_a_list_muster_counts_as_the_default_of_the_setting_says() -> None:
    assert device_names(["*/gpu", "nvidia.com/mig-*"]) == DEVICES


def tpus(profile: Profile) -> tuple[FakeCluster, Muster]:
    """Two nodes of 4 TPUs and two elastic jobs whose replicas want one each."""
    cluster = FakeCluster(nodes=2, gpus=0)
    for name, record in cluster.nodes.items():
        cluster.nodes[name] = replace(record, allocatable={**record.allocatable, TPU: 4})
    for name in ("one", "two"):
        for pod in cluster.job(name, 8, gpus=0, min_replicas="1", max_replicas="8"):
            cluster.update(pod, shape=Shape((("cpu", 1000), (TPU, 1))))
    muster = Muster(cluster, profile)
    for _ in range(5):
        muster.settle()
        cluster.bind()
    return cluster, muster


def seen(muster: Muster) -> View:
    ledger, now = muster.ledger, muster.cluster.now
    snapshot = ledger.snapshot(now)
    return ledger.view(snapshot, ledger.plan(snapshot), leading=True, synced=True)


def test_jobs_of_listed_devices_share_them_and_their_gangs_count_them() -> None:
    cluster, muster = tpus(SHARED)
    assert {key.name: share for key, share in muster.plan.shares.items()} == {"job-one": 4, "job-two": 4}
    written: dict[str, Any] = {
        a.gang: a.status for a in cluster.sent if type(a).__name__ == "WriteGang" and "gpus" in a.status
    }
    assert {name: status["gpus"] for name, status in written.items()} == {"job-one": 4, "job-two": 4}
    view = seen(muster)
    assert view.snapshot.nodes.gpus(view.snapshot.nodes.total).tolist() == [4, 4], "as /metrics counts"
    drawn: Any = cluster_view.cluster(view, lambda _: True)
    assert drawn["gpus"] == {"total": 8, "bound": 8} | dict.fromkeys(
        ("held", "ending", "kept", "foreign", "closed", "free"), 0
    )
    assert [node["gpus"] for node in drawn["nodes"]] == [4, 4]


def test_unlisted_they_are_scheduled_whole_but_counted_nowhere() -> None:
    _, muster = tpus(Profile())
    view = seen(muster)
    assert view.snapshot.nodes.gpus(view.snapshot.nodes.total).tolist() == [0, 0]
    assert {job.gpus for job in view.snapshot.jobs.values()} == {0}


def test_a_dump_says_what_counts_and_replays_alike() -> None:
    _, muster = tpus(SHARED)
    view = seen(muster)
    read, _ = load(json.loads(json.dumps(dump(view), allow_nan=False)))
    assert read.nodes.devices == TPUS
    assert {m.shape.gpus for job in read.jobs.values() for role in job.roles for m in role.members} == {1}
    assert cycle(read, SHARED) == view.plan
    plain = dump(seen(tpus(Profile())[1]))
    assert "devices" not in plain["snapshot"], "the usual list is not written: older dumps mean it"
    assert all("devices" not in shape for shape in plain["snapshot"]["shapes"])


def test_the_verbs_process_counts_alike() -> None:
    _, muster = tpus(SHARED)
    view, copy = seen(muster), Copy()
    for part in changes(NOTHING, view):
        copy.take(part)
    nodes = copy.view().snapshot.nodes
    assert nodes.devices == TPUS
    assert np.array_equal(nodes.gpus(nodes.total), view.snapshot.nodes.gpus(view.snapshot.nodes.total))


def test_a_configuration_read_again_does_not_change_what_counts() -> None:
    _, muster = tpus(SHARED)
    muster.ledger.use(replace(SHARED, devices=DEVICES))
    muster.settle()
    assert {key.name: share for key, share in muster.plan.shares.items()} == {"job-one": 4, "job-two": 4}


def test_templates_of_owners_are_counted_and_more_than_any_node_has_is_no_number() -> None:
    cluster = FakeCluster()
    muster = Muster(cluster, SHARED)
    counting = muster.ledger.counting
    (pod,) = cluster.job("huge", 1)
    huge = counting.pod(replace(pod, shape=Shape(((TPU, 1 << 40),))))
    assert huge.shape.gpus == GPUS.most
    assert huge.beyond.startswith(f"requests of {TPU}: expected at most ")
    role = DeclaredRole("worker", 2, shape=Shape(((TPU, 3),)))
    owner = OwnerRecord(next(iter(cluster.owners.values())).owner, "team", roles=(role,))
    assert [one.shape.gpus for one in counting.owner(owner).roles] == [3]
    assert Muster(cluster).ledger.counting.pod(pod) is pod


def test_a_shape_without_its_gpus_asks_for_no_listed_device() -> None:
    from muster.core.placement.statement import without_gpus

    assert without_gpus(Shape((("cpu", 5), (TPU, 1)), devices=TPUS)).requests == (("cpu", 5),)
    assert without_gpus(Shape((("cpu", 5), (TPU, 1)))).requests == (("cpu", 5), (TPU, 1))
    assert DeviceNames().has("intel.com/gpu")
