"""Gang objects as they come by the watch: what an earlier leader wrote is taken over."""

from __future__ import annotations

import math

from muster.core.progress import report_filter
from muster.core.state.job_state import NO_MEMORY, JobState
from muster.core.state.pods import belongs, trust_recorded
from muster.core.state.quarantine import set_aside
from muster.core.state.queue_time import short_since
from muster.core.state.reservation_usage import charge_holds, set_holds
from muster.core.state.state import LedgerState
from muster.core.state.trust import placed_by_us
from muster.types import GangRecord, State

RAN = (State.RUNNING, State.RESIZING)
"""States of a job that is whole."""
KNOWN = tuple(State)
PAUSES = tuple(state for state in State if state not in RAN)
"""States of a job whose next start may have to wait; in any other, somebody has edited the Gang that says so."""


def gang_seen(memory: LedgerState, gang: GangRecord) -> None:
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
        entry = memory.entries[gang.key] = JobState(gang.key)
    first = entry.recorded.gang is None
    entry.recorded.gang = placed_by_us(memory, gang)
    entry.recorded.places = frozenset((h.uid, h.node) for h in gang.placement if h.uid)
    if gang.owner is not None and entry.owner is None and gang.owner.uid:
        belongs(memory, entry, gang.owner)
    trust_recorded(memory, entry)
    if first:
        _recall(memory, entry)
    if entry.desired.reservations is None:
        charge_holds(memory, entry)
    memory.dirty.add(gang.key)


def _recall(memory: LedgerState, entry: JobState) -> None:
    """Take over what an earlier leader wrote."""
    gang = entry.recorded.gang
    if gang is None:
        return
    entry.recorded.told = (gang.state, gang.code, gang.reason, gang.replicas)
    entry.state = gang.state if gang.state in KNOWN else ""
    entry.since, entry.story = gang.since, gang.story
    entry.recorded.submitted = 0.0 if gang.ended else gang.submitted  # else the next job of that name
    entry.queued_from = max(entry.queued_from, gang.queued_from)
    entry.short_since = short_since(gang)
    entry.started_at = gang.started
    entry.backoff = gang.backoff
    entry.not_before = gang.not_before if gang.state in PAUSES else 0.0
    entry.ended_at = gang.ended
    entry.recorded.sizes = gang.sizes or None
    entry.whole = gang.whole
    if gang.whole is None and gang.started and gang.state in RAN:  # an older version wrote it
        entry.whole = {role: least for role, least, _ in gang.sizes}
    if gang.state == State.STARTING and gang.sizes:
        entry.begun = {role: least for role, least, _ in gang.sizes}
    entry.recorded.keeps = gang.shrink_blocked_by
    entry.recorded.node_backoffs = frozenset(gang.node_backoffs)
    if gang.facts is not None:
        entry.facts = gang.facts
    if gang.track:
        entry.track = report_filter.from_plain(gang.track)
    entry.memory, entry.desired.grant, entry.desired.changing = gang.memory or NO_MEMORY, gang.grant, ""
    entry.recorded.observed = entry.observed
    entry.asked = entry.recorded.asked = gang.asked
    (memory.asked.add if entry.asked else memory.asked.discard)(entry.key)
    for bar in gang.node_backoffs:
        memory.back_off_node(entry, bar)


def gang_gone(memory: LedgerState, namespace: str, name: str, object_uid: str) -> None:
    """Somebody deleted it: nothing is recorded any more, and it is written again while its job is there."""
    memory.bury(object_uid)
    known = memory.gang_names.get((namespace, name))
    if known is None or known.object_uid != object_uid:
        return
    del memory.gang_names[(namespace, name)]
    entry = memory.entries.get(known.key)
    if entry is not None:
        if entry.desired.reservations is None:  # this replica followed: what the Gang said is all it knew
            set_holds(memory, entry, entry.planned)
        entry.recorded.gang, entry.recorded.places, entry.recorded.told = None, frozenset(), ("", "", "", "")
        memory.dirty.add(entry.key)


def take_over(memory: LedgerState, now: float) -> None:
    """Become the one who plans: what the API says counts, intents of an earlier term are forgotten."""
    memory.listens = None
    memory.in_flight.clear()
    memory.retry.clear()
    memory.refusals.clear()
    memory.shrinking.clear()
    for entry in memory.entries.values():
        if entry.desired.reservations is not None:
            set_holds(memory, entry, ())
            entry.desired.reservations = None
        entry.in_flight.gang, entry.in_flight.gang_retry_at, entry.in_flight.start = False, 0.0, False
        entry.in_flight.gang_refusals = 0
        entry.in_flight.nodes, entry.in_flight.nodes_retry_at = False, 0.0
        try:
            _recall(memory, entry)
            charge_holds(memory, entry)
        except Exception as error:
            set_aside(memory, entry.key, "apply", error, now)
        memory.dirty.add(entry.key)


def step_down(memory: LedgerState) -> None:
    """Another replica plans: reports go to that one."""
    memory.listens = math.inf
    memory.dirty |= {key for key, job in memory.jobs.items() if job.silent}


def _older(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) < int(than)
