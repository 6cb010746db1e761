"""`python -m e2e.chaos`: see __init__.py. JSON on stdout, the rest on stderr; exit 0, 1 faults, 2 bad usage."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import urllib3
import yaml

from e2e.chaos.days import ON_A_CLUSTER, PROFILES, settings, turn
from e2e.chaos.drive import Outcome, drive
from e2e.chaos.end import told
from e2e.cluster import Cluster, Refused
from e2e.lab import Lab, LabError, NodeGroup, Shape
from e2e.scenario import a_namespace
from e2e.soak.arrivals import Course

FAST, SLOW = "NVIDIA-A100-SXM4-80GB", "Tesla-T4"
SHAPE = Shape(
    groups=(NodeGroup(4, gpus=8, product=FAST), NodeGroup(4, gpus=8, product=SLOW)), racks=2, replicas=2
)
ALL = "all"
RATE, LIFE = 20.0, 30.0
"""Arrivals a minute, and mean seconds of a job: about as many as run beside each other without troubles."""


def summary(outcome: Outcome) -> dict[str, object]:
    """Figures of a run, for JSON."""
    return {
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "arrivals": outcome.arrivals,
        "troubles": outcome.troubles,
        "reports": outcome.reports,
        "reports_refused": outcome.refused,
        "jobs": told(outcome.fates),
        "calm_after_s": round(outcome.calm_after, 1),
        "faults": outcome.faults,
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--seconds", default=600.0, show_default=True, help="For which jobs come and things break.")
@click.option("--rate", default=RATE, show_default=True, help="Arrivals a minute.")
@click.option("--life", default=LIFE, show_default=True, help="Mean seconds until a job ends.")
@click.option("--seed", default=1, show_default=True, help="Of jobs and troubles.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    default=("max-min",),
    show_default=True,
    type=click.Choice((ALL, *ON_A_CLUSTER)),
    metavar="PROFILE",
    help="The policy that shares the GPUs; several, one after another; all: one of each family.",
)
@click.option("--name", default="chaos", show_default=True, help="Name of the lab.")
@click.option("--keep", is_flag=True, help="Leave the lab up.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out/chaos"), show_default=True
)
def main(
    seconds: float,
    rate: float,
    life: float,
    seed: int,
    profiles: tuple[str, ...],
    name: str,
    keep: bool,
    out: Path,
) -> None:
    """Jobs come and go on a lab of two replicas while processes are killed, stopped and frozen, clocks are
    wrong, the API refuses, and pods, Gangs and nodes are deleted. Some jobs report the truth, some nothing, some
    lie, and some are rigid. At its end every job is done, runs whole, or says why it waits.

    \b
    Ten minutes:                                python -m e2e.chaos
    The same jobs and troubles again:           python -m e2e.chaos --seed 1
    Under other policies:                       python -m e2e.chaos --profile afs-l --profile fifo
    A bad day of each family, half an hour:     python -m e2e.chaos --profile all --seconds 60
    """
    wanted = PROFILES if ALL in profiles else profiles
    found = []
    for number, profile in enumerate(wanted, 1):
        click.echo(
            f"{profile} ({number} of {len(wanted)}), seed {seed}: {rate:g} arrivals a minute for {seconds:g} s "
            f"on {SHAPE.nodes} nodes of 8 GPUs",
            err=True,
        )
        folder = out / profile if len(wanted) > 1 else out
        found.append(_tried(profile, Course(seconds, rate, life, seed), name, keep, folder))
        faults = found[-1]["faults"]
        click.echo(
            f"{profile}: {len(faults)} faults; written to {folder}: chaos.json, troubles.log, logs", err=True
        )
    click.echo(json.dumps(found if len(found) > 1 else found[0], indent=2))
    sys.exit(1 if any(one["faults"] for one in found) else 0)


def _tried(profile: str, course: Course, name: str, keep: bool, out: Path) -> dict[str, Any]:
    """A run; one that comes to no end is a fault of its profile, and the next ones are tried all the same."""
    try:
        return _run(profile, course, name, keep, out)
    except (LabError, Refused, AssertionError, OSError, urllib3.exceptions.HTTPError) as error:
        return {"profile": profile, "faults": [f"it came to no end: {error}"]}


def _run(profile: str, course: Course, name: str, keep: bool, out: Path) -> dict[str, Any]:
    """A lab's life under a profile, told in a folder."""
    out.mkdir(parents=True, exist_ok=True)
    log, values = out / "troubles.log", out / "values.yaml"
    log.unlink(missing_ok=True)
    lab = Lab(name).up(shape_of(profile, values))
    try:
        lab.begin()
        cluster = Cluster(lab.kubeconfig)
        with a_namespace(cluster, "chaos") as namespace:
            outcome = drive(
                lab, cluster, namespace, course, log, partial(click.echo, err=True), turn(profile)
            )
        for process in lab.processes:
            (out / f"{process}.log").write_bytes(lab.log(process).read_bytes())
    finally:
        if not keep:
            lab.down()
    found = {"profile": profile, **summary(outcome)}
    fates = [dataclasses.asdict(one) for one in outcome.fates]
    (out / "chaos.json").write_text(json.dumps(found | {"fates": fates}, indent=2) + "\n")
    return found


def shape_of(profile: str, values: Path) -> Shape:
    """The lab under a profile. values: where the chart's values for it are written."""
    values.write_text(yaml.safe_dump(settings(profile), sort_keys=False))
    return replace(SHAPE, values=(str(values.resolve()),))


if __name__ == "__main__":
    main()
