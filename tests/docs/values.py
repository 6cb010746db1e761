"""The table of charts/muster/README.md: values.yaml and its comments, in helm-docs' form. `make docs` writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

FILE = Path(__file__).resolve().parents[2] / "charts" / "muster" / "values.yaml"
KEY = re.compile(r"^( *)([A-Za-z]\w*):(.*)$")


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Key, type, default and description of each value; a group of values has a row where it has a comment."""
    values = yaml.safe_load(FILE.read_text())
    at: list[str] = []
    said: list[str] = []
    for line in FILE.read_text().splitlines():
        if line.strip().startswith("#"):
            said.append(line.strip().removeprefix("#").strip())
        elif not line.strip():
            said = []
        elif (found := KEY.match(line)) is not None:
            depth = len(found[1]) // 2
            at = [*at[:depth], found[2]]
            value = values
            for part in at:
                value = value[part]
            group = isinstance(value, dict) and bool(value) and not found[3].strip()
            if said or not group:
                yield ".".join(at), _kind(value), "" if group else f"`{json.dumps(value)}`", " ".join(said)
            said = []


def _kind(value: object) -> str:
    names = {bool: "bool", int: "int", str: "string", list: "list", dict: "object"}
    return names[type(value)]


def table() -> str:
    """Markdown."""
    cells = [(f"`{key}`", kind, default, what) for key, kind, default, what in rows()]
    lines = [("Key", "Type", "Default", "Description"), ("---",) * 4, *cells]
    return "\n".join(f"| {' | '.join(one.replace('|', chr(92) + '|') for one in line)} |" for line in lines)
