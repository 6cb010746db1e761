"""What a live job attains: runs, service, progress and the history of its size."""

from __future__ import annotations

from dataclasses import replace

from muster.core.progress.attained_service import attained
from muster.core.progress.runtime import speed_of
from muster.types import Config, Facts, Member, Phase, Role, Shape

SHAPE = Shape(requests=(("nvidia.com/gpu", 2),))


def roles(bound: int, ending: int = 0, least: int = 1, most: int = 8) -> tuple[Role, ...]:
    members = [
        Member(f"u{i}", f"p{i}", Phase.BOUND if i < bound else Phase.ENDING, SHAPE, index=i, node="n0")
        for i in range(bound + ending)
    ]
    return (Role("worker", least, most, SHAPE, members=tuple(members)),)


def after(facts: Facts, now: float, bound: int, ending: int = 0, least: int = 1, product: str = "A") -> Facts:
    own = Config((("worker", bound),), product=product) if bound else Config()
    return attained(facts, roles(bound, ending, least), own, (), now, changing=bool(ending))


def test_service_and_progress_count_by_the_replicas_that_run() -> None:
    facts = after(Facts(), 100.0, 2)
    assert (facts.first_start, facts.run_start, facts.restarts, facts.between) == (100.0, 100.0, 0, False)
    facts = after(facts, 110.0, 4)
    assert facts.gpu_seconds.at(120.0) == 10 * 4 + 10 * 8
    assert facts.progress.at(120.0) == 10 * 2 + 10 * 4
    assert facts.executed.at(120.0) == 20.0
    assert facts.by_product["A"].at(120.0) == 20.0
    assert facts.shares == ((100.0, 2), (110.0, 4))


def test_nothing_new_is_the_same_object() -> None:
    facts = after(Facts(), 100.0, 2)
    assert after(facts, 105.0, 2) is facts


def test_a_gang_runs_once_its_minimum_is_there() -> None:
    facts = after(Facts(), 100.0, 1, least=2)
    assert (facts.first_start, facts.executed.rate, facts.gpu_seconds.rate) == (None, 0.0, 2.0)
    facts = after(facts, 103.0, 2, least=2)
    assert (facts.first_start, facts.run_start, facts.shares) == (103.0, 103.0, ((103.0, 2),))


def test_a_replica_that_crashes_does_not_end_the_run_and_a_stop_does() -> None:
    facts = after(Facts(), 100.0, 2, least=2)
    facts = after(facts, 110.0, 1, least=2)
    facts = after(facts, 115.0, 2, least=2)
    assert (facts.run_start, facts.restarts) == (100.0, 0)
    facts = after(after(facts, 120.0, 0), 130.0, 2)
    assert (facts.first_start, facts.run_start, facts.restarts) == (100.0, 130.0, 1)
    assert facts.run_gpu_seconds.at(131.0) == 4.0
    assert facts.shares[-2:] == ((120.0, 0), (130.0, 2))


def test_replicas_on_their_way_out_use_their_gpus_and_run_no_more() -> None:
    facts = after(after(Facts(), 100.0, 4), 110.0, 2, ending=2)
    assert (facts.gpu_seconds.rate, facts.progress.rate) == (8.0, 2.0)
    assert facts.shares == ((100.0, 4),), "the size is settled when they are gone"
    assert after(facts, 111.0, 2).shares == ((100.0, 4), (111.0, 2))


def test_the_history_is_bounded() -> None:
    facts = Facts()
    for i in range(200):
        facts = after(facts, float(i), 1 + i % 2)
    assert len(facts.shares) == 64


def test_declared_speeds_hold_between_and_beyond_their_points() -> None:
    declared = ((1, 1.0), (2, 1.8), (4, 3.0))
    assert [round(speed_of(declared, n), 2) for n in (0, 1, 2, 3, 4, 6)] == [0, 1, 1.8, 2.25, 3, 3]
    assert speed_of((), 3) == 3.0


def test_replicas_that_are_not_shared_add_no_speed() -> None:
    own, servers = (
        roles(2, least=2, most=2),
        replace(roles(2, least=2, most=2)[0], name="server", shape=Shape()),
    )
    facts = attained(Facts(), (servers, *own), Config(), (), 100.0, changing=False)
    assert (facts.progress.rate, facts.shares) == (2.0, ((100.0, 2),))
    alone = attained(Facts(), (servers, *roles(0, least=0)), Config(), (), 100.0, changing=False)
    assert (alone.progress.rate, alone.shares, alone.first_start) == (0.0, (), 100.0)


def test_facts_of_another_product_are_counted_apart() -> None:
    facts = after(after(Facts(), 0.0, 1), 10.0, 1, product="B")
    assert {name: meter.at(15.0) for name, meter in facts.by_product.items()} == {"A": 10.0, "B": 5.0}
    assert replace(facts, shares=()).restarts == 0
