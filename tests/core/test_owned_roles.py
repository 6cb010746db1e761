# Over 300 lines: each kind of custom owner has its cases.
"""Roles that custom owners declare: which of them count, what they ask for before they have a pod, how they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from muster.types import (
    GPU,
    DeclaredRole,
    Evict,
    Owner,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    Phase,
    PodRecord,
    Role,
    Shape,
    Ungate,
)
from tests.cluster_fake import FakeCluster, Muster

LWS = "leaderworkerset.sigs.k8s.io/"


def gpus(count: int) -> Shape:
    return Shape(requests=(("cpu", 1000), (GPU, count)))


class Custom:
    """An owner of a kind that no watch of the core's delivers, and a Muster that knows it."""

    def __init__(self, *roles: DeclaredRole, nodes: int = 2, kind: str = "JobSet", **said: Any) -> None:
        self.cluster = FakeCluster(nodes=nodes)
        self.owner = Owner("example.com/v1", kind, "llm", "uid-llm")
        self.says(roles=roles, **said)
        self.muster = Muster(self.cluster)
        self.name = f"{kind.lower()}-llm"

    def says(self, **said: Any) -> None:
        record = self.cluster.owners.get(self.owner.uid, OwnerRecord(self.owner, "team"))
        self.cluster.owners[self.owner.uid] = replace(record, **said)

    def pods(self, role: str, *indexes: int, each: int = 8) -> list[PodRecord]:
        return [self.cluster.pod(self.owner, i, each, annotations={"role": role}) for i in indexes]

    def settle(self, seconds: float = 0.1) -> None:
        self.cluster.now += seconds
        self.muster.turn()  # an owner is delivered when a pod of it is known
        self.muster.settle()

    @property
    def bound(self) -> int:
        return len(self.cluster.bound("llm"))

    def roles(self) -> list[tuple[str, int, int]]:
        return [(role.name, role.min, role.max) for role in self.job.roles]

    @property
    def job(self) -> Any:
        return self.muster.ledger.snapshot(self.cluster.now).jobs[self.muster.key(self.name)]

    @property
    def says_now(self) -> str:
        status = self.muster.plan.statuses[self.muster.key(self.name)]
        return f"{status.state}: {status.message}"


def test_a_role_that_another_scheduler_starts_is_no_part_of_the_gang() -> None:
    it = Custom(DeclaredRole("driver", 1, ours=False), DeclaredRole("workers", 2))
    it.pods("workers", 0, 1)
    it.settle()
    assert (it.roles(), it.bound, it.says_now) == ([("workers", 2, 2)], 2, "Running: 2 replicas running")
    it.settle(1000)
    assert it.bound == 2, "and it is left in peace"


def test_a_role_whose_pods_admission_made_ours_counts_whatever_its_template_says() -> None:
    it = Custom(DeclaredRole("driver", 2, ours=False), DeclaredRole("workers", 1))
    it.pods("driver", 0, each=0)
    it.pods("workers", 0)
    it.settle()
    assert it.says_now == "Incomplete: 2 of 3 pods exist; missing: 1 driver"
    it = Custom(DeclaredRole("driver", 1, ours=False), DeclaredRole("workers", 1, ours=False))
    it.pods("driver", 0, each=0)
    it.settle()
    assert it.says_now == "Incomplete: 1 of 2 pods exist; missing: 1 workers"


def test_what_has_ended_by_the_owners_status_does_not_count() -> None:
    it = Custom(DeclaredRole("init", 2, done=2), DeclaredRole("node", 2, ordered=True))
    it.pods("node", 0, 1)
    it.settle()
    assert (it.roles(), it.bound) == ([("init", 0, 0), ("node", 2, 2)], 2)


def in_order(nodes: int) -> Custom:
    """A driver, and four workers of 8 GPUs which come when it runs."""
    return Custom(
        DeclaredRole("driver", 1, shape=gpus(0)),
        DeclaredRole("workers", 4, ordered=True, shape=gpus(8)),
        nodes=nodes,
    )


