# Over 300 lines: the words of all scenarios stand in one place.
"""The words that scenarios are written in: jobs to submit, and what to wait for.

    def test_a_gang_starts_whole(cluster, namespace):
        cluster.submit(job("train", 4, gpus=8), namespace=namespace)
        wait_until(lambda: bound(cluster.pods(namespace, "train"), 4), what="train has four bound pods")

What must never be is no word of these: the referee (`e2e/referee`) watches every scenario."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import tenacity
import urllib3
import yaml

from e2e.cluster import Cluster, Json, Pod, Refused
from e2e.lab import Lab

T = TypeVar("T")

SCHEDULER = "muster"
PATIENCE = 120.0
"""Seconds until what is waited for is given up: a slow machine needs ten times what ours needs."""
SELDOM = 0.4
"""Seconds between two looks at what takes its time; each costs the processes of a lab some 5 ms."""
RUN_SECONDS = "e2e.muster.dev/run-seconds"
EXIT_CODE = "e2e.muster.dev/exit-code"
EXIT_ON_TERM = "e2e.muster.dev/exit-on-term"
STOP_SECONDS = "e2e.muster.dev/stop-seconds"
FOR_MUSTER: Json = {"spec": {"audiences": ["muster.dev"]}}
"""A TokenRequest for a reader's token."""
START_SECONDS = "e2e.muster.dev/start-seconds"


# --- what to submit -----------------------------------------------------------------------------------------


def template(
    *,
    gpus: int = 1,
    cpu: str = "1",
    memory: str = "1Gi",
    scheduler: str | None = SCHEDULER,
    job: str | None = None,
    role: str | None = None,
    roles: str | None = None,
    min_replicas: int | str | None = None,
    max_replicas: int | str | None = None,
    sizes: str | None = None,
    run_seconds: float | None = None,
    exit_code: int | None = None,
    exit_on_term: int | None = None,
    stop_seconds: float | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: str | None = None,
    node_selector: Mapping[str, str] | None = None,
    restart: str = "Never",
    **spec: Any,
) -> Json:
    """A pod template. `job` to `sizes` become muster.dev labels and annotations, `run_seconds` to
    `stop_seconds` say what kwok does with the pod, and anything else (`affinity=`, `tolerations=`) goes into
    the pod's spec as it is."""
    ours = {
        "muster.dev/role": role,
        "muster.dev/roles": roles,
        "muster.dev/min-replicas": min_replicas,
        "muster.dev/max-replicas": max_replicas,
        "muster.dev/sizes": sizes,
        RUN_SECONDS: run_seconds,
        EXIT_CODE: exit_code,
        EXIT_ON_TERM: exit_on_term,
        STOP_SECONDS: stop_seconds,
    }
    resources: dict[str, str] = {"cpu": cpu, "memory": memory}
    if gpus:
        resources["nvidia.com/gpu"] = str(gpus)
    pod_spec: Json = {
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 30,
        "containers": [
            {
                "name": "main",
                "image": "registry.invalid/none:1",
                "resources": {"requests": dict(resources), "limits": dict(resources)},
            }
        ],
    }
    if scheduler is not None:
        pod_spec["schedulerName"] = scheduler
    if priority is not None:
        pod_spec["priorityClassName"] = priority
    if node_selector is not None:
        pod_spec["nodeSelector"] = dict(node_selector)
    return {
        "metadata": {
            "labels": {**({"muster.dev/job": job} if job else {}), **(labels or {})},
            "annotations": {
                **{key: str(value) for key, value in ours.items() if value is not None},
                **(annotations or {}),
            },
        },
        "spec": {**pod_spec, **spec},
    }


def pod(name: str, **what: Any) -> Json:
    """A bare pod; `what` as for `template`."""
    body = template(**what)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **body["metadata"]},
        "spec": body["spec"],
    }


def job(
    name: str,
    replicas: int,
    *,
    indexed: bool = True,
    completions: int | None = None,
    backoff_limit: int | None = None,
    success_on: str | None = None,
    job_spec: Mapping[str, Any] | None = None,
    **what: Any,
) -> Json:
    """A batch/v1 Job of `replicas` parallel pods. `success_on="0"`: its successPolicy, so that it may be
    elastic."""
    spec: Json = {"parallelism": replicas, "template": template(**what)}
    if indexed:
        spec |= {"completionMode": "Indexed", "completions": replicas if completions is None else completions}
    elif completions is not None:
        spec["completions"] = completions
    if backoff_limit is not None:
        spec["backoffLimit"] = backoff_limit
    if success_on is not None:
        spec["successPolicy"] = {"rules": [{"succeededIndexes": success_on}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": spec | dict(job_spec or {}),
    }


def stateful_set(name: str, replicas: int, *, ordered: bool = False, **what: Any) -> Json:
    """A StatefulSet; `ordered` is OrderedReady, which makes each pod wait for the one before it."""
    labels = {**(what.pop("labels", None) or {}), "app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "OrderedReady" if ordered else "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": template(labels=labels, restart="Always", **what),
        },
    }


