"""Gang objects as the API lists them, made by hand for what people read: explain, top and kubectl's columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
"""The time at which these jobs are looked at."""


def stamp(seconds_ago: float) -> str:
    """RFC 3339 of so many seconds before NOON."""
    return datetime.fromtimestamp(NOON - seconds_ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def gang(
    name: str, state: str = "Running", *, namespace: str = "team", ago: float = 3600.0, **status: Any
) -> dict[str, Any]:
    """A Gang submitted `ago` seconds before NOON."""
    told = {"state": state, "submitted": stamp(ago), "since": stamp(ago), "priority": 0}
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": stamp(ago)},
        "spec": {"job": name, "uid": f"uid-{name}", "owner": {"kind": "Job", "name": name}},
        "status": told | status,
    }


def a_busy_cluster() -> list[dict[str, Any]]:
    """Two teams: three jobs run, one grows, two wait, one is over."""
    return [
        gang(
            "job-resnet", gpus=4, share="4/1/8", speed="412/s", progress="43%", end="13:20Z",
            expectedEnd=stamp(-4800), resizes=3, resizeCost=12.5,
            message="4 replicas running; up to 8 as capacity is free",
            shareReason="2 more GPUs would speed it up by 9 %; job-bert is 31 % faster with its last 4",
            speeds={"1": 131.0, "2": 250.0, "4": 412.0}, shares=[[NOON - 3000, 2], [NOON - 20, 4]],
        ),
        gang(
            "job-bert", "Resizing", gpus=16, share="4/2/8", speed="58.1/s", progress="7%", end="2 Jan",
            expectedEnd=stamp(-90_000), resizes=1, ago=7200, message="grows from 2 to 4 replicas",
            shareReason="4 more GPUs would speed it up by 18 %, but 1 job that gains less and is shorter comes first",
            shares=[[NOON - 7000, 4], [NOON - 30, 2]],
        ),
        gang("job-rigid", gpus=2, share="2/2/2", ago=200,
             shareReason="its size is fixed at 2 replicas", message="2 replicas running",
             keeps="a Job without successPolicy would wait for indexes that never ran"),
        gang("job-theirs", namespace="vision", gpus=6, share="6/1/6", shareReason="at its maximum", ago=90),
        gang("job-next", "Waiting", gpus=8, share="0/1/4", ago=300, reason="Resources",
             message="needs 8 GPUs (1 replica of 8)", position=1, fits="0 of 1 replica fits now",
             blocker="20 GPUs that it could use are held by team/job-bert and team/job-resnet",
             expectedStart=stamp(-4800), start="13:20Z",
             expected="by the run times that jobs declare or report; it may start sooner"),
        gang("job-late", "Waiting", gpus=32, share="0/4/4", ago=60, namespace="vision",
             message="needs 32 GPUs (4 replicas of 8)", position=2, fits="0 of 4 replicas fit now",
             expected="not known: 1 job before it declares no run time (muster.dev/remaining-work)"),
        gang("job-over", "Finished", gpus=1, share="0/1/1", ago=9000, progress="100%", ended=stamp(600),
             message="all replicas have ended"),
    ]  # fmt: skip
