"""Step 5 of a cycle: who takes part in sharing, what the profile's plugins say, and its way to the plan.

`core.sharing.chain` makes the shares legal, `core.sharing.apply` carries them out on a statement.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from muster.core.placement.cycle_state import CycleState
from muster.core.placement.reservations import placed
from muster.core.progress.estimate import believed, later_at
from muster.core.reasons import waiting
from muster.core.reasons.shares import words
from muster.core.sharing.chain import shares_of
from muster.core.sharing.fill import fill
from muster.core.sharing.job_table import as_decided, table_in
from muster.core.sharing.moving import is_rigid
from muster.core.sharing.work_conserving import share_out, take_part
from muster.points import Profile
from muster.types import (
    Grants,
    Job,
    JobKey,
    Move,
    Phase,
    SharingSnapshot,
    Snapshot,
    Table,
    elastic_role,
)


def share(run: CycleState, order: Sequence[Job], kept: Sequence[Job], queue: Sequence[Job]) -> None:
    """Shares by the profile's chain, carried out on nodes, and moves. In `run.shares` are the jobs whose size is
    decided then: none where the profile has neither, or all of its Share plugins failed."""
    profile = run.profile
    if not profile.shares and not profile.rebalance:
        return
    ours = [job for job in kept if _ours_to_end(run, job)]
    rigid = [job for job in ours if _stays_whole(profile, job)]
    keys = {job.key for job in (*queue, *ours)} - {job.key for job in rigid}
    members = [job for job in order if job.key in keys and job.elastic and job.elastic.shape.gpus]
    if not profile.shares:
        members = []
    if profile.conserving:
        members = take_part(run, members)
    table = table_in(
        run.snapshot,
        run.capacity,
        run.reservations,
        members,
        believed(run.snapshot, profile, run.plugin_errors),
    )
    snapshot = run.snapshot.with_table(table)
    nothing = Grants(table.have, {table.row[j.key]: j.grant for j in members if j.grant is not None})
    between = profile.round and not _at_round(run.snapshot, profile.round)
    asked = 0

    def ask(shown: SharingSnapshot, kept: Sequence[JobKey]) -> Grants | None:
        """What the profile's chain grants; between rounds, what jobs have."""
        nonlocal asked
        asked += 1
        if between or not profile.shares:
            return nothing
        row = shown.table.row
        settled = [row[job.key] for job in members if _between_boundaries(job) and job.key in row]
        settled += [row[key] for key in kept if key in row]
        kept_up = [
            row[job.key]
            for job in members
            if (job.shrink_blocked_by or _lost_replicas(job)) and job.key in row
        ]
        plugin_errors = run.plugin_errors if asked == 1 else []  # of the same policy the same again
        return shares_of(
            shown,
            profile.shares,
            plugin_errors,
            settled,
            kept_up,
            preemption=profile.preemption,
            raised=run.failed,
        )

    moves: list[Move] = []
    granted = None
    if profile.rebalance and not between:
        granted = ask(snapshot, ()) if profile.shares else None
        if profile.shares and granted is None:  # it failed: nothing is shared in this cycle
            return
        moves = _moves(run, replace(snapshot, granted=granted))
    once = bool(between) or not profile.conserving
    out = share_out(run, snapshot, members, ask, moves, once=once, granted=granted)
    if out is None:
        return
    shared, done, refused = out
    if profile.conserving:
        shared = fill(run, table, members, shared, done, refused)
        late = min((later_at(job, snapshot.now) for job in members if job.bound), default=math.inf)
        if late < math.inf:
            run.requeue_at.append(late)
    if profile.round:
        run.requeue_at.append((math.floor(run.snapshot.now / profile.round + 1e-9) + 1) * profile.round)
    decided = replace(snapshot, table=as_decided(table, shared.replicas, snapshot.now))
    for plugin in profile.wakers:
        wake = _asked(run, plugin, "wake", decided)
        if isinstance(wake, int | float):
            run.requeue_at.append(float(wake))
    for key, leaving in Counter(shrink.job for shrink in run.shrinks).items():
        run.statuses.setdefault(key, waiting.shrinking(run.snapshot.jobs[key], leaving))
    stay = {job.key: placed(elastic_role(job), run.reservations.get(job.key, ())) for job in rigid}
    run.grants = {job.key: job.grant for job in rigid if job.grant is not None} | dict(run.grants)
    run.shares = stay | {key: int(n) for key, n in zip(table.keys, shared.replicas, strict=True)}
    run.whys = words(table, shared, _fixed(table, members), rule=_rule(profile), stay=stay)
    run.shared = bool(profile.shares) and not between


