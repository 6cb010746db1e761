# Over 300 lines: each course is worked out by hand beside its test.
"""The simulator on nodes, against hand-computed courses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from muster.points import Profile
from muster.sim import physics as ph
from muster.sim.options import Interrupted, Options
from muster.sim.physics import Change, Cost, Running, Standard
from muster.sim.submission import Curve, RoleSpec, Submission
from muster.sim.workload import Group
from muster.types import Config, Grant, Grants, Job, JobKey, NodeRecord, SharingSnapshot, Snapshot

from .course import EQUAL, FIFO, course, ends, history, job, simulated, starts

# ---- starting, waiting, ending ----


def test_rigid_jobs_run_one_after_the_other_where_they_do_not_fit_together() -> None:
    result = simulated([job("a", 400, 0, 4), job("b", 400, 10, 4), job("c", 40, 20, 2)])
    assert starts(result) == {"a": 0, "b": 100, "c": 200}
    assert ends(result) == {"a": 100, "b": 200, "c": 220}
    assert history(result, "b") == [(10, 100, 0, ""), (100, 200, 4, "")]
    assert result.gpu_seconds.tolist() == [400, 400, 40]
    assert result.gauges["utilisation"] == pytest.approx(840 / 880)
    assert result.gauges["queue"] == pytest.approx((90 + 180) / 220)


def test_a_job_of_known_length_is_backfilled_where_it_does_not_delay_the_head() -> None:
    result = simulated([job("a", 300, 0, 3), job("b", 400, 10, 4), job("c", 80, 20, 1), job("d", 81, 20, 1)])
    assert starts(result) == {"a": 0, "b": 100, "c": 20, "d": 200}


def test_a_job_larger_than_the_cluster_never_ends_and_says_why() -> None:
    result = simulated([job("a", 10, 0, 8), job("b", 10, 0, 4)])
    assert ends(result)["b"] == 2.5
    assert math.isnan(ends(result)["a"])
    assert len(result.notes) == 1
    assert "job a never ends" in result.notes[0]


def test_a_job_without_work_ends_as_it_starts() -> None:
    assert ends(simulated([job("a", 0, 5)])) == {"a": 5}


def test_no_jobs_at_all() -> None:
    result = simulated([])
    assert list(result.names) == []
    assert not result.notes


def test_replicas_spread_over_nodes_and_the_gauges_count_them() -> None:
    result = simulated([job("a", 80, 0, 8)], 4, nodes=3)
    assert ends(result) == {"a": 10}
    assert len(set(result.segments[0].nodes)) == 2
    assert result.gauges["idle_gpus"] == 4


# ---- shrink, grow, preempt ----


def test_shares_shrink_and_grow_jobs_as_they_come_and_go() -> None:
    jobs = [job(n, w, t, 4, min=1) for n, w, t in (("a", 400, 0), ("b", 400, 10), ("c", 40, 20))]
    result = simulated(jobs, profile=EQUAL)
    assert starts(result) == {"a": 0, "b": 10, "c": 20}
    # a: 40 on 4 GPUs, then 2 until it ends; b: 2, 1 while c runs, 2, and 4 when a has ended
    assert ends(result) == {"a": 190, "b": 210, "c": 60}
    assert result.gauges["efficiency"] == pytest.approx(1)


def test_a_restart_costs_its_seconds_at_every_change_but_not_at_the_first_start() -> None:
    jobs = [job("a", 400, 0, 4, min=1), job("b", 40, 10, 2)]
    grants = {0: {"a": 4}, 10: {"a": 2, "b": 2}, 30: {"a": 4}}
    result = simulated(jobs, profile=course(grants), restart=5)
    assert history(result, "a") == [
        (0, 10, 4, ""),
        (10, 15, 2, "shrink"),
        (15, 30, 2, ""),
        (30, 35, 4, "grow"),
        (35, 117.5, 4, ""),  # 400 - 40 - 30 on 4 GPUs
    ]
    assert ends(result) == {"a": 117.5, "b": 30}
    assert result.restarts.tolist() == [2, 0]


def test_in_place_the_work_since_the_checkpoint_is_not_lost_and_no_restart_is_counted() -> None:
    jobs = [job("a", 400, 0, 4, min=1)]
    profile = course({0: {"a": 4}, 10: {"a": 2}}, resize="in-place")
    result = simulated(jobs, profile=profile, restart=5, checkpoint=60)
    assert ends(result) == {"a": 195}  # 40, 5 s, 360 / 2
    assert result.restarts.tolist() == [0]


def test_a_preempted_job_loses_its_work_since_the_last_checkpoint() -> None:
    jobs = [job("a", 100), job("b", 10, 70)]
    result = simulated(
        jobs, 1, profile=course({0: {"a": 1}, 70: {"b": 1}, 80: {"a": 1}}), restart=2, checkpoint=30
    )
    # a had done 70, its last checkpoint was at 60: 40 are left when it goes on at 82
    assert ends(result) == {"a": 122, "b": 80}
    assert history(result, "a") == [(0, 70, 1, ""), (70, 80, 0, ""), (80, 82, 1, "resume"), (82, 122, 1, "")]
    assert result.restarts.tolist() == [1, 0]


def test_checkpoints_are_counted_from_the_start_of_the_run_over_changes_of_speed() -> None:
    jobs = [job("a", 200, 0, 2, min=1), job("b", 1, 100)]
    grants = {0: {"a": 1}, 25: {"a": 2}, 70: {"a": 0}, 80: {"a": 1}}
    profile = course(grants, resize="in-place")
    result = simulated(jobs, 2, profile=profile, checkpoint=30)
    # checkpoint at 60: 25 + 2 * 35 = 95 done; 105 left from 80 on
    assert ends(result)["a"] == 185


def test_a_move_counts_as_a_move_and_costs_its_own_seconds() -> None:
    profile = course({0: {"a": 1}}, {20: ("a", ("node-1",))}, resize="in-place")
    willing = job("a", 100, tags={"resize": "restart"})
    result = simulated([willing], 1, nodes=2, profile=profile, restart=50, migrate=5)
    assert ends(result) == {"a": 105}
    assert result.moves.tolist() == [1]
    assert [s.nodes for s in result.segments if s.gpus] == [("node-0",), ("node-1",), ("node-1",)]


def test_a_physics_may_begin_the_run_of_a_job_anew_where_it_leaves_all_of_its_nodes() -> None:
    @dataclass(frozen=True)
    class Pods(Standard):
        def cost(self, change: Change) -> Cost:
            return Cost(pause=7.0, anew=True) if change.leaves else Cost(pause=1.0)

    seen, moves = Seen([]), {20: ("a", ("node-1", "node-1"))}
    profile = course({0: {"a": 1}, 10: {"a": 2}, 30: {"a": 2}}, moves, resize="in-place")
    profile = replace(profile, named=(*profile.named, ("seen", seen)))
    willing = job("a", 100, 0, 2, min=1, tags={"resize": "restart"})
    result = simulated([willing], 2, nodes=2, profile=profile, physics=Pods())
    paused = [(s.start, s.end, set(s.nodes)) for s in result.segments if s.note]
    assert paused == [(0, 1, {"node-0"}), (10, 11, {"node-0"}), (20, 27, {"node-1"})]
    began = {now: one.facts.run_start for now, one in seen.jobs}
    assert (began[10], began[20], began[30]) == (0, 0, 20)


def test_facts_are_what_the_policy_sees() -> None:
    seen: dict[float, Job] = {}

    @dataclass(frozen=True)
    class Looks:
        def observe(self, job: Job, snapshot: Snapshot) -> None:
            if job.key.name == "0-a":
                seen[snapshot.now] = job

    profile = course({0: {"a": 2}, 10: {"a": 0, "b": 2}, 20: {"a": 1}, 30: {"a": 1}})
    profile = replace(profile, named=(*profile.named, ("looks", Looks())))
    simulated([job("a", 100, 0, 2, min=1), job("b", 20, 10, 2)], 2, profile=profile, restart=4)
    first, waits, again, last = seen[0], seen[10], seen[20], seen[30]
    assert first.facts.first_start is None
    assert first.remaining_work == 100
    assert waits.facts.gpu_seconds.at(10) == 20
    assert again.facts.run_gpu_seconds.at(20) == 20  # kept while it waited
    assert not again.started
    assert last.started
    facts = last.facts
    assert (facts.first_start, facts.run_start, facts.restarts) == (0, 20, 1)
    assert facts.gpu_seconds.at(30) == 30
    assert facts.run_gpu_seconds.at(30) == 10
    assert facts.executed.at(30) == 20
    assert facts.progress.at(30) == 26
    assert last.report is not None
    assert (last.report.step, last.report.total, last.report.speed) == (26, 100, 1)


# ---- rounds, wakes, whole seconds ----


def test_with_rounds_the_cycle_runs_at_whole_multiples_only() -> None:
    result = simulated([job("a", 70, 1), job("b", 10, 60), job("c", 10, 61)], 1, round=60)
    # a ends at 130, within the third round; b starts at 180 and ends at 190
    assert starts(result) == {"a": 60, "b": 180, "c": 240}


@dataclass(frozen=True)
class Epochs:
    """Epochs of 52 iterations at 5/s on one replica: 10.4 s each."""

    name: str = "epochs"
    max: int = 8
    steps_per_epoch: float = 52.0

    def speed(self, config: Config) -> float:
        return 5.0 * config.replicas

    def loss(self, step: float) -> float:
        return 100.0 - step


def test_epochs_end_on_whole_seconds_and_the_next_one_starts_there() -> None:
    physics = Standard(whole_epochs=True)
    result = simulated([job("a", 156, model="epochs")], models={"epochs": Epochs()}, physics=physics)
    assert ends(result) == {"a": 30}  # 10.4 -> 10, three times


@pytest.mark.parametrize(("conserving", "start"), [(False, 60), (True, 7)])
def test_as_on_a_cluster_who_comes_between_two_rounds_starts_on_what_nobody_uses(
    conserving: bool, start: float
) -> None:
    rounds = course({0: {"a": 1}, 7: {"a": 1, "b": 1}, 60: {"a": 1, "b": 1}, 120: {"a": 1, "b": 1}})
    profile = replace(rounds, round=60.0, conserving=conserving)
    result = simulated([job("a", 300, 0), job("b", 20, 7)], 2, profile=profile)
    assert starts(result) == {"a": 0, "b": start}


def test_an_epoch_that_rounds_down_to_a_round_is_still_seen_by_its_cycle() -> None:
    """Pollux's simulator rounds when it gets there: at 10 the job is there still, and a change makes it pause."""
    physics = Standard({("", ph.GROW): Cost(pause=3)}, whole_epochs=True)
    jobs = [job("a", 52, 0, 2, min=1, model="epochs"), job("b", 500, 0, 1)]
    grants = {0: {"a": 1, "b": 1}, 10: {"a": 2, "b": 1}}
    result = simulated(jobs, models={"epochs": Epochs()}, physics=physics, profile=course(grants), round=10)
    assert ends(result)["a"] == 13  # 0.4 s of one replica's work are left, and round to nothing
    result = simulated(
        jobs, models={"epochs": Epochs()}, physics=physics, round=10, profile=course({0: grants[0]})
    )
    assert ends(result)["a"] == 10


