"""Curve fits: what was put in comes out, and what the points don't say is not made up."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.progress.fits import (
    Convergence,
    SpeedLaw,
    Surface,
    fit_convergence,
    fit_speed,
    fit_surface,
    reached,
    residual,
)

STEPS = (0.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)


@given(
    st.floats(1e-3, 0.5),
    st.floats(0.2, 5.0),
    st.floats(0.0, 2.0),
)
def test_a_loss_curve_is_recovered_from_its_own_points(b0: float, b1: float, b2: float) -> None:
    truth = Convergence(b0, b1, b2)
    fitted = fit_convergence(STEPS, [truth.value(k) for k in STEPS])
    assert fitted is not None
    assert residual(fitted, STEPS, [truth.value(k) for k in STEPS]) < 1e-5
    assert fitted.b2 == pytest.approx(b2, abs=1e-2)
    target = truth.value(640.0)
    assert fitted.step_at(target) == pytest.approx(640.0, rel=0.05)


def test_an_accuracy_is_a_loss_seen_from_its_ceiling() -> None:
    truth = Convergence(0.01, 1.0, 0.1, mirror=1.0)
    values = [truth.value(k) for k in STEPS]
    assert values == sorted(values)
    fitted = fit_convergence(STEPS, values, ceiling=1.0)
    assert fitted is not None
    assert fitted.step_at(0.8) == pytest.approx(truth.step_at(0.8), rel=1e-3)
    assert fitted.step_at(0.95) == math.inf  # above its asymptote of 0.9


@given(st.lists(st.floats(-0.02, 0.02), min_size=8, max_size=8))
def test_noise_moves_the_curve_by_no_more_than_itself(noise: list[float]) -> None:
    truth = Convergence(0.05, 0.8, 0.3)
    noisy = [truth.value(k) + n for k, n in zip(STEPS, noise, strict=True)]
    fitted = fit_convergence(STEPS, noisy)
    assert fitted is not None
    assert residual(fitted, STEPS, noisy) <= residual(truth, STEPS, noisy) + 1e-3


@pytest.mark.parametrize(
    ("steps", "values"),
    [
        ((), ()),
        ((1.0, 2.0), (0.5, 0.4)),
        ((1.0, 1.0, 1.0), (0.5, 0.4, 0.3)),
        ((1.0, 2.0, 3.0), (0.5, 0.5, 0.5)),
    ],
)
def test_too_few_points_or_no_fall_give_no_curve(steps: tuple[float, ...], values: tuple[float, ...]) -> None:
    assert fit_convergence(steps, values) is None


@given(st.tuples(*[st.floats(0.01, 1.0)] * 5), st.booleans())
def test_optimus_speed_law_is_recovered(
    t: tuple[float, float, float, float, float], synchronous: bool
) -> None:
    truth = SpeedLaw(t if synchronous else (*t[:4], 0.0), 4.0, synchronous)
    points = list(product(range(1, 7), range(1, 5)))
    speeds = [truth.speed(w, p) for w, p in points]
    fitted = fit_speed([w for w, _ in points], [p for _, p in points], speeds, 4.0, synchronous)
    assert fitted is not None
    assert fitted.t == pytest.approx(truth.t, abs=1e-6)
    assert fitted.speed(9, 9) == pytest.approx(truth.speed(9, 9), rel=1e-6)


def test_a_job_without_servers_has_the_same_law_without_their_terms() -> None:
    truth = SpeedLaw((8.0, 0.1, 0.0, 0.05, 0.0))
    fitted = fit_speed([1, 2, 4, 8], [0] * 4, [truth.speed(w) for w in (1, 2, 4, 8)])
    assert fitted is not None
    assert fitted.speed(16) == pytest.approx(truth.speed(16), rel=1e-9)
    assert fit_speed([1], [1], [0.0]) is None


GRID = list(product(range(1, 6), range(1, 5)))


@given(
    st.floats(1e-4, 1e-2),
    st.floats(1.0, 6.0),
    st.floats(1e-4, 1e-2),
    st.floats(1.0, 4.0),
    st.floats(0.5, 2.0),
)
def test_coachs_surface_is_recovered_from_a_grid(
    b1: float, b2: float, b3: float, b4: float, b5: float
) -> None:
    def truth(w: int, p: int) -> float:
        return -b1 * (w - b2) ** 2 - b3 * (p - b4) ** 2 + b5

    fitted = fit_surface([w for w, _ in GRID], [p for _, p in GRID], [truth(w, p) for w, p in GRID])
    assert fitted is not None
    assert [fitted.speed(w, p) for w, p in GRID] == pytest.approx([truth(w, p) for w, p in GRID], rel=1e-4)
    # the penalty on the bends pulls the tops by what it is worth beside 20 points, not more
    assert (fitted.b1, fitted.b3) == pytest.approx((b1, b3), abs=2e-5 * b5)


@given(st.tuples(*[st.floats(0.01, 1.0)] * 4))
def test_four_mini_epochs_leave_the_bends_open_and_the_fit_a_plane(
    speeds: tuple[float, float, float, float],
) -> None:
    fitted = fit_surface([1, 2, 1, 2], [1, 1, 2, 2], speeds)
    assert fitted is not None
    assert (fitted.b1, fitted.b3) == pytest.approx((0.0, 0.0), abs=1e-9)
    mean_gain = ((speeds[1] - speeds[0]) + (speeds[3] - speeds[2])) / 2.0
    assert fitted.speed(2, 1) - fitted.speed(1, 1) == pytest.approx(mean_gain, abs=1e-4)


def test_a_fifth_point_in_another_place_gives_the_surface_its_bend() -> None:
    fitted = fit_surface([1, 2, 1, 2, 6], [1, 1, 2, 2, 2], [0.1, 0.2, 0.1, 0.2, 0.2])
    assert fitted is not None
    assert fitted.b1 > 0.0
    assert fitted.b2 == pytest.approx(4.0, abs=0.05)  # 0.2 at two workers and at six: the top is between
    assert fitted.b3 == pytest.approx(0.0, abs=1e-6)


def test_what_nobody_measured_gains_nothing() -> None:
    fitted = fit_surface([2, 2], [1, 1], [0.3, 0.5])
    assert fitted is not None
    assert fitted.speed(2, 1) == pytest.approx(0.4)
    assert fitted.speed(3, 1) == pytest.approx(0.4)
    assert fitted.speed(2, 7) == pytest.approx(0.4)
    assert fit_surface([], [], []) is None


def test_a_surface_knows_its_top_also_where_it_has_none() -> None:
    bent = Surface(c0=1.0, cw=0.4, cp=0.0, b1=0.1, b3=0.0)
    assert (bent.b2, bent.b5) == pytest.approx((2.0, 1.4))
    assert math.isnan(bent.b4)
    assert Surface(1.0, 0.4, 0.0, 0.0, 0.0).b2 == math.inf
    assert Surface(1.0, 0.4, 0.0, 0.0, 0.0).b5 == math.inf


@pytest.mark.parametrize(
    ("losses", "epoch"),
    [((0.9, 0.8, 0.8, 0.7), 4), ((0.8, 0.9, 0.8, 0.8, 0.8), 5), ((0.8, 0.8), 0), ((), 0)],
)
def test_the_end_is_three_epochs_running_at_the_target(losses: tuple[float, ...], epoch: int) -> None:
    assert reached(losses, 0.8) == epoch
