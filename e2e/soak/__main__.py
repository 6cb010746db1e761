"""`python -m e2e.soak`: see __init__.py. JSON on stdout, the rest on stderr; exit 0, 1 faults, 2 bad usage."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from e2e.cluster import Cluster
from e2e.elastic import shared_by, snapshot_of
from e2e.lab import Lab, NodeGroup, Shape
from e2e.scenario import wait_until
from e2e.soak.arrivals import Course
from e2e.soak.checker import Rules
from e2e.soak.drive import Moment, Outcome, drive
from e2e.soak.picture import draw

COST = {"cost": 2.0, "overhead": 0.2, "horizon": 600.0}
"""What a change costs where none was measured, and what it may take of the time: 10 s until the next."""

SNAPSHOTS = 3
"""Snapshots that are kept of a run: at the first faults, for `muster replay`."""


def summary(outcome: Outcome) -> dict[str, object]:
    """Figures of a run, for JSON."""
    tally = outcome.tally
    waits = sorted(tally.waits)
    return {
        **dataclasses.asdict(outcome.course),
        "gpus": outcome.gpus,
        "arrivals": tally.arrivals,
        "brief": tally.brief,
        "starts": tally.starts,
        "growths": tally.growths,
        "shrinks": tally.shrinks,
        "stops": tally.stops,
        "changes_a_minute": round(outcome.changes_a_minute, 1),
        "wait_p50_s": round(waits[len(waits) // 2], 2) if waits else None,
        "wait_p95_s": round(waits[int(len(waits) * 0.95)], 2) if waits else None,
        "longest_idle_s": round(tally.longest_idle, 1),
        "use": round(outcome.use, 3),
        "faults": outcome.faults,
    }


def _namespace(cluster: Cluster) -> str:
    """A new one: what an earlier run left does not count."""
    made = cluster.request(
        "POST",
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "soak-"}},
    )
    name = str(made["metadata"]["name"])
    wait_until(
        lambda: cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
        what=f"service account default in namespace {name}",
    )
    return name


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--seconds", default=600.0, show_default=True, help="For which jobs come.")
@click.option("--rate", default=50.0, show_default=True, help="Arrivals a minute.")
@click.option("--life", default=45.0, show_default=True, help="Mean seconds until a job ends.")
@click.option("--seed", default=1, show_default=True, help="Of all that is drawn.")
@click.option("--profile", default="max-min", show_default=True, help="The policy that shares the GPUs.")
@click.option("--nodes", default=16, show_default=True, type=click.IntRange(1))
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(1), help="GPUs a node.")
@click.option("--name", default="soak", show_default=True, help="Name of the lab.")
@click.option("--keep", is_flag=True, help="Leave the lab up.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out/soak"), show_default=True
)
def main(
    seconds: float,
    rate: float,
    life: float,
    seed: int,
    profile: str,
    nodes: int,
    gpus: int,
    name: str,
    keep: bool,
    out: Path,
) -> None:
    """Elastic jobs come and go on a lab, and a referee watches the API for what must never be: a GPU used
    twice, one idle for over 10 s that a job could have, a job below its least or above its most, more changes
    than they are worth.

    \b
    Ten minutes, 50 arrivals a minute:   python -m e2e.soak
    The same again:                      python -m e2e.soak --seed 1
    """
    console = Console(stderr=True)
    course = Course(seconds, rate, life, seed)
    console.print(
        f"seed {seed}: {rate:g} arrivals a minute for {seconds:g} s on {nodes} nodes of {gpus} GPUs"
    )
    lab = Lab(name).up(Shape(groups=(NodeGroup(nodes, gpus=gpus),), racks=max(1, nodes // 4)))
    try:
        cluster = Cluster(lab.kubeconfig)
        rules = Rules(dict.fromkeys(lab.nodes, gpus), cost=COST["cost"], overhead=COST["overhead"])
        with (
            shared_by(lab, profile, resizeCost=True, pluginArgs={"resize-cost": COST}),
            Progress(console=console, transient=True) as progress,
        ):
            bar = progress.add_task("soak", total=seconds)

            kept = 0

            def show(moment: Moment, faults: int) -> None:
                nonlocal kept
                if faults > kept < SNAPSHOTS:  # what Muster saw and planned when the rule was broken
                    kept += 1
                    out.mkdir(parents=True, exist_ok=True)
                    (out / f"fault-{kept}.json").write_text(json.dumps(snapshot_of(lab, cluster)))
                progress.update(
                    bar,
                    completed=min(moment.at, seconds),
                    description=(
                        f"{moment.running} run, {moment.waiting} wait, {moment.used}/{rules.total} GPUs, "
                        f"{moment.changes} changes, {faults} faults"
                    ),
                )

            outcome = drive(cluster, _namespace(cluster), rules, course, show)
    finally:
        if not keep:
            lab.down()
    told = summary(outcome)
    out.mkdir(parents=True, exist_ok=True)
    (out / "soak.json").write_text(json.dumps(told, indent=2) + "\n")
    draw(outcome, out / "soak.png")
    click.echo(json.dumps(told, indent=2))
    console.print(f"written to {out}: soak.json, soak.png")
    sys.exit(1 if outcome.faults else 0)


if __name__ == "__main__":
    main()