def deployment(name: str, replicas: int, **what: Any) -> Json:
    labels = {**(what.pop("labels", None) or {}), "app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(labels=labels, restart="Always", **what),
        },
    }


def priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


# --- what to wait for ---------------------------------------------------------------------------------------


def wait_until(
    predicate: Callable[[], T | None],
    *,
    within: float = PATIENCE,
    what: str,
    also: Callable[[], object] | None = None,
) -> T:
    """Poll until the predicate is true; what it returned. AssertionError after `within` seconds, saying what
    was waited for, what the predicate said last, and what `also` (pods, a log) shows. A refused call counts
    as not yet."""
    last: list[object] = [None]

    def attempt() -> T | None:
        try:
            value = predicate()
        except Refused as refused:
            last[0] = refused
            raise tenacity.TryAgain from refused
        last[0] = value
        return value

    try:
        found = tenacity.Retrying(
            stop=tenacity.stop_after_delay(within),
            wait=tenacity.wait_exponential(multiplier=0.05, max=SELDOM),
            retry=tenacity.retry_if_result(lambda value: not value),
        )(attempt)
        assert found is not None
        return found
    except tenacity.RetryError:
        pass
    shown = "" if also is None else f"\n{also()}"
    raise AssertionError(f"not within {within:.0f} s: {what}; at the end: {last[0]!r}{shown}")


@contextlib.contextmanager
def looking(
    look: Callable[[], object], every: float, unless: Callable[[Exception], bool] = lambda _: False
) -> Iterator[None]:
    """`look` is called every so many seconds, from a thread of its own, while the scenario goes on.

    What it raises ends the looking, and the scenario with it: a referee that saw nothing has found nothing. A
    scenario that takes the API server away on purpose says so by `unless` (which errors are looks not taken; for
    one: `nobody_answers`)."""
    over = threading.Event()
    blind: list[Exception] = []

    def go_on() -> None:
        while not blind and not over.wait(every):
            try:
                look()
            except Exception as error:
                if not unless(error):
                    blind.append(error)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    except BaseException as error:
        if blind:  # what is waited for may need the look
            error.add_note(f"nobody looked any more: {blind[0]!r}")
        raise
    finally:
        over.set()
        thread.join(timeout=300)
    assert not thread.is_alive(), "the look that was under way at the end has no answer after 300 s"
    if blind:
        raise AssertionError(f"nobody looked from here on: {blind[0]!r}") from blind[0]


def nobody_answers(error: Exception) -> bool:
    """Whether this is an API server that is away, paused or not ready yet."""
    if isinstance(error, Refused):
        return error.status >= 500
    return isinstance(error, urllib3.exceptions.HTTPError | OSError)


def holds_for(predicate: Callable[[], object], *, seconds: float, what: str) -> None:
    """AssertionError as soon as the predicate is false within `seconds`; for what must not happen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = predicate()
        assert value, f"did not hold for {seconds:.0f} s: {what}; found {value!r}"
        time.sleep(0.2)


def planned_after(cluster: Cluster, namespace: str = "default") -> None:
    """Return when Muster has planned with all that was on the API when this was called, and has written what came of
    it: what has not happened by then does not happen. `assert` after it, once, instead of looking for seconds.

    A pod of ours that nobody can place is created, and the plan that knows it is told last of all. It asks for no
    GPU, so it is no part of any share, and what never fits blocks nobody, in strict order too. It needs a Muster
    that runs and leads, and a namespace that is Muster's."""
    name = f"planned-{uuid.uuid4().hex[:8]}"
    cluster.submit(
        pod(name, gpus=0, cpu="1m", memory="1Mi", node_selector={"e2e.muster.dev/nowhere": "true"}),
        namespace=namespace,
    )
    try:
        wait_until(
            lambda: in_state(cluster, namespace, f"pod-{name}", "Waiting"),
            what="Muster has planned since",
            also=lambda: str(cluster.gangs(namespace).get(f"pod-{name}")),
        )
    finally:
        with contextlib.suppress(Refused):
            cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds="0")


