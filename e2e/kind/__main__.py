"""`python -m e2e.kind`: Muster on kind. Data on stdout, all else on stderr; exit 0, 1 failed, 2 bad usage."""

from __future__ import annotations

import sys

import click

from e2e.kind import cluster, engine, images, possible
from e2e.lab.errors import LabError, only_on_linux
from e2e.lab.say import say
from e2e.lab.versions import DEFAULT_KUBERNETES, supported

_k8s = click.option("--k8s", type=click.Choice(supported()), default=DEFAULT_KUBERNETES, show_default=True)
_image = click.option(
    "--node-image", default="", help="Of the node, instead of kindest/node or one built here."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """A kind cluster `muster` with Muster as the chart installs it, on a real kubelet, beside fake GPU nodes."""


@main.command()
@_k8s
@_image
@click.option("--nodes", type=click.IntRange(1), default=16, show_default=True, help="Fake nodes.")
@click.option("--gpus", type=click.IntRange(0), default=8, show_default=True, help="GPUs of each.")
@click.option("--values", multiple=True, help="Values file for the chart.")
@click.option("--set", "set_values", multiple=True, metavar="KEY=VALUE", help="A value for the chart.")
def up(
    k8s: str,
    node_image: str,
    nodes: int,
    gpus: int,
    values: tuple[str, ...],
    set_values: tuple[str, ...],
) -> None:
    """Cluster, image, fake nodes, chart; the last line of stdout exports KUBECONFIG."""
    more = [part for file in values for part in ("--values", file)]
    more += [part for value in set_values for part in ("--set", value)]
    cluster.up(k8s, nodes, gpus, node_image, more)
    say("end it: make kind-down")
    click.echo(f"export KUBECONFIG={cluster.kubeconfig()}")


@main.command()
@click.option(
    "--engine", "and_engine", is_flag=True, help="And Docker's engine, where it was started by hand."
)
def down(and_engine: bool) -> None:
    """Delete the cluster. Images stay."""
    if problem := engine.why_not():
        say(f"no kind cluster: {problem}")
        return
    say(
        f"kind cluster {cluster.NAME} is gone"
        if cluster.down()
        else f"there is no kind cluster {cluster.NAME}"
    )
    if and_engine and engine.stop():
        say("Docker's engine has ended")


@main.command("image")
@_k8s
@_image
def node_image(k8s: str, node_image: str) -> None:
    """The node image: pulled, or built now."""
    click.echo(images.node_image(k8s, node_image))


@main.command()
def kubeconfig() -> None:
    """Where the cluster's kubeconfig is."""
    click.echo(cluster.kubeconfig())


@main.command()
@_k8s
def check(k8s: str) -> None:
    """Whether kind can run here, with a node image: exit 0, or 1 with one line that says why not."""
    problem = possible.why_not(k8s)
    click.echo(f"kind can't run here: {problem}" if problem else "kind can run here")
    sys.exit(bool(problem))


if __name__ == "__main__":
    only_on_linux("e2e.kind")
    try:
        main(prog_name="python -m e2e.kind")
    except LabError as problem:
        click.echo(f"error: {problem}", err=True)
        sys.exit(problem.exit_code)
