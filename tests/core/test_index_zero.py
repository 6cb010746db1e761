"""Whatever is decided while replicas move, a job does not go on without its index 0: its replicas meet there, and its
end is the job's."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from muster.points import Profile
from muster.types import Evict, Grant, Grants, Phase, PodRecord, SharingSnapshot
from muster_plugins.pack import Pack
from tests.cluster_fake import Muster, SlowEnds, node

INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Told:
    """A Share plugin that grants what the scenario says at the moment, on the fewest nodes of so many GPUs."""

    replicas: dict[str, int] = field(default_factory=dict)
    gpus: int = 4

    def share(self, snapshot: SharingSnapshot) -> Grants:
        shares, details = snapshot.table.have * 0, {}
        for key, row in snapshot.table.row.items():
            shares[row] = self.replicas.get(key.name.removeprefix("job-"), 0)
            details[row] = Grant(max_nodes=max(1, -(-int(shares[row]) // self.gpus)))
        return Grants(shares, details)


class Hall:
    """Elastic Jobs whose evicted pods end after so many turns, and are made again after some more."""

    def __init__(self, gpus: tuple[int, ...], ends: int = 0, comes: int = 0) -> None:
        self.cluster, self.told = SlowEnds(nodes=0), Told()
        self.cluster.nodes = {f"n{number}": node(f"n{number}", count) for number, count in enumerate(gpus)}
        self.profile = Profile(scores=((Pack(), 1.0),), shares=(self.told,), conserving=True)
        self.muster = Muster(self.cluster, self.profile)
        self.ends, self.comes, self.at = ends, comes, 0
        self.ending: dict[str, int] = {}
        self.coming: list[tuple[int, PodRecord]] = []

    def train(self, name: str, most: int, on: tuple[str, ...] = (), **says: str) -> None:
        """on: where its lowest indexes run already."""
        self.cluster.now += 1.0
        made = self.cluster.job(name, most, **{"min_replicas": "1", "max_replicas": str(most), **says})
        for pod, where in zip(made, on, strict=False):
            self.cluster.update(pod, phase=Phase.BOUND, node=where, pin=where)
        if on:
            self.muster = Muster(self.cluster, self.profile)

    def turns(self, count: int, die_after: int | None = None) -> None:
        for _ in range(count):
            self.at += 1
            self.muster.turn(die_after, seconds=0.2)
            self.cluster.bind()
            self.cluster.check()
            for pod in [p for p in self.cluster.pods.values() if p.phase is Phase.ENDING]:
                if self.ending.setdefault(pod.uid, self.at + self.ends) <= self.at:
                    del self.cluster.pods[pod.uid]
                    self.coming.append((self.at + self.comes, pod))
            due = [each for each in self.coming if each[0] <= self.at]
            self.coming = [each for each in self.coming if each not in due]
            for _, pod in due:
                self.cluster.recreate(pod)

    def dies_after(self, requests: int) -> None:
        """Another replica leads after so many requests."""
        for _ in range(60):
            if requests <= 0:
                break
            before = len(self.cluster.sent)
            self.turns(1, die_after=requests)
            requests -= len(self.cluster.sent) - before
        self.muster = Muster(self.cluster, self.profile)

    def runs(self, name: str) -> list[int]:
        """Indexes that run."""
        return sorted(int(pod.labels[INDEX]) for pod in self._runs(name))

    def evicted(self) -> int:
        return sum(isinstance(action, Evict) for action in self.cluster.sent)

    def _runs(self, name: str) -> list[PodRecord]:
        pods = self.cluster.pods.values()
        return [p for p in pods if p.phase is Phase.BOUND and p.name.startswith(f"{name}-")]


@pytest.mark.parametrize("ends", [0, 2, 20], ids="ends {}".format)
@pytest.mark.parametrize("comes", [0, 3, 60], ids="comes {}".format)
@pytest.mark.parametrize("falls", [1, 3, 6], ids="falls {}".format)
def test_a_share_that_falls_again_while_index_0_is_on_its_way_leaves_the_job_with_index_0(
    ends: int, comes: int, falls: int
) -> None:
    """Seen on the lab: 0 and 3 on one node, 1 and 2 on another; shares of 2 and then 1 left 1 alone. falls: turns
    between the two."""
    hall = Hall((4, 3), ends, comes)
    hall.told.gpus = 2
    hall.told.replicas["a"] = 4
    hall.train("a", 4, on=("n0", "n1", "n1", "n0"))
    hall.turns(2)
    hall.told.gpus = 4
    hall.told.replicas["a"] = 2
    hall.turns(falls)
    untouched = [[0, 1, 2, 3]] if falls == 1 else []  # they leave once that is recorded
    assert hall.runs("a") in ([], [0], [0, 1], *untouched), "no higher one goes on alone"
    hall.told.replicas["a"] = 1
    hall.turns(150)
    assert hall.runs("a") == [0]
    assert hall.evicted() in (4, 5), "the second fall ends one more where the first is over"


@pytest.mark.parametrize("dies", range(1, 4))
def test_whose_index_0_moves_starts_again_whole_also_where_muster_dies_after_so_many_requests(
    dies: int,
) -> None:
    hall = Hall((4, 3), ends=3, comes=3)
    hall.told.gpus = 2
    hall.told.replicas["a"] = 4
    hall.train("a", 4, on=("n0", "n1", "n1", "n0"))
    hall.turns(2)
    hall.told.gpus = 4
    hall.told.replicas["a"] = 2
    hall.dies_after(dies)
    hall.turns(60)
    assert hall.runs("a") == [0, 1]
    assert hall.evicted() == 4


@pytest.mark.parametrize("seed", range(24))
def test_whatever_shares_come_while_replicas_move_each_job_has_its_index_0_in_the_end(
    seed: int,
) -> None:
    drawn = random.Random(seed)
    hall = Hall((4, 4, 4), ends=drawn.choice([0, 1, 3, 10]), comes=drawn.choice([0, 2, 5, 20]))
    for name in "abc":
        hall.train(name, 8)
    for _ in range(drawn.randint(3, 8)):
        left = 12
        for name in drawn.sample("abc", 3):
            hall.told.replicas[name] = drawn.choice([n for n in (1, 2, 3, 4, 8) if n <= left - 2] or [1])
            left -= hall.told.replicas[name]
        hall.turns(drawn.choice([1, 2, 4, 8]))
    hall.turns(100)
    found = {name: hall.runs(name) for name in "abc"}
    assert all(runs[0] == 0 for runs in found.values()), found
    assert all(len(runs) <= hall.told.replicas[name] for name, runs in found.items()), found
    before = hall.evicted()
    hall.turns(20)
    assert hall.evicted() == before, "it has come to rest"


def test_where_another_role_of_its_job_stays_index_0_leaves_alone() -> None:
    """The job would count as one with one replica, and others would take the places that it is to have."""
    hall = Hall((2, 5), ends=3, comes=3)
    hall.told.gpus, hall.told.replicas = 2, {"a": 4, "b": 6}
    for name, which, on in (("first", "launcher", ["n1"]), ("second", "worker", ["n0", "n1", "n1", "n1"])):
        made = hall.cluster.job(f"a{name}", len(on), min_replicas="1", max_replicas=str(len(on)), role=which)
        for pod, where in zip(made, on, strict=True):
            labels = {**pod.labels, "muster.dev/job": "a"}
            hall.cluster.update(pod, labels=labels, phase=Phase.BOUND, node=where, pin=where)
    hall.train("b", 6)
    hall.muster = Muster(hall.cluster, hall.profile)
    hall.turns(4)
    hall.told.gpus = 5
    hall.turns(200)
    assert hall.runs("asecond") == [0, 1, 2, 3]
    assert hall.evicted() == 1
