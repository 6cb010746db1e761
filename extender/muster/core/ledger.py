"""The Ledger: all that was observed and must be remembered, and the way from a plan to actions.

Events go in (`apply`), frozen Snapshots come out (`snapshot`), a Plan goes back in and Actions come out
(`adopt`). Nothing here knows a client, a clock or a log: the driver passes `now`.

Invariant: a gate comes off only for a pod whose uid and node stand in the placement that the Gang's status
has (`_Entry.recorded`). So a crash between any two requests loses nothing: the next leader reads the
placement and goes on. Capacity is charged by pod uid from the hold until the pod has ended, at one place at a
time, so "planned", "ungated" and "bound" never count twice and never not at all.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from muster.core import identity
from muster.core.room import used_by
from muster.core.view import View
from muster.errors import InputError
from muster.points import Profile
from muster.types import (
    Action,
    Code,
    DeleteGang,
    Event,
    Evict,
    GangGone,
    GangRecord,
    GangSeen,
    GroupSeen,
    Hold,
    IntArray,
    Job,
    JobKey,
    Member,
    NodeGone,
    NodeRecord,
    Nodes,
    NodeSeen,
    Nominate,
    Outcome,
    Owner,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    Phase,
    Plan,
    PodGone,
    PodRecord,
    PodSeen,
    Port,
    Role,
    Say,
    Shape,
    Snapshot,
    State,
    Status,
    Ungate,
    WriteGang,
)

WATCHED_KINDS = frozenset({"Job", "ReplicaSet", "StatefulSet", "Deployment"})
WATCHED_GROUPS = frozenset({"batch", "apps"})
"""Controllers of pods whose records the watches deliver: a pod waits a moment for its own."""
OWNER_PATIENCE = 5.0
"""Seconds after which a pod whose controller, or whose PodGroup, was never seen is taken as it is."""
UNREAD_PATIENCE = 30.0
"""Seconds after which a gated pod whose custom owner could not be read is taken as it is: nobody knows the size
of its job then, and before it would start in part."""
QUIET = 2.0
"""Seconds without a new pod before "3 of 12 pods exist" is worth a write; creation times are cut to whole seconds, so
at least one has passed."""
RETRY = 0.5
"""Seconds before a request that was refused is planned again (a newer event may make it needless)."""
RETRY_EVICTION = 5.0
BURIED = 20_000
"""Uids of pods and Gangs that are gone and not forgotten: more than can end within a request's timeout."""
BAR_FIRST, BAR_MOST = 5.0, 1280.0
"""Seconds for which a refused node is left out for a role: the first time, doubling up to the most. Short at first:
kube-scheduler's cache may only have been behind, and the gang may have no other node."""
BACKOFF_FIRST, BACKOFF_DOUBLINGS = 10.0, 6
"""Seconds before a job whose start did not complete is tried again, doubling so many times."""


@dataclass
class _Entry:
    """One job's state. `holds` None: not planned by this leader yet, the Gang's placement counts."""

    key: JobKey
    pods: dict[str, PodRecord] = field(default_factory=dict)
    gang: GangRecord | None = None
    holds: tuple[Hold, ...] | None = None
    recorded: frozenset[tuple[str, str]] = frozenset()
    written: tuple[str, str, str, str] = ("", "", "", "")  # state, code, waits, replicas
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
    preempted: str = ""
    job: Job | None = None
    said: tuple[Job, Status] | None = None  # all is written of these, and nothing to do: no diff is needed


@dataclass(frozen=True, slots=True)
class _Charge:
    node: str
    shape: Shape
    ours: bool


