# Over 300 lines: what three commands print, write and refuse shares one fake engine.
"""The commands around the engines: what is printed, written and refused. The engine is a fake (sim_fake.py)."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from muster.cli import main
from muster.errors import ConfigurationError, UsageError
from muster.sim import arguments, engine, pictures
from muster.sim.options import Options
from muster.sim.workload import Cluster, Group
from tests.sim_fake import fifo

MODELS = {"ResNet": {"time_per_iter_s": [1.0, 0.5, 0.4, 0.25], "max_gpus": 4}}
TRACE = "submit_time,service,num_jobs,model_name\n0,7200,2,ResNet\n60,3600,4,ResNet\n120,1800,1,ResNet\n"
FIGURES = (
    "jobs",
    "avg_jct_h",
    "p50_jct_h",
    "p99_jct_h",
    "makespan_h",
    "avg_queueing_h",
    "restarts",
    "utilisation",
)

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("simulate", ...)` with the fake engine, in a folder with trace.txt and models.json."""
    monkeypatch.setattr(engine, "simulate", fifo)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.txt").write_text(TRACE)
    (tmp_path / "models.json").write_text(json.dumps(MODELS))
    return lambda *words: CliRunner().invoke(main, words, prog_name="muster")


SIMULATE = ("simulate", "--trace", "trace.txt", "--gpus", "4", "--gpus-per-node", "2")


