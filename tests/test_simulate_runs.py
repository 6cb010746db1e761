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


def table(*words: str) -> str:
    done = CliRunner().invoke(main, ["simulate", "--quiet", *words], prog_name="muster")
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_the_table_says_on_what_a_rigid_and_an_elastic_profile_are_compared() -> None:
    sample = ("--trace", str(SAMPLES / "jobs.json"), "--profile", "fifo", "--profile", "afs-l")
    held = "fifo: jobs hold the GPUs that they ask for"
    found = table(*sample).splitlines()
    assert found[1].split()[-2:] == ["0.733", "0.519"]
    assert found[-2:] == [
        "a change of a running job costs 30 s (--restart S)",
        f"{held} (--ranges: they grow where GPUs are free)",
    ]
    free = table(*sample, "--restart", "0", "--ranges").splitlines()
    assert free[1].split()[-2:] == ["0.946", "0.502"]
    assert free[-1] == "a change of a running job costs 0 s (--restart S)"
    fluid = table(*sample, "--fluid").splitlines()
    assert fluid[-2:] == ["a change of a running job costs 0 s (--restart S)", held]


def test_a_trace_that_names_a_cost_keeps_it_and_a_papers_own_costs_are_not_replaced(tmp_path: Path) -> None:
    plain = json.loads((SAMPLES / "jobs.json").read_text())
    (tmp_path / "jobs.json").write_text(json.dumps({**plain, "options": {"restart": 5.0}}))
    words = ("--trace", str(tmp_path / "jobs.json"), "--profile", "afs-l")
    assert table(*words).splitlines()[-1] == "a change of a running job costs 5 s (--restart S)"
    assert (
        table(*words, "--restart", "7").splitlines()[-1]
        == "a change of a running job costs 7 s (--restart S)"
    )
    own = table("--preset", "specon", "--profile", "specon-default").splitlines()
    assert own[-1] == "changes of running jobs cost what the workload's own paper says"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--fluid --ranges", "--ranges: nobody grows by itself with --fluid"),
        ("--fluid --silent", "--silent: with --fluid every length is known"),
        ("--fluid --measure 15", "--measure: with --fluid a speed takes no time"),
        ("--fluid --failures 60", "--failures: with --fluid there are no nodes that fail"),
        ("--fluid --repair 60", "--repair: with --fluid there are no nodes that fail"),
        ("--fluid --migrate 60", "--migrate: with --fluid there are no nodes to move to"),
        ("--repair 60", "--repair: no node fails without --failures S"),
        ("--vc ee9e8c", "--vc: only Philly's traces name virtual clusters"),
        ("--gpus-per-node 4 --cluster v100=8x1", "--gpus-per-node needs --gpus N"),
        ("--silent --measure 15", "give one of --silent and --measure"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(options: str, why: str) -> None:
    done = CliRunner().invoke(
        main,
        ["simulate", "--trace", str(SAMPLES / "jobs.json"), "--profile", "fifo", *options.split()],
        prog_name="muster",
    )
    assert done.exit_code == 2
    assert why in done.stderr


@pytest.mark.parametrize("fluid", [(), ("--fluid",)], ids=["nodes", "fluid"])
def test_a_job_that_never_ends_is_no_interruption(tmp_path: Path, fluid: Sequence[str]) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text("job,submit_s,request,work,min,max,sizes\na,0,4,5,1,8,8\nb,0,1,5,1,1,\n")
    words = ["--trace", str(trace), "--gpus", "4", "--profile", "max-min", *fluid]
    done = CliRunner().invoke(main, ["simulate", "--quiet", "--json", *words], prog_name="muster")
    assert done.exit_code == 0
    assert "interrupted" not in done.stderr
    assert any("never ends" in note for note in json.loads(done.stdout)["max-min"]["notes"])


@pytest.mark.parametrize(
    "options", [("--models", str(SAMPLES / "jobs.json")), ("--vc", "ee9e8c"), ("--draw-models", "1")]
)
def test_what_is_read_with_a_trace_is_refused_beside_a_preset(options: Sequence[str]) -> None:
    words = ("simulate", "--preset", "philly-day", "--profile", "fifo", *options)
    done = CliRunner().invoke(main, words, prog_name="muster")
    assert done.exit_code == 2
    assert f"{options[0]} is for a --trace" in done.stderr


def test_notes_of_a_run_stand_under_the_table_ten_a_profile(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    stuck = "".join(f"a{n:02},0,4,5,1,8,8\n" for n in range(12))
    trace.write_text(f"job,submit_s,request,work,min,max,sizes\n{stuck}b,0,1,5,1,1,\n")
    found = table("--trace", str(trace), "--gpus", "4", "--profile", "max-min", "--fluid").splitlines()
    never = "never ends: it waits, and nothing comes that would start it"
    assert found[-11:-1] == [f"max-min: job a{n:02} {never}" for n in range(10)]
    assert found[-1] == "max-min: and 2 more such notes (--json)"


def test_what_a_measurement_takes_is_named_under_the_table() -> None:
    words = ("--trace", str(SAMPLES / "jobs.json"), "--profile", "coddl")
    at_once, later = table(*words), table(*words, "--measure", "15")
    assert later.splitlines()[-1] == (
        "speeds are known once a job has trained for 15 s as it does (--measure S)"
    )
    assert at_once.splitlines()[1] != later.splitlines()[1]


def test_silent_jobs_are_named_under_the_table() -> None:
    words = ("--trace", str(SAMPLES / "jobs.json"), "--profile", "optimus", "--restart", "900")
    told, silent = table(*words), table(*words, "--silent")
    assert silent.splitlines()[-1] == (
        "jobs report nothing: what they have done is what they declare, pauses included (--silent)"
    )
    assert told.splitlines()[1] != silent.splitlines()[1]


def test_time_to_leave_is_named_and_refused_where_it_would_count_twice() -> None:
    sample = ("--trace", str(SAMPLES / "jobs.json"), "--release", "2.5")
    assert "GPUs that replicas leave are free 2.5 s later (--release S)" in table(
        *sample, "--profile", "afs-l"
    )
    for words, why in (
        ((*sample, "--profile", "afs-l", "--fluid"), "GPUs have no place with --fluid"),
        ((*sample, "--profile", "afs-l:resize=hand-over"), "hands GPUs over (resize: hand-over)"),
        (("--preset", "specon", "--profile", "specon-default", "--release", "2.5"), "the preset says itself"),
    ):
        done = CliRunner().invoke(main, ["simulate", "--quiet", *words], prog_name="muster")
        assert done.exit_code == 2
        assert "--release: " in done.stderr
        assert why in done.stderr
