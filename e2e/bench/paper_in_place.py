"""Policies of which the jobs are in place, on jobs for them: one pod each, nothing declared, as many seconds live as
in the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from e2e.bench.drawn import Drawing, draw
from e2e.bench.elastic import measured
from e2e.bench.paper import ESTIMATE, Paper, Releases
from e2e.bench.predicted import hours
from muster import live_recipes, profiles
from muster.points import Profile
from muster.sim import presets
from muster.sim.options import Options
from muster.sim.physics import GROW, MOVE, RESUME, START, Change, Cost, Physics, Standard
from muster.sim.result import Result
from muster.sim.submission import Model, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Config

MEASURE = 15.0
"""Seconds from a change in place until the speed since then is known, by a report each second."""
BESIDE = 40.0
"""The same beside another job on its GPUs: it takes five measures."""
MEMORY = 16384
"""MiB of a GPU, where a workload says nothing of it."""


@dataclass(frozen=True)
class OneNode:
    """A model in place: its one pod is on one node, and has no speed on more. speeds: item k for k GPUs."""

    name: str
    speeds: tuple[float, ...]

    @property
    def max(self) -> int:
        return len(self.speeds) - 1

    def speed(self, config: Config) -> float:
        return self.speeds[min(config.replicas, self.max)] if len(config.nodes) == 1 else 0.0


@dataclass(frozen=True)
class OnePod(Standard):
    """What changes of such a job cost. moves: that it goes to another node, whatever its number of GPUs there."""

    moves: Cost = field(default_factory=Cost)

    def cost(self, change: Change) -> Cost:
        return self.moves if change.leaves else super().cost(change)


@dataclass(frozen=True)
class InPlace(Paper):
    """A profile on drawn jobs of one pod each, whose GPUs change in place. parameters: of `Drawing`. Speeds are
    measured in seconds that no clock compresses: so the jobs themselves are shorter, live and simulated."""

    speed: float = 1.0
    nodes: int = 2

    def drawing(self) -> Drawing:
        return Drawing(**self.parameters)

    def workload(self) -> Workload:
        """Jobs of which nothing is declared, in seconds of this machine; work in such seconds on one GPU. By CoDDL
        a change takes 4 ms (section 4.3)."""
        drawing = self.drawing()
        drawn = draw(drawing, measured())
        models = {one.model: OneNode(one.model, one.speeds) for one in drawn}
        submissions = [
            Submission(one.name, one.at, one.model, one.work, min=one.least, max=one.most, known=False)
            for one in drawn
        ]
        cluster = Cluster((Group(self.nodes, drawing.gpus // self.nodes),))
        return Workload(submissions, models, cluster=cluster, origin="drawn", physics=Standard())

    @property
    def hurried(self) -> float:
        return self.drawing().speed

    def built(self) -> Profile:
        """As hurried as on a cluster. What `sweep` measures in the simulator are no devices: it is told that they are
        as good as those."""
        recipe = live_recipes.on_a_cluster(profiles.recipe(self.profile), False, ESTIMATE, devices=True)
        arguments: dict[str, Mapping[str, Any]] = {
            plugin: {key: seconds / self.hurried for key, seconds in given.items()}
            for plugin, given in hours(self.profile).items()
        }
        if live_recipes.SWEEP in recipe.shares:
            arguments[live_recipes.SWEEP] = {"restart": True}
        recipe = replace(recipe, round=recipe.round / self.hurried)
        return profiles.build(self.profile, arguments, {self.profile: recipe})

    def physics(self, own: Standard, releases: Releases, delay: float) -> Physics:  # noqa: ARG002
        """A pod's start, and a hand-over, in which others train on; on another node it is another pod."""
        hands_over = Cost(prepare=releases.usual or delay)
        starts = Cost(prepare=releases.starts or delay)
        moves = Cost(pause=releases.away or delay, anew=True)
        return OnePod({("", GROW): hands_over, ("", START): starts, ("", RESUME): starts}, moves=moves)

    def options(self, releases: Releases, seed: int) -> Options:  # noqa: ARG002
        """seed: of coins, which fall otherwise on a cluster: there jobs come at other times."""
        return Options(seed=seed, measure=MEASURE, record=True)

    def changes(self, result: Result) -> int:
        """No change is a restart; those to measure and back count."""
        last: dict[int, int] = {}
        changes = 0
        for one in result.segments:
            changes += bool(one.gpus) and last.get(one.job, 0) not in (0, one.gpus)
            last[one.job] = one.gpus
        return changes


