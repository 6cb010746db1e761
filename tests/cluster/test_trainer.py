"""Kubeflow Trainer's status as reports: what is understood of it, and when it is read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from muster.cluster.trainer import EVERY, TrainerStatus, read_status
from muster.core.views.view import Board
from muster.types import Event, Owner, Report, Reported
from tests.scenario import job, snapshot
from tests.server.reading import viewed

PATH = "/apis/trainer.kubeflow.org/v1alpha1"


def metrics(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize(
    ("status", "report"),
    [
        ({"progressPercentage": 45}, Report(at=9.0, step=45.0, total=100.0)),
        (
            {"progressPercentage": 45, "metrics": metrics(loss="0.2347", accuracy="0.98", epoch="1.7")},
            Report(at=9.0, step=45.0, total=100.0, loss=0.2347, epoch=1),
        ),
        (
            {"progressPercentage": 45, "metrics": metrics(global_step="900", max_steps="2000", eval_loss="1e-1")},
            Report(at=9.0, step=900.0, total=2000.0, loss=0.1),
        ),
        ({"metrics": metrics(step="3", samples="96")}, Report(at=9.0, step=3.0, samples=96.0)),
        ({"progressPercentage": 5, "metrics": metrics(loss="NaN", step="x")}, Report(at=9.0, step=5.0, total=100.0)),
        ({"metrics": metrics(loss="0.5")}, None),
        ({"metrics": metrics(step="-3")}, None),
        ({"progressPercentage": 400}, None),
        ({"estimatedRemainingSeconds": 60}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_status_is_a_report_as_far_as_it_tells_progress(
    status: dict[str, Any], report: Report | None
) -> None:
    assert read_status(status, 9.0) == report


class Api:
    """An API server with TrainJobs, or without."""

    def __init__(self, statuses: dict[str, Any] | None) -> None:
        self.statuses = statuses
        self.asked: list[str] = []

    def request(self, method: str, path: str) -> tuple[int, bytes]:
        assert method == "GET"
        self.asked.append(path.removeprefix(PATH))
        if self.statuses is None:
            return 404, b""
        if path == PATH:
            return 200, b"{}"
        name = path.rsplit("/", 1)[1]
        if name not in self.statuses:
            return 404, b""
        return 200, json.dumps({"status": {"trainerStatus": self.statuses[name]}}).encode()


def trainer(statuses: dict[str, Any] | None) -> tuple[TrainerStatus, Api, list[Event], Board]:
    before = snapshot(nodes=1, jobs=[job("jobset-a", worker=2, on=["n0", "n0"]), job("jobset-b", worker=1)])
    jobs = {
        key: replace(
            one,
            owner=Owner(
                "jobset.x-k8s.io/v1alpha2", "JobSet", key.name.removeprefix("jobset-"), f"uid-{key.name}"
            ),
        )
        for key, one in before.jobs.items()
    }
    board = Board(viewed(replace(before, jobs=jobs)))
    heard: list[Event] = []
    api = Api(statuses)
    return TrainerStatus(api, board, heard.extend), api, heard, board  # type: ignore[arg-type]


def test_each_status_of_a_running_job_is_one_report_of_its_first_replica() -> None:
    status = {"progressPercentage": 10, "lastUpdatedTime": "2026-11-21T23:00:00Z"}
    statuses = {"a": status}
    reader, api, heard, board = trainer(statuses)
    reader.look(100.0, 1000.0)
    reader.look(100.0 + EVERY, 1010.0)
    (running,) = [j for j in board.view.snapshot.jobs.values() if j.key.name == "jobset-a"]
    uid = running.roles[0].members[0].uid
    assert heard == [Reported(uid, Report(at=1000.0, step=10.0, total=100.0))]
    assert api.asked == ["", "/namespaces/team/trainjobs/a", "/namespaces/team/trainjobs/a"]
    statuses["a"] = {"progressPercentage": 11, "lastUpdatedTime": "2026-11-21T23:00:20Z"}
    reader.look(100.0 + 2 * EVERY, 1020.0)
    assert heard[1:] == [Reported(uid, Report(at=1020.0, step=11.0, total=100.0))]


def test_where_it_is_not_served_or_the_job_is_no_trainjob_little_is_asked() -> None:
    reader, api, heard, _ = trainer(None)
    for n in range(6):
        reader.look(n * EVERY, 1000.0)
    assert (api.asked, heard) == ([""], [])
    reader.look(61.0, 1000.0)
    assert api.asked == ["", ""]
    reader, api, heard, _ = trainer({})
    for n in range(6):
        reader.look(n * EVERY, 1000.0)
    assert (api.asked, heard) == (["", "/namespaces/team/trainjobs/a"], [])


def test_a_replica_that_does_not_lead_reads_nothing() -> None:
    reader, api, _, board = trainer({"a": {}})
    board.view = replace(board.view, leading=False)
    reader.look(0.0, 1000.0)
    assert api.asked == []
