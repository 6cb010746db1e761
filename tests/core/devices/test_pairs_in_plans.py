"""Two jobs in place on one GPU, planned by a policy that puts the second beside the first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from muster.core.devices.granted import Granted
from muster.core.devices.pairs import as_it_stands, pairs
from muster.core.views import cluster_view
from muster.types import GPU_MEMORY, Grant, Grants, JobKey, OwnerGone, Phase, SharingSnapshot, State
from tests.core.devices.circle import Circle
from tests.scenario import job

Gpus = dict[str, str]


@dataclass(frozen=True)
class Together:
    """A GPU for each job, in the order of submission, while there are some; then each beside the first alone on one.
    apart: nobody shares."""

    apart: bool = False

    def share(self, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        replicas, details = np.zeros(len(table), dtype=np.int64), {}
        alone: list[JobKey] = []
        free = table.gpus
        for row, key in enumerate(table.keys):
            needs = int(table.min[row])
            if free >= needs:
                free -= needs
                replicas[row] = needs
                alone.append(key)
            elif alone and not self.apart:
                replicas[row] = needs
                details[row] = Grant(beside=alone.pop(0))
        return Grants(replicas, details, whole=True)


def empty(gpus: int = 1, of: str = "40960") -> Circle:
    """One node with GPUs of so many MiB."""
    circle = Circle(gpus=gpus, share=Together())
    (name,) = circle.cluster.nodes
    found = circle.cluster.nodes[name]
    circle.cluster.nodes[name] = replace(found, labels={**found.labels, **({GPU_MEMORY: of} if of else {})})
    return circle


def fits(memory: str = "10Gi", gpus: int = 1, of: str = "40960") -> Circle:
    """On such a node a says what memory it needs, and trains."""
    circle = empty(gpus, of)
    circle.train("a", "1", **{"gpu-memory": memory})
    circle.seconds(6)
    assert circle.using("a") == 1
    return circle


@contextmanager
def nothing_is_bound(circle: Circle) -> Iterator[None]:
    """Meanwhile no pod is bound."""
    bind, circle.cluster.bind = circle.cluster.bind, lambda: 0  # type: ignore[method-assign]
    try:
        yield
    finally:
        circle.cluster.bind = bind  # type: ignore[method-assign]


def status(circle: Circle, name: str) -> tuple[State, str]:
    found = circle.plan.statuses[circle.key(f"job-{name}")]
    return found.state, found.message


def test_a_second_job_trains_beside_the_first_on_its_only_gpu() -> None:
    circle = fits()
    circle.train("b", "1", **{"gpu-memory": "20Gi"})
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (1, 1)
    assert len(circle.records) == 1
    circle.seconds(30)
    assert (circle.using("a"), circle.using("b")) == (1, 1)


def test_a_partner_whose_pod_is_not_bound_at_once_is_not_forgotten_also_where_muster_starts_again() -> None:
    for again in (False, True):
        circle = fits()
        circle.train("b", "1", **{"gpu-memory": "20Gi"})
        with nothing_is_bound(circle):
            circle.seconds(1)
            if again:
                circle.restart()
            circle.seconds(2)
            snapshot = circle.ledger.snapshot(circle.cluster.now)
            grant = snapshot.jobs[circle.key("job-b")].grant
            assert grant is not None
            assert grant.beside == circle.key("job-a")
            assert charged(circle) == 1
        circle.seconds(8)
        assert (circle.using("a"), circle.using("b")) == (1, 1)


def test_what_is_not_granted_yet_keeps_its_partner_and_what_stands_without_it_is_alone() -> None:
    a, b = JobKey("team", "a", "1"), JobKey("team", "b", "2")
    one, other = Granted("uid-a", "n0", 1), Granted("uid-b", "n0", 1)
    jobs = {key: replace(job(key.name), key=key) for key in (a, b)}
    beside = replace(jobs[b], grant=Grant(beside=a))
    starts = as_it_stands(beside, jobs, {a: (one,)}, {})
    assert starts.grant == Grant(beside=a)
    assert as_it_stands(beside, jobs, {a: (one,), b: (other,)}, {b: a}) == beside
    for lost in ({b: (other,)}, {a: (one,), b: (replace(other, node="n1"),)}):
        assert as_it_stands(beside, jobs, lost, pairs(lost, {b: beside.grant})).grant is None
    assert as_it_stands(beside, {b: beside}, {}, {}).grant is None, "its partner is no more"


def test_a_job_of_several_pods_never_shares() -> None:
    circle = fits()
    circle.train("b", "1", pods=2, **{"gpu-memory": "1Gi"})
    circle.seconds(8)
    assert (circle.using("a"), circle.uses("b")) == (1, [])
    circle = empty(gpus=2)
    circle.train("b", "1", pods=2, **{"gpu-memory": "1Gi"})
    circle.seconds(8)
    assert circle.uses("b") == [1, 1]
    circle.train("c", "1", **{"gpu-memory": "1Gi"})
    circle.seconds(8)
    assert (circle.using("c"), circle.uses("b")) == (0, [1, 1])
    assert "only jobs in place" in status(circle, "c")[1]


def shared(memory: str = "20Gi", **words: int) -> Circle:
    """b trains beside a."""
    circle = fits(**words)
    circle.train("b", "1", **{"gpu-memory": memory})
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (1, 1)
    return circle


def charged(circle: Circle) -> int:
    """GPUs that the picture and shares count, of the node's."""
    nodes = circle.ledger.snapshot(circle.cluster.now)
    return int(nodes.nodes.gpus(nodes.nodes.total - nodes.free).sum())


