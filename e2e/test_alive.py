"""Nothing dies silently: what hangs or is dead is found by /healthz, elections outlive the API server, and a leader
that was deposed while it stood still sends nothing more."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import httpx
import pytest
import yaml

from e2e.cluster import Cluster, Json
from e2e.kind.lab import not_on_kind
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.audit import MUSTER
from e2e.labs import ON_KIND
from e2e.scenario import (
    bound,
    job,
    priority_class,
    runs_whole,
    show,
    wait_until,
)
from e2e.test_failures import frozen, pinned

pytestmark = pytest.mark.lab

WITHIN = 6  # seconds without a good cycle, in these labs


def health(lab: Lab, path: str = "healthz") -> tuple[int, Json]:
    answer = httpx.get(f"{lab.service_url()}/{path}", timeout=30, trust_env=False)
    found: Json = answer.json()
    return answer.status_code, found


def fails(lab: Lab, why: str) -> None:
    """It says so on /healthz."""
    wait_until(lambda: failing(lab, why), what=f"/healthz fails: {why}", also=lambda: health(lab))


def failing(lab: Lab, why: str) -> bool:
    status, found = health(lab)
    return status == 500 and why in "; ".join(found["failing"])


@pytest.fixture
def impatient(lab: Lab) -> Iterator[None]:
    """Muster's /healthz fails after WITHIN seconds; from its next start on."""
    before = (lab.folder / "config" / "muster-0.yaml").read_text()
    changed = yaml.safe_load(before) | {"health": {"cycle": WITHIN}}
    lab.write_configuration(yaml.safe_dump(changed, sort_keys=False))
    yield
    lab.write_configuration(before)
    lab.kill("muster-0")
    lab.start("muster-0", env={})


@pytest.mark.complains("a planner that fails says so", "a cycle failed", "not healthy: no good cycle")
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "why"),
    [("hang", "the one that was due is not done"), ("raise", "RuntimeError: injected")],
)
def test_a_planner_that_hangs_or_fails_is_found_and_meanwhile_the_verbs_answer_by_the_last_plan(
    lab: Lab, cluster: Cluster, namespace: str, fault: str, why: str
) -> None:
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(job("train", 2, gpus=8), namespace=namespace)
        before = pinned(cluster, namespace, "train", 2)
        lab.kill("muster-0")
        lab.start("muster-0", env={"MUSTER_FAULTS": f"{fault} after 8 CYCLE"}, wait=False)
        wait_until(lambda: nobody_refuses(lab), what="the service port is open")
        assert health(lab) == (200, {"status": "ok"})
        fails(lab, why)
        cluster.submit(job("later", 1), namespace=namespace)
    # kube-scheduler goes on, and is told by the plan before the hang where the pods may go.
    after = wait_until(
        lambda: bound(cluster.pods(namespace, "train"), 2),
        what="train is bound",
        also=lambda: show(cluster.pods(namespace)),
    )
    assert [(one.uid, one.node) for one in after] == [(one.uid, one.pinned_to) for one in before]
    assert bound(cluster.pods(namespace, "later")) == [], "nobody plans"
    status, found = health(lab, "healthz/scheduler")
    assert status == 503
    assert why in found["missing"][0], "the kubelet ends kube-scheduler, too"
    lab.kill("muster-0")  # as the kubelet does
    lab.start("muster-0", env={})
    assert health(lab) == (200, {"status": "ok"})
    runs_whole(cluster, namespace, "later", 1)


@pytest.mark.complains("the process of the verbs is killed", "the process that answers the verbs")
@pytest.mark.parametrize("planner", ["plans", "hangs"])
def test_the_process_of_the_verbs_is_killed_and_is_back_with_the_whole_plan(
    lab: Lab, cluster: Cluster, namespace: str, planner: str
) -> None:
    with frozen(lab, "kube-scheduler-0"):
        cluster.submit(job("train", 2, gpus=8), namespace=namespace)
        before = pinned(cluster, namespace, "train", 2)
        if planner == "hangs":
            lab.kill("muster-0")
            lab.start("muster-0", env={"MUSTER_FAULTS": "hang after 8 CYCLE"})
        (child,) = lab.children("muster-0")
        assert child.signal(signal.SIGKILL)
        wait_until(
            lambda: lab.children("muster-0") not in ([], [child]) and lab.ready("muster-0"),
            what="another one answers",
        )
    after = wait_until(
        lambda: bound(cluster.pods(namespace, "train"), 2),
        what="train is bound",
        also=lambda: show(cluster.pods(namespace)),
    )
    assert [(one.uid, one.node) for one in after] == [(one.uid, one.pinned_to) for one in before]
    if planner == "hangs":
        lab.kill("muster-0")
        lab.start("muster-0", env={})
    cluster.submit(job("later", 2, gpus=8), namespace=namespace)
    runs_whole(cluster, namespace, "later", 2)
    assert health(lab) == (200, {"status": "ok"})


