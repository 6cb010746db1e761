"""`similarity`: where a model like this one trained fastest (model-similarity-rounds-packing.txt, Algorithms 1 to 3).

A job's model is compared with reference jobs (cosine on layers and parameters, equation (3)); what the nearest one
did on each GPU product, number of GPUs and batch size ranks the choices. In every round jobs choose in the order
of arrival, each the best that is still free (Algorithm 2). While jobs wait, those that are alone on one GPU
take a second one beside them (Algorithm 3).

Where the text leaves a choice, or is read otherwise than printed:
- Parameters count in millions: as raw counts they leave nothing of the layers, and all 21 references are equal.
- Throughput is iterations/s in the paper (equation (2)), of which small batches have more: choosing a batch by it
  chooses the smallest. `unit="samples"` (the default) ranks by samples/s, `"iterations"` as printed.
- Algorithm 2 stops at no job: one that finds nothing is passed by others.
- Algorithm 3, line 6 has two maxima: the first job's speed decides, then the sum of both.
- "Automatically override the user-specified batch size" to fit the memory: the largest measured size that fits, of
  the job that comes second; the first keeps what it has. With mode gpu_ngpu_bs any may be chosen that the job can
  train with (`Job.batch_sizes`; in the paper's workloads all that were measured). A job that names none, or does not
  take what it is told, is ranked with its own, and as with the largest that was measured where that is not known.
- Jobs in place that were measured beside each other, or whose kinds were, count as measured; those that together are
  too slow to share a GPU (`core.progress.pairs`) are no pair.
- Without `cd` ("decisions can be changed") a job keeps what it was given first until it ends.
- A job like no reference whose own speeds were measured (`samples`) is ranked by those; what nobody has measured (an
  unknown model or product) is granted as requested on the product with most free GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from muster.core.progress.curves import alone
from muster.core.progress.pairs import parts_kept, too_slow
from muster.policylib.references import PAPER, References
from muster.policylib.similar import known, pairings, ranked, reference
from muster.types import (
    PRODUCT,
    Grant,
    Grants,
    Job,
    JobKey,
    Phase,
    SharingSnapshot,
    Snapshot,
    Table,
    elastic_role,
)

MODES = ("gpu", "gpu_ngpu", "gpu_ngpu_bs")
UNITS = ("samples", "iterations")


@dataclass(frozen=True, slots=True)
class Similarity:
    """mode: what is decided: the product, also the number of GPUs, also the batch size. cd: whether decisions change
    from round to round. jp: whether two jobs share a GPU. unit: of the throughput. leave_out: a job's own model does
    not count as a reference (leave-one-out). references: what was measured before.
    """

    mode: str = "gpu_ngpu"
    cd: bool = True
    jp: bool = False
    unit: str = "samples"
    leave_out: bool = False
    references: References = field(default=PAPER)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode: must be one of {', '.join(MODES)}; found {self.mode!r}")
        if self.unit not in UNITS:
            raise ValueError(f"unit: must be one of {', '.join(UNITS)}; found {self.unit!r}")
        if not hasattr(self.references, "characteristics"):
            raise ValueError(f"references: measured jobs, given in code only; found {self.references!r}")

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Algorithms 2 and 3 for one round; every grant names its product."""
        table = snapshot.table
        free = dict(table.products)
        granted: dict[int, Choice] = {}
        order = [int(row) for row in np.lexsort((np.arange(len(table)), -table.priority))]
        # what was decided before stays, unless decisions may change
        for row in [] if self.cd else order:
            kept = self._kept(row, snapshot)
            if kept is not None:
                granted[row] = kept
                if kept.beside is None:
                    free[kept.product] = free.get(kept.product, 0) - kept.gpus
        # Algorithm 2: in the order of arrival, the best that is free
        waiting = []
        for row in order:
            if row not in granted:
                choice = next(self._choices(row, snapshot, free), None)
                if choice is None:
                    waiting.append(row)
                    continue
                granted[row] = choice
                free[choice.product] -= choice.gpus
        # Algorithm 3: those that wait, beside those that are alone on one GPU
        slow: dict[int, str] = {}
        if self.jp:
            self._pack(granted, waiting, order, snapshot, slow)
        return _shares(granted, waiting, slow, snapshot)

    # ---- Algorithms 1 and 2 ----

    def _choices(self, row: int, snapshot: SharingSnapshot, free: Mapping[str, int]) -> Iterator[Choice]:
        """Grants that are free for a job, from the best down; at last, as requested on what nobody has measured."""
        table = snapshot.table
        job, unit = snapshot.jobs[table.keys[row]], int(table.unit[row])
        model = self.reference(job)
        if model is not None:
            counts = tuple(c * unit for c in self._counts(table, row))
            chosen = self.mode == "gpu_ngpu_bs" and bool(job.batch_sizes)
            batches = (*job.batch_sizes, job.batch or job.batch_sizes[0]) if chosen else (self._own(job),)
            products = tuple(sorted((*known(p, self.references), p) for p in table.products))
            for product, gpus, size in ranked(
                self.references, self.unit, model, products, counts, tuple(sorted(set(batches)))
            ):
                if gpus <= free[product]:
                    memory = self.references.memory(model, size / gpus)
                    own = size == job.batch or not chosen
                    yield Choice(product, gpus, 0 if own else size, memory, model, size)
            rest = [p for p in table.products if not any(known(p, self.references))]
        else:
            for speed, gpus, product in _measured(job, self._counts(table, row), table.products):
                if gpus * unit <= free[product] and speed < 0.0:
                    yield Choice(product, gpus * unit, 0, 0, "", job.batch)
            rest = [p for p in table.products if all(c.product != p for c, _ in alone(job.samples))]
        for product in sorted(rest, key=lambda p: (-free[p], p)):
            if int(table.request[row]) * unit <= free[product]:
                yield Choice(product, int(table.request[row]) * unit, 0, 0, "", job.batch)

    def _own(self, job: Job) -> int:
        """Its batch size, and where that is not known the one it is taken for."""
        return job.batch or max(job.batch_sizes or self.references.batches)

    def _counts(self, table: Table, row: int) -> tuple[int, ...]:
        """Replicas that the job may have: those that were asked for, or any that its owner allows."""
        if self.mode == "gpu":
            return (int(table.request[row]),)
        min_count, max_count = int(table.min[row]), int(table.max[row])
        return tuple(
            c for c in table.sizes.get(row, range(min_count, max_count + 1)) if min_count <= c <= max_count
        )

    def reference(self, job: Job) -> str | None:
        """Algorithm 1: the reference that is nearest to the job's model, None where nothing is known of it."""
        return reference(self.references, job.model, self.leave_out)

    def _kept(self, row: int, snapshot: SharingSnapshot) -> Choice | None:
        """What a running job has, as a grant."""
        table = snapshot.table
        job, have = snapshot.jobs[table.keys[row]], int(table.have[row])
        if not have:
            return None
        grant = job.grant or Grant()
        model = self.reference(job) or ""
        beside = grant.beside if grant.beside in table.row else None
        gpus = have * int(table.unit[row])
        product = grant.product or product_of(job, snapshot)
        if beside is not None and too_slow(snapshot.jobs[beside], job, product):
            return None
        return Choice(product, gpus, grant.batch, grant.gpu_memory, model, grant.batch or job.batch, beside)

    # ---- Algorithm 3 ----

    def _pack(
        self,
        granted: dict[int, Choice],
        waiting: list[int],
        order: Sequence[int],
        snapshot: SharingSnapshot,
        slow: dict[int, str],
    ) -> None:
        """Each job alone on one GPU, first first, takes the job that costs it least (then: with the greatest sum).
        slow: takes why one that waits is not to share a GPU with one that it was measured with."""
        table = snapshot.table
        taken = {g.beside for g in granted.values()}
        places = {row: place for place, row in enumerate(order)}
        for row in [r for r in order if r in granted]:
            first = granted[row]
            if not waiting:
                return
            if first.gpus != 1 or first.beside is not None or table.keys[row] in taken or not first.model:
                continue
            if not snapshot.jobs[table.keys[row]].shareable:
                continue
            pairs = [p for other in waiting for p in self._pairs(row, first, other, snapshot, slow)]
            if pairs:
                best = max(pairs, key=lambda p: (p.own, p.both, -places[p.row]))
                granted[best.row] = best.choice
                waiting.remove(best.row)

    def _pairs(
        self, row: int, first: Choice, other: int, snapshot: SharingSnapshot, slow: dict[int, str]
    ) -> Iterator[Pair]:
        """Ways in which a waiting job may run beside `first`, within the GPU's memory."""
        table = snapshot.table
        job = snapshot.jobs[table.keys[other]]
        model = self.reference(job)
        if model is None or int(table.unit[other]) != 1 or 1 not in self._counts(table, other):
            return
        if not job.shareable:
            return
        here = snapshot.jobs[table.keys[row]]
        if why := too_slow(here, job, first.product):
            slow[other] = why
            return
        used = here.gpu_memory if not first.batch and here.gpu_memory else first.memory
        # What its owner declares is of its own batch size, whatever that is; a trace says of which.
        declared = job.gpu_memory if job.batch or elastic_role(job).devices else 0
        for size, memory, own, both in pairings(
            self.references, self.unit, first.product, (first.model, first.size), used,
            (model, self._own(job)), declared, job.batch_sizes, self.mode == "gpu_ngpu_bs",
            parts_kept(here, job, first.product),
        ):  # fmt: skip
            batch = 0 if size == job.batch or not job.batch_sizes else size
            choice = Choice(first.product, 1, batch, memory, model, size, table.keys[row])
            yield Pair(own, both, other, choice)


