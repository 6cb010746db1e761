"""`make operators`: what is missing of every operator is built, and the scenarios of all run, the long ones too.

    python -m e2e.all_operators --operators lws,kueue@v0.14.8 -- -n 3 --dist loadfile

What follows `--` is pytest's. Other versions than the newest have a run of their own. Neither a build that fails
nor a scenario stops the rest: at the end stdout has one table of all, and the exit code is 1 where not all passed."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from e2e.lab import build, operators
from e2e.lab.errors import LabError
from e2e.lab.places import CHECKOUT
from e2e.lab.realnode import why_not
from e2e.lab.say import say
from e2e.lab.versions import Binary, binaries, coredns, real_binaries

FILES: Mapping[str, tuple[str, ...]] = {
    "test_operators": ("jobset", "trainer"),
    "test_operators_lws": ("lws",),
    "test_operators_pytorch": ("training-operator",),
    "test_operators_ray": ("kuberay",),
    "test_pytorch_by_name": ("training-operator",),
    "test_kueue": ("jobset", "kueue"),
    "test_volcano": ("volcano",),
    "test_specon_use": ("metrics-server",),
}
"""Scenarios, and the operators that they need (their marker `operators`)."""
RESULTS = CHECKOUT / "out" / "operators"


@dataclass(frozen=True)
class Run:
    """One call of pytest. versions: `jobset@v0.10.1` of what runs in another one than the newest that is pinned."""

    files: tuple[str, ...]
    versions: tuple[str, ...] = ()

    @property
    def result(self) -> Path:
        return RESULTS / f"{','.join(self.versions) or 'newest'}.xml"

    def operators(self, file: str) -> tuple[str, ...]:
        """As OPERATORS names them."""
        version = {one.partition("@")[0]: one for one in self.versions}
        return tuple(version.get(name, name) for name in FILES[file])

    def programs(self) -> Iterator[Binary]:
        for file in self.files:
            yield from operators.binaries(self.operators(file)).values()


@dataclass
class Tally:
    """What became of a file's scenarios; lines: what failed, and why others were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    lines: tuple[str, ...] = ()


def runs(asked: Sequence[str]) -> list[Run]:
    """The newest versions first, then the others. KeyError for what is no operator."""
    newest = [one for one in asked if "@" not in one]
    others = [one for one in asked if "@" in one]
    found = [Run(_with(newest)), Run(_with(one.partition("@")[0] for one in others), tuple(others))]
    return [one for one in found if one.files]


def _with(names: Iterable[str]) -> tuple[str, ...]:
    wanted = set(names)
    return tuple(file for file, needed in FILES.items() if wanted & set(needed))


def built(wanted: Iterable[Binary]) -> list[str]:
    """Find or build them, one after the other; what went wrong."""
    programs = list(dict.fromkeys(wanted))
    missing = [one for one in programs if not build.is_built(one)]
    say(f"{len(programs)} programs, {len(missing)} of them to be built")
    problems = []
    for number, one in enumerate(missing, start=1):
        say(f"program {number} of {len(missing)}: {one.name} {one.version}")
        try:
            build.find(one)
        except LabError as failed:
            problems.append(str(failed))
            say(problems[-1])
    return problems


def tallies(result: Path) -> dict[str, Tally]:
    """By file, from what pytest wrote; nothing where it wrote nothing."""
    found: dict[str, Tally] = {}
    if not result.exists():
        return found
    for case in ET.parse(result).getroot().iter("testcase"):
        file, name = case.attrib["classname"].rpartition(".")[2], case.attrib["name"]
        tally = found.setdefault(file, Tally())
        tally.seconds += float(case.attrib["time"])
        failures = [each for kind in ("failure", "error") for each in case.iter(kind)]
        if failures:
            tally.failed += 1
            tally.lines += (f"failed: {file}.py::{name}",)
        elif (skip := case.find("skipped")) is not None:
            tally.skipped += 1
            tally.lines += (f"skipped: {file}.py::{name}: {skip.get('message')}",)
        else:
            tally.passed += 1
    return found


def summary(done: Sequence[Run]) -> tuple[Table, list[str]]:
    """All runs as one table, and what did not pass in them, a line each."""
    table, lines = Table(), []
    for column in ("scenarios", "with", "passed", "failed", "skipped", "minutes"):
        table.add_column(column, justify="left" if column in ("scenarios", "with") else "right")
    for run in done:
        found = tallies(run.result)
        for file in run.files:
            names = ", ".join(run.operators(file))
            if file not in found:
                table.add_row(f"{file}.py", names, "did not run")
                lines.append(f"did not run: {file}.py with {names}")
                continue
            tally = found[file]
            counts = (tally.passed, tally.failed, tally.skipped)
            table.add_row(f"{file}.py", names, *map(str, counts), f"{tally.seconds / 60:.1f}")
            lines += [f"{line} (with {names})" for line in tally.lines]
    return table, lines


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--operators", "names", help="Which, as `make lab OPERATORS=` names them.  [default: all]")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(names: str | None, options: tuple[str, ...]) -> None:
    """Build what is missing of every operator, and run the scenarios of all; OPTIONS are pytest's."""
    asked = names.split(",") if names else operators.available()
    if unknown := [one for one in asked if one not in operators.available()]:
        raise click.BadParameter(
            f"expected some of {', '.join(operators.available())}, found {', '.join(unknown)}",
            param_hint="--operators",
        )
    wanted = runs(asked)
    node = {} if why_not() else real_binaries() | {"coredns": coredns()}
    problems = built([*(binaries() | node).values(), *(one for run in wanted for one in run.programs())])
    RESULTS.mkdir(parents=True, exist_ok=True)
    for number, run in enumerate(wanted, start=1):
        run.result.unlink(missing_ok=True)
        say(f"run {number} of {len(wanted)}: {', '.join(run.versions) or 'the newest versions'}")
        files = [f"e2e/{file}.py" for file in run.files]
        command = [sys.executable, "-m", "pytest", "-v", *options, f"--junitxml={run.result}", *files]
        environment = os.environ | {"E2E_LONG": "true", "E2E_OPERATORS": ",".join(run.versions)}
        subprocess.run(command, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, check=False)
    table, lines = summary(wanted)
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    click.echo("\n".join([*problems, *lines] or ["all passed"]))
    sys.exit(bool(problems or lines))


if __name__ == "__main__":
    main()
