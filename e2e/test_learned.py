"""What a job taught outlives it and Muster: the next one of the same image and model begins with it."""

from __future__ import annotations

import json
import time

import pytest

from e2e.cluster import Cluster, Refused
from e2e.elastic import measured
from e2e.lab import Lab
from e2e.reports import tell, token
from e2e.scenario import bound, ends_now, gang, in_state, job, wait_until

pytestmark = pytest.mark.lab

SPEED = 40.0
"""Iterations/s that the first job tells."""


def lessons(cluster: Cluster) -> dict[str, dict[str, object]]:
    """By model, what stands in the release's ConfigMap."""
    try:
        found = cluster.request("GET", "/api/v1/namespaces/muster-system/configmaps/muster-learned")
    except Refused:
        return {}
    text = (found.get("data") or {}).get("lessons.json")
    rows = json.loads(text)["lessons"] if text else []
    return {model: lesson for _, _, model, lesson in rows}


def trains(lab: Lab, cluster: Cluster, namespace: str, name: str) -> None:
    """One of its pods tells where training is, as often as it was asked to, until Muster has measured its speed."""
    one = wait_until(lambda: bound(cluster.pods(namespace, name), 2), what=f"{name} runs")[0]
    bearer = token(cluster, one, namespace)
    began, asked = time.time(), 0.0

    def has_a_speed() -> bool:
        nonlocal asked
        at = time.time()  # of one moment, however long the way is
        passed = at - began
        if passed >= asked:
            body = {"step": SPEED * passed, "loss": 1.0 / (1.0 + passed), "at": at}
            answer = tell(lab, bearer, body)
            if answer.status_code == 503:  # the API server can't be asked now
                return False
            assert answer.status_code == 200, answer.text
            asked = passed + float(answer.json()["every"])
        return len(measured(lab, cluster, namespace, f"job-{name}")) == 1

    wait_until(has_a_speed, within=180, what=f"the speed of {name} is measured")


def test_a_job_seen_before_begins_with_what_was_learned_though_muster_was_restarted(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    model = {"muster.dev/model": f"model-of-{namespace}"}
    cluster.submit(job("first", 2, annotations=model), namespace=namespace)
    trains(lab, cluster, namespace, "first")
    ends_now(cluster, *bound(cluster.pods(namespace, "first")))
    wait_until(lambda: in_state(cluster, namespace, "job-first", "Finished"), what="the first one is over")
    taught = wait_until(
        lambda: lessons(cluster).get(model["muster.dev/model"]),
        what="its lesson is written",
        also=lambda: str(gang(cluster, namespace, "job-first")),
    )
    ((role, replicas, speed),) = taught["speeds"]
    assert (role, replicas) == ("worker", 2)
    assert speed == pytest.approx(SPEED, rel=0.25)
    for name in [name for name in lab.processes if name.startswith("muster-")]:
        lab.restart(name)
    cluster.submit(job("second", 2, annotations=model), namespace=namespace)
    kept = wait_until(
        lambda: (
            (found := json.dumps(gang(cluster, namespace, "job-second"))) and "learned" in found and found
        ),
        within=120,
        what="the second one's Gang has the lesson",
        also=lambda: json.dumps(gang(cluster, namespace, "job-second")),
    )
    assert json.dumps(taught["speeds"]) in kept
