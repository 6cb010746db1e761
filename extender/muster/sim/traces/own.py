# Over 300 lines: the CSV and the JSON of our format share every check of a field.
"""Our own format: CSV for what fits in a row, JSON for the rest. README.md beside this folder describes it.

CSV columns: job, submit_s, request; then `work` (iterations of the model) or `duration_s` (on `request` replicas);
and, all optional: model, min, max, sizes (1|2|4), roles, batch, batch_sizes (64|128), known, gpu_memory_mib,
priority, tag:NAME.
A role is NAME=MIN-MAX/GPUS/CPU/MEMORY (from the second slash on optional), several are parted by spaces.
Without a model a job is linear: n replicas are n times as fast as one, work counts in seconds on one replica.

JSON: {"muster_workload": 1, "models": {...}, "cluster": [...], "preset": {...}, "jobs": [{...}]}: a job has the same
keys, with lists for sizes and objects for roles and tags. `preset` names one whose models the jobs train.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from muster.core.bounds import AMOUNT, BATCH, GPUS, JOB_REPLICAS, REPLICAS, ROLES, Bound, shown
from muster.sim import models as kinds
from muster.sim import presets
from muster.sim.models import measured
from muster.sim.options import MOST, Options
from muster.sim.submission import Linear, Model, RoleSpec, Submission
from muster.sim.traces import source
from muster.sim.traces.drawn import Drawn
from muster.sim.traces.json_text import ESCAPED, Lines, broken, parsed
from muster.sim.traces.source import LEFT_OUT, Asked, Row, UnreadableError
from muster.sim.workload import Cluster, Group, Problem, Workload
from muster.types import Config

NAME = "muster"
COLUMNS = ("job", "submit_s", "request")
MODELS = ""
VERSION = 1
OPTIONAL = (
    *("work", "duration_s", "model", "min", "max", "sizes"),
    *("roles", "batch", "batch_sizes", "known", "gpu_memory_mib", "priority"),
)
FORMER = {"least": "min", "most": "max"}
"""Words of files that were written before 0.1, read as today's."""
TAG = "tag:"
Part = TypeVar("Part", RoleSpec, Group)
SHAPES: Mapping[str, type] = {"roles": list, "sizes": list, "batch_sizes": list, "tags": dict}
"""Keys of a JSON job that are no plain value."""
NOT_OF_A_TRACE = ("seed", "record", "ranges", "silent")
"""Options that are of a run."""
BOUNDS: Mapping[str, Bound] = {"min": REPLICAS, "max": REPLICAS, "gpus": GPUS, "nodes": GPUS, "racks": GPUS}
"""Of numbers of roles and groups of nodes; the others are amounts. A cluster has no more nodes than a node GPUs."""
FIELDS = {"name": "job", "submitted": "submit_s", "gpu_memory": "gpu_memory_mib"}
"""Where a column is not called as its field of Submission."""


def read(
    asked: Asked, rows: Iterator[Row], models: Mapping[str, Model]
) -> tuple[list[Submission], list[Problem]]:
    line, header = next(rows)
    names = [FORMER.get(name.strip(), name.strip()) for name in header]
    for name in names:
        if name not in COLUMNS + OPTIONAL and not name.startswith(TAG):
            raise UnreadableError(
                asked.path,
                line,
                f"column {name!r} is not known; there are {', '.join(COLUMNS + OPTIONAL)} and tag:NAME",
            )
    if len(set(names)) < len(names):
        raise UnreadableError(asked.path, line, "a column stands twice")
    if not {"work", "duration_s"} & set(names):
        raise UnreadableError(asked.path, line, "column work or duration_s is missing")
    builder = _Builder(asked, models)

    def job(row: Sequence[str]) -> Submission:
        if len(row) > len(names):  # a decimal comma, for one: 1000,5
            raise ValueError(f"{len(row)} fields, the header has {len(names)}")
        given = dict(zip(names, row, strict=True))
        plain: dict[str, Any] = {
            k: v.strip() for k, v in given.items() if v.strip() and not k.startswith(TAG)
        }
        tags = {k[len(TAG) :]: _value(v) for k, v in given.items() if k.startswith(TAG) and v.strip()}
        for name in ("sizes", "batch_sizes"):
            if name in plain:
                plain[name] = plain[name].split("|")
        if "roles" in plain:
            plain["roles"] = [_role(text) for text in plain["roles"].split()]
        return builder(plain, tags)

    return source.collect(asked, rows, len(names), job)


