# Over 300 lines: each policy and each way of sharing has a scenario, on the same jobs.
"""Elastic jobs on the live cluster: shares follow the policy, by evictions and gates (issue 5, point 1)."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import (
    INDEX,
    failed,
    has,
    holding,
    indexes,
    replayed,
    settles,
    shared_by,
    shares,
    snapshot_of,
    train,
)
from e2e.lab import Lab
from e2e.scenario import (
    bound,
    delete_job,
    ends_now,
    gang,
    gated,
    in_state,
    job,
    lets_go,
    planned_after,
    priority_class,
    scheduled_at,
    seen_at_once,
    show,
    stays,
    wait_until,
    waits_because,
)
from e2e.test_failures import frozen
from muster.core import snapshot_codec

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("room"), pytest.mark.referee(again=10)]

WELL = "1=1,2=2,4=4,8=8,16=16"
BADLY = "1=1,2=1.2,4=1.3,8=1.35,16=1.4"
FALLS = "1=1,2=1.9,4=3,8=2,16=1"


def why(lab: Lab, cluster: Cluster, namespace: str, name: str) -> str:
    """Why the job has the share that it has, as the newest plan says; "" where it has no share."""
    whys = snapshot_of(lab, cluster)["plan"]["whys"]
    return next((str(words) for key, words in whys if key[:2] == [namespace, f"job-{name}"]), "")


# --- grow and shrink ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("max_min")
def test_a_job_has_all_gpus_while_it_is_alone_gives_half_to_the_next_and_takes_them_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a"), namespace=namespace)
    before = {one.uid for one in has(cluster, namespace, "a", 16)}
    replayed(lab, cluster)
    cluster.submit(train("b"), namespace=namespace)
    pods = settles(cluster, namespace, {"a": 8, "b": 8})
    assert {one.uid for one in pods["a"]} <= before, "those that stay were never touched"
    wait_until(
        lambda: len(gated(cluster.pods(namespace, "a"))) == 8,
        what="those that left are back behind the gate",
    )
    replayed(lab, cluster)
    delete_job(cluster, namespace, "b")
    pods = settles(cluster, namespace, {"a": 16})
    assert len({one.uid for one in pods["a"]} & before) == 8
    assert failed(cluster, namespace, "a") == 0
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_jobs_that_come_and_go_together_are_shared_out_at_once(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(*(train(name) for name in "abcd"), namespace=namespace)
    settles(cluster, namespace, dict.fromkeys("abcd", 4))
    for name in "abc":
        delete_job(cluster, namespace, name)
    settles(cluster, namespace, {"d": 16})
    cluster.submit(*(train(f"{name}2") for name in "abc"), namespace=namespace)
    settles(cluster, namespace, {"a2": 4, "b2": 4, "c2": 4, "d": 4})
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_min_and_max_and_allowed_sizes_hold(lab: Lab, cluster: Cluster, namespace: str) -> None:
    cluster.submit(train("small", most=2), namespace=namespace)
    has(cluster, namespace, "small", 2)
    cluster.submit(train("large", least=6, most=16), namespace=namespace)
    settles(cluster, namespace, {"small": 2, "large": 14})
    cluster.submit(train("sized", sizes="1,2,4,8"), namespace=namespace)

    def settled() -> dict[str, int] | None:
        """What each has: so, and so after a newer plan, for changes may pass through what looks like their end."""
        now = shares(cluster, namespace)
        allowed = now.get("sized") in (4, 8) and now["small"] == 2 and now["large"] >= 6
        if not allowed or sum(now.values()) not in (14, 16):
            return None
        planned_after(cluster)
        return now if shares(cluster, namespace) == now else None

    found = wait_until(
        settled,
        what="small has its most, large not below its least, sized one of its sizes",
        also=lambda: str(shares(cluster, namespace)),
    )
    stays(cluster, lambda: shares(cluster, namespace) == found, what="and so it stays")
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_a_rigid_job_runs_beside_elastic_ones_and_is_never_resized(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a"), namespace=namespace)
    has(cluster, namespace, "a", 16)
    cluster.submit(job("rigid", 6), namespace=namespace)
    fixed = {one.uid for one in settles(cluster, namespace, {"a": 10, "rigid": 6})["rigid"]}
    cluster.submit(train("b"), namespace=namespace)
    pods = settles(cluster, namespace, {"a": 5, "b": 5, "rigid": 6})
    assert {one.uid for one in pods["rigid"]} == fixed
    delete_job(cluster, namespace, "a")
    assert {one.uid for one in settles(cluster, namespace, {"b": 10, "rigid": 6})["rigid"]} == fixed
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_the_leader_role_is_never_shrunk(lab: Lab, cluster: Cluster, namespace: str) -> None:
    def parts(workers: int) -> list[Json]:
        whole = {"job": "train", "roles": f"leader=1,worker={workers}"}
        return [
            job("leader", 1, role="leader", **whole),
            job(
                "workers",
                workers,
                role="worker",
                min_replicas=2,
                max_replicas=workers,
                success_on="0",
                **whole,
            ),
        ]

    cluster.submit(*parts(15), namespace=namespace)
    first = settles(cluster, namespace, {"leader": 1, "workers": 15})
    cluster.submit(train("b", least=8), namespace=namespace)
    found = wait_until(
        lambda: (
            (now := holding(cluster, namespace))
            and len(now.get("b", [])) >= 8
            and sum(map(len, now.values())) == 16
            and now
        ),
        what="b runs with its least",
        also=lambda: f"{shares(cluster, namespace)}\n{cluster.gangs(namespace)}",
    )
    assert [one.uid for one in found["leader"]] == [one.uid for one in first["leader"]]
    assert len(found["workers"]) >= 2
    assert indexes(found["workers"]) == list(range(len(found["workers"])))
    replayed(lab, cluster)


# --- the queue ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("max_min")
def test_one_more_job_than_fits_waits_with_a_reason_until_another_ends(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a", least=8), train("b", least=8), namespace=namespace)
    before = settles(cluster, namespace, {"a": 8, "b": 8})
    cluster.submit(train("c", least=8), namespace=namespace)
    status = wait_until(
        lambda: in_state(cluster, namespace, "job-c", "Waiting"),
        what="c waits",
        also=lambda: str(cluster.gangs(namespace)),
    )
    assert status["reason"] in ("Share", "Resources"), status
    assert status["message"]
    stays(
        cluster,
        lambda: shares(cluster, namespace) == {"a": 8, "b": 8},
        what="nobody falls below its least",
    )
    after = settles(cluster, namespace, {"a": 8, "b": 8})
    assert {k: {p.uid for p in v} for k, v in after.items()} == {
        k: {p.uid for p in v} for k, v in before.items()
    }
    replayed(lab, cluster)
    delete_job(cluster, namespace, "a")
    settles(cluster, namespace, {"b": 8, "c": 8})
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_of_two_jobs_that_wait_the_one_of_higher_priority_is_next(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    urgent = f"urgent-{namespace}"
    cluster.submit(priority_class(urgent, 1000))
    try:
        cluster.submit(train("a", least=16), namespace=namespace)
        has(cluster, namespace, "a", 16)
        cluster.submit(train("first", least=16), namespace=namespace)
        wait_until(lambda: in_state(cluster, namespace, "job-first", "Waiting"), what="first waits")
        time.sleep(1.1)  # creation times have whole seconds
        cluster.submit(train("urgent", least=16, priority=urgent), namespace=namespace)
        wait_until(lambda: in_state(cluster, namespace, "job-urgent", "Waiting"), what="urgent waits")
        delete_job(cluster, namespace, "a")
        settles(cluster, namespace, {"urgent": 16})
        replayed(lab, cluster)
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{urgent}")


def test_a_job_of_higher_priority_takes_the_place_of_the_last_of_lower_where_preemption_is_on(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    urgent = f"urgent-{namespace}"
    cluster.submit(priority_class(urgent, 1000))
    try:
        with shared_by(lab, "max-min"):
            cluster.submit(train("a", least=8), namespace=namespace)
            has(cluster, namespace, "a", 16)
            cluster.submit(train("b", least=8), namespace=namespace)
            before = settles(cluster, namespace, {"a": 8, "b": 8})
            cluster.submit(train("urgent", least=8, priority=urgent), namespace=namespace)
            wait_until(lambda: in_state(cluster, namespace, "job-urgent", "Waiting"), what="urgent waits")
            stays(
                cluster,
                lambda: shares(cluster, namespace) == {"a": 8, "b": 8},
                what="without preemption nobody is stopped",
            )
        with shared_by(lab, "max-min", preemption=True):
            after = settles(cluster, namespace, {"a": 8, "urgent": 8})
            assert [one.uid for one in after["a"]] == [one.uid for one in before["a"]]
            wait_until(
                lambda: in_state(cluster, namespace, "job-b", "Waiting"),
                what="b waits, whole",
                also=lambda: str(cluster.gangs(namespace)),
            )
            wait_until(
                lambda: "GPUs go to a job of higher priority first" in str(cluster.events(namespace, "b")),
                what="b's owner is told",
            )
            waits_because(cluster, namespace, "job-b", "GPUs go to a job of higher priority first")
            assert "higher priority" not in str(cluster.events(namespace, "a"))
            replayed(lab, cluster)
            delete_job(cluster, namespace, "urgent")
            settles(cluster, namespace, {"a": 8, "b": 8})
            assert failed(cluster, namespace, "b") == 0
            replayed(lab, cluster)
    finally:
        cluster.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{urgent}")


# --- decisions that newer ones overtake ---------------------------------------------------------------------


@pytest.mark.usefixtures("max_min")
def test_a_shrink_whose_reason_goes_away_ends_no_more_replicas_and_is_taken_back(
    cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a", stop_seconds=60), namespace=namespace)
    before = {one.uid for one in has(cluster, namespace, "a", 16)}
    cluster.submit(train("b"), namespace=namespace)
    wait_until(
        lambda: len(before & {one.uid for one in bound(cluster.pods(namespace, "a"))}) == 8,
        what="eight replicas of a leave",
        also=lambda: show(cluster.pods(namespace)),
    )
    delete_job(cluster, namespace, "b")  # before anything of it could start
    wait_until(lambda: not cluster.pods(namespace, "b"), what="b is gone")
    lets_go(cluster, *cluster.pods(namespace, "a"))
    pods = settles(cluster, namespace, {"a": 16})
    assert len({one.uid for one in pods["a"]} & before) == 8, "not one more was ended"
    lets_go(cluster, *pods["a"])


@pytest.mark.usefixtures("max_min")
def test_a_growth_that_is_overtaken_before_it_is_bound_is_undone_for_who_needs_the_gpus(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a"), job("b", 8), namespace=namespace)
    settles(cluster, namespace, {"a": 8, "b": 8})
    with frozen(lab, "kube-scheduler-0"):
        delete_job(cluster, namespace, "b")
        wait_until(
            lambda: sum(bool(one.pinned_to) for one in cluster.pods(namespace, "a")) == 16,
            what="a is to grow to 16",
            also=lambda: show(cluster.pods(namespace)),
        )
        cluster.submit(job("c", 8), namespace=namespace)
        wait_until(
            lambda: sum(bool(one.pinned_to) for one in cluster.pods(namespace, "a")) == 8,
            what="the growth is taken back before it is bound",
            also=lambda: show(cluster.pods(namespace)),
        )
    settles(cluster, namespace, {"a": 8, "c": 8})
    assert failed(cluster, namespace, "a") == 0


# --- how a job changes --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("max_min")
def test_a_job_that_restarts_ends_whole_and_starts_again_with_its_new_share(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a", restart=True), namespace=namespace)
    first = {one.uid for one in has(cluster, namespace, "a", 16)}
    cluster.submit(train("b"), namespace=namespace)
    wait_until(
        lambda: not first & {one.uid for one in bound(cluster.pods(namespace, "a"))},
        what="all replicas of a have been ended",
        also=lambda: show(cluster.pods(namespace)),
    )
    pods = settles(cluster, namespace, {"a": 8, "b": 8})
    second = {one.uid for one in pods["a"]}
    assert not second & first, "every replica is a new one"
    delete_job(cluster, namespace, "b")
    pods = settles(cluster, namespace, {"a": 16})
    assert not {one.uid for one in pods["a"]} & second
    assert failed(cluster, namespace, "a") == 0
    replayed(lab, cluster)


def test_a_job_is_not_changed_again_before_it_has_paid_for_its_last_change_and_says_so(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    # A change costs 0.1 s at least and a few at most (measured), so the next one may come minutes later.
    cost = {"resize-cost": {"cost": 0.5, "overhead": 0.0005, "horizon": 6000.0}}
    with shared_by(lab, "max-min", resizeCost=True, pluginArgs=cost):
        cluster.submit(train("a", speeds=WELL), namespace=namespace)
        has(cluster, namespace, "a", 16)  # nobody rests after his first start
        with seen_at_once(lab):  # a gives b its half by one change: after the first of several it would rest
            cluster.submit(train("b", speeds=WELL, stop_seconds=3), namespace=namespace)
            wait_until(lambda: len(gated(cluster.pods(namespace, "b"))) == 16, what="b has its pods")
        settles(cluster, namespace, {"a": 8, "b": 8})
        delete_job(cluster, namespace, "b")
        wait_until(lambda: "b" not in shares(cluster, namespace), what="b is gone")
        # Asked of the service: in the Gang a sentence of which only the words are new is written once a minute
        # (test_words waits for that).
        wait_until(
            lambda: "changed a short while ago" in why(lab, cluster, namespace, "a"),
            what="a says why it has not more",
            also=lambda: why(lab, cluster, namespace, "a"),
        )
        assert shares(cluster, namespace) == {"a": 8}
        wait_until(
            lambda: gang(cluster, namespace, "job-a").get("resizes") == 1,
            what="its Gang tells of one resize",
            also=lambda: str(gang(cluster, namespace, "job-a")),
        )
        replayed(lab, cluster)
    with shared_by(lab, "max-min"):
        settles(cluster, namespace, {"a": 16})


def test_growth_that_gains_less_than_it_costs_is_left(lab: Lab, cluster: Cluster, namespace: str) -> None:
    cost = {"resize-cost": {"cost": 3.0, "overhead": 1.0, "horizon": 600.0}}
    poor = "1=1,8=4,16=4.0001"
    with shared_by(lab, "max-min", resizeCost=True, pluginArgs=cost):
        cluster.submit(train("a", speeds=poor), job("b", 8), namespace=namespace)
        settles(cluster, namespace, {"a": 8, "b": 8})
        delete_job(cluster, namespace, "b")
        wait_until(lambda: not cluster.pods(namespace, "b"), what="b is gone")
        stays(cluster, lambda: shares(cluster, namespace).get("a") == 8, what="a stays at 8")
        wait_until(
            lambda: "gain" in why(lab, cluster, namespace, "a"),
            what="the plan says why",
            also=lambda: why(lab, cluster, namespace, "a"),
        )
        assert shares(cluster, namespace) == {"a": 8}
        replayed(lab, cluster)


# --- policies -----------------------------------------------------------------------------------------------


def test_two_policies_one_after_the_other_share_by_what_each_knows(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with shared_by(lab, "max-min"):
        cluster.submit(
            train("well", speeds=WELL, work=36000),
            train("badly", speeds=BADLY, work=36000),
            namespace=namespace,
        )
        settles(cluster, namespace, {"well": 8, "badly": 8})
        replayed(lab, cluster)
    with shared_by(lab, "afs-l"):
        settles(cluster, namespace, {"well": 14, "badly": 2})
        replayed(lab, cluster)
        delete_job(cluster, namespace, "well")
        settles(cluster, namespace, {"badly": 16})
    with shared_by(lab, "max-min"):
        cluster.submit(train("next"), namespace=namespace)
        settles(cluster, namespace, {"badly": 8, "next": 8})
        replayed(lab, cluster)


def test_a_job_whose_speed_falls_when_it_grows_does_not_keep_what_slows_it(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cost = {"resize-cost": {"cost": 0.5, "overhead": 1.0, "horizon": 600.0}}
    with shared_by(lab, "afs-l"):
        cluster.submit(train("a", speeds=FALLS, work=36000), namespace=namespace)
        wait_until(lambda: len(bound(cluster.pods(namespace, "a"))) >= 4, what="a runs")
    with shared_by(lab, "afs-l", resizeCost=True, pluginArgs=cost):
        settles(cluster, namespace, {"a": 4})
        stays(cluster, lambda: shares(cluster, namespace) == {"a": 4}, what="and there it stays")
        replayed(lab, cluster)


def test_with_rounds_shares_change_at_whole_multiples_only(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    length = 6
    ours = {"name": "rounds", "scores": [{"name": "pack"}], "shares": ["max-min"], "round": f"{length}s"}
    with shared_by(lab, "rounds", profiles=[ours]):

        def all_made(jobs: int) -> bool:
            """What was ended is made again, so that it is told apart from what is ended next."""
            return sum(not one.deleted for one in cluster.pods(namespace)) == 16 * jobs

        def in_a_round_that_is_shared_out() -> float | None:
            """The time, once there is a plan of the present round: its beginning is over, however late that came."""
            newest = snapshot_codec.load(snapshot_of(lab, cluster))[0].now
            now = time.time()
            return now if newest // length == now // length else None

        for name, counts in (("a", [16]), ("b", [8, 8]), ("c", [5, 5, 6])):
            before = {one.uid for one in cluster.pods(namespace)}
            asked = time.time()
            if before:
                asked = wait_until(in_a_round_that_is_shared_out, what="this round has begun")
            cluster.submit(train(name), namespace=namespace)
            wait_until(
                lambda counts=counts: sorted(shares(cluster, namespace).values()) == counts,
                what=f"shares are {counts}",
                also=lambda: f"{shares(cluster, namespace)}\n{cluster.gangs(namespace)}",
            )
            wait_until(
                lambda counts=counts: all_made(len(counts)),
                what="all pods of all jobs exist",
                also=lambda: show(cluster.pods(namespace)),
            )
            # As the API has written it down, in whole seconds (a round begins with one): when what is new was
            # bound, and when the replicas that had to leave for it were made again.
            news = [one for one in cluster.pods(namespace) if one.uid not in before]
            times = [scheduled_at(one) for one in bound(news)]
            times += [
                one.raw["metadata"]["creationTimestamp"] for one in news if not one.name.startswith(name)
            ]
            round_of = {at: datetime.fromisoformat(at).timestamp() // length for at in times}
            assert round_of
            if name == "a":  # GPUs that nobody uses wait for no round
                continue
            assert min(round_of.values()) > asked // length, (
                f"{name} was asked for at {asked:.1f}: {round_of}"
            )
            replayed(lab, cluster)


def test_shares_that_fit_nodes_stand_on_the_fewest(lab: Lab, cluster: Cluster, namespace: str) -> None:
    with shared_by(lab, "afs-l-packed"):
        with seen_at_once(lab):  # it moves nobody for a better whole
            cluster.submit(
                *(train(name, speeds=WELL, work=36000 * n, most=8) for n, name in enumerate("abc", 1)),
                namespace=namespace,
            )
            wait_until(lambda: len(gated(cluster.pods(namespace))) == 24, what="all pods wait at the gate")
        found = wait_until(
            lambda: (
                (now := holding(cluster, namespace))
                and sum(map(len, now.values())) == 16
                and len(now) == 3
                and now
            ),
            what="all GPUs are shared out",
            also=lambda: f"{shares(cluster, namespace)}\n{cluster.gangs(namespace)}",
        )
        assert {len(pods) for pods in found.values()} <= {1, 2, 4, 8}
        for name, pods in found.items():
            nodes = {one.node for one in pods}
            assert len(nodes) == -(-len(pods) // 8), f"{name} has {len(pods)} GPUs on {nodes}"
        replayed(lab, cluster)


def test_a_job_that_shrinks_to_one_node_goes_on_with_its_lowest_indexes(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    evenly = {"name": "evenly", "scores": [{"name": "pack"}], "shares": ["max-min", "network-packing"]}
    with shared_by(lab, "evenly", profiles=[evenly]):
        cluster.submit(train("early", most=8), namespace=namespace)
        settles(cluster, namespace, {"early": 8})
        cluster.submit(train("wide"), namespace=namespace)
        at = {one.node for one in settles(cluster, namespace, {"early": 8, "wide": 8})["wide"]}
        delete_job(cluster, namespace, "early")
        settles(
            cluster, namespace, {"wide": 16}
        )  # its higher indexes stand on the node that would be chosen first
        cluster.submit(train("late", most=8), namespace=namespace)
        found = settles(cluster, namespace, {"wide": 8, "late": 8})
        assert {one.node for one in found["wide"]} == at


def test_a_job_whose_leader_has_ended_well_is_over_before_its_controller_says_so(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with shared_by(lab, "max-min"):
        cluster.submit(train("first", most=12), namespace=namespace)
        (leader,) = (
            one for one in settles(cluster, namespace, {"first": 12})["first"] if one.labels[INDEX] == "0"
        )
        with frozen(lab, "kube-controller-manager"):
            ends_now(cluster, leader)
            told = wait_until(
                lambda: in_state(cluster, namespace, "job-first", "Finished"),
                what="the job is over",
                also=lambda: str(gang(cluster, namespace, "job-first")),
            )
            assert told["message"] == "its Job's successPolicy is met"
            assert shares(cluster, namespace) == {"first": 11}, "none of it is made to grow again"
        wait_until(
            lambda: not bound(cluster.pods(namespace, "first")), what="its controller has ended the others"
        )


@pytest.mark.ends("EndedToMove")
def test_a_job_is_moved_to_make_room_for_one_that_needs_a_whole_node(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    tidy = {"name": "tidy", "scores": [{"name": "pack"}], "rebalance": ["defragment"]}
    args = {"defragment": {"cooldown": 1.0, "ending": 1.0, "cost": 1.0}}
    with shared_by(lab, "tidy", profiles=[tidy], pluginArgs=args):
        # a (6) and b (5) never share a node, and small (2), which comes last, goes to the fuller one. Without a only
        # small is in the way.
        cluster.submit(job("a", 1, gpus=6), namespace=namespace)
        at = {one.node for one in has(cluster, namespace, "a", 1)}
        cluster.submit(job("b", 1, gpus=5), namespace=namespace)
        other = {one.node for one in has(cluster, namespace, "b", 1)}
        cluster.submit(train("small", least=2, most=2, restart=True), namespace=namespace)
        assert {one.node for one in has(cluster, namespace, "small", 2)} == at != other
        delete_job(cluster, namespace, "a")
        cluster.submit(job("wide", 1, gpus=8), namespace=namespace)
        assert {one.node for one in has(cluster, namespace, "wide", 1)} == at
        assert {one.node for one in has(cluster, namespace, "small", 2)} == other
        assert failed(cluster, namespace, "small") == 0
        replayed(lab, cluster)
