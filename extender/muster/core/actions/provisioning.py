"""Asking an autoscaler for nodes, as the profile says (asking.AsksForNodes)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from muster.core.state.job_state import JobState
from muster.core.state.state import LedgerState
from muster.core.workload.identity import gang_name
from muster.types import (
    GPU,
    Action,
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    Expose,
    Job,
    JobKey,
    Phase,
    Plan,
    Shape,
    Snapshot,
)

ASK_RETRY, ASK_AGAIN = 60.0, 600.0
"""Seconds before nodes are asked for again: after a request that the API refused, and after one that brought none."""


def chosen_for_nodes(
    state: LedgerState, snapshot: Snapshot, plan: Plan, queue: Sequence[JobKey]
) -> Sequence[JobKey]:
    """For whom an autoscaler is asked (asking.Asking), of the plan's queue as far as it is given here."""
    asking = state.profile.asking
    chosen, wake = asking.chosen(replace(plan, order=tuple(queue)), snapshot, state.asked)
    if wake is not None:
        state.requeue_at.add(wake)
    return chosen


def drop_nodes(state: LedgerState, key: JobKey, chosen: Collection[JobKey], now: float) -> Iterator[Action]:
    """What an autoscaler was asked for, where it is not wanted any more."""
    job_state = state.entries[key]
    old = now - job_state.asked >= ASK_AGAIN  # autoscalers give a request up for good
    if (key not in chosen or old) and not state.waits(job_state.in_flight.nodes, now):
        job_state.in_flight.nodes = job_state.in_flight.nodes.sends(DeleteProvisioningRequest)
        roles = [role.name for role in job_state.job.roles] if job_state.job is not None else []
        name = gang_name(key.name)
        yield DeleteProvisioningRequest(
            key, name, tuple(f"{name}-{role}" for role in roles), "not wanted any more"
        )


def ask_for_nodes(state: LedgerState, snapshot: Snapshot, key: JobKey) -> Iterator[Action]:
    """What an autoscaler is asked for."""
    now, asking, job_state = snapshot.now, state.profile.asking, state.entries[key]
    if asking.how == "ungate":
        yield from _expose(state, job_state, snapshot.jobs[key], now)
    elif job_state.recorded.gang is None or job_state.asked or state.waits(job_state.in_flight.nodes, now):
        return
    else:
        job_state.in_flight.nodes = job_state.in_flight.nodes.sends(CreateProvisioningRequest)
        yield CreateProvisioningRequest(
            key,
            gang_name(key.name),
            job_state.recorded.gang.name,
            job_state.recorded.gang.object_uid,
            asking.provisioning_class,
            _sets(snapshot.jobs[key]),
            "the head of the queue waits for nodes",
        )


def _sets(job: Job) -> tuple[tuple[str, int, Shape], ...]:
    """Pods without which the job can't start, by role, as a node has to have room for each: of a job in place with
    the fewest GPUs that it can train on, although the pod itself requests none."""
    slots = sum(role.min for role in job.roles if role.devices)
    pods = [role for role in job.roles if role.min and not role.devices]
    if not slots:
        return tuple((role.name, role.min, role.shape) for role in pods)
    (role,) = pods  # jobs of several roles are not planned in place (core.devices.slots)
    requests = (*role.shape.requests, (GPU, slots // role.min))
    return ((role.name, role.min, replace(role.shape, requests=tuple(sorted(requests)))),)


def _expose(state: LedgerState, job_state: JobState, job: Job, now: float) -> Iterator[Action]:
    """The gates of the minimum come off without a place; filter keeps the pods unbound until they have one."""
    for role in job.roles:
        for member in [m for m in role.members if m.ready][: role.min]:
            pod, request = job_state.pods[member.uid], job_state.in_flight.of(member.uid)
            if pod.phase is Phase.GATED and not state.waits(request, now):
                job_state.in_flight.keep(pod.uid, request.sends(Expose))
                yield Expose(job_state.key, pod.uid, pod.name, pod.version, "an autoscaler is to see it")


def asked_for(
    state: LedgerState,
    job_state: JobState,
    action: CreateProvisioningRequest | DeleteProvisioningRequest,
    good: bool,
    now: float,
) -> None:
    """What became of a request for nodes, or of its withdrawal."""
    request, kind = job_state.in_flight.nodes, type(action)
    job_state.in_flight.nodes = request.taken(kind) if good else request.refused(kind, now + ASK_RETRY, 0)
    state.dirty.add(job_state.key)
    if not good:
        return
    if isinstance(action, CreateProvisioningRequest):
        job_state.asked = now
        state.asked.add(job_state.key)
    else:
        job_state.asked = 0.0
        state.asked.discard(job_state.key)
