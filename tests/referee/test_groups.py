"""The referee knows what PodGroups, LeaderWorkerSets, Volcano's Jobs and the others want bound at once."""

from __future__ import annotations

import pytest

from e2e.cluster import Json
from e2e.scenario import deployment, job, stateful_set, template
from tests.referee.history import History

NAMES: dict[str, dict[str, object]] = {
    "native": {"schedulingGroup": {"podGroupName": "mpi"}},
    "scheduler-plugins": {"labels": {"scheduling.x-k8s.io/pod-group": "mpi"}},
    "volcano": {"annotations": {"scheduling.k8s.io/group-name": "mpi"}},
}


@pytest.mark.parametrize("whose", NAMES)
def test_pods_of_a_pod_group_that_run_without_its_minimum_are_a_fault(whose: str) -> None:
    h = History()
    h.group("mpi", 3, native=whose == "native")
    for number in range(3):
        h.pod(f"mpi-{number}", **NAMES[whose])
    h.binds("mpi-0", "n0")
    h.binds("mpi-1", "n0")
    h.passes(101)
    h.binds("mpi-2", "n0")
    assert [one.partition("s: ")[2] for one in h.faults] == [
        "a/group mpi is partly bound: 2 of at least 3 worker pods run, and it has never been whole, for 101 s"
    ]
    assert h.referee.open() == []


@pytest.mark.parametrize("least", [None, "two", {}, True])
def test_pods_whose_group_nobody_makes_or_reads_start_as_they_come(least: object) -> None:
    h = History()
    if least is not None:
        h.group("mpi", least)
    h.pod("mpi-0", **NAMES["scheduler-plugins"])
    h.pod("mpi-1", **NAMES["scheduler-plugins"])
    h.binds("mpi-0", "n0")
    assert h.referee.open() == []


def test_a_group_that_is_seen_after_its_pods_counts_until_it_is_gone() -> None:
    h = History()
    h.owner(job("train", 4))
    for number in range(4):
        h.pod(f"train-{number}", "train", **NAMES["native"])
    h.binds("train-0", "n0")
    h.binds("train-1", "n0")
    told = "a/group mpi is partly bound: 2 of at least {} worker pods run, and it has never been whole"
    assert h.referee.open() == [told.format(4)]  # what their Job wants
    h.group("mpi", 3, native=True)
    assert h.referee.open() == [told.format(3)]
    h.group("mpi", 2, native=True)
    assert h.referee.open() == []
    h.group("mpi", 9, native=True)
    h.group("mpi", 9, native=True, gone=True)
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])  # it was whole with two


def test_the_annotations_of_pods_say_more_than_their_group() -> None:
    h = History()
    h.group("mpi", 3)
    for number in range(3):
        h.pod(f"mpi-{number}", labels={"scheduling.x-k8s.io/pod-group": "mpi"}, min_replicas=1)
    h.binds("mpi-0", "n0")
    assert h.referee.open() == []


def volcano(name: str, phase: str = "Running", **tasks: int) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": [{"name": k, "replicas": n, "template": template()} for k, n in tasks.items()]},
        "status": {"state": {"phase": phase}},
    }


def volcano_pod(h: History, task: str, number: int) -> str:
    name = f"net-{task}-{number}"
    notes = {"scheduling.k8s.io/group-name": "net-1", "volcano.sh/task-index": str(number)}
    h.pod(name, "net", labels={"volcano.sh/task-spec": task}, annotations=notes)
    return name


def test_volcanos_job_is_none_of_kubernetes_and_wants_all_of_its_tasks() -> None:
    h = History()
    h.owner(volcano("net", ps=1, worker=2))
    h.group("net-1", 1)  # minAvailable of a job of two tasks says nothing of either
    pods = [volcano_pod(h, task, number) for task, number in (("ps", 0), ("worker", 0), ("worker", 1))]
    for one in pods[:2]:
        h.binds(one, "n0")
    h.passes(101)
    assert [one.partition("bound: ")[2] for one in h.faults] == [
        "1 of at least 2 worker pods run, and it has never been whole, for 101 s"
    ]
    h.binds(pods[2], "n0")
    h.passes(1000)
    assert (len(h.faults), h.referee.open()) == (1, [])
    h.owner(volcano("net", "Aborting", ps=1, worker=2))
    h.deleted(pods[0])
    h.passes(1000)
    assert len(h.faults) == 1


