# Over 300 lines: each kind of owner has its cases.
"""What owners make of a job's size: which of them have one size only, and why, and evictions that were half done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.cluster.restart_policies import optional, reasons, remade
from muster.core.workload import success_policy
from muster.core.workload.disruption_budgets import allows, named, words
from muster.points import Profile
from muster.types import (
    Action,
    Budget,
    DeclaredRole,
    Event,
    Evict,
    Outcome,
    Owner,
    OwnerRecord,
    Phase,
    PodRecord,
    RestoreFinalizer,
)
from tests.cluster_fake import FakeCluster, Muster
from tests.scenario import job

LEAVING = "muster.dev/leaving"


def owned(cluster: FakeCluster, **changes: object) -> OwnerRecord:
    """The record of the one owner that the cluster has, changed."""
    ((uid, record),) = cluster.owners.items()
    cluster.owners[uid] = replace(record, **changes)  # type: ignore[arg-type]
    return cluster.owners[uid]


def roles(muster: Muster, name: str) -> list[tuple[int, int]]:
    """Least and most replicas of each role of a job."""
    return [
        (role.min, role.max)
        for role in muster.ledger.snapshot(muster.cluster.now).jobs[muster.key(name)].roles
    ]


def rigid(muster: Muster, name: str) -> str:
    return muster.ledger.snapshot(muster.cluster.now).jobs[muster.key(name)].rigid


# ---- sizes ----


def test_an_indexed_job_is_elastic_only_with_a_success_policy_and_says_so() -> None:
    cluster = FakeCluster()
    cluster.job("train", 4, min_replicas="1", max_replicas="4")
    owned(cluster, whole=True)
    muster = Muster(cluster)
    muster.settle()
    assert roles(muster, "job-train") == [(4, 4)]
    assert rigid(muster, "job-train") == (
        "Job train is Indexed without a successPolicy, so it would wait for ever for replicas that never run; "
        "a successPolicy on the leader's index makes it elastic"
    )


def test_a_job_that_asks_for_one_size_has_nothing_to_say_about_it() -> None:
    cluster = FakeCluster()
    cluster.job("train", 4)
    owned(cluster, whole=True)
    muster = Muster(cluster)
    muster.settle()
    assert (roles(muster, "job-train"), rigid(muster, "job-train")) == ([(4, 4)], "")


def test_a_job_of_a_cronjob_is_as_rigid_as_any_other() -> None:
    cluster = FakeCluster()
    cluster.job("train", 4, min_replicas="1", max_replicas="4")
    owned(cluster, whole=True, parent=Owner("batch/v1", "CronJob", "nightly", "cron"))
    muster = Muster(cluster)
    muster.settle()
    assert roles(muster, "job-train") == [(4, 4)]


def test_a_success_policy_on_a_higher_index_raises_the_minimum() -> None:
    cluster = FakeCluster()
    cluster.job("train", 4, min_replicas="1", max_replicas="4")
    owned(cluster, prefix=3)
    muster = Muster(cluster)
    muster.settle()
    assert (roles(muster, "job-train"), rigid(muster, "job-train")) == ([(3, 4)], "")


@pytest.mark.parametrize(
    ("rules", "needed"),
    [
        ([{"succeededIndexes": "0"}], 1),
        ([{"succeededIndexes": "0,2-4"}], 5),
        ([{"succeededIndexes": "0,2-4", "succeededCount": 2}], 3),
        ([{"succeededIndexes": "1-99999", "succeededCount": 3}], 4),
        ([{"succeededCount": 2}], 2),
        ([{"succeededIndexes": "3"}, {"succeededIndexes": "0"}], 1),
        ([], 0),
        ([{"succeededIndexes": "nonsense"}], 0),
    ],
)
def test_what_a_success_policy_needs_is_a_prefix(rules: list[dict[str, object]], needed: int) -> None:
    assert success_policy.prefix(rules) == needed


def jobset(optional_roles: tuple[str, ...]) -> Muster:
    """A JobSet whose workers' Job is Indexed without a successPolicy."""
    cluster = FakeCluster()
    top = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "llm", "js")
    cluster.owners["js"] = OwnerRecord(
        top, "team", roles=(DeclaredRole("workers", 4),), optional=optional_roles
    )
    child = Owner("batch/v1", "Job", "llm-workers-0", "child")
    cluster.owners["child"] = OwnerRecord(child, "team", size=4, parent=top, completions=4, whole=True)
    for index in range(4):
        made = cluster.pod(child, index, annotations={"min-replicas": "1", "max-replicas": "4"})
        labels = {**made.labels, "jobset.sigs.k8s.io/replicatedjob-name": "workers"}
        cluster.update(made, labels={**labels, "jobset.sigs.k8s.io/jobset-name": "llm"})
    muster = Muster(cluster)
    muster.settle()
    return muster


