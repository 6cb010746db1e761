"""`muster release`: the break-glass. Takes our gates off, without plan or pin, and waits for the binds.

The pods are marked `muster.dev/released`, so that the extender lets kube-scheduler place them as any other
pods. What stays unbound is listed with what to do; nothing is ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tenacity

from muster.cluster import custom_owners, decode, decode_pods
from muster.cluster.api import STRATEGIC, Api, message
from muster.cluster.owner_watches import KINDS
from muster.cluster.paths import path, segment
from muster.core.workload import identity
from muster.errors import ClusterError
from muster.types import GATE, OwnerRecord, Phase, PodRecord

Say = Callable[[str], None]
HELD = "another scheduling gate is still on it, not Muster's; it is kube-scheduler's when that comes off"


@dataclass(frozen=True, slots=True)
class Released:
    """What became of a release: pods by namespace/name; `stuck` with kube-scheduler's or the API's reason."""

    bound: tuple[str, ...]
    stuck: tuple[tuple[str, str], ...]


def owners(api: Api) -> dict[str, OwnerRecord]:
    """Owners by uid, as far as they decide a job's name."""
    found: dict[str, OwnerRecord] = {}
    for kind, version, plural in (("Job", "batch/v1", "jobs"), ("ReplicaSet", "apps/v1", "replicasets")):
        decoder = decode.workload(kind, version)
        for record in map(decoder, decode.listed(api.get(path(version, plural))).items):
            found[record.owner.uid] = record
    for (group, kind), (version, plural) in KINDS.items():
        if kind in custom_owners.NAMED_AFTER:
            status, data = api.request("GET", path(f"{group}/{version}", plural))
            if status == 200:  # else it is not there, or not for the caller to read
                for item in decode.listed(data).items:
                    custom = custom_owners.record(item, f"{group}/{version}", kind, "")
                    found[custom.owner.uid] = custom
    return found


def gated(api: Api, scheduler: str, namespace: str | None, job: str | None) -> list[PodRecord]:
    """Pods that wait behind our gate, of one job or of all."""
    where = path("v1", "pods", namespace or "")
    pods = [decode_pods.pod(item, scheduler) for item in decode.listed(api.get(where)).items]
    waiting = [p for p in pods if p.ours and p.phase in (Phase.GATED, Phase.HELD) and not p.deleting]
    if job is None:
        return waiting
    known = owners(api)
    return [p for p in waiting if job in _names(p, known)]


def _names(pod: PodRecord, known: dict[str, OwnerRecord]) -> set[str]:
    """What its job may be called: after its TrainJob, or after its JobSet where it was named so."""
    topmost = identity.topmost(pod, known)
    return {identity.job_key(pod, known).name, identity.plain_key(pod, topmost).name}


ADMISSION = "/apis/admissionregistration.k8s.io/{}/{}/{}"
VERSIONS = ("v1", "v1beta1")
GATING = (
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
)


def allowed(api: Api, pod: PodRecord) -> None:
    """Try the first pod without effect, so that nothing is changed where the right is missing.

    Raises ClusterError with the API server's words.
    """
    status, data = api.request("PATCH", _path(pod) + "?dryRun=All", _patch(pod), STRATEGIC)
    if status not in (200, 404):
        name = f"{pod.namespace}/{pod.name}"
        raise ClusterError(f"the gate of pod {name} can't be taken off: {status} {message(data)}", status)


def lift_gate(api: Api, name: str, say: Say) -> None:
    """Take the admission that gates new pods out of force, so that nothing is gated with nobody to ungate it.

    `name` is that of its binding or webhook. What is not there, or not served, is no matter; a refusal is said.
    """
    for resource in GATING:
        for version in VERSIONS:
            status, data = api.request("DELETE", ADMISSION.format(version, resource, segment(name)))
            if status != 404:
                break
        if status in (200, 202):
            say(f"{resource} {name} deleted: new pods are not gated any more")
        elif status != 404:
            say(f"{resource} {name} stays: {message(data)}")


def release(api: Api, pods: Sequence[PodRecord], scheduler: str, patience: float, say: Say) -> Released:
    """Take the gates off and wait up to `patience` seconds for kube-scheduler to bind what fits."""
    refused: dict[str, str] = {}
    for pod in pods:
        status, data = api.request("PATCH", _path(pod), _patch(pod), STRATEGIC)
        if status not in (200, 404):
            refused[f"{pod.namespace}/{pod.name}"] = f"{status} {message(data)}"
    say(f"gates taken off: {len(pods) - len(refused)} of {len(pods)} pods")
    left = {pod.uid: pod for pod in pods if f"{pod.namespace}/{pod.name}" not in refused}
    held: dict[str, str] = {}

    def look() -> dict[str, str]:
        waiting: dict[str, str] = {}
        for pod in list(left.values()):
            status, data = api.request("GET", _path(pod))
            if status == 404:
                continue
            if status != 200:
                raise ClusterError(message(data), status)
            now = decode_pods.pod(data, scheduler)
            if now.uid != pod.uid or now.phase.on_node or now.phase.ended or now.deleting:
                continue
            if now.phase is Phase.HELD:  # that may take long, and is none of ours
                held[f"{pod.namespace}/{pod.name}"] = HELD
                del left[pod.uid]
            else:
                waiting[f"{pod.namespace}/{pod.name}"] = now.refusal or "not bound yet"
        return waiting

    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_delay(patience),
        wait=tenacity.wait_exponential(multiplier=0.2, max=2.0),
        retry=tenacity.retry_if_result(bool) | tenacity.retry_if_exception_type(ClusterError),
        retry_error_callback=lambda state: None if state.outcome is None else state.outcome.result(),
    )
    waiting: dict[str, str] = attempts(look) or {}
    stuck = {**refused, **held, **waiting}
    names = [f"{p.namespace}/{p.name}" for p in pods]
    return Released(tuple(n for n in names if n not in stuck), tuple(sorted(stuck.items())))


def _path(pod: PodRecord) -> str:
    return path("v1", "pods", pod.namespace, pod.name)


def _patch(pod: PodRecord) -> dict[str, Any]:
    return {
        "metadata": {"uid": pod.uid, "annotations": {identity.RELEASED: "true"}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    }
