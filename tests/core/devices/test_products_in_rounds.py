"""Jobs in place that a policy gives another GPU product in a round: they go there, alone or as a pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from muster.types import GPU_MEMORY, PRODUCT, Grant, Grants, JobKey, SharingSnapshot
from tests.cluster_fake import SlowEnds
from tests.core.devices.circle import Circle

ROUND = 1000.0
Wanted = Mapping[str, tuple[str, str]]
"""By job: GPU product, and beside whom ("" = nobody)."""


@dataclass
class Turns:
    """What `now` says, for whoever is there."""

    now: Wanted = field(default_factory=dict)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        rows = {key.name.removeprefix("job-"): row for key, row in snapshot.table.row.items()}
        keys: dict[str, JobKey] = {key.name.removeprefix("job-"): key for key in snapshot.table.keys}
        replicas = np.zeros(len(rows), dtype=np.int64)
        details = {}
        for name, (product, other) in self.now.items():
            if name in rows:
                replicas[rows[name]] = 1
                details[rows[name]] = Grant(product=product, beside=keys.get(other))
        return Grants(replicas, details, whole=True)


class Scene:
    """A node of each product with so many GPUs, and a policy that is told what to want."""

    def __init__(self, ends: int, gpus: int = 1) -> None:
        circle = self.circle = Circle(gpus=gpus, nodes=2)
        if ends:
            circle.cluster = SlowEnds(nodes=2, gpus=gpus)
        for (name, found), product in zip(list(circle.cluster.nodes.items()), ("fast", "slow"), strict=True):
            labels = {**found.labels, PRODUCT: product, GPU_MEMORY: "40960"}
            circle.cluster.nodes[name] = replace(found, labels=labels)
        self.begins = (circle.cluster.now // ROUND + 1) * ROUND
        circle.cluster.now = self.begins - 30.0
        self.turns, self.ends = Turns(), ends
        circle.profile = replace(circle.profile, shares=(self.turns,), round=ROUND)
        circle.restart()

    def comes(self, names: str, **first: tuple[str, str]) -> None:
        """These jobs come, and have what they are granted before the round begins."""
        self.turns.now = first
        for name in names:
            self.circle.train(name, "1", **{"gpu-memory": "10Gi"})
        self.circle.seconds(20)
        assert self.on() == {name: product for name, (product, _) in first.items()}

    def round(self, **wanted: tuple[str, str]) -> None:
        """Another round begins, in which they are granted this; and more than a lease goes by."""
        self.turns.now = wanted
        self.circle.seconds(int(self.begins - self.circle.cluster.now) + self.ends)
        if isinstance(self.circle.cluster, SlowEnds):
            self.circle.cluster.over()
        self.before = self.circle.starts()
        self.circle.seconds(100)

    def on(self) -> dict[str, str]:
        """On which product each job trains that does."""
        circle = self.circle
        pods = {p.name.split("-")[0]: p for p in circle.cluster.pods.values() if p.ours and p.node}
        return {
            name: circle.cluster.nodes[pod.node].labels[PRODUCT]
            for name, pod in sorted(pods.items())
            if circle.using(f"{name}-")
        }

    @property
    def restarts(self) -> int:
        """Pods that came after those that there were in the round's first seconds."""
        return len(self.circle.starts() - self.before)


@pytest.mark.parametrize("ends", [0, 3])
@pytest.mark.parametrize("waits", ["", "w"])
def test_two_that_change_places_are_where_they_were_granted_before_the_next_round(
    ends: int, waits: str
) -> None:
    """ends: s that their pods take to; waits: a job that is granted nothing is first in the queue."""
    scene = Scene(ends)
    scene.comes(f"{waits}ab", a=("fast", ""), b=("slow", ""))
    scene.round(a=("slow", ""), b=("fast", ""))
    assert scene.on() == {"a": "slow", "b": "fast"}
    assert scene.restarts <= 2, "each starts again once"