def test_json_is_one_object_keyed_by_the_profile_as_given_and_nothing_else(run: Run) -> None:
    done = run(*SIMULATE, "--profile", "fifo", "--profile", "fifo:order=strict", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["fifo", "fifo:order=strict"]
    assert {key: found["fifo"][key] for key in FIGURES} == {
        "jobs": 3,
        "avg_jct_h": pytest.approx((3600 + 4440 + 6180) / 3 / 3600),
        "p50_jct_h": pytest.approx(4440 / 3600),
        "p99_jct_h": pytest.approx((4440 + 0.98 * (6180 - 4440)) / 3600),
        "makespan_h": 1.75,
        "avg_queueing_h": pytest.approx((0 + 3540 + 4380) / 3 / 3600),
        "restarts": 0,
        "utilisation": pytest.approx(12600 / 4 / 6300),
    }


def test_jobs_csv_summary_and_problems_are_written_and_the_table_goes_to_stdout(
    run: Run, tmp_path: Path
) -> None:
    done = run(*SIMULATE, "--profile", "fifo", "--out", "out/deep")
    assert done.exit_code == 0, done.stderr
    rows = list(csv.reader((tmp_path / "out/deep/jobs.csv").read_text().splitlines()))
    assert rows == [
        ["profile", "job", "submit_s", "start_s", "end_s", "jct_s", "restarts", "gpu_seconds"],
        ["fifo", "0", "0", "0", "3600", "3600", "0", "7200"],
        ["fifo", "1", "60", "3600", "4500", "4440", "0", "3600"],
        ["fifo", "2", "120", "4500", "6300", "6180", "0", "1800"],
    ]
    assert json.loads((tmp_path / "out/deep/summary.json").read_text())["fifo"]["jobs"] == 3
    assert (tmp_path / "out/deep/problems.csv").read_text() == "line,what,done\n"
    assert "3 jobs, 4 GPUs" in done.stdout
    assert "average JCT (h)" in done.stdout
    assert "written to" not in done.stdout


def test_the_same_input_and_seed_give_the_same_bytes(run: Run, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        words = (
            "--profile",
            "fifo",
            "--profile",
            "fifo:order=strict",
            "--seed",
            "3",
            "--out",
            folder,
            "--report",
        )
        assert run(*SIMULATE, *words).exit_code == 0
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("one", "two"))
    pages = {"jobs.csv", "summary.json", "problems.csv", "report.html"}
    assert set(one) == pages | {
        f"{name}.{form}" for name in ("jct", "gpus", "queue") for form in ("png", "svg")
    }
    assert one == two


def test_bad_lines_are_told_on_stderr_in_json_and_in_problems_csv(run: Run, tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text(TRACE + "180,-4,1,ResNet\n200,60,9,ResNet\n220,60,1,GPT\n")
    done = run(*SIMULATE, "--profile", "fifo", "--json", "--out", "out")
    assert done.exit_code == 0
    told = [
        {"line": 5, "what": "service must be above 0; found '-4'", "done": "left out"},
        {"line": 6, "what": "asks for 9 GPUs, the cluster has 4", "done": "left out"},
        {"line": 7, "what": "model 'GPT' is not known; the models are: ResNet", "done": "left out"},
    ]
    assert json.loads(done.stdout)["fifo"]["problems"] == told
    assert "line 5: service must be above 0; found '-4': left out\n" in done.stderr
    assert list(csv.DictReader((tmp_path / "out/problems.csv").read_text().splitlines())) == [
        {key: str(value) for key, value in one.items()} for one in told
    ]
    strict = run(*SIMULATE, "--profile", "fifo", "--strict")
    assert (strict.exit_code, strict.stdout) == (2, "")
    assert "--strict: 3 lines of the trace" in strict.stderr


def test_many_problems_are_counted_and_listed_in_the_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text(TRACE + "5,-1,1,ResNet\n" * 25)
    done = run(*SIMULATE, "--profile", "fifo", "--out", "out")
    assert done.stderr.count("left out") == 10
    assert "... and 15 more lines (out/problems.csv)" in done.stderr
    assert len((tmp_path / "out/problems.csv").read_text().splitlines()) == 26


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--profile", "nope"), "profile: must be one of "),
        (("--profile", "fifo:speed=3"), "--profile fifo: 'speed' is not a parameter of it; it has: "),
        (("--profile", "fifo:order=upwards"), "order must be one of backfill, strict; found 'upwards'"),
        (("--profile", "fifo:round=soon"), "--profile fifo: round must be a finite number; found 'soon'"),
        (("--profile", "srtf:round=nan"), "--profile srtf: round must be a finite number; found 'nan'"),
        (("--profile", "afs-p:quantum=inf"), "--profile afs-p: quantum must be a finite number; found 'inf'"),
        (("--profile", "fifo:strict"), "must be NAME:param=value,...; found 'strict'"),
        (("--profile", "missing.yaml"), "missing.yaml: can't be read"),
        ((), "give a --profile"),
        (("--profile", "fifo", "--profile", "fifo"), "the same --profile stands twice"),
        (("--profile", "fifo", "--report"), "--report needs --out DIR"),
        (("--profile", "fifo", "--cluster", "v100=8x1"), "give one of --gpus and --cluster"),
        (("--profile", "fifo", "--preset", "x"), "give one of --trace and --preset"),
        (("--profile", "fifo", "--draw-models", "1"), "--draw-models needs --models FILE"),
        (("--profile", "fifo", "--trace", "models.json"), "models.json, line 1: not a workload"),
    ],
)
def test_what_cannot_be_used_is_exit_2_with_a_sentence(run: Run, words: tuple[str, ...], why: str) -> None:
    done = run(*SIMULATE, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert why in done.stderr


def test_without_a_cluster_it_says_how_to_give_one(run: Run) -> None:
    done = run("simulate", "--trace", "trace.txt", "--profile", "fifo")
    assert done.exit_code == 2
    assert "give the cluster: --gpus N, or --cluster" in done.stderr


@pytest.mark.parametrize("words", [f"a=1x{'9' * 30}", f"a={'9' * 5000}x1", "a=1048577x1", "a=0x1"])
def test_a_cluster_that_is_larger_than_any_is_exit_2_with_its_bounds(run: Run, words: str) -> None:
    done = run("simulate", "--trace", "trace.txt", "--profile", "fifo", "--cluster", words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--cluster: must be PRODUCT=NODESxGPUS[:MIB], " in done.stderr
    assert "each from 1 to 1048576; found 'a=" in done.stderr


def test_an_unreadable_trace_is_exit_2_with_line_and_reason(run: Run, tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_bytes(b"submit_time,service,num_jobs,model_name\n0,1,1,\xfe\n")
    done = run(*SIMULATE, "--profile", "fifo", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == "muster: trace.txt, line 2: is not UTF-8 text (byte 0xfe)"


def test_options_reach_the_engine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def spy(workload: Any, cluster: Any, profile: Any, options: Any, progress: Any) -> Any:
        seen.append((cluster, profile, options))
        return fifo(workload, cluster, profile, options, progress)

    monkeypatch.setattr(engine, "simulate", spy)
    words = ("--seed", "4", "--round", "60", "--restart", "30", "--migrate", "5", "--checkpoint", "600")
    words += ("--release", "2")
    more = ("--failures", "86400", "--repair", "1200", "--out", "o", "--report")
    assert run(*SIMULATE, "--profile", "fifo:order=strict,resize=in-place", *words, *more).exit_code == 0
    assert run(*SIMULATE, "--profile", "fifo", "--fluid").exit_code == 0
    assert run(*SIMULATE, "--profile", "fifo", "--fluid", "--exact-seconds").exit_code == 0
    (cluster, profile, options), (fluid, _, whole), (_, _, exact) = seen
    assert cluster == Cluster((Group(2, 2),))
    assert profile.name == "fifo:order=strict,resize=in-place"
    assert (profile.order, profile.resize) == ("strict", "in-place")
    costs = Options(
        seed=4,
        round=60.0,
        restart=30.0,
        migrate=5.0,
        release=2.0,
        checkpoint=600.0,
        failures=86400.0,
        repair=1200.0,
    )
    assert options == replace(costs, record=True)
    assert (fluid.fluid, whole.whole_seconds, exact.whole_seconds) == (True, True, False)


def test_a_profile_may_be_a_configuration_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "muster.yaml").write_text("profile: gang-pack\norder: strict\n")
    done = run(*SIMULATE, "--profile", "muster.yaml", "--json")
    assert done.exit_code == 0, done.stderr
    assert list(json.loads(done.stdout)) == ["muster.yaml"]
    found = arguments.profile(str(tmp_path / "muster.yaml"))
    assert (found.order, found.placement, len(found.scores)) == ("strict", "scored", 1)


def test_ctrl_c_leaves_a_partial_report_that_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(workload: Any, cluster: Any, profile: Any, options: Any, progress: Any) -> Any:
        def then(completed: int, total: int, now: float) -> None:
            if completed == 1:
                os.kill(os.getpid(), signal.SIGINT)
            progress(completed, total, now)

        return fifo(workload, cluster, profile, options, then)

    monkeypatch.setattr(engine, "simulate", pressed)
    before = signal.getsignal(signal.SIGINT)
    done = run(*SIMULATE, "--profile", "fifo", "--profile", "gang", "--json", "--out", "out", "--report")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert list(found) == ["fifo"]
    assert (found["fifo"]["completed"], found["fifo"]["unfinished"]) == (1, 2)
    assert found["fifo"]["cut"] == "interrupted at 3600 s of simulated time"
    page = (tmp_path / "out/report.html").read_text()
    assert "This report is partial." in page
    assert "not run at all: gang" in page
    assert "interrupted: what there is so far was written" in done.stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_a_report_without_matplotlib_is_refused_before_anything_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run(*SIMULATE, "--profile", "fifo", "--out", "out", "--report")
    assert (done.exit_code, (tmp_path / "out").exists()) == (2, False)
    assert "--report needs matplotlib: pip install matplotlib" in done.stderr
    monkeypatch.undo()
    pictures.required()


def test_help_is_there_without_numpy_scipy_or_matplotlib() -> None:
    code = (
        "import sys\nfrom muster.cli import main\n"
        "for words in (['--help'], ['simulate', '--help'], ['workload', '--help'], ['replay', '--help']):\n"
        "    try:\n        main(words)\n    except SystemExit as end:\n        assert end.code == 0\n"
        "found = {'numpy', 'scipy', 'matplotlib', 'rich', 'pydantic'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in (
        "muster simulate --profile afs-l --profile srtf",
        "Times are seconds",
        "muster workload --list",
    ):
        assert words in done.stdout


# ---- words of the command line ----


def test_clusters_of_the_command_line() -> None:
    assert arguments.cluster("v100=8x1,p100=16x1:16280") == Cluster(
        (Group(8, 1, "v100"), Group(16, 1, "p100", 16280))
    )
    assert arguments.even(64, 4) == Cluster((Group(16, 4),))
    assert arguments.even(10, 4) == Cluster((Group(2, 4), Group(1, 2)))
    assert arguments.even(3, 4, fluid=True) == Cluster((Group(1, 3),), fluid=True)
    for bad in ("v100", "v100=8", "v100=0x1", "v100=8x1,v100=2x1", "=8x1", ""):
        with pytest.raises(UsageError, match="--cluster"):
            arguments.cluster(bad)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("true", "bool", True),
        ("0", "bool", False),
        ("3", "int", 3),
        ("3", "float", 3.0),
        ("0.5", "float", 0.5),
        ("gpu_ngpu", "str", "gpu_ngpu"),
        ("1|2|4", "tuple[int, ...]", (1, 2, 4)),
        ("a|b", "Sequence[str]", ("a", "b")),
        ("none", "float | None", None),
        ("2", "float | None", 2.0),
    ],
)
def test_parameters_take_the_type_of_the_plugins_field(text: str, kind: str, value: object) -> None:
    found = arguments.typed(text, kind, "here")
    assert (found, type(found)) == (value, type(value))


def test_a_presets_parameters_take_the_type_of_their_default() -> None:
    assert arguments.preset("philly-day:jobs=3,load=2") == ("philly-day", {"jobs": 3, "load": 2.0})
    assert arguments.like((1, 2), "1|4", "here") == (1, 4)
    assert arguments.like("1", "4", "here") == "4"
    with pytest.raises(ConfigurationError, match="preset philly-day: jobs must be int; found 'x'"):
        arguments.preset("philly-day:jobs=x")


def test_a_parameter_of_the_wrong_type_names_it() -> None:
    with pytest.raises(ConfigurationError, match="here must be int; found 'many'"):
        arguments.typed("many", "int", "here")
    for kind in ("Mapping[str, float]", "Sequence[Sequence[int]]", "References"):
        with pytest.raises(ConfigurationError, match="here can't be given in one word"):
            arguments.typed("1", kind, "here")


def test_a_parameter_sets_every_plugin_that_has_it_or_the_one_that_is_named() -> None:
    assert dict(arguments.profile("gang-pack:in_use=25").named)["gang-pack"].in_use == 25
    assert dict(arguments.profile("gang-pack:gang-pack.in_use=25").named)["gang-pack"].in_use == 25
    assert arguments.profile("fifo:patience=60").patience == 60.0


# ---- muster workload ----


def test_a_drawn_workload_is_the_same_for_the_same_seed_and_runs(run: Run, tmp_path: Path) -> None:
    one, two, other = (run("workload", "--jobs", "20", "--seed", seed).stdout for seed in ("1", "1", "2"))
    assert one == two != other
    (tmp_path / "drawn.csv").write_text(one)
    done = run("simulate", "--trace", "drawn.csv", "--gpus", "8", "--profile", "fifo", "--json")
    assert json.loads(done.stdout)["fifo"]["jobs"] == 20


def test_a_drawn_workload_with_models_is_json_that_carries_them(run: Run, tmp_path: Path) -> None:
    words = ("--arrivals", "once", "--sizes", "1=1,4=1", "--lengths", "uniform:1m:1h", "--cap", "30m")
    done = run("workload", "--jobs", "9", "--models", "models.json", *words, "--out", "made/jobs.json")
    assert (done.exit_code, done.stdout) == (0, "")
    (tmp_path / "models.json").unlink()
    simulated = run("simulate", "--trace", "made/jobs.json", "--gpus", "4", "--profile", "fifo", "--json")
    assert json.loads(simulated.stdout)["fifo"]["jobs"] == 9


def test_presets_are_listed_and_run_with_parameters_on_their_own_cluster(run: Run) -> None:
    listed = run("workload", "--list").stdout
    assert "philly-day: A day like Philly's" in listed
    assert "    jobs=0, load=1.2, gpus=128, gpus_per_node=8, cap=24.0\n" in listed
    done = run("simulate", "--preset", "philly-day:jobs=7,gpus=16", "--profile", "fifo", "--json")
    assert (json.loads(done.stdout)["fifo"]["jobs"], json.loads(done.stdout)["fifo"]["gpus"]) == (7, 16)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--arrivals", "often"), "--arrivals: must be once, every:T, poisson:T"),
        (("--arrivals", "every:x"), "--arrivals every:x: must be a time such as 90, 90s, 5m"),
        (("--sizes", "big"), "--sizes: must be GPUS=WEIGHT,..., as 1=70,2=10,4=12,8=8; found 'big'"),
        (("--sizes", "1=0"), "--sizes: must be GPUS=WEIGHT,..., as"),
        (("--lengths", "lognormal:1h:x"), "--lengths: must be lognormal:MEDIAN:SIGMA"),
        (("--lengths", "long"), "--lengths: must be fixed:T, uniform:LEAST:MOST"),
        (("--lengths", "uniform:1h:10m"), "--lengths: must be fixed:T, uniform:LEAST:MOST"),
        (("--sizes", "1=1e400"), "--sizes: must be GPUS=WEIGHT"),
        (("--sizes", "99999999999999999999=1"), "8=8, each at most 10 000 replicas; found '9999"),
        (
            ("--lengths", "lognormal:1h:nan"),
            "--lengths: must come to at most 1e+12 s; found 'lognormal:1h:nan'",
        ),
        (("--lengths", "lognormal:1h:inf"), "--lengths: must be lognormal:MEDIAN:SIGMA"),
        (
            ("--lengths", f"lognormal:{'9' * 400}:1"),
            "--lengths: must come to at most 1e+12 s; found 'lognormal:9",
        ),
        (
            ("--lengths", f"uniform:1:{'9' * 400}"),
            "--lengths: a time must be at most 1e+12 s; found 'uniform:1:9",
        ),
        (("--lengths", f"fixed:{'9' * 400}"), "--lengths: a time must be at most 1e+12 s; found 'fixed:9"),
        (("--arrivals", f"every:{'9' * 400}"), "--arrivals: a time must be at most 1e+12 s; found 'every:9"),
        (("--arrivals", "every:500000000000"), "--arrivals: must come to at most 1e+12 s; found 'every:5"),
        (
            ("--sizes", "8=1", "--models", "models.json"),
            "--sizes: asks for 8 GPUs, and no model gains beyond 4",
        ),
        (("nope",), "PRESET: must be one of "),
        (
            ("philly-day:colour=1",),
            "PRESET philly-day: 'colour' is not a parameter of it; it has: jobs, load",
        ),
        (
            ("philly-day:load=inf",),
            "PRESET philly-day: load must be a finite number; found 'inf'",
        ),
        (("philly-day:load=-1",), "preset philly-day: jobs must be 0 or more, all others above 0"),
        (
            ("philly-day", "--jobs", "3"),
            "--jobs is for drawn jobs; a preset has parameters: NAME:param=value",
        ),
    ],
)
def test_a_workload_that_cannot_be_drawn_is_exit_2_with_a_sentence(
    run: Run, words: tuple[str, ...], why: str
) -> None:
    done = run("workload", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert why in done.stderr
