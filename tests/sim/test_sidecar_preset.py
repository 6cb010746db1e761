"""SideCar's experiments in the simulator: Fig. 3 second by second, and what a hand-over must never do."""

from __future__ import annotations

from itertools import pairwise

import pytest

from muster.profiles import build
from muster.sim.engine import simulate
from muster.sim.options import Options
from muster.sim.physics import GROW, HAND_OVER, MOVE, RESTART, SHRINK, START, Change, Cost
from muster.sim.presets import sidecar
from muster.sim.result import Result
from muster.sim.workload import Workload
from muster.types import Config


def run(workload: Workload, profile: str, **arguments: object) -> Result:
    assert workload.cluster is not None
    built = build(profile, {profile: arguments} if arguments else None)
    return simulate(workload, workload.cluster, built, Options(record=True))


def course(result: Result, job: int) -> list[tuple[float, float, int, str]]:
    """(from, to, GPUs, what it waits for) of a job, whole seconds."""
    return [(round(s.start), round(s.end), s.gpus, s.note) for s in result.segments if s.job == job]


# ---- the case study, Fig. 3 ----


def test_default_the_second_job_waits_for_the_first_one_s_end() -> None:
    result = run(sidecar.case_study(), "sidecar-default", draw=False)
    assert course(result, 0) == [(0, 83, 4, "start"), (83, 633, 4, "")]
    assert course(result, 1) == [(180, 633, 0, ""), (633, 807, 2, "start"), (807, 1232, 2, "")]


def test_termination_based_both_jobs_stand_still_for_204_s_and_one_for_242() -> None:
    result = run(sidecar.case_study(), "reshape-restart")
    assert course(result, 0)[:4] == [
        (0, 83, 4, "start"),
        (83, 180, 4, ""),
        (180, 384, 2, "shrink"),
        (384, 809, 2, ""),
    ]
    assert course(result, 0)[4:] == [(809, 1051, 4, "grow"), (1051, 1189, 4, "")]
    assert course(result, 1) == [(180, 384, 2, "start"), (384, 809, 2, "")]


def test_sidecar_the_running_job_trains_on_while_the_pod_of_the_next_starts() -> None:
    result = run(sidecar.case_study(), "reshape")
    # job 2's pod starts at 180; job 1 keeps its four GPUs until 263, and both train at 290
    assert course(result, 0) == [
        (0, 83, 0, ""),
        (83, 263, 4, ""),
        (263, 290, 2, "shrink"),
        (290, 715, 2, ""),
        (715, 752, 4, "grow"),
        (752, 807, 4, ""),
    ]
    assert course(result, 1) == [(180, 263, 0, ""), (263, 290, 2, "start"), (290, 715, 2, "")]


def test_the_case_study_is_within_five_percent_and_ordered_as_in_the_paper() -> None:
    results = [
        run(sidecar.case_study(), "sidecar-default", draw=False),
        run(sidecar.case_study(), "reshape-restart"),
        run(sidecar.case_study(), "reshape"),
    ]
    assert [r.ended.max() for r in results] == pytest.approx([1249.0, 1143.0, 845.0], rel=0.05)
    default, termination, ours = (float((r.ended - r.submitted).mean()) for r in results)
    assert ours < default < termination


def test_the_runs_of_the_figure_imply_two_speed_ratios() -> None:
    assert sidecar.by_b() == pytest.approx(0.85, abs=0.005)
    assert sidecar.by_c() == pytest.approx(0.63, abs=0.005)


# ---- workloads 1 to 4 ----


def test_a_workload_is_the_same_for_a_seed_and_another_one_for_another() -> None:
    assert sidecar.workload(3, "1").submissions == sidecar.workload(3, "1").submissions
    assert sidecar.workload(3, "1").submissions != sidecar.workload(4, "1").submissions


@pytest.mark.parametrize(("experiment", "jobs"), [("1", 40), ("2", 20), ("3", 40), ("4", 40)])
def test_jobs_arrive_within_the_span_with_allowed_counts(experiment: str, jobs: int) -> None:
    workload = sidecar.workload(0, experiment)
    times = [s.submitted for s in workload.submissions]
    assert len(times) == jobs
    assert times == sorted(times)
    assert 0.0 < times[0] < times[-1] < sidecar.SPAN
    assert {s.sizes for s in workload.submissions} == {(1, 2, 4, 8)}
    assert {s.known for s in workload.submissions} == {experiment != "4"}
    assert workload.cluster is not None
    assert workload.cluster.gpus == 16


