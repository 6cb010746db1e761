"""Muster. What a training process uses is `muster.report(step=..., loss=...)`; nothing is imported before."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """`muster.report`, when it is asked for: a module that can be called (muster/report.py)."""
    if name != "report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return import_module("muster.report")
