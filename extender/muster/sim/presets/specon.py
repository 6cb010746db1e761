"""SpeCon's experiments: containers that share the CPU of 4 or 8 workers (specon.txt, section VI).

experiment: `fixed` (20 VAE, one every 50 s; Fig. 5), `vae` (20 VAE at random within 300 s; Table III), `mixed-20`
(Fig. 6), `mixed-30` (Fig. 7) and `mixed-50` (8 workers; Fig. 12): models and platforms drawn uniformly from
Table II, submissions uniformly from [0, 300], [0, 600], [0, 1200] s.

What the paper gives: 16 cores a worker (two 8-core processors), round-robin first placement, save and resume in less
than 5 s (Figs. 2 and 3; the bound is used), and that the first fifth of a training alone brings 65 % (VAE), 98 %
(Bi-RNN) and 90 % (GRU) of the reduction of E (section III-A, Fig. 1).

What it leaves open, and is assumed (none of it chosen by what SpeCon gains):
- How containers share: equally, each able to use the whole node, and each costs the others a part of it (`CpuShares`,
  `overhead`). For `fixed` both this and the length of a VAE alone are fitted to what the paper prints of Fig. 5's
  *default* scheduler: 9 jobs at 226 s (18.3 s are 8.1 %), 11 at 313 s (83.6 s are 26.7 %), the worst at 348.7 s, the
  last one's end at 1260 s. `FITTED` are the lengths for the overheads that fit about as well; 0.5 is the best.
- By how much containers of one image differ in length: each takes from 1 - `variation` to 1 + `variation` of it.
- For the random experiments nothing of the default scheduler tells length and overhead apart: `BY_AVERAGE` are the
  lengths for overheads with which the default scheduler has Fig. 5's average; none is the default. (The overhead
  above, with seven containers on a node, would give many times the times that are printed: at 0.2, 30 mixed jobs
  take 2.5 times theirs. 50 mixed ones take theirs at 0.1 to 0.2, 30 less than theirs at none.)
- The other models' lengths: the paper has none. Evenly spread about the VAE's from `1 - spread` to `1 + spread` of
  it, a simple cell first, the one with two directions last. Both platforms alike.
- The form of E: exponential (`curve="hyperbolic"`: 1/(1 + a x), as Optimus and SLAQ fit SGD) through those points,
  from 1 to 0. RNN like Bi-RNN, Dynamic RNN like GRU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.sim.physics import MOVE, Cost, Running, Standard
from muster.sim.submission import RoleSpec, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config, NodeRecord

BY_AVERAGE = {0.0: 215.0, 0.1: 211.0, 0.2: 208.0}
"""Seconds of a VAE alone on a worker, by Fig. 5's average of the default scheduler (275.2 s), by the overhead of a
container beyond the first."""
VAE_ALONE = BY_AVERAGE[0.0]
FITTED = {0.4: 204.5, 0.5: 203.25, 0.6: 202.5}
"""The same by all that is printed of Fig. 5's default scheduler."""
SAVE_AND_RESUME = 5.0
REDUCED = {"VAE": 0.65, "Bi-RNN": 0.98, "GRU": 0.90, "RNN": 0.98, "Dynamic RNN": 0.90}
"""Part of E's whole reduction after a fifth of the training."""
BY_COST = ("RNN", "Dynamic RNN", "VAE", "GRU", "Bi-RNN")
PLATFORMS = ("P", "T")


@dataclass(frozen=True, slots=True)
class Experiment:
    """jobs on so many workers; every: s between two submissions, or drawn from [0, span]. mixed: Table II."""

    jobs: int
    workers: int
    every: float = 0.0
    span: float = 0.0
    mixed: bool = False


EXPERIMENTS = {
    "fixed": Experiment(20, 4, every=50.0),
    "vae": Experiment(20, 4, span=300.0),
    "mixed-20": Experiment(20, 4, span=300.0, mixed=True),
    "mixed-30": Experiment(30, 4, span=600.0, mixed=True),
    "mixed-50": Experiment(50, 8, span=1200.0, mixed=True),
}


@dataclass(frozen=True, slots=True)
class Training:
    """A model whose iteration is a second alone on a worker. length: s alone; rate: of its curve, see `fitted`."""

    name: str
    length: float
    rate: float
    hyperbolic: bool = False
    max: int = 1
    steps_per_epoch: float = 0.0

    def speed(self, config: Config) -> float:  # noqa: ARG002
        """Alone; what neighbours take is the law's."""
        return 1.0

    def loss(self, step: float) -> float:
        """E, from 1 to 0."""
        done = min(1.0, step / self.length)
        if self.hyperbolic:
            last = 1.0 / (1.0 + self.rate)
            return (1.0 / (1.0 + self.rate * done) - last) / (1.0 - last)
        last = math.exp(-self.rate)
        return (math.exp(-self.rate * done) - last) / (1.0 - last)

    def memory(self, batch: int) -> int:  # noqa: ARG002
        """No GPU."""
        return 0


