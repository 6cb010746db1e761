# Over 300 lines: the chain from a pod to its topmost owner is one index, kept by all that changes it.
"""Owners: what they declare, whose pods are whose, and which of them nobody delivers and must be read.

Kept by uid. Sizes are for now: what a Job has completed is taken off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from muster.core.workload import identity
from muster.core.workload.unfinished_eviction import by_job
from muster.types import DeclaredRole, JobKey, Owner, OwnerRecord, Phase, PodRecord, Shape

WATCHED_KINDS = frozenset({"Job", "ReplicaSet", "StatefulSet", "Deployment"})
WATCHED_GROUPS = frozenset({"batch", "apps"})
"""Controllers of pods whose records the watches deliver: a pod waits a moment for its own."""
FAILED = frozenset({"FailureTarget", "Failed", "Deleted"})
"""How a Job says that it has not ended well, and what the decoder makes of one that is being deleted."""


def watched(owner: Owner) -> bool:
    """Whether a watch delivers this owner; a pod that owns others is one of those that are watched, too."""
    if owner.kind == "Pod":
        return owner.api_version == "v1"
    return owner.kind in WATCHED_KINDS and owner.api_version.partition("/")[0] in WATCHED_GROUPS


def larger(one: Shape, other: Shape) -> Shape:
    """The one that lacks something, then asks for more GPUs, cpu, memory; the first where they ask for the same."""
    return max(one, other, key=lambda s: (bool(s.missing), s.gpus, s.request("cpu"), s.request("memory")))


def _together(one: DeclaredRole, other: DeclaredRole) -> DeclaredRole:
    """Of two owners, or of two parts of one, that have the same role."""
    both = one.min is not None and other.min is not None
    return replace(
        one,
        count=one.count + other.count,
        min=(one.min or 0) + (other.min or 0) if both else None,
        done=one.done + other.done,
        ordered=one.ordered or other.ordered,
        shape=larger(one.shape, other.shape),
        notes=one.notes or other.notes,
    )


class Owners:
    """Records by uid, and the uids of the pods below each."""

    def __init__(self) -> None:
        self.records: dict[str, OwnerRecord] = {}
        self._children: dict[tuple[str, str], set[str]] = {}  # by namespace and uid of who owns them
        self._pods: dict[str, set[str]] = {}
        self._leaders: dict[
            str, PodRecord
        ] = {}  # of groups of LeaderWorkerSets, which own their workers' owner
        self._jobs: dict[str, set[JobKey]] = {}  # by uid of the owner whose job it is
        # owners that no watch delivers, and who needs them: pods by uid, jobs by key
        self._unwatched: dict[str, tuple[str, Owner]] = {}
        self._needed_by: dict[str, set[str | JobKey]] = {}
        self._needs: dict[str | JobKey, str] = {}
        self._shown: Mapping[str, tuple[str, Owner]] = {}
        self._moved = False
        self._grown: set[str] = set()
        self._met: set[str] = set()  # uids of Jobs whose successPolicy was met

    # ---- what is known ----

    def seen(self, owner: OwnerRecord) -> OwnerRecord | None:
        """Take a record; what it was before. What a watch delivers counts, whatever somebody calls that uid."""
        uid = owner.owner.uid
        before = self.records.get(uid)
        if before is not None and watched(before.owner) and not watched(owner.owner):
            return before
        if before is not None and before.parent != owner.parent:
            self._not_below(before)
        self.records[uid] = owner
        if owner.suspended:
            self._met.discard(uid)
        if owner.parent is not None:
            self._children.setdefault((owner.namespace, owner.parent.uid), set()).add(uid)
        return before

    def gone(self, uid: str) -> None:
        """Forget a record; its pods go by themselves."""
        gone = self.records.pop(uid, None)
        self._met.discard(uid)
        if gone is not None:
            self._not_below(gone)

    def _not_below(self, record: OwnerRecord) -> None:
        """Its owner has it no more."""
        if record.parent is not None:
            at = record.namespace, record.parent.uid
            children = self._children.get(at, set())
            children.discard(record.owner.uid)
            if not children:
                self._children.pop(at, None)

    def _below(self, uid: str, namespace: str) -> list[OwnerRecord]:
        """What an owner controls in its namespace. Anybody may name it as owner in another one."""
        children = self._children.get((namespace, uid), ())
        return [self.records[child] for child in children if child in self.records]

    def _above(self, record: OwnerRecord) -> OwnerRecord | None:
        """The record of what controls an owner, in the same namespace."""
        parent = identity.above(record, self.records)
        return self.records.get(parent.uid) if parent is not None else None

    def topmost(self, pod: PodRecord) -> Owner | None:
        """The last of the pod's chain of controlling owners; a leader that owns its workers is not the last."""
        top = identity.topmost(pod, self.records)
        leader = self._leaders.get(top.uid) if top is not None else None
        if leader is None or leader.uid == pod.uid or leader.namespace != pod.namespace:
            return top
        return identity.topmost(leader, self.records)

    # ---- whose pods ----

    def joined(self, pod: PodRecord) -> None:
        """The pod is one of its controller's."""
        if pod.controller is not None:
            self._pods.setdefault(pod.controller.uid, set()).add(pod.uid)
        if identity.leads(pod):
            self._leaders[pod.uid] = pod

    def left(self, pod: PodRecord) -> None:
        """The pod is gone."""
        self._leaders.pop(pod.uid, None)
        if pod.controller is not None:
            pods = self._pods.get(pod.controller.uid, set())
            pods.discard(pod.uid)
            if not pods:
                self._pods.pop(pod.controller.uid, None)

    def begun(self, key: JobKey, namespace: str, owner: Owner) -> None:
        """The job is this owner's: it is wanted as long as the job is known, with pods or without."""
        self._jobs.setdefault(owner.uid, set()).add(key)
        self._need(key, namespace, owner)

    def forgotten(self, key: JobKey, owner: Owner | None) -> None:
        """Nothing is left of the job."""
        self._need_no_more(key)
        if owner is not None and owner.uid in self._jobs:
            self._jobs[owner.uid].discard(key)
            if not self._jobs[owner.uid]:
                del self._jobs[owner.uid]

    def jobs_of(self, uid: str) -> AbstractSet[JobKey]:
        """Jobs that are this owner's, with pods or without."""
        return self._jobs.get(uid, frozenset())

    def pods_of(self, uid: str) -> Iterable[str]:
        """Uids of the pods that an owner controls itself."""
        return self._pods.get(uid, ())

    def pods_below(self, uid: str, namespace: str) -> list[str]:
        """Uids of the pods that an owner controls, itself or by what it owns in this namespace."""
        owners = (uid, *self._children.get((namespace, uid), ()))
        return [pod for each in owners for pod in self._pods.get(each, ())]

    # ---- owners that no watch delivers ----

    def follow(self, pod: PodRecord) -> None:
        """A topmost owner that no watch delivers is wanted as long as it has pods."""
        top = self.topmost(pod)
        if top is None or watched(top):
            self.leave(pod.uid)
        elif self._need(pod.uid, pod.namespace, top):
            self._grown.add(top.uid)  # it may have been scaled

    def leave(self, pod_uid: str) -> None:
        """The pod is gone, or has another topmost owner; an owner whom nobody needs is not wanted any more."""
        self._need_no_more(pod_uid)

    def _need(self, who: str | JobKey, namespace: str, owner: Owner) -> bool:
        """Whether that is news."""
        if watched(owner) or self._delivered(owner.uid):
            return False
        if self._needs.get(who) == owner.uid and not self._read_elsewhere(owner.uid, namespace):
            return False
        self._need_no_more(who)
        self._needs[who] = owner.uid
        self._needed_by.setdefault(owner.uid, set()).add(who)
        known = self._unwatched.get(owner.uid)
        # Somebody may refer to an owner of another namespace; the one that was found counts, whoever came first.
        found = owner.uid in self.records and bool(self.records[owner.uid].roles)
        if known is None or (known[0] != namespace and not found):
            self.records.pop(owner.uid, None)
            self._unwatched[owner.uid] = (namespace, owner)
            self._grown.add(owner.uid)
            self._moved = True
        return True

    def _delivered(self, uid: str) -> bool:
        """Whether a watch delivers who has this uid, whatever kind somebody says that it is."""
        return uid in self.records and watched(self.records[uid].owner)

    def _read_elsewhere(self, uid: str, namespace: str) -> bool:
        """Whether it was looked for in another namespace only, where it is not."""
        record = self.records.get(uid)
        return record is not None and record.namespace != namespace and not record.roles

    def _need_no_more(self, who: str | JobKey) -> None:
        uid = self._needs.pop(who, "")
        needed_by = self._needed_by.get(uid, set())
        needed_by.discard(who)
        if uid and not needed_by:
            del self._needed_by[uid], self._unwatched[uid]
            self._moved = True
            if not self._delivered(uid):
                self.gone(uid)

    @property
    def unknown(self) -> Mapping[str, tuple[str, Owner]]:
        """Topmost owners of our pods and jobs, by uid, that no watch delivers: custom resources with sizes to read.
        A new one when it changes, since another thread reads the old one."""
        if self._moved:
            self._shown, self._moved = dict(self._unwatched), False
        return self._shown

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
        return frozenset(who for who in self._needed_by.get(uid, ()) if isinstance(who, str))

    # ---- what they declare ----

    def comes_back(self, uid: str, namespace: str) -> bool:
        """Whether a job without a pod at this moment has not ended: its owner still wants some."""
        record = self.records.get(uid)
        if record is None or record.over or self.suspended(uid, namespace):
            return False
        if record.roles:
            return any(role.count > role.done for role in record.roles)
        if not record.size:
            return False
        if record.completions is not None:
            return record.succeeded < record.completions
        return not (record.queue and record.succeeded)

    def lives(self, key: JobKey, owner: Owner | None) -> bool:
        """Whether the job is kept while it has no pod: its owner is there, and has more to do. Of an owner with
        several gangs, those that it still wants."""
        uid = owner.uid if owner is not None else key.uid
        record = self.records.get(uid)
        wanted = self.suspended(uid, key.namespace) or self.comes_back(uid, key.namespace)
        if record is None or not wanted:
            return False
        return record.gangs is None or identity.group_index(key) < record.gangs

    def is_to_act(self, uid: str, namespace: str) -> bool:
        """Whether something that an owner has made has failed, or is being removed, and the owner has neither ended
        by that nor replaced it yet (a JobSet's Job, under a failurePolicy)."""
        record, below = self.records.get(uid), self._below(uid, namespace)
        return record is not None and not record.over and any(child.over in FAILED for child in below)

    def made_last(self, uid: str, namespace: str) -> float:
        """When the newest was created of what an owner has made, Unix s; 0 = nothing of it is known."""
        return max((child.created for child in self._below(uid, namespace)), default=0.0)

    def suspended(self, uid: str, namespace: str) -> bool:
        """Whether an owner wants no pods for now: it says so, or all that it owns and that has not ended does."""
        record = self.records.get(uid)
        if record is not None and (record.suspended or record.over):
            return record.suspended
        left = [child for child in self._below(uid, namespace) if not child.over]
        return bool(left) and all(child.suspended for child in left)

    def over(self, uid: str) -> str:
        """How an owner has ended, by its status, in words; "" = it has not."""
        record = self.records.get(uid)
        return (
            f"its {record.owner.kind} has ended: {record.over}" if record is not None and record.over else ""
        )

    def met(self, uid: str, pods: Iterable[PodRecord]) -> str:
        """That a Job has what its successPolicy needs, in words; "" = it has not, or has none. Its controller ends
        the pods that are left, one after another, before it says that the Job has ended (Kubernetes 1.37). Only pods
        that it counts, and has not counted before, do: none that a suspension ends, and none that somebody else made.
        Once met it stays so: that it has counted them may be seen before what it says of itself.
        """
        record = self.records.get(uid)
        if record is None or not record.prefix:
            return ""
        if uid not in self._met:
            done = {
                identity.index_of(p)
                for p in pods
                if p.labels.get(identity.CONTROLLER) == uid and p.tracked and not p.deleting and ended_well(p)
            }
            if not done.issuperset(range(record.prefix)):
                return ""
            self._met.add(uid)
        return f"its {record.owner.kind}'s successPolicy is met"

    def ends(self, tops: Sequence[Owner], pods: Sequence[PodRecord]) -> bool:
        """Whether a Job whose successPolicy is met is about to end all of these pods: those of other owners run on,
        and those with GPUs in place give these up only when they end."""
        if len(tops) != 1 or not all(self.topmost(pod) == tops[0] for pod in pods):
            return False
        record = self.records.get(tops[0].uid)
        if record is None or not record.prefix or any(identity.GPUS in pod.annotations for pod in pods):
            return False
        return tops[0].uid in self._met or record.over in ("SuccessCriteriaMet", "Complete")

    def named_after(self, owner: Owner | None, namespace: str) -> Owner | None:
        """Whom a job of this topmost owner is named after, where that is not the owner itself."""
        return identity.named_after(owner, namespace, self.records)

    def topmost_of(self, pods: Iterable[PodRecord], kept: Owner | None) -> list[Owner]:
        """The pods' topmost owners, each once, in the pods' order; kept: whose the job is known to be."""
        tops = dict.fromkeys(self.topmost(pod) for pod in pods) | ({kept: None} if kept is not None else {})
        return [owner for owner in tops if owner is not None]

    def roles_of_owners(self, owners: Iterable[Owner], present: AbstractSet[str]) -> dict[str, DeclaredRole]:
        """What the owners declare, by role; several owners add up. present: roles that have pods of ours.

        A role whose template is somebody else's to start does not count, but where pods of it are ours (admission
        made them so); where no template of an owner is ours all count, since its pods are.
        """
        found: dict[str, DeclaredRole] = {}
        for owner in owners:
            record = self.records.get(owner.uid)
            roles = record.roles if record is not None else ()
            told = any(role.ours for role in roles)
            for role in roles:
                if told and not role.ours and role.name not in present:
                    continue
                before = found.get(role.name)
                found[role.name] = role if before is None else _together(before, role)
        return found

    def will_create(self, pod: PodRecord, kept: Owner | None) -> bool:
        """Whether an owner of the pod is known to create the members that do not exist yet; kept: whose its job is
        known to be, since what is between them may go before the pod (a JobSet's Job)."""
        top = self.topmost(pod)
        owners = [self.records.get(o.uid) for o in (pod.controller, top, kept) if o is not None]
        return any(r is not None and (r.size is not None or bool(r.roles)) for r in owners)

    def owner_size(self, pods: list[PodRecord]) -> int | None:
        """Replicas that the pods' controllers want to exist now; None where one does not say."""
        of: dict[str, list[PodRecord]] = {}
        for pod in pods:
            if pod.controller is None:
                return None
            of.setdefault(pod.controller.uid, []).append(pod)
        total = 0
        seen: set[str] = set()
        for uid, mine in of.items():
            record, chain = self.records.get(uid), {uid}
            while record is not None:
                above = self._above(record)
                if above is None or above.size is None or above.owner.uid in chain:
                    break  # owners may own each other in a circle
                chain.add(above.owner.uid)
                record = above
            if record is None or record.size is None:
                return None
            if record.owner.uid in seen:
                continue
            seen.add(record.owner.uid)
            size = record.size
            if record.owner.kind == "Job":
                done = succeeded(record, mine)
                if record.completions is not None:
                    size = min(size, max(0, record.completions - done))
                elif record.queue and done:  # nothing new starts once one has succeeded
                    size = sum(1 for p in mine if not p.phase.ended and p.phase is not Phase.GATED)
            copies = mine[0].labels.get("jobset.sigs.k8s.io/replicatedjob-replicas", "")
            if copies.isascii() and copies.isdigit() and record.owner.kind == "Job" and len(seen) == 1:
                total += size * max(0, int(copies) - len(of))
            total += size
        return total if seen else None

    def surge(self, pods: list[PodRecord]) -> int:
        """Pods that a Deployment has above its replicas while it rolls out: else its rollout would wait for us."""
        more = 0
        for top in {self.topmost(p) for p in pods}:
            record = self.records.get(top.uid) if top is not None else None
            if record is None or record.size is None or record.owner.kind != "Deployment":
                continue
            sets = self._below(record.owner.uid, record.namespace)
            more += max(0, sum(s.size or 0 for s in sets) - record.size)
        return more

    def rigid(self, pods: list[PodRecord]) -> str:
        """Why a role of these pods has one size only, in words; "" where it may have fewer replicas than its owner
        declares: the owner waits for every one of them, or fails when one is ended (design §1)."""
        for pod in pods:
            why = self.fragile(pod) or self._remade(pod)
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

    def _remade(self, pod: PodRecord) -> str:
        """Why its owner would make the pods beside it again if we ended it; "" = it would not, or that is allowed."""
        if pod.annotations.get(identity.EVICTABLE) == "true":
            return ""
        top = self.topmost(pod)
        record = self.records.get(top.uid) if top is not None else None
        return record.remade if record is not None else ""

    def _needed(self, record: OwnerRecord, pod: PodRecord) -> bool:
        """Whether what controls this owner waits for it, too: a JobSet's successPolicy may leave its role out."""
        above = self._above(record)
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

    def in_order(self, pods: Iterable[PodRecord]) -> bool:
        """Whether what controls one of the pods makes the next only when the one before is ready."""
        uids = {p.controller.uid for p in pods if p.controller is not None}
        return any(uid in self.records and self.records[uid].ordered for uid in uids)

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
