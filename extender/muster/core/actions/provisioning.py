"""Asking an autoscaler for nodes, as the profile says (points.AsksForNodes)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from muster.core.actions.evict import busy
from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.core.workload.identity import gang_name
from muster.types import (
    Action,
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    Expose,
    Job,
    JobKey,
    Phase,
    Plan,
    Snapshot,
)

ASK_RETRY, ASK_ANEW = 60.0, 600.0
"""Seconds before nodes are asked for again: after a request that the API refused, and after one that brought none."""


def chosen_for_nodes(
    memory: LedgerState, snapshot: Snapshot, plan: Plan, queue: Sequence[JobKey]
) -> Sequence[JobKey]:
    """For whom an autoscaler is asked (points.Asking), of the plan's queue as far as it is given here."""
    asking = memory.profile.asking
    chosen, wake = asking.chosen(replace(plan, order=tuple(queue)), snapshot, memory.asked)
    if wake is not None:
        memory.requeue_at.add(wake)
    return chosen


def drop_nodes(memory: LedgerState, key: JobKey, chosen: Collection[JobKey], now: float) -> Iterator[Action]:
    """What an autoscaler was asked for, where it is not wanted any more."""
    entry = memory.entries[key]
    old = now - entry.asked >= ASK_ANEW  # autoscalers give a request up for good
    if (key not in chosen or old) and not _ask_waits(memory, entry, now):
        entry.in_flight.nodes = True
        roles = [role.name for role in entry.job.roles] if entry.job is not None else []
        name = gang_name(key.name)
        yield DeleteProvisioningRequest(
            key, name, tuple(f"{name}-{role}" for role in roles), "not wanted any more"
        )


def ask_for_nodes(memory: LedgerState, snapshot: Snapshot, key: JobKey) -> Iterator[Action]:
    """What an autoscaler is asked for."""
    now, asking, entry = snapshot.now, memory.profile.asking, memory.entries[key]
    if asking.how == "ungate":
        yield from _expose(memory, entry, snapshot.jobs[key], now)
    elif entry.recorded.gang is not None and not entry.asked and not _ask_waits(memory, entry, now):
        entry.in_flight.nodes = True
        yield CreateProvisioningRequest(
            key,
            gang_name(key.name),
            entry.recorded.gang.name,
            entry.recorded.gang.object_uid,
            asking.provisioning_class,
            tuple((r.name, r.min, r.shape) for r in snapshot.jobs[key].roles if r.min),
            "the head of the queue waits for nodes",
        )


def _ask_waits(memory: LedgerState, entry: JobState, now: float) -> bool:
    """Whether a request is under way, or was refused a while ago."""
    if entry.in_flight.nodes_retry_at > now:
        memory.requeue_at.add(entry.in_flight.nodes_retry_at)
    return entry.in_flight.nodes or entry.in_flight.nodes_retry_at > now


def _expose(memory: LedgerState, entry: JobState, job: Job, now: float) -> Iterator[Action]:
    """The gates of the minimum come off without a place; filter keeps the pods unbound until they have one."""
    for role in job.roles:
        for member in [m for m in role.members if m.ready][: role.min]:
            pod = entry.pods[member.uid]
            if pod.phase is Phase.GATED and not busy(memory, pod.uid, now):
                memory.in_flight.add(("expose", pod.uid))
                yield Expose(entry.key, pod.uid, pod.name, pod.version, "an autoscaler is to see it")


def asked_for(
    memory: LedgerState,
    entry: JobState,
    action: CreateProvisioningRequest | DeleteProvisioningRequest,
    good: bool,
    now: float,
) -> None:
    """What became of a request for nodes, or of its withdrawal."""
    entry.in_flight.nodes = False
    memory.dirty.add(entry.key)
    if not good:
        entry.in_flight.nodes_retry_at = now + ASK_RETRY
    elif isinstance(action, CreateProvisioningRequest):
        entry.asked = now
        memory.asked.add(entry.key)
    else:
        entry.asked = 0.0
        memory.asked.discard(entry.key)