def test_workload_4_is_workload_3_without_lengths() -> None:
    third, fourth = sidecar.workload(1, "3"), sidecar.workload(1, "4")
    assert [(s.submitted, s.model, s.work) for s in third.submissions] == [
        (s.submitted, s.model, s.work) for s in fourth.submissions
    ]
    assert all("target" in s.tags for s in fourth.submissions)


@pytest.mark.parametrize("profile", ["reshape", "termination", "sidecar-default"])
def test_every_job_ends_on_one_node_at_a_time_and_no_gpu_has_two_jobs(profile: str) -> None:
    result = run(sidecar.workload(0, "2", span=3000.0, jobs=10), profile)
    assert not result.cut
    assert not [name for name, end in zip(result.names, result.ended, strict=True) if end != end]
    assert all(len(set(s.nodes)) <= 1 for s in result.segments)
    times = sorted({s.start for s in result.segments} | {s.end for s in result.segments})
    for start, end in pairwise(times):
        middle = (start + end) / 2.0
        used: dict[str, int] = {}
        for s in result.segments:
            if s.gpus and s.start < middle < s.end:
                used[s.nodes[0]] = used.get(s.nodes[0], 0) + s.gpus
        assert max(used.values(), default=0) <= 8
    if profile != "reshape":
        assert result.gauges.get("shrinks", 0.0) == 0.0


def test_unknown_lengths_are_found_from_the_accuracy_and_jobs_still_end() -> None:
    result = run(sidecar.workload(0, "4", span=2000.0, jobs=8), "reshape", accuracy=sidecar.accuracies("4"))
    assert not result.cut
    assert result.gauges["grows"] > 0.0


# ---- costs and models ----


def test_costs_are_those_of_figure_3() -> None:
    physics = sidecar.FigureThree()

    def cost(kind: str, mechanism: str, freed: float = float("inf")) -> Cost:
        running = _running()
        before = None if kind == START else Config((("worker", 4),), (4,))
        return physics.cost(Change(kind, mechanism, before, running, freed))

    assert cost(START, HAND_OVER) == Cost(prepare=83.0)
    assert cost(SHRINK, HAND_OVER) == Cost(pause=27.0, release=27.0)
    assert cost(GROW, HAND_OVER) == Cost(pause=37.0)
    assert cost(START, RESTART) == Cost(pause=83.0)
    assert cost(START, RESTART, 0.0) == Cost(pause=174.0)
    assert cost(START, RESTART, 60.0) == Cost(pause=114.0)
    assert cost(SHRINK, RESTART) == Cost(pause=204.0, release=204.0)
    assert cost(GROW, RESTART) == Cost(pause=242.0)
    assert cost(MOVE, HAND_OVER) == cost(MOVE, RESTART) == Cost(pause=242.0)


def _running():  # type: ignore[no-untyped-def]
    from muster.sim.physics import Running

    workload = sidecar.case_study()
    submission = workload.submissions[0]
    config = Config((("worker", 2),), (2,))
    return Running(0, submission, workload.models["one"], config, ("n", "n"), 0.0, 0.0)


def test_speeds_follow_the_paper_s_own_ratios() -> None:
    model = sidecar.training(sidecar.SET_ONE[0], (1, 2, 4))

    def speed(count: int, product: str) -> float:
        return model.speed(Config((("worker", count),), (count,), product))

    assert speed(2, "P100") / speed(1, "P100") == pytest.approx(1.7)
    assert speed(4, "P100") / speed(1, "P100") == pytest.approx(2.4)
    assert speed(1, "V100") / speed(1, "P100") == pytest.approx(0.25 / 0.18)
    assert speed(3, "P100") == 0.0
    assert model.speed(Config((("worker", 2),), (1, 1), "P100")) == 0.0  # one container


def test_accuracy_goes_through_table_v() -> None:
    model = sidecar.training(sidecar.SET_ONE[0], (1,))
    for iteration, accuracy in ((1, 0.008), (5, 0.019), (10, 0.025), (20, 0.032)):
        assert model.loss(float(iteration)) == pytest.approx(accuracy, rel=0.15)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"experiment": "5"}, "experiment"), ({"sizes": (1, 3)}, "sizes"), ({"scaling": "linear"}, "scaling")],
)
def test_what_is_not_an_experiment_is_refused(parameters: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sidecar.workload(0, **parameters)  # type: ignore[arg-type]


def test_the_papers_two_scalings_differ_from_two_gpus_on() -> None:
    told, profiled = (
        sidecar.training(sidecar.SET_ONE[0], (1, 2), scaling) for scaling in ("introduction", "table-iv")
    )
    assert told.speeds[1] == profiled.speeds[1]
    assert told.speeds[2] == pytest.approx(1.7 * told.speeds[1])
    assert profiled.speeds[2] == pytest.approx(0.25 / 0.19 * told.speeds[1])
