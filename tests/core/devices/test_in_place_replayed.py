"""A dump with jobs in place holds the plan that was made of it: replay makes the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from muster import profiles
from muster.core.snapshot_codec import dump
from muster.sim.replaying import replay
from tests.core.devices.circle import Circle


def test_a_dump_with_jobs_in_place_is_replayed_alike(tmp_path: Path) -> None:
    circle = Circle()
    circle.profile = profiles.build("max-min")
    circle.restart()
    for name in ("a", "b", "c"):
        circle.train(name, "1-4")
        circle.seconds(6)
    told = 0
    for _ in range(6):
        now = circle.cluster.now
        snapshot = circle.ledger.snapshot(now)
        plan = circle.ledger.plan(snapshot)
        circle.ledger.adopt(snapshot, plan)
        view = circle.ledger.view(snapshot, circle.ledger.queue, leading=True, synced=True)
        told += view.plan != plan
        path = tmp_path / "dump.json"
        path.write_text(json.dumps(dump(replace(view, made=plan))))
        again = json.loads(replay(str(path), None, True, False))
        assert (again["differences"], again["plan"]) == ([], json.loads(path.read_text())["plan"])
        circle.second()
    assert told, "GPUs in place were taken out of a plan"
