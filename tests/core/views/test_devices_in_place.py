"""What readers see of devices in place: whose they are in the picture, and what changed hands."""

from __future__ import annotations

from typing import Any

from muster.core.devices.seen import looked_on
from muster.core.views import cluster_view
from muster.core.views.view import View
from muster.types import JobKey
from tests.core.devices.circle import Circle


def viewed(circle: Circle) -> View:
    """As the live driver hangs it out."""
    snapshot = circle.ledger.snapshot(circle.cluster.now)
    return circle.ledger.view(snapshot, circle.plan, leading=True, synced=True)


def told(view: View, sees: Any = lambda _: True) -> dict[str, Any]:
    return cluster_view.cluster(view, sees)


def cells(found: dict[str, Any]) -> list[tuple[str, str, int]]:
    names = [job["name"] for job in found["jobs"]] + ["kept", "other", "foreign"]
    (node,) = found["nodes"]
    return [(names[of], state, count) for of, state, count in node["cells"]]


def job(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [job for job in found["jobs"] if job["name"] == name]
    return dict(one)


def test_gpus_in_place_are_drawn_for_who_uses_them_until_they_have_changed_hands() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    circle.seconds(8)
    found = told(viewed(circle))
    assert cells(found) == [("job-a", "bound", 4)]
    assert found["gpus"]["bound"] == 4
    assert found["nodes"][0]["devices"] == [[f"GPU-n0-{i}", "in use", [0]] for i in range(4)]
    a = job(found, "job-a")
    assert a["message"].startswith("in place: 4 of 4 GPUs of n0 since "), "as its Gang says"
    assert list(a["roles"]) == ["worker"], "slots are no role of the job's"
    assert (a["gpus"], a["elastic"]) == (4, "")
    mine = a["inPlace"]
    assert {key: mine[key] for key in ("min", "max", "granted", "bound", "nodes", "handOver")} == {
        "min": 1,
        "max": 4,
        "granted": 4,
        "bound": 4,
        "nodes": ["n0"],
        "handOver": None,
    }
    assert found["handOvers"] == []

    # b is to have two of them, and a, which does not obey yet, uses all
    circle.slow.add(circle.pod("a").uid)
    circle.train("b", "1-4")
    circle.seconds(4)
    found = told(viewed(circle))
    assert cells(found) == [("job-a", "bound", 2), ("job-a", "ending", 2)]
    assert (job(found, "job-b")["inPlace"]["granted"], job(found, "job-b")["inPlace"]["bound"]) == (2, 0)
    assert sum(found["gpus"].values()) - found["gpus"]["total"] == 4

    circle.slow.clear()
    circle.seconds(8)
    found = told(viewed(circle))
    assert cells(found) == [("job-a", "bound", 2), ("job-b", "bound", 2)]
    (taken, given) = found["handOvers"]
    assert (found["jobs"][taken["job"]]["name"], taken["before"], taken["after"]) == ("job-b", 0, 2)
    assert (found["jobs"][given["job"]]["name"], given["before"], given["after"]) == ("job-a", 4, 2)
    assert given["idle"] is None, "who gives waits for nothing"
    assert taken["idle"] <= taken["took"]
    detail = cluster_view.job(viewed(circle), lambda _: True, view_key(circle, "job-b"))
    assert [(one["role"], one["node"]) for one in detail["replicas"]] == [("worker", "n0")]
    assert {one["node"] for one in detail["inPlace"]["devices"]} == {"n0"}


def view_key(circle: Circle, name: str) -> JobKey:
    (key,) = [key for key in viewed(circle).snapshot.jobs if key.name == name]
    return key


def test_gpus_that_muster_keeps_for_nobody_are_not_called_foreign() -> None:
    circle = Circle()
    a = circle.train("a", "2")
    circle.seconds(8)
    circle.cluster.end(a.uid)
    circle.seconds(3)
    found = told(viewed(circle))
    assert cells(found) == [("kept", "bound", 2)]
    assert (found["gpus"]["kept"], found["gpus"]["foreign"], found["gpus"]["free"]) == (2, 0, 2)
    circle.seconds(30)
    assert cells(told(viewed(circle))) == []


def test_who_may_not_see_a_job_in_place_sees_that_others_use_gpus_and_nothing_else() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    circle.seconds(8)
    circle.train("b", "1-4")
    circle.seconds(8)
    found = told(viewed(circle), lambda namespace: namespace == "elsewhere")
    assert (found["jobs"], found["handOvers"]) == ([], [])
    assert found["nodes"][0]["cells"] == [(-2, "bound", 4)]
    assert "devices" not in found["nodes"][0], "neither their ids nor how many jobs use one"


def test_a_replica_that_does_not_lead_reads_the_same_from_holders() -> None:
    circle = Circle()
    circle.train("a", "1-4")
    circle.seconds(8)
    circle.train("b", "1-4")
    circle.seconds(8)
    leads = told(viewed(circle))
    seen = looked_on(circle.records.values(), circle.ledger.charges.charged)
    circle.ledger.give_devices(None)
    snapshot = circle.ledger.snapshot(circle.cluster.now)
    view = circle.ledger.view(snapshot, circle.ledger.plan(snapshot), leading=False, synced=True)
    assert view.in_place is None
    found = told(type(view)(**{**vars(view), "in_place": seen}))
    assert found["nodes"] == leads["nodes"]
    assert found["gpus"] == leads["gpus"]
    assert (job(found, "job-a")["inPlace"]["bound"], job(found, "job-b")["inPlace"]["bound"]) == (2, 2)
