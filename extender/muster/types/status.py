"""Why a job is where it is, in the words of machines and of people."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class State(enum.StrEnum):
    """status.state of a Gang (design §8)."""

    INCOMPLETE = "Incomplete"
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    RESIZING = "Resizing"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"
    INVALID = "Invalid"


class Reason(enum.StrEnum):
    """status.reason of a Gang: why a job is where it is, for machines."""

    OK = "Ok"
    PODS_MISSING = "PodsMissing"
    QUOTA = "Quota"
    NOT_OURS_YET = "ForeignGate"
    RESOURCES = "Resources"
    NODES = "Nodes"
    TOPOLOGY = "Topology"
    NEVER_FITS = "NeverFits"
    NO_ARRANGEMENT = "NoArrangement"
    BEHIND_HEAD = "BehindHead"
    RESERVED = "Reserved"
    SHARE = "Share"
    BACKING_OFF = "BackingOff"
    BINDING = "Binding"
    RELEASED = "Released"
    PREEMPTED = "Preempted"
    STUCK = "Stuck"
    SUSPENDED = "Suspended"
    INVALID = "Invalid"
    PLUGIN = "Plugin"
    INTERNAL = "Internal"


NO_ROOM_EMPTY = frozenset({Reason.NEVER_FITS, Reason.NO_ARRANGEMENT})
"""Of jobs for which there is no place on the empty cluster either, as far as is known."""
HOLDS_NOBODY_UP = NO_ROOM_EMPTY | {Reason.PLUGIN}
"""Of jobs that no capacity that comes free would start."""


class EndReason(enum.StrEnum):
    """Why Muster ends a pod: there is no other reason (design §3). It stands on the pod (`muster.dev/leaving`), in an
    Event and in the metric. The first five may end a replica that runs; the others only what is not running."""

    SHARE = "EndedByShare"  # a Share plugin grants its job fewer, or none
    PREEMPTION = "EndedByPreemption"  # its whole gang makes way for a job of higher priority
    START_FAILED = "EndedStartFailed"  # its gang was never whole, and was not in time
    LOST_MEMBERS = "EndedLostMembers"  # its gang was whole, lost replicas, and did not get them back in time
    MOVE = "EndedToMove"  # its job is placed again
    PIN_UNDONE = "EndedPinUndone"  # it could not be bound where it was sent: it never ran
    LEFTOVER = "EndedLeftover"  # it waits behind the gate for a work queue that is done


NEVER_RAN = frozenset({EndReason.PIN_UNDONE, EndReason.LEFTOVER})
"""The reasons that are none any more once the pod is bound."""


class Status(NamedTuple):
    """Why a job is where it is. `message` is stable while the job waits for the same thing (it is written to
    the Gang and to Events); `detail` is what stands in its way at this moment (computed when it is read)."""

    state: State
    reason: Reason
    message: str
    detail: str = ""


QUEUE_TOLD = 100
"""Of so many jobs of the queue, the first, the Gang tells the position and the expected start."""
STRANGER = "a job of another namespace"
"""What tenants read of one: no name."""
BEHIND = f"behind the first {QUEUE_TOLD}"
NEVER = "never, as the cluster is now"
AS_QUEUED = "by the run times that jobs declare or report, in the queue's order; it may start sooner or later"
"""How sure an expected start is where a policy decides who has GPUs: its order is not the queue's."""


class Turn(NamedTuple):
    """What a waiting job's Gang tells of its turn.

    position: from 1, 0 = none; fits: what is free now against what it needs; blocker: who has what it needs, in words
    that its namespace may read; start: when it is expected to start (Unix s, 0 = not known); expected: how sure
    that is, or why it is not known.
    """

    position: int = 0
    fits: str = ""
    blocker: str = ""
    start: float = 0.0
    expected: str = ""


class Condition(NamedTuple):
    """One of a Gang's status.conditions, as far as it outlives a write: its reason and message are the Gang's."""

    type: str
    status: str  # "True", "False" or "Unknown"
    since: float  # lastTransitionTime, Unix s


@dataclass(frozen=True, slots=True)
class Step:
    """One transition of a job's state, as its Gang keeps it (status.story)."""

    at: float  # Unix s: the cycle that found it
    state: str  # the job's state from then on
    event: str  # what the cycle found (core.actions.transitions.JobEvent)
    cause: str = ""  # the sentence that its owner was told then, cut to a bound
