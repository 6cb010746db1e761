# Over 300 lines: its scenarios share one lab with the operators; another file would start another.
"""JobSet and Kubeflow Trainer as they are: their real controllers make the pods, on a lab of 4 nodes x 8 GPUs.

What is judged is what pods do; what the Gang says is looked at where a user reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster, Json, Pod, Refused
from e2e.elastic import indexes, shared_by
from e2e.every_operator import gives_a_half_and_has_it_back, start_in_order_of_submission
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
    but_missing,
    configured,
    ends_now,
    gang,
    gated,
    in_state,
    job,
    pod,
    said,
    stays,
    wait_until,
    waits_because,
)
from e2e.test_admission import Kubectl
from e2e.test_report import heard

RUNS_ON_KIND = True
pytestmark = pytest.mark.lab

TIMEOUT = 8.0
"""Seconds of gang.timeout where it is what a scenario is about."""
LONGER = 20.0
"""Seconds for which pods run, or others wait for them, where that is to be longer than the timeout."""
MINUTES = 180.0
"""The same for the timeout that Muster has where nobody says another, 2 minutes."""


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


def test_jobsets_start_in_order_of_submission(cluster: Cluster, namespace: str) -> None:
    start_in_order_of_submission(
        cluster,
        namespace,
        lambda name: jobset(name, driver=role(1, gpus=8), workers=role(3, gpus=8)),
        "jobset-{}",
        4,
    )


def test_trainjobs_start_in_order_of_submission(cluster: Cluster, namespace: str) -> None:
    submit(cluster, namespace, runtime("plain"))
    start_in_order_of_submission(
        cluster, namespace, lambda name: train_job(name, "plain", nodes=4, gpus=8), "trainjob-{}", 4
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


@pytest.fixture
def patient(lab: Lab) -> Iterator[None]:
    """However long JobSet takes between two Jobs, Muster takes it to be at work."""
    with configured(lab, gang={"ownerPause": "1h"}):
        yield


@pytest.mark.usefixtures("patient")
def test_a_jobset_starts_when_the_pods_of_all_its_jobs_exist(cluster: Cluster, namespace: str) -> None:
    """A quota of Jobs stops its controller in the middle."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "jobs"},
        "spec": {"hard": {"count/jobs.batch": "2"}},
    }
    where = f"/api/v1/namespaces/{namespace}/resourcequotas/jobs"
    cluster.submit(quota, namespace=namespace)
    wait_until(lambda: (cluster.get(where).get("status") or {}).get("hard"), what="the quota is in force")
    cluster.submit(jobset("llm", driver=role(1), workers=role(2, replicas=2)), namespace=namespace)
    wait_until(
        lambda: (
            in_state(cluster, namespace, "jobset-llm", "Incomplete").get("message")
            == "3 of 5 pods exist; missing: 2 workers"
        ),
        what="it says what is missing",
        also=lambda: everything(cluster, namespace),
    )
    stays(cluster, lambda: len(gated(cluster.pods(namespace))) == 3, what="nothing of it starts")
    cluster.patch(where, {"spec": {"hard": {"count/jobs.batch": "3"}}})
    run(cluster, namespace, {"driver": 1, "workers": 4})
    roles = has_state(cluster, namespace, "jobset-llm", "Running")["roles"]
    assert {name: (one["min"], one["bound"]) for name, one in roles.items()} == {
        "driver": (1, 1),
        "workers": (4, 4),
    }
    assert list(cluster.gangs(namespace)) == ["jobset-llm"]


def test_a_jobset_that_does_not_fit_waits_whole_and_its_owner_is_told(
    cluster: Cluster, namespace: str
) -> None:
    holder = cluster.submit(pod("holder", gpus=8), namespace=namespace)[0]
    wait_until(lambda: bound(cluster.pods(namespace), 1), what="the holder runs")
    cluster.submit(jobset("llm", driver=role(1, gpus=0), workers=role(4, gpus=8)), namespace=namespace)
    waits_because(cluster, namespace, "jobset-llm", "needs 32 GPUs (1 driver, 4 workers)")
    assert len(gated(cluster.pods(namespace))) == 5
    sentence = "Resources: needs 32 GPUs (1 driver, 4 workers); 3 of 4 workers replicas fit now"
    wait_until(
        lambda: sentence in but_missing(said(cluster, namespace, "llm")),
        what="the JobSet's Event says so",
        also=lambda: str(said(cluster, namespace, "llm")),
    )
    cluster.delete_pod(Pod(holder))
    run(cluster, namespace, {"driver": 1, "workers": 4})


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


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ordered_starts_of_three_minutes_go_on_under_a_timeout_of_two(
    cluster: Cluster, namespace: str
) -> None:
    """With gang.timeout as it is: one whose workers come when its driver is ready, by order and by dependsOn, and one
    whose nodes come when its initializers are complete."""
    driver = {"gpus": 4, "annotations": {"e2e.muster.dev/start-seconds": f"{MINUTES:.0f}"}}
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    rest = role(2, gpus=4, depends_on={"head": "Ready"})
    steps = ("dataset-initializer", "model-initializer")
    submit(
        cluster,
        namespace,
        jobset("order", in_order, driver=role(1, **driver), workers=role(2, gpus=4)),
        jobset("depends", head=role(1, **driver), rest=rest),
        trained_after(steps, run_seconds=MINUTES),
        train_job("tune", "prepared", nodes=2, gpus=4),
    )
    first = run(cluster, namespace, {"driver": 1, "head": 1, **dict.fromkeys(steps, 1)})
    held = {one.uid for one in first if of("driver")(one) or of("head")(one)}
    whole = {"driver": 1, "workers": 2, "head": 1, "rest": 2, "node": 2}
    pods = run(cluster, namespace, whole, within=MINUTES + PATIENCE)
    assert held <= {one.uid for one in pods}
    is_left_alone(cluster, namespace, pods, 150.0)
    assert [restarts(cluster, namespace, name) for name in ("order", "depends", "tune")] == [0, 0, 0]


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


