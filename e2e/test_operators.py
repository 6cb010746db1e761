# Over 300 lines: its scenarios share one lab with the operators; another file would start another.
"""JobSet and Kubeflow Trainer as they are: their real controllers make the pods, on a lab of 4 nodes x 8 GPUs.

What is judged is what pods do; what the Gang says is looked at where a user reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster, Json, Pod, Refused
from e2e.elastic import shared_by
from e2e.kind.left_out import OPERATORS
from e2e.lab import Lab
from e2e.lab.places import CHECKOUT
from e2e.operated import (
    everything,
    gives_all_back,
    has_state,
    is_left_alone,
    jobset,
    of,
    operated,
    path,
    role,
    run,
    runtime,
    submit,
    train_job,
)
from e2e.scenario import (
    PATIENCE,
    bound,
    configured,
    ends_now,
    gang,
    job,
    pod,
    stays,
    wait_until,
    waits_because,
)

OWN_LAB = OPERATORS
pytestmark = pytest.mark.lab

TIMEOUT = 8.0
"""Seconds of gang.timeout where it is what a scenario is about."""
LONGER = 20.0
"""Seconds for which pods run, or others wait for them, where that is to be longer than the timeout."""


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("jobset", "trainer") as lab:
        yield lab


@pytest.fixture
def short(lab: Lab) -> Iterator[None]:
    """A gang that isn't whole a few seconds after its first pod was bound goes back to the gate."""
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        yield


def restarts(cluster: Cluster, namespace: str, name: str) -> int:
    """What JobSet has counted against its failurePolicy."""
    return int((cluster.get(path("JobSet", namespace, name)).get("status") or {}).get("restarts", 0))


def jobset_of(one: Pod) -> str:
    return one.labels["jobset.sigs.k8s.io/jobset-name"]


def suspend(cluster: Cluster, kind: str, namespace: str, name: str, suspended: bool) -> None:
    where = (
        path(kind, namespace, name) if kind != "Job" else f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}"
    )
    cluster.patch(where, {"spec": {"suspend": suspended}})


# --- the lab's ----------------------------------------------------------------------------------------------


def test_operators_run_as_processes_of_the_lab_with_their_webhooks(
    lab: Lab, cluster: Cluster, namespace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused, match=r'(?s)admission webhook "vjobset.kb.io" denied.*cannot depend on'):
        cluster.submit(jobset("wrong", worker=role(1, depends_on={"nobody": "Ready"})), namespace=namespace)
    lab.kill("trainer")
    lab.pause("jobset")
    lab.up(lab.shape)
    said = capfd.readouterr().err
    assert "trainer was not running" in said
    assert "jobset was paused" in said
    submit(cluster, namespace, runtime("plain"), train_job("small", "plain", nodes=2, gpus=1))
    run(cluster, namespace, {"node": 2})
    assert '"small"' in lab.log("trainer").read_text()


# --- whole or not at all ------------------------------------------------------------------------------------


def test_of_two_jobsets_that_want_the_same_room_one_runs_whole_and_the_other_waits_whole(
    cluster: Cluster, namespace: str
) -> None:
    cluster.submit(
        jobset("first", driver=role(1, gpus=8), workers=role(1, replicas=2, gpus=8)),
        jobset("second", driver=role(1, gpus=8), workers=role(1, replicas=2, gpus=8)),
        namespace=namespace,
    )
    whole = run(cluster, namespace, {"driver": 1, "workers": 2})
    (winner,) = {jobset_of(one) for one in whole}
    waiting = {"first": "second", "second": "first"}[winner]
    has_state(cluster, namespace, f"jobset-{waiting}", "Waiting")
    stays(cluster, lambda: len(bound(cluster.pods(namespace))) == 3, what="the other waits whole")
    cluster.delete(path("JobSet", namespace, winner), propagationPolicy="Background")
    wait_until(
        lambda: [jobset_of(one) for one in bound(cluster.pods(namespace))] == [waiting] * 3,
        what=f"then {waiting} runs whole",
        also=lambda: everything(cluster, namespace),
    )


