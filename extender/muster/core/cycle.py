"""One cycle: a snapshot in, a plan out. The main function reads as design §3 numbers it.

1 estimate  2 order  3 share  4 place (keep, shrink, start, grow)  5 rebalance  (6, diff into actions: the Ledger)

What is kept comes before sharing, since shares are of what is left: the replicas of started jobs that are missing
have their places first, whatever a plugin says. `core.sharing` decides shares, `core.elastic` carries them out.

Rules that hold whatever the plugins say: capacity, the gang's minimum, min and max, no double booking.
Missing members of started jobs come before every start. An incomplete, invalid or impossible job never blocks
others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from muster.core import reasons
from muster.core.constraints import static_mask
from muster.core.elastic import carry_out, comes
from muster.core.estimate import believed, observed
from muster.core.holds import assign, open_holds, own_rows, placed
from muster.core.place import Need, Spot, place
from muster.core.preempt import in_use, make_way
from muster.core.room import Both, Room
from muster.core.sharing import shares_of
from muster.core.table import as_decided, table_in
from muster.core.whys import words
from muster.points import Candidates, Fifo, Profile
from muster.types import (
    Code,
    FloatArray,
    Hold,
    Job,
    JobKey,
    Member,
    Move,
    Phase,
    Plan,
    Role,
    Seconds,
    Shape,
    Shares,
    Shrink,
    Snapshot,
    State,
    Status,
    Table,
    Undo,
    Want,
)


@dataclass
class _Cycle:
    """What the steps of one cycle pass to each other."""

    snapshot: Snapshot
    profile: Profile
    room: Room
    holds: dict[JobKey, tuple[Hold, ...]] = field(default_factory=dict)
    statuses: dict[JobKey, Status] = field(default_factory=dict)
    undo: list[Undo] = field(default_factory=list)
    stuck: dict[JobKey, Status] = field(default_factory=dict)  # pinned where they can't run, not ours to end
    back: dict[JobKey, str] = field(default_factory=dict)
    preempted: dict[JobKey, str] = field(default_factory=dict)
    wakes: list[float] = field(default_factory=list)
    refused: dict[tuple[object, ...], Status] = field(default_factory=dict)
    ceiling: Room | None = None  # capacity at the head's reserved start, less the head
    until: float = math.inf  # the head's reserved start
    head: JobKey | None = None  # the first job that does not fit: only it is reserved for
    blocked: bool = False  # strict order: the head waits, so does everybody
    complaints: list[str] = field(default_factory=list)


def cycle(snapshot: Snapshot, profile: Profile) -> Plan:
    """The plan for a snapshot. Pure: the same snapshot and profile give the same plan."""
    memory: dict[JobKey, dict[str, object]] = {}
    complaints: list[str] = []
    # 1 estimate: what reports tell is folded into the jobs' memory; speed and length stand in the table
    snapshot = observed(snapshot, profile, memory, complaints)
    run = _Cycle(snapshot, profile, Room(snapshot), complaints=complaints)
    # 2 order
    order = _order(run)
    # 4 place (first half): keep what runs, complete what has started
    waiting: list[Job] = []
    kept: list[Job] = []
    for job in order:
        if job.invalid:
            run.statuses[job.key] = Status(State.INVALID, Code.INVALID, job.invalid)
        elif job.started or job.holds:
            if _keep(run, job):
                kept.append(job)
            else:
                waiting.append(job)
        else:
            waiting.append(job)
    queue = [job for job in waiting if _ready(run, job)]
    # 3 share, and 4 place (second half): shrink, then start and grow; without shares: start, then grow
    changes = _share(run, order, kept, queue)
    shared = changes.shared if changes is not None else frozenset()
    for job in queue:
        if job.key not in shared:
            _start(run, job)
    for job in order:
        if job.key not in shared and (job.started or job.key in run.holds):
            _grow(run, job)
    for job in order:
        if job.key not in run.statuses:
            run.statuses[job.key] = _standing(run, job)
    plan = Plan(
        order=tuple([job.key for job in queue if run.statuses[job.key].state is State.WAITING]),
        holds=run.holds,
        statuses=run.statuses,
        undo=tuple(run.undo),
        back=run.back,
        preempted=run.preempted,
        wake=min((w for w in run.wakes if w > snapshot.now), default=None),
        complaints=(*run.complaints, *sorted(run.room.complaints)),
        memory=memory,
    )
    if changes is None:
        return plan
    return replace(
        plan,
        shrinks=changes.shrinks,
        later=changes.later,
        wants=changes.wants,
        shares=changes.shares,
        whys=changes.whys,
        shared=changes.computed,
    )


# ---- 2 order ----


def _order(run: _Cycle) -> list[Job]:
    """All jobs, first first; by the default where the profile's plugin fails (design §3)."""
    snapshot, jobs = run.snapshot, run.snapshot.jobs.values()
    key = run.profile.sort.sort_key
    try:
        return sorted(jobs, key=lambda job: (*key(job, snapshot), job.key))
    except Exception as error:
        run.complaints.append(f"{type(run.profile.sort).__name__}.sort_key: {error!r}, left out")
        return sorted(jobs, key=lambda job: (*Fifo().sort_key(job, snapshot), job.key))


