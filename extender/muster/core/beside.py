"""Two jobs on the same GPUs: a place for one on the GPUs of the other (`Want.beside`).

The other one must be placed and alone on its GPUs; both must fit their memory where the node says how much that is.
"""

from __future__ import annotations

from muster.core.granted import ALONE
from muster.core.room import Both
from muster.core.table import elastic_role
from muster.core.trial import Trial, take_up, without_gpus
from muster.types import GPU_MEMORY, Job, Phase, Want


def put_beside(trial: Trial, job: Job, want: Want) -> bool:
    """Places on the GPUs of another job, if it is placed, alone on them, and both fit their memory."""
    snapshot, result = trial.snapshot, trial.result
    other = snapshot.jobs.get(want.beside) if want.beside is not None else None
    role = elastic_role(job)
    if other is None or other.key in trial.gone:
        return False
    before = trial.partner.get(other.key)
    if before is not None and before not in trial.gone:
        return False
    leaving = {m.uid for _, m, _ in result.leaving.get(other.key, ())}
    theirs = elastic_role(other)
    names = [m.node for m in theirs.members if m.phase is Phase.BOUND and m.uid not in leaving]
    names += [h.node for h in (*result.holds.get(other.key, ()), *result.later.get(other.key, ()))]
    need = max(1, role.min)
    if len(names) < need or role.shape.gpus > theirs.shape.gpus:
        return False
    rows = [snapshot.nodes.index[n] for n in sorted(names)[:need]]
    beside = result.wants.get(other.key, other.want or ALONE)
    for row in rows:
        memory = snapshot.nodes.records[row].labels.get(GPU_MEMORY, "")
        if memory.isdigit() and _memory(job, want) + _memory(other, beside) > int(memory):
            return False
    shape = without_gpus(role.shape)
    later = other.key in result.later
    room = Both(trial.room, trial.after) if trial.after is not None else trial.room
    mark = room.mark()
    for row in rows:
        if room.fits(shape)[row] < 1:
            room.undo(mark)
            return False
        room.take(row, shape)
    trial.part(other.key)
    take_up(trial, job, [(role.name, row, 1) for row in rows], later or job.key in result.leaving, taken=True)
    trial.partner[job.key], trial.partner[other.key] = other.key, job.key
    result.wants[job.key] = want
    return True


def _memory(job: Job, want: Want) -> int:
    """MiB of each GPU: at the batch size that it is granted, else as its owner says."""
    return want.gpu_memory or job.gpu_memory
