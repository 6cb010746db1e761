# Over 300 lines: a term's look, renewal, loss and late writes are one story.
"""Who may act, and until when: the Lease, look by look, and what is sent of a term that is over."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kubernetes.client import Configuration

from muster.cluster import lease
from muster.cluster.action_executor import ActionExecutor
from muster.cluster.api import NOT_SENT, Api
from muster.cluster.curl_pool import Answer, CurlPool
from muster.cluster.lease import NOBODY, Following, Record, Term
from muster.errors import ClusterError
from muster.types import Action, EndReason, Event, Evict, JobKey, Outcome, RecordEvent

JOB = JobKey("team", "job-train", "u1")
OURS = Record("host-a_1", "t0", 3, renewed=1000.0, lasts=15.0)
ANOTHERS = Record("host-b_1", "t1", 4, renewed=1000.0, lasts=15.0)


@dataclass
class Watching:
    """A Following with clocks that are set by hand; wall is off by what a test likes."""

    at: float = 100.0
    wall: float = 1000.0
    following: Following = field(init=False)

    def __post_init__(self) -> None:
        self.following = Following("host-a", lambda: self.at, lambda: self.wall + self.at - 100.0)

    def sees(self, record: Record, at: float) -> bool:
        """Whether it leads after a look at `at`."""
        self.at = at
        self.following.look(lambda: record)
        return self.leads(at)

    def leads(self, at: float) -> bool:
        self.at = at
        return self.following.term is not None and self.following.term.open()


def renewed(record: Record, at: float) -> Record:
    return Record(record.identity, record.acquired, record.transitions, at, record.lasts)


@pytest.mark.parametrize(
    ("identity", "leads"),
    [("host-a_1", True), ("host-a", False), ("host-ab_1", False), ("xhost-a_1", False), ("", False)],
)
def test_the_holder_is_known_by_its_host_and_nothing_else(identity: str, leads: bool) -> None:
    assert Watching().sees(Record(identity, "t0", 0, 1000.0, 15.0), 100.0) is leads


def test_the_first_look_believes_the_holders_clock() -> None:
    watching = Watching()
    assert watching.sees(renewed(OURS, 990.0), 100.0)
    assert watching.leads(104.9)
    assert not watching.leads(105.0), "15 s after it was renewed"


def test_a_lease_that_had_run_out_before_the_first_look_counts_once_it_is_renewed() -> None:
    watching = Watching()
    assert not watching.sees(renewed(OURS, 985.0), 100.0)
    assert not watching.sees(renewed(OURS, 985.0), 101.0)
    assert watching.sees(renewed(OURS, 1001.5), 102.0)


@pytest.mark.parametrize("off", [-3600.0, 0.0, 3600.0])
def test_a_clock_that_is_off_neither_ends_nor_prolongs_a_term(off: float) -> None:
    watching = Watching(wall=1000.0 + off)
    watching.sees(renewed(OURS, 1000.0), 100.0)
    assert watching.sees(renewed(OURS, 1002.0), 103.0)
    assert watching.leads(114.9), "it was renewed after the look before, at 100"
    assert not watching.leads(115.0)


def test_a_term_that_ran_out_stays_over_however_fresh_the_lease_is() -> None:
    watching = Watching()
    watching.sees(OURS, 100.0)
    old = watching.following.term
    assert old is not None
    watching.at = 130.0  # the process stood still
    watching.sees(renewed(OURS, 1029.0), 130.0)
    assert not old.open()
    assert watching.sees(renewed(OURS, 1031.0), 131.5), "and a new one begins"
    assert not old.open()
    assert watching.following.term is not old


@pytest.mark.parametrize(
    "between",
    [ANOTHERS, NOBODY, Record("host-a_1", "t5", 5, 1000.5, 15.0)],
    ids=["another", "nobody", "ours again"],
)
def test_a_term_ends_at_once_when_the_lease_changes_hands(between: Record) -> None:
    watching = Watching()
    watching.sees(OURS, 100.0)
    old = watching.following.term
    assert old is not None
    watching.sees(between, 101.0)
    assert not old.open()
    watching.sees(renewed(OURS, 1002.0), 102.0)
    assert not old.open()


def test_a_lease_that_lasts_longer_than_it_did_counts_from_when_it_was_renewed() -> None:
    watching = Watching()
    watching.sees(OURS, 100.0)
    watching.sees(Record("host-a_1", "t0", 3, 1000.0, 600.0), 101.0)
    assert watching.leads(699.0)
    assert not watching.leads(700.0)


def test_an_api_server_that_is_away_ends_the_term_in_time() -> None:
    watching = Watching()
    watching.sees(OURS, 100.0)

    def away() -> Record:
        raise ClusterError("no answer")

    watching.at = 110.0
    with pytest.raises(ClusterError):
        watching.following.look(away)
    assert watching.leads(114.9)
    assert not watching.leads(115.0)


@pytest.mark.parametrize(
    ("before", "found", "alone"),
    [
        (OURS, renewed(OURS, 1100.0), True),
        (OURS, Record("host-a_2", "t9", 4), True),
        (OURS, Record("host-a_2", "t9", 5), False),
        (OURS, Record("host-a_1", "t9", 5), False),
        (ANOTHERS, Record("host-a_1", "t9", 5), False),
        (NOBODY, OURS, False),
    ],
    ids=["goes on", "started again", "another between", "same again", "after another", "new"],
)
def test_only_who_was_alone_goes_on_without_listing_afresh(
    before: Record, found: Record, alone: bool
) -> None:
    assert found.follows(before, "host-a") is alone


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (404, {}, NOBODY),
        (200, {"metadata": {}, "spec": {}}, NOBODY),
        (
            200,
            {
                "metadata": {"name": "l"},
                "spec": {
                    "holderIdentity": "host-a_1",
                    "acquireTime": "1970-01-01T00:00:00.000000Z",
                    "renewTime": "1970-01-01T00:16:40.000000Z",
                    "leaseDurationSeconds": 15,
                    "leaseTransitions": 3,
                },
            },
            Record("host-a_1", "1970-01-01T00:00:00.000000Z", 3, 1000.0, 15.0),
        ),
    ],
    ids=["none", "empty", "held"],
)
def test_the_lease_is_read(status: int, body: Any, found: Record) -> None:
    class Server:
        def get(self, path: str) -> bytes:
            assert path == "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
            if status != 200:
                raise ClusterError("no", status)
            return json.dumps(body).encode()

    assert lease.read(cast(Api, Server()), "n", "l") == found


# ---- what is sent of a term ----


class Line(CurlPool):
    """Instead of connections: what is sent, and who ends the term meanwhile."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.before: Callable[[int], None] = lambda _: None
        self.turn = threading.Lock()
        self.answer = Answer(201, b"{}")

    def ask(
        self,
        method: str,
        path: str,
        headers: Sequence[str],  # noqa: ARG002
        body: bytes | None,  # noqa: ARG002
        may: Callable[[], bool] | None = None,
    ) -> Answer:
        with self.turn:
            self.before(len(self.sent))  # a connection is made, the process stands still, ...
            if may is not None and not may():
                raise ConnectionAbortedError
            self.sent.append(f"{method} {path.partition('?')[0].rpartition('/')[2]}")
            return self.answer


