"""What nodes and pods really use: kept as it was told, for a while."""

from __future__ import annotations

from dataclasses import replace

from muster.core.state.state import LedgerState
from muster.types import Use

KEPT = 90.0
"""Seconds for which use counts after it was told: six looks (cluster.use_reader). A metrics server that restarts, or
fails a few times, changes nothing; after that nothing is known, and plugins go by requests."""


def use_seen(state: LedgerState, use: Use) -> None:
    """Take in what was told, of pods only what is ours: all others are in their nodes' use."""
    ours = {(pod.namespace, pod.name) for entry in state.entries.values() for pod in entry.pods.values()}
    state.node_use = replace(use, pods={name: used for name, used in use.pods.items() if name in ours})


def known_use(state: LedgerState, now: float) -> Use | None:
    """For a Snapshot: None where the profile asks for no use, or what was told is too old."""
    use = state.node_use
    return use if use is not None and state.profile.reads_use and now - use.at <= KEPT else None