# ---- 3 share ----


@dataclass(frozen=True)
class _Changes:
    """What sharing and rebalancing add to the plan; `shared` are the jobs whose size was decided there."""

    shared: frozenset[JobKey]
    shrinks: tuple[Shrink, ...]
    later: Mapping[JobKey, tuple[Hold, ...]]
    wants: Mapping[JobKey, Want]
    shares: Mapping[JobKey, int]
    whys: Mapping[JobKey, str]
    computed: bool


def _share(run: _Cycle, order: Sequence[Job], kept: Sequence[Job], queue: Sequence[Job]) -> _Changes | None:
    """Shares by the profile's chain, carried out on the room, and moves; None where the profile has neither."""
    profile = run.profile
    if not profile.shares and not profile.rebalance:
        return None
    keys = {job.key for job in queue} | {job.key for job in kept if _ours_to_end(run, job)}
    members = [job for job in order if job.key in keys and job.elastic and job.elastic.shape.gpus]
    if not profile.shares:
        members = []
    table = table_in(
        run.snapshot, run.room, run.holds, members, believed(run.snapshot, profile, run.complaints)
    )
    snapshot = replace(run.snapshot, table=table)
    nothing = Shares(table.have, {table.row[j.key]: j.want for j in members if j.want is not None})
    between = profile.round and not _at_round(run.snapshot, profile.round)
    shared: Shares | None = nothing
    if profile.shares and not between:
        settled = [table.row[job.key] for job in members if _between_boundaries(job)]
        kept_up = [table.row[job.key] for job in members if job.keeps]
        shared = shares_of(snapshot, profile.shares, run.complaints, settled, kept_up)
    if shared is None:
        return None
    if profile.round:
        run.wakes.append((math.floor(run.snapshot.now / profile.round + 1e-9) + 1) * profile.round)
    moves = [] if between else _moves(run, snapshot)
    decided = replace(snapshot, table=as_decided(table, shared.replicas, snapshot.now))
    for plugin in profile.wakers:
        wake = _asked(run, plugin, "wake", decided)
        if isinstance(wake, int | float):
            run.wakes.append(float(wake))
    done = carry_out(snapshot, profile, run.room, run.holds, members, shared, moves)
    run.statuses.update(done.statuses)
    run.preempted.update(done.whole)
    shrinks = done.shrinks()
    for key, leaving in Counter(shrink.job for shrink in shrinks).items():
        run.statuses.setdefault(key, reasons.shrinking(run.snapshot.jobs[key], leaving))
    return _Changes(
        shared=frozenset(table.keys),
        shrinks=shrinks,
        later=done.later,
        wants=done.wants,
        shares={key: int(n) for key, n in zip(table.keys, shared.replicas, strict=True)},
        whys=words(table, shared, _fixed(table, members), rule=_rule(profile)),
        computed=bool(profile.shares) and not between,
    )


