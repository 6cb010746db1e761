"""What `python -m e2e.bench workload-one` counts, and what the lab and the simulator are given of it."""

from __future__ import annotations

import pytest

from e2e.bench import workload_one as one
from e2e.bench.change_costs import BY_RESTART, IN_PLACE, AsPlayed, Costs, Counted
from e2e.bench.on_devices import BY_DEVICES
from e2e.bench.trainings import Seen, Trained
from e2e.bench.workload_one_live import a_pod_a_gpu, one_pod
from muster.sim.physics import GROW, HAND_OVER, RESTART, RESUME, SHRINK, START, Change, Running
from muster.types import Config

COSTS = Costs(start=2.0, down=3.0, up=4.0)
JOB = Trained("a", 0.0, 1, 1, 8, 100.0, (0.0, 1.0, 1.7, 1.7, 2.4, 2.4, 2.4, 2.4, 3.4))


def counted(costs: Costs = COSTS, job: Trained = JOB) -> Counted:
    found = Counted(costs)
    found.submitted(job, 0.0)
    return found


def pods(trainings: Counted, now: float, *, come: str = "", leave: str = "") -> None:
    for name in leave:
        trainings.saw(Seen("a", name, "n0", True), now)
    for name in come:
        trainings.saw(Seen("a", name, "n0", False), now)


def test_a_start_costs_its_pause_from_the_last_of_its_pods_and_is_no_change() -> None:
    trainings = counted()
    pods(trainings, 1.0, come="p")
    pods(trainings, 1.5, come="q")
    training = trainings.jobs["a"]
    assert (training.started, training.paused_until) == (1.0, 3.5)
    assert training.end(1.5) == 3.5 + 100.0 / 1.7
    assert (training.changes, trainings.changing) == (0, 0.0)


@pytest.mark.parametrize(("come", "costs"), [("rstu", COSTS.up), ("r", COSTS.down)])
def test_a_restart_is_one_change_from_the_first_pod_that_leaves_until_training_goes_on(
    come: str, costs: float
) -> None:
    trainings = counted()
    pods(trainings, 1.0, come="pq")
    pods(trainings, 10.0, leave="p")
    pods(trainings, 10.5, leave="q")
    pods(trainings, 20.0, come=come)  # later than any pause
    training = trainings.jobs["a"]
    assert training.changes == 1
    assert training.paused_until == 20.0 + costs
    assert trainings.changing == pytest.approx(10.0 + costs)
    assert training.done == pytest.approx((10.0 - 3.0) * 1.7)


def test_in_place_devices_that_a_start_is_given_one_by_one_are_no_change() -> None:
    trainings = counted(IN_PLACE)
    pods(trainings, 1.0, come="pq")
    assert (trainings.jobs["a"].changes, trainings.jobs["a"].paused_until) == (0, 1.0)
    pods(trainings, 10.0, leave="q")
    assert (trainings.jobs["a"].changes, trainings.jobs["a"].paused_until) == (1, 37.0)
    assert trainings.changing == 27.0


def test_overhead_is_of_the_time_that_jobs_ran_and_the_makespan_ends_with_the_last() -> None:
    trainings = counted(Costs(0.0, 3.0, 4.0), Trained("a", 0.0, 1, 1, 8, 20.0, JOB.speeds))
    pods(trainings, 1.0, come="p")
    pods(trainings, 9.0, come="q")
    end = 13.0 + 12.0 / 1.7
    assert not trainings.due(end - 0.1)
    trainings.due(end + 0.1)
    assert not trainings.left
    assert trainings.makespan() == pytest.approx(end, abs=0.2)
    assert trainings.overhead() == pytest.approx(4.0 / (end - 1.0), abs=0.01)


def change(kind: str, mechanism: str, before: int, after: int, freed: float = float("inf")) -> Change:
    made = one.workload(one.OURS, 1)
    submission = made.submissions[0]
    had, has = (Config((("worker", n),), (n,)) for n in (before, after))
    running = Running(0, submission, made.models[submission.model], has, ("n0",) * after, 0.0, 0.0)
    waited = kind in (START, RESUME)
    return Change(kind, mechanism, None if waited else had, running, freed, had if before else None)


