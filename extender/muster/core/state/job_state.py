"""What the Ledger keeps of one job between two cycles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from muster.core.progress import batch
from muster.core.progress.report_filter import EMPTY, Track
from muster.core.state.in_flight import InFlight
from muster.core.workload.whole import STILL, Clock, Whole
from muster.types import (
    Condition,
    EndReason,
    Facts,
    GangRecord,
    Grant,
    Job,
    JobKey,
    NodeBackoff,
    Owner,
    Phase,
    PodRecord,
    Recreation,
    Reservation,
    Status,
    Step,
    Turn,
)

UNTOUCHED = Facts()  # of a job that never ran
OPEN = (Phase.GATED, Phase.UNGATED)  # of a pod that has a place to take, or is on its way to it
NO_MEMORY: Mapping[str, object] = MappingProxyType({})


@dataclass
class Recorded:
    """What the API has of a job, as far as its answers to our writes and the watch have told. Times are Unix s."""

    gang: GangRecord | None = None
    """Its Gang, as the watch or the answer to a write has it; None: there is none."""
    places: frozenset[tuple[str, str]] = frozenset()
    """uid and node of each place in the Gang's placement."""
    carrier: str = ""
    """uid of the pod that carries the placement of the last start (annotation muster.dev/plan)."""
    carried_at: float = 0.0
    """When we put it there; 0 where an earlier leader did."""
    told: tuple[str, str, str, str] = ("", "", "", "")
    """The Gang's state, reason, message and replicas."""
    old: bool = False
    """An older version wrote the Gang, with other names of fields."""
    sizes: tuple[tuple[str, int, int], ...] | None = None
    """The Gang's roles: name, min and max, by name."""
    node_backoffs: frozenset[NodeBackoff] = frozenset()
    """The Gang's status.ledger.barred."""
    submitted: float = 0.0
    """The Gang's submission; 0 where it is of an earlier job of that name."""
    asked: float = 0.0
    """The Gang's status.ledger.asked."""
    keeps: str = ""
    """The Gang's status.keeps: why it can't become smaller."""
    silent: float = 0.0
    """Since when its training is silent, as shareReason says (Job.silent)."""
    granted: int | None = None
    """GPUs that it is granted in place, as this leader has written its Gang; None: it has not, or it is not so."""
    turn: Turn | None = None
    """What the Gang tells of its turn in the queue; None: nothing, since it doesn't wait."""
    observed: tuple[object, ...] = (UNTOUCHED, EMPTY, NO_MEMORY, None, ())
    """The Gang's status.ledger.elastic, as `JobState.observed` was then."""
    observed_at: float = 0.0
    """When that was written, or looked at and still true."""


@dataclass
class Desired:
    """What the last plan of this leader wants of a job."""

    reservations: tuple[Reservation, ...] | None = None
    """Its places. None: this leader has not planned it yet, and what is recorded counts."""
    grant: Grant | None = None
    """What the Share plugins granted it."""
    batch_since: float | None = None
    """When the granted batch size became what it is (s); None: this leader has not told one yet."""
    batch_differs: float | None = None
    """Since when training reports another batch size than it is told (s); None: it does not, as far as is known."""
    restart_on: tuple[str, ...] = ()
    """All of it leaves to start again: a node for each replica of its elastic role, some of them not free yet."""
    why: str = ""
    """Why it has its share, for its owner, as its Gang was last written."""
    changing: str = ""
    """"resize" or "move": what was decided and is not complete."""
    preempted: str = ""
    """Why all of it is to go, until it is back; "": it is not."""
    ends: EndReason | None = None
    """The word on its pods, of the last time that all of it was to go."""
    sent_back: bool = False  # all of it was to go back to the gate, and it has not run since
    evicted: bool = False  # we ended some of it, and it has not run whole since
    leaves_whole: frozenset[str] = frozenset()
    """uids of all of it, which the last plan ends to start it again."""
    leaving: frozenset[str] = frozenset()
    """uids of pods that are to leave while the job goes on: on their node still, but no replicas any more."""

    def tells(self, grant: Grant | None, now: float) -> None:
        """From now on another batch size is told, if the grant that is to be kept has one."""
        if self.batch_since is None or batch.granted(self.grant) != batch.granted(grant):
            self.batch_since = now


class Size(NamedTuple):
    """Of a job's elastic role, as an Event told it: its name, replicas that run, as many as it may have, and those
    that have run to their end."""

    role: str
    replicas: int
    most: int
    ended: int = 0


class Untold(NamedTuple):
    """An Event of a job that had no Gang yet."""

    reason: str
    message: str
    warning: bool


