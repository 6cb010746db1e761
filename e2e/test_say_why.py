# Over 300 lines: each reason for waiting is asked for in every way there is.
"""Why does my job wait? Asked in every way there is, by those who may know and those who may not.

What each sentence says is pinned by tests/core/test_reasons and test_gangs; here is who gets to read what, and
that being read writes nothing, and that others move up no more than their positions."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import yaml

from e2e.cluster import Cluster, Json
from e2e.lab import Lab, credentials
from e2e.lab.errors import LabError
from e2e.quickstart_page import rows
from e2e.scenario import (
    bound,
    but_missing,
    delete_job,
    gang,
    gang_versions,
    gated,
    holds_for,
    in_state,
    job,
    on_node,
    pod,
    pod_versions,
    said,
    show,
    stays,
    wait_until,
)
from muster.core import snapshot_codec
from muster.core.cycle import cycle
from muster.core.views.view import View
from muster.server.access import AUDIENCE
from muster.settings import load_settings, profile_of

pytestmark = pytest.mark.lab

ROOM = on_node("node-00", "node-01")
WAITS = "needs 16 GPUs (2 replicas of 8)"

SHOWN = ("POS", "FREE", "START", "REPLICAS", "SHARE", "GPUS", "DONE", "END", "AGE", "MESSAGE")


def account(
    cluster: Cluster,
    namespace: str,
    name: str,
    role: str = "",
    everywhere: bool = False,
    audience: str = AUDIENCE,
) -> str:
    """A token of a new service account, bound to a ClusterRole in its namespace or everywhere.

    audience: whom it is for, "" = the API server."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    cluster.request("POST", accounts, {"metadata": {"name": name}})
    if role:
        kind = "ClusterRoleBinding" if everywhere else "RoleBinding"
        inside = "" if everywhere else f"/namespaces/{namespace}"
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": f"{namespace}-{name}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        cluster.request("POST", f"/apis/rbac.authorization.k8s.io/v1{inside}/{kind.lower()}s", binding)
    spec = {"audiences": [audience]} if audience else {}
    answer = cluster.request("POST", f"{accounts}/{name}/token", {"spec": spec})
    return str(answer["status"]["token"])


