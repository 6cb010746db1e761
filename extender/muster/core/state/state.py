"""What is kept across cycles: of every job (core.state.job_state), pod, Gang and owner, and what is under way.

The modules that work on it: events in (core.events, core.actions.outcomes, and here `pods`, `restore`, `blockers`),
frozen Snapshots out (`snapshot`, `job_builder`, `job_facts`), and from a plan to actions (core.ledger, core.actions).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from muster.core.buried import Buried
from muster.core.devices.device_ledger import DeviceLedger
from muster.core.devices.in_place import InPlace
from muster.core.placement.feasibility import takes_part
from muster.core.placement.usage import Usage
from muster.core.progress import learned
from muster.core.progress.estimate import declared
from muster.core.state.in_flight import Request
from muster.core.state.job_builder import JobBuilder
from muster.core.state.job_state import JobState
from muster.core.workload.counting import Counting
from muster.core.workload.owners import Owners
from muster.core.workload.volumes import Claim, Claims
from muster.points import Estimation, Profile
from muster.types import (
    BEHIND,
    NEVER,
    PRODUCT,
    QUEUE_TOLD,
    Budget,
    EndReason,
    Evict,
    Fault,
    GangRecord,
    Gone,
    Job,
    JobKey,
    NodeBackoff,
    Owner,
    Plan,
    PodRecord,
    Quota,
    Reason,
    State,
    Status,
    Turn,
    Use,
)

HEARD = 5.0
"""Seconds after which what hardly changes anything is looked at: one more step that training reports, a Gang of a job
that runs as it was written. With a thousand jobs there is something of that kind each second, and a cycle for each
would keep whoever else has news waiting."""
QUIET = 2.0
"""Seconds without a new pod before "3 of 12 pods exist" is worth a write; creation times are cut to whole seconds, so
at least one has passed."""


class Quarantined(NamedTuple):
    """A job that is put aside (core.state.quarantine): until when (Unix s), for how long this time (s), in which
    stage, and what was raised, in words."""

    until: float
    length: float
    stage: str
    said: str


class Unread(NamedTuple):
    """An object that could not be read, or taken in: of which namespace, its job (None: those that refer
    to it), in which stage, and what was raised, in words."""

    namespace: str
    key: JobKey | None
    stage: str
    said: str


class LedgerState:
    """State across cycles; a Ledger is what a driver talks to."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.charges = Usage(profile.devices)
        self.counting = Counting(profile.devices)
        self.entries: dict[JobKey, JobState] = {}
        self.jobs: dict[JobKey, Job] = {}  # frozen, as the last Snapshot had them
        # pods, by uid
        self.job_of: dict[str, JobKey] = {}
        self.versions: dict[str, int] = {}
        self.gone = Buried()  # Gangs, too
        self.orphans: dict[str, tuple[PodRecord, float]] = {}  # apart, since when
        self.released: set[str] = set()
        self.half_done: set[str] = set()  # evictions of theirs were begun
        self.refused_at: dict[str, float] = {}
        self.came_open: set[str] = (
            set()
        )  # made without our gate: nothing on them says that they passed the queue
        self.came_bound: set[str] = set()  # made with a node of their own
        self.done: set[str] = set()  # they succeeded before they were deleted, if they are
        self.created_ungated: set[str] = set()
        self.unsaid: set[str] = set()  # of these: nobody has been told
        # what is read beside pods
        self.owners = Owners()
        self.volumes = Claims()
        self.namespaces: dict[str, Mapping[str, str]] = {}  # their labels, where these decide
        self.groups: dict[tuple[str, str], int] = {}  # minimum by namespace and name
        self.gang_names: dict[tuple[str, str], GangRecord] = {}
        self.lessons = learned.Lessons(shared=profile.shared_lessons)
        self.quotas: dict[str, tuple[Quota, ...]] = {}
        self.quotas_refused: set[str] = set()
        """Namespaces whose quotas Muster may not read."""
        self.short_jobs: set[JobKey] = set()  # pods of theirs are missing
        self.short_since: dict[str, float] = {}  # by namespace of these, Unix s
        self.short: frozenset[tuple[str]] = frozenset()
        """Namespaces whose quotas may keep pods of jobs out: to be read."""
        self.budgets: dict[str, tuple[Budget, ...]] = {}
        self.guarded_jobs: set[JobKey] = set()  # a budget has refused an eviction of theirs
        self.guarded: frozenset[tuple[str]] = frozenset()
        """Namespaces where a PodDisruptionBudget keeps a job from becoming smaller: its budgets are to be read."""
        self.node_use: Use | None = None
        """What nodes and pods use, as it was last told; None while nobody has (core.state.node_use)."""
        # what the next cycle looks at, and when it is due
        self.dirty: set[JobKey] = set()
        self.heard: set[JobKey] = set()  # dirty, too, but no reason for a cycle
        self.hears = False  # whether a cycle is due for one of these all the same (`hear`)
        self.returning: set[JobKey] = set()
        self.with_node_backoffs: set[JobKey] = set()
        self.requeue_at: set[float] = set()
        self.later: dict[JobKey, float] = {}  # when a job is to be looked at again although nothing happens
        self.to_tell: dict[
            JobKey, tuple[str, float]
        ] = {}  # reason of an Event, and seconds (core.state.queue_time)
        self.told: list[float] = []
        """When reports came that the next cycle looks at because of what they tell."""
        self.listens: float | None = math.inf
        """Since when reports come to this replica: inf while it follows, None from its next snapshot on."""
        self.shared_at = -1.0  # when shares were last computed
        # what raised, where nothing was to raise (core.state.quarantine)
        self.quarantined: dict[JobKey, Quarantined] = {}
        self.unread: dict[Gone, Unread] = {}  # objects as they are now, by what would tell their end
        self.stumbled: dict[str, str] = {}  # by stage: what was said last of no job in particular
        self.blameless_until = 0.0  # a Share plugin fails, and until then nobody looks over which job
        self.faults: list[Fault] = []  # for the driver, which takes them
        # what is under way
        self.shrinking: set[JobKey] = set()
        """Jobs of which replicas are to leave while they go on (`Desired.leaving`), or were until the last plan."""
        self.ended: Counter[EndReason] = Counter()  # pods that were evicted, as the API has answered
        self.overtaken: frozenset[str] = frozenset()
        """Pods whose eviction is under way and not wanted any more: it is called back where it has not begun."""
        self.recorded: list[JobKey] = []  # placements since the last plan
        self.held_back: dict[JobKey, list[Evict]] = {}  # evictions that wait for a write of their job's Gang
        self.asked: set[JobKey] = set()
        # what the last plan believed and said
        self.believed: Callable[[Job], Estimation] = lambda job: declared(job, 0.0)
        self.whys: Mapping[JobKey, str] = {}
        self.shares: Mapping[JobKey, int] = {}
        self.queue = Plan()  # in its order jobs wait
        # what waiting jobs are told of their turn (core.actions.queue_turns)
        self.turns: Mapping[JobKey, Turn] = {}  # as the queue was last played forward
        self.turns_told: set[JobKey] = set()  # whose Gangs have a position
        self.turns_at = 0.0  # the next look, Unix s
        self.turns_seen: tuple[object, ...] = ()  # at the last
        self.turn_writes: list[float] = []  # when those were that told nothing else, Unix s
        # the last lesson
        self.taught_at = -math.inf
        self.teacher = JobKey("", "")
        self.made = JobBuilder(
            self.owners,
            self.groups,
            self.refused_at,
            self.quotas,
            self.came_bound,
            self.outside,
            self.done,
        )
        self.in_place: InPlace | None = None  # devices of running pods change, where that is enabled

    def give_devices(self, devices: DeviceLedger | None) -> None:
        """From now on GPUs are given in place, to pods that declare it; None: by another replica, which leads."""
        self.in_place = None if devices is None else InPlace(devices)
        self.made = replace(self.made, in_place=True)
        self.dirty |= self.entries.keys()

    def use(self, profile: Profile) -> None:
        """Plan with another profile from now on: what a job is like (scored or pinned) depends on it, too."""
        self.profile = replace(
            profile, devices=self.profile.devices
        )  # what was read is counted so: at start only
        self.lessons.shared = profile.shared_lessons
        self.shared_at = -1.0
        for job_state in self.entries.values():
            job_state.desired.grant, job_state.desired.why = None, ""  # the other profile's
            job_state.desired.restart_on = ()
        self.dirty |= self.entries.keys()

    @property
    def unknown_owners(self) -> Mapping[str, tuple[str, Owner]]:
        """Topmost owners of our pods, by uid, that no watch delivers: custom resources with sizes to read."""
        return self.owners.unknown

    @property
    def claims(self) -> frozenset[Claim]:
        """Persistent volume claims to be read, by namespace and name."""
        return self.volumes.wanted

    def new_claims(self) -> frozenset[Claim]:
        """Those that nobody waited for before, since this was last asked."""
        return self.volumes.take_anew()

    def grown_owners(self) -> frozenset[str]:
        """Those that got a pod since this was last asked: they may have been scaled."""
        return self.owners.grown()

    @property
    def unread_owners(self) -> bool:
        """Whether one of them has not been read yet."""
        return self.owners.unread

    def outside(self, namespace: str) -> bool:
        """Whether a namespace is known not to have opted in: admission guards nothing of what its pods say."""
        chosen = self.profile.namespaces
        if namespace in chosen.left_out:
            return True
        labels = self.namespaces.get(namespace)
        if not chosen.selector or (labels is None and chosen.by_labels):
            return False
        return not takes_part(chosen, namespace, labels or {})

    def turn(self, key: JobKey, status: Status) -> Turn | None:
        """What the job's Gang is to tell of its turn now; None for a job that does not wait for one."""
        if status.state is not State.WAITING:
            return None
        position = self.queue.positions.get(key, 0)
        if status.reason is Reason.NEVER_FITS:
            return Turn(fits=status.detail, expected=NEVER)
        if position > QUEUE_TOLD:
            return Turn(expected=BEHIND)
        if not position:
            return None
        seen = self.turns.get(key) or self.entries[key].recorded.turn
        if seen is None or seen.expected in (BEHIND, NEVER):
            seen = Turn()
        return Turn(position, status.detail, seen.blocker, seen.start, seen.expected)

    def again(self, key: JobKey, at: float) -> None:
        """Look at the job again at `at`, or before."""
        self.later[key] = min(at, self.later.get(key, at))
        self.requeue_at.add(at)

    def hear(self, key: JobKey, now: float) -> None:
        """Look at the job with the next cycle, HEARD seconds later at most."""
        if not self.hears:
            self.hears = True
            self.requeue_at.add(now + HEARD)
        self.heard.add(key)

    def waits(self, request: Request, now: float) -> bool:
        """Whether no request about an object may be sent now: one is under way, or was refused a moment ago."""
        if request.sent is not None:
            return True
        if request.not_before > now:
            self.requeue_at.add(request.not_before)
            return True
        return False

    def back_off_node(self, job_state: JobState, bar: NodeBackoff) -> None:
        """Leave a node out for a role of the job for a while."""
        job_state.node_backoffs[(bar.role, bar.node)] = bar
        self.with_node_backoffs.add(job_state.key)
        self.requeue_at.add(bar.until)

    def product_of(self, node: str) -> str:
        """The GPU product of a node, "" where it is not known."""
        record = self.charges.nodes.get(node)
        return "" if record is None else record.labels.get(PRODUCT, "")
