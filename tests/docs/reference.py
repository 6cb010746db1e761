# Over 300 lines: it makes every generated table of the pages.
"""The tables of config/reference.md, from the code's own definitions. `make docs` writes them into the page (cog)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from muster import points, profiles, serve
from muster.cli import main
from muster.core import bounds
from muster.core.views.view import Board
from muster.live_recipes import SWEEP
from muster.profiles import Recipe
from muster.server.agent_endpoint import AgentEndpoint
from muster.server.device_metrics import DeviceMetrics
from muster.server.extender_metrics import ExtenderMetrics
from muster.server.holder_endpoint import HolderEndpoint
from muster.server.metrics import ViewCollector
from muster.server.report_endpoint import ReportEndpoint
from muster.server.tls import Ends
from muster.settings import Settings
from muster.threads import ThreadErrors
from tests.docs import tried
from tests.scenario import snapshot
from tests.server.reading import viewed

TOP = Path(__file__).resolve().parents[2]
MUSTER = TOP / "extender" / "muster"
SAYS = re.compile(
    r"(Label or annotation|Label|Annotation|Resource|Scheduling gate)( by Muster)?(?:, ([^:]+))?: (.+)"
)
"""How the docstring of a name of ours begins: on what it stands, its values, its meaning."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells))


# ---- profiles and plugins ----


def _headline(plugin: str) -> str:
    """The first line of a plugin's module, less the name that begins it."""
    module = points.installed()[plugin].load().__module__.rpartition(".")[2]
    text = (TOP / "plugins" / "muster_plugins" / f"{module}.py").read_text()
    first = (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]
    line = re.sub(r"^(?:[A-Z]\w+ )?`[^`]+`: |^[A-Z]\w+: ", "", first).replace("papers/afs-coddl", "AFS")
    return line[0].upper() + line[1:]


def _plugins_of(recipe: Recipe) -> str:
    at = {
        "sort": (recipe.sort,),
        "filter": recipe.filters,
        "score": tuple(name for name, _ in recipe.scores),
        "share": recipe.shares,
        "rebalance": recipe.rebalance,
        "estimate": (recipe.estimate,),
    }
    named = {point: ", ".join(f"`{name}`" for name in names if name) for point, names in at.items()}
    return "; ".join(f"{point} {names}" for point, names in named.items() if names) or "none"


def _else(recipe: Recipe) -> str:
    """What a profile sets besides its plugins."""
    said = [
        f"`{p}.{field}`: {_value(v)}"
        for p, given in recipe.arguments.items()
        for field, v in given.items()
        if v
    ]
    plain = {
        "placement": (recipe.placement, "pinned"),
        "resize": (recipe.resize, "restart"),
        "round": (recipe.round, 0.0),
        "planner": (recipe.planner, "cycle"),
        "order": (recipe.order, ""),
    }
    return "; ".join([f"`{k}`: {_value(v)}" for k, (v, usual) in plain.items() if v != usual] + said)


def profile_rows() -> str:
    """All named profiles."""
    rows = []
    for name, recipe in profiles.NAMED.items():
        decides = [*recipe.shares[:1], *recipe.rebalance, recipe.sort, *(s for s, _ in recipe.scores)]
        first = next((plugin for plugin in decides if plugin), "")
        what = _headline(first) if first else "Pod by pod, without gangs, as plain kube-scheduler does."
        if "sweep" in recipe.shares:
            what = f"{what} {_headline('sweep')}"
        rows.append((f"`{name}`", what, _plugins_of(recipe), _else(recipe), tried.words(name, recipe)))
    return table(("profile", "what decides", "plugins", "other settings", "on a cluster"), rows)


def _only(plugin: str, kind: type, parameter: str) -> str:
    """Where a parameter can be set, unless it is everywhere."""
    if parameter in getattr(kind, "LEAVES_IDLE", ()):
        return " (simulations only)"
    return " (`true` in simulations only)" if (plugin, parameter) == (SWEEP, "restart") else ""


