"""The `muster` command. Data on stdout, all else on stderr; exit 0 done, 1 failed or not found, 2 bad usage."""

from __future__ import annotations

import logging
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import click

from muster.commands import Number
from muster.errors import ClusterError, UsageError
from muster.kubeconfig import context_namespace, context_option, kubeconfig_option
from muster.usage import Group, says_errors

SORTS = ("state", "name", "share", "gpus", "speed", "progress", "end", "age")
"""Columns that `muster top` sorts by (muster.screen.SORTS, which needs numpy to be imported)."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _Lazy(Group):
    """Commands that are imported when they are wanted: by name, the module that has them. Those of the simulator
    import numpy when one of them runs."""

    later: ClassVar[dict[str, str]] = {
        "agent": "muster.agent.command",
        "doctor": "muster.doctor.command",
        "hold": "muster.agent.command",
        "replay": "muster.sim.command",
        "simulate": "muster.sim.command",
        "workload": "muster.sim.command",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.later})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in self.commands or name not in self.later:
            return super().get_command(ctx, name)
        found: click.Command = getattr(import_module(self.later[name]), name)
        if found.callback is not None:
            found.callback = says_errors(found.callback)
        self.add_command(found, name)
        return found


@click.group(cls=_Lazy, context_settings=CONTEXT)
@click.version_option(package_name="muster-scheduler")
@click.pass_context
def main(ctx: click.Context) -> None:
    """An elastic gang scheduler for deep-learning jobs on the stock kube-scheduler.

    \b
    Submit a job with schedulerName: muster, then look at it:
      kubectl get gangs
      muster explain job-train
      muster top
    """
    if ctx.invoked_subcommand != "agent":  # whose command inherits the environment
        # Before numpy is imported: matrices here are small, threads would only wait for each other, and how many
        # there are changes a result's last digits.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@main.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False),
    required=True,
    help="muster.yaml; see config/.",
)
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Default: the pod's own account.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--scheduler-pipe",
    type=click.Path(dir_okay=False),
    help="Named pipe, made if need be, from which the kube-scheduler of this pod reads its configuration "
    "(scheduler.yaml next to muster.yaml): it starts only where a muster runs.",
)
@says_errors
def serve(config_file: str, kubeconfig: str | None, log_level: str, scheduler_pipe: str | None) -> None:
    """Plan for the cluster, answer the extender's verbs, and serve status, metrics and snapshots.

    Acts only while the kube-scheduler of its pod holds the scheduler's Lease. A configuration that changes on
    disk is read again; a bad one is reported, and the last good one stays in force.
    """
    from muster.serve import serve as run_server

    logging.basicConfig(
        level=log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    run_server(Path(config_file), kubeconfig, Path(scheduler_pipe) if scheduler_pipe else None)


@main.command()
@click.argument("job")
@click.option("-n", "--namespace", help="Default: the context's.")
@click.option(
    "--story",
    is_flag=True,
    help="How it came to its state: its last 12 changes of state, with time and cause.",
)
@kubeconfig_option
@context_option
@says_errors
def explain(
    job: str, namespace: str | None, story: bool, kubeconfig: str | None, context: str | None
) -> None:
    """Why JOB is where it is: its place in the queue, what it waits for, where its replicas are.

    JOB is the NAME that `kubectl get gangs` shows. Reads Gang objects with your own credentials; the place in
    the queue counts the jobs that you may read.
    """
    import json

    from muster import explain as explained
    from muster.cluster.api import Api
    from muster.cluster.credentials import configuration
    from muster.cluster.paths import path

    namespace = namespace or context_namespace(kubeconfig, context)
    api = Api(configuration(kubeconfig, context))
    try:
        gangs = json.loads(api.get("/apis/muster.dev/v1alpha1/gangs"))["items"]
    except ClusterError as error:
        if error.status not in (401, 403):
            raise
        gangs = json.loads(api.get(path("muster.dev/v1alpha1", "gangs", namespace)))["items"]
    shown = explained.story if story else explained.render
    click.echo(shown(gangs, namespace, job, time.time()), nl=False)


@main.command()
@click.option("-n", "--namespace", help="Default: the context's.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Jobs of all namespaces.")
@click.option(
    "--sort-by", type=click.Choice(SORTS), default="state", show_default=True, help="Most or soonest first."
)
@click.option("--once", is_flag=True, help="Print all jobs once, uncut; so it is in a pipe.")
@click.option(
    "--interval", type=Number(0.2), default=2.0, show_default=True, help="Seconds between readings."
)
@kubeconfig_option
@context_option
@says_errors
def top(**options: Any) -> None:
    """Who has which share of the GPUs, how fast and how far it is, and why.

    Reads Gang objects and nodes with your own credentials: what you may not list is left out, and said.

    \b
    SHARE     replicas now/at least/at most; an arrow: changed within the last minute
    GPUS      granted; (asked for) of jobs that wait
    POS       place in the queue, of the first 100 that wait; a job that can never fit has none
    START     when it is expected to start, as far as that is known
    LEFT      until its expected end, at this share
    WHY       why it has this share; of a job that waits: what for, what is free of that, who has the rest, and
              how sure START is, or why it is not known

    \b
    Keys: q quit, s sort by the next column, a all namespaces or one, arrows, page up and page down scroll.
    """
    from muster.top import top as show

    show(**options)


@main.command()
@click.argument("job", required=False)
@click.option("--all", "everything", is_flag=True, help="Every job that waits behind the gate.")
@click.option("-n", "--namespace", help="Default: the context's; with --all: every namespace.")
@click.option("--scheduler-name", default="muster", show_default=True)
@click.option(
    "--gate-name",
    default="muster-gate",
    show_default=True,
    help="Admission that --all takes out of force first.",
)
@click.option("--as", "user", default="", help="As kubectl's --as: act as this user.")
@click.option(
    "--as-group", "groups", multiple=True, help="As kubectl's: e.g. muster:break-glass; needs --as."
)
@click.option(
    "--timeout", type=Number(0), default=120.0, show_default=True, help="Seconds to wait for binds."
)
@kubeconfig_option
@context_option
@says_errors
def release(
    job: str | None,
    everything: bool,
    namespace: str | None,
    scheduler_name: str,
    gate_name: str,
    user: str,
    groups: tuple[str, ...],
    timeout: float,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Break glass: take the gate off JOB (or --all), without plan, order or gang guarantee.

    kube-scheduler then places the pods as any others. What does not fit stays Pending and is listed. Needs
    the rights of the break-glass group.
    """
    from muster import release as releasing
    from muster.cluster.api import Api
    from muster.cluster.credentials import configuration

    if (job is None) == (not everything):
        both = f"both, {job} and --all" if everything else "neither"
        raise UsageError(f"give the name of one JOB, or --all; found {both}")
    if groups and not user:
        raise UsageError("--as-group needs --as")
    api = Api(configuration(kubeconfig, context), impersonate=(user, groups))
    if job is not None:
        namespace = namespace or context_namespace(kubeconfig, context)
    pods = releasing.gated(api, scheduler_name, namespace, job)
    if pods:
        releasing.allowed(api, pods[0])
    elif job is not None:
        raise ClusterError(f"no pod of {namespace}/{job} waits behind Muster's gate")
    if everything and namespace is None:
        releasing.lift_gate(api, gate_name, _tell)
        pods = releasing.gated(api, scheduler_name, namespace, job)  # with those that came meanwhile
    if not pods:
        _tell("no pod waits behind Muster's gate")
        return
    done = releasing.release(api, pods, scheduler_name, timeout, _tell)
    for name in done.bound:
        click.echo(f"{name} released")
    if done.stuck:
        click.echo(
            f"{len(done.stuck)} pods are still Pending, and nothing holds them but the reason given:",
            err=True,
        )
        for name, why in done.stuck:
            click.echo(f"  {name}: {why}", err=True)
        click.echo("free capacity for them, or delete their owners; they need no further release", err=True)


@main.command()
@click.option("-n", "--namespace", required=True, help="The release's.")
@click.option("--release", required=True, help="Its name for helm.")
@click.option("--lease", help="Default: RELEASE-scheduler.")
@kubeconfig_option
@context_option
@says_errors
def uninstalled(
    namespace: str, release: str, lease: str | None, kubeconfig: str | None, context: str | None
) -> None:
    """After `helm uninstall`: delete the Lease, and let any release have the definition of Gangs, which stays.

    The chart runs it as its last hook. By hand it is for releases that went without their hooks.
    """
    from muster import uninstalled as leaving
    from muster.cluster.api import Api
    from muster.cluster.credentials import configuration

    api = Api(configuration(kubeconfig, context))
    leaving.disown_definition(api, namespace, release, _tell)
    leaving.delete_lease(api, namespace, lease or f"{release}-scheduler", _tell)


def _tell(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
