"""Policies, each on a workload that its paper made for it: settings for a cluster, and what the simulator says.

Nothing is declared there: live and in the simulator a policy knows what was reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from e2e.bench.live import Run
from e2e.bench.predicted import Side, estimated, hours
from e2e.bench.trainings import away, leave
from e2e.lab.errors import LabError
from muster import live_recipes, profiles
from muster.points import Profile
from muster.sim import presets
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.physics import Cost, Physics, Standard
from muster.sim.result import Result
from muster.sim.workload import Workload

ESTIMATE = "reported"
ROUNDS = 100
"""That go by before the first job comes."""


@dataclass(frozen=True)
class Paper:
    """A profile on a preset's jobs. parameters: of the preset; speed: trace seconds in one of this machine's; places:
    pods of jobs with roles on a node."""

    profile: str
    preset: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    speed: float = 20.0
    places: int = 1

    def workload(self) -> Workload:
        """Its jobs (seed 0), of which nothing is known beforehand, and which may start again elsewhere."""
        made = presets.load(self.preset, 0, self.parameters)
        submissions = [
            replace(
                one,
                known=False,
                tags={k: v for k, v in one.tags.items() if k != "profiled"}
                | ({} if len(one.roles) > 1 else {"resize": "restart"}),
            )
            for one in made.submissions
        ]
        return replace(made, submissions=submissions)

    def beginning(self, began: float) -> Workload:
        """Its jobs at the trace s that are as far into a round as these Unix s of a cluster: rounds begin at whole
        multiples there, too. Never from 0 on: a time that means more to Gavel's simulator than others."""
        made = self.workload()
        if not self.round:
            return made
        later = ROUNDS * self.round + began % self.round
        submissions = [replace(one, submitted=one.submitted + later * self.speed) for one in made.submissions]
        return replace(made, submissions=submissions)

    def settings(self) -> dict[str, Any]:
        """The keys of a muster.yaml, its rounds and seconds as compressed as the jobs."""
        made = Side(self.profile, self.profile, hurried=self.hurried).settings()
        return made | estimated(self.profile, ESTIMATE)

    @property
    def hurried(self) -> float:
        """By how much its rounds, and the seconds that it counts in, are shorter on a cluster."""
        return self.speed

    @property
    def round(self) -> float:
        """Seconds of this machine between two rounds; 0 = none."""
        return profiles.NAMED[self.profile].round / self.hurried

    def built(self) -> Profile:
        """As a cluster has it, in trace s."""
        recipe = live_recipes.on_a_cluster(profiles.recipe(self.profile), False, ESTIMATE)
        return profiles.build(self.profile, hours(self.profile), {self.profile: recipe})

    def physics(self, own: Standard, releases: Releases, delay: float) -> Physics:  # noqa: ARG002
        """The workload's own, where each change takes so much longer (trace s)."""
        costs = {kind: Cost(pause=cost.pause + delay) for kind, cost in own.costs.items()}
        return replace(own, costs=costs)

    def options(self, releases: Releases, seed: int) -> Options:
        """What the simulator is told of a run. seed: of what each replica takes to leave, but not of what a policy
        draws (on a cluster that is with 0)."""
        return releases.options(seed)

    def changes(self, result: Result) -> int:
        """Of running jobs."""
        return int(result.restarts.sum())


@dataclass(frozen=True)
class Figures:
    """Of a run, live or simulated: mean JCT and makespan (trace s), changes of running jobs."""

    jct: float
    makespan: float
    changes: float


@dataclass(frozen=True)
class Releases:
    """How GPUs changed hands in a run, trace s. usual: from when they were given up until they could be used; apart:
    from the first to the last of replicas that were told at once; rest: from the first of a job that is done to its
    others; starts: in place, from a job's submission until it trains; away: from when
    it leaves a node until it is on another."""

    usual: float = 0.0
    apart: float = 0.0
    rest: float = 0.0
    starts: float = 0.0
    away: float = 0.0

    @staticmethod
    def of(run: Run, speed: float) -> Releases:
        """Those of a run, of which a second is so many of the trace."""
        apart, rest = leave(run["course"])
        starts, gone = run.get("starts_s", 0.0), away(run["course"])
        return Releases(*(one * speed for one in (run["release_s"], apart, rest, starts, gone)))

    def options(self, seed: int) -> Options:
        """What the simulator is told; seed: of what each replica takes, but not of what a policy draws (on a cluster
        that is with 0)."""
        if not self.usual:
            return Options()
        spread = min(1.0, 0.5 * self.apart / self.usual)
        return Options(release=self.usual, release_spread=spread, release_rest=self.rest, release_seed=seed)


def foretold(paper: Paper, releases: Releases, delay: float, began: float, seed: int = 0) -> Figures:
    """By the simulator, under the profile as a cluster has it. delay: trace s that each change takes longer than the
    paper says; began: when the jobs began to come (Unix s), for where rounds fall between them. LabError where a job
    does not end."""
    made = paper.beginning(began)
    assert made.cluster is not None
    assert isinstance(made.physics, Standard)
    result = simulate(
        replace(made, physics=paper.physics(made.physics, releases, delay)),
        made.cluster,
        paper.built(),
        paper.options(releases, seed),
    )
    took = result.ended - result.submitted
    if result.cut or not (took > 0.0).all():
        raise LabError(f"papers: {paper.profile}: not every job ended in the simulator")
    makespan = float(result.ended.max() - result.submitted.min())
    return Figures(float(took.mean()), makespan, float(paper.changes(result)))
