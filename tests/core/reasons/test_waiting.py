"""The exact sentences that a job's owner reads."""

import pytest

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need
from muster.core.reasons import refusals
from muster.core.reasons import waiting as reasons
from muster.core.reasons.words import duration
from muster.types import GPU, Job, NodeRecord, Reason, Reservation, State, Status, Taint, Toleration
from tests.scenario import (
    FIFO,
    NOW,
    RACK,
    asks,
    job,
    node,
    role,
    snapshot,
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0s"),
        (0, "0s"),
        (45.9, "45s"),
        (119, "119s"),
        (120, "2m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 20 * 60, "3h20m"),
        (52 * 3600, "2d4h"),
    ],
)
def test_a_length_of_time_reads_as_kubectl_prints_ages(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("resource", "value", "words"),
    [
        (GPU, 1, "1 GPU"),
        (GPU, 16, "16 GPUs"),
        ("cpu", 2000, "2 cpu"),
        ("cpu", 500, "500m cpu"),
        ("memory", 16 * 1024**3, "16Gi memory"),
        ("memory", 1536 * 1024**2, "1536Mi memory"),
        ("memory", 1000, "1000 bytes memory"),
        ("ephemeral-storage", 1024**4, "1Ti ephemeral-storage"),
        ("amd.com/gpu", 4, "4 amd.com/gpu"),
    ],
)
def test_an_amount_reads_as_its_owner_wrote_it(resource: str, value: int, words: str) -> None:
    assert reasons.amount(resource, value) == words


def needs_of(each: Job) -> list[Need]:
    """All replicas of the minimum."""
    return [Need(r, r.min) for r in each.roles]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (job("x", worker=1, gpus=1), "needs 1 GPU"),
        (job("x", worker=4, gpus=4), "needs 16 GPUs (4 replicas of 4)"),
        (job("x", worker=4, gpus=4, topology_required=RACK), "needs 16 GPUs (4 replicas of 4) in one rack"),
        (job("x", worker=1, shape=asks(cpu=500, memory=1)), "needs 500m cpu and 1Gi memory"),
        (job("x", worker=3, shape=asks(cpu=2000)), "needs 3 replicas of 2 cpu"),
        (job("x", worker=2, shape=asks()), "needs 2 replicas of a place on a node"),
        (job("x", server=2, worker=4, gpus=2), "needs 12 GPUs (2 server, 4 worker)"),
        (job("x", server=2, worker=4, shape=asks(cpu=1)), "needs 2 server, 4 worker"),
    ],
)
def test_what_a_job_needs(made: Job, words: str) -> None:
    assert reasons.needs_words(made, needs_of(made)) == words


def refused(made: Job, *, used: dict[str, int] | None = None, nodes: int = 2, racks: int = 0) -> Status:
    """The refusal on a cluster of 8-GPU nodes with so many GPUs in use."""
    before = snapshot(
        nodes=nodes, racks=racks, jobs=[made], foreign={n: asks(g) for n, g in (used or {}).items()}
    )
    return refusals.refusal(Capacity(before), made, needs_of(made), FIFO, before)


def test_not_now_says_how_many_fit() -> None:
    assert refused(job("x", worker=3, gpus=4), used={"n0": 6, "n1": 2}) == Status(
        State.WAITING, Reason.RESOURCES, "needs 12 GPUs (3 replicas of 4)", "1 of 3 replicas fit now"
    )
    assert refused(job("x", worker=1, gpus=8), used={"n0": 1, "n1": 1}).detail == "0 of 1 replica fits now"


def test_roles_that_fit_one_by_one_are_told_from_those_that_do_not() -> None:
    roles = [role("server", 1, gpus=6), role("worker", 1, gpus=4)]
    assert refused(job("x", roles=roles), used={"n0": 8}) == Status(
        State.WAITING,
        Reason.RESOURCES,
        "needs 10 GPUs (1 server, 1 worker)",
        "its roles fit one by one, but no arrangement of all of them was found",
    )
    assert refused(job("x", roles=roles), used={"n0": 8, "n1": 3}).detail == (
        "0 of 1 server replica fits now"
    )


def test_one_rack_says_what_the_best_has() -> None:
    made = job("x", worker=4, gpus=4, topology_required=RACK)
    assert refused(made, used={"n0": 4, "n2": 8}, nodes=4, racks=2) == Status(
        State.WAITING,
        Reason.TOPOLOGY,
        "needs 16 GPUs (4 replicas of 4) in one rack",
        "the best rack has 12 GPUs free",
    )


@pytest.mark.parametrize(
    ("made", "why"),
    [
        pytest.param(
            job("x", worker=1, gpus=16),
            "needs 16 GPUs: no node is large enough for 16 GPUs: the largest has 8 GPUs",
            id="too large for a node",
        ),
        pytest.param(
            job("x", worker=1, shape=asks(1, cpu=200_000)),
            "needs 1 GPU: no node is large enough for 1 GPU: the largest has 96 cpu",
            id="another resource than the one it is named after",
        ),
        pytest.param(
            job("x", worker=3, gpus=8),
            "needs 24 GPUs (3 replicas of 8): all nodes together, empty, take 2 of 3 replicas",
            id="too large for the cluster",
        ),
        pytest.param(
            job("x", worker=1, shape=asks(1, selector=(("zone", "mars"),))),
            "needs 1 GPU: no node of 2 has the labels it selects and only taints it tolerates",
            id="no such node",
        ),
        pytest.param(
            job("x", worker=1, gpus=1, topology_required=RACK),
            "needs 1 GPU in one rack: no rack is large enough; no node has the label topology.muster.dev/rack",
            id="no such level",
        ),
        pytest.param(
            job("x", roles=[role("a", 2, gpus=5), role("b", 1, gpus=4)]),
            "needs 14 GPUs (2 a, 1 b): its roles do not fit together on the empty cluster",
            id="not together",
        ),
    ],
)
def test_never_says_so_and_names_what_is_short(made: Job, why: str) -> None:
    assert refused(made) == Status(State.WAITING, Reason.NEVER_FITS, why)