def test_a_role_that_its_jobset_does_not_wait_for_is_elastic() -> None:
    assert roles(jobset(("workers",)), "jobset-llm") == [(1, 4)]
    assert roles(jobset(()), "jobset-llm") == [(4, 4)]


def pytorch(fragile: tuple[tuple[str, str], ...], remade: str = "", **annotations: str) -> Muster:
    """A PyTorchJob of four workers that run."""
    cluster = FakeCluster()
    owner = Owner("kubeflow.org/v1", "PyTorchJob", "bert", "pt")
    cluster.owners["pt"] = OwnerRecord(
        owner, "team", roles=(DeclaredRole("worker", 4),), fragile=fragile, remade=remade
    )
    for index in range(4):
        notes = {"min_replicas": "1", "max_replicas": "4", **annotations}
        made = cluster.pod(owner, index, annotations=notes)
        cluster.update(made, tracked=False)
    muster = Muster(cluster)
    muster.settle()
    return muster


NEVER = "the PyTorchJob's Worker replicas have restartPolicy Never, so one that is ended fails it"


def test_a_job_that_fails_with_one_of_its_pods_is_rigid_and_never_ended_unless_its_owner_allows_it() -> None:
    muster = pytorch((("worker", NEVER),))
    found = muster.ledger.snapshot(muster.cluster.now).jobs[muster.key("pytorchjob-bert")]
    assert [(r.min, r.max) for r in found.roles] == [(4, 4)]
    assert found.rigid == f'{NEVER}; muster.dev/evictable: "true" on those pods allows it all the same'
    assert {m.evictable for r in found.roles for m in r.members} == {False}
    for allowed in (pytorch((("worker", NEVER),), evictable="true"), pytorch(())):
        found = allowed.ledger.snapshot(allowed.cluster.now).jobs[allowed.key("pytorchjob-bert")]
        assert [(r.min, r.max) for r in found.roles] == [(1, 4)]
        assert {m.evictable for r in found.roles for m in r.members} == {True}


REMADE = "the LeaderWorkerSet makes all of a group again"


def test_a_job_that_is_made_again_with_one_of_its_pods_is_rigid_and_may_be_ended_whole() -> None:
    for allowed, sizes in (("false", (4, 4)), ("true", (1, 4))):
        muster = pytorch((), REMADE, evictable=allowed)
        found = muster.ledger.snapshot(muster.cluster.now).jobs[muster.key("pytorchjob-bert")]
        assert [(r.min, r.max) for r in found.roles] == [sizes]
        assert found.rigid.startswith(REMADE) is (allowed == "false")
        assert {m.evictable for r in found.roles for m in r.members} == {True}


@pytest.mark.parametrize(
    ("policy", "said"),
    [(None, True), ("RecreateGroupOnPodRestart", True), ("None", False), ("Default", False)],
)
def test_which_leaderworkersets_make_a_group_again_with_one_pod(policy: str | None, *, said: bool) -> None:
    spec = {"leaderWorkerTemplate": {"size": 4, **({"restartPolicy": policy} if policy else {})}}
    assert bool(remade("LeaderWorkerSet", spec)) is said
    assert remade("PyTorchJob", spec) == ""


