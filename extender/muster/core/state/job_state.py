"""What the Ledger keeps of one job between two cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from muster.core.progress.report_filter import EMPTY, Track
from muster.core.workload.whole import STILL, Clock, Whole
from muster.types import (
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
    Reservation,
    Status,
    Step,
)

UNTOUCHED = Facts()
"""Of a job that never ran."""
OPEN = (Phase.GATED, Phase.UNGATED)
"""Of a pod that has a place to take, or is on its way to it."""
NO_MEMORY: Mapping[str, object] = MappingProxyType({})


@dataclass
class JobState:
    """One job's state. `holds` None: not planned by this leader yet, what the API has recorded counts: the Gang's
    placement, or of a start that is recorded on a pod what of it is not on its node."""

    key: JobKey
    pods: dict[str, PodRecord] = field(default_factory=dict)
    gang: GangRecord | None = None
    owner: Owner | None = None  # the topmost, whose uid is the key's; of a group, its LeaderWorkerSet
    reservations: tuple[Reservation, ...] | None = None
    recorded: frozenset[tuple[str, str]] = frozenset()  # uid and node, in the Gang
    given_up: dict[str, str] = field(
        default_factory=dict
    )  # why a pin did not work, by pods that nobody makes again
    carrier: str = ""  # the pod that carries the placement of the last start
    carried_at: float = 0.0  # when we put it there
    carrying: bool = False  # that request is under way
    written: tuple[str, str, str, str] = ("", "", "", "")  # state, code, waits, replicas
    sizes: tuple[tuple[str, int, int], ...] | None = None  # role, min, max as they were written
    node_backoffs: dict[tuple[str, str], NodeBackoff] = field(
        default_factory=dict
    )  # by role and node, past ones, too
    node_backoffs_written: frozenset[NodeBackoff] = frozenset()  # as they were written
    writing: bool = False
    retry_at: float = 0.0
    refusals: int = 0  # of the Gang, in a row
    submitted: float = 0.0  # creation of the first of its pods that were seen
    submitted_written: float = 0.0  # submission, as the Gang has it
    queued_from: float = 0.0  # its place in the queue counts from here at the earliest
    short_since: float = 0.0  # when it was first seen not to be whole, through its own doing; 0 = it is
    short_told: bool = False  # that it was so for too long
    newest_pod: float = 0.0
    started_at: float = 0.0
    clock: Clock = STILL
    whole: Whole | None = None  # what it was whole with
    begun: Whole | None = None  # the minimum with which the start began that is under way, until it is whole
    state: str = ""
    since: float = 0.0
    story: tuple[Step, ...] = ()  # how it came to its state (core.actions.transitions)
    ended_at: float = 0.0
    backoff: int = 0
    not_before: float = 0.0
    sent_back: bool = False
    anew_at: float = 0.0  # its owner has taken all of it back and makes it again: since when
    anew_until: float = 0.0  # and until when that is believed
    asked: float = 0.0  # when nodes were asked for, 0 = no request is out
    asked_kept: float = 0.0  # as it was written
    asking: bool = False  # an answer is awaited
    ask_again: float = 0.0  # not before, after a request that was refused
    returning: float = 0.0  # when we last evicted a pod that an owner makes again
    preempted: str = ""
    ends: EndReason | None = None
    # what a job attains and what its training reports
    facts: Facts = UNTOUCHED
    track: Track = EMPTY
    memory: Mapping[str, object] = field(default_factory=lambda: NO_MEMORY)  # by plugin
    grant: Grant | None = None
    changing: str = ""  # "resize" or "move": what we decided is under way
    why: str = ""  # why it has its share
    observed_written: tuple[object, ...] = (
        UNTOUCHED,
        EMPTY,
        NO_MEMORY,
        None,
    )  # as `lived` was when it was written
    observed_written_at: float = 0.0
    shrink_blocked_by: str = ""  # why it can't become smaller
    shrink_blocked_until: float = 0.0
    shrink_blocked_written: str = ""  # as the Gang has it
    shrink_blocked_event: str = ""  # the last Event about it
    shrink_blocked_for: float = 0.0  # s, this time; it doubles
    silent_told: float = 0.0  # Job.silent as the Gang has it
    job: Job | None = None
    said: tuple[Job, Status] | None = None  # all is written of these, and nothing to do: no diff is needed

    @property
    def observed(self) -> tuple[object, ...]:
        """What the job attained and reported, as its Gang is to keep it."""
        return self.facts, self.track, self.memory, self.grant

    @property
    def planned(self) -> tuple[Reservation, ...]:
        """Its places: what this leader planned, else what is recorded."""
        if self.reservations is not None:
            return self.reservations
        if self.gang is not None and self.gang.placement:
            return self.gang.placement
        return tuple([h for h in self.carried if h.uid in self.pods and self.pods[h.uid].phase in OPEN])

    @property
    def carried(self) -> tuple[Reservation, ...]:
        """The placement of the last start, where a pod carries it; replicas that have left the job included."""
        return self.pods[self.carrier].carries if self.carrier else ()

    def records(self, reservation: Reservation) -> bool:
        """Whether a place stands on the API, so that its gate may come off."""
        return (reservation.uid, reservation.node) in self.recorded or reservation in self.carried


def fresh_start(entry: JobState) -> JobState:
    """For a job whose name is used again after it ended; its Gang is written over."""
    return JobState(entry.key, gang=entry.gang, owner=entry.owner, pods=dict(entry.pods), reservations=())


def reopened(reservations: tuple[Reservation, ...], gone: set[str]) -> tuple[Reservation, ...]:
    """The places of pods that are gone stay, for their successors."""
    if not gone:
        return reservations
    return tuple(replace(h, uid="", pod="") if h.uid in gone else h for h in reservations)
