"""Two jobs on the same GPUs: a place for one on the GPUs of the other (`Want.beside`).

The other one must be placed and alone on its GPUs; both must fit their memory where the node says how much that is.
"""

from __future__ import annotations

from muster.core.placement.capacity import CapacityPair
from muster.core.placement.statement import Statement, without_gpus
from muster.core.placement.take_up import take_up
from muster.core.sharing.grants import ALONE
from muster.types import GPU_MEMORY, Grant, Job, Phase, elastic_role


def put_beside(statement: Statement, job: Job, grant: Grant) -> bool:
    """Places on the GPUs of another job, if it is placed, alone on them, and both fit their memory."""
    snapshot = statement.snapshot
    other = snapshot.jobs.get(grant.beside) if grant.beside is not None else None
    role = elastic_role(job)
    if other is None or other.key in statement.gone:
        return False
    before = statement.partner.get(other.key)
    if before is not None and before not in statement.gone:
        return False
    leaving = {m.uid for _, m, _ in statement.leaving.get(other.key, ())}
    theirs = elastic_role(other)
    names = [m.node for m in theirs.members if m.phase is Phase.BOUND and m.uid not in leaving]
    names += [
        h.node for h in (*statement.reservations.get(other.key, ()), *statement.later.get(other.key, ()))
    ]
    need = max(1, role.min)
    if len(names) < need or role.shape.gpus > theirs.shape.gpus:
        return False
    rows = [snapshot.nodes.index[n] for n in sorted(names)[:need]]
    beside = statement.grants.get(other.key, other.grant or ALONE)
    for row in rows:
        memory = snapshot.nodes.records[row].labels.get(GPU_MEMORY, "")
        if memory.isdigit() and _memory(job, grant) + _memory(other, beside) > int(memory):
            return False
    shape = without_gpus(role.shape)
    later = other.key in statement.later
    capacity = (
        CapacityPair(statement.capacity, statement.after)
        if statement.after is not None
        else statement.capacity
    )
    mark = capacity.mark()
    for row in rows:
        if capacity.fits(shape)[row] < 1:
            capacity.undo(mark)
            return False
        capacity.take(row, shape)
    statement.part(other.key)
    take_up(
        statement,
        job,
        [(role.name, row, 1) for row in rows],
        later or job.key in statement.leaving,
        taken=True,
    )
    statement.partner[job.key], statement.partner[other.key] = other.key, job.key
    statement.grants[job.key] = grant
    return True


def _memory(job: Job, grant: Grant) -> int:
    """MiB of each GPU: at the batch size that it is granted, else as its owner says."""
    return grant.gpu_memory or job.gpu_memory
