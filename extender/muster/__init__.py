"""Muster. What a training process uses: `muster.report(step=..., loss=...)` and `muster.devices()`; nothing is
imported before."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """`report`, `batch`, `flush` and `devices`, those of muster_report, when they are asked for."""
    if name not in ("report", "devices", "batch", "flush"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import muster_report

    return getattr(muster_report, name)