@pytest.mark.parametrize("ends", [0, 3])
@pytest.mark.parametrize(("owner", "guest"), ["ab", "ba"])
def test_a_pair_goes_to_another_product_together_whoever_is_granted_a_place_beside_the_other(
    ends: int, owner: str, guest: str
) -> None:
    """The owner went, and the other one stayed where it was, on a GPU that was given to a third job."""
    scene = Scene(ends)
    scene.comes("abc", a=("fast", ""), b=("fast", "a"), c=("slow", ""))
    scene.round(**{owner: ("slow", ""), guest: ("slow", owner), "c": ("fast", "")})
    assert scene.on() == {"a": "slow", "b": "slow", "c": "fast"}


def test_a_pair_that_stays_where_it_is_does_not_start_again_when_it_is_named_the_other_way_round() -> None:
    scene = Scene(0)
    scene.comes("abc", a=("fast", ""), b=("fast", "a"), c=("slow", ""))
    before = scene.circle.starts()
    scene.round(b=("fast", ""), a=("fast", "b"), c=("slow", ""))
    assert scene.circle.starts() == before
    jobs = scene.circle.ledger.snapshot(scene.circle.cluster.now).jobs
    beside = {key.name: job.grant.beside.name for key, job in jobs.items() if job.grant and job.grant.beside}
    assert beside == {"job-b": "job-a"}


@pytest.mark.parametrize("ends", [0, 3])
def test_who_is_to_run_beside_a_job_that_comes_from_elsewhere_does_not_take_its_gpu(ends: int) -> None:
    """The GPU is the one's who is there, and who comes is beside it: they are the same pair."""
    scene = Scene(ends)
    scene.comes("ab", a=("fast", ""), b=("slow", ""))
    (pod,) = scene.circle.pods("a")
    scene.round(b=("fast", ""), a=("fast", "b"))
    assert scene.on() == {"a": "fast", "b": "fast"}
    assert scene.circle.pods("a") == [pod]


@pytest.mark.parametrize("ends", [0, 3])
def test_who_leaves_its_pair_for_one_with_a_job_that_comes_does_not_take_its_gpu(ends: int) -> None:
    scene = Scene(ends, gpus=2)
    scene.comes("xadb", x=("fast", ""), a=("fast", "x"), d=("fast", ""), b=("slow", ""))
    (pod,) = scene.circle.pods("a")
    scene.round(x=("fast", ""), b=("fast", ""), a=("fast", "b"), d=("slow", ""))
    assert scene.on() == {"x": "fast", "a": "fast", "b": "fast", "d": "slow"}
    assert scene.circle.pods("a") == [pod]


@pytest.mark.parametrize("ends", [0, 3])
@pytest.mark.parametrize(("owner", "guest"), ["ad", "da"])
def test_who_leaves_its_pair_comes_to_the_gpu_of_a_third_whoever_is_named_as_its_owner(
    ends: int, owner: str, guest: str
) -> None:
    scene = Scene(ends, gpus=2)
    scene.comes("xadb", x=("fast", ""), a=("fast", "x"), d=("fast", ""), b=("slow", ""))
    kept = scene.circle.starts()
    before = {d.id: d.pods for d in scene.circle.devices.coordinator.devices.values()}
    scene.round(**{"x": ("fast", ""), owner: ("fast", ""), guest: ("fast", owner), "b": ("slow", "")})
    assert scene.on() == {"x": "fast", "a": "fast", "d": "fast", "b": "slow"}
    assert scene.circle.starts() == kept
    devices = scene.circle.devices.coordinator.devices.values()
    together = {frozenset(pod for d in devices if d.id == one.id for pod in d.pods) for one in devices}
    assert frozenset(scene.circle.pods("a") + scene.circle.pods("d")) in together, before


@pytest.mark.parametrize("ends", [0, 3])
def test_who_goes_beside_another_frees_its_own_gpu_in_the_same_round(ends: int) -> None:
    scene = Scene(ends, gpus=2)
    scene.comes("xdb", x=("fast", ""), d=("fast", ""), b=("slow", ""))
    scene.round(d=("fast", ""), x=("fast", "d"), b=("fast", ""))
    assert scene.on() == {"x": "fast", "d": "fast", "b": "fast"}
