"""`muster replay`: a dump through a profile, the plan in words, and what differs from the plan in the dump."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from muster import profiles
from muster.cli import main
from muster.core.cycle import cycle
from muster.core.snapshot_codec import dump, load
from muster.core.views.view import View
from muster.types import Grant
from tests.scenario import job, key, node, snapshot


def dumped(profile: str = "fifo") -> dict[str, Any]:
    """Two nodes of 8 GPUs: one job runs, one starts, one is too large for what is left and one never fits."""
    before = snapshot(
        [node("n0"), node("n1")],
        jobs=[
            job("runs", worker=1, gpus=8, on=["n0"]),
            job("starts", worker=2, gpus=2, submitted=1.0),
            job("waits", worker=2, gpus=8, submitted=2.0),
            job("never", worker=1, gpus=64, submitted=3.0),
        ],
    )
    found = profiles.build(profile)
    plain: dict[str, Any] = json.loads(json.dumps(dump(View(before, cycle(before, found), found))))
    return plain


def replay(*words: str, dump: object, folder: Path, packed: bool = False) -> Result:
    text = json.dumps(dump) if not isinstance(dump, str) else dump
    path = folder / "dump"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return CliRunner().invoke(main, ["replay", str(path), *words])


def test_the_dumps_own_profile_gives_the_dumps_own_plan_and_says_why_jobs_wait(tmp_path: Path) -> None:
    done = replay(dump=dumped(), folder=tmp_path, packed=True)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("4 jobs, 2 nodes, ")
    assert "profile fifo, order backfill\n" in done.stdout
    lines = done.stdout.splitlines()
    assert any("team/starts" in line and "n1 x2" in line and "0 +2 of 2" in line for line in lines)
    assert any("team/waits" in line and "needs 16 GPUs" in line for line in lines)
    assert "team/runs" not in done.stdout
    assert "and 1 job that runs as before (--all lists it)" in lines
    assert done.stdout.endswith("The plan is the one in the dump.\n")
    assert "team/runs" in replay("--all", dump=dumped(), folder=tmp_path).stdout


def test_another_profile_shows_where_it_differs(tmp_path: Path) -> None:
    done = replay("--profile", "fifo:order=strict", "--json", dump=dumped(), folder=tmp_path)
    found = json.loads(done.stdout)
    assert (found["profile"], found["dump_profile"]) == ("fifo:order=strict", "fifo")
    changed = dumped()
    changed["plan"]["reservations"] = []
    shown = replay(dump=changed, folder=tmp_path).stdout
    assert "Differs from the plan in the dump in 1 point:" in shown
    (difference,) = json.loads(replay("--json", dump=changed, folder=tmp_path).stdout)["differences"]
    assert difference == {"job": "team/starts", "what": "nodes", "dump": "-", "replay": "n1 x2"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "dump, line 1: is no snapshot: Expecting property name"),
        ("[]", "dump: is no snapshot: must be an object"),
        ("[" * 100_000, "dump: is no snapshot: maximum recursion depth exceeded"),
        ({"version": 99}, "not a snapshot of version 2 or before: version is 99"),
        ({"version": 1, "profile": "fifo"}, "the snapshot can't be read: KeyError: 'snapshot'"),
    ],
)
def test_what_is_no_dump_is_exit_2_with_a_sentence(tmp_path: Path, content: object, why: str) -> None:
    done = replay(dump=content, folder=tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert why in done.stderr


def replaced(path: Sequence[str | int], value: object) -> dict[str, Any]:
    """The dump with another value at one place."""
    plain = dumped()
    inner: Any = plain
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("plan",), True, "the snapshot's plan can't be read: AttributeError"),
        (("plan", "order"), -5.5, "the snapshot's plan can't be read: TypeError"),
        (("plan", "statuses"), 7, "the snapshot's plan can't be read: TypeError"),
        (("plan", "statuses", 0, 1), {}, "the snapshot's plan can't be read: KeyError"),
        (("plan", "statuses", 0, 1), [], "the snapshot's plan can't be read: IndexError"),
        (("plan", "statuses", 0), "x", "the snapshot's plan can't be read: ValueError"),
        (("snapshot", "free", 0, 0), 1e400, "the snapshot can't be read: OverflowError"),
        (("snapshot", "ours_on", 0), 1e400, "the snapshot can't be read: OverflowError"),
        (("snapshot", "ours_on"), -1, "the snapshot can't be read: ValueError"),
        (("snapshot", "nodes", 0, "allocatable", "cpu"), 1e400, "the snapshot can't be read: OverflowError"),
        (("recipe", "core", "topology_levels"), True, "the snapshot can't be planned with profile fifo: TypeError"),
    ],
    ids=str,
)  # fmt: skip
def test_a_dump_with_one_value_of_a_wrong_kind_is_exit_2_with_a_sentence(
    tmp_path: Path, path: tuple[str | int, ...], value: object, why: str
) -> None:
    done = replay(dump=replaced(path, value), folder=tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert why in done.stderr


def test_a_dump_with_a_number_without_end_is_no_snapshot(tmp_path: Path) -> None:
    done = replay(dump='{"version": ' + "1" * 5000 + "}", folder=tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "dump: is no snapshot: Exceeds the limit" in done.stderr


def test_a_dump_brings_its_profile_and_one_of_plugins_not_known_here_is_replayed_with_another(
    tmp_path: Path,
) -> None:
    plain = {**dumped(), "profile": "ours"}
    assert "The plan is the one in the dump." in replay(dump=plain, folder=tmp_path).stdout
    plain["recipe"]["points"]["scores"] = [["theirs", 1.0]]
    refused = replay(dump=plain, folder=tmp_path)
    assert (refused.exit_code, "plugin 'theirs' is not installed" in refused.stderr) == (2, True)
    del plain["recipe"]
    assert (
        "the snapshot's profile can't be read: KeyError: 'recipe'"
        in replay(dump=plain, folder=tmp_path).stderr
    )
    assert replay("--profile", "fifo", dump=plain, folder=tmp_path).exit_code == 0


def test_a_dump_from_before_codes_were_reasons_replays_to_its_own_plan(tmp_path: Path) -> None:
    """Made by the code before that: the word and the sentence of a status have no names there."""
    old = json.loads((Path(__file__).parent / "dumps" / "version-2.json").read_text())
    done = replay("--all", dump=old, folder=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("The plan is the one in the dump.\n")
    [[_, status]] = [pair for pair in old["plan"]["statuses"] if pair[0][1] == "never"]
    assert status[1] == "NeverFits"
    status[1] = "Nodes"
    found = json.loads(replay("--json", dump=old, folder=tmp_path).stdout)["differences"]
    assert found == [{"job": "team/never", "what": "reason", "dump": "Nodes", "replay": "NeverFits"}]


def test_a_dump_of_version_1_is_read_and_replays_to_its_own_plan(tmp_path: Path) -> None:
    """Made by the code before its words changed, of every field that has another name since."""
    old = (Path(__file__).parent / "dumps" / "version-1.json").read_text()
    assert all(f'"{name}":' in old for name in ("holds", "keeps", "want", "coming", "anew", "barred"))
    done = replay("--all", dump=old, folder=tmp_path)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.endswith("The plan is the one in the dump.\n")
    snapshot, _ = load(json.loads(old))
    kept, again = (snapshot.jobs[key(name)] for name in ("kept", "again"))
    assert kept.shrink_blocked_by == "its budget says no"
    assert (again.returning, again.restarting, again.grant) == (True, True, Grant(max_nodes=1, restart=True))
    assert snapshot.node_backoffs == {(key("waits"), "worker"): {"n0": snapshot.now + 60.0}}
