# Over 300 lines: each lie that a report can tell has a test.
"""What jobs report, as far as it is believed: speeds, restarts, the cost of a change, and lies."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.progress import report_filter
from muster.core.progress.history import CONFIGS, KEPT
from muster.core.progress.measure import changed
from muster.core.progress.report_filter import EMPTY, Track
from muster.types import Config, Report

NOTHING = Config()


def on(workers: int, product: str = "A100") -> Config:
    """So many workers on one node."""
    return Config((("worker", workers),), (workers,), product)


def told(track: Track, config: Config, points: Iterable[tuple[float, float]], **more: object) -> Track:
    """The track after (time, step) reports."""
    for at, step in points:
        track = report_filter.follow(track, Report(at=at, step=step, **more), config, at)  # type: ignore[arg-type]
    return track


def steady(
    track: Track,
    config: Config,
    start: float,
    speed: float,
    seconds: float,
    step: float = 0.0,
    every: float = 10.0,
) -> Track:
    """Trains at `speed` steps/s from `step` at `start` on, a report each `every` s."""
    count = int(seconds / every)
    return told(track, config, ((start + every * n, step + speed * every * n) for n in range(count + 1)))


def started(config: Config, now: float = 0.0) -> Track:
    return changed(EMPTY, config, now, "start")


def trained(speed: float = 10.0, seconds: float = 120.0) -> Track:
    """Four workers that have trained for two minutes."""
    return steady(started(on(4)), on(4), 0.0, speed, seconds)


# ---- speeds ----


def test_a_speed_is_told_once_two_measurements_agree_and_the_warm_up_does_not_count() -> None:
    track = started(on(2))
    slow = [(2.0, 1.0), (8.0, 2.0)]  # compiling
    track = told(track, on(2), slow)
    assert report_filter.samples(track) == {}
    track = steady(track, on(2), 12.0, 5.0, 30.0, step=10.0)
    assert report_filter.samples(track) == {on(2): 5.0}
    found = report_filter.report(track)
    assert found is not None
    assert (found.step, found.speed) == (160.0, 5.0)


def test_speeds_are_remembered_by_batch_size_and_outlive_a_leader() -> None:
    track = started(on(2))
    for size, speed, start, step in ((64, 5.0, 0.0, 0.0), (128, 3.0, 70.0, 300.0)):
        config = replace(on(2), batch=size)
        points = [(start + 10.0 * n, step + speed * 10.0 * n) for n in range(6)]
        track = told(track, replace(config, batch=track.config.batch), points[:1], batch=size)
        track = told(track, config, points[1:], batch=size)
    known = {replace(on(2), batch=64): 5.0, replace(on(2), batch=128): 3.0}
    assert (report_filter.samples(track), track.told_batch) == (known, 128)
    again = report_filter.from_plain(json.loads(json.dumps(report_filter.to_plain(track))))
    assert (report_filter.samples(again), again.told_batch, again.config) == (known, 128, track.config)
    silent = told(again, again.config, [(200.0, 700.0)])
    assert (silent.told_batch, silent.config.batch) == (128, 128), "not told again, it stays"


def test_gradient_noise_stays_until_it_is_told_again_and_outlives_a_leader() -> None:
    track = told(started(on(2)), on(2), [(1.0, 1.0)], noise=4000.0)
    track = told(track, on(2), [(2.0, 2.0)])
    again = report_filter.from_plain(json.loads(json.dumps(report_filter.to_plain(track))))
    for kept in (track, again):
        newest = report_filter.report(kept)
        assert newest is not None
        assert newest.noise == 4000.0
    later = report_filter.report(told(again, on(2), [(3.0, 3.0), (4.0, 4.0)], noise=5000.0))
    assert later is not None
    assert later.noise == 5000.0


def test_when_a_loss_was_told_stays_until_it_is_told_again_and_outlives_a_leader() -> None:
    track = told(started(on(2)), on(2), [(1.0, 1.0)], loss=0.5)
    assert loss_of(track) == (0.5, 0.0)
    track = told(track, on(2), [(2.0, 2.0), (3.0, 3.0)])
    again = report_filter.from_plain(json.loads(json.dumps(report_filter.to_plain(track))))
    assert loss_of(track) == loss_of(again) == (0.5, 1.0)
    assert loss_of(told(again, on(2), [(4.0, 4.0)])) == (0.5, 1.0)
    assert loss_of(told(again, on(2), [(4.0, 4.0)], loss=0.4)) == (0.4, 0.0)


def loss_of(track: Track) -> tuple[float | None, float]:
    newest = report_filter.report(track)
    assert newest is not None
    return newest.loss, newest.loss_at


@pytest.mark.parametrize("size", [0, -1, 10**10])
def test_a_batch_size_that_can_t_be_is_left_out(size: int) -> None:
    track = told(started(on(2)), on(2), [(1.0, 1.0)], batch=size)
    assert (track.told_batch, track.config) == (0, on(2))


def test_samples_count_where_they_are_told_and_the_report_still_has_iterations() -> None:
    track = started(on(4))
    for n in range(8):
        report = Report(at=10.0 * n + 1.0, step=20.0 * n, samples=20.0 * 256.0 * n)
        track = report_filter.follow(track, report, on(4), report.at)
    assert report_filter.samples(track) == {on(4): pytest.approx(512.0)}
    assert report_filter.report(track).speed == pytest.approx(2.0)  # type: ignore[union-attr]


def test_a_job_that_begins_to_tell_samples_is_measured_again_in_samples_and_never_in_steps_again() -> None:
    track = trained(speed=10.0)
    assert report_filter.samples(track) == {on(4): 10.0}
    last = report_filter.report(track)
    assert last is not None
    for n in range(1, 6):
        at, step = last.at + 10.0 * n, last.step + 100.0 * n
        track = report_filter.follow(track, Report(at=at, step=step, samples=32.0 * step), on(4), at)
    assert report_filter.samples(track) == {on(4): pytest.approx(320.0)}
    silent = told(track, on(4), [(last.at + 60.0 + 10 * n, last.step + 600.0 + 100 * n) for n in range(9)])
    assert report_filter.samples(silent) == {on(4): pytest.approx(320.0)}
    assert report_filter.report(silent).step == last.step + 1400.0  # type: ignore[union-attr]


def test_the_farthest_of_several_replicas_counts_from_when_it_was_first_told() -> None:
    track = started(on(4))
    for n in range(10):
        at, step = 10.0 * n + 1.0, 50.0 * n
        order = [(at, step), (at + 0.1, step - 1.0), (at + 0.2, step), (at + 5.0, step)]
        track = told(track, on(4), [(t, max(0.0, s)) for t, s in order])
    assert report_filter.samples(track) == {on(4): 5.0}
    assert report_filter.report(track).at == 91.0  # type: ignore[union-attr]


def test_every_configuration_keeps_its_own_median() -> None:
    track = trained(speed=10.0)
    track = changed(track, on(2), 121.0, "resize")
    track = steady(track, on(2), 130.0, 6.0, 60.0, step=1200.0)
    assert report_filter.samples(track) == {on(4): 10.0, on(2): 6.0}


def test_a_cold_cache_makes_nobody_forget_what_other_numbers_of_replicas_gave() -> None:
    two = steady(started(on(2)), on(2), 0.0, 4.0, 120.0)
    cold = steady(two, on(8), 120.0, 0.5, 60.0, step=480.0)
    assert report_filter.samples(cold)[on(8)] == 0.5
    warm = steady(cold, on(8), 190.0, 13.0, 120.0, step=520.0)
    assert report_filter.samples(warm) == {on(2): 4.0, on(8): 13.0}


def test_one_node_for_sixteen_is_fifteen_times_as_fast_over_a_slow_network() -> None:
    spread = replace(on(16), nodes=(1,) * 16)
    apart = steady(started(spread), spread, 0.0, 0.4, 120.0)
    packed = steady(apart, on(8), 120.0, 6.0, 120.0, step=48.0)
    assert report_filter.samples(packed) == {spread: 0.4, on(8): 6.0}


def test_a_restart_on_a_slow_gpu_is_not_taken_for_a_late_report_of_a_fast_one() -> None:
    fast = steady(started(on(64)), on(64), 0.0, 100.0, 120.0)
    slow = steady(fast, on(1, "T4"), 120.0, 0.5, 60.0, step=12_000.0)
    crashed = steady(slow, on(1, "T4"), 190.0, 0.5, 60.0, step=11_800.0)
    assert crashed.newest is not None
    assert crashed.newest.step == 11_830.0


@pytest.mark.parametrize("times", [9.9, 10.1, 50.0])
def test_a_gpu_that_is_ten_times_as_fast_makes_nobody_forget_the_slow_one(times: float) -> None:
    slow = steady(started(on(2, "T4")), on(2, "T4"), 0.0, 1.0, 120.0)
    both = steady(slow, on(2), 120.0, times, 120.0, step=120.0)
    assert report_filter.samples(both) == {on(2, "T4"): 1.0, on(2): pytest.approx(times)}


def test_what_is_a_thousand_times_as_much_on_another_gpu_is_in_doubt() -> None:
    slow = steady(started(on(2, "T4")), on(2, "T4"), 0.0, 1.0, 120.0)
    jumped = told(slow, on(2), [(130.0, 1e5)])
    assert jumped.newest is not None
    assert jumped.newest.step == 120.0


def test_the_published_median_is_the_same_object_until_it_moves_by_more_than_two_percent() -> None:
    track = trained(speed=10.0)
    before = report_filter.samples(track)
    on_and_on = steady(track, on(4), 130.0, 10.1, 300.0, step=1300.0)
    assert report_filter.samples(on_and_on) is before
    faster = steady(track, on(4), 130.0, 11.0, 300.0, step=1300.0)
    assert report_filter.samples(faster) == {on(4): 11.0}


def test_a_pause_of_a_minute_moves_the_median_of_nothing() -> None:
    track = trained(speed=10.0)
    track = steady(track, on(4), 180.0, 10.0, 20.0, step=1201.0)
    assert report_filter.samples(track) == {on(4): 10.0}


# ---- steps that fall or jump ----


def test_a_restart_from_a_checkpoint_after_a_change_is_believed_at_once() -> None:
    track = changed(trained(speed=10.0), on(2), 121.0, "resize")
    track = told(track, on(2), [(140.0, 900.0)])
    assert report_filter.report(track).step == 900.0  # type: ignore[union-attr]


def test_a_crash_without_a_change_is_believed_when_training_goes_on_from_there() -> None:
    track = trained(speed=10.0)
    track = told(track, on(4), [(150.0, 900.0)])
    assert report_filter.report(track).step == 1200.0  # type: ignore[union-attr]
    track = told(track, on(4), [(160.0, 1000.0)])
    assert report_filter.report(track).step == 1000.0  # type: ignore[union-attr]
    track = steady(track, on(4), 170.0, 10.0, 60.0, step=1100.0)
    assert report_filter.samples(track) == {on(4): 10.0}


def test_a_replica_far_behind_the_others_is_no_restart() -> None:
    track = trained(speed=10.0)
    for n in range(1, 10):
        at = 120.0 + 10.0 * n
        track = told(track, on(4), [(at, 1200.0 + 100.0 * n), (at + 1.0, 100.0 * n)])
        assert report_filter.report(track).step == 1200.0 + 100.0 * n  # type: ignore[union-attr]


def test_a_step_a_hundred_times_too_far_is_not_believed_and_training_goes_on() -> None:
    track = trained(speed=10.0)
    lied = told(track, on(4), [(130.0, 130_000.0)])
    assert report_filter.report(lied) == report_filter.report(track)
    assert not report_filter.worth_telling(track, lied)
    again = steady(lied, on(4), 140.0, 10.0, 50.0, step=1400.0)
    assert report_filter.report(again).step == 1900.0  # type: ignore[union-attr]
    assert report_filter.samples(again) is report_filter.samples(track)


def test_a_jump_that_the_next_report_goes_on_from_is_believed() -> None:
    track = told(trained(speed=10.0), on(4), [(130.0, 50_000.0), (140.0, 50_100.0)])
    assert report_filter.report(track).step == 50_100.0  # type: ignore[union-attr]
    assert report_filter.samples(track) == {on(4): 10.0}


@pytest.mark.parametrize("times", [0.001, 0.02, 30.0, 1000.0])
def test_a_job_that_was_measured_wrong_is_believed_in_the_end(times: float) -> None:
    track = trained(speed=10.0)
    track = steady(track, on(4), 130.0, 10.0 * times, 300.0, step=1300.0)
    assert report_filter.samples(track)[on(4)] == pytest.approx(10.0 * times)


def test_a_total_that_is_suddenly_a_hundred_times_as_much_must_be_told_twice() -> None:
    track = told(started(on(1)), on(1), [(1.0, 1.0)], total=1000.0)
    track = told(track, on(1), [(2.0, 2.0)], total=100_000.0)
    assert report_filter.report(track).total == 1000.0  # type: ignore[union-attr]
    assert report_filter.report(told(track, on(1), [(3.0, 3.0)], total=1000.0)).total == 1000.0  # type: ignore[union-attr]
    assert report_filter.report(told(track, on(1), [(3.0, 3.0)], total=100_000.0)).total == 100_000.0  # type: ignore[union-attr]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_what_is_no_number_is_left_out(bad: float) -> None:
    track = trained(speed=10.0)
    assert report_filter.follow(track, Report(at=130.0, step=bad), on(4), 130.0) == track
    rest = Report(130.0, 1300.0, bad, 3, bad, bad if bad != -1.0 else None, bad, target=math.nan, samples=bad)
    after = report_filter.follow(track, rest, on(4), 130.0)
    assert report_filter.report(after) == Report(130.0, 1300.0, epoch=3, speed=10.0)


def test_a_report_from_the_future_counts_as_now_and_a_late_one_not_at_all() -> None:
    track = trained(speed=10.0)
    early = report_filter.follow(track, Report(at=1e9, step=1300.0), on(4), 130.0)
    assert report_filter.report(early).at == 130.0  # type: ignore[union-attr]
    assert report_filter.follow(early, Report(at=100.0, step=1301.0), on(4), 131.0) is early


def test_training_goes_on_when_the_clock_was_set_back() -> None:
    track = trained(speed=10.0)
    ahead = replace(
        track, heard=1e9, newest=replace(track.newest, at=1e9), since=1e9
    )  # as a leader with a wrong clock wrote it
    track = steady(ahead, on(4), 130.0, 12.0, 120.0, step=1300.0)
    assert report_filter.samples(track) == {on(4): 12.0}


# ---- changes ----


def test_the_cost_of_a_restart_is_the_time_until_training_is_where_it_was() -> None:
    track = trained(speed=10.0, seconds=120.0)  # at step 1200 when the change comes
    track = changed(track, NOTHING, 125.0, "resize")
    track = changed(track, on(1), 128.0, "resize")
    track = changed(track, on(2), 129.0, "resize")
    assert report_filter.cost(track) == 0.0
    track = steady(track, on(2), 160.0, 6.0, 120.0, step=1000.0)
    # 1000 at 160 s, back at 1200 after 33 s: seen at 200 s (step 1240). 40 steps are done by then, at 10/s as far as
    # the 5 s before the change go: 40 / 10 = 4 s; 200 - 120 - 4 = 76.
    assert report_filter.costs(track) == (pytest.approx(76.0),)
    assert track.change is None


def test_what_was_done_before_all_stood_still_is_no_end_of_the_change() -> None:
    """Whoever reports goes on, and tells once more of the steps before: the standstill is seen in the end."""
    known = steady(steady(started(on(4)), on(4), 0.0, 10.0, 120.0), on(8), 120.0, 20.0, 120.0, step=1200.0)
    four = steady(known, on(4), 240.0, 10.0, 120.0, step=3600.0)
    grown = told(four, on(8), [(365.0, 4850.0), (375.0, 4850.0)])
    assert report_filter.costs(grown) == report_filter.costs(four)
    after = steady(grown, on(8), 395.0, 20.0, 60.0, step=4850.0)
    assert report_filter.costs(after)[-1] == pytest.approx(30.0, abs=1.0)


@pytest.mark.parametrize(("back", "speed"), [(580.0, 11.0), (0.0, 20.0), (600.0, 200.0)])
def test_a_change_whose_new_speed_is_believed_no_more_is_measured_later(back: float, speed: float) -> None:
    """Back at a checkpoint after it grew, first slow (a cold cache), then more than ten times as fast."""
    grown = changed(steady(started(on(2)), on(2), 0.0, 10.0, 100.0, every=5.0), on(4), 101.0, "resize")
    slow = steady(grown, on(4), 126.0, 1.0, 35.0, step=back + 5.0, every=5.0)
    fast = steady(slow, on(4), 166.0, speed, 195.0, step=back + 40.0 + 5.0 * speed, every=5.0)
    assert report_filter.samples(fast)[on(4)] == pytest.approx(speed, rel=0.1)
    assert fast.change is None


def test_a_batch_size_that_a_job_is_told_restarts_nothing() -> None:
    track = trained()
    other = steady(track, replace(on(4), batch=64), 120.0, 12.0, 60.0, step=1200.0)
    assert (report_filter.costs(other), other.change) == ((), None)


def test_a_change_that_loses_nothing_costs_next_to_nothing() -> None:
    track = trained(speed=10.0, seconds=120.0)
    track = changed(track, on(2), 120.0, "resize")
    track = steady(track, on(2), 130.0, 6.0, 60.0, step=1260.0)
    assert report_filter.cost(track) == pytest.approx(0.1)


def test_the_cost_is_the_median_of_the_last_three() -> None:
    track, step, at = trained(speed=10.0, seconds=120.0), 1200.0, 120.0
    for lost in (30.0, 300.0, 50.0, 40.0):
        track = changed(track, NOTHING, at, "resize")
        track = changed(track, on(4), at + 1.0, "resize")
        track = steady(track, on(4), at + lost, 10.0, 60.0, step=step)
        at, step = at + lost + 60.0, step + 600.0
    assert report_filter.costs(track) == (pytest.approx(300.0), pytest.approx(50.0), pytest.approx(40.0))
    assert report_filter.cost(track) == pytest.approx(50.0)


def test_waiting_in_the_queue_after_a_stop_is_no_cost_of_the_change() -> None:
    track = trained(speed=10.0, seconds=120.0)
    track = changed(track, NOTHING, 120.0, "stop")
    track = changed(track, on(4), 1120.0, "start")
    track = steady(track, on(4), 1140.0, 10.0, 60.0, step=1200.0)
    assert report_filter.cost(track) == pytest.approx(20.0)


def test_a_job_that_never_reports_pays_until_all_of_its_replicas_are_bound_again() -> None:
    track = started(on(4))
    track = changed(track, NOTHING, 100.0, "resize", whole=False)
    track = changed(track, on(1), 104.0, "resize", whole=False)
    track = changed(track, on(2), 107.0, "resize")
    assert report_filter.costs(track) == (7.0,)
    assert report_filter.costs(changed(track, on(2), 109.0, "resize")) == (7.0,)


def test_what_a_change_costs_a_job_that_never_reports_is_not_known_where_some_replicas_go_on() -> None:
    """That others are bound after 0.4 s says nothing of the checkpoint and the rendezvous: it was taken for the cost,
    and what a change costs kept nobody from changing again."""
    track = started(on(4))
    for count, at in ((2, 100.0), (4, 130.0)):
        track = changed(track, on(3), at, "resize", whole=False)
        track = changed(track, on(count), at + 0.4, "resize")
        assert track.change is None
    assert report_filter.costs(track) == ()


def test_a_first_start_is_no_change() -> None:
    track = steady(started(on(2), 50.0), on(2), 90.0, 5.0, 60.0)
    assert report_filter.costs(track) == ()


def test_a_cost_is_bounded_though_a_job_had_not_reported_for_hours_before() -> None:
    track = trained(speed=10.0, seconds=120.0)
    track = changed(track, NOTHING, 10_000.0, "resize")
    track = changed(track, on(4), 10_001.0, "resize")
    track = steady(track, on(4), 10_010.0, 10.0, 60.0, step=1201.0)
    assert 0.0 < report_filter.cost(track) <= 71.0


def test_a_speed_is_zero_after_a_change_until_it_is_measured_again() -> None:
    track = trained(speed=10.0)
    after = changed(track, on(2), 121.0, "resize")
    assert report_filter.report(after).speed == 0.0  # type: ignore[union-attr]
    assert (
        report_filter.every(report_filter.report(track)),
        report_filter.every(report_filter.report(after)),
    ) == (10.0, 2.0)


# ---- replicas that join ----


def grown() -> Track:
    """Two workers at 10 steps/s, and two more are bound at 121 s."""
    track = steady(started(on(2)), on(2), 0.0, 10.0, 120.0)
    return changed(track, on(4), 121.0, "resize")


def test_the_old_speed_is_not_taken_for_that_of_replicas_which_are_still_starting() -> None:
    track = steady(grown(), on(4), 122.0, 10.2, 40.0, step=1220.0, every=2.0)
    assert report_filter.samples(track) == {on(2): 10.0}
    track = steady(track, on(4), 164.0, 18.0, 40.0, step=1650.0, every=2.0)
    assert report_filter.samples(track) == {on(2): 10.0, on(4): 18.0}


def test_replicas_that_add_nothing_are_found_out_after_a_minute() -> None:
    track = steady(grown(), on(4), 122.0, 10.0, 120.0, step=1210.0)
    assert report_filter.samples(track) == {on(2): 10.0, on(4): 10.0}


def test_a_slower_speed_after_growing_is_believed_at_once() -> None:
    track = steady(grown(), on(4), 122.0, 6.0, 40.0, step=1220.0)
    assert report_filter.samples(track)[on(4)] == 6.0


def test_a_job_that_tells_its_workers_is_measured_when_all_of_them_take_part() -> None:
    track = grown()
    for n in range(20):
        at, step = 122.0 + 2.0 * n, 1210.0 + 20.0 * n
        track = report_filter.follow(track, Report(at=at, step=step, workers=2), on(4), at)
    assert report_filter.samples(track) == {on(2): 10.0}
    for n in range(1, 8):
        at, step = 160.0 + 2.0 * n, 1590.0 + 20.2 * n
        track = report_filter.follow(track, Report(at=at, step=step, workers=4), on(4), at)
    assert report_filter.samples(track)[on(4)] == pytest.approx(10.1)


# ---- telling ----


def test_what_is_worth_a_cycle_and_a_write() -> None:
    first = told(started(on(4)), on(4), [(1.0, 10.0)], total=1000.0)
    assert report_filter.worth_telling(started(on(4)), first)
    little = told(first, on(4), [(2.0, 20.0)], total=1000.0)
    assert not report_filter.worth_telling(first, little)
    assert report_filter.worth_telling(first, told(first, on(4), [(2.0, 20.0)], total=1100.0))
    assert report_filter.worth_telling(first, told(first, on(4), [(2.0, 20.0)], boundary=True))
    assert report_filter.worth_telling(first, told(first, on(4), [(3.0, 60.0)]))  # a twentieth further
    assert report_filter.worth_telling(first, steady(first, on(4), 2.0, 1.0, 40.0, step=10.0))  # measured
    assert not report_filter.worth_telling(
        little, report_filter.follow(little, Report(at=3.0, step=math.nan), on(4), 3.0)
    )


def test_a_job_that_reports_each_second_for_an_hour_is_worth_few_tells() -> None:
    track, tells = started(on(4)), 0
    for n in range(3600):
        now = float(n + 1)
        after = report_filter.follow(track, Report(at=now, step=7.0 * n, total=25_200.0), on(4), now)
        tells += report_filter.worth_telling(track, after)
        track = after
    assert 20 <= tells <= 26


# ---- kept ----


def test_a_track_is_read_again_as_it_was_written() -> None:
    track = changed(trained(speed=10.0), Config((("worker", 2),), (1, 1), "A100", 64, "vgg"), 130.0, "move")
    track = told(track, track.config, [(140.0, 1300.0)], loss=0.5, target=0.1, total=9e3)
    plain = json.loads(json.dumps(report_filter.to_plain(track)))
    again = report_filter.from_plain(plain)
    assert report_filter.to_plain(again) == plain
    assert (report_filter.samples(again), report_filter.report(again)) == (
        report_filter.samples(track),
        report_filter.report(track),
    )
    assert again.change == track.change
    assert report_filter.to_plain(EMPTY) == {}
    assert report_filter.from_plain({}) == EMPTY


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=12,
)


@given(value=PLAIN)
def test_nothing_that_stands_in_a_gang_is_an_error(value: object) -> None:
    assert report_filter.from_plain(value) == EMPTY or isinstance(value, dict)


@given(field=st.sampled_from(sorted(report_filter.to_plain(trained()))), value=PLAIN)
def test_a_track_with_a_broken_field_is_no_error_and_its_medians_stay_positive(
    field: str, value: object
) -> None:
    read = report_filter.from_plain({**report_filter.to_plain(trained()), field: value})
    assert all(0.0 < s < math.inf for s in report_filter.samples(read).values())


NUMBERS = (
    st.floats(allow_nan=True, allow_infinity=True) | st.floats(0.0, 1e4) | st.sampled_from([0.0, -1.0, 1e308])
)


@given(
    events=st.lists(
        st.tuples(
            st.integers(0, 8),
            st.sampled_from(["report", "report", "report", "resize", "stop"]),
            NUMBERS,
            NUMBERS,
            NUMBERS,
        ),
        max_size=60,
    )
)
def test_whatever_is_reported_the_track_stays_sound_and_small(
    events: list[tuple[int, str, float, float, float]],
) -> None:
    track, now = EMPTY, 0.0
    for workers, kind, first, second, third in events:
        now += abs(third) % 100.0 if math.isfinite(third) else 1.0
        if kind == "report":
            report = Report(second, first, second, 0, third, third, first, True, second, third)
            track = report_filter.follow(track, report, track.config, now)
        else:
            track = changed(track, on(workers) if workers else NOTHING, now, kind)
        newest = report_filter.report(track)
        assert newest is None or (
            all(math.isfinite(x) and x >= 0.0 for x in (newest.at, newest.step, newest.total, newest.speed))
            and newest.at <= now
        )
        assert all(0.0 < s < math.inf for s in report_filter.samples(track).values())
        assert all(0.1 <= c <= 3600.0 for c in report_filter.costs(track))
        assert len(track.speeds) <= CONFIGS
        assert all(len(kept) <= KEPT for _, kept in track.speeds)
        assert report_filter.silent_from(track) >= track.heard + 60.0
    plain = report_filter.to_plain(track)
    assert len(json.dumps(plain)) < 8000
    assert report_filter.to_plain(report_filter.from_plain(json.loads(json.dumps(plain)))) == plain


@given(
    lies=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from([100.0, 0.01, -1.0, math.nan, math.inf])), max_size=8
    )
)
def test_lies_between_true_reports_move_no_median(lies: list[tuple[int, float]]) -> None:
    track = trained(speed=10.0)
    at = dict(lies)
    for n in range(30):
        now, step = 130.0 + 10.0 * n, 1300.0 + 100.0 * n
        if n in at:
            track = report_filter.follow(track, Report(at=now, step=step * at[n]), on(4), now)
        track = report_filter.follow(track, Report(at=now + 0.1, step=step), on(4), now + 0.1)
    assert report_filter.samples(track) == {on(4): 10.0}
    assert report_filter.report(track).step == 4200.0  # type: ignore[union-attr]


def test_many_configurations_are_forgotten_from_the_one_that_was_measured_longest_ago() -> None:
    track, at, step = EMPTY, 0.0, 0.0
    for workers in range(1, CONFIGS + 6):
        track = changed(track, on(workers), at, "resize")
        track = steady(track, on(workers), at + 10.0, 5.0, 60.0, step=step)
        at, step = at + 80.0, step + 400.0
    assert set(report_filter.samples(track)) == {on(n) for n in range(6, CONFIGS + 6)}
    assert len(json.dumps(report_filter.to_plain(track))) < 6000
