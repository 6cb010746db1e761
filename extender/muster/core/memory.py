"""What is kept across cycles: of every job (core.entry), pod, Gang and owner, and what is under way.

The modules that work on it: events in (`events`, `pods`, `recall`, `obstacles`, `outcomes`), frozen Snapshots out
(`snapshots`, `lived`), and from a plan to actions (`ledger`, `endings`, `leaving`, `gates`, `writing`, `asking`,
`teaching`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from muster.core import learned
from muster.core.charges import Charges
from muster.core.entry import Entry
from muster.core.jobs import Jobs
from muster.core.owners import Owners
from muster.core.table import declared
from muster.core.volumes import Claim, Claims
from muster.points import Estimation, Profile
from muster.types import PRODUCT, Bar, Budget, GangRecord, Job, JobKey, Owner, PodRecord, Quota

QUIET = 2.0
"""Seconds without a new pod before "3 of 12 pods exist" is worth a write; creation times are cut to whole seconds, so
at least one has passed."""

BURIED = 20_000
"""Uids of pods and Gangs that are gone and not forgotten: more than can end within a request's timeout."""


class Memory:
    """State across cycles; a Ledger is what a driver talks to."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.charges = Charges()
        self.entries: dict[JobKey, Entry] = {}
        self.jobs: dict[JobKey, Job] = {}  # frozen, as the last Snapshot had them
        # pods, by uid
        self.job_of: dict[str, JobKey] = {}
        self.versions: dict[str, int] = {}
        self.gone: dict[str, None] = {}  # of Gangs, too; oldest first
        self.orphans: dict[str, tuple[PodRecord, float]] = {}  # apart, since when
        self.released: set[str] = set()
        self.half_done: set[str] = set()  # evictions of theirs were begun
        self.refused_at: dict[str, float] = {}
        self.created_ungated: set[str] = set()
        self.unsaid: set[str] = set()  # of these: nobody has been told
        # what is read beside pods
        self.owners = Owners()
        self.volumes = Claims()
        self.groups: dict[tuple[str, str], int] = {}  # minimum by namespace and name
        self.gang_names: dict[tuple[str, str], GangRecord] = {}
        self.lessons = learned.Lessons()
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
        self.with_bars: set[JobKey] = set()
        self.wakes: set[float] = set()
        self.later: dict[JobKey, float] = {}  # when a job is to be looked at again although nothing happens
        self.told: list[float] = []
        """When reports came that the next cycle looks at because of what they tell."""
        self.listens: float | None = math.inf
        """Since when reports come to this replica: inf while it follows, None from its next snapshot on."""
        self.shared_at = -1.0  # when shares were last computed
        # what is under way
        self.in_flight: set[tuple[str, str]] = set()  # kind of action, uid
        self.retry: dict[str, float] = {}  # by uid, not before
        self.shrinking: set[str] = set()
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
        self.made = Jobs(
            self.owners, self.groups, self.refused_at, self.in_flight, self.shrinking, self.quotas
        )

    def use(self, profile: Profile) -> None:
        """Plan with another profile from now on: what a job is like (scored or pinned) depends on it, too."""
        self.profile = profile
        self.shared_at = -1.0
        for entry in self.entries.values():
            entry.want, entry.why = None, ""  # the other profile's
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

    def again(self, key: JobKey, at: float) -> None:
        """Look at the job again at `at`, or before."""
        self.later[key] = min(at, self.later.get(key, at))
        self.wakes.add(at)

    def bar(self, entry: Entry, bar: Bar) -> None:
        """Leave a node out for a role of the job for a while."""
        entry.barred[(bar.role, bar.node)] = bar
        self.with_bars.add(entry.key)
        self.wakes.add(bar.until)

    def bury(self, uid: str) -> None:
        """Remember a uid that is gone, as long as an answer about it may be on its way."""
        self.gone[uid] = None
        if len(self.gone) > BURIED:
            del self.gone[next(iter(self.gone))]

    def product_of(self, node: str) -> str:
        """The GPU product of a node, "" where it is not known."""
        record = self.charges.nodes.get(node)
        return "" if record is None else record.labels.get(PRODUCT, "")
