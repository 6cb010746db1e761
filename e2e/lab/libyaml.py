"""YAML by libyaml, in a tenth of the time, where PyYAML was built with it (its wheels are)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str) -> Any:
    """The one document of a text. yaml.YAMLError where it is none."""
    return yaml.load(text, _LOADER)


def load_all(text: str) -> Iterator[Any]:
    return iter(yaml.load_all(text, _LOADER))
