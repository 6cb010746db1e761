"""Why a PodDisruptionBudget does not let a job become smaller, in words, and when it does again.

The API server says which budget refused an eviction, and what it counts. What it can't say is that replicas behind
our gate are counted among the missing: maxUnavailable and percentages are of what the owner declares, gated pods are
never ready, and so such a budget allows nothing while replicas wait. minAvailable as a number is not touched by them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from muster.types import Budget, Job

_NAMED = re.compile(r"disruption budget (\S+) ")
SEVERAL = "more than one PodDisruptionBudget"


def named(refusal: str) -> str:
    """The budget that the API server names in its refusal, "" where it names none."""
    found = _NAMED.search(refusal)
    return found[1] if found is not None else ""


def allows(refusal: str, budgets: Sequence[Budget]) -> bool:
    """Whether the budget that refused allows an eviction by now; one that is gone does."""
    name = named(refusal)
    return bool(name) and all(budget.allowed > 0 for budget in budgets if budget.name == name)


def words(refusal: str, budgets: Sequence[Budget], job: Job) -> str:
    """For the job's owner; the API server's own words where the budget was not read."""
    if SEVERAL in refusal:
        return "several PodDisruptionBudgets select its pods, and then the API server evicts none: leave only one"
    budget = next((one for one in budgets if one.name == named(refusal)), None)
    if budget is None:
        return refusal
    least = sum(role.min for role in job.roles)
    advice = f"give it minAvailable as a number: {least}, the job's least replicas"
    subject = f"PodDisruptionBudget {budget.name}"
    if budget.failed:
        return f"{subject} allows no eviction, because it can't be worked out ({budget.failed}); {advice}"
    gated = sum(role.ready + role.held for role in job.roles)
    if budget.number < 0 and gated and budget.healthy + gated > budget.desired:
        return (
            f"{subject} counts the {gated} replicas behind Muster's gate as disrupted (it wants {budget.desired} "
            f"healthy pods of {budget.expected} and {budget.healthy} are), so it allows no eviction; {advice}"
        )
    counts = f"{subject} wants {budget.desired} healthy pods and {budget.healthy} are"
    return f"{counts}; {advice}" if budget.number < 0 or budget.number > least else counts
