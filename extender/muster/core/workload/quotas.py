"""Why an owner's pods do not appear: a ResourceQuota that has no room for another replica.

Admission can't see quotas; the Job's or ReplicaSet's controller tries again for ever. What is left is known only
while pods are missing (the Ledger asks then), and only a quota that surely applies is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from muster.types import PODS, Quota, Role, Shape


def asked(shape: Shape, resource: str) -> int:
    """What one replica takes of a quota's resource."""
    return 1 if resource == PODS else shape.request(resource)


def short(roles: Sequence[Role], quotas: Sequence[Quota]) -> tuple[str, str, bool]:
    """Which quota keeps the missing replicas out: in words, in numbers, and whether it does so for ever.

    Two empty words where none does: another reason then, or it is not read yet. The first by name of those that have
    no room for one more replica of a role that lacks some.
    """
    for role in roles:
        missing = role.min - len(role.members)
        if missing <= 0:
            continue
        for quota in quotas:
            need = asked(role.shape, quota.resource)
            if need <= 0 or quota.used + need <= quota.hard:
                continue
            numbers = f"{quota.used} of {quota.hard} {quota.counts} used"
            if sum(r.min * asked(r.shape, quota.resource) for r in roles) > quota.hard:
                return f"ResourceQuota {quota.name} never has room for all ({quota.counts})", numbers, True
            return f"ResourceQuota {quota.name} has no room for more ({quota.counts})", numbers, False
    return "", "", False


Quotas = Mapping[str, tuple[Quota, ...]]
"""By namespace."""
