# Over 300 lines: speed, length and loss of a job are believed together, and tried together.
"""Estimate `reported`: what jobs report, then what is declared, learned or known; and never what they can't know."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.progress import learned
from muster.core.progress.estimate import declared
from muster.core.progress.fits import Convergence
from muster.points import Estimation, load
from muster.policylib.completion import forecast
from muster.types import PRODUCT, Config, Facts, Job, Meter, Report, Reservation, Snapshot
from muster_plugins.gavel_facts import steps_left
from muster_plugins.measured import Measured
from muster_plugins.reported import Reported
from muster_plugins.reported_loss import LOSSES
from tests.scenario import NOW, job, node, role, snapshot

REPORTED = load("reported")
A100 = [node(f"n{i}", 8, labels={PRODUCT: "A100"}) for i in range(2)]
SPEEDS = ((1, 1.0), (2, 1.9), (4, 3.4))


def on(workers: int, product: str = "A100", nodes: tuple[int, ...] = (), servers: int = 0) -> Config:
    roles = (("worker", workers),) if not servers else (("server", servers), ("worker", workers))
    return Config(roles, nodes or (workers,), product)


def train(workers: int = 0, **fields: Any) -> Job:
    """A job of one to eight workers, of which so many run on n0."""
    fields.setdefault("facts", Facts(run_start=NOW - 1000.0))
    return job("train", worker=8, least=1, on=["n0"] * workers, **fields)


def believed(made: Job, plugin: Reported = REPORTED, others: int = 0, **words: Any) -> Estimation:
    rest = [job(f"other-{n}", worker=1) for n in range(others)]
    return plugin.estimate(made, snapshot(A100, jobs=[made, *rest], **words))


# ---- speed ----


def test_medians_are_believed_where_there_are_any_and_amdahls_law_beyond() -> None:
    speeds = believed(train(4, samples={on(2): 190.0, on(4): 300.0})).speeds
    assert len(speeds) == 9
    assert speeds[4] / speeds[2] == pytest.approx(300.0 / 190.0)
    assert speeds[1] == 1.0
    assert speeds[4] < speeds[8] < 2.0 * speeds[4]


def test_a_speed_that_falls_when_the_job_grows_is_seen() -> None:
    speeds = believed(train(8, samples={on(2): 20.0, on(4): 30.0, on(8): 18.0})).speeds
    assert speeds[8] < speeds[2] < speeds[4]


def test_where_it_runs_now_counts_before_better_placements_and_those_before_worse_ones() -> None:
    samples = {on(4): 30.0, on(4, nodes=(2, 2)): 20.0, on(1): 10.0}
    here = believed(train(4, samples=samples)).speeds
    assert here[4] == pytest.approx(3.0)
    spread = job("train", worker=8, least=1, on=["n0", "n0", "n1", "n1"], samples=samples)
    assert believed(spread).speeds[4] == pytest.approx(2.0)
    assert believed(train(0, samples=samples)).speeds[4] == pytest.approx(3.0)


def test_speeds_of_another_product_are_not_mixed_in() -> None:
    samples = {on(1): 10.0, on(2): 18.0, on(4, "T4"): 8.0}
    assert believed(train(2, samples=samples)).speeds[:3] == pytest.approx((0.0, 1.0, 1.8))
    found = believed(train(2, samples=samples)).speed
    assert found is not None
    assert found(on(4, "T4")) == 8.0
    assert found(on(2, "T4")) < found(on(2)) == 18.0


def test_declared_speeds_bound_what_was_not_measured_and_only_that() -> None:
    speeds = believed(train(2, samples={on(1): 10.0, on(2): 20.0}, speed=SPEEDS)).speeds
    assert speeds[2] == 2.0
    assert speeds[4] == pytest.approx(2.0 * 3.4 / 1.9)
    assert speeds[8] == speeds[4]


def test_workers_beside_servers_are_believed_by_coachs_surface() -> None:
    samples = {on(w, servers=p): s for w, p, s in [(1, 1, 1.0), (1, 2, 1.5), (2, 1, 1.8), (2, 2, 2.3)]}
    roles = [
        role("worker", 4, least=1, on=["n0", "n0"], job="train"),
        role("server", 2, on=["n1", "n1"], gpus=0, job="train"),
    ]
    made = job("train", roles=roles, samples=samples)
    assert believed(made).speeds[:4] == pytest.approx((0.0, 1.0, 2.3 / 1.5, 3.1 / 1.5), rel=1e-3)


def test_a_job_like_one_before_starts_with_what_was_learned_and_its_own_reports_come_first() -> None:
    lesson = learned.Lesson((("worker", 1, 10.0), ("worker", 2, 15.0), ("worker", 4, 20.0)), 25.0, (1000.0,))
    memory = {"learned": learned.plain_lesson(lesson)}
    found = believed(train(0, memory=memory))
    assert found.speeds[:5] == pytest.approx((0.0, 1.0, 1.5, 1.714, 2.0), rel=1e-3)
    assert found.remaining == pytest.approx(100.0)
    own = believed(train(2, memory=memory, samples={on(2): 60.0}))
    assert own.speeds[2] == pytest.approx(1.5)
    assert own.speeds[4] == pytest.approx(2.0)
    assert own.speed is not None
    assert own.speed(on(2)) == 60.0


def test_a_model_of_the_reference_table_is_believed_by_it() -> None:
    speeds = believed(train(0, model="ResNet50", batch=512)).speeds
    assert len(speeds) == 9
    assert 1.0 < speeds[2] < speeds[4] < 4.0
    assert believed(train(0, model="VGG16", batch=128)).speeds[4] < 1.0  # "slower than on one" (Fig. 3)
    declares = train(0, model="ResNet50", speed=SPEEDS)
    assert believed(declares).speeds == declared(declares, NOW).speeds


def test_a_job_that_reports_gets_its_fair_part_until_it_is_measured_and_keeps_what_it_has() -> None:
    told = Report(at=NOW, step=1.0)
    new = train(1, report=told)
    assert believed(new, others=3).speeds == (0.0, 1.0, 2.0, 3.0, 4.0)
    crowd = snapshot(A100, jobs=[new, *(job(f"other-{n}", worker=1) for n in range(3))])
    assert Measured().estimate(new, crowd).speeds == REPORTED.estimate(new, crowd).speeds
    assert believed(train(6, report=told), others=3).speeds == tuple(float(n) for n in range(7))
    over = [job(f"over-{n}", worker=0) for n in range(9)]
    assert REPORTED.estimate(new, snapshot(A100, jobs=[new, *over])).speeds[-1] == 8.0


def test_a_job_that_starts_again_keeps_what_it_has() -> None:
    """On no node it was believed to gain nothing beyond its fair part: who restarted with seven GPUs got four."""
    reporting = train(report=report(5.0))
    again = replace(reporting, restart_on=("n0",) * 7)
    on_its_way = replace(reporting, reservations=(Reservation("worker", "n0"),) * 7)
    fair = len(believed(reporting, others=3).speeds)
    assert fair < 8
    assert [len(believed(made, others=3).speeds) for made in (again, on_its_way)] == [8, 8]


def test_no_gpu_idles_for_a_job_that_never_reports() -> None:
    assert believed(train(2), others=3).speeds == ()


# ---- length ----


def report(step: float, **fields: Any) -> Report:
    return Report(at=NOW, step=step, **fields)


def test_iterations_left_over_the_speed_on_one_replica() -> None:
    made = train(2, samples={on(1): 10.0, on(2): 18.0}, report=report(400.0, total=1000.0, speed=18.0))
    assert believed(made).remaining == pytest.approx(60.0)
    later = replace(made, report=replace(made.report, at=NOW - 10.0))
    assert believed(later).remaining == pytest.approx(42.0)
    hangs = replace(made, report=replace(made.report, at=NOW - 3000.0))
    assert believed(hangs).remaining == pytest.approx(60.0 - 3.0 * 18.0)


def test_speeds_in_samples_and_a_total_in_iterations_make_the_same_length() -> None:
    made = train(2, samples={on(2): 640.0}, report=report(500.0, total=1000.0, samples=16_000.0, speed=20.0))
    seen = REPORTED.observe(made, snapshot(A100, jobs=[made]))
    assert seen == {"batch": 32.0}
    made = replace(made, memory={"reported": seen})
    assert believed(made).remaining == pytest.approx(500.0 * 32.0 / 320.0)


def test_a_job_that_tells_samples_has_the_same_time_left_under_every_policy() -> None:
    told: dict[str, Any] = {"total": 2000.0, "speed": 1.0}
    plain = train(1, samples={on(1): 1.0}, report=report(1000.0, **told))
    counts = train(1, samples={on(1): 256.0}, report=report(1000.0, samples=256_000.0, **told))
    for made in (plain, counts):
        assert believed(made).remaining == 1000.0
        assert steps_left(made, NOW) / made.samples[on(1)] == 1000.0
        assert forecast(made, NOW).training(1, "A100") == 1000.0


def test_training_that_is_silent_is_not_believed_to_be_done() -> None:
    hung = train(
        1, samples={on(1): 1.0}, report=Report(at=NOW - 5000.0, step=1000.0, total=2000.0, speed=1.0)
    )
    assert forecast(hung, NOW).training(1, "A100") == believed(hung).remaining == 970.0


def test_until_another_batch_size_is_measured_it_counts_as_told() -> None:
    kept = {"reported": {"batch": 64.0}}
    told = report(1000.0, total=2000.0, samples=64_000.0)
    made = train(1, samples={on(1): 128.0}, report=told, memory=kept, batch=512)
    assert believed(made).remaining == 1000.0 * 512 / 128


def test_a_step_beyond_its_total_makes_the_length_unknown() -> None:
    made = train(2, samples={on(2): 20.0}, report=report(1001.0, total=1000.0, speed=20.0))
    assert math.isnan(believed(made).remaining)


def test_a_part_of_what_is_declared_where_no_speed_is_measured_yet() -> None:
    made = train(2, remaining_work=5000.0, report=report(400.0, total=1000.0))
    assert believed(made).remaining == pytest.approx(3000.0)
    assert math.isnan(believed(replace(made, remaining_work=None)).remaining)


def losing(curve: Convergence, steps: range, wrong: Mapping[int, float] | None = None, **fields: Any) -> Job:
    """A job that has reported its losses, one after the other."""
    made = train(2, samples={on(1): 10.0, on(2): 20.0}, **fields)
    for step in steps:
        loss = (wrong or {}).get(step, curve.value(step))
        made = replace(made, report=report(float(step), loss=loss, target=0.2, speed=20.0))
        kept = REPORTED.observe(made, snapshot(A100, jobs=[made]))
        if kept is not None:
            made = replace(made, memory={"reported": kept})
    return made


def test_without_a_total_the_loss_curve_tells_when_the_target_is_reached() -> None:
    curve = Convergence(0.001, 0.5, 0.05)
    end = curve.step_at(0.2)
    found = believed(losing(curve, range(100, 3000, 100))).remaining
    assert found == pytest.approx((end - 2900.0) / 10.0, rel=0.1)


def test_a_loss_that_is_wrong_by_a_hundred_times_bends_no_curve() -> None:
    curve = Convergence(0.001, 0.5, 0.05)
    wrong = {600: 100.0 * curve.value(600), 2000: 0.01 * curve.value(2000)}
    good = believed(losing(curve, range(100, 3000, 100))).remaining
    assert believed(losing(curve, range(100, 3000, 100), wrong)).remaining == pytest.approx(good, rel=0.1)


def test_a_job_whose_loss_was_at_its_target_three_times_running_has_no_work_left() -> None:
    curve = Convergence(0.01, 0.5, 0.01)
    before, after = losing(curve, range(100, 400, 100)), losing(curve, range(100, 1200, 100))
    assert math.isnan(believed(before).remaining)
    assert believed(after).remaining == 0.0


def test_a_loss_that_never_reaches_its_target_makes_the_length_unknown() -> None:
    assert math.isnan(believed(losing(Convergence(0.01, 0.5, 0.6), range(100, 3000, 100))).remaining)


# ---- memory ----


def test_the_loss_series_stays_small_and_is_written_seldom() -> None:
    made, writes = train(2), 0
    for step in range(1, 20_001):
        made = replace(made, report=report(float(step), loss=1.0 / step))
        kept = REPORTED.observe(made, snapshot(A100, jobs=[made]))
        if kept is not None:
            writes += 1
            made = replace(made, memory={"reported": kept})
    losses = made.memory["reported"]["losses"]  # type: ignore[index]
    assert len(losses) <= LOSSES
    assert [k for k, _ in losses] == sorted({k for k, _ in losses})
    assert losses[-1][0] > 19_000
    assert writes < 600


def test_losses_after_a_checkpoint_that_was_gone_back_to_are_forgotten() -> None:
    curve = Convergence(0.001, 0.5, 0.05)
    made = losing(curve, range(100, 1000, 100))
    back = replace(made, report=report(450.0, loss=9.0))
    kept = REPORTED.observe(back, snapshot(A100, jobs=[back]))
    assert kept is not None
    assert [k for k, _ in kept["losses"]] == [100.0, 200.0, 300.0, 400.0, 450.0]  # type: ignore[attr-defined]


# ---- whatever a job is ----


@given(
    work=st.none() | st.floats(0.0, 1e6),
    speed=st.sampled_from([(), SPEEDS, ((2, 1.0),), ((1, 1.0), (8, 0.5))]),
    progress=st.floats(0.0, 1e6),
    workers=st.integers(0, 8),
    now=st.floats(NOW, NOW + 1e6),
)
def test_a_job_that_reports_nothing_is_believed_exactly_as_declared(
    work: float | None, speed: tuple[tuple[int, float], ...], progress: float, workers: int, now: float
) -> None:
    facts = Facts(run_start=NOW - 5000.0, progress=Meter(progress, 1.0, NOW))
    made = train(workers, remaining_work=work, speed=speed, facts=facts)
    found = REPORTED.estimate(made, snapshot(A100, jobs=[made], now=now))
    expected = declared(made, now)
    assert found.speeds == expected.speeds
    assert found.remaining == expected.remaining or math.isnan(found.remaining) == math.isnan(
        expected.remaining
    )


NUMBERS = st.floats(0.0, 1e9) | st.sampled_from([1e-9, 1e15])


@st.composite
def reporting(draw: st.DrawFn) -> Job:
    """A job in any state, with reports as they come out of a track, and any memory."""
    counts = draw(st.lists(st.integers(1, 8), max_size=5, unique=True))
    samples = {on(n, draw(st.sampled_from(["A100", "T4", ""]))): draw(st.floats(1e-6, 1e9)) for n in counts}
    told = draw(
        st.none()
        | st.builds(
            Report,
            at=st.floats(0.0, NOW),
            step=NUMBERS,
            total=NUMBERS,
            loss=st.none() | st.floats(-1e15, 1e15),
            speed=NUMBERS,
            target=st.none() | st.floats(-1e6, 1e6),
            samples=NUMBERS,
        )
    )
    losses = sorted(draw(st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(-1e6, 1e6)), max_size=12)))
    junk = draw(st.sampled_from([None, 7, "x", {"losses": 3}, {"losses": [[1]], "batch": "x"}]))
    memory: dict[str, object] = {
        "reported": junk if junk is not None else {"losses": [list(p) for p in losses]}
    }
    if draw(st.booleans()):
        memory["learned"] = draw(
            st.sampled_from([1, {"speeds": 3}, learned.plain_lesson(learned.Lesson((("worker", 2, 3.0),)))])
        )
    return train(
        draw(st.integers(0, 8)),
        samples=samples,
        report=told,
        memory=memory,
        speed=draw(st.sampled_from([(), SPEEDS])),
        remaining_work=draw(st.none() | st.floats(0.0, 1e6)),
        model=draw(st.sampled_from(["", "VGG16"])),
    )


@given(made=reporting())
def test_whatever_was_reported_the_estimate_is_sound_and_the_same_again(made: Job) -> None:
    before: Snapshot = snapshot(A100, jobs=[made])
    found = REPORTED.estimate(made, before)
    again = REPORTED.estimate(made, before)
    assert found.speeds == again.speeds
    assert math.isnan(found.remaining) or found.remaining >= 0.0
    if found.speeds:
        assert found.speeds[0] == 0.0
        assert found.speeds[1] == pytest.approx(1.0)
        assert all(0.0 < s < math.inf for s in found.speeds[1:])
    if found.speed is not None:
        assert all(0.0 <= found.speed(on(n, p)) < math.inf for n in range(10) for p in ("A100", "T4"))
    kept = REPORTED.observe(made, before)
    if kept is not None:
        after = replace(made, memory={**made.memory, "reported": kept})
        assert REPORTED.observe(after, snapshot(A100, jobs=[after])) is None