@dataclass(frozen=True)
class Packed(InPlace):
    """A profile that puts two jobs on a GPU, on a preset's jobs of one size, in place: of so many GPUs of one node
    each. shorter: how many times jobs and pauses are shorter than the preset's, as `InPlace` has it."""

    shorter: float = 6.0

    @property
    def hurried(self) -> float:
        return self.shorter

    def workload(self) -> Workload:
        """Who does not fit beside some other one of them, by the preset's speeds, says that it needs all memory of a
        GPU, so that it is nobody's partner; the others half of it."""
        made = presets.load(self.preset, 0, self.parameters)
        assert made.cluster is not None
        assert isinstance(made.physics, Standard)
        # by name, as nodes of the simulator are: of two alike the first is taken, there and on a lab
        groups = tuple(
            replace(group, gpus=group.gpus // 2, memory=MEMORY)
            for group in sorted(made.cluster.groups, key=lambda group: group.product)
        )
        products = [group.product for group in groups]
        least = min(group.gpus for group in groups)
        taken = [
            one
            for one in made.submissions
            if one.request <= least and runs_on_all(made.models[one.model], one.request, products)
        ]
        whole = alone_on_gpus({one.model: made.models[one.model] for one in taken}, products)
        submissions = [
            replace(
                one,
                submitted=one.submitted / self.shorter,
                work=one.work / self.shorter,
                min=one.request,
                max=one.request,
                sizes=(),
                batch=0,
                batch_sizes=(),
                known=False,
                gpu_memory=MEMORY if one.model in whole else MEMORY // 2,
                tags={"in_place": 1.0},
            )
            for one in taken
        ]
        costs = {kind: Cost(pause=cost.pause / self.shorter) for kind, cost in made.physics.costs.items()}
        return replace(
            made, submissions=submissions, cluster=Cluster(groups), physics=replace(made.physics, costs=costs)
        )

    def physics(self, own: Standard, releases: Releases, delay: float) -> Physics:
        """Who starts or comes back is another pod, on whatever node, and then its training goes on from where it was;
        on the same node GPUs change at once."""
        starts = Cost(prepare=releases.starts or delay)
        again = {kind: cost.pause for (_, kind), cost in own.costs.items()}
        comes_back = starts._replace(pause=again[RESUME])
        moves = Cost(pause=starts.prepare + again[MOVE], anew=True)
        return OnePod({("", START): starts, ("", RESUME): comes_back}, moves=moves)

    def options(self, releases: Releases, seed: int) -> Options:
        """As jobs in place are measured alone; beside another one it takes longer."""
        return replace(super().options(releases, seed), measure_beside=BESIDE)

    def changes(self, result: Result) -> int:
        """Of running jobs: each is another pod."""
        return Paper.changes(self, result)


def runs_on_all(model: Model, gpus: int, products: Sequence[str]) -> bool:
    """Whether it has room in the memory of so many GPUs of each product: where it has none, its speed is 0."""
    return all(model.speed(Config((("worker", gpus),), (gpus,), product)) for product in products)


def alone_on_gpus(models: Mapping[str, Model], products: Sequence[str]) -> set[str]:
    """Those of which no two are left that do not train together on a GPU of one of the products, of two such the one
    of which there are more, then the last by name."""
    left = set(models)
    while True:
        apart = Counter(
            one
            for one in left
            for other in left
            for product in products
            if not models[one].speed(Config((("worker", 1),), (1,), product, beside=other))
            or not models[other].speed(Config((("worker", 1),), (1,), product, beside=one))
        )
        if not apart:
            return set(models) - left
        left.remove(max(apart, key=lambda name: (apart[name], name)))
