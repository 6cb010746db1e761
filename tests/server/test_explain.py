"""What `muster explain JOB` prints."""

from __future__ import annotations

from typing import Any

import pytest

from muster.explain import NoSuchJobError, render, story

NOW = 1_767_225_600.0 + 3600  # 2026-01-01T01:00:00Z


def gang(namespace: str, name: str, minute: int, **status: Any) -> dict[str, Any]:
    """A Gang as the API lists it, submitted `minute` minutes after midnight."""
    when = f"2026-01-01T00:{minute:02d}:00Z"
    return {
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": when},
        "spec": {"job": name, "uid": "u", "owner": {"kind": "Job", "name": name}},
        "status": {"state": "Waiting", "submitted": when, "since": when, "priority": 0, **status},
    }


WAITS = gang(
    "team",
    "train",
    30,
    reason="Topology",
    message="needs 16 GPUs (2 replicas of 8) in one rack",
    gpus=16,
    roles={"worker": {"min": 2, "max": 4, "granted": 0, "bound": 0}},
    position=3,
    fits="the best rack has 12 GPUs free",
    blocker="24 GPUs that it could use are held by team/runs and 2 jobs of other namespaces",
    expectedStart="2026-01-01T01:12:30.000000Z",
    expected="by the run times that jobs declare or report; it may start sooner",
)
RUNS = gang(
    "team",
    "runs",
    0,
    state="Running",
    reason="Ok",
    message="2 replicas running",
    gpus=8,
    mode="scored",
    placement=[
        {"role": "worker", "node": "n1", "pod": "runs-0", "uid": "x"},
        {"role": "worker", "node": "n2"},
    ],
)
OTHERS = [gang("team", "late", 40), gang("a", "early", 10), gang("z", "urgent", 50, priority=9)]


def test_a_waiting_job_is_told_all_of_its_turn_by_its_gang_alone() -> None:
    assert render([WAITS], "team", "train", NOW) == (
        "Job:       team/train\n"
        "State:     Waiting for 30m\n"
        "Reason:    Topology\n"
        "Message:   needs 16 GPUs (2 replicas of 8) in one rack\n"
        "Position:  3 in the queue\n"
        "Free:      the best rack has 12 GPUs free\n"
        "Blocker:   24 GPUs that it could use are held by team/runs and 2 jobs of other namespaces\n"
        "Expected:  2026-01-01T01:12:30Z (in 12m), by the run times that jobs declare or report; "
        "it may start sooner\n"
        "Submitted: 2026-01-01T00:30:00Z (30m ago)\n"
        "Priority:  0\n"
        "GPUs:      16 asked for\n"
        "Owner:     Job train\n"
        "\n"
        "ROLE    MIN  MAX  GRANTED  BOUND\n"
        "worker    2    4        0      0\n"
    )


@pytest.mark.parametrize(
    ("turn", "lines"),
    [
        (
            {"position": 1},
            [
                "Position:  1 in the queue",
                "Expected:  not known yet: the queue is played forward every few seconds",
            ],
        ),
        (
            {"position": 2, "expected": "not known: 1 job before it declares no run time"},
            ["Position:  2 in the queue", "Expected:  not known: 1 job before it declares no run time"],
        ),
        ({"expected": "behind the first 100"}, ["Position:  behind the first 100 of the queue"]),
        ({"expected": "never, as the cluster is now"}, ["Expected:  never, as the cluster is now"]),
        ({}, []),
    ],
)
def test_what_is_not_known_of_a_turn_is_said_and_nobody_is_sent_elsewhere(
    turn: dict[str, Any], lines: list[str]
) -> None:
    text = render([gang("team", "a", 0, message="needs 8 GPUs", **turn), *OTHERS], "team", "a", NOW)
    said = [
        line for line in text.splitlines() if line.startswith(("Position", "Free", "Blocker", "Expected"))
    ]
    assert said == lines
    assert "/v1/jobs" not in text


def test_a_running_job_is_told_where_its_replicas_are() -> None:
    text = render([RUNS], "team", "runs", NOW)
    assert "Position" not in text
    assert text.endswith(
        "\nPlanned placement; kube-scheduler picks the nodes:\n"
        "REPLICA            ROLE    NODE\n"
        "runs-0             worker  n1\n"
        "(not created yet)  worker  n2\n"
    )


def test_an_elastic_job_is_told_its_share_and_why_its_course_and_what_each_size_gave_it() -> None:
    elastic = gang(
        "team",
        "elastic",
        0,
        state="Running",
        reason="Ok",
        message="4 replicas running; up to 8 as capacity is free",
        gpus=8,
        started="2026-01-01T00:01:00Z",
        share="4/1/8",
        shareReason="2 more GPUs would speed it up by 9 %; job-7 is 31 % faster with them",
        keeps="the PodDisruptionBudget elastic-pdb refuses",
        speed="6.2/s",
        progress="43%",
        end="02:20Z",
        expectedEnd="2026-01-01T02:20:00Z",
        speeds={"1": 2.0, "4": 6.2, "2": 3.8, "5": 6.1},
        resizes=3,
        resizeCost=8.25,
        shares=[[1767225660.0, 1], [1767226000.0, 2], [1767228600.0, 4]],
    )
    assert render([elastic], "team", "elastic", NOW) == (
        "Job:       team/elastic\n"
        "State:     Running for 60m\n"
        "Message:   4 replicas running; up to 8 as capacity is free\n"
        "Share:     4 replicas; it may have 1 to 8\n"
        "Why:       2 more GPUs would speed it up by 9 %; job-7 is 31 % faster with them\n"
        "Blocked:   the PodDisruptionBudget elastic-pdb refuses\n"
        "Resizes:   3; one costs it 8.2s, as measured\n"
        "Changes:   1 -> 2 -> 4 replicas, the last 10m ago\n"
        "Speed:     6.2/s\n"
        "Progress:  43%\n"
        "Remaining: 80m at this share\n"
        "Ends:      2026-01-01T02:20:00Z (if nothing changes)\n"
        "Submitted: 2026-01-01T00:00:00Z (60m ago)\n"
        "Started:   2026-01-01T00:01:00Z (59m ago)\n"
        "Priority:  0\n"
        "GPUs:      8 granted\n"
        "Owner:     Job elastic\n"
        "\n"
        "REPLICAS  SPEED   GAIN  A REPLICA\n"
        "       1    2/s             100 %\n"
        "       2  3.8/s  +90 %       95 %\n"
        "      *4  6.2/s  +63 %       78 %\n"
        "       5  6.1/s   -2 %       61 %\n"
    )


