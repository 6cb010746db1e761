"""Curves between and beyond a few measured speeds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.progress.curves import Points, curve, with_servers


def amdahl(n: int) -> float:
    return n / (0.8 + 0.2 * n)


def test_one_measured_number_is_linear_on_both_sides() -> None:
    assert curve(((2, 5.0),), 4) == (0.0, 2.5, 5.0, 7.5, 10.0)


def test_two_measured_numbers_determine_amdahls_law() -> None:
    points = tuple((n, 10.0 * amdahl(n)) for n in (2, 4))
    found = curve(points, 16)
    for n in (1, 2, 4, 8, 16):
        assert found[n] == pytest.approx(10.0 * amdahl(n))


def test_three_determine_optimus_law_with_its_fall() -> None:
    def optimus(n: int) -> float:
        return 1.0 / (1.0 / n + 0.1 + 0.02 * n)

    found = curve(tuple((n, optimus(n)) for n in (1, 2, 4)), 16)
    for n in (8, 16):
        assert found[n] == pytest.approx(optimus(n), rel=1e-6)
    assert found[16] < found[8]


def test_between_measured_numbers_the_time_of_an_iteration_is_interpolated() -> None:
    assert curve(((1, 1.0), (3, 2.0)), 3)[2] == pytest.approx(1.0 / 0.75)


def test_a_speed_that_fell_is_seen_and_nothing_beyond_it_is_believed_to_be_more() -> None:
    found = curve(((1, 1.0), (2, 1.9), (4, 1.2)), 8)
    assert found[2] == 1.9
    assert found[4] == 1.2
    assert max(found[5:]) <= 1.2
    assert max(range(9), key=lambda n: found[n]) == 2


def test_no_job_is_believed_to_grow_more_than_linearly_whatever_it_says() -> None:
    assert curve(((1, 1.0), (2, 100.0)), 4) == (0.0, 1.0, 2.0, pytest.approx(3.0), pytest.approx(4.0))


def test_declared_speeds_bound_what_was_not_measured() -> None:
    declared = (0.0, 1.0, 1.5, 1.8, 2.0)
    found = curve(((2, 30.0),), 6, (), declared, declared)
    assert found == pytest.approx((0.0, 20.0, 30.0, 36.0, 40.0, 40.0, 40.0))
    measured = curve(((1, 20.0), (2, 39.0)), 4, (), declared, declared)
    assert measured[2] == 39.0  # as measured, though less was declared
    assert measured[4] == pytest.approx(39.0 * 2.0 / 1.5)


def test_what_was_learned_before_is_scaled_to_what_is_measured_now() -> None:
    assert curve(((2, 60.0),), 5, (0.0, 20.0, 30.0, 36.0, 40.0)) == pytest.approx(
        (0.0, 40.0, 60.0, 72.0, 80.0, 150.0)
    )


def test_workers_beside_servers_lie_on_coachs_surface() -> None:
    points = ((1, 1, 1.0), (1, 2, 1.5), (2, 1, 1.8), (2, 2, 2.3))
    assert with_servers(points, 2, 3) == pytest.approx((0.0, 1.5, 2.3, 3.1), rel=1e-3)
    assert with_servers(points[:3], 2, 3) == ()


@st.composite
def measured(draw: st.DrawFn) -> Points:
    counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=6, unique=True))
    return tuple((n, draw(st.floats(1e-3, 1e6))) for n in sorted(counts))


@given(points=measured(), prior=st.sampled_from([(), (0.0, 1.0, 1.5, 1.2)]))
def test_every_curve_is_positive_and_at_most_linear_from_the_smallest_number(
    points: Points, prior: tuple[float, ...]
) -> None:
    found = curve(points, 16, (), prior, prior)
    first, speed = points[0]
    assert len(found) == 17
    assert found[0] == 0.0
    assert min(found[1:]) > 0.0
    for n in range(first, 17):
        assert found[n] <= speed * n / first * (1.0 + 1e-9)
    for n, s in points:
        assert found[n] == pytest.approx(min(s, speed * n / first))
