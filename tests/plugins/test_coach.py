"""Coach's choice of workers and servers: scenarios through the whole cycle, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from muster.core.cycle import cycle
from muster.core.progress.fits import fit_surface
from muster.points import load
from muster.profiles import build
from muster.types import Config, Facts, Job, Phase, Plan, Report, Reservation
from muster_plugins.coach import DESIGN, Coach, gain
from muster_plugins.coach_memory import Epochs
from tests.scenario import NOW, asks, job, key, node, role, snapshot

COACH = build("coach")
Points = Sequence[tuple[int, int, float]]


def truth(w: int, p: int) -> float:
    """Epochs/s: top at three workers and two servers."""
    return 0.045 - 0.004 * (w - 3) ** 2 - 0.004 * (p - 2) ** 2


def learner(
    name: str,
    counts: tuple[int, int] = (0, 0),
    *,
    points: Points = (),
    boundary: bool = True,
    spent: float = 0.0,
    submitted: float = NOW - 10.0,
    losses: Sequence[tuple[float, float]] = (),
    target: float | None = None,
) -> Job:
    """A job of up to four workers and three servers; `counts` run on n0; points: epochs that it has done."""
    w, p = counts
    slot = asks(1, cpu=1000)
    other = asks(cpu=1000)
    roles = [
        role("worker", 4, least=1, shape=slot, on=["n0"] * w, job=name),
        role("server", 3, least=1, shape=other, on=["n0"] * p, job=name),
        role("scheduler", 1, shape=other, on=["n0"] if w else [], job=name),
    ]
    memory = {
        "epochs": len(points),
        "epoch": len(points),
        "spent": spent,
        "points": [[a, b, e, 1] for a, b, e in points],
        "losses": [list(x) for x in losses],
        "target": target,
    }
    return job(
        name,
        roles=roles,
        facts=Facts(first_start=NOW - 100.0, run_start=NOW - 100.0) if w else Facts(),
        report=Report(at=NOW, steps_per_epoch=100.0, epoch=len(points), boundary=boundary) if w else None,
        memory={"coach": memory} if points else {},
        resize_at="boundary",
        submitted=submitted,
    )


def counts(plan: Plan, name: str) -> tuple[int, int]:
    """Workers and servers that are wanted."""
    roles = plan.grants[key(name)].roles
    return roles["worker"], roles["server"]


def seen(made: Job) -> Epochs:
    """What the plugin remembers of a job."""
    found: Epochs = load("coach").memory.of(made)
    return found


def planned(*jobs: Job, cpu: int = 64, coach: Coach | None = None, live: bool = False) -> Plan:
    profile = COACH if coach is None else replace(COACH, shares=(coach,), named=(("coach", coach),))
    plan = cycle(snapshot([node("n0", 8, cpu=cpu)], jobs=jobs), replace(profile, conserving=live))
    assert not plan.plugin_errors
    return plan


MINI = [(w, p, truth(w, p)) for w, p in DESIGN]
KNOWN = [(w, p, truth(w, p)) for w, p in product(range(1, 5), range(1, 4))]


# ---- from epoch to epoch ----


@pytest.mark.parametrize("done", range(4))
def test_the_first_four_epochs_have_set_counts(done: int) -> None:
    assert counts(planned(learner("a", (1, 1), points=MINI[:done])), "a") == DESIGN[done]


def test_a_job_starts_with_one_of_each_role() -> None:
    plan = planned(learner("new"))
    assert counts(plan, "new") == (1, 1)
    assert sorted(h.role for h in plan.reservations[key("new")]) == ["scheduler", "server", "worker"]


def test_after_the_mini_epochs_the_plane_through_them_says_grow_in_both() -> None:
    assert counts(planned(learner("a", (2, 2), points=MINI)), "a") == (4, 3)


def test_with_more_epochs_the_fitted_surface_has_its_top_where_the_true_one_has() -> None:
    assert counts(planned(learner("a", (2, 2), points=KNOWN)), "a") == (3, 2)


def test_refitted_each_epoch_the_choice_arrives_at_the_top() -> None:
    points = list(MINI)
    path = []
    for _ in range(4):
        chosen = counts(planned(learner("a", (2, 2), points=points)), "a")
        path.append(chosen)
        points = [x for x in points if x[:2] != chosen] + [(*chosen, truth(*chosen))]
    assert path[0] == (4, 3)
    assert path[-2:] == [(3, 2), (3, 2)]


def test_counts_change_at_boundaries_only() -> None:
    plan = planned(learner("a", (1, 1), points=KNOWN, boundary=False))
    assert plan.shares == {key("a"): 1}
    assert not plan.reservations.get(key("a"))
    assert not plan.shrinks


def test_a_job_that_is_too_large_shrinks_at_its_boundary() -> None:
    plan = planned(learner("a", (4, 3), points=KNOWN))
    assert sorted(s.role for s in plan.shrinks) == ["server", "worker"]


# ---- what is free ----


def test_a_replica_that_was_just_granted_keeps_its_place_while_it_starts_though_nothing_else_is_free() -> (
    None
):
    """On a cluster a place is taken some cycles before its pod is bound there, and the boundary lasts until the next
    report. It was taken back there, at each boundary again."""
    plan = planned(learner("a", (1, 1), points=KNOWN), cpu=4)
    (place,) = plan.reservations[key("a")]
    assert place.role == "worker"
    again = learner("a", (1, 1), points=KNOWN)
    roles = tuple(
        replace(one, members=tuple(replace(m, node="", phase=Phase.UNGATED) if m.uid == place.uid else m
                                   for m in one.members))
        for one in again.roles
    )  # fmt: skip
    starting = replace(again, roles=roles, reservations=(place,), grant=plan.grants[key("a")])
    after = planned(starting, cpu=4)
    assert counts(after, "a") == (2, 1)
    assert not after.shrinks
    assert after.reservations[key("a")] == (place,)


def test_what_is_not_free_is_pruned_by_marginal_utility() -> None:
    """Room for one replica more, and a worker gains 0.012 epochs/s (f(2, 1) - f(1, 1)), a server 0.004."""
    assert gain(seen(learner("a", (1, 1), points=KNOWN)).surface(), (1, 1), (2, 1)) == pytest.approx(
        0.012, abs=1e-4
    )  # type: ignore[arg-type]
    assert counts(planned(learner("a", (1, 1), points=KNOWN), cpu=4), "a") == (2, 1)


def test_a_server_comes_first_where_it_gains_more() -> None:
    steep = [
        (w, p, 0.05 - 0.001 * (w - 3) ** 2 - 0.01 * (p - 3) ** 2)
        for w, p in product(range(1, 5), range(1, 4))
    ]
    assert counts(planned(learner("a", (1, 1), points=steep), cpu=4), "a") == (1, 2)


def test_no_job_waits_for_another_one_s_tuning() -> None:
    """The paper's Coach tunes all jobs before any of them trains."""
    plan = planned(learner("tuned", (2, 2), points=KNOWN, submitted=NOW - 500.0), learner("new"))
    assert counts(plan, "tuned") == (3, 2)
    assert counts(plan, "new") == (1, 1)