def test_a_job_that_may_only_change_at_a_boundary_changes_there() -> None:
    jobs = [job("a", 520, 0, 2, min=1, model="epochs", tags={"resize_at": "boundary"})]
    profile = course({0: {"a": 1}, 15: {"a": 2}})
    result = simulated(jobs, models={"epochs": Epochs()}, profile=profile)
    assert history(result, "a")[:2] == [(0, 20.8, 1, ""), (20.8, 62.4, 2, "")]


def test_boundaries_and_losses_are_reported_fresh() -> None:
    seen: list[tuple[float, float, int, bool, float | None]] = []

    @dataclass(frozen=True)
    class Looks:
        def observe(self, job: Job, snapshot: Snapshot) -> None:
            r = job.report
            if r is not None:
                seen.append((round(snapshot.now, 3), round(r.step, 3), r.epoch, r.boundary, r.loss))

        def wake(self, snapshot: SharingSnapshot) -> float:
            return 15.0 if snapshot.now < 15.0 else 100.0

    profile = course({0: {"a": 1}})
    profile = replace(profile, named=(*profile.named, ("looks", Looks())))
    simulated(
        [job("a", 104, model="epochs", tags={"epochs": 1})], models={"epochs": Epochs()}, profile=profile
    )
    assert seen == [(10.4, 52, 1, True, 48.0), (15.0, 75, 1, False, 25.0)]


