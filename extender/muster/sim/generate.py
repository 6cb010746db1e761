"""What `muster workload` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from muster.errors import UsageError
from muster.sim import arguments, models, presets, synthetic
from muster.sim.options import Options
from muster.sim.submission import Linear
from muster.sim.traces import written
from muster.sim.workload import Workload


def drawn(seed: int, given: Mapping[str, Any], form: str | None, out: Path | None) -> str:
    """Jobs drawn by the options that were given. Raises UsageError."""
    fields = dict(given)
    if "models" in fields:
        fields["models"] = models.read("measured", fields["models"])
    if "cap" in fields:
        fields["cap"] = arguments.seconds(fields["cap"])
    return _written(synthetic.draw(synthetic.Recipe(seed=seed, **fields)), None, form, out)


def preset(text: str, seed: int, form: str | None, out: Path | None) -> str:
    """A paper's workload. Raises UsageError."""
    name, given = arguments.preset(text, "PRESET")
    made = presets.load(name, seed, given)
    return _written(made, {"name": name, "seed": seed, "parameters": given}, form, out, presets.options(name))


def listing() -> str:
    """Each preset: its first line and its parameters."""
    lines = []
    for name in presets.names():
        lines.append(f"{name}: {presets.title(name)}")
        found = ", ".join(f"{key}={default}" for key, default in presets.parameters_of(name).items())
        lines.append(f"    {found or 'no parameters'}")
    return "\n".join(lines) + "\n"


def _written(
    made: Workload,
    based: Mapping[str, Any] | None,
    form: str | None,
    out: Path | None,
    options: Options = Options(),
) -> str:
    simple = all(isinstance(model, Linear) for model in made.models.values()) and made.cluster is None
    if form is None:
        suffix = out.suffix if out is not None else ""
        form = suffix[1:] if suffix in (".csv", ".json") else "csv" if simple else "json"
    if form == "csv":
        if not simple:
            click.echo("CSV carries neither models nor cluster: give them to simulate again", err=True)
        return written.as_csv(made)
    # A preset whose models are all linear needs no preset to be read: only its jobs and its cluster.
    linear = all(isinstance(model, Linear) and name == "linear" for name, model in made.models.items())
    try:
        return written.as_json(made, None if linear else based, options)
    except ValueError as error:
        raise UsageError(str(error)) from error