@pytest.mark.parametrize(
    ("name", "policy", "depends_on"),
    [
        ("inorder", {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, None),
        ("depends", {}, {"driver": "Ready"}),
    ],
    ids=["in-order", "depends-on-ready"],
)
def test_a_driver_whose_workers_come_later_waits_until_there_is_room_for_these_too(
    cluster: Cluster, namespace: str, name: str, policy: Json, depends_on: Mapping[str, str] | None
) -> None:
    holder = cluster.submit(pod("holder", gpus=8), namespace=namespace)[0]
    wait_until(lambda: bound(cluster.pods(namespace), 1), what="the holder runs")
    workers = role(3, gpus=8, depends_on=depends_on)
    cluster.submit(jobset(name, policy, driver=role(1, gpus=8), workers=workers), namespace=namespace)
    waits_because(cluster, namespace, f"jobset-{name}", "needs 32 GPUs (1 driver, 3 workers)")
    stays(
        cluster,
        lambda: [one.name for one in bound(cluster.pods(namespace))] == ["holder"],
        what="nothing of it starts while there is room for a part of it",
    )
    cluster.delete_pod(Pod(holder))
    run(cluster, namespace, {"driver": 1, "workers": 3})
    assert restarts(cluster, namespace, name) == 0


# --- whose pods aren't ours, and who comes later --------------------------------------------------------------


def trained_after(steps: Sequence[str], **initializer: Any) -> Json:
    """A runtime with these initializers, whose nodes come when they are complete."""
    each = {"run_seconds": LONGER, **initializer}
    return runtime("prepared", initializers=dict.fromkeys(steps, each))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("scheduler", [None, "muster"], ids=["of-the-default-scheduler", "ours"])
def test_a_trainjob_starts_whole_after_initializers_that_take_longer_than_the_timeout(
    cluster: Cluster, namespace: str, scheduler: str | None
) -> None:
    steps = ("dataset-initializer", "model-initializer")
    submit(
        cluster,
        namespace,
        trained_after(steps, scheduler=scheduler),
        train_job("tune", "prepared", nodes=4, gpus=8),
    )
    first = run(cluster, namespace, dict.fromkeys(steps, 1))
    nodes = run(cluster, namespace, {"node": 4}, within=LONGER + PATIENCE)
    ended = {one.uid: one.phase for one in cluster.pods(namespace) if one.terminal}
    assert ended == {one.uid: "Succeeded" for one in first}
    is_left_alone(cluster, namespace, nodes, 1.5 * TIMEOUT)
    assert restarts(cluster, namespace, "tune") == 0


@pytest.mark.usefixtures("short")
def test_a_jobset_whose_driver_another_scheduler_binds_is_left_alone(
    cluster: Cluster, namespace: str
) -> None:
    driver, workers = role(1, scheduler=None, gpus=0), role(2, replicas=2, gpus=8)
    cluster.submit(jobset("mixed", driver=driver, workers=workers), namespace=namespace)
    pods = run(cluster, namespace, {"driver": 1, "workers": 4})
    assert has_state(cluster, namespace, "jobset-mixed", "Running")["roles"].keys() == {"workers"}
    is_left_alone(cluster, namespace, pods, 1.5 * TIMEOUT)
    assert restarts(cluster, namespace, "mixed") == 0


@pytest.mark.usefixtures("short")
def test_a_driver_that_is_slow_to_be_ready_is_not_sent_back_for_workers_that_wait_for_it(
    cluster: Cluster, namespace: str
) -> None:
    driver = role(1, gpus=8, annotations={"e2e.muster.dev/start-seconds": f"{LONGER:.0f}"})
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    cluster.submit(jobset("slow", in_order, driver=driver, workers=role(3, gpus=8)), namespace=namespace)
    first = run(cluster, namespace, {"driver": 1})
    pods = run(cluster, namespace, {"driver": 1, "workers": 3}, within=LONGER + PATIENCE)
    assert [one.uid for one in pods if of("driver")(one)] == [one.uid for one in first]
    assert restarts(cluster, namespace, "slow") == 0


SAMPLES = CHECKOUT / "config" / "samples" / "pytorch"


@pytest.mark.parametrize(("file", "role_name"), [("jobset.yaml", "workers"), ("trainjob.yaml", "node")])
def test_a_sample_of_pytorch_takes_what_is_free_up_to_its_maximum(
    lab: Lab, cluster: Cluster, namespace: str, file: str, role_name: str
) -> None:
    """As it is shipped, but for its volume: no claim is bound here."""
    text = (SAMPLES / file).read_text().replace("persistentVolumeClaim: {claimName: pytorch}", "emptyDir: {}")
    with shared_by(lab, "max-min"):
        submit(cluster, namespace, *yaml.safe_load_all(text))
        run(cluster, namespace, {role_name: 8})


# --- ends, suspension, restarts -------------------------------------------------------------------------------


def test_a_jobset_and_a_trainjob_that_are_complete_are_finished(cluster: Cluster, namespace: str) -> None:
    driver_decides = {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["driver"]}}
    submit(
        cluster,
        namespace,
        jobset("llm", driver_decides, driver=role(1, gpus=4, run_seconds=2), workers=role(3, gpus=4)),
        runtime("quick", run_seconds=2),
        train_job("tune", "quick", nodes=2, gpus=8),
    )
    names = ("jobset-llm", "trainjob-tune")
    for name in names:
        assert has_state(cluster, namespace, name, "Finished")["gpus"] == 0
    stays(
        cluster,
        lambda: {gang(cluster, namespace, name)["state"] for name in names} == {"Finished"},
        what="both are finished",
    )
    gives_all_back(cluster, namespace)


