"""Gates come off: of pods whose uid and node are recorded on the API (`Entry.records`), and of the one whose own
PATCH records the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from muster.core.actions.evict import RETRY_EVICTION, busy
from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import OPEN, JobState
from muster.core.state.state import LedgerState
from muster.types import Action, Job, JobKey, Nominate, Phase, PodRecord, RecordEvent, Reservation, Ungate


def ungate(
    memory: LedgerState, entry: JobState, job: Job, reservations: Iterable[Reservation], now: float
) -> Iterator[Action]:
    """Gates of recorded places; scored pods are nominated first, so that the space is kept (design §2)."""
    for reservation in reservations:
        if not reservation.uid or not entry.records(reservation):
            continue
        pod = entry.pods.get(reservation.uid)
        if pod is None or pod.phase not in OPEN or pod.deleting:
            continue
        if pod.pin or busy(memory, reservation.uid, now):
            continue
        if (job.scored or pod.phase is Phase.UNGATED) and pod.nominated != reservation.node:
            memory.in_flight.add(("nominate", reservation.uid))
            if pod.phase is Phase.UNGATED:  # kube-scheduler may clear it again: no hot loop
                memory.retry[reservation.uid] = now + RETRY_EVICTION
            yield Nominate(entry.key, reservation.uid, pod.name, reservation.node, "keep the planned space")
        elif pod.phase is Phase.GATED:
            yield _off(memory, entry, job, reservation, pod)


def carry(
    memory: LedgerState, entry: JobState, job: Job, reservations: tuple[Reservation, ...], now: float
) -> Ungate | None:
    """A small job's start begins: the PATCH of its first pod records the places of all. None while that pod's last
    request is under way, or was refused a moment ago."""
    pod = entry.pods[reservations[0].uid]
    if busy(memory, pod.uid, now):
        return None
    entry.in_flight.start = True
    return replace(_off(memory, entry, job, reservations[0], pod), carries=reservations)


def may_carry(memory: LedgerState, entry: JobState, job: Job, reservations: tuple[Reservation, ...]) -> bool:
    """Whether a start may be recorded on its first pod: all of the job waits, is here, and is pinned; the Gang
    records nothing; and it is small, since who watches that pod gets the placement with each of its changes."""
    return (
        0 < len(reservations) <= memory.profile.carried
        and not (job.scored or job.started or entry.recorded.places)
        and all(h.uid in entry.pods for h in reservations)
        and all(p.phase is Phase.GATED and not p.deleting for p in entry.pods.values() if is_alive(p))
    )


def _off(memory: LedgerState, entry: JobState, job: Job, reservation: Reservation, pod: PodRecord) -> Ungate:
    memory.in_flight.add(("ungate", reservation.uid))
    memory.dirty.add(entry.key)
    return Ungate(
        entry.key,
        reservation.uid,
        pod.name,
        pod.version,
        reservation.node,
        not job.scored,
        "start",
        pod.affinity_terms,
        _within(memory, job, reservation),
        pod.applied,
    )


def _within(memory: LedgerState, job: Job, reservation: Reservation) -> tuple[str, str]:
    """The node label that keeps a scored pod in its job's domain where no filter verb of ours does."""
    node = memory.charges.nodes.get(reservation.node)
    if memory.profile.binder != "cluster" or not (job.scored and job.topology_required) or node is None:
        return "", ""
    return job.topology_required, node.labels.get(job.topology_required, "")


def ungated_at_birth(memory: LedgerState, key: JobKey, uid: str) -> Iterator[Action]:
    """A pod of ours that came without the gate: left alone, and said once. One that we ungated is none."""
    entry = memory.entries[key]
    if uid in {recorded for recorded, _ in entry.recorded.places}:
        memory.created_ungated.discard(uid)
        return
    yield RecordEvent(
        key,
        "CreatedUngated",
        "was created without the scheduling gate muster.dev/queue, so Muster's admission was not in force; "
        "it is left as it is and gets a place when its job's turn comes",
        warning=True,
        pod=entry.pods[uid].name,
        uid=uid,
    )
