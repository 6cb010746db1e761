"""`muster doctor`, and the init container that runs it before Muster starts.

Only click is imported before it runs: `muster --help` must not feel numpy.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import click

from muster.commands import Command
from muster.kubeconfig import context_namespace, context_option, kubeconfig_option


@click.command(cls=Command)
@click.option("-n", "--namespace", default="muster-system", show_default=True, help="Muster's own.")
@click.option("--release", default="muster", show_default=True, help="Name of its objects: the release's.")
@click.option(
    "--probe-namespace",
    "probe",
    help="Where a pod of ours is created as a dry run: one that has opted in. Default: the context's.",
)
@click.option(
    "--url",
    default="",
    help="Of the service port. Default: in a pod the Service, else by the API server's proxy.",
)
@click.option("--json", "as_json", is_flag=True, help="The findings as a list of objects.")
@click.option(
    "--before-start",
    "config",
    metavar="MUSTER_YAML",
    help="As Muster's own account, by its configuration file: that, version, gangs and rights only (initCheck).",
)
@kubeconfig_option
@context_option
def doctor(
    namespace: str,
    release: str,
    probe: str | None,
    url: str,
    as_json: bool,
    config: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """What is wrong with this installation of Muster, and what to do about it.

    Looks at versions, the leader, admission, the rights of Muster's account, nodes that another scheduler shares, the
    port for reports, and jobs that were put aside. It changes nothing: pods are created as dry runs. Exit 1 where
    something fails.
    """
    from muster.cluster.api import Api
    from muster.cluster.credentials import configuration
    from muster.doctor import visit
    from muster.doctor.finding import Level

    api = Api(configuration(kubeconfig, context))
    if config is not None:
        found = visit.before_start(api, visit.Place(namespace, release), Path(config))
    else:
        probe = probe or context_namespace(kubeconfig, context)
        place = visit.Place(namespace, release, probe, url, inside=kubeconfig is None and visit.inside())
        found = visit.examine(api, place, version("muster-scheduler"))
    click.echo(
        json.dumps([asdict(one) for one in found], indent=2) if as_json else visit.text(found), nl=as_json
    )
    if any(one.level is Level.FAIL for one in found):
        sys.exit(1)