def hands(line: Line) -> tuple[ActionExecutor, list[Event]]:
    config = Configuration()
    config.host = "http://127.0.0.1:1"
    api = Api(config)
    api._lines = line
    heard: list[Event] = []
    return ActionExecutor(api, heard.extend, "muster"), heard


def evictions(count: int) -> tuple[Action, ...]:
    """One request each: they were begun, so their finalizers are off."""
    return tuple(eviction(f"u{n}", f"p{n}", tracked=False) for n in range(count))


def eviction(uid: str, pod: str, *, tracked: bool) -> Evict:
    return Evict(JOB, uid, pod, "7", tracked=tracked, reason=EndReason.SHARE, cause="test", by_job=True)


def outcomes(heard: list[Event]) -> list[int]:
    return [event.status for event in heard if isinstance(event, Outcome)]


def test_of_four_hundred_queued_evictions_none_is_sent_after_the_deadline() -> None:
    line, now = Line(), [0.0]
    term = Term(15.0, lambda: now[0])

    def stands_still(sent: int) -> None:
        if sent == 30:
            now[0] = 15.0

    line.before = stands_still
    sending, heard = hands(line)
    sending.carry_out(evictions(400), term)
    sending.close(all_of_it=True)
    assert len(line.sent) == 30
    assert sorted(outcomes(heard)) == [NOT_SENT] * 370 + [201] * 30


