"""From submissions to the jobs of a simulation: their roles, shapes, declared curves and homes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.core.devices.granted import PARTS
from muster.core.devices.slots import SUFFIX
from muster.sim.running_job import (
    NAMESPACE,
    WORKER,
    Alone,
    Training,
    elastic_spec,
    home_of,
    packed,
    pod_of,
    shape,
)
from muster.sim.submission import Linear, Model, RoleSpec, Submission
from muster.sim.workload import Cluster
from muster.types import (
    Config,
    JobKey,
    Member,
    Phase,
)


class Makers:
    """Makes trainings of submissions; what submissions have in common is worked out once.

    gpus, per_node: of the cluster and of its largest node. products: of the cluster; the first is the one whose speed
    on one replica is the unit of progress. rigid: jobs have the replicas that were asked for, and all of them
    are needed (but of those with roles, which have the minima that they name).
    """

    def __init__(
        self, models: Mapping[str, Model], cluster: Cluster, gpus: int, per_node: int, *, rigid: bool = False
    ) -> None:
        self.models, self.gpus, self.per_node, self.rigid = models, gpus, per_node, rigid
        self.products = tuple(dict.fromkeys(g.product for g in cluster.groups)) or ("",)
        self._curves: dict[object, tuple[tuple[tuple[int, float], ...], float]] = {}

    def training(self, index: int, width: int, submission: Submission, *, held: bool = False) -> Training:
        """The training of a submission, without its members. held: it may have what it asked for only."""
        model = self.models[submission.model]
        alone = self._alone(submission, model)
        submission = submission.at_request() if held else submission
        most = submission.max or model.max
        roles = self._roles(submission, max(most, submission.request) if self.rigid else most)
        shapes = {spec.name: shape(spec, named=bool(submission.roles)) for spec in roles}
        curve, one, work = self._declared(submission, model, roles)
        wanted = {r.name: r.max for r in roles}
        if self.rigid and not submission.roles:
            wanted = {roles[0].name: max(submission.min, submission.request)}
        home = replace(home_of(submission, roles, self.per_node), product=self.products[0])
        return Training(
            index=index,
            key=JobKey(NAMESPACE, f"{index:0{width}d}-{submission.name}"),
            submission=submission,
            model=model,
            roles=roles,
            shapes=shapes,
            one=one,
            declared=work,
            curve=curve,
            home=home,
            total=submission.work,
            tells=hasattr(model, "loss") or hasattr(model, "steps_per_epoch") or hasattr(model, "epoch_end"),
            wanted=wanted,
            minimum=self._minimum(submission, roles, wanted),
            full=sum(wanted.values()),
            unit=min((r.gpus for r in roles if r.gpus), default=0),
            need=0 if self.rigid else sum(r.min * r.gpus for r in roles),
            samples=self._profile(submission, model, roles) if submission.tags.get("profiled") else {},
            alone=alone,
        )

    def _roles(self, submission: Submission, most: int) -> tuple[RoleSpec, ...]:
        """Its own, or the one of a job that names none, of so many replicas as fit the cluster."""
        if submission.roles:
            return submission.roles
        fit = max(1, self.gpus) if self.gpus else 1 << 20
        name = WORKER + SUFFIX if submission.tags.get("in_place") else WORKER
        return (RoleSpec(name, submission.min, max(submission.min, min(most, max(fit, submission.min)))),)

    def _alone(self, submission: Submission, model: Model) -> Alone:
        """With the cluster to itself a job has what its submission names, as in sim/fluid_truth.py."""
        roles = self._roles(submission, submission.max or max(model.max, submission.request))
        curve, one, _ = self._declared(submission, model, roles)
        return Alone(curve, one, elastic_spec(roles).max)

    def _minimum(
        self, submission: Submission, roles: Sequence[RoleSpec], wanted: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Replicas without which it can't run: one of each role where it begins after a timeout with what it has
        (Coach: "at least one worker, one server and one scheduler")."""
        if "timeout" in submission.tags:
            return dict.fromkeys(wanted, 1)
        if self.rigid and not submission.roles:
            return wanted
        return {r.name: r.min for r in roles}

    def appear(self, training: Training) -> None:
        """Its pods come to be, all behind the gate."""
        created = training.submission.submitted
        for spec in training.roles:
            asked, stem = training.shapes[spec.name], f"{training.key.name}-{spec.name}-"
            if training.in_place:
                stem = pod_of(training.key) + PARTS
            names = [f"{stem}{i}" for i in range(spec.max)]
            training.members[spec.name] = tuple(
                [Member(n, n, Phase.GATED, asked, i, "", created) for i, n in enumerate(names)]
            )

    def _declared(
        self, submission: Submission, model: Model, roles: tuple[RoleSpec, ...]
    ) -> tuple[tuple[tuple[int, float], ...], float, float]:
        """Speeds relative to one replica by count, the iterations/s of one replica, and seconds of the whole job
        on one replica, as its owner declares them (a model may say so itself, see Makers: then the speed of one
        replica is the mean over the whole job).

        Where one replica can't run, the least count that can stands for it, divided by the count.
        """
        elastic = elastic_spec(roles)
        kind = (submission.model, roles, submission.sizes, submission.batch)
        own = getattr(model, "declared", None)
        if kind not in self._curves:
            speeds = {}
            if isinstance(model, Linear):
                self._curves[kind] = ((), 1.0)
            else:
                counts = submission.sizes or range(1, elastic.max + 1)
                for n in sorted({1, *counts}) if own is None else (1,):
                    config = packed(n, roles, elastic, self.per_node, submission.batch)
                    speeds[n] = model.speed(replace(config, product=self.products[0]))
                one = next((s / n for n, s in speeds.items() if s > 0.0), 0.0)
                self._curves[kind] = (tuple((n, s / one) for n, s in speeds.items() if s > 0.0), one)
        curve, one = self._curves[kind]
        if own is not None:
            work, curve = own(submission, self.per_node)
            # Progress counts in the unit of what is declared, else "declared less done" is far off the truth.
            return tuple(curve), submission.work / work, work
        return curve, one, submission.work / one if one > 0.0 else 0.0

    def _profile(
        self, submission: Submission, model: Model, roles: tuple[RoleSpec, ...]
    ) -> dict[Config, float]:
        """An offline profile: the speed of each allowed count (at most 16 of them) on each product, on full nodes."""
        elastic = elastic_spec(roles)
        counts = submission.sizes or range(max(1, elastic.min), min(16, elastic.max) + 1)
        neighbours = tuple(getattr(model, "neighbours", ()))
        result = {}
        for product in self.products:
            for n in sorted({*counts, submission.request}):
                config = replace(packed(n, roles, elastic, self.per_node, submission.batch), product=product)
                result[config] = model.speed(config)
                for other in neighbours:  # what it does beside others, where that was measured
                    beside = replace(config, beside=other)
                    speed = model.speed(beside)
                    if speed > 0.0:
                        result[beside] = speed
        return result
