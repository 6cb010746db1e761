# Over 300 lines: its scenarios share one lab with a scheduler of its own; another file would start another.
"""config/existing-scheduler, as a team follows it: their own kube-scheduler asks Muster through nginx, TLS and client
certificates.

The lab's default-scheduler is the team's. nginx runs with the configuration of the ConfigMap in the cluster; only
addresses and folders are the lab's. Its image, and what a kubelet makes of the pod, are not tried here."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster import MARK, Cluster, Json, Pod
from e2e.lab import Lab, NodeGroup, Shape, daemon, ports
from e2e.lab.places import CHECKOUT
from e2e.scenario import (
    PATIENCE,
    bound,
    comes_to_hold,
    delete_job,
    gated,
    job,
    pod,
    priority_class,
    rewrite,
    runs_whole,
    show,
    wait_until,
)
from e2e.test_extender import NO_PLAN, take_the_gate_off

OWN_LAB = "want a kube-scheduler of a team's own, with nginx beside it"
pytestmark = pytest.mark.lab

FOLDER = CHECKOUT / "config" / "existing-scheduler"
SCHEDULER = "default-scheduler"
SERVICE = "muster-extender.muster-system.svc"
OURS = "object.spec.?schedulerName.orValue('') == 'muster'"
SKIPPED = "Skipping extender as it returned error and has ignorable flag set"


# --- the proxy, and the steps of the README -----------------------------------------------------------------


class Proxy:
    """nginx before the extender's port, as the container of the chart's pod runs it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.port = ports.reserve(lab.folder, ["proxy"])["proxy"]
        self.folder = lab.folder / "proxy"
        self._runs: daemon.Daemon | None = None
        for name in ("tls", "client", "tmp"):
            (self.folder / name).mkdir(parents=True)

    def start(self, replica: int = 0) -> None:
        """Before that replica, with what the cluster holds now: the ConfigMap and the server's Secret."""
        (text,) = self._data("configmap", "muster-extender-proxy").values()
        for theirs, here in (
            ("listen 8443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            ("server 127.0.0.1:8081;", f"server 127.0.0.1:{self.lab.ports[f'muster-{replica}-extender']};"),
            (" /etc/tls/", f" {self.folder}/tls/"),
            (" /tmp/", f" {self.folder}/tmp/"),
        ):
            assert theirs in text, f"nginx.conf has no {theirs!r}"
            text = text.replace(theirs, here)
        (self.folder / "nginx.conf").write_text(text)
        self.fetch("muster-extender", "tls")
        command = [nginx(), "-e", "stderr", "-c", str(self.folder / "nginx.conf")]
        # One process: a worker would outlive a master that is killed.
        command += ["-g", "daemon off; master_process off;"]
        self._runs = daemon.start(self.lab.folder, "nginx", command)
        wait_until(
            lambda: ports.listens(self.port),
            what="nginx listens",
            also=lambda: daemon.log_tail(self.lab.folder, "nginx"),
        )

    def stop(self) -> None:
        if self._runs is not None:
            daemon.end([self._runs])

    def signal(self, number: signal.Signals) -> None:
        assert self._runs is not None
        assert self._runs.signal(number), "nginx has ended"

    def fetch(self, secret: str, into: str) -> None:
        """The files of a Secret, as a pod that mounts it has them."""
        for name, value in self._data("secret", secret).items():
            (self.folder / into / name).write_bytes(base64.b64decode(value))

    def client(self, *, certificate: bool = True) -> httpx.Client:
        """As the scheduler calls: with its CA and, unless told otherwise, its certificate. Keeps connections."""
        files = self.folder / "client"
        trust = ssl.create_default_context(cafile=files / "ca.crt")
        if certificate:
            trust.load_cert_chain(files / "tls.crt", files / "tls.key")
        kept = httpx.Limits(keepalive_expiry=None)
        url = f"https://127.0.0.1:{self.port}"
        return httpx.Client(base_url=url, verify=trust, trust_env=False, timeout=PATIENCE, limits=kept)

    def ask(self, verb: str, content: bytes, *, certificate: bool = True) -> httpx.Response:
        with self.client(certificate=certificate) as client:
            return call(client, verb, content)

    def _data(self, kind: str, name: str) -> dict[str, str]:
        found: Json = json.loads(self.lab.kubectl("get", kind, name, "-n", "muster-system", "-o", "json"))
        data: dict[str, str] = found["data"]
        return data


def call(client: httpx.Client, verb: str, content: bytes) -> httpx.Response:
    """The server is asked for by the name that scheduler.yaml gives."""
    return client.post(f"/{verb}", content=content, extensions={"sni_hostname": SERVICE})


def nginx() -> str:
    """Where it is, "" where it is not: users other than root may have no /usr/sbin in their PATH."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""


def new_certificates(lab: Lab) -> None:
    address = lab.kubectl(
        *("get", "service", "muster-extender", "-n", "muster-system", "-o", "jsonpath={.spec.clusterIP}")
    )
    program = str(FOLDER / "certificates.sh")
    made = subprocess.run([program, address], capture_output=True, text=True, check=True)
    lab.kubectl("apply", "-f", "-", stdin=made.stdout)


def register(proxy: Proxy) -> None:
    """scheduler.yaml merged into the configuration of the team's scheduler, and that restarted."""
    text = (FOLDER / "scheduler.yaml").read_text()
    text = text.replace("MUSTER_EXTENDER_IP:8443", f"127.0.0.1:{proxy.port}")
    given = yaml.safe_load(text.replace("/etc/muster", str(proxy.folder / "client")))
    given["extenders"][0]["httpTimeout"] = "60s"  # a second is nothing on a machine that does other things
    file = proxy.lab.folder / "config" / f"{SCHEDULER}.yaml"
    theirs = yaml.safe_load(file.read_text())
    given["clientConnection"] |= {"kubeconfig": theirs["clientConnection"]["kubeconfig"]}
    rewrite(file, yaml.safe_dump(theirs | given, sort_keys=False))
    proxy.lab.restart(SCHEDULER)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """The steps of the README. (The chart comes first: with a lab it is there.)"""
    if "E2E_KUBECONFIG" in os.environ:
        pytest.skip("starts a lab, and E2E_KUBECONFIG names another cluster")
    if not nginx():
        pytest.skip("needs nginx: apt-get install --no-install-recommends nginx")
    lab = Lab(f"e2e-{os.getpid()}-existing")
    try:
        lab.up(Shape(groups=(NodeGroup(4, gpus=4),), replicas=2, values=(str(FOLDER / "values.yaml"),)))
        lab.kubectl("apply", "-f", str(FOLDER / "service.yaml"))
        new_certificates(lab)
        proxy = Proxy(lab)
        proxy.start()
        proxy.fetch("muster-extender-client", "client")
        register(proxy)
        lab.kubectl("apply", "-f", str(FOLDER / "marker.yaml"))
        wait_until(lambda: marked(Cluster(lab.kubeconfig)), what="the marker is in force")
        yield proxy
    finally:
        lab.down()


@pytest.fixture
def lab(proxy: Proxy) -> Iterator[Lab]:
    yield proxy.lab
    proxy.lab.restore()


# --- what is looked at --------------------------------------------------------------------------------------


def marked(cluster: Cluster, **what: Any) -> bool:
    """Whether a pod created now would get the mark."""
    (made,) = cluster.submit(pod("probe", **what), dry_run=True)
    return MARK in made["spec"]["containers"][0]["resources"]["requests"]


def follower(lab: Lab) -> list[int]:
    """The replica that does not lead, where one of the two does; [] where none does."""
    others = [replica for replica in (0, 1) if "\nmuster_leading 1.0" not in metrics(lab, replica)]
    return others if len(others) == 1 else []


def metrics(lab: Lab, replica: int) -> str:
    return httpx.get(f"{lab.service_url(replica)}/metrics", trust_env=False, timeout=60).text


def verdicts(lab: Lab, replica: int = 0) -> dict[tuple[str, str], int]:
    """What Muster has answered so far, by verb and verdict."""
    text = metrics(lab, replica)
    return {
        (sample.labels["verb"], sample.labels["verdict"]): int(sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "muster_extender_verdicts_total"
    }


def all_told(lab: Lab) -> dict[tuple[str, str], int]:
    """What Muster has answered, once nothing more is told of: of the last answers a moment later."""
    seen = [verdicts(lab)]

    def same() -> bool:
        seen.append(verdicts(lab))
        return seen[-1] == seen[-2]

    comes_to_hold(same, seconds=2, what="no more answers are told of")
    return seen[-1]


def counted(
    lab: Lab, before: dict[tuple[str, str], int], verb: str, verdict: str, *, least: int = 1, replica: int = 0
) -> None:
    """So many more answers since; the process that gives them tells of them a moment later."""
    wait_until(
        lambda: verdicts(lab, replica).get((verb, verdict), 0) - before.get((verb, verdict), 0) >= least,
        what=f"{least} answers of {verb}: {verdict}",
        also=lambda: str(verdicts(lab, replica)),
    )


def log_size(lab: Lab) -> int:
    return lab.log(SCHEDULER).stat().st_size


def skipped(lab: Lab, since: int) -> list[str]:
    """What the team's scheduler says of calls that failed, after the first `since` bytes of its log."""
    text = lab.log(SCHEDULER).read_bytes()[since:].decode(errors="replace")
    return [line for line in text.splitlines() if SKIPPED in line]


def placed(cluster: Cluster, namespace: str, *names: str) -> list[Pod]:
    """Those of the pods that have a node; [] unless all do."""
    return bound((one for one in cluster.pods(namespace) if one.name in names), len(names))


def half_a_gang_is_refused(lab: Lab, cluster: Cluster, namespace: str) -> None:
    """Somebody takes the gate off: nothing but the filter keeps the pod from a node."""
    half_a_gang(lab, cluster, namespace, "half")
    wait_until(
        lambda: NO_PLAN in str([one.condition("PodScheduled") for one in cluster.pods(namespace, "half")]),
        what="the team's scheduler says that Muster has no plan for half a gang",
        also=lambda: cluster.events(namespace, "half"),
    )
    assert placed(cluster, namespace, "half") == []
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/half")
    wait_until(lambda: not cluster.pods(namespace, "half"), what="it is gone, before nginx may be")


def half_a_gang(lab: Lab, cluster: Cluster, namespace: str, name: str) -> None:
    cluster.submit(pod(name, job=name, roles="worker=2"), namespace=namespace)
    wait_until(lambda: gated(cluster.pods(namespace, name)), what=f"{name} is behind the gate")
    take_the_gate_off(lab, namespace, name)


# --- the scenarios ------------------------------------------------------------------------------------------


def test_the_teams_scheduler_asks_muster_about_pods_of_ours_and_binds_what_is_planned(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    assert not any(name.startswith("kube-scheduler") for name in lab.processes)
    before, since = verdicts(lab), log_size(lab)
    cluster.submit(job("train", 3, gpus=4), namespace=namespace)
    for one in runs_whole(cluster, namespace, "train", 3):
        assert one.pinned_to == one.node
        assert one.requests[MARK] == 1
    counted(lab, before, "filter", "passed", least=3)

    half_a_gang_is_refused(lab, cluster, namespace)
    cluster.submit(pod("foreign", scheduler=None, gpus=4), namespace=namespace)
    (foreign,) = wait_until(lambda: placed(cluster, namespace, "foreign"), what="a pod of others is bound")
    assert MARK not in foreign.requests
    assert skipped(lab, since) == []


def test_a_replica_that_follows_lets_pass_what_the_leader_has_just_planned(
    proxy: Proxy, lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """The Service reaches any replica, and kube-scheduler keeps its connection to one."""
    (other,) = wait_until(lambda: follower(lab), what="one of two leads")
    proxy.stop()
    proxy.start(other)
    try:
        before, since = verdicts(lab, other), log_size(lab)
        for name in ("first", "second", "third"):
            cluster.submit(job(name, 3, gpus=4), namespace=namespace)
            runs_whole(cluster, namespace, name, 3)
            delete_job(cluster, namespace, name)
        counted(lab, before, "filter", "passed", least=9, replica=other)
        half_a_gang_is_refused(lab, cluster, namespace)
        assert skipped(lab, since) == []
    finally:
        proxy.stop()
        proxy.start()


def test_a_marked_pod_of_another_profile_ends_no_member_of_a_gang_and_takes_what_else_it_can(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """The condition in marker.yaml is widened by a PriorityClass, as its comment says."""
    high = f"{namespace}-high"
    text = (FOLDER / "marker.yaml").read_text()
    assert text.count(f'"{OURS}"') == 1
    wider = f"{OURS} || object.spec.?priorityClassName.orValue('') in ['{high}']"
    cluster.submit(priority_class(high, 1000))
    lab.kubectl("apply", "-f", "-", stdin=text.replace(f'"{OURS}"', f'"{wider}"'))
    try:
        wait_until(lambda: marked(cluster, scheduler=None, priority=high), what="preemptors are marked")
        before, since = verdicts(lab), log_size(lab)
        cluster.submit(pod("small", scheduler=None, priority=high, gpus=0), namespace=namespace)
        wait_until(lambda: placed(cluster, namespace, "small"), what="where there is room, it is bound")
        counted(lab, before, "filter", "passed")
        counted(lab, before, "prioritize", "even")  # four nodes to choose from

        cluster.submit(job("train", 2, gpus=4), namespace=namespace)
        gang = {one.uid for one in runs_whole(cluster, namespace, "train", 2)}
        cluster.submit(*(pod(f"alone-{i}", scheduler=None, gpus=4) for i in range(2)), namespace=namespace)
        wait_until(lambda: placed(cluster, namespace, "alone-0", "alone-1"), what="all GPUs are taken")
        for name in ("high-0", "high-1"):
            cluster.submit(pod(name, scheduler=None, priority=high, gpus=4), namespace=namespace)
        wait_until(
            lambda: placed(cluster, namespace, "high-0", "high-1"),
            what="two take the places of single pods",
            also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.events(namespace)}",
        )

        cluster.submit(pod("high-2", scheduler=None, priority=high, gpus=4), namespace=namespace)
        wait_until(
            lambda: "no candidate node for preemption" in str(cluster.events(namespace, "high-2")),
            what="a third finds members of the gang only, and these are spared",
            also=lambda: cluster.events(namespace, "high-2"),
        )
        counted(lab, before, "preempt", "vetoed")
        assert {one.uid for one in bound(cluster.pods(namespace, "train"))} == gang
        assert skipped(lab, since) == []
    finally:
        lab.kubectl("apply", "-f", str(FOLDER / "marker.yaml"))
        wait_until(lambda: not marked(cluster, scheduler=None, priority=high), what="the marker is as it was")
        lab.kubectl("delete", "priorityclass", high)


def test_nobody_without_a_certificate_is_answered_by_muster_and_bodies_have_a_limit(
    proxy: Proxy, lab: Lab
) -> None:
    about: Json = {"Pod": {"metadata": {"uid": "u"}}, "Nodes": None, "NodeNames": None}
    names = [*lab.nodes, *(f"a-node-with-a-long-name-{i:04d}.example.internal" for i in range(5000))]
    body = json.dumps(about | {"NodeNames": names}).encode()
    before = all_told(lab)
    answer = proxy.ask("filter", body, certificate=False)
    assert (answer.status_code, "No required SSL certificate was sent" in answer.text) == (400, True)

    answer = proxy.ask("filter", body)
    assert (answer.status_code, len(answer.json()["FailedAndUnresolvableNodes"])) == (200, len(names))
    answer = proxy.ask("prioritize", body)
    assert (answer.status_code, len(answer.json())) == (200, len(names))
    answered = Counter(before) + Counter({("filter", "refused"): 1, ("prioritize", "even"): 1})
    wait_until(
        lambda: Counter(verdicts(lab)) == answered,
        what="Muster has answered these two, and not the one before",
        also=lambda: f"{before} {verdicts(lab)}",
    )
    node = {"metadata": {"name": lab.nodes[0], "annotations": {"more": "x" * 1500}}}
    whole = json.dumps(about | {"Nodes": {"items": [node] * 5000}}).encode()
    assert 7_500_000 < len(whole) < 8 * 1024 * 1024
    assert proxy.ask("filter", whole).status_code == 200
    for size in (8_900_000, 20_000_000):  # above Muster's own limit, and above nginx's
        assert proxy.ask("filter", b" " * size).status_code == 413
    assert proxy.ask("bind", body).status_code == 404


def test_a_kept_connection_that_ended_with_muster_is_no_error(proxy: Proxy) -> None:
    """nginx stands still while Muster is restarted, and meets the next call first. A 502 would be an error of the
    extender to kube-scheduler, which it passes over."""
    body = json.dumps({"Pod": {"metadata": {"uid": "u"}}, "Nodes": None, "NodeNames": ["x"]}).encode()
    with proxy.client() as client, ThreadPoolExecutor(1) as beside:
        assert call(client, "filter", body).status_code == 200
        proxy.signal(signal.SIGSTOP)
        try:
            later = beside.submit(call, client, "filter", body)
            proxy.lab.restart("muster-0")
        finally:
            proxy.signal(signal.SIGCONT)
        assert later.result().status_code == 200


@pytest.mark.unsound("half a gang is bound: nothing guards it, which is what this scenario shows")
def test_while_nginx_is_away_pods_are_bound_unguarded_and_the_schedulers_log_says_so(
    proxy: Proxy, lab: Lab, cluster: Cluster, namespace: str
) -> None:
    since = log_size(lab)
    proxy.stop()
    try:
        cluster.submit(job("train", 2, gpus=4), namespace=namespace)
        runs_whole(cluster, namespace, "train", 2)
        half_a_gang(lab, cluster, namespace, "loose")
        wait_until(lambda: placed(cluster, namespace, "loose"), what="half a gang is bound")
        assert re.search("connection refused", "".join(skipped(lab, since)))
    finally:
        proxy.start()
    half_a_gang_is_refused(lab, cluster, namespace)


def test_new_certificates_are_in_force_when_both_sides_have_been_restarted(
    proxy: Proxy, lab: Lab, cluster: Cluster, namespace: str
) -> None:
    since = log_size(lab)
    new_certificates(lab)
    proxy.stop()
    proxy.start()
    cluster.submit(job("between", 1, gpus=1), namespace=namespace)
    runs_whole(cluster, namespace, "between", 1)
    assert re.search("certificate signed by unknown authority", "".join(skipped(lab, since)))

    proxy.fetch("muster-extender-client", "client")
    lab.restart(SCHEDULER)
    since = log_size(lab)
    half_a_gang_is_refused(lab, cluster, namespace)
    assert skipped(lab, since) == []
