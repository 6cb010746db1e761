"""A View as the driver leaves it after a cycle that was adopted, and scenarios to read it in."""

from __future__ import annotations

from typing import Any

from muster.core.view import View
from muster.points import Profile
from muster.types import Snapshot
from tests.scenario import FIFO, charge, plan, used_places


def viewed(snapshot: Snapshot, profile: Profile = FIFO, **fields: Any) -> View:
    """The View after one cycle: what the plan holds is taken off what is free, each place once."""
    after = plan(snapshot, profile)
    free = snapshot.free.copy()
    for key, holds in after.holds.items():
        job = snapshot.jobs[key]
        shapes = {role.name: role.shape for role in job.roles}
        before = list(used_places(job))
        for hold in holds:
            place = (hold.node, shapes[hold.role])
            if place in before:
                before.remove(place)
            else:
                charge(free, snapshot.nodes.index[hold.node], shapes[hold.role], snapshot.nodes)
    holds_by_uid = {h.uid: (key, h) for key, holds in after.holds.items() for h in holds if h.uid}
    return View(snapshot, after, profile, holds_by_uid, free, **{"synced": True, "leading": True, **fields})
