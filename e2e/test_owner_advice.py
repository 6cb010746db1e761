"""What admission says of owners that can't be resized, or otherwise than their authors may think; nothing is refused.

Each row of the table "What to set on each kind" (charts/README.md) that a policy can see, asked with
--dry-run=server. What is said of JobSets is asked where JobSet's own definition is: test_operators.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.cluster import Cluster, Json
from e2e.operators import custom, serve, withdraw
from e2e.scenario import deployment, job, stateful_set, template, wait_until
from e2e.test_admission import Answer, Kubectl

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Cluster]]:
    found: dict[str, Cluster] = {}
    yield found
    for name, cluster in found.items():
        withdraw(cluster, name)


@pytest.fixture
def kubectl(cluster: Cluster, made: dict[str, Cluster]) -> Kubectl:
    made |= dict.fromkeys(serve(cluster), cluster)
    return Kubectl(cluster.kubeconfig, "default")


ELASTIC: dict[str, Any] = {"min_replicas": 2}


def said_of(kubectl: Kubectl, manifest: Json) -> str:
    """The warnings of a create that is let pass; a definition that is new takes the API server a moment."""

    def allowed() -> Answer | None:
        answer = kubectl.ask(manifest)
        return answer if answer.ok else None

    return wait_until(allowed, what="it is let pass", also=lambda: kubectl.ask(manifest).said).said


def pytorch(restart: str | None, run_policy: Json | None = None, **what: Any) -> Json:
    worker: Json = {"replicas": 4, "template": template(**(ELASTIC | what))}
    if restart is not None:
        worker["restartPolicy"] = restart
    specs = {"Master": {"replicas": 1, "template": template()}, "Worker": worker}
    return custom("PyTorchJob", "bert", {"pytorchReplicaSpecs": specs, "runPolicy": run_policy or {}})


def ray(**head: Any) -> Json:
    spec = {
        "headGroupSpec": {"template": template(**head)},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": 4, "template": template(**ELASTIC)}],
    }
    return custom("RayCluster", "ray", spec)


def lws(restart: str | None = None, **what: Any) -> Json:
    group: Json = {"size": 4, "workerTemplate": template(**(ELASTIC | what))}
    if restart is not None:
        group["restartPolicy"] = restart
    return custom("LeaderWorkerSet", "serve", {"replicas": 2, "leaderWorkerTemplate": group})


def elastic(**what: Any) -> Json:
    return job("train", 4, min_replicas=2, **what)


def in_a_queue(manifest: Json) -> Json:
    """With Kueue's label, on the owner."""
    manifest["metadata"].setdefault("labels", {})["kueue.x-k8s.io/queue-name"] = "team"
    return manifest


def by_its_pods(manifest: Json) -> Json:
    """With Kueue's label, on the template alone: a Job that has no labels is given its template's."""
    manifest["metadata"].setdefault("labels", {})["app"] = "train"
    labels = manifest["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
    labels["kueue.x-k8s.io/queue-name"] = "team"
    return manifest


def budget(label: str, **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"selector": {"matchLabels": {label: "train"}}, **spec},
    }


ALLOWED = {"annotations": {"muster.dev/evictable": "true"}}


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        (elastic(), "an Indexed Job without spec.successPolicy waits for every index to end"),
        (
            elastic(job_spec={"successPolicy": {"rules": [{"succeededIndexes": "0-3"}]}}),
            "spec.successPolicy waits for an index that is not among the first 2",
        ),
        (
            elastic(success_on="0", restart="OnFailure"),
            "restartPolicy OnFailure counts restarts in place in spec.backoffLimit",
        ),
        (
            in_a_queue(elastic(success_on="0")),
            "Where its waitForPodsReady is on, Kueue ends it at the timeout",
        ),
        (
            in_a_queue(stateful_set("serve", 4, min_replicas=2)),
            "min-replicas 2 below the 4 that the StatefulSet creates: Kueue takes it for ready when all of these are",
        ),
        (budget("batch.kubernetes.io/job-name", maxUnavailable=1), "without a scale subresource"),
        (
            budget("ray.io/cluster", minAvailable="50%"),
            "Use minAvailable as a number, the job's min-replicas",
        ),
        (in_a_queue(pytorch("OnFailure")), "waitForPodsReady is on, Kueue ends it at the timeout"),
        (
            in_a_queue(ray(**ALLOWED)),
            "on an elastic RayCluster (muster.dev/min-replicas): Kueue takes it for ready",
        ),
        (in_a_queue(ray(scheduler=None)), "on an elastic RayCluster (muster.dev/min-replicas)"),
        (in_a_queue(lws("None")), "on an elastic LeaderWorkerSet (muster.dev/min-replicas): Kueue takes it"),
        (in_a_queue(lws(**ALLOWED)), "on an elastic LeaderWorkerSet (muster.dev/min-replicas)"),
        (
            in_a_queue(deployment("serve", 4, min_replicas=2)),
            "min-replicas 2 below the 4 that the Deployment creates: Kueue admits each of its pods alone.",
        ),
        (by_its_pods(deployment("serve", 4, min_replicas=2)), "Kueue admits each of its pods alone."),
        (by_its_pods(elastic(success_on="0")), "Kueue admits each of its pods alone."),
        (pytorch("Never"), "Worker has muster.dev/min-replicas below its replicas and restartPolicy Never"),
        (pytorch("OnFailure", {"backoffLimit": 0}), "and spec.runPolicy.backoffLimit is 0"),
        (lws(), "the end of one pod is the end of its group: Muster treats it as rigid"),
        (ray(), "worker group gpu has muster.dev/min-replicas below its replicas, but without its head"),
    ],
)
def test_what_keeps_an_owner_from_being_resized_is_a_warning(
    kubectl: Kubectl, manifest: Json, sentence: str
) -> None:
    wait_until(  # the API server follows its policies with a delay of its own
        lambda: sentence in said_of(kubectl, manifest),
        what=f"the warning {sentence!r}",
        also=lambda: said_of(kubectl, manifest),
    )


@pytest.mark.parametrize(
    "manifest",
    [
        in_a_queue(job("train", 4)),  # whole, or not at all
        elastic(success_on="0"),
        elastic(job_spec={"successPolicy": {"rules": [{"succeededIndexes": "0-3", "succeededCount": 1}]}}),
        elastic(job_spec={"successPolicy": {"rules": [{"succeededIndexes": "0-1"}]}}),
        elastic(success_on="0", restart="OnFailure", backoff_limit=1000),
        budget("batch.kubernetes.io/job-name", minAvailable=2),
        budget("app", maxUnavailable=1),
        pytorch("OnFailure"),
        pytorch("ExitCode"),
        pytorch(None),
        pytorch("Never", min_replicas=4),
        pytorch("Never", **ALLOWED),
        pytorch("Never", scheduler=None),
        ray(**ALLOWED),
        in_a_queue(deployment("serve", 4)),
        by_its_pods(job("train", 4)),
        in_a_queue(lws("None", min_replicas=4)),
        lws("None"),
        lws(min_replicas=4),
        lws(**ALLOWED),
        lws(scheduler=None),
        custom("PyTorchJob", "empty", {}),
        custom("RayCluster", "empty", {}),
        custom("LeaderWorkerSet", "empty", {}),
    ],
)
def test_what_can_be_resized_passes_without_a_word(kubectl: Kubectl, manifest: Json) -> None:
    assert said_of(kubectl, manifest) == ""
