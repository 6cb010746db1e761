"""`muster agent` and `muster hold` as commands of `muster`; options of the agent: muster_report.agent.arguments."""

from __future__ import annotations

import click

from muster.commands import Command


@click.command(
    cls=Command,
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Run COMMAND, report its progress to Muster, and change its devices in place."""
    from muster_report.agent.arguments import main

    main(list(arguments), "muster agent")


@click.command(cls=Command)
def hold() -> None:
    """Say which device this container got, and wait: what pods that hold devices run."""
    from muster_report.hold import main

    main()
