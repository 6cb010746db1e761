"""The checks, each of one thing: what was found, and what to do. ClusterError where the caller may not look."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import urllib3

from muster import gangs
from muster.cluster.api import message
from muster.core.reasons.words import plural
from muster.doctor import rights
from muster.doctor.admission import admission
from muster.doctor.finding import Finding, fail, fine, listed, may_not, warn
from muster.doctor.gpu_products import products
from muster.doctor.node_use import use
from muster.doctor.patient import Json, Patient, ask
from muster.doctor.shared_nodes import nodes
from muster.doctor.unread import unread
from muster.errors import ClusterError

OLDEST, NEWEST = 34, 37
"""Minors of Kubernetes 1 that are supported (the chart's kubeVersion)."""
MINOR = re.compile(r"v?1\.(\d+)\.")
PATIENCE = 5.0
"""Seconds for an answer of the service port."""


def kubernetes(patient: Patient) -> Iterator[Finding]:
    """The API server's version."""
    yield _supported(*_version(patient), fail)


def kubernetes_version(patient: Patient) -> Iterator[Finding]:
    """The API server's version, before Muster starts. Only one that is too old keeps it from starting: a control
    plane is upgraded before the nodes, and whoever moves then would never start again."""
    told, minor = _version(patient)
    yield _supported(told, minor, fail if minor is not None and minor < OLDEST else warn)


def _version(patient: Patient) -> tuple[str, int | None]:
    told = str(ask(patient.api, "GET", "/version").get("gitVersion", ""))
    return told, _minor(told)


def _supported(told: str, minor: int | None, bad: Callable[[str, str, str], Finding]) -> Finding:
    span = f"1.{OLDEST} to 1.{NEWEST}"
    if minor is None or not OLDEST <= minor <= NEWEST:
        return bad("kubernetes", f"{told} is not supported: {span} are", "take a Muster that supports it")
    return fine("kubernetes", f"{told}; {span} are supported")


def programs(patient: Patient) -> Iterator[Finding]:
    """Muster's pods: there, ready, and of versions that go together."""
    where = f"deployment/{patient.release} in {patient.namespace}"
    found = patient.own("apps/v1", "deployments", patient.release)
    if found is None:
        yield warn(
            "muster",
            f"there is no {where}: the chart was installed with replicas: 0, or under another name",
            "helm list -A shows the release: give --namespace and --release",
        )
        return
    wanted = int(found.get("spec", {}).get("replicas", 1))
    ready = int(found.get("status", {}).get("readyReplicas", 0))
    logs = f"kubectl -n {patient.namespace} describe pods -l app.kubernetes.io/instance={patient.release}"
    if ready == 0:
        yield fail("muster", f"none of {plural(wanted, 'replica')} of {where} is ready: nothing starts", logs)
    elif ready < wanted:
        yield warn("muster", f"{ready} of {plural(wanted, 'replica')} of {where} are ready", logs)
    else:
        yield fine("muster", f"{plural(wanted, 'replica')} of {where} ready")
    yield from _versions(patient, _images(found))


def _versions(patient: Patient, images: Mapping[str, str]) -> Iterator[Finding]:
    tag = _tag(images.get("muster", ""))
    if tag and patient.version and tag != patient.version:
        yield warn(
            "versions",
            f"this program is {patient.version}, the cluster's muster is {tag}: what they say of a job may differ",
            f"use the `muster` of {tag}",
        )
    scheduler = _minor(_tag(images.get("kube-scheduler", "")))
    server = _minor(str(ask(patient.api, "GET", "/version").get("gitVersion", "")))
    if scheduler is None or server is None:
        return
    upgrade = "run helm upgrade: kube-scheduler's tag follows the cluster where scheduler.image.tag is empty"
    said = f"kube-scheduler is 1.{scheduler}, the API server 1.{server}"
    if scheduler > server:
        yield fail("versions", f"{said}: Kubernetes does not support a newer scheduler", upgrade)
    elif scheduler < server - 1:
        yield warn("versions", f"{said}: more than one minor behind is not supported", upgrade)
    else:
        yield fine("versions", said)


def leader(patient: Patient) -> Iterator[Finding]:
    """Somebody holds the Lease: only who does acts."""
    name = patient.settings.leader.lease
    found = patient.own("coordination.k8s.io/v1", "leases", name)
    spec = (found or {}).get("spec", {})
    logs = f"kubectl -n {patient.namespace} logs deployment/{patient.release} --all-containers"
    if not spec.get("holderIdentity"):
        yield fail("leader", f"nobody holds the Lease {name} in {patient.namespace}: nothing starts", logs)
        return
    age = time.time() - datetime.fromisoformat(spec["renewTime"]).timestamp()
    if age > 2 * float(spec.get("leaseDurationSeconds", 15)):
        yield fail("leader", f"the Lease {name} was last renewed {age:.0f} s ago: nothing starts", logs)
    else:
        yield fine("leader", f"{spec['holderIdentity'].partition('_')[0]} holds the Lease {name}")


def account(patient: Patient) -> Iterator[Finding]:
    """What Muster's own account may."""
    found = patient.own("apps/v1", "deployments", patient.release) or {}
    pod = found.get("spec", {}).get("template", {}).get("spec", {})
    name = str(pod.get("serviceAccountName") or patient.release)
    yield _rights(f"the account {name}", rights.lacking(patient, name), patient)


def own_account(patient: Patient) -> Iterator[Finding]:
    """What the caller may, who is Muster itself before it starts."""
    yield _rights("this account", rights.lacking(patient, ""), patient)


def _rights(who: str, missing: Sequence[str], patient: Patient) -> Finding:
    if missing:
        do = f"helm upgrade {patient.release} puts its roles back"
        return fail("rights", f"{who} may not {listed(missing)}", do)
    return fine("rights", f"{who} may what it has to")


def definition(patient: Patient) -> Iterator[Finding]:
    """Gangs are served in the version that this Muster writes."""
    try:
        served = ask(patient.api, "GET", "/apis/muster.dev/v1alpha1")
    except ClusterError as error:
        if error.status != 404:
            raise
        served = {}
    if any(one.get("name") == "gangs" for one in served.get("resources") or ()):
        yield fine("gangs", "gangs.muster.dev/v1alpha1 is served")
    else:
        yield fail(
            "gangs",
            "the API server serves no gangs.muster.dev/v1alpha1: nothing can be recorded",
            f"helm upgrade {patient.release} puts the definition back",
        )


def port(patient: Patient) -> Iterator[Finding]:
    """The service port: reports of training, the page, metrics."""
    scheme = "https" if patient.settings.tls is not None else "http"
    if patient.url:
        where = f"{patient.url}/readyz"
        status, said = _fetch(where)
    else:
        service = f"{scheme}:{patient.release}:service"
        where = f"/api/v1/namespaces/{patient.namespace}/services/{service}/proxy/readyz"
        status, data = patient.api.request("GET", where)
        said = message(data) if status != 200 else ""
        if status == 403 and "is forbidden: User" in said:
            yield may_not("report port", said)
            return
    if status == 200:
        yield fine("report port", f"{where} answers")
    else:
        yield fail(
            "report port",
            f"{where}: {said or status}: training can't report, and no page is served",
            f"kubectl -n {patient.namespace} get endpoints {patient.release}; a NetworkPolicy may be in between",
        )


def _fetch(url: str) -> tuple[int, str]:
    """Who signed is not asked: it is about reaching it."""
    try:
        with urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False) as pool:
            answer = pool.request("GET", url, timeout=PATIENCE, retries=False)
            return answer.status, answer.data.decode("utf-8", "replace")[:200].strip()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        return 0, str(error)