@pytest.mark.parametrize("label", ["training.kubeflow.org/replica-index", "volcano.sh/task-index"])
def test_two_pods_of_one_index_of_an_operators_job_are_a_fault_when_they_last(label: str) -> None:
    h = History()
    h.owner(volcano("net", worker=2))
    for name in ("one", "two"):
        h.pod(name, "net", labels={label: "0"})
        h.binds(name, "n0")
    h.passes(11)
    assert [one.partition("runs ")[2] for one in h.faults] == ["2 pods of worker index 0, for 11 s"]


LWS = "leaderworkerset.sigs.k8s.io"


def lws(size: int, leader: str = "muster", replicas: int = 1) -> Json:
    group = {
        "size": size,
        "leaderTemplate": template(scheduler=leader),
        "workerTemplate": template(),
    }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve"},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": group},
    }


def lws_pods(h: History, workers: int, leader: bool = True, group: int = 0) -> list[str]:
    """As its controller makes them: leaders of one StatefulSet, and one of workers that the leader owns."""
    about = {
        "labels": {f"{LWS}/name": "serve", f"{LWS}/group-index": str(group)},
        "annotations": {f"{LWS}/size": str(workers + 1)},
    }
    h.owner(stateful_set("serve-leaders", 2), parent="serve")
    h.pod(f"serve-{group}", "serve-leaders", **about, scheduler="muster" if leader else None)
    h.owner(stateful_set(f"serve-{group}-workers", workers), parent=f"serve-{group}")
    pods = [f"serve-{group}-{number}" for number in range(1, workers + 1)]
    for one in pods:
        h.pod(one, f"serve-{group}-workers", **about)
    return [*([f"serve-{group}"] if leader else []), *pods]


def test_a_group_of_a_leaderworkerset_runs_whole() -> None:
    h = History()
    h.owner(lws(3, replicas=2))
    first, other = lws_pods(h, 2), lws_pods(h, 2, group=1)
    for one in first:
        h.binds(one, "n0")
    assert h.referee.open() == []
    h.binds(other[0], "n0")
    assert h.referee.open() == [
        "a/group 1 of serve is partly bound: 1 of at least 3 worker pods run, and it has never been whole"
    ]


def test_a_leader_of_another_scheduler_does_not_count_for_its_group() -> None:
    h = History()
    h.owner(lws(3, leader="default-scheduler"))
    for one in lws_pods(h, 2, leader=False):
        h.binds(one, "n0")
    h.passes(1000)
    assert (h.faults, h.referee.open()) == ([], [])


def test_a_leaderworkerset_of_which_nothing_waits_or_runs_is_lost() -> None:
    h = History()
    h.owner(lws(3))
    for one in lws_pods(h, 2):
        h.evicted(one)
        h.gone(one)
    h.gone("serve-0-workers")  # its owner was the leader
    h.passes(201)
    assert h.faults == ["201.0 s: LeaderWorkerSet a/serve wants pods, and none waits or runs, for 201 s"]


def test_an_mpi_job_may_make_its_launcher_last() -> None:
    h = History()
    specs = {role: {"replicas": 1, "template": template()} for role in ("Launcher", "Worker")}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": specs}
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "net"}, "spec": spec}
    h.owner(manifest)
    h.pod("net-worker-0", "net", labels={"training.kubeflow.org/replica-type": "worker"})
    h.binds("net-worker-0", "n0")
    assert h.referee.open() == []
    h.pod("net-launcher-0", "net", labels={"training.kubeflow.org/replica-type": "launcher"})
    assert len(h.referee.open()) == 1


def test_a_deployment_whose_pods_name_a_group_needs_no_more_than_its_minimum() -> None:
    h = History()
    h.group("mpi", 2)
    h.owner(deployment("web", 4))
    h.owner(deployment("web-rs", 4) | {"kind": "ReplicaSet"}, parent="web")
    for number in range(4):
        h.pod(f"web-{number}", "web-rs", **NAMES["scheduler-plugins"])
    h.binds("web-0", "n0")
    h.binds("web-1", "n0")
    assert h.referee.open() == []
