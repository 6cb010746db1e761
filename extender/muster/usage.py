"""How commands answer what they can't understand: what was meant, and an example. See click's UsageError.

Only click is imported: `muster --help` must not feel numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from muster.commands import Command
from muster.errors import (
    ClusterError,
    ConfigurationError,
    MusterError,
    NoAnswerError,
    UsageError,
    did_you_mean,
)
from muster.kubeconfig import context_namespace, kubectl, unreachable
from muster.refused import advice

EXAMPLES = {
    "main": "muster explain job-train",
    "agent": "muster agent -- python train.py",
    "doctor": "muster doctor --probe-namespace team",
    "explain": "muster explain job-train -n team",
    "hold": "muster hold",
    "release": "muster release job-train -n team",
    "replay": "muster replay dump.json --profile gang-pack",
    "serve": "muster serve --config muster.yaml",
    "simulate": "muster simulate --profile fifo --profile afs-l --preset philly-day",
    "top": "muster top -A --sort-by gpus",
    "uninstalled": "muster uninstalled -n muster-system --release muster",
    "workload": "muster workload --jobs 50 --arrivals poisson:5m --sizes 1=70,4=30 --out jobs.csv",
}
"""A call of each command that is understood, by its name."""
ELSEWHERE = {
    "delete": "kubectl delete job NAME",
    "describe": "muster explain JOB",
    "get": "kubectl get gangs",
    "list": "kubectl get gangs",
    "logs": "kubectl logs POD",
    "ls": "kubectl get gangs",
    "status": "muster top",
    "submit": "kubectl apply -f job.yaml",
}
"""What is typed by who knows kubectl or another scheduler, and what does it here."""


def example(name: str | None) -> str:
    """The line that stands under an error, "" where there is none."""
    return f"For example: {EXAMPLES[name]}" if name in EXAMPLES else ""


def says_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Errors become one clear line on stderr and the exit code of whose fault it is."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (UsageError, ConfigurationError) as error:
            click.echo(f"muster: {error}", err=True)
            context = click.get_current_context(silent=True)
            if context is not None:
                click.echo(example(context.command.name), err=True)
            sys.exit(2)
        except MusterError as error:
            click.echo(f"muster: {error}", err=True)
            if isinstance(error, ClusterError) and (told := _what_to_do(error)):
                click.echo(told, err=True)
            sys.exit(1)

    return wrapped


def _what_to_do(error: ClusterError) -> str:
    """Where the command asked a cluster, and the answer was not what it asked for."""
    context = click.get_current_context(silent=True)
    if context is None or "kubeconfig" not in context.params:
        return ""
    given = context.params
    asked = given["kubeconfig"], given.get("context")
    if isinstance(error, NoAnswerError):
        return unreachable(error.host, *asked)
    namespace = "" if given.get("everywhere") else given.get("namespace") or context_namespace(*asked)
    return advice(error.status, context.command.name, namespace, kubectl("auth", "whoami", given=asked))


class Group(Command, click.Group):
    """A group whose usage errors say what was meant, and give an example of the command."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            meant = f"; did you mean {ELSEWHERE[name]!r}?" if name in ELSEWHERE else did_you_mean(name, known)
            raise click.UsageError(
                f"No such command {name!r}{meant or '.'} Commands: {', '.join(known)}", ctx
            )
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            found = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            if not standalone_mode:
                raise
            error.show()
            if isinstance(error, click.UsageError) and error.ctx is not None:
                click.echo(example(error.ctx.command.name), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            if not standalone_mode:
                raise
            click.echo("Aborted!", err=True)
            sys.exit(1)
        return found if not standalone_mode else sys.exit(found if isinstance(found, int) else 0)
