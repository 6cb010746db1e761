"""What is kept across cycles: of every job (core.state.job_state), pod, Gang and owner, and what is under way.

The modules that work on it: events in (`events`, `pods`, `recall`, `obstacles`, `outcomes`), frozen Snapshots out
(`snapshots`, `lived`), and from a plan to actions (`ledger`, `endings`, `leaving`, `gates`, `writing`, `asking`,
`teaching`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from muster.core.placement.feasibility import matches
from muster.core.placement.usage import Usage
from muster.core.progress import learned
from muster.core.progress.estimate import declared
from muster.core.state.job_builder import JobBuilder
from muster.core.state.job_state import JobState
from muster.core.workload.owners import Owners
from muster.core.workload.volumes import Claim, Claims
from muster.points import Estimation, Profile
from muster.types import (
    NAMESPACE_NAME,
    PRODUCT,
    Budget,
    EndReason,
    Fault,
    GangRecord,
    Gone,
    Job,
    JobKey,
    NodeBackoff,
    Owner,
    PodRecord,
    Quota,
)

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


BURIED = 20_000
"""Uids of pods and Gangs that are gone and not forgotten: more than can end within a request's timeout."""


class LedgerState:
    """State across cycles; a Ledger is what a driver talks to."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.charges = Usage()
        self.entries: dict[JobKey, JobState] = {}
        self.jobs: dict[JobKey, Job] = {}  # frozen, as the last Snapshot had them
        # pods, by uid
        self.job_of: dict[str, JobKey] = {}
        self.versions: dict[str, int] = {}
        self.gone: dict[str, None] = {}  # of Gangs, too; oldest first
        self.orphans: dict[str, tuple[PodRecord, float]] = {}  # apart, since when
        self.released: set[str] = set()
        self.half_done: set[str] = set()  # evictions of theirs were begun
        self.refused_at: dict[str, float] = {}
        self.came_open: set[str] = (
            set()
        )  # made without our gate: nothing on them says that they passed the queue
        self.came_bound: set[str] = set()  # made with a node of their own
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
        self.short_jobs: set[JobKey] = set()  # pods of theirs are missing
        self.short_since: dict[str, float] = {}  # by namespace of these, Unix s
        self.short: frozenset[tuple[str]] = frozenset()
        """Namespaces whose quotas may keep pods of jobs out: to be read."""
        self.budgets: dict[str, tuple[Budget, ...]] = {}
        self.guarded_jobs: set[JobKey] = set()  # a budget has refused an eviction of theirs
        self.guarded: frozenset[tuple[str]] = frozenset()
        """Namespaces where a PodDisruptionBudget keeps a job from becoming smaller: its budgets are to be read."""
        # what the next cycle looks at, and when it is due
        self.dirty: set[JobKey] = set()
        self.heard: set[JobKey] = set()  # dirty, too, but no reason for a cycle
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
        self.in_flight: set[tuple[str, str]] = set()  # kind of action, uid
        self.retry: dict[str, float] = {}  # by uid, not before
        self.refusals: dict[str, int] = {}  # by uid, in a row
        self.shrinking: set[str] = set()
        self.ended: Counter[EndReason] = Counter()  # pods that were evicted, as the API has answered
        self.overtaken: frozenset[str] = frozenset()
        """Pods whose eviction is under way and not wanted any more: it is called back where it has not begun."""
        self.recorded: list[JobKey] = []  # placements since the last plan
        self.asked: set[JobKey] = set()
        # what the last plan believed and said
        self.believed: Callable[[Job], Estimation] = lambda job: declared(job, 0.0)
        self.whys: Mapping[JobKey, str] = {}
        # the last lesson
        self.taught_at = -math.inf
        self.teacher = JobKey("", "")
        self.made = JobBuilder(
            self.owners,
            self.groups,
            self.refused_at,
            self.in_flight,
            self.shrinking,
            self.quotas,
            self.came_bound,
            self.outside,
        )

    def use(self, profile: Profile) -> None:
        """Plan with another profile from now on: what a job is like (scored or pinned) depends on it, too."""
        self.profile = profile
        self.lessons.shared = profile.shared_lessons
        self.shared_at = -1.0
        for entry in self.entries.values():
            entry.desired.grant, entry.desired.why = None, ""  # the other profile's
        self.dirty |= self.entries.keys()

    @property
    def unknown_owners(self) -> Mapping[str, tuple[str, Owner]]:
        """Topmost owners of our pods, by uid, that no watch delivers: custom resources with sizes to read."""
        return self.owners.unknown

    @property
    def claims(self) -> frozenset[Claim]:
        """Persistent volume claims to be read, by namespace and name."""
        return self.volumes.wanted

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
        labels = {**(labels or {}), NAMESPACE_NAME: namespace}
        return not all(matches(labels.get(r.key), r) for r in chosen.selector)

    def again(self, key: JobKey, at: float) -> None:
        """Look at the job again at `at`, or before."""
        self.later[key] = min(at, self.later.get(key, at))
        self.requeue_at.add(at)

    def back_off_node(self, entry: JobState, bar: NodeBackoff) -> None:
        """Leave a node out for a role of the job for a while."""
        entry.node_backoffs[(bar.role, bar.node)] = bar
        self.with_node_backoffs.add(entry.key)
        self.requeue_at.add(bar.until)

    def bury(self, uid: str) -> None:
        """Remember a uid that is gone, as long as an answer about it may be on its way."""
        self.gone[uid] = None
        if len(self.gone) > BURIED:
            del self.gone[next(iter(self.gone))]

    def product_of(self, node: str) -> str:
        """The GPU product of a node, "" where it is not known."""
        record = self.charges.nodes.get(node)
        return "" if record is None else record.labels.get(PRODUCT, "")
