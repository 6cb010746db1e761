"""Gang objects as they come by the watch: what an earlier leader wrote is taken over."""

from __future__ import annotations

import math

from muster.core import reports
from muster.core.entry import NO_MEMORY, Entry
from muster.core.memory import Memory
from muster.core.places import charge_holds, set_holds
from muster.types import GangRecord


def gang_seen(memory: Memory, gang: GangRecord) -> None:
    """A Gang as the watch, or the answer to a write, has it; one older than what is known is passed over."""
    if gang.object_uid in memory.gone:
        return
    known = memory.gang_names.get((gang.key.namespace, gang.name))
    if known is not None and known.object_uid == gang.object_uid and _older(gang.version, known.version):
        return
    if known == gang:
        return  # what a write of ours answered comes by the watch, too
    memory.gang_names[(gang.key.namespace, gang.name)] = gang
    entry = memory.entries.get(gang.key)
    if entry is None:
        entry = memory.entries[gang.key] = Entry(gang.key)
    first = entry.gang is None
    entry.gang = gang
    entry.recorded = frozenset((h.uid, h.node) for h in gang.placement if h.uid)
    if first:
        _recall(memory, entry)
    if entry.holds is None:
        charge_holds(memory, entry)
    memory.dirty.add(gang.key)


def _recall(memory: Memory, entry: Entry) -> None:
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
    entry.memory, entry.want, entry.changing = gang.memory or NO_MEMORY, gang.want, ""
    entry.kept = entry.lived
    entry.asked = entry.asked_kept = gang.asked
    (memory.asked.add if entry.asked else memory.asked.discard)(entry.key)
    for bar in gang.barred:
        memory.bar(entry, bar)


def gang_gone(memory: Memory, namespace: str, name: str, object_uid: str) -> None:
    """Somebody deleted it: nothing is recorded any more, and it is written anew while its job is there."""
    memory.bury(object_uid)
    known = memory.gang_names.get((namespace, name))
    if known is None or known.object_uid != object_uid:
        return
    del memory.gang_names[(namespace, name)]
    entry = memory.entries.get(known.key)
    if entry is not None:
        if entry.holds is None:  # this replica followed: what the Gang said is all it knew
            set_holds(memory, entry, entry.planned)
        entry.gang, entry.recorded, entry.written = None, frozenset(), ("", "", "", "")
        memory.dirty.add(entry.key)


def take_over(memory: Memory) -> None:
    """Become the one who plans: what the API says counts, intents of an earlier term are forgotten."""
    memory.listens = None
    memory.in_flight.clear()
    memory.retry.clear()
    memory.shrinking.clear()
    for entry in memory.entries.values():
        if entry.holds is not None:
            set_holds(memory, entry, ())
            entry.holds = None
        entry.writing, entry.retry_at, entry.carrying = False, 0.0, False
        entry.asking, entry.ask_again = False, 0.0
        _recall(memory, entry)
        charge_holds(memory, entry)
        memory.dirty.add(entry.key)


def step_down(memory: Memory) -> None:
    """Another replica plans: reports go to that one."""
    memory.listens = math.inf
    memory.dirty |= {key for key, job in memory.jobs.items() if job.silent}


def _older(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) < int(than)
