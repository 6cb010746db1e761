"""What every turn of a fake is held to: no cycle leaves the table of states (core/actions/transitions.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.core.actions.transitions import NEW, TRANSITIONS, event_of
from muster.core.ledger import Ledger
from muster.types import Action, JobKey, Plan, WriteLearned


def states(ledger: Ledger) -> dict[JobKey, str]:
    """The state of each job before a cycle."""
    return {key: entry.state for key, entry in ledger.entries.items()}


def obeys(before: Mapping[JobKey, str], plan: Plan, actions: Sequence[Action]) -> None:
    """Each job's transition of a cycle is in the table, and so is each request that the cycle sends for it."""
    for key, status in plan.statuses.items():
        pair = before.get(key, NEW), event_of(status)
        assert pair in TRANSITIONS, f"{key}: {pair[1]} in state {pair[0] or 'New'}"
        assert TRANSITIONS[pair].to == status.state
    for action in actions:
        told = plan.statuses.get(action.job)
        if told is not None and not isinstance(action, WriteLearned):
            found = TRANSITIONS[before.get(action.job, NEW), event_of(told)]
            assert type(action) in found.requests, f"{action} in a cycle that says: {told}"


def under_way(ledger: Ledger) -> set[tuple[str, str]]:
    """Requests whose answers are awaited: their kind, and the object by its pod's uid or its job's name."""
    found = set()
    for key, entry in ledger.entries.items():
        about = {f"{key.name}'s gang": entry.in_flight.gang, f"{key.name}'s nodes": entry.in_flight.nodes}
        for of, request in (about | entry.in_flight.pods).items():
            if request.sent is not None:
                found.add((request.sent.__name__, of))
    return found
