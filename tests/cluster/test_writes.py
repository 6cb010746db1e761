"""How many requests a start costs, in which order they go, and what counts as written."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any, cast

from muster.cluster import action_executor
from muster.cluster.action_bodies import ungate_patch
from muster.cluster.action_executor import ActionExecutor
from muster.cluster.api import Api
from muster.cluster.worker_pool import WorkerPool
from muster.types import Event, GangSeen, JobKey, Outcome, Owner, Reservation, Ungate, WriteGang
from tests.cluster_fake import FakeCluster, Muster

JOB = JobKey("team", "job-train", "u1")
HOLDS = (Reservation("worker", "n1", "p0", "u0"), Reservation("worker", "n2", "p1", "u1"))


class FakeApi:
    """Keeps one Gang as an API server does. `apart`: its definition has a status subresource (an older chart's)."""

    def __init__(self, apart: bool = False) -> None:
        self.asked: list[str] = []
        self.apart = apart
        self.gang: dict[str, Any] = {}

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "",  # noqa: ARG002
    ) -> tuple[int, bytes]:
        last = path.rsplit("/", 1)[-1]
        self.asked.append(f"{method} {last}")
        if method == "GET":
            return (200, json.dumps(self.gang).encode()) if self.gang else (404, b"{}")
        if method == "POST":
            if self.gang:
                return 409, b'{"message": "exists"}'
            kept = {name: value for name, value in body.items() if name != "status" or not self.apart}
            self.gang = json.loads(json.dumps(kept))
            return 201, json.dumps(self.gang).encode()
        if last == "status" and not self.apart:
            return 404, b'{"message": "the server could not find the requested resource"}'
        if last == "status" or not self.apart:
            merged = {**self.gang.get("status", {}), **body["status"]}
            self.gang["status"] = {name: value for name, value in merged.items() if value is not None}
        return 200, json.dumps(self.gang).encode()


def write(state: str, reservations: tuple[Reservation, ...], *, exists: bool) -> WriteGang:
    """A write of the job's Gang."""
    placement = [{"role": h.role, "node": h.node, "pod": h.pod, "uid": h.uid} for h in reservations]
    status = {"state": state, "reason": "r", "placement": placement, "ended": None}
    return WriteGang(JOB, "job-train", None, status, exists=exists, reservations=reservations)


def sent(api: FakeApi, *actions: WriteGang) -> list[Event]:
    """What comes back from writes, one after the other."""
    heard: list[Event] = []
    hands = ActionExecutor(cast(Api, api), heard.extend, "muster", threads=1)
    hands.carry_out(actions)
    hands.close(all_of_it=True)
    return heard


def statuses(events: list[Event]) -> list[int]:
    """The outcomes' HTTP statuses."""
    return [event.status for event in events if isinstance(event, Outcome)]


def test_a_start_costs_one_write_a_gang_and_one_patch_a_pod():
    cluster = FakeCluster(nodes=8)
    for number in range(10):
        cluster.job(f"train-{number}", 3)
    muster = Muster(cluster)
    muster.settle()
    assert {muster.state(f"job-train-{number}") for number in range(10)} == {"Running"}
    assert cluster.counts == {"gang-writes": 10, "patches": 30}
    muster.turn()
    assert cluster.counts == {"gang-writes": 10, "patches": 30}


def test_a_large_gang_costs_two_writes():
    cluster = FakeCluster(nodes=8)
    cluster.job("train", 17)
    muster = Muster(cluster)
    muster.settle()
    assert muster.state("job-train") == "Running"
    assert cluster.counts == {"gang-writes": 2, "patches": 17}


def test_the_placement_comes_with_the_gang_in_one_request():
    api = FakeApi()
    heard = sent(api, write("Starting", HOLDS, exists=False))
    assert (api.asked, statuses(heard)) == (["POST gangs"], [201])
    (seen,) = [event.gang for event in heard if isinstance(event, GangSeen)]
    assert (seen.state, seen.placement) == ("Starting", HOLDS)


