"""Each family of policies by its own idea, through gate and eviction: who is ahead, who gives way, who gets more.

What a policy says of a snapshot is its unit tests' matter; here pods follow it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import has, only, replayed, settles, shared_by, shares, snapshot_of, train
from e2e.lab import Lab
from e2e.scenario import delete_job, gang, gated, seen_at_once, stays, wait_until
from muster.core import snapshot_codec
from muster.types import JobKey

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

NODE = "node-00"
"""8 GPUs."""
QUANTUM = 3.0
"""s for which AFS-P lets a job run before another may have its turn."""


def whole(name: str, gpus: int, *, seconds: float | None = None, **what: Any) -> Json:
    """A job that has all of its GPUs or none, and `seconds` to go on them; it can be restarted."""
    work = None if seconds is None else seconds * gpus
    return train(name, least=gpus, most=gpus, work=work, restart=True, **what)


def all_gated(cluster: Cluster, namespace: str, **jobs: int) -> None:
    """All pods of these jobs are behind the gate."""
    for name, count in jobs.items():
        wait_until(
            lambda name=name, count=count: len(gated(cluster.pods(namespace, name))) == count,
            what=f"{name} is back behind the gate",
        )


def by(name: str, **arguments: Any) -> Mapping[str, Any]:
    return {"pluginArgs": {name: arguments}}


# --- known lengths ------------------------------------------------------------------------------------------


def test_srtf_runs_whoever_has_the_least_time_left_and_sends_the_others_back(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "srtf"):
        cluster.submit(whole("long", 8, seconds=9000), namespace=namespace)
        has(cluster, namespace, "long", 8)
        cluster.submit(whole("short", 8, seconds=3000), namespace=namespace)
        settles(cluster, namespace, {"short": 8})
        all_gated(cluster, namespace, long=8)
        cluster.submit(whole("middle", 8, seconds=6000), namespace=namespace)
        all_gated(cluster, namespace, middle=8)
        stays(cluster, lambda: shares(cluster, namespace) == {"short": 8}, what="nobody overtakes short")
        delete_job(cluster, namespace, "short")
        settles(cluster, namespace, {"middle": 8})
        replayed(lab, cluster)


def test_srsf_counts_gpus_too_and_so_runs_another_job_than_srtf(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "srsf"):
        with seen_at_once(lab):
            cluster.submit(
                whole("wide", 8, seconds=5000), whole("narrow", 2, seconds=9000), namespace=namespace
            )
            all_gated(cluster, namespace, wide=8, narrow=2)
        settles(cluster, namespace, {"narrow": 2})
        replayed(lab, cluster)
    with shared_by(lab, "srtf"):
        settles(cluster, namespace, {"wide": 8})
        all_gated(cluster, namespace, narrow=2)
        replayed(lab, cluster)


def test_optimus_gives_the_next_gpu_to_whoever_it_saves_most_time(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE, "node-01")
    with shared_by(lab, "optimus"):
        # On n GPUs work w takes w / n: the next one saves w / n (n + 1). Of an unknown length nothing is saved.
        cluster.submit(
            train("long", work=600_000),
            train("short", work=6_000),
            train("unknown"),
            namespace=namespace,
        )
        settles(cluster, namespace, {"long": 14, "short": 1, "unknown": 1})
        delete_job(cluster, namespace, "unknown")
        settles(cluster, namespace, {"long": 14, "short": 2})
        replayed(lab, cluster)


def test_tide_gives_the_shortest_several_gpus_while_longer_ones_wait_where_afs_l_gives_one_each(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "tide"):
        with seen_at_once(lab):
            cluster.submit(
                *(train(f"j{n}", most=4, work=20_000.0 * 2.0**n) for n in range(9)), namespace=namespace
            )
            all_gated(cluster, namespace, **{f"j{n}": 4 for n in range(9)})
        settles(cluster, namespace, {"j0": 4, "j1": 4})
        wait_until(
            lambda: (
                "8 jobs have more left than it" in gang(cluster, namespace, "job-j0").get("shareReason", "")
            ),
            what="its owner reads how many have more left",
            also=lambda: str(gang(cluster, namespace, "job-j0")),
        )
        delete_job(cluster, namespace, "j0")
        settles(cluster, namespace, {"j1": 4, "j2": 4})
        replayed(lab, cluster)
    with shared_by(lab, "afs-l"):
        settles(cluster, namespace, {f"j{n}": 1 for n in range(1, 9)})
        replayed(lab, cluster)


# --- unknown lengths ----------------------------------------------------------------------------------------


def test_tiresias_demotes_a_job_that_has_had_its_service(lab: Lab, cluster: Cluster, namespace: str) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "tiresias-l"):
        cluster.submit(whole("old", 8), namespace=namespace)
        has(cluster, namespace, "old", 8)
        cluster.submit(whole("new", 8), namespace=namespace)
        stays(cluster, lambda: shares(cluster, namespace) == {"old": 8}, what="old is in the first queue")
    with shared_by(lab, "tiresias-l", **by("tiresias-l", threshold=80.0)):  # 10 s on 8 GPUs
        settles(cluster, namespace, {"new": 8})
        settles(cluster, namespace, {"old": 8})  # both are in the second: who ran first
        replayed(lab, cluster)


def test_afs_p_lets_jobs_take_turns_by_quanta_where_there_are_more_than_gpus_and_throws_coins_where_there_are_fewer(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    names = [f"j{i}" for i in range(9)]
    with shared_by(lab, "afs-p", **by("afs-p", quantum=QUANTUM)):
        with seen_at_once(lab):  # who comes later waits with less than those that run, until a quantum ends
            cluster.submit(*(train(name, most=8, restart=True) for name in names), namespace=namespace)
            all_gated(cluster, namespace, **dict.fromkeys(names, 8))
        wait_until(
            lambda: len(now := shares(cluster, namespace)) == 8 and set(now.values()) == {1},
            what="eight of the nine have a GPU",
            also=lambda: shares(cluster, namespace),
        )
        waited: set[str] = set()

        def turns() -> bool:
            """Counters, footnote 11: whoever waits has used up as many quanta as anybody who runs, or more."""
            used, granted = quanta(lab, cluster, namespace)
            out, there = (
                {name for name, count in granted.items() if bool(count) is runs} for runs in (False, True)
            )
            if len(granted) == 9 and out and there:
                assert min(used[name] for name in out) >= max(used[name] for name in there), (used, granted)
                waited.update(name for name in out if used[name])
            return len(waited) >= 2 and all(used.values())

        wait_until(
            turns,
            what="all have used up a quantum, and two of them lost their GPU by that",
            also=lambda: f"{waited}\n{quanta(lab, cluster, namespace)}",
        )
        for name in names[3:]:
            delete_job(cluster, namespace, name)
        wait_until(
            lambda: sorted(shares(cluster, namespace).values()) == [2, 3, 3],
            what="the three that are left share all GPUs",
            also=lambda: shares(cluster, namespace),
        )
        drawn: dict[float, set[str]] = {}

        def coins() -> bool:
            """None of three alike beats another: a coin says who has 2 of 8, for a quantum."""
            plain = snapshot_of(lab, cluster)
            granted = quanta_of(plain, namespace)[1]
            if sorted(granted.values()) == [2, 3, 3]:
                drawn.setdefault(plain["snapshot"]["now"] // QUANTUM, set()).add(
                    min(granted, key=granted.__getitem__)
                )
            return len(drawn) >= 3 and len(set().union(*drawn.values())) >= 2

        wait_until(
            coins,
            what="with another quantum the coin fell for another one",
            also=lambda: drawn,
        )
        assert all(len(losers) == 1 for losers in drawn.values()), drawn
        replayed(lab, cluster)


def quanta(lab: Lab, cluster: Cluster, namespace: str) -> tuple[dict[str, float], dict[str, int]]:
    return quanta_of(snapshot_of(lab, cluster), namespace)


def quanta_of(plain: Json, namespace: str) -> tuple[dict[str, float], dict[str, int]]:
    """Quanta that each job has used up, as the newest plan counts them, and the replicas that it grants, by name."""
    snapshot, _ = snapshot_codec.load(plain)
    jobs = {key: job for key, job in snapshot.jobs.items() if key.namespace == namespace}
    newest = {JobKey(*key): kept for key, kept in plain["plan"].get("memory", ())}
    granted = {JobKey(*key): count for key, count in plain["plan"].get("shares", ())}
    kept = {key: {**job.memory, **newest.get(key, {})}.get("afs-p", {}) for key, job in jobs.items()}
    used = {key.name: float(one.get("count", 0.0)) for key, one in kept.items() if isinstance(one, dict)}
    return used, {key.name: granted[key] for key in jobs if key in granted}