@dataclass
class JobState:
    """What is kept of one job: what is recorded of it on the API, what the plan wants, and what is in flight, which
    `core.actions.reconcile_gang` compares; and what was observed of it. Times are Unix s, 0 = never."""

    key: JobKey
    recorded: Recorded = field(default_factory=Recorded)
    desired: Desired = field(default_factory=Desired)
    in_flight: InFlight = field(default_factory=InFlight)
    # what was observed
    pods: dict[str, PodRecord] = field(default_factory=dict)
    owner: Owner | None = None  # the topmost, whose uid is the key's; of a group, its LeaderWorkerSet
    job: Job | None = None  # as it was made last (core.state.job_builder)
    submitted: float = 0.0  # creation of the first of its pods that were seen
    newest_pod: float = 0.0  # creation of the last
    queued_from: float = 0.0  # its place in the queue counts from here at the earliest
    short_since: float = 0.0  # when it was first seen not to be whole, through its own doing; 0 = it is
    short_told: bool = False  # that it was so for too long
    recreated: Recreation = field(default_factory=Recreation)  # whether its owner makes all of it again
    owner_moved: float = 0.0  # when its owner, or what that owns, was last seen to change or to go
    returning: float = 0.0  # when we last evicted a pod that an owner makes again
    # the state that it is in (core.actions.transitions)
    state: str = ""
    since: float = 0.0
    story: tuple[Step, ...] = ()  # how it came to it
    conditions: tuple[Condition, ...] = ()  # what its Gang says of it (core.gang_object.conditions)
    started_at: float = 0.0
    ended_at: float = 0.0
    size: Size | None = None  # as an Event told it last, or as it started (core.actions.resize_events)
    size_told_at: float = 0.0
    untold: Untold | None = None  # what its Gang is to be told, too, when that is there
    clock: Clock = STILL
    whole: Whole | None = None  # what it was whole with
    begun: Whole | None = None  # the minimum with which the start began that is under way, until it is whole
    backoff: int = 0  # starts that failed, in a row
    not_before: float = 0.0  # of the next start
    said: tuple[Job, Status] | None = None  # all is written of these, and nothing to do: no diff is needed
    # what did not work
    given_up: dict[str, str] = field(default_factory=dict)  # why pins failed, by pods not made again
    node_backoffs: dict[tuple[str, str], NodeBackoff] = field(default_factory=dict)  # by role and node
    shrink_blocked_by: str = ""  # why it can't become smaller
    shrink_blocked_until: float = 0.0
    shrink_blocked_event: str = ""  # the last Event about it
    shrink_blocked_for: float = 0.0  # s, this time; it doubles
    asked: float = 0.0  # when nodes were asked for, 0 = no request is out
    # what a job attains and what its training reports
    facts: Facts = UNTOUCHED
    track: Track = EMPTY
    memory: Mapping[str, object] = field(default_factory=lambda: NO_MEMORY)  # by plugin

    def copied(self) -> list[dict[str, Any]]:
        """All that is kept as it is now, for `restored`."""
        kept = [dict(vars(part)) for part in (self, self.recorded, self.desired, self.in_flight)]
        kept[0]["node_backoffs"] = dict(self.node_backoffs)
        kept[3]["pods"] = dict(self.in_flight.pods)
        return kept

    def restored(self, before: Sequence[Mapping[str, Any]]) -> None:
        """As it was when `copied`."""
        for part, kept in zip((self, self.recorded, self.desired, self.in_flight), before, strict=True):
            vars(part).update(kept)

    @property
    def observed(self) -> tuple[object, ...]:
        """What the job attained and reported and is granted, as its Gang is to keep it."""
        return self.facts, self.track, self.memory, self.desired.grant, self.desired.restart_on

    @property
    def planned(self) -> tuple[Reservation, ...]:
        """Its places: what this leader planned, else what is recorded."""
        if self.desired.reservations is not None:
            return self.desired.reservations
        gang = self.recorded.gang
        if gang is not None and gang.placement:
            return gang.placement
        return tuple([h for h in self.carried if h.uid in self.pods and self.pods[h.uid].phase in OPEN])

    @property
    def carried(self) -> tuple[Reservation, ...]:
        """The placement of the last start, where a pod carries it; replicas that have left the job included."""
        return self.pods[self.recorded.carrier].carries if self.recorded.carrier else ()

    def records(self, reservation: Reservation) -> bool:
        """Whether a place stands on the API, so that its gate may come off."""
        return (reservation.uid, reservation.node) in self.recorded.places or reservation in self.carried


def fresh_start(job_state: JobState) -> JobState:
    """For a job whose name is used again after it ended; its Gang is written over."""
    return JobState(
        job_state.key,
        Recorded(gang=job_state.recorded.gang),
        Desired(reservations=(), leaving=job_state.desired.leaving),
        job_state.in_flight.on_its_way(),
        owner=job_state.owner,
        pods=dict(job_state.pods),
    )


def reopened(reservations: tuple[Reservation, ...], gone: set[str]) -> tuple[Reservation, ...]:
    """The places of pods that are gone stay, for their successors."""
    if not gone:
        return reservations
    return tuple(replace(h, uid="", pod="") if h.uid in gone else h for h in reservations)