def quarantine(patient: Patient) -> Iterator[Finding]:
    """Jobs that were put aside over an error of Muster's own."""
    aside = [
        f"{gangs.namespace(one)}/{gangs.job(one)}"
        for one in patient.every("muster.dev/v1alpha1", "gangs")
        if (gangs.state(one), gangs.text(one, "reason")) == ("Invalid", "Internal")
    ]
    if aside:
        yield fail(
            "put aside",
            f"{plural(len(aside), 'job')} over an error of Muster's own: {listed(sorted(aside))}",
            f"kubectl -n {patient.namespace} logs deployment/{patient.release} -c muster shows the error once: "
            "report it. None of them starts; what runs of them goes on",
        )
    else:
        yield fine("put aside", "no job")


CHECKS: Sequence[Callable[[Patient], Iterator[Finding]]] = (
    kubernetes,
    programs,
    leader,
    admission,
    account,
    nodes,
    port,
    use,
    products,
    unread,
    quarantine,
)
"""In the order in which they are told."""

BEFORE_START: Sequence[Callable[[Patient], Iterator[Finding]]] = (kubernetes_version, definition, own_account)
"""Those that Muster's own account can ask before it starts: what fails there would fail at each of its cycles."""


def _images(deployment: Json) -> dict[str, str]:
    pod = deployment.get("spec", {}).get("template", {}).get("spec", {})
    return {one["name"]: one["image"] for one in (*pod.get("initContainers", ()), *pod.get("containers", ()))}


def _tag(image: str) -> str:
    """ "" of an image by digest."""
    return "" if "@" in image else image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else ""


def _minor(version: str) -> int | None:
    found = MINOR.match(version)
    return int(found[1]) if found else None
