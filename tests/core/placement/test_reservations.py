"""Places are handed to members: the lowest index first, and nobody takes the place of a lower one on its way."""

from __future__ import annotations

from dataclasses import replace

from muster.core.placement.reservations import assign
from muster.types import Job, Phase, Reservation
from tests.scenario import job

PLACES = [Reservation("worker", "n0"), Reservation("worker", "n0")]


def elastic(*, coming: bool, **phases: Phase) -> Job:
    """Six workers: 0 and 1 are bound, the others ready unless said (i2=Phase.ENDING)."""
    made = job("a", worker=6, gpus=1, on=["n0", "n0"])
    (role,) = made.roles
    members = tuple(replace(m, phase=phases.get(f"i{m.index}", m.phase)) for m in role.members)
    return replace(made, roles=(replace(role, members=members),), returning=coming)


def given(made: Job) -> list[str]:
    return [reservation.pod for reservation in assign(made, PLACES)]


def test_open_places_go_to_the_lowest_indexes() -> None:
    assert given(elastic(coming=False)) == ["a-worker-2", "a-worker-3"]
    assert given(elastic(coming=True)) == ["a-worker-2", "a-worker-3"]


def test_the_place_of_one_that_is_leaving_waits_for_its_successor() -> None:
    assert given(elastic(coming=True, i3=Phase.ENDING)) == ["a-worker-2", ""]
    assert given(elastic(coming=True, i2=Phase.ENDING)) == ["", ""]


def test_where_no_successor_comes_the_next_take_the_places() -> None:
    assert given(elastic(coming=False, i2=Phase.ENDING)) == ["a-worker-3", "a-worker-4"]


def test_a_successor_beside_the_one_that_leaves_takes_its_place() -> None:
    made = elastic(coming=True, i2=Phase.ENDING)
    (role,) = made.roles
    successor = replace(role.members[3], index=2, uid="new", pod="a-worker-2-new")
    both = replace(made, roles=(replace(role, members=(*role.members[:3], successor, *role.members[3:])),))
    assert given(both) == ["a-worker-2-new", "a-worker-3"]


def test_an_index_that_has_ended_well_is_not_waited_for() -> None:
    made = elastic(coming=True)
    (role,) = made.roles
    members = tuple(m for m in role.members if m.index != 2)
    done = replace(made, roles=(replace(role, members=members, ended=1),))
    assert given(done) == ["a-worker-3", "a-worker-4"]
