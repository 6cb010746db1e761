"""Capacity that a job's pods and holds use.

Each replica is charged once, by its pod's uid where it has one, from the hold until the pod has ended
(core.placement.usage).
"""

from __future__ import annotations

from muster.core.state.job_builder import is_alive
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.core.workload import identity
from muster.types import PodRecord, Reservation, Shape


def charge_pod(state: LedgerState, job_state: JobState, pod: PodRecord) -> None:
    """At the node that it is on, is pinned to or has a place on; nowhere once it is no replica any more."""
    if not is_alive(pod):
        node = ""
    elif pod.phase.on_node:
        node = pod.node
    else:
        reservation = next((h for h in job_state.planned if h.uid == pod.uid), None)
        node = pod.pin or (reservation.node if reservation else "")
    state.charges.charge(pod.uid, node, pod.shape, ours=True)


def set_holds(state: LedgerState, job_state: JobState, reservations: tuple[Reservation, ...]) -> None:
    """The job's places are these from now on; what the others used is free."""
    gone = {h.uid for h in job_state.planned if h.uid} - {h.uid for h in reservations}
    job_state.desired.reservations = reservations
    charge_holds(state, job_state)
    for uid in gone:
        pod = job_state.pods.get(uid)
        if pod is not None:
            charge_pod(state, job_state, pod)
        else:
            state.charges.charge(uid, "", Shape(), ours=True)


def charge_holds(state: LedgerState, job_state: JobState) -> None:
    """Holds of pods are charged by uid, open ones by number, so that none counts twice. One of a pod that is deleted
    before it was on its node is open from then on, though the pod may be there until its owner has taken note."""
    shapes = _shapes(job_state) if job_state.planned else {}
    number = 0
    for reservation in job_state.planned:
        pod = job_state.pods.get(reservation.uid) if reservation.uid else None
        if pod is not None and is_alive(pod):
            charge_pod(state, job_state, pod)
        elif reservation.role in shapes:
            state.charges.charge(
                (job_state.key, number), reservation.node, shapes[reservation.role], ours=True
            )
            number += 1
    while state.charges.charged((job_state.key, number)):
        state.charges.charge((job_state.key, number), "", Shape(), ours=True)
        number += 1


def charge_all(state: LedgerState, job_state: JobState) -> None:
    """What its pods and places use, where others than before may be its places: who has none any more uses none."""
    charge_holds(state, job_state)
    placed = {reservation.uid for reservation in job_state.planned}
    for uid, pod in job_state.pods.items():
        if uid not in placed or not is_alive(pod):
            charge_pod(state, job_state, pod)


def _shapes(job_state: JobState) -> dict[str, Shape]:
    """What a replica that does not exist yet is expected to ask for, by role."""
    shapes = {identity.role_of(p): p.shape for p in job_state.pods.values()}
    if job_state.job is not None:
        shapes |= {role.name: role.shape for role in job_state.job.roles}
    return shapes
