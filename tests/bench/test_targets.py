"""What `make` would run for the measures' targets (e2e/bench.mk)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "measured"),
    [
        ("bench", ["all"]),
        ("bench LONG=1", ["all --long"]),
        ("peers", ["peers"]),
        ("bench peers", ["peers"]),
        ("policies bench", ["policies"]),
        ("bench papers inplace workload-one", ["papers", "inplace", "workload-one"]),
    ],
)
def test_bench_beside_a_measure_is_that_measure_alone(words: str, measured: list[str]) -> None:
    done = subprocess.run(
        ["make", "-n", *words.split()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commands = [line.split("-m e2e.bench ") for line in done.stdout.splitlines()]
    assert [" ".join(parts[1].split()) for parts in commands if len(parts) == 2] == measured
