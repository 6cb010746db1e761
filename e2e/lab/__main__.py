# Over 300 lines: most of it is the help of the commands and their options.
"""`python -m e2e.lab`: labs from the command line. Data on stdout, all else on stderr; exit 0, 1 failed, 2
bad usage."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from e2e.lab import build, operators
from e2e.lab import rights as kept_rights
from e2e.lab.errors import BadRequestError, LabError, only_on_linux
from e2e.lab.lab import Lab, all_labs
from e2e.lab.say import say
from e2e.lab.shape import NodeGroup, Shape, groups_from_file
from e2e.lab.versions import (
    DEFAULT_KUBERNETES,
    actionlint,
    binaries,
    helm_3,
    kind_itself,
    real_binaries,
    supported,
)


def _says_what_went_wrong(command: Callable[..., None]) -> Callable[..., None]:
    """LabError becomes a sentence and its exit code; a traceback is for bugs."""

    @functools.wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except LabError as problem:
            click.echo(f"error: {problem}", err=True)
            sys.exit(problem.exit_code)

    return wrapped


_name = click.option("--name", default="default", show_default=True, help="Which lab.")
_default = NodeGroup(16)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Real control planes on this machine (etcd, kube-apiserver, kube-controller-manager, kube-scheduler),
    with fake GPU nodes by kwok and Muster in them as the chart ships it.

    \b
    A first lab:
        eval "$(make lab | tail -1)"      # or: eval "$(python -m e2e.lab up)"
        kubectl get nodes
        make lab-down
    Two, side by side:
        make lab NAME=small NODES=4 GPUS=8
        make lab NAME=plain CHART=0       # without Muster: the stock scheduler only
    Make trouble:
        python -m e2e.lab kill muster --name small
        python -m e2e.lab up --name small --nodes 4    # says what died and starts it again
    """
    # A terminated `up` should clean up as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@main.command()
