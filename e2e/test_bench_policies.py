"""`python -m e2e.bench policies` in its short form: what Muster planned live is what `muster replay` plans, for three
families. How long jobs took is not asserted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.bench import policies
from e2e.bench.report import Progress
from e2e.reproduce.run import DATA

OWN_LAB = "run the benchmark, with labs of its own"
pytestmark = [
    pytest.mark.lab,
    # In CI a skip is a failure (e2e/lacks.py).
    pytest.mark.skipif(
        not (DATA / "README.md").exists(),
        reason="no folder of traces: set TRACES to one (see e2e/README.md, Traces)",
    ),
    pytest.mark.skipif(
        "E2E_KUBECONFIG" in os.environ,
        reason="starts labs of its own, and E2E_KUBECONFIG names another cluster",
    ),
]
FAMILIES = ("fifo", "afs-l", "tiresias-l")


@pytest.mark.timeout(900)
def test_every_plan_of_three_families_is_replayed_identically(tmp_path: Path) -> None:
    found = policies.measure(
        Progress(),
        families=FAMILIES,
        jobs=6,
        speed=120.0,
        beside=len(FAMILIES),
        results=tmp_path,
        labs_named=f"e2e-{os.getpid()}",
    )
    rows = found.data["families"]
    assert {name: row["differ"] for name, row in rows.items()} == dict.fromkeys(FAMILIES, 0)
    assert all(row["dumps"] for row in rows.values()), "nothing was dumped"
