"""Whether other schedulers are kept off the nodes that Muster's own kube-scheduler binds to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from muster.core.reasons.words import plural
from muster.doctor.finding import Finding, fail, fine, listed, warn
from muster.doctor.patient import Json, Patient
from muster.types import DeviceNames, device_names

KEEP_OFF = (
    "kubectl taint nodes NODE muster.dev/scheduler=muster:NoSchedule, whose toleration pods of Muster's get by "
    "admission; or binder: cluster (charts/README.md, binder)"
)


def nodes(patient: Patient) -> Iterator[Finding]:
    """With a kube-scheduler of its own, two schedulers on one node end in kubelet rejections."""
    if not patient.settings.own_scheduler:
        yield fine("nodes", "the cluster's scheduler binds: no second one shares its nodes")
        return
    devices = device_names(patient.settings.device_resources)
    every = list(patient.every("v1", "nodes"))
    with_gpus = [one for one in every if _gpus(one.get("status", {}).get("allocatable", {}), devices)]
    if not with_gpus:
        yield _without_gpus(every)
        return
    names = {node["metadata"]["name"] for node in with_gpus}
    others = sorted(
        {pod["spec"]["nodeName"] for pod in _strangers(patient) if pod["spec"].get("nodeName") in names}
    )
    do = f"{KEEP_OFF}; or sharedNodes: true, where nobody else asks for GPUs"
    if others:
        yield fail(
            "nodes", f"pods of other schedulers hold GPUs on {listed(others)}: both count the same GPUs", do
        )
    open_to_all, by_device = _open(with_gpus, every)
    if open_to_all:
        none = f" ({by_device} is none: pods that ask for GPUs tolerate it)" if by_device else ""
        tell = warn if patient.shared else fail
        yield tell("nodes", f"no taint{none} keeps other schedulers off {listed(open_to_all)}", do)
    elif not others:
        yield fine("nodes", f"a taint keeps other schedulers off {plural(len(names), 'GPU node')}")
    if not patient.shared:
        yield from _beside_gpus([one for one in every if one["metadata"]["name"] not in names], every)


def _without_gpus(every: Sequence[Json]) -> Finding:
    """Of a cluster where no node has any: gangs of Muster's count the same CPUs as everybody's pods."""
    open_to_all, _ = _open(every, every)
    if open_to_all:
        says = f"no node has GPUs, and no taint keeps other schedulers off {listed(open_to_all)}"
        return warn(
            "nodes", f"{says}: both count the same CPUs, and kubelets reject what is too much", KEEP_OFF
        )
    return fine("nodes", f"no node has GPUs; a taint keeps other schedulers off {plural(len(every), 'node')}")


def _beside_gpus(rest: Sequence[Json], every: Sequence[Json]) -> Iterator[Finding]:
    """Of nodes without GPUs where others have them: gangs that ask for none may land there."""
    open_to_all, _ = _open(rest, every)
    if open_to_all:
        says = f"no taint keeps other schedulers off {listed(open_to_all)}, without GPUs: where a gang of Muster's"
        do = "give gangs without GPUs a nodeSelector for nodes that other schedulers keep off (of no matter where"
        yield warn(
            "nodes",
            f"{says} asks for none, both count the same CPUs, and kubelets reject what is too much",
            f"{do} all ask for GPUs); or, on nodes that nobody else needs, {KEEP_OFF}; or sharedNodes: true",
        )


def _strangers(patient: Patient) -> Iterable[Json]:
    """Pods of other schedulers that run or start, and ask for GPUs."""
    ours = patient.settings.scheduler_name
    devices = device_names(patient.settings.device_resources)
    selector = f"spec.schedulerName!={ours},status.phase!=Succeeded,status.phase!=Failed"
    for pod in patient.every("v1", "pods", selector):
        asked = [
            c.get("resources", {}).get("requests", {}) for c in pod.get("spec", {}).get("containers", ())
        ]
        if any(_gpus(amounts, devices) for amounts in asked):
            yield pod


def _gpus(amounts: Json, devices: DeviceNames) -> bool:
    return any(devices.has(name) and str(value) != "0" for name, value in amounts.items())


def _open(found: Sequence[Json], every: Sequence[Json]) -> tuple[list[str], str]:
    """The nodes that nothing keeps other schedulers off, and a taint on one of them that is called as a resource of a
    node is: who asks for that tolerates it, whoever schedules him (ExtendedResourceToleration adds that where the
    cluster has it on)."""
    offered = {name for node in every for name in node.get("status", {}).get("allocatable", {})}
    names: list[str] = []
    by_device = ""
    for node in found:
        spec = node.get("spec", {})
        keys = [t["key"] for t in spec.get("taints", ()) if t["effect"] in ("NoSchedule", "NoExecute")]
        own = [key for key in keys if not key.startswith("node.kubernetes.io/")]
        if spec.get("unschedulable") or not offered.issuperset(own):
            continue
        names.append(node["metadata"]["name"])
        by_device = by_device or next(iter(own), "")
    return sorted(names), by_device