@pytest.mark.parametrize("kind", ["Job", "JobSet", "TrainJob"])
def test_what_is_suspended_says_so_gives_its_gpus_to_others_and_comes_back_whole(
    cluster: Cluster, namespace: str, kind: str
) -> None:
    objects = {
        "Job": [job("a", 4, gpus=8)],
        "JobSet": [jobset("a", workers=role(4, gpus=8))],
        "TrainJob": [runtime("plain"), train_job("a", "plain", nodes=4, gpus=8)],
    }[kind]
    name = f"{kind.lower()}-a"
    submit(cluster, namespace, *objects)
    before = wait_until(lambda: bound(cluster.pods(namespace), 4), what="all four run")
    suspend(cluster, kind, namespace, "a", True)
    has_state(cluster, namespace, name, "Suspended")
    gives_all_back(cluster, namespace)
    cluster.submit(job("other", 4, gpus=8), namespace=namespace)
    others = wait_until(
        lambda: bound(cluster.pods(namespace, "other"), 4),
        what="the other has its GPUs",
        also=lambda: everything(cluster, namespace),
    )
    suspend(cluster, kind, namespace, "a", False)
    has_state(cluster, namespace, name, "Waiting")
    ends_now(cluster, *others)
    earlier = {one.uid for one in (*before, *others)}  # the others are still bound for a moment
    wait_until(
        lambda: bound((one for one in cluster.pods(namespace) if one.uid not in earlier), 4),
        what="it runs whole again, with new pods",
        also=lambda: everything(cluster, namespace),
    )
    has_state(cluster, namespace, name, "Running")


@pytest.mark.parametrize(
    ("rounds", "policy"),
    [
        (4, {"maxRestarts": 4}),
        (2, {"maxRestarts": 2, "restartStrategy": "BlockingRecreate"}),
        (1, {"maxRestarts": 0, "rules": [{"name": "again", "action": "RestartJobSetAndIgnoreMaxRestarts"}]}),
    ],
    ids=["recreate", "blocking-recreate", "not-counted"],
)
def test_a_jobset_that_its_failure_policy_restarts_keeps_its_place_in_the_queue(
    cluster: Cluster, namespace: str, rounds: int, policy: Json
) -> None:
    policy = {"failurePolicy": policy}
    driver, workers = role(1, gpus=8), role(3, gpus=8)
    cluster.submit(jobset("first", policy, driver=driver, workers=workers), namespace=namespace)
    whole = {"driver": 1, "workers": 3}
    pods = run(cluster, namespace, whole)
    cluster.submit(jobset("later", workers=role(2, gpus=8)), namespace=namespace)
    has_state(cluster, namespace, "jobset-later", "Waiting")
    for number in range(rounds):
        before = {one.uid for one in pods}
        ends_now(cluster, next(one for one in pods if of("workers")(one)), exit_code=1)
        wait_until(
            lambda number=number: restarts(cluster, namespace, "first") == number + 1,  # type: ignore[misc]
            what=f"JobSet has restarted it {number + 1} times",
        )
        wait_until(
            lambda before=before: before.isdisjoint(one.uid for one in cluster.pods(namespace)),  # type: ignore[misc]
            what="JobSet has made new pods",
        )
        pods = run(cluster, namespace, whole)
        assert {jobset_of(one) for one in pods} == {"first"}
        assert len(pods) == 4
    status = gang(cluster, namespace, "jobset-later")
    assert (status["state"], status.get("started")) == ("Waiting", None)


def test_a_jobset_that_its_failure_policy_ends_is_finished_and_who_waits_has_its_gpus(
    cluster: Cluster, namespace: str
) -> None:
    fatal = {"name": "fatal", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}
    policy = {"failurePolicy": {"maxRestarts": 3, "rules": [fatal]}}
    driver, workers = role(1, gpus=8), role(3, gpus=8)
    cluster.submit(jobset("first", policy, driver=driver, workers=workers), namespace=namespace)
    pods = run(cluster, namespace, {"driver": 1, "workers": 3})
    cluster.submit(jobset("later", workers=role(4, gpus=8)), namespace=namespace)
    has_state(cluster, namespace, "jobset-later", "Waiting")
    ends_now(cluster, next(one for one in pods if of("workers")(one)), exit_code=1)
    has_state(cluster, namespace, "jobset-first", "Finished")
    later = run(cluster, namespace, {"workers": 4})
    assert {jobset_of(one) for one in later} == {"later"}
    assert restarts(cluster, namespace, "first") == 0