def test_a_role_without_a_pod_yet_has_the_shape_of_its_template_and_starts_with_the_others_or_not_at_all() -> (
    None
):
    it = in_order(nodes=3)
    it.pods("driver", 0, each=0)
    it.settle()
    assert (it.bound, it.says_now) == (
        0,
        "Waiting: needs 32 GPUs (1 driver, 4 workers): all nodes together, empty, take 3 of 4 replicas",
    )
    it = in_order(nodes=4)
    it.pods("driver", 0, each=0)
    it.settle()
    assert (it.bound, it.says_now) == (1, "Starting: waits for its owner to create 4 more pods")
    it.cluster.job("other", 1, gpus=8)
    it.settle()
    assert it.cluster.bound("other") == [], "the workers' places are theirs"
    it.pods("workers", 0, 1, 2, 3)
    it.settle()
    assert (it.bound, it.says_now) == (5, "Running: 5 replicas running")


def test_only_a_role_that_comes_in_order_is_not_waited_for() -> None:
    it = Custom(DeclaredRole("driver", 2), DeclaredRole("workers", 1, ordered=True, shape=gpus(8)))
    it.pods("driver", 0, each=0)
    it.settle()
    assert it.bound == 0
    it.pods("driver", 1, each=0)
    it.settle()
    assert it.bound == 2


def test_a_template_s_annotations_are_its_role_s_before_it_has_a_pod() -> None:
    notes = (("muster.dev/min-replicas", "2"), ("muster.dev/role", "workers"))
    workers = DeclaredRole("workers", 4, ordered=True, shape=gpus(8), notes=notes)
    it = Custom(DeclaredRole("driver", 1), workers, nodes=3)
    it.pods("driver", 0, each=0)
    it.settle()
    assert (it.roles(), it.bound) == ([("driver", 1, 1), ("workers", 2, 4)], 1)


def test_the_shape_of_a_template_counts_only_where_replicas_are_missing_and_ask_for_more() -> None:
    it = Custom(DeclaredRole("worker", 2, shape=gpus(8)), kind="LeaderWorkerSet")
    it.pods("worker", 0, each=1)
    it.settle()
    assert [role.shape.gpus for role in it.job.roles] == [8]
    it.pods("worker", 1, each=2)
    it.settle()
    assert [role.shape.gpus for role in it.job.roles] == [2]


def test_an_owner_that_may_run_with_fewer_starts_with_those() -> None:
    it = Custom(DeclaredRole("head", 1), DeclaredRole("small", 9, min=1), nodes=2)
    it.pods("head", 0, each=0)
    it.pods("small", *range(9), each=4)
    it.settle()
    assert (it.roles(), it.bound) == ([("head", 1, 1), ("small", 1, 9)], 5)


def test_a_gated_replica_of_an_owner_that_has_ended_gets_no_gpus() -> None:
    it = Custom(DeclaredRole("master", 1), DeclaredRole("worker", 1), nodes=1, kind="PyTorchJob")
    it.pods("master", 0)
    it.pods("worker", 0)
    it.settle()
    assert it.bound == 0, "one node is too few for both"
    it.says(over="Succeeded")
    it.cluster.nodes |= FakeCluster(nodes=3).nodes
    it.settle()
    assert (it.bound, it.says_now) == (0, "Finished: its PyTorchJob has ended: Succeeded")
    assert not [a for a in it.cluster.sent if isinstance(a, Ungate)]


def test_what_runs_of_an_owner_that_has_ended_is_left_to_it() -> None:
    it = Custom(DeclaredRole("worker", 2))
    first, _ = it.pods("worker", 0, 1)
    it.settle()
    it.says(over="Failed")
    it.cluster.delete(first.uid)
    it.settle(200)
    assert (it.bound, it.says_now) == (1, "Running: 1 replica running")


def test_a_completed_owner_without_pods_is_finished() -> None:
    it = Custom(DeclaredRole("worker", 2))
    for pod in it.pods("worker", 0, 1):
        it.settle()
        it.cluster.update(it.cluster.pods[pod.uid], phase=Phase.SUCCEEDED)
    it.says(over="Completed")
    it.cluster.pods.clear()
    it.settle()
    assert it.says_now == "Finished: its JobSet has ended: Completed"