def _in_code_only(kind: type, parameter: str) -> bool:
    """Whether no configuration can set it: what the plugin itself says to a value that YAML may have."""
    try:
        kind(**{parameter: "text"})
    except (TypeError, ValueError) as error:
        return "given in code only" in str(error)
    return False


def plugin_rows() -> str:
    """All plugins, with their parameters and defaults."""
    at = ("QueueSort", "Filter", "Score", "Share", "Adjust", "Rebalance", "Estimate", "Observe", "Wake")
    rows = []
    for name, entry in sorted(points.installed().items()):
        kind = entry.load()
        plugin = kind()
        parameters = [
            f"`{f.name}` {_value(getattr(plugin, f.name))}{_only(name, kind, f.name)}"
            for f in fields(kind)
            if f.init and not _in_code_only(kind, f.name)
        ]
        implements = [point for point in at if isinstance(plugin, getattr(points, point))]
        where = " Simulations only." if getattr(kind, "SIMULATION_ONLY", "") else ""
        rows.append((f"`{name}`", ", ".join(implements), _headline(name) + where, ", ".join(parameters)))
    return table(("plugin", "extension points", "what it does", "parameters and defaults"), rows)


# ---- labels and annotations ----


def _plain(docstring: str) -> str:
    """In one line, without the sections and modules that it refers to."""
    return re.sub(r" \((design §\d+|[a-z]+[./][a-z./-]+)\)", "", " ".join(docstring.split()))


