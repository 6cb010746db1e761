"""What a Gang keeps of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.types.grant import Grant
from muster.types.job import Facts
from muster.types.status import Condition, Step, Turn
from muster.types.values import JobKey, NodeBackoff, Owner, Reservation


class Recreation(NamedTuple):
    """An owner has taken all of a job back that ran, and makes it again. Times are Unix seconds."""

    since: float = 0.0
    until: float = 0.0  # it is believed; 0 = the owner does nothing of the kind
    ran: bool = False  # something of the job did when it was last looked at
    shows: bool = False  # that the owner is still at it: whoever looks at the cluster sees it


@dataclass(frozen=True, slots=True)
class GangRecord:
    """What a Gang object told: the Ledger's memory across restarts. Times are Unix seconds, 0 = none."""

    key: JobKey
    name: str
    object_uid: str = ""
    version: str = ""
    owner: Owner | None = None
    declared_by: Owner | None = None  # who declares its roles, where that is not the owner (a JobSet)
    state: str = ""
    reason: str = ""
    message: str = ""
    since: float = 0.0
    submitted: float = 0.0
    queued_from: float = 0.0  # its place in the queue counts from here, 0 = from its submission
    created: float = 0.0  # as the API server has it, 0 = unknown
    started: float = 0.0
    placement: tuple[Reservation, ...] = ()
    replicas: str = ""
    backoff: int = 0
    not_before: float = 0.0
    ended: float = 0.0
    asked: float = 0.0  # when nodes were asked for, 0 = no request is out
    node_backoffs: tuple[NodeBackoff, ...] = ()
    sizes: tuple[tuple[str, int, int], ...] = ()  # role, min, max as they were written
    whole: Mapping[str, int] | None = None  # by role: the minimum it was whole with, None = it never was
    recreated: Recreation = field(default_factory=Recreation)
    shrink_blocked_by: str = ""  # why it can't become smaller, as it was written
    facts: Facts | None = None  # of an elastic profile: what was observed of the job
    track: Mapping[str, object] = field(
        default_factory=dict
    )  # core.progress.report_filter.Track as plain values
    memory: Mapping[str, object] = field(default_factory=dict)  # by plugin: what its `observe` returned
    grant: Grant | None = None
    restart_on: tuple[str, ...] = ()  # all of it leaves, or has left, to start again: a node for each replica
    leaves_whole: frozenset[str] = (
        frozenset()
    )  # uids of all of it, which was about to be ended to start again
    turn: Turn | None = None  # of a job that waits: its position and when it may start
    story: tuple[Step, ...] = ()  # how it came to its state, oldest first
    conditions: tuple[Condition, ...] = ()
    old: bool = False  # an older version wrote it, with other names of fields: it is to be written again
