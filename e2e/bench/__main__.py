# Over 300 lines: every measure is a command with its options.
"""`python -m e2e.bench`: one measure, or all of them. Tables on stdout, progress on stderr, JSON in out/bench;
exit 0, 1 failed, 2 bad usage. A figure that misses its aim is shown, and is no failure."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from e2e.bench import agents as many_agents
from e2e.bench import calls as api_calls
from e2e.bench import crowd as crowds
from e2e.bench import elastic as elastic_jobs
from e2e.bench import gangs as many_gangs
from e2e.bench import in_place as hand_overs_in_place
from e2e.bench import papers as paper_jobs
from e2e.bench import peers as all_peers
from e2e.bench import planning as plans
from e2e.bench import policies as all_policies
from e2e.bench import resizes as elastic_resizes
from e2e.bench import sim as simulator
from e2e.bench import sizes as all_sizes
from e2e.bench import verbs as both_verbs
from e2e.bench import workload_one as sidecar_jobs
from e2e.bench.course import VARIANTS
from e2e.bench.paper_profiles import PAPERS
from e2e.bench.predicted import SEEDS
from e2e.bench.report import Progress, Result, show
from e2e.lab.errors import LabError

_nodes = click.option("--nodes", default=5000, show_default=True, type=click.IntRange(1))
_keep = click.option("--keep", is_flag=True, help="Leave the lab running for the next try.")
_draws = click.option(
    "--draws",
    default=len(SEEDS),
    show_default=True,
    type=click.IntRange(1),
    help="How often each run is simulated: releases and coins are drawn.",
)
_kwok = click.option(
    "--kwok", is_flag=True, help="Let kwok start the pods, too: its work is then in the figures."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """What Muster costs and how fast it is, side by side with what it is compared to.

    \b
    All:          make bench            (LONG=1: with the crowds, about an hour)
    One, small:   python -m e2e.bench gangs --nodes 200 --gangs 100 --rounds 1

    Ended by Ctrl-C or SIGTERM it takes its labs down; peers, policies, papers and workload-one keep what is done.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _finish(measure: Callable[..., Result], **options: Any) -> None:
    progress = Progress()
    try:
        result = measure(progress, **options)
    except LabError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
    path = result.save()
    show([result])
    progress.say(f"written to {path}")