def _rule(profile: Profile) -> str:
    """What the policy goes by, as its plugin says it."""
    return next((str(rule) for share in profile.shares if (rule := getattr(share, "RULE", ""))), "")


def _fixed(table: Table, members: Sequence[Job]) -> dict[int, str]:
    """Rows of jobs that can't change now, or only in one direction, with why."""
    found = {}
    for job in members:
        if job.keeps:
            found[table.row[job.key]] = job.keeps
        elif _between_boundaries(job):
            found[table.row[job.key]] = "it changes only at a boundary that it reports"
    return found


def _between_boundaries(job: Job) -> bool:
    """A running job with `resizeAt: boundary` that does not stand at one: it keeps what it has."""
    if job.resize_at != "boundary" or not job.bound:
        return False
    return job.report is None or not job.report.boundary


def _at_round(snapshot: Snapshot, length: float) -> bool:
    """Whether a round of `length` s begins: now is a whole multiple of it (within a microsecond), or one has passed
    since shares were last computed (clocks of clusters don't stop at it)."""
    now = snapshot.now
    if abs(now - round(now / length) * length) < 1e-6:
        return True
    return bool(snapshot.shared_at) and now // length > snapshot.shared_at // length


def _ours_to_end(run: _Cycle, job: Job) -> bool:
    """Whether its size may be changed: it is not on its way back, and every replica of it returns to the gate."""
    if job.key in run.back or job.key in run.preempted or job.released:
        return False
    stays = [m for role in job.roles for m in role.members if not m.evictable and m.phase is not Phase.GATED]
    return not stays


def _moves(run: _Cycle, snapshot: Snapshot) -> list[Move]:
    """5 rebalance: what the profile's plugins propose to place anew."""
    moves: list[Move] = []
    for plugin in run.profile.rebalance:
        proposed = _asked(run, plugin, "moves", snapshot)
        if proposed is not None:
            moves += proposed
    return moves


def _asked(run: _Cycle, plugin: object, point: str, snapshot: Snapshot) -> Any:
    """A plugin's answer at a point, None where it fails (and that is complained of)."""
    try:
        return getattr(plugin, point)(snapshot)
    except Exception as error:
        run.complaints.append(f"{type(plugin).__name__}.{point}: {error!r}, left out")
        return None


# ---- 4 place: keep ----


def _keep(run: _Cycle, job: Job) -> bool:
    """What the job has; its missing members get places first. False when it goes back to waiting whole."""
    if job.released:
        run.statuses[job.key] = RELEASED._replace(state=State.STARTING)
        run.holds[job.key] = job.holds
        return True
    if job.preempted:  # until all of it is back: a gang goes whole, and others are not ended in its stead
        run.preempted[job.key] = job.preempted
        return True
    if job.not_before > run.snapshot.now:
        run.back[job.key] = "its last start did not complete; the rest of it goes back to the gate"
        return True
    if not job.holds and not job.unbound:  # whole: what most running jobs are in most cycles
        run.holds[job.key] = ()
        return True
    holds = assign(job, _still_good(run, job))
    missing = [
        Need(role, min(role.min - placed(role, holds), _startable(job, role, holds)))
        for role in job.roles
        if role.min > placed(role, holds) and _startable(job, role, holds)
    ]
    if missing:
        spots = place(
            run.room, job, missing, run.profile, run.snapshot, own=own_rows(run.snapshot.nodes, job, holds)
        )
        if spots is not None:
            holds = assign(job, holds + open_holds(run.snapshot.nodes, spots))
        elif job.started:
            short = reasons.refusal(run.room, job, missing, run.profile, run.snapshot)
            run.statuses[job.key] = short._replace(state=State.STARTING)
    if not job.started and any(role.min > placed(role, holds) for role in job.roles):
        _release(run, job, holds)  # no place for all of it, or a pod that nobody makes again is gone
        return False
    run.holds[job.key] = tuple(holds)
    if job.started and (missing or job.unbound):
        _watch_the_clock(run, job)
    return True


