"""What a Gang keeps of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.types.job import Facts, Grant
from muster.types.status import Step
from muster.types.values import JobKey, NodeBackoff, Owner, Reservation


@dataclass(frozen=True, slots=True)
class GangRecord:
    """What a Gang object told: the Ledger's memory across restarts. Times are Unix seconds, 0 = none."""

    key: JobKey
    name: str
    object_uid: str = ""
    version: str = ""
    owner: Owner | None = None
    state: str = ""
    code: str = ""
    reason: str = ""
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
    shrink_blocked_by: str = ""  # why it can't become smaller, as it was written
    facts: Facts | None = None  # of an elastic profile: what was observed of the job
    track: Mapping[str, object] = field(
        default_factory=dict
    )  # core.progress.report_filter.Track as plain values
    memory: Mapping[str, object] = field(default_factory=dict)  # by plugin: what its `observe` returned
    grant: Grant | None = None
    story: tuple[Step, ...] = ()  # how it came to its state, oldest first