@main.command()
@_nodes
@click.option("--gangs", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--size", default=3, show_default=True, type=click.IntRange(1), help="Pods of a gang.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--variant", "variants", multiple=True, type=click.Choice(list(VARIANTS)))
@_kwok
@_keep
@click.option("--name", default="", help="Which lab.  [default: bench-NODES]")
def gangs(**options: Any) -> None:
    """Pods bound a second: Muster, the stock kube-scheduler, native gangs."""
    options["variants"] = options["variants"] or tuple(VARIANTS)
    _finish(many_gangs.measure, **options)


@main.command()
@_nodes
@click.option("--full", default=500, show_default=True, help="Nodes of the lab that is filled.")
@click.option("--tries", default=5, show_default=True, help="Gangs of 8 on the idle cluster.")
@_keep
def sizes(**options: Any) -> None:
    """One big gang, many small jobs, "can't fit", submission to bound."""
    _finish(all_sizes.measure, **options)


@main.command()
@_nodes
@click.option("--running", default=2000, show_default=True)
@click.option("--waiting", default=10_000, show_default=True)
def planning(**options: Any) -> None:
    """In-process: one cycle; events a second; memory."""
    _finish(plans.measure, **options)


@main.command()
@_nodes
@click.option("--running", default=2000, show_default=True)
@click.option("--waiting", default=10_000, show_default=True)
@click.option("--calls", default=1000, show_default=True)
def verbs(**options: Any) -> None:
    """filter and prioritize with all node names, in the server."""
    _finish(both_verbs.measure, **options)


@main.command()
@_nodes
@click.option("--waiting", "crowds", multiple=True, type=int, default=(20_000, 80_000), show_default=True)
@click.option("--pods", default=150_000, show_default=True, help="Pods in the cluster for the first list.")
@click.option("--gangs", default=1000, show_default=True)
@_keep
def crowd(**options: Any) -> None:
    """Long: among waiting pods; the first list."""
    _finish(crowds.measure, **options)


@main.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
def sim(**options: Any) -> None:
    """The simulator against the papers' own; AFS's shares for 10,000 jobs."""
    _finish(simulator.measure, **options)


@main.command()
@click.option("--jobs", default=60, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option(
    "--load",
    type=click.FloatRange(0, min_open=True),
    help=f"GPU-seconds asked for by GPU-seconds there are, while jobs arrive.  [default: {elastic_jobs.LOAD:g}]",
)
@click.option(
    "--request",
    default=0,
    type=click.IntRange(0),
    help="Most GPUs that a job asks for.  [default: half of the lab]",
)
@click.option(
    "--order",
    default="backfill",
    show_default=True,
    type=click.Choice(["strict", "backfill"]),
    help="Of fifo.",
)
@click.option("--beside", default=2, show_default=True, type=click.IntRange(1), help="Labs at the same time.")
@click.option(
    "--also",
    multiple=True,
    type=click.Choice(elastic_jobs.ALSO),
    help="An elastic profile beside afs-l and fifo; may be given again.",
)
@click.option(
    "--simulate-only", is_flag=True, help="No lab: simulated, over several loads (or --load) and seeds."
)
@click.option(
    "--seeds",
    default=elastic_jobs.SEEDS,
    show_default=True,
    type=click.IntRange(1),
    help="With --simulate-only.",
)
@_keep
def elastic(simulate_only: bool, seeds: int, **options: Any) -> None:
    """Elastic jobs under afs-l and fifo, live and simulated; needs TRACES.

    \b
    Three rounds at once:     python -m e2e.bench elastic --beside 6
    Our own policy, too:      python -m e2e.bench elastic --also tide
    The ratio, simulated:     python -m e2e.bench elastic --simulate-only
    """
    if simulate_only:
        _finish(
            elastic_jobs.foretell,
            seeds=seeds,
            **{key: options[key] for key in ("jobs", "seed", "load", "request")},
        )
        return
    options["load"] = options["load"] or elastic_jobs.LOAD
    _finish(elastic_jobs.measure, **options)


@main.command()
@click.option("--jobs", default=30, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Runs of each family.")
@click.option("--load", default=elastic_jobs.LOAD, show_default=True, type=click.FloatRange(0, min_open=True))
@click.option(
    "--speed",
    default=all_policies.SPEED,
    show_default=True,
    type=click.FloatRange(1),
    help="Trace seconds in one of the lab's.",
)
@click.option("--beside", default=2, show_default=True, type=click.IntRange(1), help="Labs at the same time.")
@click.option(
    "--family",
    "families",
    multiple=True,
    type=click.Choice([*all_policies.ALL, "all"]),
    help="May be given again.  [default: those that these jobs are enough for]",
)
@click.option(
    "--resize-cost", is_flag=True, help="A change has to gain more than it costs: the default of a cluster."
)
@_draws
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where runs are kept, and found again.  [default: out/bench/policies]",
)
@_keep
def policies(**options: Any) -> None:
    """Each family of policies, live and simulated; plans replayed; needs TRACES. Goes on where it was cut off.

    \b
    Once, quick:  python -m e2e.bench policies --rounds 1 --speed 40 --family afs-l
    Five labs:    python -m e2e.bench policies --beside 5
    """
    asked = options["families"] or all_policies.FAMILIES
    options["families"] = all_policies.ALL if "all" in asked else asked
    _finish(all_policies.measure, **options)


@main.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Runs of each profile.")
@click.option("--beside", default=2, show_default=True, type=click.IntRange(1), help="Labs at the same time.")
@click.option(
    "--profile",
    "names",
    multiple=True,
    type=click.Choice(list(PAPERS)),
    help="May be given again.  [default: all]",
)
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where runs are kept, and found again.  [default: out/bench/papers]",
)
@_keep
def papers(**options: Any) -> None:
    """Policies on the jobs of their own papers, which report: live and simulated. Goes on where it was cut off."""
    options["names"] = options["names"] or tuple(PAPERS)
    _finish(paper_jobs.measure, **options)


@main.command()
@click.option("--nodes", default=500, show_default=True, type=click.IntRange(1))
@click.option("--jobs", default=1000, show_default=True, type=click.IntRange(2))
@click.option("--tries", default=10, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=60.0, show_default=True, help="Of reporting.")
@click.option(
    "--every", default=elastic_resizes.EVERY, show_default=True, help="Seconds between two reports."
)
@_keep
def resizes(**options: Any) -> None:
    """A GPU set free to its new use; a thousand jobs that report."""
    _finish(elastic_resizes.measure, **options)


@main.command()
@click.option("--tries", default=5, show_default=True, type=click.IntRange(1), help="Of each size.")
@_keep
def calls(**options: Any) -> None:
    """API writes of a shrink and a growth, by who sends what."""
    _finish(api_calls.measure, **options)


@main.command()
@click.option("--hand-overs", default=20, show_default=True, type=click.IntRange(1), help="Of each kind.")
@click.option(
    "--in-a-row",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Then so many of four devices at once.",
)
@click.option("--only-row", is_flag=True, help="Only those.")
@_keep
def inplace(**options: Any) -> None:
    """One GPU from a job to another on a real node: in place, with --preload, and by evict and gate."""
    _finish(hand_overs_in_place.measure, **options)


@main.command()
@click.option("--nodes", default=1000, show_default=True, type=click.IntRange(2), help="Of (a) and (b).")
@click.option("--gangs", default=1000, show_default=True, type=click.IntRange(1))
@click.option("--size", default=3, show_default=True, type=click.IntRange(1), help="Pods of a gang.")
@click.option("--tries", default=5, show_default=True, type=click.IntRange(1), help="Of (b) and (c).")
@click.option(
    "--small", default=8, show_default=True, type=click.IntRange(2), help="Nodes of the other parts."
)
@click.option("--stream", default=60.0, show_default=True, help="Seconds of small jobs behind the big one.")
@click.option("--jobs", default=60, show_default=True, type=click.IntRange(1), help="Of (d).")
@click.option("--speed", default=20.0, show_default=True, help="Trace seconds in one of (d)'s lab.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--peer", "peers", multiple=True, type=click.Choice(list(all_peers.PEERS)))
@click.option(
    "--beside", default=1, show_default=True, type=click.IntRange(1), help="So many peers at a time in (d)."
)
@click.option("--part", "parts", multiple=True, type=click.Choice(all_peers.PARTS))
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where figures are kept, and found again.  [default: out/bench/peers.jsonl]",
)
def peers(**options: Any) -> None:
    """Kueue, Volcano, native gangs, the stock scheduler and Muster on the same lab. Goes on where it was cut off:
    15 minutes a peer and round, and 11 or more for (d), the jobs of `elastic`, which needs TRACES.

    \b
    Short:        python -m e2e.bench peers --nodes 100 --gangs 100 --tries 1 --rounds 1
    (d), quicker: python -m e2e.bench peers --part d --beside 5
    """
    options["peers"] = options["peers"] or tuple(all_peers.PEERS)
    options["parts"] = options["parts"] or all_peers.PARTS
    partial = [name for name in options["peers"] if all_peers.PEERS[name].partial]
    if len(partial) == len(options["peers"]) and "d" not in options["parts"]:
        raise click.UsageError(
            f"--peer {partial[0]!r} is compared in part d only; found --part {' '.join(options['parts'])}"
        )
    _finish(all_peers.measure, **options)