def test_a_job_that_is_suspended_takes_no_place_in_the_queue_and_comes_back_with_its_submission() -> None:
    it = Custom(DeclaredRole("worker", 2), nodes=1)
    it.pods("worker", 0, 1)  # too large: it waits
    it.settle()
    submitted = it.job.submitted
    it.says(suspended=True)
    it.settle(10)
    assert (it.says_now, it.muster.plan.order) == (
        "Suspended: its owner is suspended; it goes on when that is resumed",
        (),
    )
    it.cluster.pods.clear()
    it.settle(100)
    assert (it.says_now[:9], it.roles()) == ("Suspended", [("worker", 2, 2)])
    it.muster = Muster(it.cluster)
    it.settle()
    assert (it.says_now[:9], it.roles()) == ("Suspended", [("worker", 2, 2)]), "another leader says the same"
    it.says(suspended=False)
    it.settle(10)
    assert it.says_now == "Incomplete: 0 of 2 pods exist; missing: 2 worker"
    it.pods("worker", 0, 1)
    it.settle(1)
    assert (it.job.submitted, len(it.muster.plan.order)) == (submitted, 1)


def test_a_job_of_kubernetes_that_is_suspended_is_no_finished_one() -> None:
    cluster = FakeCluster(nodes=1)
    pods = cluster.job("train", 2, gpus=4)
    muster = Muster(cluster)
    muster.settle()
    assert (muster.state("job-train"), len(cluster.bound("train"))) == ("Running", 2)
    submitted = muster.ledger.jobs[muster.key("job-train")].submitted
    owner = pods[0].controller
    assert owner is not None
    cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], size=0, suspended=True)
    cluster.pods.clear()
    muster.settle()
    assert muster.state("job-train") == "Suspended"
    cluster.owners[owner.uid] = replace(cluster.owners[owner.uid], size=2, suspended=False)
    cluster.now += 50
    for index in range(2):
        cluster.pod(owner, index, 4)
    muster.settle()
    assert muster.state("job-train") == "Running"
    assert muster.ledger.jobs[muster.key("job-train")].submitted == submitted


def test_a_job_without_pods_keeps_its_place_while_its_owner_makes_them_again() -> None:
    it = Custom(DeclaredRole("worker", 2))
    it.pods("worker", 0, 1)
    it.settle()
    submitted = it.job.submitted
    it.cluster.pods.clear()  # a failurePolicy begins again
    it.settle(60)
    it.settle(60)
    assert it.says_now == "Incomplete: 0 of 2 pods exist; missing: 2 worker"
    it.cluster.job("later", 2, gpus=8)
    it.cluster.nodes["n1"] = replace(it.cluster.nodes["n1"], unschedulable=True)
    it.settle(60)
    it.pods("worker", 0, 1)
    it.settle()
    assert it.job.submitted == submitted
    assert [key.name for key in it.muster.plan.order][:1] in ([it.name], [])


def restarting(it: Custom | None = None) -> Custom:
    """A JobSet on both nodes whose failurePolicy begins it again: its pods end; another one waits for a node."""
    if it is None:
        it = Custom(DeclaredRole("worker", 2))
        it.pods("worker", 0, 1)
        it.settle()
    it.cluster.job("later", 1, gpus=8)
    it.settle()
    for pod in list(it.cluster.pods.values()):
        if pod.name.startswith("llm"):
            it.cluster.update(pod, phase=Phase.ENDING, deleting=True)
    it.settle()
    assert it.cluster.bound("later") == []
    return it


def take(it: Custom, *uids: str) -> None:
    """Pods are gone, and nobody has made others yet."""
    for uid in uids:
        del it.cluster.pods[uid]
    it.settle()


def test_a_job_that_its_owner_begins_again_keeps_its_gpus_from_a_later_one() -> None:
    it = restarting()
    for uid in [uid for uid, pod in it.cluster.pods.items() if pod.name.startswith("llm")]:
        take(it, uid)
        assert it.cluster.bound("later") == []
    it.pods("worker", 0)
    it.settle(5)
    it.pods("worker", 1)
    it.settle()
    assert (it.bound, it.cluster.bound("later")) == (2, [])