def test_whole_seconds_round_arrivals_and_completions_up() -> None:
    result = simulated([job("a", 10.5, 0.5), job("b", 1, 2.2)], 1, whole_seconds=True)
    assert starts(result) == {"a": 1, "b": 12}
    assert ends(result) == {"a": 12, "b": 13}


# ---- the hand-over ----


def handing(prepare: float = 83, pause: float = 27, release: float = 27) -> Standard:
    return Standard(
        {
            ("", ph.START): Cost(prepare=prepare),
            ("", ph.SHRINK): Cost(pause=pause, release=release),
            ("", ph.GROW): Cost(pause=37),
        }
    )


def test_a_hand_over_keeps_the_donor_running_until_the_other_is_ready() -> None:
    jobs = [job("a", 4000, 0, 4, min=1), job("b", 100, 100, 2)]
    profile = course({0: {"a": 4}, 100: {"a": 2, "b": 2}, 10_000: {"a": 4}}, resize="hand-over")
    result = simulated(jobs, profile=profile, physics=handing(prepare=83))
    assert history(result, "a")[:4] == [
        (0, 83, 0, ""),  # its own pod is made ready
        (83, 183, 4, ""),
        (183, 210, 2, "shrink"),
        (210, 2010, 2, ""),
    ]
    # b's training begins when a's has let go: 183 + 27
    assert history(result, "b") == [(100, 183, 0, ""), (183, 210, 2, "start"), (210, 260, 2, "")]