def test_a_jobset_and_a_trainjob_keep_the_size_that_they_were_made_with(
    cluster: Cluster, namespace: str
) -> None:
    """So none is scaled beyond the room: JobSet's and Trainer's admission refuse it."""
    submit(
        cluster,
        namespace,
        jobset("llm", workers=role(2, gpus=8)),
        runtime("plain"),
        train_job("tune", "plain", nodes=2, gpus=8),
    )
    run(cluster, namespace, {"workers": 2, "node": 2})
    larger = {
        "JobSet": ("llm", jobset("llm", workers=role(9, gpus=8))["spec"]),
        "TrainJob": ("tune", {"trainer": {"numNodes": 9}}),
    }
    for kind, (name, spec) in larger.items():
        with pytest.raises(Refused, match="field is immutable"):
            cluster.patch(path(kind, namespace, name), {"spec": spec})


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


def test_a_trainjob_that_its_runtime_restarts_keeps_its_place_until_its_restarts_are_used_up(
    cluster: Cluster, namespace: str
) -> None:
    """The failurePolicy of its runtime's JobSet; Trainer has none of its own."""
    once = {"failurePolicy": {"maxRestarts": 1}}
    submit(
        cluster,
        namespace,
        runtime("again", jobset_spec=once, job_spec={"backoffLimit": 0}),
        train_job("tune", "again", nodes=4, gpus=8),
    )
    first = run(cluster, namespace, {"node": 4})
    cluster.submit(jobset("later", workers=role(4, gpus=8)), namespace=namespace)
    has_state(cluster, namespace, "jobset-later", "Waiting")
    ends_now(cluster, first[-1], exit_code=1)
    wait_until(lambda: restarts(cluster, namespace, "tune") == 1, what="JobSet has restarted it")
    wait_until(
        lambda: {one.uid for one in first}.isdisjoint(one.uid for one in cluster.pods(namespace)),
        what="JobSet has made new pods",
    )
    again = run(cluster, namespace, {"node": 4})
    status = gang(cluster, namespace, "jobset-later")
    assert (status["state"], status.get("started")) == ("Waiting", None)
    ends_now(cluster, again[-1], exit_code=1)
    has_state(cluster, namespace, "trainjob-tune", "Finished")
    run(cluster, namespace, {"workers": 4})
    assert "Failed" in {
        one["type"]
        for one in cluster.get(path("TrainJob", namespace, "tune"))["status"]["conditions"]
        if one["status"] == "True"
    }


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
        for _ in range(5):
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
        nothing_is_counted(cluster, namespace, "llm", "driver", "workers")


