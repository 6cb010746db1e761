# Over 300 lines: every format of a trace has the mistakes that are told by line.
"""Traces are known by their content, and nothing in them is dropped without a word."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.commands import Number
from muster.errors import UsageError
from muster.sim import generate, presets
from muster.sim.command import simulate
from muster.sim.options import MOST, Options
from muster.sim.submission import Curve, Linear, RoleSpec, Submission
from muster.sim.traces import Asked, UnreadableError, options, read
from muster.sim.traces.json_text import Lines
from muster.sim.traces.written import as_csv, as_json
from muster.sim.workload import Cluster, Group, Problem, Workload
from muster.types import Config

MODELS = {
    "ResNet": {"time_per_iter_s": [0.5, 0.25, 0.2, 0.125], "max_gpus": 4},
    "VGG": {"time_per_iter_s": [2.0, 1.25], "max_gpus": 2},
}
AFS = "app_id,submit_time,service,num_jobs,sleep_time,model_name\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
SAMPLES = Path(__file__).parents[1] / "config" / "samples" / "traces"


def written(folder: Path, text: str | bytes, name: str = "trace.txt", models: object = MODELS) -> Path:
    """A trace of that content, with models beside it; its name says nothing about its format."""
    if models is not None:
        (folder / "models.json").write_text(json.dumps(models))
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def jobs_of(path: Path, **asked: object) -> tuple[Sequence[Submission], tuple[Problem, ...]]:
    workload, _ = read(Asked(path, **asked))  # type: ignore[arg-type]
    return workload.submissions, workload.problems


def refused(path: Path, **asked: object) -> str:
    with pytest.raises(UnreadableError) as error:
        read(Asked(path, **asked))  # type: ignore[arg-type]
    return str(error.value).replace(str(path), "FILE")


# ---- each format ----


def test_an_afs_trace_counts_work_in_iterations_of_its_model(tmp_path: Path) -> None:
    path = written(tmp_path, AFS + "0,0.0,100.0,4,0.0,ResNet\n1,60.5,10.0,1,60.5,VGG\n")
    workload, notes = read(Asked(path))
    assert list(workload.submissions) == [
        Submission("0", 0.0, "ResNet", 200.0, 4),
        Submission("1", 60.5, "VGG", 5.0, 1),
    ]
    assert workload.models == {
        "ResNet": Curve("ResNet", (2.0, 4.0, 5.0, 8.0), (0.5, 0.25, 0.2, 0.125)),
        "VGG": Curve("VGG", (0.5, 0.8), (2.0, 1.25)),
    }
    assert notes == ("models: models.json, found near the trace (--models names others)",)
    assert workload.origin == "AFS"


def test_models_that_are_named_win_over_those_beside_the_trace(tmp_path: Path) -> None:
    path = written(tmp_path, AFS + "0,0,100,1,0,Other\n")
    (tmp_path / "mine.json").write_text('{"Other": {"iterations_per_s": [3, 4]}}')
    (job,), problems = jobs_of(path, models=tmp_path / "mine.json")
    assert (job.work, problems) == (300.0, ())


def test_a_philly_trace_is_rigid_and_linear_and_starts_at_its_first_submission(tmp_path: Path) -> None:
    text = PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:01:00,10.0,4,40.0,6214e9\n"
    workload, notes = read(Asked(written(tmp_path, text)))
    assert [(s.name, s.submitted, s.work, s.request, s.min, s.max) for s in workload.submissions] == [
        ("1", 0.0, 40.0, 4, 4, 4),
        ("0", 55.0, 66.0, 1, 1, 1),
    ]
    assert workload.models == {"linear": Linear()}
    assert "rigid" in notes[0]


def test_one_virtual_cluster_of_philly_can_be_chosen(tmp_path: Path) -> None:
    text = PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:01:00,10.0,4,40.0,6214e9\n"
    (job,), _ = jobs_of(written(tmp_path, text), cluster="11cb48")
    assert (job.name, job.submitted) == ("0", 0.0)
    bare = written(tmp_path, "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n", "bare")
    assert refused(bare, cluster="x") == "FILE, line 1: has no column cluster to choose a virtual cluster by"


def test_drawn_models_gain_up_to_the_request_and_larger_jobs_are_left_out(tmp_path: Path) -> None:
    lines = [f"2017-10-09 07:{i:02}:00,100,{gpus},1,vc" for i, gpus in enumerate([1, 2, 3, 4, 5] * 8)]
    path = written(tmp_path, PHILLY + "\n".join(lines))
    jobs, problems = jobs_of(path, models=tmp_path / "models.json", draw=7)
    assert {job.model for job in jobs if job.request <= 2} == {"ResNet", "VGG"}
    assert {job.model for job in jobs if job.request > 2} == {"ResNet"}
    assert all((job.min, job.max) == (1, 0) for job in jobs)
    speeds = {("ResNet", 1): 2.0, ("ResNet", 2): 4.0, ("ResNet", 3): 5.0, ("ResNet", 4): 8.0, ("VGG", 1): 0.5}
    speeds["VGG", 2] = 0.8
    assert all(job.work == pytest.approx(100 * speeds[job.model, job.request]) for job in jobs)
    assert problems[0] == Problem(6, "asks for 5 GPUs, and no model gains beyond 4", "left out")
    assert len(problems) == 8
    assert jobs_of(path, models=tmp_path / "models.json", draw=7)[0] == jobs
    assert jobs_of(path, models=tmp_path / "models.json", draw=8)[0] != jobs


def test_our_csv_takes_work_or_duration_sizes_roles_and_tags(tmp_path: Path) -> None:
    text = (
        "job,submit_s,request,work,duration_s,model,sizes,roles,known,priority,tag:speed,tag:kind\n"
        "a,0,2,,60,VGG,1|2,,false,7,1.5,x\n"
        "b,5,1,30,,,,ps=1/0 worker=2-4,,,,\n"
    )
    jobs, problems = jobs_of(
        written(tmp_path, text), models=written(tmp_path, "", "x").parent / "models.json"
    )
    assert problems == ()
    assert list(jobs) == [
        Submission(
            "a", 0.0, "VGG", 48.0, 2, sizes=(1, 2), known=False, priority=7, tags={"speed": 1.5, "kind": "x"}
        ),
        Submission("b", 5.0, "linear", 30.0, 1, roles=(RoleSpec("ps", 1, 1, 0), RoleSpec("worker", 2, 4))),
    ]


CSV = "job,submit_s,request,work,min,max\na,0,2,60,1,4\n"
ONE = {"job": "a", "submit_s": 0, "request": 2, "work": 60, "min": 1, "max": 4}
JSON = json.dumps({"muster_workload": 1, "jobs": [{**ONE, "roles": [{"name": "w", "min": 1, "max": 2}]}]})


@pytest.mark.parametrize("text", [CSV, JSON], ids=["csv", "json"])
def test_a_file_that_says_least_and_most_reads_as_one_that_says_min_and_max(
    tmp_path: Path, text: str
) -> None:
    of_before = text.replace("min", "least").replace("max", "most")
    assert jobs_of(written(tmp_path, of_before, "before")) == jobs_of(written(tmp_path, text, "today"))
    ((job,), problems) = jobs_of(tmp_path / "today")
    assert (job.min, job.max, problems) == (1, 4, ())


def test_a_word_beside_its_old_one_is_told(tmp_path: Path) -> None:
    assert "a column stands twice" in refused(written(tmp_path, CSV.replace("max", "least")))
    jobs = json.dumps({"muster_workload": 1, "jobs": [{**ONE, "most": 4}, {**ONE, "job": "b"}]})
    _, problems = jobs_of(written(tmp_path, jobs))
    assert problems == (Problem(1, "max stands twice, once as most", "left out"),)


def test_the_samples_are_read_whole() -> None:
    for name, cluster in (("jobs.csv", None), ("jobs.json", Cluster((Group(2, 4, "v100", 16384),)))):
        workload, _ = read(Asked(SAMPLES / name))
        assert (len(workload.submissions), workload.problems, workload.cluster) == (4, (), cluster)
    first, vgg = workload.submissions[:2]
    assert first.work / workload.models["resnet"].speed(Config((("worker", 4),), (4,))) == 3600.0
    assert (vgg.work, vgg.sizes) == (1800 / 0.3, (1, 2, 4))


def test_gzip_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress((AFS + "0,0,1,1,0,ResNet\n").encode()), "packed.csv")
    assert len(jobs_of(path)[0]) == 1


simple = st.builds(
    Submission,
    name=st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
    submitted=st.floats(0, 1e7).map(lambda t: round(t, 3)),
    model=st.sampled_from(["linear", "VGG"]),
    work=st.floats(0.001, 1e9),
    request=st.integers(4, 8),
    min=st.integers(1, 4),
    max=st.sampled_from([0, 8, 64]),
    sizes=st.sampled_from([(), (1, 2, 4)]),
    roles=st.sampled_from([(), (RoleSpec("ps", 1, 2, 0, 500), RoleSpec("worker", 1, 4))]),
    batch=st.sampled_from([0, 128]),
    batch_sizes=st.sampled_from([(), (64, 128)]),
    known=st.booleans(),
    gpu_memory=st.sampled_from([0, 9000]),
    priority=st.integers(-5, 5),
    tags=st.sampled_from([{}, {"loss": 0.25}, {"kind": "ps"}]),
)


@given(st.lists(simple, min_size=1, max_size=6, unique_by=lambda s: s.name), st.sampled_from(["csv", "json"]))
def test_what_we_write_reads_back_as_the_same(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[Submission], form: str
) -> None:
    folder = tmp_path_factory.mktemp("own")
    models = {"linear": Linear(), "VGG": Curve("VGG", (0.5, 0.8))}
    made = Workload(sorted(jobs, key=lambda s: s.submitted), models, (), Cluster((Group(2, 32, "a40"),)), "x")
    text = as_csv(made) if form == "csv" else as_json(made)
    (folder / "models.json").write_text('{"VGG": {"iterations_per_s": [0.5, 0.8]}}')
    path = folder / "trace"
    path.write_text(text)
    back, _ = read(Asked(path, models=folder / "models.json" if form == "csv" else None))
    assert list(back.submissions) == list(made.submissions)
    assert back.problems == ()
    if form == "json":
        assert (back.cluster, back.models["VGG"], back.origin) == (made.cluster, models["VGG"], "x")


# One with a `table` trains measured models that lie in the folder of traces.
OF_THEMSELVES = [name for name in presets.names() if "table" not in presets.parameters_of(name)]


@pytest.mark.parametrize("name", OF_THEMSELVES)
def test_a_preset_written_as_json_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, generate.preset(name, 3, "json", None), models=None)
    back, _ = read(Asked(path))
    made = presets.load(name, 3, {})
    assert list(back.submissions) == list(made.submissions)
    assert (back.cluster, back.problems, set(back.models)) == (made.cluster, (), set(made.models))
    assert Options(**options(path)) == replace(presets.options(name), seed=0, record=False)


def test_overheads_and_rounds_of_a_paper_go_with_its_workload(tmp_path: Path) -> None:
    made = Workload([Submission("a", 0.0, "linear", 5.0)], {"linear": Linear()})
    path = written(tmp_path, as_json(made, None, Options(seed=3, round=180.0, restart=5.0)), models=None)
    assert options(path) == {"round": 180.0, "restart": 5.0}
    assert list(read(Asked(path))[0].submissions) == list(made.submissions)
    assert options(written(tmp_path, AFS)) == {}
    for wrong in ('{"rounds": 3}', '{"round": -1}', '{"round": true}', '{"whole_seconds": 1}'):
        with pytest.raises(UnreadableError, match="line 1: options: "):
            options(written(tmp_path, f'{{"options": {wrong}}}'))


# ---- what is wrong with a line ----


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("1,-5,10,1,0,VGG", "submit_time must be 0 or more; found '-5'"),
        ("1,,10,1,0,VGG", "submit_time is missing"),
        ("1,soon,10,1,0,VGG", "submit_time must be a number; found 'soon'"),
        ("1,nan,10,1,0,VGG", "submit_time must be a finite number; found 'nan'"),
        ("1,5,-10,1,0,VGG", "service must be above 0; found '-10'"),
        ("1,5,inf,1,0,VGG", "service must be a finite number; found 'inf'"),
        ("1,5,0,1,0,VGG", "service must be above 0; found '0'"),
        ("1,5,,1,0,VGG", "service is missing"),
        ("1,5,10,0,0,VGG", "num_jobs must be 1 or more; found '0'"),
        ("1,5,10,1.5,0,VGG", "num_jobs must be a whole number; found '1.5'"),
        ("1,5,10,1,0,GPT", "model 'GPT' is not known; the models are: ResNet, VGG"),
        ("1,5,10", "3 fields, 6 are needed"),
        ("1,5,10,9,0,ResNet", "asks for 9 GPUs, the cluster has 8"),
    ],
)
def test_a_bad_line_is_told_with_its_reason_and_left_out(tmp_path: Path, line: str, what: str) -> None:
    path = written(tmp_path, f"{AFS}0,0,10,1,0,VGG\n{line}\n2,7,10,1,0,VGG\n")
    jobs, problems = jobs_of(path, gpus=8)
    assert [job.name for job in jobs] == ["0", "2"]
    assert problems == (Problem(3, what, "left out"),)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("yesterday,10,1,1,vc", "timestamp must be a time such as 2017-10-09 07:01:55; found 'yesterday'"),
        (",10,1,1,vc", "timestamp is missing"),
        ("2017-10-09 07:02:00,-1,1,1,vc", "duration must be above 0; found '-1'"),
        ("2017-10-09 07:02:00,,1,1,vc", "duration is missing"),
        ("2017-10-09 07:02:00,10,,1,vc", "num_gpus is missing"),
    ],
)
def test_a_bad_line_of_philly_too(tmp_path: Path, line: str, what: str) -> None:
    path = written(tmp_path, f"{PHILLY}2017-10-09 07:01:55,66.0,1,66.0,vc\n{line}\n")
    jobs, problems = jobs_of(path)
    assert len(jobs) == 1
    assert problems == (Problem(3, what, "left out"),)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("b,0,4,1000,5", "5 fields, the header has 4"),
        ("b,0,4", "3 fields, 4 are needed"),
    ],
)
def test_a_row_of_ours_that_is_longer_or_shorter_than_its_header_is_left_out(
    tmp_path: Path, line: str, what: str
) -> None:
    path = written(tmp_path, f"job,submit_s,request,duration_s\na,0,1,5\n{line}\n")
    jobs, problems = jobs_of(path)
    assert [job.name for job in jobs] == ["a"]
    assert problems == (Problem(3, what, "left out"),)


@pytest.mark.parametrize(
    ("field", "what"),
    [
        ('"priority": 1e30', "priority must be from -2^31 to 2^31 - 1; found '1e+30'"),
        ('"max": 1e25', "max must be at most 10 000 replicas; found '1e+25'"),
        ('"min": 10001', "min must be at most 10 000 replicas; found '10001'"),
        ('"sizes": [10001]', "sizes must be at most 10 000 replicas; found '10001'"),
        ('"batch": 1e25', "batch must be at most 1 000 000 000 samples; found '1e+25'"),
        (
            '"gpu_memory_mib": 1e25',
            "gpu_memory_mib must be at most 140 737 488 355 328 (128 TiB in bytes); found '1e+25'",
        ),
        ('"submit_s": 1e300', "submit_s must be at most 1e+12 s; found '1e+300'"),
        ('"duration_s": 1e308', "duration_s must be at most 1e+12 s; found '1e+308'"),
        ('"work": 1e308', "work: what it takes as requested must be at most 1e+12 s; found '1e+308'"),
        ('"request": ' + "1" * 5000, f"request must be a finite number; found '{'1' * 80}...'"),
        ('"job": "\\ud800"', "job: \\ud800 is half of a character"),
        ('"tags": {"kind": "\\udfff"}', "tags: \\udfff is half of a character"),
        (
            '"roles": [{"name": "w", "min": 1, "max": 1}, {"name": "w", "min": 1, "max": 2}]',
            "roles: name 'w' stands twice",
        ),
        (
            '"roles": [{"name": "w", "min": 1, "max": 10001}]',
            "roles: max must be a whole number from 0 to 10000; found 10 001",
        ),
        ('"min": 1, "min": 1', "key 'min' stands twice"),
    ],
    ids=lambda text: text[:20],
)
def test_what_no_engine_can_run_is_told_by_its_field_before_anything_runs(
    tmp_path: Path, field: str, what: str
) -> None:
    plain = {"job": '"b"', "submit_s": "0", "request": "1", "duration_s": "5"}
    kept = "".join(f'"{key}": {value}, ' for key, value in plain.items() if f'"{key}"' not in field)
    text = f'{{"muster_workload": 1, "jobs": [{json.dumps({**ONE, "job": "a"})},\n{{{kept}{field}}}]}}'
    path = written(tmp_path, text)
    if "twice" in what and "min" in what:
        assert refused(path) == f"FILE, line 1: {what}"
    else:
        jobs, problems = jobs_of(path)
        assert [job.name for job in jobs] == ["a"]
        assert problems == (Problem(2, what, "left out"),)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ('"jobs": []', "key 'jobs' stands twice"),
        (
            '"preset": {"name": "philly-day", "seed": 1e999}',
            "preset: seed must be a whole number, 0 or more; found inf",
        ),
        (
            '"preset": {"name": "philly-day", "parameters": [1]}',
            "preset: parameters must be an object; found [1]",
        ),
        (
            '"cluster": [{"nodes": 1e30, "gpus": 1}]',
            "cluster: nodes must be a whole number from 0 to 1048576; found 1e+30",
        ),
        ('"origin": "\\udabc"', "origin: \\udabc is half of a character"),
        (
            '"models": {"a": {"iterations_per_s": [1' + "0" * 320 + "]}}",
            "a: must list numbers above 0, the first for 1 replica",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_a_workload_of_ours_that_cannot_be_meant_is_refused_by_its_key(
    tmp_path: Path, part: str, why: str
) -> None:
    path = written(tmp_path, f'{{"muster_workload": 1, {part}, "jobs": [{json.dumps(ONE)}, {{"job": "b"}}]}}')
    assert refused(path) == f"FILE, line 1: {why}"


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ('"silent": true', "'silent' is not known; there are restart, migrate, "),
        ('"release_spread": 7', "release_spread must be float from 0 to 1; found 7"),
        ('"release_seed": 1.5', "release_seed must be int, 0 or more; found 1.5"),
        ('"restart": 1' + "0" * 5000, "restart must be float, 0 or more; found '10000"),
    ],
    ids=lambda text: text[:20],
)
def test_an_option_that_a_trace_cannot_bring_is_refused_by_its_name(
    tmp_path: Path, option: str, why: str
) -> None:
    with pytest.raises(UnreadableError) as error:
        options(written(tmp_path, f'{{"muster_workload": 1, "options": {{{option}}}}}'))
    assert f"line 1: options: {why}" in str(error.value)


def test_options_of_a_trace_have_the_bounds_of_the_command_line() -> None:
    there = {param.name: param.type for param in simulate.params}
    bounds = {
        spec.name: (found.min, found.max)
        for spec in fields(Options)
        if isinstance(found := there.get(spec.name.replace("round", "round_")), Number)
    }
    assert bounds == {name: (0, MOST.get(name)) for name in bounds}
    assert MOST.keys() <= bounds.keys()


def test_a_request_that_contradicts_min_or_max_is_left_out_with_all_three(tmp_path: Path) -> None:
    """Each engine took another of them for what the owner meant."""
    keys = ("job", "submit_s", "request", "work", "min", "max")
    rows = [("a", 0, 4, 5, 8, 8), ("b", 0, 4, 5, 1, 2), ("c", 0, 4, 5, 6, ""), ("d", 0, 4, 5, 4, 4)]
    plain = [{key: value for key, value in zip(keys, row, strict=True) if value != ""} for row in rows]
    table = "\n".join(",".join(map(str, row)) for row in (keys, *rows))
    for text in (table, json.dumps({"muster_workload": 1, "jobs": plain})):
        jobs, problems = jobs_of(written(tmp_path, text))
        assert [job.name for job in jobs] == ["d"]
        assert [problem.what for problem in problems] == [
            "request must be from min to max; found request 4, min 8, max 8",
            "request must be from min to max; found request 4, min 1, max 2",
            "request must be from min to max; found request 4, min 6, max none",
        ]


def test_a_request_beyond_what_its_model_gains_from_is_a_job(tmp_path: Path) -> None:
    text = "job,submit_s,request,work,model\na,0,4,60,VGG\n"
    ((job,), problems) = jobs_of(written(tmp_path, text), models=tmp_path / "models.json")
    assert (job.request, job.max, problems) == (4, 0, ())


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_priority_that_is_no_whole_number_is_told_and_not_cut(tmp_path: Path, form: str) -> None:
    keys = ("job", "submit_s", "request", "work", "priority")
    rows = [("a", 0, 1, 5, -7.0), ("b", 0, 1, 5, 0.9)]
    texts = {
        "csv": "\n".join(",".join(map(str, row)) for row in (keys, *rows)),
        "json": json.dumps(
            {"muster_workload": 1, "jobs": [dict(zip(keys, row, strict=True)) for row in rows]}
        ),
    }
    (job,), (problem,) = jobs_of(written(tmp_path, texts[form]))
    assert (job.name, job.priority) == ("a", -7)
    assert problem.what == "priority must be a whole number; found '0.9'"


def test_what_no_pod_can_ask_for_is_left_out(tmp_path: Path) -> None:
    text = "job,submit_s,request,duration_s,roles\na,0,1,5,\nb,0,1,5,worker=1-2/1/99999999999999999999999\n"
    jobs, problems = jobs_of(written(tmp_path, text))
    assert [job.name for job in jobs] == ["a"]
    what = f"roles: cpu must be a whole number from 0 to {1 << 47}; found 99999999999999999999999"
    assert problems == (Problem(3, what, "left out"),)


def test_a_bad_job_of_our_json_is_told_with_its_line(tmp_path: Path) -> None:
    text = """{"muster_workload": 1, "jobs": [
  {"job": "jobs", "submit_s": 0, "request": 1, "duration_s": 5},
  {"job": "b", "submit_s": -1, "request": 1, "duration_s": 5},
  {"job": "c", "submit_s": 0, "request": 1},
  {"job": "d", "submit_s": 0, "request": 1, "duration_s": 5, "colour": "red"}
]}"""
    jobs, problems = jobs_of(written(tmp_path, text))
    assert [job.name for job in jobs] == ["jobs"]
    assert problems == (
        Problem(3, "submit_s must be 0 or more; found '-1'", "left out"),
        Problem(4, "work is missing (or duration_s)", "left out"),
        Problem(5, "key 'colour' is not known", "left out"),
    )


class Searched(str):
    """Text that knows how many of its characters were looked through for line ends."""

    characters = 0

    def count(self, sub: str, start: Any = 0, end: Any = None, /) -> int:
        self.characters += (len(self) if end is None else end) - start
        return super().count(sub, start, end)


def test_the_lines_of_jobs_are_counted_once_however_many_jobs_there_are() -> None:
    jobs = [json.dumps({"job": f"j{number}"}) for number in range(1000)]
    text = Searched('{"preset": {"parameters": {"jobs": [1]}},\n"jobs": [\n' + ",\n".join(jobs) + "]}")
    lines = Lines(text, len(jobs))
    assert [lines[number] for number in range(len(jobs))] == [*range(3, 1003)]
    assert text.characters <= len(text)


def test_a_name_that_is_used_twice_is_changed_and_told(tmp_path: Path) -> None:
    jobs, problems = jobs_of(written(tmp_path, AFS + "a,0,1,1,0,VGG\na,1,1,1,0,VGG\na-2,2,1,1,0,VGG\n"))
    assert [job.name for job in jobs] == ["a", "a-3", "a-2"]
    assert problems == (Problem(0, "the job name 'a' is used twice", "called 'a-3'"),)


def test_lines_out_of_order_are_sorted_and_ties_keep_the_traces_order(tmp_path: Path) -> None:
    jobs, problems = jobs_of(written(tmp_path, AFS + "a,9,1,1,0,VGG\nb,1,1,1,0,VGG\nc,9,1,1,0,VGG\n"))
    assert ([job.name for job in jobs], problems) == (["b", "a", "c"], ())


# ---- what is no trace ----


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "FILE, line 1: the file is empty"),
        (b"\n\n", "FILE, line 1: the file is empty"),
        (AFS.encode(), "FILE, line 1: there is no job in it"),
        (
            b"submit_time,service,num_jobs\n0,1,1\n",
            "FILE, line 1: looks like AFS's format, but has no column model_name",
        ),
        (b"a,b\n1,\xff\n", "FILE, line 2: is not UTF-8 text (byte 0xff)"),
        (
            gzip.compress(b"a,b\n" * 5000, mtime=0)[:-4],
            "FILE, line 5001: the gzip data ends in the middle: the file was cut off",
        ),
        (b'{"muster_workload": 1,\n"jobs": [}\n', "FILE, line 2: is not JSON: Expecting value"),
        (b'{"jobs": []}', 'FILE, line 1: not a workload: "muster_workload": 1 is missing'),
        (b'{"muster_workload": 1, "jobs": []}', "FILE, line 1: there is no job in it"),
        (b'{"muster_workload": 1, "job": []}', "FILE, line 1: key 'job' is not known"),
        (b"job,submit_s,request,work,prio\n", "FILE, line 1: column 'prio' is not known; there are job, submit_s, "
         "request, work, duration_s, model, min, max, sizes, roles, batch, batch_sizes, known, gpu_memory_mib, "
         "priority and tag:NAME"),
        (b"job,submit_s,request\n", "FILE, line 1: column work or duration_s is missing"),
        (AFS.encode() + b"0,-1,1,1,0,VGG\n", "FILE, line 2: submit_time must be 0 or more; found '-1' (and no other "
         "line is a job that can be run)"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_with_line_and_reason(tmp_path: Path, content: bytes, why: str) -> None:
    assert refused(written(tmp_path, content)) == why


def test_an_unknown_format_says_which_are_known(tmp_path: Path) -> None:
    why = refused(written(tmp_path, "when,what\n1,2\n"))
    assert why.startswith(
        "FILE, line 1: not a trace that is known. Found 'when, what'; a header has one of: "
    )
    assert all(name in why for name in ("AFS: submit_time", "Philly: timestamp", "Pollux: name", "Gavel"))


@pytest.mark.parametrize(
    ("models", "why"),
    [
        ('{"VGG": {"time_per_iter_s": []}}', ", line 1: VGG: must list numbers above 0, the first for 1 replica"),
        (
            '{\n"VGG": {"time_per_iter_s": [1, -2]}}',
            ", line 2: VGG: must list numbers above 0, the first for 1 replica",
        ),
        ('{"VGG": {"max_gpus": 2}}', ", line 1: VGG: must have one of time_per_iter_s and iterations_per_s"),
        ('{"VGG": {"time_per_iter_s": [1], "max_gpus": 2}}', ", line 1: VGG: max_gpus must be from 1 to 1; found 2"),
        ("[]", ", line 1: must be an object of models by name"),
        ('{\n"VGG"', ", line 2: is not JSON: Expecting ':' delimiter"),
    ],
)  # fmt: skip
def test_models_that_cannot_be_used_are_refused_with_line_and_reason(
    tmp_path: Path, models: str, why: str
) -> None:
    path = written(tmp_path, AFS + "0,0,1,1,0,VGG\n")
    (tmp_path / "models.json").write_text(models)
    assert refused(path).endswith(f"models.json{why}")


def test_a_trace_whose_models_are_nowhere_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c" / "d"
    folder.mkdir(parents=True)
    path = written(folder, AFS + "0,0,1,1,0,VGG\n", models=None)
    assert refused(path) == "FILE: a trace of AFS names models that are measured elsewhere: give --models"


line = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20)


@given(st.lists(st.one_of(line, st.just("0,1,1,1,0,VGG"), st.just("x,2,5,9,0,VGG")), max_size=8))
def test_every_line_is_a_job_or_a_problem(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    text = AFS + "".join(
        f"{one}\n" for one in ["first,0,1,1,0,VGG", *(one.replace('"', "") for one in lines)]
    )
    jobs, problems = jobs_of(written(tmp_path_factory.mktemp("lines"), text), gpus=8)
    left_out = [problem for problem in problems if problem.done == "left out"]
    assert len(jobs) + len(left_out) == 1 + sum(1 for one in lines if one.replace('"', ""))


@given(st.one_of(st.binary(max_size=80), st.binary(max_size=60).map(gzip.compress), line.map(str.encode)))
@example(b"[" * 100_000)
@example(b'"' + b"x" * 200_000)
@example(b"\x1f\x8b")
@example(b'{"muster_workload": 1, "jobs": [[]]}')
@example(b'{"muster_workload": 1, "models": 3, "jobs": [{}]}')
@example(b'{"muster_workload": 1, "cluster": [{"nodes": "x"}], "jobs": [{}]}')
@example(b'{"muster_workload": 1, "cluster": [{"nodes": "x", "gpus": 2}], "jobs": [{}]}')
@example(b'{"muster_workload": 1, "preset": {"name": "nope"}, "jobs": [{}]}')
def test_any_bytes_at_all_end_in_one_kind_of_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = written(tmp_path_factory.mktemp("bytes"), raw)
    with pytest.raises(UsageError):
        read(Asked(path, gpus=8))


# ---- the real ones ----


def test_the_real_traces_are_read_to_the_last_job(traces: Path) -> None:
    count = {
        path.name: (len(workload.submissions), len(workload.problems), workload.origin)
        for path in [
            *sorted((traces / "afs").glob("trace_*")),
            *sorted((traces / "gavel" / "traces").iterdir()),
        ]
        for workload in [read(Asked(path))[0]]
    }
    afs = {name: jobs for name, (jobs, problems, origin) in count.items() if (problems, origin) == (0, "AFS")}
    assert (len(afs), sum(afs.values())) == (11, 109_469)
    gavel = {name for name, (_, problems, origin) in count.items() if (problems, origin) == (0, "Gavel")}
    assert gavel == {"max_min_fairness.trace", "minimize_makespan.trace"}
    pollux, _ = read(Asked(traces / "pollux" / "workloads" / "workload-6.csv"))
    assert (len(pollux.submissions), pollux.problems, pollux.origin) == (160, (), "Pollux")
    philly, _ = read(Asked(traces / "philly" / "philly.csv.gz"))
    assert (len(philly.submissions), philly.problems) == (82_247, ())
