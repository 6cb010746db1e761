"""When a job that reported is silent, and that its owner is told so once."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from muster.core.progress import report_filter
from muster.core.progress.measure import changed
from muster.core.progress.report_filter import EMPTY, Track
from muster.core.reasons.shares import with_silence
from muster.core.views import cluster_view
from muster.types import Config, Report, Reported, WriteGang
from tests.cluster_fake import FakeCluster, Muster
from tests.core.test_elastic_live import MAX_MIN
from tests.scenario import job, key, snapshot
from tests.server.reading import viewed

TWO = Config((("worker", 2),), (2,), "A100")


def heard(*at: float, track: Track = EMPTY, config: Config = TWO, **more: float) -> Track:
    """The track after a report at each of these times, ten steps farther each."""
    for time in at:
        step = track.newest.step + 10.0 if track.newest is not None else 10_000.0
        track = report_filter.follow(track, Report(at=time, step=step, **more), config, time)  # type: ignore[arg-type]
    return track


# ---- a track ----


def test_silence_begins_a_minute_after_the_last_report_of_any_replica() -> None:
    track = heard(1.0, 11.0, 21.0)
    late = report_filter.follow(track, Report(at=30.0, step=12.0), TWO, 30.0)  # another replica's, behind
    assert (report_filter.silent_from(track), report_filter.silent_from(late)) == (81.0, 90.0)


def test_who_never_reported_or_has_told_all_of_his_steps_or_runs_nowhere_is_not_silent() -> None:
    stopped = changed(heard(1.0, 11.0), Config(), 12.0, "stop")
    done = heard(1.0, 11.0, total=10_010.0)
    never = changed(EMPTY, TWO, 5.0, "start")
    assert {report_filter.silent_from(track) for track in (EMPTY, never, stopped, done)} == {math.inf}


def test_a_job_that_reports_seldom_is_silent_after_four_of_its_pauses() -> None:
    assert report_filter.silent_from(heard(0.5, 50.5, 100.5)) == 100.5 + 4 * 50.0
    # each pause was longer than its owner's patience: it grows fourfold each time
    every_half_hour = heard(*(1.0 + 1800.0 * n for n in range(4)))
    assert report_filter.silent_from(every_half_hour) == 1.0 + 3 * 1800.0 + 4 * 960.0


def test_one_pause_that_was_silence_makes_nobody_deaf() -> None:
    hung = heard(1.0, 11.0, 21.0, 3621.0, 3631.0)
    assert report_filter.silent_from(hung) == 3631.0 + 4 * 60.0


def test_one_of_many_replicas_may_report_as_seldom_as_it_is_asked_to() -> None:
    many = Config((("worker", 500),), (8,) * 62 + (4,), "A100")
    assert report_filter.silent_from(heard(1.0, 11.0, config=many)) == 11.0 + 4 * 100.0


def test_a_change_of_its_replicas_takes_its_time() -> None:
    track = changed(heard(1.0, 11.0), replace(TWO, roles=(("worker", 4),)), 30.0, "resize")
    assert report_filter.silent_from(track) == 30.0 + 60.0 + 60.0
    costly = replace(track, costs=(100.0,))
    assert report_filter.silent_from(costly) == 30.0 + 60.0 + 200.0 + 60.0


def test_what_nobody_could_take_in_is_no_silence() -> None:
    assert report_filter.silent_from(heard(1.0, 11.0), listens=500.0) == 560.0


def test_the_first_report_after_a_silence_is_worth_telling_and_the_pause_is_kept() -> None:
    before = heard(1.0, 11.0, 21.0, 31.0)
    silent, soon = heard(91.0, track=before), heard(41.0, track=before)
    assert (report_filter.worth_telling(before, silent), report_filter.worth_telling(before, soon)) == (
        True,
        False,
    )
    assert report_filter.from_plain(json.loads(json.dumps(report_filter.to_plain(silent)))).usual == 60.0


# ---- what its owner reads ----


def test_the_sentence_says_since_when() -> None:
    assert with_silence("at its maximum", 0.0) == "at its maximum"
    said = "has not reported since 02:40Z on 22 Nov: its reports until then count"
    assert with_silence("", 1795315200.0) == said
    assert with_silence("at its maximum", 1795315200.0) == f"at its maximum; it {said}"


def test_the_page_says_it_of_a_job_in_full() -> None:
    hung = replace(job("hung", worker=1, on=["n0"]), silent=1795315200.0)
    told = cluster_view.job(viewed(snapshot(nodes=1, jobs=[hung])), lambda _: True, key("hung"))
    assert str(told["why"]).endswith("has not reported since 02:40Z on 22 Nov: its reports until then count")


def reasons(cluster: FakeCluster) -> list[bool]:
    """Of each Gang written since the last look: whether it says that its job is silent."""
    found = [
        "has not reported" in str(a.status["shareReason"]) for a in cluster.sent if isinstance(a, WriteGang)
    ]
    cluster.sent.clear()
    return found


class Training:
    """Of one job of one replica."""

    def __init__(self) -> None:
        self.cluster = FakeCluster(nodes=1)
        (pod,) = self.cluster.job("a", 1, min_replicas="1", max_replicas="1")
        self.muster = Muster(self.cluster, MAX_MIN)
        self.muster.settle()
        self._uid, self._step = pod.uid, 0.0

    def reports(self) -> None:
        self._step += 10.0
        told = Reported(self._uid, Report(at=self.cluster.now, step=self._step))
        self.muster.ledger.apply(told, self.cluster.now)

    def passes(self, seconds: int) -> None:
        """So many seconds, with a cycle whenever one is due."""
        for _ in range(seconds):
            self.cluster.now += 1.0
            if self.muster.ledger.due(self.cluster.now):
                self.muster.turn(seconds=0.0)

    @property
    def silent(self) -> float:
        (job,) = self.muster.ledger.snapshot(self.cluster.now).jobs.values()
        return job.silent


def test_a_job_that_falls_silent_is_said_so_once_and_not_any_more_once_it_reports() -> None:
    training = Training()
    for _ in range(10):
        training.reports()
        training.passes(10)
    assert not any(reasons(training.cluster))
    last = training.cluster.now - 10
    training.passes(45)
    assert (training.silent, any(reasons(training.cluster))) == (0.0, False)
    training.passes(25)
    assert training.silent == last
    assert reasons(training.cluster)[-1]
    training.passes(600)
    assert reasons(training.cluster) == [], "one write, however long it lasts"
    training.reports()
    training.passes(1)
    assert (training.silent, reasons(training.cluster)) == (0.0, [False])


def test_a_restart_of_muster_takes_nobody_for_silent_that_it_could_not_hear() -> None:
    training = Training()
    for _ in range(10):
        training.reports()
        training.passes(10)
    training.cluster.now += 3600.0
    training.muster = Muster(training.cluster, MAX_MIN)
    training.passes(50)
    assert training.silent == 0.0
    training.passes(30)
    assert training.silent > 0.0


def test_a_replica_that_does_not_lead_hears_nothing_and_calls_nobody_silent() -> None:
    training = Training()
    for _ in range(3):
        training.reports()
        training.passes(10)
    training.passes(90)
    assert training.silent > 0.0
    training.muster.ledger.step_down()
    training.passes(300)
    assert training.silent == 0.0
    training.muster.ledger.take_over()
    training.passes(90)
    assert training.silent > 0.0
