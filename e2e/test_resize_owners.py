# Over 300 lines: each kind of owner grows and shrinks, in the same steps.
"""Growing and shrinking, for every kind of owner that Kubernetes brings along: nothing is counted as failed, nothing
is run twice, nobody fights. Owners of real operators: test_operators*.py.

Each kind has a node of its own (8 GPUs) with four replicas of two, and a rival takes half of that node and gives it
back, again and again. GPUs are shared evenly (max-min), so a round is one shrink from 4 to 2 and one growth back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import only, shared_by
from e2e.lab import Lab
from e2e.scenario import (
    bound,
    comes_to_hold,
    configured,
    deployment,
    ends_now,
    gang,
    gated,
    holds_for,
    in_state,
    job,
    looking,
    on_node,
    pod,
    priority_class,
    said,
    show,
    stateful_set,
    stays,
    wait_until,
)

pytestmark = pytest.mark.lab

ROUNDS = 10
WHOLE, HALF = 4, 2
BACK_OFF = 9.0
"""Seconds: the Job controller's shortest back-off is 10, and doubles, so what is mostly back before was counted as
nothing. (Mostly: any process of a busy machine may stand still for seconds. That nothing at all was counted says
`verdict`.)"""
INDEX_KEYS = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")


@pytest.fixture(autouse=True)
def evenly(lab: Lab) -> Iterator[None]:
    with shared_by(lab, "max-min", estimate="declared"):
        yield


# --- what is submitted, what is watched ---------------------------------------------------------------------


def elastic(app: str, node: str, **what: Any) -> dict[str, Any]:
    """Of a pod template: two GPUs, one to four replicas, on this node only."""
    ours = {
        "gpus": 2,
        "min_replicas": 1,
        "max_replicas": WHOLE,
        "affinity": on_node(node),
        "labels": {"app": app},
    }
    return ours | what


def of(cluster: Cluster, namespace: str, app: str) -> list[Pod]:
    return cluster.pods(namespace, labels=f"app={app}")


def index(one: Pod) -> int:
    """Its index, -1 where its owner gives it none."""
    found = (one.labels.get(key) or one.annotations.get(key) for key in INDEX_KEYS)
    return int(next((text for text in found if text), "-1"))


def job_status(cluster: Cluster, namespace: str, name: str) -> Json:
    found: Json = cluster.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")["status"]
    return found


def verdict(cluster: Cluster, namespace: str, name: str) -> list[object]:
    """What a Job's controller holds of it: failed and succeeded pods, completed indexes, what it is over by."""
    status = job_status(cluster, namespace, name)
    over = [condition["type"] for condition in status.get("conditions", [])]
    return [status.get("failed", 0), status.get("succeeded", 0), status.get("completedIndexes", ""), over]


UNTOUCHED: list[object] = [0, 0, "", []]


@dataclass
class Course:
    """What is polled of some apps while they grow and shrink: for how long each was short of a pod (s), and the
    uids that each index had."""

    cluster: Cluster
    namespace: str
    sizes: Mapping[str, int]
    short: dict[str, list[float]] = field(default_factory=dict)
    uids: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    def sees(self, pods: Mapping[str, list[Pod]]) -> None:
        """Replicas that the scenario has found: a slow look may miss a whole round."""
        for app, found in pods.items():
            for one in found:
                self.uids.setdefault((app, index(one)), set()).add(one.uid)

    def look(self) -> None:
        now = time.monotonic()
        living: dict[str, int] = dict.fromkeys(self.sizes, 0)
        for one in self.cluster.pods(self.namespace):
            app = one.labels.get("app", "")
            if app in living and not one.deleted and not one.terminal:
                living[app] += 1
                self.uids.setdefault((app, index(one)), set()).add(one.uid)
        for app, count in living.items():
            if count < self.sizes[app]:
                self._since.setdefault(app, now)
            elif app in self._since:
                self.short.setdefault(app, []).append(now - self._since.pop(app))