@_name
@click.option(
    "--nodes", type=click.IntRange(0), default=_default.count, show_default=True, help="Number of nodes."
)
@click.option("--gpus", type=click.IntRange(0), default=_default.gpus, show_default=True, help="GPUs a node.")
@click.option("--product", default=_default.product, show_default=True, help="Label nvidia.com/gpu.product.")
@click.option("--gpu-memory", type=int, default=_default.memory, show_default=True, help="MiB of one GPU.")
@click.option(
    "--racks", type=click.IntRange(0), default=None, help="Number of racks.  [default: one for 4 nodes]"
)
@click.option("--zones", type=click.IntRange(0), default=1, show_default=True, help="Number of zones.")
@click.option(
    "--shape",
    "shape_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Mixed groups, a YAML list of {count, gpus, product, memory, labels, taints}; for --nodes, --gpus.",
)
@click.option(
    "--k8s",
    type=click.Choice(supported()),
    default=DEFAULT_KUBERNETES,
    show_default=True,
    help="Kubernetes minor.",
)
@click.option("--chart/--no-chart", default=True, show_default=True, help="With Muster, or without.")
@click.option(
    "--scheduler/--no-scheduler",
    default=True,
    help="A stock scheduler `default-scheduler`, too.  [default: yes]",
)
@click.option(
    "--replicas", type=int, default=1, show_default=True, help="Pairs of kube-scheduler and muster."
)
@click.option(
    "--values",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Values file for the chart.",
)
@click.option("--set", "set_values", multiple=True, metavar="KEY=VALUE", help="A value for the chart.")
@click.option("--profile", help="Short for --set profile=...")
@click.option(
    "--feature-gate", "feature_gates", multiple=True, metavar="NAME=true", help="For every component."
)
@click.option(
    "--apiserver-arg", "apiserver_args", multiple=True, metavar="--FLAG=VALUE", help="Flag of kube-apiserver."
)
@click.option(
    "--controller-arg",
    "controller_args",
    multiple=True,
    metavar="--FLAG=VALUE",
    help="Flag of kube-controller-manager.",
)
@click.option(
    "--scheduler-arg",
    "scheduler_args",
    multiple=True,
    metavar="--FLAG=VALUE",
    help="Flag of every kube-scheduler.",
)
@click.option(
    "--real",
    type=click.IntRange(0, 9),
    default=0,
    show_default=True,
    help="Nodes that really run containers: kubelet, containerd, runc. Linux and root.",
)
@click.option(
    "--real-gpus",
    type=click.IntRange(0),
    default=4,
    show_default=True,
    help="GPUs of such a node, by a device plugin of the lab's; the CPU stands in for the devices.",
)
@click.option(
    "--operators",
    "operator_names",
    default="",
    metavar="NAME,NAME",
    help=f"Real controllers beside it, from their Go modules: {', '.join(operators.OPERATORS)}.",
)
@click.option("--audit", is_flag=True, help="Keep who wrote what: logs/audit.json in the lab's folder.")
@_says_what_went_wrong
def up(
    name: str,
    nodes: int,
    gpus: int,
    product: str,
    gpu_memory: int,
    racks: int | None,
    zones: int,
    shape_file: Path | None,
    k8s: str,
    chart: bool,
    scheduler: bool,
    replicas: int,
    values: tuple[Path, ...],
    set_values: tuple[str, ...],
    profile: str | None,
    feature_gates: tuple[str, ...],
    apiserver_args: tuple[str, ...],
    controller_args: tuple[str, ...],
    scheduler_args: tuple[str, ...],
    real: int,
    real_gpus: int,
    operator_names: str,
    audit: bool,
) -> None:
    """Start a lab, or find it running; the last line of stdout is the export of its KUBECONFIG.

    Returns when a pod created next would be gated, planned and bound. The same name and shape again prints
    the same line (what has died meanwhile is named and started again); another shape is an error (exit 2)."""
    groups = groups_from_file(shape_file) if shape_file else (NodeGroup(nodes, gpus, product, gpu_memory),)
    shape = Shape(
        groups=groups,
        racks=racks,
        zones=zones,
        kubernetes=k8s,
        chart=chart,
        scheduler=scheduler or not chart,
        replicas=replicas,
        values=tuple(str(path.resolve()) for path in values),
        set_values=(*set_values, *((f"profile={profile}",) if profile else ())),
        feature_gates=feature_gates,
        apiserver_args=apiserver_args,
        controller_args=controller_args,
        scheduler_args=scheduler_args,
        real=real,
        real_gpus=real_gpus,
        operators=_names(operator_names),
        audit=audit,
    )
    lab = Lab(name).up(shape)
    say(f"use it: export KUBECONFIG={lab.kubeconfig}; end it: make lab-down NAME={name}")
    click.echo(f"export KUBECONFIG={lab.kubeconfig}")


@main.command()
@_name
@_says_what_went_wrong
def down(name: str) -> None:
    """End a lab and remove all it left; succeeds if there is none."""
    say(f"lab {name} has ended" if Lab(name).down() else f"there is no lab {name}")


@main.command("build")
@click.option("--k8s", type=click.Choice(supported()), default=DEFAULT_KUBERNETES, show_default=True)
@click.option("--real", is_flag=True, help="And what a node that really runs containers needs.")
@click.option("--operators", "operator_names", default="", metavar="NAME,NAME", help="And these operators.")
@click.option(
    "--only", default="", metavar="NAME", help="This one alone: helm, helm-3, kind, actionlint, ..."
)
@_says_what_went_wrong
def build_programs(k8s: str, real: bool, operator_names: str, only: str) -> None:
    """Find or build every program of a lab, and print where each is."""
    wanted = binaries(k8s) | (real_binaries(k8s) if real else {})
    wanted |= operators.binaries(_names(operator_names))
    if only:
        known = binaries(k8s) | {one.name: one for one in (actionlint(), kind_itself())}
        known["helm-3"] = helm_3()
        if only not in known:
            raise BadRequestError(f"--only {only}: expected one of {', '.join(known)}")
        wanted = {only: known[only]}
    for name, path in build.find_all(wanted.values()).items():
        click.echo(f"{name}\t{path}")


