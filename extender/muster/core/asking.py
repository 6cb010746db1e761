"""Asking an autoscaler for nodes, as the profile says (points.AsksForNodes)."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.endings import busy
from muster.core.entry import Entry
from muster.core.memory import Memory
from muster.core.telling import gang_name
from muster.types import Action, AskNodes, DropNodes, Expose, Job, Phase, Plan, Snapshot

ASK_RETRY, ASK_ANEW = 60.0, 600.0
"""Seconds before nodes are asked for again: after a request that the API refused, and after one that brought none."""


def ask_for_nodes(memory: Memory, snapshot: Snapshot, plan: Plan) -> Iterator[Action]:
    """What an autoscaler is asked for, and what it is not any more (points.Asking)."""
    now, asking = snapshot.now, memory.profile.asking
    chosen, wake = asking.chosen(plan, snapshot, memory.asked)
    if wake is not None:
        memory.wakes.add(wake)
    for key in sorted(memory.asked):
        entry = memory.entries[key]
        old = now - entry.asked >= ASK_ANEW  # autoscalers give a request up for good
        if (key not in chosen or old) and not _ask_waits(memory, entry, now):
            entry.asking = True
            roles = [role.name for role in entry.job.roles] if entry.job is not None else []
            name = gang_name(key.name)
            yield DropNodes(key, name, tuple(f"{name}-{role}" for role in roles), "not wanted any more")
    for key in chosen:
        entry = memory.entries[key]
        if asking.how == "ungate":
            yield from _expose(memory, entry, snapshot.jobs[key], now)
        elif entry.gang is not None and not entry.asked and not _ask_waits(memory, entry, now):
            entry.asking = True
            yield AskNodes(
                key,
                gang_name(key.name),
                entry.gang.name,
                entry.gang.object_uid,
                asking.provisioning_class,
                tuple((r.name, r.min, r.shape) for r in snapshot.jobs[key].roles if r.min),
                "the head of the queue waits for nodes",
            )


def _ask_waits(memory: Memory, entry: Entry, now: float) -> bool:
    """Whether a request is under way, or was refused a while ago."""
    if entry.ask_again > now:
        memory.wakes.add(entry.ask_again)
    return entry.asking or entry.ask_again > now


def _expose(memory: Memory, entry: Entry, job: Job, now: float) -> Iterator[Action]:
    """The gates of the minimum come off without a place; filter keeps the pods unbound until they have one."""
    for role in job.roles:
        for member in [m for m in role.members if m.ready][: role.min]:
            pod = entry.pods[member.uid]
            if pod.phase is Phase.GATED and not busy(memory, pod.uid, now):
                memory.in_flight.add(("expose", pod.uid))
                yield Expose(entry.key, pod.uid, pod.name, pod.version, "an autoscaler is to see it")


def asked_for(memory: Memory, entry: Entry, action: AskNodes | DropNodes, good: bool, now: float) -> None:
    """What became of a request for nodes, or of its withdrawal."""
    entry.asking = False
    memory.dirty.add(entry.key)
    if not good:
        entry.ask_again = now + ASK_RETRY
    elif isinstance(action, AskNodes):
        entry.asked = now
        memory.asked.add(entry.key)
    else:
        entry.asked = 0.0
        memory.asked.discard(entry.key)
