"""Coach's experiments: parameter-server jobs on three nodes, and its example of a deadlock.

experiment: `static` (section 5: each job asks for two workers and two servers), `dynamic` (Coach chooses the counts
from epoch to epoch: profile `coach`), `deadlock` (section 8: two jobs of one pod of each role, room for four pods).
A job has a scheduler, servers and workers. Source of all section numbers: papers/gang-scheduler-coach.

What the paper gives: three nodes of 32 cores, up to three jobs at once, LeNet (target loss 0.83) and ResNet18 (0.5),
which end when their loss was at the target three epochs running; mini-epochs of 20 to 40 s; one or two workers and
servers (section 6); epochs of 0 to 30 s (LeNet) and 20 to 100 s (ResNet18), jobs of 500 to 1200 s (Figs. 3 and 4).

What the authors' public outputs give (repository Frans-Lukas/DLScheduler, JobHandler/output at 166719b): seconds of
an epoch by workers and servers, `SECONDS`. For each of a model's seven runs of a single job the median of its epochs,
but for the job's first, short one; over the runs the median of these, to a tenth (a unit test works it out again). A
second worker makes an epoch *longer* there, since it shares the node with the first. Mini-epochs take as long as
epochs. Runs differ: 24 to 32 s for LeNet with one of each, so that `seconds` takes one run's own.

What it leaves open, and is assumed here before any policy was run:

- What a pod asks for: `places` pods fit on a node (default 4: a quarter of its cores each), so 12 for the 15 of
  three static jobs. The paper says only that resources were short. A worker also has one of the node's GPUs, since
  Muster shares GPUs; the paper trains on CPUs.
- Several nodes: a tenth slower for ResNet18 (47 MB of gradients over the 110 MB/s that it measured), LeNet not.
- The loss: 1 / (b0 k + b1) + b2 over epochs k, from 2.3 (ten classes, guessing) to the target after 27 (LeNet) and
  10 epochs, with normal noise of 0.02 (`noise`), so that jobs differ in length from seed to seed.
- Jobs are submitted at once (`apart`: 0 s).
- Under the default scheduler a job starts with fewer than its replicas, but one of each role, 60 s after its first
  pod had a place ("a timeout can occur"). The gang scheduler starts it whole.
- Starting and resizing cost nothing: functions stay warm ("the job handler never deletes all pods").
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

from muster.core.progress.fits import reached
from muster.sim.options import Options
from muster.sim.physics import Standard
from muster.sim.submission import RoleSpec, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config

OPTIONS = Options()
STEPS = 100.0
"""Iterations of an epoch: only a unit here."""
MINI_EPOCHS = 4
MOST = 2
"""Workers, and servers, of a job."""
Seconds = tuple[tuple[float, ...], ...]
"""Of an epoch: a row for one worker and one for two, each with one server and with two."""
SECONDS: dict[str, Seconds] = {
    "lenet": ((32.1, 31.4), (34.4, 39.0)),
    "resnet18": ((32.3, 32.0), (52.6, 51.9)),
}
NOISE = 0.02
TIMEOUT = 60.0
CORES = 32_000


@dataclass(frozen=True, slots=True)
class Learner:
    """One job's training: the surface of its speed, and its losses epoch by epoch until it ends.

    seconds: of an epoch, by workers and servers (see SECONDS). losses: after each whole epoch. ends: the steps at
    which epochs end, mini-epochs first. apart: factor on the speed on several nodes.
    """

    name: str
    seconds: Seconds
    losses: tuple[float, ...]
    ends: tuple[float, ...]
    apart: float = 1.0
    steps_per_epoch: float = STEPS
    max: int = MOST

    @property
    def work(self) -> float:
        return self.ends[-1]

    def epochs_a_second(self, workers: int, servers: int) -> float:
        return 1.0 / self.seconds[min(workers, MOST) - 1][min(servers, MOST) - 1]

    def speed(self, config: Config) -> float:
        workers, servers = config.count("worker"), config.count("server")
        if not workers or not servers:
            return 0.0
        factor = self.apart if len(config.nodes) > 1 else 1.0
        return self.epochs_a_second(workers, servers) * factor * self.steps_per_epoch

    def epoch_end(self, step: float) -> float:
        """The step at which the epoch that holds `step` ends."""
        return self.ends[min(len(self.ends) - 1, bisect.bisect_right(self.ends, step + 1e-6))]

    def epoch(self, step: float) -> int:
        """Epochs done, mini-epochs included."""
        return bisect.bisect_right(self.ends, step + 1e-6)

    def loss(self, step: float) -> float:
        """After the last whole epoch; a guess among ten classes before."""
        minis = len(self.ends) - len(self.losses)
        done = self.epoch(step) - minis
        return self.losses[min(done, len(self.losses)) - 1] if done > 0 else 2.3


@dataclass(frozen=True, slots=True)
class Net:
    """A model of the paper: target loss, the loss curve's end and length, speed on several nodes."""

    target: float
    bottom: float
    epochs: int
    apart: float


