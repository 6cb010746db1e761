"""For which waiting jobs an autoscaler is asked for nodes: the extension point and its default (design §1)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from muster.types import (
    NO_ROOM_EMPTY,
    JobKey,
    Plan,
    Reason,
    Snapshot,
)

LACKS = frozenset({Reason.RESOURCES, Reason.NODES, Reason.TOPOLOGY, *NO_ROOM_EMPTY})
"""Codes of jobs that more nodes would start: a group that was scaled to nothing makes a job look impossible."""


@runtime_checkable
class AsksForNodes(Protocol):
    """For which waiting jobs an autoscaler is asked, which ignores gated pods; and when to look again (None: at the
    next change). asked: those for which it was."""

    def chosen(
        self, plan: Plan, snapshot: Snapshot, asked: Collection[JobKey]
    ) -> tuple[Sequence[JobKey], float | None]: ...


@dataclass(frozen=True, slots=True)
class Asking:
    """AsksForNodes by default, off unless configured (design §1): the head of the queue, once it has waited.

    Only what more nodes would start, in the queue's order: nodes for its tail would come in vain.
    how: "none", "provisioning-request" (autoscaling.x-k8s.io/v1) or "ungate" (the minimum's gates come off without a
    place: kube-scheduler finds the pods unschedulable, which every autoscaler sees). provisioning_class: of the
    request. after: seconds in the queue before anybody is asked. limit: jobs at a time.
    """

    how: str = "none"
    provisioning_class: str = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    after: float = 30.0
    limit: int = 1

    def chosen(
        self, plan: Plan, snapshot: Snapshot, asked: Collection[JobKey]
    ) -> tuple[Sequence[JobKey], float | None]:
        """Those that were asked for and still wait, then the first of the queue as far as the limit goes."""
        if self.how == "none":
            return (), None
        lacking = [key for key in plan.order if plan.statuses[key].reason in LACKS]
        chosen = [key for key in lacking if key in asked]
        wakes: list[float] = []
        for key in lacking:
            if len(chosen) + len(wakes) >= self.limit:
                break
            if key in asked:
                continue
            job = snapshot.jobs[key]
            ripe = max(job.since, job.submitted) + self.after
            if snapshot.now >= ripe:
                chosen.append(key)
            else:
                wakes.append(ripe)
        return chosen, min(wakes, default=None)