def read_json(asked: Asked, text: str) -> tuple[Workload, tuple[str, ...]]:
    """A JSON workload with its models and cluster. Raises UnreadableError with line and reason."""
    plain = parsed(asked.path, text)
    if not isinstance(plain, dict) or plain.get("muster_workload") != VERSION:
        raise UnreadableError(asked.path, 1, f'not a workload: "muster_workload": {VERSION} is missing')
    stray = set(plain) - {"muster_workload", "models", "cluster", "preset", "origin", "options", "jobs"}
    jobs = plain.get("jobs")
    if stray or not isinstance(jobs, list):
        reason = f"key {min(stray)!r} is not known" if stray else '"jobs" must be a list'
        raise UnreadableError(asked.path, 1, reason)
    escaped = ESCAPED.search(text) is not None
    if escaped and (what := broken({key: value for key, value in plain.items() if key != "jobs"})):
        raise UnreadableError(asked.path, 1, what)
    try:
        based = _preset(plain.get("preset"))
        models = dict(based.models) if based else {}
        if plain.get("models"):
            models.update(measured.curves(plain["models"]))
        cluster = _cluster(plain["cluster"]) if plain.get("cluster") else based.cluster if based else None
    except (ValueError, TypeError) as error:
        raise UnreadableError(asked.path, 1, str(error)) from error
    if asked.models is not None:
        models.update(kinds.read("measured", asked.models))
    builder = _Builder(asked, models)
    lines = Lines(text, len(jobs))
    submissions: list[Submission] = []
    problems: list[Problem] = []
    for number, job in enumerate(jobs):
        try:
            if not isinstance(job, dict):
                raise ValueError("must be an object")
            if escaped and (what := broken(job)):
                raise ValueError(what)
            known = _named({k: v for k, v in job.items() if k != "tags"})
            for key in known:
                if key not in COLUMNS + OPTIONAL:
                    raise ValueError(f"key {key!r} is not known")
            for key, kind in SHAPES.items():
                if not isinstance(job.get(key, kind()), kind):
                    raise ValueError(f"{key} must be {'an object' if kind is dict else 'a list'}")
            if known.get("roles"):
                known["roles"] = [_given_role(role) for role in known["roles"]]
            found = builder(known, dict(job.get("tags") or {}))
            source.fits(found, asked.gpus or (cluster.gpus if cluster else 1 << 62))
            submissions.append(found)
        except (ValueError, TypeError) as error:
            problems.append(Problem(lines[number], str(error), LEFT_OUT))
    submissions, problems = source.tidy(asked.path, submissions, problems)
    if any(s.model == "linear" for s in submissions):
        models.setdefault("linear", Linear())
    read = Workload(submissions, models, tuple(problems), cluster, str(plain.get("origin") or NAME))
    if based is not None:  # with all else that the preset's jobs need to be understood
        parts = {
            key: getattr(read, key) for key in ("submissions", "models", "problems", "cluster", "origin")
        }
        read = dataclasses.replace(based, **parts)
    return read, notes(asked, submissions)


def notes(asked: Asked, submissions: Sequence[Submission]) -> tuple[str, ...]:
    found = []
    if any(s.model == "linear" for s in submissions):
        found.append("jobs without a model are linear: n replicas are n times as fast as one")
    if asked.draw is not None:
        found.append(f"models drawn with seed {asked.draw} for jobs that name none")
    return tuple(found)


