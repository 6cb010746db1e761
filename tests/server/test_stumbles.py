"""A job over which a page raises is shown as such on it, the others as ever; nothing is known to raise, so here facts
of a job are made that no core would make."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from muster.core.cycle import cycle
from muster.core.views.safe_rendering import SENTENCE, shown
from muster.core.views.view import Board, View
from muster.server.resize_metrics import Resizes
from muster.server.service import make_service_app
from muster.server.stumbles import Stumbles
from muster.types import Facts, JobKey
from tests.scenario import FIFO, job, key, snapshot
from tests.server.reading import viewed
from tests.server.test_service import Rights, bearer

BROKEN: Mapping[str, Any] = {"report": "none", "roles": None, "submitted": "yesterday"}
BAD = JobKey("attacker", "bad")


def view_with(broken: Mapping[str, Any]) -> View:
    """Two jobs that run, one that waits, and one of another namespace whose facts make no sense since the plan."""
    jobs = [job("runs", worker=1, gpus=4, on=["n0"]), job("waits", worker=9, gpus=8)]
    bad = replace(job("bad", worker=1, gpus=4, on=["n1"]), key=BAD)
    whole = snapshot(nodes=2, jobs=jobs)
    whole = replace(whole, jobs={**whole.jobs, BAD: bad})
    view = viewed(whole)
    bad = replace(bad)
    for name, value in broken.items():
        object.__setattr__(bad, name, value)  # past what a Job checks itself
    return replace(view, snapshot=replace(view.snapshot, jobs={**view.snapshot.jobs, BAD: bad}))


def rows(client: TestClient, path: str) -> dict[str, Any]:
    answer = client.get(path, headers=bearer("admin"))
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return {row["name"]: row for row in found.get("items", found.get("jobs"))}


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/cluster"])
@pytest.mark.parametrize("name", ["report", "roles"])
def test_a_row_over_which_a_page_raises_says_so_and_the_others_are_as_ever(path: str, name: str) -> None:
    board = Board(view_with({name: BROKEN[name]}))
    aside: list[JobKey] = []
    board.aside = lambda key, _: aside.append(key)
    with TestClient(make_service_app(board, Rights(), fresh=0.0)) as client:
        found = rows(client, path)
        board.view = view_with({})
        whole = rows(client, path)
    assert aside == [BAD]
    others = ("runs", "waits")
    waits = {"message": None} if name == "roles" else {}  # it names who has the GPUs that it waits for
    assert [found[row] | waits for row in others] == [whole[row] | waits for row in others]
    assert (found["bad"]["state"], found["bad"]["reason"]) == ("Running", "Internal")
    assert found["bad"]["message"] == SENTENCE
    assert found["bad"]["gpus"] == (4 if name == "report" else 0)


@pytest.mark.parametrize("name", BROKEN)
def test_one_jobs_page_and_the_metrics_and_the_snapshot_are_answered(name: str) -> None:
    board = Board(view_with({name: BROKEN[name]}))
    with TestClient(make_service_app(board, Rights(), fresh=0.0)) as client:
        for path in ("/v1/jobs/attacker/bad", "/v1/jobs/team/runs", "/metrics", "/debug/snapshot"):
            assert client.get(path, headers=bearer("admin")).status_code == 200, path
        assert "muster_nodes 2.0" in client.get("/metrics").text


def test_a_page_that_raises_over_nobody_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        shown(Board(view_with({})), lambda _: 1 / 0)


def test_many_jobs_of_one_namespace_cost_few_renderings() -> None:
    before = view_with({})
    jobs = {JobKey("attacker", f"bad-{n}"): job("bad", worker=1, report="none") for n in range(200)}
    jobs = {one: replace(found, key=one) for one, found in jobs.items()}
    view = replace(before, snapshot=replace(before.snapshot, jobs=before.snapshot.jobs | jobs))
    made: list[int] = []

    def render(view: View) -> int:
        made.append(1)
        return sum(found.report is None or found.report.step >= 0 for found in view.snapshot.jobs.values())

    aside: list[JobKey] = []
    board = Board(view)
    board.aside = lambda key, _: aside.append(key)
    assert shown(board, render) == 203
    assert {one.namespace for one in aside} == {"attacker"}
    assert len(made) < 60


def test_changes_of_a_job_that_cannot_be_counted_leave_those_of_others() -> None:
    stumbled: list[JobKey] = []
    resizes = Resizes(CollectorRegistry(), lambda key, _: stumbled.append(key))
    good = view_with({})
    broken = view_with({"facts": Facts(shares=None)})  # type: ignore[arg-type]
    for view in (good, broken, good):
        resizes.look(view)
    assert stumbled == [BAD]
    assert key("runs") in resizes._known


def test_each_is_counted_and_a_new_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[int] = []
    stumbles = Stumbles(lambda: counted.append(1))
    with caplog.at_level(logging.ERROR):
        for error in (ValueError("one"), ValueError("one"), ValueError("two")):
            stumbles.aside(BAD, error)
    assert len(counted) == 3
    assert [record.getMessage() for record in caplog.records] == ["put aside in page: attacker/bad"] * 2


def test_what_a_page_does_without_changes_no_plan() -> None:
    view = view_with({"report": "none"})
    shown(
        Board(view),
        lambda view: [found.report and found.report.step for found in view.snapshot.jobs.values()],
    )
    assert cycle(view.snapshot, FIFO).statuses.keys() == view.plan.statuses.keys()
