# Over 300 lines: each thing that an administrator does to a running Muster has a scenario.
"""Running Muster: observing first, changing its configuration, restarting it, letting jobs go, making way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster import Cluster, Json, Pod
from e2e.lab import Lab, NodeGroup, Shape, credentials
from e2e.scenario import (
    FOR_MUSTER,
    bound,
    but_missing,
    configured,
    delete_job,
    ends_now,
    gang,
    gang_versions,
    gated,
    in_state,
    job,
    on_node,
    pod,
    pod_versions,
    priority_class,
    said,
    show,
    stays,
    wait_until,
)

pytestmark = pytest.mark.lab

BREAK_GLASS = "muster:break-glass"


def runs(cluster: Cluster, namespace: str, name: str, replicas: int) -> list[Pod]:
    return wait_until(
        lambda: bound(cluster.pods(namespace, name), replicas),
        what=f"{name} has {replicas} bound pods",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def waits(cluster: Cluster, namespace: str, name: str, reason: str = "") -> Json:
    """Its Gang's status once it is Waiting, with this reason where one is given."""
    return wait_until(
        lambda: (
            (found := in_state(cluster, namespace, name, "Waiting"))
            and reason in ("", found["reason"])
            and found
        ),
        what=f"{name} waits, {reason or 'whatever for'}",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def says_mode(cluster: Cluster, namespace: str, name: str, mode: str) -> None:
    wait_until(
        lambda: gang(cluster, namespace, name).get("mode") == mode,
        what=f"the Gang of {name} says {mode}",
        also=lambda: str(cluster.gangs(namespace)),
    )


def of_muster(cluster: Cluster, namespace: str) -> list[Json]:
    """Muster's Events."""
    found = cluster.events(namespace)
    return [event for event in found if (event.get("source") or {}).get("component") == "muster"]


def events(cluster: Cluster, namespace: str) -> set[str]:
    """Names of Muster's Events with their counts."""
    return {f"{event['metadata']['name']}/{event.get('count', 1)}" for event in of_muster(cluster, namespace)}


def metrics(lab: Lab) -> dict[str, float]:
    """Samples of /metrics, as name{label=value}."""
    answer = httpx.get(f"{lab.service_url()}/metrics", timeout=60, trust_env=False)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


# --- mode: observe ------------------------------------------------------------------------------------------


def test_in_mode_observe_muster_explains_and_changes_nothing(new_lab: Callable[..., Lab]) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(2),), set_values=("mode=observe",)))
    cluster = Cluster(lab.kubeconfig)
    cluster.submit(job("train", 2, gpus=6), job("late", 2, gpus=6))
    # the stock way: pods are bound one by one, in whatever order
    wait_until(
        lambda: bound(cluster.pods("default"), 2),
        what="kube-scheduler binds what fits",
        also=lambda: show(cluster.pods("default")),
    )
    assert [one.name for one in cluster.pods("default") if one.gates or one.pinned_to] == []

    reader = "/api/v1/namespaces/default/serviceaccounts"
    cluster.request("POST", reader, {"metadata": {"name": "reader"}})
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
    }
    cluster.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    token = cluster.request("POST", f"{reader}/reader/token", FOR_MUSTER)["status"]["token"]

    def told() -> dict[str, Json]:
        answer = httpx.get(
            f"{lab.service_url()}/v1/jobs",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
            trust_env=False,
        )
        assert answer.status_code in (200, 403, 503), answer.text  # no right yet; it can't be asked about now
        return {item["name"]: item for item in answer.json().get("items", ())}

    def explained() -> tuple[dict[str, int], str] | None:
        """Replicas on nodes by job, and the job that is short of some, once Muster knows of all pods."""
        found = told()
        if not {"job-train", "job-late"} <= found.keys():
            return None
        counts = {name: found[name]["roles"]["worker"]["bound"] for name in ("job-train", "job-late")}
        lacks = next((name for name, count in counts.items() if count < 2), "")
        known = sum(counts.values()) == 2 and found[lacks]["roles"]["worker"]["min"] == 2
        return (counts, lacks) if known and "needs" in found[lacks]["message"] else None

    on_nodes, short = wait_until(explained, what="both, two pods on nodes, and what they lack", also=told)
    # nothing is written
    assert cluster.gangs("default") == {}
    assert events(cluster, "default") == set()
    assert metrics(lab)["muster_nodes"] == len(cluster.nodes())  # a kind cluster has one of its own
    # and what ends is followed by what waits, without us
    for name in ("train", "late"):
        if on_nodes[f"job-{name}"]:
            delete_job(cluster, "default", name)
    if on_nodes[short] == 0:
        runs(cluster, "default", short.removeprefix("job-"), 2)