def _rule(profile: Profile) -> str:
    """What the policy goes by, as its plugin says it."""
    return next((str(rule) for share in profile.shares if (rule := getattr(share, "RULE", ""))), "")


def _fixed(table: Table, members: Sequence[Job]) -> dict[int, str]:
    """Rows of jobs that can't change now, or only in one direction, with why."""
    found = {}
    for job in members:
        if job.shrink_blocked_by:
            found[table.row[job.key]] = job.shrink_blocked_by
        elif _between_boundaries(job):
            found[table.row[job.key]] = "it changes only at a boundary that it reports"
    return found


def _between_boundaries(job: Job) -> bool:
    """A running job with `resizeAt: boundary` that does not stand at one: it keeps what it has."""
    if job.resize_at != "boundary" or not job.bound:
        return False
    return job.report is None or not job.report.boundary


def _lost_replicas(job: Job) -> bool:
    """A job below what it was whole with: it has `gang.timeout` to get them back, whatever its share is."""
    return job.once_whole and job.started and job.unbound > 0


def _at_round(snapshot: Snapshot, length: float) -> bool:
    """Whether a round of `length` s begins: now is a whole multiple of it (within a microsecond), or one has passed
    since shares were last computed (clocks of clusters don't stop at it)."""
    now = snapshot.now
    if abs(now - round(now / length) * length) < 1e-6:
        return True
    return bool(snapshot.shared_at) and now // length > snapshot.shared_at // length


def _ours_to_end(run: CycleState, job: Job) -> bool:
    """Whether its size may be changed: it is not on its way back, and every replica of it returns to the gate."""
    if job.key in run.back or job.key in run.preempted or job.released:
        return False
    stays = [m for role in job.roles for m in role.members if not m.evictable and m.phase is not Phase.GATED]
    return not stays


def _stays_whole(profile: Profile, job: Job) -> bool:
    """Whether it runs on a cluster, has one size, and nobody said that it may be ended: neither its owner (that it
    can be restarted) nor who runs the cluster (`preemption`). It takes no part: what it has is not shared out. One
    that is granted more than replicas (a batch size, devices, half a GPU), or is still to be cut, takes part."""
    if not (profile.shares and profile.conserving) or profile.preemption:
        return False
    if not (job.bound and job.elastic and job.elastic.shape.gpus and is_rigid(job)):
        return False
    if job.batch_sizes or job.shareable or any(role.devices for role in job.roles):
        return False
    return all(role.bound <= role.max for role in job.roles)


def _moves(run: CycleState, snapshot: SharingSnapshot) -> list[Move]:
    """What the profile's Rebalance plugins propose to place again."""
    moves: list[Move] = []
    for plugin in run.profile.rebalance:
        proposed = _asked(run, plugin, "moves", snapshot)
        if proposed is not None:
            moves += proposed
    return moves


def _asked(run: CycleState, plugin: object, point: str, snapshot: SharingSnapshot) -> Any:
    """A plugin's answer at a point, None where it fails (and that is complained of)."""
    try:
        return getattr(plugin, point)(snapshot)
    except Exception as error:
        run.plugin_errors.append(f"{type(plugin).__name__}.{point}: {error!r}, left out")
        return None
