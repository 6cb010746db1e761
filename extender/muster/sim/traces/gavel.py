"""Gavel's traces: tab separated, no header, one job a line.

    job type, command, working directory, steps argument, needs data dir, total steps, scale factor, priority, SLO,
    arrival (s)

The job type ("ResNet-18 (batch size 128)") is the model; total steps is the work; scale factor the GPUs. Files of
later versions have `mode` after scale factor (11 fields); nothing else moves. Command and folders are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from muster.sim.submission import Model, Submission
from muster.sim.traces.source import Asked, Row, amount, collect, count, known, moment, table
from muster.sim.workload import Problem

NAME = "Gavel"
COLUMNS: tuple[str, ...] = ()
MODELS = "gavel"
FIELDS = 10


def recognised(text: str) -> bool:
    """Whether one of the first lines has the fields with numbers where they belong: one may be broken."""
    for seen, (_, row) in enumerate(table(text, "\t")):
        if seen == 5:
            return False
        if len(row) >= FIELDS - 1 and row[5].strip().isdigit() and row[6].strip().isdigit():
            return True
    return False


def read(
    asked: Asked, rows: Iterator[Row], models: Mapping[str, Model]
) -> tuple[list[Submission], list[Problem]]:
    build = import_module("muster.sim.models.gavel").submission
    numbers = iter(range(1 << 62))

    def job(row: Sequence[str]) -> Submission:
        found: Submission = build(
            str(next(numbers)),
            known(row[0].strip(), list(models)),
            amount(row[5], "total steps"),
            count(row[6], "scale factor"),
            moment(row[-1], "arrival time"),
            row,
            models,
        )
        return found

    return collect(asked, rows, FIELDS, job)
