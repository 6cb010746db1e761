"""Kubeflow's training operator as it is: its real controller makes the pods, on a lab of 4 nodes x 8 GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster, Json
from e2e.elastic import shared_by
from e2e.every_operator import (
    ELASTIC,
    MINUTES,
    TIMEOUT,
    gives_a_half_and_has_it_back,
    is_left_alone_by_restarts,
    is_left_alone_while_one_of_it_starts,
    is_scaled_beyond_the_room_and_keeps_what_runs,
    is_suspended_and_comes_back_whole,
    keeps_its_size_and_says_why,
    loses_one_that_comes_again_to_its_place,
    start_in_order_of_submission,
    starts_whole_or_not_at_all,
)
from e2e.lab import Lab
from e2e.lab.places import CHECKOUT
from e2e.operated import everything, has_state, is_left_alone, of, operated, path, pytorch_job, run
from e2e.scenario import (
    START_SECONDS,
    bound,
    configured,
    ends_now,
    job,
    planned_after,
    runs_whole,
    stays,
    wait_until,
)
from e2e.stopped_operator import (
    starts_on_places_that_are_held_for_the_rest,
    waits_for_the_last_of_its_pods_and_starts_whole,
)

pytestmark = [pytest.mark.lab, pytest.mark.operators("training-operator")]


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("training-operator") as lab:
        yield lab


def conditions(cluster: Cluster, namespace: str, name: str) -> set[str]:
    """The kinds of conditions that the operator says are true of the job."""
    status = cluster.get(path("PyTorchJob", namespace, name)).get("status") or {}
    return {one["type"] for one in status.get("conditions") or [] if one["status"] == "True"}


def rigid(name: str = "bert") -> Json:
    """All of the lab's GPUs."""
    eight = {"gpus": 8}
    return pytorch_job(name, Master=(1, eight), Worker=(3, eight))


ROLES = {"master": 1, "worker": 3}
OF_WORKERS = {"training.kubeflow.org/replica-type": "worker"}


def test_a_pytorchjob_starts_whole_or_not_at_all(cluster: Cluster, namespace: str) -> None:
    needs = "needs 32 GPUs (1 master, 3 worker)"
    starts_whole_or_not_at_all(cluster, namespace, rigid(), "kubeflow-bert", needs, ROLES)


def test_pytorchjobs_start_in_order_of_submission(cluster: Cluster, namespace: str) -> None:
    start_in_order_of_submission(cluster, namespace, rigid, "kubeflow-{}", 4)


