"""`python -m e2e.demo`: see __init__.py. The table on stdout, all else on stderr; exit 0, 1 failed, 2 bad usage."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from e2e import browser
from e2e.cluster import Refused
from e2e.demo import picture, trace
from e2e.demo.drive import Pace
from e2e.demo.outcome import NOTES, Outcome, as_json, comparison
from e2e.demo.show import final_table
from e2e.demo.sides import SERIAL, SIDES, Setting, run_all
from e2e.demo.trace import HOUR, BadTraceError
from e2e.demo.workload import Workload, drawn, traced
from e2e.lab.errors import LabError
from e2e.lab.say import say
from muster.sim.philly import PHILLY


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--name", default="demo", show_default=True, help="Of the labs, with -default, -gangs or -elastic behind."
)
@click.option("--nodes", type=click.IntRange(1), default=16, show_default=True)
@click.option("--gpus", type=click.IntRange(1), default=8, show_default=True, help="GPUs a node.")
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A real hour from this trace (philly.csv.gz; columns timestamp, duration, num_gpus, cluster) "
    "instead of a drawn one.",
)
@click.option("--hour", type=click.IntRange(0), help="Hour of the trace.  [default: the busiest]")
@click.option(
    "--cluster",
    help='Virtual cluster of the trace, or "all".  [default: the one whose mean use is nearest to the lab\'s GPUs]',
)
@click.option("--seed", default=1, show_default=True, help="Of the drawn hour, and of the workers' sizes.")
@click.option("--jobs", type=click.IntRange(1), default=60, show_default=True, help="In the drawn hour.")
@click.option(
    "--worker-gpus",
    type=click.IntRange(1),
    help="Most GPUs of one pod of a gang.  [default: drawn for each job: 1, 2, 4 or 8]",
)
@click.option(
    "--cap", default=60.0, show_default=True, help="Longer jobs end after so many minutes (trace time)."
)
@click.option(
    "--patience",
    default=10.0,
    show_default=True,
    help="A gang that is partly bound gives up after so many minutes (trace time) and is submitted again; "
    "0: never.",
)
@click.option(
    "--serial",
    type=click.FloatRange(0.0, 1.0),
    default=SERIAL,
    show_default=True,
    help="Part of an elastic job's step that more GPUs do not shorten (Amdahl's law).",
)
@click.option("--speed", default=30.0, show_default=True, help="Trace seconds in one second.")
@click.option(
    "--limit",
    type=click.FloatRange(0.0, min_open=True),
    help="A run is cut off after so many hours (trace time).  [default: 3.5, with --quick 1.5]",
)
@click.option("--quick", is_flag=True, help="A third of the hour, shorter jobs: about 3 minutes.")
@click.option("--keep", is_flag=True, help="Leave the lab up.")
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take a picture of Muster's page there, 40 minutes into the elastic run; needs Chromium.",
)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out/demo"), show_default=True
)
def main(
    name: str,
    nodes: int,
    gpus: int,
    trace_file: Path | None,
    hour: int | None,
    cluster: str | None,
    seed: int,
    jobs: int,
    worker_gpus: int | None,
    cap: float,
    patience: float,
    serial: float,
    speed: float,
    limit: float | None,
    quick: bool,
    keep: bool,
    page: Path | None,
    out: Path,
) -> None:
    """A busy hour on a lab of fake GPU nodes: default scheduler, Muster's gangs, Muster's elastic jobs."""
    # `kill` cleans up as Ctrl-C does; a shell that runs this in the background ignores SIGINT for it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if quick and trace_file is not None:
        raise click.UsageError("--quick is for the drawn hour: an hour of a trace is taken whole")
    if page is not None and (lacking := browser.missing()):
        raise click.UsageError(f"--page: {lacking}")
    window, limit = HOUR, limit or (1.5 if quick else 3.5)
    if quick:
        window, cap, jobs = HOUR / 3, min(cap, 20.0), min(jobs, 40)
    if worker_gpus is not None and worker_gpus > gpus:
        raise click.UsageError(f"--worker-gpus {worker_gpus}: a node has {gpus}")
    try:
        if trace_file is not None:
            workload = traced(
                trace.read(trace_file),
                gpus=nodes * gpus,
                cap=cap * 60,
                seed=seed,
                worker=worker_gpus,
                cluster=cluster,
                hour=hour,
            )
        else:
            workload = drawn(
                PHILLY, seed, jobs, gpus=nodes * gpus, window=window, cap=cap * 60, worker=worker_gpus
            )
        _introduce(workload, nodes, gpus, speed, limit, serial)
        pace = Pace(speed, limit * HOUR)
        runs = run_all(Setting(name, nodes, gpus, patience * 60, serial, pace, keep, page, out), workload)
    except BadTraceError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(2)
    except (LabError, Refused, AssertionError) as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(getattr(problem, "exit_code", 1))
    except KeyboardInterrupt:
        click.echo(f"interrupted; the labs are {'kept' if keep else 'gone'}", err=True)
        sys.exit(130)
    options = {
        "seed": seed,
        "speed": speed,
        "patience_minutes": patience,
        "worker_gpus": worker_gpus,
        "serial": serial,
        "limit_hours": limit,
    }
    _report(runs, workload, {"nodes": nodes, "gpus_a_node": gpus}, options, out)


def _introduce(workload: Workload, nodes: int, gpus: int, speed: float, limit: float, serial: float) -> None:
    say(f"the jobs: {workload.source}")
    for sentence in workload.left_out:
        say(f"left out: {sentence}")
    load = workload.load(nodes * gpus)
    say(
        f"{len(workload.jobs)} jobs, {workload.gangs} of them gangs, {workload.pods} pods, "
        f"{workload.gpu_hours:.0f} GPU-hours within {workload.window / 60:.0f} minutes for {nodes} x {gpus} GPUs: "
        f"{load:.1f} times what the cluster has{'' if load > 1 else ' (it is not overloaded)'}; "
        f"jobs end after {workload.cap / 60:.0f} minutes at most"
    )
    resized = sum(job.gpus > 1 for job in workload.jobs)
    say(
        f"elastic in the last run: {resized} jobs of more than one GPU, from one worker to twice what they ask for; "
        f"{100 * serial:g} % of a step is not shortened by more GPUs (assumed: the trace does not tell)"
    )
    say(
        f"time: {speed:.0f} trace seconds in one; {len(SIDES)} runs at once, {limit * HOUR / speed:.0f} s at most"
    )


def _report(
    runs: list[Outcome], workload: Workload, cluster: dict[str, int], options: Any, out: Path
) -> None:
    plain = not sys.stdout.isatty()
    console = Console(width=110 if plain else None, highlight=False)
    console.print(final_table(comparison(runs), [run.scheduler for run in runs]))
    for note in NOTES:
        console.print(note, style="dim")
    for run in runs:
        stuck = [job for job in run.jobs if job.ended is None]
        if stuck:
            names = ", ".join(job.name for job in stuck[:8])
            console.print(
                f"{run.scheduler}: cut off after {run.end / HOUR:.1f} h with {len(stuck)} jobs not done: {names}"
                + (", ..." if len(stuck) > 8 else "")
            )
    path = out / "demo.png"
    gpus = cluster["nodes"] * cluster["gpus_a_node"]
    title = f"{cluster['nodes']} nodes x {cluster['gpus_a_node']} GPUs, {workload.source}"
    picture.draw(runs, gpus, title, path)
    data = out / "demo.json"
    data.write_text(json.dumps(as_json(runs, workload, cluster, options), indent=1))
    say(f"figures: {data}")
    say(f"picture: {os.fspath(path)}")


if __name__ == "__main__":
    main(prog_name="python -m e2e.demo")
