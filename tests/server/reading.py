"""A View as the driver leaves it after a cycle that was adopted, and scenarios to read it in."""

from __future__ import annotations

from typing import Any

from muster.core.views.view import View
from muster.points import Profile
from muster.types import Snapshot
from tests.scenario import FIFO, charge, plan, used_places


def viewed(snapshot: Snapshot, profile: Profile = FIFO, **fields: Any) -> View:
    """The View after one cycle: what the plan holds is taken off what is free, each place once."""
    after = plan(snapshot, profile)
    free = snapshot.free.copy()
    for key, reservations in after.reservations.items():
        job = snapshot.jobs[key]
        shapes = {role.name: role.shape for role in job.roles}
        before = list(used_places(job))
        for reservation in reservations:
            place = (reservation.node, shapes[reservation.role])
            if place in before:
                before.remove(place)
            else:
                charge(free, snapshot.nodes.index[reservation.node], shapes[reservation.role], snapshot.nodes)
    holds_by_uid = {
        h.uid: (key, h) for key, reservations in after.reservations.items() for h in reservations if h.uid
    }
    return View(snapshot, after, profile, holds_by_uid, free, **{"synced": True, "leading": True, **fields})


def as_verbs_read(view: View) -> dict[str, Any]:
    """All that the verbs can read of a View, comparable."""
    found = view.snapshot
    return {
        "plain": (
            found.now,
            found.shared_at,
            view.observe,
            view.leading,
            view.synced,
            view.released,
            dict(view.holders),
        ),
        "nodes": (found.nodes.names, found.nodes.records, found.nodes.resources, found.nodes.total.tolist()),
        "open": found.nodes.open.tolist(),
        "free": (view.free.tolist(), found.free.tolist(), found.ours_on.tolist()),
        "jobs": dict(found.jobs),
        "holds": dict(view.reservations),
        "else": (dict(found.ports), {key: dict(bars) for key, bars in found.node_backoffs.items()}),
        "profile": (view.profile.name, view.profile.filters, view.profile.scores, view.profile.placement),
    }
