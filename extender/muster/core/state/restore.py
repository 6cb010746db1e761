"""Gang objects as they come by the watch: what an earlier leader wrote is taken over."""

from __future__ import annotations

import math

from muster.core.progress import report_filter
from muster.core.state.in_flight import InFlight
from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import NO_MEMORY, JobState, Recorded, Size, fresh_start
from muster.core.state.pods import belongs, rejoin, trust_recorded
from muster.core.state.quarantine import set_aside
from muster.core.state.queue_time import short_since
from muster.core.state.recreated import recalled
from muster.core.state.reservation_usage import charge_all, set_holds
from muster.core.state.state import LedgerState
from muster.core.state.trust import placed_by_us
from muster.types import GangRecord, State

RAN = (State.RUNNING, State.RESIZING)
"""States of a job that is whole."""
KNOWN = tuple(State)
PAUSES = tuple(state for state in State if state not in RAN)
"""States of a job whose next start may have to wait; in any other, somebody has edited the Gang that says so."""


def gang_seen(state: LedgerState, gang: GangRecord, now: float) -> None:
    """A Gang as the watch, or the answer to a write, has it; one older than what is known is passed over."""
    if gang.object_uid in state.gone:
        if (gone := state.entries.get(gang.key)) is not None:  # the answer to a write of it, as likely as not
            gone.in_flight.lose()
        return
    known = state.gang_names.get((gang.key.namespace, gang.name))
    if known is not None and known.object_uid == gang.object_uid and _older(gang.version, known.version):
        return
    if known == gang:
        return  # what a write of ours answered comes by the watch, too
    if known is not None and known.key != gang.key and known.object_uid != gang.object_uid:
        gang_gone(state, gang.key.namespace, gang.name, known.object_uid)
    state.gang_names[(gang.key.namespace, gang.name)] = gang
    job_state = state.entries.get(gang.key)
    if job_state is None:
        job_state = state.entries[gang.key] = JobState(gang.key)
    before = job_state.recorded.gang
    first, another = before is None, before is not None and before.object_uid != gang.object_uid
    if another:
        job_state.in_flight.lose()
    job_state.recorded.gang = placed_by_us(state, gang)
    job_state.recorded.places = frozenset((h.uid, h.node) for h in gang.placement if h.uid)
    owner = gang.declared_by or gang.owner
    if owner is not None and job_state.owner is None and owner.uid:
        belongs(state, job_state, owner)
    trust_recorded(state, job_state)
    if first or another:
        _as_recorded(state, job_state, gang)
    if first and not (job_state.in_flight.wrote or _of_the_one_before(job_state)):
        _recall(state, job_state, gang)
    if first and owner is not None and gang.key.uid and len(state.owners.jobs_of(owner.uid)) > 1:
        rejoin(state, owner, gang.key.namespace)  # its pods came first, and had to be named without it
    if job_state.desired.reservations is None:
        charge_all(state, job_state)
    as_before = known is not None and known.state == gang.state == State.RUNNING
    if known is not None and as_before and known.placement == gang.placement and not gang.old:
        state.hear(gang.key, now)
    else:
        state.dirty.add(gang.key)


def _as_recorded(state: LedgerState, job_state: JobState, gang: GangRecord) -> None:
    """What its Gang tells, for who reads it."""
    recorded = job_state.recorded
    recorded.told = (gang.state, gang.reason, gang.message, gang.replicas)
    recorded.turn = gang.turn
    if gang.turn is not None and gang.turn.position:
        state.turns_told.add(job_state.key)
    recorded.old = gang.old
    recorded.submitted = 0.0 if gang.ended else gang.submitted  # else the next job of that name
    recorded.sizes = gang.sizes or None
    recorded.keeps = gang.shrink_blocked_by
    recorded.node_backoffs = frozenset(gang.node_backoffs)
    recorded.asked = gang.asked


def _of_the_one_before(job_state: JobState) -> bool:
    """Whether its Gang is that of a job that ended, and its pods are the next one's of that name. Times of creation
    have whole seconds."""
    gang = job_state.recorded.gang
    if gang is None or not gang.ended:
        return False
    return any(is_alive(pod) and pod.created >= math.floor(gang.ended) for pod in job_state.pods.values())


def _recall(state: LedgerState, job_state: JobState, gang: GangRecord) -> None:
    """Take over what an earlier leader knew and decided."""
    job_state.state = gang.state if gang.state in KNOWN else ""
    job_state.since, job_state.story = gang.since, gang.story
    job_state.conditions = tuple(one for one in gang.conditions if one.since)
    job_state.queued_from = max(job_state.queued_from, gang.queued_from)
    job_state.short_since = short_since(gang)
    job_state.recreated = recalled(job_state, gang)
    job_state.started_at = gang.started
    job_state.size = _size(gang)
    job_state.backoff = gang.backoff
    job_state.not_before = gang.not_before if gang.state in PAUSES else 0.0
    job_state.ended_at = gang.ended
    job_state.whole = gang.whole
    if gang.whole is None and gang.started and gang.state in RAN:  # an older version wrote it
        job_state.whole = {role: least for role, least, _ in gang.sizes}
    if gang.state == State.STARTING and gang.sizes:
        job_state.begun = {role: least for role, least, _ in gang.sizes}
    if gang.facts is not None:
        job_state.facts = gang.facts
    if gang.track:
        job_state.track = report_filter.from_plain(gang.track)
    job_state.memory, job_state.desired.grant, job_state.desired.changing = (
        gang.memory or NO_MEMORY,
        gang.grant,
        "",
    )
    job_state.recorded.observed = (*job_state.observed[:-1], gang.restart_on)
    job_state.asked = gang.asked
    (state.asked.add if job_state.asked else state.asked.discard)(job_state.key)
    for bar in gang.node_backoffs:
        state.back_off_node(job_state, bar)