def stays(
    cluster: Cluster,
    predicate: Callable[[], object],
    *,
    what: str,
    also: Callable[[], object] | None = None,
) -> None:
    """AssertionError unless the predicate is true after a plan that is newer than all that has happened so far; it
    shows `also` (pods, Gangs)."""
    planned_after(cluster)
    value = predicate()
    shown = "" if also is None else f"\n{also()}"
    assert value, f"not so after a newer plan: {what}; found {value!r}{shown}"


def comes_to_hold(
    predicate: Callable[[], object],
    *,
    seconds: float,
    what: str,
    also: Callable[[], object] | None = None,
) -> None:
    """Wait until the predicate has been true for so many seconds without a break: where something may still be on
    its way when it is told that all is decided."""
    since: list[float] = []

    def held() -> bool:
        if not predicate():
            since.clear()
            return False
        since.append(time.monotonic())
        return since[-1] - since[0] >= seconds

    wait_until(held, what=f"{what}, for {seconds:.0f} s", also=also)


@contextlib.contextmanager
def seen_at_once(lab: Lab) -> Iterator[None]:
    """Muster stands still inside of the block, and then sees at once what has happened: for what controllers do, pod
    by pod, it would plan in as many steps as they happen to take."""
    lab.pause("muster-0")
    try:
        yield
    finally:
        lab.resume("muster-0")


def delete_job(cluster: Cluster, namespace: str, name: str) -> None:
    cluster.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", propagationPolicy="Background")


def made(cluster: Cluster, namespace: str, name: str) -> set[str]:
    """Names of all pods that the Job's controller has made so far, as its Events say: who looks at pods may look too
    seldom."""
    return {
        event["message"].rpartition(" ")[2]
        for event in cluster.events(namespace, name)
        if event["reason"] == "SuccessfulCreate"
    }


TURN = re.compile(r"; (?:position \d+ in the queue|expected (?:start|to start)).*")


def but_missing(sentences: Iterable[str]) -> list[str]:
    """Without what is said while not all pods are there: that depends on how long their creators take between two;
    and without the turn at that moment, which depends on all other jobs."""
    return [TURN.sub("", sentence) for sentence in sentences if not sentence.startswith("PodsMissing: ")]


def bound(pods: Iterable[Pod], count: int | None = None) -> list[Pod]:
    """The living pods that have a node; [] unless they are `count` where a count is given."""
    found = [one for one in pods if one.node and not one.terminal and not one.deleted]
    return found if count is None or len(found) == count else []


def gated(pods: Iterable[Pod]) -> list[Pod]:
    """The living pods that wait behind our gate."""
    return [one for one in pods if one.gated and not one.deleted]


def show(pods: Iterable[Pod]) -> str:
    """One line a pod, for `also=`."""
    return "\n".join(str(one) for one in pods) or "no pods"


def gang(cluster: Cluster, namespace: str, name: str) -> Json:
    """The status of a job's Gang ("job-train" for Job train); {} while there is none."""
    found: Json = (cluster.gangs(namespace).get(name) or {}).get("status") or {}
    return found


def in_state(cluster: Cluster, namespace: str, name: str, state: str) -> Json:
    """The job's Gang status if it says this state, else {}; for wait_until."""
    status = gang(cluster, namespace, name)
    return status if status.get("state") == state else {}


def said(cluster: Cluster, namespace: str, about: str) -> list[str]:
    """What Muster's Events say of one object (a pod, a Job), as "Reason: message", oldest first."""
    return [
        f"{event['reason']}: {event['message']}"
        for event in cluster.events(namespace, about)
        if event.get("source", {}).get("component") == "muster"  # kube-scheduler reports by its schedulerName
    ]


def gang_versions(cluster: Cluster, namespace: str) -> dict[str, str]:
    """resourceVersion of each Gang."""
    return {name: found["metadata"]["resourceVersion"] for name, found in cluster.gangs(namespace).items()}


def pod_versions(cluster: Cluster, namespace: str) -> dict[str, str]:
    """resourceVersion of each pod, once the node has nothing more to tell of those that it runs."""

    def settled() -> list[Pod]:
        pods = cluster.pods(namespace)
        ready = [one.condition("Ready") for one in pods if one.node]
        return pods if all(found and found["status"] == "True" for found in ready) else []

    pods = wait_until(settled, what="bound pods are ready", also=lambda: show(cluster.pods(namespace)))
    return {one.name: one.raw["metadata"]["resourceVersion"] for one in pods}


