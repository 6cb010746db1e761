"""What the command line says in one word each: a cluster, a profile with parameters, numbers by name."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster import profiles
from muster.core.bounds import GPUS, shown
from muster.errors import ConfigurationError, UsageError, did_you_mean
from muster.points import Profile
from muster.sim import presets
from muster.sim.workload import Cluster, Group

PLAIN = ("bool", "int", "float", "str")
LIST = re.compile(r"(?:tuple|Sequence)\[(\w+)(?:, \.\.\.)?\]")
"""The types that a parameter may have: one of PLAIN, or several of one."""
GROUP = re.compile(
    r"(?P<product>[A-Za-z0-9][\w.-]*)=(?P<nodes>\d{1,9})x(?P<gpus>\d{1,9})(?::(?P<memory>\d{1,12}))?"
)
TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "order": ("backfill", "strict"),
    "resize": ("restart", "in-place", "hand-over"),
    "placement": ("pinned", "scored"),
}
OF_THE_CORE = ("order", "round", "resize", "placement", "preemption", "patience", "timeout")
"""Settings of the core that may stand among a profile's parameters; see points.Profile for units."""


def cluster(text: str, fluid: bool = False) -> Cluster:
    """`v100=8x1,p100=16x1`: product=nodes x GPUs, with `:MIB` behind it the memory of one GPU."""
    groups = []
    for part in text.split(","):
        found = GROUP.fullmatch(part.strip())
        nodes, gpus = (int(found["nodes"]), int(found["gpus"])) if found else (0, 0)
        if found is None or not (1 <= nodes <= GPUS.most and 1 <= gpus <= GPUS.most):
            raise UsageError(
                "--cluster: must be PRODUCT=NODESxGPUS[:MIB], parted by commas, as v100=8x1,k80=24x1, "
                f"each from 1 to {GPUS.most}; found {shown(part)}"
            )
        groups.append(Group(nodes, gpus, found["product"], int(found["memory"] or 0)))
    products = [group.product for group in groups]
    if len(set(products)) < len(products):
        raise UsageError("--cluster: a product stands twice")
    return Cluster(tuple(groups), fluid)


def even(gpus: int, per_node: int, fluid: bool = False) -> Cluster:
    """So many GPUs on nodes of one size; the last node is smaller where they don't divide."""
    whole, rest = divmod(gpus, per_node)
    groups = [Group(whole, per_node)] if whole else []
    if rest:
        groups.append(Group(1, rest))
    return Cluster(tuple(groups), fluid)


