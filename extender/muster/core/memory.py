"""What has been observed: events in (`apply`), frozen Snapshots out (`snapshot`).

Invariant: a gate comes off only for a pod whose uid and node stand in the placement that the Gang's status
has (`Entry.recorded`). So a crash between any two requests loses nothing: the next leader reads the placement and
goes on. Capacity is charged by pod uid from the hold until the pod has ended (core.charges).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from muster.core import budgets, identity, learned, reports
from muster.core.attained import attained
from muster.core.charges import Charges
from muster.core.entry import NO_MEMORY, UNTOUCHED, Entry, fresh_start, reopened
from muster.core.halfdone import half_done
from muster.core.jobs import Jobs, is_alive
from muster.core.owners import Owners, watched
from muster.core.volumes import CLAIM_PATIENCE, Claim, Claims
from muster.points import Profile
from muster.types import (
    PRODUCT,
    Bar,
    Budget,
    BudgetsSeen,
    ClaimSeen,
    Event,
    GangGone,
    GangRecord,
    GangSeen,
    GroupSeen,
    Hold,
    Job,
    JobKey,
    LearnedSeen,
    NodeGone,
    NodeSeen,
    Outcome,
    Owner,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    Phase,
    PodGone,
    PodRecord,
    PodSeen,
    Quota,
    QuotasSeen,
    Report,
    Reported,
    Shape,
    Snapshot,
)

OWNER_PATIENCE = 5.0
"""Seconds after which a pod whose controller, or whose PodGroup, was never seen is taken as it is."""
UNREAD_PATIENCE = 30.0
"""Seconds after which a gated pod whose custom owner could not be read is taken as it is: nobody knows the size
of its job then, and before it would start in part."""
RETURN = 30.0
"""Seconds for which a job without a pod is not over after we evicted one of its pods: its owner makes it again (0.5
to 1.2 s for a Job, design §1; operators take their time)."""
SUCCESSOR = 10.0
"""Seconds for which the place of an evicted replica waits for its successor before another one takes it."""
CREATING = 3.0
"""Seconds after a job's newest pod (whole seconds) in which its owner may make more of them: pods
come in any order, and a place waits for the lowest index meanwhile."""
KEEPS_ANYWAY = 600.0
"""Seconds: what a budget keeps for longer (a job that was to go whole) does not end with one eviction allowed."""
HEARD = 5.0
"""Seconds after which reports that tell little (one more step) are looked at."""
BURIED = 20_000
"""Uids of pods and Gangs that are gone and not forgotten: more than can end within a request's timeout."""


