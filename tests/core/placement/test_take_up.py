"""The largest step that finds places: one rule for starts and growths, with shares and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.placement.capacity import Capacity
from muster.core.placement.cycle_state import CycleState, HeadReservation
from muster.core.placement.place import Need
from muster.core.placement.statement import Statement
from muster.core.placement.take_up import Found, find, find_largest, grow, sizes_between
from muster.types import IntArray, Job
from tests.scenario import FIFO, RACK, cluster, job, key, node, role, snapshot

Case = tuple[list[int], bool, bool, bool]
"""Free GPUs of the nodes of three racks; whether the job may not pass the head of the queue, whether it comes before
it, and whether others leave."""


def statement_of(case: Case) -> tuple[Statement, Job]:
    """A trial for a job of up to 12 replicas that needs one rack."""
    free, guarded, ahead, later = case
    nodes = [node(f"n{i}", gpus, labels={RACK: f"r{i // 3}"}) for i, gpus in enumerate(free)]
    seen = snapshot(nodes=nodes, jobs=[job("train", worker=1, most=12, present=12, topology_required=RACK)])
    run = CycleState(seen, FIFO, Capacity(seen))
    train = seen.jobs[key("train")]
    ceiling = Capacity(seen)
    ceiling.take(0, train.roles[0].shape, free[0])
    names = frozenset({train.key}) if ahead else frozenset()
    guard = HeadReservation(ceiling, until=-np.inf, ahead=names) if guarded else None
    statement = Statement(run, guard=guard)
    if later:
        statement.later_room().give(1, train.roles[0].shape)
    return statement, train


def left(statement: Statement) -> list[IntArray]:
    """What is free: now, afterwards, and beside what is kept for the head."""
    rooms = [statement.capacity]
    rooms += [] if statement.after is None else [statement.after]
    rooms += [] if statement.guard is None else [statement.guard.ceiling]
    return [room.free for room in rooms]


def one_by_one(statement: Statement, train: Job, sizes: list[int]) -> tuple[int, Found] | None:
    """The largest, found by trying all from the last to the first."""
    for at in reversed(range(len(sizes))):
        found = find(statement, train, [Need(train.roles[0], sizes[at])])
        if found is not None:
            return at, found
    return None


@given(
    case=st.tuples(
        st.lists(st.integers(0, 4), min_size=9, max_size=9), st.booleans(), st.booleans(), st.booleans()
    ),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True).map(sorted),
)
def test_halving_finds_what_trying_all_finds_and_takes_nothing_beside_it(
    case: Case, sizes: list[int]
) -> None:
    (halved, train), (tried, _) = statement_of(case), statement_of(case)
    steps = [[Need(train.roles[0], size)] for size in sizes]
    assert find_largest(halved, train, steps) == one_by_one(tried, train, sizes)
    for one, other in zip(left(halved), left(tried), strict=True):
        np.testing.assert_array_equal(one, other)


def test_of_no_step_nothing_is_found() -> None:
    statement, train = statement_of(([4] * 9, False, False, False))
    assert find_largest(statement, train, []) is None


@pytest.mark.parametrize(
    ("sizes", "have", "most", "found"),
    [((), 2, 5, [3, 4, 5]), ((1, 2, 4, 8), 2, 7, [4]), ((), 3, 3, []), ((1, 8), 2, 7, [])],
)
def test_sizes_are_legal_and_beyond_what_it_has(
    sizes: tuple[int, ...], have: int, most: int, found: list[int]
) -> None:
    assert sizes_between(role("worker", 1, most=8, sizes=sizes), have, most) == found


@pytest.mark.parametrize(("sizes", "reached"), [([2, 3, 4, 5, 6], 5), ([2, 6], 2), ([6], 1)])
def test_a_role_grows_to_the_largest_size_that_fits(sizes: list[int], reached: int) -> None:
    seen = snapshot(nodes=cluster(2, 3), jobs=[job("train", worker=1, on=["n0"], most=8, present=8)])
    statement = Statement(CycleState(seen, FIFO, Capacity(seen)))
    statement.capacity.take(1, seen.jobs[key("train")].roles[0].shape)  # another job's
    train = seen.jobs[key("train")]
    assert grow(statement, train, train.roles[0], 1, sizes) == reached
    assert len(statement.reservations.get(key("train"), ())) == reached - 1