RELEASED = Status(
    State.WAITING, Code.RELEASED, "was released from the queue; kube-scheduler places it without a plan"
)


def _startable(job: Job, role: Role, holds: Sequence[Hold]) -> int:
    """Replicas without a place that could take one: those that exist, or any that an owner will create."""
    if job.expects:
        return role.min
    taken = {h.uid for h in holds}
    return sum(1 for m in role.members if m.ready and m.uid not in taken)


def _still_good(run: _Cycle, job: Job) -> list[Hold]:
    """Holds whose node is there, admits the replica and is not over-committed; pins are undone on evidence.

    A hold of a replica that is gone stays as an open one: its successor takes it (design §3).
    """
    nodes = run.snapshot.nodes
    members = {m.uid: (role, m) for role in job.roles for m in role.members}
    roles = {role.name: role for role in job.roles}
    kept: list[Hold] = []
    for hold in job.holds:
        role = roles.get(hold.role)
        if role is None:
            continue
        row = nodes.index.get(hold.node)
        member = members.get(hold.uid, (role, None))[1] if hold.uid else None
        if member is not None and member.phase is Phase.UNGATED and member.pinned:
            why = _evidence(run, member, row)
            if why and member.evictable:
                run.undo.append(Undo(job.key, role.name, member.uid, member.pod, hold.node, why))
            elif why:
                run.stuck.setdefault(job.key, reasons.stuck(member, why))
            elif member.refused_at:
                run.wakes.append(member.refused_at + run.profile.evidence)
            kept.append(hold)  # it uses the node until it is gone
            continue
        if row is None:
            continue
        unfit = (
            not static_mask(nodes, role.shape)[row]
            or hold.node in run.snapshot.barred.get((job.key, role.name), {})
            or run.room.overcommitted(row, role.shape)
        )
        have = placed(role, kept)
        spare = not hold.uid and (have >= role.max or not _startable(job, role, kept))
        if not hold.uid and have >= role.min and role.min and not comes(job, run.snapshot.now, run.profile):
            spare = True  # its owner makes no more of them
        if unfit or spare:
            run.room.give(row, role.shape)
            continue
        kept.append(hold)
    return kept


def _evidence(run: _Cycle, member: Member, row: int | None) -> str:
    """Why a pin can't work, or "" (design §2: only on evidence, never by time alone)."""
    if row is None:
        return f"node {member.node} is gone"
    nodes = run.snapshot.nodes
    if not nodes.open[row] and not static_mask(nodes, member.shape)[row]:  # some pods tolerate a cordon
        return f"node {member.node} is unschedulable"
    if member.refused_at and run.snapshot.now - member.refused_at >= run.profile.evidence:
        return f"kube-scheduler found node {member.node} unfit: {member.refusal}"
    return ""


def _release(run: _Cycle, job: Job, holds: Sequence[Hold]) -> None:
    roles = {role.name: role for role in job.roles}
    for hold in holds:
        row = run.snapshot.nodes.index.get(hold.node)
        if row is not None:
            run.room.give(row, roles[hold.role].shape)
    run.holds[job.key] = ()


def _watch_the_clock(run: _Cycle, job: Job) -> None:
    """A started gang below its minimum goes back to the gate whole after the timeout (design §3)."""
    if not job.below_since:
        return
    since = max(job.below_since, job.newest_pod if job.ordered else 0.0)
    if run.snapshot.now - since < run.profile.timeout:
        run.wakes.append(since + run.profile.timeout)
        return
    out = [m for role in job.roles for m in role.members if m.phase in (Phase.BOUND, Phase.UNGATED)]
    if not any(m.evictable for m in out):
        return  # bare pods are never ended by us: there is no way back to the gate
    bound = sum(1 for m in out if m.phase is Phase.BOUND)
    least = sum(role.min for role in job.roles)
    run.back[job.key] = (
        f"{bound} of {least} replicas were bound {reasons.duration(Seconds(run.snapshot.now - since))} "
        "after the first; the whole job goes back to the gate"
    )