class Choice(NamedTuple):
    """What a job gets: product as the nodes are labelled; batch: 0 = its own; memory: MiB of each GPU, 0 = as the job
    says; model, size: the reference that stands for it, and its batch size."""

    product: str
    gpus: int
    batch: int
    memory: int
    model: str
    size: int
    beside: JobKey | None = None


class Pair(NamedTuple):
    """own: throughput left to the first job; both: the sum; row: of the second one."""

    own: float
    both: float
    row: int
    choice: Choice


def product_of(job: Job, snapshot: Snapshot) -> str:
    """The product of the first node that the job is on."""
    nodes = snapshot.nodes
    on = [m.node for m in elastic_role(job).members if m.phase is Phase.BOUND] + [
        h.node for h in job.reservations
    ]
    names = sorted(name for name in on if name in nodes.index)
    return nodes.records[nodes.index[names[0]]].labels.get(PRODUCT, "") if names else ""


def _measured(job: Job, counts: Sequence[int], products: Mapping[str, int]) -> list[tuple[float, int, str]]:
    """(- iterations/s, replicas, product) of what was measured of the job itself, the best first."""
    return sorted(
        (-speed, config.replicas, config.product)
        for config, speed in alone(job.samples)
        if config.replicas in counts and config.product in products
        if config.batch in (0, job.batch)
    )


def _shares(
    granted: Mapping[int, Choice], waiting: Sequence[int], slow: Mapping[int, str], snapshot: SharingSnapshot
) -> Grants:
    table = snapshot.table
    replicas = np.zeros(len(table), dtype=np.int64)
    grants, why = {}, {}
    for row, choice in granted.items():
        replicas[row] = max(1, choice.gpus // int(table.unit[row]))
        memory = choice.memory if choice.batch else 0
        grants[row] = Grant(
            product=choice.product, batch=choice.batch, beside=choice.beside, gpu_memory=memory
        )
    for row in waiting:
        why[row] = slow.get(row) or "no GPUs of a product that it may use are free in this round"
    return Grants(replicas, grants, why, whole=True)
