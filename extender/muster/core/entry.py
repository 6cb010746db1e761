"""What the Ledger keeps of one job between two cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from muster.core.reports import EMPTY, Track
from muster.types import (
    Bar,
    Facts,
    GangRecord,
    Hold,
    Job,
    JobKey,
    Phase,
    PodRecord,
    Status,
    Want,
)

UNTOUCHED = Facts()
"""Of a job that never ran."""
OPEN = (Phase.GATED, Phase.UNGATED)
"""Of a pod that has a place to take, or is on its way to it."""
NO_MEMORY: Mapping[str, object] = MappingProxyType({})


@dataclass
class Entry:
    """One job's state. `holds` None: not planned by this leader yet, what the API has recorded counts: the Gang's
    placement, or of a start that is recorded on a pod what of it is not on its node."""

    key: JobKey
    pods: dict[str, PodRecord] = field(default_factory=dict)
    gang: GangRecord | None = None
    holds: tuple[Hold, ...] | None = None
    recorded: frozenset[tuple[str, str]] = frozenset()  # uid and node, in the Gang
    carrier: str = ""  # the pod that carries the placement of the last start
    carried_at: float = 0.0  # when we put it there
    carrying: bool = False  # that request is under way
    written: tuple[str, str, str, str] = ("", "", "", "")  # state, code, waits, replicas
    sizes: tuple[tuple[str, int, int], ...] | None = None  # role, min, max as they were written
    barred: dict[tuple[str, str], Bar] = field(default_factory=dict)  # by role and node, past ones, too
    bars: frozenset[Bar] = frozenset()  # as they were written
    writing: bool = False
    retry_at: float = 0.0
    submitted: float = 0.0
    newest_pod: float = 0.0
    started_at: float = 0.0
    below_since: float = 0.0
    state: str = ""
    since: float = 0.0
    ended_at: float = 0.0
    backoff: int = 0
    not_before: float = 0.0
    sent_back: bool = False
    asked: float = 0.0  # when nodes were asked for, 0 = no request is out
    asked_kept: float = 0.0  # as it was written
    asking: bool = False  # an answer is awaited
    ask_again: float = 0.0  # not before, after a request that was refused
    returning: float = 0.0  # when we last evicted a pod that an owner makes again
    preempted: str = ""
    # what a job attains and what its training reports
    facts: Facts = UNTOUCHED
    track: Track = EMPTY
    memory: Mapping[str, object] = field(default_factory=lambda: NO_MEMORY)  # by plugin
    want: Want | None = None
    changing: str = ""  # "resize" or "move": what we decided is under way
    why: str = ""  # why it has its share
    kept: tuple[object, ...] = (UNTOUCHED, EMPTY, NO_MEMORY, None)  # as `lived` was when it was written
    kept_at: float = 0.0
    keeps: str = ""  # why it can't become smaller
    keeps_until: float = 0.0
    keeps_told: str = ""  # as the Gang has it
    keeps_said: str = ""  # the last Event about it
    keeps_for: float = 0.0  # s, this time; it doubles
    silent_told: float = 0.0  # Job.silent as the Gang has it
    job: Job | None = None
    said: tuple[Job, Status] | None = None  # all is written of these, and nothing to do: no diff is needed

    @property
    def lived(self) -> tuple[object, ...]:
        """What the job attained and reported, as its Gang is to keep it."""
        return self.facts, self.track, self.memory, self.want

    @property
    def planned(self) -> tuple[Hold, ...]:
        """Its places: what this leader planned, else what is recorded."""
        if self.holds is not None:
            return self.holds
        if self.gang is not None and self.gang.placement:
            return self.gang.placement
        return tuple([h for h in self.carried if h.uid in self.pods and self.pods[h.uid].phase in OPEN])

    @property
    def carried(self) -> tuple[Hold, ...]:
        """The placement of the last start, where a pod carries it; replicas that have left the job included."""
        return self.pods[self.carrier].carries if self.carrier else ()

    def records(self, hold: Hold) -> bool:
        """Whether a place stands on the API, so that its gate may come off."""
        return (hold.uid, hold.node) in self.recorded or hold in self.carried


def fresh_start(entry: Entry) -> Entry:
    """For a job whose name is used again after it ended; its Gang is written over."""
    return Entry(entry.key, gang=entry.gang, pods=dict(entry.pods), holds=())


def reopened(holds: tuple[Hold, ...], gone: set[str]) -> tuple[Hold, ...]:
    """The places of pods that are gone stay, for their successors."""
    if not gone:
        return holds
    return tuple(replace(h, uid="", pod="") if h.uid in gone else h for h in holds)
