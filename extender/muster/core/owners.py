"""Owners: what they declare, whose pods are whose, and which of them nobody delivers and must be read.

Kept by uid. Sizes are for now: what a Job has completed is taken off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.core import identity
from muster.core.halfdone import by_job
from muster.types import Owner, OwnerRecord, Phase, PodRecord

WATCHED_KINDS = frozenset({"Job", "ReplicaSet", "StatefulSet", "Deployment"})
WATCHED_GROUPS = frozenset({"batch", "apps"})
"""Controllers of pods whose records the watches deliver: a pod waits a moment for its own."""


def watched(owner: Owner) -> bool:
    """Whether a watch delivers this owner."""
    return owner.kind in WATCHED_KINDS and owner.api_version.partition("/")[0] in WATCHED_GROUPS


class Owners:
    """Records by uid, and the uids of the pods below each."""

    def __init__(self) -> None:
        self.records: dict[str, OwnerRecord] = {}
        self._children: dict[str, set[str]] = {}
        self._pods: dict[str, set[str]] = {}
        self._unwatched: dict[str, tuple[str, Owner]] = {}
        self._pods_of_unwatched: dict[str, set[str]] = {}
        self._unwatched_of: dict[str, str] = {}
        self._grown: set[str] = set()

    # ---- what is known ----

    def seen(self, owner: OwnerRecord) -> OwnerRecord | None:
        """Take a record; what it was before."""
        uid = owner.owner.uid
        before = self.records.get(uid)
        self.records[uid] = owner
        if owner.parent is not None:
            self._children.setdefault(owner.parent.uid, set()).add(uid)
        return before

    def gone(self, uid: str) -> None:
        """Forget a record; its pods go by themselves."""
        gone = self.records.pop(uid, None)
        self._children.pop(uid, None)
        if gone is not None and gone.parent is not None:
            self._children.get(gone.parent.uid, set()).discard(uid)

    def topmost(self, pod: PodRecord) -> Owner | None:
        """The last of the pod's chain of controlling owners."""
        return identity.topmost(pod, self.records)

    # ---- whose pods ----

    def joined(self, pod: PodRecord) -> None:
        """The pod is one of its controller's."""
        if pod.controller is not None:
            self._pods.setdefault(pod.controller.uid, set()).add(pod.uid)

    def left(self, pod: PodRecord) -> None:
        """The pod is gone."""
        if pod.controller is not None:
            pods = self._pods.get(pod.controller.uid, set())
            pods.discard(pod.uid)
            if not pods:
                self._pods.pop(pod.controller.uid, None)

    def pods_of(self, uid: str) -> Iterable[str]:
        """Uids of the pods that an owner controls itself."""
        return self._pods.get(uid, ())

    def pods_below(self, uid: str) -> list[str]:
        """Uids of the pods that an owner controls, itself or by what it owns."""
        return [pod for each in (uid, *self._children.get(uid, ())) for pod in self._pods.get(each, ())]

    # ---- owners that no watch delivers ----

    def follow(self, pod: PodRecord) -> None:
        """A topmost owner that no watch delivers is wanted as long as it has pods."""
        top = self.topmost(pod)
        uid = top.uid if top is not None and not watched(top) else ""
        if self._unwatched_of.get(pod.uid, "") == uid:
            return
        self.leave(pod.uid)
        if top is not None and uid:
            self._unwatched_of[pod.uid] = uid
            self._pods_of_unwatched.setdefault(uid, set()).add(pod.uid)
            self._grown.add(uid)
            if uid not in self._unwatched:  # a new dict, since another thread reads the old one
                self._unwatched = {**self._unwatched, uid: (pod.namespace, top)}

    def leave(self, pod_uid: str) -> None:
        """The pod is gone, or has another topmost owner; an owner without pods is not wanted any more."""
        uid = self._unwatched_of.pop(pod_uid, "")
        pods = self._pods_of_unwatched.get(uid, set())
        pods.discard(pod_uid)
        if uid and not pods:
            del self._pods_of_unwatched[uid]
            self._unwatched = {u: o for u, o in self._unwatched.items() if u != uid}
            self.records.pop(uid, None)

    @property
    def unknown(self) -> Mapping[str, tuple[str, Owner]]:
        """Topmost owners of our pods, by uid, that no watch delivers: custom resources with sizes to read."""
        return self._unwatched

    def grown(self) -> frozenset[str]:
        """Those that got a pod since this was last asked: they may have been scaled."""
        grown = frozenset(self._grown)
        self._grown.clear()
        return grown

    @property
    def unread(self) -> bool:
        """Whether one of them has not been read yet."""
        return any(uid not in self.records for uid in self._unwatched)

    def wanted(self, owner: Owner) -> bool:
        """Whether a record of it is of use: a watch delivers it, or a pod of ours waits for it."""
        return watched(owner) or owner.uid in self._unwatched

    def waiting_for(self, uid: str) -> frozenset[str]:
        """Uids of the pods whose topmost owner this is, where no watch delivers it."""
        return frozenset(self._pods_of_unwatched.get(uid, ()))

    # ---- what they declare ----

    def comes_back(self, uid: str) -> bool:
        """Whether a job without a pod at this moment has not ended: its owner still wants some."""
        record = self.records.get(uid)
        if record is None or not record.size:
            return False
        if record.completions is not None:
            return record.succeeded < record.completions
        return not (record.queue and record.succeeded)

    def roles_of_owners(self, pods: list[PodRecord]) -> dict[str, int]:
        """Counts by role that the pods' topmost owners declare; several owners add up."""
        counts: dict[str, int] = {}
        for owner in {self.topmost(p) for p in pods}:
            record = self.records.get(owner.uid) if owner is not None else None
            for role, count in record.roles if record is not None else ():
                counts[role] = counts.get(role, 0) + count
        return counts

    def will_create(self, pod: PodRecord) -> bool:
        """Whether an owner of the pod is known to create the members that do not exist yet."""
        top = self.topmost(pod)
        owners = [self.records.get(o.uid) for o in (pod.controller, top) if o is not None]
        return any(r is not None and (r.size is not None or bool(r.roles)) for r in owners)

    def owner_size(self, pods: list[PodRecord]) -> int | None:
        """Replicas that the pods' controllers want to exist now; None where one does not say."""
        total = 0
        seen: set[str] = set()
        for pod in pods:
            owner = pod.controller
            if owner is None:
                return None
            record = self.records.get(owner.uid)
            while record is not None and record.parent is not None:
                above = self.records.get(record.parent.uid)
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
                done = succeeded(record, mine)
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

    def surge(self, pods: list[PodRecord]) -> int:
        """Pods that a Deployment has above its replicas while it rolls out: else its rollout would wait for us."""
        more = 0
        for top in {self.topmost(p) for p in pods}:
            record = self.records.get(top.uid) if top is not None else None
            if record is None or record.size is None or record.owner.kind != "Deployment":
                continue
            sets = [
                self.records[uid] for uid in self._children.get(record.owner.uid, ()) if uid in self.records
            ]
            more += max(0, sum(s.size or 0 for s in sets) - record.size)
        return more

    def rigid(self, pods: list[PodRecord]) -> str:
        """Why a role of these pods has one size only, in words; "" where it may have fewer replicas than its owner
        declares: the owner waits for every one of them, or fails when one is ended (design §1)."""
        for pod in pods:
            why = self.fragile(pod)
            if why:
                return f'{why}; {identity.EVICTABLE}: "true" on those pods allows it all the same'
            record = self.records.get(pod.controller.uid) if pod.controller is not None else None
            if record is not None and record.whole and self._needed(record, pod):
                return (
                    f"{record.owner.kind} {record.owner.name} is Indexed without a successPolicy, so it would wait "
                    "for ever for replicas that never run; a successPolicy on the leader's index makes it elastic"
                )
        return ""

    def fragile(self, pod: PodRecord) -> str:
        """What would become of the pod's owner if we ended the pod, in words; "" = it makes another one."""
        if pod.annotations.get(identity.EVICTABLE) == "true":
            return ""
        top = self.topmost(pod)
        record = self.records.get(top.uid) if top is not None else None
        if record is None or not record.fragile:
            return ""
        reasons = dict(record.fragile)
        return reasons.get("", "") or reasons.get(identity.role_of(pod), "")

    def _needed(self, record: OwnerRecord, pod: PodRecord) -> bool:
        """Whether what controls this owner waits for it, too: a JobSet's successPolicy may leave its role out."""
        above = self.records.get(record.parent.uid) if record.parent is not None else None
        return above is None or identity.role_of(pod) not in above.optional

    def prefix(self, pods: Iterable[PodRecord]) -> int:
        """Replicas, from index 0, that must have run for their owner's successPolicy to be met; 0 = it names none."""
        uids = {p.controller.uid for p in pods if p.controller is not None}
        return max((self.records[uid].prefix for uid in uids if uid in self.records), default=0)

    def owner(self, pods: list[PodRecord]) -> Owner | None:
        """The one topmost owner of all pods; a pod alone owns itself; several owners: none."""
        owners = {self.topmost(p) for p in pods}
        if len(owners) == 1:
            owner = owners.pop()
            if owner is not None:
                return owner
            if len(pods) == 1 and identity.JOB not in pods[0].labels and not pods[0].group:
                return Owner("v1", "Pod", pods[0].name, pods[0].uid)
        return None

    def of_queue(self, pods: Iterable[PodRecord]) -> bool:
        """Whether a work-queue Job owns one of the pods."""
        uids = {p.controller.uid for p in pods if p.controller is not None}
        return any(uid in self.records and self.records[uid].queue for uid in uids)


def succeeded(record: OwnerRecord, pods: Iterable[PodRecord]) -> int:
    """Pods of a Job that ended well, by its own count or by what is seen, whichever is further."""
    seen = sum(1 for p in pods if ended_well(p) and p.controller and p.controller.uid == record.owner.uid)
    return max(record.succeeded, seen)


def ended_well(pod: PodRecord) -> bool:
    """Whether its owner counts it as done: never one that we ended, whatever its exit code."""
    if pod.phase is not Phase.SUCCEEDED:
        return False
    if by_job(pod):
        return identity.LEAVING not in pod.annotations
    return pod.controller is None or not pod.deleting