def _documented(file: Path, inside: str = "") -> Iterator[tuple[str, ast.expr | None, str]]:
    """Names that a module (or the class `inside` of it) assigns, with the value and the docstring below."""
    body: list[ast.stmt] = ast.parse(file.read_text()).body
    if inside:
        body = next(s.body for s in body if isinstance(s, ast.ClassDef) and s.name == inside)
    for statement, after in zip_longest(body, body[1:]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                pass
            case _:
                continue
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield name, value, _plain(text)
            case _:
                yield name, value, ""


def names() -> dict[str, tuple[str, str, str, str]]:
    """Our labels, annotations and the like: on what, by whom, values and meaning."""
    found: dict[str, tuple[str, str, str, str]] = {}
    for file in sorted(MUSTER.rglob("*.py")):
        for _, value, text in _documented(file):
            match value:
                case ast.Constant(value=str(key)) if re.fullmatch(r"muster\.dev/[a-z-]+", key):
                    said = SAYS.fullmatch(text)
                    if said is None:
                        raise ValueError(f"{file.name}: the docstring of {key} has to match {SAYS.pattern}")
                    on, by, values, meaning = said.groups("")
                    found[key] = (
                        on.lower(),
                        by.removeprefix(" by "),
                        values,
                        meaning[0].upper() + meaning[1:],
                    )
    return found


def owner_rows() -> str:
    """What an owner may write."""
    rows = [(f"`{k}`", on, values, text) for k, (on, by, values, text) in names().items() if not by]
    return table(("name", "on the pod as", "values", "meaning"), rows)


def muster_rows() -> str:
    """What only Muster and its admission write."""
    return table(
        ("name", "on the pod as", "meaning"),
        [(f"`{k}`", on, text) for k, (on, by, _, text) in names().items() if by],
    )


def bound_rows() -> str:
    """The most of each thing."""
    found = bounds.TABLE
    return table(
        ("what", "at most", "why"), [(b.name, f"{b.most:,} {b.unit}".replace(",", " "), b.why) for b in found]
    )


# ---- settings ----


def _value(value: Any) -> str:
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case float():
            return f"`{value:g}`"
        case tuple() | list():
            return f"`[{', '.join(map(str, value))}]`"
        case str() | None:
            return f"`{value}`" if value else "empty"
        case _:
            return f"`{value}`"


def _time(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"`{seconds / length:g}{unit}`"
    return f"`{seconds:g}s`"


def _allowed(schema: Mapping[str, Any]) -> str:
    """What JSON Schema lets a field be."""
    if "enum" in schema:
        return ", ".join(f"`{v}`" for v in schema["enum"])
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if schema.get("type") == "integer" and low is not None:
        return f"{low} to {high}"
    if schema.get("type") == "number":
        return "a time" if low is None else f"above {low}, at most {high}"
    if schema.get("type") == "boolean":
        return "`true`, `false`"
    return {"array": "a list", "object": "a mapping"}.get(str(schema.get("type")), "text")


def _settings(model: str, at: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    texts = {name: text for name, _, text in _documented(MUSTER / "settings.py", model)}
    own = schema if model == "Settings" else schema["$defs"][model]
    for field, key in zip(texts.values(), own["properties"], strict=True):
        here = own["properties"][key]
        inner = re.search(r"\$defs/(\w+)", str(here))
        where = f"{at}{key}"
        if inner and "#/$defs/" in str({k: here[k] for k in here if k != "default"}):
            many = here.get("type") == "array"
            below = schema["$defs"][inner[1]]
            yield (
                f"`{where}`",
                "absent" if "anyOf" in here else "",
                "",
                field or _plain(below["description"]),
            )
            yield from _settings(inner[1], f"{where}[]." if many else f"{where}.", schema)
            continue
        default, allowed = here.get("default", ""), _allowed(here)
        if "const" in here:
            continue  # apiVersion and kind
        if "default" in here:
            shown = _time(default) if allowed == "a time" else _value(default)
        else:
            shown = "" if key in own.get("required", ()) else "empty"
        yield f"`{where}`", shown, allowed, field


def setting_rows() -> str:
    """Every setting of muster.yaml."""
    return table(
        ("setting", "default", "allowed", "meaning"), _settings("Settings", "", Settings.model_json_schema())
    )


# ---- metrics and commands ----


class Listing(CollectorRegistry):
    """A registry that remembers what was registered."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """As a registry does."""
        self.all.append(collector)
        super().register(collector)


def metrics() -> dict[str, tuple[str, str, dict[str, list[str]]]]:
    """Every metric as a query names it: kind, help, and its labels with the values that are there from the start."""
    registry = Listing()
    board = Board(viewed(snapshot(nodes=1)))
    registry.register(ViewCollector(board))
    registry.register(ThreadErrors())
    registry.register(Ends({}))
    serve.driver_metrics(registry)
    serve.cycle_metrics(registry, board)
    ExtenderMetrics(registry)
    ReportEndpoint(board, None, None, registry)  # type: ignore[arg-type] # nobody reports
    DeviceMetrics(registry)
    AgentEndpoint(board, None, None, None, registry)  # type: ignore[arg-type] # nor has an agent
    HolderEndpoint(board, None, None, None, None, registry)  # type: ignore[arg-type] # nor a device
    found = {}
    for collector in registry.all:
        for family in collector.collect():
            labels = getattr(family, "_labelnames", None) or getattr(collector, "_labelnames", ())
            values = {
                label: list(dict.fromkeys(s.labels[label] for s in family.samples if label in s.labels))
                for label in labels
            }
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, family.documentation, values)
    return found


def metric_rows() -> str:
    """What /metrics has."""
    rows = []
    for name, (kind, text, labels) in sorted(metrics().items()):
        said = [
            f"`{label}`: {', '.join(values)}" if values else f"`{label}`" for label, values in labels.items()
        ]
        rows.append((f"`{name}`", kind, "; ".join(said), text))
    return table(("metric", "kind", "labels", "meaning"), rows)


def command_rows() -> str:
    """The subcommands of `muster`."""
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    return table(
        ("command", "what it does"),
        [(f"`muster {n}`", c.get_short_help_str(200)) for n, c in commands.items() if c],
    )
