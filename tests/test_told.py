"""What waiting jobs are told, whoever is asked: random jobs through time, and each sentence held to the cluster.

The seed is part of a test's name."""

from __future__ import annotations

import random
import re

import pytest

from muster import explain, gangs
from muster.core.views.job_status import standings
from muster.types import NEVER, Reason, State
from tests.told import Played, ToldCluster, live

NO_WORDS = re.compile(
    r"\b(nan|None|inf)\b|\(\)|(?<!-> )\b1 (?:idle )?(GPUs|jobs|nodes|replicas)\b|(?<![\w:])-\d"
)
OF_TURNS = ("position", "fits", "free", "blocker", "expectedStart", "start", "expected")
NODES, GPUS = 2, 4


def submit(cluster: ToldCluster, rng: random.Random, number: int) -> bool:
    """One more job of any kind; whether it can never start."""
    name, work = f"j{number}", float(rng.choice([600, 1800, 6000]))
    count, size, least = rng.choice(
        [(1, 1, 0), (2, 2, 0), (2, 4, 0), (1, 1, 1), (2, 1, 1), (3, 4, 0), (1, 9, 0), (9, 1, 1)]
    )
    cluster.submit(
        name,
        count,
        size,
        most=2 * count if least else 0,
        work=work,
        declared=rng.random() < 0.7,
        namespace=rng.choice(["team", "vision"]),
        priority=rng.choice([0, 0, 5]),
    )
    return count > NODES * (GPUS // size)


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("name", ["fifo", "gang", "max-min", "srtf", "themis", "tiresias-pollux"])
def test_what_waiting_jobs_are_told_is_true_and_the_same_wherever_it_is_read(name: str, seed: int) -> None:
    rng = random.Random(seed)
    cluster = ToldCluster(NODES, GPUS)
    played, never = Played(cluster, live(name)), {}
    waited = 0
    for step in range(10):
        for number in range(3):
            never[f"job-j{3 * step + number}"] = submit(cluster, rng, 3 * step + number)
        cluster.run(30.0)
        cluster.now += 30.0
        played.rest()
        waited += look(played, never)
    assert waited > 20, "many have waited"


def look(played: Played, never: dict[str, bool]) -> int:
    """Holds all that is told to what is so; how many wait."""
    cluster, plan, view, places = played.cluster, played.muster.plan, played.view, []
    assert view is not None
    read = {one.key: one for one in standings(view, lambda _: True)}
    objects = list(cluster.gang_objects.values())
    of_jobs = {(gangs.namespace(one), gangs.job(one)): one for one in objects}
    for key, status in plan.statuses.items():
        if status.state is State.FINISHED:
            continue
        told = of_jobs[key.namespace, key.name]
        said, here = explain.render(objects, key.namespace, key.name, cluster.now), read[key]
        assert NO_WORDS.search(said + here.message) is None, said
        assert (told["status"]["state"], told["status"]["reason"]) == (status.state, status.reason)
        if status.state is not State.WAITING:
            assert not [field for field in OF_TURNS if told["status"].get(field)], said
            continue
        waits = {field: told["status"].get(field) for field in OF_TURNS}
        assert (status.reason is Reason.NEVER_FITS) == never[key.name], said
        assert (waits["position"], waits["expected"]) == (here.position, here.expected), said
        if never[key.name]:
            assert (waits["start"], waits["expected"], waits["position"]) == ("never", NEVER, None)
            continue
        places.append(waits["position"])
        start = gangs.seconds(waits["expectedStart"])
        assert start is None or start >= cluster.now - 75.0, said  # of a late one, a minute old
        counted = re.fullmatch(r"(\d+) of (\d+) replicas? fits? now", waits["fits"] or "")
        if counted:
            assert int(counted[1]) == fits(played, key.namespace, key.name), said
        blockers = re.findall(r"\w+/job-j\d+", waits["blocker"] or "")
        assert str(key) not in blockers
        for other in blockers:
            assert cluster.owners[cluster.works[other].owner.uid].over == "", said
    assert sorted(places) == list(range(1, len(places) + 1))
    return len(places)


def fits(played: Played, namespace: str, name: str) -> int:
    """Replicas of its least for which there are GPUs that nobody has, by the cluster itself."""
    cluster, work = played.cluster, played.cluster.works[f"{namespace}/{name}"]
    free = {node: cluster.left(node) for node in cluster.nodes}
    for key, places in played.muster.plan.reservations.items():
        for place in places:
            if place.uid not in cluster.pods or not cluster.pods[place.uid].node:
                free[place.node] -= cluster.works[str(key)].gpus
    return min(work.least, sum(max(0, left) // work.gpus for left in free.values()))