def test_the_simulator_is_given_what_the_live_run_cost() -> None:
    played = AsPlayed(costs=BY_RESTART)
    assert played.cost(change(START, RESTART, 0, 1, freed=10.0)).pause == 83.0
    assert played.cost(change(GROW, RESTART, 1, 2)).pause == 242.0 - 91.0
    assert played.cost(change(SHRINK, RESTART, 2, 1)).pause == 204.0 - 91.0
    assert played.cost(change(RESUME, RESTART, 1, 2)).pause == 242.0 - 91.0, "all of it left to start again"
    assert played.cost(change(RESUME, RESTART, 2, 1)).pause == 204.0 - 91.0
    by_devices = AsPlayed(costs=IN_PLACE, pod=95.0)
    assert by_devices.cost(change(START, HAND_OVER, 0, 1)).prepare == 95.0
    assert by_devices.cost(change(SHRINK, HAND_OVER, 2, 1)).pause == 27.0
    assert by_devices.cost(change(GROW, HAND_OVER, 1, 2)).pause == 37.0


def test_in_the_simulator_too_all_of_a_job_leaves_when_its_number_changes() -> None:
    made = one.workload(one.RESTART, 6)
    run = {"release_s": 72.0 / 40.0, "usual_wait_s": 2.0}
    found, *more = one.foretold(one.RESTART, made, run, 40.0, 2)  # type: ignore[arg-type]
    (sooner,) = one.foretold(one.RESTART, made, run | {"release_s": 0.0}, 40.0)  # type: ignore[arg-type]
    assert len(more) == 1
    assert found.changes > 0
    assert found.overhead > sooner.overhead, "while its pods end it has no GPUs"


def test_jobs_of_the_lab_are_the_simulators_compressed() -> None:
    made = one.workload(one.OURS)
    found = one.trained(made, 40.0)
    assert len(found) == 40
    assert found[0].at == 0.0
    assert found[-1].at == pytest.approx(
        (made.submissions[-1].submitted - made.submissions[0].submitted) / 40.0
    )
    assert found[0].speeds == pytest.approx((0, 1, 1.7, 1.7, 2.4, 2.4, 2.4, 2.4, 2.4 * 2.4 / 1.7))
    last = made.submissions[-1]
    assert found[-1].work * 40.0 == pytest.approx(last.work / made.models[last.model].speeds[1])


def test_the_default_keeps_the_number_that_was_drawn_for_it() -> None:
    drawn = one.trained(one.workload(one.DEFAULT), 40.0)
    assert {job.request for job in drawn} == {1, 2, 4, 8}
    assert all(job.least == job.request == job.most for job in drawn)
    assert one.trained(one.workload(one.DEFAULT), 40.0) == drawn


def test_terms_are_numbers_of_this_machines_seconds() -> None:
    (found,) = one.arguments(one.RESTART, 40.0, 40.0).values()
    assert (found["job_stop"], found["settling"], found["period"]) == (91.0 / 40.0, 242.0 / 40.0, 1.0)
    assert found["restart"] is True
    assert list(one.arguments(one.TERMINATION, 40.0, 40.0)) == ["termination"]


def test_a_pod_for_each_gpu_takes_as_long_to_end_as_the_papers() -> None:
    elastic = a_pod_a_gpu(JOB, 40.0)["spec"]["template"]["metadata"]["annotations"]
    assert elastic["muster.dev/sizes"] == "1,2,4,8"
    assert elastic["e2e.muster.dev/stop-seconds"] == "2.275"
    gang = a_pod_a_gpu(Trained("g", 0.0, 4, 4, 4, 1.0, JOB.speeds), 40.0)["spec"]
    assert gang["parallelism"] == 4
    assert "muster.dev/sizes" not in gang["template"]["metadata"]["annotations"]


def test_a_pod_in_place_is_not_counted_itself() -> None:
    meta = one_pod(JOB)["spec"]["template"]["metadata"]
    assert meta["labels"][BY_DEVICES] == "a"
    assert "bench/job" not in meta["labels"]
    assert meta["annotations"]["muster.dev/speed"] == "1=1.000000,2=1.700000,4=2.400000,8=3.400000"
