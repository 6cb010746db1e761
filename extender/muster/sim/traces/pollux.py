"""Pollux's workloads: columns name, time (s), application, num_replicas, batch_size. How much work a job is, its
model knows (epochs to its goal at that batch size): muster.sim.models.pollux."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from muster.core.bounds import BATCH
from muster.sim.submission import Model, Submission
from muster.sim.traces.source import Asked, Row, collect, columns, count, known, moment
from muster.sim.workload import Problem

NAME = "Pollux"
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
MODELS = "pollux"


def read(
    asked: Asked, rows: Iterator[Row], models: Mapping[str, Model]
) -> tuple[list[Submission], list[Problem]]:
    at = columns(asked.path, next(rows), COLUMNS)
    name, time, application, replicas, batch = at
    build = import_module("muster.sim.models.pollux").submission

    def job(row: Sequence[str]) -> Submission:
        found: Submission = build(
            row[name].strip(),
            moment(row[time], "time"),
            known(row[application].strip(), list(models)),
            count(row[replicas], "num_replicas"),
            count(row[batch], "batch_size", BATCH),
            models,
        )
        return found

    return collect(asked, rows, max(at) + 1, job)