def test_a_trainjob_grows_and_shrinks_and_nothing_is_counted_against_it(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """A node that is told to leave ends as if it were done, by exit code 0."""
    node = {"backoffLimit": 0, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    elastic: dict[str, Any] = {"min_replicas": 1, "exit_on_term": 0}
    with shared_by(lab, "max-min"):
        submit(
            cluster,
            namespace,
            runtime("elastic", job_spec=node, **elastic),
            train_job("tune", "elastic", nodes=8, gpus=4),
        )
        for _ in range(2):
            whole, again = gives_a_half_and_has_it_back(cluster, namespace, "node", {"node": 8})
            assert len({one.uid for one in whole} & {one.uid for one in again}) == 4
        nothing_is_counted(cluster, namespace, "tune", "node")
        ends_now(cluster, next(one for one in again if indexes([one]) == [0]))
        has_state(cluster, namespace, "trainjob-tune", "Finished")


def nothing_is_counted(cluster: Cluster, namespace: str, name: str, *roles: str) -> None:
    """Neither JobSet nor the controllers of its Jobs take what Muster ended for failures or successes."""
    assert restarts(cluster, namespace, name) == 0
    jobs = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
    statuses = {one["metadata"]["name"]: one.get("status") or {} for one in jobs}
    for one in (statuses[f"{name}-{role_name}-0"] for role_name in roles):
        assert (one.get("failed", 0), one.get("succeeded", 0)) == (0, 0)


def evenly(pods: Sequence[Pod]) -> list[Pod]:
    """These pods, if all room is used and both jobs have half of it, whether the driver is counted or not."""
    nodes = sum(map(of("node"), pods))
    return list(pods) if len(pods) == 8 and nodes in (3, 4) else []


# --- what admission says of JobSets --------------------------------------------------------------------------

MIN: dict[str, Any] = {"min_replicas": 2}
TOO_FEW = "replicated job workers has muster.dev/min-replicas below its parallelism"


def decided_by(name: str) -> Json:
    return {"successPolicy": {"operator": "All", "targetReplicatedJobs": [name]}}


@pytest.mark.parametrize("policy", [{}, decided_by("workers")], ids=["by-all", "by-the-workers"])
def test_a_jobset_that_waits_for_all_of_its_elastic_role_is_a_warning(cluster: Cluster, policy: Json) -> None:
    kubectl = Kubectl(cluster.kubeconfig, "default")
    made = jobset("llm", policy, driver=role(1), workers=role(4, **MIN))
    wait_until(  # the API server follows its policies with a delay of its own
        lambda: TOO_FEW in kubectl.ask(made).said,
        what="it is let pass with a warning",
        also=lambda: kubectl.ask(made).said,
    )


@pytest.mark.parametrize(
    ("workers", "warned"),
    [(role(4, success_on="0", **MIN), True), (role(4), False)],
    ids=["elastic", "rigid"],
)
def test_an_elastic_jobset_in_a_queue_of_kueues_is_a_warning(
    cluster: Cluster, workers: Json, warned: bool
) -> None:
    kubectl = Kubectl(cluster.kubeconfig, "default")
    made = jobset("llm", driver=role(1), workers=workers)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    wait_until(
        lambda: ("waitForPodsReady is on, Kueue ends it" in kubectl.ask(made).said) is warned,
        what="it is let pass with a warning, or without",
        also=lambda: kubectl.ask(made).said,
    )


@pytest.mark.parametrize(("least", "warned"), [("2", True), ("4", False)], ids=["elastic", "rigid"])
def test_a_trainjob_in_a_queue_of_kueues_that_its_patches_make_elastic_is_a_warning(
    cluster: Cluster, namespace: str, least: str, warned: bool
) -> None:
    """What its runtime says of sizes stands on another object, which admission doesn't see."""
    submit(cluster, namespace, runtime("plain"))
    kubectl = Kubectl(cluster.kubeconfig, namespace)
    made = train_job("tune", "plain", nodes=4, gpus=1)
    made["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    body = {"metadata": {"annotations": {"muster.dev/min-replicas": least}}}
    jobs = [{"name": "node", "template": {"spec": {"template": body}}}]
    patch = {
        "manager": "team.example/sizes",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    made["spec"]["runtimePatches"] = [patch]
    wait_until(
        lambda: ("waitForPodsReady is on, Kueue ends it" in kubectl.ask(made).said) is warned,
        what="it is let pass with a warning, or without",
        also=lambda: kubectl.ask(made).said,
    )


def in_any_order(pods: int, **what: Any) -> Json:
    """A role whose Job is a work queue."""
    found = role(pods, **what)
    found["template"]["spec"]["completionMode"] = "NonIndexed"
    return found


@pytest.mark.parametrize(
    ("policy", "workers"),
    [
        (decided_by("driver"), role(4, **MIN)),
        ({}, role(4, success_on="0", **MIN)),
        ({}, in_any_order(4, **MIN)),
        ({}, role(4, scheduler=None, **MIN)),
    ],
    ids=["by-the-driver", "by-the-leader", "work-queue", "of-another-scheduler"],
)
def test_a_jobset_that_can_be_resized_passes_without_a_word(
    cluster: Cluster, policy: Json, workers: Json
) -> None:
    answer = Kubectl(cluster.kubeconfig, "default").ask(
        jobset("llm", policy, driver=role(1), workers=workers)
    )
    assert (answer.ok, answer.said) == (True, "")


# --- reports ------------------------------------------------------------------------------------------------


def test_the_status_that_kubeflow_trainer_keeps_is_a_report(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    submit(cluster, namespace, runtime("plain"), train_job("tune", "plain", nodes=2, gpus=8))
    run(cluster, namespace, {"node": 2})
    told = {"progressPercentage": 45, "lastUpdatedTime": "2026-11-21T23:00:00Z"}
    loss = [{"name": "loss", "value": "0.2347"}]
    where = f"{path('TrainJob', namespace, 'tune')}/status"
    cluster.patch(where, {"status": {"trainerStatus": told | {"metrics": loss}}})
    wait_until(
        lambda: heard(lab, cluster, namespace, "trainjob-tune") == {"step": 45, "total": 100, "loss": 0.2347},
        within=240,  # a minute until the API is looked for again
        what="muster has heard it",
        also=lambda: everything(cluster, namespace),
    )