def kubeflow(restart: str | None, **run_policy: int) -> dict[str, object]:
    worker = {"replicas": 3, **({"restartPolicy": restart} if restart else {})}
    return {
        "pytorchReplicaSpecs": {"Master": {"replicas": 1, "restartPolicy": "OnFailure"}, "Worker": worker}
    } | ({"runPolicy": run_policy} if run_policy else {})


@pytest.mark.parametrize(
    ("kind", "spec", "fragile"),
    [
        ("PyTorchJob", kubeflow("Never"), ["worker"]),
        ("PyTorchJob", kubeflow("OnFailure"), []),
        ("PyTorchJob", kubeflow("ExitCode"), []),
        ("PyTorchJob", kubeflow(None), []),
        ("TFJob", kubeflow(None), ["worker"]),
        ("PyTorchJob", kubeflow("OnFailure", backoffLimit=0), [""]),
        ("PyTorchJob", kubeflow("OnFailure", backoffLimit=3), []),
        ("PyTorchJob", {"pytorchReplicaSpecs": None}, []),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": None}, "runPolicy": None}, []),
        ("RayCluster", {}, ["headgroup"]),
        ("Job", {"policies": [{"event": "PodEvicted", "action": "RestartJob"}]}, [""]),
        ("Job", {"policies": [{"events": ["PodFailed"], "action": "RestartTask"}]}, []),
        ("Job", {"tasks": [{"name": "W", "policies": [{"event": "*", "action": "AbortJob"}]}]}, ["w"]),
        ("JobSet", {}, []),
    ],
)
def test_which_owners_fail_with_one_pod(kind: str, spec: dict[str, object], fragile: list[str]) -> None:
    assert [role for role, _ in reasons(kind, spec)] == fragile


@pytest.mark.parametrize(
    ("policy", "free"),
    [
        (None, ()),
        ({"operator": "All", "targetReplicatedJobs": ["driver"]}, ("workers",)),
        ({"operator": "All", "targetReplicatedJobs": []}, ()),
        ({"operator": "Any"}, ("driver", "workers")),
        ({"operator": "Any", "targetReplicatedJobs": ["driver"]}, ("workers",)),
    ],
)
def test_which_roles_a_jobset_does_not_wait_for(policy: object, free: tuple[str, ...]) -> None:
    spec = {"replicatedJobs": [{"name": "driver"}, {"name": "workers"}], "successPolicy": policy}
    assert optional("JobSet", spec) == free


# ---- evictions that were begun and not done ----


