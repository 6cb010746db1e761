"""Trainings of a paper's own workload on a lab, where they only count: by its models, laws and costs, compressed.

Pure. What `muster simulate` counts a training by (`Workload.models`, `Workload.physics`) counts it here by the pods
that run: their roles, how many they are, the product of their nodes, and who else is there. A job makes no progress
below the minimum of one of its roles. Times are seconds of this machine, `speed` of the trace's go by in one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from e2e.bench.trainings import STARTS, Seen, Trained, Training, Trainings
from muster.sim.physics import (
    CHANGE,
    GROW,
    MOVE,
    RESTART,
    RESUME,
    SHRINK,
    Change,
    Physics,
    Running,
    Stage,
    epoch_of,
)
from muster.sim.submission import RoleSpec, Submission
from muster.sim.workload import Workload
from muster.types import Config, NodeRecord

WORKER = "worker"


@dataclass
class Paced(Training):
    """One job, at the pace that physics gives it. rate: iterations in a second of this machine; runs: in what, None
    below its minimum; ran: the last that it ran in; changed: when that last became another (s); told: epochs of
    which the end was heard."""

    rate: float = 0.0
    runs: Running | None = None
    ran: Running | None = None
    changed: float = -1.0
    told: int = 0

    @property
    def speed(self) -> float:
        return self.rate


class ByPhysics(Trainings):
    """round: as of Trainings; products: GPU product by node; role_of: a pod's role by its name."""

    def __init__(
        self,
        workload: Workload,
        speed: float,
        round: float,
        products: Mapping[str, str],
        role_of: Callable[[str], str],
    ) -> None:
        super().__init__(0.0, round)
        assert workload.physics is not None
        assert not callable(workload.physics)
        self.workload, self.speed = workload, speed
        self._physics: Physics = workload.physics
        self._products, self._role_of = products, role_of
        self._submissions = {one.name: (n, one) for n, one in enumerate(workload.submissions)}
        self._nodes = {name: NodeRecord(name) for name in products}
        self.paced: dict[str, Paced] = {}

    def submitted(self, job: Trained, now: float) -> None:
        super().submitted(job, now)
        self.jobs[job.name] = self.paced[job.name] = Paced(job, now, since=now)

    def saw(self, seen: Seen, now: float) -> None:
        self._to(now)
        super().saw(seen, now)
        self._pace(now)

    def due(self, now: float) -> list[str]:
        """Jobs that are done by now; with who pauses no more, at the pace that others leave it."""
        self._to(now)
        found = list(super().due(now))
        self._pace(now)
        return found

    def tells(self, name: str, now: float) -> dict[str, Any] | None:
        """What the job reports now, None where it makes no progress. What it told of an epoch's end is `heard`."""
        one = self.paced[name]
        if one.runs is None or one.ended is not None or now < one.paused_until:
            return None
        running = one.runs
        model, submission = running.model, running.submission
        stage = Stage(one.rate, submission.work, submission.work)
        boundary = epoch_of(model, one.done) > one.told
        told = self._physics.report(self._at(one, now), stage, boundary=boundary)
        body = {
            "step": told.step,
            "total": told.total,
            "epoch": told.epoch,
            "steps_per_epoch": told.steps_per_epoch,
            "loss": told.loss,
            "boundary": boundary and submission.tags.get("resize_at") == "boundary",
            "workers": running.config.count(WORKER),
        }
        return {key: value for key, value in body.items() if value or key == "step"}

    def heard(self, name: str, epoch: int) -> None:
        """Muster knows that the job has ended so many epochs."""
        self.paced[name].told = epoch

    # ---- inside ----

    def _to(self, now: float) -> None:
        for one in self.paced.values():
            if one.ended is None:
                one.advance(now)

    def _pace(self, now: float) -> None:
        """Who makes progress, and how fast, beside whom."""
        going = [
            one
            for one in self.paced.values()
            if one.runs is not None and one.ended is None and now >= one.paused_until
        ]
        for one in self.paced.values():
            one.rate = 0.0
        stages = self._physics.stages([self._at(one, now) for one in going], self._nodes)
        for one, stage in zip(going, stages, strict=True):
            one.rate = stage.speed * self.speed

    def _beside(self, one: Paced) -> str:  # noqa: ARG002
        """The model of the job on the same GPUs, "" where nobody is: replicas that are pods have them alone."""
        return ""

    def _at(self, one: Paced, now: float) -> Running:
        assert one.runs is not None
        return Running(
            one.runs.index,
            one.runs.submission,
            one.runs.model,
            replace(one.runs.config, beside=self._beside(one)),
            one.runs.nodes,
            one.done,
            now,
        )

    def _count(self, training: Training, now: float) -> None:
        """A change of where or with how many it runs, once it has started, costs what the paper says."""
        assert isinstance(training, Paced)
        training.replicas = len(training.on)
        training.runs = self._running(training, now)
        if training.runs is None:
            return
        before, training.ran = training.ran, training.runs
        if training.started is None:
            training.started = now
        if before is None or now <= training.started + STARTS:
            return
        pause = self._physics.cost(
            Change(kind_of(before, training.runs), RESTART, before.config, training.runs, ran=before.config)
        ).pause
        training.changes += now >= training.paused_until and now > training.changed
        training.changed = now
        training.paused_until = now + pause / self.speed

    def _running(self, training: Paced, now: float) -> Running | None:
        index, submission = self._submissions[training.job.name]
        counts = Counter(self._role_of(pod) for pod in training.on)
        if any(counts[role.name] < role.min for role in roles_of(submission)):
            return None
        nodes = tuple(sorted(training.on.values()))
        # as in the simulator: of several products the one on which the model is slowest
        model = self.workload.models[submission.model]
        configs = [
            Config(
                roles=tuple(sorted(counts.items())),
                nodes=tuple(sorted(Counter(nodes).values(), reverse=True)),
                product=product,
                batch=submission.batch,
            )
            for product in sorted({self._products[node] for node in nodes})
        ]
        return Running(index, submission, model, min(configs, key=model.speed), nodes, training.done, now)


def roles_of(submission: Submission) -> tuple[RoleSpec, ...]:
    """Its roles, also where it names none."""
    return submission.roles or (RoleSpec(WORKER, submission.min, submission.max),)


def kind_of(before: Running, after: Running) -> str:
    """What kind of a change leads there from what it last ran in."""
    if before.config.roles == after.config.roles:
        return RESUME if before.nodes == after.nodes else MOVE
    counts = [(before.config.count(role), after.config.count(role)) for role, _ in after.config.roles]
    if all(new >= old for old, new in counts):
        return GROW
    return SHRINK if all(new <= old for old, new in counts) else CHANGE