# ---- 4 place: start ----


def _ready(run: _Cycle, job: Job) -> bool:
    """Whether a job that has not started is in the queue; if not, its status says why."""
    snapshot, profile = run.snapshot, run.profile
    if job.key in run.statuses:
        return False
    least = most = ready = 0
    short = False
    if (
        len(job.roles) == 1 and job.not_before <= snapshot.now
    ):  # nearly every job, and this is asked 10,000 times
        role = job.roles[0]
        if role.ready >= role.min > 0 and not role.released:
            return True
    for role in job.roles:
        least, most, ready = least + role.min, most + role.max, ready + role.ready
        if role.released:
            run.statuses[job.key] = RELEASED
            return False
        short = short or role.ready < role.min
    if short:
        held_back = sum([r.held for r in job.roles])
        waits_for_us = job.expects and not held_back and ready
        paused = snapshot.now - job.newest_pod >= profile.owner_pause
        if job.quota[0] or not (waits_for_us and (job.ordered or paused)):
            if waits_for_us:
                run.wakes.append(job.newest_pod + profile.owner_pause)
            run.statuses[job.key] = reasons.incomplete(job, {r.name: r.ready for r in job.roles}, held_back)
            return False
    if job.not_before > snapshot.now:
        run.wakes.append(job.not_before)
        run.statuses[job.key] = reasons.backing_off(job, snapshot)
        return False
    if not most or not (ready or least):
        run.statuses[job.key] = Status(State.FINISHED, Code.OK, "all replicas have ended")
        return False
    return True


def _start(run: _Cycle, job: Job) -> None:
    """All or nothing: every replica of the minimum gets a place on the trial, or the trial is undone."""
    if run.blocked:
        nodes, needs = run.snapshot.nodes, _first_needs(job)
        never = reasons.never_fits(nodes, job, needs, run.profile, run.snapshot)
        run.statuses[job.key] = never or reasons.BEHIND_HEAD
        return
    short = _ends_in_time(run, job)
    kind = _class(run, job, short)
    status = run.refused.get(kind)
    if status is None:
        needs = _first_needs(job)
        room = run.room if run.ceiling is None or short else Both(run.room, run.ceiling)
        spots = place(room, job, needs, run.profile, run.snapshot)
        if spots is not None:
            run.holds[job.key] = tuple(assign(job, open_holds(run.snapshot.nodes, spots)))
            return
        status = reasons.refusal(run.room, job, needs, run.profile, run.snapshot)
        if (
            room is not run.room
            and status.code is not Code.NEVER_FITS
            and _fits_without_reservation(run, job, needs)
        ):
            status = reasons.RESERVED
        run.refused[kind] = status
    run.statuses[job.key] = status
    if status.code in (Code.NEVER_FITS, Code.PLUGIN) or run.head is not None:
        return  # no capacity that comes free would start it, so it blocks nobody
    run.head = job.key
    if run.profile.preemption and _preempt(run, job, _first_needs(job)):
        return
    if run.profile.order == "strict":
        run.blocked = True
    else:
        _reserve(run, job, _first_needs(job))


def _first_needs(job: Job) -> list[Need]:
    """What a job needs to start: its minimum, or one replica where all of it is optional."""
    needs = [Need(role, role.min) for role in job.roles if role.min > 0]
    return needs or [Need(role, 1) for role in job.roles[:1]]


def _class(run: _Cycle, job: Job, short: bool) -> tuple[object, ...]:
    """Jobs of one class fail alike within a cycle: capacity only falls while jobs start."""
    alone = bool(run.profile.filters) or (
        bool(run.snapshot.barred) and any(key == job.key for key, _ in run.snapshot.barred)
    )
    roles = job.roles
    asks: tuple[object, ...]
    if len(roles) == 1:  # nearly every job, and this is asked 10,000 times a cycle
        asks = (roles[0].name, roles[0].shape, roles[0].min)
    else:
        asks = tuple([(r.name, r.shape, r.min) for r in roles])
    return (
        job.key if alone else None,
        asks,
        job.topology_required,
        job.topology_preferred,
        short,
    )