def test_a_pytorchjob_waits_for_the_last_of_its_pods_and_starts_whole(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    waits_for_the_last_of_its_pods_and_starts_whole(
        lab,
        cluster,
        namespace,
        rigid(),
        "kubeflow-bert",
        ROLES,
        OF_WORKERS | {"training.kubeflow.org/replica-index": "2"},
        "3 of 4 pods exist; missing: 1 worker",
    )


def test_a_master_whose_operator_makes_no_workers_for_now_starts_on_their_places(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    starts_on_places_that_are_held_for_the_rest(
        lab, cluster, namespace, rigid(), "kubeflow-bert", ROLES, OF_WORKERS, 3
    )


def test_a_running_pytorchjob_is_left_alone_by_a_restart(lab: Lab, cluster: Cluster, namespace: str) -> None:
    is_left_alone_by_restarts(lab, cluster, namespace, rigid(), 4)


def test_a_pytorchjob_that_has_succeeded_is_finished_though_a_replica_of_it_waits(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Four of its five workers run; its master ends well, then these: the fifth is worth nothing any more."""
    with shared_by(lab, "max-min"):
        cluster.submit(
            pytorch_job(
                "bert",
                {"runPolicy": {"cleanPodPolicy": "None"}},
                Master=(1, {"gpus": 0}),
                Worker=(5, {"gpus": 8, "min_replicas": 1, "max_replicas": 5}),
            ),
            namespace=namespace,
        )
        running = run(cluster, namespace, {"master": 1, "worker": 4})
        ends_now(cluster, *filter(of("master"), running))
        wait_until(
            lambda: "Succeeded" in conditions(cluster, namespace, "bert"),
            what="the operator says that it has succeeded",
            also=lambda: everything(cluster, namespace),
        )
        planned_after(cluster)
        ends_now(cluster, *filter(of("worker"), running))
        has_state(cluster, namespace, "kubeflow-bert", "Finished")
        stays(cluster, lambda: bound(cluster.pods(namespace)) == [], what="what waited of it gets no GPU")


@pytest.mark.parametrize("profile", ["fifo", "max-min"])
def test_a_pytorchjob_that_is_scaled_beyond_the_room_keeps_what_runs(
    lab: Lab, cluster: Cluster, namespace: str, profile: str
) -> None:
    three = pytorch_job("bert", Master=(1, {"gpus": 0}), Worker=(3, {"gpus": 8}))
    nine = {"pytorchReplicaSpecs": {"Worker": {"replicas": 9}}}
    is_scaled_beyond_the_room_and_keeps_what_runs(
        lab, cluster, namespace, profile, three, "master", "worker", nine
    )


def test_a_pytorchjob_whose_master_another_scheduler_binds_is_left_alone(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        elsewhere = {"scheduler": None, "gpus": 0}
        cluster.submit(
            pytorch_job("bert", Master=(1, elsewhere), Worker=(4, {"gpus": 8})), namespace=namespace
        )
        pods = run(cluster, namespace, {"master": 1, "worker": 4})
        assert has_state(cluster, namespace, "kubeflow-bert", "Running")["roles"].keys() == {"worker"}
        is_left_alone(cluster, namespace, pods, 1.5 * TIMEOUT)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_pytorchjob_whose_master_takes_three_minutes_goes_on_under_a_timeout_of_two(
    cluster: Cluster, namespace: str
) -> None:
    slowly = {"gpus": 8, "annotations": {START_SECONDS: f"{MINUTES:.0f}"}}
    owner = pytorch_job("bert", Master=(1, slowly), Worker=(3, {"gpus": 8}))
    is_left_alone_while_one_of_it_starts(cluster, namespace, owner, ROLES, "master")
    assert not conditions(cluster, namespace, "bert") & {"Failed", "Restarting"}


def test_the_sample_of_pytorch_takes_what_is_free_up_to_its_maximum(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """As it is shipped, but for its volume: no claim is bound here. The operator tells torchrun the same sizes."""
    file = CHECKOUT / "config" / "samples" / "pytorch" / "pytorchjob.yaml"
    text = file.read_text().replace("persistentVolumeClaim: {claimName: pytorch}", "emptyDir: {}")
    with shared_by(lab, "max-min"):
        cluster.submit(yaml.safe_load(text), namespace=namespace)
        pods = run(cluster, namespace, {"worker": 8})
    told = [
        {one["name"]: one.get("value") for one in each.raw["spec"]["containers"][0]["env"]} for each in pods
    ]
    assert {(env["PET_NNODES"], env["PET_RDZV_BACKEND"]) for env in told} == {("1:8", "c10d")}


def test_a_suspended_pytorchjob_says_so_and_comes_back_whole(cluster: Cluster, namespace: str) -> None:
    is_suspended_and_comes_back_whole(
        cluster, namespace, rigid(), "kubeflow-bert", ROLES, lambda so: {"runPolicy": {"suspend": so}}
    )


def test_a_pytorchjob_shrinks_and_grows_and_nothing_is_counted_against_it(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    policy = {
        "runPolicy": {"backoffLimit": 3},
        "elasticPolicy": {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 8, "maxRestarts": 100},
    }
    with shared_by(lab, "max-min"):
        cluster.submit(pytorch_job("bert", policy, Worker=(8, ELASTIC)), namespace=namespace)
        for _ in range(2):
            whole, again = gives_a_half_and_has_it_back(cluster, namespace, "worker", {"worker": 8})
            stayed = {one.uid for one in whole} & {one.uid for one in again}
            assert {one.name for one in again if one.uid in stayed} == {f"bert-worker-{i}" for i in range(4)}
    assert not conditions(cluster, namespace, "bert") & {"Failed", "Restarting", "Succeeded"}


def test_an_elastic_pytorchjob_that_a_worker_less_would_fail_keeps_its_size_and_says_why(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    never = pytorch_job("bert", Worker=(8, ELASTIC))
    never["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "Never"
    why = (
        "the PyTorchJob's Worker replicas have restartPolicy Never, so one that is ended fails it; "
        'muster.dev/evictable: "true" on those pods allows it all the same'
    )
    with shared_by(lab, "max-min"):
        keeps_its_size_and_says_why(cluster, namespace, never, "kubeflow-bert", 8, why)


# --- failures -----------------------------------------------------------------------------------------------


def failing(policy: str, **run_policy: Any) -> Json:
    """A PyTorchJob of four times 8 GPUs whose replicas are restarted by this policy."""
    found = rigid()
    found["spec"]["runPolicy"] = run_policy
    for each in found["spec"]["pytorchReplicaSpecs"].values():
        each["restartPolicy"] = policy
    return found


@pytest.mark.parametrize(("policy", "code"), [("OnFailure", 1), ("ExitCode", 143)])
def test_a_worker_of_a_pytorchjob_that_fails_comes_again_to_its_place_and_the_others_go_on(
    cluster: Cluster, namespace: str, policy: str, code: int
) -> None:
    loses_one_that_comes_again_to_its_place(
        cluster,
        namespace,
        failing(policy, backoffLimit=5),
        ROLES,
        "worker",
        lambda lost: ends_now(cluster, lost, exit_code=code),
    )
    assert "Failed" not in conditions(cluster, namespace, "bert")


def test_a_pytorchjob_that_fails_for_good_is_finished_and_who_waits_has_its_gpus(
    cluster: Cluster, namespace: str
) -> None:
    cluster.submit(failing("ExitCode", cleanPodPolicy="Running"), namespace=namespace)
    before = run(cluster, namespace, ROLES)
    cluster.submit(job("later", 4, gpus=8), namespace=namespace)
    has_state(cluster, namespace, "job-later", "Waiting")
    ends_now(cluster, next(filter(of("worker"), before)), exit_code=1)
    wait_until(lambda: "Failed" in conditions(cluster, namespace, "bert"), what="it has failed")
    has_state(cluster, namespace, "kubeflow-bert", "Finished")
    runs_whole(cluster, namespace, "later", 4)
