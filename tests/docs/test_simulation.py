"""What `muster simulate --json` prints is defined in sim/README.md, each figure by its name."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from muster.cli import main
from tests.docs.reference import TOP

PAGE = (TOP / "extender" / "muster" / "sim" / "README.md").read_text()
FIGURES = set(re.findall(r"`(\w+)`", PAGE.partition("## Figures\n")[2].partition("\n## ")[0]))


@pytest.mark.parametrize(
    ("profile", "engine"), [("tide", ()), ("tide", ("--fluid",)), ("kube-default", ())], ids=str
)
def test_each_figure_is_defined(profile: str, engine: tuple[str, ...]) -> None:
    trace = TOP / "config" / "samples" / "traces" / "jobs.csv"
    words = ["simulate", "--profile", profile, "--trace", str(trace), "--gpus", "8", "--gpus-per-node", "4"]
    done = CliRunner().invoke(main, [*words, *engine, "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    [told] = json.loads(done.stdout).values()
    assert set(told) - FIGURES == set()
