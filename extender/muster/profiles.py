"""The named profiles: which plugins a name stands for. A configuration may add its own (`profiles:`).

A plugin that stands at several points is made once, with the arguments that `pluginArgs` gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster import points
from muster.errors import ConfigurationError
from muster.points import Filter, Profile, QueueSort, Score, Share


@dataclass(frozen=True, slots=True)
class Recipe:
    """Plugins by extension point. An empty sort is the core's: priority, submission, key."""

    sort: str = ""
    filters: tuple[str, ...] = ()
    scores: tuple[tuple[str, float], ...] = ()
    shares: tuple[str, ...] = ()
    placement: str = "pinned"


NAMED: Mapping[str, Recipe] = {
    # the default: priority, submission, and nodes filled one after another
    "fifo": Recipe(scores=(("pack", 1.0),)),
    # Coach's gang scheduler, all three hooks; kube-scheduler picks the nodes by its score (Algorithm 3)
    "gang": Recipe(sort="gang", filters=("gang",), scores=(("gang", 1.0),), placement="scored"),
    # the same order and filter, but nodes already in use first: Algorithm 3 leaves remainders on many nodes
    "gang-pack": Recipe(sort="gang", filters=("gang",), scores=(("gang-pack", 1.0),), placement="scored"),
}


def build(
    name: str,
    arguments: Mapping[str, Mapping[str, Any]] | None = None,
    own: Mapping[str, Recipe] | None = None,
) -> Profile:
    """The profile `name` with its plugins loaded. `own` are the configuration's recipes; they win over NAMED.

    Raises ConfigurationError naming the profile or plugin that is not known, or stands where it can't.
    """
    arguments = arguments or {}
    known = {**NAMED, **(own or {})}
    if name not in known:
        raise ConfigurationError(f"profile: must be one of {', '.join(sorted(known))}; found {name!r}")
    recipe = known[name]
    used = {recipe.sort, *recipe.filters, *(s for s, _ in recipe.scores), *recipe.shares} - {""}
    plugins = {plugin: points.load(plugin, arguments.get(plugin)) for plugin in sorted(used)}
    stray = sorted(set(arguments) - used - points.installed().keys())
    if stray:
        raise ConfigurationError(
            f"pluginArgs.{stray[0]}: not a plugin; installed: {', '.join(sorted(points.installed()))}"
        )
    sort = {"sort": _at(plugins, recipe.sort, QueueSort, name, "sort")} if recipe.sort else {}
    return Profile(
        name=name,
        filters=tuple(_at(plugins, f, Filter, name, "filters") for f in recipe.filters),
        scores=tuple((_at(plugins, s, Score, name, "scores"), w) for s, w in recipe.scores),
        shares=tuple(_at(plugins, s, Share, name, "shares") for s in recipe.shares),
        placement=recipe.placement,
        **sort,
    )


def _at(plugins: Mapping[str, Any], plugin: str, point: Any, profile: str, field: str) -> Any:
    """The plugin, if it implements the extension point at which the profile names it."""
    if not isinstance(plugins[plugin], point):
        raise ConfigurationError(f"profile {profile}: {field}: plugin {plugin!r} is no {point.__name__}")
    return plugins[plugin]
