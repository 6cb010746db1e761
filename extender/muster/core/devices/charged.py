"""Whom a grant in place is charged to: the ResourceQuota of the job's namespace.

The pods that request the GPUs are in a namespace of Muster's own, so Kubernetes charges nobody. What a quota leaves
is its hard limit less what it counts of the namespace's pods and less what jobs in place there are granted or, where
that is more, what their pods still use: those of a job that is to have none any more too. Who waits comes first, with
the fewest GPUs that it can train on, unless no nodes have them; then who runs and could grow where it is, in the
order of submission. Nobody loses GPUs to a quota that was lowered, as no pod does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.core.devices.granted import Granted, Grants, Sizes
from muster.types import GPU, Job, JobKey, Phase, Quota

Quotas = Mapping[str, Sequence[Quota] | str]
"""By namespace: its quotas, or why they are not known: then nobody there gets more GPUs than he has."""
Room = Callable[[Job, int], int]
"""How many pods of a job could stand on the nodes that there are, each with so many GPUs, were nobody else there."""
UNLIMITED = 1 << 30
NAMED = 2
"""Jobs that a message names for which GPUs are kept."""
UNREAD = "the ResourceQuotas of its namespace are being read"
REFUSED = (
    "Muster may not read the ResourceQuotas of its namespace (muster doctor says which right is missing)"
)


@dataclass(frozen=True, slots=True)
class Allowed:
    """gpus: the most that a job may be granted, of all its pods; why: what keeps it from more."""

    gpus: int
    why: str


def anywhere(_job: Job, _count: int) -> int:
    """The room where nobody knows the nodes."""
    return UNLIMITED


def pods_of(job: Job, grants: Sequence[object]) -> int:
    """Pods that each have GPUs once all of it runs. Replicas beyond those that it was whole with stay behind the
    gate: each would need as many GPUs as the others."""
    if not job.roles:
        return len(grants)
    pods = job.roles[0]
    return max(len(grants), max(pods.min, 1) if pods.max > 1 else pods.max)


def _may_have(job: Job) -> bool:
    return bool(job.max) and not (job.over or job.suspended or job.invalid)


@dataclass(frozen=True, slots=True)
class _Charge:
    """What a job's namespace is charged for it. pods: that are to have as many GPUs each; count: what each is
    granted; using: what those of them use that use any; others: what pods use that are to have none any more."""

    pods: int
    count: int
    using: tuple[int, ...]
    others: int

    def at(self, count: int) -> int:
        """With so many granted each: what is used counts until it is let go."""
        return self.others + sum(max(count, n) for n in self.using) + (self.pods - len(self.using)) * count


def _charge(job: Job | None, grants: Sequence[Granted], uses: Mapping[str, int]) -> _Charge:
    """uses: devices by pod of the job."""
    granted = [uses[one.pod] for one in grants if one.pod in uses]
    pods, next_ones = len(grants), []
    if job is not None and _may_have(job):
        pods, known = pods_of(job, grants), {one.pod for one in grants}
        stay = {m.uid for role in job.roles for m in role.members if m.phase is not Phase.ENDING} - known
        next_ones = sorted((n for pod, n in uses.items() if pod in stay), reverse=True)[: pods - len(grants)]
    using = (*granted, *next_ones)
    return _Charge(pods, grants[0].count if grants else 0, using, sum(uses.values()) - sum(using))


def allowances(
    jobs: Mapping[JobKey, Job],
    sizes: Sizes,
    granted: Grants,
    quotas: Quotas,
    uses: Mapping[JobKey, Mapping[str, int]],
    room: Room,
    here: Mapping[str, int] | None = None,
) -> dict[JobKey, Allowed]:
    """What jobs in place may be granted, of those in whose namespace a quota counts GPUs, or none is known. uses:
    devices that pods use, may use or are about to get, by job and pod's uid, of every job whatever its state. here:
    GPUs that jobs in place could have, by node; None where nobody knows.

    Of what is left a job that waits is kept its least, unless the nodes that there are have no room for that; then
    those grow that run, as far as their nodes go when all others there have their least, then those that don't run
    yet, and last those whose nodes have too little.
    """
    growth = _growth(sizes, granted, here)
    found: dict[JobKey, Allowed] = {}
    known = [key for key in sizes if key in jobs and _may_have(jobs[key])]
    for namespace in sorted({key.namespace for key in known} & quotas.keys()):
        listed = quotas[namespace]
        limits = [] if isinstance(listed, str) else [quota for quota in listed if quota.resource == GPU]
        if not limits and not isinstance(listed, str):
            continue
        mine = sorted((k for k in known if k.namespace == namespace), key=lambda k: (jobs[k].submitted, k))
        charged = {key for key in (*granted, *uses) if key.namespace == namespace}.union(mine)
        charges = {key: _charge(jobs.get(key), granted.get(key, ()), uses.get(key, {})) for key in charged}
        now = {key: charges[key].count for key in mine}
        if isinstance(listed, str):
            found |= {key: Allowed(charges[key].pods * now[key], listed) for key in mine}
            continue
        first = min(limits, key=lambda quota: (quota.hard - quota.used, quota.name, quota.counts))
        held = sum(charge.at(charge.count) for charge in charges.values())
        left = first.hard - first.used - held
        waits = [key for key in mine if not now[key]]
        never = {
            key
            for key in waits
            if not jobs[key].running and room(jobs[key], sizes[key][0]) < charges[key].pods
        }
        for key in never:  # nobody's room: it is to say that, not what a quota leaves it
            if charges[key].at(sizes[key][0]) - charges[key].at(0) <= left:
                now[key] = sizes[key][0]
        kept: dict[JobKey, int] = {}
        steps = [(key, sizes[key][:1]) for key in waits]
        runs = [key for key in mine if key not in waits]
        steps += [(key, tuple(n for n in sizes[key] if n <= growth[key])) for key in runs]
        steps += [(key, sizes[key]) for key in (*waits, *runs)]
        for key, counts in steps:
            if key in never:
                continue
            charge, before = charges[key], charges[key].at(now[key])
            most = max((n for n in counts if n > now[key] and charge.at(n) - before <= left), default=0)
            if most:
                kept[key] = kept.get(key, 0) + charge.at(most) - before
                left -= charge.at(most) - before
                now[key] = most
        for key in mine:
            others = [(other.name, count) for other, count in kept.items() if other != key and count]
            found[key] = Allowed(charges[key].pods * now[key], _words(first, held, others))
    return found


def _growth(sizes: Sizes, granted: Grants, here: Mapping[str, int] | None) -> dict[JobKey, int]:
    """The most GPUs that each pod of a job could have on its node while others there have their least."""
    if here is None:
        return dict.fromkeys(granted, UNLIMITED)
    least: dict[str, int] = {}
    pods: dict[tuple[JobKey, str], int] = {}
    for key, grants in granted.items():
        for one in grants:
            least[one.node] = least.get(one.node, 0) + sizes[key][0]
            pods[key, one.node] = pods.get((key, one.node), 0) + 1
    most: dict[JobKey, int] = {}
    for (key, node), count in pods.items():
        each = (here.get(node, 0) - least[node]) // count + sizes[key][0]
        most[key] = min(most.get(key, UNLIMITED), each)
    return most


def _words(quota: Quota, held: int, kept: Sequence[tuple[str, int]]) -> str:
    """kept: numbers of GPUs that others of the namespace are to have first, by name."""
    used = [f"hard {quota.hard}, used {quota.used}, {held} in place"]
    used += [f"{count} kept for {name}" for name, count in kept[:NAMED]]
    if kept[NAMED:]:
        used.append(f"{sum(count for _, count in kept[NAMED:])} for others")
    return f"ResourceQuota {quota.name} allows no more ({quota.counts}: {', '.join(used)})"


def by_job(used: Mapping[tuple[str, str], int], job_of: Mapping[str, JobKey]) -> dict[JobKey, dict[str, int]]:
    """Devices by job and pod, of pods that there are. used: by pod and node."""
    found: dict[JobKey, dict[str, int]] = {}
    for (pod, _), count in used.items():
        if pod in job_of:
            uses = found.setdefault(job_of[pod], {})
            uses[pod] = uses.get(pod, 0) + count
    return found
