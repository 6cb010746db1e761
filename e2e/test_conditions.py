"""status.conditions: kubectl waits for them, their times outlive Muster, and a Gang of an older version gets them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.cluster import Cluster
from e2e.lab import Lab
from e2e.scenario import (
    bound,
    delete_job,
    ends_now,
    gang,
    in_state,
    job,
    on_node,
    runs_whole,
    said,
    wait_until,
    waits_because,
)

pytestmark = pytest.mark.lab

ROOM = on_node("node-10", "node-11")
NEEDS = "needs 16 GPUs (2 replicas of 8)"
BREAK_GLASS = ("--as=somebody", "--as-group=muster:break-glass", "--as-group=system:masters")


def conditions(cluster: Cluster, namespace: str, name: str) -> dict[str, tuple[str, str, str]]:
    """Status, reason and lastTransitionTime by type."""
    return {
        one["type"]: (one["status"], one["reason"], one["lastTransitionTime"])
        for one in gang(cluster, namespace, name).get("conditions", [])
    }


def kubectl_waits(lab: Lab, namespace: str, condition: str) -> str:
    """What kubectl says once job-train has it; LabError where it has not in five minutes."""
    return lab.kubectl(
        *("wait", "gang/job-train", "-n", namespace, f"--for=condition={condition}", "--timeout=300s")
    )


def waits_behind_another(cluster: Cluster, namespace: str) -> None:
    """Job holder has the room that job train needs."""
    cluster.submit(job("holder", 2, gpus=8, affinity=ROOM), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 2)
    cluster.submit(job("train", 2, gpus=8, affinity=ROOM), namespace=namespace)
    waits_because(cluster, namespace, "job-train", NEEDS)


def test_kubectl_waits_until_a_gang_runs_and_until_it_has_finished(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    waits_behind_another(cluster, namespace)
    assert {name: one[:2] for name, one in conditions(cluster, namespace, "job-train").items()} == {
        "Whole": ("True", "Waiting"),
        "Scheduled": ("False", "Resources"),
        "Running": ("False", "Waiting"),
        **dict.fromkeys(("Resizing", "Suspended", "Finished", "Invalid"), ("False", "Waiting")),
    }
    assert "condition met" in kubectl_waits(lab, namespace, "Scheduled=false")
    with ThreadPoolExecutor() as pool:
        runs = pool.submit(kubectl_waits, lab, namespace, "Running")
        ended = pool.submit(kubectl_waits, lab, namespace, "Finished")
        delete_job(cluster, namespace, "holder")
        assert "gang.muster.dev/job-train condition met" in runs.result()
        assert len(bound(cluster.pods(namespace, "train"))) == 2
        assert not ended.done()
        ends_now(cluster, *cluster.pods(namespace, "train"))
        assert "gang.muster.dev/job-train condition met" in ended.result()
    assert in_state(cluster, namespace, "job-train", "Finished")


def test_the_time_of_a_transition_outlives_muster(lab: Lab, cluster: Cluster, namespace: str) -> None:
    waits_behind_another(cluster, namespace)
    before = conditions(cluster, namespace, "job-train")
    lab.restart("muster-0")
    delete_job(cluster, namespace, "holder")
    kubectl_waits(lab, namespace, "Running")
    after = conditions(cluster, namespace, "job-train")
    turned = {name for name in before if before[name][0] != after[name][0]}
    assert turned == {"Scheduled", "Running"}
    assert {name for name in before if before[name][2] != after[name][2]} == turned


def test_a_gang_of_an_older_version_is_written_again(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """It says `code` and, for people, `reason`; the API server keeps both: the sentence is not read as the word."""
    waits_behind_another(cluster, namespace)
    told = wait_until(
        lambda: found if NEEDS in str(found := said(cluster, namespace, "train")) else [],
        what="the Event on train",
        also=lambda: str(cluster.events(namespace)),
    )
    before = gang(cluster, namespace, "job-train")
    lab.kill("muster-0")
    old = {"code": before["reason"], "reason": before["message"], "message": None, "conditions": None}
    patch = json.dumps({"status": old})
    lab.kubectl(*BREAK_GLASS, "patch", "gang", "job-train", "-n", namespace, "--type=merge", "-p", patch)
    assert (
        gang(cluster, namespace, "job-train")["code"],
        gang(cluster, namespace, "job-train")["reason"],
    ) == (
        "Resources",
        NEEDS,
    )
    lab.start("muster-0")
    after = wait_until(
        lambda: found if (found := gang(cluster, namespace, "job-train")).get("conditions") else {},
        what="its Gang is written again",
        also=lambda: str(cluster.gangs(namespace)),
    )
    turn = ("position", "fits", "blocker", "expectedStart", "start", "expected")  # they may change meanwhile
    after, before = (
        {name: part for name, part in one.items() if name not in turn} for one in (after, before)
    )
    for one in (after, before):  # its old version had none: all count from the state's begin
        for condition in one["conditions"]:
            del condition["lastTransitionTime"]
    assert after == before
    assert said(cluster, namespace, "train") == told
