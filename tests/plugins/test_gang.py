"""Coach's three hooks (papers/gang-scheduler-coach, section 4.5) and gang-pack."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need, candidates_of
from muster.points import Candidates, Profile
from muster.types import Job, Snapshot
from muster_plugins.gang import Gang
from muster_plugins.gang_pack import GangPack
from tests.scenario import job, plan, queue, role, said, snapshot, starts

GANG = Profile("gang", sort=Gang(), filters=(Gang(),), scores=((Gang(), 1.0),))
GANG_PACK = replace(GANG, name="gang-pack", scores=((GangPack(), 1.0),))


def seen_by(before: Snapshot, waiting: Job, own: dict[str, int] | None = None) -> Candidates:
    """The nodes as a plugin sees them for the job's first role; own: its pods by node."""
    need = Need(waiting.roles[0], 1)
    candidates = candidates_of(Capacity(before), need)
    mine = np.array([(own or {}).get(n, 0) for n in before.nodes.names], dtype=np.int64)
    return replace(candidates, own=mine, others=candidates.others - mine)


# ---- Algorithm 1: the queue ----


def test_algorithm_1_priority_decides_before_time_and_time_before_name() -> None:
    """The rows of Algorithm 1: isPrioritizedOver, then isBefore, and the name where the times are equal."""
    expected = [
        job("z-urgent", worker=1, priority=9, submitted=300.0),
        job("y-old", worker=1, submitted=100.0),
        job("a-same-time", worker=1, submitted=200.0),
        job("b-same-time", worker=1, submitted=200.0),
    ]
    empty = snapshot()
    for jobs in permutations(expected):
        assert sorted(jobs, key=lambda j: Gang().sort_key(j, empty)) == expected


def test_all_pods_of_the_older_job_come_before_any_pod_of_the_newer() -> None:
    jobs = [
        job("full", worker=1, gpus=8, on=["n0"]),
        job("newer", worker=2, submitted=200.0),
        job("older", worker=2, submitted=100.0),
    ]
    assert queue(plan(snapshot(nodes=1, jobs=jobs), GANG)) == ["older", "newer"]


# ---- Algorithm 2: the filter ----


def coach(scheduler: int, server: int, worker: int) -> Job:
    """A job with the paper's three roles and so many pods of each."""
    roles = [
        role(name, 1, present=present, job="coach")
        for name, present in (("scheduler", scheduler), ("server", server), ("worker", worker))
    ]
    return job("coach", roles=roles)


@pytest.mark.parametrize(
    ("pods", "absent"),
    [
        ((1, 1, 1), ""),
        ((0, 1, 1), "scheduler"),
        ((1, 0, 1), "server"),
        ((0, 0, 1), "scheduler, server"),
    ],
)
def test_algorithm_2_no_node_is_feasible_before_every_role_has_a_pod(
    pods: tuple[int, int, int], absent: str
) -> None:
    waiting = coach(*pods)
    before = snapshot(nodes=2, jobs=[waiting])
    mask, why = Gang().filter(waiting, waiting.roles[2], seen_by(before, waiting), before)
    if not absent:
        assert (mask, why) == (None, "")
    else:
        assert mask is not None
        assert mask.tolist() == [False, False]
        assert why == f"waits until every role has a pod; none yet of: {absent}"


def test_algorithm_2_a_role_that_is_placed_or_has_ended_counts() -> None:
    server = role("server", 1, present=0, job="coach")
    ended = replace(role("scheduler", 0, present=0, job="coach"), ended=1)
    worker = role("worker", 1, job="coach")
    waiting = job("coach", roles=[ended, server, worker], held=[("server", "n0")])
    before = snapshot(nodes=1, jobs=[waiting])
    assert Gang().filter(waiting, worker, seen_by(before, waiting), before) == (None, "")


def test_the_owner_reads_which_role_is_missing() -> None:
    """A job whose owner creates the rest later has one pod of a role it does not know of yet."""
    waiting = replace(coach(1, 0, 1), expects=True, newest_pod=0.0)
    after = plan(snapshot(nodes=2, jobs=[waiting]), GANG)
    assert starts(after) == {}
    assert said(after) == {"coach": "Waiting Plugin: waits until every role has a pod; none yet of: server"}


# ---- Algorithm 3: the score ----


def test_algorithm_3_the_papers_example() -> None:
    """p1 of j1 runs on x and p2 of j2 on y; p3 of j1 is hosted on x rather than y, all else being equal."""
    j1 = job("j1", worker=2, on=["n0"])  # x = n0
    j2 = job("j2", worker=1, on=["n1"])  # y = n1
    before = snapshot(nodes=2, jobs=[j1, j2])
    scores = Gang().score(j1, j1.roles[0], seen_by(before, j1, {"n0": 1}), before)
    assert scores.tolist() == [100.0, 0.0]
    assert starts(plan(before, GANG)) == {"j1": {"n0": 1}}


def test_algorithm_3_the_papers_example_with_the_names_swapped() -> None:
    """The tie is not what decided: y is the lower name here."""
    j1 = job("j1", worker=2, on=["n1"])
    j2 = job("j2", worker=1, on=["n0"])
    assert starts(plan(snapshot(nodes=2, jobs=[j1, j2]), GANG)) == {"j1": {"n1": 1}}


def test_algorithm_3_sees_the_jobs_that_the_same_plan_places() -> None:
    jobs = [job("a", worker=2), job("b", worker=2)]
    assert starts(plan(snapshot(nodes=2, jobs=jobs), GANG)) == {"a": {"n0": 2}, "b": {"n1": 2}}


def test_algorithm_3_shares_a_node_when_there_is_no_other() -> None:
    jobs = [job("a", worker=2), job("b", worker=2)]
    assert starts(plan(snapshot(nodes=1, jobs=jobs), GANG)) == {"a": {"n0": 2}, "b": {"n0": 2}}


def test_servers_and_workers_of_one_job_share_a_node() -> None:
    roles = [role("server", 1, job="coach"), role("worker", 3, job="coach")]
    jobs = [job("other", worker=1, on=["n0"]), job("coach", roles=roles)]
    assert starts(plan(snapshot(nodes=3, jobs=jobs), GANG)) == {"coach": {"n1": 4}}


# ---- gang-pack ----


def test_gang_pack_prefers_nodes_already_in_use_and_its_own_most() -> None:
    j1 = job("j1", worker=2, on=["n2"])
    j2 = job("j2", worker=1, on=["n1"])
    before = snapshot(nodes=3, jobs=[j1, j2])
    scores = GangPack().score(j1, j1.roles[0], seen_by(before, j1, {"n2": 1}), before)
    assert scores.tolist() == [0.0, 50.0, 100.0]


def test_gang_opens_an_empty_node_where_gang_pack_shares_one() -> None:
    jobs = [job("old", worker=1, on=["n1"]), job("new", worker=2)]
    before = snapshot(nodes=2, jobs=jobs)
    assert starts(plan(before, GANG)) == {"new": {"n0": 2}}
    assert starts(plan(before, GANG_PACK)) == {"new": {"n1": 2}}


def test_gang_pack_refuses_scores_out_of_order() -> None:
    with pytest.raises(ValueError, match="0 <= in_use <= beside_own <= 100"):
        GangPack(beside_own=10.0, in_use=20.0)