def ask(lab: Lab, path: str, token: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.get(f"{lab.service_url()}{path}", headers=headers, timeout=60, trust_env=False)


def jobs(lab: Lab, token: str, namespace: str = "") -> dict[str, Json]:
    """What /v1/jobs tells this caller, by namespace/name."""
    answer = ask(lab, f"/v1/jobs?namespace={namespace}" if namespace else "/v1/jobs", token)
    assert answer.status_code == 200, answer.text
    return {f"{item['namespace']}/{item['name']}": item for item in answer.json()["items"]}


def as_account(lab: Lab, token: str, tmp_path: Path) -> Path:
    """A kubeconfig of its own for a token."""
    admin = yaml.safe_load(lab.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    authority = (lab.folder / "pki" / "ca.crt").read_bytes()
    return credentials.write(tmp_path / "kubeconfig", credentials.kubeconfig(admin, authority, token))


def one_waits(cluster: Cluster, namespace: str) -> None:
    """The namespace's job `big` needs both nodes of the room, and one GPU of it is taken."""
    cluster.submit(job("big", 2, gpus=8, affinity=ROOM), namespace=namespace)
    wait_until(
        lambda: in_state(cluster, namespace, "job-big", "Waiting"),
        what="big waits",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def holder_runs(cluster: Cluster, namespace: str) -> None:
    cluster.submit(job("holder", 1, gpus=1, affinity=on_node("node-00")), namespace=namespace)
    wait_until(
        lambda: in_state(cluster, namespace, "job-holder", "Running"),
        what="the holder runs",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


# --- one job, asked in every way ----------------------------------------------------------------------------


def test_a_tenant_is_told_why_by_events_kubectl_and_explain(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str], tmp_path: Path
) -> None:
    other = new_namespace()
    holder_runs(cluster, other)
    one_waits(cluster, namespace)
    tenant = as_account(lab, account(cluster, namespace, "tenant", "view", audience=""), tmp_path)

    # Events, on a pod, on the Job and on the Gang, without a name of the other namespace's job
    sentence = f"Resources: {WAITS}; 1 of 2 replicas fit now"
    first = cluster.pods(namespace, "big")[0].name
    for about in (first, "big", "job-big"):
        wait_until(
            lambda about=about: but_missing(said(cluster, namespace, about)) == [sentence],  # type: ignore[misc]
            what=f"the Event on {about}",
            also=lambda about=about: str(said(cluster, namespace, about)),  # type: ignore[misc]
        )
    # kubectl get gangs: job, state, turn, share, GPUs, age, message (it has no progress or end)
    listed = wait_until(
        lambda: _kubectl(lab, tenant, "get", "gangs", "-n", namespace),
        what="view includes gangs (the controller manager aggregates it in its own time)",
    )
    assert listed.splitlines()[0].split() == ["NAME", "STATE", *SHOWN]
    (row,) = rows(listed)
    shown = {"NAME": "job-big", "STATE": "Waiting", "FREE": "1/2", "REPLICAS": "0/2", "SHARE": "0/2/2"}
    assert row.items() >= (shown | {"GPUS": "16", "MESSAGE": WAITS}).items()
    assert int(row["POS"]) >= 1
    assert row["START"] in ("", "unknown"), "the holder declares no run time"
    # muster explain, with the tenant's own rights and as administrator, who may see jobs that are about to be gone
    for kubeconfig in (tenant, lab.kubeconfig):
        text = explained_as_the_first(lab, namespace, kubeconfig)
        assert "State:     Waiting for " in text
        assert f"Reason:    Resources\nMessage:   {WAITS}\n" in text
        assert "GPUs:      16 asked for" in text
        assert "Owner:     Job big" in text
        assert [line.split() for line in text.splitlines()[-2:]] == [
            ["ROLE", "MIN", "MAX", "GRANTED", "BOUND"],
            ["worker", "2", "2", "0", "0"],
        ]
    told = lab.muster("explain", "job-big", "-n", namespace, "--story", kubeconfig=tenant).stdout
    assert told.splitlines()[-1].split(maxsplit=4)[2:] == ["Queued", "Waiting", WAITS]
    refused = lab.muster("explain", "job-holder", "-n", other, kubeconfig=tenant, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "gangs.muster.dev is forbidden" in refused.stderr
    missing = lab.muster("explain", "job-bigg", "-n", namespace, kubeconfig=tenant, check=False)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "did you mean: job-big?" in missing.stderr


def explained_as_the_first(lab: Lab, namespace: str, kubeconfig: Path) -> str:
    """What `muster explain` says of big, once it says that it is the first of those that wait."""

    def explained() -> str:
        return lab.muster("explain", "job-big", "-n", namespace, kubeconfig=kubeconfig).stdout

    def as_the_first() -> str:
        text = explained()
        return text if "Position:  1 in the queue\n" in text else ""

    return wait_until(as_the_first, what="it is the first of those that wait", also=explained)


def _kubectl(lab: Lab, kubeconfig: Path, *arguments: str) -> str:
    """kubectl with a kubeconfig of its own; "" where it is refused."""
    try:
        return lab.kubectl("--kubeconfig", str(kubeconfig), *arguments)
    except LabError:
        return ""


def test_explain_takes_the_namespace_of_the_context(
    lab: Lab, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    holder_runs(cluster, namespace)
    config = yaml.safe_load(lab.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    text = lab.muster("explain", "job-holder", kubeconfig=tmp_path / "kubeconfig").stdout
    assert "State:     Running for " in text
    assert "GPUs:      1 granted" in text


# --- GET /v1/jobs -------------------------------------------------------------------------------------------


def test_v1_jobs_needs_a_token_that_may_list_gangs(lab: Lab, cluster: Cluster, namespace: str) -> None:
    nobody = account(cluster, namespace, "nobody")
    elsewhere = account(cluster, namespace, "elsewhere", "view", audience="")
    for path in ("/v1/jobs", f"/v1/jobs?namespace={namespace}", "/debug/snapshot"):
        for token in ("", "not-a-token"):
            answer = ask(lab, path, token)
            assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        answer = ask(lab, path, elsewhere)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert (
            "expected a token for the audience muster.dev, found one for https://" in answer.json()["error"]
        )
        assert "kubectl create token NAME -n NAMESPACE --audience=muster.dev" in answer.json()["error"]
        answer = ask(lab, path, nobody)
        assert answer.status_code == 403
        assert "you may not list gangs.muster.dev" in answer.json()["error"]
    assert ask(lab, "/v1/jobs?namespace=No%20Namespace", nobody).status_code == 400


def test_a_token_for_muster_is_nothing_to_the_api_server(
    lab: Lab, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    token = account(cluster, namespace, "tenant", "view")
    wait_until(
        lambda: ask(lab, f"/v1/jobs?namespace={namespace}", token).status_code == 200,
        what="the tenant reads his jobs",
    )
    with pytest.raises(LabError, match=r"(?i)unauthorized|logged in"):
        lab.kubectl("--kubeconfig", str(as_account(lab, token, tmp_path)), "-n", namespace, "get", "gangs")


def test_a_tenant_sees_its_own_jobs_and_others_as_counts_and_a_cluster_reader_sees_all(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str]
) -> None:
    other = new_namespace()
    holder_runs(cluster, other)
    cluster.submit(job("early", 2, gpus=8, affinity=ROOM), namespace=other)
    wait_until(lambda: in_state(cluster, other, "job-early", "Waiting"), what="early waits")
    time.sleep(1.1)  # submission has whole seconds, and ties go by namespace
    one_waits(cluster, namespace)
    tenant = account(cluster, namespace, "tenant", "view")
    reader = account(cluster, namespace, "reader", "view", everywhere=True)
    # each by a binding of another kind, which the API server learns of apart
    for path, bearer in ((f"/v1/jobs?namespace={namespace}", tenant), ("/v1/jobs", reader)):
        wait_until(
            lambda path=path, bearer=bearer: ask(lab, path, bearer).status_code == 200,  # type: ignore[misc]
            what=f"the right to {path}",
        )
    try:
        for path in ("/v1/jobs", f"/v1/jobs?namespace={other}", "/debug/snapshot"):
            assert ask(lab, path, tenant).status_code == 403
        assert "/v1/jobs?namespace=NAME" in ask(lab, "/v1/jobs", tenant).json()["error"]

        ahead = f"{WAITS}: 1 of 2 replicas fit now; 1 job ahead; "
        # Jobs of scenarios before, whose end Muster has not seen, would be ahead.
        mine = wait_until(
            lambda: (
                (found := jobs(lab, tenant, namespace))[f"{namespace}/job-big"]["position"] == 2 and found
            ),
            what="one job is ahead",
            also=lambda: jobs(lab, tenant, namespace),
        )
        assert list(mine) == [f"{namespace}/job-big"]
        big = mine[f"{namespace}/job-big"]
        assert (big["state"], big["reason"], big["position"], big["gpus"]) == ("Waiting", "Resources", 2, 16)
        assert big["roles"] == {"worker": {"min": 2, "max": 2, "granted": 0, "bound": 0}}
        assert big["message"] == f"{ahead}1 GPU that it could use is held by 1 job of other namespaces"
        assert other not in json.dumps(mine)

        # an answer may be half a second old
        everything = wait_until(
            lambda: (found := jobs(lab, reader))[f"{other}/job-early"]["position"] == 1 and found,
            what="early is first",
            also=lambda: jobs(lab, reader),
        )
        told = everything[f"{namespace}/job-big"]["message"]
        assert told == f"{ahead}1 GPU that it could use is held by {other}/job-holder"
        assert "; first in the queue; " in everything[f"{other}/job-early"]["message"]
        holder = everything[f"{other}/job-holder"]
        assert (holder["state"], holder["position"], holder["gpus"]) == ("Running", None, 1)
        assert set(jobs(lab, reader, other)) == {f"{other}/job-early", f"{other}/job-holder"}
        # a right that is taken away is gone in seconds
        cluster.delete(
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{namespace}-tenant"
        )
        wait_until(
            lambda: ask(lab, f"/v1/jobs?namespace={namespace}", tenant).status_code == 403,
            what="the right is gone",
        )
    finally:
        cluster.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{namespace}-reader")


def test_a_snapshot_reads_back_to_the_same_plan(lab: Lab, cluster: Cluster, namespace: str) -> None:
    holder_runs(cluster, namespace)
    one_waits(cluster, namespace)
    cluster.submit(
        job("elastic", 4, gpus=1, min_replicas=2, success_on="0", affinity=ROOM),
        job("racked", 1, gpus=8, annotations={"muster.dev/topology-required": "topology.kubernetes.io/rack"}),
        pod("lonely", gpus=1, job="lonely", roles="worker=2"),
        namespace=namespace,
    )
    wait_until(lambda: in_state(cluster, namespace, "job-elastic", "Running"), what="elastic runs")
    reader = account(cluster, namespace, "reader", "view", everywhere=True)

    def with_all() -> Json:
        answer = ask(lab, "/debug/snapshot", reader)
        found: Json = answer.json() if answer.status_code == 200 else {}
        return found if found and names(found, namespace) >= {"job-racked", "lonely"} else {}

    try:
        plain = wait_until(with_all, what="the right, and all jobs: the pods of some are made later")
    finally:
        cluster.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{namespace}-reader")
    snapshot, name = snapshot_codec.load(plain)
    profile = profile_of(load_settings(lab.folder / "config" / "muster-0.yaml"))
    assert (name, plain["order"]) == (profile.name, profile.order)
    assert names(plain, namespace) == {"job-holder", "job-big", "job-elastic", "job-racked", "lonely"}
    again = View(snapshot, cycle(snapshot, profile), profile, free=snapshot.free)
    assert json.loads(json.dumps(snapshot_codec.dump(again)))["plan"] == plain["plan"]


def names(snapshot: Json, namespace: str) -> set[str]:
    """Of the namespace's jobs in a snapshot."""
    return {key.name for key in snapshot_codec.load(snapshot)[0].jobs if key.namespace == namespace}


def test_a_waiting_gang_says_its_turn_and_explain_sends_nobody_elsewhere(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """The place in the queue, what fits, who has the rest and when it may start, or that it never fits."""
    work = {"muster.dev/remaining-work": "3600"}
    holder = job("holder", 1, gpus=6, annotations=work, affinity=on_node("node-00"))
    cluster.submit(holder, namespace=namespace)
    wait_until(lambda: in_state(cluster, namespace, "job-holder", "Running"), what="the holder runs")
    cluster.submit(
        job("big", 4, gpus=2, annotations=work, affinity=on_node("node-00")),
        job("huge", 1, gpus=9),
        namespace=namespace,
    )

    def explained(name: str) -> dict[str, str]:
        lines = lab.muster("explain", name, "-n", namespace).stdout.splitlines()
        return {label: text.strip() for label, _, text in (line.partition(":") for line in lines) if text}

    def told() -> Json:
        status = in_state(cluster, namespace, "job-big", "Waiting")
        return (
            status
            if "expectedStart" in status and in_state(cluster, namespace, "job-huge", "Waiting")
            else {}
        )

    status = wait_until(
        told, what="the Gang tells when it may start", also=lambda: str(cluster.gangs(namespace))
    )
    assert status["fits"] == "1 of 4 replicas fit now"
    assert status["blocker"] == f"6 GPUs that it could use are held by {namespace}/job-holder"
    assert status["expected"] == "by the run times that jobs declare or report; it may start sooner"
    in_an_hour = datetime.fromisoformat(status["expectedStart"]).timestamp() - time.time()
    assert 3000 < in_an_hour < 3700
    said = explained("job-big")
    assert said["Position"] == f"{status['position']} in the queue"
    assert (said["Free"], said["Blocker"]) == (status["fits"], status["blocker"])
    assert "(in 5" in said["Expected"]
    assert "/v1/jobs" not in str(said)
    everybody = lab.kubectl("get", "gangs", "-n", namespace, "-o", "wide")
    top = lab.muster("top", "-n", namespace, "--once").stdout
    for words in (status["fits"], status["blocker"], status["start"], status["expected"]):
        assert words in everybody
    for words in (status["fits"], status["blocker"], "expected start in 5", status["expected"]):
        assert words in top
    described = ["job/big"], [f"pod/{one.name}" for one in gated(cluster.pods(namespace, "big"))]
    for several in described:
        told_of = "".join(lab.kubectl("describe", one, "-n", namespace) for one in several)
        assert re.search(r"needs 8 GPUs .*; position \d+ in the queue", told_of), several
    huge = gang(cluster, namespace, "job-huge")
    assert ("position" in huge, "expectedStart" in huge) == (False, False)
    never = explained("job-huge")
    assert (never.get("Position"), never["Expected"]) == (None, "never, as the cluster is now")


# --- what is written, and when ------------------------------------------------------------------------------


def test_starting_one_of_100_waiting_jobs_tells_the_others_their_position_and_nothing_else(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    capacity, count = on_node("node-00"), 100
    cluster.submit(job("holder", 1, gpus=8, affinity=capacity), namespace=namespace)
    wait_until(lambda: in_state(cluster, namespace, "job-holder", "Running"), what="the holder runs")
    for number in range(count):
        cluster.submit(job(f"w{number:03d}", 1, gpus=8, affinity=capacity), namespace=namespace)

    def waiting() -> int:
        return sum(g.get("status", {}).get("state") == "Waiting" for g in cluster.gangs(namespace).values())

    wait_until(lambda: waiting() == count, within=300, what=f"{count} jobs wait", also=waiting)
    token = account(cluster, namespace, "tenant", "view")

    def queue() -> dict[int, Json]:
        """Those that wait by their place; {} while the tenant may not read."""
        if ask(lab, f"/v1/jobs?namespace={namespace}", token).status_code != 200:
            return {}
        return {item["position"]: item for item in jobs(lab, token, namespace).values() if item["position"]}

    # Jobs get their pods side by side, so of two of the same moment either may be the first.
    places = wait_until(
        lambda: found if (found := queue()).keys() == set(range(1, count + 1)) else {},
        what="the tenant reads of each where it is",
        also=lambda: sorted(queue()),
    )
    first, last = places[1]["name"].removeprefix("job-"), places[count]
    assert f"; {count - 1} jobs ahead; " in last["message"]

    # each has been told once, on its pod and on its Job
    both = {one.name for one in cluster.pods(namespace)} | {f"w{number:03d}" for number in range(count)}
    both -= {one.name for one in cluster.pods(namespace, "holder")}
    assert len(both) == 2 * count
    wait_until(
        lambda: both <= {event.split("/")[0] for event in told(cluster, namespace)},
        what="all have been told",
        also=lambda: both - {event.split("/")[0] for event in told(cluster, namespace)},
    )
    before = (gang_versions(cluster, namespace), told(cluster, namespace), pod_versions(cluster, namespace))
    delete_job(cluster, namespace, "holder")
    wait_until(
        lambda: in_state(cluster, namespace, f"job-{first}", "Running"),
        what="the first of them runs",
        also=lambda: str(gang(cluster, namespace, f"job-{first}")),
    )
    wait_until(
        lambda: queue().get(count - 1, {}).get("name") == last["name"],
        what="the last of them has moved up",
        also=lambda: sorted(queue()),
    )
    stays(cluster, lambda: waiting() == count - 1, what="the others wait on")

    def places_told() -> list[int]:
        return sorted(
            g["status"].get("position", 0)
            for g in cluster.gangs(namespace).values()
            if g["status"]["state"] == "Waiting"
        )

    wait_until(
        lambda: places_told() == list(range(1, count)),
        within=90,  # at most 100 such writes in 30 s
        what="the Gangs of the others tell their positions",
        also=places_told,
    )
    after = (gang_versions(cluster, namespace), told(cluster, namespace), pod_versions(cluster, namespace))
    assert {event.split("/")[0].rsplit("-0-", 1)[0] for event in after[1] - before[1]} <= {
        *("holder", first, "job-holder", f"job-{first}")
    }
    assert {name.rsplit("-", 2)[0] for name in changed(before[2], after[2])} <= {"holder", first}


def told(cluster: Cluster, namespace: str) -> set[str]:
    """Muster's Events of the namespace, as about/name-of-the-event/count."""
    return {
        f"{event['involvedObject']['name']}/{event['metadata']['name']}/{event.get('count', 1)}"
        for event in cluster.events(namespace)
        if (event.get("source") or {}).get("component") == "muster"
    }


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


# --- what admission can't see -------------------------------------------------------------------------------


def test_pods_that_contradict_each_other_are_told_which_annotation_and_what_was_found(
    cluster: Cluster, namespace: str
) -> None:
    pods = [pod(f"t-{number}", job="t", roles=f"worker={count}") for number, count in enumerate((2, 3))]
    cluster.submit(*pods, namespace=namespace)
    sentence = (
        "muster.dev/roles: expected the same on every pod that carries it; "
        "found worker=2 on t-0 and worker=3 on t-1"
    )
    status = wait_until(
        lambda: in_state(cluster, namespace, "t", "Invalid"),
        what="the job is Invalid",
        also=lambda: str(cluster.gangs(namespace)),
    )
    assert (status["message"], status["reason"]) == (sentence, "Invalid")
    wait_until(
        lambda: but_missing(said(cluster, namespace, "t-0")) == [f"Invalid: {sentence}"],
        what="the Event on its first pod",
        also=lambda: str(said(cluster, namespace, "t-0")),
    )
    assert len(gated(cluster.pods(namespace))) == 2
    # taken back, the job is well
    wrong = cluster.pod(namespace, "t-1")
    assert wrong is not None
    cluster.delete_pod(wrong)
    cluster.submit(pod("t-2", job="t", roles="worker=2"), namespace=namespace)
    wait_until(
        lambda: bound(cluster.pods(namespace), 2),
        what="both run",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


@pytest.mark.unsound("t-0 may start before t-1 is there, which makes the job Invalid")
def test_sizes_that_contradict_each_other_are_told_too(cluster: Cluster, namespace: str) -> None:
    pods: list[Json] = [
        pod("t-0", job="t", min_replicas=1, max_replicas=2),
        pod("t-1", job="t", min_replicas=2, max_replicas=2),
    ]
    cluster.submit(*pods, namespace=namespace)
    status = wait_until(lambda: in_state(cluster, namespace, "t", "Invalid"), what="the job is Invalid")
    assert "muster.dev/min-replicas" in status["message"]
    assert "t-0" in status["message"]
    assert "t-1" in status["message"]


def test_a_quota_that_keeps_pods_from_being_made_is_named_and_the_job_does_not_start_in_part(
    cluster: Cluster, namespace: str
) -> None:
    """Admission can't see quotas, and the Job's controller tries for ever: its owner is told, once."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    quota = {"metadata": {"name": "gpus"}, "spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}
    cluster.request("POST", path, quota)
    wait_until(lambda: cluster.get(f"{path}/gpus").get("status", {}).get("used"), what="the quota counts")
    cluster.submit(job("train", 12, gpus=1), namespace=namespace)
    message = "3 of 12 pods exist; ResourceQuota gpus never has room for all (requests.nvidia.com/gpu)"
    wait_until(
        lambda: gang(cluster, namespace, "job-train").get("message") == message,
        what="the Gang names the quota",
        also=lambda: str(cluster.gangs(namespace)),
    )
    told = f"Quota: {message}; 3 of 3 requests.nvidia.com/gpu used"
    wait_until(
        lambda: but_missing(said(cluster, namespace, "train"))[-1:] == [told],
        what="an Event on the Job names it",
        also=lambda: str(said(cluster, namespace, "train")),
    )
    holds_for(
        lambda: len(gated(cluster.pods(namespace, "train"))) == 3,
        seconds=12,  # without the quota, an owner that makes no more pods for 10 s waits for its first ones
        what="the three pods that exist wait",
    )
    cluster.patch(f"{path}/gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "12"}}})
    wait_until(
        lambda: bound(cluster.pods(namespace, "train"), 12),
        within=240,  # the Job's controller has backed off
        what="train runs whole",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


def test_when_waiting_jobs_are_expected_to_start_follows_from_what_owners_declare(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    def work(seconds: int) -> dict[str, str]:
        return {"muster.dev/remaining-work": str(seconds)}

    began = datetime.now(UTC)
    cluster.submit(
        job("runs", 1, gpus=8, affinity=on_node("node-00"), annotations=work(600)), namespace=namespace
    )
    wait_until(lambda: bound(cluster.pods(namespace, "runs"), 1), what="runs runs")
    for name, capacity, declared in (
        ("a-first", on_node("node-00"), work(300)),
        ("b-second", on_node("node-00"), work(100)),
        ("c-unknown", on_node("node-00"), {}),
        ("d-behind", on_node("node-00"), {}),
    ):
        cluster.submit(job(name, 1, gpus=8, affinity=capacity, annotations=declared), namespace=namespace)
        wait_until(
            lambda name=name: in_state(cluster, namespace, f"job-{name}", "Waiting"),  # type: ignore[misc]
            what=f"{name} waits",
        )
    token = account(cluster, namespace, "reader", "view")

    def read() -> dict[str, Json]:
        if ask(lab, f"/v1/jobs?namespace={namespace}", token).status_code != 200:
            return {}
        found = jobs(lab, token, namespace)
        return {key.partition("/job-")[2]: item for key, item in found.items()}

    found = wait_until(
        lambda: (r := read()) and all("eta" in item for item in r.values()) and r["a-first"]["eta"] and r,
        what="the reader may read",
    )
    start = datetime.fromisoformat(found["a-first"]["eta"])
    assert began + timedelta(seconds=500) < start <= datetime.now(UTC) + timedelta(seconds=600)
    after = {name: found[name]["eta"] for name in ("b-second", "c-unknown")}
    assert datetime.fromisoformat(after["b-second"]) - start == timedelta(seconds=300)
    assert datetime.fromisoformat(after["c-unknown"]) - start == timedelta(seconds=400)
    assert found["d-behind"]["eta"] is None
    why = found["d-behind"]["etaUnknown"]
    assert why.endswith("before it declares no run time (muster.dev/remaining-work)"), why
