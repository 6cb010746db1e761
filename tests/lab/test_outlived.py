"""Muster's container on kind outlives a Muster with faults, and is the chart's own again without."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kind import inside, outlived
from tests.muster_played import until

PROBE = {"httpGet": {"path": "/healthz", "port": "service", "scheme": "HTTPS"}}
CONTAINER = {
    "name": "muster",
    "args": ["serve"],
    "env": [{"name": "ITS_OWN", "value": "1"}],
    "startupProbe": PROBE | {"failureThreshold": 150},
    "livenessProbe": PROBE | {"failureThreshold": 3},
}
FAULTS = {"MUSTER_FAULTS": "die after 0 POST gangs"}
ENV = [{"$patch": "replace"}, {"name": "ITS_OWN", "value": "1"}]
DIED = "101 1 sleep\n40 7 sh\n"
"""What ps tells of its node: a container's first process may have the greater number."""


def manifest(**spec: Any) -> str:
    objects = [
        {"kind": "Service", "metadata": {"name": "muster"}},
        {
            "kind": "Deployment",
            "metadata": {"name": "muster"},
            "spec": {"template": {"spec": spec}},
        },
    ]
    return "---\n# nothing\n---\n" + yaml.safe_dump_all(objects)


BESIDE = manifest(
    initContainers=[{"name": "check"}, CONTAINER],
    containers=[{"name": "kube-scheduler"}],
)
ALONE = manifest(containers=[CONTAINER])


@pytest.mark.parametrize(("chart", "place"), [(BESIDE, "initContainers"), (ALONE, "containers")])
def test_with_faults_a_shell_runs_muster_and_no_probe_ends_it(chart: str, place: str) -> None:
    ((found, [container]),) = outlived.of_deployment(chart, FAULTS).items()
    assert found == place
    assert container == {
        "name": "muster",
        "env": [*ENV, {"name": "MUSTER_FAULTS", "value": "die after 0 POST gangs"}],
        "command": [*outlived.COMMAND],
        "livenessProbe": None,
        "startupProbe": {"httpGet": {"path": "/metrics", "port": "service", "scheme": "HTTPS"}},
    }


@pytest.mark.parametrize("env", [{}, {"OTHER": "x"}])
def test_without_faults_all_is_as_the_chart_has_it(env: dict[str, str]) -> None:
    [container] = outlived.of_deployment(BESIDE, env)["initContainers"]
    assert container == {
        "name": "muster",
        "env": [*ENV, *({"name": key, "value": value} for key, value in env.items())],
        "command": None,
        "livenessProbe": CONTAINER["livenessProbe"],
        "startupProbe": CONTAINER["startupProbe"],
    }


@pytest.mark.parametrize(
    ("listed", "pid", "died"),
    [
        ("", None, False),
        ("40 7 sh\n", None, False),
        ("9 40 muster\n 40 7 sh\n  51 9 python3\n", 9, False),
        ("40 7 sh\n41 40 sleep\n", None, True),
    ],
    ids=["no container yet", "about to start", "runs", "has died"],
)
def test_what_runs_in_the_container_says_whether_muster_has_died(
    listed: str, pid: int | None, died: bool
) -> None:
    processes = inside.parsed(listed)
    found = outlived.muster(processes)
    assert (found and found.pid, outlived.has_died(processes)) == (pid, died)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The container's command, around a Muster that says its number, its arguments, and that it was told to end."""
    program = tmp_path / "muster"
    program.write_text("#!/bin/sh\ntrap 'echo told; exit' TERM\necho $$ $*\nsleep infinity & wait\n")
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [*outlived.COMMAND, "serve", "it"]
    with subprocess.Popen(
        command, env=os.environ | path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        yield process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def processes(first: int) -> list[inside.Process]:
    """This one and its children."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            pid, name, _, parent, *_ = file.read_text().replace("(", "").replace(")", "").split()
            if first in (int(pid), int(parent)):
                found.append(f"{pid} {parent} {name}")
    return inside.parsed("\n".join(found))


def said(container: subprocess.Popen[str]) -> str:
    assert container.stdout
    return container.stdout.readline().strip()


def test_a_container_whose_muster_has_killed_itself_stays_and_ends_when_it_is_told_to(
    container: subprocess.Popen[str],
) -> None:
    number, *arguments = said(container).split()
    assert arguments == ["serve", "it"]
    os.kill(int(number), signal.SIGKILL)

    until(lambda: outlived.has_died(processes(container.pid)), "the shell goes on beside a sleep")
    assert container.poll() is None
    container.terminate()
    assert container.wait() == 0


def test_a_muster_in_a_container_that_is_told_to_end_is_told_first(container: subprocess.Popen[str]) -> None:
    said(container)
    container.terminate()
    assert said(container) == "told"
    assert container.wait() == 0
