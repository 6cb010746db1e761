# Over 300 lines: a scenario for each family, and what several of them read of jobs and reports.
"""Families of policies whose idea shows in turns, in reports, or in GPU products; the others: test_families.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import (
    ROUND,
    holding,
    in_rounds,
    jobs_of,
    only,
    replayed,
    settles,
    shared_by,
    shares,
    train,
)
from e2e.lab import Lab, NodeGroup, Shape
from e2e.reports import AsPods, tell, token
from e2e.scenario import (
    bound,
    comes_to_hold,
    configured,
    delete_job,
    looking,
    stays,
    wait_until,
)
from e2e.test_families import NODE, all_gated, by, whole

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

OTHER = "node-01"
SLOW = 120.0


class Reporting:
    """A look for `looking`: the first living pod of each job reports `body(seconds since its first report)`."""

    def __init__(self, lab: Lab, cluster: Cluster, namespace: str, **bodies: Callable[[float], Json]) -> None:
        self._own, self._namespace, self._bodies = Cluster(cluster.kubeconfig), namespace, bodies
        self._pods = AsPods(lab, self._own)
        self._began: dict[str, float] = {}

    def __call__(self) -> None:
        for name, body in self._bodies.items():
            living = bound(self._own.pods(self._namespace, name))
            if living:
                now = time.monotonic()
                self._pods.tell(living[0], body(now - self._began.setdefault(name, now)))


def nodes_of(cluster: Cluster, namespace: str) -> dict[str, set[str]]:
    """Where the bound pods of each Job are."""
    return {name: {one.node for one in pods} for name, pods in holding(cluster, namespace).items()}


def asked(lab: Lab, cluster: Cluster, namespace: str, name: str) -> object:
    """When `specon` marked a job as converged; nothing before."""
    kept = jobs_of(lab, cluster, namespace)[name].memory.get("specon")
    return kept["asked"] if isinstance(kept, dict) else None


# --- turns --------------------------------------------------------------------------------------------------


def test_themis_leases_gpus_and_auctions_them_to_whoever_is_farthest_behind(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "themis", **by("themis", lease=5.0)):
        cluster.submit(whole("first", 8), whole("second", 8), namespace=namespace)
        turns: list[str] = []

        def third_turn() -> bool:
            now = [name for name, count in shares(cluster, namespace).items() if count == 8]
            turns.extend(name for name in now if turns[-1:] != [name])
            return len(turns) >= 3

        wait_until(third_turn, within=SLOW, what="each has had its lease", also=lambda: turns)
        assert set(turns) == {"first", "second"}, turns
        for name in ("first", "second"):
            delete_job(cluster, namespace, name)
        cluster.submit(whole("long", 8, seconds=1e5), namespace=namespace)
        settles(cluster, namespace, {"long": 8})
        cluster.submit(whole("short", 8, seconds=60.0), namespace=namespace)
        settles(cluster, namespace, {"short": 8})
        comes_to_hold(
            lambda: shares(cluster, namespace) == {"short": 8},
            seconds=12.0,
            what="what waiting costs a short job keeps it ahead for leases on end: they are no turns",
            also=lambda: cluster.gangs(namespace),
        )
        replayed(lab, cluster)


def test_afs_s_levels_gpus_that_afs_p_gives_to_whom_they_speed_up(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "afs-p"):
        cluster.submit(
            train("flat", most=8, speeds="1=1,2=1.05,8=1.1"), train("steep", most=8), namespace=namespace
        )
        settles(cluster, namespace, {"flat": 1, "steep": 7})
    with shared_by(lab, "afs-s"):
        settles(cluster, namespace, {"flat": 4, "steep": 4})
        replayed(lab, cluster)


# --- what training reports ----------------------------------------------------------------------------------


def test_specon_moves_a_converged_job_and_gives_an_idle_node_one_of_the_marked(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    def learns(passed: float) -> Json:
        return {"step": passed, "loss": 10.0 - 0.02 * passed}

    def converges(passed: float) -> Json:
        return {"step": passed, "loss": 1.0 + 2.0 ** (-passed / 2.0)}

    names = ("idle", "busy", "more", "rest")
    only(lab, cluster, NODE)
    with shared_by(lab, "specon", **by("specon", alpha=0.0005, interval=2.0, smoothing=0.0)):
        cluster.submit(*(whole(name, 1) for name in names), namespace=namespace)
        settles(cluster, namespace, dict.fromkeys(names, 1))
        with looking(
            Reporting(lab, cluster, namespace, idle=converges, busy=learns, more=learns, rest=learns), 0.9
        ):
            wait_until(
                lambda: asked(lab, cluster, namespace, "job-idle"),
                within=SLOW,
                what="it has converged, and there is nowhere to go",
                also=lambda: {name: one.memory for name, one in jobs_of(lab, cluster, namespace).items()},
            )
            assert nodes_of(cluster, namespace) == {name: {NODE} for name in names}
            cluster.cordon(OTHER, unschedulable=False)  # a node falls idle: Algorithm 3
            wait_until(
                lambda: nodes_of(cluster, namespace) == {name: {NODE} for name in names} | {"idle": {OTHER}},
                within=SLOW,
                what="the marked one is on the idle node, and nobody else moved",
                also=lambda: f"{nodes_of(cluster, namespace)}\n{cluster.gangs(namespace)}",
            )
        with looking(Reporting(lab, cluster, namespace, busy=converges, more=learns, rest=learns), 0.9):
            wait_until(  # Algorithm 2: it converges now, and the other node has the least score
                lambda: (
                    nodes_of(cluster, namespace)
                    == {"idle": {OTHER}, "busy": {OTHER}, "more": {NODE}, "rest": {NODE}}
                ),
                within=SLOW,
                what="a converged job has made room for those that learn",
                also=lambda: f"{nodes_of(cluster, namespace)}\n{cluster.gangs(namespace)}",
            )
        moved = {name: one.facts.moves for name, one in jobs_of(lab, cluster, namespace).items()}
        assert moved == {"job-idle": 1, "job-busy": 1, "job-more": 0, "job-rest": 0}
        assert b"metrics.k8s.io/v1beta1: it is not served" in lab.log("muster-0").read_bytes()
        replayed(lab, cluster)


# --- GPU products -------------------------------------------------------------------------------------------

A100, T4 = "NVIDIA-A100-SXM4-80GB", "Tesla-T4"
PRODUCTS = Shape(groups=(NodeGroup(1, gpus=2, product=A100), NodeGroup(1, gpus=2, product=T4)), racks=0)


def product_by_job(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """GPU product, and replicas, of each Job that runs on one product."""
    of = {
        node["metadata"]["name"]: node["metadata"]["labels"].get("nvidia.com/gpu.product", "")
        for node in cluster.get("/api/v1/nodes")["items"]
    }
    found = {name: [of[one.node] for one in pods] for name, pods in holding(cluster, "default").items()}
    return {name: (each[0], len(each)) for name, each in found.items() if len(set(each)) == 1}


def test_similarity_gives_an_unknown_model_the_product_number_and_batch_that_its_nearest_is_fastest_with(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(PRODUCTS)
    cluster = Cluster(lab.kubeconfig)
    like_vgg16 = {"muster.dev/model": "layers=16,parameters=137"}
    takes = {**like_vgg16, "muster.dev/batch-sizes": "64,512", "muster.dev/report": "true"}
    of_256 = {"muster.dev/batch-sizes": "256", "muster.dev/report": "true"}
    with configured(lab, **in_rounds("similarity", mode="gpu_ngpu_bs")):
        cluster.submit(train("first", most=2, restart=True, annotations=takes))
        wait_until(
            lambda: product_by_job(cluster) == {"first": (A100, 2)},
            what="the best is free: two of the faster product",
            also=lambda: cluster.gangs("default"),
        )
        trains_and_is_told(lab, cluster, "first", 512)
        cluster.submit(train("second", most=2, restart=True, annotations=takes))
        wait_until(
            lambda: product_by_job(cluster) == {"first": (A100, 2), "second": (T4, 2)},
            what="in the order of arrival, each takes the best that is free",
            also=lambda: cluster.gangs("default"),
        )
        delete_job(cluster, "default", "first")
        wait_until(
            lambda: product_by_job(cluster) == {"second": (A100, 2)},
            what="in a later round the decision is changed",
            also=lambda: cluster.gangs("default"),
        )
        told_where_it_starts(cluster, "second", "512")
        delete_job(cluster, "default", "second")
        for name, like, gpus in (
            ("deep", "layers=300,parameters=60", 2),
            ("wide", "layers=16,parameters=137", 1),
        ):
            cluster.submit(train(name, most=2, restart=True, annotations=of_256 | {"muster.dev/model": like}))
            comes_to_hold(
                lambda name=name, gpus=gpus: product_by_job(cluster) == {name: (A100, gpus)},
                seconds=2.5 * ROUND,
                what=f"a batch of 256 trains fastest on {gpus} where a model is like this one",
                also=lambda: cluster.gangs("default"),
            )
            delete_job(cluster, "default", name)
        replayed(lab, cluster)


def told_where_it_starts(cluster: Cluster, name: str, batch: str) -> None:
    """Each pod that has started has the batch size as a note, and its container reads it as MUSTER_BATCH."""
    for one in bound(cluster.pods("default", name)):
        assert one.annotations.get("muster.dev/batch") == batch
        (read,) = (env for env in one.raw["spec"]["containers"][0]["env"] if env["name"] == "MUSTER_BATCH")
        assert read["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['muster.dev/batch']"


def trains_and_is_told(lab: Lab, cluster: Cluster, name: str, batch: int) -> None:
    """Training hears this batch size and reports it; its speed is remembered with it."""
    bearer = token(cluster, bound(cluster.pods("default", name))[0], "default")
    heard: list[Json] = []

    def is_told() -> bool:
        """It started between two rounds, with what was free: its batch size is chosen in the next one."""
        answer = tell(lab, bearer, {"step": 1})
        heard.extend([answer.json()] if answer.status_code == 200 else [])
        return bool(heard) and heard[-1].get("batch") == batch

    def trains(passed: float) -> Json:
        return {"step": 10.0 * passed, "samples": 10.0 * batch * passed, "batch": batch}

    def known() -> tuple[int, set[int]]:
        job = jobs_of(lab, cluster, "default")[f"job-{name}"]
        return job.batch, {config.batch for config in job.samples}

    wait_until(is_told, within=SLOW, what="the answer to a report has the batch size", also=lambda: heard)
    with looking(Reporting(lab, cluster, "default", **{name: trains}), 0.9):
        wait_until(
            lambda: known() == (batch, {batch}), within=SLOW, what="its speed is known by it", also=known
        )


# --- one by one, by restarts --------------------------------------------------------------------------------


def test_termination_adds_idle_gpus_by_restarts_and_takes_none_from_a_job_that_runs(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "termination", **by("termination", settling=3.0)):
        cluster.submit(train("a", most=8, sizes="1,2,4,8", work=1e6, restart=True), namespace=namespace)
        settles(cluster, namespace, {"a": 8}, within=SLOW)
        had = [count for _, count in jobs_of(lab, cluster, namespace)["job-a"].facts.shares if count]
        assert had[0] == 1, had  # the fewest first
        assert {2, 4} < set(had), had  # and then a step at a time
        cluster.submit(train("b", most=8, sizes="1,2,4,8", work=1e6, restart=True), namespace=namespace)
        all_gated(cluster, namespace, b=8)
        stays(cluster, lambda: shares(cluster, namespace) == {"a": 8}, what="nothing is taken from a")
        delete_job(cluster, namespace, "a")
        settles(cluster, namespace, {"b": 8}, within=SLOW)
        replayed(lab, cluster)


def test_reshape_takes_from_a_running_job_for_one_that_arrives_and_gives_it_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "reshape-restart", **by("reshape", restart=True, settling=3.0)):
        cluster.submit(train("a", most=8, sizes="1,2,4,8", work=1e6, restart=True), namespace=namespace)
        settles(cluster, namespace, {"a": 8}, within=SLOW)
        cluster.submit(train("b", most=4, sizes="1,2,4", work=1e6, restart=True), namespace=namespace)
        settles(cluster, namespace, {"a": 4, "b": 4}, within=SLOW)
        delete_job(cluster, namespace, "b")
        settles(cluster, namespace, {"a": 8}, within=SLOW)
        replayed(lab, cluster)