def test_never_is_not_said_of_roles_that_may_stand_together() -> None:
    """Both `a` have to be on n1, which first fit finds in no order."""
    nodes = [node("n0", cpu=96), node("n1", cpu=32), node("n2", gpus=4, cpu=64)]
    roles = [role("a", 2, shape=asks(4, cpu=16000)), role("b", 3, shape=asks(4, cpu=32000))]
    made = job("x", roles=roles)
    snap = snapshot(nodes=nodes, jobs=[made])
    found = refusals.refusal(Capacity(snap), made, needs_of(made), FIFO, snap)
    words = "needs 20 GPUs (2 a, 3 b): no arrangement of its roles was found on the empty cluster either"
    assert found == Status(State.WAITING, Reason.NO_ARRANGEMENT, words)
    assert refusals.never_fits(snap.nodes, made, needs_of(made), FIFO, snap) is None


OURS = Taint("muster.dev/scheduler", "muster")


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        pytest.param(
            [node("n0", taints=(OURS,)), node("n1", taints=(OURS,)), node("cpu", gpus=0)],
            "all 2 nodes that could take it have the taint muster.dev/scheduler=muster:NoSchedule, "
            "which it does not tolerate",
            id="one taint on all that are large enough",
        ),
        pytest.param(
            [node("n0", taints=(Taint("gpus"), Taint("soft", effect="PreferNoSchedule")))],
            "the node that could take it has the taint gpus:NoSchedule, which it does not tolerate",
            id="one node, a taint without a value",
        ),
        pytest.param(
            [node("n0", taints=(OURS,)), node("n1", taints=(Taint("gpus"),))],
            "all 2 nodes that could take it have taints that it does not tolerate",
            id="more than one taint",
        ),
    ],
)
def test_taints_that_alone_keep_a_job_off_are_said_and_one_is_named(
    nodes: list[NodeRecord], why: str
) -> None:
    made = job("x", worker=1, shape=asks(1, tolerations=(Toleration("cpu-only", "Exists"),)))
    snap = snapshot(nodes=nodes, jobs=[made])
    found = refusals.refusal(Capacity(snap), made, needs_of(made), FIFO, snap)
    assert found == Status(State.WAITING, Reason.NEVER_FITS, f"needs 1 GPU: {why}")


def test_a_busy_cluster_is_not_never() -> None:
    assert refused(job("x", worker=2, gpus=8), used={"n0": 8, "n1": 8}).reason is Reason.RESOURCES


def test_a_node_that_comes_later_changes_never() -> None:
    made = job("x", worker=1, gpus=16)
    larger = snapshot(nodes=[node("n0", gpus=8), node("n1", gpus=16)], jobs=[made], foreign={"n1": asks(1)})
    assert refusals.refusal(Capacity(larger), made, needs_of(made), FIFO, larger).reason is Reason.RESOURCES


def test_incomplete_names_what_is_missing() -> None:
    made = job("x", server=2, worker=10)
    assert reasons.incomplete(made, {"server": 2, "worker": 1}, 0) == Status(
        State.INCOMPLETE, Reason.PODS_MISSING, "3 of 12 pods exist; missing: 9 worker"
    )
    assert reasons.incomplete(made, {"server": 0, "worker": 10}, 1) == Status(
        State.INCOMPLETE, Reason.NOT_OURS_YET, "1 pod of 12 still carry another scheduling gate"
    )


def test_a_pause_says_how_long() -> None:
    made = job("x", worker=1, not_before=NOW + 75)
    assert reasons.backing_off(made, snapshot(jobs=[made])) == Status(
        State.WAITING,
        Reason.BACKING_OFF,
        "its last start did not complete; it tries again after a pause",
        "in 75s",
    )


def test_what_runs_says_how_many_and_whether_it_grows() -> None:
    assert reasons.running(job("x", worker=1, on=["n0"]), ()) == Status(
        State.RUNNING, Reason.OK, "1 replica running"
    )
    elastic = job("x", worker=4, least=1, most=4, on=["n0", "n0"])
    assert reasons.running(elastic, ()) == Status(
        State.RUNNING, Reason.OK, "2 replicas running; up to 4 as capacity is free"
    )
    assert reasons.running(elastic, (Reservation("worker", "n1", "p", "u"),)) == Status(
        State.RESIZING, Reason.BINDING, "grows from 2 to 3 replicas"
    )


def test_no_sentence_names_another_job() -> None:
    """Other namespaces read these sentences: they may hold counts, never names (issue 3, part 6)."""
    secret = job("secret-name", worker=1, gpus=8, on=["n0"])
    waiting = job("x", worker=2, gpus=8)
    before = snapshot(nodes=2, jobs=[secret, waiting])
    status = refusals.refusal(Capacity(before), waiting, needs_of(waiting), FIFO, before)
    assert "secret" not in status.message + status.detail
