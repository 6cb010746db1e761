"""What has become of each job when all is calm: done, whole, waiting with a reason, backing off; or what is
wrong with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from e2e.cluster import Cluster, Json, Pod

WELL = ("done", "whole", "waits", "backs off")


@dataclass(frozen=True)
class Fate:
    """What of a job: one of WELL, or a sentence on what is wrong."""

    job: str
    what: str

    @property
    def well(self) -> bool:
        return self.what in WELL


def fates(cluster: Cluster, namespace: str) -> list[Fate]:
    """Of every Job there is."""
    jobs = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs")["items"]
    pods, gangs = cluster.pods(namespace), cluster.gangs(namespace)
    of: dict[str, list[Pod]] = {}
    for one in pods:
        of.setdefault(one.labels.get("batch.kubernetes.io/job-name", ""), []).append(one)
    names = [job["metadata"]["name"] for job in jobs]
    return [
        Fate(name, fate(job, of.get(name, []), gangs.get(f"job-{name}", {}).get("status") or {}))
        for name, job in zip(names, jobs, strict=True)
    ]


def fate(job: Json, pods: list[Pod], status: Json) -> str:
    """Of one. status: its Gang's."""
    over = [c["type"] for c in job["status"].get("conditions", []) if c["status"] == "True"]
    if over or "deletionTimestamp" in job["metadata"]:
        return "done"
    notes = job["spec"]["template"]["metadata"].get("annotations") or {}
    least = int(notes.get("muster.dev/min-replicas") or job["spec"]["parallelism"])
    there = sum(1 for one in pods if one.node and not one.deleted and one.phase != "Failed")
    if there >= least:
        return "whole"
    if there:
        return f"is partly bound: {there} of at least {least}; its Gang: {_short(status)}"
    if not [one for one in pods if not one.terminal and not one.deleted]:
        return "backs off" if job["status"].get("failed") else f"has no pods; its Gang: {_short(status)}"
    if status.get("state") in ("Waiting", "Incomplete") and status.get("reason") and status.get("message"):
        return "waits"
    return f"waits and does not say why; its Gang: {_short(status)}"


def told(found: list[Fate]) -> str:
    """One line: how many of each."""
    return ", ".join(
        f"{count} {what}" for what, count in Counter(one.what for one in found if one.well).items()
    )


def _short(status: Json) -> str:
    return ", ".join(
        f"{key}={status.get(key)!r}" for key in ("state", "reason", "message", "share") if key in status
    )