# --- configuration ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"order": "fastest"}, "order: must be 'backfill' or 'strict'; found 'fastest'"),
        ({"profile": "no-such"}, "profile"),
        ({"gang": {"timeout": "soon"}}, "gang.timeout: must be a time such as 90s, 2m or 1h30m"),
        ({"gangs": {}}, "gangs: not a setting; allowed here: "),
    ],
    ids=["no-choice", "no-profile", "no-time", "unknown-key"],
)
@pytest.mark.complains("a configuration is wrong on purpose", "configuration: ")
def test_a_bad_configuration_names_the_field_and_the_last_good_one_stays(
    lab: Lab, cluster: Cluster, namespace: str, changes: Json, message: str, tmp_path: Path
) -> None:
    file = lab.folder / "config" / "muster-0.yaml"
    good = file.read_text()
    bad = yaml.safe_dump(yaml.safe_load(good) | changes)
    before, seen = lab.pid("muster-0"), lab.log("muster-0").stat().st_size

    def since() -> str:
        return lab.log("muster-0").read_text()[seen:]

    try:
        lab.write_configuration(bad)
        wait_until(
            lambda: "the last good one stays in force" in (said := since()) and message in said,
            what=f"muster complains: {message}",
            also=since,
        )
        cluster.submit(job("train", 2), namespace=namespace)
        runs(cluster, namespace, "train", 2)
        assert lab.pid("muster-0") == before
    finally:
        lab.write_configuration(good)
        wait_until(lambda: "now in force" in since(), what="muster reads the good one again")
    # the same file at a start is refused
    (tmp_path / "muster.yaml").write_text(bad)
    done = lab.muster("serve", "--config", str(tmp_path / "muster.yaml"), check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_no_configuration_at_all_is_refused_by_name(lab: Lab, tmp_path: Path) -> None:
    for name, text in (("missing.yaml", None), ("broken.yaml", "order: [strict"), ("list.yaml", "- order")):
        if text is not None:
            (tmp_path / name).write_text(text)
        done = lab.muster("serve", "--config", str(tmp_path / name), check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"muster: {tmp_path / name}: ")
        assert "Traceback" not in done.stderr


def test_a_profile_and_an_order_that_change_while_it_runs_take_effect(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-00", "node-01")
    pid = lab.pid("muster-0")
    cluster.submit(job("holder", 1, gpus=8, affinity=on_node("node-00")), namespace=namespace)
    runs(cluster, namespace, "holder", 1)
    cluster.submit(job("head", 2, gpus=8, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "job-head")
    with configured(lab, order="strict", profile="gang"):
        cluster.submit(job("small", 1, gpus=1, affinity=capacity), namespace=namespace)
        waits(cluster, namespace, "job-small", "BehindHead")
    # backfill again: what had to wait is let past without anything else happening
    runs(cluster, namespace, "small", 1)
    says_mode(cluster, namespace, "job-small", "pinned")
    with configured(lab, profile="gang"):
        cluster.submit(job("scored", 1, gpus=1, affinity=capacity), namespace=namespace)
        runs(cluster, namespace, "scored", 1)
        says_mode(cluster, namespace, "job-scored", "scored")
    assert lab.pid("muster-0") == pid


# --- restarts -----------------------------------------------------------------------------------------------


def test_a_restart_with_100_jobs_waiting_writes_nothing_new(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    capacity = on_node("node-00")
    cluster.submit(
        job("holder", 1, gpus=7, affinity=capacity),
        job("elastic", 3, gpus=1, min_replicas=1, success_on="0", affinity=on_node("node-01")),
        namespace=namespace,
    )
    runs(cluster, namespace, "holder", 1)
    runs(cluster, namespace, "elastic", 3)
    cluster.submit(
        *(job(f"w{number:02d}", 2, gpus=1, affinity=capacity) for number in range(100)),
        job("never", 1, gpus=9),
        job("racked", 5, gpus=8, annotations={"muster.dev/topology-required": "topology.kubernetes.io/rack"}),
        pod("odd-0", job="odd", roles="worker=2"),
        pod("odd-1", job="odd", roles="worker=3"),
        pod("part-0", job="part", roles="worker=2"),
        namespace=namespace,
    )

    def states() -> dict[str, int]:
        counts: dict[str, int] = {}
        for found in cluster.gangs(namespace).values():
            state = found.get("status", {}).get("state", "none")
            counts[state] = counts.get(state, 0) + 1
        return counts

    expected = {"Running": 2, "Waiting": 102, "Invalid": 1, "Incomplete": 1}

    def all_told() -> bool:
        """On a first pod, on its Gang and, where there is one, on an owner; where pods came slowly, that was told
        before."""
        told = of_muster(cluster, namespace)
        why = ("Resources", "NeverFits", "Invalid")
        waiting = {event["involvedObject"]["uid"] for event in told if event["reason"] in why}
        return len(waiting) == 205 + 103 and any(
            event["involvedObject"]["name"] == "part-0" for event in told
        )

    wait_until(
        lambda: states() == expected and len(cluster.pods(namespace)) == 4 + 200 + 1 + 5 + 3,
        within=300,
        what=f"{expected}",
        also=states,
    )
    wait_until(all_told, within=300, what="all have been told", also=lambda: len(events(cluster, namespace)))

    def turns_told() -> bool:
        """Of each that waits, when it may start, or why that is not known: written last, 100 in 30 s."""
        waiting = [
            g["status"] for g in cluster.gangs(namespace).values() if g["status"]["state"] == "Waiting"
        ]
        return all("expected" in status for status in waiting)

    wait_until(turns_told, within=120, what="all know their turn", also=lambda: str(cluster.gangs(namespace)))
    pods = pod_versions(cluster, namespace)
    before, told = gang_versions(cluster, namespace), events(cluster, namespace)

    lab.kill("muster")
    lab.start("muster")
    wait_until(
        lambda: (
            metrics(lab)["muster_leading"] == 1 and metrics(lab).get("muster_jobs{state=Waiting}", 0) >= 102
        ),
        what="it leads again and has planned",
    )
    stays(
        cluster,
        lambda: gang_versions(cluster, namespace) == before and events(cluster, namespace) == told,
        what="neither a Gang nor an Event is written",
    )
    assert pod_versions(cluster, namespace) == pods
    # and it goes on: the head starts, the job whose first pod is the oldest
    label = "batch.kubernetes.io/job-name"
    queue = [one for one in cluster.pods(namespace) if one.labels.get(label, "").startswith("w")]
    head = min(queue, key=lambda one: (one.raw["metadata"]["creationTimestamp"], one.labels[label]))
    delete_job(cluster, namespace, "holder")
    runs(cluster, namespace, head.labels[label], 2)


# --- metrics ------------------------------------------------------------------------------------------------


def test_metrics_count_jobs_gpus_and_what_this_replica_does(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    # What an earlier scenario had is gone from here, too.
    empty = {"muster_gpus": 128, "muster_gpus_free": 128}
    empty |= dict.fromkeys(("muster_jobs{state=Running}", "muster_jobs{state=Waiting}"), 0)
    before = wait_until(
        lambda: (found := metrics(lab)) and {name: found.get(name, 0) for name in empty} == empty and found,
        what=f"the metrics say {empty}",
        also=lambda: str(metrics(lab)),
    )
    cluster.submit(job("train", 2, gpus=8), job("never", 1, gpus=9), namespace=namespace)
    runs(cluster, namespace, "train", 2)
    waits(cluster, namespace, "job-never")
    wanted = {
        "muster_jobs{state=Running}": 1,
        "muster_jobs{state=Waiting}": 1,
        "muster_jobs_waiting{reason=NeverFits}": 1,
        "muster_gpus_free": -16,
    }

    def more() -> dict[str, float]:
        after = metrics(lab)
        return {name: after.get(name, 0) - before.get(name, 0) for name in wanted}

    wait_until(lambda: more() == wanted, what=f"the metrics moved by {wanted}", also=more)
    # A Lease that is renewed late is held by nobody for a moment.
    wait_until(lambda: metrics(lab)["muster_leading"] == 1, what="it leads")
    after = metrics(lab)
    assert (after["muster_synced"], after["muster_nodes"]) == (1, 16)
    assert after["muster_cycle_seconds_count"] > 0
    assert after["muster_longest_wait_seconds"] >= 0


# --- muster release -----------------------------------------------------------------------------------------


def member(lab: Lab, folder: Path, *groups: str) -> Path:
    """A kubeconfig of user `ops`, member of these groups."""
    cluster = yaml.safe_load(lab.kubeconfig.read_text())["clusters"][0]["cluster"]
    signed = credentials.Authority(lab.folder / "pki").client("ops", groups)
    authority = (lab.folder / "pki" / "ca.crt").read_bytes()
    text = credentials.kubeconfig(cluster["server"], authority, signed)
    return credentials.write(folder / f"ops-{len(groups)}", text)


@pytest.mark.unsound("a released job has no gang guarantee")
def test_only_the_break_glass_group_releases_a_job_and_others_change_nothing(
    lab: Lab, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    capacity = on_node("node-00")
    cluster.submit(job("holder", 1, gpus=4, affinity=capacity), namespace=namespace)
    runs(cluster, namespace, "holder", 1)
    cluster.submit(job("big", 2, gpus=4, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "job-big")
    wait_until(lambda: len(gated(cluster.pods(namespace, "big"))) == 2, what="both pods of big wait")
    before = pod_versions(cluster, namespace)

    for kubeconfig in (lab.kubeconfig, member(lab, tmp_path)):
        done = lab.muster("release", "job-big", "-n", namespace, kubeconfig=kubeconfig, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Traceback" not in done.stderr
        assert "forbidden" in done.stderr or BREAK_GLASS in done.stderr, done.stderr
    assert pod_versions(cluster, namespace) == before
    ops = member(lab, tmp_path, BREAK_GLASS)
    done = lab.muster("release", "job-nobody", "-n", namespace, kubeconfig=ops, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no pod of {namespace}/job-nobody waits" in done.stderr

    done = lab.muster("release", "job-big", "-n", namespace, "--timeout", "15", kubeconfig=ops)
    pods = cluster.pods(namespace, "big")
    assert [one.gates for one in pods] == [[], []]
    (one,) = [one for one in pods if one.node]
    (other,) = [one for one in pods if not one.node]
    assert done.stdout == f"{namespace}/{one.name} released\n"
    assert f"{namespace}/{other.name}: " in done.stderr
    assert "Insufficient nvidia.com/gpu" in done.stderr
    wait_until(
        lambda: gang(cluster, namespace, "job-big").get("reason") == "Released",
        what="its Gang says so",
        also=lambda: str(gang(cluster, namespace, "job-big")),
    )
    # nothing sends it back, and the rest binds when there is room
    stays(cluster, lambda: len(bound(cluster.pods(namespace, "big"))) == 1, what="it is left alone")
    delete_job(cluster, namespace, "holder")
    runs(cluster, namespace, "big", 2)
    wait_until(
        lambda: in_state(cluster, namespace, "job-big", "Running"),
        what="whole, it runs",
        also=lambda: str(gang(cluster, namespace, "job-big")),
    )


def test_release_needs_one_job_or_all(lab: Lab) -> None:
    for arguments in ((), ("job-big", "--all")):
        done = lab.muster("release", *arguments, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert "give the name of one JOB, or --all" in done.stderr


# --- preemption ---------------------------------------------------------------------------------------------


def test_with_preemption_a_whole_lower_gang_goes_back_and_comes_back_later(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(3),), set_values=("config.preemption=true",)))
    cluster = Cluster(lab.kubeconfig)
    config = cluster.get("/api/v1/namespaces/muster-system/configmaps/muster")["data"]["muster.yaml"]
    assert "preemption: true" in config
    cluster.submit(priority_class("urgent", 1000), priority_class("usual", 10))
    cluster.submit(job("low", 2, gpus=8, priority="usual", backoff_limit=0))
    first = runs(cluster, "default", "low", 2)
    cluster.submit(job("bystander", 1, gpus=4, priority="usual"))
    runs(cluster, "default", "bystander", 1)
    # equal priority takes nothing
    cluster.submit(job("rival", 2, gpus=8, priority="usual"))
    waits(cluster, "default", "job-rival")
    wait_until(lambda: len(gated(cluster.pods("default", "rival"))) == 2, what="both pods of rival wait")
    stays(cluster, lambda: len(bound(cluster.pods("default", "low"))) == 2, what="low runs on")
    # of the two that run, only the one that makes room goes, and both its replicas do
    cluster.submit(job("high", 2, gpus=8, priority="urgent"))
    high = runs(cluster, "default", "high", 2)

    def waits_whole() -> list[Pod]:
        pods = cluster.pods("default", "low")
        return pods if len(pods) == len(gated(pods)) == 2 else []  # the old ones are gone

    again = wait_until(waits_whole, what="low waits whole", also=lambda: show(cluster.pods("default")))
    assert {one.uid for one in again}.isdisjoint(one.uid for one in first)
    assert len(bound(cluster.pods("default", "bystander"), 1)) == 1
    sentence = "Preempted: preempted whole by a job of priority 1000"
    wait_until(
        lambda: sentence in but_missing(said(cluster, "default", "low")),
        what=f"the Event on low: {sentence}",
        also=lambda: str(said(cluster, "default", "low")),
    )
    # it keeps its place in the queue: before the equal one, which was there later
    ends_now(cluster, *high)
    runs(cluster, "default", "low", 2)
    assert len(gated(cluster.pods("default", "rival"))) == 2
    status = cluster.get("/apis/batch/v1/namespaces/default/jobs/low")["status"]
    assert status.get("failed", 0) == 0, status