def _fits_without_reservation(run: _Cycle, job: Job, needs: Sequence[Need]) -> bool:
    mark = run.room.mark()
    spots = place(run.room, job, needs, run.profile, run.snapshot)
    run.room.undo(mark)
    return spots is not None


def _ends_in_time(run: _Cycle, job: Job) -> bool:
    """Whether a job of known length ends before the head's reserved start."""
    length = duration(job)
    return run.ceiling is not None and length is not None and run.snapshot.now + length <= run.until


def duration(job: Job) -> float | None:
    """Seconds that a job runs with its minimum, None where its owner does not say."""
    if job.remaining_work is None:
        return None
    replicas = max(1, sum([r.min for r in job.roles]))
    speed = dict(job.speed).get(replicas, float(replicas)) if job.speed else float(replicas)
    return job.remaining_work / speed


def expected_end(job: Job) -> float | None:
    """When a running job of known length ends: by the progress that it is seen to make, else as declared."""
    done = job.facts.progress
    if done.rate > 0.0 and job.remaining_work is not None:
        return done.since + max(0.0, job.remaining_work - done.total) / done.rate
    length = duration(job)
    return None if length is None or not job.started_at else job.started_at + length


def _reserve(run: _Cycle, head: Job, needs: Sequence[Need]) -> None:
    """EASY backfilling: others may pass while they don't delay the head's reservation.

    With known run times the head is placed on what is free at the first time at which it fits. Without, it is
    placed as if the running jobs of ours were gone, where most is free now, and freed capacity there is kept
    for it, but only once it has waited longer than the profile's patience.
    """
    snapshot = run.snapshot
    now = replace(snapshot, free=run.room.free, ports=run.room.ports, ours_on=run.room.ours)
    running = [job for job in snapshot.jobs.values() if job.started]
    ends = sorted((end, job.key) for job in running if (end := expected_end(job)) is not None)

    @cache
    def leaves(number: int) -> list[tuple[int, Shape]]:
        return in_use(snapshot.jobs[ends[number][1]], snapshot.nodes)

    def placed_after(count: int) -> Room | None:
        """The room with the head in it once the first `count` jobs have ended, None where it does not fit."""
        room = Room(now)
        room.give_all(chain.from_iterable(map(leaves, range(count))))
        return None if place(room, head, needs, run.profile, snapshot) is None else room

    first = _least(len(ends), lambda count: placed_after(count) is not None)
    if first is not None:
        run.ceiling, run.until = placed_after(first), ends[first - 1][0]
        return
    ripe = head.submitted + run.profile.patience
    if snapshot.now < ripe:
        run.wakes.append(ripe)
        return
    later = Room(now)
    later.give_all(chain.from_iterable(in_use(job, snapshot.nodes) for job in running))
    most_free = replace(run.profile, scores=((_MostFree(run.room, needs), 1.0),))
    spots = place(later, head, needs, most_free, snapshot)
    if spots is None:
        return
    _keep_free(run, needs, spots)


def _keep_free(run: _Cycle, needs: Sequence[Need], spots: Sequence[Spot]) -> None:
    """What is free on the head's spots is nobody else's from here on."""
    kept = Room(replace(run.snapshot, free=run.room.free, ports=run.room.ports, ours_on=run.room.ours))
    shapes = {n.role.name: n.role.shape for n in needs}
    for role, row, count in spots:
        kept.take(row, shapes[role], count)
    run.ceiling = kept


def _preempt(run: _Cycle, head: Job, needs: Sequence[Need]) -> bool:
    """Whole gangs of lower priority make way for the head; false where that would not be enough."""
    way = make_way(run.room, head, needs, run.profile, run.snapshot)
    if way is None:
        return False
    victims, spots = way
    for victim in victims:
        run.preempted[victim.key] = f"preempted whole by a job of priority {head.priority}"
    _keep_free(run, needs, spots)
    return True