@main.command()
@click.argument("image")
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--pip", "packages", multiple=True, metavar="PACKAGE", help="From PyPI, as constraints.txt pins it."
)
@_name
@_says_what_went_wrong
def image(image: str, files: tuple[Path, ...], packages: tuple[str, ...], name: str) -> None:
    """Give the real nodes of a lab an image: this machine's Python with FILES or folders in /app, where it starts.

    \b
    python -m e2e.lab image muster.dev/elastic-training:1 --pip jax train.py muster_report
    Without --pip it has what the lab's .venv has. Such an image is on every real node from the start:
    muster.dev/lab-python:1"""
    Lab(name).add_image(image, files, packages)


@main.command()
@click.option("--name", default=None, help="Which lab.  [default: all]")
@_says_what_went_wrong
def status(name: str | None) -> None:
    """Which labs there are, and how their processes do. Exit 1 when one of them does not run."""
    labs = [Lab(name)] if name else all_labs()
    if not labs:
        say("there is no lab")
    well = True
    for lab in labs:
        table = Table(title=f"{lab.name}: {lab.shape.nodes} nodes, Kubernetes {lab.shape.kubernetes}")
        for column in ("process", "state", "pid", "port"):
            table.add_column(column)
        for process in lab.processes:
            state = lab.state(process)
            well &= state == "running"
            ports = lab.ports.get(process, lab.ports.get(f"{process}-service", ""))
            table.add_row(process, state, str(lab.pid(process) or ""), str(ports))
        Console().print(table)
        click.echo(f"logs: {lab.folder / 'logs'}\nexport KUBECONFIG={lab.kubeconfig}")
    if not well:
        sys.exit(1)


@main.command()
@click.argument("process")
@_name
@click.option("-n", "--lines", default=50, show_default=True)
@_says_what_went_wrong
def logs(process: str, name: str, lines: int) -> None:
    """Print the end of a process' log."""
    path = Lab(name).log(process)
    if not path.exists():
        raise LabError(f"{process} of lab {name} has no log yet")
    for line in path.read_text(errors="replace").splitlines()[-lines:]:
        click.echo(line)


@main.command()
@click.argument("process")
@_name
@click.option(
    "--env", multiple=True, metavar="KEY=VALUE", help="Added to its environment, e.g. MUSTER_FAULTS=..."
)
@_says_what_went_wrong
def start(process: str, name: str, env: tuple[str, ...]) -> None:
    """Start a process of a lab that was stopped."""
    if any("=" not in setting for setting in env):
        raise BadRequestError("--env takes KEY=VALUE")
    added = dict(setting.split("=", 1) for setting in env)
    Lab(name).start(process, added or None)


@main.command()
@click.argument("process")
@_name
@_says_what_went_wrong
def stop(process: str, name: str) -> None:
    """End a process of a lab with SIGTERM."""
    Lab(name).stop(process)


@main.command()
@click.argument("process")
@_name
@_says_what_went_wrong
def kill(process: str, name: str) -> None:
    """End a process of a lab with SIGKILL."""
    Lab(name).kill(process)


@main.command()
@click.argument("process")
@_name
@_says_what_went_wrong
def restart(process: str, name: str) -> None:
    """Stop a process of a lab and start it again."""
    Lab(name).restart(process)


@main.command()
@click.argument("process")
@_name
@_says_what_went_wrong
def pause(process: str, name: str) -> None:
    """Freeze a process of a lab (SIGSTOP)."""
    Lab(name).pause(process)


@main.command()
@click.argument("process")
@_name
@_says_what_went_wrong
def resume(process: str, name: str) -> None:
    """Let a paused process go on."""
    Lab(name).resume(process)


@main.command()
def rights() -> None:
    """Compare what Muster's account may do with what all labs of the last `make test` used (e2e/lab/rights.py)."""
    sys.exit(kept_rights.main())


def _names(text: str) -> tuple[str, ...]:
    """("jobset", "trainer") of "jobset,trainer"."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    only_on_linux("e2e.lab")
    main(prog_name="python -m e2e.lab")
