"""What is submitted: the same pods for every scheduler, told apart by schedulerName and native group only."""

from __future__ import annotations

from typing import Any

from e2e.cluster import GPU, Json

MUSTER = "muster"
STOCK = "default-scheduler"
GROUP_API = "/apis/scheduling.k8s.io/v1beta1"


def pod(
    name: str, job: str, size: int, scheduler: str, *, gpus: int = 1, group: bool = False, **spec: Any
) -> Json:
    """A bare pod of a gang of `size`: no owner, so that no controller's work is in the measure.

    `group`: it belongs to the native PodGroup of the job's name."""
    resources = {"cpu": "1", "memory": "1Gi"} | ({GPU: str(gpus)} if gpus else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"muster.dev/job": job},
            "annotations": {"muster.dev/roles": f"worker={size}"},
        },
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": "registry.invalid/none:1",
                    "resources": {"requests": resources, "limits": resources},
                }
            ],
            **({"schedulingGroup": {"podGroupName": job}} if group else {}),
            **spec,
        },
    }


def gangs(
    count: int, size: int, scheduler: str, *, gpus: int = 1, group: bool = False, **spec: Any
) -> list[Json]:
    """`count` gangs of `size` pods, gang after gang."""
    return [
        pod(f"g{gang:05d}-{i}", f"g{gang:05d}", size, scheduler, gpus=gpus, group=group, **spec)
        for gang in range(count)
        for i in range(size)
    ]


def groups(count: int, size: int) -> list[Json]:
    """The native PodGroups of `gangs`: all `size` pods or none."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": f"g{gang:05d}"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
        }
        for gang in range(count)
    ]


def never_fitting(count: int, size: int) -> list[Json]:
    """Gangs that wait for ever in Muster's queue: they select a node that is not there."""
    return gangs(count, size, MUSTER, nodeSelector={"bench.muster.dev/none": "true"})


def job(name: str, replicas: int, gpus: int) -> Json:
    """A Job of Muster's, as a user submits one."""
    one = pod("unused", name, replicas, MUSTER, gpus=gpus)
    template = {"metadata": {}, "spec": one["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": replicas,
            "completions": replicas,
            "completionMode": "Indexed",
            "template": template,
        },
    }
