"""Snapshots out: everything that a plan may depend on, frozen. Only jobs of which something is new are made anew."""

from __future__ import annotations

from muster.core.jobs import is_alive
from muster.core.lived import lived
from muster.core.memory import Memory
from muster.core.places import charge_holds, set_holds
from muster.core.pods import place_orphans
from muster.types import JobKey, Snapshot

RETURN = 30.0
"""Seconds for which a job without a pod is not over after we evicted one of its pods: its owner makes it again (0.5
to 1.2 s for a Job, design §1; operators take their time)."""


def snapshot_of(memory: Memory, now: float) -> Snapshot:
    """Everything that a plan may depend on, at `now`."""
    memory.listens = now if memory.listens is None else memory.listens
    place_orphans(memory, [pod for pod, _ in memory.orphans.values()], now)
    over = {key for key, until in memory.later.items() if until <= now}
    for key in over:
        del memory.later[key]
    memory.dirty |= memory.returning | memory.heard | over
    memory.returning.clear()
    memory.heard.clear()
    for key in memory.dirty:
        _refresh(memory, key, now)
    memory.dirty.clear()
    memory.charges.moved = False
    barred: dict[tuple[JobKey, str], dict[str, float]] = {}
    for key in memory.with_bars:
        for bar in memory.entries[key].barred.values():
            if bar.until > now:
                barred.setdefault((key, bar.role), {})[bar.node] = bar.until
    return Snapshot(
        now=now,
        nodes=memory.charges.columns(),
        free=memory.charges.free(),
        jobs=dict(memory.jobs),
        ports=memory.charges.ports(),
        barred=barred,
        ours_on=memory.charges.ours_on(),
        shared_at=memory.shared_at,
    )


def _refresh(memory: Memory, key: JobKey, now: float) -> None:
    """Rebuild one job's frozen view; forget a job of which nothing is left."""
    entry = memory.entries.get(key)
    if entry is None:
        return
    if not entry.pods and entry.gang is None:
        if entry.holds:
            set_holds(memory, entry, ())
        memory.jobs.pop(key, None)
        del memory.entries[key]
        memory.with_bars.discard(key)
        memory.asked.discard(key)
        memory.guarded_jobs.discard(key)
        memory.later.pop(key, None)
        return
    if entry.holds is None and entry.planned:
        charge_holds(memory, entry)
    # Owners make again what we evicted. Where nobody tells us what an owner still wants, time decides.
    returns = (
        now < entry.returning + RETURN
        and key.uid not in memory.owners.records
        and not any(is_alive(p) for p in entry.pods.values())
    )
    if returns:
        memory.wakes.add(entry.returning + RETURN)
        memory.returning.add(key)
    job = memory.made.job(entry, memory.profile, returns=returns)
    memory.jobs[key] = entry.job = lived(memory, entry, job, now)
