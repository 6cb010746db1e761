"""The fluid engine: events on columns, with the plugins of the live cluster."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from muster import profiles
from muster.points import Profile
from muster.sim.engine import simulate
from muster.sim.options import Interrupted, Options
from muster.sim.result import Result, Segment
from muster.sim.submission import Curve, Linear, RoleSpec, Submission
from muster.sim.workload import Cluster, Group, Workload
from muster.types import Grants, Job, SharingSnapshot, Snapshot

HALF = Curve("half", (1.0, 1.5, 2.0))  # a second GPU adds half a GPU
FOUR = Cluster((Group(1, 4),), fluid=True)


def work(*jobs: Submission) -> Workload:
    return Workload(jobs, {"linear": Linear(), "half": HALF})


def job(name: str, at: float, work: float, request: int = 1, **more: object) -> Submission:
    return Submission(name, at, str(more.pop("model", "linear")), work, request, **more)  # type: ignore[arg-type]


def run(profile: str | Profile, *jobs: Submission, cluster: Cluster = FOUR, **options: object) -> Result:
    made = profiles.build(profile) if isinstance(profile, str) else profile
    return simulate(work(*jobs), cluster, made, Options(**options))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Fixed:
    """Grants what it is told, by job name, and 0 to the others."""

    grants: Mapping[str, int]

    def share(self, snapshot: SharingSnapshot) -> Grants:
        return Grants(np.array([self.grants.get(k.name, 0) for k in snapshot.table.keys], dtype=np.int64))


def test_without_a_share_plugin_jobs_run_whole_in_the_queues_order_and_one_that_does_not_fit_is_skipped() -> (
    None
):
    result = run("fifo", job("a", 0, 30, 3), job("b", 1, 20, 2), job("c", 2, 10, 1))
    assert result.started.tolist() == [0.0, 10.0, 2.0]
    assert result.ended.tolist() == [10.0, 20.0, 12.0]
    assert result.gpu_seconds.tolist() == [30.0, 20.0, 10.0]


def test_strict_order_lets_nobody_past_the_head_and_priority_comes_first() -> None:
    strict = replace(profiles.build("fifo"), order="strict")
    result = run(strict, job("a", 0, 30, 3), job("b", 1, 20, 2), job("c", 2, 10, 1))
    assert result.started.tolist() == [0.0, 10.0, 10.0]
    first = run("fifo", job("a", 0, 40, 4), job("b", 1, 40, 4), job("c", 2, 40, 4, priority=5))
    assert first.started.tolist() == [0.0, 20.0, 10.0]


def test_a_shorter_job_preempts_and_the_longer_goes_on_where_it_was() -> None:
    result = run("srtf", job("long", 0, 400, 4), job("short", 10, 40, 4))
    assert result.ended.tolist() == [110.0, 20.0]
    assert result.restarts.tolist() == [1, 0]


def test_every_change_of_a_running_job_costs_the_restart() -> None:
    jobs = (job("long", 0, 400, 4), job("short", 10, 40, 4))
    result = run("srtf", *jobs, restart=5.0)
    assert result.ended.tolist() == [115.0, 20.0]  # the first start is free, the second is not
    grown = run("max-min", job("a", 0, 80, model="linear"), job("b", 0, 20), restart=5.0)
    assert grown.ended.tolist() == [10.0 + 5.0 + 15.0, 10.0]  # 2 GPUs each, then 4 after the restart


def test_work_since_the_last_checkpoint_is_lost_at_a_change() -> None:
    jobs = (job("long", 0, 400, 4), job("short", 10, 40, 4))
    assert run("srtf", *jobs, checkpoint=4.0).ended.tolist() == [112.0, 20.0]


def test_a_job_that_is_stopped_in_its_pause_loses_no_work_that_it_never_did() -> None:
    jobs = [job(f"s{n}", 100 + 30 * n, 40, 4) for n in range(5)]  # each stops it 20 s into a pause of 60 s
    result = run("srtf", job("long", 0, 4000, 4), *jobs, restart=60.0, checkpoint=1000.0)
    # 100 s lost when it was stopped first; 260 s until the last of the others is done; a pause, and all of its work
    assert result.ended[0] == 230.0 + 60.0 + 1000.0
    assert result.restarts[0] == 5


def test_a_job_makes_no_speed_in_its_pause() -> None:
    jobs = (job("long", 0, 400, 4), job("short", 10, 40, 4))
    gauges = run("srtf", *jobs, restart=55.0).gauges
    assert gauges["utilisation"] == 1.0
    assert gauges["efficiency"] == pytest.approx(110 / 165)


def test_a_change_in_place_takes_its_pause_and_is_no_restart() -> None:
    profile = replace(profiles.build("max-min"), resize="in-place")
    result = run(profile, job("a", 0, 80), job("b", 0, 20), restart=5.0)
    assert result.ended.tolist() == [10.0 + 5.0 + 15.0, 10.0]
    assert result.restarts.tolist() == [0, 0]


def test_whole_seconds_round_arrivals_and_ends_up_and_join_what_falls_together() -> None:
    result = run("srtf", job("a", 0.4, 1.5), job("b", 0.9, 1.0), whole_seconds=True)
    assert result.submitted.tolist() == [1.0, 1.0]
    assert result.ended.tolist() == [3.0, 2.0]
    exact = run("srtf", job("a", 0.4, 1.5), job("b", 0.9, 1.0))
    assert exact.ended.tolist() == pytest.approx([1.9, 1.9])


def test_with_rounds_shares_change_at_their_boundaries_only() -> None:
    result = run("srtf", job("a", 0, 5, 4), job("b", 1, 40, 4), round=10.0)
    assert result.started.tolist() == [0.0, 10.0]
    assert result.ended.tolist() == [1.25, 20.0]


def test_gauges_are_means_over_time_and_count_waiting_jobs() -> None:
    result = run("fifo", job("a", 0, 40, 4, model="linear"), job("b", 0, 10, 1))
    gauges = result.gauges  # a: 0 to 10 on 4 GPUs; b: 10 to 20 on 1
    assert gauges["queue"] == pytest.approx(0.5)
    assert gauges["utilisation"] == pytest.approx(50 / 80)
    assert gauges["idle_gpus"] == pytest.approx(1.5)
    assert gauges["efficiency"] == pytest.approx((4 * 10 + 1 * 10) / 20 / 4)
    assert gauges["blocking"] == pytest.approx(0.5 * 10 * 10 / 10 / 20)  # grows to 1 over 10 of 20 s
    # alone on half of the cluster a takes 20 s, b (whose most is its request, 1 GPU, or more: linear) 5 s
    assert gauges["finish_time_fairness"] > 0


def test_efficiency_falls_where_gpus_add_less() -> None:
    result = run("max-min", job("a", 0, 20, model="half"))
    assert result.ended.tolist() == [10.0]
    assert result.gauges["efficiency"] == pytest.approx(2.0 / 4)


def test_segments_tell_who_had_how_many_gpus_when() -> None:
    result = run("srtf", job("long", 0, 400, 4), job("short", 10, 40, 4), record=True)
    assert sorted(result.segments, key=lambda s: (s.start, s.job)) == [
        Segment(0, 0.0, 10.0, 4),
        Segment(1, 10.0, 20.0, 4),
        Segment(0, 20.0, 110.0, 4),
    ]
    assert (10.0, 1) in result.queue


def test_allowed_sizes_and_units_are_kept_whatever_a_plugin_says() -> None:
    spec = RoleSpec("worker", 1, 2, gpus=2)
    result = run(
        Profile("x", shares=(Fixed({"a": 3, "b": 9}),)),
        job("a", 0, 8, sizes=(1, 2, 4), max=4, model="linear"),
        job("b", 0, 8, 2, roles=(spec,)),
        cluster=Cluster((Group(2, 4),), fluid=True),
    )
    assert result.ended.tolist() == [4.0, 4.0]  # 2 of sizes 1, 2, 4; 2 replicas of 2 GPUs
    assert result.gpu_seconds.tolist() == [8.0, 16.0]
    assert any("outside min..max" in note for note in result.notes)


def test_jobs_that_nobody_ever_starts_end_the_run_with_a_sentence() -> None:
    result = run(Profile("x", shares=(Fixed({"a": 1}),)), job("a", 0, 10), job("b", 0, 10))
    assert result.ended[0] == 10.0
    assert math.isnan(result.ended[1])
    assert math.isnan(result.started[1])
    assert (result.cut, result.notes) == (
        "",
        ("job b never ends: it waits, and nothing comes that would start it",),
    )


def test_a_job_whose_model_does_not_run_does_not_run_for_ever() -> None:
    still = Workload([job("a", 0, 10, model="still")], {"still": Curve("still", (0.0,))})
    result = simulate(still, FOUR, profiles.build("max-min"), Options())
    assert math.isnan(result.ended[0])
    assert result.notes == ("job a never ends: its model has no speed in the configuration that it runs in",)


def test_a_plugin_may_start_a_job_at_a_later_wake() -> None:
    plugin = Late(25.0)
    result = run(Profile("x", shares=(plugin,), named=(("late", plugin),)), job("a", 0, 10))
    assert result.started.tolist() == [30.0]
    assert result.cut == ""


@dataclass(frozen=True, slots=True)
class Late:
    """Starts everybody, but not before a time; asks to be woken every 10 s."""

    opens: float

    def share(self, snapshot: SharingSnapshot) -> Grants:
        return Grants(np.full(len(snapshot.table), int(snapshot.now >= self.opens)))

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        return snapshot.now + 10.0


def test_an_interruption_leaves_what_there_is() -> None:
    def stop(done: int, total: int, now: float) -> None:  # noqa: ARG001
        raise Interrupted

    jobs = [job(f"j{n}", n, 5) for n in range(900)]
    result = simulate(work(*jobs), FOUR, profiles.build("fifo"), Options(), stop)
    assert result.cut.startswith("interrupted at")
    assert result.interrupted
    assert np.isfinite(result.ended).any()
    assert np.isnan(result.ended).any()


def test_an_empty_workload_is_an_empty_result() -> None:
    result = run("afs-l")
    assert len(result.ended) == 0
    assert result.cut == ""


def test_unknown_lengths_come_last_and_are_not_told_to_policies() -> None:
    result = run("srtf", job("unknown", 0, 40, 4, known=False), job("known", 0, 80, 4))
    assert result.started.tolist() == [20.0, 0.0]


@dataclass(frozen=True, slots=True)
class Curious:
    """Reads jobs, remembers how often it has seen each, and gives a GPU to who was seen at most twice."""

    seen: list[tuple[str, float, int, int]]

    def share(self, snapshot: SharingSnapshot) -> Grants:
        for key in snapshot.table.keys:
            known: Job = snapshot.jobs[key]
            done = known.facts.progress.at(snapshot.now)
            self.seen.append((key.name, done, known.running, len(known.samples)))
        return Grants(np.ones(len(snapshot.table), dtype=np.int64))

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object]:  # noqa: ARG002
        count = job.memory.get("curious")
        return {"times": (int(count["times"]) if isinstance(count, Mapping) else 0) + 1}

    def wake(self, snapshot: SharingSnapshot) -> float | None:
        return snapshot.now + 4.0


def test_jobs_are_built_from_rows_when_a_plugin_asks_and_wakes_are_events() -> None:
    seen: list[tuple[str, float, int, int]] = []
    plugin = Curious(seen)
    profile = Profile("x", shares=(plugin,), named=(("curious", plugin),))
    result = run(profile, job("a", 0, 10))
    assert result.ended.tolist() == [10.0]
    assert seen == [("a", 0.0, 0, 0), ("a", 4.0, 1, 1), ("a", 8.0, 1, 1)]
    assert result.events == 4


PROFILES = (
    *("srtf", "srtf-max", "srtf-e", "srsf-e", "tiresias-l", "max-min", "optimus", "themis"),
    *("afs-l", "afs-p", "afs-s", "afs-l-packed", "afs-p-packed", "fifo"),
)


@pytest.mark.parametrize("name", PROFILES)
def test_the_same_input_and_seed_give_the_same_result_and_no_complaint(name: str) -> None:
    rng = np.random.default_rng(1)
    jobs = [
        job(f"j{n}", float(t), float(rng.lognormal(8, 1)), int(rng.integers(1, 4)), model="half", max=3)
        for n, t in enumerate(np.sort(rng.uniform(0, 30_000, 60)))
    ]
    first, second = (run(name, *jobs, restart=10.0) for _ in range(2))
    assert first.ended.tolist() == second.ended.tolist()
    assert first.gauges == second.gauges
    assert first.notes == ()
    assert np.isfinite(first.ended).all()
    assert first.gauges["utilisation"] <= 1.0 + 1e-9


def test_gpus_are_never_more_than_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.sim import fluid

    kept: list[Sequence[int]] = []
    original = fluid._Run._apply

    def checked(self: fluid._Run, shares: Grants) -> None:
        original(self, shares)
        kept.append((int((self.table.have * self.table.unit).sum()), int(self.gauges.used)))

    monkeypatch.setattr(fluid._Run, "_apply", checked)
    rng = np.random.default_rng(2)
    jobs = [job(f"j{n}", float(n * 3), float(rng.lognormal(3, 1)), 2, model="half", max=3) for n in range(80)]
    run("afs-p", *jobs)
    assert all(used <= 4 and used == gauge for used, gauge in kept)


def test_in_whole_seconds_it_is_decided_also_when_a_run_was_to_end_before_rounding_moved_its_end() -> None:
    """170 s of work on 2 GPUs that are 1.7 times as fast: 100 s, and in the sum of two parts a bit more."""
    curve = Curve("most", (1.0, 1.7, 2.3, 2.9))
    jobs = (job("a", 14, 170, 2, model="most"), job("b", 20, 157, 3, model="most"))
    options = Options(whole_seconds=True, record=True)
    result = simulate(Workload(jobs, {"most": curve}), FOUR, profiles.build("tiresias-l"), options)
    assert result.ended.tolist() == [115.0, 184.0]
    assert [at for at, _ in result.queue] == [14.0, 20.0, 114.0, 115.0, 184.0]