def test_at_step_down_what_is_queued_is_dropped_and_told() -> None:
    line, term = Line(), Term(1e9, lambda: 0.0)
    sending, heard = hands(line)
    with line.turn:  # none is answered
        told = (
            RecordEvent(JOB, "Resources", "waits", pod="p", uid="u"),
            RecordEvent(JOB, "Resources", "waits", pod="q", uid="v"),
        )
        sending.carry_out((*evictions(400), *told), term)
        until(lambda: (sending._starts.waiting, sending._talk.waiting) == (384, 1))
        dropped = sending.drop()
        term.end()
    sending.close(all_of_it=True)
    assert dropped == 385
    assert line.sent == [], "nor those that were on their way"
    assert outcomes(heard) == [NOT_SENT] * 402


def until(true: Callable[[], bool]) -> None:
    """It must come to be."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.001)


@pytest.mark.parametrize("ends_at", [0, 1, 2])
def test_a_chain_stops_where_its_term_ends_and_puts_nothing_back(ends_at: int) -> None:
    """The next leader finds the finalizer off and goes on; a fresh version of the pod opens nothing."""
    line = Line()
    term = Term(1e9, lambda: 0.0)
    metadata = {"name": "p", "uid": "u", "namespace": "team", "resourceVersion": "8"}
    pod = {"metadata": metadata, "spec": {"schedulerName": "muster", "containers": []}}
    line.answer = Answer(200, json.dumps(pod).encode())
    line.before = lambda sent: term.end() if sent == ends_at else None
    sending, heard = hands(line)
    sending.carry_out((eviction("u", "p", tracked=True),), term)
    sending.close(all_of_it=True)
    assert line.sent == ["POST eviction", "PATCH p", "POST eviction"][:ends_at]
    assert outcomes(heard) == [NOT_SENT]


def test_a_pod_that_changed_is_not_even_looked_at_in_a_later_term() -> None:
    line = Line()
    term = Term(1e9, lambda: 0.0)
    line.answer = Answer(409, b'{"message": "changed"}')
    line.before = lambda sent: term.end() if sent == 1 else None
    sending, heard = hands(line)
    sending.carry_out(evictions(1), term)
    sending.close(all_of_it=True)
    assert line.sent == ["POST eviction"]
    assert outcomes(heard) == [NOT_SENT]


def test_what_a_busy_server_put_off_is_not_sent_in_a_later_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.cluster.api.PAUSE", 0.0)
    line = Line()
    term = Term(1e9, lambda: 0.0)
    line.answer = Answer(429, b"busy", 0.001)
    line.before = lambda sent: term.end() if sent == 1 else None
    sending, heard = hands(line)
    sending.carry_out((RecordEvent(JOB, "Resources", "waits", pod="p", uid="u"),), term)
    sending.close(all_of_it=True)
    assert line.sent == ["POST events"]
    (told,) = [event for event in heard if isinstance(event, Outcome)]
    assert (told.status, told.after) == (NOT_SENT, 0.001)
