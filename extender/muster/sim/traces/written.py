"""A workload as our own CSV or JSON: what muster.sim.traces.own reads."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

from muster.sim.models import measured
from muster.sim.options import Options
from muster.sim.submission import Curve, Linear, Submission
from muster.sim.traces.own import COLUMNS, FIELDS, NOT_OF_A_TRACE, OPTIONAL, TAG, VERSION
from muster.sim.workload import Workload


def as_csv(workload: Workload) -> str:
    """The submissions as CSV: only the columns that any job needs. Models and cluster don't fit in it."""
    plain = [_plain(s, csv_form=True) for s in workload.submissions]
    used = {key for job in plain for key in job}
    names = [*COLUMNS, *(c for c in OPTIONAL if c in used), *sorted(k for k in used if k.startswith(TAG))]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return out.getvalue()


def as_json(workload: Workload, preset: Mapping[str, Any] | None = None, options: Options = Options()) -> str:
    """The whole workload, one job a line. preset: where its models come from, if from one.

    ValueError where a model can't be written (it is a law of some preset's and no table).
    """
    parts = [f'"muster_workload": {VERSION}', f'"origin": {json.dumps(workload.origin)}']
    if preset is not None:
        parts.append(f'"preset": {json.dumps(preset, sort_keys=True)}')
    else:
        curves = {}
        for name, model in workload.models.items():
            if isinstance(model, Curve):
                curves[name] = measured.plain(model)
            elif not (isinstance(model, Linear) and name == "linear"):
                raise ValueError(f"model {name!r} is no table of speeds and can't be written")
        if curves:
            listed = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in curves.items())
            parts.append(f'"models": {{\n{listed}\n}}')
    costs = {key: value for key, value in _changed(options).items() if key not in NOT_OF_A_TRACE}
    if costs:
        parts.append(f'"options": {json.dumps(costs)}')
    if workload.cluster is not None:
        parts.append(f'"cluster": {json.dumps([_changed(group) for group in workload.cluster.groups])}')
    jobs = ",\n".join("  " + json.dumps(_plain(s)) for s in workload.submissions)
    parts.append(f'"jobs": [\n{jobs}\n]')
    return "{" + ",\n".join(parts) + "}\n"


def _plain(job: Submission, csv_form: bool = False) -> dict[str, Any]:
    found = _changed(job)
    found.update(name=job.name, submitted=job.submitted, request=job.request)
    if found.get("model") == "linear":
        del found["model"]
    plain = {FIELDS.get(key, key): value for key, value in found.items()}
    if "roles" in plain:
        plain["roles"] = [_changed(role) for role in job.roles]
    if csv_form:
        if "sizes" in plain:
            plain["sizes"] = "|".join(map(str, job.sizes))
        if job.batch_sizes:
            plain["batch_sizes"] = "|".join(map(str, job.batch_sizes))
        if "roles" in plain:
            plain["roles"] = " ".join(
                f"{r.name}={r.min}-{r.max}/{r.gpus}/{r.cpu}/{r.memory}" for r in job.roles
            )
        if "known" in plain:
            plain["known"] = str(job.known).lower()
        plain.update({TAG + key: value for key, value in plain.pop("tags", {}).items()})
    return plain


def _changed(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their default."""
    result = {}
    for spec in dataclasses.fields(value):
        found = getattr(value, spec.name)
        default = spec.default_factory() if callable(spec.default_factory) else spec.default
        if found != default:
            result[spec.name] = dict(found) if isinstance(found, Mapping) else found
    return result
