"""`python -m e2e.chaos`: see __init__.py. JSON on stdout, the rest on stderr; exit 0, 1 faults, 2 bad usage."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import replace
from pathlib import Path

import click

from e2e.chaos.drive import Outcome, drive
from e2e.chaos.end import told
from e2e.cluster import Cluster
from e2e.lab import Lab, NodeGroup, Shape
from e2e.scenario import a_namespace
from e2e.soak.arrivals import Course

SHAPE = Shape(groups=(NodeGroup(8, gpus=8),), racks=2, replicas=2, set_values=("profile=max-min",))
RATE, LIFE = 20.0, 30.0
"""Arrivals a minute, and mean seconds of a job: about as many as run beside each other without troubles."""


def summary(outcome: Outcome) -> dict[str, object]:
    """Figures of a run, for JSON."""
    return {
        "seed": outcome.seed,
        "seconds": outcome.seconds,
        "arrivals": outcome.arrivals,
        "troubles": outcome.troubles,
        "jobs": told(outcome.fates),
        "calm_after_s": round(outcome.calm_after, 1),
        "faults": outcome.faults,
    }


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--seconds", default=600.0, show_default=True, help="For which jobs come and things break.")
@click.option("--rate", default=RATE, show_default=True, help="Arrivals a minute.")
@click.option("--life", default=LIFE, show_default=True, help="Mean seconds until a job ends.")
@click.option("--seed", default=1, show_default=True, help="Of jobs and troubles.")
@click.option("--profile", default="max-min", show_default=True, help="The policy that shares the GPUs.")
@click.option("--name", default="chaos", show_default=True, help="Name of the lab.")
@click.option("--keep", is_flag=True, help="Leave the lab up.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out/chaos"), show_default=True
)
def main(
    seconds: float, rate: float, life: float, seed: int, profile: str, name: str, keep: bool, out: Path
) -> None:
    """Jobs come and go on a lab of two replicas while processes are killed, stopped and frozen, clocks are
    wrong, the API refuses, and pods, Gangs and nodes are deleted. At its end every job is done, runs whole, or
    says why it waits.

    \b
    Ten minutes:                                python -m e2e.chaos
    The same jobs and troubles again:           python -m e2e.chaos --seed 1
    Under another policy:                       python -m e2e.chaos --profile fifo
    """

    def tell(line: str) -> None:
        click.echo(line, err=True)

    shape = replace(SHAPE, set_values=(f"profile={profile}",))
    tell(
        f"seed {seed}, {profile}: {rate:g} arrivals a minute for {seconds:g} s on {shape.nodes} nodes of 8 GPUs"
    )
    out.mkdir(parents=True, exist_ok=True)
    log = out / "troubles.log"
    log.unlink(missing_ok=True)
    lab = Lab(name).up(shape)
    try:
        lab.begin()
        cluster = Cluster(lab.kubeconfig)
        with a_namespace(cluster, "chaos") as namespace:
            outcome = drive(lab, cluster, namespace, Course(seconds, rate, life, seed), log, tell)
        for process in lab.processes:
            (out / f"{process}.log").write_bytes(lab.log(process).read_bytes())
    finally:
        if not keep:
            lab.down()
    found = {"profile": profile, **summary(outcome)}
    (out / "chaos.json").write_text(
        json.dumps(found | {"fates": [dataclasses.asdict(one) for one in outcome.fates]}, indent=2) + "\n"
    )
    click.echo(json.dumps(found, indent=2))
    tell(f"seed {seed}; written to {out}: chaos.json, troubles.log, a log of each process")
    sys.exit(1 if outcome.faults else 0)


if __name__ == "__main__":
    main()