def test_who_takes_what_is_free_does_not_wait_for_a_hand_over_beside_it() -> None:
    jobs = [job("a", 4000, 0, 2, min=1), job("b", 100, 200, 2), job("c", 100, 210, 1)]
    grants = {0: {"a": 2}, 200: {"a": 1, "b": 2}, 210: {"a": 1, "b": 2, "c": 1}}
    result = simulated(jobs, 4, profile=course(grants, resize="hand-over"), physics=handing())
    assert starts(result)["b"] == 283  # two GPUs were free
    assert starts(result)["c"] == 293


def test_a_change_of_mind_cancels_what_was_being_prepared() -> None:
    jobs = [job("a", 4000, 0, 4, min=1), job("b", 100, 100, 2)]
    grants = {0: {"a": 4}, 100: {"a": 2, "b": 2}, 150: {"a": 4}, 4000: {"a": 2, "b": 2}}
    result = simulated(jobs, profile=course(grants, resize="hand-over"), physics=handing(prepare=83))
    assert ends(result)["a"] == 1083  # it was never touched
    assert starts(result)["b"] == 4083


def test_a_job_that_ends_while_it_is_asked_to_give_way_makes_way_at_once() -> None:
    jobs = [job("a", 100, 0, 4, min=1), job("b", 100, 100, 2)]
    grants = {0: {"a": 4}, 100: {"a": 2, "b": 2}}
    result = simulated(jobs, profile=course(grants, resize="hand-over"), physics=handing(prepare=83))
    assert ends(result) == {"a": 108, "b": 233}


def test_a_termination_frees_gpus_only_after_its_release() -> None:
    physics = Standard({("", ph.SHRINK): Cost(pause=204, release=204), ("", ph.START): Cost(pause=174)})
    jobs = [job("a", 4000, 0, 4, min=1), job("b", 100, 500, 2)]
    result = simulated(jobs, profile=course({0: {"a": 4}, 500: {"a": 2, "b": 2}}), physics=physics)
    assert history(result, "b")[0] == (500, 704, 2, "start")
    assert history(result, "a")[2] == (500, 704, 2, "shrink")


