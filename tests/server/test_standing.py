"""What a job's owner reads: position, one honest sentence, expected start; and the dump of a View."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from muster.core.cycle import cycle
from muster.core.snapshot_codec import dump, load
from muster.core.views.job_status import item, standings
from muster.core.views.view import View
from muster.errors import UsageError
from muster.types import NEVER, JobKey, Port, Snapshot, Taint, Toleration
from tests.scenario import FIFO, NOW, RACK, asks, job, node, snapshot
from tests.server.reading import viewed


def everywhere(_: str) -> bool:
    return True


def busy() -> View:
    jobs = [
        job("runs", worker=2, gpus=8, on=["n0", "n1"]),
        job("first", worker=2, gpus=8),
        job("second", worker=2, gpus=8, since=NOW - 90.0),
        job("small", worker=1, gpus=8),
        job("late", worker=3, present=1),
    ]
    return viewed(snapshot(nodes=3, jobs=jobs))


def words(view: View, name: str) -> str:
    """What the plan says of a waiting job, before position and holders are added."""
    status = view.plan.statuses[JobKey("team", name)]
    return f"{status.message}: {status.detail}"


def test_each_waiting_job_has_a_position_and_a_sentence() -> None:
    view = busy()
    held = "24 GPUs that it could use are held by team/runs and team/small"
    read = {s.key.name: (s.position, s.message) for s in standings(view, everywhere)}
    assert read == {
        "first": (1, f"{words(view, 'first')}; first in the queue; {held}"),
        "late": (None, "1 of 3 pods exist; missing: 2 worker"),
        "runs": (None, "2 replicas running"),
        "second": (2, f"{words(view, 'second')}; 1 job ahead; {held}"),
        "small": (None, "all replicas have a place; they are being started"),
    }


def test_an_item_has_exactly_the_public_shape() -> None:
    view = busy()
    (found,) = [item(s) for s in standings(view, everywhere) if s.key.name == "second"]
    assert found == {
        "namespace": "team",
        "name": "second",
        "state": "Waiting",
        "reason": "Resources",
        "message": f"{words(view, 'second')}; 1 job ahead; "
        "24 GPUs that it could use are held by team/runs and team/small",
        "position": 2,
        "since": "1970-01-01T02:45:10Z",
        "gpus": 16,
        "roles": {"worker": {"min": 2, "max": 2, "granted": 0, "bound": 0}},
        "eta": None,
        "etaUnknown": "the start of a job ahead of it is not known",
        "expected": "not known: the start of a job ahead of it is not known",
    }


def test_jobs_of_namespaces_that_the_reader_may_not_see_are_a_count() -> None:
    view = busy()
    jobs = dict(view.snapshot.jobs)
    hidden = jobs.pop(JobKey("team", "runs"))
    jobs[JobKey("secret", "runs")] = replace(hidden, key=JobKey("secret", "runs"))
    view = viewed(replace(view.snapshot, jobs=jobs))
    read = standings(view, lambda namespace: namespace == "team", "team")
    assert {s.key.name for s in read} == {"first", "late", "second", "small"}
    assert all("secret" not in s.message for s in read)
    first = next(s for s in read if s.key.name == "first")
    assert first.message.endswith(
        "24 GPUs that it could use are held by team/small and 1 job of other namespaces"
    )


def test_the_head_is_told_when_it_is_expected_to_start() -> None:
    jobs = [
        job("short", worker=1, gpus=8, on=["n0"], started_at=NOW - 100, remaining_work=400.0),
        job("long", worker=1, gpus=8, on=["n1"], started_at=NOW - 100, remaining_work=900.0),
        job("unknown", worker=1, gpus=8, on=["n2"]),
        job("head", worker=2, gpus=8),
        job("next", worker=1, gpus=8),
    ]
    read = {s.key.name: s for s in standings(viewed(snapshot(nodes=3, jobs=jobs)), everywhere)}
    assert {name: s.eta for name, s in read.items()} == {
        "short": None,
        "long": None,
        "unknown": None,
        "head": NOW + 800,
        "next": None,
    }
    assert {name: s.eta_unknown for name, s in read.items() if s.eta_unknown} == {
        "next": "2 jobs before it declare no run time (muster.dev/remaining-work)"
    }
    assert {name: s.expected for name, s in read.items() if s.expected} == {
        "head": "by the run times that jobs declare or report; it may start sooner",
        "next": "not known: 2 jobs before it declare no run time (muster.dev/remaining-work)",
    }


def test_a_job_that_can_never_fit_is_told_neither_position_nor_expected_start_but_never() -> None:
    view = viewed(snapshot(nodes=1, jobs=[job("huge", worker=1, gpus=9), job("next", worker=1, gpus=8)]))
    (found,) = [item(s) for s in standings(view, everywhere) if s.key.name == "huge"]
    assert (found["position"], found["eta"], found["expected"]) == (None, None, NEVER)


def rich() -> Snapshot:
    nodes = [
        node("n0", labels={RACK: "r0"}, taints=[Taint("gpu", "yes")], cordoned=False),
        node("n1", labels={RACK: "r0"}, cordoned=True),
        node("n2", labels={RACK: "r1"}, **{"rdma/hca": 2}),
    ]
    tolerant = asks(4, tolerations=(Toleration("gpu", "Exists"),), ports=(Port("TCP", "", 80),))
    jobs = [
        job("runs", worker=2, least=1, most=3, gpus=2, on=["n2"], topology_required=RACK),
        job("sent", worker=2, shape=tolerant, pinned=["n0"], refused={0: (NOW - 9, "no")}, priority=5),
        job("held", worker=1, held=[("worker", "n2", 0)], speed=((1, 1.0), (2, 1.9)), remaining_work=10.0),
        job("waits", worker=9, gpus=8, sizes=[1, 9], scored=("podAntiAffinity",)),
    ]
    return snapshot(
        nodes,
        jobs=jobs,
        foreign={"n2": asks(1, cpu=500)},
        ports={"n2": [Port("TCP", "", 8080)]},
        node_backoffs={("waits", "worker"): {"n0": NOW + 60}},
    )


def test_a_dump_read_back_gives_the_same_snapshot_and_the_same_plan() -> None:
    view = viewed(rich())
    text = json.dumps(dump(view), allow_nan=False)
    read, profile = load(json.loads(text))
    before = view.snapshot
    assert profile == "fifo"
    assert (read.now, read.jobs, read.ports, read.node_backoffs) == (
        before.now,
        before.jobs,
        before.ports,
        before.node_backoffs,
    )
    assert read.nodes.records == before.nodes.records
    assert np.array_equal(read.free, before.free)
    assert np.array_equal(read.ours_on, before.ours_on)
    assert cycle(read, FIFO) == view.plan


@pytest.mark.parametrize(
    "plain", [{}, {"version": 99}, {"version": 1, "profile": "fifo", "snapshot": {"now": 1}}]
)
def test_what_is_no_dump_is_refused_with_a_sentence(plain: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="snapshot"):
        load(plain)