def profile(text: str) -> Profile:
    """NAME, NAME:param=value,... or a muster.yaml. Its name is the text as given.

    A parameter is a field of any plugin of the profile (`plugin.field` where only one of them is meant), or one
    of OF_THE_CORE. Raises ConfigurationError naming the profile or parameter that is not known.
    """
    if Path(text).suffix in (".yaml", ".yml") or ("/" in text and Path(text).exists()):
        from muster.settings import load_settings, profile_of

        return dataclasses.replace(profile_of(load_settings(Path(text))), name=text)
    name, _, rest = text.partition(":")
    if name not in profiles.NAMED:
        raise ConfigurationError(_unknown([name]))
    plain = profiles.build(name)
    given = dict(pairs(rest, f"--profile {text}"))
    arguments: dict[str, dict[str, Any]] = {}
    core: dict[str, Any] = {}
    for key, value in given.items():
        taken = False
        for plugin, field, kind in _fields(plain):
            if key in (field, f"{plugin}.{field}"):
                arguments.setdefault(plugin, {})[field] = typed(value, kind, f"--profile {name}: {key}")
                taken = True
        if key in OF_THE_CORE:
            core[key] = _of_the_core(name, key, value)
            taken = True
        if not taken:
            known = sorted({field for _, field, _ in _fields(plain)} | set(OF_THE_CORE))
            raise ConfigurationError(
                f"--profile {name}: {key!r} is not a parameter of it; it has: {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )
    built = profiles.build(name, arguments) if arguments else plain
    return dataclasses.replace(built, name=text, **core)


def faults(given: Sequence[str], of_preset: str, of_cluster: str) -> list[str]:
    """All that is wrong with these words of the command line ("" where one is not given): of profiles whose names
    aren't known one sentence."""
    found: list[str] = []
    unknown: list[str] = []
    for text in given:
        name = text.partition(":")[0]
        wrong = _fault(profile, text)
        if wrong == _unknown([name]):
            unknown.append(name)
        else:
            found.append(wrong)
    names = [_unknown(unknown)] if unknown else []
    more = [_fault(read, text) for read, text in ((preset, of_preset), (cluster, of_cluster)) if text]
    return [*names, *filter(None, (*found, *more))]


def _fault(read: Callable[[str], object], text: str) -> str:
    """Why it can't be read, "" where it can."""
    try:
        read(text)
    except (ConfigurationError, UsageError) as error:
        return str(error)
    return ""


def _unknown(names: Sequence[str]) -> str:
    """Of profiles that are not known: what was found and meant, and what there is."""
    known = sorted(profiles.NAMED)
    found = "; ".join(f"found {name!r}{did_you_mean(name, known)}" for name in names)
    return f"--profile: must be one of {', '.join(known)}, or a muster.yaml; {found}"


def may_release(plans: Mapping[str, Profile], *, fluid: bool, own: bool) -> None:
    """Raises UsageError where --release would count twice, or not at all. own: a paper says what changes cost."""
    if fluid:
        raise UsageError("--release: GPUs have no place with --fluid; leave one of them out")
    if own:
        raise UsageError(
            "--release: the preset says itself what changes cost, as its paper has it; leave it out"
        )
    for text, plan in plans.items():
        if plan.resize == "hand-over":
            raise UsageError(
                f"--release: {text} hands GPUs over (resize: hand-over), so nobody leaves before the next is ready; "
                f"leave it out, or take {text} with resize=restart"
            )


def without_places(settings: Mapping[str, Any], *, ranges: bool, silent: bool) -> None:
    """Raises UsageError where an option means nothing on an engine without nodes. settings: what was given, by field
    of Options."""
    if ranges:
        raise UsageError("--ranges: nobody grows by itself with --fluid; leave one of them out")
    if silent:
        raise UsageError("--silent: with --fluid every length is known; leave one of them out")
    if settings.get("measure"):
        raise UsageError(
            "--measure: with --fluid a speed takes no time to be measured; leave one of them out"
        )
    for option in ("failures", "repair"):
        if settings.get(option):
            raise UsageError(f"--{option}: with --fluid there are no nodes that fail; leave one of them out")
    if settings.get("migrate"):
        raise UsageError("--migrate: with --fluid there are no nodes to move to; leave one of them out")


def pairs(text: str, where: str, form: str = "NAME:param=value,...") -> Iterator[tuple[str, str]]:
    """a=1,b=2. form: how the whole is written, for who did not."""
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{where}: must be {form}; found {part!r}")
        yield key.strip(), value.strip()


def typed(text: str, kind: str, where: str) -> Any:
    """A value of the type that an annotation names: bool, int, float, str, a tuple (1|2|4); `X | None` too."""
    base = kind.replace("| None", "").strip()
    if text.lower() in ("none", "") and base != kind:
        return None
    if (listed := LIST.fullmatch(base)) is not None:
        return tuple(typed(part, listed[1], where) for part in text.split("|"))
    if base not in PLAIN and not base.startswith("Literal["):
        raise ConfigurationError(f"{where} can't be given in one word: use pluginArgs of a muster.yaml")
    try:
        if base == "bool":
            return {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}[
                text.lower()
            ]
        if base == "int":
            return int(text)
        if base == "float":
            return _finite(text)
    except (KeyError, ValueError):
        wanted = "a finite number" if base == "float" else base
        raise ConfigurationError(f"{where} must be {wanted}; found {text!r}") from None
    return text


def _finite(text: str) -> float:
    """A number that is one: no plugin takes nan, nor inf. ValueError for all else."""
    if not math.isfinite(found := float(text)):
        raise ValueError(text)
    return found


def seconds(text: str) -> float:
    """90, 90s, 5m, 1.5h, 2d."""
    found = TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"must be a time such as 90, 90s, 5m, 1.5h or 2d; found {text!r}")
    return float(found[1]) * UNITS[found[2] or "s"]


def like(default: Any, text: str, where: str) -> Any:
    """A value of the type that a default has (a preset's parameters): 1|2|4 where it is a tuple."""
    if isinstance(default, tuple):
        return tuple(like(default[0] if default else "", part, where) for part in text.split("|"))
    kind = type(default).__name__
    return typed(text, kind if kind in ("bool", "int", "float") else "str", where)


def preset(text: str, where: str = "--preset") -> tuple[str, dict[str, Any]]:
    """NAME or NAME:param=value,...: the name and the parameters, each of its default's type. where: it was given."""
    name, _, rest = text.partition(":")
    there = presets.names()
    if name not in there:
        raise UsageError(
            f"{where}: must be one of {', '.join(there)}; found {name!r}{did_you_mean(name, there)}"
        )
    known = presets.parameters_of(name)
    found = {}
    for key, value in pairs(rest, f"{where} {text}"):
        if key not in known:
            raise UsageError(
                f"{where} {name}: {key!r} is not a parameter of it; it has: {', '.join(known) or 'none'}"
                f"{did_you_mean(key, known)}"
            )
        found[key] = like(known[key], value, f"{where} {name}: {key}")
    return name, found


def _fields(found: Profile) -> Iterator[tuple[str, str, str]]:
    """Plugin, field and the annotation's text, of every plugin of the profile."""
    for plugin, made in found.named:
        if dataclasses.is_dataclass(made):
            for spec in dataclasses.fields(made):
                if spec.init:
                    yield plugin, spec.name, spec.type if isinstance(spec.type, str) else spec.type.__name__


def _of_the_core(name: str, key: str, value: str) -> Any:
    allowed = ALLOWED.get(key)
    if allowed and value not in allowed:
        raise ConfigurationError(
            f"--profile {name}: {key} must be one of {', '.join(allowed)}; found {value!r}"
        )
    kinds = {spec.name: str(spec.type) for spec in dataclasses.fields(Profile)}
    found = typed(value, kinds[key], f"--profile {name}: {key}")
    if isinstance(found, float) and not 0.0 <= found < math.inf:
        raise ConfigurationError(f"--profile {name}: {key} must be a number of 0 or more; found {value!r}")
    return found
