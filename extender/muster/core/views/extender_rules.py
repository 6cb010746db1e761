# Over 300 lines: the verbs answer from one set of promises, which each of them changes.
"""What the plan allows kube-scheduler to do with a pod: the extender verbs without their wire format.

A pod passes only on nodes that its plan holds for it, and nowhere if it has no plan (design §2).
- pinned: exactly the node of its hold.
- released by hand (`muster release`): everywhere, since kube-scheduler places it without a plan.
- scored: wherever the replica still fits after all holds are taken off, or where a replica of the same role
  of its job is held; inside the domain of the job's holds where the job requires one.

A Guard answers from one View and keeps what it worked out by job and role, so that a gang's replicas cost one
pass over the nodes. It writes nothing, takes no lock, and gives the same answer however often it is asked.

It sees no bind before the next View does, so it remembers where it let a scored pod pass (`_let_pass`): on a node
where others wait for a place of theirs, the next pod passes only if there is room beside all of these. A node without
such places needs no care: kube-scheduler counts what it binds.
What it does not do: keep a pod off its own place, should a sibling have been let onto that a moment ago.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from muster.core.placement.capacity import Capacity
from muster.core.placement.feasibility import static_mask
from muster.core.placement.place import total_score
from muster.core.reasons.waiting import NO_PLAN
from muster.core.views.view import View
from muster.points import Candidates
from muster.types import BoolArray, IntArray, Job, JobKey, Phase, Reservation, Role, Shape

OTHER_NODE = "muster's plan keeps this pod for another node"
NO_ROOM = "muster's plan leaves no room for this pod on this node"
UNKNOWN = "muster does not know this node"
"""Reasons never vary with positions or times: a changed message makes kube-scheduler try again at once."""

PROMISED = 2.0
"""Seconds for which a pod that was let pass counts on each of these nodes, unless it is seen bound before: a bind
takes some ten milliseconds, and a pod that kube-scheduler turns down must not keep others away for long."""
TOP = 10
"""The highest score of an extender (MaxExtenderPriority)."""


@dataclass(frozen=True, slots=True)
class _Promise:
    """Nodes where a pod was let pass, what it takes there, and when that was first said (Unix s)."""

    names: frozenset[str]
    shape: Shape
    at: float


class ExtenderRules:
    """What one View allows; `before` is the Guard of the View before, whose promises may still count."""

    def __init__(self, view: View, before: ExtenderRules | None = None) -> None:
        self.view = view
        self._promises: dict[str, _Promise] = {
            uid: promise
            for uid, promise in (before._promises if before is not None else {}).items()
            if uid in view.reservations and view.snapshot.now - promise.at < PROMISED
        }
        self._answers: dict[str, frozenset[str]] = {}
        self._everywhere: set[str] = set()
        self._waiting: dict[str, Counter[tuple[JobKey, str]]] | None = None
        self._allowed: dict[tuple[JobKey, str], frozenset[str]] = {}
        self._scores: dict[str, list[int]] = {}
        self._gangs: dict[str, tuple[Job, Role]] | None = None
        self._room: Capacity | None = None
        self._ours_on: IntArray | None = None
        self._holds: dict[JobKey, list[Reservation]] | None = None

    def passes(self, uid: str, names: Sequence[str]) -> tuple[list[str], str]:
        """The names on which the pod may be bound, in their order, and why not on the others."""
        if self.view.observe or uid in self.view.released:
            return list(names), NO_PLAN
        found = self._held(uid)
        if found is None:
            return [], NO_PLAN
        job, role, reservation = found
        if not scored(self.view, job):
            return [name for name in names if name == reservation.node], OTHER_NODE
        allowed = self._uncrowded(uid, job, role, reservation)
        let = [name for name in names if name in allowed]
        everywhere = len(let) == len(allowed)
        if uid not in self._everywhere:
            self._let_pass(uid, role, (allowed if everywhere else frozenset(let)) - {reservation.node})
            if everywhere:  # nothing can be added to that in this View
                self._everywhere.add(uid)
        return let, NO_ROOM

    def holds(self, pod: str, names: Sequence[str]) -> list[str] | None:
        """The names on which a pod, by namespace/name, is to hold a device; None where it is not to hold one."""
        node = self.view.holders.get(pod)
        return None if node is None else [name for name in names if name == node]

    def scores(self, uid: str, names: Sequence[str]) -> list[int]:
        """0 to 10 for each name, by the profile's Score plugins; 0 without a plan and for unknown nodes."""
        found = self._held(uid)
        if found is None:
            return [0] * len(names)
        job, role, reservation = found
        if not scored(self.view, job):
            return [TOP if name == reservation.node else 0 for name in names]
        if uid not in self._scores:
            self._scores[uid] = self._rank(job, role, reservation)
        points, index = self._scores[uid], self.view.snapshot.nodes.index
        last = len(points) - 1  # an unknown node reads the 0 behind the last row
        return [points[index.get(name, last)] for name in names]

    def unknown(self, names: Iterable[str]) -> list[str]:
        """The names that are no node of the View."""
        index = self.view.snapshot.nodes.index
        return [name for name in names if name not in index]

    def spared(self, victims: Mapping[str, Sequence[str]]) -> list[str]:
        """The nodes (of node -> uids of the pods to be ended there) where no gang of ours would break.

        A gang breaks where fewer replicas of a role would stay bound than its minimum, or where a victim
        may not be ended at all. The map of pods to gangs is made once a View: O(pods of ours).
        """
        gangs = self._members()
        return [node for node, uids in victims.items() if not self._breaks(uids, gangs)]

    def waited(self, uid: str) -> bool:
        """Whether the View has the pod behind our gate, so that who opened it since had the right to."""
        _, role = self._members().get(uid, (None, None))
        return role is not None and any(m.uid == uid and m.phase is Phase.GATED for m in role.members)

    # ---- how ----

    def _members(self) -> Mapping[str, tuple[Job, Role]]:
        if self._gangs is None:
            self._gangs = {
                member.uid: (job, role)
                for job in self.view.snapshot.jobs.values()
                for role in job.roles
                for member in role.members
            }
        return self._gangs

    def _held(self, uid: str) -> tuple[Job, Role, Reservation] | None:
        kept = self.view.reservations.get(uid)
        if kept is None:
            return None
        key, reservation = kept
        job = self.view.snapshot.jobs.get(key)
        role = next((r for r in job.roles if r.name == reservation.role), None) if job else None
        return (job, role, reservation) if job and role else None

    def _holds_of(self, job: Job) -> Sequence[Reservation]:
        """What is held for the job's pods; a replica that does not act has a plan that holds nothing."""
        if self._holds is None:
            self._holds = {}
            for key, reservation in self.view.reservations.values():
                self._holds.setdefault(key, []).append(reservation)
        return self._holds.get(job.key, ())

    def _let_pass(self, uid: str, role: Role, names: frozenset[str]) -> None:
        """Remember nodes other than its own place where the pod may be bound from now on."""
        if names:
            before = self._promises.get(uid)
            known = before.names if before is not None else frozenset()
            at = before.at if before is not None else self.view.snapshot.now
            self._promises[uid] = _Promise(known | names, role.shape, at)

    def _uncrowded(self, uid: str, job: Job, role: Role, reservation: Reservation) -> frozenset[str]:
        """Where the pod may pass; the same for every question about it while the View is the same."""
        if uid not in self._answers:
            allowed = self._places(job, role)
            others = [promise for other, promise in self._promises.items() if other != uid]
            crowded = {
                name
                for name in frozenset().union(*(promise.names for promise in others)) & allowed
                if name != reservation.node and not self._has_room(name, job, role, others)
            }
            self._answers[uid] = allowed - crowded if crowded else allowed
        return self._answers[uid]

    def _has_room(self, name: str, job: Job, role: Role, others: Sequence[_Promise]) -> bool:
        """Whether a node has a place left for the role if all who were let onto it came, and nobody waits in vain."""
        if self._waiting is None:
            self._waiting = {}
            for key, reservation in self.view.reservations.values():
                self._waiting.setdefault(reservation.node, Counter())[(key, reservation.role)] += 1
        waiting = self._waiting.get(name, Counter())
        own = waiting[(job.key, role.name)]
        if waiting.total() == own:
            return True  # no place of others is there to be taken: kube-scheduler counts
        capacity, row = self._free(), self.view.snapshot.nodes.index[name]
        mark = capacity.mark()
        capacity.give(row, role.shape, own)
        for promise in others:
            if name in promise.names:
                capacity.take(row, promise.shape)
        fits = bool(capacity.fits(role.shape)[row] > 0)
        capacity.undo(mark)
        return fits

    def _places(self, job: Job, role: Role) -> frozenset[str]:
        """Names of the nodes that a scored replica of the role may use."""
        key = (job.key, role.name)
        if key not in self._allowed:
            mask = self._mask(job, role)
            self._allowed[key] = frozenset(compress(self.view.snapshot.nodes.names, mask.tolist()))
        return self._allowed[key]

    def _mask(self, job: Job, role: Role) -> BoolArray:
        nodes, snapshot = self.view.snapshot.nodes, self.view.snapshot
        reservations = self._holds_of(job)
        rows = self._rows(h.node for h in reservations if h.role == role.name)
        mask: BoolArray = self._free().fits(role.shape) > 0
        for name, until in snapshot.node_backoffs.get((job.key, role.name), {}).items():
            if name in nodes.index and until > snapshot.now:
                mask[nodes.index[name]] = False
        candidates = self._candidates(job, role, None)
        for plugin in self.view.profile.filters:
            wanted, _ = plugin.filter(job, role, candidates, snapshot)
            if wanted is not None:
                mask &= wanted
        mask[rows] = True
        mask &= static_mask(nodes, role.shape)
        if job.topology_required:
            ids, _ = nodes.domains(job.topology_required)
            everywhere = self._rows(h.node for h in reservations)
            mask &= np.isin(ids, ids[everywhere]) & (ids >= 0)
        return mask

    def _rank(self, job: Job, role: Role, reservation: Reservation) -> list[int]:
        """0 to 10 by node row, and a 0 behind the last: with the pod's own place given back, as it moves."""
        capacity = self._free()
        mark = capacity.mark()
        row = self.view.snapshot.nodes.index.get(reservation.node)
        if row is not None:
            capacity.give(row, role.shape)
        scores = total_score(
            job, role, self._candidates(job, role, row), self.view.profile, self.view.snapshot
        )
        capacity.undo(mark)
        points: list[int] = np.rint(scores * (TOP / 100.0)).astype(np.int64).tolist()
        return [*points, 0]

    def _candidates(self, job: Job, role: Role, leaves: int | None) -> Candidates:
        """The nodes for the next replica of the role; `leaves` = the row that its own hold leaves."""
        capacity, snapshot = self._free(), self.view.snapshot
        own: IntArray = np.zeros(len(snapshot.nodes), dtype=np.int64)
        for node, count in _places_of(job, self._holds_of(job)).items():
            if node in snapshot.nodes.index:
                own[snapshot.nodes.index[node]] += count
        others = np.maximum(self._ours() - own, 0)
        if leaves is not None:
            own[leaves] = max(0, int(own[leaves]) - 1)
        return Candidates(snapshot.nodes, capacity.free, capacity.fits(role.shape), own, others, 1)

    def _ours(self) -> IntArray:
        """(N,) pods of ours by node, places that this View's plan added included."""
        if self._ours_on is None:
            snapshot = self.view.snapshot
            ours: IntArray = np.zeros(len(snapshot.nodes), dtype=np.int64)
            if len(snapshot.ours_on) == len(ours):
                ours += snapshot.ours_on
            kept = Counter((key, reservation.node) for key, reservation in self.view.reservations.values())
            counted = Counter(
                (key, reservation.node)
                for key in {key for key, _ in kept}
                for reservation in (snapshot.jobs[key].reservations if key in snapshot.jobs else ())
            )
            for (_, node), count in (kept - counted).items():
                if node in snapshot.nodes.index:
                    ours[snapshot.nodes.index[node]] += count
            self._ours_on = ours
        return self._ours_on

    def _free(self) -> Capacity:
        if self._room is None:
            self._room = Capacity(replace(self.view.snapshot, free=self.view.free))
        return self._room

    def _rows(self, names: Iterable[str]) -> list[int]:
        index = self.view.snapshot.nodes.index
        return [index[name] for name in names if name in index]

    def _breaks(self, uids: Sequence[str], gangs: Mapping[str, tuple[Job, Role]]) -> bool:
        ends: dict[tuple[JobKey, str], set[str]] = {}
        for uid in uids:
            if uid in gangs:
                job, role = gangs[uid]
                ends.setdefault((job.key, role.name), set()).add(uid)
        for victims in ends.values():
            _, role = gangs[next(iter(victims))]
            bound = {m.uid for m in role.members if m.phase is Phase.BOUND}
            if any(not m.evictable for m in role.members if m.uid in victims):
                return True
            if victims & bound and len(bound - victims) < role.min:
                return True
        return False


def scored(view: View, job: Job) -> bool:
    """Whether kube-scheduler picks the nodes: something forces it, else the owner, else the profile says."""
    if job.scored or job.placement_mode == "scored":
        return True
    return view.profile.placement == "scored" and job.placement_mode != "pinned"


def _places_of(job: Job, reservations: Sequence[Reservation]) -> dict[str, int]:
    """Replicas of the job by node: bound, ending and held ones, each once."""
    places = {h.uid or f"open/{i}": h.node for i, h in enumerate(reservations)}
    for role in job.roles:
        places |= {m.uid: m.node for m in role.on}
    counts: dict[str, int] = {}
    for node in places.values():
        counts[node] = counts.get(node, 0) + 1
    return counts
