"""`make demo` in its quick form: the same program, a third of the hour, fewer jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.demo.sides import SIDES
from e2e.lab import Lab

OWN_LAB = "run the demo, with labs of its own"
pytestmark = pytest.mark.skipif(
    "E2E_KUBECONFIG" in os.environ, reason="starts a lab of its own, and E2E_KUBECONFIG names another cluster"
)


@pytest.mark.lab
@pytest.mark.timeout(2400)
def test_the_quick_demo_completes_every_job_and_musters_gangs_are_never_partly_bound(tmp_path: Path) -> None:
    name = f"e2e-{os.getpid()}-demo"
    command = [
        sys.executable,
        "-m",
        "e2e.demo",
        "--quick",
        "--jobs",
        "24",
        "--limit",
        "6",  # four times its own: a run is over once its jobs are, and how long they take is this machine's
        "--name",
        name,
        "--out",
        str(tmp_path),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2300, check=False)
    finally:
        left_behind = [side.name for side in SIDES if Lab(f"{name}-{side.name}").down()]
    assert done.returncode == 0, done.stderr
    assert left_behind == [], "the demo ends its labs"
    assert "GPU-hours held by gangs that could not run" in done.stdout
    assert f"picture: {tmp_path / 'demo.png'}" in done.stderr
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")

    found: dict[str, Any] = json.loads((tmp_path / "demo.json").read_text())
    assert found.keys() == {"cluster", "options", "workload", "schedulers"}
    assert list(found["schedulers"]) == ["default", "gangs", "elastic"]
    for run in found["schedulers"].values():
        assert run.keys() == {"figures", "jobs", "stays", "moments"}
        assert len(run["jobs"]) == found["workload"]["jobs"]
        assert all(moment["running_gpus"] + moment["held_gpus"] <= 128 for moment in run["moments"])

    elastic = found["schedulers"]["elastic"]
    completed = {
        name: found["schedulers"][name]["figures"]["jobs_completed"] for name in ("gangs", "elastic")
    }
    assert completed == dict.fromkeys(completed, found["workload"]["jobs"]), f"{done.stdout}\n{done.stderr}"
    assert elastic["figures"]["resizes"] > 0
    assert {job["interrupted"] for job in elastic["jobs"]} == {0}

    muster = found["schedulers"]["gangs"]
    # By counts, not by times: a start takes as long as this machine lets it, but nobody ever gives up, no member of
    # a gang is refused while others hold nodes, and every job runs at its first attempt, without a break.
    assert [stay for stay in muster["stays"] if stay["refused"] or stay["gave_up"]] == []
    assert {job["attempts"] for job in muster["jobs"]} == {1}
    assert {job["interrupted"] for job in muster["jobs"]} == {0}
