"""Gates come off: of pods whose uid and node stand in the recorded placement (`Entry.recorded`), and of no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from muster.core.endings import RETRY_EVICTION, busy
from muster.core.entry import Entry
from muster.core.memory import Memory
from muster.types import Action, Hold, Job, Nominate, Phase, Say, Ungate


def ungate(memory: Memory, entry: Entry, job: Job, holds: Iterable[Hold], now: float) -> Iterator[Action]:
    """Gates of recorded places; scored pods are nominated first, so that the space is kept (design §2)."""
    for hold in holds:
        if not hold.uid or (hold.uid, hold.node) not in entry.recorded:
            continue
        pod = entry.pods.get(hold.uid)
        if pod is None or pod.phase not in (Phase.GATED, Phase.UNGATED) or pod.deleting:
            continue
        if pod.pin or busy(memory, hold.uid, now):
            continue
        if (job.scored or pod.phase is Phase.UNGATED) and pod.nominated != hold.node:
            memory.in_flight.add(("nominate", hold.uid))
            if pod.phase is Phase.UNGATED:  # kube-scheduler may clear it again: no hot loop
                memory.retry[hold.uid] = now + RETRY_EVICTION
            yield Nominate(entry.key, hold.uid, pod.name, hold.node, "keep the planned space")
        elif pod.phase is Phase.GATED:
            memory.in_flight.add(("ungate", hold.uid))
            memory.dirty.add(entry.key)
            yield Ungate(
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
