"""Coach on a cluster: workers and servers are tried epoch by epoch, then chosen by the surface that is fitted. From
one boundary to the next nothing changes; a job without room for all of them starts with fewer after its timeout."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import only, replayed, shared_by
from e2e.lab import Lab
from e2e.reports import AsPods
from e2e.scenario import (
    bound,
    delete_job,
    gated,
    job,
    looking,
    planned_after,
    scheduled_at,
    show,
    stays,
    wait_until,
)
from e2e.test_families import NODE, by

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

EPOCH = 120.0
"""Steps of one."""
TIMEOUT = 30.0
"""s."""


def with_servers(name: str, workers: int, servers: int) -> list[Json]:
    """A training of two Jobs: from one to so many workers, a GPU each, and parameter servers, which have none. Each
    says which roles there are: of the one that is seen first Muster would start a job."""
    return [
        job(
            f"{name}-{role}s",
            count,
            min_replicas=1,
            max_replicas=count,
            success_on="0",
            job=name,
            role=role,
            roles=f"worker={workers},server={servers}",
            gpus=gpus,
            annotations={"muster.dev/resize-at": "boundary"},
        )
        for role, count, gpus in (("worker", workers, 1), ("server", servers, 0))
    ]


class Epochs:
    """A look for `looking`: a training of workers and servers reports its steps, and each epoch's end."""

    def __init__(
        self, lab: Lab, cluster: Cluster, namespace: str, name: str, rates: dict[tuple[int, int], float]
    ) -> None:
        """rates: steps/s by (workers, servers)."""
        self._own, self._namespace = Cluster(cluster.kubeconfig), namespace
        self._pods, self._name, self._rates = AsPods(lab, self._own), name, rates
        self._steps, self._last = 0.0, time.monotonic()
        self.counts: list[tuple[int, int]] = []
        """Those on which epochs ended, in order; in between, some come before others go."""
        self.changes: list[tuple[float, str]] = []
        """Pods that were let go or told to end, each with the part of the epoch that had been reported by then."""
        self._going: set[str] = set()

    def __call__(self) -> None:
        pods = [self._own.pods(self._namespace, f"{self._name}-{role}s") for role in ("worker", "server")]
        going = {one.name for of in pods for one in of if not (one.gated or one.terminal or one.deleted)}
        self.changes += [(self.part, name) for name in sorted(self._going ^ going) if self._going]
        self._going = going
        workers, servers = map(bound, pods)
        now, counts = time.monotonic(), (len(workers), len(servers))
        passed, self._last = now - self._last, now
        if counts not in self._rates:
            return
        before = self._steps
        self._steps += passed * self._rates[counts]
        told: Json = {
            "step": self._steps,
            "epoch": self._steps // EPOCH,
            "steps_per_epoch": EPOCH,
            "workers": len(workers),
        }
        if self._steps // EPOCH > before // EPOCH:
            told["boundary"] = True
        taken = self._pods.tell(workers[0], told)
        if "boundary" in told and not taken:
            self._steps = before  # it is not heard of yet: said again
        elif "boundary" in told and self.counts[-1:] != [counts]:
            self.counts.append(counts)

    @property
    def part(self) -> float:
        """Of the epoch under way, as reported."""
        return self._steps % EPOCH / EPOCH


def test_coach_tries_workers_and_servers_epoch_by_epoch_and_goes_on_with_the_fastest(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    rates = {(1, 1): 10.0, (2, 1): 16.0, (1, 2): 8.0, (2, 2): 14.0}
    with shared_by(lab, "coach"):
        cluster.submit(*with_servers("net", workers=2, servers=2), namespace=namespace)
        look = Epochs(lab, cluster, namespace, "net", rates)
        with looking(look, 1.1):
            wait_until(
                lambda: look.counts[:5] == [(1, 1), (2, 1), (1, 2), (2, 2), (2, 1)],
                within=300.0,
                what="four epochs on counts that are set, then the fastest",
                also=lambda: f"{look.counts}\n{cluster.gangs(namespace)}",
            )
            replayed(lab, cluster)
    assert len(look.changes) >= 5, "a worker, a server for it, a worker, and a server goes"
    assert all(part < 0.5 for part, _ in look.changes), (
        look.changes,
        "soon after an epoch's end, or not at all",
    )


def test_coach_starts_with_fewer_after_its_timeout_and_grows_at_the_first_boundary_with_room(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    only(lab, cluster, NODE)
    with shared_by(lab, "coach", **by("coach", static=[2, 2], timeout=TIMEOUT)):
        cluster.submit(job("other", 1, gpus=7), namespace=namespace)
        wait_until(lambda: bound(cluster.pods(namespace, "other"), 1), what="it leaves one GPU")
        cluster.submit(*with_servers("net", workers=2, servers=2), namespace=namespace)

        def pods() -> list[Pod]:
            return [one for one in cluster.pods(namespace) if one.labels.get("muster.dev/job") == "net"]

        def shown() -> str:
            return f"{show(pods())}\n{cluster.gangs(namespace)}"

        wait_until(
            lambda: f"room for 2 workers and 2 servers, {TIMEOUT:g} s at most" in shown(),
            what="it waits, though a worker and two servers would fit",
            also=shown,
        )
        stays(cluster, lambda: len(gated(pods())) == 4, what="all are behind the gate", also=shown)
        replayed(lab, cluster)
        first = wait_until(lambda: bound(pods(), 3), what="it starts with what fits", also=shown)
        assert sorted(one.labels["batch.kubernetes.io/job-name"] for one in first) == [
            *("net-servers", "net-servers", "net-workers")
        ]
        since = min(datetime.fromisoformat(one.raw["metadata"]["creationTimestamp"]) for one in pods())
        waited = min(datetime.fromisoformat(scheduled_at(one)) for one in first) - since
        assert waited.total_seconds() >= TIMEOUT
        look = Epochs(lab, cluster, namespace, "net", {(1, 2): 2.0, (2, 2): 12.0})
        with looking(look, 1.1):
            wait_until(lambda: look.part >= 0.4, what="it is in the middle of an epoch")
            delete_job(cluster, namespace, "other")
            wait_until(lambda: not cluster.pods(namespace, "other"), what="there is room")
            planned_after(cluster)
            assert (look.changes, look.counts) == ([], []), "the epoch goes on as it began"
            wait_until(
                lambda: look.counts == [(1, 2), (2, 2)],
                what="from its end on it has all of them",
                also=lambda: f"{look.counts} {look.changes}\n{shown()}",
            )
            replayed(lab, cluster)
        ((part, _),) = look.changes  # a worker came, and nobody else came or went
        assert part < 0.3, part
