"""From what is known of a job's pods, owners and Gang to the frozen Job that plans are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from muster.core import identity
from muster.core.declared import Declared, RoleSize, declared, merge, role_bounds
from muster.core.entry import Entry, reopened
from muster.core.owners import Owners, ended_well
from muster.core.quotas import Quotas, short
from muster.errors import InputError
from muster.points import Profile
from muster.types import Hold, Job, Member, Phase, PodRecord, Role, Shape


@dataclass(frozen=True)
class Jobs:
    """Where a Job's facts come from, beside its own entry.

    groups: minimum by namespace and name of a PodGroup; refused_at: when a refusal of a pod was first seen (Unix s);
    in_flight: (kind of action, uid) under way; shrinking: uids of pods that leave by our hand: on their node
    still, but no replicas any more; quotas: by namespace, where they were asked for.
    """

    owners: Owners
    groups: Mapping[tuple[str, str], int]
    refused_at: Mapping[str, float]
    in_flight: AbstractSet[tuple[str, str]]
    shrinking: AbstractSet[str]
    quotas: Quotas

    def job(self, entry: Entry, profile: Profile, *, returns: bool = False) -> Job:
        """The job now. The profile decides, after its owner, whether it is pinned or scored; returns: it has no
        living pod since we evicted the last one."""
        pods = sorted(entry.pods.values(), key=lambda p: (p.created, p.name))
        live = [p for p in pods if is_alive(p)]
        holds = _normal_holds(entry, live, self.shrinking)
        if not any(p.phase in (Phase.BOUND, Phase.UNGATED) for p in live):
            entry.preempted = ""  # all of it is back, or on its way
        if entry.job is not None and (returns or (not pods and self.owners.comes_back(entry.key.uid))):
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
        notes = [(p.name, declared(p)) for p in pods]
        invalid = ""
        try:
            job, sizes = merge(notes)
        except InputError as error:
            job, sizes, invalid = Declared(), {}, str(error)
        held = {h.uid: h.node for h in holds if h.uid}
        roles, rigid = self._roles(entry, pods, [part.role for _, part in notes], job, sizes, held)
        shapes = {r.shape for r in roles} | {m.shape for r in roles for m in r.members}
        scored = tuple(sorted({why for shape in shapes for why in shape.unmodelled}))
        # Nobody calls our prioritize verb where the cluster's scheduler binds: what can be pinned is.
        asked = "" if profile.binder == "cluster" else job.placement or profile.placement
        if asked == "scored" and not scored:
            scored = ("asked for",)
        newest = max(live, key=lambda p: p.priority, default=None)
        controllers = {p.controller.uid for p in live if p.controller is not None}
        records = [self.owners.records[uid] for uid in controllers if uid in self.owners.records]
        started = any(
            m.phase is Phase.BOUND
            or (m.phase is Phase.UNGATED and bool(m.node))
            or ("ungate", m.uid) in self.in_flight
            for r in roles
            for m in r.members
        )
        expects = (
            bool(live)
            and all(self.owners.will_create(p) for p in live)
            and (started or len(roles) == 1 or not self._lacks_an_owner(roles, pods, live))
        )
        quotas = self.quotas.get(entry.key.namespace, ()) if expects else ()
        return Job(
            key=entry.key,
            priority=newest.priority if newest else 0,
            submitted=entry.submitted,
            roles=roles,
            owner=self.owners.owner(pods),
            holds=holds,
            started=started,
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
            expects=expects,
            quota=short(roles, quotas) if quotas else ("", "", False),
            ordered=any(r.ordered for r in records),
            newest_pod=entry.newest_pod,
            not_before=entry.not_before,
            preempted=entry.preempted,
            rigid=rigid or (_kept_as_they_are(roles, live) if sizes else ""),
            request=job.request,
            model=job.model,
            image=min(((p.name, p.image) for p in pods), default=("", ""))[1],  # of ended pods, too
            resize="restart" if job.resize == "restart" else "",
            resize_at=job.resize_at,
        )

    def _lacks_an_owner(self, roles: Sequence[Role], pods: list[PodRecord], live: list[PodRecord]) -> bool:
        """Whether a role has no pod yet and nobody makes one: the owners of the others have made all of theirs."""
        made = {identity.role_of(p) for p in pods} | self.owners.roles_of_owners(pods).keys()
        size = self.owners.owner_size(live)
        return size is not None and size <= len(live) and any(r.min and r.name not in made for r in roles)

    def _roles(
        self,
        entry: Entry,
        pods: list[PodRecord],
        roles_of: Sequence[str],
        job: Declared,
        sizes: Mapping[str, RoleSize],
        held: Mapping[str, str],
    ) -> tuple[tuple[Role, ...], str]:
        """Its roles, and why one of them that was to be elastic has one size only ("" = none has). roles_of: the role
        of each of the pods."""
        rigid = ""
        owned = self.owners.roles_of_owners(pods)
        counts = dict(job.roles)
        of: dict[str, list[PodRecord]] = {}
        for pod, role in zip(pods, roles_of, strict=True):
            of.setdefault(role, []).append(pod)
        names = dict.fromkeys((*counts, *owned, *sorted(of)))
        roles = []
        for name in names:
            mine = of.get(name, [])
            alive = [p for p in mine if is_alive(p)]
            controlled = [p for p in mine if p.controller is not None]
            ended = sum(
                1 for p in mine if ended_well(p) or (p.phase is Phase.FAILED and p.controller is None)
            )
            wanted = owned[name] - ended if name in owned else self.owners.owner_size(mine)
            group = self.groups.get((entry.key.namespace, identity.group_of(mine[0]))) if mine else None
            size = sizes.get(name, RoleSize())
            if group is not None and size == RoleSize() and len(names) == 1:
                size = RoleSize(min=group, max=max(group, len(alive) + ended))
            least, most = role_bounds(
                size,
                counts.get(name),
                wanted,
                ended,
                sum(1 for p in alive if p.phase is not Phase.ENDING),
                owned=name in owned or (bool(controlled) and len(controlled) == len(mine)),
            )
            most += self.owners.surge(mine)
            least = max(least, min(most, self.owners.prefix(mine)))
            why = self.owners.rigid(mine) if least < most else ""
            if why:
                least, rigid = most, rigid or why
            members = sorted(
                (self._member(p, held) for p in alive), key=lambda m: (m.index, m.created, m.pod)
            )
            roles.append(
                Role(
                    name=name,
                    min=least,
                    max=most,
                    shape=_largest_shape(alive or mine),
                    sizes=size.sizes,
                    members=tuple(members),
                    ended=ended,
                )
            )
        return tuple(roles), rigid

    def _evictable(self, pod: PodRecord) -> bool:
        """Whether we may end it: it is made again, and its owner survives that (one that never ran fails nobody)."""
        if pod.controller is None:
            return pod.annotations.get(identity.EVICTABLE) == "true"
        return not (pod.phase.on_node and self.owners.fragile(pod))

    def _member(self, pod: PodRecord, held: Mapping[str, str]) -> Member:
        node = pod.node or pod.pin
        if pod.phase is Phase.UNGATED and not node:
            node = held.get(pod.uid, "")
        return Member(
            uid=pod.uid,
            pod=pod.name,
            phase=Phase.ENDING if pod.phase is Phase.BOUND and pod.uid in self.shrinking else pod.phase,
            shape=pod.shape,
            index=identity.index_of(pod),
            node=node,
            created=pod.created,
            refused_at=self.refused_at.get(pod.uid, 0.0),
            refusal=pod.refusal,
            evictable=self._evictable(pod),
            pinned=bool(pod.pin),
            nominated=pod.nominated,
        )


def _kept_as_they_are(roles: tuple[Role, ...], pods: list[PodRecord]) -> str:
    """Why a job that declares less than it has is not made smaller all the same, "" where it is."""
    bare = [p for p in pods if p.controller is None and p.annotations.get(identity.EVICTABLE) != "true"]
    if not bare or all(role.min == role.max for role in roles):
        return ""
    return (
        f"pods without an owner that would create them again are not ended; {identity.EVICTABLE}: "
        '"true" on them allows it'
    )


def is_alive(pod: PodRecord) -> bool:
    """Whether a pod still is, or will be, a replica."""
    return not pod.phase.ended and not (pod.deleting and not pod.phase.on_node)


def _normal_holds(entry: Entry, live: list[PodRecord], leaving: AbstractSet[str]) -> tuple[Hold, ...]:
    """Holds of bound pods are done; holds of pods that are gone are open for their successors. One that is pinned has
    its place, whatever was planned since: it can go nowhere else (its eviction was called back)."""
    phase = {p.uid: p.phase for p in live}
    kept = [h for h in entry.planned if not (h.uid in phase and phase[h.uid].on_node)]
    held = {h.uid for h in kept}
    pinned = [
        Hold(identity.role_of(p), p.pin, p.name, p.uid)
        for p in live
        if p.phase is Phase.UNGATED and p.pin and p.uid not in held and p.uid not in leaving
    ]
    return reopened((*kept, *pinned), {h.uid for h in kept if h.uid and h.uid not in phase})


def _largest_shape(pods: list[PodRecord]) -> Shape:
    """What is planned for each replica of a role: where their requests differ, the largest that waits."""
    waiting = [p for p in pods if not p.phase.on_node] or pods
    shapes = dict.fromkeys([p.shape for p in waiting])
    if len(shapes) == 1:
        return waiting[0].shape
    return max(shapes, key=lambda s: (s.gpus, s.request("cpu"), s.request("memory")), default=Shape())
