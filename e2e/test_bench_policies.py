"""`python -m e2e.bench policies` in its short form: what Muster planned live is what `muster replay` plans, for three
families. How long jobs took is not asserted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.bench import policies
from e2e.bench.report import Progress
from muster.sim.submission import Curve

OWN_LAB = "run the benchmark, with labs of its own"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        "E2E_KUBECONFIG" in os.environ,
        reason="starts labs of its own, and E2E_KUBECONFIG names another cluster",
    ),
]
FAMILIES = ("fifo", "afs-l", "tiresias-l")
CURVES = {
    name: Curve(name, tuple(n**gain for n in range(1, 17))) for name, gain in (("wide", 0.9), ("narrow", 0.4))
}
"""Models by how much more GPUs help them: a run without the measured ones (TRACES) shows the same."""


@pytest.mark.timeout(900)
def test_every_plan_of_three_families_is_replayed_identically(tmp_path: Path) -> None:
    found = policies.measure(
        Progress(),
        families=FAMILIES,
        jobs=6,
        rounds=1,
        speed=120.0,
        beside=len(FAMILIES),
        results=tmp_path,
        curves=CURVES,
        labs_named=f"e2e-{os.getpid()}",
    )
    rows = found.data["families"]
    assert {name: row["differ"] for name, row in rows.items()} == dict.fromkeys(FAMILIES, 0)
    assert all(row["dumps"] for row in rows.values()), "nothing was dumped"
