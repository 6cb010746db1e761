"""SideCar's experiments: the case study of two jobs, and workloads 1 to 4 on two clusters of 16 GPUs.

experiment: `case-study` (Table I, Fig. 3) or `1` to `4` (V-A: 40, 20, 40, 40 jobs; 1 and 2 on eight V100 and
eight P100, 3 and 4 on eight V100 and eight K80; 4 with unknown numbers of epochs). Source of all section numbers:
papers/adaptive-gpu-scheduler-sidecar.

What the paper gives: the jobs' models, batch sizes and data sets (Tables VI and VII), epochs (1 of ImageNet, 10 of
Cifar10 and MNIST), arrivals "using an exponential distribution between [0, 11000] seconds", types drawn at random,
the times of Fig. 3, one container a job (so one node), sets of allowed counts (Table III).

What it leaves open, and is assumed here before any policy was run:

- Speed on one GPU: forward and backward pass of 16 images in ms, measured on a Titan X (Pascal) by a public benchmark
  (jcjohnson/cnn-benchmarks), taken for a P100; InceptionV3 from ResNet-50's by the ratio of TensorFlow's published
  P100 figures (219 : 142 images/s); the two small models by what an input pipeline delivers (`small`).
- A V100 is 0.25 / 0.18 times as fast as a P100 (the paper's own Table IV), a K80 0.275 times (the same benchmark
  repeated on cloud GPUs, mean of five models; between 0.25 and 0.31: `k80`).
- Scaling, for all types (Fig. 2 shows that it depends on the batch size, not by how much): the paper has two, and
  they differ. `introduction`: 1.7 times on two GPUs and 2.4 times on four ("in training a ResNet model"), on eight
  2.4 * 2.4 / 1.7, the same step once more. `table-iv`: 1.32 times on two (its profile: 0.25 / 0.19 s on a P100), and
  the same step again for four and for eight.
- Allowed counts: {1, 2, 4, 8} for every job (`sizes`). Table III is only an example; Workload One's text has a job
  that waits for eight GPUs, and two jobs that hold all 16 (VI-A, VI-C).
- Costs: Fig. 3's, whatever the model. A job's end keeps its GPUs 174 - 83 = 91 s when Kubernetes ends it (its pod
  terminates); a SideCar's GPUs are free at once. On another node: a restart, 242 s, under both.
- Workload 4: accuracy follows the curve through the paper's Table V, 0.95 k^0.46 / (k^0.46 + 119) at iteration k of
  its type 0, as a function of the part of the training done; it is not the family that is fitted, so predictions err.
- The case study's speeds: job 1 takes 633 - 83 = 550 s on four GPUs (Fig. 3(a)); job 2 on two 442, 431 and 402 s in
  (a), (b), (c): their mean. What two GPUs are to four is 0.85 by (b) and 0.63 by (c): their mean again, 0.742.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from muster.sim.options import Options
from muster.sim.physics import (
    HAND_OVER,
    MOVE,
    RESTART,
    RESUME,
    SHRINK,
    START,
    Change,
    Cost,
    Running,
    Stage,
    Standard,
)
from muster.sim.submission import Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config, Report

IMAGENET, CIFAR, MNIST = 1_281_167, 50_000, 60_000
SPAN = 11_000.0
P100, V100, K80 = "P100", "V100", "K80"
PRODUCTS = {P100: 1.0, V100: 0.25 / 0.18, K80: 0.275}
TABLE_IV = 0.25 / 0.19
SCALINGS: Mapping[str, Mapping[int, float]] = {
    "introduction": {1: 1.0, 2: 1.7, 4: 2.4, 8: 2.4 * 2.4 / 1.7},
    "table-iv": {1: 1.0, 2: TABLE_IV, 4: TABLE_IV**2, 8: TABLE_IV**3},
}
POD, ENDING = 83.0, 91.0
DOWN, UP = 27.0, 37.0
DOWN_BY_RESTART, UP_BY_RESTART = 204.0, 242.0

OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Kind:
    """A job type of Tables VI and VII. images: a second on one P100; data: images of an epoch."""

    name: str
    batch: int
    images: float
    data: int = IMAGENET
    epochs: int = 1


def _per_pass(ms: float) -> float:
    """Images a second, of the time of 16."""
    return 16.0 / (ms / 1000.0)


RESNET_18, RESNET_34, RESNET_50 = _per_pass(31.54), _per_pass(51.59), _per_pass(103.58)
SET_ONE = (
    Kind("resnet18-64", 64, RESNET_18),
    Kind("resnet18-128", 128, RESNET_18),
    Kind("resnet18-256", 256, RESNET_18),
    Kind("resnet34-64", 64, RESNET_34),
    Kind("resnet34-128", 128, RESNET_34),
    Kind("resnet50-64", 64, RESNET_50),
    Kind("resnet8-1024", 1024, 10_000.0, CIFAR, 10),
)
SET_TWO = (
    Kind("resnet18-256", 256, RESNET_18),
    Kind("resnet34-128", 128, RESNET_34),
    Kind("inception3-128", 128, RESNET_50 * 142.0 / 219.0),
    Kind("vgg16-64", 64, _per_pass(128.62)),
    Kind("googlenet-512", 512, _per_pass(39.14)),
    Kind("alexnet-256", 256, _per_pass(14.56)),
    Kind("lenet-1024", 1024, 20_000.0, MNIST, 10),
)


@dataclass(frozen=True, slots=True)
class Training:
    """Iterations/s by number and product of GPUs; one container, so nothing on two nodes."""

    name: str
    speeds: Mapping[int, float]  # on a P100, iterations/s
    products: Mapping[str, float]
    steps_per_epoch: float
    work: float

    @property
    def max(self) -> int:
        return max(self.speeds)

    def speed(self, config: Config) -> float:
        if len(config.nodes) > 1:
            return 0.0
        return self.speeds.get(config.replicas, 0.0) * self.products.get(config.product, 1.0)

    def loss(self, step: float) -> float:
        """Top-5 accuracy (it rises): Table V's curve, its first epoch stretched over the whole training."""
        if step <= 0.0:
            return 0.0
        x = float((min(1.0, step / self.work) * IMAGENET / 64.0) ** 0.46)
        return 0.95 * x / (x + 119.0)

    def memory(self, batch: int) -> int:  # noqa: ARG002
        """Not a matter of this paper."""
        return 0


