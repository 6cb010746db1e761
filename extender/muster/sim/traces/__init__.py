"""Traces: who submitted what, when. The format is recognised by what the file holds, never by its name.

own      CSV or JSON of ours, see own.py (what `muster workload` writes)
AFS      submit_time, service, num_jobs, model_name; models from models.json
Philly   timestamp, duration, num_gpus, cluster; rigid and linear, or with drawn models
Pollux   name, time, application, num_replicas, batch_size; models from measured placements and validations
Gavel    tab separated, no header; models from measured throughputs by GPU type
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from muster.sim import models as kinds
from muster.sim.submission import Linear, Model
from muster.sim.traces import afs, gavel, own, philly, pollux
from muster.sim.traces.source import Asked, Row, UnreadableError, read_text, table
from muster.sim.workload import Workload

FORMATS: tuple[Any, ...] = (own, afs, pollux, philly)
"""Those with a header line. Each has NAME, COLUMNS (which tell it), MODELS (kind of its models, "" = may have
none) and `read(asked, rows, models)`."""

__all__ = ["Asked", "UnreadableError", "read"]


def read(asked: Asked) -> tuple[Workload, tuple[str, ...]]:
    """The trace's jobs, and notes for the reader (which models were found where, what was assumed).

    Raises UnreadableError with line and reason.
    """
    text = read_text(asked.path)
    try:
        if text.lstrip()[:1] in ("{", "["):
            _without_clusters(asked)
            return own.read_json(asked, text)
        return _read_table(asked, text)
    except (csv.Error, RecursionError) as error:  # a field or a nesting without end
        raise UnreadableError(asked.path, 1, str(error)) from error


def _read_table(asked: Asked, text: str) -> tuple[Workload, tuple[str, ...]]:
    rows = table(text)
    first = next(rows, None)
    if first is None:
        raise UnreadableError(asked.path, 1, "the file is empty")
    form = _recognised(asked, text, first)
    if form is not philly:
        _without_clusters(asked)
    if form is gavel:
        rows = table(text, "\t")
    else:
        rows = chain([first], rows)
    models, notes = _models(asked, form)
    submissions, problems = form.read(asked, rows, models)
    if form is philly or form is own:
        used = {s.model for s in submissions}
        models = {**models, **({"linear": Linear()} if "linear" in used else {})}
        notes += form.notes(asked, submissions)
    return Workload(submissions, models, tuple(problems), None, form.NAME, kinds.physics(form.MODELS)), notes


def _without_clusters(asked: Asked) -> None:
    """Raises UnreadableError where one virtual cluster is asked for, of a trace that names none."""
    if asked.cluster:
        raise UnreadableError(asked.path, 0, "--vc: only Philly's traces name virtual clusters; leave it out")


def options(path: Path) -> Mapping[str, Any]:
    """The overheads and rounds that a workload brings with it, by field of Options: only our JSON does. Raises
    UnreadableError."""
    text = read_text(path)
    if text.lstrip()[:1] != "{":
        return {}
    try:
        return own.options(path, text)
    except ValueError as error:
        raise UnreadableError(path, 1, str(error)) from error


def _recognised(asked: Asked, text: str, first: Row) -> ModuleType:
    line, row = first
    names = {name.strip() for name in row}
    for form in FORMATS:
        if names.issuperset(form.COLUMNS):
            found: ModuleType = form
            return found
    if gavel.recognised(text):
        return gavel
    # A header that is nearly one of ours: say which column is missing rather than that nothing is known.
    nearest = max(FORMATS, key=lambda form: len(names.intersection(form.COLUMNS)) / len(form.COLUMNS))
    missing = [column for column in nearest.COLUMNS if column not in names]
    if 2 * len(missing) <= len(nearest.COLUMNS):
        raise UnreadableError(
            asked.path, line, f"looks like {nearest.NAME}'s format, but has no column {', '.join(missing)}"
        )
    shown = ", ".join(name.strip() for name in row)[:80]
    known = "; ".join(f"{form.NAME}: {', '.join(form.COLUMNS)}" for form in FORMATS)
    raise UnreadableError(
        asked.path, line, f"not a trace that is known. Found {shown!r}; a header has one of: {known}; "
        "or tab-separated fields as Gavel's; or JSON of ours",
    )  # fmt: skip


def _models(asked: Asked, form: ModuleType) -> tuple[Mapping[str, Model], tuple[str, ...]]:
    """The models that the user named, else those that lie beside the trace."""
    kind: str = form.MODELS
    if asked.models is not None:
        return kinds.read(kind or "measured", asked.models), ()
    if not kind:
        return {}, ()
    path = kinds.beside(kind, asked.path)
    if path is None:
        raise UnreadableError(
            asked.path, 0, f"a trace of {form.NAME} names models that are measured elsewhere: give --models"
        )
    return kinds.read(kind, path), (f"models: {path.name}, found near the trace (--models names others)",)