def test_a_job_that_its_owner_begins_again_keeps_its_gpus_although_a_pod_of_it_was_placed_again_before() -> (
    None
):
    """Its whole end is its owner's doing, not ours, once it has run whole since our last eviction."""
    it = Custom(DeclaredRole("worker", 2))
    it.pods("worker", 0, 1)
    while not all(pod.pin for pod in it.cluster.pods.values()):
        it.muster.turn()
    it.cluster.nodes["n1"] = replace(it.cluster.nodes["n1"], unschedulable=True)
    it.muster.turn()
    assert [type(one) for one in it.cluster.sent].count(Evict) == 1
    it.cluster.nodes["n1"] = replace(it.cluster.nodes["n1"], unschedulable=False)
    it.settle(6)
    assert it.says_now == "Running: 2 replicas running"
    it = restarting(it)
    take(it, *[uid for uid, pod in it.cluster.pods.items() if pod.name.startswith("llm")])
    assert it.cluster.bound("later") == []


def test_a_job_whose_pods_take_long_to_end_and_come_one_by_one_keeps_its_gpus_from_a_later_one() -> None:
    it = restarting()
    for _ in range(30):
        it.settle(2)
    take(it, *[uid for uid, pod in it.cluster.pods.items() if pod.name.startswith("llm")])
    it.settle(20)
    it.pods("worker", 0)
    it.settle(20)
    it.pods("worker", 1)
    it.settle()
    assert (it.bound, it.cluster.bound("later")) == (2, [])


def test_a_job_whose_owner_is_slow_to_remove_its_jobs_and_to_make_others_keeps_its_gpus_from_a_later_one() -> (
    None
):
    it = restarting()
    take(it, *[uid for uid, pod in it.cluster.pods.items() if pod.name.startswith("llm")])
    job = OwnerRecord(Owner("batch/v1", "Job", "llm-worker-0", "job-1"), "team", size=2, parent=it.owner)
    it.cluster.owners["job-1"] = replace(job, size=0, over="Failed")
    for _ in range(10):
        it.settle(25)
    del it.cluster.owners["job-1"]
    it.settle(25)
    it.cluster.owners["job-2"] = replace(job, owner=job.owner._replace(uid="job-2"))
    it.settle(25)
    assert it.cluster.bound("later") == []
    it.settle(31)
    it.settle()
    assert len(it.cluster.bound("later")) == 1, "but not for ever"


def test_a_job_of_which_a_pod_never_ends_does_not_hold_others_for_ever() -> None:
    it = restarting()
    for _ in range(100):
        it.settle(7)
    one, *_ = [uid for uid, pod in it.cluster.pods.items() if pod.name.startswith("llm")]
    take(it, one)
    assert len(it.cluster.bound("later")) == 1


def test_a_job_that_its_owner_does_not_make_again_holds_nobody_for_long() -> None:
    it = restarting()
    take(it, *[uid for uid, pod in it.cluster.pods.items() if pod.name.startswith("llm")])
    it.settle(29)
    assert it.cluster.bound("later") == []
    it.settle(2)
    it.settle()
    assert (len(it.cluster.bound("later")), it.says_now) == (
        1,
        "Incomplete: 0 of 2 pods exist; missing: 2 worker",
    )


def test_a_job_whose_owner_goes_while_it_begins_again_holds_nobody() -> None:
    it = restarting()
    it.cluster.owners.clear()
    it.muster.ledger.apply(OwnerGone(it.owner.uid), it.cluster.now)
    take(it, *[uid for uid, pod in it.cluster.pods.items() if pod.name.startswith("llm")])
    assert len(it.cluster.bound("later")) == 1


def test_an_owner_of_another_namespace_is_nobody_s_whatever_a_pod_refers_to() -> None:
    it = Custom(DeclaredRole("worker", 2))
    forged = it.cluster.pod(it.owner, 0, namespace="other", annotations={"role": "worker"})
    assert forged.uid
    it.cluster.owners[it.owner.uid] = OwnerRecord(it.owner, "other")  # nothing is found there
    it.settle()
    it.pods("worker", 0)
    it.muster.turn()
    assert it.muster.ledger.unknown_owners == {it.owner.uid: ("team", it.owner)}
    it.says(namespace="team", roles=(DeclaredRole("worker", 2),))
    it.settle()
    assert it.says_now == "Incomplete: 1 of 2 pods exist; missing: 1 worker"


