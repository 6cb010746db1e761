"""LeaderWorkerSet as it is: its real controller makes the pods, on a lab of 4 nodes x 8 GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster, Pod
from e2e.elastic import shared_by
from e2e.every_operator import ELASTIC, keeps_its_size_and_says_why, start_in_order_of_submission
from e2e.lab import Lab
from e2e.operated import (
    everything,
    has_state,
    is_left_alone,
    leader_worker_set,
    operated,
    path,
    restarts_a_container,
)
from e2e.scenario import (
    PATIENCE,
    bound,
    configured,
    delete_job,
    gang,
    job,
    pod,
    show,
    stays,
    wait_until,
    waits_because,
)
from e2e.stopped_operator import holds_places, waits_for_the_last_of_its_pods_and_starts_whole

pytestmark = [pytest.mark.lab, pytest.mark.operators("lws")]

OF_ANY_SET = "leaderworkerset.sigs.k8s.io/name"
TIMEOUT = 8.0
"""Seconds of gang.timeout where it is what a scenario is about."""
LONGER = 20.0
"""Seconds until a leader is ready where that is to be longer."""
MINUTES = 180.0
"""The same where the timeout is the one that nobody has changed, 2 minutes."""


@pytest.fixture(scope="module", name="_session_lab")
def operated_lab() -> Iterator[Lab]:
    with operated("lws") as lab:
        yield lab


def runs(cluster: Cluster, namespace: str, count: int, within: float = PATIENCE) -> list[Pod]:
    return wait_until(
        lambda: bound(cluster.pods(namespace), count),
        within=within,
        what=f"{count} pods run",
        also=lambda: everything(cluster, namespace),
    )


def test_each_group_of_a_leaderworkerset_starts_whole_or_not_at_all(cluster: Cluster, namespace: str) -> None:
    """Two groups of 3 pods of 8 GPUs: room for one of them, and one node is left."""
    cluster.submit(leader_worker_set("serve", 3, replicas=2, gpus=8), namespace=namespace)
    first = runs(cluster, namespace, 3)
    (group,) = {one.labels["leaderworkerset.sigs.k8s.io/group-index"] for one in first}
    other = {"0": "1", "1": "0"}[group]
    has_state(cluster, namespace, f"leaderworkerset-serve-{other}", "Waiting")
    stays(cluster, lambda: len(bound(cluster.pods(namespace))) == 3, what="the other group waits whole")
    cluster.patch(path("LeaderWorkerSet", namespace, "serve"), {"spec": {"replicas": 1}})
    wait_until(
        lambda: (
            [one.labels["leaderworkerset.sigs.k8s.io/group-index"] for one in bound(cluster.pods(namespace))]
            == ["0", "0", "0"]
        ),
        what="group 0 is left, whole",
        also=lambda: everything(cluster, namespace),
    )


def test_groups_start_in_order_of_submission(cluster: Cluster, namespace: str) -> None:
    start_in_order_of_submission(
        cluster, namespace, lambda name: leader_worker_set(name, 4, gpus=8), "leaderworkerset-{}-0", 4
    )


def test_a_group_waits_for_the_last_of_its_pods_and_starts_whole(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    waits_for_the_last_of_its_pods_and_starts_whole(
        lab,
        cluster,
        namespace,
        leader_worker_set("serve", 3, gpus=8),
        "leaderworkerset-serve-0",
        {"worker": 3},
        {"leaderworkerset.sigs.k8s.io/worker-index": "2"},
        "2 of 3 pods exist; missing: 1 worker",
    )


def test_a_leader_that_its_workers_wait_for_waits_until_there_is_room_for_these_too(
    cluster: Cluster, namespace: str
) -> None:
    holder = cluster.submit(pod("holder", gpus=8), namespace=namespace)[0]
    runs(cluster, namespace, 1)
    cluster.submit(leader_worker_set("serve", 4, startup="LeaderReady", gpus=8), namespace=namespace)
    waits_because(cluster, namespace, "leaderworkerset-serve-0", "needs 32 GPUs (4 replicas of 8)")
    stays(
        cluster,
        lambda: [one.name for one in bound(cluster.pods(namespace))] == ["holder"],
        what="no leader starts without room for its workers",
    )
    cluster.delete_pod(Pod(holder))
    wait_until(
        lambda: len(bound(cluster.pods(namespace))) == 4,
        what="leader and workers run",
        also=lambda: show(cluster.pods(namespace)),
    )


def test_a_leader_that_takes_longer_than_the_timeout_is_not_sent_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        goes_on_after_a_slow_leader(cluster, namespace, LONGER, alone=1.5 * TIMEOUT)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.referee(
    start=MINUTES + PATIENCE
)  # it goes by the group's size; these workers wait for their leader
def test_a_leader_that_takes_three_minutes_goes_on_under_a_timeout_of_two(
    cluster: Cluster, namespace: str
) -> None:
    goes_on_after_a_slow_leader(cluster, namespace, MINUTES, alone=150.0)


def goes_on_after_a_slow_leader(cluster: Cluster, namespace: str, seconds: float, *, alone: float) -> None:
    """The leader is ready after so many seconds, its workers come then; nothing of it ends, for `alone` s."""
    slowly = {"annotations": {"e2e.muster.dev/start-seconds": f"{seconds:.0f}"}}
    slow = leader_worker_set("slow", 4, startup="LeaderReady", leader=slowly, gpus=8)
    cluster.submit(slow, namespace=namespace)
    (leader,) = runs(cluster, namespace, 1)
    holds_places(cluster, namespace, "leaderworkerset-slow-0", 3)
    pods = runs(cluster, namespace, 4, within=seconds + PATIENCE)
    assert leader.uid in {one.uid for one in pods}
    is_left_alone(cluster, namespace, pods, alone)


@pytest.mark.unsound(
    "the referee takes the size that the controller notes on each pod for that of ours",
    "group 0 of mixed is partly bound",
)
@pytest.mark.parametrize("elsewhere", ["leader", "workers"])
def test_a_group_half_of_which_another_scheduler_binds_is_left_alone(
    lab: Lab, cluster: Cluster, namespace: str, elsewhere: str
) -> None:
    foreign, ours = {"scheduler": None, "gpus": 0}, {"scheduler": "muster", "gpus": 8}
    leader, workers = (foreign, ours) if elsewhere == "leader" else (ours, foreign)
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        cluster.submit(leader_worker_set("mixed", 4, leader=leader, **workers), namespace=namespace)
        pods = runs(cluster, namespace, 4)
        roles = has_state(cluster, namespace, "leaderworkerset-mixed-0", "Running")["roles"]
        assert {one["min"] for one in roles.values()} == {1 if elsewhere == "workers" else 3}
        is_left_alone(cluster, namespace, pods, 1.5 * TIMEOUT)


def test_groups_beyond_the_room_wait_and_those_that_run_are_left_alone(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    where = path("LeaderWorkerSet", namespace, "serve")
    with configured(lab, gang={"timeout": f"{TIMEOUT:.0f}s"}):
        cluster.submit(leader_worker_set("serve", 2, gpus=8), namespace=namespace)
        first = runs(cluster, namespace, 2)
        cluster.patch(where, {"spec": {"replicas": 4}})
        wait_until(lambda: len(cluster.pods(namespace)) == 8, what="the controller has made all groups")
        full = runs(cluster, namespace, 4)
        assert {one.uid for one in first} < {one.uid for one in full}
        is_left_alone(cluster, namespace, full, 1.5 * TIMEOUT)
        assert sorted(states(cluster, namespace)) == ["Running", "Running", "Waiting", "Waiting"]
        cluster.patch(where, {"spec": {"replicas": 1}})
        wait_until(
            lambda: (
                {one.uid for one in cluster.pods(namespace)} == {one.uid for one in first}
                and states(cluster, namespace) == ["Running", *["Finished"] * 3]
            ),
            what="the first group is left, and the others' gangs are finished",
            also=lambda: everything(cluster, namespace),
        )


def states(cluster: Cluster, namespace: str) -> list[str]:
    """What the Gangs of the four groups say."""
    return [
        gang(cluster, namespace, f"leaderworkerset-serve-{number}").get("state", "") for number in range(4)
    ]


def test_an_elastic_group_shrinks_and_grows_while_its_leader_goes_on(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """restartPolicy None: the StatefulSets make each pod again."""
    with shared_by(lab, "max-min"):
        cluster.submit(leader_worker_set("serve", 8, restarts="None", **ELASTIC), namespace=namespace)
        before = runs(cluster, namespace, 8)
        for _ in range(2):
            cluster.submit(job("other", 8, success_on="0", **ELASTIC), namespace=namespace)
            wait_until(
                lambda: (
                    len(bound(cluster.pods(namespace, "other"))) == 4
                    and len(bound(cluster.pods(namespace, labels=OF_ANY_SET))) == 4
                ),
                what="each has its half",
                also=lambda: everything(cluster, namespace),
            )
            delete_job(cluster, namespace, "other")
            wait_until(lambda: not cluster.pods(namespace, "other"), what="the other is gone")
            after = runs(cluster, namespace, 8)
            kept = {one.name for one in before if one.uid in {each.uid for each in after}}
            assert kept == {"serve-0", "serve-0-1", "serve-0-2", "serve-0-3"}
            before = after


def test_an_elastic_group_that_its_controller_makes_again_as_a_whole_keeps_its_size_and_says_why(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """restartPolicy RecreateGroupOnPodRestart: whoever ends one of its pods ends all of them."""
    why = (
        "the LeaderWorkerSet makes all of a group again when one of its pods is ended (restartPolicy "
        "RecreateGroupOnPodRestart; with None it does not); "
        'muster.dev/evictable: "true" on those pods allows it all the same'
    )
    group = leader_worker_set("serve", 8, **ELASTIC)
    with shared_by(lab, "max-min"):
        keeps_its_size_and_says_why(cluster, namespace, group, "leaderworkerset-serve-0", 8, why)


def test_such_a_group_that_may_shrink_all_the_same_is_made_again_as_a_whole_each_time(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Which is why it keeps its size where nobody says that it may be ended."""
    allowed = {"annotations": {"muster.dev/evictable": "true"}}
    with shared_by(lab, "max-min"):
        cluster.submit(leader_worker_set("serve", 8, **ELASTIC, **allowed), namespace=namespace)
        before = {one.uid for one in runs(cluster, namespace, 8)}
        cluster.submit(job("other", 8, success_on="0", **ELASTIC), namespace=namespace)
        wait_until(
            lambda: (
                len(bound(cluster.pods(namespace, "other"))) == 4
                and len(bound(cluster.pods(namespace, labels=OF_ANY_SET))) == 4
                and before.isdisjoint(one.uid for one in cluster.pods(namespace))
            ),
            what="each has its half, and no pod of the group is the one that it was",
            also=lambda: everything(cluster, namespace),
        )


