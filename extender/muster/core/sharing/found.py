"""What jobs found of their shares on a trial, and which jobs in place have no room to grow where their pods are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from muster.core.placement.reservations import own_rows, placed
from muster.core.placement.statement import Statement
from muster.types import Job, JobKey, Table, elastic_role


def got(job: Job, done: Statement) -> int:
    """Replicas of the elastic role once the plan is carried out: those that stay, and the places that it found."""
    if job.key in done.whole:
        return 0
    role = elastic_role(job)
    leaving = sum(1 for r, _, _ in done.leaving.get(job.key, ()) if r is role)
    later = sum(1 for reservation in done.later.get(job.key, ()) if reservation.role == role.name)
    return placed(role, done.reservations.get(job.key, ())) - leaving + later


def hemmed_in(
    table: Table, members: Sequence[Job], done: Statement, but: Collection[JobKey]
) -> dict[JobKey, int]:
    """By job in place whose next size finds no room on the node of one of its pods: the replicas that it has, or had
    before this trial where that is more. but: jobs that are not asked about.

    All of them at once: each would take a turn of its own else, in the order of the policy, and the GPUs would be
    granted to one of them again in each cycle while a job beside them waits.
    """
    space, nodes = done.after or done.capacity, done.snapshot.nodes
    result: dict[JobKey, int] = {}
    for job in members:
        role = elastic_role(job)
        if not role.devices or job.key in but or job.key in done.whole:
            continue
        have, row = got(job, done), table.row[job.key]
        step = min((size for size in table.sizes.get(row, ()) if size > have), default=0)
        on = own_rows(nodes, job, done.reservations.get(job.key, ()))
        if not (have and step and on):
            continue
        each, rest = divmod(step - have, sum(on.values()))  # all pods of a job have as many
        fits = space.fits(role.shape)
        if rest or any(int(fits[at]) < each * pods for at, pods in on.items()):
            result[job.key] = max(have, int(table.have[row]))
    return result
