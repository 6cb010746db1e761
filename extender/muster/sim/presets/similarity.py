"""Model similarity's jobs: CNNs on CIFAR-10, and six GPU products in one cluster (sections 5.1 and 5.2, Table 2).

jobs: 25, 50, 100 or 200, drawn uniformly from the 1680 tuples of Table 2 (model, batch size, product, GPUs; the
product is what the user had in mind: every policy may choose another). span: s over which they are submitted at a
regular pace (0, 420 or 900). Cluster: 2 A100, 2 A40, 2 GTX 1080 Ti, 2 K40M, 4 RTX 2080 Ti, 4 T4, each on one node.

What the paper leaves open, and is assumed (none of it chosen by what the policy gains):
- Speeds: the authors' measurements are not in the paper; the law of `muster.policylib.references`, which the policy's
  reference table follows too (as the paper's simulation used one set of measurements for both).
- Length: `epochs` of 60,000 images (the paper's number). 50 epochs take 9 minutes on the best GPU in the median (1 to
  73), 44 on a K40M, so a round of 3 minutes is felt and does not rule.
- counts="samples": a job ends when it has seen its samples. "steps": when it has made as many iterations as it
  would have at its own batch size, as in the paper's framework; then a smaller batch makes a job shorter.
- Saving and resuming: "a few seconds each time" (section 4.2): 5 s at each change, none at the first start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from muster.policylib.references import BATCHES, CNNS, GPUS, PAPER, Law
from muster.sim.options import Options
from muster.sim.physics import CHANGE, GROW, MOVE, RESUME, SHRINK, Cost, Standard
from muster.sim.submission import Model, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config

OPTIONS = Options(round=180.0)
COUNTS = {"A100": 2, "A40": 2, "GTX1080Ti": 2, "K40M": 2, "RTX2080Ti": 4, "T4": 4}
IMAGES = 60_000
SAVE_AND_RESUME = 5.0
CHANGES = {("", kind): Cost(pause=SAVE_AND_RESUME) for kind in (CHANGE, GROW, MOVE, RESUME, SHRINK)}


@dataclass(frozen=True, slots=True)
class Training:
    """A CNN at its user's batch size, "VGG16@128". An iteration of it is a sample, or a step (`steps`)."""

    name: str
    steps: bool = False
    law: Law = PAPER
    max: int = 4

    @property
    def steps_per_epoch(self) -> float:
        """Iterations in IMAGES."""
        return IMAGES / parts(self.name)[1] if self.steps else float(IMAGES)

    def speed(self, config: Config) -> float:
        """Samples/s or steps/s."""
        model, batch = parts(self.name)
        batch = config.batch or batch
        beside = parts(config.beside) if config.beside else None
        speed = self.law.speed(model, config.product, config.replicas, batch, beside)
        return speed / batch if self.steps else speed

    def memory(self, batch: int) -> int:
        """MiB of one replica."""
        return self.law.memory(parts(self.name)[0], batch)


def parts(name: str) -> tuple[str, int]:
    """Model and batch size of "VGG16@128", or of "VGG16@128@64" where 128 is overridden by 64."""
    model, *batches = name.split("@")
    return model, int(batches[-1])


def workload(
    seed: int = 0,
    jobs: int = 25,
    span: float = 0.0,
    epochs: float = 50.0,
    counts: str = "samples",
    launch: float = PAPER.launch,
    reached: float = PAPER.reached,
) -> Workload:
    """The jobs of one repetition. launch, reached: of the law (the policy's references keep to theirs).

    Raises ValueError where counts is neither samples nor steps.
    """
    if counts not in ("samples", "steps"):
        raise ValueError(f"counts: must be samples or steps; found {counts!r}")
    tuples = [
        (model, batch, gpus)
        for model in CNNS
        for batch in BATCHES
        for most in COUNTS.values()
        for gpus in range(1, most + 1)
    ]
    rng = np.random.default_rng([seed, jobs])
    models: dict[str, Model] = {}
    law = Law(launch, reached)
    submissions = []
    digits = len(str(jobs))
    for i in range(jobs):
        model, batch, gpus = tuples[int(rng.integers(len(tuples)))]
        name = f"{model}@{batch}"
        models[name] = Training(name, counts == "steps", law)
        submissions.append(
            Submission(
                name=f"job-{i + 1:0{digits}d}",
                submitted=span * i / max(1, jobs - 1),
                model=name,
                work=epochs * IMAGES / (batch if counts == "steps" else 1),
                request=gpus,
                max=4,
                batch=batch,
                batch_sizes=BATCHES,
                gpu_memory=PAPER.memory(model, batch),
                tags={"profiled": 1.0},  # the baselines know measured speeds beforehand (section 6.2)
            )
        )
    return Workload(
        submissions, models, cluster=cluster(COUNTS), origin=f"similarity, seed {seed}",
        physics=Standard(CHANGES),
    )  # fmt: skip


def cluster(counts: Mapping[str, int]) -> Cluster:
    """One node for each product."""
    return Cluster(tuple(Group(1, gpus, product, GPUS[product].memory) for product, gpus in counts.items()))
