"""Gates come off: of pods whose uid and node are recorded on the API (`Entry.records`), and of the one whose own
PATCH records the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from muster.core.endings import RETRY_EVICTION, busy
from muster.core.entry import OPEN, Entry
from muster.core.jobs import is_alive
from muster.core.memory import Memory
from muster.types import Action, Hold, Job, Nominate, Phase, PodRecord, Say, Ungate


def ungate(memory: Memory, entry: Entry, job: Job, holds: Iterable[Hold], now: float) -> Iterator[Action]:
    """Gates of recorded places; scored pods are nominated first, so that the space is kept (design §2)."""
    for hold in holds:
        if not hold.uid or not entry.records(hold):
            continue
        pod = entry.pods.get(hold.uid)
        if pod is None or pod.phase not in OPEN or pod.deleting:
            continue
        if pod.pin or busy(memory, hold.uid, now):
            continue
        if (job.scored or pod.phase is Phase.UNGATED) and pod.nominated != hold.node:
            memory.in_flight.add(("nominate", hold.uid))
            if pod.phase is Phase.UNGATED:  # kube-scheduler may clear it again: no hot loop
                memory.retry[hold.uid] = now + RETRY_EVICTION
            yield Nominate(entry.key, hold.uid, pod.name, hold.node, "keep the planned space")
        elif pod.phase is Phase.GATED:
            yield _off(memory, entry, job, hold, pod)


def carry(memory: Memory, entry: Entry, job: Job, holds: tuple[Hold, ...], now: float) -> Ungate | None:
    """A small job's start begins: the PATCH of its first pod records the places of all. None while that pod's last
    request is under way, or was refused a moment ago."""
    pod = entry.pods[holds[0].uid]
    if busy(memory, pod.uid, now):
        return None
    entry.carrying = True
    return replace(_off(memory, entry, job, holds[0], pod), carries=holds)


def may_carry(memory: Memory, entry: Entry, job: Job, holds: tuple[Hold, ...]) -> bool:
    """Whether a start may be recorded on its first pod: all of the job waits, is here, and is pinned; the Gang
    records nothing; and it is small, since who watches that pod gets the placement with each of its changes."""
    return (
        0 < len(holds) <= memory.profile.carried
        and not (job.scored or job.started or entry.recorded)
        and all(h.uid in entry.pods for h in holds)
        and all(p.phase is Phase.GATED and not p.deleting for p in entry.pods.values() if is_alive(p))
    )


def _off(memory: Memory, entry: Entry, job: Job, hold: Hold, pod: PodRecord) -> Ungate:
    memory.in_flight.add(("ungate", hold.uid))
    memory.dirty.add(entry.key)
    return Ungate(
        entry.key,
        hold.uid,
        pod.name,
        pod.version,
        hold.node,
        not job.scored,
        "start",
        pod.affinity_terms,
        _within(memory, job, hold),
        pod.applied,
    )


def _within(memory: Memory, job: Job, hold: Hold) -> tuple[str, str]:
    """The node label that keeps a scored pod in its job's domain where no filter verb of ours does."""
    node = memory.charges.nodes.get(hold.node)
    if memory.profile.binder != "cluster" or not (job.scored and job.topology_required) or node is None:
        return "", ""
    return job.topology_required, node.labels.get(job.topology_required, "")


def ungated_at_birth(memory: Memory) -> Iterator[Action]:
    """Pods of ours that came without the gate: left alone, and said once. Those that we ungated are none."""
    for uid in memory.unsaid:
        key = memory.job_of.get(uid)
        entry = memory.entries.get(key) if key is not None else None
        if entry is None or uid in {recorded for recorded, _ in entry.recorded}:
            memory.created_ungated.discard(uid)
            continue
        yield Say(
            entry.key,
            "CreatedUngated",
            "was created without the scheduling gate muster.dev/queue, so Muster's admission was not in force; "
            "it is left as it is and gets a place when its job's turn comes",
            warning=True,
            pod=entry.pods[uid].name,
            uid=uid,
        )
    memory.unsaid.clear()
