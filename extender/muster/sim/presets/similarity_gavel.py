"""Model similarity on measured speeds: Gavel's table (seven models, V100, P100, K80, packed pairs) instead of a law.

table: the file simulation_throughputs.json[.gz]; without one it is looked for in the folder of data (TRACES, else
../shared/data). jobs: drawn uniformly from the table's 26 configurations and, where they were measured, 1, 2 or 4
GPUs; alone on one V100 (or the fastest product that runs it) one takes `shortest` to `longest` s, log-uniform.
Cluster: 4 V100, 4 P100, 8 K80, one node each.

The policy is given this table as its references (`MeasuredReferences`), since its own know CNNs only:
`build("similarity", {"similarity": {"references": references(table)}})`. Characteristics are worked out from the
published architectures, roughly, and matter only where a job's own model is left out. What does not fit
the memory of a GPU has speed 0 in the table; memory is not known otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from muster.sim.models import gavel
from muster.sim.options import Options
from muster.sim.physics import Standard
from muster.sim.presets.similarity import CHANGES, parts
from muster.sim.submission import Model, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config

OPTIONS = Options(round=180.0)
COUNTS = {"v100": 4, "p100": 4, "k80": 8}
CHARACTERISTICS: Mapping[str, tuple[float, float]] = {
    "ResNet-18": (41, 11.2),  # layers as Table 2 counts them: convolutions, norms, the last one
    "ResNet-50": (107, 25.6),
    "Transformer": (126, 49.0),
    "LM": (4, 14.0),
    "Recommendation": (2, 8.2),
    "A3C": (7, 0.6),
    "CycleGAN": (58, 28.3),
}
"""(layers, parameters in millions)."""


@dataclass(frozen=True)
class MeasuredReferences:
    """Gavel's table as `muster.policylib.references.References`: batch sizes are of one GPU, those of others 0."""

    models: Mapping[str, gavel.Configuration] = field(hash=False, repr=False)

    @property
    def characteristics(self) -> Mapping[str, Sequence[float]]:
        return CHARACTERISTICS

    @property
    def products(self) -> Sequence[str]:
        return tuple(COUNTS)

    @cached_property
    def batches(self) -> Sequence[int]:
        """Every size that some model was measured at; a model's speed at another is 0."""
        return tuple(sorted({parts(short(name))[1] for name in self.models}))

    @property
    def most(self) -> int:
        return 8

    def speed(
        self, model: str, product: str, gpus: int, batch: int, beside: tuple[str, int] | None = None
    ) -> float:
        """Samples/s. The table counts iterations of one GPU's batch, of all GPUs together."""
        found = self.models.get(long(model, batch))
        if found is None:
            return 0.0
        other = long(*beside) if beside is not None else ""
        return batch * found.speed(Config((("worker", gpus),), (gpus,), product, beside=other))

    def memory(self, model: str, batch: float) -> int:  # noqa: ARG002
        """Not known: what does not fit has speed 0."""
        return 0

    def room(self, product: str) -> int:  # noqa: ARG002
        return 1


@dataclass(frozen=True, slots=True)
class Training:
    """A configuration, "ResNet-18@16": samples/s, so that a change of the batch size makes nothing shorter."""

    name: str
    references: MeasuredReferences
    max: int

    def speed(self, config: Config) -> float:
        """Samples/s."""
        model, batch = parts(self.name)
        beside = parts(config.beside) if config.beside else None
        return self.references.speed(model, config.product, config.replicas, config.batch or batch, beside)


def short(name: str) -> str:
    """ "ResNet-18 (batch size 16)" as "ResNet-18@16"; one without a size as "A3C@1"."""
    model, _, rest = name.partition(" (batch size ")
    return f"{model}@{int(rest.rstrip(')')) if rest else 1}"


def long(model: str, batch: int) -> str:
    """The table's own name."""
    return f"{model} (batch size {batch})" if batch > 1 else model


def references(table: str = "") -> MeasuredReferences:
    """The table as references. Raises muster.sim.traces.source.UnreadableError."""
    folder = Path(os.environ.get("TRACES", "../shared/data"))
    path = Path(table) if table else folder / "gavel" / "simulation_throughputs.json.gz"
    found = gavel.read(path)
    return MeasuredReferences({n: m for n, m in found.items() if isinstance(m, gavel.Configuration)})


def workload(
    seed: int = 0,
    jobs: int = 25,
    span: float = 0.0,
    shortest: float = 600.0,
    longest: float = 6000.0,
    table: str = "",
) -> Workload:
    """The jobs of one repetition; span: s over which they are submitted at a regular pace."""
    measured = references(table)
    names = [short(name) for name in measured.models]
    rng = np.random.default_rng([seed, jobs])
    models: dict[str, Model] = {}
    submissions = []
    digits = len(str(jobs))
    for i in range(jobs):
        name = names[int(rng.integers(len(names)))]
        model, batch = parts(name)
        counts = [n for n in (1, 2, 4) if any(measured.speed(model, p, n, batch) for p in COUNTS)]
        request = counts[int(rng.integers(len(counts)))]
        length = shortest * (longest / shortest) ** float(rng.random())
        alone = next(s for p in COUNTS if (s := measured.speed(model, p, 1, batch)) > 0.0)
        models[name] = Training(name, measured, counts[-1])
        submissions.append(
            Submission(
                name=f"job-{i + 1:0{digits}d}",
                submitted=span * i / max(1, jobs - 1),
                model=name,
                work=length * alone,
                request=request,
                max=counts[-1],
                sizes=tuple(counts),
                batch=batch,
                batch_sizes=tuple(measured.batches),
                tags={"profiled": 1.0},
            )
        )
    groups = tuple(Group(1, gpus, product) for product, gpus in COUNTS.items())
    origin = f"similarity on Gavel's table, seed {seed}"
    return Workload(submissions, models, cluster=Cluster(groups), origin=origin, physics=Standard(CHANGES))