# ---- what runs beside what ----


@dataclass(frozen=True)
class Shared:
    """1/s alone, 0.6 beside anything, 0.25 beside `heavy`."""

    name: str = "shared"
    max: int = 1

    def speed(self, config: Config) -> float:
        return {"": 1.0, "heavy": 0.25}.get(config.beside, 0.6)


def test_two_jobs_on_one_gpu_slow_each_other_and_the_other_owns_it_when_one_leaves() -> None:
    jobs = [job("a", 60, model="shared"), job("b", 120, model="shared"), job("c", 10, 100, model="shared")]
    beside = Grant(beside=JobKey("", "a"))
    grants = {0: {"a": 1, "b": (1, beside)}, 100.0: {"b": 1}, 160: {"b": 1, "c": 1}}
    result = simulated(jobs, 1, profile=course(grants), models={"shared": Shared()})
    # both at 0.6 until 100; then b has 60 to do alone, and its GPU is not c's
    assert ends(result) == {"a": 100, "b": 160, "c": 170}
    assert result.gauges["idle_gpus"] == 0


@dataclass(frozen=True)
class Cores:
    """Each container can use one core of a node's: less where there are more containers than cores."""

    def factors(self, node: NodeRecord, running: Sequence[Running]) -> Sequence[float]:
        return [min(1.0, node.allocatable["cpu"] / 1000 / len(running))] * len(running)


def test_containers_that_share_a_node_slow_each_other_by_the_law() -> None:
    roles = (RoleSpec("main", 1, 1, gpus=0, cpu=10),)
    jobs = [job(n, w, t, roles=roles) for n, w, t in (("a", 60, 0), ("b", 60, 0), ("c", 30, 20))]
    result = simulated(jobs, groups=[Group(1, 0, cpu=2000)], physics=Standard(law=Cores()))
    # a, b alone until 20; three at 2/3 each until c has done 30, at 65; a, b: 10 left
    assert ends(result) == {"a": 75, "b": 75, "c": 65}


def test_the_slowest_product_sets_the_pace_and_time_by_product_is_counted() -> None:
    @dataclass(frozen=True)
    class ByProduct:
        name: str = "by"
        most: int = 4

        def speed(self, config: Config) -> float:
            return config.replicas * {"fast": 2.0, "slow": 1.0}[config.product]

    groups = [Group(1, 1, "fast"), Group(1, 1, "slow")]
    jobs = [job("a", 20, 0, 2, model="by"), job("b", 20, 0, 1, model="by")]
    result = simulated(jobs, groups=groups, models={"by": ByProduct()})
    assert ends(result) == {"a": 10, "b": 20}


# ---- failures ----


def test_a_failed_node_sends_its_jobs_back_and_they_lose_their_work_since_the_checkpoint() -> None:
    jobs = [job("a", 100, 0, 2), job("b", 100, 0, 1)]
    result = simulated(jobs, 2, nodes=2, fails=[(45, 0)], repair=100, checkpoint=20, restart=3)
    # a ran on node-0 at 2/s: at 40 it had done 80; it waits until the node is back at 145, since b keeps node-1 busy
    assert history(result, "b")[0][0] == 0
    assert ends(result) == {"a": pytest.approx(100 + 3 + 10), "b": 100}
    assert result.restarts.tolist() == [1, 0]


def test_a_node_is_not_used_while_it_is_down() -> None:
    result = simulated([job("a", 10, 50, 4)], 4, fails=[(40, 0)], repair=100)
    assert starts(result) == {"a": 140}


@pytest.mark.parametrize(
    ("fails", "repair"),
    [(86400, 3600), (3600, 36000)],
    ids=["all nodes are up at times", "one is always down"],
)
def test_failures_do_not_keep_a_job_waiting_for_ever_that_can_never_start(
    fails: float, repair: float
) -> None:
    rounds = replace(EQUAL, round=3600.0)
    jobs = [job("a", 40, 0, 4), job("b", 40, 0, 16)]
    result = simulated(jobs, 4, nodes=3, profile=rounds, failures=fails, repair=repair)
    assert ends(result)["a"] == 10
    assert [note for note in result.notes if note.startswith("job b never ends")]