def test_the_minimum_of_a_later_job_is_not_taken_from_an_earlier_one() -> None:
    plan = planned(learner("old", (2, 2), points=KNOWN, submitted=NOW - 500.0), learner("new"), cpu=7)
    assert counts(plan, "old") == (3, 2)
    assert plan.shares[key("new")] == 0
    assert "no room for one of each" in plan.statuses[key("new")].message


# ---- budget ----


def test_a_budget_buys_the_fastest_counts_that_it_reaches() -> None:
    """Replica-seconds of an epoch: 6 for 22.2 s = 133 on (3, 2), 4 for 27 s = 108 on (2, 1), 120 on (1, 1)."""
    rich, short, broke = (
        counts(planned(learner("a", (2, 2), points=KNOWN), coach=load("coach", {"budget": b})), "a")
        for b in (200.0, 121.0, 50.0)
    )
    assert rich == (3, 2)
    assert truth(*short) < truth(3, 2)
    assert (sum(short) + 1) / truth(*short) <= 121.0
    assert broke == (1, 1)  # the minimum of each role, whatever it costs


def test_what_was_spent_is_gone_and_all_epochs_that_are_left_must_be_paid() -> None:
    budget = load("coach", {"budget": 1000.0})
    spent = learner("a", (2, 2), points=KNOWN, spent=900.0)
    assert counts(planned(spent, coach=budget), "a") == (1, 1)
    curve = [(float(k), 0.2 + 1.0 / (0.1 * k + 0.5)) for k in range(1, 7)]
    long = learner("a", (2, 2), points=KNOWN, losses=curve, target=0.2 + 1.0 / 2.5)
    assert seen(long).left() == pytest.approx(14.0, rel=0.05)
    assert counts(planned(long, coach=budget), "a") == (1, 1)
    assert counts(planned(long, coach=load("coach", {"budget": 14.5 * 133.4})), "a") == (3, 2)