@dataclass(frozen=True)
class FigureThree(Standard):
    """What changes cost, in s, by Fig. 3.

    hand-over: a job's pod starts (83) while the running one goes on with its GPUs, which then stops and comes back
    with fewer (27); with more 37. restart: with fewer 204, which the job that takes over waits for too, with more
    242; a start is a pod's (83), and 91 more where another job's pod is still terminating.
    """

    def cost(self, change: Change) -> Cost:
        if change.kind == MOVE:
            return Cost(pause=UP_BY_RESTART)
        moved = change.before is not None and change.before.product != change.after.config.product
        if change.mechanism == HAND_OVER:
            if change.kind in (START, RESUME):
                return Cost(prepare=POD)
            if moved:
                return Cost(pause=UP_BY_RESTART)
            return Cost(pause=DOWN, release=DOWN) if change.kind == SHRINK else Cost(pause=UP)
        if change.mechanism == RESTART and change.kind in (START, RESUME):
            return Cost(pause=POD + max(0.0, ENDING - change.freed))
        if change.kind == SHRINK:
            return Cost(pause=DOWN_BY_RESTART, release=DOWN_BY_RESTART)
        return Cost(pause=UP_BY_RESTART)

    def report(self, running: Running, stage: Stage, *, boundary: bool) -> Report:
        """With the accuracy at which a job of unknown length stops."""
        made = super().report(running, stage, boundary=boundary)
        target = running.submission.tags.get("target")
        return made if target is None else replace(made, target=float(target))


