# Over 300 lines: each fault that the referee finds has a history of its own.
"""The referee finds gangs that are partly bound, doubled, too large or lost, and nothing of what may be."""

from __future__ import annotations

import pytest

from e2e.scenario import job, stateful_set, template
from tests.referee.history import History


def test_a_gang_that_starts_whole_is_no_fault() -> None:
    h = History()
    h.node("n0")
    for pod in h.gang("train", 3):
        h.binds(pod, "n0")
        h.passes(30)
    assert h.referee.open() == []
    h.passes(1000)
    assert h.faults == []


def test_a_gang_of_which_a_part_is_bound_is_open_at_once_and_a_fault_in_the_end() -> None:
    h = History()
    h.gang("train", 3)
    h.binds("train-0", "n0")
    told = "a/Job train is partly bound: 1 of at least 3 worker pods run, and it has never been whole"
    assert h.referee.open() == [told]
    h.passes(100)
    assert h.faults == []
    h.passes(1)
    h.passes(1)
    assert h.faults == [f"101.0 s: {told}, for 101 s"]


def test_a_start_that_goes_back_to_the_gate_whole_is_no_fault() -> None:
    h = History()
    h.gang("train", 2)
    h.binds("train-0", "n0")
    h.passes(90)
    h.evicted("train-0")
    h.gone("train-0")
    h.passes(1000)
    assert h.faults == []
    assert h.referee.open() == []


def elastic(h: History) -> None:
    h.gang("train", 4, min_replicas=1, max_replicas=4)
    for index in range(4):
        h.binds(f"train-{index}", "n0")


def successor_of_0(h: History) -> None:
    h.pod("train-0-again", "train", labels={"batch.kubernetes.io/job-completion-index": "0"})


@pytest.mark.parametrize(
    ("waits", "faults"), [(80, []), (91, ["a/Job train runs without worker index 0, for 91 s"])]
)
def test_a_job_that_goes_on_without_its_index_0_is_a_fault_in_the_end(waits: int, faults: list[str]) -> None:
    h = History()
    elastic(h)
    h.evicted("train-0")
    h.passes(200)  # it takes its time to end
    h.gone("train-0")
    successor_of_0(h)
    h.passes(waits)
    h.binds("train-0-again", "n0")
    h.passes(200)
    assert [one.partition("s: ")[2] for one in h.faults] == faults
    assert h.referee.open() == []


def test_an_index_0_that_has_ended_well_is_not_waited_for() -> None:
    h = History()
    elastic(h)
    h.ends("train-0")
    h.passes(1000)
    assert h.faults == []


def kubeflow(name: str, **replicas: int) -> dict[str, object]:
    specs = {role: {"replicas": count, "template": template()} for role, count in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": specs},
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_a_role_with_too_few_while_another_runs_is_a_fault_also_with_none_at_all(workers: int) -> None:
    h = History()
    h.owner(kubeflow("net", Master=1, Worker=4))
    for role, number in [("master", 0), *(("worker", n) for n in range(workers))]:
        h.pod(f"net-{role}-{number}", "net", labels={"training.kubeflow.org/replica-type": role})
    h.binds("net-master-0", "n0")
    h.passes(101)
    assert [one.partition("bound: ")[2] for one in h.faults] == [
        "0 of at least 4 worker pods run, and it has never been whole, for 101 s"
    ]


def jobset(name: str, in_order: bool, scheduler: str = "muster") -> dict[str, object]:
    def part(role: str, count: int, **what: str) -> dict[str, object]:
        return {"name": role, "replicas": 1, "template": {"spec": job("x", count, **what)["spec"]}}

    order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}} if in_order else {}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [part("driver", 1, scheduler=scheduler), part("workers", 4)], **order},
    }


def test_a_role_that_its_owner_creates_later_is_no_fault_until_its_pods_are_there_and_wait() -> None:
    h = History()
    h.owner(jobset("set", in_order=True))
    h.owner(job("set-driver", 1), parent="set")
    h.pod("set-driver-0", "set-driver", labels={"jobset.sigs.k8s.io/replicatedjob-name": "driver"})
    h.binds("set-driver-0", "n0")
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])
    h.owner(job("set-workers", 4), parent="set")
    for index in range(4):
        h.pod(
            f"set-workers-{index}", "set-workers", labels={"jobset.sigs.k8s.io/replicatedjob-name": "workers"}
        )
    h.binds("set-workers-0", "n0")
    h.passes(101)
    assert len(h.faults) == 1
    assert "a/JobSet set is partly bound: 1 of at least 4 workers pods run" in h.faults[0]


