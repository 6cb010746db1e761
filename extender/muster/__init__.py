"""Muster. What a training process uses: `muster.report(step=..., loss=...)` and `muster.devices()`; nothing is
imported before."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """`muster.report` and `muster.devices`, when they are asked for: modules that can be called."""
    if name not in ("report", "devices"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"muster.{name}")
