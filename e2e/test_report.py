# Over 300 lines: a report's way, from pod to Gang, with everything that may refuse it.
"""Reports of training on a real control plane: what admission gives a pod, whose token reports for what, and what is
refused. Tokens are the pods' own (TokenRequest bound to the pod), as the kubelet projects them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import muster_report.report
from e2e.cluster import Cluster, Json
from e2e.elastic import settles, shared_by, shares, train
from e2e.lab import Lab, NodeGroup, Shape
from e2e.reports import tell, token
from e2e.scenario import FOR_MUSTER, bound, delete_job, job, looking, pod, runs_whole, show, wait_until

pytestmark = pytest.mark.lab

CLIENT = Path(muster_report.report.__file__)
AGENT = Path(sys.executable).parent / "muster"
REPORTS = {"muster.dev/report": "true"}


def results(lab: Lab) -> dict[str, float]:
    """Reports by what became of them, since muster started."""
    answer = httpx.get(f"{lab.service_url()}/metrics", timeout=60, trust_env=False)
    return {
        sample.labels["result"]: sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == "muster_reports_total"
    }


@functools.cache
def believer(kubeconfig: Path) -> str:
    """A token of Muster's own account. One for all: each that is new costs the reviews of which Muster asks for 20 a
    second."""
    path = "/api/v1/namespaces/muster-system/serviceaccounts/muster/token"
    return str(Cluster(kubeconfig).request("POST", path, FOR_MUSTER)["status"]["token"])


def heard(lab: Lab, cluster: Cluster, namespace: str, name: str) -> Json:
    """What muster believes of a job's newest report, by the right of its own account; {} for none."""
    answer = httpx.get(
        f"{lab.service_url()}/v1/jobs/{namespace}/{name}",
        headers={"Authorization": f"Bearer {believer(cluster.kubeconfig)}"},
        timeout=60,
        trust_env=False,
    )
    report = answer.json().get("report") or {} if answer.status_code == 200 else {}
    return {key: report[key] for key in ("step", "total", "loss") if key in report}


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment of a process in a pod: `told(urls, token)`."""

    def environment(urls: str, bearer: str) -> dict[str, str]:
        file = tmp_path / "token"
        file.write_text(bearer)
        return os.environ | {"MUSTER_URL": urls, "MUSTER_TOKEN_FILE": str(file)}

    return environment


# --- admission ----------------------------------------------------------------------------------------------


def admitted(cluster: Cluster, manifest: Json) -> dict[str, Any]:
    """What the apiserver makes of a pod, as far as reporting goes."""
    (made,) = cluster.submit(manifest, dry_run=True)
    spec = made["spec"]
    volumes = [v for v in spec.get("volumes", ()) if v["name"] == "muster-report"]
    return {
        "sources": [v["projected"]["sources"] for v in volumes],
        "volumes": len(spec.get("volumes", ())),
        "env": [[(e["name"], e.get("value")) for e in c.get("env", ())] for c in spec["containers"]],
        "mounts": [
            [m["mountPath"] for m in c.get("volumeMounts", ()) if m["name"] == "muster-report"]
            for c in spec["containers"]
        ],
        "gates": [gate["name"] for gate in spec.get("schedulingGates", ())],
    }


def check_admission(cluster: Cluster, url: str) -> None:
    bearer = [
        [{"serviceAccountToken": {"audience": "muster.dev", "expirationSeconds": 3600, "path": "token"}}]
    ]
    gate = ["muster.dev/queue"]
    folder = ["/var/run/secrets/muster.dev"]
    # the API server's own volume, of the service account, is there first
    usual = admitted(cluster, pod("a", annotations=REPORTS))
    assert usual["volumes"] == 2
    assert usual == {
        "sources": bearer, "volumes": 2, "env": [[("MUSTER_URL", url)]], "mounts": [folder], "gates": gate,
    }  # fmt: skip
    bare = admitted(cluster, pod("a", annotations=REPORTS, automountServiceAccountToken=False))
    assert bare == usual | {"volumes": 1}
    # several containers; what one has already stays
    two = pod("a", annotations=REPORTS, volumes=[{"name": "data", "emptyDir": {}}])
    first = two["spec"]["containers"][0]
    other = first | {
        "name": "other",
        "env": [{"name": "MUSTER_URL", "value": "http://mine"}, {"name": "X", "value": "1"}],
    }
    first |= {"volumeMounts": [{"name": "data", "mountPath": "/data"}], "env": [{"name": "A", "value": "b"}]}
    two["spec"]["containers"].append(other)
    assert admitted(cluster, two) == {
        "sources": bearer,
        "volumes": 3,
        "env": [[("A", "b"), ("MUSTER_URL", url)], [("MUSTER_URL", "http://mine"), ("X", "1")]],
        "mounts": [folder, folder],
        "gates": gate,
    }
    # the batch size that it starts with, where it declares some
    two["metadata"]["annotations"]["muster.dev/batch-sizes"] = "64,128"
    other["env"].append({"name": "MUSTER_BATCH", "value": "32"})
    tuned = admitted(cluster, two)["env"]
    assert [[name for name, _ in one] for one in tuned] == [
        ["A", "MUSTER_URL", "MUSTER_BATCH"],
        ["MUSTER_URL", "X", "MUSTER_BATCH"],
    ]
    # gated by hand before: what is needed to report is added all the same
    gated = pod("a", annotations=REPORTS, schedulingGates=[{"name": "muster.dev/queue"}])
    assert admitted(cluster, gated) == usual
    # who does not ask for it, and who is not ours, gets nothing
    nothing: dict[str, Any] = {"sources": [], "env": [[]], "mounts": [[]]}
    for manifest in (
        pod("a"),
        pod("a", annotations={"muster.dev/report": "false"}),
        pod("a", annotations=REPORTS, scheduler="default-scheduler"),
    ):
        found = admitted(cluster, manifest)
        assert {name: found[name] for name in nothing} == nothing


def test_a_pod_that_asks_for_it_gets_a_token_for_muster_and_the_url(lab: Lab, cluster: Cluster) -> None:
    port = lab.service_url().rsplit(":", 1)[1]
    check_admission(cluster, f"http://muster.muster-system.svc:{port}")


def test_by_webhook_it_gets_the_same(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(
        Shape(
            groups=(NodeGroup(1),),
            set_values=("admission.mode=webhook", "reporting.url=http://muster.example:80"),
        )
    )
    check_admission(Cluster(lab.kubeconfig), "http://muster.example:80")


# --- who reports for what -----------------------------------------------------------------------------------


def test_a_pod_reports_for_its_own_job_with_the_client_file_alone(
    lab: Lab, cluster: Cluster, namespace: str, tmp_path: Path, told: Callable[..., dict[str, str]]
) -> None:
    cluster.submit(
        job("mine", 2, annotations=REPORTS, run_seconds=600),
        job("other", 1, annotations=REPORTS, run_seconds=600),
        namespace=namespace,
    )
    mine = runs_whole(cluster, namespace, "mine", 2)
    runs_whole(cluster, namespace, "other", 1)
    before = results(lab).get("accepted", 0)
    shutil.copy(CLIENT, tmp_path / "report.py")

    def sent(step: int) -> Json:
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                str(tmp_path / "report.py"),
                f"--step={step}",
                "--total=100",
                "--loss=0.5",
            ],
            env=told(lab.service_url(), token(cluster, mine[0], namespace)),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        answer: Json = json.loads(done.stdout)
        return answer

    assert sent(20) == {"accepted": True, "replicas": {"worker": 2}, "every": 2.0}
    assert sent(43)["accepted"] is True
    assert results(lab)["accepted"] == before + 2
    wait_until(
        lambda: heard(lab, cluster, namespace, "job-mine") == {"step": 43, "total": 100, "loss": 0.5},
        what="muster has heard it",
        also=lambda: heard(lab, cluster, namespace, "job-mine"),
    )
    assert heard(lab, cluster, namespace, "job-other") == {}


def test_a_training_process_reports_by_import_and_by_the_agent(
    lab: Lab, cluster: Cluster, namespace: str, tmp_path: Path, told: Callable[..., dict[str, str]]
) -> None:
    cluster.submit(job("train", 2, annotations=REPORTS, run_seconds=600), namespace=namespace)
    first, second = runs_whole(cluster, namespace, "train", 2)
    training = tmp_path / "train.py"
    training.write_text(
        "import json, sys, time, muster\n"
        "answer = None\n"
        "for step in range(1, 3600):\n"
        "    answer = muster.report(step=step, total=10000, loss=1 / step) or answer\n"
        "    time.sleep(0.05)\n"
        "    if answer and step > 20: break\n"
        "assert muster.report.flush(60)\n"
        "print(json.dumps(muster.report(step=step)))\n"
    )
    done = subprocess.run(
        [sys.executable, str(training)],
        env=told(lab.service_url(), token(cluster, first, namespace)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["replicas"] == {"worker": 2}

    before = results(lab)["accepted"]
    # It goes on until it has been heard: at its end the agent waits for no longer than a second.
    script = (
        'for n in 30 31 32; do echo "epoch 1 muster: step=$n loss=0.1"; done; '
        'until [ -e "$0" ]; do sleep 0.1; done; exit 7'
    )
    heard_of = tmp_path / "heard"
    with subprocess.Popen(
        [str(AGENT), "agent", "--", "sh", "-c", script, str(heard_of)],
        env=told(lab.service_url(), token(cluster, second, namespace)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            wait_until(lambda: results(lab)["accepted"] > before, what="the agent has reported")
        finally:
            heard_of.touch()
        stdout, stderr = process.communicate(timeout=180)
    assert (process.returncode, stderr) == (7, "")
    assert stdout == "".join(f"epoch 1 muster: step={n} loss=0.1\n" for n in (30, 31, 32))


def test_nobody_reports_without_a_token_of_a_pod_of_ours(lab: Lab, cluster: Cluster, namespace: str) -> None:
    cluster.submit(
        job("train", 1, annotations=REPORTS, run_seconds=600),
        job("stock", 1, scheduler="default-scheduler", run_seconds=600),
        namespace=namespace,
    )
    (ours,) = runs_whole(cluster, namespace, "train", 1)
    (foreign,) = wait_until(lambda: cluster.pods(namespace, "stock"), what="the stock pod exists")
    good = token(cluster, ours, namespace)
    head, _, tail = good.rpartition(".")
    turned = f"{head}.{tail[::-1]}"
    before = results(lab)
    for bearer, status, says in (
        ("", 401, "expected the pod's token"),
        ("secret", 401, "bound to a pod"),
        (token(cluster, None, namespace), 401, "bound to a pod"),
        (
            token(cluster, ours, namespace, "https://kubernetes.default.svc"),
            401,
            "for the audience muster.dev, found one for https",
        ),
        (turned, 401, "does not know this token"),
        (token(cluster, foreign, namespace), 404, "in no job of Muster's"),
    ):
        got = tell(lab, bearer, {"step": 1})
        assert (got.status_code, got.json()["error"]) == (status, got.json()["error"])
        assert says in got.json()["error"]
    assert results(lab)["unauthorized"] == before.get("unauthorized", 0) + 5
    assert results(lab)["unknown"] == before.get("unknown", 0) + 1
    assert tell(lab, good, {"step": 1}).status_code == 200
    # the pod ends, its token with it
    delete_job(cluster, namespace, "train")
    wait_until(
        lambda: not cluster.pods(namespace, "train"),
        what="the pod is gone",
        also=lambda: show(cluster.pods(namespace)),
    )
    wait_until(
        lambda: tell(lab, good, {"step": 2}).status_code in (401, 404), what="its token is worth nothing"
    )


def test_a_report_that_cannot_be_is_refused_by_field(lab: Lab, cluster: Cluster, namespace: str) -> None:
    # a pod each: five reports at once are all that one may send
    cluster.submit(job("train", 4, annotations=REPORTS, run_seconds=600), namespace=namespace)
    bearers = [token(cluster, one, namespace) for one in runs_whole(cluster, namespace, "train", 4)]
    cases: list[tuple[object, str, str]] = [
        (b'{"step": 1, "loss": NaN}', "loss", "NaN"),
        (b'{"step": Infinity}', "step", "Infinity"),
        (b'{"step": 1e400}', "step", "Infinity"),
        ({"step": -1}, "step", "-1"),
        ({"step": 10**40}, "step", str(10**40)),
        ({"step": "3"}, "step", "'3'"),
        ({"step": True}, "step", "true"),
        ({"epoch": 1.5}, "epoch", "1.5"),
        ({"boundary": 1}, "boundary", "1"),
        ({"speed": 3}, "speed", "this one"),
        ({"step": 1, "at": time.time() + 3600}, "at", ""),
        ({}, "body", "none"),
        ([1], "body", "[1]"),
        (b"step=3", "body", "'step=3'"),
    ]
    for number, (body, field, found) in enumerate(cases):
        got = tell(lab, bearers[number % 4], body)
        assert (got.status_code, got.json()["field"]) == (400, field), got.text
        assert found in got.json()["found"]
        assert got.json()["error"].startswith(f"{field}: expected ")
    assert tell(lab, bearers[0], b" " * 5000).status_code == 413


def test_a_flood_from_one_pod_is_held_back_and_hurts_nobody_else(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(
        job("flood", 1, annotations=REPORTS, run_seconds=600),
        job("calm", 1, annotations=REPORTS, run_seconds=600),
        namespace=namespace,
    )
    (loud,) = runs_whole(cluster, namespace, "flood", 1)
    (calm,) = runs_whole(cluster, namespace, "calm", 1)
    shouting, speaking = token(cluster, loud, namespace), token(cluster, calm, namespace)
    assert tell(lab, speaking, {"step": 1}).status_code == 200
    codes: dict[int, int] = {}
    began = time.monotonic()
    for step in range(300):
        got = tell(lab, shouting, {"step": step})
        codes[got.status_code] = codes.get(got.status_code, 0) + 1
        if got.status_code == 429:
            assert int(got.headers["retry-after"]) >= 1
    took = time.monotonic() - began
    assert set(codes) == {200, 429}
    assert codes[200] <= 5 + took + 1
    # made-up tokens that claim to be the calm pod do not silence the one that it has
    head, _, tail = speaking.rpartition(".")
    for number in range(30):
        assert tell(lab, f"{head}.{tail[:-4]}{number:04d}", {"step": 9}).status_code in (401, 429)
    assert tell(lab, speaking, {"step": 2}).status_code == 200


CROWD, SENDERS = 200, 4


def test_a_crowd_that_reports_every_second_is_answered_while_muster_goes_on_planning(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """200 jobs at four senders: what two cores send beside running a cluster. They try for a report a second each,
    and fall behind on a slower machine; `make bench` (resizes) has 1,000 jobs. Two elastic ones are shared meanwhile;
    they come first, since 110 pods are all that a node takes."""
    names = [f"crowd-{number:03d}" for number in range(CROWD)]
    asked = {"gpus": 8, "most": 16}
    alike = {"e2e.muster.dev/part": "crowd"}
    with shared_by(lab, "max-min"), ThreadPoolExecutor(SENDERS) as several:
        cluster.submit(train("a", **asked), train("b", **asked), namespace=namespace)
        settles(cluster, namespace, {"a": 8, "b": 8})
        cluster.submit(
            *(pod(name, job=name, gpus=0, cpu="100m", labels=alike, annotations=REPORTS) for name in names),
            namespace=namespace,
        )
        wait_until(
            lambda: len(bound(cluster.pods(namespace))) == CROWD + 16,
            within=240,
            what="all run",
            also=lambda: show(one for one in cluster.pods(namespace) if not one.node),
        )
        pods = {one.name: one for one in cluster.pods(namespace)}
        crowd = {name: token(cluster, pods[name], namespace) for name in names}
        before = results(lab).get("accepted", 0)
        last: dict[str, float] = {}
        seen: list[dict[str, int]] = []
        over = threading.Event()

        def send(part: int) -> Counter[int]:
            """Reports for its part of the crowd until it is over; the answers by their status."""
            answers: Counter[int] = Counter()
            url, step = f"{lab.service_url()}/v1/report", 0.0
            with httpx.Client(trust_env=False, timeout=60) as client:
                while not over.is_set():
                    step, began = step + 1.0, time.monotonic()
                    for name in names[part::SENDERS]:
                        bearer = {"Authorization": f"Bearer {crowd[name]}"}
                        got = client.post(url, json={"step": step}, headers=bearer)
                        answers[got.status_code] += 1
                        if got.status_code == 200:
                            last[name] = step
                        else:
                            assert int(got.headers["retry-after"]) >= 1, got.text
                    over.wait(max(0.0, began + 1.0 - time.monotonic()))
            return answers

        def elastic() -> dict[str, int]:
            return {name: n for name, n in shares(watching, namespace).items() if name in ("a", "b", "late")}

        def look() -> None:
            for path in ("healthz", "readyz"):
                got = httpx.get(f"{lab.service_url()}/{path}", timeout=60, trust_env=False)
                assert got.status_code == 200, got.text
            now = elastic()
            if not seen or seen[-1] != now:
                seen.append(now)

        watching = Cluster(cluster.kubeconfig)
        assert elastic() == {"a": 8, "b": 8}
        sending = [several.submit(send, part) for part in range(SENDERS)]
        try:
            with looking(look, 1.0):
                wait_until(
                    lambda: len(last) == CROWD,
                    within=240,
                    what="each is heard",
                    also=lambda: str(results(lab)),
                )
                cluster.submit(job("late", 4, gpus=8), namespace=namespace)
                wait_until(
                    lambda: elastic() == {"a": 6, "b": 6, "late": 4},
                    what="room is made for one more",
                    also=lambda: f"{seen}\n{cluster.gangs(namespace).get('job-late')}",
                )
                time.sleep(5.0)  # and as many reports again change nothing
        finally:
            over.set()
        answers = sum((one.result() for one in sending), Counter())
        assert answers.keys() <= {200, 429, 503}, answers
        assert results(lab)["accepted"] == before + answers[200], "what was answered with 200 was taken in"
        some = names[::50]
        wait_until(
            lambda: (
                {name: heard(lab, cluster, namespace, name).get("step") for name in some}
                == {name: last[name] for name in some}
            ),
            what="and is believed",
        )
        counts = {name: [now.get(name, 0) for now in seen] for name in ("a", "b", "late")}
        assert counts["late"] == sorted(counts["late"])
        for name in ("a", "b"):
            assert counts[name] == sorted(counts[name], reverse=True), f"shares flap: {seen}"
    # At once: kwok would take most of a minute to end so many.
    here = f"/api/v1/namespaces/{namespace}/pods"
    cluster.delete(here, labelSelector="e2e.muster.dev/part=crowd", gracePeriodSeconds="0")


def test_the_client_finds_the_replica_that_leads(
    new_lab: Callable[..., Lab], told: Callable[..., dict[str, str]]
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(2),), replicas=2))
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(job("train", 1, annotations=REPORTS, run_seconds=600))
    (one,) = runs_whole(cluster, "default", "train", 1)
    bearer = token(cluster, one, "default")
    codes = {replica: tell(lab, bearer, {"step": 1}, replica).status_code for replica in (0, 1)}
    assert sorted(codes.values()) == [200, 421]
    follower = next(replica for replica, code in codes.items() if code == 421)
    leader = 1 - follower

    def sent(urls: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "muster_report.report", "--step=2"],
            env=told(urls, bearer),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return done.returncode, done.stderr

    assert sent(f"{lab.service_url(follower)},{lab.service_url(leader)}") == (0, "")
    code, said = sent(lab.service_url(follower))
    assert code == 1
    assert "does not lead" in said
