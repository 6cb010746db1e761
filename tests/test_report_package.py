"""muster-report alone: what an image of a training has, on whatever Python that has."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "extender" / "report"
OLDEST = 9


def pythons() -> dict[str, list[str]]:
    """Commands by version, of those from OLDEST on that run here: on the PATH, or known to pyenv."""
    found = {f"3.{sys.version_info.minor}": [sys.executable]}
    for minor in range(OLDEST, 20):
        name = f"3.{minor}"
        command = ["env", f"PYENV_VERSION={name}", f"python{name}"]
        done = subprocess.run(
            [*command, "-c", "import sys; print(sys.version)"], capture_output=True, text=True
        )
        if done.returncode == 0 and done.stdout.startswith(f"{name}."):
            found.setdefault(name, command)
    return found


@pytest.mark.parametrize("command", (found := pythons()).values(), ids=found)
def test_it_reports_and_runs_a_training_with_nothing_but_the_standard_library(command: list[str]) -> None:
    # -S: nothing of site-packages can be found; -X dev -W error: what this version deprecates fails
    bare = [*command, "-S", "-W", "error"]
    env = {**os.environ, "PYTHONPATH": str(FOLDER), "PYTHONDONTWRITEBYTECODE": "1"}
    env.pop("MUSTER_URL", None)
    lines = (
        "import muster_report as muster, muster_report.agent.arguments, muster_report.agent.preloaded",
        "muster.report(step=1, loss=0.5)",
        "print(next(muster.devices()))",
    )
    done = subprocess.run(
        [*bare, "-c", "\n".join(lines)], env=env, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "()\n"), done.stderr
    assert "MUSTER_URL is not set" in done.stderr
    training = ("sh", "-c", "echo muster: step=1; exit 3")
    done = subprocess.run(
        [*bare, "-m", "muster_report.agent", "--quiet", "--", *training],
        env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (3, "muster: step=1\n", "")


def test_no_file_is_in_both_wheels(tmp_path: Path) -> None:
    wheels = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheels, "--wheel-dir", tmp_path, FOLDER.parents[1], FOLDER], check=True, timeout=120)
    files = {}
    for wheel in tmp_path.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            files[wheel.name.partition("-")[0]] = {
                name for name in packed.namelist() if ".dist-info/" not in name
            }
    assert {name: {file.partition("/")[0] for file in found} for name, found in files.items()} == {
        "muster_scheduler": {"muster", "muster_plugins"},
        "muster_report": {"muster_report"},
    }
    sources = {str(one.relative_to(FOLDER)) for one in (FOLDER / "muster_report").rglob("*.py")}
    assert sources <= files["muster_report"]