def test_a_job_in_place_is_told_its_gpus_since_when_and_what_the_hand_over_took() -> None:
    told = "in place: 2 of 8 GPUs of node-3 since 12:03Z; hand-over took 1.4 s, GPUs idle 0.6 s"
    placed = gang("team", "placed", 0, state="Running", reason="Ok", message=told, gpus=2, share="2/1/8")
    text = render([placed], "team", "placed", NOW)
    assert f"Message:   {told}\nShare:     2 GPUs; it may have 1 to 8\n" in text


def test_what_another_version_wrote_is_read_as_not_told() -> None:
    odd = gang(
        "team",
        "odd",
        0,
        state="Running",
        share="four",
        speeds={"x": 1, "2": "fast", "3": None},
        shares=[[1], "x", [2, None]],
        expectedEnd="soon",
        resizes="many",
        progress="most",
    )
    text = render([odd], "team", "odd", NOW)
    assert not [
        line for line in text.splitlines() if line.startswith(("Share", "Changes", "Ends", "Resizes"))
    ]
    assert "SPEED" not in text


def test_a_job_of_fixed_size_says_so() -> None:
    rigid = gang(
        "team", "rigid", 0, state="Running", share="4/4/4", keeps="no successPolicy on its Indexed Job"
    )
    text = render([rigid], "team", "rigid", NOW)
    assert "Share:     4 of 4 replicas: its size is fixed\n" in text
    assert "Blocked:   no successPolicy on its Indexed Job\n" in text


def test_a_placement_of_a_thousand_is_cut_short() -> None:
    big = gang(
        "team", "big", 0, placement=[{"role": "w", "node": f"n{i}", "pod": f"p{i}"} for i in range(1000)]
    )
    assert render([big], "team", "big", NOW).endswith("and 980 more replicas\n")


def test_a_gang_without_a_status_yet_is_no_error() -> None:
    text = render(
        [{"metadata": {"namespace": "team", "name": "new"}, "spec": {"job": "new"}}], "team", "new", NOW
    )
    assert text.startswith(
        "Job:       team/new\nState:     Unknown\nMessage:   muster has not written one yet\n"
    )


def test_markup_in_a_reason_is_text() -> None:
    assert "[bold]x[/] :smile:" in render(
        [gang("team", "a", 0, message="[bold]x[/] :smile:")], "team", "a", NOW
    )


@pytest.mark.parametrize(
    ("namespace", "name", "says"),
    [
        ("team", "trian", "did you mean: train?"),
        ("team", "urgent", "there is one in: z (use -n)"),
        ("z", "nothing-like-it", "1 job there, see: kubectl get gangs -n z"),
        ("empty", "x", "it has no jobs of Muster"),
    ],
)
def test_a_job_that_is_not_there_is_said_with_the_closest(namespace: str, name: str, says: str) -> None:
    with pytest.raises(NoSuchJobError) as error:
        render([WAITS, RUNS, *OTHERS], namespace, name, NOW)
    assert says in str(error.value)


def test_a_story_tells_each_change_of_state_with_its_time_and_cause() -> None:
    steps = [
        {"at": NOW - 3600, "state": "Waiting", "event": "Queued", "cause": "needs 8 GPUs (2 replicas of 4)"},
        {"at": NOW - 90, "state": "Running", "event": "Whole", "cause": "2 replicas running"},
        {"at": NOW - 5, "state": "Waiting", "event": "Preempted", "cause": "for [a job] of priority 9"},
    ]
    told = gang("team", "train", 0, story=steps, message="for [a job] of priority 9", reason="Preempted")
    assert story([told], "team", "train", NOW) == (
        "Job:       team/train\n"
        "State:     Waiting for 60m\n"
        "Reason:    Preempted\n"
        "Message:   for [a job] of priority 9\n"
        "\n"
        "TIME                  AGO  EVENT      STATE    CAUSE\n"
        "2026-01-01T00:00:00Z  60m  Queued     Waiting  needs 8 GPUs (2 replicas of 4)\n"
        "2026-01-01T00:58:30Z  90s  Whole      Running  2 replicas running\n"
        "2026-01-01T00:59:55Z  5s   Preempted  Waiting  for [a job] of priority 9\n"
    )


def test_a_gang_of_an_older_muster_has_no_story() -> None:
    assert story([WAITS], "team", "train", NOW).endswith("\nmuster has not written its story yet\n")