def test_the_gpu_that_two_share_counts_once() -> None:
    circle = shared(gpus=2)
    assert len(circle.records) == 2, "b has a GPU of its own while there is one"
    circle = shared()
    assert charged(circle) == 1
    assert circle.plan.shares == {circle.key("job-a"): 1, circle.key("job-b"): 1}


def test_readers_see_one_device_that_two_jobs_use() -> None:
    circle = shared()
    snapshot = circle.ledger.snapshot(circle.cluster.now)
    view = circle.ledger.view(snapshot, circle.plan, leading=True, synced=True)
    found = cast("dict[str, Any]", cluster_view.cluster(view, lambda _: True))
    (node,) = found["nodes"]
    names = [job["name"] for job in found["jobs"]]
    assert [sorted(names[at] for at in jobs) for _, _, jobs in node["devices"]] == [["job-a", "job-b"]]
    assert [(state, count) for _, state, count in node["cells"] if count] == [("bound", 1)]
    assert [job["inPlace"]["bound"] for job in found["jobs"]] == [1, 1]
    assert found["gpus"]["bound"] == 1


def test_a_third_job_waits_and_the_pair_goes_on() -> None:
    circle = shared()
    circle.train("c", "1", **{"gpu-memory": "1Gi"})
    circle.seconds(20)
    assert [circle.using(name) for name in "abc"] == [1, 1, 0]
    assert status(circle, "c")[0] is State.WAITING


def test_when_one_ends_the_other_has_the_gpu_alone_and_the_next_sits_down_beside_it() -> None:
    for ends, stays in (("a", "b"), ("b", "a")):
        circle = shared()
        uid, made = circle.pod(stays).uid, set(circle.records)
        circle.cluster.end(circle.pod(ends).uid)
        circle.seconds(30)
        assert (circle.using(ends), circle.using(stays)) == (0, 1)
        assert circle.pod(stays).uid == uid, "its pod goes on"
        assert set(circle.records) == made, "and so does the holder"
        assert charged(circle) == 1
        circle.train("c", "1", **{"gpu-memory": "1Gi"})
        circle.seconds(10)
        assert (circle.using(stays), circle.using("c")) == (1, 1)


def test_a_partner_whose_pod_takes_its_time_to_end_costs_the_other_nothing() -> None:
    circle = shared()
    a, uid, made = circle.pod("a"), circle.pod("b").uid, set(circle.records)
    assert a.controller is not None
    circle.cluster.owners.pop(a.controller.uid)
    circle.ledger.apply(OwnerGone(a.controller.uid), circle.cluster.now)
    circle.cluster.update(circle.cluster.pods[a.uid], deleting=True, phase=Phase.ENDING)
    for _ in range(10):
        circle.second()
        assert circle.using("b") == 1
    circle.cluster.delete(a.uid)
    circle.seconds(20)
    assert (circle.using("b"), circle.pod("b").uid, set(circle.records)) == (1, uid, made)


def test_a_pair_that_needs_more_memory_than_the_gpu_has_is_refused_and_told() -> None:
    circle = fits("30Gi")
    circle.train("b", "1", **{"gpu-memory": "20Gi"})
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (1, 0)
    assert status(circle, "b") == (
        State.WAITING,
        "it is to share a GPU of n0 with another job, and needs 20480 MiB of its memory: 10240 of 40960 MiB are left",
    )
    circle.train("c", "1", **{"gpu-memory": "10Gi"})
    circle.seconds(8)
    assert [circle.using(name) for name in "abc"] == [1, 0, 1], "who fits passes who does not"


def test_a_job_that_does_not_say_what_memory_it_needs_never_shares() -> None:
    circle = fits()
    circle.train("b", "1")
    circle.seconds(8)
    assert circle.using("b") == 0
    assert "muster.dev/gpu-memory" in status(circle, "b")[1]


def test_nobody_shares_on_a_node_that_does_not_say_what_memory_its_gpus_have() -> None:
    circle = fits(of="")
    circle.train("b", "1", **{"gpu-memory": "1Gi"})
    circle.seconds(8)
    assert circle.using("b") == 0
    assert "nvidia.com/gpu.memory" in status(circle, "b")[1]


def test_jobs_that_request_gpus_never_share_on_a_cluster() -> None:
    circle = fits()
    circle.cluster.job("b", 1, **{"gpu-memory": "1Gi"})
    circle.seconds(8)
    assert circle.cluster.bound("b") == []
    assert "only jobs in place" in status(circle, "b")[1]


def test_a_pair_that_the_policy_takes_apart_goes_back_to_a_gpu_for_the_first() -> None:
    circle = shared()
    circle.ledger.profile = circle.profile = replace(circle.profile, shares=(Together(apart=True),))
    circle.seconds(20)
    assert (circle.using("a"), circle.using("b")) == (1, 0)
    assert status(circle, "b")[0] is State.WAITING


def test_muster_that_starts_again_keeps_the_pair() -> None:
    circle = shared()
    uids = {name: circle.pod(name).uid for name in "ab"}
    for _ in range(2):
        circle.restart()
        for _ in range(12):
            circle.second()
            assert (circle.using("a"), circle.using("b")) == (1, 1)
    assert {name: circle.pod(name).uid for name in "ab"} == uids
    assert all(circle.cluster.pods[uid].phase is Phase.BOUND for uid in uids.values())
