"""Each profile that runs on a cluster on a bad day: late answers, conflicts, lost terms (another leader takes over),
Muster starts again in the middle, and among its jobs one that lies about its length, one that says nothing, one of a
fixed size and one whose loss says that it has converged (which SpeCon moves). Nobody is in place here: profiles that
hand GPUs over or pair jobs there (`devices.enabled`) do with these jobs what they do with all that request GPUs.

The seed is part of a test's name, as in test_bad_days.py."""

from __future__ import annotations

import random

import pytest

from muster import live_recipes, profiles
from muster.types import Evict, Phase, RecordEvent, Report, Reported, WriteGang
from tests.cluster_fake import node
from tests.cluster_late import LateCluster, LateMuster
from tests.told import live

LIVE = sorted(
    name
    for name, recipe in profiles.NAMED.items()
    if not live_recipes.not_on_a_cluster(name, recipe, {}, devices=True)
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
    "settled": {"resize": "restart"},
}
LEGAL = {
    "liar": range(1, 9),
    "silent": range(1, 7),
    "sized": (1, 2, 4),
    "known": range(2, 5),
    "rigid": (3,),
    "settled": (1,),
}


def reports(muster: LateMuster, job: str, step: float, total: float = 0.0, loss: float | None = None) -> None:
    cluster = muster.cluster
    for pod in cluster.pods.values():
        if pod.phase is Phase.BOUND and pod.name.startswith(f"{job}-"):
            muster.hear([Reported(pod.uid, Report(at=cluster.now, step=step, total=total, loss=loss))])
            return


def never_ends(cluster: LateCluster, rigid: set[str]) -> None:
    """No pod of the job of a fixed size ends that was bound once (rigid: such pods): it never said it can restart."""
    now = {
        uid
        for uid, pod in cluster.pods.items()
        if pod.name.startswith("rigid-") and pod.phase is Phase.BOUND and not pod.deleting
    }
    assert rigid <= now, f"ended: {rigid - now}"
    rigid |= now


# of seed 1: many policies put others before the rigid one while it runs
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("name", LIVE)
def test_after_a_bad_day_every_job_has_what_it_may_have_and_no_gpu_idles_for_one_that_waits(
    name: str, seed: int
) -> None:
    rng = random.Random(seed)
    cluster = LateCluster(rng, nodes=3, gpus=4)
    muster = LateMuster(cluster, live(name))
    rigid: set[str] = set()
    waiting = list(JOBS)
    rng.shuffle(waiting)
    for turn in range(150):
        if waiting and turn % 12 == 0:
            each = waiting.pop()
            cluster.job(each, max(LEGAL[each]), **JOBS[each])
        if turn % 5 == 0:
            reports(muster, "known", float(turn), 400.0)
            reports(muster, "liar", 1e9, 1.0)
            reports(muster, "settled", float(turn), loss=1.0 + 0.5 ** (turn / 20))
        if turn == 75:
            muster.restart()
        muster.step()
        never_ends(cluster, rigid)
    for turn in range(150, 210):
        reports(muster, "settled", float(turn), loss=1.0 + 0.5 ** (turn / 20))
        muster.step(bad=False)
        never_ends(cluster, rigid)
    busy = [action for action in muster.queue if not isinstance(action, WriteGang | RecordEvent)]
    assert (busy, muster.answers) == ([], []), "nothing is under way but words"
    found = {each: len(cluster.bound(f"{each}-")) for each in JOBS}
    assert all(not count or count in LEGAL[each] for each, count in found.items()), found
    free = 12 - sum(found.values())
    least = {each: min(LEGAL[each]) for each, count in found.items() if not count}
    assert not [each for each, count in least.items() if count <= free], (
        f"{found}: they wait, {free} are free"
    )


def test_on_a_bad_day_specon_moves_the_converged_job_once_and_nobody_else_whatever_they_say() -> None:
    """Beside one that converges: one that learns, one that says nothing, one whose loss jumps, one that can't restart
    though it has converged, too. A third node comes; Muster has started again by then."""
    cluster = LateCluster(random.Random(0), nodes=2, gpus=4)
    quick = {"specon": {"interval": 4.0, "smoothing": 0.0, "alpha": 0.005}}
    muster = LateMuster(cluster, profiles.build("specon", quick))
    names, begun = ["settled", "learns", "silent", "jumps", "rigid"], cluster.now

    def step(turn: int, *, bad: bool) -> None:
        passed = cluster.now - begun
        reports(muster, "settled", passed, loss=1.0 + 0.5 ** (passed / 4.0))
        reports(muster, "rigid", passed, loss=1.0 + 0.5 ** (passed / 4.0))
        reports(muster, "learns", passed, loss=10.0 - 0.05 * passed)
        reports(muster, "jumps", passed, loss=10.0 ** (turn % 7))
        muster.step(bad=bad)

    for turn in range(100):
        if names and turn % 5 == 0:
            name = names.pop()
            cluster.job(name, 1, **({} if name == "rigid" else {"resize": "restart"}))
        step(turn, bad=True)
    muster.restart()
    for turn in range(100, 130):
        step(turn, bad=False)
    first = {pod.name: pod.node for pod in cluster.pods.values()}
    assert {*first.values()} == {"n0", "n1"}
    cluster.nodes["n2"] = node("n2", 4)
    muster.relist()
    for turn in range(130, 300):
        step(turn, bad=turn < 220)
    stayed = {pod.name: pod.node for pod in cluster.pods.values()}
    moved = {name for name in first if name not in stayed}
    assert [name.partition("-")[0] for name in moved] == ["settled"]
    assert cluster.bound("settled-") == ["n2"]
    assert stayed.items() >= {(name, at) for name, at in first.items() if name not in moved}
    ends = [action for action in cluster.sent if isinstance(action, Evict)]
    assert len({action.uid for action in ends}) == 1, "moved once"
