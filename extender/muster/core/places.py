"""Capacity that a job's pods and holds use.

Each replica is charged once, by its pod's uid where it has one, from the hold until the pod has ended (core.charges).
"""

from __future__ import annotations

from muster.core import identity
from muster.core.entry import Entry
from muster.core.jobs import is_alive
from muster.core.memory import Memory
from muster.types import Hold, PodRecord, Shape


def charge_pod(memory: Memory, entry: Entry, pod: PodRecord) -> None:
    """At the node that it is on, is pinned to or has a place on; nowhere once it is no replica any more."""
    if not is_alive(pod):
        node = ""
    elif pod.phase.on_node:
        node = pod.node
    else:
        hold = next((h for h in entry.planned if h.uid == pod.uid), None)
        node = pod.pin or (hold.node if hold else "")
    memory.charges.charge(pod.uid, node, pod.shape, ours=True)


def set_holds(memory: Memory, entry: Entry, holds: tuple[Hold, ...]) -> None:
    """The job's places are these from now on; what the others used is free."""
    gone = {h.uid for h in entry.planned if h.uid} - {h.uid for h in holds}
    entry.holds = holds
    charge_holds(memory, entry)
    for uid in gone:
        pod = entry.pods.get(uid)
        if pod is not None:
            charge_pod(memory, entry, pod)
        else:
            memory.charges.charge(uid, "", Shape(), ours=True)


def charge_holds(memory: Memory, entry: Entry) -> None:
    """Holds of pods are charged by uid, open ones by number, so that none counts twice. One of a pod that is deleted
    before it was on its node is open from then on, though the pod may be there until its owner has taken note."""
    shapes = _shapes(entry)
    number = 0
    for hold in entry.planned:
        pod = entry.pods.get(hold.uid) if hold.uid else None
        if pod is not None and is_alive(pod):
            charge_pod(memory, entry, pod)
        elif hold.role in shapes:
            memory.charges.charge((entry.key, number), hold.node, shapes[hold.role], ours=True)
            number += 1
    while memory.charges.charged((entry.key, number)):
        memory.charges.charge((entry.key, number), "", Shape(), ours=True)
        number += 1


def _shapes(entry: Entry) -> dict[str, Shape]:
    return {identity.role_of(p): p.shape for p in entry.pods.values()}