class _Builder:
    """A Submission from plain values (text or numbers) by column name."""

    def __init__(self, asked: Asked, models: Mapping[str, Model]) -> None:
        self.models = {"linear": Linear(), **models}
        self.draw = Drawn(models, asked.draw) if asked.draw is not None and models else None
        self.speeds: dict[tuple[object, ...], float] = {}

    def __call__(self, plain: dict[str, Any], tags: Mapping[str, float | str]) -> Submission:
        for column in COLUMNS:
            if plain.get(column) in (None, ""):
                raise ValueError(f"{column} is missing")
        name = str(plain["job"])
        request = source.count(str(plain["request"]), "request")
        model = source.known(str(plain.get("model") or "linear"), list(self.models))
        found = Submission(
            name=name,
            submitted=source.moment(str(plain["submit_s"]), "submit_s"),
            model=model,
            work=0.0,
            request=request,
            min=source.count(str(plain.get("min", 1)), "min"),
            max=_whole(plain, "max"),
            sizes=_counts(plain, "sizes"),
            roles=tuple(plain.get("roles", ())),
            batch=_whole(plain, "batch", BATCH),
            batch_sizes=_counts(plain, "batch_sizes", BATCH),
            known=_truth(plain.get("known", True)),
            gpu_memory=_whole(plain, "gpu_memory_mib", AMOUNT),
            priority=_priority(plain.get("priority", 0)),
            tags=tags,
        )
        if not found.min <= request <= (found.max or request):
            most = found.max or "none"
            raise ValueError(
                f"request must be from min to max; found request {request}, min {found.min}, max {most}"
            )
        names = [role.name for role in found.roles]
        if len(names) > ROLES.most:
            raise ValueError(ROLES.beyond("roles", len(names)))
        if (replicas := sum(role.max for role in found.roles)) > JOB_REPLICAS.most:
            raise ValueError(JOB_REPLICAS.beyond("roles", replicas))
        for role in set(names):
            if names.count(role) > 1:
                raise ValueError(f"roles: name {role!r} stands twice")
        work, length = plain.get("work"), plain.get("duration_s")
        if work not in (None, ""):
            done = source.amount(str(work), "work")
            speed = self._speed(found)
            source.within(done / speed if speed else done, str(work), "work: what it takes as requested")
            return dataclasses.replace(found, work=done)
        if length in (None, ""):
            raise ValueError("work is missing (or duration_s)")
        seconds = source.duration(str(length), "duration_s")
        if self.draw is not None and model == "linear":
            return dataclasses.replace(self.draw(found, seconds), min=found.min, max=found.max)
        speed = self._speed(found)
        if speed <= 0:
            raise ValueError(
                f"model {model!r} can't run on {request} replicas: give work in place of duration_s"
            )
        return dataclasses.replace(found, work=seconds * speed)

    def _speed(self, job: Submission) -> float:
        """Iterations/s of a job as it was requested."""
        roles = tuple(sorted((role.name, role.min) for role in job.roles)) or (("worker", job.request),)
        at = (job.model, roles, job.request, job.batch)
        if at not in self.speeds:
            config = Config(roles=roles, nodes=(job.request,), batch=job.batch)
            self.speeds[at] = self.models[job.model].speed(config)
        return self.speeds[at]


