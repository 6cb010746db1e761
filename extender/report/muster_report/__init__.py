"""What a training process uses of Muster: `report(step=..., loss=...)`, `flush()` and `devices()`.

Nothing is imported before one of them is asked for."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """`report` and `devices`, when they are asked for: modules that can be called; `flush`: of reports."""
    if name not in ("report", "devices", "flush"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "flush":
        return import_module("muster_report.report").flush
    return import_module(f"muster_report.{name}")
