# Over 300 lines: all that the page shows is tried on the same made-up clusters.
"""The cluster as a picture: who has which GPUs, what is shown to whom, and one job in full."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from muster.core.progress.eta import UNDECLARED, curve, outlook
from muster.core.views import cluster_view
from muster.core.views.view import View
from muster.points import Estimation, Profile
from muster.types import (
    PRODUCT,
    Config,
    Facts,
    Job,
    JobKey,
    Meter,
    Owner,
    Report,
    Shape,
    Snapshot,
    Taint,
    mig_slices,
)
from muster_plugins.pack import Pack
from tests.scenario import FIFO, NOW, asks, job, node, snapshot
from tests.server.reading import viewed

RACK = "topology.kubernetes.io/rack"
TEAM = "team"


def everything(_: str) -> bool:
    return True


def only_team(namespace: str) -> bool:
    return namespace == TEAM


def moved(before: Snapshot, name: str, namespace: str) -> Snapshot:
    """The snapshot with a job in another namespace."""
    jobs = dict(before.jobs)
    found = jobs.pop(JobKey(TEAM, name))
    key = JobKey(namespace, name)
    return replace(before, jobs=jobs | {key: replace(found, key=key)})


def cells(told: dict[str, object]) -> dict[str, list[tuple[str, str, int]]]:
    """By node: (job's name, "-" for what is not Muster's, "?" for who is hidden), state and GPUs."""
    jobs: Any = told["jobs"]
    nodes: Any = told["nodes"]
    names = {cluster_view.FOREIGN: "-", cluster_view.OTHERS: "?"} | {i: j["name"] for i, j in enumerate(jobs)}
    return {n["name"]: [(names[of], state, count) for of, state, count in n["cells"]] for n in nodes}


def mixed() -> View:
    """Four nodes with everything that a cell can be."""
    nodes = [
        node("n0", labels={RACK: "r0", PRODUCT: "H100"}),
        node("n1", labels={RACK: "r0"}),
        node("n2", labels={RACK: "r1"}, cordoned=True),
        node("n3", taints=[Taint("node.kubernetes.io/not-ready")]),
        node("cpu", gpus=0),
    ]
    jobs = [
        job("whole", worker=2, gpus=4, on=["n0", "n0"]),
        job("leaves", worker=2, least=1, gpus=2, on=["n1"], ending=["n1"]),
        job("comes", worker=1, gpus=3, held=[("worker", "n1", 0)]),
        job("far", worker=1, gpus=2, on=["n2"]),
        job("waits", worker=9, gpus=8),
    ]
    return viewed(snapshot(nodes, jobs=jobs, foreign={"n3": asks(5)}))


def test_each_gpu_of_each_node_is_somebody_s_or_free() -> None:
    told = cluster_view.cluster(mixed(), everything)
    assert cells(told) == {
        "n0": [("whole", "bound", 8)],
        "n1": [("comes", "held", 3), ("leaves", "bound", 2), ("leaves", "ending", 2)],
        "n2": [("far", "bound", 2)],
        "n3": [("-", "bound", 5)],
    }
    assert told["gpus"] == {
        "total": 32,
        "bound": 12,
        "held": 3,
        "ending": 2,
        "kept": 0,
        "foreign": 5,
        "closed": 9,  # six on the cordoned node, three on the one that is not ready
        "free": 1,
    }


def test_nodes_tell_their_rack_product_and_why_nothing_starts_there() -> None:
    nodes: Any = cluster_view.cluster(mixed(), everything)["nodes"]
    assert [(n["name"], n["rack"], n["product"], n["gpus"], n["closed"]) for n in nodes] == [
        ("n0", "r0", "H100", 8, ""),
        ("n1", "r0", "", 8, ""),
        ("n2", "r1", "", 8, "cordoned"),
        ("n3", "", "", 8, "not ready"),
    ]


def test_nodes_are_grouped_by_the_narrowest_level_that_is_configured() -> None:
    labels = {"example.org/row": "a", RACK: "r0"}
    before = snapshot([node("n0", labels=labels)])
    told: Any = cluster_view.cluster(
        viewed(before, replace(FIFO, topology_levels=("none/such", "example.org/row"))), everything
    )
    assert [n["rack"] for n in told["nodes"]] == ["a"]
    plain: Any = cluster_view.cluster(viewed(snapshot([node("n0")])), everything)
    assert [n["rack"] for n in plain["nodes"]] == [""]


def test_other_makers_gpus_are_counted_as_shapes_count_them() -> None:
    nodes = [node("n0", gpus=0, **{"amd.com/gpu": 4}), node("n1", gpus=2, **{"amd.com/gpu": 4})]
    told: Any = cluster_view.cluster(viewed(snapshot(nodes)), everything)
    assert [(n["name"], n["gpus"]) for n in told["nodes"]] == [("n0", 4), ("n1", 2)]


def test_mig_devices_count_one_each_beside_whole_gpus() -> None:
    one, two = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
    nodes = [node("n0", gpus=2, **{one: 7, two: 3}), node("n1", gpus=0, **{one: 7}), node("n2", gpus=0)]
    told: Any = cluster_view.cluster(viewed(snapshot(nodes)), everything)
    assert [(n["name"], n["gpus"]) for n in told["nodes"]] == [("n0", 12), ("n1", 7)]
    assert told["gpus"]["total"] == 19
    assert [n.get("slices") for n in told["nodes"]] == [[13, 13], [7, 7]], "7 of 1g and 3 of 2g, and 7 of 1g"
    used = snapshot(nodes, foreign={"n0": Shape(((one, 1), (two, 2)))})
    told = cluster_view.cluster(viewed(used), everything)
    assert told["nodes"][0]["slices"] == [8, 13]
    assert Shape(requests=(("cpu", 1000), ("nvidia.com/gpu", 2), (one, 1), (two, 2))).gpus == 5
    assert Shape(requests=(("nvidia.com/migrations", 3), ("nvidia.com/mig", 2))).gpus == 0


def test_the_slices_of_a_mig_device_are_those_of_its_profile() -> None:
    found = {
        "mig-1g.10gb": 1,
        "mig-3g.20gb": 3,
        "mig-1c.3g.20gb": 3,
        "mig-7g.80gb": 7,
        "mig-1g.10gb.me": 1,
        "gpu": 0,
    }
    assert {name: mig_slices(f"nvidia.com/{name}") for name in found} == found


def test_jobs_of_others_are_one_thing_to_a_tenant() -> None:
    view = mixed()
    hidden = moved(moved(view.snapshot, "whole", "secret"), "leaves", "secret-too")
    view = viewed(hidden)
    told = cluster_view.cluster(view, only_team, TEAM)
    assert cells(told) == {
        "n0": [("?", "bound", 8)],
        "n1": [("comes", "held", 3), ("?", "bound", 2), ("?", "ending", 2)],
        "n2": [("far", "bound", 2)],
        "n3": [("-", "bound", 5)],
    }
    jobs: Any = told["jobs"]
    assert {j["name"] for j in jobs} == {"comes", "far", "waits"}
    text = json.dumps(told)
    assert "secret" not in text
    assert "whole" not in text
    assert "leaves" not in text


def test_a_reader_of_everything_who_looks_at_one_namespace_gets_its_jobs_only() -> None:
    view = viewed(moved(mixed().snapshot, "whole", "vision"))
    told: Any = cluster_view.cluster(view, everything, "vision")
    assert [(j["namespace"], j["name"]) for j in told["jobs"]] == [("vision", "whole")]
    assert cells(told)["n0"] == [("whole", "bound", 8)]
    assert cells(told)["n2"] == [("?", "bound", 2)]


def test_a_job_in_the_list_tells_its_share_and_how_far_it_is() -> None:
    runs = job(
        "runs",
        worker=4,
        least=1,
        most=8,
        gpus=2,
        present=8,
        on=["n0", "n0"],
        started_at=NOW - 100.0,
        remaining_work=400.0,
        priority=7,
    )
    told: Any = cluster_view.cluster(viewed(snapshot(nodes=1, jobs=[runs])), everything)
    (found,) = told["jobs"]
    assert found["roles"]["worker"] == {"min": 1, "max": 8, "granted": 4, "bound": 2}
    assert {k: found[k] for k in ("elastic", "unit", "priority", "progress", "end", "endUnknown")} == {
        "elastic": "worker",
        "unit": 2,
        "priority": 7,
        "progress": 0.25,
        "end": "1970-01-01T02:51:40Z",
        "endUnknown": None,
    }


# ---- one job ----


def elastic_job() -> Job:
    facts = Facts(
        resizes=3,
        last_resize=NOW - 60.0,
        last_cost=31.25,
        gpu_seconds=Meter(100.0, 2.0, NOW - 50.0),
        shares=((NOW - 900.0, 1), (NOW - 500.0, 4), (NOW - 60.0, 2)),
    )
    return job(
        "train",
        worker=2,
        least=1,
        most=4,
        present=4,
        gpus=1,
        on=["n0", "n0"],
        facts=facts,
        report=Report(at=NOW - 2.0, step=50.0, total=200.0, loss=1.5, speed=2.0, samples=900.0),
        samples={
            Config((("worker", 4),), (4,)): 30.0,
            Config((("worker", 1),), (1,)): 10.0,
        },
        speed=((1, 1.0), (2, 2.0), (4, 3.0)),
        owner=Owner("batch/v1", "Job", "train", "u1"),
    )


def one(view: View, name: str = "train", sees: Any = everything) -> Any:
    key = cluster_view.find(view, TEAM, name)
    assert key is not None
    return json.loads(msgspec.json.encode(cluster_view.job(view, sees, key)))


def test_one_job_in_full() -> None:
    view = viewed(snapshot(nodes=1, jobs=[elastic_job()]))
    found = one(view)
    assert found["shares"] == [[NOW - 900.0, 1], [NOW - 500.0, 4], [NOW - 60.0, 2]]
    assert (found["resizes"], found["resizeCost"], found["gpuSeconds"]) == (3, 31.25, 200.0)
    assert found["owner"] == {"kind": "Job", "name": "train"}
    assert found["report"] == {
        "at": "1970-01-01T02:46:38Z",
        "step": 50.0,
        "total": 200.0,
        "epoch": None,
        "loss": 1.5,
        "speed": 2.0,
    }
    assert found["progress"] == 0.25
    assert found["end"] == "1970-01-01T02:47:53Z"  # 150 iterations at 2/s, since the report
    assert found["speeds"]["unit"] == "samples/s"
    assert found["speeds"]["measured"] == [[1, 10.0, 1], [4, 30.0, 1]]
    assert found["speeds"]["estimated"] == [[1, 10.0], [2, 20.0], [3, 24.0], [4, 30.0]]
    assert [(r["pod"], r["node"], r["state"]) for r in found["replicas"]] == [
        ("train-worker-0", "n0", "bound"),
        ("train-worker-1", "n0", "bound"),
        ("train-worker-2", "n0", "held"),
        ("train-worker-3", "n0", "held"),
    ]


def test_why_a_job_has_its_share_never_names_a_job_that_its_reader_may_not_see() -> None:
    before = snapshot(
        nodes=2, jobs=[elastic_job(), job("rich", worker=1, on=["n1"]), job("mate", worker=1, on=["n1"])]
    )
    view = viewed(moved(before, "rich", "secret"))
    why = "2 more GPUs would speed it up by 9 %; secret/rich gains +31 %, team/mate +2 %"
    view = replace(view, plan=replace(view.plan, whys={JobKey(TEAM, "train"): why}))
    assert one(view)["why"] == why
    assert (
        one(view, sees=only_team)["why"]
        == "2 more GPUs would speed it up by 9 %; a job of another namespace gains +31 %, team/mate +2 %"
    )


def test_a_name_that_was_used_again_is_the_newest_job_of_it_unless_a_uid_says_which() -> None:
    older = replace(job("train", worker=1), key=JobKey(TEAM, "train", "u1"), submitted=NOW - 500.0)
    newer = replace(job("train", worker=1), key=JobKey(TEAM, "train", "u2"), submitted=NOW - 5.0)
    view = viewed(snapshot(nodes=1, jobs=[older, newer]))
    assert cluster_view.find(view, TEAM, "train") == newer.key
    assert cluster_view.find(view, TEAM, "train", "u1") == older.key
    assert cluster_view.find(view, TEAM, "train", "u3") is None
    assert cluster_view.find(view, "other", "train") is None


def test_members_that_do_not_exist_yet_are_listed_with_the_place_that_is_kept_for_them() -> None:
    gang = job("late", worker=2, present=1, expects=True, ordered=True)
    found = one(viewed(snapshot(nodes=1, jobs=[gang])), "late")
    assert [(r["pod"], r["node"], r["state"]) for r in found["replicas"]] == [
        ("late-worker-0", "n0", "held"),
        ("", "n0", "held"),
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_told_as_unknown(value: float) -> None:
    wrong = replace(
        elastic_job(),
        report=Report(at=NOW, step=value, total=10.0, loss=value, speed=value),
        samples={Config((("worker", 1),)): value},
    )
    found = one(viewed(snapshot(nodes=1, jobs=[wrong])))
    assert found["report"]["loss"] is None
    assert found["report"]["step"] is None
    assert found["speeds"]["measured"] == []
    assert found["progress"] is None


# ---- how far it is, and how fast it would be ----


def test_the_end_follows_from_what_the_estimate_says_of_a_job_that_reports() -> None:
    found = outlook(replace(elastic_job(), report=Report(step=5.0)), Estimation(90.0, (0.0, 1.0, 1.5)), NOW)
    assert found.end == NOW + 60.0
    assert found.unknown == ""


def test_an_end_that_nobody_can_know_is_said_to_be_unknown() -> None:
    silent = job("train", worker=2, gpus=1, on=["n0", "n0"])
    assert outlook(silent, Estimation(), NOW).unknown == UNDECLARED
    assert outlook(job("train", worker=2), Estimation(), NOW).end is None


def test_a_job_of_many_sizes_has_a_curve_of_some_of_them() -> None:
    found = curve(job("wide", worker=1, least=1, most=1000), Estimation())
    counts = [n for n, _ in found.estimated]
    assert len(counts) <= 66
    assert (counts[0], counts[-1]) == (1, 1000)
    assert found.unit == "times one replica"


def test_sizes_that_are_not_allowed_are_not_in_the_curve() -> None:
    found = curve(job("even", worker=1, least=2, most=8, sizes=[2, 4, 8]), Estimation())
    assert found.estimated == ((2, 2.0), (4, 4.0), (8, 8.0))


def test_no_plugin_is_asked_about_jobs_that_wait() -> None:
    asked: list[str] = []

    class Curious:
        def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:  # noqa: ARG002
            asked.append(job.key.name)
            return Estimation()

    jobs = [
        job("runs", worker=1, gpus=8, on=["n0"]),
        *(job(f"waits-{i}", worker=1, gpus=8) for i in range(50)),
    ]
    view = viewed(snapshot(nodes=1, jobs=jobs), Profile(scores=((Pack(), 1.0),)))
    told: Any = cluster_view.cluster(
        replace(view, profile=replace(view.profile, estimate=Curious())), everything
    )
    assert len(told["jobs"]) == 51
    assert set(asked) == {"runs"}
