"""Jobs in place of `python -m e2e.bench papers`: devices are replicas, speeds are measured, live and simulated."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from e2e.bench import paper_in_place
from e2e.bench.by_physics import WORKER
from e2e.bench.on_devices import BY_DEVICES, Agents
from e2e.bench.paper import Releases, foretold
from e2e.bench.paper_in_place import MEASURE, InPlace, OnePod
from e2e.bench.paper_profiles import PAPERS
from e2e.bench.papers_in_place import OnDevices, manifest
from e2e.bench.papers_live import trained
from e2e.bench.trainings import Seen, Trained, away
from e2e.cluster import Pod
from muster.core.progress import report_filter
from muster.core.progress.measure import changed
from muster.sim.physics import GROW, Change, Cost
from muster.sim.submission import Curve
from muster.types import Config, Report

CURVES = {
    "little": Curve("little", (1.0, 1.3, 1.4, 1.5, 1.5, 1.5, 1.5, 1.6)),
    "well": Curve("well", tuple(n**0.9 for n in range(1, 9))),
}


@pytest.fixture(autouse=True)
def curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_in_place, "measured", lambda: CURVES)


@pytest.fixture
def paper() -> InPlace:
    found = PAPERS["coddl"]
    assert isinstance(found, InPlace)
    return found


@pytest.fixture
def counting(paper: InPlace) -> OnDevices:
    made = OnDevices(paper.workload(), paper.speed, paper.round, {"n0": "", "n1": ""}, lambda _: WORKER)
    for job in trained(paper.workload(), paper.speed)[:2]:
        made.submitted(job, 0.0)
    return made


def looks(counting: OnDevices, now: float, job: str, *devices: str, over: bool = False) -> None:
    for device in devices:
        counting.saw(Seen(job, f"{job}/{device}", "n0", over), now)


def test_jobs_tell_only_on_how_many_gpus_they_can_train(paper: InPlace) -> None:
    jobs = trained(paper.workload(), paper.speed)
    assert not any(one.known for one in paper.workload().submissions)
    meta = manifest(jobs[0], paper.workload().submissions[0])["spec"]["template"]["metadata"]
    assert {key for key in meta["annotations"] if key.startswith("muster.dev/")} == {"muster.dev/gpus"}
    assert meta["annotations"]["muster.dev/gpus"] == f"1-{jobs[0].most}"
    assert meta["labels"][BY_DEVICES] == jobs[0].name
    assert max(one.most for one in jobs) <= 8, "of one node"


def test_a_job_trains_on_its_devices_and_what_it_is_given_at_one_look_is_one_change(
    counting: OnDevices,
) -> None:
    looks(counting, 1.0, "job-00", "d0")
    one = counting.paced["job-00"]
    assert counting.starts() == 1.0
    assert one.runs is not None
    assert one.rate == one.runs.model.speed(Config(nodes=(1,), roles=(("worker", 1),)))
    looks(counting, 10.0, "job-00", "d1", "d2", "d3")
    assert (one.changes, one.replicas) == (1, 4)
    looks(counting, 20.0, "job-00", "d3", "d2", over=True)
    assert (one.changes, one.replicas) == (2, 2)
    assert counting.tells("job-00", 20.0) == {"step": pytest.approx(one.done), "workers": 2}


def test_what_gpus_take_to_change_hands_is_of_devices_that_go_from_one_job_to_another(
    counting: OnDevices,
) -> None:
    looks(counting, 1.0, "job-00", "d0", "d1", "d2")
    looks(counting, 10.0, "job-00", "d1", "d2", over=True)
    looks(counting, 25.0, "job-00", "d1")  # it was measured on one
    assert counting.releases == []
    looks(counting, 26.0, "job-01", "d2")
    assert counting.releases == [16.0]
    counting.paced["job-00"].done = counting.paced["job-00"].job.work
    assert counting.due(30.0) == ["job-00"]
    looks(counting, 30.4, "job-01", "d0")
    assert counting.releases == [16.0, pytest.approx(0.4)]


def test_who_leaves_a_node_is_away_until_it_is_on_another() -> None:
    course = [
        (1.0, "bound", "a", "n0"), (5.0, "over", "a", "n0"), (7.0, "bound", "a", "n0"),
        (9.0, "over", "a", "n0"), (12.0, "bound", "a", "n1"), (20.0, "done", "a", ""), (20.5, "over", "a", "n1"),
    ]  # fmt: skip
    assert away(course) == 3.0
    assert away(course[:3]) == 0.0


def test_a_speed_is_measured_as_long_after_a_change_as_the_simulator_is_told() -> None:
    """By a report each second, whenever the change is between two of them."""
    four, two = (Config((("worker", n),), (n,)) for n in (4, 2))
    took = []
    for after in (0.05, 0.35, 0.65, 0.95):
        track = report_filter.EMPTY
        for now in range(60):
            track = report_filter.follow(track, Report(now, 3.0 * now, workers=4), four, now)
        began = now + 1.0 - after
        track = changed(track, two, began, "resize")
        while two not in report_filter.samples(track):
            now += 1
            track = report_filter.follow(track, Report(now, 3.0 * now, workers=2), two, now)
        took.append(now - began)
    assert MEASURE - 1.0 <= min(took) <= max(took) <= MEASURE


def test_another_node_is_another_pod_whatever_the_number_of_gpus_there() -> None:
    physics = OnePod({("", GROW): Cost(prepare=0.2)}, moves=Cost(pause=3.0, anew=True))
    grows = Change(GROW, "in-place", None, None)  # type: ignore[arg-type]
    assert physics.cost(grows) == Cost(prepare=0.2)
    assert physics.cost(grows._replace(leaves=True)) == Cost(pause=3.0, anew=True)


def test_in_what_is_foretold_jobs_are_measured_and_what_changes_take_shows(paper: InPlace) -> None:
    at_once = foretold(paper, Releases(), 0.0, 0.0)
    late = foretold(paper, Releases(usual=5.0, starts=20.0, away=30.0), 0.0, 0.0)
    assert at_once.changes > len(paper.workload().submissions)
    assert late.jct > at_once.jct + 10.0


class Played:
    """Agents that are played, by pod."""

    def __init__(self) -> None:
        self.running: dict[str, Any] = {}
        self.ended: list[str] = []

    def play(self, pod: str, _token: str, _gpus: Any) -> Any:
        self.running[pod] = type("Agent", (), {"devices": ()})()
        return self.running[pod]

    def end(self, pod: str) -> None:
        del self.running[pod]
        self.ended.append(pod)


class AtOnce:
    """A pool of callers."""

    def submit(self, call: Any, *given: Any) -> Future[None]:
        found: Future[None] = Future()
        found.set_result(call(*given))
        return found


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> tuple[Agents, Played, list[tuple[str, Pod, bool]]]:
    monkeypatch.setattr("e2e.bench.on_devices.token", lambda *_: "token")
    monkeypatch.setattr("e2e.bench.on_devices.delete_job", lambda *_: None)
    played, pods = Played(), list[tuple[str, Pod, bool]]()

    class Watched:
        def seen(self) -> list[tuple[str, Pod, bool]]:
            found = list(pods)
            pods.clear()
            return found

    of = Agents(played, None, Watched(), AtOnce(), lambda _: {}, lambda _: (1, 2), 0.0)  # type: ignore[arg-type]
    return of, played, pods


def pod(uid: str, node: str = "n0") -> Pod:
    return Pod(
        {
            "metadata": {"name": f"pod-{uid}", "uid": uid, "labels": {BY_DEVICES: "a"}},
            "spec": {"nodeName": node},
        }
    )


def test_a_job_has_the_agent_of_its_newest_pod_and_none_once_it_is_done(
    agents: tuple[Agents, Played, list[tuple[str, Pod, bool]]], counting: OnDevices
) -> None:
    of, played, pods = agents
    counting.submitted(Trained("a", 0.0, 1, 1, 2, 9.0, (), "little"), 0.0)
    pods.append(("a", pod("first"), True))
    of.meanwhile(0.0, counting)
    pods.append(("a", pod("second", "n1"), True))
    of.meanwhile(1.0, counting)
    assert (list(played.running), played.ended) == (["second"], ["first"])
    of._play("a", pod("first"))  # its token came late
    assert list(played.running) == ["second"]
    of.finish("a")
    of._play("a", pod("second"))
    assert not played.running


def test_a_job_whose_pod_ends_trains_on_nothing_until_it_has_another(
    agents: tuple[Agents, Played, list[tuple[str, Pod, bool]]], counting: OnDevices
) -> None:
    of, played, pods = agents
    pods.append(("job-00", pod("first"), True))
    of.meanwhile(0.0, counting)
    played.running["first"].devices = ("d0",)
    of.meanwhile(1.0, counting)
    assert counting.jobs["job-00"].on == {"job-00/d0": "n0"}
    pods.append(("job-00", pod("first"), False))
    of.meanwhile(2.0, counting)
    assert (counting.jobs["job-00"].on, played.ended) == ({}, ["first"])
    of._play("job-00", pod("first"))  # its token came late
    assert not played.running
    pods.append(("job-00", pod("second", "n1"), True))
    of.meanwhile(3.0, counting)
    assert list(played.running) == ["second"]
