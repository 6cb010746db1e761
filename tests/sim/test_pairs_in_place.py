"""Two jobs on a GPU in the simulator as on a cluster: in place, and measured there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from muster import profiles
from muster.points import Profile
from muster.sim.workload import Group
from muster.types import Config, Grant, Job, JobKey, Snapshot
from tests.sim.course import course, ends, job, simulated


@dataclass
class Seen:
    """Observe: each job's speeds as they become known, by when that was."""

    found: dict[str, dict[float, dict[str, float]]]

    def observe(self, one: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        known = {config.beside: speed for config, speed in one.samples.items()}
        mine = self.found.setdefault(one.key.name.partition("-")[2], {})
        if known and known != next(reversed(mine.values()), None):
            mine[round(snapshot.now, 3)] = known
        return None


@dataclass(frozen=True)
class Shared:
    """By product, alone; less beside anything, but more together."""

    name: str = "shared"
    max: int = 1

    def speed(self, config: Config) -> float:
        alone = {"fast": 2.0, "slow": 1.0}.get(config.product, 1.0)
        return alone * (0.7 if config.beside else 1.0)


def watched(profile: Profile) -> tuple[Seen, Profile]:
    seen = Seen({})
    return seen, replace(profile, named=(*profile.named, ("seen", seen)))


@pytest.mark.parametrize(("beside", "known"), [(0.0, 30.0), (40.0, 55.0)])
def test_a_speed_beside_another_job_is_known_so_long_after_that_one_came(beside: float, known: float) -> None:
    on = Grant(beside=JobKey("", "a"))
    seen, profile = watched(course({0: {"a": 1}, 15: {"a": 1, "b": (1, on)}, 25: {"a": 1, "b": (1, on)}}))
    jobs = [job("a", 500, model="shared"), job("b", 500, 0, model="shared")]
    simulated(jobs, 1, profile=profile, models={"shared": Shared()}, measure=15, measure_beside=beside)
    assert seen.found["a"] == {15.0: {"": 1.0}, known: {"": 1.0, "shared": 0.7}}
    assert seen.found["b"] == {known: {"shared": 0.7}}


def packed(**arguments: Any) -> Profile:
    made = profiles.build("gavel-max-min-packed", {"gavel-max-min": {"round": 60.0, **arguments}})
    return replace(made, round=60.0, conserving=True)


def in_place(name: str, work: float, at: float = 0.0, gpus: int = 1) -> Any:
    return job(name, work, at, gpus, model="shared", gpu_memory=8000, known=False, tags={"in_place": 1.0})


@pytest.mark.parametrize(("untried", "paired"), [(1.19, True), (0.0, False)])
def test_jobs_in_place_are_tried_on_one_gpu_as_on_a_cluster(untried: float, paired: bool) -> None:
    seen, profile = watched(packed(interval=60.0, untried=untried))
    jobs = [in_place(name, 400.0) for name in "abc"]
    result = simulated(
        jobs, groups=[Group(1, 2, "slow", 16000)], profile=profile, models={"shared": Shared()}, measure=15
    )
    known = {beside for mine in seen.found.values() for one in mine.values() for beside in one}
    assert ("shared" in known) == paired
    assert not result.cut


def test_a_job_in_place_goes_to_the_product_that_it_is_granted_with_all_of_its_gpus() -> None:
    fast = {"a": (2, Grant(product="fast"))}
    profile = course({0: {"a": (2, Grant(product="slow"))}, 10: fast})
    groups = [Group(1, 2, "fast", 16000), Group(1, 2, "slow", 16000)]
    result = simulated(
        [in_place("a", 30.0, gpus=2)], groups=groups, profile=profile, models={"shared": Shared()}
    )
    assert ends(result) == {"a": 20.0}