NETS = {"lenet": Net(0.83, 0.5, 27, 1.0), "resnet18": Net(0.5, 0.2, 10, 0.9)}


def workload(
    seed: int = 0,
    experiment: str = "static",
    model: str = "lenet",
    jobs: int = 3,
    places: int = 4,
    timeout: float = TIMEOUT,
    apart: float = 0.0,
    noise: float = NOISE,
    seconds: Seconds | None = None,
) -> Workload:
    """The jobs and their cluster. places: pods that fit on a node. apart: s from one job's submission to the next's.
    noise: of a loss. seconds: of an epoch, None = the model's SECONDS."""
    if experiment not in ("static", "dynamic", "deadlock"):
        raise ValueError(f"experiment: expected static, dynamic or deadlock, found {experiment!r}")
    if model not in NETS:
        raise ValueError(f"model: expected one of {', '.join(NETS)}, found {model!r}")
    if places < 1 or jobs < 1:
        raise ValueError("expected at least one job, and room for one pod on a node")
    counts = {"static": (MOST, MOST), "dynamic": (MOST, MOST), "deadlock": (1, 1)}[experiment]
    least = 1 if experiment == "dynamic" else counts[0]
    jobs = 2 if experiment == "deadlock" else jobs
    cpu = CORES // places
    roles = (
        RoleSpec("worker", least, counts[0], gpus=1, cpu=cpu),
        RoleSpec("server", least, counts[1], gpus=0, cpu=cpu),
        RoleSpec("scheduler", 1, 1, gpus=0, cpu=cpu),
    )
    tags: dict[str, float | str] = {"epochs": 1.0}
    if experiment == "dynamic":
        tags["resize_at"] = "boundary"  # and the timeout is the policy's
    else:
        tags["timeout"] = timeout
    models = {}
    submissions = []
    for i in range(jobs):
        name, minis = f"{model}-{i}", experiment == "dynamic"
        learner = learner_of(name, model, seed, i, minis=minis, noise=noise, seconds=seconds)
        models[learner.name] = learner
        submissions.append(
            Submission(
                name=f"job-{i}",
                submitted=apart * i,
                model=learner.name,
                work=learner.work,
                request=counts[0],
                max=counts[0],
                roles=roles,
                known=False,
                tags=tags,
            )
        )
    nodes = 1 if experiment == "deadlock" else 3
    cluster = Cluster((Group(nodes, places, cpu=CORES),))
    return Workload(submissions, models, cluster=cluster, origin=f"coach, {experiment}", physics=Standard())


def learner_of(
    name: str,
    model: str,
    seed: int,
    index: int,
    *,
    minis: bool,
    noise: float = NOISE,
    seconds: Seconds | None = None,
) -> Learner:
    """A job with losses of its own: as many epochs as it takes to be at the target three times running."""
    net = NETS[model]
    rng = np.random.default_rng([seed, index])
    b1 = 1.0 / (2.3 - net.bottom)
    b0 = (1.0 / (net.target - net.bottom) - b1) / net.epochs
    losses: list[float] = []
    while not reached(losses, net.target):
        clean = 1.0 / (b0 * (len(losses) + 1) + b1) + net.bottom
        losses.append(float(clean + rng.normal(scale=noise)))
    ends = [STEPS * (i + 1) for i in range(MINI_EPOCHS if minis else 0)]
    start = ends[-1] if ends else 0.0
    ends += [start + STEPS * (k + 1) for k in range(len(losses))]
    return Learner(name, seconds or SECONDS[model], tuple(losses), tuple(ends), net.apart)