def test_a_role_of_another_scheduler_does_not_count() -> None:
    h = History()
    h.owner(jobset("set", in_order=False, scheduler="default-scheduler"))
    h.owner(job("set-workers", 4), parent="set")
    for index in range(4):
        h.pod(f"w-{index}", "set-workers", labels={"jobset.sigs.k8s.io/replicatedjob-name": "workers"})
        h.binds(f"w-{index}", "n0")
    assert h.referee.open() == []


def test_the_owner_that_is_seen_after_its_pods_and_children_is_theirs_all_the_same() -> None:
    h = History()
    h.owner(jobset("set", in_order=False))
    reference = h._reference("set")
    h.gone("set")
    h.owner(job("set-driver", 1, labels={"jobset.sigs.k8s.io/replicatedjob-name": "driver"}))
    child = h._there["set-driver"]
    child["metadata"]["ownerReferences"] = [reference]
    h.referee.saw("Job", child, h.at)
    h.pod("set-driver-0", "set-driver", labels={"jobset.sigs.k8s.io/replicatedjob-name": "driver"})
    h.binds("set-driver-0", "n0")
    assert h.referee.open() == []
    h.owner(jobset("set", in_order=False))
    assert h.referee.open() == [
        "a/JobSet set is partly bound: 0 of at least 4 workers pods run, and it has never been whole"
    ]


def test_an_owner_that_asks_for_more_than_runs_is_no_fault() -> None:
    h = History()
    h.apps("web", 2)
    for name in ("web-0", "web-1"):
        h.pod(name, "web-rs")
        h.binds(name, "n0")
    h.apps("web", 20)
    h.pod("web-2", "web-rs")
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])
    h.deleted("web-1")  # but below what it was whole with it is one
    assert h.referee.open() == [
        "a/Deployment web is partly bound: 1 of at least 2 worker pods run, and it was whole before"
    ]


def test_what_its_owner_asks_for_less_of_lowers_what_must_run() -> None:
    h = History()
    h.apps("web", 3)
    for number in range(3):
        h.pod(f"web-{number}", "web-rs")
        h.binds(f"web-{number}", "n0")
    h.apps("web", 1)
    h.deleted("web-1")
    h.deleted("web-2")
    h.apps("web", 3)
    h.pod("web-3", "web-rs")
    assert h.referee.open() == []


def test_an_elastic_job_may_run_with_its_minimum_and_not_with_less_nor_more_than_its_maximum() -> None:
    h = History()
    pods = h.gang("train", 4, min_replicas=2, max_replicas=3)
    h.binds(pods[0], "n0")
    assert len(h.referee.open()) == 1
    h.binds(pods[1], "n0")
    h.binds(pods[2], "n0")
    assert h.referee.open() == []
    h.binds(pods[3], "n0")
    h.passes(1)
    assert h.faults == ["0.0 s: a/Job train runs 4 worker pods of at most 3"]


def test_members_that_have_succeeded_count_as_there_also_when_they_are_gone() -> None:
    h = History()
    first, second = h.gang("train", 2)
    h.binds(first, "n0")
    h.binds(second, "n0")
    h.ends(first)
    h.gone(first)
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])


@pytest.mark.parametrize("condition", ["SuccessCriteriaMet", "FailureTarget", "Suspended"])
def test_a_job_that_is_over_may_end_one_pod_after_the_other(condition: str) -> None:
    h = History()
    first, second = h.gang("train", 2)
    h.binds(first, "n0")
    h.binds(second, "n0")
    h.over("train", condition)
    h.deleted(first)
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])


def test_a_job_that_is_deleted_may_end_one_pod_after_the_other() -> None:
    h = History()
    first, second = h.gang("train", 2)
    h.binds(first, "n0")
    h.binds(second, "n0")
    h.gone("train")
    h.deleted(first)
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])


