# Over 300 lines: each failure is tried in the middle of the same growing and shrinking.
"""When things go wrong with elastic jobs: nothing is lost or double-booked, and shares come right again (issue 5)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from e2e.cluster import Cluster, Pod
from e2e.elastic import (
    failed,
    has,
    measured,
    only,
    replayed,
    settles,
    shared_by,
    shares,
    train,
)
from e2e.lab import Lab
from e2e.reports import tell, token
from e2e.scenario import (
    EXIT_CODE,
    RUN_SECONDS,
    bound,
    delete_job,
    gang,
    gated,
    holds_for,
    job,
    lets_go,
    looking,
    seen_at_once,
    show,
    stays,
    wait_until,
)
from e2e.test_elastic import why
from e2e.test_failures import cannot_bind, delete_it, frozen
from e2e.test_words import metrics

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("room"), pytest.mark.referee(again=10)]


def dies(lab: Lab, fault: str) -> None:
    """Muster runs with the fault from now on, or has died of it already; its configuration is kept."""
    lab.restart("muster-0", env={"MUSTER_FAULTS": fault}, wait=False)
    wait_until(
        lambda: lab.ready("muster-0") or not lab.alive("muster-0"), what=f"muster runs with the fault {fault}"
    )


def comes_back(lab: Lab, fault: str) -> None:
    wait_until(lambda: not lab.alive("muster-0"), what=f"muster has died: {fault}")
    lab.start("muster-0", env={})


# --- muster dies or restarts --------------------------------------------------------------------------------


@pytest.mark.usefixtures("max_min")
@pytest.mark.parametrize(
    "fault",
    [
        "die after 0 POST eviction",
        "die after 3 POST eviction",
        "die-sent after 5 POST eviction",
        "die after 4 PATCH pods",
        "die-sent after 4 PATCH pods",
        "die after 1 PATCH gangs",
    ],
)
def test_muster_that_dies_while_a_job_shrinks_for_another_goes_on_where_it_was(
    lab: Lab, cluster: Cluster, namespace: str, fault: str
) -> None:
    cluster.submit(train("a", least=4), namespace=namespace)
    before = {one.uid for one in has(cluster, namespace, "a", 16)}
    dies(lab, fault)
    cluster.submit(train("b", least=4), namespace=namespace)
    comes_back(lab, fault)
    pods = settles(cluster, namespace, {"a": 8, "b": 8})
    assert {one.uid for one in pods["a"]} <= before, "no more of a was ended than had to"
    assert failed(cluster, namespace, "a") == 0
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
@pytest.mark.parametrize("fault", ["die after 2 PATCH pods", "die-sent after 2 PATCH pods"])
def test_muster_that_dies_while_a_job_grows_goes_on_where_it_was(
    lab: Lab, cluster: Cluster, namespace: str, fault: str
) -> None:
    cluster.submit(train("a"), job("b", 8), namespace=namespace)
    before = {one.uid for one in settles(cluster, namespace, {"a": 8, "b": 8})["a"]}
    dies(lab, fault)
    delete_job(cluster, namespace, "b")
    comes_back(lab, fault)
    pods = settles(cluster, namespace, {"a": 16})
    assert before <= {one.uid for one in pods["a"]}
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_a_restart_between_shrink_and_growth_forgets_nothing(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a", stop_seconds=60), namespace=namespace)
    before = {one.uid for one in has(cluster, namespace, "a", 16)}
    with seen_at_once(lab):  # one shrink is one resize
        cluster.submit(train("b"), namespace=namespace)
        wait_until(lambda: len(gated(cluster.pods(namespace, "b"))) == 16, what="b has its pods")
    wait_until(
        lambda: len(before & {one.uid for one in bound(cluster.pods(namespace, "a"))}) == 8,
        what="eight replicas of a leave",
        also=lambda: show(cluster.pods(namespace)),
    )
    lab.restart("muster-0", env={})
    lets_go(cluster, *cluster.pods(namespace, "a"))
    pods = settles(cluster, namespace, {"a": 8, "b": 8})
    assert {one.uid for one in pods["a"]} <= before
    # The Gang tells with one write what a has and what became of it.
    status = wait_until(
        lambda: found if (found := gang(cluster, namespace, "job-a")).get("replicas") == "8/8" else {},
        what="the Gang of a tells its eight replicas",
        also=lambda: str(gang(cluster, namespace, "job-a")),
    )
    assert status["resizes"] == 1, status


# --- nodes and replicas -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("max_min")
def test_a_node_that_goes_in_the_middle_of_growing_takes_only_what_stood_there(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(job("b", 8), namespace=namespace)
    assert len({one.node for one in has(cluster, namespace, "b", 8)}) == 1, "b has a node for itself"
    cluster.submit(train("a", least=2), namespace=namespace)  # so a has the other one
    first = settles(cluster, namespace, {"a": 8, "b": 8})["a"]
    with frozen(lab, "kube-scheduler-0"):
        delete_job(cluster, namespace, "b")
        pods = wait_until(
            lambda: (
                (found := cluster.pods(namespace, "a"))
                and sum(bool(one.pinned_to) for one in found) == 16
                and found
            ),
            what="a is to grow to 16",
            also=lambda: show(cluster.pods(namespace)),
        )
        (lost,) = {one.pinned_to for one in pods} - {one.node for one in first}
        doomed = next(one for one in pods if one.pinned_to == lost)
        cannot_bind(lab, cluster, doomed, lambda: delete_it(cluster, namespace, lost))
    stays(cluster, lambda: shares(cluster, namespace).get("a", 0) >= 2, what="a runs on")
    now = settles(cluster, namespace, {"a": 8})["a"]
    assert [one.uid for one in now] == [one.uid for one in first]
    wait_until(
        lambda: not [one for one in cluster.pods(namespace, "a") if one.pinned_to == lost],
        what="nothing is pinned to the node that is gone",
        also=lambda: show(cluster.pods(namespace)),
    )
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_a_node_with_part_of_a_job_dies_and_the_rest_goes_on(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    # Its controller counts eight failures, and waits for up to 10 minutes before it makes these pods again.
    cluster.submit(train("a", least=2, backoff_limit=50), namespace=namespace)
    before = has(cluster, namespace, "a", 16)
    leader = before[0].node
    (lost,) = {one.node for one in before} - {leader}
    cluster.delete(f"/api/v1/nodes/{lost}")
    stay = [one.uid for one in before if one.node == leader]
    wait_until(
        lambda: [one.uid for one in bound(cluster.pods(namespace, "a"))] == stay,
        within=300,  # the garbage collector of pods waits for 40 s, and looks every 20
        what="those on the other node run on, and nobody else",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    wait_until(
        lambda: gang(cluster, namespace, "job-a").get("share", "").startswith("8/"),
        what="its Gang says so",
        also=lambda: str(gang(cluster, namespace, "job-a")),
    )
    replayed(lab, cluster)


@pytest.mark.usefixtures("max_min")
def test_a_replica_that_crashes_comes_back_and_nobody_else_is_touched(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    cluster.submit(train("a"), train("b"), namespace=namespace)
    before = settles(cluster, namespace, {"a": 8, "b": 8})
    crashes(cluster, before["a"][3])
    wait_until(lambda: failed(cluster, namespace, "a") == 1, what="the Job counts one failure")
    pods = wait_until(
        lambda: (
            len(found := bound(cluster.pods(namespace, "a"))) == 8
            and before["a"][3].uid not in {one.uid for one in found}
            and found
        ),
        what="a has eight replicas again",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )
    assert len({one.uid for one in pods} & {one.uid for one in before["a"]}) == 7
    assert {one.uid for one in bound(cluster.pods(namespace, "b"))} == {one.uid for one in before["b"]}
    replayed(lab, cluster)


def crashes(cluster: Cluster, one: Pod) -> None:
    """Its container ends with exit code 1, now."""
    notes = {RUN_SECONDS: "0", EXIT_CODE: "1"}
    cluster.patch(f"/api/v1/namespaces/{one.namespace}/pods/{one.name}", {"metadata": {"annotations": notes}})


# --- reports that are wrong ---------------------------------------------------------------------------------


def test_a_job_that_reports_nonsense_or_falls_silent_changes_nobodys_share(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    with shared_by(lab, "afs-l"):
        cluster.submit(train("honest"), train("liar"), namespace=namespace)
        pods = settles(cluster, namespace, {"honest": 8, "liar": 8})
        bearer = {name: token(cluster, found[0], namespace) for name, found in pods.items()}
        began = time.monotonic()
        for _ in range(6):  # both are honest for a while
            step = 10.0 * (time.monotonic() - began) + 1
            for name in bearer:
                assert tell(lab, bearer[name], {"step": step}).status_code == 200
            time.sleep(1.1)
        before = wait_until(
            lambda: (now := shares(cluster, namespace)) and sum(now.values()) == 16 and now,
            what="all GPUs are shared out",
            also=lambda: str(shares(cluster, namespace)),
        )
        lies: list[tuple[object, int]] = [
            ({"step": -5}, 400),
            (b'{"step": NaN}', 400),
            (b'{"step": 1e400}', 400),
            (
                {"step": 1e12},
                200,
            ),  # a speed that is wrong by far more than 100 times: it can be, and is not believed
            ({"step": 3}, 200),  # and back
            ({"step": "many"}, 400),
        ]
        for lie, answered in lies:
            answer = tell(lab, bearer["liar"], lie)
            assert answer.status_code == answered, f"{lie!r}: {answer.text}"
            step = 10.0 * (time.monotonic() - began) + 1
            assert tell(lab, bearer["honest"], {"step": step}).status_code == 200
            time.sleep(1.1)
        holds_for(
            lambda: shares(cluster, namespace) == before,
            seconds=6,
            what="shares stay, also when both are silent from now on",
        )
        replayed(lab, cluster)


SILENT = re.compile(r"has not reported since \d\d:\d\dZ on \d+ [A-Z][a-z]{2}: its reports until then count")


@pytest.mark.usefixtures("max_min")
def test_a_training_that_hangs_is_said_to_be_silent_until_it_reports_again(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Its pods live, so nobody else would notice. A minute without a report is silence."""
    cluster.submit(train("hangs"), train("never"), namespace=namespace)
    pods = settles(cluster, namespace, {"hangs": 8, "never": 8})
    bearer = token(cluster, pods["hangs"][0], namespace)

    def told(name: str) -> str:
        return str(gang(cluster, namespace, f"job-{name}").get("shareReason", ""))

    for step in range(5):
        assert tell(lab, bearer, {"step": 10.0 * step + 10.0}).status_code == 200
        time.sleep(1.1)
    assert not SILENT.search(told("hangs"))
    assert metrics(lab)["muster_jobs_silent"] == 0
    wait_until(
        lambda: SILENT.search(told("hangs")), within=240, what="its Gang says so", also=lambda: told("hangs")
    )
    text = lab.muster("explain", "job-hangs", "-n", namespace).stdout
    assert SILENT.search(" ".join(text.split())), text
    wait_until(lambda: metrics(lab)["muster_jobs_silent"] == 1, what="and it is counted")
    assert not SILENT.search(told("never")), "who never reported is not missed"
    after = settles(cluster, namespace, {"hangs": 8, "never": 8})
    assert [one.uid for one in after["hangs"]] == [one.uid for one in pods["hangs"]], "and it runs on"
    assert tell(lab, bearer, {"step": 60.0}).status_code == 200
    again = time.monotonic()

    def goes_on() -> None:
        answer = tell(lab, bearer, {"step": 60.0 + 10.0 * (time.monotonic() - again)})
        assert answer.status_code in (200, 429), answer.text

    with looking(goes_on, 1.1):  # its Gang may be written a minute later, which would be silence again
        wait_until(lambda: not SILENT.search(told("hangs")), what="and no more", also=lambda: told("hangs"))
        wait_until(lambda: metrics(lab)["muster_jobs_silent"] == 0, what="nor counted")
        replayed(lab, cluster)