def test_failures_are_the_same_for_the_same_seed() -> None:
    jobs = [job(f"j{i}", 500, 10 * i, 1 + i % 3) for i in range(20)]
    first, same, other = (
        simulated(jobs, 4, nodes=2, failures=400.0, repair=50.0, checkpoint=10, seed=seed)
        for seed in (1, 1, 2)
    )
    assert ends(first) == ends(same)
    assert ends(first) != ends(other)
    assert first.segments == same.segments
    assert first.restarts.sum() > 0


# ---- ends of a run ----


def test_ctrl_c_leaves_what_there_is_and_says_so() -> None:
    def stop(completed: int, total: int, now: float) -> None:  # noqa: ARG001
        if now > 2000:
            raise Interrupted

    jobs = [job(f"j{i}", 10, 10.0 * i) for i in range(500)]
    result = simulated(jobs, 1, progress=stop)
    assert "interrupted at" in result.cut
    ended = sum(not math.isnan(t) for t in result.ended)
    assert 200 <= ended < 500
    assert not result.notes


def test_a_job_whose_model_stands_still_is_reported() -> None:
    result = simulated([job("a", 10, model="none"), job("b", 10)], models={"none": Curve("none", (0.0,))})
    assert ends(result)["b"] == 10
    assert "no speed" in result.notes[0]


def test_the_same_input_gives_the_same_result() -> None:
    jobs = [job(f"j{i}", 100 + 7 * i, 5.0 * i, 1 + i % 4, min=1, max=8) for i in range(30)]
    one, two = (simulated(jobs, 4, nodes=4, profile=EQUAL, restart=3) for _ in range(2))
    assert one.segments == two.segments
    assert one.gauges == two.gauges


def test_a_rigid_job_that_never_said_it_can_be_placed_again_is_not_moved() -> None:
    profile = course({0: {"a": 1}}, {20: ("a", ("node-1",))}, resize="in-place")
    result = simulated([job("a", 100)], 1, nodes=2, profile=profile, restart=50, migrate=5)
    assert ends(result) == {"a": 100}
    assert result.moves.tolist() == [0]


def test_a_profile_without_shares_holds_jobs_at_their_request_unless_ranges_are_asked_for() -> None:
    jobs = [job("a", 100, 0, 4, min=2, max=4), job("b", 20, 0, 2)]
    held = simulated(jobs, profile=FIFO)
    assert starts(held) == {"a": 0, "b": 25}
    assert ends(held) == {"a": 25, "b": 35}
    grown = simulated(jobs, profile=FIFO, ranges=True)
    assert starts(grown) == {"a": 0, "b": 0}
    assert ends(grown) == {"a": 30, "b": 10}


def test_of_silent_jobs_only_what_they_declare_is_known_and_pauses_count_as_training() -> None:
    """a is alone for 20 s, pauses for 10 as it shrinks, and is believed to have trained in these, too."""
    seen: dict[float, tuple[float, bool]] = {}

    @dataclass(frozen=True)
    class Looks:
        def share(self, snapshot: SharingSnapshot) -> Grants:
            for key, one in snapshot.jobs.items():
                if key.name.endswith("a"):
                    seen[snapshot.now] = one.facts.progress.at(snapshot.now), one.report is None
            return EQUAL.shares[0].share(snapshot)  # type: ignore[union-attr]

    jobs = [job("a", 400, 0, 4, min=1), job("b", 40, 20, 4, min=1), job("c", 40, 35, 4, min=1)]
    for silent in (False, True):
        seen.clear()
        simulated(jobs, profile=replace(EQUAL, shares=(Looks(),)), restart=10, silent=silent)
        told, believed = (80.0 + 5.0 * 2.0, 80.0 + 15.0 * 2.0)
        assert seen[35.0] == (believed if silent else told, silent)


