"""What CI calls: `.ci/run` and the workflows work by targets that `make help` lists, and name what they lack."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from e2e.lab import versions
from e2e.lacks import LACKS

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
TARGET = re.compile(r"\bmake (?:-s )?([a-z0-9][a-z0-9-]*)")
TESTS = {"unit", "e2e", "test", "e2e-kind"}
"""Targets that run tests."""


def jobs() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """Each job of the workflows by a name, with the commands of its steps."""
    for file in WORKFLOWS:
        for name, job in yaml.safe_load(file.read_text())["jobs"].items():
            yield f"{file.stem}: {name}", job, [step["run"] for step in job["steps"] if "run" in step]


def listed() -> set[str]:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in told.splitlines() if line.startswith("  ")}


def test_what_the_workflows_and_ci_run_call_is_listed_by_make_help() -> None:
    commands = [command for _, _, run in jobs() for command in run] + [(ROOT / ".ci" / "run").read_text()]
    called = {target for command in commands for target in TARGET.findall(command)}
    assert {"setup", "check", "check-workflows", "unit", "e2e", "e2e-kind", "image-push"} <= called
    assert called - listed() == set()


def test_each_step_is_a_make_target_or_the_debian_packages() -> None:
    others = [
        (name, one) for name, _, run in jobs() for one in run if not one.startswith((".ci/packages", "make "))
    ]
    assert others == []
    for _, _, run in jobs():
        for command in run:
            if command.startswith(".ci/packages"):
                assert set(command.split()[1:]) <= {"lab", "kind"}


def test_a_job_names_only_what_a_machine_may_lack_and_only_where_it_runs_tests() -> None:
    runs_tests = {}
    for name, job, run in jobs():
        lacking = set(job.get("env", {}).get("LACKS", "").split())
        assert lacking <= LACKS.keys(), name
        if tests := TESTS & {target for command in run for target in TARGET.findall(command)}:
            runs_tests[name] = (tests, lacking)
        else:
            assert not lacking, name
    # traces are no part of the repository; kind's scenarios need none of it
    assert runs_tests == {
        "ci: unit": ({"unit"}, {"traces"}),
        "ci: lab": ({"e2e"}, {"traces"}),
        "ci: kind": ({"e2e-kind"}, set()),
        "release: test": ({"unit"}, {"traces"}),
    }


def test_ci_run_lacks_nothing() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^export CI=\$\{CI:-true\}", text, re.MULTILINE)
    assert re.search(r"^unset LACKS\b", text, re.MULTILINE)


def test_kind_is_tried_on_each_supported_kubernetes_and_checked_for_the_same() -> None:
    [(job, run)] = [(job, run) for name, job, run in jobs() if name == "ci: kind"]
    assert job["strategy"]["matrix"]["kubernetes"] == versions.supported()
    of_kind = [command for command in run if "kind" in command]
    assert [command.split()[1] for command in of_kind] == ["kind-check", "e2e-kind"]
    assert all("K8S=${{ matrix.kubernetes }}" in command for command in of_kind)


def test_a_group_of_packages_that_there_is_not_is_an_error() -> None:
    done = subprocess.run([ROOT / ".ci" / "packages", "labs"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, ".ci/packages: expected lab or kind, found labs\n")
