"""Pollux on a cluster: GPUs and batch sizes of one answer, by what trainings report."""

from __future__ import annotations

import time
from typing import Any

import pytest

from e2e.cluster import Cluster, Json
from e2e.elastic import INDEX, holding, in_rounds, only, replayed, settles, train
from e2e.lab import Lab
from e2e.reports import tell, token
from e2e.scenario import bound, configured, looking, wait_until
from e2e.test_families import NODE
from e2e.test_families_more import SLOW, jobs_of

pytestmark = [pytest.mark.lab, pytest.mark.referee(again=10)]

NOISE = 4000.0
"""Gradient noise scale (samples): at batch size 1024 a sample is worth 0.81 of one at 64."""


class Training:
    """A look for `looking`: a job's first pod trains at the batch size that it was told last, at first at 64.

    A step takes 0.1 s and 1 ms a sample of a replica. heard: answers to its reports.
    """

    def __init__(self, lab: Lab, cluster: Cluster, namespace: str, name: str) -> None:
        self._lab, self._own, self._at = lab, Cluster(cluster.kubeconfig), (namespace, name)
        self._bearer, self._last = "", 0.0
        self._steps = self._samples = 0.0
        self.batch, self.heard = 64, list[Json]()

    def __call__(self) -> None:
        living = bound(self._own.pods(*self._at))
        if not living:
            return
        self._bearer = self._bearer or token(self._own, living[0], self._at[0])
        now = time.monotonic()
        steps = (now - self._last) / (0.1 + 0.001 * self.batch / len(living)) if self._last else 0.0
        self._last = now
        self._steps += steps
        self._samples += steps * self.batch
        answer = tell(
            self._lab,
            self._bearer,
            {"step": self._steps, "samples": self._samples, "batch": self.batch, "noise": NOISE},
        )
        assert answer.status_code in (200, 429), answer.text
        if answer.status_code == 200:
            self.heard.append(answer.json())
            self.batch = self.heard[-1].get("batch", self.batch)


def quick() -> dict[str, Any]:
    """Rounds of 4 s, restarts that cost nothing, and a model's noise that is far from what is reported."""
    return in_rounds("pollux", noise={"resnet50": 1.0}, delay=0.0)


def test_pollux_shares_gpus_by_goodput_and_a_training_takes_the_batch_size_that_comes_with_them(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    takes = {
        "muster.dev/model": "resnet50",
        "muster.dev/batch-sizes": "64,256,1024",
        "muster.dev/report": "true",
    }
    only(lab, cluster, NODE)
    with configured(lab, **quick()):
        cluster.submit(train("flat", most=8, speeds="1=1,8=1"), train("steep", most=8), namespace=namespace)
        settles(cluster, namespace, {"flat": 1, "steep": 7})  # who gains nothing leaves GPUs to who does
        cluster.submit(train("noisy", most=2, speeds="", annotations=takes), namespace=namespace)
        # a job that has tried nothing starts with one
        settles(cluster, namespace, {"noisy": 1, "flat": 1, "steep": 6})
        training = Training(lab, cluster, namespace, "noisy")
        with looking(training, 0.9):
            wait_until(
                lambda: training.batch == 1024,
                within=SLOW,
                what="the answer to its reports has the batch size that is best with the noise that it reports",
                also=lambda: training.heard,
            )
            settles(cluster, namespace, {"noisy": 2, "flat": 1, "steep": 5}, within=SLOW)
            wait_until(
                lambda: jobs_of(lab, cluster, namespace)["job-noisy"].batch == 1024,
                within=SLOW,
                what="it reports that it trains so",
                also=lambda: jobs_of(lab, cluster, namespace)["job-noisy"],
            )
        _, joined = sorted(holding(cluster, namespace)["noisy"], key=lambda one: int(one.labels[INDEX]))
        assert joined.annotations.get("muster.dev/batch") == "1024", "the replica that joined started with it"
        replayed(lab, cluster)