def test_what_a_change_cost_a_silent_job_is_told_by_its_pods_and_a_wait_is_no_change() -> None:
    """a restarts with less when b comes, with its GPUs free after 7 s; b waits for c, which takes all for 40 s."""
    seen: dict[str, set[float]] = {"a": set(), "b": set()}

    @dataclass(frozen=True)
    class Takes:
        def share(self, snapshot: SharingSnapshot) -> Grants:
            names = [key.name.split("-")[-1] for key in snapshot.table.keys]
            for name, one in zip(names, snapshot.jobs.values(), strict=True):
                if name in seen:
                    seen[name].add(round(one.facts.last_cost, 6))
            given = {"a": 4} if names == ["a"] else {"c": 4} if "c" in names else {"a": 2, "b": 2}
            return Grants(np.array([given.get(name, 0) for name in names]))

    restart = {"resize": "restart"}
    jobs = [
        replace(job(n, w, t, 4, min=1), tags=restart)
        for n, w, t in (("a", 400, 0), ("b", 200, 20), ("c", 160, 60))
    ]
    simulated(jobs, profile=replace(EQUAL, shares=(Takes(),)), restart=5, release=7, silent=True)
    assert seen["a"] == {0.0, 7.0}
    assert seen["b"] == {0.0}


def test_what_plugins_do_wrong_is_in_the_notes() -> None:
    @dataclass(frozen=True)
    class Fails:
        def share(self, _: SharingSnapshot) -> Grants:
            raise ValueError("no idea")

    result = simulated([job("a", 10), job("b", 10, 5)], profile=replace(FIFO, shares=(Fails(),)))
    assert any(
        "Fails.share" in note and "no idea" in note and "times from 0 s on" in note for note in result.notes
    )


def test_what_is_left_of_a_pause_is_not_forgiven_by_another_change() -> None:
    physics = Standard({("", ph.START): Cost(pause=20)})
    profile = course({0: {"a": 1}, 5: {"a": 2}}, resize="in-place")
    result = simulated([job("a", 100, 0, 2, min=1)], profile=profile, physics=physics)
    assert ends(result) == {"a": 70}


# ---- what policies may see of the truth ----


@dataclass(frozen=True)
class Seen:
    """Keeps every job that it is shown."""

    jobs: list[tuple[float, Job]]

    def observe(self, job: Job, snapshot: Snapshot) -> None:
        self.jobs.append((snapshot.now, job))


def watching(grants: dict[float, dict[str, int]]) -> tuple[Seen, Profile]:
    seen = Seen([])
    profile = course(grants)
    return seen, replace(profile, named=(*profile.named, ("seen", seen)))


