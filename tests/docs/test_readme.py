"""The front page: short, and what it shows is what Muster prints."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import Any

import yaml

from e2e.demo.__main__ import main as demo
from muster.types import WriteGang
from tests.chart.test_chart import helm
from tests.cluster_fake import FakeCluster, Muster
from tests.docs.reference import TOP

README = (TOP / "README.md").read_text()


def block(begins: str) -> list[str]:
    """The lines of the code block that begins so."""
    found = re.search(rf"```[a-z]*\n({re.escape(begins)}.*?)```", README, re.S)
    assert found is not None, begins
    return found[1].splitlines()


def kubectl(gangs: dict[str, dict[str, Any]], ages: dict[str, str]) -> list[str]:
    """`kubectl get gangs`: the columns of the CRD (priority 0), three spaces apart."""
    crd = (TOP / "charts/muster/templates/crd.yaml").read_text()
    listed = re.search(r"additionalPrinterColumns:\n((?:    - .*\n)+)", crd)
    assert listed is not None
    columns = [c for c in yaml.safe_load(listed[1]) if not c.get("priority")]
    rows = [["NAME", *(c["name"].upper() for c in columns)]]
    for name, status in sorted(gangs.items()):
        cells = [
            ages[name] if c["name"] == "Age" else status.get(c["jsonPath"].rpartition(".")[2])
            for c in columns
        ]
        rows.append([name, *("" if cell is None else str(cell) for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def test_the_readme_fits_in_six_kilobytes() -> None:
    assert len(README.encode()) <= 6 * 1024


def test_its_picture_is_small_and_the_demo_takes_it() -> None:
    assert (TOP / ".github" / "page.png").stat().st_size < 100_000
    assert "--page .github/page.png" in README
    assert "--page" in {option for one in demo.params for option in one.opts}


def test_the_two_commands_stand_in_it() -> None:
    assert [line.split("#")[0].strip() for line in block("make demo")] == ["make demo", "make test"]


def test_its_job_of_twelve_lines_gets_the_gang_that_it_shows() -> None:
    lines = block("apiVersion: batch/v1")
    assert len(lines) == 12
    spec = yaml.safe_load("\n".join(lines))["spec"]
    [container] = spec["template"]["spec"]["containers"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]

    cluster = FakeCluster(nodes=16, gpus=8)
    cluster.job("train", spec["completions"], gpus)
    muster = Muster(cluster)
    muster.settle()
    cluster.now += 177
    muster.settle()
    cluster.job("big", 16, 8)
    cluster.now += 3
    muster.settle()
    gangs = {a.gang: dict(a.status) for a in cluster.sent if isinstance(a, WriteGang)}
    command, *shown = block("$ kubectl get gangs")
    assert command == "$ kubectl get gangs"
    assert shown == kubectl(gangs, {"job-big": "3s", "job-train": "3m"})


def test_its_command_installs_the_chart() -> None:
    push, install = block("docker build")
    assert push.split()[-1].rpartition(":")[0] == install.split("image.repository=")[1]
    words = shlex.split(install)
    assert words[:2] == ["helm", "install"]
    words = [word for word in words[2:] if word != "--create-namespace"]
    done = subprocess.run(
        [helm(), "template", *words, "--kube-version=v1.37.1"],
        cwd=TOP, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "kind: Deployment" in done.stdout
