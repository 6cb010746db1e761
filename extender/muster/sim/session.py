"""One call of `muster simulate`: read, run each profile, write what came out."""

from __future__ import annotations

import dataclasses
import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click

from muster.core.reasons.words import plural
from muster.errors import MusterError, UsageError
from muster.points import Profile
from muster.sim import arguments, engine, figures, presets, traces
from muster.sim.options import UNKNOWN_RESTART, Interrupted, Options, Progress
from muster.sim.placed import at_request
from muster.sim.request import Outcome, Request
from muster.sim.result import Result
from muster.sim.traces.source import Asked
from muster.sim.workload import Cluster, Problem, Workload

SHOWN = 10
"""Problems of a trace that are listed on stderr; all of them are in the JSON and in DIR/problems.csv."""
RENEW = 0.1
"""Seconds between two renewals of the progress bar."""


class InterruptedRunError(MusterError):
    """Ctrl-C: what there was has been written, and says so."""


def simulate(request: Request) -> None:
    """1 check, 2 read, 3 run, 4 write. Raises UsageError, ConfigurationError, InterruptedRunError."""
    # 1. What can be refused before anything long begins.
    plans = {text: arguments.profile(text) for text in request.profiles}
    if request.report:
        from muster.sim import pictures

        pictures.required()
    # 2. The jobs and the cluster.
    workload, cluster, options, notes = _read(request)
    if options.release:
        arguments.may_release(plans, fluid=cluster.fluid, own=own_costs(workload))
    terms = tuple(_terms(workload, plans, options, cluster))
    for problem in workload.problems[:SHOWN]:
        _tell(words(problem))
    if len(workload.problems) > SHOWN:
        where = f"{request.out}/problems.csv" if request.out else "with --out DIR: DIR/problems.csv"
        _tell(f"... and {len(workload.problems) - SHOWN} more lines ({where})")
    if request.strict and workload.problems:
        raise UsageError(f"--strict: {len(workload.problems)} lines of the trace are not as they should be")
    for note in notes:
        _tell(note)
    # 3. Every profile on the same jobs.
    outcome = replace(_run(request, plans, workload, cluster, options), notes=notes, terms=terms)
    # 4. Files, then stdout.
    if request.out is not None:
        write(outcome, request.out)
    if request.json:
        click.echo(figures.as_json(outcome.results, workload.problems, (*notes, *terms)), nl=False)
    else:
        from muster.sim import terminal_table

        click.echo(terminal_table.comparison(outcome), nl=False)
    if outcome.interrupted:
        done = "printed" if request.out is None else "written"
        raise InterruptedRunError(
            f"interrupted: what there is so far was {done}, and says that it was cut short"
        )


def words(problem: Problem) -> str:
    """A problem as one line of text."""
    where = f"line {problem.line}: " if problem.line else ""
    return f"{where}{problem.what}: {problem.done}"


