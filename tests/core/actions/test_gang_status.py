"""What is written for people: names of Gangs, and why a job waits, once."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from muster import profiles
from muster.core.workload.identity import gang_name
from muster.types import Reason, WriteGang
from tests.cluster_fake import FakeCluster, Muster

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""What the API takes (apimachinery pkg/util/validation)."""


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("job-train", "job-train"),
        ("pod-a.b", "pod-a.b"),
        ("Kubeflow_Bert", "kubeflow-bert"),
        ("pytorchjob-../../../healthz", "pytorchjob.healthz"),
        ("a-.-b", "a.b"),
        ("...", "job"),
        ("x" * 252 + ".y", "x" * 252),
    ],
)
def test_a_gang_has_a_name_that_the_api_takes(job: str, name: str) -> None:
    assert gang_name(job) == name
    assert SUBDOMAIN.fullmatch(name)
    assert len(name) <= 253


@pytest.mark.parametrize("name", ["similarity", "tiresias-pollux", "gavel-fifo"])
def test_a_job_that_waits_for_its_share_is_not_written_again_in_each_round(name: str) -> None:
    """Policies that hand out GPUs by rounds say why at each; between two rounds nothing else is said."""
    cluster = FakeCluster(nodes=1)
    for number in range(8):
        cluster.job(f"j{number}", 2, gpus=2, remaining_work=str(4000 + 300 * number))
        cluster.now += 1.0
    muster = Muster(cluster, replace(profiles.build(name), conserving=True))
    told: list[tuple[str, str]] = []
    for turn in range(400):
        before = len(cluster.sent)
        muster.turn(seconds=2.0)
        cluster.bind()
        new = [action for action in cluster.sent[before:] if isinstance(action, WriteGang)]
        if turn > 60:
            told += [(action.job.name, action.cause) for action in new if action.cause.startswith("Waiting")]
    assert sum(status.reason is Reason.SHARE for status in muster.plan.statuses.values()) == 6
    assert told == []
