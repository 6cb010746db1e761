"""What holds of the simulator on nodes whatever the workload, the policy and the costs: random ones are drawn.

That no GPU is used twice, really or as planned, is checked by the engine under test after each event (`Watched`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.points import Profile
from muster.sim import physics as ph
from muster.sim.physics import Cost, Standard
from muster.sim.result import Result
from muster.sim.submission import Curve, Submission
from muster.sim.workload import Group
from muster.types import Grants, Move, SharingSnapshot

from .course import EQUAL, FIFO, simulated
from .test_stock import KUBE

CURVES = {
    "good": Curve("good", (1.0, 1.9, 2.7, 3.4, 4.0, 4.5, 4.9, 5.2)),
    "poor": Curve("poor", (2.0, 2.2, 2.1, 2.5)),
}


@dataclass(frozen=True)
class Whims:
    """Any shares at all, some of them too many, and any moves; another draw at each time."""

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """Random numbers from 0 to the most."""
        table = snapshot.table
        rng = snapshot.rng("whims")
        drawn = rng.integers(0, 6, len(table))
        return Grants(np.minimum(drawn, table.max))

    def moves(self, snapshot: SharingSnapshot) -> Sequence[Move]:
        """A random job to wherever there is room."""
        rng = snapshot.rng("moves")
        keys = [key for key, job in snapshot.jobs.items() if job.started]
        return [Move(keys[int(rng.integers(len(keys)))])] if keys else []

    def wake(self, snapshot: SharingSnapshot) -> float:
        """It changes its mind every 25 s."""
        return snapshot.now + 25.0


WHIMS = replace(FIFO, name="whims", shares=(Whims(),), rebalance=(Whims(),), named=(("whims", Whims()),))


@st.composite
def workloads(draw: st.DrawFn) -> list[Submission]:
    """Up to 12 jobs within 5 minutes, elastic and rigid, none of them larger than 8 GPUs."""
    jobs = []
    for i in range(draw(st.integers(1, 12))):
        model = draw(st.sampled_from(["linear", "good", "poor"]))
        least = draw(st.integers(1, 3))
        request = draw(st.integers(least, 4))
        most = draw(st.sampled_from([request, request, 4]))
        work = draw(st.floats(0.0, 400.0))
        at = draw(st.sampled_from([0.0, 10.0, 10.5, 60.0, 61.3, 300.0]))
        tags = draw(st.sampled_from([{}, {}, {"resize": "restart"}]))
        jobs.append(Submission(f"j{i}", at, model, work, request, least, most, tags=tags))
    return sorted(jobs, key=lambda j: j.submitted)


costs = st.builds(
    Cost,
    prepare=st.sampled_from([0.0, 0.0, 7.0, 31.0]),
    pause=st.sampled_from([0.0, 3.0, 20.0]),
    lost=st.booleans(),
    release=st.sampled_from([0.0, 5.0]),
)
KINDS = (ph.START, ph.RESUME, ph.GROW, ph.SHRINK, ph.MOVE, ph.CHANGE, ph.STOP)


@settings(max_examples=60)
@given(
    workloads(),
    st.sampled_from(
        [FIFO, EQUAL, WHIMS, replace(EQUAL, resize="hand-over"), replace(WHIMS, resize="hand-over")]
    ),
    st.fixed_dictionaries({("", kind): costs for kind in KINDS}),
    st.sampled_from([0.0, 30.0]),
    st.sampled_from([0.0, 60.0]),
    st.sampled_from([(), ((15.0, 0), (100.0, 1))]),
)
def test_every_job_ends_once_its_work_is_done_and_no_gpu_is_used_twice(
    jobs: list[Submission],
    profile: Profile,
    table: dict[tuple[str, str], Cost],
    checkpoint: float,
    rounds: float,
    fails: tuple[tuple[float, int], ...],
) -> None:
    if any(isinstance(plugin, Whims) for plugin in profile.shares):
        checkpoint = 0.0  # with a change every 25 s, work that is lost again and again is never done
        table = {key: cost._replace(pause=min(cost.pause, 3.0), prepare=0.0) for key, cost in table.items()}
    result = simulated(
        jobs,
        groups=[Group(2, 3), Group(1, 2, "big")],
        profile=profile,
        models=CURVES,
        physics=Standard(table, checkpoint),
        round=rounds,
        fails=fails,
        repair=50.0,
    )
    consistent(result, jobs)


@settings(max_examples=30)
@given(
    workloads(),
    st.sampled_from([FIFO, EQUAL, WHIMS, replace(WHIMS, resize="in-place"), KUBE]),
    st.sampled_from([0.5, 8.0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([0.0, 3.0]),
    st.sampled_from([(), ((15.0, 0), (100.0, 1))]),
)
def test_while_replicas_leave_their_gpus_are_nobodys_and_every_job_ends(
    jobs: list[Submission],
    profile: Profile,
    release: float,
    release_spread: float,
    restart: float,
    fails: tuple[tuple[float, int], ...],
) -> None:
    result = simulated(
        jobs,
        groups=[Group(2, 3), Group(1, 2, "big")],
        profile=profile,
        models=CURVES,
        release=release,
        release_spread=release_spread,
        restart=restart,
        fails=fails if profile is not KUBE else (),
        repair=50.0,
    )
    consistent(result, jobs, complete=not result.gauges["deadlocks"])


@given(workloads(), st.integers(0, 3))
def test_pod_by_pod_nothing_is_used_twice_and_what_does_not_end_is_locked(
    jobs: list[Submission], seed: int
) -> None:
    result = simulated(jobs, 5, nodes=2, profile=KUBE, models=CURVES, seed=seed)
    consistent(result, jobs, complete=not result.gauges["deadlocks"])


def consistent(result: Result, jobs: Sequence[Submission], *, complete: bool = True) -> None:
    """What a result's parts say of each other."""
    assert not complete or not np.isnan(result.ended).any(), result.notes
    assert complete or result.notes
    for i, job in enumerate(jobs):
        segments = [s for s in result.segments if s.job == i]
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(segments))
        held = sum(s.gpus * (s.end - s.start) for s in segments)
        assert math.isclose(held, float(result.gpu_seconds[i]), rel_tol=1e-9, abs_tol=1e-6)
        if not np.isnan(result.ended[i]):
            assert result.submitted[i] <= result.started[i] <= result.ended[i]
            done = sum((s.end - s.start) * speed(job, s.gpus) for s in segments if not s.note)
            assert done >= job.work - 1e-6  # more, where work was lost
    assert 0.0 <= result.gauges.get("utilisation", 0.0) <= 1.0 + 1e-9
    assert result.gauges.get("queue", 0.0) >= -1e-9


def speed(job: Submission, gpus: int) -> float:
    """Iterations/s, as the models above have them."""
    curve = CURVES.get(job.model)
    return float(gpus) if curve is None else curve.speeds[min(gpus, len(curve.speeds)) - 1] if gpus else 0.0
