"""Which skips are failures with CI=true: all, but those for what the run names in LACKS, and for what another cluster
or an operator that was never built excuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import browser, lacks
from e2e.lab import podnet, realnode
from e2e.lab.places import CHECKOUT
from e2e.lacks import LACKS

A_TEST = """
import pytest

def test_of_a_trace():
    pytest.skip("no folder of traces: set TRACES to one")

@pytest.mark.skipif(True, reason="needs nginx: apt-get install nginx")
def test_of_nginx():
    pass

def test_elsewhere():
    pytest.skip("not on kind: ports of processes on this machine")

def test_that_runs():
    pass

@pytest.mark.xfail
def test_that_is_known_to_fail():
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("environment", "failed", "skipped"),
    [
        ({}, [], ["elsewhere", "of_a_trace", "of_nginx"]),
        ({"CI": "true"}, ["of_a_trace", "of_nginx"], ["elsewhere"]),
        ({"CI": "true", "LACKS": "traces"}, ["of_nginx"], ["elsewhere", "of_a_trace"]),
    ],
)
def test_with_ci_a_skip_is_a_failure_unless_the_run_names_what_is_lacking(
    environment: dict[str, str], failed: list[str], skipped: list[str], tmp_path: Path
) -> None:
    done = run(A_TEST, environment, tmp_path)
    assert outcomes(done.stdout, "FAILED", "ERROR") == failed, done.stdout
    assert outcomes(done.stdout, "SKIPPED") == skipped, done.stdout
    assert done.returncode == bool(failed)
    assert "1 xfailed" in done.stdout


def test_a_name_that_there_is_not_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    done = run(A_TEST, {"LACKS": "trace root"}, tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "LACKS=trace root: expected names of chromium, nginx, root" in done.stderr
    assert "found trace" in done.stderr


def test_each_skip_for_a_lack_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_: None)
    missing = {"chromium": browser.missing(), "root": podnet.why_not()}
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for name, reason in [*missing.items(), ("root", realnode.why_not())]:
        assert reason
        assert [one for one in LACKS if lacks.permitted(reason, [one])] == [name], reason


def test_operators_that_were_never_built_and_other_clusters_excuse_a_skip() -> None:
    assert lacks.permitted("not built: make lab-build OPERATORS=lws", [], unbuilt=True)
    assert not lacks.permitted("not built: make lab-build OPERATORS=lws", LACKS)
    assert lacks.permitted("starts a lab, and E2E_KUBECONFIG names another cluster", [])
    assert not lacks.permitted("no reason that anybody knows", LACKS)


def run(tests: str, environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A session of its own with the checkout's conftest.py; colours and the session around it are left out."""
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    left_out = ("CI", "LACKS", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    own = {"PYTHONPATH": f"{CHECKOUT}{os.pathsep}{CHECKOUT / 'extender'}", "TRACES": str(folder)}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "conftest", "-p", "no:cacheprovider", "test_it.py"]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder, env=inherited | own | environment
    )


def outcomes(text: str, *wanted: str) -> list[str]:
    """Names of the tests that ended so, from lines like `test_it.py::test_of_nginx SKIPPED (...)`."""
    lines = [line.split() for line in text.splitlines() if line.startswith("test_it.py::test_")]
    return sorted(words[0].removeprefix("test_it.py::test_") for words in lines if words[1] in wanted)
