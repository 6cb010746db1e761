"""What `muster simulate` is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from muster.sim.options import Options
from muster.sim.result import Result
from muster.sim.workload import Cluster, Workload


@dataclass(frozen=True)
class Request:
    """The command line. settings: fields of Options by name, None = the preset's or the default."""

    profiles: Sequence[str]
    trace: Path | None = None
    preset: str = ""
    models: Path | None = None
    draw_models: int | None = None
    virtual_cluster: str = ""
    seed: int = 0
    gpus: int | None = None
    gpus_per_node: int = 8
    cluster: str = ""
    fluid: bool = False
    settings: Mapping[str, float | bool | None] = field(default_factory=dict)
    out: Path | None = None
    json: bool = False
    report: bool = False
    ranges: bool = False
    silent: bool = False
    strict: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Outcome:
    """What was run on what, and what came of it. terms: on what the profiles are compared (what a change costs, who
    holds its request). A profile that Ctrl-C left no time for is in `skipped`."""

    request: Request
    workload: Workload
    cluster: Cluster
    options: Options
    results: Mapping[str, Result]
    notes: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def cut(self) -> bool:
        """Whether a profile ended before its jobs did: Ctrl-C, a deadlock."""
        return bool(self.skipped) or any(result.cut for result in self.results.values())

    @property
    def interrupted(self) -> bool:
        """Whether that was Ctrl-C."""
        return bool(self.skipped) or any(result.interrupted for result in self.results.values())
