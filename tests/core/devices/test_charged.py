"""A grant in place is charged to the ResourceQuota of the job's namespace (tests/core/devices/circle.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.devices.charged import REFUSED, Allowed, allowances, anywhere
from muster.core.devices.coordinator import Coordinator
from muster.core.devices.device_ledger import DeviceLedger
from muster.core.devices.granted import Granted
from muster.core.devices.in_place import InPlace
from muster.core.state.snapshot import room
from muster.types import Job, JobKey, Member, Nodes, Phase, Quota, QuotasSeen, Reason, Role, Shape, State
from tests.cluster_fake import node
from tests.core.devices.circle import Circle

FIELD = "requests.nvidia.com/gpu"


def quota(hard: int, used: int = 0, name: str = "gpus") -> Quota:
    return Quota(name, FIELD, "nvidia.com/gpu", hard, used)


def test_a_quota_of_two_lets_a_job_that_can_use_four_have_two_and_the_job_says_so() -> None:
    circle = Circle()
    circle.quotas = (quota(2),)
    circle.train("a", "1-4")
    circle.seconds(8)
    assert circle.using("a") == 2
    status = circle.plan.statuses[circle.key("job-a")]
    assert status.state is State.RUNNING
    assert status.message.endswith(
        f"; ResourceQuota gpus allows no more ({FIELD}: hard 2, used 0, 2 in place)"
    )
    circle.quotas = (quota(3),)
    circle.seconds(8)
    assert circle.using("a") == 3


def test_a_job_that_needs_more_than_its_quota_leaves_waits_and_takes_nothing() -> None:
    circle = Circle()
    circle.quotas = (quota(5, used=3),)
    circle.train("a", "4")
    circle.seconds(8)
    status = circle.plan.statuses[circle.key("job-a")]
    assert (status.state, status.reason) == (State.WAITING, Reason.QUOTA)
    assert status.message == (
        f"needs 4 GPUs in place; ResourceQuota gpus allows no more ({FIELD}: hard 5, used 3, 0 in place)"
    )
    assert circle.cluster.pods[circle.pod("a").uid].phase is Phase.GATED
    assert circle.records == {}
    circle.quotas = (quota(5, used=1),)
    circle.seconds(8)
    assert circle.using("a") == 4


def test_all_jobs_in_place_of_a_namespace_are_charged_together() -> None:
    circle = Circle(gpus=8)
    circle.quotas = (quota(5),)
    circle.train("a", "1,2,4")
    circle.seconds(8)
    assert circle.using("a") == 4
    circle.train("b", "1,2", pods=2)
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (4, 0), "two pods need two, and one is left"
    circle.cluster.end(circle.pod("a").uid)
    circle.seconds(8)
    assert circle.uses("b") == [2, 2]


def test_what_pods_still_use_is_charged_whatever_became_of_their_job() -> None:
    circle = Circle(nodes=2)
    circle.quotas = (quota(4),)
    circle.train("a", "4")
    circle.seconds(8)
    assert circle.using("a") == 4
    notes = {**circle.pod("a").annotations, "muster.dev/gpus": "bogus"}
    circle.cluster.update(circle.pod("a"), annotations=notes)
    circle.cut.add(circle.pod("a").uid)  # and its agent gives nothing back
    circle.train("b", "1-4")
    for _ in range(20):
        circle.second()
        assert (circle.using("a"), circle.using("b")) == (4, 0)
    assert circle.plan.statuses[circle.key("job-a")].reason is Reason.INVALID
    assert circle.plan.statuses[circle.key("job-b")].message == (
        f"needs 1 GPU in place; ResourceQuota gpus allows no more ({FIELD}: hard 4, used 0, 4 in place)"
    )
    circle.gone(circle.pod("a").uid)
    circle.seconds(8)
    assert circle.using("b") == 4


def test_nobody_loses_gpus_to_a_quota_that_is_lowered() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    circle.seconds(8)
    circle.quotas = (quota(1),)
    for _ in range(20):
        circle.second()
        assert circle.using("a") == 4


def test_a_crash_of_muster_grants_nothing_beyond_a_quota() -> None:
    circle = Circle()
    circle.quotas = (quota(2),)
    circle.train("a", "1-4")
    circle.seconds(8)
    circle.restart()
    for _ in range(10):
        circle.second()
        assert circle.using("a") == 2


@pytest.mark.parametrize(("waits", "using"), [(20, 0), (40, 4)])
def test_quotas_that_cannot_be_read_hold_a_job_for_half_a_minute(
    waits: int, using: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    circle = Circle()
    monkeypatch.setattr("tests.core.devices.circle.QuotasSeen", lambda *_: QuotasSeen("another", ()))
    circle.train("a", "1-4")
    circle.seconds(waits)
    assert circle.using("a") == using
    if not using:
        assert circle.plan.statuses[circle.key("job-a")].message.endswith("are being read")


def test_quotas_that_may_not_be_read_give_nobody_more_until_they_may_and_the_job_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    circle = Circle()
    circle.train("a", "1-2")
    circle.seconds(8)
    with monkeypatch.context() as refused:
        refused.setattr(
            "tests.core.devices.circle.QuotasSeen", lambda name, _: QuotasSeen(name, (), refused=True)
        )
        circle.train("b", "1-2")
        circle.seconds(60)
        assert (circle.using("a"), circle.using("b")) == (2, 0), "nobody loses any"
        assert circle.plan.statuses[circle.key("job-b")].message.endswith(REFUSED)
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (2, 2)


def a_job(name: str, submitted: float, pods: int = 1) -> Job:
    key = JobKey("team", name)
    return Job(key, submitted=submitted, roles=(Role("worker", pods, pods, Shape()),))


def test_who_waits_has_its_least_before_others_grow_and_the_tightest_quota_counts() -> None:
    jobs = {job.key: job for job in (a_job("a", 1.0), a_job("b", 2.0, pods=2), a_job("c", 3.0))}
    a, b, c = jobs
    sizes = {a: (1, 2, 4, 8), b: (1, 2), c: (4,)}
    granted = {a: (Granted("pod-a", "n0", 2),)}
    quotas = {"team": (quota(100, name="large"), quota(9, used=3)), "other": (quota(0),)}
    quota_of = f"ResourceQuota gpus allows no more ({FIELD}: hard 9, used 3, 2 in place, "
    # 4 are left: b's two pods need 2 of them, a grows by 2, c's 4 don't fit
    assert allowances(jobs, sizes, granted, quotas, {}, anywhere) == {
        a: Allowed(4, quota_of + "2 kept for b)"),
        b: Allowed(2, quota_of + "2 kept for a)"),
        c: Allowed(0, quota_of + "2 kept for b, 2 kept for a)"),
    }


def test_nothing_but_its_least_is_kept_for_who_waits_while_others_can_grow() -> None:
    jobs = {job.key: job for job in (a_job("a", 1.0), a_job("b", 2.0), a_job("c", 3.0))}
    b = JobKey("team", "b")
    sizes = dict.fromkeys(jobs, (1, 2, 3, 4))
    granted = {b: (Granted("pod-b", "n0", 1),)}
    found = allowances(jobs, sizes, granted, {"team": (quota(5),)}, {}, anywhere)
    assert {key.name: one.gpus for key, one in found.items()} == {"a": 1, "b": 3, "c": 1}
    found = allowances(jobs, sizes, granted, {"team": (quota(8),)}, {}, anywhere)
    assert {key.name: one.gpus for key, one in found.items()} == {"a": 3, "b": 4, "c": 1}, "what b leaves"


def test_nothing_is_kept_for_a_job_to_grow_whose_node_is_full_while_others_can() -> None:
    circle = Circle(gpus=2, nodes=2)
    circle.quotas = (quota(4),)
    circle.train("first", "1-4")
    circle.seconds(8)
    assert circle.using("first") == 2, "all of its node"
    circle.train("second", "1-4")
    circle.seconds(8)
    assert (circle.using("first"), circle.using("second")) == (2, 2), "not 1, with 1 kept for first"


def test_what_a_node_has_for_growth_is_what_others_there_leave_at_their_least() -> None:
    jobs = {job.key: job for job in (a_job("a", 1.0), a_job("b", 2.0), a_job("c", 3.0))}
    a, b, c = jobs
    sizes = {a: (1, 2, 4, 8), b: (2, 3), c: (1, 4)}
    granted = {
        a: (Granted("pod-a", "n0", 2),),
        b: (Granted("pod-b", "n0", 2),),
        c: (Granted("pod-c", "n1", 1),),
    }

    def most(hard: int, **here: int) -> list[int]:
        found = allowances(jobs, sizes, granted, {"team": (quota(hard),)}, {}, anywhere, here)
        return [found[key].gpus for key in jobs]

    assert most(11, n0=8, n1=4) == [4, 3, 4], "6 could be a's: it grows to 4"
    assert most(10, n0=5, n1=4) == [2, 3, 4], "3 could be a's, and it has no such size"
    assert most(12, n0=5, n1=1) == [8, 3, 1], "what nobody else can use stays allowed"


def test_a_job_that_no_nodes_could_take_keeps_nothing_from_its_namespace() -> None:
    circle = Circle(gpus=2, nodes=4)
    circle.quotas = (quota(4),)
    circle.train("a", "4")
    circle.train("b", "1")
    circle.train("c", "1-2")
    circle.seconds(8)
    assert (circle.using("b"), circle.using("c")) == (1, 2)
    status = circle.plan.statuses[circle.key("job-a")]
    assert (status.reason, "allows no more" in status.message) == (Reason.QUOTA, True), "b and c have 3 of 4"
    circle.quotas = (quota(7),)
    circle.seconds(2)
    assert circle.plan.statuses[circle.key("job-a")].reason is Reason.NEVER_FITS


def test_a_job_whose_nodes_are_too_few_for_all_of_its_pods_keeps_nothing() -> None:
    nodes = Nodes([node("n0", 2), node("n1", 2, pool="a")])
    selects = Shape(selector=(("pool", "a"),))
    one = a_job("one", 1.0, pods=2)
    other = replace(one, roles=(replace(one.roles[0], shape=selects),))
    assert [room(nodes)(one, n) for n in (1, 2, 3)] == [4, 2, 0]
    assert [room(nodes)(other, n) for n in (1, 2)] == [2, 1]
    small = a_job("small", 2.0)
    jobs, sizes = {one.key: other, small.key: small}, {one.key: (2,), small.key: (1,)}
    found = allowances(jobs, sizes, {}, {"team": (quota(4),)}, {}, room(nodes))
    why = f"ResourceQuota gpus allows no more ({FIELD}: hard 4, used 0, 0 in place"
    assert found == {one.key: Allowed(4, why + ", 1 kept for small)"), small.key: Allowed(1, why + ")")}


def test_a_pod_that_ends_is_charged_for_what_it_has_until_it_lets_go() -> None:
    shape = Shape()
    members = (
        Member("old", "", Phase.ENDING, shape, node="n0"),
        Member("new", "", Phase.BOUND, shape, node="n1"),
    )
    a = Job(JobKey("team", "a"), submitted=1.0, roles=(Role("worker", 1, 1, shape, members=members),))
    b = a_job("b", 2.0)
    sizes = {a.key: (1, 2, 3, 4), b.key: (1, 2, 3, 4)}

    def most(hard: int, uses: dict[str, int], granted: int) -> tuple[int, int]:
        grants = {a.key: (Granted("new", "n1", granted),)} if granted else {}
        found = allowances(
            {a.key: a, b.key: b}, sizes, grants, {"team": (quota(hard),)}, {a.key: uses}, anywhere
        )
        return found[a.key].gpus, found[b.key].gpus

    assert most(4, {"old": 4}, 1) == (1, 0)
    assert most(8, {"old": 4}, 1) == (3, 1)
    assert most(4, {"new": 3}, 1) == (3, 1), "what it is to give is its own until then"
    assert most(4, {"new": 3}, 0) == (3, 1), "Muster was started again"
    assert most(4, {"old": 4, "new": 1}, 0) == (0, 0), "more is used than it may be"
    assert most(4, {}, 1) == (3, 1)


def test_pods_beyond_those_that_it_was_whole_with_are_charged_to_nobody() -> None:
    a, b = JobKey("team", "a"), JobKey("team", "b")
    scaled = Job(a, submitted=1.0, roles=(Role("worker", 2, 8, Shape(), grows=6),))
    jobs = {a: scaled, b: a_job("b", 2.0)}
    two = (Granted("pod-0", "n0", 1), Granted("pod-1", "n0", 1))
    quotas = {"team": (quota(4),)}
    why = f"ResourceQuota gpus allows no more ({FIELD}: hard 4, used 0, 2 in place"
    assert allowances(jobs, {a: (1,), b: (1, 2)}, {a: two}, quotas, {}, anywhere) == {
        a: Allowed(2, why + ", 2 kept for b)"),
        b: Allowed(2, why + ")"),
    }
    found = allowances({a: scaled}, {a: (1,)}, {}, {"team": (quota(2),)}, {}, anywhere)
    assert found[a].gpus == 2, "two pods need two, though eight are declared"
    in_place = InPlace(DeviceLedger(Coordinator(1, 0.0, 60.0, 5.0, 10.0)), {a: (1, 2)}, jobs=jobs)
    assert in_place.devices_of(a) == (0, 2, 4)


def test_without_a_quota_of_gpus_nothing_is_limited() -> None:
    jobs = {JobKey("team", "a"): a_job("a", 1.0)}
    cpus = Quota("cpus", "requests.cpu", "cpu", 1, 1)
    assert allowances(jobs, {JobKey("team", "a"): (1, 2)}, {}, {"team": (cpus,)}, {}, anywhere) == {}
    assert allowances(jobs, {JobKey("team", "a"): (1, 2)}, {}, {"team": ()}, {}, anywhere) == {}
