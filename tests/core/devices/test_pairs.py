"""Two jobs on one device: who sits where, who is kept out, and how they come apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.core.devices.coordinator import seat
from muster.core.devices.holders import holder_seen
from muster.types.devices import (
    AgentAnswer,
    AgentKey,
    Device,
    MalformedError,
    Order,
    plain_answer,
    read_agent_answer,
    read_agent_report,
)
from muster.types.holders import HolderRecord
from muster_report.agent import standing
from muster_report.agent.locks import Locks
from tests.core.devices.world import GRACE, KEEP, LEASE, World


def trains(**wants: int) -> World:
    """Agents of all pods are ready; b is to sit beside a where it is to have any."""
    world = World()
    for pod in "abc":
        world.start_agent(pod)
    world.wants = {"a": 0, "b": 0, "c": 0, **wants}
    world.calm(6)
    return world


def pair(count: int = 1) -> World:
    world = trains(a=count)
    world.beside, world.wants["b"] = {"b": "a"}, count
    world.calm(6)
    assert len(world.shared()) == count
    return world


def users(world: World) -> dict[str, list[str]]:
    return {device: sorted(user[0] for user in found) for device, found in world.in_use().items()}


def test_the_second_job_sits_down_beside_the_first_which_goes_on_and_no_holder_is_made() -> None:
    world = trains(a=1)
    (before,) = [agent.standing.done for agent in world.living("a")]
    world.beside, world.wants["b"] = {"b": "a"}, 1
    world.calm(6)
    assert users(world) == {"GPU-0": ["a", "b"]}
    assert [agent.standing.done for agent in world.living("a")] == [before], "nobody told a anything"
    assert len(world.stored) == 1
    (record,) = [record for _, record in world.stored.values()]
    assert (record.agent, record.second) == (AgentKey("a", "a-0"), AgentKey("b", "b-1"))
    assert record.second_epoch > record.epoch


def test_a_third_job_never_sits_down_on_a_device_that_two_share() -> None:
    world = pair()
    world.wants["c"] = 1
    world.beside["c"] = "a"
    world.calm(30)
    assert users(world) == {"GPU-0": ["a", "b"]}


def test_a_job_that_is_nobodys_partner_gets_a_device_of_its_own() -> None:
    world = pair()
    world.wants["c"] = 1
    world.calm(8)
    assert users(world) == {"GPU-0": ["a", "b"], "GPU-1": ["c"]}


def test_when_one_leaves_the_other_has_it_alone_and_a_new_partner_sits_down_on_the_free_seat() -> None:
    for left, stays in (("a", "b"), ("b", "a")):
        world = pair()
        world.beside, world.wants[left] = {}, 0
        world.calm(6)
        assert users(world) == {"GPU-0": [stays]}
        world.calm(int(KEEP) + 5)
        assert len(world.stored) == 1, "the holder stays with who is left"
        world.beside, world.wants["c"] = {"c": stays}, 1
        world.calm(6)
        assert users(world) == {"GPU-0": sorted([stays, "c"])}


def test_a_pair_that_is_to_come_apart_trains_on_until_the_second_has_a_device_of_its_own() -> None:
    world = pair()
    world.beside = {}
    steps = []
    for _ in range(12):
        world.calm(1)
        steps.append(users(world))
    assert steps[-1] == {"GPU-0": ["a"], "GPU-1": ["b"]}
    assert all("a" in found["GPU-0"] for found in steps)


def test_a_pair_that_comes_apart_for_want_of_a_share_leaves_the_first_alone() -> None:
    world = pair(2)
    world.beside, world.wants["b"] = {}, 0
    world.calm(6)
    assert users(world) == {"GPU-0": ["a"], "GPU-1": ["a"]}
    assert len(world.stored) == 2


def test_a_job_that_has_a_device_joins_its_partner_and_gives_its_own_up() -> None:
    world = trains(a=1, b=1)
    assert users(world) == {"GPU-0": ["a"], "GPU-1": ["b"]}
    world.beside = {"b": "a"}
    world.calm(int(KEEP) + 8)
    assert users(world) == {"GPU-0": ["a", "b"]}
    assert len(world.stored) == 1


def test_one_that_is_cut_off_keeps_its_seat_from_others_until_its_lease_is_over() -> None:
    world = pair()
    world.beside, world.wants = {"c": "a"}, {"a": 1, "b": 0, "c": 1}
    for _ in range(int(LEASE)):
        world.calm(1, cut=frozenset("b"))
        assert "c" not in users(world).get("GPU-0", [])
    world.calm(int(GRACE) + 8, cut=frozenset("b"))
    assert users(world) == {"GPU-0": ["a", "c"]}


def test_a_new_leader_finds_both_in_the_record_and_moves_nobody() -> None:
    world = pair()
    told = {agent.pod: agent.standing.done for agent in world.agents}
    world.lead()
    world.calm(6)
    assert users(world) == {"GPU-0": ["a", "b"]}
    assert set(world.leader.devices) == {"GPU-0", seat("GPU-0", second=True)}
    using = {agent.pod: agent.using for agent in world.agents}
    assert all(len(using[pod]) == 1 and told[pod] for pod in "ab")


def test_what_is_recorded_of_a_seat_that_nobody_has_goes_when_another_gets_the_device() -> None:
    world = pair()
    world.beside, world.wants = {}, {"a": 0, "b": 0, "c": 1}
    world.calm(8)
    assert users(world) == {"GPU-0": ["c"]}
    (record,) = [record for _, record in world.stored.values()]
    assert (record.agent, record.second) == (AgentKey("c", "c-2"), None)
    holder_seen(world.leader, record, world.now)
    assert world.leader.devices[seat("GPU-0", second=True)].users == frozenset()


def test_a_lost_device_keeps_its_holder_until_both_have_let_it_go() -> None:
    world = pair()
    (uid,) = world.stored
    world.set_health(uid, healthy=False)
    world.wants = {"a": 0, "b": 0, "c": 0}
    world.beside = {}
    world.calm(3, slow=frozenset("b"))
    assert users(world) == {"GPU-0": ["b"]}
    assert uid in world.stored
    world.calm(4)
    assert not world.in_use()
    assert uid not in world.stored


def test_a_record_that_names_both_is_learnt_seat_by_seat() -> None:
    world = World()
    a, b = AgentKey("a", "a-0"), AgentKey("b", "b-0")
    holder_seen(world.leader, HolderRecord("h", "n1", "GPU-0", epoch=5, agent=a), world.now)
    holder_seen(
        world.leader,
        HolderRecord("h", "n1", "GPU-0", epoch=5, agent=a, second_epoch=7, second=b),
        world.now,
    )
    first, second = (world.leader.devices[seat("GPU-0", second=at)] for at in (False, True))
    assert (first.users, first.epoch) == ({a}, 5)
    assert (second.users, second.epoch) == ({b}, 7)


def test_two_that_share_a_device_have_a_lock_each(tmp_path: Path) -> None:
    first, second, third = (Locks(str(tmp_path)) for _ in range(3))
    assert first.take([standing.Device("GPU-0", 5)]) is None
    assert second.take([standing.Device("GPU-0", 7, second=True)]) is None
    assert "GPU-0: another training still holds its lock" in (
        third.take([standing.Device("GPU-0", 8, second=True)]) or ""
    )
    second.keep(())
    assert third.take([standing.Device("GPU-0", 8, second=True)]) is None
    for locks in (first, third):
        locks.keep(())


def test_an_order_says_which_seat_it_is_and_a_report_does_not() -> None:
    order = Order(9, "b-1", (Device("GPU-0", 7, second=True), Device("GPU-1", 8)))
    plain = plain_answer(AgentAnswer(1, LEASE, order))
    assert read_agent_answer(plain).order == order
    told = standing.read_answer(plain).order
    assert told is not None
    assert told.devices == (
        standing.Device("GPU-0", 7, second=True),
        standing.Device("GPU-1", 8),
    )
    report = {
        "incarnation": "b-1",
        "state": "running",
        "devices": [{"id": "GPU-0", "epoch": 7, "second": True}],
    }
    with pytest.raises(MalformedError, match="second"):
        read_agent_report({**report, "gpus": []})
