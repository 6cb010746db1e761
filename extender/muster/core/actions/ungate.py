"""Gates come off: of pods whose uid and node are recorded on the API (`JobState.records`), and of the one whose own
PATCH records the start. What is decided here `cluster/action_executor.py` sends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from muster.core.actions.evict import RETRY_EVICTION
from muster.core.progress import batch
from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import OPEN, JobState
from muster.core.state.state import LedgerState
from muster.types import Action, Job, JobKey, Nominate, Phase, PodRecord, RecordEvent, Reservation, Ungate


def ungate(
    state: LedgerState, job_state: JobState, job: Job, reservations: Iterable[Reservation], now: float
) -> Iterator[Action]:
    """Gates of recorded places; scored pods are nominated first, so that the space is kept (design §2)."""
    for reservation in reservations:
        if not reservation.uid or not job_state.records(reservation):
            continue
        pod = job_state.pods.get(reservation.uid)
        if pod is None or pod.phase not in OPEN or pod.deleting:
            continue
        request = job_state.in_flight.of(pod.uid)
        if pod.pin or state.waits(request, now):
            continue
        if (job.scored or pod.phase is Phase.UNGATED) and pod.nominated != reservation.node:
            # Of a pod without its gate kube-scheduler may clear it again: no hot loop.
            again = now + RETRY_EVICTION if pod.phase is Phase.UNGATED else 0.0
            job_state.in_flight.keep(pod.uid, request.sends(Nominate, again))
            yield Nominate(
                job_state.key, reservation.uid, pod.name, reservation.node, "keep the planned space"
            )
        elif pod.phase is Phase.GATED:
            yield _off(state, job_state, job, reservation, pod)


def carry(
    state: LedgerState, job_state: JobState, job: Job, reservations: tuple[Reservation, ...], now: float
) -> Ungate | None:
    """A small job's start begins: the PATCH of its first pod records the places of all. None while that pod's last
    request is under way, or was refused a moment ago."""
    pod = job_state.pods[reservations[0].uid]
    if state.waits(job_state.in_flight.of(pod.uid), now):
        return None
    job_state.in_flight.start = True
    return replace(_off(state, job_state, job, reservations[0], pod), carries=reservations)


def may_carry(
    state: LedgerState, job_state: JobState, job: Job, reservations: tuple[Reservation, ...]
) -> bool:
    """Whether a start may be recorded on its first pod: all of the job waits, is here, and is pinned; the Gang
    records nothing; and it is small, since who watches that pod gets the placement with each of its changes."""
    return (
        0 < len(reservations) <= state.profile.carried
        and not (job.scored or job.started or job_state.recorded.places)
        and all(h.uid in job_state.pods for h in reservations)
        and all(p.phase is Phase.GATED and not p.deleting for p in job_state.pods.values() if is_alive(p))
    )


def _off(
    state: LedgerState, job_state: JobState, job: Job, reservation: Reservation, pod: PodRecord
) -> Ungate:
    job_state.in_flight.keep(reservation.uid, job_state.in_flight.of(reservation.uid).sends(Ungate))
    state.dirty.add(job_state.key)
    return Ungate(
        job_state.key,
        reservation.uid,
        pod.name,
        pod.version,
        reservation.node,
        not job.scored,
        "start",
        pod.affinity_terms,
        _within(state, job, reservation),
        pod.applied,
        batch=batch.told(job, job_state.desired.grant),
    )


def _within(state: LedgerState, job: Job, reservation: Reservation) -> tuple[str, str]:
    """The node label that keeps a scored pod in its job's domain where no filter verb of ours does."""
    node = state.charges.nodes.get(reservation.node)
    if state.profile.binder != "cluster" or not (job.scored and job.topology_required) or node is None:
        return "", ""
    return job.topology_required, node.labels.get(job.topology_required, "")


def ungated_at_birth(state: LedgerState, key: JobKey, uid: str) -> Iterator[Action]:
    """A pod of ours that came without the gate: left alone, and said once. One that we ungated is none."""
    job_state = state.entries[key]
    if uid in {recorded for recorded, _ in job_state.recorded.places}:
        state.created_ungated.discard(uid)
        return
    yield RecordEvent(
        key,
        "CreatedUngated",
        "was created without the scheduling gate muster.dev/queue, so Muster's admission was not in force; "
        "it is left as it is and gets a place when its job's turn comes",
        warning=True,
        pod=job_state.pods[uid].name,
        uid=uid,
    )
