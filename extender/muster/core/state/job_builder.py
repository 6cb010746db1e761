# Over 300 lines: a frozen Job is built of all that is known of it, field by field.
"""From what is known of a job's pods, owners and Gang to the frozen Job that plans are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import reduce

from muster.core.bounds import JOB_REPLICAS, REPLICAS, ROLES
from muster.core.state.job_state import JobState, reopened
from muster.core.workload import identity
from muster.core.workload.annotations import Declared, RoleSize, declared, declared_of, merge, role_bounds
from muster.core.workload.identity import DEFAULT_ROLE
from muster.core.workload.in_place import refused
from muster.core.workload.owners import Owners, ended_well, larger
from muster.core.workload.quotas import Quotas, short
from muster.core.workload.whole import minimum
from muster.errors import InputError
from muster.points import Profile
from muster.types import DeclaredRole, Job, Member, Owner, Phase, PodRecord, Reservation, Role, Shape, Ungate


@dataclass(frozen=True)
class JobBuilder:
    """Where a Job's facts come from, beside what is kept of the job.

    groups: minimum by namespace and name of a PodGroup; refused_at: when a refusal of a pod was first seen (Unix s);
    quotas: by namespace, where they were asked for; came_bound: uids of pods that were made with a node of their own;
    outside: whether a namespace has not opted in; done: uids of pods that succeeded before they were deleted;
    in_place: devices are given in place.
    """

    owners: Owners
    groups: Mapping[tuple[str, str], int]
    refused_at: Mapping[str, float]
    quotas: Quotas
    came_bound: AbstractSet[str] = frozenset()
    outside: Callable[[str], bool] = lambda _: False
    done: AbstractSet[str] = frozenset()
    in_place: bool = False

    def job(self, job_state: JobState, profile: Profile, *, returns: bool = False) -> Job:
        """The job now. The profile decides, after its owner, whether it is pinned or scored; returns: it has no
        living pod since we evicted the last one."""
        pods = sorted(job_state.pods.values(), key=lambda p: (p.created, p.name))
        live = [p for p in pods if is_alive(p)]
        reservations = _normal_holds(job_state, live)
        if not any(p.phase in (Phase.BOUND, Phase.UNGATED) or opens(job_state, p.uid) for p in live):
            job_state.desired.preempted = ""  # all of it is back, or on its way
        tops = self.owners.topmost_of(pods, job_state.owner)
        over = next((why for owner in tops if (why := self.owners.over(owner.uid))), "")
        suspended = not over and self._suspended(job_state.key.namespace, tops, live)
        if not (over or suspended):
            over = next((why for owner in tops if (why := self.owners.met(owner.uid, pods))), "")
        lives = bool(pods) or self.owners.lives(job_state.key, job_state.owner)
        absent = not live if suspended else lives and not live and self._only_moves(job_state, pods)
        if job_state.job is not None and not over and (returns or absent):
            return _without_pods(job_state.job, job_state, reservations, suspended=suspended)
        notes = [(p.name, declared(p)) for p in pods]
        invalid = ""
        try:
            job, sizes = merge(_told_last(pods, notes))
        except InputError as error:
            job, sizes, invalid = Declared(), {}, str(error)
        invalid = self._past_the_queue(live) or invalid or refused(live, enabled=self.in_place)
        held = {h.uid: h.node for h in reservations if h.uid}
        owned = self.owners.roles_of_owners(tops if lives else (), {part.role for _, part in notes})
        roles, rigid = self._roles(job_state, pods, [part.role for _, part in notes], job, sizes, held, owned)
        roles, large = bounded(roles, job_state.owner or self.owners.owner(pods))
        invalid = invalid or large or next((f"pod {p.name}: {p.beyond}" for p in live if p.beyond), "")
        if not pods and lives and job_state.recorded.gang is not None:
            roles = roles or tuple(Role(*size, shape=Shape()) for size in job_state.recorded.gang.sizes)
        if over or suspended:
            ends = not suspended and self.owners.ends(tops, live)
            roles = tuple(_as_it_runs(role, suspended=suspended, ends=ends) for role in roles)
            reservations = tuple(
                h for h in reservations if any(h.uid == m.uid for r in roles for m in r.members)
            )
        shapes = {r.shape for r in roles} | {m.shape for r in roles for m in r.members}
        scored = tuple(sorted({why for shape in shapes for why in shape.unmodelled}))
        # Nobody calls our prioritize verb where the cluster's scheduler binds: what can be pinned is.
        asked = "" if profile.binder == "cluster" else job.placement or profile.placement
        if asked == "scored" and not scored:
            scored = ("asked for",)
        started = any(
            m.phase is Phase.BOUND or (m.phase is Phase.UNGATED and bool(m.node)) or opens(job_state, m.uid)
            for r in roles
            for m in r.members
        )
        expects = (
            bool(live)
            and not (over or suspended)
            and all(self.owners.will_create(p, job_state.owner) for p in live)
            and (started or len(roles) == 1 or not self._lacks_an_owner(roles, pods, live, owned))
        )
        quotas = self.quotas.get(job_state.key.namespace, ()) if expects else ()
        return Job(
            key=job_state.key,
            priority=min((pod.priority for pod in live), default=0),  # one pod of a high class lifts no gang
            submitted=job_state.submitted,
            roles=roles,
            owner=self._owner(job_state, pods),
            reservations=reservations,
            started=started,
            started_at=job_state.started_at,
            once_whole=job_state.whole is not None,
            below_since=job_state.clock.since,
            since=job_state.since,
            topology_required=job.topology_required,
            topology_preferred=job.topology_preferred,
            placement_mode=job.placement,
            scored=scored,
            remaining_work=job.remaining_work,
            speed=job.speed,
            invalid=invalid,
            stuck=next(
                (
                    (p.uid, p.name, job_state.given_up[p.uid])
                    for p in live
                    if p.uid in job_state.given_up and not p.node
                ),
                ("", "", ""),
            )
            if job_state.given_up
            else ("", "", ""),
            expects=expects,
            quota=short(roles, quotas) if quotas else ("", "", False),
            ordered=any(role.ordered for role in roles),
            suspended=suspended,
            over=over,
            newest_pod=job_state.newest_pod,
            not_before=job_state.not_before,
            preempted=job_state.desired.preempted,
            ends=job_state.desired.ends,
            rigid=rigid or (_kept_as_they_are(roles, live) if sizes else ""),
            request=job.request,
            model=job.model,
            image=min(((p.name, p.image) for p in pods), default=("", ""))[1],  # of ended pods, too
            resize="restart" if job.resize == "restart" else "",
            resize_at=job.resize_at,
            batch_sizes=job.batch_sizes,
            gpu_memory=job.gpu_memory,
            shareable=False,  # but for what devices in place allow (core.devices.slots)
        )

    def _only_moves(self, job_state: JobState, pods: list[PodRecord]) -> bool:
        """Whether its owner makes all of these pods again, none of which is alive: we ended them."""
        return not pods or (
            self.owners.lives(job_state.key, job_state.owner)
            and all(p.uid in job_state.desired.leaving and not ended_well(p) for p in pods)
        )

    def _owner(self, job_state: JobState, pods: list[PodRecord]) -> Owner | None:
        """Whose the job is: whom it is named after, as long as its Gang says so where that can't be read."""
        owner, gang = job_state.owner or self.owners.owner(pods), job_state.recorded.gang
        above = self.owners.named_after(owner, job_state.key.namespace)
        if above is None and gang is not None and gang.declared_by is not None:
            above = gang.owner
        return above if above is not None and above.uid == job_state.key.uid else owner

    def _suspended(self, namespace: str, tops: Sequence[Owner], live: list[PodRecord]) -> bool:
        """Whether every owner of the job wants no pods for now; of pods that an owner nobody knows has, whoever
        controls them."""
        if tops and all(self.owners.suspended(owner.uid, namespace) for owner in tops):
            return True
        controllers = {p.controller.uid if p.controller is not None else "" for p in live}
        return bool(controllers) and all(self.owners.suspended(uid, namespace) for uid in controllers)

    def _past_the_queue(self, live: Sequence[PodRecord]) -> str:
        """Why a job's pods are none to be planned, "" where they are: nothing of it has a turn."""
        if live and self.outside(live[0].namespace) and not any(p.phase is Phase.GATED for p in live):
            return (
                f"namespace {live[0].namespace} has not opted in to Muster (the chart value namespaceSelector): its "
                "pods are neither queued nor bound; use another namespace, or ask your platform team"
            )
        for pod in live:
            if of_daemon_set(pod) and pod.controller is not None:
                return (
                    f"pod {pod.name} is one of DaemonSet {pod.controller.name}: Muster neither queues nor binds such "
                    "pods; leave schedulerName out of the DaemonSet's template"
                )
            if pod.uid in self.came_bound:
                return (
                    f"pod {pod.name} was created with spec.nodeName, past the queue: nothing else of the job starts "
                    "while it is there"
                )
        return ""

    def _lacks_an_owner(
        self,
        roles: Sequence[Role],
        pods: list[PodRecord],
        live: list[PodRecord],
        owned: Mapping[str, DeclaredRole],
    ) -> bool:
        """Whether a role has no pod yet and nobody makes one: the owners of the others have made all of theirs."""
        made = {identity.role_of(p) for p in pods} | owned.keys()
        size = self.owners.owner_size(live)
        return size is not None and size <= len(live) and any(r.min and r.name not in made for r in roles)

    def _roles(
        self,
        job_state: JobState,
        pods: list[PodRecord],
        roles_of: Sequence[str],
        job: Declared,
        sizes: Mapping[str, RoleSize],
        held: Mapping[str, str],
        owned: Mapping[str, DeclaredRole],
    ) -> tuple[tuple[Role, ...], str]:
        """Its roles, and why one of them that was to be elastic has one size only ("" = none has). roles_of: the role
        of each of the pods."""
        rigid = ""
        needed = job_state.begun if job_state.whole is None else job_state.whole
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
            told = owned.get(name)
            again = told is not None  # what its owner takes back may end with 0 when it is told to
            ended = sum(
                1
                for p in mine
                if (ended_well(p) and not (again and p.deleting and p.uid not in self.done))
                or (p.phase is Phase.FAILED and p.controller is None)
            )
            if told is None:
                wanted = self.owners.owner_size(mine)
            else:  # a status may be late: of one that begins again, what is there is not done
                here = sum(1 for p in alive if p.phase is not Phase.ENDING)
                wanted = max(told.count - max(ended, told.done), min(told.count - ended, here), 0)
            group = self.groups.get((job_state.key.namespace, identity.group_of(mine[0]))) if mine else None
            size = sizes.get(name, RoleSize())
            if not mine and told is not None:
                size = declared_of(name, told.notes)
            if group is not None and size == RoleSize() and len(names) == 1:
                size = RoleSize(min=group, max=max(group, len(alive) + ended))
            least, most = role_bounds(
                size,
                counts.get(name),
                wanted,
                ended,
                sum(1 for p in alive if p.phase is not Phase.ENDING),
                owned=told is not None or (bool(controlled) and len(controlled) == len(mine)),
                owner_least=told.min if told is not None else None,
            )
            most += self.owners.surge(mine)
            least = max(least, min(most, self.owners.prefix(mine)))
            why = self.owners.rigid(mine) if least < most else ""
            if why:
                least, rigid = most, rigid or why
            if wanted is None and size.min is None and name not in counts and job_state.whole is not None:
                least = max(
                    least, min(most, job_state.whole.get(name, 0))
                )  # its owner is not known at this moment
            declared_least, least = least, minimum(least, name, needed)
            members = sorted(
                (self._member(job_state, p, held) for p in alive), key=lambda m: (m.index, m.created, m.pod)
            )
            roles.append(
                Role(
                    name=name,
                    min=least,
                    max=most,
                    shape=_largest_shape(alive or mine, told.shape if told and len(alive) < least else None),
                    sizes=size.sizes,
                    members=tuple(members),
                    ended=ended,
                    ordered=(told is not None and told.ordered) or self.owners.in_order(mine),
                    grows=declared_least - least,
                )
            )
        return tuple(roles), rigid

    def evictable(self, pod: PodRecord) -> bool:
        """Whether we may end it: it is made again, and its owner survives that (one that never ran fails nobody)."""
        if pod.controller is None:
            return pod.annotations.get(identity.EVICTABLE) == "true"
        return not (pod.phase.on_node and self.owners.fragile(pod))

    def _member(self, job_state: JobState, pod: PodRecord, held: Mapping[str, str]) -> Member:
        """As it will be once what is under way about it is done."""
        phase, pinned, node = pod.phase, bool(pod.pin), pod.node or pod.pin
        if phase is Phase.GATED and pod.uid in held and opens(job_state, pod.uid):
            phase, pinned = Phase.UNGATED, job_state.job is None or not job_state.job.scored
        if phase is Phase.UNGATED and not node:
            node = held.get(pod.uid, "")
        if pod.uid in job_state.desired.leaving and (
            phase is Phase.BOUND or (phase is Phase.UNGATED and pinned)
        ):
            phase = Phase.ENDING
        return Member(
            uid=pod.uid,
            pod=pod.name,
            phase=phase,
            shape=pod.shape,
            index=identity.index_of(pod),
            node=node,
            created=pod.created,
            refused_at=self.refused_at.get(pod.uid, 0.0),
            refusal=pod.refusal,
            evictable=self.evictable(pod),
            pinned=pinned,
            nominated=pod.nominated,
            revision=identity.revision_of(pod),
        )