class Memory:
    """State across cycles; see the module's docstring. The Ledger adds what is done about a plan."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.created_ungated: set[str] = set()
        self._unsaid: set[str] = set()
        self._charges = Charges()
        self._owners = Owners()
        self._claims = Claims()
        self._groups: dict[tuple[str, str], int] = {}
        self._entries: dict[JobKey, Entry] = {}
        self._job_of: dict[str, JobKey] = {}
        self._versions: dict[str, int] = {}
        self._gone: dict[str, None] = {}  # uids, oldest first
        self._orphans: dict[str, tuple[PodRecord, float]] = {}
        self._gang_names: dict[tuple[str, str], GangRecord] = {}
        self._jobs: dict[JobKey, Job] = {}
        self._dirty: set[JobKey] = set()
        self._released: set[str] = set()
        self._half_done: set[str] = set()
        self._refused_at: dict[str, float] = {}
        self._in_flight: set[tuple[str, str]] = set()
        self._retry: dict[str, float] = {}
        self._with_bars: set[JobKey] = set()
        self._asked: set[JobKey] = set()
        self._wakes: set[float] = set()
        self._returning: set[JobKey] = set()
        self._quotas: dict[str, tuple[Quota, ...]] = {}
        self._short: set[JobKey] = set()
        self._heard: set[JobKey] = set()
        self.told: list[float] = []
        """When reports came that the next cycle looks at because of what they tell."""
        self.lessons = learned.Lessons()
        self._later: dict[JobKey, float] = {}  # when a job is to be looked at again although nothing happens
        self._shrinking: set[str] = set()
        self.shared_at = -1.0
        self._budgets: dict[str, tuple[Budget, ...]] = {}
        self._guarded: set[JobKey] = set()
        self.guarded: frozenset[tuple[str]] = frozenset()
        """Namespaces where a PodDisruptionBudget keeps a job from becoming smaller: its budgets are to be read."""
        self.short: frozenset[tuple[str]] = frozenset()
        """Namespaces whose quotas may keep pods of jobs out: to be read."""
        self._made = Jobs(
            self._owners, self._groups, self._refused_at, self._in_flight, self._shrinking, self._quotas
        )

    def use(self, profile: Profile) -> None:
        """Plan with another profile from now on: what a job is like (scored or pinned) depends on it, too."""
        self.profile = profile
        self.shared_at = -1.0
        for entry in self._entries.values():
            entry.want, entry.why = None, ""  # the other profile's
        self._dirty |= self._entries.keys()

    # ---- events in ----

    def apply(self, event: Event, now: float) -> None:
        """Learn one event. Late and repeated events are harmless."""
        match event:
            case PodSeen(pod):
                self._pod_seen(pod, now)
            case PodGone(uid):
                self._pod_gone(uid)
            case NodeSeen(node):
                self._charges.node_seen(node)
            case NodeGone(name):
                self._charges.node_gone(name)
            case OwnerSeen(owner):
                self._owner_seen(owner, now)
            case OwnerGone(uid):
                self._touch_owned(uid)
                self._owners.gone(uid)
            case GangSeen(gang):
                self._gang_seen(gang)
            case GangGone(namespace, name, object_uid):
                self._gang_gone(namespace, name, object_uid)
            case GroupSeen(namespace, name, min_count):
                if min_count > 0:
                    self._groups[(namespace, name)] = min_count
                else:
                    self._groups.pop((namespace, name), None)
                self._dirty |= {
                    k for k in self._entries if k.namespace == namespace and k.name.endswith(name)
                }
                self._place_orphans(
                    [
                        pod
                        for pod, _ in self._orphans.values()
                        if (pod.namespace, identity.group_of(pod)) == (namespace, name)
                    ],
                    now,
                )
            case ClaimSeen(namespace, name, anywhere):
                self._claim_seen((namespace, name), anywhere, now)
            case QuotasSeen(namespace, quotas):
                if self._quotas.get(namespace) != quotas:
                    self._quotas[namespace] = quotas
                    self._dirty |= {key for key in self._short if key.namespace == namespace}
            case BudgetsSeen(namespace, found):
                self._budgets_seen(namespace, found, now)
            case Reported(uid, report):
                self._reported(uid, report, now)
            case LearnedSeen(lessons):
                self.lessons.read(lessons)
            case Outcome():
                pass  # the Ledger's, which sent the action

    def _reported(self, uid: str, report: Report, now: float) -> None:
        """What training says counts while its pod runs. A cycle follows at once where it tells something new, else
        with the next one, HEARD seconds later at most: a thousand jobs report each second."""
        key = self._job_of.get(uid)
        entry = self._entries.get(key) if key is not None else None
        if key is None or entry is None or entry.pods[uid].phase is not Phase.BOUND:
            return
        before = entry.track
        entry.track = reports.follow(before, report, before.config, now)
        if reports.worth_telling(before, entry.track):
            self._dirty.add(key)
            self.told.append(now)
        elif entry.track is not before:
            if not self._heard:
                self._wakes.add(now + HEARD)
            self._heard.add(key)

    def _pod_seen(self, pod: PodRecord, now: float) -> None:
        if pod.uid in self._gone:
            return  # the answer to a patch, read after the watch has told the end: uids never come back
        version = int(pod.version) if pod.version.isdigit() else 0
        known = self._versions.get(pod.uid, 0)
        # What a patch of ours answered comes by the watch, too: once is enough.
        if version and (version < known or (version == known and pod.uid in self._job_of)):
            return
        self._versions[pod.uid] = version
        if not pod.ours:
            self._charges.charge(pod.uid, pod.node if pod.phase.on_node else "", pod.shape, ours=False)
            return
        self._claims.follow(pod)
        pod = self._claims.settled(pod)
        key = self._job_of.get(pod.uid)
        before = self._entries[key].pods[pod.uid] if key is not None else None
        if key is not None and before is not None and replace(before, version=pod.version) == pod:
            self._entries[key].pods[pod.uid] = pod  # a status that nobody reads: only its version is news
            return
        first = before is None and pod.uid not in self._orphans
        if first and pod.phase is Phase.UNGATED and not pod.pin and identity.EXPOSED not in pod.annotations:
            self.created_ungated.add(pod.uid)
            self._unsaid.add(pod.uid)
        if pod.phase is Phase.UNGATED and pod.refusal:
            self._refused_at.setdefault(pod.uid, now)
        else:
            self._refused_at.pop(pod.uid, None)
        self._place_pod(pod, now)

    def _place_pod(self, pod: PodRecord, now: float) -> None:
        """Under its job, or apart for a moment while what decides its job's name and size is on its way."""
        self._owners.follow(pod)
        pod = self._claims.settled(pod)
        since = self._orphans.get(pod.uid, (pod, now))[1]
        until = self._apart_until(pod, since)
        if pod.uid not in self._job_of and now < until:
            self._orphans[pod.uid] = (pod, since)
            self._wakes.add(until)
            return
        self._orphans.pop(pod.uid, None)
        self._join(pod)

    def _apart_until(self, pod: PodRecord, since: float) -> float:
        """How long a pod that was first seen at `since` may stay apart; 0 where all is known."""
        owner = pod.controller
        if owner is not None and watched(owner) and owner.uid not in self._owners.records:
            return pod.created + OWNER_PATIENCE
        if pod.phase not in (Phase.GATED, Phase.HELD):
            return 0.0  # it may be on a node already: what it uses counts at once
        top = self._owners.topmost(pod)
        if top is not None and not watched(top) and top.uid not in self._owners.records:
            return since + UNREAD_PATIENCE
        group = identity.group_of(pod)
        if group and (pod.namespace, group) not in self._groups:
            return pod.created + OWNER_PATIENCE
        if self._claims.unread(pod):
            return since + CLAIM_PATIENCE
        return 0.0

    def _claim_seen(self, claim: Claim, anywhere: bool, now: float) -> None:
        for uid in self._claims.seen(claim, anywhere):
            key = self._job_of.get(uid)
            if key is not None:
                self._join(self._claims.settled(self._entries[key].pods[uid]))
            elif uid in self._orphans:
                self._place_pod(self._orphans[uid][0], now)

    def _place_orphans(self, pods: Iterable[PodRecord], now: float) -> None:
        for pod in pods:
            self._place_pod(pod, now)

    @property
    def unknown_owners(self) -> Mapping[str, tuple[str, Owner]]:
        """Topmost owners of our pods, by uid, that no watch delivers: custom resources with sizes to read."""
        return self._owners.unknown

    @property
    def claims(self) -> frozenset[Claim]:
        """Persistent volume claims to be read, by namespace and name."""
        return self._claims.wanted

    def grown_owners(self) -> frozenset[str]:
        """Those that got a pod since this was last asked: they may have been scaled."""
        return self._owners.grown()

    @property
    def unread_owners(self) -> bool:
        """Whether one of them has not been read yet."""
        return self._owners.unread

    def _join(self, pod: PodRecord) -> None:
        """Put a pod under its job, and its charge where it stands."""
        key = identity.job_key(pod, self._owners.records)
        before = self._job_of.get(pod.uid)
        if (
            before is not None
            and pod.controller is not None
            and pod.controller.uid not in self._owners.records
        ):
            key = (
                before  # its owner goes first (a ReplicaSet before its pods): it stays of the job that it was
            )
        if before is not None and before != key:
            self._leave(pod.uid, before)
        self._owners.joined(pod)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(key)
        if pod.uid not in entry.pods:
            live = any(not p.phase.ended for p in entry.pods.values())
            if (
                entry.ended_at and not live and not entry.sent_back
            ):  # the same name after the job ended: a new job
                self._entries[key] = entry = fresh_start(entry)
            entry.submitted = min(entry.submitted or pod.created, pod.created)
            entry.newest_pod = max(entry.newest_pod, pod.created)
        entry.pods[pod.uid] = pod
        (self._released.add if pod.phase is Phase.RELEASED else self._released.discard)(pod.uid)
        (self._half_done.add if half_done(pod) else self._half_done.discard)(pod.uid)
        self._job_of[pod.uid] = key
        self._place_charge(entry, pod)
        self._dirty.add(key)

    def _place_charge(self, entry: Entry, pod: PodRecord) -> None:
        if pod.phase.ended:
            node = ""
        elif pod.phase.on_node:
            node = pod.node
        elif pod.deleting:
            node = ""
        else:
            hold = next((h for h in entry.planned if h.uid == pod.uid), None)
            node = pod.pin or (hold.node if hold else "")
        self._charges.charge(pod.uid, node, pod.shape, ours=True)

    def _bury(self, uid: str) -> None:
        """Remember a uid that is gone, as long as an answer about it may be on its way."""
        self._gone[uid] = None
        if len(self._gone) > BURIED:
            del self._gone[next(iter(self._gone))]

    def _pod_gone(self, uid: str) -> None:
        self._bury(uid)
        self._versions.pop(uid, None)
        self._orphans.pop(uid, None)
        self._refused_at.pop(uid, None)
        self._retry.pop(uid, None)
        self._shrinking.discard(uid)
        self.created_ungated.discard(uid)
        self._unsaid.discard(uid)
        self._released.discard(uid)
        self._half_done.discard(uid)
        self._charges.charge(uid, "", Shape(), ours=False)
        key = self._job_of.get(uid)
        if key is not None:
            self._leave(uid, key)
        self._owners.leave(uid)
        self._claims.leave(uid)

    def _leave(self, uid: str, key: JobKey) -> None:
        self._job_of.pop(uid, None)
        entry = self._entries[key]
        pod = entry.pods.pop(uid, None)
        if pod is not None:
            self._owners.left(pod)
        if entry.holds is not None and any(h.uid == uid for h in entry.holds):
            self._set_holds(entry, reopened(entry.holds, {uid}))
        self._dirty.add(key)

    def _owner_seen(self, owner: OwnerRecord, now: float) -> None:
        uid = owner.owner.uid
        if not self._owners.wanted(owner.owner):
            return  # read while its last pod went
        before = self._owners.seen(owner)
        if before is None or before.parent != owner.parent:
            for pod_uid in list(self._owners.pods_of(uid)):
                key = self._job_of.get(pod_uid)
                if key is not None:
                    pod = self._entries[key].pods[pod_uid]
                    self._owners.follow(pod)
                    self._join(pod)
        if before is None:
            led = self._owners.waiting_for(uid)
            self._place_orphans(
                [
                    pod
                    for pod, _ in self._orphans.values()
                    if pod.uid in led or (pod.controller is not None and pod.controller.uid == uid)
                ],
                now,
            )
        if before != owner:
            self._touch_owned(owner.owner.uid)

    def _touch_owned(self, owner_uid: str) -> None:
        for uid in self._owners.pods_below(owner_uid):
            self._dirty.add(self._job_of[uid])

    def _gang_seen(self, gang: GangRecord) -> None:
        if gang.object_uid in self._gone:
            return
        known = self._gang_names.get((gang.key.namespace, gang.name))
        if known is not None and known.object_uid == gang.object_uid and _older(gang.version, known.version):
            return
        if known == gang:
            return  # what a write of ours answered comes by the watch, too
        self._gang_names[(gang.key.namespace, gang.name)] = gang
        entry = self._entries.get(gang.key)
        if entry is None:
            entry = self._entries[gang.key] = Entry(gang.key)
        first = entry.gang is None
        entry.gang = gang
        entry.recorded = frozenset((h.uid, h.node) for h in gang.placement if h.uid)
        if first:
            self._recall(entry)
        if entry.holds is None:
            self._charge_holds(entry)
        self._dirty.add(gang.key)

    def _recall(self, entry: Entry) -> None:
        """Take over what an earlier leader wrote."""
        gang = entry.gang
        if gang is None:
            return
        entry.written = (gang.state, gang.code, gang.reason, gang.replicas)
        entry.state, entry.since = gang.state, gang.since
        if gang.submitted:
            entry.submitted = min(entry.submitted or gang.submitted, gang.submitted)
        entry.started_at = gang.started
        entry.backoff, entry.not_before = gang.backoff, gang.not_before
        entry.ended_at = gang.ended
        entry.sizes = gang.sizes or None
        entry.keeps_told = gang.keeps
        entry.bars = frozenset(gang.barred)
        if gang.facts is not None:
            entry.facts = gang.facts
        if gang.track:
            entry.track = reports.from_plain(gang.track)
        entry.memory, entry.want, entry.changing = gang.memory or NO_MEMORY, gang.want, False
        entry.kept = entry.lived
        entry.asked = entry.asked_kept = gang.asked
        (self._asked.add if entry.asked else self._asked.discard)(entry.key)
        for bar in gang.barred:
            self._bar(entry, bar)

    def _gang_gone(self, namespace: str, name: str, object_uid: str) -> None:
        self._bury(object_uid)
        known = self._gang_names.get((namespace, name))
        if known is None or known.object_uid != object_uid:
            return
        del self._gang_names[(namespace, name)]
        entry = self._entries.get(known.key)
        if entry is not None:
            if entry.holds is None:  # this replica followed: what the Gang said is all it knew
                self._set_holds(entry, entry.planned)
            entry.gang, entry.recorded, entry.written = None, frozenset(), ("", "", "", "")
            self._dirty.add(entry.key)

    def take_over(self) -> None:
        """Become the one who plans: what the API says counts, intents of an earlier term are forgotten."""
        self._in_flight.clear()
        self._retry.clear()
        self._shrinking.clear()
        for entry in self._entries.values():
            if entry.holds is not None:
                self._set_holds(entry, ())
                entry.holds = None
            entry.writing, entry.retry_at = False, 0.0
            entry.asking, entry.ask_again = False, 0.0
            self._recall(entry)
            self._charge_holds(entry)
            self._dirty.add(entry.key)

    def _again(self, key: JobKey, at: float) -> None:
        """Look at the job again at `at`, or before."""
        self._later[key] = min(at, self._later.get(key, at))
        self._wakes.add(at)

    def _bar(self, entry: Entry, bar: Bar) -> None:
        """Leave a node out for a role of the job for a while."""
        entry.barred[(bar.role, bar.node)] = bar
        self._with_bars.add(entry.key)
        self._wakes.add(bar.until)

    # ---- places ----

    def _set_holds(self, entry: Entry, holds: tuple[Hold, ...]) -> None:
        gone = {h.uid for h in entry.planned if h.uid} - {h.uid for h in holds}
        entry.holds = holds
        self._charge_holds(entry)
        for uid in gone:
            pod = entry.pods.get(uid)
            if pod is not None:
                self._place_charge(entry, pod)
            else:
                self._charges.charge(uid, "", Shape(), ours=True)

    def _charge_holds(self, entry: Entry) -> None:
        """Holds of pods are charged by uid, open ones by number, so that none counts twice."""
        shapes = self._shapes(entry)
        number = 0
        for hold in entry.planned:
            pod = entry.pods.get(hold.uid) if hold.uid else None
            if pod is not None:
                self._place_charge(entry, pod)
            elif hold.role in shapes:
                self._charges.charge((entry.key, number), hold.node, shapes[hold.role], ours=True)
                number += 1
        while self._charges.charged((entry.key, number)):
            self._charges.charge((entry.key, number), "", Shape(), ours=True)
            number += 1

    def _shapes(self, entry: Entry) -> dict[str, Shape]:
        return {identity.role_of(p): p.shape for p in entry.pods.values()}

    # ---- the snapshot ----

    def snapshot(self, now: float) -> Snapshot:
        """Everything that a plan may depend on, at `now`."""
        self._place_orphans([pod for pod, _ in self._orphans.values()], now)
        over = {key for key, until in self._later.items() if until <= now}
        for key in over:
            del self._later[key]
        self._dirty |= self._returning | self._heard | over
        self._returning.clear()
        self._heard.clear()
        for key in self._dirty:
            self._refresh(key, now)
        self._dirty.clear()
        self._charges.moved = False
        barred: dict[tuple[JobKey, str], dict[str, float]] = {}
        for key in self._with_bars:
            for bar in self._entries[key].barred.values():
                if bar.until > now:
                    barred.setdefault((key, bar.role), {})[bar.node] = bar.until
        return Snapshot(
            now=now,
            nodes=self._charges.columns(),
            free=self._charges.free(),
            jobs=dict(self._jobs),
            ports=self._charges.ports(),
            barred=barred,
            ours_on=self._charges.ours_on(),
            shared_at=self.shared_at,
        )

    def _refresh(self, key: JobKey, now: float) -> None:
        """Rebuild one job's frozen view; forget a job of which nothing is left."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if not entry.pods and entry.gang is None:
            if entry.holds:
                self._set_holds(entry, ())
            self._jobs.pop(key, None)
            del self._entries[key]
            self._with_bars.discard(key)
            self._asked.discard(key)
            self._guarded.discard(key)
            self._later.pop(key, None)
            return
        if entry.holds is None and entry.gang is not None and entry.gang.placement:
            self._charge_holds(entry)
        # Owners make again what we evicted. Where nobody tells us what an owner still wants, time decides.
        returns = (
            now < entry.returning + RETURN
            and key.uid not in self._owners.records
            and not any(is_alive(p) for p in entry.pods.values())
        )
        if returns:
            self._wakes.add(entry.returning + RETURN)
            self._returning.add(key)
        job = self._made.job(entry, self.profile, returns=returns)
        self._jobs[key] = entry.job = self._lived(entry, job, now)

    def _lived(self, entry: Entry, job: Job, now: float) -> Job:
        """The job with what it has attained and reported so far."""
        config = reports.config_of(job, self._product_of)
        changing = bool(job.holds) or any(len(role.on) > role.bound for role in job.roles)
        before = entry.track.config
        if config != before or (entry.track.change is not None and not changing):
            stops = entry.sent_back
            cause = "stop" if stops else "start" if not before.roles else "resize"
            if cause == "resize" and config.roles == before.roles:
                cause = "move"
            entry.track = reports.changed(entry.track, config, now, cause, whole=not changing)
        costs = reports.costs(entry.track)
        facts = attained(entry.facts, job.roles, config, job.speed, now, changing=changing)
        if facts.costs != costs:
            facts = replace(facts, last_cost=reports.cost(entry.track), costs=costs)
        entry.facts = facts
        if entry.keeps:
            if entry.keeps_until <= now:
                entry.keeps = ""
                self._guarded.discard(entry.key)
            else:
                self._again(entry.key, entry.keeps_until)
        until = entry.returning + SUCCESSOR
        if any(len(role.members) + role.ended < role.max for role in job.roles):
            until = max(until, entry.newest_pod + CREATING)
        if job.expects and now < until:
            self._again(entry.key, until)
            job = replace(job, coming=True)
        if not changing and job.bound:
            entry.changing = False
        if job.model and entry.facts is UNTOUCHED and learned.MEMORY not in entry.memory:
            taught = self.lessons.of(job)
            if taught is not None:
                entry.memory = {**entry.memory, learned.MEMORY: learned.plain_lesson(taught)}
        if entry.facts is UNTOUCHED and entry.track is reports.EMPTY and not entry.memory:
            return job  # nearly every job of a long queue
        return replace(
            job,
            facts=entry.facts,
            report=reports.report(entry.track),
            samples=reports.samples(entry.track),
            memory=entry.memory,
            want=entry.want,
            keeps=self._keeps(entry, job),
        )

    def _keeps(self, entry: Entry, job: Job) -> str:
        """Why it can't become smaller, as far as the budget that refused is known."""
        known = self._budgets.get(entry.key.namespace, ())
        return budgets.words(entry.keeps, known, job) if entry.keeps else ""

    def _budgets_seen(self, namespace: str, found: tuple[Budget, ...], now: float) -> None:
        """News of a namespace's budgets; jobs that one kept large are tried again as soon as it allows that."""
        news = self._budgets.get(namespace) != found
        self._budgets[namespace] = found
        for key in [key for key in self._guarded if key.namespace == namespace]:
            entry = self._entries[key]
            if entry.keeps_for < KEEPS_ANYWAY and budgets.allows(entry.keeps, found):
                entry.keeps_until = now
                self._dirty.add(key)
            elif news:
                self._dirty.add(key)

    def _product_of(self, node: str) -> str:
        record = self._charges.nodes.get(node)
        return "" if record is None else record.labels.get(PRODUCT, "")


def _older(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) < int(than)