def _named(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The values by today's words. ValueError where one stands twice, once by its old word."""
    for old, key in FORMER.items():
        if old in plain and key in plain:
            raise ValueError(f"{key} stands twice, once as {old}")
    return {FORMER.get(key, key): value for key, value in plain.items()}


def _counts(plain: Mapping[str, Any], name: str, most: Bound = REPLICAS) -> tuple[int, ...]:
    return tuple(sorted({source.count(str(size), name, most) for size in plain.get(name, ())}))


def _whole(plain: Mapping[str, Any], column: str, most: Bound = REPLICAS) -> int:
    value = plain.get(column)
    return 0 if value in (None, "", 0, "0") else source.count(str(value), column, most)


def _priority(value: Any) -> int:
    """As a PriorityClass has it: Kubernetes keeps it in 32 bits."""
    found = source.whole(str(value), "priority")
    if not -(1 << 31) <= found < 1 << 31:
        raise ValueError(f"priority must be from -2^31 to 2^31 - 1; found {shown(str(value))}")
    return found


def _truth(value: Any) -> bool:
    if value in (True, "true", "True", "1", "yes"):
        return True
    if value in (False, "false", "False", "0", "no"):
        return False
    raise ValueError(f"known must be true or false; found {value!r}")


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text.strip()


def _role(text: str) -> RoleSpec:
    """A role as CSV has it: server=1-3/0/4000/8589934592."""
    name, _, rest = text.partition("=")
    span, *asks = rest.split("/")
    low, _, high = span.partition("-")
    try:
        numbers = [int(low), int(high or low), *(int(ask) for ask in asks)]
    except ValueError:
        raise ValueError(f"roles: {text!r} is not NAME=MIN-MAX/GPUS/CPU/MEMORY") from None
    if len(numbers) > 5 or not name:
        raise ValueError(f"roles: {text!r} is not NAME=MIN-MAX/GPUS/CPU/MEMORY")
    return _checked(RoleSpec(name, *numbers), "roles")


def _given_role(plain: Any) -> RoleSpec:
    if not isinstance(plain, dict):
        raise ValueError("roles must be objects")
    return _checked(RoleSpec(**_named(plain)), "roles")


def _cluster(plain: Any) -> Cluster:
    if not isinstance(plain, list) or not all(isinstance(group, dict) for group in plain):
        raise ValueError("cluster must be a list of groups of nodes")
    return Cluster(tuple(_checked(Group(**group), "cluster") for group in plain))


def _checked(value: Part, where: str) -> Part:
    """Text where text belongs, whole numbers that a pod may ask for elsewhere; min is not above max."""
    for spec in dataclasses.fields(value):
        found = getattr(value, spec.name)
        if spec.type == "str" and not isinstance(found, str):
            raise ValueError(f"{where}: {spec.name} must be text; found {found!r}")
        most = BOUNDS.get(spec.name, AMOUNT).most
        if spec.type == "int" and (type(found) is not int or not 0 <= found <= most):
            raise ValueError(
                f"{where}: {spec.name} must be a whole number from 0 to {most}; found {shown(found)}"
            )
    if isinstance(value, RoleSpec) and not value.min <= value.max:
        raise ValueError(f"{where}: min ({value.min}) is above max ({value.max})")
    return value


def _preset(plain: Any) -> Workload | None:
    if plain is None:
        return None
    if not isinstance(plain, dict) or not isinstance(plain.get("name"), str):
        raise ValueError('preset must be an object with "name"')
    seed, parameters = plain.get("seed", 0), plain.get("parameters") or {}
    if type(seed) is not int or seed < 0:
        raise ValueError(f"preset: seed must be a whole number, 0 or more; found {shown(seed)}")
    if not isinstance(parameters, dict):
        raise ValueError(f"preset: parameters must be an object; found {shown(parameters)}")
    return presets.load(plain["name"], seed, parameters)


def options(path: Path, text: str) -> Mapping[str, Any]:
    """The overheads and rounds that a JSON workload names. ValueError where they can't be used: the command line
    refuses the same."""
    plain: Any = parsed(path, text).get("options") or {}
    if not isinstance(plain, dict):
        raise ValueError(f"options: must be an object; found {str(plain)[:40]}")
    known = {spec.name: spec.type for spec in dataclasses.fields(Options) if spec.name not in NOT_OF_A_TRACE}
    for key, value in plain.items():
        if key not in known:
            raise ValueError(f"options: {key!r} is not known; there are {', '.join(known)}")
        kind = str(known[key]).partition(" ")[0]
        if kind == "bool":
            right, range_ = isinstance(value, bool), "true or false"
        else:
            types = (int,) if kind == "int" else (int, float)
            most = MOST.get(key, math.inf)
            right = type(value) in types and 0 <= value <= most and value < math.inf
            range_ = f"{kind}, 0 or more" if most == math.inf else f"{kind} from 0 to {most:g}"
        if not right:
            raise ValueError(f"options: {key} must be {range_}; found {shown(value)}")
    return plain