def test_a_gang_says_whose_it_is_and_who_declares_its_roles():
    api = FakeApi()
    train = Owner("trainer.kubeflow.org/v1alpha1", "TrainJob", "tune", "t")
    below = Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "tune", "s")
    action = replace(write("Starting", HOLDS, exists=False), owner=train, declared_by=below)
    (seen,) = [event.gang for event in sent(api, action) if isinstance(event, GangSeen)]
    assert (seen.owner, seen.declared_by) == (train, below)
    assert [one["uid"] for one in api.gang["metadata"]["ownerReferences"]] == ["t"]


def test_a_gang_that_is_there_is_written_by_one_request():
    api = FakeApi()
    sent(api, write("Waiting", (), exists=False))
    assert statuses(sent(api, write("Starting", HOLDS, exists=True))) == [200]
    assert api.asked == ["POST gangs", "PATCH job-train"]


def test_a_gang_of_an_earlier_term_gets_its_status_by_a_patch():
    api = FakeApi()
    api.gang = {"metadata": {"name": "job-train", "namespace": "team"}, "spec": {"uid": "u1"}}
    assert statuses(sent(api, write("Starting", HOLDS, exists=False))) == [200]
    assert api.asked == ["POST gangs", "GET job-train", "PATCH job-train"]


def test_while_an_older_chart_keeps_the_status_apart_it_is_written_there():
    api = FakeApi(apart=True)
    first, second = write("Starting", HOLDS, exists=False), write("Starting", HOLDS[:1], exists=True)
    assert statuses(sent(api, first, second)) == [200, 200]
    # The first finds out, and from then on each is one request.
    assert api.asked == ["POST gangs", "PATCH job-train", "PATCH status", "PATCH status"]


def test_while_a_crowd_starts_what_is_only_told_goes_one_by_one(monkeypatch):
    """Here the starts stand still, so that they wait; what is told still gets through."""
    monkeypatch.setattr(action_executor, "CROWD", 1)
    go, told, most = threading.Event(), threading.Semaphore(0), [0]
    now = [0]
    lock = threading.Lock()

    class Slow(FakeApi):
        def request(
            self, method: str, path: str, body: Any = None, content_type: str = ""
        ) -> tuple[int, bytes]:
            if "pods" in path:
                go.wait(60)
                return 404, b"{}"
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.01)
            with lock:
                now[0] -= 1
            told.release()
            return super().request(method, path, body, content_type)

    hands = ActionExecutor(cast(Api, Slow()), lambda _: None, "muster", threads=1)
    hands.carry_out(tuple(Ungate(JOB, f"u{i}", f"p{i}", "1", "n1", True, "start") for i in range(4)))
    hands.carry_out(tuple(write("Running", (), exists=True) for _ in range(8)))
    for _ in range(8):
        assert told.acquire(timeout=60)
    assert hands.crowded
    assert most == [1]
    go.set()
    hands.close(all_of_it=True)
    assert not hands.crowded


def test_why_a_job_waits_is_told_before_that_others_run():
    """Four thousand jobs that start leave as many statuses to write; who comes then wants to know why he waits."""
    go = threading.Event()

    class Held(FakeApi):
        def request(
            self, method: str, path: str, body: Any = None, content_type: str = ""
        ) -> tuple[int, bytes]:
            go.wait(60)
            return super().request(method, path, body, content_type)

    api = Held()
    hands = ActionExecutor(cast(Api, api), lambda _: None, "muster", threads=1)
    running = [replace(write("Running", (), exists=True), gang=f"runs-{i}") for i in range(12)]
    waiting = replace(write("Waiting", (), exists=True), gang="waits")
    hands.carry_out((*running, waiting))
    go.set()
    hands.close(all_of_it=True)
    assert len(api.asked) == 13
    assert api.asked.index("PATCH waits") <= 8, "behind those under way and at most as many more"