def test_a_member_that_its_owner_has_to_make_again_is_waited_for() -> None:
    h = History()
    first, second = h.gang("train", 2)
    h.binds(first, "n0")
    h.binds(second, "n0")
    h.ends(second, "Failed")
    h.gone(second)
    h.passes(1000)  # its Job backs off
    assert (h.faults, h.referee.open()) == ([], [])
    h.pod("train-1-again", "train")
    h.passes(101)
    assert len(h.faults) == 1


def test_an_ordered_stateful_set_is_waited_for() -> None:
    h = History()
    h.owner(stateful_set("ps", 3, ordered=True))
    h.pod("ps-0", "ps")
    h.binds("ps-0", "n0")
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])


def test_two_pods_of_one_index_that_both_run_are_a_fault_unless_one_is_on_its_way_out() -> None:
    h = History()
    h.owner(job("train", 2))
    label = {"batch.kubernetes.io/job-completion-index": "0"}
    for name in ("one", "two"):
        h.pod(name, "train", labels=label)
        h.binds(name, "n0")
    h.passes(11)
    assert h.faults == ["11.0 s: a/Job train runs 2 pods of worker index 0, for 11 s"]
    h = History()
    h.owner(job("train", 1))
    h.pod("one", "train", labels=label)
    h.binds("one", "n0")
    h.evicted("one")
    h.pod("two", "train", labels=label)
    h.binds("two", "n0")
    h.passes(11)
    assert h.faults == []


def test_more_pods_than_their_owner_wants_are_a_fault_when_they_last() -> None:
    h = History()
    h.apps("web", 1)
    for name in ("web-0", "web-1"):
        h.pod(name, "web-rs")
        h.binds(name, "n0")
    h.passes(9)
    assert h.faults == []
    h.passes(2)
    assert [one.partition("s: ")[2] for one in h.faults] == [
        "ReplicaSet a/web-rs runs 2 pods and wants 1, for 11 s"
    ]


def test_a_job_of_which_nothing_waits_or_runs_is_lost() -> None:
    h = History()
    (pod,) = h.gang("train", 1)
    h.passes(1000)  # it waits
    h.evicted(pod)
    h.gone(pod)
    h.passes(200)
    assert h.faults == []
    h.passes(1)
    assert h.faults == ["1201.0 s: Job a/train wants pods, and none waits or runs, for 201 s"]


@pytest.mark.parametrize("why", ["suspended", "failed", "another scheduler's", "over"])
def test_a_job_without_pods_is_not_lost_where_somebody_else_is_why(why: str) -> None:
    h = History()
    manifest = job("train", 1, scheduler="default-scheduler" if why == "another scheduler's" else "muster")
    manifest["spec"]["suspend"] = why == "suspended"
    manifest["status"] = {"failed": 1} if why == "failed" else {}
    h.owner(manifest)
    if why == "over":
        h.over("train")
    h.passes(1000)
    assert h.faults == []


def test_what_a_scenario_announced_is_no_fault() -> None:
    h = History(announced=("train is partly bound",))
    h.gang("train", 2)
    h.binds("train-0", "n0")
    h.passes(101)
    assert (h.faults, len(h.referee.announced)) == ([], 1)


def test_an_owner_of_a_shape_that_nobody_expects_says_nothing() -> None:
    h = History()
    odd = {"apiVersion": "x/v1", "metadata": {"name": "odd"}, "spec": {"replicatedJobs": [{"name": "a"}]}}
    h.owner(odd | {"kind": "JobSet"})
    h.owner(odd | {"kind": "RayCluster", "spec": {"workerGroupSpecs": [3]}})
    h.pod("one", "odd")
    h.binds("one", "n0")
    assert (h.faults, h.referee.open()) == ([], [])


def test_an_owner_that_is_seen_before_the_one_above_it_is_not_lost_for_that() -> None:
    told, h = History(), History()
    told.apps("web", 1)
    for name in ("web-rs", "web"):
        h.referee.saw(told._there[name]["kind"], told._there[name], h.at)
    h._there.update(told._there)
    h.pod("web-0", "web-rs")
    h.binds("web-0", "n0")
    h.passes(1000)
    assert h.faults == []