def running(replicas: int = 2) -> tuple[FakeCluster, Muster, list[PodRecord]]:
    cluster = FakeCluster()
    cluster.job("train", replicas, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    cluster.sent.clear()
    return cluster, muster, sorted(cluster.pods.values(), key=lambda pod: pod.name)


def begun(cluster: FakeCluster, pod: PodRecord, **changes: object) -> None:
    cluster.update(pod, tracked=False, annotations={LEAVING: "true"}, **changes)


def test_the_next_leader_puts_the_finalizer_back_on_a_pod_that_stays() -> None:
    cluster, _, pods = running()
    begun(cluster, pods[1])
    after = Muster(cluster)
    after.settle()
    assert [(type(a), a.pod) for a in cluster.sent if isinstance(a, RestoreFinalizer | Evict)] == [
        (RestoreFinalizer, pods[1].name)
    ]
    again = cluster.pods[pods[1].uid]
    assert (again.tracked, again.annotations) == (True, {})


@pytest.mark.parametrize("state", [{}, {"suspended": True}], ids=["made smaller", "suspended"])
def test_a_pod_that_its_job_controller_is_about_to_delete_gets_no_finalizer_back(
    state: dict[str, Any],
) -> None:
    """It takes the finalizer off first. With ours in between its Job would count a failure: JobSets failed by that
    when they were suspended."""
    cluster, _, pods = running()
    owned(cluster, size=1, **state)
    cluster.update(pods[0], tracked=False)
    Muster(cluster).settle()
    assert [a for a in cluster.sent if isinstance(a, RestoreFinalizer | Evict)] == []


@pytest.mark.parametrize(
    ("state", "puts"), [({"suspended": True}, [RestoreFinalizer]), ({"over": "Complete"}, [])]
)
def test_a_suspended_job_counts_its_pods_too_and_one_that_is_over_none(
    state: dict[str, Any], puts: list[type]
) -> None:
    cluster, _, pods = running()
    begun(cluster, pods[0])
    owned(cluster, size=0, **state)
    Muster(cluster).turn()
    assert [type(a) for a in cluster.sent if isinstance(a, RestoreFinalizer)] == puts


def test_the_next_leader_finishes_an_eviction_that_is_still_wanted() -> None:
    cluster = FakeCluster()
    cluster.job("train", 2, gpus=4)
    muster = Muster(cluster)
    muster.turn()
    muster.turn()  # the gates are off, and nothing is bound yet
    lost = next(pod for pod in cluster.pods.values() if pod.pin == "n0")
    del cluster.nodes["n0"]
    begun(cluster, lost)
    cluster.sent.clear()
    after = Muster(cluster)
    after.turn()
    first = next(a for a in cluster.sent if isinstance(a, Evict | RestoreFinalizer))
    assert isinstance(first, Evict)
    assert (first.uid, first.tracked, first.by_job) == (lost.uid, False, True)


def test_a_pod_that_succeeded_in_between_is_given_back_to_be_counted() -> None:
    cluster, _, pods = running()
    begun(cluster, pods[0], phase=Phase.SUCCEEDED)
    Muster(cluster).settle()
    assert [(type(a), a.pod) for a in cluster.sent if isinstance(a, RestoreFinalizer)] == [
        (RestoreFinalizer, pods[0].name)
    ]


def test_what_its_job_has_counted_and_what_is_on_its_way_out_is_left_alone() -> None:
    cluster, _, pods = running()
    cluster.update(pods[0], tracked=False, phase=Phase.SUCCEEDED)
    begun(cluster, pods[1], deleting=True, phase=Phase.ENDING)
    Muster(cluster).settle()
    assert [a for a in cluster.sent if isinstance(a, RestoreFinalizer | Evict)] == []


@pytest.mark.parametrize("gone", [True, False])
def test_a_job_that_is_over_or_gone_counts_nothing_and_gets_no_finalizer_back(gone: bool) -> None:
    cluster, _, pods = running()
    begun(cluster, pods[0])
    if gone:
        cluster.owners.clear()
    else:
        owned(cluster, size=0)
    Muster(cluster).settle()
    assert [a for a in cluster.sent if isinstance(a, RestoreFinalizer)] == []


def test_a_worker_that_we_ended_has_not_finished_the_work_queue_whatever_its_exit_code() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("queue", 4, gpus=4, min_replicas="1", max_replicas="4")
    owned(cluster, completions=None, queue=True)
    muster = Muster(cluster)
    muster.settle()
    runs = [pod for pod in cluster.pods.values() if pod.phase is Phase.BOUND]
    begun(cluster, runs[1], deleting=True, phase=Phase.SUCCEEDED)
    cluster.sent.clear()
    muster.turn()
    assert [a for a in cluster.sent if isinstance(a, Evict)] == []
    cluster.update(runs[0], tracked=False, phase=Phase.SUCCEEDED)  # this one did
    muster.turn()
    assert [a for a in cluster.sent if isinstance(a, Evict)]


# ---- budgets ----


class Guarded(FakeCluster):
    """A budget lets so many replicas of one job go, and says its sentence to the others."""

    allowed = 2
    name = "low"

    def carry_out(self, action: Action) -> list[Event]:
        if isinstance(action, Evict) and action.pod.startswith(self.name):
            if not self.allowed:
                self.sent.append(action)
                return [Outcome(action, 429, REFUSED)]
            self.allowed -= 1
        return super().carry_out(action)


def test_a_gang_that_a_budget_lets_go_only_in_part_gets_that_part_back_and_is_let_be() -> None:
    cluster = Guarded(nodes=1)
    cluster.job("low", 4, gpus=2)
    muster = Muster(cluster, Profile(preemption=True))
    muster.settle()
    cluster.now += 1
    cluster.job("high", 4, gpus=2, priority=10)
    muster.settle(40)
    assert len([a for a in cluster.sent if isinstance(a, Evict)]) == 4, "each was asked for once"
    runs = [pod for pod in cluster.pods.values() if pod.phase is Phase.BOUND]
    assert sorted(pod.name.split("-")[0] for pod in runs) == ["low"] * 4
    found = muster.ledger.snapshot(cluster.now).jobs[muster.key("job-low")]
    assert found.shrink_blocked_by == REFUSED
    assert muster.state("job-high") == "Waiting"
    muster.turn(seconds=3.0)  # nobody reads the budget here
    told = [s.message for s in cluster.said if s.reason == "DisruptionBudget"]
    assert told == [REFUSED] * 2  # on its pod and on its owner


REFUSED = "The disruption budget keep needs 4 healthy pods and has 4 currently"
SHRUNK = job("train", worker=8, gpus=1, least=2, most=8, on=["n0"] * 4)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (
            Budget("keep", 4, 4, 8, 0, number=4),
            "wants 4 healthy pods and 4 are; give it minAvailable as a number: 2",
        ),
        (Budget("keep", 2, 2, 8, 0, number=2), "wants 2 healthy pods and 2 are"),
        (
            Budget("keep", 7, 4, 8, 0),
            "counts the 4 replicas behind Muster's gate as disrupted (it wants 7 healthy",
        ),
        (
            Budget("keep", 0, 0, 0, 0, failed="jobs.batch does not implement the scale subresource"),
            "allows no eviction, because it can't be worked out (jobs.batch does not implement the scale",
        ),
    ],
)
def test_what_a_budget_keeps_is_said_in_words(budget: Budget, said: str) -> None:
    assert named(REFUSED) == "keep"
    assert words(REFUSED, [budget], SHRUNK).startswith(f"PodDisruptionBudget keep {said}")