def opens(job_state: JobState, uid: str) -> bool:
    """Whether the patch that takes a pod's gate off is under way."""
    return job_state.in_flight.of(uid).sent is Ungate


def _told_last(pods: Sequence[PodRecord], notes: list[tuple[str, Declared]]) -> list[tuple[str, Declared]]:
    """What the pods declare, without those of a version of their owner's template that a newer one replaces. pods:
    oldest first."""
    if all(part is notes[0][1] for _, part in notes):  # nearly every job
        return notes
    of = [identity.revision_of(pod) for pod in pods]
    newest = {owner: version for owner, version in of if version}
    return [
        note
        for note, (owner, version) in zip(notes, of, strict=True)
        if not version or newest[owner] == version
    ]


def _kept_as_they_are(roles: tuple[Role, ...], pods: list[PodRecord]) -> str:
    """Why a job that declares less than it has is not made smaller all the same, "" where it is."""
    bare = [p for p in pods if p.controller is None and p.annotations.get(identity.EVICTABLE) != "true"]
    if not bare or all(role.min == role.max for role in roles):
        return ""
    return (
        f"pods without an owner that would create them again are not ended; {identity.EVICTABLE}: "
        '"true" on them allows it'
    )


def bounded(roles: tuple[Role, ...], owner: Owner | None) -> tuple[tuple[Role, ...], str]:
    """The roles with sizes that may be believed, and in words what was beyond: whoever declared it (core.bounds)."""
    by = f" (declared by {owner.kind} {owner.name})" if owner is not None and owner.kind != "Pod" else ""
    if len(roles) > ROLES.most:
        members = tuple(m for role in roles for m in role.members)
        shape = roles[0].shape
        return (Role(DEFAULT_ROLE, 1, 1, shape, members=members),), ROLES.beyond("roles", len(roles)) + by
    wrong = ""
    for role in roles:
        if max(role.min, role.max) > REPLICAS.most:
            wrong = wrong or REPLICAS.beyond(f"role {role.name}", max(role.min, role.max)) + by
    total = sum([role.max for role in roles])
    if not wrong and total > JOB_REPLICAS.most:
        wrong = JOB_REPLICAS.beyond("all roles together", total) + by
    if not wrong:
        return roles, ""
    most = min(REPLICAS.most, JOB_REPLICAS.most // len(roles))
    return tuple(replace(r, min=min(r.min, most), max=min(r.max, most)) for r in roles), wrong


def of_daemon_set(pod: PodRecord) -> bool:
    """Whether a DaemonSet's controller made the pod, for one node."""
    owner = pod.controller
    return owner is not None and owner.kind == "DaemonSet"


def is_alive(pod: PodRecord) -> bool:
    """Whether a pod still is, or will be, a replica."""
    return not pod.phase.ended and not (pod.deleting and not pod.phase.on_node)


def _normal_holds(job_state: JobState, live: list[PodRecord]) -> tuple[Reservation, ...]:
    """Holds of bound pods are done; holds of pods that are gone are open for their successors. One that is pinned has
    its place, whatever was planned since: it can go nowhere else (its eviction was called back)."""
    phase, leaving = {p.uid: p.phase for p in live}, job_state.desired.leaving
    kept = [
        h for h in job_state.planned if not (h.uid in phase and (phase[h.uid].on_node or h.uid in leaving))
    ]
    held = {h.uid for h in kept}
    pinned = [
        Reservation(identity.role_of(p), p.pin, p.name, p.uid)
        for p in live
        if p.phase is Phase.UNGATED and p.pin and p.uid not in held and p.uid not in leaving
    ]
    return reopened((*kept, *pinned), {h.uid for h in kept if h.uid and h.uid not in phase})


def _largest_shape(pods: list[PodRecord], template: Shape | None) -> Shape:
    """What is planned for each replica of a role: where their requests differ, the largest that waits. template: of
    those that do not exist yet."""
    waiting = [p for p in pods if not p.phase.on_node] or pods
    shapes = dict.fromkeys([p.shape for p in waiting])
    if template is not None:
        shapes[template] = None
    return reduce(larger, shapes) if shapes else Shape()


def _as_it_runs(role: Role, *, suspended: bool, ends: bool) -> Role:
    """A role of an owner that has ended, or wants no pods for now: what is on a node, or on its way there, stays
    until its owner takes it, and nothing more starts. A suspended one without any keeps its size. ends: its owner is
    about to end what is bound, so that all its places come free together, and not that of the leader alone."""
    members = tuple(m for m in role.members if m.phase.on_node or (m.phase is Phase.UNGATED and m.node))
    if ends:
        members = tuple(replace(m, phase=Phase.ENDING) if m.phase is Phase.BOUND else m for m in members)
    count = sum(1 for m in members if m.phase is not Phase.ENDING)
    if suspended and not count:
        return replace(role, members=members)
    return replace(role, members=members, min=count, max=count, sizes=(), grows=0)


def _without_pods(
    job: Job, job_state: JobState, reservations: tuple[Reservation, ...], *, suspended: bool
) -> Job:
    """A job as it was, whose owner makes its pods again, or is to. One that is placed elsewhere has places already:
    they wait for these pods, for a while (core.state.job_facts)."""
    return replace(
        job,
        submitted=job_state.submitted,
        roles=tuple(replace(role, members=()) for role in job.roles),
        reservations=() if suspended else reservations,
        started=False,
        started_at=job_state.started_at,
        below_since=job_state.clock.since,
        since=job_state.since,
        expects=bool(reservations) and not suspended,
        over="",
        returning=False,
        restarting=False,
        not_before=job_state.not_before,
        suspended=suspended,
    )