class Ledger:
    """State across cycles; see the module's docstring."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.created_ungated: set[str] = set()
        self._unsaid: set[str] = set()
        self._nodes: dict[str, NodeRecord] = {}
        self._table: Nodes | None = None
        self._used: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._ours_on: IntArray = np.zeros(0, dtype=np.int64)
        self._vectors: dict[Shape, tuple[tuple[int, int], ...]] = {}
        self._charges: dict[Hashable, _Charge] = {}
        self._with_ports: set[Hashable] = set()
        self._owners: dict[str, OwnerRecord] = {}
        self._children: dict[str, set[str]] = {}
        self._pods_of_owner: dict[str, set[str]] = {}
        self._unwatched: dict[str, tuple[str, Owner]] = {}
        self._pods_of_unwatched: dict[str, set[str]] = {}
        self._unwatched_of: dict[str, str] = {}
        self._grown: set[str] = set()
        self._groups: dict[tuple[str, str], int] = {}
        self._entries: dict[JobKey, _Entry] = {}
        self._job_of: dict[str, JobKey] = {}
        self._versions: dict[str, int] = {}
        self._gone: dict[str, None] = {}  # uids, oldest first
        self._orphans: dict[str, tuple[PodRecord, float]] = {}
        self._gang_names: dict[tuple[str, str], GangRecord] = {}
        self._jobs: dict[JobKey, Job] = {}
        self._dirty: set[JobKey] = set()
        self._released: set[str] = set()
        self._recorded: list[JobKey] = []
        self._refused_at: dict[str, float] = {}
        self._in_flight: set[tuple[str, str]] = set()
        self._retry: dict[str, float] = {}
        self._barred: dict[tuple[JobKey, str], dict[str, float]] = {}
        self._bar_length: dict[tuple[JobKey, str, str], float] = {}
        self._wakes: set[float] = set()
        self._moved = True

    def use(self, profile: Profile) -> None:
        """Plan with another profile from now on: what a job is like (scored or pinned) depends on it, too."""
        self.profile = profile
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
                if self._nodes.get(node.name) != node:
                    self._nodes[node.name] = node
                    self._table = None
            case NodeGone(name):
                if self._nodes.pop(name, None) is not None:
                    self._table = None
            case OwnerSeen(owner):
                self._owner_seen(owner, now)
            case OwnerGone(uid):
                self._touch_owned(uid)
                gone = self._owners.pop(uid, None)
                self._children.pop(uid, None)
                if gone is not None and gone.parent is not None:
                    self._children.get(gone.parent.uid, set()).discard(uid)
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
            case Outcome():
                self._outcome(event, now)

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
            self._charge(pod.uid, pod.node if pod.phase.on_node else "", pod.shape, ours=False)
            return
        key = self._job_of.get(pod.uid)
        before = self._entries[key].pods[pod.uid] if key is not None else None
        if key is not None and before is not None and replace(before, version=pod.version) == pod:
            self._entries[key].pods[pod.uid] = pod  # a status that nobody reads: only its version is news
            return
        first = before is None and pod.uid not in self._orphans
        if first and pod.phase is Phase.UNGATED and not pod.pin:
            self.created_ungated.add(pod.uid)
            self._unsaid.add(pod.uid)
        if pod.phase is Phase.UNGATED and pod.refusal:
            self._refused_at.setdefault(pod.uid, now)
        else:
            self._refused_at.pop(pod.uid, None)
        self._place_pod(pod, now)

    def _place_pod(self, pod: PodRecord, now: float) -> None:
        """Under its job, or apart for a moment while what decides its job's name and size is on its way."""
        self._follow_owner(pod)
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
        if owner is not None and watched(owner) and owner.uid not in self._owners:
            return pod.created + OWNER_PATIENCE
        if pod.phase not in (Phase.GATED, Phase.HELD):
            return 0.0  # it may be on a node already: what it uses counts at once
        top = identity.topmost(pod, self._owners)
        if top is not None and not watched(top) and top.uid not in self._owners:
            return since + UNREAD_PATIENCE
        group = identity.group_of(pod)
        if group and (pod.namespace, group) not in self._groups:
            return pod.created + OWNER_PATIENCE
        return 0.0

    def _place_orphans(self, pods: Iterable[PodRecord], now: float) -> None:
        for pod in pods:
            self._place_pod(pod, now)

    def _follow_owner(self, pod: PodRecord) -> None:
        """A topmost owner that no watch delivers is wanted as long as it has pods."""
        top = identity.topmost(pod, self._owners)
        uid = top.uid if top is not None and not watched(top) else ""
        if self._unwatched_of.get(pod.uid, "") == uid:
            return
        self._leave_owner(pod.uid)
        if top is not None and uid:
            self._unwatched_of[pod.uid] = uid
            self._pods_of_unwatched.setdefault(uid, set()).add(pod.uid)
            self._grown.add(uid)
            if uid not in self._unwatched:  # a new dict, since another thread reads the old one
                self._unwatched = {**self._unwatched, uid: (pod.namespace, top)}

    def _leave_owner(self, pod_uid: str) -> None:
        uid = self._unwatched_of.pop(pod_uid, "")
        pods = self._pods_of_unwatched.get(uid, set())
        pods.discard(pod_uid)
        if uid and not pods:
            del self._pods_of_unwatched[uid]
            self._unwatched = {u: o for u, o in self._unwatched.items() if u != uid}
            self._owners.pop(uid, None)

    @property
    def unknown_owners(self) -> Mapping[str, tuple[str, Owner]]:
        """Topmost owners of our pods, by uid, that no watch delivers: custom resources with sizes to read."""
        return self._unwatched

    def grown_owners(self) -> frozenset[str]:
        """Those that got a pod since this was last asked: they may have been scaled."""
        grown = frozenset(self._grown)
        self._grown.clear()
        return grown

    @property
    def unread_owners(self) -> bool:
        """Whether one of them has not been read yet."""
        return any(uid not in self._owners for uid in self._unwatched)

    def _join(self, pod: PodRecord) -> None:
        """Put a pod under its job, and its charge where it stands."""
        key = identity.job_key(pod, self._owners)
        before = self._job_of.get(pod.uid)
        if before is not None and pod.controller is not None and pod.controller.uid not in self._owners:
            key = (
                before  # its owner goes first (a ReplicaSet before its pods): it stays of the job that it was
            )
        if before is not None and before != key:
            self._leave(pod.uid, before)
        if pod.controller is not None:
            self._pods_of_owner.setdefault(pod.controller.uid, set()).add(pod.uid)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(key)
        if pod.uid not in entry.pods:
            live = any(not p.phase.ended for p in entry.pods.values())
            if (
                entry.ended_at and not live and not entry.sent_back
            ):  # the same name after the job ended: a new job
                self._entries[key] = entry = replace_entry(entry)
            entry.submitted = min(entry.submitted or pod.created, pod.created)
            entry.newest_pod = max(entry.newest_pod, pod.created)
        entry.pods[pod.uid] = pod
        (self._released.add if pod.phase is Phase.RELEASED else self._released.discard)(pod.uid)
        self._job_of[pod.uid] = key
        self._place_charge(entry, pod)
        self._dirty.add(key)

    def _place_charge(self, entry: _Entry, pod: PodRecord) -> None:
        if pod.phase.ended:
            node = ""
        elif pod.phase.on_node:
            node = pod.node
        elif pod.deleting:
            node = ""
        else:
            hold = next((h for h in self._holds(entry) if h.uid == pod.uid), None)
            node = pod.pin or (hold.node if hold else "")
        self._charge(pod.uid, node, pod.shape, ours=True)

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
        self.created_ungated.discard(uid)
        self._unsaid.discard(uid)
        self._released.discard(uid)
        self._charge(uid, "", Shape(), ours=False)
        key = self._job_of.get(uid)
        if key is not None:
            self._leave(uid, key)
        self._leave_owner(uid)

    def _leave(self, uid: str, key: JobKey) -> None:
        self._job_of.pop(uid, None)
        entry = self._entries[key]
        pod = entry.pods.pop(uid, None)
        if pod is not None and pod.controller is not None:
            pods = self._pods_of_owner.get(pod.controller.uid, set())
            pods.discard(uid)
            if not pods:
                self._pods_of_owner.pop(pod.controller.uid, None)
        if entry.holds is not None and any(h.uid == uid for h in entry.holds):
            self._set_holds(entry, _reopened(entry.holds, {uid}))
        self._dirty.add(key)

    def _owner_seen(self, owner: OwnerRecord, now: float) -> None:
        uid = owner.owner.uid
        if not watched(owner.owner) and uid not in self._unwatched:
            return  # read while its last pod went
        before = self._owners.get(uid)
        self._owners[uid] = owner
        if before is None or before.parent != owner.parent:
            for pod_uid in list(self._pods_of_owner.get(uid, ())):
                key = self._job_of.get(pod_uid)
                if key is not None:
                    pod = self._entries[key].pods[pod_uid]
                    self._follow_owner(pod)
                    self._join(pod)
        if before is None:
            led = self._pods_of_unwatched.get(uid, set())
            self._place_orphans(
                [
                    pod
                    for pod, _ in self._orphans.values()
                    if pod.uid in led or (pod.controller is not None and pod.controller.uid == uid)
                ],
                now,
            )
        if owner.parent is not None:
            self._children.setdefault(owner.parent.uid, set()).add(owner.owner.uid)
        if before != owner:
            self._touch_owned(owner.owner.uid)

    def _touch_owned(self, owner_uid: str) -> None:
        for uid in self._pods_of_owner.get(owner_uid, ()):
            self._dirty.add(self._job_of[uid])
        for child in self._children.get(owner_uid, ()):
            for uid in self._pods_of_owner.get(child, ()):
                self._dirty.add(self._job_of[uid])

    def _gang_seen(self, gang: GangRecord) -> None:
        if gang.object_uid in self._gone:
            return
        known = self._gang_names.get((gang.key.namespace, gang.name))
        if known is not None and known.object_uid == gang.object_uid and _older(gang.version, known.version):
            return
        self._gang_names[(gang.key.namespace, gang.name)] = gang
        entry = self._entries.get(gang.key)
        if entry is None:
            entry = self._entries[gang.key] = _Entry(gang.key)
        first = entry.gang is None
        entry.gang = gang
        entry.recorded = frozenset((h.uid, h.node) for h in gang.placement if h.uid)
        if first:
            self._recall(entry)
        if entry.holds is None:
            self._charge_holds(entry)
        self._dirty.add(gang.key)

    def _recall(self, entry: _Entry) -> None:
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

    def _gang_gone(self, namespace: str, name: str, object_uid: str) -> None:
        self._bury(object_uid)
        known = self._gang_names.get((namespace, name))
        if known is None or known.object_uid != object_uid:
            return
        del self._gang_names[(namespace, name)]
        entry = self._entries.get(known.key)
        if entry is not None:
            if entry.holds is None:  # this replica followed: what the Gang said is all it knew
                self._set_holds(entry, self._holds(entry))
            entry.gang, entry.recorded, entry.written = None, frozenset(), ("", "", "", "")
            self._dirty.add(entry.key)

    def take_over(self) -> None:
        """Become the one who plans: what the API says counts, intents of an earlier term are forgotten."""
        self._in_flight.clear()
        self._retry.clear()
        for entry in self._entries.values():
            if entry.holds is not None:
                self._set_holds(entry, ())
                entry.holds = None
            entry.writing, entry.retry_at = False, 0.0
            self._recall(entry)
            self._charge_holds(entry)
            self._dirty.add(entry.key)

    # ---- capacity ----

    def _charge(self, key: Hashable, node: str, shape: Shape, *, ours: bool) -> None:
        """What `key` (a pod's uid or an open hold) uses is on `node` now; "" = nowhere."""
        before = self._charges.get(key)
        after = _Charge(node, shape, ours) if node else None
        if before == after:
            return
        self._moved = True
        if before is not None:
            self._add(before, -1)
            del self._charges[key]
            self._with_ports.discard(key)
        if after is not None:
            self._charges[key] = after
            self._add(after, 1)
            if shape.ports:
                self._with_ports.add(key)

    def _add(self, charge: _Charge, sign: int) -> None:
        table = self._table
        if table is None:
            return
        row = table.index.get(charge.node)
        if row is None:
            return
        vector = self._vectors.get(charge.shape)
        if vector is None:
            vector = self._vectors[charge.shape] = tuple(used_by(charge.shape, table).items())
        for column, value in vector:
            self._used[row, column] += sign * value
        if charge.ours:
            self._ours_on[row] += sign

    def _holds(self, entry: _Entry) -> tuple[Hold, ...]:
        if entry.holds is not None:
            return entry.holds
        return entry.gang.placement if entry.gang is not None else ()

    def _set_holds(self, entry: _Entry, holds: tuple[Hold, ...]) -> None:
        gone = {h.uid for h in self._holds(entry) if h.uid} - {h.uid for h in holds}
        entry.holds = holds
        self._charge_holds(entry)
        for uid in gone:
            pod = entry.pods.get(uid)
            if pod is not None:
                self._place_charge(entry, pod)
            else:
                self._charge(uid, "", Shape(), ours=True)

    def _charge_holds(self, entry: _Entry) -> None:
        """Holds of pods are charged by uid, open ones by number, so that none counts twice."""
        shapes = self._shapes(entry)
        number = 0
        for hold in self._holds(entry):
            pod = entry.pods.get(hold.uid) if hold.uid else None
            if pod is not None:
                self._place_charge(entry, pod)
            elif hold.role in shapes:
                self._charge((entry.key, number), hold.node, shapes[hold.role], ours=True)
                number += 1
        while self._charges.get((entry.key, number)) is not None:
            self._charge((entry.key, number), "", Shape(), ours=True)
            number += 1

    def _shapes(self, entry: _Entry) -> dict[str, Shape]:
        return {identity.role_of(p): p.shape for p in entry.pods.values()}

    # ---- the snapshot ----

    def snapshot(self, now: float) -> Snapshot:
        """Everything that a plan may depend on, at `now`."""
        self._place_orphans([pod for pod, _ in self._orphans.values()], now)
        for key in self._dirty:
            self._refresh(key)
        self._dirty.clear()
        self._moved = False
        table = self._columns()
        ports: dict[int, frozenset[Port]] = {}
        for charge in (self._charges[k] for k in self._with_ports):
            row = table.index.get(charge.node)
            if row is not None:
                ports[row] = ports.get(row, frozenset()) | frozenset(charge.shape.ports)
        barred = {place: {n: t for n, t in nodes.items() if t > now} for place, nodes in self._barred.items()}
        return Snapshot(
            now=now,
            nodes=table,
            free=table.total - self._used,
            jobs=dict(self._jobs),
            ports=ports,
            barred={place: nodes for place, nodes in barred.items() if nodes},
            ours_on=self._ours_on.copy(),
        )

    def _columns(self) -> Nodes:
        if self._table is None:
            self._table = Nodes(list(self._nodes.values()))
            self._vectors.clear()
            self._used = np.zeros((len(self._table), len(self._table.resources)), dtype=np.int64)
            self._ours_on = np.zeros(len(self._table), dtype=np.int64)
            for charge in self._charges.values():
                self._add(charge, 1)
        return self._table

    def _refresh(self, key: JobKey) -> None:
        """Rebuild one job's frozen view; forget a job of which nothing is left."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if not entry.pods and entry.gang is None:
            if entry.holds:
                self._set_holds(entry, ())
            self._jobs.pop(key, None)
            del self._entries[key]
            self._barred = {place: n for place, n in self._barred.items() if place[0] != key}
            self._bar_length = {place: n for place, n in self._bar_length.items() if place[0] != key}
            return
        if entry.holds is None and entry.gang is not None and entry.gang.placement:
            self._charge_holds(entry)
        self._jobs[key] = entry.job = self._job(entry)

    def _job(self, entry: _Entry) -> Job:
        pods = sorted(entry.pods.values(), key=lambda p: (p.created, p.name))
        live = [p for p in pods if not p.phase.ended and not (p.deleting and not p.phase.on_node)]
        holds = self._normal_holds(entry, live)
        if not any(p.phase in (Phase.BOUND, Phase.UNGATED) for p in live):
            entry.preempted = ""  # all of it is back, or on its way
        if not pods and entry.job is not None and self._comes_back(entry.key.uid):
            return replace(
                entry.job,
                submitted=entry.submitted,
                roles=tuple(replace(role, members=()) for role in entry.job.roles),
                holds=holds,
                started=False,
                started_at=entry.started_at,
                below_since=entry.below_since,
                since=entry.since,
                expects=False,
                not_before=entry.not_before,
            )
        notes = [(p.name, identity.declared(p)) for p in pods]
        invalid = ""
        try:
            job, sizes = identity.merge(notes)
        except InputError as error:
            job, sizes, invalid = identity.Declared(), {}, str(error)
        held = {h.uid: h.node for h in holds if h.uid}
        roles = self._roles(entry, pods, live, job, sizes, held)
        scored = tuple(sorted({why for r in roles for why in r.shape.unmodelled}))
        asked = job.placement or self.profile.placement
        if asked == "scored" and not scored:
            scored = ("asked for",)
        newest = max(live, key=lambda p: p.priority, default=None)
        controllers = {p.controller.uid for p in live if p.controller is not None}
        records = [self._owners[uid] for uid in controllers if uid in self._owners]
        return Job(
            key=entry.key,
            priority=newest.priority if newest else 0,
            submitted=entry.submitted,
            roles=roles,
            owner=self._owner(pods),
            holds=holds,
            started=any(
                m.phase is Phase.BOUND
                or (m.phase is Phase.UNGATED and bool(m.node))
                or ("ungate", m.uid) in self._in_flight
                for r in roles
                for m in r.members
            ),
            started_at=entry.started_at,
            below_since=entry.below_since,
            since=entry.since,
            topology_required=job.topology_required,
            topology_preferred=job.topology_preferred,
            placement_mode=job.placement,
            scored=scored,
            remaining_work=job.remaining_work,
            speed=job.speed,
            invalid=invalid,
            expects=bool(live) and all(self._will_create(p) for p in live),
            ordered=any(r.ordered for r in records),
            newest_pod=entry.newest_pod,
            not_before=entry.not_before,
            preempted=entry.preempted,
        )

    def _comes_back(self, uid: str) -> bool:
        """Whether a job without a pod at this moment has not ended: its owner still wants some."""
        record = self._owners.get(uid)
        if record is None or not record.size:
            return False
        if record.completions is not None:
            return record.succeeded < record.completions
        return not (record.queue and record.succeeded)

    def _normal_holds(self, entry: _Entry, live: list[PodRecord]) -> tuple[Hold, ...]:
        """Holds of bound pods are done; holds of pods that are gone are open for their successors."""
        phase = {p.uid: p.phase for p in live}
        kept = [h for h in self._holds(entry) if not (h.uid in phase and phase[h.uid].on_node)]
        return _reopened(tuple(kept), {h.uid for h in kept if h.uid and h.uid not in phase})

    def _roles(
        self,
        entry: _Entry,
        pods: list[PodRecord],
        live: list[PodRecord],
        job: identity.Declared,
        sizes: Mapping[str, identity.RoleSize],
        held: Mapping[str, str],
    ) -> tuple[Role, ...]:
        owned = self._roles_of_owners(pods)
        named = [name for name, _ in job.roles]
        names = dict.fromkeys((*named, *owned, *sorted({identity.role_of(p) for p in pods})))
        roles = []
        for name in names:
            mine = [p for p in pods if identity.role_of(p) == name]
            alive = [p for p in live if identity.role_of(p) == name]
            controlled = [p for p in mine if p.controller is not None]
            ended = sum(
                1
                for p in mine
                if p.phase is Phase.SUCCEEDED or (p.phase is Phase.FAILED and p.controller is None)
            )
            size = owned[name] - ended if name in owned else self._owner_size(mine)
            group = self._groups.get((entry.key.namespace, identity.group_of(mine[0]))) if mine else None
            declared = sizes.get(name, identity.RoleSize())
            if group is not None and declared == identity.RoleSize() and len(names) == 1:
                declared = identity.RoleSize(min=group, max=max(group, len(alive) + ended))
            least, most = identity.role_bounds(
                declared,
                dict(job.roles).get(name),
                size,
                ended,
                sum(1 for p in alive if p.phase is not Phase.ENDING),
                owned=name in owned or (bool(controlled) and len(controlled) == len(mine)),
            )
            most += self._surge(mine)
            if self._rigid(mine):
                least = most
            members = sorted(
                (self._member(p, held) for p in alive), key=lambda m: (m.index, m.created, m.pod)
            )
            roles.append(
                Role(
                    name=name,
                    min=least,
                    max=most,
                    shape=_largest_shape(alive or mine),
                    sizes=declared.sizes,
                    members=tuple(members),
                    ended=ended,
                )
            )
        return tuple(roles)

    def _roles_of_owners(self, pods: list[PodRecord]) -> dict[str, int]:
        """Counts by role that the pods' topmost owners declare; several owners add up."""
        counts: dict[str, int] = {}
        for owner in {identity.topmost(p, self._owners) for p in pods}:
            record = self._owners.get(owner.uid) if owner is not None else None
            for role, count in record.roles if record is not None else ():
                counts[role] = counts.get(role, 0) + count
        return counts

    def _will_create(self, pod: PodRecord) -> bool:
        """Whether an owner of the pod is known to create the members that do not exist yet."""
        top = identity.topmost(pod, self._owners)
        owners = [self._owners.get(o.uid) for o in (pod.controller, top) if o is not None]
        return any(r is not None and (r.size is not None or bool(r.roles)) for r in owners)

    def _owner_size(self, pods: list[PodRecord]) -> int | None:
        """Replicas that the pods' controllers want to exist now; None where one does not say."""
        total = 0
        seen: set[str] = set()
        for pod in pods:
            owner = pod.controller
            if owner is None:
                return None
            record = self._owners.get(owner.uid)
            while record is not None and record.parent is not None:
                above = self._owners.get(record.parent.uid)
                if above is None or above.size is None:
                    break
                record = above
            if record is None or record.size is None:
                return None
            if record.owner.uid in seen:
                continue
            seen.add(record.owner.uid)
            size = record.size
            if record.owner.kind == "Job":
                mine = [p for p in pods if p.controller is not None and p.controller.uid == record.owner.uid]
                done = self._succeeded(record, mine)
                if record.completions is not None:
                    size = min(size, max(0, record.completions - done))
                elif record.queue and done:  # nothing new starts once one has succeeded
                    size = sum(1 for p in mine if not p.phase.ended and p.phase is not Phase.GATED)
            copies = pod.labels.get("jobset.sigs.k8s.io/replicatedjob-replicas", "")
            if copies.isdigit() and record.owner.kind == "Job":
                known = {p.controller.uid for p in pods if p.controller is not None}
                total += size * max(0, int(copies) - len(known)) if len(seen) == 1 else 0
            total += size
        return total if seen else None

    def _surge(self, pods: list[PodRecord]) -> int:
        """Pods that a Deployment has above its replicas while it rolls out: else its rollout would wait for us."""
        more = 0
        for top in {identity.topmost(p, self._owners) for p in pods}:
            record = self._owners.get(top.uid) if top is not None else None
            if record is None or record.size is None or record.owner.kind != "Deployment":
                continue
            sets = [
                self._owners[uid] for uid in self._children.get(record.owner.uid, ()) if uid in self._owners
            ]
            more += max(0, sum(s.size or 0 for s in sets) - record.size)
        return more

    @staticmethod
    def _succeeded(record: OwnerRecord, pods: Iterable[PodRecord]) -> int:
        """Pods of a Job that ended well, by its own count or by what is seen, whichever is further."""
        seen = sum(
            1
            for p in pods
            if p.phase is Phase.SUCCEEDED and p.controller and p.controller.uid == record.owner.uid
        )
        return max(record.succeeded, seen)

    def _rigid(self, pods: list[PodRecord]) -> bool:
        """Whether an owner waits for every replica: with fewer it would wait for ever (design §1)."""
        records = {p.controller.uid: self._owners.get(p.controller.uid) for p in pods if p.controller}
        return any(r is not None and r.whole and r.parent is None for r in records.values())

    def _member(self, pod: PodRecord, held: Mapping[str, str]) -> Member:
        node = pod.node or pod.pin
        if pod.phase is Phase.UNGATED and not node:
            node = held.get(pod.uid, "")
        return Member(
            uid=pod.uid,
            pod=pod.name,
            phase=pod.phase,
            shape=pod.shape,
            index=identity.index_of(pod),
            node=node,
            created=pod.created,
            refused_at=self._refused_at.get(pod.uid, 0.0),
            refusal=pod.refusal,
            evictable=pod.controller is not None or pod.annotations.get(identity.EVICTABLE) == "true",
            pinned=bool(pod.pin),
            nominated=pod.nominated,
        )

    def _owner(self, pods: list[PodRecord]) -> Owner | None:
        """The one topmost owner of all pods; a pod alone owns itself; several owners: none."""
        owners = {identity.topmost(p, self._owners) for p in pods}
        if len(owners) == 1:
            owner = owners.pop()
            if owner is not None:
                return owner
            if len(pods) == 1 and identity.JOB not in pods[0].labels and not pods[0].group:
                return Owner("v1", "Pod", pods[0].name, pods[0].uid)
        return None

    # ---- plan in, actions out ----

    def adopt(self, snapshot: Snapshot, plan: Plan) -> tuple[Action, ...]:
        """Make the plan ours and say what to do about it. 6 diff into actions (design §3).

        Actions stand in the plan's order, so gates come off in the order of the queue.
        """
        now = snapshot.now
        self.rest(now, plan)
        actions: list[Action] = list(self._ungated_at_birth())
        for undo in plan.undo:
            self._bar(undo.job, undo.role, undo.node, now)
            actions += self._evict(undo.job, undo.uid, f"undo a pin: {undo.why}", now)
        for key, why in plan.back.items():
            actions += self._send_back(key, why, now)
        for key, why in plan.preempted.items():
            actions += self._all_back(key, why, now)
            self._entries[key].preempted = why
        returning = plan.back.keys() | plan.preempted.keys()
        for key, holds in plan.holds.items():
            entry = self._entries.get(key)
            if entry is not None and key not in returning and self._holds(entry) != holds:
                self._set_holds(entry, holds)
                self._dirty.add(key)
            elif entry is not None and entry.holds is None:
                entry.holds = holds
        for key, status in plan.statuses.items():
            entry = self._entries.get(key)
            if entry is None or entry.job is None:
                continue
            if entry.said is not None and entry.said[0] is entry.job and _tell_alike(entry.said[1], status):
                continue
            actions += self._leftovers(entry, now)
            actions += self._diff(entry, entry.job, status, now)
        self._recorded.clear()
        return tuple(actions)

    def proceed(self, now: float) -> tuple[Action, ...]:
        """Between two cycles: the gates of places that the API has recorded since.

        The plan has decided them; waiting for the next one would make every start as slow as the planning of
        the whole cluster. Only for whoever leads.
        """
        recorded, self._recorded = self._recorded, []
        actions: list[Action] = []
        for entry in (self._entries.get(key) for key in recorded):
            if entry is not None and entry.job is not None and entry.holds is not None:
                actions += self._ungate(entry, entry.job, entry.holds, now)
        return tuple(actions)

    def _leftovers(self, entry: _Entry, now: float) -> Iterator[Action]:
        """A work-queue Job ends when one pod has succeeded and all have ended: those that wait are taken away."""
        held = {h.uid for h in self._holds(entry)}
        for pod in entry.pods.values():
            if pod.phase is not Phase.GATED or pod.uid in held or pod.controller is None:
                continue
            record = self._owners.get(pod.controller.uid)
            if record is not None and record.queue and self._succeeded(record, entry.pods.values()):
                yield from self._evict(entry.key, pod.uid, "a replica of its work queue has succeeded", now)

    def _ungated_at_birth(self) -> Iterator[Action]:
        """Pods of ours that came without the gate: left alone, and said once. Those that we ungated are none."""
        for uid in self._unsaid:
            key = self._job_of.get(uid)
            entry = self._entries.get(key) if key is not None else None
            if entry is None or uid in {recorded for recorded, _ in entry.recorded}:
                self.created_ungated.discard(uid)
                continue
            yield Say(
                entry.key,
                "CreatedUngated",
                "was created without the scheduling gate muster.dev/queue, so Muster's admission was not in force; "
                "it is left as it is and gets a place when its job's turn comes",
                warning=True,
                pod=entry.pods[uid].name,
                uid=uid,
            )
        self._unsaid.clear()

    def rest(self, now: float, plan: Plan) -> None:
        """A plan that is only looked at (another replica leads, or mode: observe): when to look again."""
        self._wakes = {w for w in self._wakes if w > now}
        if plan.wake is not None:
            self._wakes.add(plan.wake)

    def _diff(self, entry: _Entry, job: Job, status: Status, now: float) -> Iterator[Action]:
        entry.said = None
        self._clock(entry, job, status, now)
        if status.state is State.FINISHED:
            yield from self._finished(entry, job, status, now)
            return
        bound = sum(1 for r in job.roles for m in r.members if m.phase is Phase.BOUND)
        holds = self._holds(entry)
        wanted = max(bound + len(holds), sum(r.min for r in job.roles))
        replicas = f"{bound}/{wanted}"
        telling = (str(status.state), str(status.code), status.waits, replicas)
        unrecorded = any(h.uid and (h.uid, h.node) not in entry.recorded for h in holds)
        # While a start is on its way only its placement is worth a write; counts follow when it is complete.
        same = telling[:3] == entry.written[:3] and (
            status.state in (State.STARTING, State.RESIZING) or telling[3] == entry.written[3]
        )
        if not same or unrecorded or entry.gang is None:
            yield from self._write(entry, job, status, telling, now, quiet=not unrecorded)
        elif not holds and not self._of_queue(entry):
            # A cycle changes a few of 10,000 jobs, and whatever is learnt of one makes its Job anew.
            entry.said = (job, status)
        yield from self._ungate(entry, job, holds, now)

    def _of_queue(self, entry: _Entry) -> bool:
        """Whether a work-queue Job owns a pod: its leftovers are looked at in every cycle."""
        owners = {p.controller.uid for p in entry.pods.values() if p.controller is not None}
        return any(uid in self._owners and self._owners[uid].queue for uid in owners)

    def _clock(self, entry: _Entry, job: Job, status: Status, now: float) -> None:
        if entry.state != status.state:
            entry.state, entry.since = str(status.state), now
            self._dirty.add(entry.key)
        below = job.started and status.state is State.STARTING
        if below and not entry.below_since:
            entry.below_since = now
            self._wakes.add(now + self.profile.timeout)
            self._dirty.add(entry.key)
        elif not below and entry.below_since:
            entry.below_since = 0.0
            self._dirty.add(entry.key)
        if status.state is State.RUNNING and (not entry.started_at or entry.backoff):
            entry.started_at = entry.started_at or now
            entry.backoff, entry.not_before = 0, 0.0
            self._dirty.add(entry.key)
        if status.state is State.RUNNING:
            entry.sent_back = False
        if status.state is not State.FINISHED:
            entry.ended_at = 0.0

    def _write(
        self,
        entry: _Entry,
        job: Job,
        status: Status,
        telling: tuple[str, str, str, str],
        now: float,
        *,
        quiet: bool,
    ) -> Iterator[Action]:
        if entry.writing:
            return
        if entry.retry_at > now:
            self._wakes.add(entry.retry_at)
            return
        if status.code is Code.PODS_MISSING and quiet and now - entry.newest_pod < QUIET:
            self._wakes.add(entry.newest_pod + QUIET)
            return
        entry.writing = True
        holds = self._holds(entry)
        name = gang_name(entry.key.name)
        other = self._gang_names.get((entry.key.namespace, name))
        yield WriteGang(
            job=entry.key,
            gang=name,
            owner=job.owner,
            status=self._status(entry, job, telling, holds),
            exists=entry.gang is not None,
            holds=holds,
            replaces=other.object_uid if other is not None and other.key != entry.key else "",
            cause=f"{status.state}: {status.waits}",
        )
        if telling[1:3] != entry.written[1:3]:
            yield from self._say(entry, job, status)

    def _say(self, entry: _Entry, job: Job, status: Status) -> Iterator[Action]:
        """An Event where the job's owner looks: on its first pod and on its owner."""
        waited = entry.written[0] in (State.WAITING, State.INCOMPLETE)
        message = f"{status.waits}; {status.detail}" if status.detail else status.waits
        if status.state in (State.WAITING, State.INCOMPLETE, State.INVALID) or status.code is Code.STUCK:
            reason, warning = (
                str(status.code),
                status.state is State.INVALID
                or status.code
                in (
                    Code.NEVER_FITS,
                    Code.STUCK,
                ),
            )
        elif status.state is State.STARTING and waited:
            reason, warning = "Starting", False
        else:
            return
        pods = [m for r in job.roles for m in r.members]
        if pods:
            yield Say(entry.key, reason, message, warning, pod=pods[0].pod, uid=pods[0].uid)
        if job.owner is not None and job.owner.kind != "Pod":
            yield Say(entry.key, reason, message, warning, owner=job.owner)

    def _status(
        self,
        entry: _Entry,
        job: Job,
        telling: tuple[str, str, str, str],
        holds: tuple[Hold, ...],
    ) -> dict[str, object]:
        roles = {}
        gpus = 0
        for role in job.roles:
            bound = sum(1 for m in role.members if m.phase is Phase.BOUND)
            granted = bound + sum(1 for h in holds if h.role == role.name)
            gpus += (granted or role.min) * role.shape.gpus
            roles[role.name] = {"min": role.min, "max": role.max, "granted": granted, "bound": bound}
        return {
            "state": telling[0],
            "code": telling[1],
            "reason": telling[2],
            "replicas": telling[3],
            "gpus": gpus,
            "priority": job.priority,
            "roles": roles,
            "mode": "scored" if job.scored else "pinned",
            "since": rfc3339(entry.since),
            "submitted": rfc3339(entry.submitted),
            "started": rfc3339(entry.started_at),
            "ended": rfc3339(entry.ended_at),
            "placement": [
                {"role": h.role, "node": h.node} | ({"pod": h.pod, "uid": h.uid} if h.uid else {})
                for h in holds
            ],
            "ledger": {"backoff": entry.backoff, "notBefore": entry.not_before} if entry.backoff else None,
        }

    def _ungate(self, entry: _Entry, job: Job, holds: Iterable[Hold], now: float) -> Iterator[Action]:
        """Gates of recorded places; scored pods are nominated first, so that the space is kept (design §2)."""
        for hold in holds:
            if not hold.uid or (hold.uid, hold.node) not in entry.recorded:
                continue
            pod = entry.pods.get(hold.uid)
            if pod is None or pod.phase not in (Phase.GATED, Phase.UNGATED) or pod.deleting:
                continue
            if pod.pin or self._busy(hold.uid, now):
                continue
            if (job.scored or pod.phase is Phase.UNGATED) and pod.nominated != hold.node:
                self._in_flight.add(("nominate", hold.uid))
                if pod.phase is Phase.UNGATED:  # kube-scheduler may clear it again: no hot loop
                    self._retry[hold.uid] = now + RETRY_EVICTION
                yield Nominate(entry.key, hold.uid, pod.name, hold.node, "keep the planned space")
            elif pod.phase is Phase.GATED:
                self._in_flight.add(("ungate", hold.uid))
                self._dirty.add(entry.key)
                yield Ungate(
                    entry.key,
                    hold.uid,
                    pod.name,
                    pod.version,
                    hold.node,
                    not job.scored,
                    "start",
                    pod.affinity_terms,
                )

    def _busy(self, uid: str, now: float) -> bool:
        if any((kind, uid) in self._in_flight for kind in ("ungate", "nominate", "evict")):
            return True
        until = self._retry.get(uid, 0.0)
        if until > now:
            self._wakes.add(until)
            return True
        return False

    def _evict(self, key: JobKey, uid: str, cause: str, now: float) -> Iterator[Action]:
        entry = self._entries.get(key)
        pod = entry.pods.get(uid) if entry is not None else None
        if pod is None or pod.phase.ended or pod.deleting or self._busy(uid, now):
            return
        self._in_flight.add(("evict", uid))
        yield Evict(key, uid, pod.name, pod.version, pod.tracked, cause)

    def _bar(self, key: JobKey, role: str, node: str, now: float) -> None:
        nodes = self._barred.setdefault((key, role), {})
        if nodes.get(node, 0.0) > now:
            return
        length = min(self._bar_length.get((key, role, node), BAR_FIRST / 2) * 2, BAR_MOST)
        self._bar_length[(key, role, node)] = length
        nodes[node] = now + length
        self._wakes.add(now + length)

    def _send_back(self, key: JobKey, why: str, now: float) -> Iterator[Action]:
        """A start that did not complete: every replica that can come back does, after a growing pause."""
        entry = self._entries.get(key)
        if entry is None or entry.job is None:
            return
        if entry.not_before <= now:
            entry.backoff += 1
            pause = BACKOFF_FIRST * 2 ** min(entry.backoff - 1, BACKOFF_DOUBLINGS)
            entry.not_before = now + pause
            self._wakes.add(entry.not_before)
        yield from self._all_back(key, why, now)

    def _all_back(self, key: JobKey, why: str, now: float) -> Iterator[Action]:
        """Every replica that an owner re-creates is evicted, and the job's places are given up."""
        entry = self._entries.get(key)
        if entry is None or entry.job is None:
            return
        self._set_holds(entry, tuple(h for h in self._holds(entry) if self._cannot_return(entry, h)))
        entry.below_since, entry.sent_back = 0.0, True
        self._dirty.add(key)
        for member in (m for r in entry.job.roles for m in r.members if m.evictable):
            if member.phase in (Phase.UNGATED, Phase.BOUND):
                yield from self._evict(key, member.uid, why, now)

    def _cannot_return(self, entry: _Entry, hold: Hold) -> bool:
        """A bare pod whose gate is off keeps its place: nothing would re-create it."""
        pod = entry.pods.get(hold.uid) if hold.uid else None
        return pod is not None and pod.phase is Phase.UNGATED and pod.controller is None

    def _finished(self, entry: _Entry, job: Job, status: Status, now: float) -> Iterator[Action]:
        """Said once, and removed a set time later; an owner that is deleted takes its Gang along anyway."""
        if not entry.ended_at:
            entry.ended_at = (entry.gang.ended if entry.gang is not None else 0.0) or now
        if self._holds(entry):
            self._set_holds(entry, ())
        telling = (str(State.FINISHED), str(status.code), status.waits, "0/0")
        if entry.gang is None and not entry.pods:
            return
        if entry.gang is not None and now >= entry.ended_at + self.profile.forget:
            if not entry.writing:
                entry.writing = True
                yield DeleteGang(entry.key, entry.gang.name, entry.gang.object_uid, "the job ended long ago")
            return
        self._wakes.add(entry.ended_at + self.profile.forget)
        if telling[:3] != entry.written[:3] and (entry.gang is not None or entry.started_at):
            yield from self._write(entry, job, status, telling, now, quiet=False)

    # ---- outcomes ----

    def _outcome(self, outcome: Outcome, now: float) -> None:
        action, good = outcome.action, 200 <= outcome.status < 300
        entry = self._entries.get(action.job)
        match action:
            case WriteGang():
                if entry is None:
                    return
                entry.writing = False
                self._dirty.add(entry.key)
                if good:
                    entry.recorded = frozenset((h.uid, h.node) for h in action.holds if h.uid)
                    self._recorded.append(entry.key)
                    status = action.status
                    entry.written = (
                        str(status["state"]),
                        str(status["code"]),
                        str(status["reason"]),
                        str(status["replicas"]),
                    )
                else:
                    if outcome.status == 404:
                        entry.gang = None
                    self._put_off(entry, now)
            case DeleteGang():
                if entry is not None:
                    entry.writing = False
                    if not good and outcome.status != 404:
                        self._put_off(entry, now)
            case Ungate(uid=uid) | Nominate(uid=uid) | Evict(uid=uid):
                kind = type(action).__name__.lower()
                self._in_flight.discard((kind, uid))
                if entry is not None:
                    self._dirty.add(entry.key)
                if not good:
                    pause = RETRY_EVICTION if isinstance(action, Evict) else RETRY
                    self._retry[uid] = now + pause
                    self._wakes.add(now + pause)
            case Say():
                pass

    def _put_off(self, entry: _Entry, now: float) -> None:
        entry.retry_at = now + RETRY
        self._wakes.add(entry.retry_at)

    def due(self, now: float) -> bool:
        """Whether a cycle could decide anything new: something was learnt, or a time has come."""
        return bool(self._dirty) or self._moved or self._table is None or any(w <= now for w in self._wakes)

    @property
    def wake(self) -> float | None:
        """When a cycle is due although nothing happens."""
        return min(self._wakes, default=None)

    # ---- readers ----

    def view(self, snapshot: Snapshot, plan: Plan, *, leading: bool, synced: bool) -> View:
        """What the extender verbs and the API read until the next cycle."""
        places: dict[str, tuple[JobKey, Hold]] = {}
        for entry in self._entries.values():
            for hold in self._holds(entry):
                if hold.uid:
                    places[hold.uid] = (entry.key, hold)
        free = snapshot.free if self._table is not snapshot.nodes else self._columns().total - self._used
        return View(
            snapshot=snapshot,
            plan=plan,
            profile=self.profile,
            holds=places,
            free=free,
            released=frozenset(self._released),
            leading=leading,
            synced=synced,
            ungated=len(self.created_ungated),
        )


