"""Who gives devices now: node by node, and the pods of one job together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from muster.types import JobKey


@dataclass(frozen=True, slots=True)
class Givers:
    """Pods of a node that have more than they are to have. needed: whoever is to have it is ready; kept: they use it
    until whoever is to have it is ready; free: nobody waits for it."""

    needed: AbstractSet[str]
    kept: AbstractSet[str]
    free: AbstractSet[str]


def who_gives(pods: Iterable[tuple[JobKey, str]], nodes: Sequence[Givers]) -> set[str]:
    """Pods that give now. pods: with the job of each. Of a job's pods all give where one is needed, and none gives
    where one keeps what it has: such a job goes from one of its sizes to another."""
    needed = {pod for node in nodes for pod in node.needed}
    kept = {pod for node in nodes for pod in node.kept}
    found = needed | {pod for node in nodes for pod in node.free}
    jobs: dict[JobKey, set[str]] = {}
    for job, pod in pods:
        jobs.setdefault(job, set()).add(pod)
    for of in jobs.values():
        if of & needed:
            found |= of
        elif of & kept:
            found -= of
    return found
