"""Two jobs in place on one GPU, by a policy that is asked once a round: who is to move there is not forgotten."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from muster.types import GPU_MEMORY, Action, Event, GangSeen, Grant, Grants, SharingSnapshot, WriteGang
from muster.types.holders import ClearSeat, HolderAction
from tests.cluster_fake import FakeCluster, SlowEnds
from tests.core.devices.circle import Circle


@dataclass(frozen=True)
class PairsLater:
    """A GPU for each of the first two jobs, and from then on b beside a and d beside c."""

    at: float

    def share(self, snapshot: SharingSnapshot) -> Grants:
        keys = {key.name: key for key in snapshot.table.keys}
        if snapshot.now < self.at:
            first = np.array([row < 2 for row in range(len(keys))], dtype=np.int64)
            return Grants(first, whole=True)
        row = snapshot.table.row
        pairs = [(f"job-{a}", f"job-{b}") for a, b in ("ab", "cd")]
        details = {row[keys[b]]: Grant(beside=keys[a]) for a, b in pairs if b in keys}
        return Grants(np.ones(len(keys), dtype=np.int64), details, whole=True)


def pairs_in_half_a_minute(circle: Circle, length: float = 1000.0) -> float:
    """Nodes whose GPUs have memory, and in 30 s a round of `length` s, from which on PairsLater makes pairs: when."""
    for name, found in circle.cluster.nodes.items():
        circle.cluster.nodes[name] = replace(found, labels={**found.labels, GPU_MEMORY: "40960"})
    begins = (circle.cluster.now // length + 1) * length
    circle.cluster.now = begins - 30.0
    circle.profile = replace(circle.profile, shares=(PairsLater(begins),), round=length)
    circle.restart()
    return begins


@pytest.mark.parametrize("ends", [0, 3])
def test_who_leaves_its_gpu_to_share_another_one_does_so_before_the_next_round(ends: int) -> None:
    """ends: s that its pod takes to."""
    circle = Circle(gpus=1, nodes=2)
    if ends:
        circle.cluster = SlowEnds(nodes=2, gpus=1)
    begins = pairs_in_half_a_minute(circle)
    for name in "abcd":
        circle.train(name, "1", **{"gpu-memory": "10Gi"})
    circle.seconds(20)
    assert [circle.using(name) for name in "abcd"] == [1, 1, 0, 0]
    circle.seconds(int(begins - circle.cluster.now) + ends)
    if isinstance(circle.cluster, SlowEnds):
        circle.cluster.over()
    circle.seconds(100)  # more than a lease
    assert [circle.using(name) for name in "abcd"] == [1, 1, 1, 1]
    jobs = circle.ledger.snapshot(circle.cluster.now).jobs
    beside = {key.name: job.grant.beside.name for key, job in jobs.items() if job.grant and job.grant.beside}
    assert beside == {"job-b": "job-a", "job-d": "job-c"}


@dataclass(frozen=True)
class PartnerLater:
    """A GPU for each of three jobs: c is beside a, from then on beside b."""

    at: float

    def share(self, snapshot: SharingSnapshot) -> Grants:
        keys = {key.name: key for key in snapshot.table.keys}
        beside = Grant(beside=keys.get("job-a" if snapshot.now < self.at else "job-b"))
        details = {snapshot.table.row[keys["job-c"]]: beside} if "job-c" in keys else {}
        return Grants(np.ones(len(keys), dtype=np.int64), details, whole=True)


def test_a_seat_that_was_given_up_is_not_the_next_leaders_device_in_use() -> None:
    """It stood in the record of its device, on which a stays: c counted as one that uses two."""
    circle = Circle(gpus=2)
    begins = pairs_in_half_a_minute(circle)
    circle.profile = replace(circle.profile, shares=(PartnerLater(begins),))
    circle.restart()
    for name, gpus in (("a", "1"), ("b", "1"), ("c", "1,2")):
        circle.train(name, gpus, **{"gpu-memory": "10Gi"})
    circle.seconds(60)
    seats = [sorted(agent.pod for agent in (r.agent, r.second) if agent) for r in circle.records.values()]
    a, b, c = (circle.pod(name).uid for name in "abc")
    assert sorted(seats) == [[a], [b, c]]
    circle.restart()
    circle.seconds(100)
    assert [circle.using(name) for name in "abc"] == [1, 1, 1]


@pytest.mark.parametrize("refused", [0, 1])
def test_a_record_is_taken_off_once_and_again_where_that_was_refused(refused: int) -> None:
    circle = Circle(gpus=2)
    begins = pairs_in_half_a_minute(circle)
    circle.profile = replace(circle.profile, shares=(PartnerLater(begins),))
    circle.restart()
    for name in "abc":
        circle.train(name, "1", **{"gpu-memory": "10Gi"})
    circle.seconds(30)
    sent: list[float] = []
    carry_out = circle.carry_out

    def counted(action: HolderAction) -> None:
        if isinstance(action, ClearSeat):
            sent.append(circle.cluster.now)
            circle.refuse = int(len(sent) <= refused)
        carry_out(action)

    circle.carry_out = counted  # type: ignore[method-assign]
    circle.seconds(60)
    assert len(sent) == 1 + refused


class SlowWrites(FakeCluster):
    """A write of a Gang is answered, and seen on the watch, so many seconds later."""

    lasts = 0.0

    def __init__(self, nodes: int, gpus: int) -> None:
        self.written: list[tuple[float, list[Event]]] = []
        super().__init__(nodes, gpus)

    def carry_out(self, action: Action) -> list[Event]:
        found = super().carry_out(action)
        if not isinstance(action, WriteGang) or not self.lasts:
            return found
        self.written.append((self.now + self.lasts, found))
        return []

    def events(self) -> list[Event]:
        due = [found for at, found in self.written if at <= self.now]
        self.written = [one for one in self.written if one[0] > self.now]
        unseen = {
            event.gang.name for _, found in self.written for event in found if isinstance(event, GangSeen)
        }
        known = [e for e in super().events() if not (isinstance(e, GangSeen) and e.gang.name in unseen)]
        return [*(event for found in due for event in found), *known]


def test_who_was_granted_a_place_beside_another_while_its_gang_was_being_made_still_has_it() -> None:
    """The answer to the write that makes a Gang, and the watch, tell what Muster knew when that was sent."""
    circle = Circle(gpus=1)
    circle.cluster = cluster = SlowWrites(nodes=1, gpus=1)
    pairs_in_half_a_minute(circle)
    circle.train("a", "1", **{"gpu-memory": "10Gi"})
    circle.seconds(28)
    assert circle.using("a") == 1
    cluster.lasts = 2.0
    circle.train("b", "1", **{"gpu-memory": "10Gi"})
    circle.seconds(30)
    assert [circle.using(name) for name in "ab"] == [1, 1]
    assert len(circle.records) == 1, "both are on one device"
