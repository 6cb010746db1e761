"""What nodes use, in Snapshots: asked for by a plugin, kept for a while, in dumps."""

from __future__ import annotations

import json
from dataclasses import replace

from muster.core import snapshot_codec
from muster.core.cycle import cycle
from muster.core.ledger import Ledger
from muster.core.state.node_use import KEPT
from muster.core.views.view import View
from muster.points import Profile, load
from muster.types import Use, UseSeen
from tests.cluster_fake import FakeCluster
from tests.scenario import snapshot

SPECON = load("specon")
ASKS = Profile(rebalance=(SPECON,), named=(("specon", SPECON),))
TOLD = Use(1000.0, {"n0": (1500, 1 << 30)}, {("team", "train-0-1"): (10, 20), ("team", "other"): (30, 40)})


def ledger(profile: Profile) -> Ledger:
    cluster = FakeCluster()
    cluster.job("train", 2, gpus=8)
    made = Ledger(profile)
    for event in cluster.events():
        made.apply(event, 1000.0)
    return made


def test_use_is_in_snapshots_while_it_is_young_and_of_pods_only_what_is_ours() -> None:
    made = ledger(ASKS)
    assert made.snapshot(1000.0).use is None
    made.apply(UseSeen(TOLD), 1000.0)
    found = made.snapshot(1000.0 + KEPT).use
    assert found is not None
    assert found.nodes == TOLD.nodes
    assert [name for _, name in found.pods] == ["train-0-1"]
    assert made.snapshot(1000.1 + KEPT).use is None, "too old: requests"


def test_news_of_use_is_no_reason_for_a_cycle() -> None:
    made = ledger(ASKS)
    made.snapshot(1000.0)
    due = made.due(1000.0)
    made.apply(UseSeen(TOLD), 1000.0)
    assert made.due(1000.0) == due


def test_no_plugin_that_asks_for_it_finds_none() -> None:
    made = ledger(Profile())
    made.apply(UseSeen(TOLD), 1000.0)
    assert made.snapshot(1000.0).use is None


def test_a_dump_has_it_and_one_without_is_read_as_before() -> None:
    for use in (TOLD, None):
        before = replace(snapshot(1), use=use)
        view = View(before, cycle(before, ASKS), ASKS, free=before.free)
        plain = json.loads(json.dumps(snapshot_codec.dump(view)))
        assert ("use" in plain["snapshot"]) == (use is not None)
        assert snapshot_codec.load(plain)[0].use == use
