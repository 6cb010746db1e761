"""With the real engines: the same input and seed give the same bytes, and what the README says runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli import main
from tests.test_simulate_replay import dumped

SAMPLES = Path(__file__).parents[1] / "config" / "samples" / "traces"
COSTS = ("--restart", "30", "--checkpoint", "600", "--failures", "20000", "--repair", "900", "--seed", "5")
PLACED = ("fifo", "gang-pack", "afs-l", "tiresias-l")
FLUID = ("srtf", "srsf-e", "max-min", "afs-p", "optimus", "themis")


def simulated(folder: Path, hashes: str, words: Sequence[str]) -> dict[str, bytes]:
    """The files of one run, and its stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli", "simulate", *words, "--json", "--out", str(folder)],
        env={**os.environ, "PYTHONHASHSEED": hashes},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return {**{path.name: path.read_bytes() for path in sorted(folder.iterdir())}, "stdout": done.stdout}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (PLACED, ("--trace", str(SAMPLES / "jobs.json"), *COSTS)),
        (FLUID, ("--trace", str(SAMPLES / "jobs.json"), "--fluid", "--seed", "5")),
        (("fifo", "fifo:order=strict"), ("--preset", "philly-day:jobs=25,gpus=32", *COSTS)),
    ],
    ids=["placed", "fluid", "failures"],
)
def test_two_processes_write_the_same_bytes(
    tmp_path: Path, names: Sequence[str], words: Sequence[str]
) -> None:
    given = [word for name in names for word in ("--profile", name)]
    one = simulated(tmp_path / "one", "1", [*given, *words])
    assert one == simulated(tmp_path / "two", "2", [*given, *words])
    found = json.loads(one["stdout"])
    assert list(found) == list(names)
    assert all(figures["completed"] == figures["jobs"] > 0 for figures in found.values())


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    words = ("--profile", "fifo", "--preset", "philly-day:jobs=25,gpus=32")
    assert simulated(tmp_path / "one", "0", words) != simulated(
        tmp_path / "two", "0", [*words, "--seed", "1"]
    )


def test_the_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[1]
    block = (
        (root / "extender" / "muster" / "sim" / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").symlink_to(root / "config")
    (tmp_path / "dump.json").write_text(json.dumps(dumped()))
    lines = [line for line in block.splitlines() if line]
    assert len(lines) == 5
    for line in lines:
        done = CliRunner().invoke(main, shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
    assert (tmp_path / "out" / "sample" / "report.html").exists()
