"""Each policy that runs on a cluster on a bad day: late answers, conflicts, lost terms (another leader takes over in
the middle), and among its jobs one that lies about its length, one that says nothing and one of a fixed size.

The seed is part of a test's name, as in test_bad_days.py."""

from __future__ import annotations

import random

import pytest

from muster import live_recipes, profiles
from muster.types import Phase, RecordEvent, Report, Reported, WriteGang
from tests.cluster_late import LateCluster, LateMuster

LIVE = sorted(
    name
    for name, recipe in profiles.NAMED.items()
    if recipe.shares and not live_recipes.not_on_a_cluster(name, recipe, {})
)
SPEED = "1=1,2=1.9,4=3.2"
JOBS: dict[str, dict[str, str]] = {
    "liar": {"min_replicas": "1", "max_replicas": "8", "remaining_work": "1", "speed": SPEED},
    "silent": {"min_replicas": "1", "max_replicas": "6"},
    "sized": {
        "min_replicas": "1",
        "max_replicas": "4",
        "sizes": "1,2,4",
        "resize": "restart",
        "speed": SPEED,
    },
    "known": {"min_replicas": "2", "max_replicas": "4", "remaining_work": "900", "speed": SPEED},
    "rigid": {},
}
LEGAL = {
    "liar": range(1, 9),
    "silent": range(1, 7),
    "sized": (1, 2, 4),
    "known": range(2, 5),
    "rigid": (3,),
}


def reports(muster: LateMuster, job: str, step: float, total: float) -> None:
    cluster = muster.cluster
    for pod in cluster.pods.values():
        if pod.phase is Phase.BOUND and pod.name.startswith(f"{job}-"):
            muster.hear([Reported(pod.uid, Report(at=cluster.now, step=step, total=total))])
            return


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("name", LIVE)
def test_after_a_bad_day_every_job_has_what_it_may_have_and_no_gpu_idles_for_one_that_waits(
    name: str, seed: int
) -> None:
    rng = random.Random(seed)
    cluster = LateCluster(rng, nodes=3, gpus=4)
    own = {name: live_recipes.on_a_cluster(profiles.NAMED[name], True, "reported")}
    muster = LateMuster(cluster, profiles.build(name, own=own))
    waiting = list(JOBS)
    rng.shuffle(waiting)
    for turn in range(150):
        if waiting and turn % 12 == 0:
            each = waiting.pop()
            cluster.job(each, max(LEGAL[each]), **JOBS[each])
        if turn % 5 == 0:
            reports(muster, "known", float(turn), 400.0)
            reports(muster, "liar", 1e9, 1.0)
        muster.step()
    for _ in range(60):
        muster.step(bad=False)
    busy = [action for action in muster.queue if not isinstance(action, WriteGang | RecordEvent)]
    assert (busy, muster.answers) == ([], []), "nothing is under way but words"
    found = {each: len(cluster.bound(f"{each}-")) for each in JOBS}
    assert all(not count or count in LEGAL[each] for each, count in found.items()), found
    free = 12 - sum(found.values())
    least = {each: min(LEGAL[each]) for each, count in found.items() if not count}
    assert not [each for each, count in least.items() if count <= free], (
        f"{found}: they wait, {free} are free"
    )