def test_a_reference_from_another_namespace_does_not_start_a_part_of_the_gang() -> None:
    """It comes before the owner has been read, so that is looked for there, where it is not."""
    cluster = FakeCluster(nodes=1)
    owner = Owner("ray.io/v1", "RayCluster", "ray", "ray-1")
    muster = Muster(cluster)
    cluster.pod(owner, 0)
    muster.turn()
    cluster.pod(owner, 0, namespace="other")
    muster.turn()
    muster.ledger.apply(OwnerSeen(OwnerRecord(owner, "other")), cluster.now)
    muster.settle(5, seconds=3.0)
    assert cluster.bound("ray") == []
    assert muster.ledger.unknown_owners == {owner.uid: ("team", owner)}
    muster.ledger.apply(
        OwnerSeen(OwnerRecord(owner, "team", roles=(DeclaredRole("headgroup", 2),))), cluster.now
    )
    muster.settle(5)
    assert muster.state("raycluster-ray") == "Incomplete"


def test_a_job_whose_owner_is_gone_is_over() -> None:
    it = Custom(DeclaredRole("worker", 2))
    it.pods("worker", 0, 1)
    it.settle()
    it.cluster.pods.clear()
    it.cluster.owners.clear()
    it.muster.ledger.apply(OwnerGone(it.owner.uid), it.cluster.now)
    it.settle()
    assert it.muster.state(it.name) == "Finished"


def test_an_owner_that_declares_too_much_makes_its_job_invalid() -> None:
    it = Custom(DeclaredRole("worker", 4611686014132420609))
    it.pods("worker", 0)
    it.settle()
    assert it.says_now == (
        "Invalid: role worker: expected at most 10 000 replicas, found 4611686014132420609 (declared by JobSet llm)"
    )


# ---- groups of a LeaderWorkerSet ----


def group(cluster: FakeCluster, top: Owner, number: int) -> list[PodRecord]:
    """A group of three, as the LeaderWorkerSet controller and its StatefulSets make it."""
    leaders = Owner("apps/v1", "StatefulSet", "serve", "uid-leaders")
    cluster.owners[leaders.uid] = OwnerRecord(leaders, "team", size=2, parent=top)
    made = [cluster.pod(leaders, 0, 4)]
    leader = Owner("v1", "Pod", made[0].name, made[0].uid)
    workers = Owner("apps/v1", "StatefulSet", f"serve-{number}", f"uid-workers-{number}")
    cluster.owners[workers.uid] = OwnerRecord(workers, "team", size=2, parent=leader)
    made += [cluster.pod(workers, index, 4) for index in (1, 2)]
    return [
        cluster.update(
            pod,
            labels={
                f"{LWS}name": "serve",
                f"{LWS}group-index": str(number),
                f"{LWS}worker-index": str(index),
            },
        )
        for index, pod in enumerate(made)
    ]


def serve() -> tuple[FakeCluster, Muster, Owner]:
    """A LeaderWorkerSet of two groups that runs."""
    cluster = FakeCluster(nodes=3)
    top = Owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "serve", "uid-serve")
    cluster.owners[top.uid] = OwnerRecord(top, "team", roles=(DeclaredRole("worker", 3),), gangs=2)
    for number in range(2):
        group(cluster, top, number)
    muster = Muster(cluster)
    muster.settle()
    return cluster, muster, top


def test_the_gang_of_a_group_belongs_to_its_leaderworkerset() -> None:
    _, muster, top = serve()
    for number in range(2):
        key = muster.key(f"leaderworkerset-serve-{number}")
        job = muster.ledger.jobs[key]
        assert (job.owner, [(role.name, role.min) for role in job.roles]) == (top, [("worker", 3)])
        assert muster.state(key.name) == "Running"


def test_a_group_that_its_leaderworkerset_still_wants_comes_back_and_one_that_it_does_not_is_over() -> None:
    cluster, muster, top = serve()
    cluster.owners[top.uid] = replace(cluster.owners[top.uid], gangs=1)
    cluster.pods.clear()
    muster.settle()
    assert muster.state("leaderworkerset-serve-0") == "Starting", (
        "its places are kept for what is about to come"
    )
    assert muster.state("leaderworkerset-serve-1") == "Finished"


def test_a_role_is_known_to_come_in_order() -> None:
    it = in_order(nodes=4)
    it.pods("driver", 0, each=0)
    it.settle()
    found: tuple[Role, ...] = it.job.roles
    assert ([role.ordered for role in found], it.job.ordered) == ([False, True], True)
