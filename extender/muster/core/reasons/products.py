"""GPU products that a configuration names: said where no node has one, since nodes of it may still come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass

from muster.points import Profile
from muster.types import PRODUCT


def named_products(profile: Profile) -> dict[str, tuple[str, ...]]:
    """Products by the setting that names them (a plugin's PRODUCTS). A plugin's defaults, a paper's products, say
    nothing."""
    found: dict[str, tuple[str, ...]] = {}
    for name, plugin in profile.named:
        if not (whose := getattr(plugin, "PRODUCTS", ())) or not is_dataclass(plugin):
            continue
        defaults = {field.name: field.default for field in fields(plugin)}
        for key in whose:
            given = tuple(getattr(plugin, key))
            if given != defaults[key]:
                found[f"pluginArgs.{name}.{key}"] = given
    return found


def unknown_products(named: Mapping[str, Iterable[str]], there: Iterable[str]) -> str:
    """What is said of those that none of the products `there` is, whatever the case of letters; empty: nothing."""
    known = sorted(there)
    lower = {name.lower() for name in known}
    missing = {
        setting: [name for name in names if name.lower() not in lower] for setting, names in named.items()
    }
    said = [f"{setting} names {', '.join(names)}" for setting, names in missing.items() if names]
    if not said:
        return ""
    have = f"nodes have {', '.join(known)}" if known else f"no node has the label {PRODUCT}"
    return f"{'; '.join(said)}: of no effect while {have}"