def ends_now(cluster: Cluster, *pods: Pod, exit_code: int = 0) -> None:
    """Their processes end by themselves. (By `run_seconds` they do whether a scenario on a slow machine has seen them
    run or not.)"""
    notes = {"metadata": {"annotations": {RUN_SECONDS: "0", EXIT_CODE: str(exit_code)}}}
    for one in pods:
        cluster.patch(f"/api/v1/namespaces/{one.namespace}/pods/{one.name}", notes)


def lets_go(cluster: Cluster, *pods: Pod) -> None:
    """Pods that are deleted, now or later, end at once, though they said by `stop_seconds` that they would take
    longer: so long a scenario may look at them."""
    for one in pods:
        try:
            path = f"/api/v1/namespaces/{one.namespace}/pods/{one.name}"
            cluster.patch(path, {"metadata": {"annotations": {STOP_SECONDS: "0"}}})
        except Refused as refused:
            if refused.status != 404:
                raise


def scheduled_at(one: Pod) -> str:
    """When kube-scheduler bound the pod (whole seconds, sorts as text); "" while it has not."""
    condition = one.condition("PodScheduled")
    return str(condition["lastTransitionTime"]) if condition and condition["status"] == "True" else ""


def on_node(*names: str) -> Json:
    """A node affinity that allows these nodes only: room of a size that the scenario chooses."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(names)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@contextlib.contextmanager
def configured(lab: Lab, **changes: object) -> Iterator[None]:
    """Muster runs with other settings (`order="strict"`), taken up from its file without a restart."""
    file = lab.folder / "config" / "muster-0.yaml"
    before = file.read_text()
    try:
        _reload(lab, file, yaml.safe_dump(yaml.safe_load(before) | changes, sort_keys=False))
        yield
    finally:
        _reload(lab, file, before)


def _reload(lab: Lab, file: Path, text: str) -> None:
    if text == file.read_text():
        return
    seen = lab.log("muster-0").stat().st_size
    lab.write_configuration(text)
    wanted = {"profile": "fifo", "order": "backfill"} | yaml.safe_load(text)
    told = f"profile {wanted['profile']}, order {wanted['order']} now in force"  # no word of an earlier one's
    wait_until(
        lambda: told.encode() in lab.log("muster-0").read_bytes()[seen:] or not lab.alive("muster-0"),
        what="muster has read its changed configuration",
    )


def rewrite(file: Path, text: str) -> None:
    """At once, as the kubelet changes a ConfigMap's files: whoever reads it gets the old or the new one, and never an
    empty one, which would mean defaults."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.replace(file)


def waits_because(cluster: Cluster, namespace: str, name: str, message: str) -> None:
    """Its Gang is Waiting, with this message."""
    wait_until(
        lambda: in_state(cluster, namespace, name, "Waiting").get("message") == message,
        what=f"{name} waits: {message}",
        also=lambda: str(cluster.gangs(namespace)),
    )


def comes_ungated(cluster: Cluster) -> None:
    """A pod created now gets no gate: the API server follows its policies with a delay of its own."""
    wait_until(
        lambda: "schedulingGates" not in cluster.submit(pod("probe", gpus=1), dry_run=True)[0]["spec"],
        what="the API server gates nothing any more",
    )


def runs_whole(
    cluster: Cluster, namespace: str, name: str, replicas: int, within: float = PATIENCE
) -> list[Pod]:
    """All replicas are bound, and the Gang says Running."""
    found = wait_until(
        lambda: bound(cluster.pods(namespace, name), replicas),
        within=within,
        what=f"{name} has {replicas} bound pods",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    wait_until(
        lambda: in_state(cluster, namespace, f"job-{name}", "Running"),
        what=f"the Gang of {name} is Running",
        also=lambda: str(cluster.gangs(namespace)),
    )
    return found


@contextlib.contextmanager
def a_namespace(cluster: Cluster, prefix: str, within: float = 180.0) -> Iterator[str]:
    """A namespace that is gone afterwards, with all jobs and pods in it."""
    made = cluster.submit(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{prefix}-"}}
    )
    name: str = made[0]["metadata"]["name"]
    wait_until(
        lambda: cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
        within=60,
        what=f"service account default in namespace {name}",
    )
    try:
        yield name
    finally:
        # Who comes next gets an empty cluster.
        with contextlib.suppress(Refused):
            cluster.delete(f"/apis/batch/v1/namespaces/{name}/jobs", propagationPolicy="Background")
            cluster.delete(f"/api/v1/namespaces/{name}")
    wait_until(lambda: not cluster.pods(name), within=within, what=f"the pods of namespace {name} are gone")
