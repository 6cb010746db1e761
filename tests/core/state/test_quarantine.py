# Over 300 lines: each place where an error may come from is tried.
"""What raises is put aside, alone: the others go on as if it were not there (core/state/quarantine.py).

Nothing is known to raise; so here a function of ours does, over one job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from muster.asking import Asking
from muster.core import cycle as cycling
from muster.core import events, ledger
from muster.core.state import blockers, job_builder, pods, quarantine
from muster.core.state.quarantine import PAUSE_FIRST, sentence
from muster.points import Profile
from muster.types import Grants, JobKey, Phase, Plan, Reason, SharingSnapshot, Snapshot, State, Status
from tests.cluster_fake import FakeCluster, Muster
from tests.table_of_states import under_way


class Broken(Exception):  # noqa: N818
    """What a fault of ours would be."""


def over(name: str, step: Callable[..., Any], which: Callable[..., str]) -> Callable[..., Any]:
    """The step, which raises over what `which` names so."""

    def raises(*args: Any, **named: Any) -> Any:
        if which(*args) == name:
            raise Broken(name)
        return step(*args, **named)

    return raises


def cluster_of_two(**more: Any) -> tuple[FakeCluster, Muster]:
    """Two jobs of two tenants that both fit; `bad` is first in the queue."""
    cluster = FakeCluster(nodes=2)
    cluster.job("bad", 2, gpus=2, namespace="attacker")
    cluster.now += 1.0
    cluster.job("good", 2, gpus=2)
    return cluster, Muster(cluster, **more)


def internal(stage: str) -> Status:
    return Status(State.INVALID, Reason.INTERNAL, sentence(stage))


STEPS: dict[str, tuple[object, str, Callable[..., str]]] = {
    "build": (job_builder, "merge", lambda notes: notes[0][0].split("-")[0] if notes else ""),
    "plan": (cycling, "admit", lambda _run, job: job.key.name.removeprefix("job-")),
    "adopt": (ledger, "diff", lambda _, entry, *__: entry.key.name.removeprefix("job-")),
}


@pytest.mark.parametrize("stage", STEPS)
def test_a_job_that_raises_is_put_aside_and_the_other_starts(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name, which = STEPS[stage]
    cluster, muster = cluster_of_two()
    with monkeypatch.context() as broken:
        broken.setattr(module, name, over("bad", getattr(module, name), which))
        for _ in range(4):
            muster.turn()
            cluster.bind()
        assert len(cluster.bound("good")) == 2
        assert cluster.bound("bad") == []
        assert muster.plan.statuses[muster.key("job-bad")] == internal(stage)
        faults = muster.ledger.take_faults()
        assert [(f.stage, f.subject) for f in faults if not f.again] == [(stage, "attacker/job-bad")]
        assert not under_way(muster.ledger)
    cluster.now += PAUSE_FIRST
    muster.settle()
    assert len(cluster.bound("bad")) == 2


@pytest.mark.parametrize("stage", ["build", "plan", "adopt"])
def test_what_runs_of_a_job_that_is_put_aside_goes_on_and_stays_charged(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, muster = cluster_of_two()
    muster.settle()
    steps = STEPS | {"plan": (cycling, "keep", STEPS["plan"][2])}
    module, name, which = steps[stage]
    monkeypatch.setattr(module, name, over("bad", getattr(module, name), which))
    cluster.now += 1.0
    cluster.job("late", 2, gpus=8)
    free = muster.ledger.charges.free().tolist()
    bad = next(p for p in cluster.pods.values() if p.name.startswith("bad"))
    cluster.update(bad, annotations={"muster.dev/model": "another"})
    for _ in range(6):
        muster.turn(seconds=1.0)
        cluster.bind()
    assert len(cluster.bound("bad")) == 2
    assert muster.ledger.charges.free().tolist() == free
    assert muster.state("job-late") == "Waiting"
    assert muster.state("job-good") == "Running"
    assert muster.state("job-bad", "attacker") == "Invalid"


def test_a_gang_with_a_pod_that_can_not_be_taken_in_does_not_start_until_a_later_version_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster(nodes=2)
    _, second = cluster.job("bad", 2, gpus=2, min_replicas="1", max_replicas="2")
    cluster.job("good", 2, gpus=2, namespace="other")
    with monkeypatch.context() as broken:
        step = over(second.name, pods.join, lambda _, pod: pod.name)
        broken.setattr(pods, "join", step)
        muster = Muster(cluster)
        muster.settle()
        assert muster.state("job-bad") == "Invalid"
        assert len(cluster.bound("good")) == 2
        assert cluster.bound("bad") == []
        cluster.now += 100.0
        muster.turn()
        assert muster.plan.statuses[muster.key("job-bad")] == internal("apply")
    cluster.update(cluster.pods[second.uid])
    cluster.now += 100.0
    muster.settle()
    assert len(cluster.bound("bad")) == 2


def test_a_pod_that_can_not_be_taken_in_and_runs_is_charged_where_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = FakeCluster(nodes=1)
    (pod,) = cluster.job("bad", 1, gpus=8, namespace="attacker")
    cluster.update(pod, phase=Phase.BOUND, node="n0")
    cluster.job("good", 1, gpus=1)
    with monkeypatch.context() as broken:
        broken.setattr(pods, "join", over(pod.name, pods.join, lambda _, pod: pod.name))
        muster = Muster(cluster)
        muster.settle()
        assert muster.state("job-good") == "Waiting"
        cluster.delete(pod.uid)
        cluster.pods = {u: p for u, p in cluster.pods.items() if not p.name.startswith("bad")}
        muster.settle()
        assert muster.state("job-good") == "Running"


def test_an_error_that_comes_again_is_said_once_and_the_pause_doubles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, name, which = STEPS["plan"]
    monkeypatch.setattr(module, name, over("bad", getattr(module, name), which))
    _, muster = cluster_of_two()
    faults = []
    for _ in range(1200):
        muster.turn()
        faults += muster.ledger.take_faults()
    assert [f.again for f in faults] == [False, *[True] * (len(faults) - 1)]
    assert len(faults) == 7  # after 1, 2, 4, 8, 16, 32 and 64 s


@dataclass(frozen=True)
class Fragile:
    """A Share plugin that gives everybody the minimum, and fails over all where one of a name is in the table."""

    name: str = "job-bad"

    def share(self, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        if any(key.name.startswith(self.name) for key in table.keys):
            raise Broken("table")
        return Grants(table.min)


def test_halving_finds_the_job_over_which_a_share_plugin_fails() -> None:
    cluster = FakeCluster(nodes=4)
    for number in range(9):
        cluster.job(f"good{number}", 1, min_replicas="1", max_replicas="1")
    cluster.job("bad", 2, min_replicas="1", max_replicas="2", namespace="attacker")
    muster = Muster(cluster, Profile("fragile", shares=(Fragile(),)))
    muster.settle()
    states = {k.name: str(s.state) for k, s in muster.plan.statuses.items()}
    assert states == {"job-bad": "Invalid"} | {f"job-good{n}": "Running" for n in range(9)}
    assert muster.plan.plugin_errors == ()


def test_a_namespace_of_many_culprits_costs_a_few_plans_and_no_other_its_turn() -> None:
    cluster = FakeCluster(nodes=4)
    for number in range(40):
        cluster.job(f"bad{number}", 1, namespace="attacker")
    cluster.job("good", 1, min_replicas="1", max_replicas="1")
    muster = Muster(cluster, Profile("fragile", shares=(Fragile(),)))
    made = []
    real = quarantine.cycle
    quarantine.cycle = lambda s, p: made.append(1) or real(s, p)  # type: ignore[func-returns-value]
    try:
        muster.turn()
    finally:
        quarantine.cycle = real
    assert len(made) < 40
    assert muster.state("job-good") == "Starting"
    assert {s.reason for k, s in muster.plan.statuses.items() if k.namespace == "attacker"} == {
        Reason.INTERNAL
    }


def test_a_share_plugin_that_always_fails_is_left_out_and_blamed_on_nobody() -> None:
    _, muster = cluster_of_two(profile=Profile("fragile", shares=(Fragile(""),)))
    muster.settle()
    assert {str(s.state) for s in muster.plan.statuses.values()} == {"Running"}
    assert muster.plan.plugin_errors == ("Fragile.share: Broken('table'), left out",)


def test_a_cycle_that_raises_without_any_job_raises() -> None:
    _, muster = cluster_of_two()
    snapshot = replace(muster.ledger.snapshot(muster.cluster.now), jobs={}, free=None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        muster.ledger.plan(snapshot)


def test_a_step_that_raises_over_everybody_is_blamed_on_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    _, muster = cluster_of_two()
    monkeypatch.setattr(cycling, "admit", over("", cycling.admit, lambda *_: ""))
    with pytest.raises(Broken):
        muster.turn()
    assert muster.ledger.quarantined == {}


def test_an_answer_that_can_not_be_taken_in_leaves_no_request_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, muster = cluster_of_two()
    with monkeypatch.context() as broken:
        real = events.answered
        broken.setattr(
            events, "answered", over("job-bad", real, lambda _, outcome, __: outcome.action.job.name)
        )
        muster.turn()
        muster.turn()
        assert not under_way(muster.ledger)
    cluster.now += 100.0
    muster.settle()
    assert len(cluster.bound("good")) == len(cluster.bound("bad")) == 2


BESIDE: dict[str, Callable[[FakeCluster, Muster], None]] = {
    "ungated_at_birth": lambda _, muster: muster.ledger.unsaid.update(muster.ledger.job_of),
    "put_back": lambda _, muster: muster.ledger.half_done.update(muster.ledger.job_of),
    "tell_guarded": lambda _, muster: muster.ledger.guarded_jobs.update(muster.ledger.entries),
    "ask_for_nodes": lambda cluster, _: cluster.nodes.clear(),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_raises_beside_the_plan_puts_its_own_job_aside(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events, half-done evictions, budgets, requests for nodes: steps that go over many jobs."""
    profile = Profile(asking=Asking("provisioning-request", after=0.0, limit=9))
    cluster, muster = cluster_of_two(profile=profile)
    reached: list[str] = []

    def step(*args: Any) -> Any:
        key = next(arg for arg in args if isinstance(arg, JobKey))
        reached.append(key.name)
        if key.name == "job-bad":
            raise Broken
        return ()

    muster.ledger.snapshot(cluster.now)
    BESIDE[name](cluster, muster)
    monkeypatch.setattr(ledger if hasattr(ledger, name) else blockers, name, step)
    muster.turn()
    assert sorted(reached)[:: len(reached) - 1] == ["job-bad", "job-good"]
    assert [(f.stage, f.subject) for f in muster.ledger.take_faults() if not f.again] == [
        ("adopt", "attacker/job-bad")
    ]
    assert {action.job.name for action in cluster.sent} == {"job-good"}


