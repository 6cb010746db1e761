"""The thread that reads now and then, turned by hand."""

from __future__ import annotations

import math
import queue
import threading
from dataclasses import replace

from muster.cluster.reader import LATER, SOON, Reader
from muster.core.ledger import Ledger
from muster.core.workload.volumes import VOLUMES
from muster.errors import ClusterError
from muster.points import Profile
from muster.types import ClaimSeen, Event, OwnerGone, PodGone, PodRecord, PodSeen, Unreadable
from tests.cluster_fake import FakeCluster


def test_what_is_wanted_is_read_at_once_and_again_when_it_is_due() -> None:
    pauses = {("team", "once"): math.inf, ("team", "often"): 10.0}
    heard: list[Event] = []
    reader: Reader[tuple[str, str]] = Reader(
        "claims", lambda key: (ClaimSeen(*key, True), pauses[key]), heard.extend
    )
    reader.want(frozenset(pauses))
    reader.look(100.0)
    assert heard == [ClaimSeen("team", "often", True), ClaimSeen("team", "once", True)]
    reader.look(109.0)
    assert len(heard) == 2
    reader.look(110.0)
    assert heard[2:] == [ClaimSeen("team", "often", True)]
    reader.want(frozenset())
    reader.look(200.0)
    reader.want(frozenset({("team", "once")}))
    reader.look(201.0)
    assert heard[3:] == [ClaimSeen("team", "once", True)], "forgotten meanwhile"


def test_a_server_without_an_answer_is_asked_again_soon() -> None:
    answers: list[Exception | None] = [ClusterError("503"), None]
    heard: list[Event] = []

    def read(key: tuple[str, str]) -> tuple[Event, float]:
        if (error := answers.pop(0)) is not None:
            raise error
        return ClaimSeen(*key, False), 10.0

    reader: Reader[tuple[str, str]] = Reader("claims", read, heard.extend)
    reader.want(frozenset({("team", "data")}))
    reader.look(100.0)
    assert heard == []
    reader.look(100.0 + SOON)
    assert heard == [ClaimSeen("team", "data", False)]


def test_namespaces_take_turns() -> None:
    heard: list[Event] = []
    reader: Reader[tuple[str, str]] = Reader(
        "claims", lambda key: (ClaimSeen(*key, True), math.inf), heard.extend
    )
    reader.want(frozenset({("greedy", str(i)) for i in range(9)} | {("b", "0"), ("c", "0"), ("c", "1")}))
    reader.look(100.0)
    read = [event.namespace for event in heard if isinstance(event, ClaimSeen)]
    assert sorted(read[:3]) == ["b", "c", "greedy"]
    assert read[3:] == ["c", *["greedy"] * 8] or read[3:5] == ["greedy", "c"]


def test_an_error_of_one_object_is_told_leaves_the_others_alone_and_it_is_tried_again_later() -> None:
    broken, bug = True, RuntimeError("a bug")
    heard: list[Event] = []

    def read(key: tuple[str, str]) -> tuple[Event, float]:
        if key[1] == "a" and broken:
            raise bug
        return ClaimSeen(*key, True), math.inf

    reader: Reader[tuple[str, str]] = Reader("claims", read, heard.extend, gone=lambda key: OwnerGone(key[1]))
    reader.want(frozenset({("team", "a"), ("team", "b")}))
    reader.look(100.0)
    assert heard == [
        Unreadable("claims team/a", "team", bug, OwnerGone("a")),
        ClaimSeen("team", "b", True),
    ]
    broken = False
    reader.look(100.0 + LATER - 1)
    assert len(heard) == 2
    reader.look(100.0 + LATER)
    assert heard[2:] == [ClaimSeen("team", "a", True)]


def test_several_workers_read_each_key_once() -> None:
    together = threading.Barrier(3, timeout=10)
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def read(key: tuple[str, str]) -> tuple[Event, float]:
        together.wait()  # none goes on before three are at it
        return ClaimSeen(*key, True), math.inf

    def take(events: list[Event]) -> None:
        for event in events:
            heard.put(event)

    reader: Reader[tuple[str, str]] = Reader("claims", read, take, workers=3)
    reader.want(frozenset(("team", str(i)) for i in range(6)))
    reader.start()
    found = [heard.get(timeout=10) for _ in range(6)]
    reader.stop()
    assert sorted(map(str, found)) == [str(ClaimSeen("team", str(i), True)) for i in range(6)]


def test_what_is_wanted_sooner_is_read_sooner() -> None:
    heard: list[Event] = []
    reader: Reader[tuple[str, str]] = Reader(
        "owners", lambda key: (ClaimSeen(*key, True), 30.0), heard.extend
    )
    reader.want(frozenset({("team", "a")}))
    reader.look(100.0)
    reader.hurry([("team", "a"), ("team", "unknown")], 102.0)
    reader.look(101.0)
    assert len(heard) == 1
    reader.look(102.0)
    assert len(heard) == 2


def test_what_is_hurried_while_it_is_being_read_is_read_once_more() -> None:
    heard: list[Event] = []

    def read(key: tuple[str, str]) -> tuple[Event, float]:
        if not heard:
            reader.hurry([key], 100.0)  # it is forgotten and wanted again meanwhile: this answer finds nobody
        return ClaimSeen(*key, True), math.inf

    reader: Reader[tuple[str, str]] = Reader("claims", read, heard.extend)
    reader.want(frozenset({("team", "a")}))
    for now in (100.0, 101.0, 102.0):
        reader.look(now)
    assert len(heard) == 2


def test_a_claim_whose_last_waiting_pod_is_replaced_is_read_again_for_the_next() -> None:
    cluster, ledger, reads = FakeCluster(nodes=1, gpus=4), Ledger(Profile()), []

    def read(key: tuple[str, str]) -> tuple[Event, float]:
        reads.append(key)
        return ClaimSeen(*key, True), math.inf

    def take(events: list[Event]) -> None:
        for event in events:
            ledger.apply(event, cluster.now)

    def waiting(pod: PodRecord) -> PodRecord:
        return cluster.update(pod, claims=("data",), shape=replace(pod.shape, unmodelled=(VOLUMES,)))

    def turn() -> None:
        reader.hurry(ledger.volumes.take_anew(), cluster.now)
        reader.want(ledger.claims)
        reader.look(cluster.now)

    reader: Reader[tuple[str, str]] = Reader("claims", read, take)
    (pod,) = cluster.job("train", 1, gpus=8)  # no node is so large
    pod = waiting(pod)
    take(cluster.events())
    turn()
    cluster.now += 1
    cluster.delete(pod.uid)
    (after,) = cluster.pods.values()
    take([PodGone(pod.uid), PodSeen(waiting(after), new=True)])  # both before the reader is told again
    cluster.now += 1
    turn()
    ledger.snapshot(cluster.now)
    (job,) = ledger.jobs.values()
    assert (job.scored, len(reads)) == ((), 2)
