"""What is beyond its bound makes its own job Invalid, in words, wherever it was written (core/bounds.py)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from muster.core import bounds
from muster.core.bounds import AMOUNT, GPUS, HORIZON, REPLICAS, TABLE
from muster.core.gang_object import gang_codec
from muster.core.gang_object.gang_status import rfc3339
from muster.core.progress.eta import FAR, curve, outlook
from muster.core.reasons.words import clock
from muster.core.views.job_status import timestamp
from muster.core.workload.annotations import declared
from muster.points import Estimation, Profile
from muster.types import (
    GPU,
    GroupSeen,
    Job,
    JobKey,
    Owner,
    OwnerRecord,
    OwnerSeen,
    Phase,
    PodRecord,
    Reason,
    Role,
    Shape,
    State,
    Status,
)
from muster_plugins.afs_l import AfsL
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster, Muster

PROFILES = (
    Profile(),
    Profile("max-min", shares=(MaxMin(),)),
    Profile("afs-l", shares=(AfsL(),)),
)


def test_every_bound_says_its_unit_and_why_and_no_sum_of_what_is_bounded_leaves_int64() -> None:
    assert all(bound.unit and bound.why and bound.most > 0 for bound in TABLE)
    assert AMOUNT.most * 65_000 < np.iinfo(np.int64).max
    assert GPUS.most * bounds.JOB_REPLICAS.most * 10_000 < np.iinfo(np.int64).max


@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.name)
def test_an_owner_of_two_billion_replicas_is_invalid_and_the_next_tenant_starts(profile: Profile) -> None:
    cluster = FakeCluster(nodes=2)
    large = cluster.job("large", 2_147_483_647, exist=1, namespace="attacker")
    cluster.job("train", 4, gpus=2)
    muster = Muster(cluster, profile)
    muster.settle()
    assert muster.state("job-train") == "Running"
    assert muster.plan.statuses[muster.key("job-large")] == Status(
        State.INVALID,
        Reason.INVALID,
        "role worker: expected at most 10 000 replicas, found 2 147 483 647 (declared by Job large)",
    )
    assert cluster.pods[large[0].uid].node == ""


def test_the_label_of_a_job_set_is_bounded_where_the_role_is_made() -> None:
    cluster = FakeCluster()
    (pod,) = cluster.job("large", 1)
    cluster.update(pod, labels={**pod.labels, "jobset.sigs.k8s.io/replicatedjob-replicas": "9" * 63})
    muster = Muster(cluster)
    muster.settle()
    status = muster.plan.statuses[muster.key("job-large")]
    assert (status.state, status.message) == (
        State.INVALID,
        f"role worker: expected at most 10 000 replicas, found {'9' * 63} (declared by Job large)",
    )


def test_the_size_of_a_leader_worker_set_is_bounded_where_the_role_is_made() -> None:
    cluster = FakeCluster()
    pod = cluster.bare("lws-0-0", "lws")
    cluster.update(pod, annotations={"leaderworkerset.sigs.k8s.io/size": "999999999"})
    muster = Muster(cluster)
    muster.settle()
    status = muster.plan.statuses[muster.key("lws")]
    assert (status.state, status.message) == (
        State.INVALID,
        "role worker: expected at most 10 000 replicas, found 999 999 999",
    )


def test_a_pod_group_of_two_billion_is_invalid() -> None:
    cluster = FakeCluster()
    pod = cluster.bare("one", "")
    cluster.update(pod, labels={}, group="crowd")
    muster = Muster(cluster)
    muster.ledger.apply(GroupSeen("team", "crowd", 2_147_483_647), cluster.now)
    muster.settle()
    (status,) = muster.plan.statuses.values()
    assert status == Status(
        State.INVALID,
        Reason.INVALID,
        "role worker: expected at most 10 000 replicas, found 2 147 483 647",
    )


def test_twenty_thousand_roles_are_one_sentence_and_one_line_of_the_gang() -> None:
    cluster = FakeCluster()
    roles = ",".join(f"r{i}=1" for i in range(20_000))
    cluster.job("odd", 1, roles=roles, role="r1")
    muster = Muster(cluster)
    muster.settle(turns=3, seconds=3.0)
    (status,) = muster.plan.statuses.values()
    assert status.state is State.INVALID
    assert status.message.endswith(
        "muster.dev/roles: expected at most 16 384 bytes, found 'r0=1,r1=1,r2=1,r3=1,r4=1,r5=1,r6=1,r7=1,...'"
    )
    (gang,) = cluster.gangs.values()
    assert len(gang.sizes) == 1


def test_a_job_whose_pods_have_a_role_each_has_no_more_than_its_gang_can_tell() -> None:
    cluster = FakeCluster()
    for number in range(300):
        cluster.bare(f"p{number}", "odd", role=f"r{number}")
    muster = Muster(cluster)
    muster.turn()
    (status,) = muster.plan.statuses.values()
    assert status.message == "roles: expected at most 256 roles, found 300"
    assert len(muster.ledger.jobs[muster.key("odd")].roles) == 1


def test_a_request_beyond_its_bound_is_named_and_charged_as_the_whole_node() -> None:
    cluster = FakeCluster(nodes=1)
    huge = Shape(requests=(("cpu", AMOUNT.most),))
    (pod,) = cluster.job("huge", 1)
    cluster.update(pod, shape=huge, beyond="requests of cpu: too much")
    foreign = cluster.bare("by-hand", "")
    cluster.update(foreign, ours=False, shape=huge, node="n0", phase=Phase.BOUND, labels={})
    muster = Muster(cluster)
    muster.turn()
    status = muster.plan.statuses[muster.key("job-huge")]
    assert (status.state, status.message) == (State.INVALID, f"pod {pod.name}: requests of cpu: too much")
    nodes = muster.ledger.charges.columns()
    assert muster.ledger.charges.free()[0, nodes.resource_index["cpu"]] == 96_000 - AMOUNT.most


def test_sums_of_what_many_pods_ask_for_stay_numbers() -> None:
    cluster = FakeCluster(nodes=1)
    muster = Muster(cluster)
    charges = muster.ledger.charges
    charges.columns()
    for number in range(2000):
        charges.charge(number, "n0", Shape(requests=(("memory", AMOUNT.most),)), ours=False)
    free = charges.free()[0, charges.columns().resource_index["memory"]]
    assert free == (1 << 40) - 2000 * AMOUNT.most


@pytest.mark.parametrize(
    "seconds", [1e12, 1e300, math.inf, -math.inf, math.nan, -1e15, 253_402_300_800.0, 5e-324]
)
def test_no_time_whatever_is_more_than_unknown(seconds: float) -> None:
    for text in (rfc3339(seconds), timestamp(seconds), clock(seconds, 0.0)):
        assert not text or text.startswith("1970") or text == "00:00Z"


def test_an_end_in_more_than_a_hundred_years_is_told_as_unknown() -> None:
    cluster = FakeCluster()
    cluster.job("slow", 1, remaining_work="999999999999")
    muster = Muster(cluster)
    muster.settle()
    job = muster.ledger.jobs[muster.key("job-slow")]
    assert job.remaining_work == 999_999_999_999.0
    found = outlook(job, Estimation(job.remaining_work, ()), cluster.now)
    assert (found.end, found.unknown) == (None, FAR)
    near = outlook(replace(job, remaining_work=1e6), Estimation(1e6, ()), cluster.now)
    assert near.end is not None
    assert near.end - cluster.now < HORIZON.most


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("speed", "1=1,999999999999=2"),
        ("speed", "1=1e-300"),
        ("speed", ",".join(f"{count}=1" for count in range(1, 258))),
        ("remaining-work", "1e12"),
        ("topology-required", "k" * 318),
        ("model", "m" * 254),
        ("roles", "a=10001"),
        ("sizes", "1" * 4000),
    ],
)
def test_an_annotation_beyond_its_bound_is_named_in_a_sentence_of_one_screen(key: str, text: str) -> None:
    error = declared(PodRecord("u", "team", "p", annotations={f"muster.dev/{key}": text})).error
    assert error.startswith(f"pod p: muster.dev/{key}: expected ")
    assert len(error) < 400


def test_an_owner_that_shrinks_again_to_what_may_be_is_a_job_like_any_other() -> None:
    cluster = FakeCluster()
    (pod,) = cluster.job("train", REPLICAS.most + 1, exist=1)
    owner = pod.controller
    assert owner is not None
    muster = Muster(cluster)
    muster.settle()
    assert muster.state("job-train") == "Invalid"
    record = OwnerRecord(Owner(*owner), "team", size=1, completions=1)
    cluster.owners[owner.uid] = record
    muster.ledger.apply(OwnerSeen(record), cluster.now)
    muster.settle()
    assert muster.state("job-train") == "Running"
    assert GPU in dict(pod.shape.requests)


def test_owners_that_own_each_other_in_a_circle_are_no_end() -> None:
    cluster = FakeCluster()
    (pod,) = cluster.job("round", 1)
    one = pod.controller
    assert one is not None
    other = Owner("batch/v1", "Job", "other", "other-uid")
    for own, above in ((one, other), (other, one)):
        cluster.owners[own.uid] = OwnerRecord(own, "team", size=1, completions=1, parent=above)
    muster = Muster(cluster)
    muster.settle()
    assert [str(status.state) for status in muster.plan.statuses.values()] == ["Running"]


def test_the_curve_of_a_job_whose_owner_wants_none_of_it_has_no_point() -> None:
    nothing = Job(JobKey("team", "none"), roles=(Role("worker", 0, 0, Shape()),))
    assert curve(nothing, Estimation(math.nan, ())).estimated == ()


@pytest.mark.parametrize(
    "facts",
    [
        {"gpu_seconds": None},
        {"gpu_seconds": [1.0, 1.0, None]},
        {"gpu_seconds": [1e300, 1.0, 0.0]},
        {"first_start": "nan"},
        {"last_cost": "inf"},
        {"shares": [[1.0, 10**30]]},
    ],
)
def test_what_somebody_wrote_into_a_gang_and_we_never_would_is_not_believed(facts: dict[str, object]) -> None:
    assert gang_codec.from_plain({"facts": facts}) == {}