def write(outcome: Outcome, folder: Path) -> None:
    """jobs.csv, summary.json, problems.csv, and with --report the pages."""
    problems = [p for result in outcome.results.values() for p in result.problems]
    shared = list(dict.fromkeys([*outcome.workload.problems, *problems]))
    files = {
        "jobs.csv": figures.jobs_csv(outcome.results),
        "summary.json": figures.as_json(
            outcome.results, outcome.workload.problems, (*outcome.notes, *outcome.terms)
        ),
        "problems.csv": figures.problems_csv(shared),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        if outcome.request.report:
            from muster.sim import html_report

            html_report.write(outcome, folder)
    except OSError as error:
        raise UsageError(f"--out {folder}: can't be written: {error.strerror or error}") from error
    _tell(f"written to {folder}: {', '.join(files)}{' and report.html' if outcome.request.report else ''}")


# ---- 2. read ----


def _read(request: Request) -> tuple[Workload, Cluster, Options, tuple[str, ...]]:
    settings = {key: value for key, value in request.settings.items() if value is not None}
    own: Cluster | None = None
    if request.cluster:
        own = arguments.cluster(request.cluster, request.fluid)
    elif request.gpus is not None:
        own = arguments.even(request.gpus, request.gpus_per_node, request.fluid)
    if request.preset:
        name, given = arguments.preset(request.preset)
        workload = presets.load(name, request.seed, given)
        notes: tuple[str, ...] = (f"preset {request.preset}",)
        known: Mapping[str, Any] = _named(presets.options(name))
        if own is not None:
            workload = _fitting(workload, own.gpus)
    else:
        assert request.trace is not None
        gc.disable()  # a hundred thousand jobs are no garbage
        try:
            workload, notes = traces.read(
                Asked(
                    request.trace,
                    request.models,
                    request.draw_models,
                    request.virtual_cluster,
                    own.gpus if own else 0,
                )
            )
        finally:
            gc.enable()
        gc.freeze()
        known = traces.options(request.trace)
    cluster = own or workload.cluster
    if cluster is None:
        raise UsageError("give the cluster: --gpus N, or --cluster PRODUCT=NODESxGPUS,...")
    if request.fluid:
        cluster = replace(cluster, fluid=True)
    if cluster.fluid:
        settings.setdefault("whole_seconds", True)
        arguments.without_places(settings, ranges=request.ranges, silent=request.silent)
    elif not own_costs(workload):
        settings = {"restart": UNKNOWN_RESTART, **known, **settings}
    if settings.get("repair") and not settings.get("failures", known.get("failures")):
        raise UsageError("--repair: no node fails without --failures S; leave it out, or give both")
    changes: dict[str, Any] = {**known, **settings, "seed": request.seed, "record": request.report}
    return workload, cluster, Options(**changes, ranges=request.ranges, silent=request.silent), notes


def own_costs(workload: Workload) -> bool:
    """Whether a paper's physics says what changes cost, whatever the options."""
    return workload.physics is not None and not callable(workload.physics)


def _named(options: Options) -> dict[str, Any]:
    """What a preset's options say that the defaults don't."""
    fields = ((spec.name, spec.default) for spec in dataclasses.fields(options))
    return {name: getattr(options, name) for name, default in fields if getattr(options, name) != default}


def _terms(
    workload: Workload, plans: Mapping[str, Profile], options: Options, cluster: Cluster
) -> Iterator[str]:
    """On what the profiles are compared: sentences for the reader."""
    if own_costs(workload):
        yield "changes of running jobs cost what the workload's own paper says"
    else:
        yield f"a change of a running job costs {options.restart:g} s (--restart S)"
    yield from options.terms()
    held = [text for text, plan in plans.items() if at_request(plan, options)]
    if held and any(job.ranges for job in workload.submissions):
        words = "" if cluster.fluid else " (--ranges: they grow where GPUs are free)"
        yield f"{', '.join(held)}: jobs hold the GPUs that they ask for{words}"


def _fitting(workload: Workload, gpus: int) -> Workload:
    """A preset's jobs on another cluster: those that are too large for it are left out and reported."""
    kept, problems = [], list(workload.problems)
    for job in workload.submissions:
        try:
            traces.source.fits(job, gpus)
            kept.append(job)
        except ValueError as error:
            problems.append(Problem(0, f"job {job.name} {error}", traces.source.LEFT_OUT))
    if not kept:
        raise UsageError(f"no job of the preset fits {gpus} GPUs")
    return replace(workload, submissions=kept, problems=tuple(problems))


# ---- 3. run ----


def _run(
    request: Request,
    plans: Mapping[str, Profile],
    workload: Workload,
    cluster: Cluster,
    options: Options,
) -> Outcome:
    results: dict[str, Result] = {}
    with _interrupt() as interrupted, _bar(request) as progress:
        for text, profile in plans.items():
            if interrupted():
                break
            began = time.perf_counter()
            results[text] = engine.simulate(
                workload, cluster, profile, options, _watched(progress(text), interrupted)
            )
            if not request.quiet:
                seconds = time.perf_counter() - began
                _tell(
                    f"{text}: {plural(len(results[text].names), 'job')} in {seconds:.1f} s{_cut(results[text])}"
                )
    skipped = tuple(text for text in plans if text not in results)
    return Outcome(request, workload, cluster, options, results, skipped=skipped)


def _cut(result: Result) -> str:
    return f", cut short: {result.cut}" if result.cut else ""


@contextmanager
def _interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C ends the run in good order, the second at once."""
    pressed = False

    def press(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    try:
        before = signal.signal(signal.SIGINT, press)
    except ValueError:  # not the main thread: whoever runs us there has their own way
        yield lambda: False
        return
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _watched(progress: Progress, interrupted: Callable[[], bool]) -> Progress:
    def watched(completed: int, total: int, now: float) -> None:
        if interrupted():
            raise Interrupted
        progress(completed, total, now)

    return watched


@contextmanager
def _bar(request: Request) -> Iterator[Callable[[str], Progress]]:
    """A line for each profile on stderr, where somebody looks at it."""
    if request.quiet or not sys.stderr.isatty():
        yield lambda _: lambda _completed, _total, _now: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[day]}", style="dim"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:

        def line(text: str) -> Progress:
            task = bar.add_task(text, total=None, day="")
            last = 0.0

            def progress(completed: int, total: int, now: float) -> None:
                nonlocal last
                clock = time.monotonic()
                if completed >= total or clock - last >= RENEW:
                    last = clock
                    bar.update(task, completed=completed, total=total, day=f"day {now / 86400:.1f}")

            return progress

        yield line


def _tell(text: str) -> None:
    click.echo(text, err=True)
