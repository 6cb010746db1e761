"""What holds of the jobs of every operator: scenarios that the labs of several operators run (e2e/test_operators*.py,
e2e/test_kueue.py), each on a lab of 4 nodes x 8 GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from e2e.cluster import Cluster, Json, Pod
from e2e.lab import Lab
from e2e.operated import everything, gives_all_back, has_state, is_left_alone, of, path, run, submit
from e2e.scenario import (
    PATIENCE,
    bound,
    configured,
    delete_job,
    gang,
    gang_versions,
    job,
    planned_after,
    pod,
    stays,
    wait_until,
    waits_because,
)

ELASTIC: dict[str, Any] = {"gpus": 4, "min_replicas": 1, "max_replicas": 8}
"""Of a job that has room for 8 pods, and half of it beside another one."""
TIMEOUT = 8.0
"""Seconds of gang.timeout where it is what a scenario is about."""
MINUTES = 180.0
"""Seconds that a start takes where the timeout is the one that nobody has changed, 2 minutes."""
EARLIER, LATER = "z-earlier", "a-later"
"""Who came first, and not by name."""
A_SECOND = 1.1
"""Seconds between two jobs of which one is older: creation times have whole seconds."""


def starts_whole_or_not_at_all(
    cluster: Cluster,
    namespace: str,
    owner: Json,
    gang: str,
    needs: str,
    roles: Mapping[str, int],
    held: Sequence[int] = (8,),
) -> None:
    """By default it needs all four nodes. held: GPUs that pods have for a while, too many for all of it."""
    holders = [pod(f"holder-{number}", gpus=gpus) for number, gpus in enumerate(held)]
    made = cluster.submit(*holders, namespace=namespace)
    names = [one["metadata"]["name"] for one in made]
    wait_until(lambda: bound(cluster.pods(namespace), len(names)), what="the holders run")
    cluster.submit(owner, namespace=namespace)
    waits_because(cluster, namespace, gang, needs)
    stays(
        cluster,
        lambda: [one.name for one in bound(cluster.pods(namespace))] == names,
        what="nothing of it starts",
    )
    for one in made:
        cluster.delete_pod(Pod(one))
    run(cluster, namespace, roles)


def start_in_order_of_submission(
    cluster: Cluster, namespace: str, owner: Callable[[str], Json], gang_of: str, pods: int
) -> None:
    """owner: the one of this name, whose so many pods take all four nodes; gang_of: "jobset-{}"."""
    holder = Pod(cluster.submit(pod("holder", gpus=8), namespace=namespace)[0])

    def has_all(name: str, count: int) -> None:
        wait_until(
            lambda: [one.name.startswith(name) for one in bound(cluster.pods(namespace))] == [True] * count,
            what=f"{count} pods run, all of {name}",
            also=lambda: everything(cluster, namespace),
        )

    has_all("holder", 1)
    for name in (EARLIER, LATER):
        submit(cluster, namespace, owner(name))
        has_state(cluster, namespace, gang_of.format(name), "Waiting")
        time.sleep(A_SECOND)
    stays(cluster, lambda: bound(cluster.pods(namespace), 1), what="both wait")
    cluster.delete_pod(holder)
    has_all(EARLIER, pods)
    has_state(cluster, namespace, gang_of.format(LATER), "Waiting")
    stays(cluster, lambda: bound(cluster.pods(namespace), pods), what="who came later waits")
    cluster.delete(path(owner(EARLIER)["kind"], namespace, EARLIER), propagationPolicy="Background")
    has_all(LATER, pods)


def is_left_alone_by_restarts(lab: Lab, cluster: Cluster, namespace: str, owner: Json, pods: int) -> None:
    """What was observed since its Gang was written is worth a write after the first one, and nothing after that."""
    cluster.submit(owner, namespace=namespace)
    running = wait_until(
        lambda: bound(cluster.pods(namespace), pods),
        what="it runs",
        also=lambda: everything(cluster, namespace),
    )
    for _ in range(2):
        lab.kill("muster")
        before = gang_versions(cluster, namespace)
        lab.start("muster")
        planned_after(cluster)
    assert gang_versions(cluster, namespace) == before, "nothing is written again"
    assert {one.uid for one in bound(cluster.pods(namespace))} == {one.uid for one in running}


def is_scaled_beyond_the_room_and_keeps_what_runs(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    profile: str,
    owner: Json,
    head: str,
    role: str,
    nine: Json,
) -> None:
    """Beside its head, which has no GPU, 3 pods of this role have a node each. nine: the spec by which these are 9,
    and there is room for one more."""
    timeout = {"gang": {"timeout": f"{TIMEOUT:.0f}s"}}
    with configured(lab, profile=profile, resizeCost=False, **timeout):
        cluster.submit(owner, namespace=namespace)
        before = run(cluster, namespace, {head: 1, role: 3})
        cluster.patch(path(owner["kind"], namespace, owner["metadata"]["name"]), {"spec": nine})
        wait_until(lambda: len(cluster.pods(namespace)) == 10, what="its operator has made nine of them")
        after = run(cluster, namespace, {head: 1, role: 4})
        assert {one.uid for one in before} < {one.uid for one in after}
        is_left_alone(cluster, namespace, after, 1.5 * TIMEOUT)


def is_suspended_and_comes_back_whole(
    cluster: Cluster,
    namespace: str,
    owner: Json,
    gang: str,
    roles: Mapping[str, int],
    suspended: Callable[[bool], Json],
) -> None:
    """suspended: the spec with which its owner is, or is not any more."""
    cluster.submit(owner, namespace=namespace)
    before = run(cluster, namespace, roles)
    where = path(owner["kind"], namespace, owner["metadata"]["name"])
    cluster.patch(where, {"spec": suspended(True)})
    has_state(cluster, namespace, gang, "Suspended")
    gives_all_back(cluster, namespace)
    cluster.patch(where, {"spec": suspended(False)})
    after = run(cluster, namespace, roles)
    assert {one.uid for one in after}.isdisjoint(one.uid for one in before)
    has_state(cluster, namespace, gang, "Running")


def gives_a_half_and_has_it_back(
    cluster: Cluster, namespace: str, role: str, roles: Mapping[str, int], gpus: int = 4
) -> tuple[list[Pod], list[Pod]]:
    """Its elastic pods of this role, each of so many GPUs, share with an elastic Job of as many for a while. All of
    its pods before and after that."""
    before, most = run(cluster, namespace, roles), roles[role]
    cluster.submit(job("other", most, success_on="0", gpus=gpus, min_replicas=1), namespace=namespace)
    wait_until(
        lambda: (
            len(bound(cluster.pods(namespace, "other"))) == most // 2
            and len([one for one in bound(cluster.pods(namespace)) if of(role)(one)]) == most // 2
        ),
        what="each has its half",
        also=lambda: everything(cluster, namespace),
    )
    delete_job(cluster, namespace, "other")
    wait_until(lambda: not cluster.pods(namespace, "other"), what="the other is gone")
    return before, run(cluster, namespace, roles)


def keeps_its_size_and_says_why(
    cluster: Cluster, namespace: str, owner: Json, gang_name: str, pods: int, why: str
) -> None:
    """All of it goes on while another elastic job waits, and its Gang says why; within shared_by."""
    cluster.submit(owner, namespace=namespace)
    before = wait_until(
        lambda: bound(cluster.pods(namespace), pods),
        what="it runs",
        also=lambda: everything(cluster, namespace),
    )
    cluster.submit(job("other", 8, success_on="0", **ELASTIC), namespace=namespace)
    has_state(cluster, namespace, "job-other", "Waiting")
    wait_until(
        lambda: gang(cluster, namespace, gang_name).get("keeps") == why,
        what="its Gang says why it has one size",
        also=lambda: everything(cluster, namespace),
    )
    stays(
        cluster,
        lambda: {one.uid for one in bound(cluster.pods(namespace))} == {one.uid for one in before},
        what="all of it goes on",
        also=lambda: everything(cluster, namespace),
    )


def loses_one_that_comes_again_to_its_place(
    cluster: Cluster,
    namespace: str,
    owner: Json,
    roles: Mapping[str, int],
    role: str,
    ends: Callable[[Pod], object],
) -> None:
    """ends: what happens to one pod of this role, while a job waits that its GPUs would do for."""
    cluster.submit(owner, namespace=namespace)
    before = run(cluster, namespace, roles)
    cluster.submit(job("later", 1, gpus=8), namespace=namespace)
    has_state(cluster, namespace, "job-later", "Waiting")
    lost = next(filter(of(role), before))
    ends(lost)
    wait_until(lambda: lost.uid not in {one.uid for one in cluster.pods(namespace)}, what="the pod is gone")
    after = run(cluster, namespace, roles)
    assert {one.uid for one in before} - {one.uid for one in after} == {lost.uid}
    stays(cluster, lambda: not bound(cluster.pods(namespace, "later")), what="who came later waits")


def is_left_alone_while_one_of_it_starts(
    cluster: Cluster, namespace: str, owner: Json, roles: Mapping[str, int], slow: str
) -> None:
    """The one pod of role `slow` takes MINUTES until it runs, and gang.timeout is two, as nobody has changed it."""
    cluster.submit(owner, namespace=namespace)
    pods = run(cluster, namespace, roles)
    (late,) = filter(of(slow), pods)

    def runs() -> set[str]:
        return {one.uid for one in cluster.pods(namespace) if one.phase == "Running"}

    uids = {one.uid for one in pods}
    wait_until(lambda: runs() == uids - {late.uid}, what=f"all but the {slow} run")
    is_left_alone(cluster, namespace, pods, 150.0)
    wait_until(
        lambda: runs() == uids,
        within=MINUTES + PATIENCE,
        what=f"the {slow} runs, too",
        also=lambda: everything(cluster, namespace),
    )
