"""config/quickstart.md, block by block, as it stands: what a new user copies and pastes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.lab import Lab, NodeGroup, Shape, build
from e2e.lab.chart import muster_program
from e2e.lab.places import CHECKOUT
from e2e.lab.versions import binaries
from e2e.scenario import wait_until

OWN_LAB = "are the quickstart, which installs Muster"
pytestmark = pytest.mark.lab

PAGE = CHECKOUT / "config" / "quickstart.md"
BLOCK = re.compile(r"(?:^<!-- run: (\w+) -->\n)?^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPT_IN = CHECKOUT / "config" / "opt-in.yaml"


@dataclass(frozen=True)
class Block:
    """run: "" for a block that runs anywhere; kind: needs Docker; no: changes what the reader has; render: is only
    rendered here, since the lab has the chart already. shows: what the page says that it prints."""

    run: str
    text: str
    shows: str = ""


def blocks() -> list[Block]:
    found: list[Block] = []
    for run, language, text in BLOCK.findall(PAGE.read_text()):
        if language == "text":
            found[-1] = Block(found[-1].run, found[-1].text, text)
        else:
            found.append(Block(run, text))
    return found


def rows(text: str) -> Iterator[dict[str, str]]:
    """Lines of a table of kubectl's, by column; columns begin where their names do."""
    header, *lines = text.splitlines() or [""]
    starts = [(found.start(), found[0]) for found in re.finditer(r"\S+", header)]
    ends = [start for start, _ in starts[1:]] + [None]
    for line in lines:
        yield {name: line[start:end].strip() for (start, name), end in zip(starts, ends, strict=True)}


def shows(output: str, expected: str) -> bool:
    """Whether each row of the page is in the output, as far as the page shows its columns; a line that begins with
    "Name:" as it is."""
    if re.match(r"\w+:", expected):
        return set(expected.splitlines()) <= set(output.splitlines())
    there = list(rows(output))
    return all(any(row.items() <= one.items() for one in there) for row in rows(expected))


@pytest.fixture
def shell(tmp_path: Path) -> Callable[[Lab, str], str]:
    """A user's shell in the checkout: the lab's kubectl and helm, a kubeconfig of their own."""
    programs = {name: build.find(binaries()[name]) for name in ("kubectl", "helm")} | {
        "muster": muster_program()
    }
    (tmp_path / "bin").mkdir()
    for name, program in programs.items():
        (tmp_path / "bin" / name).symlink_to(program)
    kubeconfig = tmp_path / "kubeconfig"
    homes = {f"HELM_{kind}_HOME": str(tmp_path / "helm") for kind in ("CACHE", "CONFIG", "DATA")}

    def run(lab: Lab, text: str) -> str:
        if not kubeconfig.exists():
            kubeconfig.write_bytes(lab.kubeconfig.read_bytes())
            kubeconfig.chmod(0o600)
        own = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=CHECKOUT,
            env=os.environ | homes | own | {"REGISTRY": "registry.example"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\nexited {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.mark.timeout(900)
def test_the_quickstart_runs_as_it_stands(
    new_lab: Callable[..., Lab], shell: Callable[[Lab, str], str]
) -> None:
    lab = new_lab(Shape(groups=(NodeGroup(1, gpus=4),), values=(str(OPT_IN),)))
    ran = 0
    for block in blocks():
        if block.run == "render":
            assert "--wait" in block.text
            rendered = shell(lab, block.text.replace("--wait", "--dry-run=server"))
            assert "schedules pods with schedulerName: muster (mode active" in rendered
        if block.run:
            continue
        if "helm uninstall" in block.text:  # the Deployment goes with the release, and with it these
            lab.stop("kube-scheduler-0")
            lab.stop("muster-0")
        if block.shows:
            wait_until(
                lambda block=block: shows(shell(lab, block.text), block.shows),
                what=f"{block.text} shows\n{block.shows}",
                also=lambda block=block: shell(lab, block.text),
            )
        else:
            shell(lab, block.text)
        if "helm upgrade" in block.text:
            lab.roll_out()
        ran += 1
    assert ran > 10, "the page has its blocks"
    assert "muster-gate" not in lab.kubectl("get", "validatingadmissionpolicies", "-o", "name")


def test_a_table_is_compared_by_the_columns_that_the_page_shows() -> None:
    told = "NAME    STATE     AGE   MESSAGE\njob-a   Waiting   3s    needs 2 GPUs\n"
    assert shows(told, "NAME    MESSAGE\njob-a   needs 2 GPUs\n")
    assert not shows(told, "NAME    STATE\njob-a   Running\n")
    assert not shows(told, "NAME    STATE\njob-b   Waiting\n")
