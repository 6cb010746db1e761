"""The thread that reads now and then, turned by hand."""

from __future__ import annotations

import math

from muster.cluster.reader import SOON, Reader
from muster.errors import ClusterError
from muster.types import ClaimSeen, Event


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
