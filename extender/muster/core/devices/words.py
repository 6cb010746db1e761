"""In place: what the owner of a job reads, in GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from muster.core.bounds import calendar
from muster.core.devices.coordinator import Change
from muster.core.devices.granted import Granted
from muster.types import Reason, State, Status


def told(
    status: Status,
    grants: Sequence[Granted],
    gpus: int,
    runs: bool,
    *,
    starts: bool,
    changes: Sequence[tuple[Change, float]] = (),
    limit: str = "",
) -> Status:
    """The status in GPUs: those that it uses, as far as that is known, else those that it is to have. gpus: of the
    node of its first pod; runs: whether all of its pods are on their nodes; starts: whether others are still to give;
    changes: the last one of each of its pods; limit: what keeps it from more."""
    more = f"; {limit}" if limit else ""
    few, every = sum(one.uses for one in grants), sum(one.count for one in grants)
    measured = f"measured at {few} of its {every} GPUs, then it has all of them again"
    if status.state in (State.RUNNING, State.RESIZING) and runs:
        if len(changes) < len(grants):
            due = [replace(one, count=one.uses) for one in grants]
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
        uses = [replace(one, count=last.count) for one, (last, _) in zip(grants, changes, strict=True)]
        if not any(one.count for one in uses):  # told to give all, and not yet what it is to have next
            to_have = f"no GPU{since}; it is to have {_of(grants, gpus)}"
            return Status(State.RUNNING, status.reason, f"in place: {to_have}{more}")
        return Status(State.RUNNING, status.reason, f"in place: {_of(uses, gpus)}{since}; {how}{more}")
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


def _of(grants: Sequence[Granted], gpus: int) -> str:
    """ "2 of 4 GPUs of n0"; "4 GPUs, 2 for each of 2 pods"."""
    first, count = grants[0], sum(one.count for one in grants)
    if len(grants) == 1:
        return f"{count} of {gpus} GPUs of {first.node}"
    return f"{count} GPUs, {first.count} for each of {len(grants)} pods"
