"""Coach on a cluster: workers and servers are tried epoch by epoch, then chosen by the surface that is fitted."""

from __future__ import annotations

import time

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import only, replayed, shared_by
from e2e.lab import Lab
from e2e.reports import AsPods
from e2e.scenario import bound, job, looking, wait_until
from e2e.test_families import NODE

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

EPOCH = 120.0
"""Steps of one."""


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

    def __call__(self) -> None:
        workers, servers = (
            bound(self._own.pods(self._namespace, f"{self._name}-{role}s")) for role in ("worker", "server")
        )
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