# --- speeds as they are reported ----------------------------------------------------------------------------


def trains(
    lab: Lab, cluster: Cluster, leader: Pod, name: str, speeds: dict[int, float]
) -> Callable[[], None]:
    """A look for `looking`: the job's leader reports how far it is, at the speed of as many replicas as are bound."""
    own, bearer = Cluster(cluster.kubeconfig), token(cluster, leader, leader.namespace)
    done, last = 0.0, time.monotonic()

    def look() -> None:
        nonlocal done, last
        now = time.monotonic()
        count = len(bound(own.pods(leader.namespace, name)))
        size = max((n for n in speeds if n <= count), default=0)
        done, last = done + (now - last) * speeds.get(size, 0.0), now
        told = {"step": done, "total": 1e6, "workers": max(1, count)}
        assert tell(lab, bearer, told).status_code in (200, 429)

    return look


def test_a_job_that_is_measured_to_be_slower_at_more_replicas_comes_back_and_stays(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    """Nothing is declared: it has to try eight to know that four are faster."""
    only(lab, cluster, "node-00")
    worth = {"resize-cost": {"cost": 0.5, "overhead": 1.0, "horizon": 600.0}}
    speeds = {1: 10.0, 2: 19.0, 4: 30.0, 8: 12.0}
    with shared_by(lab, "afs-l", resizeCost=True, pluginArgs=worth, estimate="reported"):
        cluster.submit(job("b", 4), namespace=namespace)
        has(cluster, namespace, "b", 4)
        cluster.submit(train("a", most=8, sizes="1,2,4,8"), namespace=namespace)
        leader = has(cluster, namespace, "a", 4)[0]

        def knows(count: int) -> bool:
            found = measured(lab, cluster, namespace, "job-a")
            return count in found and abs(found[count] / speeds[count] - 1.0) < 0.5

        with looking(trains(lab, cluster, leader, "a", speeds), 1.1):
            wait_until(lambda: knows(4), within=240, what="it is measured at four")
            delete_job(cluster, namespace, "b")
            has(cluster, namespace, "a", 8)
            wait_until(
                lambda: knows(8),
                within=240,
                what="it is measured at eight",
                also=lambda: f"{measured(lab, cluster, namespace, 'job-a')}\n{cluster.gangs(namespace)}",
            )
            settles(cluster, namespace, {"a": 4}, within=240)
            holds_for(lambda: shares(cluster, namespace) == {"a": 4}, seconds=15, what="and there it stays")
            replayed(lab, cluster)
        wait_until(
            lambda: "4 replicas are faster than 8" in why(lab, cluster, namespace, "a"),
            what="the plan says why",
            also=lambda: why(lab, cluster, namespace, "a"),
        )
        assert failed(cluster, namespace, "a") == 0
