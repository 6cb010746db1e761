"""In place: what is heard of holders, and what is to be done about them on the API.

A holder is a pod in a namespace of Muster's own that requests one GPU and runs nothing that uses it. Its record is on
its object on the API; how it is written there, and where the device is read, is up to whoever carries actions out.

Times with these are of one clock that nobody sets (see `core.devices.coordinator.Coordinator`), never Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from muster.types.devices import AgentKey
from muster.types.values import JobKey


@dataclass(frozen=True, slots=True)
class HolderRecord:
    """A holder as the API has it.

    device: the id of what the kubelet gave it, "" = nothing yet; healthy: by the pod's status; leaving: it is being
    deleted, or has ended; epoch and agent: of the last assignment that was recorded on it, 0 and None = none;
    second_epoch and second: likewise of the second seat, where two jobs share the device.
    """

    uid: str
    node: str
    device: str = ""
    healthy: bool = True
    leaving: bool = False
    epoch: int = 0
    agent: AgentKey | None = None
    second_epoch: int = 0
    second: AgentKey | None = None


# ---- what is heard ----


@dataclass(frozen=True, slots=True)
class HolderSeen:
    """A holder as it is now, with its pod's name and resourceVersion."""

    record: HolderRecord
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class HolderSaid:
    """What a holder's container tells: the id of the device that it got; looked: and how NVML finds it there.

    healthy: of the device; processes: that have a context on it, by whomever; memory: MiB that is used of it.
    """

    uid: str
    device: str
    looked: bool = False
    healthy: bool = True
    processes: int = 0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class HolderGone:
    """A holder's pod is no more."""

    uid: str


@dataclass(frozen=True, slots=True)
class TrainingEnded:
    """A pod in place is in a terminal phase, as its kubelet tells: none of its processes is left."""

    pod: str


@dataclass(frozen=True, slots=True)
class TrainingGone:
    """Nothing is left of a pod in place on the API; its processes may still run."""

    pod: str


@dataclass(frozen=True, slots=True)
class HolderOutcome:
    """What became of an action. status: the HTTP status, 0 for no answer; version: the holder's resourceVersion as
    the answer has it, "" = it has none."""

    action: HolderAction
    status: int
    message: str = ""
    version: str = ""


# ---- what is to be done ----


@dataclass(frozen=True, slots=True)
class CreateHolder:
    """Make a holder on a node, under this name, which no other one ever had. job: on whose account."""

    name: str
    node: str
    job: JobKey
    cause: str


@dataclass(frozen=True, slots=True)
class NameDevice:
    """Record on a holder, if it still has this resourceVersion, which device its container says that it got."""

    uid: str
    name: str
    version: str
    device: str
    cause: str


@dataclass(frozen=True, slots=True)
class AssignHolder:
    """Record on a holder, if it still has this resourceVersion, that its device is an agent's from `epoch` on.
    second: on its second seat, which two that share it have; clears: what is recorded of the other seat, on which
    nobody is, is taken off."""

    uid: str
    name: str
    version: str
    device: str
    epoch: int
    agent: AgentKey
    cause: str
    second: bool = False
    clears: bool = False


@dataclass(frozen=True, slots=True)
class ClearSeat:
    """Take off a holder, if it still has this resourceVersion, what is recorded of a seat on which nobody is."""

    uid: str
    name: str
    version: str
    device: str
    second: bool
    cause: str


@dataclass(frozen=True, slots=True)
class DeleteHolder:
    """End a holder at once, if it still has this uid and this resourceVersion: nobody uses its device. leaving:
    others have asked for its end before, and it takes its time."""

    uid: str
    name: str
    cause: str
    version: str = ""
    leaving: bool = False


HolderAction = CreateHolder | NameDevice | AssignHolder | ClearSeat | DeleteHolder
HolderEvent = HolderSeen | HolderSaid | HolderGone | TrainingEnded | TrainingGone | HolderOutcome