def test_a_profiled_job_shows_its_speeds_by_count_and_product_before_it_ran() -> None:
    seen, profile = watching({0: {"a": 1}})
    groups = [Group(1, 2, "fast"), Group(1, 2, "slow")]
    model = Curve("c", (1.0, 1.5, 1.8))
    simulated([job("a", 3, 0, 1, min=1, max=3, model="c", tags={"profiled": 1})], groups=groups,
              models={"c": model}, profile=profile)  # fmt: skip
    samples = seen.jobs[0][1].samples
    assert {(c.count("worker"), c.nodes, c.product): s for c, s in samples.items()} == {
        (n, (2,) * (n // 2) + (1,) * (n % 2), product): speed
        for product in ("fast", "slow")
        for n, speed in ((1, 1.0), (2, 1.5), (3, 1.8))
    }
    assert seen.jobs[0][1].speed == ((1, 1.0), (2, 1.5), (3, 1.8))


def test_a_speed_is_measured_once_the_job_made_progress_in_that_configuration() -> None:
    seen, profile = watching({0: {"a": 1}, 10: {"a": 2}, 20: {"a": 2}})
    simulated([job("a", 100, 0, 2, min=1)], profile=profile, restart=3)
    shown = {now: [(c.replicas, s) for c, s in job.samples.items()] for now, job in seen.jobs}
    assert shown == {0: [], 10: [(1, 1.0)], 20: [(1, 1.0), (2, 2.0)]}


def test_a_speed_that_takes_its_time_to_be_measured_is_shown_by_a_cycle_of_its_own() -> None:
    seen, profile = watching({0: {"a": 1}, 10: {"a": 2}, 40: {"a": 1}})
    simulated([job("a", 100, 0, 2, min=1)], profile=profile, restart=3, measure=15)
    shown = {now: [(c.replicas, s) for c, s in job.samples.items()] for now, job in seen.jobs}
    two = [(2, 2.0)]
    assert shown == {0: [], 10: [], 28: two, 40: two, 58: [*two, (1, 1.0)]}, (
        "of one no sooner: it changed at 10"
    )


def test_a_job_of_unknown_length_tells_neither_its_work_nor_its_total() -> None:
    seen, profile = watching({0: {"a": 1}, 10: {"a": 1}})
    simulated([job("a", 100, known=False)], profile=profile)
    last = seen.jobs[-1][1]
    assert last.remaining_work is None
    assert last.speed == ()
    assert last.report is not None
    assert last.report.total == 0


def test_talkative_physics_made_of_the_options_report_jobs_that_never_ran() -> None:
    seen, profile = watching({0: {}, 5: {"a": 1}, 50: {"a": 1}})

    def made(options: Options) -> Standard:
        return Standard({("", ph.START): Cost(pause=options.restart)}, talkative=True)

    result = simulated([job("a", 100)], profile=profile, physics=made, restart=7)
    first = seen.jobs[0][1].report
    assert first is not None
    assert (first.step, first.total, first.speed) == (0, 100, 0)
    assert ends(result) == {"a": 112}
    assert [(now, job.report.step) for now, job in seen.jobs if job.report and now >= 12] == [
        (12, 0),
        (50, 38),
    ]


@dataclass(frozen=True)
class Uneven:
    """Epochs of 10, 20, 30 ... iterations, each slower than the one before; at batch 64 it is done after two."""

    name: str = "uneven"
    max: int = 4

    def speed(self, config: Config) -> float:
        return self.speed_at(config, 0.0)

    def epoch(self, step: float) -> int:
        return next(k for k in range(99) if 5 * k * (k + 1) <= step + 1e-6 < 5 * (k + 1) * (k + 2))

    def epoch_end(self, step: float) -> float:
        k = self.epoch(step) + 1
        return 5.0 * k * (k + 1)

    def speed_at(self, config: Config, step: float) -> float:
        return config.replicas * 10.0 / (1 + self.epoch(step))

    def work_at(self, config: Config) -> float:
        return 30.0 if config.batch == 64 else 60.0

    def declared(self, submission: Submission, per_node: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        return submission.work / 4, ((1, 1.0), (per_node, 2.0))


def test_a_model_may_change_its_speed_with_its_epochs_and_its_length_with_its_batch() -> None:
    jobs = [job("a", 60, 0, 1, model="uneven"), job("b", 60, 0, 1, model="uneven", batch=64)]
    seen, profile = watching({0: {"a": 1, "b": 1}, 2: {"a": 1, "b": 1}})
    result = simulated(jobs, models={"uneven": Uneven()}, profile=profile)
    # 10 at 10/s, 20 at 5/s, 30 at 10/3 a second; b is done after the second epoch
    assert ends(result) == {"a": 14, "b": 5}
    first = seen.jobs[0][1]
    assert (first.remaining_work, first.speed) == (15, ((1, 1.0), (4, 2.0)))


def test_a_neighbour_with_another_batch_is_named_with_it() -> None:
    asked: set[str] = set()

    @dataclass(frozen=True)
    class Asks:
        name: str = "asks"
        most: int = 1

        def speed(self, config: Config) -> float:
            asked.add(config.beside)
            return 1.0

    beside = Grant(beside=JobKey("", "a"))
    grants: dict[float, dict[str, int | tuple[int, Grant]]] = {
        0: {"a": 1, "b": (1, beside)},
        10: {"a": (1, Grant(batch=8)), "b": (1, beside)},
    }
    jobs = [job("a", 60, model="asks"), job("b", 60, model="asks")]
    result = simulated(jobs, 1, models={"asks": Asks()}, profile=course(grants, resize="in-place"))
    assert ends(result) == {"a": 60, "b": 60}
    assert asked == {"", "asks", "asks@8"}
