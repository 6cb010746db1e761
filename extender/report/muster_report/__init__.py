"""What a training process uses of Muster: `report(step=..., loss=...)`, `batch()`, `flush()` and
`devices()`.

Nothing is imported before one of them is asked for."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """`report` and `devices`, when they are asked for: modules that can be called; `batch` and `flush`:
    of reports."""
    if name not in ("report", "devices", "batch", "flush"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in ("batch", "flush"):
        return getattr(import_module("muster_report.report"), name)
    return import_module(f"muster_report.{name}")