@pytest.mark.parametrize("fails", [Cluster.delete_pod, restarts_a_container], ids=["is-deleted", "restarts"])
def test_a_group_whose_pod_fails_comes_back_whole_and_before_what_waits(
    cluster: Cluster, namespace: str, fails: Callable[[Cluster, Pod], None]
) -> None:
    """restartPolicy RecreateGroupOnPodRestart: the controller ends the whole group."""
    cluster.submit(leader_worker_set("serve", 4, gpus=8), namespace=namespace)
    before = runs(cluster, namespace, 4)
    cluster.submit(leader_worker_set("waits", 2, gpus=8), namespace=namespace)
    has_state(cluster, namespace, "leaderworkerset-waits-0", "Waiting")
    fails(cluster, next(one for one in before if one.name != "serve-0"))
    wait_until(
        lambda: {one.uid for one in before}.isdisjoint(one.uid for one in cluster.pods(namespace)),
        what="the controller has ended all of the group",
        also=lambda: everything(cluster, namespace),
    )
    again = runs(cluster, namespace, 4)
    assert {one.labels["leaderworkerset.sigs.k8s.io/name"] for one in again} == {"serve"}


def test_gangs_of_a_leaderworkerset_belong_to_it_and_go_with_it(cluster: Cluster, namespace: str) -> None:
    cluster.submit(leader_worker_set("serve", 2, replicas=2, gpus=2), namespace=namespace)
    names = ["leaderworkerset-serve-0", "leaderworkerset-serve-1"]
    for name in names:
        has_state(cluster, namespace, name, "Running")
    owners = [
        [
            (owner["kind"], owner["name"])
            for owner in cluster.gangs(namespace)[name]["metadata"]["ownerReferences"]
        ]
        for name in names
    ]
    assert owners == [[("LeaderWorkerSet", "serve")]] * 2
    cluster.delete(path("LeaderWorkerSet", namespace, "serve"), propagationPolicy="Background")
    wait_until(
        lambda: not cluster.pods(namespace) and not cluster.gangs(namespace),
        what="neither pods nor Gangs are left",
        also=lambda: everything(cluster, namespace),
    )
    stays(cluster, lambda: not cluster.gangs(namespace), what="and no Gang comes again")
