"""values.schema.json: what of it comes from the code. `python -m tests.chart.schema` (`make docs`) writes it.

By hand is all but the definitions below, which are Muster's settings (`config`), the names of profiles and the keys
of Kubernetes' own types: a typing error in one of them fails at `helm template` and not in the pod. The names are in
a template, too, with those of plugins: it knows the profiles of a team's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from kubernetes import client

from muster import points, profiles
from muster.settings import DURATION, Settings

FILE = Path(__file__).resolve().parents[2] / "charts" / "muster" / "values.schema.json"
NAMES = FILE.parent / "templates" / "_profiles.tpl"
WIDTH = 130
OF_KUBERNETES = {
    "podSecurityContext": "V1PodSecurityContext",
    "securityContext": "V1SecurityContext",
    "toleration": "V1Toleration",
    "affinity": "V1Affinity",
    "topologySpread": "V1TopologySpreadConstraint",
    "env": "V1EnvVar",
    "volumeMount": "V1VolumeMount",
    "container": "V1Container",
    "volume": "V1Volume",
    "peer": "V1NetworkPolicyPeer",
}
"""Types of Kubernetes' API that a value is of, as its newest client has them. Only their keys: what stands behind one
the API server checks."""
BY_HAND = ("digest", "resources", "port", "labels", "dnsLabel", "labelKey")
Json = dict[str, Any]


def generated() -> Json:
    """Definitions by name."""
    told = Settings.model_json_schema(by_alias=True)
    parts = told.pop("$defs")
    parts["config"] = {key: told[key] for key in ("type", "additionalProperties", "properties")}
    found: Json = {name: _plain(part) for name, part in sorted(parts.items())}
    found["config"]["properties"]["pluginArgs"] = {
        "type": "object",
        "additionalProperties": {"type": "object"},
        "properties": {name: _arguments(name) for name in sorted(points.installed())},
    }
    time = {"type": ["number", "string"], "pattern": f"^{DURATION.pattern}$", "exclusiveMinimum": 0}
    kubernetes = dict(_of_kubernetes())
    return found | {"duration": time, "profileName": {"enum": live()}} | kubernetes


def live() -> list[str]:
    """Names of the profiles that run on a cluster."""
    return sorted(name for name, one in profiles.NAMED.items() if not one.simulation_only)


def names() -> str:
    """The template that has them, and the plugins."""
    said = (
        "Written by `make docs`: the profiles and plugins that Muster has. A schema can't compare two values."
    )
    parts = {"muster.profiles": live(), "muster.plugins": sorted(points.installed())}
    defined = (f'{{{{- define "{of}" -}}}}\n{" ".join(has)}\n{{{{- end -}}}}\n' for of, has in parts.items())
    return f"{{{{/* {said} */}}}}\n{''.join(defined)}"


def _of_kubernetes() -> Iterator[tuple[str, Json]]:
    """A definition for each type, and for those within them by their own names."""
    names = {kind: name for name, kind in OF_KUBERNETES.items()}
    left, known = list(names), set(names)
    while left:
        kind = left.pop()
        made, keys = getattr(client, kind), {}
        for field, key in sorted(made.attribute_map.items(), key=lambda pair: pair[1]):
            told = made.openapi_types[field]
            [inner, *_] = [one for one in re.findall(r"V1\w+", told) if hasattr(client, one)] or [""]
            if inner and inner not in known:
                known.add(inner)
                left.append(inner)
            ref = {"$ref": f"#/definitions/{names.get(inner, inner)}"} if inner else {}
            keys[key] = {"items": ref} if inner and told.lower().startswith("list") else ref
        yield names.get(kind, kind), {"additionalProperties": False, "properties": keys}


def _arguments(plugin: str) -> Json:
    made = points.load(plugin, {})
    known = {one.name: {} for one in fields(made) if one.init} if is_dataclass(made) else {}
    return {"type": "object", "additionalProperties": False, "properties": known}


def _plain(part: Any) -> Any:
    """As draft-07 has it, without titles and defaults, times as Muster reads them."""
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if not isinstance(part, dict):
        return part
    if "gt" in part:  # a Duration: pydantic knows no more of it than that it is a number
        return {"$ref": "#/definitions/duration"}
    if "ge" in part:  # one with bounds: pydantic knows no more of its type either
        told = {"type": ["number", "string"], "pattern": f"^{DURATION.pattern}$"}
        return told | {"minimum": part["ge"], "maximum": part["le"]}
    if "$ref" in part:
        return {"$ref": part["$ref"].replace("$defs", "definitions")}
    left = ("title", "default", "description")
    return {
        key: {name: _plain(one) for name, one in value.items()} if key == "properties" else _plain(value)
        for key, value in part.items()
        if key not in left
    }


def schema() -> Json:
    """The whole file, with the definitions as the code has them now."""
    found: Json = json.loads(FILE.read_text())
    by_hand = {name: found["definitions"][name] for name in BY_HAND}
    return found | {"definitions": by_hand | generated()}


def text(value: Any, indent: str = "") -> str:
    """JSON with what fits on a line on one."""
    flat = json.dumps(value)
    if len(flat) + len(indent) <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, list):
        rows = [f"{inner}{text(one, inner)}" for one in value]
        return "[\n" + ",\n".join(rows) + f"\n{indent}]"
    rows = [f"{inner}{json.dumps(key)}: {text(one, inner)}" for key, one in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


if __name__ == "__main__":
    FILE.write_text(text(schema()) + "\n")
    NAMES.write_text(names())
