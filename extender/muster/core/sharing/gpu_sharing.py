"""Two jobs on the same GPUs: a place for one on the GPUs of the other (`Grant.beside`).

The other one must be placed and alone on its GPUs; both must fit their memory where the node says how much that is.
On a cluster only jobs in place share, and only where both say how much they need and the node how much it has, and
not where they were measured together and are too slow for it (`core.progress.pairs`): the second one leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.placement.capacity import CapacityPair
from muster.core.placement.statement import Statement, without_gpus
from muster.core.placement.take_up import take_up
from muster.core.progress.pairs import too_slow
from muster.core.sharing.grants import ALONE
from muster.types import GPU_MEMORY, PRODUCT, Grant, Job, Phase, Reason, State, Status, elastic_role


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
        h.node
        for h in (*statement.reservations.get(other.key, ()), *statement.later.get(other.key, ()))
        if h.role == theirs.name
    ]
    need = max(1, role.min)
    if len(names) < need or role.shape.gpus > theirs.shape.gpus:
        return False
    rows = [snapshot.nodes.index[n] for n in sorted(names)[:need]]
    beside = statement.grants.get(other.key, other.grant or ALONE)
    if why := _refused(statement, (job, grant), (other, beside), rows):
        if not job.started and (role.devices or not (job.shareable and other.shareable)):
            statement.statuses[job.key] = Status(State.WAITING, Reason.SHARE, why)
        return False
    spots = [(role.name, row, 1) for row in rows]
    shapes = [without_gpus(role.shape)] * len(rows)
    if role.devices:  # its pods are where its devices are
        pods = [part for part in job.roles if part is not role and part.min]
        spots += [(part.name, rows[0], part.min) for part in pods]
        shapes += [part.shape for part in pods for _ in range(part.min)]
    later = other.key in statement.later
    capacity = (
        CapacityPair(statement.capacity, statement.after)
        if statement.after is not None
        else statement.capacity
    )
    mark = capacity.mark()
    on = [row for _, row, count in spots for _ in range(count)]
    for row, shape in zip(on, shapes, strict=True):
        if capacity.fits(shape)[row] < 1:
            capacity.undo(mark)
            return False
        capacity.take(row, shape)
    statement.part(other.key)
    take_up(
        statement,
        job,
        spots,
        later or job.key in statement.leaving,
        taken=True,
    )
    statement.partner[job.key], statement.partner[other.key] = other.key, job.key
    statement.grants[job.key] = grant
    return True


def too_slow_beside(statement: Statement, job: Job, other: Job) -> str:
    """Why a job in place is to leave the GPU that it shares, in words for its owner; "" where it may stay."""
    nodes = [m.node for m in elastic_role(other).members if m.node in statement.snapshot.nodes.index]
    return _too_slow(statement, job, other, nodes[0]) if nodes else ""


def _too_slow(statement: Statement, job: Job, other: Job, node: str) -> str:
    nodes = statement.snapshot.nodes
    return too_slow(job, other, nodes.records[nodes.index[node]].labels.get(PRODUCT, ""))


def _refused(
    statement: Statement, mine: tuple[Job, Grant], theirs: tuple[Job, Grant], rows: Sequence[int]
) -> str:
    """Why these two can't share GPUs of these nodes, in words for the first one's owner; "" where they can."""
    own, other = _memory(*mine), _memory(*theirs)
    for job in (mine[0], theirs[0]):
        if not job.shareable:
            return (
                "it is to share a GPU with another job, and only jobs in place of one pod each that both say what "
                "memory they need (muster.dev/gpu-memory) do"
            )
    for row in rows:
        record = statement.snapshot.nodes.records[row]
        memory = record.labels.get(GPU_MEMORY, "")
        if memory.isdigit() and own + other > int(memory):
            return (
                f"it is to share a GPU of {record.name} with another job, and needs {own} MiB of its memory: "
                f"{max(0, int(memory) - other)} of {memory} MiB are left"
            )
        if not memory.isdigit() and elastic_role(mine[0]).devices:
            return f"it is to share a GPU with another job, and node {record.name} has no label {GPU_MEMORY}"
        if why := _too_slow(statement, mine[0], theirs[0], record.name):
            return why
    return ""


def _memory(job: Job, grant: Grant) -> int:
    """MiB of each GPU: at the batch size that it is granted, else as its owner says."""
    return grant.gpu_memory or job.gpu_memory
