"""The decisions of the authors' one run of SpeCon (data/specon), and what can be counted of them."""

from __future__ import annotations

import csv
from collections import Counter
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Decision(NamedTuple):
    """When (s from the first), which container, on which node, and to which (None: it stays)."""

    at: float
    job: int
    origin: int
    target: int | None

    @property
    def moved(self) -> bool:
        return self.target is not None


@lru_cache(maxsize=1)
def decisions(data: Path) -> tuple[Decision, ...]:
    """In the authors' order; nodes and containers by number."""
    with (data / "specon" / "distribution.csv").open() as file:
        rows = list(csv.DictReader(file))
    first = float(rows[0]["time"])
    return tuple(
        Decision(
            float(row["time"]) - first,
            int(row["job"].removeprefix("job")),
            _node(row["orginal_node"]),
            _node(row["to_node"]) if row["to_node"] else None,
        )
        for row in rows
    )


def _node(host: str) -> int:
    """node-1.mig... is 1."""
    return int(host.partition(".")[0].removeprefix("node-"))


def twice(data: Path) -> float:
    """Containers that were moved more than once."""
    moves = Counter(d.job for d in decisions(data) if d.moved)
    return float(sum(1 for count in moves.values() if count > 1))


def judged_again(data: Path) -> float:
    """Decisions after a first one that leave the container where it is."""
    rows = decisions(data)
    return float(sum(not row.moved and any(row.job == r.job for r in rows[:i]) for i, row in enumerate(rows)))


def between(data: Path) -> float:
    """Median time (s) from one t_m to the next with a decision; those within 5 s belong to one."""
    times = [d.at for d in decisions(data)]
    gaps = sorted(b - a for a, b in pairwise(times) if b - a > 5.0)
    return (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2.0
