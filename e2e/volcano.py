"""Volcano's words for scenarios and measures: a job of its own kind, which is a gang of `minAvailable` pods, and what
Volcano says of it (https://volcano.sh/en/docs/vcjob/, https://volcano.sh/en/docs/podgroup/)."""

from __future__ import annotations

from typing import Any

from e2e.cluster import Cluster, Json, Refused
from e2e.scenario import template, wait_until

SCHEDULER = "volcano"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/default"
RESTARTS = {"event": "PodEvicted", "action": "RestartJob"}
"""The policy of its own example (example/job.yaml of its module): who loses a pod starts again, whole."""


def volcano_job(name: str, pods: int, **what: Any) -> Json:
    """A Job of Volcano's of `pods` pods, all or none; `what` as for scenario.template."""
    task = {"name": "worker", "replicas": pods, "template": template(scheduler=SCHEDULER, **what)}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": SCHEDULER,
            "minAvailable": pods,
            "queue": "default",
            "policies": [RESTARTS],
            "tasks": [task],
        },
    }


def queue_is_open(cluster: Cluster) -> None:
    """Its controllers open the queue that its scheduler makes; before, its admission refuses jobs."""

    def state() -> str:
        try:
            return str(cluster.get(QUEUE).get("status", {}).get("state", ""))
        except Refused as refused:
            return str(refused)

    wait_until(lambda: state() == "Open", what="Volcano's queue `default` is open", also=state)


def submitted(cluster: Cluster, namespace: str, job: Json) -> Json:
    return dict(cluster.request("POST", JOBS.format(namespace), job))


def waits(cluster: Cluster, namespace: str) -> list[str]:
    """What Volcano says of gangs that can't start: Events on their PodGroups, whose status says nothing before their
    pods are made."""
    return [
        str(one["message"])
        for one in cluster.events(namespace)
        if (one["reason"], one["involvedObject"]["kind"]) == ("Unschedulable", "PodGroup")
    ]