@main.command()
@click.option("--nodes", default=500, show_default=True, type=click.IntRange(1), help="Two agents on each.")
@click.option("--hand-overs", default=50, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=60.0, show_default=True, help="For which agents only ask.")
@_keep
def agents(**options: Any) -> None:
    """A thousand agents in place on fake nodes: order to arrival, Muster's CPU, what a hand-over writes."""
    _finish(many_agents.measure, **options)


@main.command("workload-one")
@click.option(
    "--profile",
    "names",
    multiple=True,
    type=click.Choice(sidecar_jobs.PROFILES),
    help="May be given again.  [default: all four]",
)
@click.option("--jobs", default=0, type=click.IntRange(0), help="Only the first so many.  [default: all 40]")
@click.option(
    "--speed",
    default=sidecar_jobs.SPEED,
    show_default=True,
    type=click.FloatRange(1),
    help="Trace seconds in one of the lab's.",
)
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1), help="Runs of each profile.")
@_draws
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where runs are kept, and found again.  [default: out/bench/workload-one]",
)
@_keep
def workload_one(**options: Any) -> None:
    """The SideCar paper's Workload One, live and simulated: default, termination, reshape by restarts and in place.
    Goes on where it was cut off.

    \b
    Short:        python -m e2e.bench workload-one --profile reshape --jobs 5
    """
    options["names"] = options["names"] or sidecar_jobs.PROFILES
    _finish(sidecar_jobs.measure, **options)


@main.command("all")
@click.option("--long", is_flag=True, help="With `crowd`.")
def everything(long: bool) -> None:
    """Every measure, and one table at the end."""
    progress, results = Progress(), []
    measures: list[Callable[[Progress], Result]] = [
        plans.measure, both_verbs.measure, simulator.measure, all_sizes.measure, many_gangs.measure,
        elastic_resizes.measure, api_calls.measure,
        functools.partial(elastic_jobs.measure, beside=6),
    ]  # fmt: skip
    for measure in (*measures, *((crowds.measure,) if long else ())):
        try:
            results.append(measure(progress))
            results[-1].save()
        except LabError as problem:
            show(results)
            click.echo(f"error: {problem}", err=True)
            sys.exit(problem.exit_code)
    show(results)


if __name__ == "__main__":
    main(prog_name="python -m e2e.bench")