@dataclass(frozen=True)
class Chooser:
    """Asks for nodes for all that wait, and fails over all where one of a name waits."""

    name: str = "job-bad"
    how: str = "provisioning-request"
    provisioning_class: str = "c"

    def chosen(self, plan: Plan, snapshot: Snapshot, asked: object) -> tuple[tuple[JobKey, ...], None]:  # noqa: ARG002
        if not self.name or any(key.name.startswith(self.name) for key in plan.order):
            raise Broken("chosen")
        return plan.order, None


def test_halving_finds_the_job_over_which_a_plugin_fails_that_asks_for_nodes() -> None:
    cluster = FakeCluster(nodes=0)
    for number in range(5):
        cluster.job(f"good{number}", 1)
    cluster.job("bad", 1, namespace="attacker")
    muster = Muster(cluster, Profile(asking=Chooser()))
    for _ in range(4):
        muster.turn()
    assert cluster.requests == {f"job-good{number}" for number in range(5)}
    assert [f.subject for f in muster.ledger.take_faults() if not f.again] == ["attacker/job-bad"]


def test_a_plugin_that_always_fails_to_ask_for_nodes_is_blamed_on_nobody() -> None:
    cluster = FakeCluster(nodes=0)
    cluster.job("good", 1)
    muster = Muster(cluster, Profile(asking=Chooser("")))
    muster.turn()
    assert muster.state("job-good") == "Waiting"
    assert muster.ledger.quarantined == {}
    assert [(f.stage, f.subject) for f in muster.ledger.take_faults()] == [("adopt", "")]


def test_the_sentence_of_a_job_that_is_put_aside_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, which = STEPS["adopt"]
    cluster, muster = cluster_of_two()
    monkeypatch.setattr(module, name, over("bad", getattr(module, name), which))
    muster.settle(turns=40)
    told = [str(gang.message) for gang in cluster.gangs.values()] + [said.message for said in cluster.said]
    assert not [text for text in told if "attacker" in text or "bad" in text or "Broken" in text]
