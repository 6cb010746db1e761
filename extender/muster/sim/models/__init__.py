"""What is known of models: one reader a kind of measurement, found by what a file or folder holds.

`measured` is ours and AFS's (speeds by number of replicas); `pollux` reads a folder of measured placements and
validation curves, `gavel` a file of throughputs by GPU type. Each is imported only where it is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from muster.sim.submission import Model

if TYPE_CHECKING:
    from muster.sim.options import Options
    from muster.sim.physics import Physics

BESIDE = {
    "measured": ("models.json", "models.json.gz"),
    "pollux": ("*-placements.csv",),
    "gavel": ("simulation_throughputs.json.gz", "simulation_throughputs.json"),
}
"""What each kind is called where its authors left it: looked for beside a trace when nobody says where it is."""


def read(kind: str, path: Path) -> Mapping[str, Model]:
    """The models of a file or folder. Raises UnreadableError."""
    found: Mapping[str, Model] = import_module(f"muster.sim.models.{kind}").read(path)
    return found


def physics(kind: str) -> Callable[[Options], Physics] | None:
    """The rules of the simulator that a kind's measurements come from, made of the user's options; None = none."""
    if not kind:
        return None
    found: Callable[[Options], Physics] | None = getattr(
        import_module(f"muster.sim.models.{kind}"), "physics", None
    )
    return found


def beside(kind: str, trace: Path) -> Path | None:
    """The models that lie beside a trace, or up to two folders above it; None where there are none."""
    folders = [trace.resolve().parent, *trace.resolve().parent.parents[:2]]
    for folder in folders:
        for pattern in BESIDE[kind]:
            if found := sorted(folder.glob(pattern)):
                return folder if kind == "pollux" else found[0]
    return None