@pytest.mark.complains("an error is injected", "thread watch-pods")
def test_an_error_that_nobody_expects_in_a_thread_is_counted_and_the_thread_goes_on(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    lab.kill("muster-0")
    lab.start("muster-0", env={"MUSTER_FAULTS": "raise after 8 THREAD watch-pods x2"})
    for name in ("first", "second"):
        cluster.submit(job(name, 2, gpus=8), namespace=namespace)
        runs_whole(cluster, namespace, name, 2)
    metrics = httpx.get(f"{lab.service_url()}/metrics", timeout=30, trust_env=False).text
    assert 'muster_thread_errors_total{thread="watch-pods"} 2.0' in metrics
    assert health(lab) == (200, {"status": "ok"})


@pytest.mark.complains("a thread is ended", "not healthy: thread")
@pytest.mark.parametrize("thread", ["watch-nodes", "lease", "act-"])
def test_a_thread_that_is_dead_is_found(lab: Lab, cluster: Cluster, namespace: str, thread: str) -> None:
    lab.kill("muster-0")
    lab.start("muster-0", env={"MUSTER_FAULTS": f"end after 3 THREAD {thread} x1"}, wait=False)
    for number in range(6):
        cluster.submit(job(f"train-{number}", 4, gpus=1), namespace=namespace)
    wait_until(lambda: nobody_refuses(lab), what="the service port is open")
    turns = itertools.count()

    def found_dead() -> bool:
        """Nodes change again at each look: a list that is late answers for all changes before it at once, and the
        thread goes on by events."""
        name = cluster.nodes()[0]["metadata"]["name"]
        cluster.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"e2e": str(next(turns))}}})
        return failing(lab, f"thread {thread}")

    wait_until(found_dead, what=f"/healthz fails: thread {thread}", also=lambda: health(lab))
    lab.kill("muster-0")
    lab.start("muster-0", env={})
    for number in range(6):
        runs_whole(cluster, namespace, f"train-{number}", 4)


def nobody_refuses(lab: Lab) -> bool:
    try:
        health(lab)
    except httpx.TransportError:
        return False
    return True


def test_an_election_of_its_own_outlives_an_api_server_that_is_away_for_40_seconds(
    new_lab: Callable[[Shape], Lab],
) -> None:
    if ON_KIND:
        not_on_kind("Muster's health by a port that is forwarded through an API server that is away")
    lab = new_lab(Shape(groups=(NodeGroup(2),), set_values=("binder=cluster",)))
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(job("before", 1, gpus=8))
    runs_whole(cluster, "default", "before", 1)
    lab.kill("kube-apiserver")
    time.sleep(40)  # longer than a Lease lasts (15 s) and than it may be renewed late (10 s)
    assert health(lab) == (200, {"status": "ok"}), "a restart would not bring the API server back"
    lab.start("kube-apiserver")
    cluster.submit(job("after", 1, gpus=8))
    runs_whole(cluster, "default", "after", 1)
    text = lab.log("muster-0").read_text()
    assert "no longer leading" in text
    assert text.count("leading\n") >= 2


def test_a_leader_that_stood_still_under_queued_evictions_sends_none_of_them_when_it_wakes_up(
    new_lab: Callable[[Shape], Lab],
) -> None:
    lab = new_lab(
        Shape(groups=(NodeGroup(16),), replicas=2, audit=True, set_values=("config.preemption=true",))
    )
    cluster = Cluster(lab.kubeconfig)
    leader = str(wait_until(lambda: [one for one in (0, 1) if one == lab.leader()], what="somebody leads")[0])
    other = str(1 - int(leader))
    # Each eviction waits a second before it is sent: 128 of them, tried dry and then sent, take 16.
    lab.kill(f"muster-{leader}")
    lab.start(f"muster-{leader}", env={"MUSTER_FAULTS": "slow after 0 POST eviction"})
    cluster.submit(priority_class("urgent", 1000))
    cluster.submit(job("running", 128, gpus=1))
    runs_whole(cluster, "default", "running", 128)
    cluster.submit(job("first", 16, gpus=8, priority="urgent"))

    def sent(by: str) -> list[Json]:
        lines = (json.loads(line) for line in lab.audit.read_bytes().splitlines() if line.endswith(b"}"))
        return [
            line
            for line in lines
            if line["user"]["username"] == MUSTER
            and line.get("userAgent") == f"muster/muster-{by}"
            and line["verb"] not in ("get", "list", "watch")
        ]

    def evicted(by: str) -> list[Json]:
        return [line for line in sent(by) if line["objectRef"].get("subresource") == "eviction"]

    wait_until(lambda: len(evicted(leader)) >= 8, what="evictions are under way")
    lab.pause(f"muster-{leader}")
    lab.pause(f"kube-scheduler-{leader}")
    wait_until(lambda: str(lab.leader()) == other, what="the other replica leads")
    wait_until(lambda: evicted(other), what="and goes on with the evictions")
    before = len(sent(leader))
    assert len(evicted(leader)) < 200, "most were still queued"
    woke = time.time()
    seen = lab.log(f"muster-{leader}").stat().st_size
    lab.resume(f"muster-{leader}")
    lab.resume(f"kube-scheduler-{leader}")

    def said() -> str:
        return lab.log(f"muster-{leader}").read_text()[seen:]

    wait_until(lambda: "no longer leading" in said(), what="what was the leader knows it", also=said)
    runs_whole(cluster, "default", "first", 16)
    late = [
        (line["requestReceivedTimestamp"], line["verb"], line["objectRef"])
        for line in sent(leader)[before:]
        if datetime.fromisoformat(line["requestReceivedTimestamp"]).timestamp() >= woke
    ]
    assert late == []
    assert "actions are not sent" in said()