def workload(
    seed: int = 0,
    experiment: str = "1",
    sizes: Sequence[int] = (1, 2, 4, 8),
    span: float = SPAN,
    jobs: int = 0,
    scaling: str = "introduction",
    k80: float = PRODUCTS[K80],
    small: float = 1.0,
) -> Workload:
    """The submissions, models, cluster and costs of one experiment. span: s in which jobs arrive; jobs: another
    number of them than the paper's; scaling: introduction or table-iv; k80: its speed, of a P100's; small: factor on
    the speed of the two models that no benchmark has."""
    if str(experiment) == "case-study":
        return case_study()
    if str(experiment) not in ("1", "2", "3", "4"):
        raise ValueError(f"experiment: expected case-study, 1, 2, 3 or 4, found {experiment!r}")
    if scaling not in SCALINGS:
        raise ValueError(f"scaling: expected {' or '.join(SCALINGS)}, found {scaling!r}")
    number = int(experiment)
    kinds = SET_ONE if number <= 2 else SET_TWO
    second = P100 if number <= 2 else K80
    jobs = jobs or (20 if number == 2 else 40)
    rng = np.random.default_rng(
        [seed, 1 if number == 1 else 2 if number == 2 else 3]
    )  # 4 is 3 without lengths
    gaps = rng.exponential(size=jobs + 1)
    arrivals = np.cumsum(gaps)[:-1] * span / gaps.sum()  # exponential gaps, conditioned on their sum
    drawn = rng.integers(len(kinds), size=jobs)
    products = {**PRODUCTS, K80: k80}
    models = {}
    for kind in kinds:
        speed = kind.images * (small if kind.data != IMAGENET else 1.0)
        models[kind.name] = training(replace(kind, images=speed), sizes, scaling, products)
    submissions = []
    for i in range(jobs):
        model = models[kinds[int(drawn[i])].name]
        known = number != 4
        tags: dict[str, float | str] = {"profiled": 1.0}
        if not known:
            tags["target"] = model.loss(model.work)
        submissions.append(
            Submission(
                name=f"job-{i:02d}",
                submitted=float(arrivals[i]),
                model=model.name,
                work=model.work,
                request=min(sizes),
                min=min(sizes),
                max=max(sizes),
                sizes=tuple(sizes),
                known=known,
                tags=tags,
            )
        )
    cluster = Cluster((Group(1, 8, V100), Group(1, 8, second)))
    return Workload(
        submissions, models, cluster=cluster, origin=f"sidecar, workload {number}", physics=FigureThree()
    )


def accuracies(experiment: str = "4") -> dict[str, list[list[float]]]:
    """The offline profile of accuracies (Table V): after 1, 5, 10 and 20 iterations, by model. It is an argument of
    the policies (`reshape:accuracy`), as speeds are in `Job.samples`."""
    kinds = SET_ONE if str(experiment) in ("1", "2") else SET_TWO
    models = [training(kind, (1,)) for kind in kinds]
    return {m.name: [[float(k), m.loss(float(k))] for k in (1, 5, 10, 20)] for m in models}


def training(
    kind: Kind,
    sizes: Sequence[int],
    scaling: str = "introduction",
    products: Mapping[str, float] = PRODUCTS,
) -> Training:
    """A job type's model, for the allowed counts."""
    speeds, scale = {}, SCALINGS[scaling]
    for count in sizes:
        if count not in scale:
            raise ValueError(f"sizes: expected of {sorted(scale)}, found {count}")
        speeds[count] = scale[count] * kind.images / kind.batch
    steps = kind.data / kind.batch
    return Training(kind.name, speeds, products, steps, steps * kind.epochs)


def case_study() -> Workload:
    """Two jobs on four GPUs (Table I). Work in seconds of the number of GPUs that each asks for."""
    first, second = 633.0 - POD, (442.0 + 431.0 + 402.0) / 3.0
    two = (by_b() + by_c()) / 2.0
    models = {
        "one": Training("one", {1: two * two, 2: two, 4: 1.0}, {}, first, first),
        "two": Training("two", {2: 1.0}, {}, second, second),
    }
    tags: dict[str, float | str] = {"profiled": 1.0}
    submissions = [
        Submission("job-1", 0.0, "one", first, request=4, max=4, sizes=(1, 2, 4), tags=tags),
        Submission("job-2", 180.0, "two", second, request=2, min=2, max=2, sizes=(2,), tags=tags),
    ]
    cluster = Cluster((Group(1, 4),))
    return Workload(submissions, models, cluster=cluster, origin="sidecar, case study", physics=FigureThree())


def by_b() -> float:
    """Job 1 on two GPUs, relative to four, by Fig. 3(b): all but 97 + 86 s of its 550 in 431 s."""
    return (550.0 - (180.0 - POD) - (1143.0 - 1057.0)) / (815.0 - 384.0)


def by_c() -> float:
    """The same by (c): all but 180 + 116 s in 402 s."""
    return (550.0 - 180.0 - (845.0 - 729.0)) / (692.0 - 290.0)