def fitted(reduced: float, hyperbolic: bool = False) -> float:
    """The rate of a curve from 1 to 0 that has come down by `reduced` after a fifth of the way.

    Hyperbolic: a = (r - 1/5) / (1/5 (1 - r)). Exponential: by bisection (the left side grows with k).
    """
    if hyperbolic:
        return (reduced - 0.2) / (0.2 * (1.0 - reduced))
    low, high = 1e-6, 700.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if math.expm1(-0.2 * middle) / math.expm1(-middle) < reduced:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class CpuShares:
    """Containers without limits share a node's CPU equally, none gets more than it can use (max-min).

    demand: part of a node that one container can use alone. overhead: part of the node that each container beyond
    the first costs all of them (caches, switches): capacity 1 / (1 + overhead (n - 1)); none is assumed.
    """

    demand: float = 1.0
    overhead: float = 0.0

    def factors(self, node: NodeRecord, running: Sequence[Running]) -> Sequence[float]:  # noqa: ARG002
        """The same for all: they are alike in what they could use."""
        count = len(running)
        capacity = 1.0 / (1.0 + self.overhead * max(0, count - 1))
        share = min(self.demand, capacity / max(1, count))
        return [share / self.demand] * count


def workload(
    seed: int = 0,
    experiment: str = "fixed",
    spread: float = 0.5,
    curve: str = "exponential",
    demand: float = 1.0,
    overhead: float = 0.0,
    alone: float = VAE_ALONE,
    variation: float = 0.0,
) -> Workload:
    """One of EXPERIMENTS; the other parameters are the assumptions of the module's head.

    Raises ValueError for an experiment or a curve that is not known, or a variation that is none.
    """
    if not 0.0 <= variation < 1.0:
        raise ValueError(f"variation: must be from 0 to below 1; found {variation:g}")
    if experiment not in EXPERIMENTS:
        raise ValueError(f"experiment: must be one of {', '.join(EXPERIMENTS)}; found {experiment!r}")
    if curve not in ("exponential", "hyperbolic"):
        raise ValueError(f"curve: must be exponential or hyperbolic; found {curve!r}")
    plan = EXPERIMENTS[experiment]
    models = trainings(alone, spread, curve == "hyperbolic")
    rng = np.random.default_rng([seed, sorted(EXPERIMENTS).index(experiment)])
    times = [plan.every * i for i in range(plan.jobs)]
    if not plan.every:
        times = sorted(rng.uniform(0.0, plan.span, plan.jobs).tolist())
    names = sorted(models) if plan.mixed else ["VAE-P"]
    drawn = [names[int(i)] for i in rng.integers(len(names), size=plan.jobs)]
    digits = len(str(plan.jobs))
    container = (RoleSpec("worker", 1, 1, gpus=0, cpu=100, memory=1 << 30),)
    if variation:
        factors = np.random.default_rng([seed, 99]).uniform(1.0 - variation, 1.0 + variation, plan.jobs)
        drawn = [f"{model}-{i + 1}" for i, model in enumerate(drawn)]
        kinds = [models[name.rpartition("-")[0]] for name in drawn]
        models = {
            name: replace(kind, name=name, length=kind.length * float(factor))
            for name, kind, factor in zip(drawn, kinds, factors, strict=True)
        }
    jobs = [
        Submission(
            name=f"job-{i + 1:0{digits}d}",
            submitted=time,
            model=model,
            work=models[model].length,
            roles=container,
            known=False,
            tags={"resize": "restart"},
        )
        for i, (time, model) in enumerate(zip(times, drawn, strict=True))
    ]
    return Workload(
        jobs,
        models,
        cluster=Cluster((Group(plan.workers, gpus=0, cpu=16_000),)),
        origin=f"specon {experiment}, seed {seed}",
        physics=Standard({("", MOVE): Cost(pause=SAVE_AND_RESUME)}, law=CpuShares(demand, overhead)),
    )


def trainings(alone: float, spread: float, hyperbolic: bool) -> dict[str, Training]:
    """Table II on both platforms: "VAE-P", "VAE-T", ..."""
    middle = BY_COST.index("VAE")
    lengths = {m: alone * (1.0 + spread * (i - middle) / middle) for i, m in enumerate(BY_COST)}
    return {
        f"{m}-{p}": Training(f"{m}-{p}", lengths[m], fitted(REDUCED[m], hyperbolic), hyperbolic)
        for m in BY_COST
        for p in PLATFORMS
    }
