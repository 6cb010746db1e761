"""What a release is made of: each package of the image is pinned by version and hash, and the SBOM names it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "config"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")


def name_of(text: str) -> str:
    return re.sub(r"[-_.]+", "-", text).lower()


def pins(file: str) -> dict[str, str]:
    found = map(PIN.match, (CONFIG / file).read_text().splitlines())
    return {name_of(one[1]): one[2] for one in found if one is not None}


@pytest.mark.parametrize("file", ["requirements.txt", "build-requirements.txt"])
def test_each_package_of_the_image_has_the_pinned_version_and_hashes(file: str) -> None:
    text = (CONFIG / file).read_text()
    packages = pins(file)
    pinned = pins("constraints.txt")
    assert packages
    assert {name: version for name, version in packages.items() if pinned.get(name) != version} == {}
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert "://" not in text, "no address of a registry"


def test_what_muster_needs_is_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {name_of(re.split(r"[<>=!~; \[]", one)[0]) for one in project["project"]["dependencies"]}
    assert needed - {"muster-report"} <= pins("requirements.txt").keys(), "make requirements"
    assert {name_of(one) for one in project["build-system"]["requires"]} <= pins(
        "build-requirements.txt"
    ).keys()


def test_both_distributions_have_one_version_and_one_asks_for_the_other_in_it() -> None:
    main, report = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
        for folder in (".", "extender/report")
    )
    assert (main["name"], report["name"]) == ("muster-scheduler", "muster-report")
    assert f"muster-report=={report['version']}" in main["dependencies"]
    assert main["version"] == report["version"]
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "extender" / "report" / "LICENSE").read_bytes()


def test_chart_and_pages_name_the_version_that_is_released() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = (ROOT / "charts" / "muster" / "Chart.yaml").read_text()
    assert re.findall(r"^(?:version|appVersion): (\S+)$", chart, re.MULTILINE) == [version, version]
    pages = [ROOT / "README.md", ROOT / "Dockerfile", *ROOT.glob("config/*.md"), *ROOT.glob("charts/**/*.md")]
    named = {page: re.findall(r"\bmuster:(\d+\.\d+\.\d+)\b", page.read_text()) for page in pages}
    assert {page for page, versions in named.items() if set(versions) - {version}} == set()
    assert named[ROOT / "README.md"], "the pages say nothing any more"
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_image_installs_nothing_without_a_hash() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = [
        part
        for line in text.splitlines()
        if line.startswith("RUN")
        for part in line.split("&&")
        if " install " in part
    ]
    assert len(installs) == 3
    for one in installs:
        assert ("--require-hashes" in one) != ("--no-deps /wheels/*.whl" in one), one


def test_the_sbom_names_each_package_and_its_version(tmp_path: Path) -> None:
    file = tmp_path / "muster.cdx.json"
    command = ["requirements", "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"]
    program = Path(sys.executable).parent / "cyclonedx-py"
    subprocess.run(
        [program, *command, "--output-file", str(file), str(CONFIG / "requirements.txt")],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    found = json.loads(file.read_text())
    assert (found["bomFormat"], found["metadata"]["component"]["name"]) == ("CycloneDX", "muster-scheduler")
    assert {name_of(one["name"]): one["version"] for one in found["components"]} == pins("requirements.txt")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ((), 0),
        (("RELEASE=1",), 2),
        (("RELEASE=1", "BASE=python:3.11-slim"), 2),
        (("RELEASE=1", "BASE=python:3.11-slim@sha256:0123"), 0),
    ],
)
def test_a_release_wants_its_base_by_digest(given: tuple[str, ...], code: int) -> None:
    done = subprocess.run(["make", "base", *given], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert ("needs BASE by digest" in done.stderr) == bool(code)


def test_what_the_image_is_built_from_reaches_its_builder() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    lines = [
        line.split()[1:-1]
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY")
    ]
    assert {one for line in lines for one in line if not one.startswith(("--from", "/"))} == kept