def test_an_unread_budget_speaks_for_itself_and_several_are_a_mistake() -> None:
    assert words(REFUSED, [], SHRUNK) == REFUSED
    assert words("This pod has more than one PodDisruptionBudget, which ...", [], SHRUNK) == (
        "several PodDisruptionBudgets select its pods, and then the API server evicts none: leave only one"
    )


def test_a_budget_that_allows_again_or_is_gone_ends_the_wait() -> None:
    assert not allows(REFUSED, [Budget("keep", 4, 4, 8, 0), Budget("other", 0, 1, 1, 1)])
    assert allows(REFUSED, [Budget("keep", 4, 5, 8, 1)])
    assert allows(REFUSED, [Budget("other", 0, 1, 1, 0)])
    assert not allows("several", [])


def ending(cluster: FakeCluster, **last: object) -> Muster:
    """A job of four on all GPUs whose leader has just ended as `last` says, another pod is deleted and two are not
    yet; behind it wait one of four and one of one."""
    made = cluster.job("train", 4, remaining_work="600")
    uid = owned(cluster, prefix=1).owner.uid
    muster = Muster(cluster, Profile(order="backfill"))
    muster.settle()
    cluster.now += 60.0
    cluster.job("head", 4)
    cluster.now += 1.0
    cluster.job("small", 1)
    muster.settle()
    leader = cluster.pods[made[0].uid]
    labels = {**leader.labels, "batch.kubernetes.io/controller-uid": uid}
    cluster.update(leader, **{"phase": Phase.SUCCEEDED, "labels": labels, **last})
    cluster.update(cluster.pods[made[1].uid], phase=Phase.ENDING, deleting=True)
    muster.settle()
    return muster


