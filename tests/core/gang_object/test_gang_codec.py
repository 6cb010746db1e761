"""What is kept in a Gang beside state and placement: written when it is worth it, read as far as it can be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from muster.core.gang_object import gang_codec
from muster.points import Profile
from muster.types import Facts, Grant, Grants, JobKey, Meter, SharingSnapshot, WriteGang
from tests.cluster_fake import FakeCluster, Muster


def test_what_is_kept_is_read_back_the_same() -> None:
    facts = Facts(
        first_start=3.5, gpu_seconds=Meter(1.0, 8.0, 100.0), by_product={"A": Meter(2.0)}, resizes=2
    )
    grant = Grant({"worker": 3}, product="A", beside=JobKey("team", "other", "u1"))
    plain = json.loads(json.dumps(gang_codec.plain(facts, {"form": 1}, {"coach": {"b": [1, 2]}}, grant)))
    assert gang_codec.from_plain(plain) == {
        "facts": facts, "grant": grant, "track": {"form": 1}, "memory": {"coach": {"b": [1, 2]}},
    }  # fmt: skip


def test_a_value_that_cannot_be_read_is_left_out() -> None:
    broken: list[Any] = ["text", {"facts": {"no such": 1}}, {"facts": {"gpu_seconds": [1]}}, {"track": 7}]
    assert [gang_codec.from_plain(one) for one in broken] == [{}, {}, {}, {}]


def test_where_a_job_starts_again_and_who_of_it_leaves_is_read_back() -> None:
    plain = json.loads(json.dumps(gang_codec.plain(Facts(), {}, {}, None, ("n1", "n0", "n1"), {"u1", "u0"})))
    assert plain == {"restartOn": {"n0": 1, "n1": 2}, "leavesWhole": ["u0", "u1"]}
    assert gang_codec.from_plain(plain) == {
        "restart_on": ("n0", "n1", "n1"), "leaves_whole": frozenset({"u0", "u1"}),
    }  # fmt: skip
    assert gang_codec.plain(Facts(), {}, {}, None) == {}


@pytest.mark.parametrize(
    "places", ["n0", ["n0"], {"n0": "2"}, {"n0": 0}, {"n0": True}, {"n0": 1 << 40}, None]
)
def test_places_to_start_again_on_that_cannot_be_read_are_none(places: object) -> None:
    assert gang_codec.from_plain({"restartOn": places, "leavesWhole": places}) in (
        {}, {"leaves_whole": frozenset(["n0"])},
    )  # fmt: skip


class Says:
    """A Share plugin that leaves all as it is and says why."""

    why = "as it is"

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        rows = range(len(snapshot.table))
        return replace(shares, replicas=np.maximum(shares.replicas, 1), why=dict.fromkeys(rows, self.why))


def test_a_sentence_that_holds_no_more_is_written_again_and_one_that_holds_is_not() -> None:
    cluster, says = FakeCluster(nodes=1), Says()
    cluster.job("a", 4, min_replicas="1", max_replicas="4")
    muster = Muster(cluster, replace(Profile(), shares=(says,)))
    muster.settle()

    def reasons() -> list[str]:
        return [str(a.status["shareReason"]) for a in cluster.sent if isinstance(a, WriteGang)]

    first = reasons()
    assert "as it is" in first[-1]
    for _ in range(5):
        cluster.now += 61.0
        muster.settle()
    assert reasons() == first
    says.why = "something else"
    cluster.now += 61.0
    muster.settle()
    assert reasons()[len(first) :] == [text.replace("as it is", "something else") for text in first[-1:]]