def _largest_shape(pods: list[PodRecord]) -> Shape:
    """What is planned for each replica of a role: where their requests differ, the largest that waits."""
    waiting = [p for p in pods if not p.phase.on_node] or pods
    shapes = dict.fromkeys(p.shape for p in waiting)
    return max(shapes, key=lambda s: (s.gpus, s.request("cpu"), s.request("memory")), default=Shape())


def watched(owner: Owner) -> bool:
    """Whether a watch delivers this owner."""
    return owner.kind in WATCHED_KINDS and owner.api_version.partition("/")[0] in WATCHED_GROUPS


def replace_entry(entry: _Entry) -> _Entry:
    """A fresh start for a job whose name is used again after it ended; its Gang is written over."""
    return _Entry(entry.key, gang=entry.gang, pods=dict(entry.pods), holds=())


def _tell_alike(before: Status, now: Status) -> bool:
    """Whether two statuses write the same; `detail` is worked out when it is read."""
    return before.waits == now.waits and before.state is now.state and before.code is now.code


def _reopened(holds: tuple[Hold, ...], gone: set[str]) -> tuple[Hold, ...]:
    if not gone:
        return holds
    return tuple(replace(h, uid="", pod="") if h.uid in gone else h for h in holds)


def _older(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def gang_name(job: str) -> str:
    """A DNS name for the Gang object: the job's name, made fit where a label value is not."""
    name = re.sub(r"[^a-z0-9.-]+", "-", job.lower()).strip("-.")
    return name[:253] or "job"


def rfc3339(seconds: float) -> str | None:
    """A time as the API writes it; None for 0, which a merge patch takes as "remove"."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