def _size(gang: GangRecord) -> Size | None:
    """What it ran with when that was last written; only a role whose number may change has a size to tell. Of a job
    in place GPUs are written, and its pods, which are fewer or as many, don't change."""
    elastic = [size for size in gang.sizes if size[2] > size[1]] or gang.sizes
    changes = gang.facts.shares if gang.facts is not None else ()
    if gang.state not in RAN or not changes or not changes[-1][1] or not elastic:
        return None
    if changes[-1][1] > elastic[0][2]:
        return None
    return Size(elastic[0][0], changes[-1][1], elastic[0][2])


def gang_gone(state: LedgerState, namespace: str, name: str, object_uid: str) -> None:
    """Somebody deleted it: nothing is recorded any more, and it is written again while its job is there."""
    state.gone.add(object_uid)
    known = state.gang_names.get((namespace, name))
    if known is None or known.object_uid != object_uid:
        return
    del state.gang_names[(namespace, name)]
    job_state = state.entries.get(known.key)
    if job_state is not None:
        if job_state.desired.reservations is None:  # this replica followed: what the Gang said is all it knew
            set_holds(state, job_state, job_state.planned)
        job_state.recorded.gang, job_state.recorded.places, job_state.recorded.told = (
            None,
            frozenset(),
            ("", "", "", ""),
        )
        job_state.in_flight.lose()
        state.dirty.add(job_state.key)


def take_over(state: LedgerState, now: float) -> None:
    """Become the one who plans: what the API says counts, intents of an earlier term are forgotten."""
    state.listens = None
    state.held_back.clear()
    for key, job_state in list(state.entries.items()):
        if job_state.desired.reservations is not None:
            set_holds(state, job_state, ())
        if anew := _of_the_one_before(job_state):
            state.entries[key] = job_state = _next_of_its_name(job_state)
        job_state.desired.reservations = None
        job_state.in_flight, job_state.desired.leaving = InFlight(), frozenset()
        job_state.recorded.granted = None
        try:
            gang = job_state.recorded.gang
            if gang is not None:
                _as_recorded(state, job_state, gang)
                if not anew:
                    _recall(state, job_state, gang)
            else:
                carrier, since = job_state.recorded.carrier, job_state.recorded.carried_at
                job_state.recorded = Recorded(carrier=carrier, carried_at=since)
            _awaited(state, job_state, now)
            charge_all(state, job_state)
        except Exception as error:
            set_aside(state, job_state.key, "apply", error, now)
        state.dirty.add(job_state.key)


def _next_of_its_name(job_state: JobState) -> JobState:
    """The job that its pods are of, without what was known of the one that ended."""
    made = fresh_start(job_state)
    created = [pod.created for pod in job_state.pods.values() if is_alive(pod)]
    made.submitted, made.newest_pod = min(created), max(created)
    return made


def _awaited(state: LedgerState, job_state: JobState, now: float) -> None:
    """Who is to start again has what is kept for it, what of it an earlier leader did not come to evict is to leave,
    too, and its pods have their time to come, as that leader gave it. Not where a node is gone (or never was: a Gang
    can be edited), or where the Gang says that it runs."""
    gang, desired = job_state.recorded.gang, job_state.desired
    desired.restart_on, desired.leaves_whole = (), frozenset()
    if gang is None or gang.state == State.RUNNING or not (gang.restart_on or gang.leaves_whole):
        return
    if all(node in state.charges.nodes for node in gang.restart_on):
        desired.restart_on = gang.restart_on
    told = frozenset(
        uid for uid in gang.leaves_whole & job_state.pods.keys() if state.made.evictable(job_state.pods[uid])
    )  # nobody would ever end another
    desired.leaving = told | {uid for uid, pod in job_state.pods.items() if pod.deleting}
    desired.leaves_whole = gang.leaves_whole & desired.leaving
    state.shrinking.add(job_state.key)
    if job_state.started_at:
        job_state.returning, desired.evicted = now, True


def step_down(state: LedgerState) -> None:
    """Another replica plans: reports go to that one."""
    state.listens = math.inf
    state.held_back.clear()
    for job_state in state.entries.values():
        job_state.in_flight.wrote = False
    state.dirty |= {key for key, job in state.jobs.items() if job.silent}


def _older(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) < int(than)
