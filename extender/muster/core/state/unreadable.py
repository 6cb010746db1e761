"""Objects that can't be read or taken in: what was known of them stays, and their jobs are put aside
(core.state.quarantine).

Until the next version of the object, or its end. What a pod uses stays charged where it stands.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from muster.core.state.quarantine import set_aside, stumbled
from muster.core.state.state import LedgerState, Unread
from muster.core.workload import identity
from muster.core.workload.identity import gang_name
from muster.types import Fault, GangGone, Gone, GroupSeen, JobKey, OwnerGone, PodGone, PodRecord, Unreadable


def taken_in(state: LedgerState, pod: PodRecord, step: Callable[[], None], now: float) -> None:
    """Take a pod in; one that can't be is charged where it stands, and its job put aside until it changes or goes."""
    try:
        step()
    except Exception as error:
        state.orphans.pop(pod.uid, None)
        state.versions.pop(pod.uid, None)  # the same version may be told again
        key = state.job_of.get(pod.uid) or _key_of(state, pod)
        state.unread[PodGone(pod.uid)] = Unread(pod.namespace, key, "apply", repr(error)[:400])
        set_aside(state, key, "apply", error, now)
        try:
            state.charges.charge(pod.uid, pod.node if pod.phase.on_node else "", pod.shape, ours=pod.ours)
        except Exception as second:
            stumbled(state, "apply", second)


def unreadable(state: LedgerState, event: Unreadable, join: Callable[[PodRecord], None], now: float) -> None:
    """An object that can't be decoded: what was known of it stays, and its jobs are put aside until it can be.

    join: puts a pod under its job, which is to be shown although nothing of the pod but its name can be read.
    """
    gone, error = event.gone, event.error
    before = state.unread.get(gone) if gone is not None else None
    key = None
    if isinstance(gone, PodGone):
        if gone.uid in state.gone:
            return
        state.versions.pop(gone.uid, None)  # the same version may be told again, and be read
        known = state.orphans.pop(gone.uid, (event.pod, 0.0))[0]
        if gone.uid not in state.job_of and known is not None and known.ours:
            taken_in(state, known, partial(join, known), now)
        key = state.job_of.get(gone.uid)
    said = repr(error)[:400]
    if gone is not None:
        state.unread[gone] = Unread(event.namespace, key, "decode", said)
    found = {
        each
        for each in state.entries
        if each.namespace == event.namespace and unread_of(state, each) == "decode"
    }
    for each in sorted(found):
        set_aside(state, each, "decode", error, now, event.what)
    if not found:
        again = before is not None and before.said == said
        state.faults.append(Fault("decode", event.what, error, again=again))


def read_again(state: LedgerState, gone: Gone) -> None:
    """There is news of an object that could not be read: its jobs are looked at again."""
    unread = state.unread.pop(gone, None)
    if unread is not None:
        state.dirty |= {key for key in state.entries if key.namespace == unread.namespace}


def unread_of(state: LedgerState, key: JobKey) -> str:
    """In which stage an object of the job can't be read, "" for none."""
    if not state.unread:
        return ""
    job_state = state.entries.get(key)
    wanted: set[Gone] = set()
    if job_state is not None:
        owners = {pod.controller for pod in job_state.pods.values()} | {job_state.owner}
        owners |= set(state.owners.topmost_of(job_state.pods.values(), None))
        wanted |= {OwnerGone(owner.uid) for owner in owners if owner is not None}
        wanted |= {PodGone(uid) for uid in job_state.pods}
        wanted |= {GroupSeen(key.namespace, identity.group_of(pod), 0) for pod in job_state.pods.values()}
    for gone, unread in state.unread.items():
        own = isinstance(gone, GangGone) and (gone.namespace, gone.name) == (
            key.namespace,
            gang_name(key.name),
        )
        if unread.key == key or gone in wanted or own:
            return unread.stage
    return ""


def _key_of(state: LedgerState, pod: PodRecord) -> JobKey:
    try:
        return identity.job_key(pod, state.owners.records)
    except Exception:
        return JobKey(pod.namespace, f"pod-{pod.name}", pod.uid)