def test_the_gang_of_a_jobset_goes_with_it(cluster: Cluster, namespace: str) -> None:
    cluster.submit(jobset("llm", workers=role(2, gpus=8)), namespace=namespace)
    run(cluster, namespace, {"workers": 2})
    has_state(cluster, namespace, "jobset-llm", "Running")
    cluster.delete(path("JobSet", namespace, "llm"), propagationPolicy="Background")
    wait_until(
        lambda: not cluster.gangs(namespace) and not cluster.pods(namespace),
        what="neither its pods nor its Gang are there",
        also=lambda: everything(cluster, namespace),
    )


def test_a_trainjob_that_an_older_version_named_after_its_jobset_keeps_that_name_until_it_ends(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    gangs = f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/gangs"
    submit(cluster, namespace, runtime("plain"), train_job("tune", "plain", nodes=2, gpus=8))
    pods = run(cluster, namespace, {"node": 2})
    has_state(cluster, namespace, "trainjob-tune", "Running")
    new = cluster.gangs(namespace)["trainjob-tune"]
    assert (new["spec"]["owner"]["kind"], new["spec"]["declaredBy"]["kind"]) == ("TrainJob", "JobSet")
    assert [one["kind"] for one in new["metadata"]["ownerReferences"]] == ["TrainJob"]

    # as the older version had it
    lab.kill("muster-0")
    below = new["spec"]["declaredBy"]
    muster = Cluster(lab.folder / "kubeconfig" / "muster")  # nobody else may write Gangs
    muster.delete(f"{gangs}/trainjob-tune")
    old = {
        "apiVersion": new["apiVersion"],
        "kind": "Gang",
        "metadata": {"name": "jobset-tune", "namespace": namespace, "ownerReferences": [below]},
        "spec": {"job": "jobset-tune", "uid": below["uid"], "owner": below},
        "status": new["status"],
    }
    muster.submit(old, namespace=namespace)
    lab.start("muster-0")
    stays(
        cluster,
        lambda: list(cluster.gangs(namespace)) == ["jobset-tune"],
        what="it keeps its name",
        also=lambda: everything(cluster, namespace),
    )
    assert {one.uid for one in bound(cluster.pods(namespace))} == {one.uid for one in pods}

    ends_now(cluster, *pods)
    has_state(cluster, namespace, "jobset-tune", "Finished")
    submit(cluster, namespace, train_job("next", "plain", nodes=2, gpus=8))
    has_state(cluster, namespace, "trainjob-next", "Running")
    assert set(cluster.gangs(namespace)) == {"jobset-tune", "trainjob-next"}


# --- shares -------------------------------------------------------------------------------------------------


def test_a_jobset_and_a_trainjob_shrink_and_grow_and_nothing_is_counted_against_them(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Room for 8 replicas of 4 GPUs: 1 driver and 7 workers of the JobSet, or fewer beside the TrainJob."""
    driver_decides = {"successPolicy": {"operator": "All", "targetReplicatedJobs": ["driver"]}}
    elastic: dict[str, Any] = {"min_replicas": 1, "max_replicas": 7}
    with shared_by(lab, "max-min"):
        cluster.submit(
            jobset("llm", driver_decides, driver=role(1, gpus=4), workers=role(7, gpus=4, **elastic)),
            namespace=namespace,
        )
        alone = {"driver": 1, "workers": 7}
        for _ in range(2):
            grown = run(cluster, namespace, alone)
            node = {"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
            submit(
                cluster,
                namespace,
                runtime("elastic", job_spec=node, **elastic),
                train_job("tune", "elastic", nodes=7, gpus=4),
            )
            shared = wait_until(
                lambda: evenly(bound(cluster.pods(namespace))),
                what="each has its half",
                also=lambda: everything(cluster, namespace),
            )
            stayed = {one.uid for one in grown if one.uid in {each.uid for each in shared}}
            assert len(stayed) == sum(not of("node")(one) for one in shared)
            for kind in ("TrainJob", "TrainingRuntime"):
                name = "tune" if kind == "TrainJob" else "elastic"
                cluster.delete(path(kind, namespace, name), propagationPolicy="Background")
        run(cluster, namespace, alone)
    assert restarts(cluster, namespace, "llm") == 0
    jobs = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
    counted = {one["metadata"]["name"]: one["status"].get("failed", 0) for one in jobs}
    assert (
        counted.items() >= {"llm-driver-0": 0, "llm-workers-0": 0}.items()
    )  # the TrainJob's may not be gone yet
    assert set(counted.values()) == {0}


def evenly(pods: Sequence[Pod]) -> list[Pod]:
    """These pods, if all room is used and both jobs have half of it, whether the driver is counted or not."""
    nodes = sum(map(of("node"), pods))
    return list(pods) if len(pods) == 8 and nodes in (3, 4) else []
