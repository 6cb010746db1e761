"""Taking places on a trial, and giving them back."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.core.placement.capacity import PLENTY, Capacity, CapacityPair, used_by
from muster.types import GPU, Port, Shape
from tests.scenario import GIB, asks, node, snapshot

SHAPES: tuple[Shape, ...] = (
    asks(1),
    asks(4, cpu=8000),
    asks(cpu=500, memory=1),
    asks(),
    asks(2, ports=(Port("TCP", "", 8000),)),
    asks(1, selector=(("zone", "a"),)),
)
NODES = [node(f"n{i}", gpus=8, labels={"zone": "ab"[i % 2]}) for i in range(3)]

steps = st.lists(
    st.tuples(st.integers(0, len(NODES) - 1), st.sampled_from(SHAPES), st.integers(1, 3)), max_size=12
)


def state(capacity: Capacity) -> tuple[object, ...]:
    """All that readers of a room can see."""
    fits = tuple((tuple(capacity.fits(s)), capacity.total_fits(s)) for s in SHAPES)
    ports = {n: p for n, p in capacity.ports.items() if p}
    return capacity.free.tolist(), capacity.ours.tolist(), ports, fits


def take_all(capacity: Capacity, taken: Sequence[tuple[int, Shape, int]]) -> None:
    """Take each step in order."""
    for row, shape, count in taken:
        capacity.take(row, shape, count)


@given(before=steps, statement=steps)
def test_undo_restores_exactly(
    before: list[tuple[int, Shape, int]], statement: list[tuple[int, Shape, int]]
) -> None:
    capacity = Capacity(snapshot(nodes=NODES))
    take_all(capacity, before)
    was = state(capacity)
    mark = capacity.mark()
    take_all(capacity, statement)
    capacity.undo(mark)
    assert state(capacity) == was


@given(taken=steps, looks=st.lists(st.integers(0, 12), max_size=4))
def test_fits_is_the_same_however_often_it_was_asked_in_between(
    taken: list[tuple[int, Shape, int]], looks: list[int]
) -> None:
    asked, fresh = Capacity(snapshot(nodes=NODES)), Capacity(snapshot(nodes=NODES))
    for i, step in enumerate(taken):
        if i in looks:
            state(asked)
        take_all(asked, [step])
        take_all(fresh, [step])
    assert state(asked) == state(fresh)


@given(one=steps, two=steps)
def test_a_trial_in_both_rooms_is_undone_in_both(
    one: list[tuple[int, Shape, int]], two: list[tuple[int, Shape, int]]
) -> None:
    now, later = Capacity(snapshot(nodes=NODES)), Capacity(snapshot(nodes=NODES))
    take_all(later, one)
    was = state(now), state(later)
    both = CapacityPair(now, later)
    mark = both.mark()
    for row, shape, count in two:
        both.take(row, shape, count)
    both.undo(mark)
    assert (state(now), state(later)) == was


def test_a_node_takes_as_many_as_its_scarcest_resource_allows() -> None:
    capacity = Capacity(snapshot(nodes=[node("n0", gpus=8, cpu=10)]))
    assert capacity.fits(asks(1, cpu=4000)).tolist() == [2]
    assert capacity.fits(asks(3)).tolist() == [2]
    assert capacity.fits(asks(1, memory=200)).tolist() == [5]
    assert capacity.fits(asks()).tolist() == [110]


def test_what_is_over_committed_fits_nothing_rather_than_less_than_nothing() -> None:
    capacity = Capacity(snapshot(nodes=1))
    capacity.take(0, asks(8), 2)
    assert capacity.fits(asks(1)).tolist() == [0]
    assert capacity.total_fits(asks(1)) == 0


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    capacity = Capacity(snapshot(nodes=2))
    shape = replace(asks(), requests=(("example.com/fpga", 1),))
    assert capacity.vector(shape) is None
    assert capacity.fits(shape).tolist() == [0, 0]
    capacity.take(0, shape)
    capacity.undo(0)
    assert (capacity.free == snapshot(nodes=2).free).all()


def test_a_host_port_is_free_again_after_undo() -> None:
    shape = asks(ports=(Port("TCP", "", 8000),))
    capacity = Capacity(snapshot(nodes=2))
    capacity.take(0, shape)
    assert capacity.fits(shape).tolist() == [0, 1]
    capacity.undo(0)
    assert capacity.fits(shape).tolist() == [1, 1]


def test_giving_back_many_replicas_is_the_same_as_one_by_one() -> None:
    places = [(0, asks(2)), (1, asks(1, cpu=4000)), (0, asks(2)), (0, asks(1, cpu=4000))]
    at_once, one_by_one = Capacity(snapshot(nodes=2)), Capacity(snapshot(nodes=2))
    for capacity in (at_once, one_by_one):
        state_of = [capacity.fits(s).tolist() for s in SHAPES]
        assert state_of
        for row, shape in places:
            capacity.take(row, shape)
    at_once.give_all(places)
    for row, shape in places:
        one_by_one.give(row, shape)
    assert state(at_once) == state(one_by_one) == state(Capacity(snapshot(nodes=2)))


def test_a_trial_in_both_rooms_fits_what_fits_in_both() -> None:
    now, later = Capacity(snapshot(nodes=2)), Capacity(snapshot(nodes=2))
    now.take(0, asks(6))
    later.take(1, asks(5))
    both = CapacityPair(now, later)
    assert both.fits(asks(1)).tolist() == [2, 3]
    assert both.total_fits(asks(1)) == 5


def test_usage_by_column_counts_the_pod_itself() -> None:
    nodes = snapshot(nodes=1).nodes
    used = used_by(asks(2, memory=1), nodes)
    assert {nodes.resources[c]: v for c, v in used.items()} == {GPU: 2, "memory": GIB, "pods": 1}


def test_plenty_is_more_than_any_node_takes() -> None:
    assert int(np.int64(PLENTY)) > 10**9
