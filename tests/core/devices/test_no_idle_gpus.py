"""Whatever jobs in place come and end: once all has settled, no GPU is free beside a job that may take it up while
nobody waits for it, who waits fits nowhere, and no device is of two (tests/core/devices/circle.py)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from muster.points import Share
from muster.types import GPU
from muster.types import Phase as PodPhase
from muster_plugins.afs_l import AfsL
from muster_plugins.max_min import MaxMin
from tests.core.devices.circle import Circle

SETTLED = 40
"""Seconds after which all has settled: no agent is slow here, and holders that idle go after KEEP."""
STEADY = 12
"""Seconds for which all then stays as it is."""

Events = list[tuple[str, str, int]]
"""What comes ("comes": sizes of each of so many pods; "other": a pod that is not in place, and its GPUs), which job
ends, and pauses in s."""

SIZES = st.sampled_from(["4,8", "1-8", "1,2,4,8", "2,4", "3,5", "1-3", "1", "4", "8"])
ARRIVALS = st.tuples(st.just("comes"), SIZES, st.sampled_from([1, 1, 1, 2]))
OTHERS = st.tuples(st.just("other"), st.sampled_from(["1", "2", "5"]), st.just(1))
ENDS = st.tuples(st.just("ends"), st.just(""), st.integers(0, 9))
PAUSES = st.tuples(st.just("pause"), st.just(""), st.sampled_from([1, 3, 8]))
PAUSE = ("pause", "", 8)
EVENTS = st.lists(st.one_of(ARRIVALS, ARRIVALS, ENDS, PAUSES, OTHERS), min_size=1, max_size=14)


def played(events: Events, nodes: list[int], share: Share) -> Circle:
    """Nodes with so many GPUs each, and what has settled after the events."""
    circle = Circle(nodes=len(nodes), share=share)
    for at, gpus in enumerate(nodes):
        found = circle.cluster.nodes[f"n{at}"]
        circle.cluster.nodes[f"n{at}"] = replace(found, allocatable={**found.allocatable, GPU: gpus})
    for at, (what, sizes, number) in enumerate(events):
        match what:
            case "comes":
                circle.train(f"j{at}x", sizes, pods=number)
            case "other":
                circle.cluster.job(f"p{at}x", 1, int(sizes))
            case "ends":
                ends(circle, number)
            case "pause":
                circle.seconds(number)
    circle.seconds(SETTLED)
    return circle


def ends(circle: Circle, number: int) -> None:
    """All pods of one of the jobs that run."""
    on = [p for p in circle.cluster.pods.values() if p.ours and p.phase is PodPhase.BOUND and p.controller]
    jobs = list(dict.fromkeys(pod.controller.uid for pod in on if pod.controller is not None))
    if jobs:
        uid = jobs[number % len(jobs)]
        for pod in [p for p in on if p.controller is not None and p.controller.uid == uid]:
            circle.cluster.end(pod.uid)
            for agent in circle.agents:
                if agent.pod == pod.uid:
                    agent.die()


def used(circle: Circle) -> dict[str, int]:
    """GPUs that each pod trains on."""
    counts = Counter[str]()
    for agent in circle.agents:
        counts[agent.pod] += len(agent.using)
    return +counts


def free(circle: Circle) -> dict[str, int]:
    """GPUs of each node that no job has: those of holders that idle are free."""
    left = {name: node.allocatable[GPU] for name, node in circle.cluster.nodes.items()}
    mine = used(circle)
    for pod in circle.cluster.pods.values():
        if pod.ours and pod.phase.on_node and pod.node:
            left[pod.node] -= pod.shape.gpus + mine.get(pod.uid, 0)
    return left


def waits(circle: Circle) -> list[str]:
    """Pods that wait for GPUs that a node has."""
    most = max(node.allocatable[GPU] for node in circle.cluster.nodes.values())
    found = []
    for pod in circle.cluster.pods.values():
        if pod.ours and pod.phase is PodPhase.GATED:
            sizes = pod.annotations.get("muster.dev/gpus", str(pod.shape.gpus))
            if int(re.split("[-,]", sizes)[0]) <= most:
                found.append(pod.name)
    return found


def idles(circle: Circle) -> list[str]:
    """Jobs in place that could take up what is free where their pods are."""
    left, mine, found = free(circle), used(circle), []
    planned = circle.ledger.in_place
    assert planned is not None
    for key, grants in planned.granted.items():
        pods = [circle.cluster.pods[one.pod] for one in grants]
        have = mine.get(pods[0].uid, 0)
        step = min((size for size in planned.sizes[key] if size > have), default=0) - have
        on = Counter(pod.node for pod in pods)
        if step > 0 and all(left[node] >= step * count for node, count in on.items()):
            found.append(f"{key.name} has {have} on {dict(on)} and could have {have + step}; free: {left}")
    return found


def of_two(circle: Circle) -> list[str]:
    """Devices that two jobs train on, or that two holders have."""
    trained = Counter(device.id for agent in circle.agents for device in agent.using)
    kept = Counter(record.device for record in circle.records.values() if record.device)
    return [device for device, count in (*trained.items(), *kept.items()) if count > 1]


SEVEN: Events = [("comes", "4,8", 1)] * 7


@pytest.mark.parametrize("share", [MaxMin(), AfsL()], ids=["max-min", "afs-l"])
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(events=EVENTS, nodes=st.lists(st.sampled_from([8, 8, 4]), min_size=1, max_size=4))
@example(events=SEVEN, nodes=[8, 8, 8, 8])
@example(events=[("comes", "2,4", 1), PAUSE, ("other", "5", 1)], nodes=[8])
def test_no_gpu_idles_beside_a_job_that_may_take_it_up(
    events: Events, nodes: list[int], share: Share
) -> None:
    circle = played(events, nodes, share)
    mine = used(circle)
    for _ in range(STEADY):
        circle.second()
        assert used(circle) == mine, "jobs give and take without an end"
    assert not circle.pairs
    assert not of_two(circle)
    if not waits(circle):
        assert not idles(circle)


@pytest.mark.parametrize("ends", range(8))
def test_seven_jobs_of_4_or_8_gpus_use_four_nodes_of_8(ends: int) -> None:
    """Max-min grants the last 4 to the first of them, and only one has them beside it."""
    circle = played([*SEVEN, *SEVEN[:1], PAUSE, ("ends", "", ends)], [8, 8, 8, 8], MaxMin())
    assert sorted(used(circle).values()) == [4, 4, 4, 4, 4, 4, 8]
    assert set(free(circle).values()) == {0}
