"""Gavel's measured throughputs (OSDI'20): 26 configurations of seven models on V100, P100 and K80.

iterations/s by GPU product, by configuration ("ResNet-18 (batch size 128)") and scale factor (1, 2, 4 or 8 GPUs),
alone and packed with another job of the same scale factor on the same GPUs. 0 = it does not run there (memory).
A model is a configuration; its speed elsewhere than at a measured count is 0. A cluster without products is taken
to be of V100.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.sim.physics import EPSILON, Running, Stage, Standard, by_options
from muster.sim.submission import Model, Submission
from muster.sim.traces.source import UnreadableError, read_text
from muster.types import Config, NodeRecord

if TYPE_CHECKING:
    from muster.sim.options import Options

KEY = re.compile(r"\('(.*)', (\d+)\)")
"""How the file writes a configuration and its scale factor: a Python tuple."""
USUAL = "v100"
ROUND = 360.0
"""Gavel's rounds, s, where the user names none."""


@dataclass(frozen=True)
class Configuration:
    """One model at one batch size. alone: iterations/s by (product, GPUs); packed: by (product, GPUs, the other)."""

    name: str
    alone: Mapping[tuple[str, int], float]
    packed: Mapping[tuple[str, int, str], float] = field(default_factory=dict, repr=False)

    @property
    def max(self) -> int:
        """The largest measured scale factor."""
        return max(count for _, count in self.alone)

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Configurations beside which it was measured."""
        return tuple(sorted({other for _, _, other in self.packed}))

    def speed(self, config: Config) -> float:
        """iterations/s; config.beside is the configuration on the same GPUs."""
        product, count = (config.product or USUAL).lower(), config.replicas
        if config.beside:
            return self.packed.get((product, count, config.beside.split("@")[0]), 0.0)
        return self.alone.get((product, count), 0.0)


@dataclass(frozen=True)
class WholeIterations(Standard):
    """In each round a job does whole iterations only, as in Gavel's simulator: what is left of a round is lost.

    round: s. Where a job needs no more than a round's iterations it runs at its full speed to its end.
    """

    round: float = ROUND

    def stages(self, running: Sequence[Running], nodes: Mapping[str, NodeRecord]) -> Sequence[Stage]:
        """Rounds at the speed that whole iterations make, then the rest."""
        return [
            self._whole(stage, job.step)
            for stage, job in zip(super().stages(running, nodes), running, strict=True)
        ]

    def _whole(self, stage: Stage, step: float) -> Stage:
        if math.isinf(stage.work) or stage.speed <= 0.0:
            return stage
        each = math.floor(stage.speed * self.round + EPSILON)
        left = stage.work - step
        if left <= each + EPSILON or each < 1:
            return stage
        rounds = math.ceil(left / each - EPSILON) - 1
        return stage._replace(speed=each / self.round, until=min(stage.until, step + rounds * each))


def physics(options: Options) -> WholeIterations:
    """The user's costs; whole iterations a round."""
    costs = by_options(options)
    return WholeIterations(costs.costs, costs.checkpoint, round=options.round or ROUND, talkative=True)


def submission(
    name: str,
    job_type: str,
    steps: float,
    scale: int,
    arrival: float,
    fields: Sequence[str],  # noqa: ARG001
    models: Mapping[str, Model],
) -> Submission:
    """One line of a trace: rigid at its scale factor. ValueError where that was never measured."""
    model = models[job_type]
    if isinstance(model, Configuration) and not any(count == scale for _, count in model.alone):
        raise ValueError(f"{job_type} was not measured on {scale} GPUs")
    return Submission(
        name=name,
        submitted=arrival,
        model=job_type,
        work=steps,
        request=scale,
        min=scale,
        max=scale,
        tags={"profiled": 1.0},
    )


def read(path: Path) -> Mapping[str, Model]:
    """The configurations of a file. Raises UnreadableError."""
    try:
        plain = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UnreadableError(path, error.lineno, f"is not JSON: {error.msg}") from error
    alone: dict[str, dict[tuple[str, int], float]] = {}
    packed: dict[str, dict[tuple[str, int, str], float]] = {}
    try:
        for product, rows in plain.items():
            if (
                "unconsolidated" in product
            ):  # of jobs spread over servers: Gavel's simulator reads them nowhere
                continue
            for name, count, cells in ((*_key(key), cells) for key, cells in rows.items()):
                alone.setdefault(name, {})[product, count] = float(cells["null"])
                for other, pair in cells.items():
                    if other != "null":
                        packed.setdefault(name, {})[product, count, _key(other)[0]] = float(pair[0])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise UnreadableError(path, 1, f"is no file of Gavel's throughputs: {error!r}") from error
    if not alone:
        raise UnreadableError(path, 1, "holds no throughputs")
    return {name: Configuration(name, cells, packed.get(name, {})) for name, cells in alone.items()}


def _key(text: Any) -> tuple[str, int]:
    found = KEY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not ('model', scale factor)")
    return found[1], int(found[2])