def test_that_a_job_is_to_start_again_is_written_before_what_others_are_told():
    """Its evictions wait for that: here nobody else is answered before."""
    written = threading.Event()

    class Held(FakeApi):
        def request(
            self, method: str, path: str, body: Any = None, content_type: str = ""
        ) -> tuple[int, bytes]:
            if path.endswith("moves"):
                answer = super().request(method, path, body, content_type)
                written.set()
                return answer
            return super().request(method, path, body, content_type) if written.wait(60) else (500, b"{}")

    api = Held()
    hands = ActionExecutor(cast(Api, api), lambda _: None, "muster", threads=1)
    waiting = [replace(write("Waiting", (), exists=True), gang=f"waits-{i}") for i in range(24)]
    moves = replace(write("Resizing", (), exists=True), gang="moves", leaves_whole=frozenset({"u0"}))
    hands.carry_out((*waiting, moves))
    hands.close(all_of_it=True)
    assert api.asked[0] == "PATCH moves"
    assert len(api.asked) == 25


def test_an_upgrade_of_the_definition_is_noticed():
    api = FakeApi(apart=True)
    heard: list[Event] = []
    hands = ActionExecutor(cast(Api, api), heard.extend, "muster", threads=1)
    gate = threading.Event()

    def then(events: list[Event]) -> None:
        heard.extend(events)
        api.apart = False
        gate.set()

    hands._sink = then
    hands.carry_out((write("Starting", HOLDS, exists=False),))
    assert gate.wait(60)
    hands.carry_out((write("Starting", HOLDS[:1], exists=True), write("Starting", HOLDS, exists=True)))
    hands.close(all_of_it=True)
    assert statuses(heard) == [200, 200, 200]
    assert api.asked[3:] == ["PATCH status", "PATCH job-train", "PATCH job-train"]


def test_a_placement_that_the_api_did_not_keep_is_no_success():
    class Forgetful(FakeApi):
        def request(
            self, method: str, path: str, body: Any = None, content_type: str = ""
        ) -> tuple[int, bytes]:
            status, data = super().request(method, path, body, content_type)
            return status, json.dumps({**json.loads(data), "status": {"state": "Starting"}}).encode()

    heard = sent(Forgetful(), write("Starting", HOLDS, exists=False))
    assert not any(isinstance(event, GangSeen) for event in heard)
    assert not 200 <= statuses(heard)[0] < 300


def test_gates_come_off_before_further_placements_are_recorded():
    order: list[str] = []
    begin, done = threading.Event(), threading.Event()

    def work(what: str) -> None:
        if what == "first":
            begin.wait(60)
        order.append(what)
        if what == "place 2":
            done.set()

    crew: WorkerPool[str] = WorkerPool("test", 1, work)
    for what, rank in (("first", 0), ("place 1", 1), ("place 2", 1), ("gate 1", 0), ("gate 2", 0)):
        crew.give(what, rank)
    begin.set()
    assert done.wait(60)
    crew.close()
    assert order == ["first", "gate 1", "gate 2", "place 1", "place 2"]


def test_what_waits_is_dropped_at_the_end_and_what_is_under_way_ends():
    under_way, go, done = threading.Event(), threading.Event(), list[str]()

    def work(what: str) -> None:
        under_way.set()
        go.wait(60)
        done.append(what)

    crew: WorkerPool[str] = WorkerPool("test", 1, work)
    crew.give("first")
    crew.give("second")
    assert under_way.wait(60)
    ending = threading.Thread(target=crew.close)
    ending.start()
    while crew.waiting < 2:  # the second and the end
        pass
    go.set()
    ending.join()
    assert done == ["first"]


def test_who_wrote_which_field_is_kept_where_somebody_applies_the_pod():
    def metadata(applied: bool) -> dict[str, Any]:
        patch = ungate_patch(Ungate(JOB, "u", "p", "7", "n1", True, "start", applied=applied))
        return cast(dict[str, Any], json.loads(patch)["metadata"])

    assert metadata(True) == {"uid": "u", "resourceVersion": "7"}
    assert metadata(False) == {"uid": "u", "resourceVersion": "7", "managedFields": [{}]}