def _least(most: int, enough: Callable[[int], bool]) -> int | None:
    """The least number from 1 to `most` that is enough, tried in steps that double, then halved; or None.

    More ended jobs are nearly always enough when fewer were; where first fit makes an exception, the number
    found is still enough, only not the least.
    """
    low, high = 0, 1
    while high < most and not enough(high):
        low, high = high, high * 2
    high = min(high, most)
    if not most or not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, slots=True)
class _MostFree:
    """Where most replicas fit now, so that the head's reservation has the least to wait for."""

    room: Room
    needs: Sequence[Need]

    def score(
        self,
        job: Job,  # noqa: ARG002
        role: Role,
        candidates: Candidates,  # noqa: ARG002
        snapshot: Snapshot,  # noqa: ARG002
    ) -> FloatArray:
        """Replicas that fit now, as a share of the most that fit anywhere."""
        fits = self.room.fits(role.shape).astype(np.float64)
        scores: FloatArray = 100.0 * fits / max(1.0, float(fits.max(initial=0.0)))
        return scores


# ---- 4 place: grow ----


def _grow(run: _Cycle, job: Job) -> None:
    """Existing replicas above the minimum start as they fit, in order, unless a head would be delayed."""
    if run.blocked or job.invalid or job.key in run.back or job.key in run.preempted:
        return
    holds = run.holds.get(job.key, ())
    for role in job.roles:
        have = placed(role, holds)
        if have < role.min:
            return
        if have >= role.max:
            continue
        taken = {h.uid for h in holds}
        ready = sum(1 for m in role.members if m.ready and m.uid not in taken)
        most = min(role.max, have + ready)
        room = run.room if run.ceiling is None else Both(run.room, run.ceiling)
        most = min(most, have + room.total_fits(role.shape))
        sizes = [s for s in role.sizes if have < s <= most] if role.sizes else range(have + 1, most + 1)
        if sizes:
            own = own_rows(run.snapshot.nodes, job, holds)
            steps = [Need(role, size - have) for size in sizes]
            spots = _largest(room, steps, lambda n: place(room, job, [n], run.profile, run.snapshot, own=own))  # noqa: B023
            if spots is not None:
                holds = tuple(assign(job, [*holds, *open_holds(run.snapshot.nodes, spots)]))
                run.holds[job.key] = holds


def _largest(
    room: Room | Both, steps: Sequence[Need], spots_of: Callable[[Need], list[Spot] | None]
) -> list[Spot] | None:
    """Spots for the largest of the rising steps that fits, taken from the room; None where not even one does.

    The last is tried first, then the steps are halved: what takes more takes less, nearly always.
    """
    spots = spots_of(steps[-1])
    low, high = 0, len(steps) - 1  # the first `low` steps fit, those from `high` on don't
    while spots is None and low < high:
        middle = (low + high + 1) // 2
        mark = room.mark()
        if spots_of(steps[middle - 1]) is None:
            high = middle - 1
        else:
            low = middle
            room.undo(mark)
    return spots_of(steps[low - 1]) if spots is None and low else spots


# ---- statuses of what runs ----


def _standing(run: _Cycle, job: Job) -> Status:
    """Starting, Running or Resizing, by what is bound and what is held."""
    holds = run.holds.get(job.key, ())
    if job.key in run.back:
        return Status(State.WAITING, Code.BACKING_OFF, run.back[job.key])
    if job.key in run.preempted:
        return Status(State.WAITING, Code.PREEMPTED, run.preempted[job.key])
    if job.unbound:
        stuck = [u for u in run.undo if u.job == job.key]
        if stuck:
            return Status(
                State.STARTING, Code.STUCK, f"replica {stuck[0].pod} is placed anew: {stuck[0].why}"
            )
        if job.key in run.stuck:
            return run.stuck[job.key]
        return reasons.starting(holds)
    return reasons.running(job, holds)
