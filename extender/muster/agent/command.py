"""`muster agent` as a command of `muster`; its options are those of muster_report.agent.arguments."""

from __future__ import annotations

import click


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def agent(arguments: tuple[str, ...]) -> None:
    """Run COMMAND, report its progress to Muster, and change its devices in place."""
    from muster_report.agent.arguments import main

    main(list(arguments), "muster agent")