# ---- memory ----


def test_each_epoch_is_remembered_once_with_its_counts() -> None:
    plugin = load("coach")
    one = learner("a", (2, 1))
    at = Report(
        at=NOW, step=100.0, epoch=1, steps_per_epoch=100.0, speed=5.0, loss=1.5, boundary=True, target=0.8
    )
    kept = plugin.observe(replace(one, report=at), snapshot(1))
    assert kept == {
        "epochs": 1,
        "epoch": 1,
        "step": 100.0,
        "spent": 4 / 0.05,
        "points": [[2, 1, 0.05, 1]],
        "losses": [[1.0, 1.5]],
        "target": 0.8,
    }
    known = replace(one, report=at, memory={"coach": kept})
    assert plugin.observe(known, snapshot(1)) is None
    later = replace(known, report=replace(at, step=200.0, epoch=2, speed=7.0))
    again = plugin.observe(later, snapshot(1))
    assert again is not None
    assert again["points"] == [[2, 1, pytest.approx(0.06), 2]]  # the mean of both
    assert plugin.observe(replace(later, report=replace(at, boundary=False, epoch=3)), snapshot(1)) is None


def test_an_epoch_without_a_worker_that_is_not_bound_yet_is_no_epoch_with_it() -> None:
    """kube-scheduler was slow: two workers were learnt to be as fast as the one that ran, and not tried again."""
    plugin = load("coach")
    one = learner("a", (1, 1), points=MINI[:1])
    report = Report(at=NOW, step=200.0, epoch=2, steps_per_epoch=100.0, speed=4.2, boundary=True)
    one = replace(one, report=report, reservations=(Reservation("worker", "n0"),))
    kept = plugin.observe(one, snapshot(1))
    told = Epochs.read(kept)
    assert [(w, p, n) for w, p, _, n in told.points] == [(1, 1, 2)]
    assert (told.done, told.last, told.step) == (1, 2.0, 200.0)
    then = replace(one, memory={"coach": kept})
    assert counts(planned(then), "a") == (2, 1), "its mini-epoch is still to come"


def test_the_estimate_is_the_fitted_surface_in_iterations() -> None:
    known = learner("a", (2, 2), points=KNOWN)
    speed = load("coach").estimate(known, snapshot(1)).speed
    assert speed is not None
    assert speed(Config((("server", 2), ("worker", 3)))) == pytest.approx(4.5, rel=1e-2)
    assert load("coach").estimate(learner("a"), snapshot(1)).speed is None


def test_four_points_are_fitted_by_the_surface_that_bends_least() -> None:
    fitted = fit_surface([x[0] for x in MINI], [x[1] for x in MINI], [x[2] for x in MINI])
    assert fitted is not None
    assert (fitted.b1, fitted.b3) == pytest.approx((0.0, 0.0), abs=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"design": ((1,),)}, {"static": (0, 1)}, {"budget": -1.0}, {"timeout": -1.0}]
)
def test_senseless_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Coach(**wrong)  # type: ignore[arg-type]
