"""What one cycle leaves for readers: the extender verbs, the API and the pages read it, nobody writes it.

The driver swaps `Board.view` for a new frozen View after each cycle, so a reader holds one consistent picture
without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from muster.core.devices.seen import InPlaceSeen
from muster.points import Profile
from muster.types import EndReason, IntArray, JobKey, Nodes, Plan, Reservation, Snapshot


@dataclass(frozen=True)
class View:
    """One cycle's result.

    holds: the place of each pod that has one and is not bound yet, by pod uid, with its job.
    free: (N, R) int64, what is left when all holds are taken off.
    released: uids of pods that `muster release` let go: they need no plan.
    observe: nothing is gated or held back, everything passes.
    leading: whether this replica may act. synced: whether all watches have delivered their first list.
    """

    snapshot: Snapshot
    plan: Plan
    profile: Profile
    reservations: Mapping[str, tuple[JobKey, Reservation]] = field(default_factory=dict)
    free: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    released: frozenset[str] = frozenset()
    observe: bool = False
    leading: bool = False
    synced: bool = False
    ended: Mapping[EndReason, int] = field(default_factory=dict)
    """Pods that this process has evicted, by why."""
    holders: Mapping[str, str] = field(default_factory=dict)
    """Nodes of pods that are to hold devices, by namespace/name. By name, since the answer to whoever asks where one
    may go must be there before it is made, and the namespace is Muster's own."""
    in_place: InPlaceSeen | None = None
    """Devices in place, None where none are given. For pages only: the verbs don't read it."""
    made: Plan | None = None
    """The plan as the cycle made it of `snapshot`, where `plan` is another one: without GPUs in place."""
    ungated: int = 0
    """Pods of ours that were created without the gate (the admission policy was missing)."""


def empty_view(profile: Profile) -> View:
    """Before the first sync: no nodes, no jobs, nothing may pass."""
    nodes = Nodes(())
    free = np.zeros((0, len(nodes.resources)), dtype=np.int64)
    return View(Snapshot(0.0, nodes, free, {}), Plan(), profile)


class Board:
    """Where the newest View hangs."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.aside: Callable[[JobKey, Exception], None] = lambda key, error: None  # noqa: ARG005
        """Called with a job over which a page or a figure raised, by whoever shows it (core.views.safe_rendering)."""
