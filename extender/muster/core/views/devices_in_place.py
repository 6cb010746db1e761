"""Devices in place, read from a View: whose they are on each node, and what one job has of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from muster.core.devices.coordinator import Change, HeldDevice
from muster.core.devices.seen import InPlaceSeen
from muster.core.devices.transitions import DeviceState
from muster.core.views.job_status import plain_number, timestamp
from muster.core.views.view import View
from muster.types import Job, JobKey

OTHERS = -2
"""In the place of a job's number: it is one that the reader may not see."""
Json = dict[str, object]


@dataclass
class OnNode:
    """One node. devices: with the jobs that use each or are about to, at most two; uses: how many devices a job uses,
    and `shown` how many of these are drawn as its own: a device of two jobs is drawn once; due: how many it is to
    use; kept: more that are its own, while it is measured with fewer; held: GPUs of holders."""

    devices: list[tuple[HeldDevice, tuple[JobKey, ...]]] = field(default_factory=list)
    uses: dict[JobKey, int] = field(default_factory=dict)
    shown: dict[JobKey, int] = field(default_factory=dict)
    due: dict[JobKey, int] = field(default_factory=dict)
    kept: dict[JobKey, int] = field(default_factory=dict)
    held: int = 0

    def counts(self, room: int) -> Iterator[tuple[JobKey, int, int, int]]:
        """Each job with the GPUs that it uses and keeps, is to give up, and is to get. room: GPUs that are left for
        those to come, which others may be still to give up."""
        room -= sum(self.shown.values())
        for key in sorted(self.uses.keys() | self.due.keys()):
            used, drawn, due = self.uses.get(key, 0), self.shown.get(key, 0), self.due.get(key, 0)
            ending = min(max(0, used - due), drawn)
            coming = max(0, min(due - used, room))
            room -= coming
            yield key, drawn - ending, ending, coming


class InPlaceReading:
    """What one answer reads of a View's devices in place."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._seen = view.in_place or InPlaceSeen()

    @property
    def seen(self) -> InPlaceSeen:
        """What the View has."""
        return self._seen

    @cached_property
    def job_of(self) -> Mapping[str, JobKey]:
        """The job of each pod in place, by the pod's uid."""
        users = {user.pod for device in self._seen.devices.values() for user in device.users}
        found = {want.pod: want.job for want in self._seen.wants}
        if users - found.keys():
            for key, job in self._view.snapshot.jobs.items():
                found |= {m.uid: key for role in job.roles for m in role.members if m.uid in users}
        return found

    @cached_property
    def nodes(self) -> Mapping[str, OnNode]:
        """By name, every node that has anything of it."""
        found: dict[str, OnNode] = {}
        for id_ in sorted(self._seen.devices):
            device = self._seen.devices[id_]
            jobs = self._jobs(device)
            node = found.setdefault(device.node, OnNode())
            node.devices.append((device, jobs))
            if device.state is DeviceState.IN_USE:
                for key in jobs:
                    node.uses[key] = node.uses.get(key, 0) + 1
                for key in jobs[:1]:
                    node.shown[key] = node.shown.get(key, 0) + 1
        for want in self._seen.wants:
            node = found.setdefault(want.node, OnNode())
            node.due[want.job] = node.due.get(want.job, 0) + want.count
            node.kept[want.job] = node.kept.get(want.job, 0) + want.kept
        for node in found.values() if not self._seen.decided else ():
            node.due = dict(node.uses)  # who does not decide takes it that all keep what they have
        for name, count in self._seen.held.items():
            found.setdefault(name, OnNode()).held = count
        return found

    @cached_property
    def nodes_of(self) -> Mapping[JobKey, Sequence[str]]:
        """Names of the nodes where each job uses a device or is to have one."""
        found: dict[JobKey, list[str]] = {}
        for name, node in self.nodes.items():
            for key in node.uses.keys() | node.due.keys():
                found.setdefault(key, []).append(name)
        return found

    @cached_property
    def changes_of(self) -> Mapping[JobKey, tuple[Change, float]]:
        """The last change of any pod of each job, and when that was (Unix s)."""
        found: dict[JobKey, tuple[Change, float]] = {}
        for pod, change in self._seen.changes.items():
            key = self.job_of.get(pod)
            if key is not None and (key not in found or change[1] > found[key][1]):
                found[key] = change
        return found

    def of(self, job: Job) -> bool:
        """Whether a job's GPUs are in place."""
        return job.key in self.nodes_of or any(role.devices for role in job.roles)

    def _jobs(self, device: HeldDevice) -> tuple[JobKey, ...]:
        pods = {user.pod for user in device.users}
        if device.recording is not None:
            pods.add(device.recording.agent.pod)
        return tuple(sorted({self.job_of[pod] for pod in pods if pod in self.job_of}))


# ---- as JSON ----


def told_devices(here: OnNode, number: Mapping[JobKey, int]) -> Json:
    """Of a node where Muster holds devices: each one's id, its state and the jobs that use it or are about to. Left
    out are those that only jobs use which the reader may not see; beside one that he may, others are OTHERS once."""
    told = [
        [device.id, str(device.state), list(dict.fromkeys(number.get(key, OTHERS) for key in jobs))]
        for device, jobs in here.devices
        if not jobs or any(key in number for key in jobs)
    ]
    return {"devices": told} if told else {}


def told_in_place(view: View, found: Job, devices: InPlaceReading) -> Json | None:
    """GPUs in place of a job, as a role has replicas: `bound` are those that it uses. None of another job."""
    if view.in_place is None or not devices.of(found):
        return None
    slots = next((role for role in found.roles if role.devices), None)
    here = [(name, devices.nodes[name]) for name in devices.nodes_of.get(found.key, ())]
    mine = [
        {"id": device.id, "node": device.node, "state": str(device.state), "jobs": len(jobs)}
        for _, node in here
        for device, jobs in node.devices
        if found.key in jobs
    ]
    last = devices.changes_of.get(found.key)
    bound = sum(node.uses.get(found.key, 0) for _, node in here)
    return {
        "min": slots.min if slots is not None else bound,
        "max": slots.max if slots is not None else bound,
        "sizes": list(slots.sizes) if slots is not None else [],
        "granted": sum(node.due.get(found.key, 0) + node.kept.get(found.key, 0) for _, node in here),
        "bound": bound,
        "nodes": sorted(name for name, _ in here),
        "devices": mine,
        "changed": timestamp(last[1]) if last is not None else None,
        "handOver": plain_number(last[0].took) if last is not None and last[0].handed else None,
        "idle": plain_number(last[0].idle) if last is not None and last[0].handed else None,
    }


def told_hand_overs(devices: InPlaceReading, number: Mapping[JobKey, int]) -> list[Json]:
    """The last hand-overs of jobs that the reader sees, the newest first."""
    return [
        {
            "at": timestamp(one.at),
            "job": number[one.job],
            "node": one.node,
            "before": one.change.before,
            "after": one.change.count,
            "took": plain_number(one.change.took),
            "idle": plain_number(one.change.idle) if one.change.count > one.change.before else None,
        }
        for one in reversed(devices.seen.hand_overs)
        if one.job in number
    ]
