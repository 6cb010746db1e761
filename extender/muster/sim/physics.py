"""The truth in a simulation: how fast jobs run, what a change of configuration costs, what training reports.

No policy sees any of it; what it may see are the reports, in `Job.report` and `Job.samples`. A workload preset
brings a Physics of its own (`Workload.physics`), or fields of `Standard`; without one the costs are the user's
(`Options`), see `by_options`.

A change of configuration has two phases. *prepare*: seconds in which the new replicas are made ready on nodes
that the old configuration still uses (SideCar's hand-over: two containers, one of them training); the old
configuration goes on. *pause*: from the hand-over on, seconds in which the job holds its new GPUs and makes
no progress. A GPU is never used by two jobs: where one job's new replicas take over another's GPUs, all changes
that hang together by nodes are handed over at one time, when the last of them is ready.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from muster.sim.submission import Model, Submission
from muster.types import Config, NodeRecord, Report

if TYPE_CHECKING:
    from muster.sim.options import Options

RESTART, IN_PLACE, HAND_OVER = "restart", "in-place", "hand-over"
"""The mechanisms of a change (Profile.resize)."""
START, RESUME, GROW, SHRINK, MOVE, CHANGE, STOP = (
    "start",
    "resume",
    "grow",
    "shrink",
    "move",
    "change",
    "stop",
)
BIND = "bind"
"""Kinds of a change: first start; start after it had waited; more replicas; fewer; the same number on other
nodes; anything else (batch size, roles traded for each other); back to the gate, whole; BIND: it has some
places, but not all that it needs to run (costs nothing, and physics is not asked)."""


@dataclass(frozen=True, slots=True)
class Running:
    """A job as it runs or is about to. `config.product` is the slowest of the products that it uses (found by
    the model's speed), `nodes` the name of the node of each replica, sorted; step: iterations done; now: s."""

    index: int
    submission: Submission
    model: Model
    config: Config
    nodes: tuple[str, ...]
    step: float
    now: float


class Stage(NamedTuple):
    """How a job goes on while nothing around it changes.

    speed: iterations/s. until: the step at which its epoch ends or its speed changes (inf = never). work: the
    step at which it is done. whole: whether until and work are reached on whole seconds (to the nearest, half to
    even, as in the Pollux artifact's simulator).
    """

    speed: float
    until: float
    work: float
    whole: bool = False


class Change(NamedTuple):
    """One job's change: from `before` (None: it waited) to `after.config`. mechanism: the profile's.

    freed: s since another job last left one of the nodes that it goes to (inf: none ever did). ran: what it ran in
    last, also if it has waited since (None: it never ran). leaves: whether it leaves all nodes that it is on.
    """

    kind: str
    mechanism: str
    before: Config | None
    after: Running
    freed: float = math.inf
    ran: Config | None = None
    leaves: bool = False


class Cost(NamedTuple):
    """prepare and pause in s (see above); lost: whether the work since the last checkpoint is done again.

    release: s from the hand-over until GPUs that this job leaves can be used: who takes them over pauses at least
    so long. anew: whether its pods end for it, and its run begins again.
    """

    prepare: float = 0.0
    pause: float = 0.0
    lost: bool = False
    release: float = 0.0
    anew: bool = False


class Physics(Protocol):
    """What an engine on nodes asks.

    shared: jobs that share a node slow each other down: `stages` is given all jobs that hang together by nodes,
    whenever one of them changes. Otherwise each is asked for alone (a neighbour on the same GPU is in its
    config). Jobs in a pause are left out. checkpoint: s of running between two checkpoints, 0 = nothing is
    ever lost. talkative: jobs report at every cycle, those that never ran too (else where something changed, or
    the model has a loss or epochs). steady: but a report has nothing new while a stage lasts. pauses_tell: the end
    of a pause is an event for the scheduler, so a cycle is run then; not where the user's options set pauses of one
    length, since nothing new is known.
    """

    @property
    def shared(self) -> bool: ...
    @property
    def checkpoint(self) -> float: ...
    @property
    def talkative(self) -> bool: ...
    @property
    def steady(self) -> bool: ...
    @property
    def pauses_tell(self) -> bool: ...
    def stages(self, running: Sequence[Running], nodes: Mapping[str, NodeRecord]) -> Sequence[Stage]: ...
    def cost(self, change: Change) -> Cost: ...
    def report(self, running: Running, stage: Stage, *, boundary: bool) -> Report: ...


class Law(Protocol):
    """How jobs slow each other down on a node: a factor on each one's own speed, in the order given.

    Asked for whenever a job starts, ends, pauses or goes on there; a job on several nodes runs at its least factor.
    """

    def factors(self, node: NodeRecord, running: Sequence[Running]) -> Sequence[float]: ...


@dataclass(frozen=True)
class Standard:
    """Speeds from the model, costs from a table, exact reports.

    costs: by (mechanism, kind), else by ("", kind), else nothing. whole_epochs: epochs end on whole seconds.
    law: of contention on a node. talkative, steady, pauses_tell: as in Physics.
    """

    costs: Mapping[tuple[str, str], Cost] = field(default_factory=dict)
    checkpoint: float = 0.0
    whole_epochs: bool = False
    law: Law | None = None
    talkative: bool = False
    steady: bool = False
    pauses_tell: bool = True

    @property
    def shared(self) -> bool:
        """Whether jobs on one node slow each other down."""
        return self.law is not None

    def stages(self, running: Sequence[Running], nodes: Mapping[str, NodeRecord]) -> Sequence[Stage]:
        """The model's speed, to the end of the epoch or of the work, times what the law leaves of it."""
        stages = [stage_of(job, whole=self.whole_epochs) for job in running]
        if self.law is None:
            return stages
        factors = [1.0] * len(running)
        for name in dict.fromkeys(name for job in running for name in job.nodes):
            here = [i for i, job in enumerate(running) if name in job.nodes]
            left = self.law.factors(nodes[name], [running[i] for i in here])
            for i, factor in zip(here, left, strict=True):
                factors[i] = min(factors[i], factor)
        return [
            stage._replace(speed=stage.speed * factor) for stage, factor in zip(stages, factors, strict=True)
        ]

    def cost(self, change: Change) -> Cost:
        """From the table."""
        found = self.costs.get((change.mechanism, change.kind))
        return found or self.costs.get(("", change.kind)) or Cost()

    def report(self, running: Running, stage: Stage, *, boundary: bool) -> Report:
        """What the training knows: step, epoch, its loss curve, and its speed while it makes progress."""
        return report_of(running, stage, boundary=boundary)


def stage_of(job: Running, *, whole: bool = False) -> Stage:
    """The stage of a job alone. A model may have, beside `speed(config)`, any of:

    speed_at(config, step): iterations/s in the epoch that holds this step; epoch_end(step): the step at which that
    epoch ends (else multiples of steps_per_epoch); work_at(config): the step at which it is done in this
    configuration (else the submission's work).
    """
    model, config = job.model, job.config
    speed_at = getattr(model, "speed_at", None)
    speed = model.speed(config) if speed_at is None else speed_at(config, job.step)
    work_at = getattr(model, "work_at", None)
    work = job.submission.work if work_at is None else work_at(config)
    watched = whole or speed_at is not None or stops(job.submission)
    return Stage(speed, min(epoch_end(model, job.step), work) if watched else work, work, whole)


def stops(submission: Submission) -> bool:
    """Whether a policy looks at the ends of the job's epochs: it may only change there, or wants to see them."""
    return submission.tags.get("resize_at") == "boundary" or bool(submission.tags.get("epochs"))


def epoch_end(model: Model, step: float) -> float:
    """The step at which the epoch that holds `step` ends, inf for a model without epochs."""
    own = getattr(model, "epoch_end", None)
    if own is not None:
        return float(own(step))
    length = float(getattr(model, "steps_per_epoch", 0.0))
    if length <= 0.0:
        return math.inf
    return length * (math.floor(step / length + EPSILON) + 1)


EPSILON = 1e-9
"""A step that is this near to the end of an epoch has ended it (relative; sums of floats are not exact)."""


def epoch_of(model: Model, step: float) -> int:
    """Whole epochs done."""
    own = getattr(model, "epoch", None)
    if own is not None:
        return int(own(step))
    length = float(getattr(model, "steps_per_epoch", 0.0))
    return math.floor(step / length + EPSILON) if length > 0.0 else 0


def report_of(job: Running, stage: Stage, *, boundary: bool) -> Report:
    """An exact report. The total is told only where the submission's length is known."""
    loss = getattr(job.model, "loss", None)
    return Report(
        at=job.now,
        step=job.step,
        total=stage.work if job.submission.known else 0.0,
        epoch=epoch_of(job.model, job.step),
        steps_per_epoch=float(getattr(job.model, "steps_per_epoch", 0.0)),
        loss=None if loss is None else float(loss(job.step)),
        speed=stage.speed,
        boundary=boundary,
    )


def by_options(options: Options) -> Standard:
    """The costs that the user named. A first start costs nothing. With a hand-over the seconds of a change are
    spent before it, while the old configuration goes on; with a restart the work since the last checkpoint
    is lost too."""
    restart = options.restart
    move = restart if options.migrate is None else options.migrate
    costs = {("", RESUME): Cost(pause=restart), ("", STOP): Cost(lost=True)}
    for kind, seconds in ((GROW, restart), (SHRINK, restart), (CHANGE, restart), (MOVE, move)):
        costs[RESTART, kind] = Cost(pause=seconds, lost=True)
        costs[IN_PLACE, kind] = Cost(pause=seconds)
        costs[HAND_OVER, kind] = Cost(prepare=seconds)
    return Standard(costs, options.checkpoint, pauses_tell=False)


def rng(seed: int, job: int, what: str) -> np.random.Generator:
    """Random numbers that depend on nothing but the seed, the job and what they are for."""
    return np.random.default_rng([seed, job, zlib.crc32(what.encode())])