def test_a_job_whose_success_policy_is_met_is_no_head_of_the_queue_while_its_pods_are_ended() -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = ending(cluster)
    assert {name: muster.state(name) for name in ("job-head", "job-small")} == {
        "job-head": "Waiting",
        "job-small": "Waiting",
    }
    for one in [p for p in cluster.pods.values() if p.name.startswith("train-") and not p.phase.ended]:
        cluster.pods.pop(one.uid)
    muster.settle()
    assert muster.state("job-head") == "Running"


def test_all_gpus_of_a_job_whose_success_policy_is_met_are_about_to_be_free() -> None:
    """Its controller has ended one of its pods so far, and will end the other two."""
    cluster = FakeCluster(nodes=1, gpus=4)
    train = (muster := ending(cluster)).ledger.snapshot(cluster.now).jobs[muster.key("job-train")]
    assert (train.over, train.bound, train.started) == ("its Job's successPolicy is met", 0, False)
    assert [member.phase for member in train.roles[0].on] == [Phase.ENDING] * 3


@pytest.mark.parametrize("first", ["status", "finalizer"])
def test_a_job_stays_over_whatever_is_seen_first_of_how_its_controller_ends_it(first: str) -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = ending(cluster)
    for what in ("status", "finalizer") if first == "status" else ("finalizer", "status"):
        if what == "status":
            cluster.owners |= {
                uid: replace(record, over="SuccessCriteriaMet")
                for uid, record in cluster.owners.items()
                if record.prefix
            }
        else:
            (leader,) = (pod for pod in cluster.pods.values() if pod.phase is Phase.SUCCEEDED)
            cluster.update(leader, tracked=False)
        muster.settle()
        assert muster.ledger.snapshot(cluster.now).jobs[muster.key("job-train")].bound == 0
        assert muster.state("job-head") == "Waiting"


@pytest.mark.parametrize("other", ["job", "bare"])
def test_pods_that_are_not_the_jobs_are_not_about_to_end_with_it(other: str) -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    driver, uid = cluster.job("driver", 1)[0], owned(cluster, prefix=1).owner.uid
    made = (
        cluster.job("workers", 2) if other == "job" else [cluster.bare(f"side-{n}", "both") for n in range(2)]
    )
    pods = [cluster.update(pod, labels={**pod.labels, "muster.dev/job": "both"}) for pod in [driver, *made]]
    muster = Muster(cluster)
    muster.settle()
    assert muster.state("both") == "Running"
    labels = {**pods[0].labels, "batch.kubernetes.io/controller-uid": uid}
    cluster.update(cluster.pods[driver.uid], phase=Phase.SUCCEEDED, labels=labels)
    muster.settle()
    both = muster.ledger.snapshot(cluster.now).jobs[muster.key("both")]
    assert (both.over, both.bound) == ("its Job's successPolicy is met", 2)


@pytest.mark.parametrize(
    "last",
    [
        {"tracked": False, "deleting": True},  # ended by a suspension
        {"labels": {"batch.kubernetes.io/job-completion-index": "0"}},  # not made by the Job's controller
    ],
)
def test_a_success_policy_is_met_by_pods_only_that_the_job_counts(last: dict[str, object]) -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = ending(cluster, **last)
    assert not muster.ledger.snapshot(cluster.now).jobs[muster.key("job-train")].over


def test_a_job_that_is_suspended_as_its_leader_ends_well_is_suspended() -> None:
    cluster = FakeCluster(nodes=1, gpus=4)
    muster = ending(cluster)
    (uid,) = (uid for uid, record in cluster.owners.items() if record.prefix)
    cluster.owners[uid] = replace(cluster.owners[uid], suspended=True)
    for one in [p for p in cluster.pods.values() if p.name.startswith("train-")]:
        muster.settle()
        cluster.pods.pop(one.uid)
    muster.settle()
    assert muster.state("job-train") == "Suspended"
    assert not muster.ledger.snapshot(cluster.now).jobs[muster.key("job-train")].over
