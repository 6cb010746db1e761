"""Algorithms 1 and 2 of SideCar, line by line on one node, against the policy that runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from muster.core.sharing.job_table import table_of
from muster.policylib.completion import Overheads
from muster_plugins.reshape import Reshape, grow_one, incoming
from tests.plugins.test_reshape import training
from tests.scenario import NOW, node, snapshot

SPEEDS = {1: 1.0, 2: 1.7, 3: 2.0, 4: 2.4, 8: 3.4}
SETS = ((1, 2, 4), (1, 2, 4, 8), (2, 4), (1,), (1, 3), (4, 8))
TERMS = Overheads()


@dataclass(frozen=True)
class Running:
    """A job as the print knows it."""

    sizes: tuple[int, ...]
    count: int
    left: float

    def stays(self) -> float:
        return self.left / SPEEDS[self.count] + TERMS.ending

    def becomes(self, count: int) -> float:
        cost = TERMS.change(grows=count > self.count, restart=False)
        return cost + self.left / SPEEDS[count] + TERMS.ending


def algorithm_1(
    idle: int, running: list[Running], sizes: tuple[int, ...], left: float
) -> tuple[int, int, int]:
    """T = [N_opt, J_i, N_remove], J_i as a position (-1: null). Line 9 over every number, see the plugin."""
    hashmap: dict[int, list[int]] = {}
    for i, job in enumerate(running):  # lines 6 to 11
        for remove in range(1, job.count):
            if job.count - remove in job.sizes:
                hashmap.setdefault(remove, []).append(i)
    chosen, least = (0, -1, 0), math.inf
    for count in sorted(sizes):  # line 14
        new = TERMS.beginning + left / SPEEDS[count] + TERMS.ending
        if idle >= count:
            makespan = max([new, *(job.stays() for job in running)])
            if makespan < least:
                least, chosen = makespan, (count, -1, 0)
        else:
            remove = count - idle
            for i in hashmap.get(remove, []):
                others = [job.stays() for j, job in enumerate(running) if j != i]
                makespan = max([new, running[i].becomes(running[i].count - remove), *others])
                if makespan < least:
                    least, chosen = makespan, (count, i, remove)
    return chosen


def algorithm_2(idle: int, running: list[Running]) -> tuple[int, int]:
    """T = [J_i, N_add], J_i as a position (-1: null)."""
    chosen, least = (-1, 0), math.inf
    for add in range(1, idle + 1):  # line 12
        for i, job in enumerate(running):
            if job.count + add not in job.sizes:
                continue
            others = [other.stays() for j, other in enumerate(running) if j != i]
            makespan = max([job.becomes(job.count + add), *others])
            if makespan < least:
                least, chosen = makespan, (i, add)
    return chosen


jobs = st.sampled_from(SETS).flatmap(
    lambda sizes: st.builds(
        Running, st.just(sizes), st.sampled_from(sizes), st.sampled_from([10.0, 500.0, 3000.0, 20_000.0])
    )
)
clusters = st.tuples(st.integers(0, 6), st.lists(jobs, max_size=5))


def scene_of(idle: int, running: list[Running], new: tuple[tuple[int, ...], float] | None):  # type: ignore[no-untyped-def]
    gpus = idle + sum(job.count for job in running)
    made = [
        training(
            f"r{i}", left=job.left, on=["n0"] * job.count, sizes=job.sizes, speeds=SPEEDS, submitted=float(i)
        )
        for i, job in enumerate(running)
    ]
    if new is not None:
        made.append(training("new", left=new[1], sizes=new[0], speeds=SPEEDS, submitted=NOW - 1.0))
    seen = snapshot([node("n0", max(gpus, 1))], jobs=made)
    table = table_of(seen.jobs.values(), NOW, max(gpus, 8))
    before = seen.with_table(table)
    if not gpus:
        before.free[:, before.nodes.resource_index["nvidia.com/gpu"]] = 0
    return Reshape().scene(before)


@given(clusters, st.sampled_from(SETS), st.sampled_from([10.0, 1000.0, 9000.0]))
def test_reshaping_down_is_algorithm_1(
    cluster: tuple[int, list[Running]], sizes: tuple[int, ...], left: float
) -> None:
    idle, running = cluster
    count, donor, removed = algorithm_1(idle, running, sizes, left)
    scene = scene_of(idle, running, (sizes, left))
    new = scene.jobs[-1]
    assert incoming(scene, new, down=True) == (count > 0)
    assert new.count == count
    assert [s.count for s in scene.jobs[:-1]] == [
        job.count - (removed if i == donor else 0) for i, job in enumerate(running)
    ]


@given(clusters)
def test_reshaping_up_is_algorithm_2(cluster: tuple[int, list[Running]]) -> None:
    idle, running = cluster
    receiver, added = algorithm_2(idle, running)
    scene = scene_of(idle, running, None)
    assert grow_one(scene, worthwhile=False) == (receiver >= 0)
    assert [s.count for s in scene.jobs] == [
        job.count + (added if i == receiver else 0) for i, job in enumerate(running)
    ]
