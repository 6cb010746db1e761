"""In place: what the owner of a job reads, in GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.core.bounds import calendar
from muster.core.devices.coordinator import Change
from muster.core.devices.granted import Granted, Grants, Uses
from muster.types import STRANGER, JobKey, Reason, State, Status

LATE = 5.0
"""Seconds after which it is told who is to give GPUs: a hand-over that is over sooner is told by one write."""
NAMED = 2
"""Jobs that a message names which are to give GPUs."""


def told(
    status: Status,
    grants: Sequence[Granted],
    gpus: int,
    runs: bool,
    *,
    starts: bool,
    changes: Sequence[tuple[Change, float]] = (),
    uses: Uses | None = None,
    waits: str = "",
    limit: str = "",
) -> Status:
    """The status in GPUs: those that it uses, as far as that is known, else those that it is to have. gpus: of the
    node of its first pod; runs: whether all of its pods are on their nodes; starts: whether others are still to give;
    changes: the last one of each of its pods; uses: GPUs in use now, None: nobody knows; waits: for whom it does that
    has none yet; limit: what keeps it from more."""
    more = f"; {limit}" if limit else ""
    few, every = sum(one.uses for one in grants), sum(one.count for one in grants)
    measured = f"measured at {few} of its {every} GPUs, then it has all of them again"
    if status.state in (State.RUNNING, State.RESIZING) and runs:
        if len(changes) < len(grants):
            due = [replace(one, count=one.uses) for one in grants]
            has = due if uses is None else [replace(one, count=_has(one, uses)) for one in grants]
            if has != due:
                has_now = _of(has, gpus) if any(one.count for one in has) else "no GPU yet"
                to_have = f"{has_now}; it is to have {_of(due, gpus)}"
                return Status(State.RUNNING, status.reason, f"in place: {to_have}{waits}{more}")
            how = f"; {measured}" if few < every else ""
            return Status(State.RUNNING, status.reason, f"in place: {_of(due, gpus)}{how}{more}")
        when = calendar(max(at for _, at in changes))
        since = f" since {when:%H:%MZ}" if when is not None else ""
        took = max(last.took for last, _ in changes)
        if any(last.handed for last, _ in changes):
            how = f"hand-over took {took:.1f} s, GPUs idle {max(last.idle for last, _ in changes):.1f} s"
        else:
            how = f"taken up in {took:.1f} s"
        if few < every:
            how = measured
        elif sum(last.count for last, _ in changes) > few:
            how = f"it is to go on with {few}"
        has = [replace(one, count=last.count) for one, (last, _) in zip(grants, changes, strict=True)]
        if not any(one.count for one in has):  # told to give all, and not yet what it is to have next
            to_have = f"no GPU{since}; it is to have {_of(grants, gpus)}"
            return Status(State.RUNNING, status.reason, f"in place: {to_have}{more}")
        return Status(State.RUNNING, status.reason, f"in place: {_of(has, gpus)}{since}; {how}{more}")
    alone = len(grants) == 1
    pods = "its pod starts" if alone else "its pods start"
    if starts:
        are = "it is" if alone else "all of them are"
        return Status(
            State.STARTING, status.reason, f"{pods}; {_of(grants, gpus)} are handed over once {are} ready"
        )
    if status.state in (State.RUNNING, State.RESIZING):  # its GPUs count as bound, and a pod of it is not
        have = "it is to have" if alone else "they are to have"
        return Status(State.STARTING, Reason.BINDING, f"{pods}; {have} {_of(grants, gpus)}")
    return status


def givers_of(granted: Grants, uses: Uses, jobs: Mapping[str, JobKey]) -> dict[str, list[JobKey]]:
    """By node, jobs of which a pod uses more GPUs there than it is to. jobs: by pod's uid."""
    due = {(one.pod, one.node): one.uses for grants in granted.values() for one in grants}
    found: dict[str, set[JobKey]] = {}
    for pod in uses.keys() & jobs.keys():
        for node, count in uses[pod].items():
            if count > due.get((pod, node), 0):
                found.setdefault(node, set()).add(jobs[pod])
    return {node: sorted(keys) for node, keys in found.items()}


def waits_for(
    key: JobKey, grants: Sequence[Granted], uses: Uses, givers: Mapping[str, Sequence[JobKey]]
) -> str:
    """Who is to give GPUs on the nodes where a job lacks some: "; job-a is to give them"; "" = nobody is."""
    lacks = [one.node for one in grants if _has(one, uses) < one.uses]
    found = {job for node in lacks for job in givers.get(node, ())} - {key}
    if not found:
        return ""
    names = [job.name if job.namespace == key.namespace else STRANGER for job in sorted(found)]
    more = f" and {len(names) - NAMED} more" if names[NAMED:] else ""
    return f"; {', '.join(names[:NAMED])}{more} {'is' if len(names) == 1 else 'are'} to give them"


def not_made(grants: Sequence[Granted], uses: Uses, refused: Mapping[str, str]) -> str:
    """Why a pod can't have GPUs that nobody else has. refused: of the API, by node."""
    lacks = (one.node for one in grants if _has(one, uses) < one.uses and one.node in refused)
    node = next(lacks, None)
    return f"no pod that holds a GPU of {node} can be made: {refused[node]}" if node is not None else ""


def _has(one: Granted, uses: Uses) -> int:
    return uses.get(one.pod, {}).get(one.node, 0)


def _of(grants: Sequence[Granted], gpus: int) -> str:
    """ "2 of 4 GPUs of n0"; "4 GPUs, 2 for each of 2 pods"; "3 GPUs of 2 pods" where they have not as many each."""
    first, count = grants[0], sum(one.count for one in grants)
    if len(grants) == 1:
        return f"{count} of {gpus} GPUs of {first.node}"
    if any(one.count != first.count for one in grants):
        return f"{count} GPUs of {len(grants)} pods"
    return f"{count} GPUs, {first.count} for each of {len(grants)} pods"
