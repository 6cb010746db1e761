# Over 300 lines: most of it is the help of three commands and their options.
"""`muster simulate`, `muster workload` and `muster replay`. Data on stdout, all else on stderr.

Only click is imported before a command runs: `muster --help` must not feel numpy.
"""

from __future__ import annotations

from pathlib import Path

import click

from muster.commands import Command, Number, WholeNumber
from muster.errors import UsageError

READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)

GROUPS = (
    ("What is run", ("profiles", "trace", "preset", "models", "draw_models", "virtual_cluster", "seed")),
    ("On what", ("gpus", "gpus_per_node", "cluster", "fluid")),
    (
        "What changes and failures cost",
        (
            "round_",
            "restart",
            "migrate",
            "release",
            "release_spread",
            "release_rest",
            "measure",
            "checkpoint",
            "ranges",
            "failures",
            "repair",
            "whole_seconds",
        ),
    ),
    ("What comes out", ("out", "json_", "report", "strict", "quiet")),
)


class Teaching(Command):
    """A command whose options are listed by what they are about."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            p.name: record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None
        }
        for title, names in GROUPS:
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names if name in records])
        with formatter.section("Other options"):
            formatter.write_dl(list(records.values()))


@click.command(cls=Teaching)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME[:PARAM=VALUE,...]",
    help="A named profile, with parameters of its plugins or of the core (order, round, resize), or a muster.yaml. "
    "Give several to compare them on the same jobs.",
)
@click.option(
    "--trace",
    type=READABLE,
    help="The jobs: our own CSV or JSON, AFS, Philly, Pollux or Gavel traces; known by their content; .gz is "
    "unpacked.",
)
@click.option(
    "--preset",
    metavar="NAME[:PARAM=VALUE,...]",
    help="In place of --trace: a paper's workload with its cluster and overheads; `muster workload --list`.",
)
@click.option(
    "--models",
    type=click.Path(exists=True, path_type=Path),
    help="File or folder of measured speeds. Default: what is next to the trace.",
)
@click.option(
    "--draw-models",
    type=WholeNumber(0),
    metavar="SEED",
    help="For a trace without models (Philly): draw one of --models for each job, uniformly over those that gain up "
    "to its request. Larger jobs are reported and left out.",
)
@click.option(
    "--vc", "virtual_cluster", default="", metavar="NAME", help="Philly: only jobs of this virtual cluster."
)
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True, help="Of everything random.")
@click.option("--gpus", type=WholeNumber(1), help="GPUs of the cluster, all alike.")
@click.option("--gpus-per-node", type=WholeNumber(1), help="Of --gpus, on each node. [8]")
@click.option(
    "--cluster",
    metavar="PRODUCT=NODESxGPUS,...",
    help="In place of --gpus: groups of nodes, as v100=8x1,p100=16x1; :MIB behind one is the memory of a GPU.",
)
@click.option(
    "--fluid", is_flag=True, help="Any integer share, no placement, whole seconds: as AFS's own simulator."
)
@click.option(
    "--round",
    "round_",
    type=Number(0),
    metavar="S",
    help="Plan only at whole multiples of S seconds.",
)
@click.option(
    "--restart",
    type=Number(0),
    metavar="S",
    help="Seconds without progress when a running job changes, or starts again. [what trace or preset say, else 30; "
    "with --fluid 0]",
)
@click.option(
    "--migrate",
    type=Number(0),
    metavar="S",
    help="The same where only its nodes change. [as --restart]",
)
@click.option(
    "--release",
    type=Number(0),
    metavar="S",
    help="Seconds from when a replica is told to leave, or its job is done, until its GPUs are free. [0]",
)
@click.option(
    "--release-spread",
    type=Number(0, 1),
    metavar="PART",
    help="Each replica's own release is drawn evenly between 1 - PART and 1 + PART times S; 1: as on a cluster. [0]",
)
@click.option(
    "--release-rest",
    type=Number(0),
    metavar="S",
    help="The other replicas of a job that is done leave S later than its first; 1: as where a Job's successPolicy "
    "ends them. [0]",
)
@click.option(
    "--measure",
    type=Number(0),
    metavar="S",
    help="Seconds that a job trains on a number of GPUs until its speed there is known; 15: as on a cluster, by a "
    "report each second. [0: at the next cycle]",
)
@click.option(
    "--checkpoint",
    type=Number(0),
    metavar="S",
    help="Seconds between checkpoints: a restart loses what came after the last.",
)
@click.option(
    "--silent",
    is_flag=True,
    help="Jobs report nothing: what they have done is guessed by their declared speeds, pauses included, as on a "
    "live cluster. [they tell exactly]",
)
@click.option(
    "--ranges",
    is_flag=True,
    help="Without shares jobs grow within min and max, as on a live cluster. [they have what they ask for]",
)
@click.option("--failures", type=Number(0), metavar="S", help="Mean seconds between failures of one node.")
@click.option("--repair", type=Number(0), metavar="S", help="Seconds until a failed node is back. [3600]")
@click.option(
    "--whole-seconds/--exact-seconds",
    default=None,
    help="Round arrivals and completions up to whole seconds. [with --fluid: whole]",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write jobs.csv and more here.",
)
@click.option("--json", "json_", is_flag=True, help="One object on stdout, keyed by the profile as given.")
@click.option(
    "--report", is_flag=True, help="Also DIR/report.html and pictures as PNG and SVG (needs matplotlib)."
)
@click.option("--strict", is_flag=True, help="Exit 2 where anything in the trace is not as it should be.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def simulate(
    profiles: tuple[str, ...],
    trace: Path | None,
    preset: str | None,
    models: Path | None,
    draw_models: int | None,
    virtual_cluster: str,
    seed: int,
    gpus: int | None,
    gpus_per_node: int | None,
    cluster: str | None,
    fluid: bool,
    round_: float | None,
    restart: float | None,
    migrate: float | None,
    release: float | None,
    release_spread: float | None,
    release_rest: float | None,
    measure: float | None,
    checkpoint: float | None,
    silent: bool,
    ranges: bool,
    failures: float | None,
    repair: float | None,
    whole_seconds: bool | None,
    out: Path | None,
    json_: bool,
    report: bool,
    strict: bool,
    quiet: bool,
) -> None:
    """What a policy would do to your jobs: run a trace through the core that schedules the live cluster.

    \b
    Two policies on a trace of the AFS paper, as its own simulator has them:
      muster simulate --profile afs-l --profile srtf --trace trace_2869ce.csv.gz --gpus 64 --fluid
    The same on nodes of 4 GPUs, with 30 s lost at each restart, and a report to look at:
      muster simulate --profile afs-l --profile srtf --trace trace_2869ce.csv.gz --gpus 64 --gpus-per-node 4
        --restart 30 --out out/vc --report
    A cluster of three kinds of GPU, in rounds of six minutes, figures as JSON:
      muster simulate --profile gavel-max-min-perf --trace max_min_fairness.trace
        --cluster v100=8x1,p100=16x1,k80=24x1 --round 360 --json
    Philly's jobs with models drawn from a file, and a parameter of the policy changed:
      muster simulate --profile afs-p:quantum=3600 --trace philly.csv.gz --vc ee9e8c --models models.json
        --draw-models 1 --gpus 128
    A paper's own workload: muster workload --list, then
      muster simulate --profile fifo --preset philly-day

    Times are seconds, figures of JCT hours. jobs.csv has a row for each profile and job: profile, job, submit_s,
    start_s, end_s, jct_s, restarts, gpu_seconds. Problems of a trace are listed by line, with what was done
    about it. The same input and seed give the same bytes. Ctrl-C ends the run and leaves what there is, marked
    as cut short. Exit 0 done, 1 interrupted, 2 a trace, profile or option that can't be used.
    """
    from muster.sim import arguments, session
    from muster.sim.request import Request

    wrong = {
        "give one of --trace and --preset": (trace is None) == (preset is None),
        "give a --profile, as: --profile fifo": not profiles,
        "the same --profile stands twice": len(set(profiles)) < len(profiles),
        "--report needs --out DIR": report and out is None,
        "give one of --gpus and --cluster": gpus is not None and cluster is not None,
        "--gpus-per-node needs --gpus N": gpus_per_node is not None and gpus is None,
        "--models is for a --trace": preset is not None and models is not None,
        "--vc is for a --trace": preset is not None and bool(virtual_cluster),
        "--draw-models is for a --trace": preset is not None and draw_models is not None,
        "--release-spread needs --release S": release_spread is not None and not release,
        "--release-rest needs --release S": release_rest is not None and not release,
        "give one of --silent and --measure": silent and bool(measure),
        "--draw-models needs --models FILE": draw_models is not None and models is None,
    }
    faults = [says for says, is_so in wrong.items() if is_so]
    faults += arguments.faults(tuple(dict.fromkeys(profiles)), preset or "", cluster or "")
    if faults:
        raise UsageError("\n".join(faults))
    session.simulate(
        Request(
            profiles=profiles,
            trace=trace,
            preset=preset or "",
            models=models,
            draw_models=draw_models,
            virtual_cluster=virtual_cluster,
            seed=seed,
            gpus=gpus,
            gpus_per_node=gpus_per_node or 8,
            cluster=cluster or "",
            fluid=fluid,
            settings={
                "round": round_,
                "restart": restart,
                "migrate": migrate,
                "release": release,
                "release_spread": release_spread,
                "release_rest": release_rest,
                "measure": measure,
                "checkpoint": checkpoint,
                "failures": failures,
                "repair": repair,
                "whole_seconds": whole_seconds,
            },
            out=out,
            json=json_,
            report=report,
            ranges=ranges,
            silent=silent,
            strict=strict,
            quiet=quiet,
        )
    )


@click.command(cls=Command)
@click.argument("preset", metavar="[PRESET[:PARAM=VALUE,...]]", required=False)
@click.option("--list", "listed", is_flag=True, help="The presets with their parameters.")
@click.option("--seed", type=WholeNumber(0), default=0, show_default=True)
@click.option("--jobs", type=WholeNumber(1), help="How many. [100]")
@click.option(
    "--arrivals",
    metavar="SPEC",
    help="once, every:T, poisson:T (mean gap), uniform:T (within T) or day (Philly's hours). [poisson:5m]",
)
@click.option("--sizes", metavar="GPUS=WEIGHT,...", help="[1=70,2=10,4=12,8=8]")
@click.option(
    "--lengths",
    metavar="SPEC",
    help="Time on the GPUs that a job asks for: fixed:T, uniform:LEAST:MOST, lognormal:T:SIGMA (median), "
    "exponential:T or philly. [lognormal:1h:1.2]",
)
@click.option("--cap", metavar="T", help="No job is longer.")
@click.option(
    "--models",
    type=click.Path(exists=True, path_type=Path),
    help="Measured speeds: each job gets a model, uniformly over those that gain up to its size.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json"]),
    help="[as --out ends; csv where that is enough for what the jobs are]",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="[stdout]")
def workload(
    preset: str | None,
    listed: bool,
    seed: int,
    jobs: int | None,
    arrivals: str | None,
    sizes: str | None,
    lengths: str | None,
    cap: str | None,
    models: Path | None,
    form: str | None,
    out: Path | None,
) -> None:
    """Jobs drawn with a seed, or a paper's own, as a file for `muster simulate --trace`.

    \b
    A hundred jobs, five minutes apart on average:
      muster workload --out jobs.csv
    Elastic jobs with measured models, most of them small, all there at once:
      muster workload --jobs 50 --arrivals once --sizes 1=60,2=20,4=20 --models models.json --out jobs.json
    A day like Philly's for a cluster of 64 GPUs, half as much again as it can take:
      muster workload philly-day:gpus=64,load=1.5 --seed 7 --out day.json
    What papers there are:
      muster workload --list

    T is 90, 90s, 5m, 1.5h or 2d. The same seed gives the same file. JSON carries models and cluster with it;
    CSV does not.
    """
    from muster.sim import generate

    if listed:
        click.echo(generate.listing(), nl=False)
        return
    given = {
        "jobs": jobs,
        "arrivals": arrivals,
        "sizes": sizes,
        "lengths": lengths,
        "cap": cap,
        "models": models,
    }
    given = {key: value for key, value in given.items() if value is not None}
    if preset and given:
        raise UsageError(f"--{min(given)} is for drawn jobs; a preset has parameters: NAME:param=value")
    text = generate.preset(preset, seed, form, out) if preset else generate.drawn(seed, given, form, out)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out}: can't be written: {error.strerror or error}") from error


@click.command(cls=Command)
@click.argument("dump", type=click.Path(allow_dash=True, dir_okay=False))
@click.option("--profile", metavar="NAME[:PARAM=VALUE,...]", help="[the dump's own]")
@click.option("--json", "json_", is_flag=True, help="The plan as one object, with what differs.")
@click.option("--all", "everything", is_flag=True, help="Also jobs that run and stay as they are.")
def replay(dump: str, profile: str | None, json_: bool, everything: bool) -> None:
    """A snapshot dumped by the live service, run through a profile: the plan, its reasons, and what differs.

    \b
    Take the snapshot, and see why a job waits or what another policy would do:
      kubectl -n muster-system port-forward svc/muster 8080 &
      TOKEN=$(kubectl create token READER --audience=muster.dev)
      curl -sSf -H "Authorization: Bearer $TOKEN" localhost:8080/debug/snapshot > dump.json
      muster replay dump.json
      muster replay dump.json --profile gang-pack

    READER is a service account that may list Gangs in all namespaces (kubectl create serviceaccount READER, and a
    clusterrolebinding to view).

    DUMP may be - for stdin, and may be packed with gzip. The plan is made by the same core as the live one; where
    the profile is the dump's own, no difference is to be expected.
    """
    from muster.sim import replaying

    click.echo(replaying.replay(dump, profile, json_, everything), nl=False)