@contextlib.contextmanager
def watched(cluster: Cluster, namespace: str, sizes: Mapping[str, int]) -> Iterator[Course]:
    course = Course(Cluster(cluster.kubeconfig), namespace, sizes)
    with looking(course.look, 0.05):
        yield course


def have(cluster: Cluster, namespace: str, apps: Mapping[str, str], count: int) -> dict[str, list[Pod]]:
    """Bound replicas of each app, once each has exactly so many; indexed ones are a prefix then."""

    def all_have() -> dict[str, list[Pod]]:
        found = {app: bound(of(cluster, namespace, app), count) for app in apps}
        return found if all(found.values()) else {}

    found = wait_until(
        all_have,
        within=180,
        what=f"each of {', '.join(apps)} has {count} bound replicas",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    for app, pods in found.items():
        running = sorted(index(one) for one in pods)
        assert running in ([-1] * count, list(range(count))), f"{app} runs no prefix: {show(pods)}"
    return found


def rival(app: str, node: str) -> Json:
    return pod(f"rival-of-{app}", gpus=4, affinity=on_node(node))


def rounds(cluster: Cluster, namespace: str, apps: Mapping[str, str], count: int) -> Course:
    """So many times each app gives half of its node (apps: by name) to a rival, and gets it back."""
    first = have(cluster, namespace, apps, WHOLE)
    with watched(cluster, namespace, dict.fromkeys(apps, WHOLE)) as course:
        course.sees(first)
        for _ in range(count):
            rivals = [rival(app, node) for app, node in apps.items()]
            cluster.submit(*rivals, namespace=namespace)
            course.sees(have(cluster, namespace, apps, HALF))
            wait_until(
                lambda: all((one := cluster.pod(namespace, f"rival-of-{app}")) and one.node for app in apps),
                what="every rival runs",
                also=lambda: show(cluster.pods(namespace)),
            )
            for manifest in rivals:
                cluster.delete(f"/api/v1/namespaces/{namespace}/pods/{manifest['metadata']['name']}")
            last = have(cluster, namespace, apps, WHOLE)
            course.sees(last)
            wait_until(
                lambda: all(cluster.pod(namespace, f"rival-of-{app}") is None for app in apps),
                what="every rival is gone",
            )
    for app in apps:
        spans = course.short.get(app, [])
        print(f"{app}: short of pods for {', '.join(f'{span:.2f}' for span in spans)} s")
        assert not spans or median(spans) < BACK_OFF, f"{app}: replacements came after {spans} s"
        replicas = sum(len(uids) for (name, _), uids in course.uids.items() if name == app)
        assert replicas == WHOLE + count * (WHOLE - HALF), f"{app} had {replicas} pods in {count} rounds"
        indexed = sorted(i for name, i in course.uids if name == app)
        if indexed != [-1]:
            assert indexed == list(range(WHOLE)), f"{app}: {indexed}"
            stayed = {i for i in indexed if len(course.uids[app, i]) == 1}
            assert stayed == {0, 1}, (
                f"{app}: only the highest indexes leave, and each time; {stayed} never did"
            )
            before = {index(one): one.uid for one in first[app]}
            assert {index(one): one.uid for one in last[app]}.items() >= {(i, before[i]) for i in stayed}
    return course


def nodes_for(lab: Lab, cluster: Cluster, *apps: str) -> dict[str, str]:
    """A node for each app; the others are cordoned."""
    found = dict(zip(apps, lab.nodes, strict=False))
    only(lab, cluster, *found.values())
    return found


def completes(cluster: Cluster, namespace: str, name: str) -> Json:
    def status() -> Json:
        found = job_status(cluster, namespace, name)
        over = any(c["type"] == "Complete" and c["status"] == "True" for c in found.get("conditions", []))
        return found if over else {}

    return wait_until(
        status,
        what=f"Job {name} is complete",
        also=lambda: f"{job_status(cluster, namespace, name)}\n{show(cluster.pods(namespace))}",
    )


# --- the kinds that Kubernetes brings along -----------------------------------------------------------------


def test_ten_shrinks_and_growths_of_every_kind_count_as_nothing(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Exit codes of evicted workers differ on purpose: 143, 0, 1, and killed after the grace period."""
    ignore = {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 137, 143]}},
        ]
    }
    nodes = nodes_for(lab, cluster, "plain", "killed", "policy", "perindex", "queue", "set", "deploy")

    def what(app: str, **more: Any) -> dict[str, Any]:
        return elastic(app, nodes[app], **more)

    cluster.submit(
        job("plain", WHOLE, success_on="0", backoff_limit=0, **what("plain", exit_on_term=0)),
        job(
            "killed",
            WHOLE,
            success_on="0",
            backoff_limit=0,
            **what("killed", exit_on_term=137, stop_seconds=1, terminationGracePeriodSeconds=1),
        ),
        job(
            "policy",
            WHOLE,
            success_on="0",
            backoff_limit=6,
            job_spec={"podFailurePolicy": ignore},
            **what("policy", exit_on_term=1),
        ),
        job(
            "perindex",
            WHOLE,
            success_on="0",
            job_spec={"backoffLimitPerIndex": 0, "maxFailedIndexes": 0},
            **what("perindex"),
        ),
        job("queue", WHOLE, indexed=False, backoff_limit=0, **what("queue", exit_on_term=0)),
        stateful_set("set", WHOLE, **what("set", exit_on_term=137, stop_seconds=1)),
        deployment("deploy", WHOLE, **what("deploy", exit_on_term=0)),
        namespace=namespace,
    )
    rounds(cluster, namespace, nodes, ROUNDS)
    for name in ("plain", "killed", "policy", "perindex", "queue"):
        assert verdict(cluster, namespace, name) == UNTOUCHED, name
    assert job_status(cluster, namespace, "perindex").get("failedIndexes", "") == ""
    # And they end well: by the leader's index, with the others running; a work queue by any replica.
    for name in ("plain", "killed", "policy", "perindex"):
        leader = next(one for one in of(cluster, namespace, name) if index(one) == 0)
        ends_now(cluster, leader)
        status = completes(cluster, namespace, name)
        if (
            name == "plain"
        ):  # the others exit with 0 when they are ended: Job's controller may count some, too
            assert status["completedIndexes"].startswith("0"), status
        else:
            assert (status["succeeded"], status["completedIndexes"]) == (1, "0"), name
    for one in bound(of(cluster, namespace, "queue")):
        ends_now(cluster, one)
    assert completes(cluster, namespace, "queue")["succeeded"] == WHOLE


RIGID: dict[str, tuple[list[Json], str, str]] = {
    "indexed": (
        [job("fixed", WHOLE, **elastic("fixed", "node-00"))],
        "job-fixed",
        "Job fixed is Indexed without a successPolicy, so it would wait for ever for replicas that never run; "
        "a successPolicy on the leader's index makes it elastic",
    ),
    "bare": (
        [pod(f"fixed-{i}", job="fixed", **elastic("fixed", "node-00")) for i in range(WHOLE)],
        "fixed",
        'pods without an owner that would create them again are not ended; muster.dev/evictable: "true" on them '
        "allows it",
    ),
}


@pytest.mark.parametrize("kind", RIGID)
def test_a_job_that_eviction_would_hurt_keeps_its_size_and_says_why(
    lab: Lab, cluster: Cluster, namespace: str, kind: str
) -> None:
    only(lab, cluster, "node-00")
    manifests, name, why = RIGID[kind]
    cluster.submit(*manifests, namespace=namespace)
    nodes = {"fixed": "node-00"}
    before = {one.uid for one in have(cluster, namespace, nodes, WHOLE)["fixed"]}
    cluster.submit(rival("fixed", "node-00"), namespace=namespace)
    wait_until(
        lambda: gang(cluster, namespace, name).get("keeps") == why,
        what="its Gang says why it has one size",
        also=lambda: str(cluster.gangs(namespace)),
    )
    holds_for(
        lambda: {one.uid for one in bound(of(cluster, namespace, "fixed"))} == before,
        seconds=3,
        what="all of it stays",
    )


# --- users and autoscalers change the owner's size ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["deployments", "statefulsets", "jobs"])
def test_a_size_that_somebody_else_sets_is_respected(
    lab: Lab, cluster: Cluster, namespace: str, kind: str
) -> None:
    """As an HPA does: through the scale subresource, where there is one."""
    nodes = nodes_for(lab, cluster, "app")
    make: dict[str, Callable[..., Json]] = {
        "deployments": lambda **what: deployment("app", WHOLE, **what),
        "statefulsets": lambda **what: stateful_set("app", WHOLE, **what),
        "jobs": lambda **what: job("app", WHOLE, indexed=False, **what),
    }
    cluster.submit(make[kind](**elastic("app", nodes["app"])), namespace=namespace)
    have(cluster, namespace, nodes, WHOLE)
    cluster.submit(rival("app", nodes["app"]), namespace=namespace)
    have(cluster, namespace, nodes, HALF)

    def scale(size: int) -> None:
        if kind == "jobs":
            path, spec = f"/apis/batch/v1/namespaces/{namespace}/jobs/app", {"parallelism": size}
        else:
            path, spec = f"/apis/apps/v1/namespaces/{namespace}/{kind}/app/scale", {"replicas": size}
        cluster.patch(path, {"spec": spec})

    scale(1)
    have(cluster, namespace, nodes, 1)
    wait_until(lambda: len(of(cluster, namespace, "app")) == 1, what="the owner has one pod")
    scale(3)  # what its node has room for is two; the third waits, and is one of the job's
    have(cluster, namespace, nodes, HALF)
    wait_until(lambda: len(gated(of(cluster, namespace, "app"))) == 1, what="the third waits")
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/rival-of-app")
    have(cluster, namespace, nodes, 3)
    stays(cluster, lambda: len(of(cluster, namespace, "app")) == 3, what="no more than were asked for")


def autoscaler(kind: str, name: str, least: int, most: int) -> Json:
    """Without a metrics API an HPA does one thing: it keeps its target between these two."""
    target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"hpa-of-{name}"},
        "spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most},
    }


def rescaled(cluster: Cluster, namespace: str, name: str) -> set[str]:
    """What kube-controller-manager's controller did by its HPA, in its own words."""
    return {
        event["message"]
        for event in cluster.events(namespace, f"hpa-of-{name}")
        if event["reason"] == "SuccessfulRescale"
    }


def test_a_horizontal_pod_autoscaler_sets_the_size_and_muster_shares_within_it(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """The real controller, which looks every 3 s in the lab. It counts what the owner asks for, not what Muster lets
    run, so a share below that is nothing to it; and Muster never writes to the owner."""
    nodes = nodes_for(lab, cluster, "set", "deploy")
    kinds = {"set": "StatefulSet", "deploy": "Deployment"}
    cluster.submit(
        stateful_set("set", HALF, **elastic("set", nodes["set"])),
        deployment("deploy", HALF, **elastic("deploy", nodes["deploy"])),
        *(autoscaler(kind, name, WHOLE, WHOLE) for name, kind in kinds.items()),
        namespace=namespace,
    )

    def bounds(size: int) -> None:
        for name in kinds:
            path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/hpa-of-{name}"
            cluster.patch(path, {"spec": {"minReplicas": size, "maxReplicas": size}})

    def asked() -> dict[str, int]:
        return {
            name: cluster.get(f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s/{name}")["spec"][
                "replicas"
            ]
            for name, kind in kinds.items()
        }

    have(cluster, namespace, nodes, WHOLE)
    cluster.submit(*(rival(name, node) for name, node in nodes.items()), namespace=namespace)
    have(cluster, namespace, nodes, HALF)
    # Longer than it takes the autoscaler to look again: two of four run, and it leaves them be.
    holds_for(
        lambda: (
            asked() == dict.fromkeys(kinds, WHOLE)
            and all(len(bound(of(cluster, namespace, name))) == HALF for name in kinds)
        ),
        seconds=8,
        what="neither of them changes the size",
    )
    bounds(1)
    have(cluster, namespace, nodes, 1)
    bounds(3)
    have(cluster, namespace, nodes, HALF)
    wait_until(
        lambda: all(len(gated(of(cluster, namespace, name))) == 1 for name in kinds),
        what="the third waits, for which there is no room",
        also=lambda: show(cluster.pods(namespace)),
    )
    for name in kinds:
        cluster.delete(f"/api/v1/namespaces/{namespace}/pods/rival-of-{name}")
    have(cluster, namespace, nodes, 3)
    assert asked() == dict.fromkeys(kinds, 3)
    for name in kinds:
        wait_until(  # its Events are written beside, and later
            lambda name=name: (
                rescaled(cluster, namespace, name)
                == {  # type: ignore[misc]
                    "New size: 4; reason: Current number of replicas below Spec.MinReplicas",
                    "New size: 1; reason: Current number of replicas above Spec.MaxReplicas",
                    "New size: 3; reason: Current number of replicas below Spec.MinReplicas",
                }
            ),
            what=f"the autoscaler of {name} has changed its size three times",
            also=lambda name=name: rescaled(cluster, namespace, name),  # type: ignore[misc]
        )


# --- PodDisruptionBudgets -----------------------------------------------------------------------------------


def budget(name: str, app: str, **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def guarded(cluster: Cluster, namespace: str, *budgets: Json, healthy: int = WHOLE) -> None:
    """The budgets are there, and their controller has found so many healthy pods: a pod that is bound may not be
    Ready yet, and what Muster says counts as the budget does.

    Of two budgets for one pod the controller counts only the first again when the pod becomes Ready; a budget that is
    changed is always counted again."""
    cluster.submit(*budgets, namespace=namespace)
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def is_counted(found: Json) -> bool:
        status = found.get("status", {})
        return bool(status.get("conditions")) and status.get("currentHealthy") == healthy

    def counted() -> bool:
        others = [one for one in cluster.get(path)["items"] if not is_counted(one)]
        for one in others:
            looked = {"metadata": {"annotations": {"looked-at": str(time.time())}}}
            cluster.patch(f"{path}/{one['metadata']['name']}", looked)
        return not others

    wait_until(counted, what="the budgets are counted", also=lambda: str(cluster.get(path)["items"]))


def kept(cluster: Cluster, namespace: str, name: str, words: str) -> None:
    """The Gang says why the job is not made smaller, and an Event on its owner does, too."""
    wait_until(
        lambda: gang(cluster, namespace, name).get("keeps", "").startswith(words),
        what=f"its Gang says: {words}",
        also=lambda: str(cluster.gangs(namespace)),
    )
    owner = name.split("-", 1)[1]
    wait_until(
        lambda: any(
            sentence.startswith(f"DisruptionBudget: {words}") for sentence in said(cluster, namespace, owner)
        ),
        what="an Event says it",
        also=lambda: str(said(cluster, namespace, owner)),
    )


def test_a_budget_that_refuses_is_said_and_waited_for(lab: Lab, cluster: Cluster, namespace: str) -> None:
    nodes = nodes_for(lab, cluster, "app")
    cluster.submit(
        job("app", WHOLE, success_on="0", backoff_limit=0, **elastic("app", nodes["app"])),
        namespace=namespace,
    )
    before = {one.uid for one in have(cluster, namespace, nodes, WHOLE)["app"]}
    guarded(cluster, namespace, budget("keep", "app", minAvailable=WHOLE))
    cluster.submit(rival("app", nodes["app"]), namespace=namespace)
    kept(
        cluster,
        namespace,
        "job-app",
        "PodDisruptionBudget keep wants 4 healthy pods and 4 are; give it minAvailable as a number: 1, the job's "
        "least replicas",
    )
    # Tried again (after 5 s for the first time), never against the budget, and without a trace at the Job.
    holds_for(
        lambda: {one.uid for one in bound(of(cluster, namespace, "app"))} == before,
        seconds=7,
        what="it stays",
    )
    finalizers = [one.raw["metadata"].get("finalizers") for one in bound(of(cluster, namespace, "app"))]
    assert finalizers == [["batch.kubernetes.io/job-tracking"]] * WHOLE
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/keep"
    cluster.patch(path, {"spec": {"minAvailable": 3}})
    wait_until(
        lambda: len(bound(of(cluster, namespace, "app"))) == 3,
        what="one replica may go, and goes",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    cluster.patch(path, {"spec": {"minAvailable": 1}})
    have(cluster, namespace, nodes, HALF)
    wait_until(
        lambda: (one := cluster.pod(namespace, "rival-of-app")) is not None and one.node,
        what="the rival runs",
    )
    wait_until(
        lambda: not gang(cluster, namespace, "job-app").get("keeps"), what="and nothing is said any more"
    )
    assert verdict(cluster, namespace, "app") == UNTOUCHED


def test_a_budget_whose_headroom_gated_pods_eat_is_named(lab: Lab, cluster: Cluster, namespace: str) -> None:
    nodes = nodes_for(lab, cluster, "app")
    cluster.submit(pod("first", gpus=2, affinity=on_node(nodes["app"])), namespace=namespace)
    cluster.submit(stateful_set("app", WHOLE, **elastic("app", nodes["app"])), namespace=namespace)
    have(cluster, namespace, nodes, 3)
    guarded(cluster, namespace, budget("keep", "app", maxUnavailable=1), healthy=3)
    cluster.submit(rival("app", nodes["app"]), namespace=namespace)
    kept(
        cluster,
        namespace,
        "statefulset-app",
        "PodDisruptionBudget keep counts the 1 replicas behind Muster's gate as disrupted (it wants 3 healthy pods "
        "of 4 and 3 are), so it allows no eviction; give it minAvailable as a number: 1",
    )
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/keep"
    cluster.patch(path, {"spec": {"maxUnavailable": None, "minAvailable": 1}})
    have(cluster, namespace, nodes, 1)


def test_a_pod_of_two_budgets_is_left_alone_and_both_are_a_mistake(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """The API server answers 201, and evicts nothing."""
    nodes = nodes_for(lab, cluster, "app")
    cluster.submit(
        job("app", WHOLE, success_on="0", backoff_limit=0, **elastic("app", nodes["app"])),
        namespace=namespace,
    )
    before = {one.uid for one in have(cluster, namespace, nodes, WHOLE)["app"]}
    guarded(cluster, namespace, budget("one", "app", minAvailable=1), budget("two", "app", minAvailable=1))
    cluster.submit(rival("app", nodes["app"]), namespace=namespace)
    kept(cluster, namespace, "job-app", "several PodDisruptionBudgets select its pods")
    assert {one.uid for one in bound(of(cluster, namespace, "app"))} == before
    cluster.delete(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/two")
    have(cluster, namespace, nodes, HALF)
    assert verdict(cluster, namespace, "app") == UNTOUCHED


def test_a_gang_that_a_budget_lets_go_only_in_part_is_not_preempted(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Two of four may go: they come back, and the job of higher priority waits."""
    only(lab, cluster, "node-00")
    urgent = f"urgent-{namespace}"
    cluster.submit(priority_class(urgent, 1000))
    try:
        with configured(lab, profile="fifo", preemption=True):
            cluster.submit(
                job("app", WHOLE, gpus=2, backoff_limit=0, labels={"app": "app"}), namespace=namespace
            )
            nodes = {"app": "node-00"}
            have(cluster, namespace, nodes, WHOLE)
            guarded(cluster, namespace, budget("keep", "app", minAvailable=2))
            cluster.submit(job("loud", WHOLE, gpus=2, priority=urgent), namespace=namespace)
            kept(cluster, namespace, "job-app", "PodDisruptionBudget keep wants 2 healthy pods")
            comes_to_hold(  # an eviction that is under way when another one is refused may still take a pod
                lambda: len(bound(of(cluster, namespace, "app"))) == WHOLE,
                seconds=8,
                what="it is whole and let be",
                also=lambda: show(cluster.pods(namespace)),
            )
            assert len(gated(cluster.pods(namespace, "loud"))) == WHOLE
            assert verdict(cluster, namespace, "app") == UNTOUCHED
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{urgent}")


# --- between the two calls ----------------------------------------------------------------------------------


@contextlib.contextmanager
def dead_between_the_calls(lab: Lab, cluster: Cluster, namespace: str, node: str) -> Iterator[Pod]:
    """Muster dies in the middle of the eviction of index 1, and starts again after the block. Yields that pod."""
    cluster.submit(
        job("app", 2, success_on="0", backoff_limit=0, **elastic("app", node, gpus=4, max_replicas=2)),
        namespace=namespace,
    )
    nodes = {"app": node}
    before = {index(one): one for one in have(cluster, namespace, nodes, 2)["app"]}
    fault = "die after 1 POST eviction"  # the first is the dry run
    lab.restart("muster-0", env={"MUSTER_FAULTS": fault})
    cluster.submit(rival("app", node), namespace=namespace)
    wait_until(lambda: not lab.alive("muster-0"), within=180, what=f"muster has died: {fault}")
    half = cluster.pod(namespace, before[1].name)
    assert half is not None
    assert half.uid == before[1].uid
    assert not half.deleted
    assert not half.raw["metadata"].get("finalizers"), "its Job does not count it now"
    yield half
    lab.start("muster-0", env={})


def test_a_shrink_that_was_half_done_is_finished_where_it_is_still_wanted(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    nodes = nodes_for(lab, cluster, "app")
    with dead_between_the_calls(lab, cluster, namespace, nodes["app"]) as half:
        pass
    have(cluster, namespace, nodes, 1)
    wait_until(
        lambda: (one := cluster.pod(namespace, "rival-of-app")) is not None and one.node,
        what="the rival has its place",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    wait_until(
        lambda: [index(one) for one in gated(of(cluster, namespace, "app"))] == [1],
        what="index 1 waits again",
    )
    assert half.uid not in {one.uid for one in of(cluster, namespace, "app")}
    assert verdict(cluster, namespace, "app") == UNTOUCHED


def test_a_shrink_that_was_half_done_is_taken_back_where_it_is_not_wanted_any_more(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    nodes = nodes_for(lab, cluster, "app")
    with dead_between_the_calls(lab, cluster, namespace, nodes["app"]) as half:
        cluster.delete(f"/api/v1/namespaces/{namespace}/pods/rival-of-app")
    wait_until(
        lambda: (
            (one := cluster.pod(namespace, half.name)) is not None
            and one.uid == half.uid
            and one.raw["metadata"].get("finalizers") == ["batch.kubernetes.io/job-tracking"]
            and "muster.dev/leaving" not in one.annotations
        ),
        what="the pod stays, and its Job counts it again",
        also=lambda: str(cluster.pod(namespace, half.name)),
    )
    assert verdict(cluster, namespace, "app") == UNTOUCHED


def test_a_pod_that_succeeds_between_the_two_calls_is_counted_once(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    nodes = nodes_for(lab, cluster, "app")
    with dead_between_the_calls(lab, cluster, namespace, nodes["app"]) as half:
        ends_now(cluster, half)
        wait_until(
            lambda: (one := cluster.pod(namespace, half.name)) is not None and one.phase == "Succeeded",
            what="it succeeds while nobody counts it",
        )
    wait_until(
        lambda: verdict(cluster, namespace, "app") == [0, 1, "1", []],
        what="index 1 is complete",
        also=lambda: f"{job_status(cluster, namespace, 'app')}\n{show(cluster.pods(namespace))}",
    )
    stays(
        cluster,
        lambda: [one for one in bound(of(cluster, namespace, "app")) if index(one) == 1] == [],
        what="and is not run again",
    )


def test_an_eviction_without_an_answer_leaves_nothing_half_done(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Lost answers of every step, the muster process goes on."""
    nodes = nodes_for(lab, cluster, "app")
    cluster.submit(
        job("app", WHOLE, success_on="0", backoff_limit=0, **elastic("app", nodes["app"])),
        namespace=namespace,
    )
    have(cluster, namespace, nodes, WHOLE)
    faults = "timeout after 1 POST eviction x1; lost after 3 POST eviction x1; 409 after 5 POST eviction x1"
    lab.restart("muster-0", env={"MUSTER_FAULTS": faults})
    rounds(cluster, namespace, nodes, 3)
    wait_until(
        lambda: (
            [one.raw["metadata"].get("finalizers") for one in bound(of(cluster, namespace, "app"))]
            == [["batch.kubernetes.io/job-tracking"]] * WHOLE
        ),
        what="its Job counts all of them",
        also=lambda: [
            (one.name, one.raw["metadata"].get("finalizers")) for one in of(cluster, namespace, "app")
        ],
    )
    assert verdict(cluster, namespace, "app") == UNTOUCHED


# --- the owner, and the end ---------------------------------------------------------------------------------


def test_an_owner_that_does_not_create_its_pods_again_holds_no_gpus(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Its controller is down: what it can't use goes to others, and it grows when the controller is back."""
    nodes = nodes_for(lab, cluster, "app")
    cluster.submit(deployment("app", WHOLE, **elastic("app", nodes["app"])), namespace=namespace)
    have(cluster, namespace, nodes, WHOLE)
    lab.pause("kube-controller-manager")
    cluster.submit(rival("app", nodes["app"]), namespace=namespace)
    have(cluster, namespace, nodes, HALF)
    cluster.delete(f"/api/v1/namespaces/{namespace}/pods/rival-of-app")
    wait_until(lambda: cluster.pod(namespace, "rival-of-app") is None, what="the rival is gone")
    # Four GPUs are free, and its own replicas do not exist: another job gets them.
    cluster.submit(
        *(pod(f"other-{i}", gpus=2, affinity=on_node(nodes["app"])) for i in range(2)), namespace=namespace
    )
    wait_until(
        lambda: all((one := cluster.pod(namespace, f"other-{i}")) and one.node for i in range(2)),
        what="the others run",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    lab.resume("kube-controller-manager")
    wait_until(lambda: len(gated(of(cluster, namespace, "app"))) == 2, what="its pods are back")
    for i in range(2):
        cluster.delete(f"/api/v1/namespaces/{namespace}/pods/other-{i}")
    have(cluster, namespace, nodes, WHOLE)


def test_a_shrunk_job_ends_by_its_leader_while_others_wait(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    nodes = nodes_for(lab, cluster, "app")
    cluster.submit(
        job("app", WHOLE, success_on="0", backoff_limit=0, **elastic("app", nodes["app"])),
        namespace=namespace,
    )
    have(cluster, namespace, nodes, WHOLE)
    cluster.submit(rival("app", nodes["app"]), namespace=namespace)
    pods = have(cluster, namespace, nodes, HALF)["app"]
    wait_until(lambda: len(gated(of(cluster, namespace, "app"))) == 2, what="two wait")
    ends_now(cluster, next(one for one in pods if index(one) == 0))
    assert completes(cluster, namespace, "app")["completedIndexes"] == "0"
    wait_until(lambda: in_state(cluster, namespace, "job-app", "Finished"), what="its Gang is Finished")


def test_a_shrunk_work_queue_ends_and_what_waited_of_it_is_taken_away(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Its evicted workers exit with 0, which is no success of the queue."""
    nodes = nodes_for(lab, cluster, "app")
    cluster.submit(
        job("app", WHOLE, indexed=False, backoff_limit=0, **elastic("app", nodes["app"], exit_on_term=0)),
        namespace=namespace,
    )
    have(cluster, namespace, nodes, WHOLE)
    cluster.submit(rival("app", nodes["app"]), namespace=namespace)
    pods = have(cluster, namespace, nodes, HALF)["app"]
    wait_until(lambda: len(gated(of(cluster, namespace, "app"))) == 2, what="two wait")
    assert verdict(cluster, namespace, "app") == UNTOUCHED
    for one in pods:
        ends_now(cluster, one)
    status = completes(cluster, namespace, "app")
    assert (status["succeeded"], status.get("failed", 0)) == (2, 0)
