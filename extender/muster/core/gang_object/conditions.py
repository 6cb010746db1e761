"""status.conditions of a Gang, so that `kubectl wait --for=condition=Running gang/x` works: a table by state. Pure.

Whole, Scheduled and Running are a ladder: nothing of its minimum is missing, it has places, it is on its nodes. The
other four are the states of these names. All seven are there from the first write on, so one can wait for False, too.

They have no observedGeneration: Gangs have no status subresource, so each write of a status raises the object's
generation; a number within it would be behind at once, and kubectl waits until it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from types import MappingProxyType

from muster.core.bounds import calendar
from muster.types import Condition, Reason, State, Status

YES, NO, UNKNOWN = "True", "False", "Unknown"

LADDER = ("Whole", "Scheduled", "Running")
NAMED = ("Resizing", "Suspended", "Finished", "Invalid")
"""True in the state of that name, False in any other."""
TYPES = (*LADDER, *NAMED)

Rungs = tuple[str, str, str]
"""The status of each rung of LADDER."""

OF_STATE: Mapping[State, Rungs] = MappingProxyType(
    {
        State.INCOMPLETE: (NO, NO, NO),
        State.WAITING: (YES, NO, NO),
        State.STARTING: (YES, NO, NO),
        State.RUNNING: (YES, YES, YES),
        State.RESIZING: (YES, YES, YES),  # its minimum runs on
        State.SUSPENDED: (NO, NO, NO),
        State.FINISHED: (NO, NO, NO),
        State.INVALID: (UNKNOWN, UNKNOWN, UNKNOWN),  # what runs of it goes on, and is not counted
    }
)
OF_REASON: Mapping[tuple[State, Reason], Rungs] = MappingProxyType(
    {
        (State.WAITING, Reason.RELEASED): (UNKNOWN, NO, NO),  # nobody counts its pods any more
        (State.STARTING, Reason.BINDING): (YES, YES, NO),
        (State.STARTING, Reason.RELEASED): (YES, UNKNOWN, NO),  # kube-scheduler places it without a plan
        (State.STARTING, Reason.PODS_MISSING): (NO, NO, NO),  # its owner is to make again what it lost
        (State.STARTING, Reason.NOT_OURS_YET): (NO, NO, NO),
        (State.STARTING, Reason.QUOTA): (NO, NO, NO),
    }
)
"""Where the reason says more than the state."""


@cache
def statuses(state: State, reason: Reason) -> tuple[tuple[str, str], ...]:
    """Each type, in the order of TYPES, and whether it is True, False or Unknown."""
    rungs = OF_REASON.get((state, reason)) or OF_STATE[state]
    return (*zip(LADDER, rungs, strict=True), *((name, YES if name == state else NO) for name in NAMED))


def updated(before: tuple[Condition, ...], status: Status, since: float, now: float) -> tuple[Condition, ...]:
    """The conditions from this cycle on. One whose status stays keeps its time; one that was never told is as old as
    the job's state, `since`. Times are Unix s."""
    wanted = statuses(status.state, status.reason)
    if tuple([one[:2] for one in before]) == wanted:  # nearly always
        return before
    known = {one.type: one for one in before}
    return tuple(
        known[name]
        if name in known and known[name].status == value
        else Condition(name, value, now if name in known else since)
        for name, value in wanted
    )


def plain(conditions: Iterable[Condition], state: str, reason: str, message: str) -> list[dict[str, object]]:
    """As the API has them. The Gang's reason and message stand at the one that they are about: the state's own, else
    the first rung that is not reached; at the others the state is the reason."""
    found = tuple(conditions)
    lacking = next((one.type for one in found if one.type in LADDER and one.status != YES), "")
    about = state if state in TYPES else lacking
    return [
        {
            "type": one.type,
            "status": one.status,
            "reason": reason if one.type == about else state,
            "message": message if one.type == about else "",
            "lastTransitionTime": _second(one.since),
        }
        for one in found
    ]


@lru_cache(1024)
def _second(seconds: float) -> str | None:
    """A time as the API's metav1.Time: whole seconds."""
    when = calendar(seconds)
    return None if when is None else when.strftime("%Y-%m-%dT%H:%M:%SZ")
