"""What the release's targets (config/release.mk) give to docker, cosign, helm and gh: programs of these names, first
on PATH, write down what they are called with and answer as the real ones do. Nothing is built, and nothing leaves."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
VERSION = yaml.safe_load((ROOT / "charts" / "muster" / "Chart.yaml").read_text())["version"]
BASE, IMAGE, CHART = (f"sha256:{digit * 64}" for digit in "abc")
STUB = """#!/bin/sh
printf '%s' "${0##*/}" >> calls; printf '\\t%s' "$@" >> calls; printf '\\n' >> calls
"""
ANSWERS = {
    "docker": f"""case "$*" in
*imagetools*) echo {BASE};;
*"buildx build"*) echo '{{"containerimage.digest": "{IMAGE}"}}' > out/image.json;;
esac
""",
    "cosign": '[ "$COSIGN_YES" = true ]  # else it asks, and nobody answers\n',
    "helm": f"""case "$1" in
package) touch out/chart/muster-{VERSION}.tgz;;
push) echo "Pushed: ghcr.io/me/charts/muster:{VERSION}" >&2; echo "Digest: {CHART}" >&2;;
esac
""",
    "gh": "",
}
Calls = list[list[str]]


@dataclass
class Release:
    """A checkout whose `out` is its own, and what its programs were called with."""

    folder: Path

    def answers(self, program: str, script: str) -> None:
        file = self.folder / "bin" / program
        file.write_text(STUB + script)
        file.chmod(0o755)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        rest = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL")}
        others = [one for one in os.environ["PATH"].split(":") if not (Path(one) / "cosign").exists()]
        given = {"PATH": ":".join([str(self.folder / "bin"), *others]), "REGISTRY": "ghcr.io/me"}
        given |= {"MAKEFLAGS": "-- helm=helm", "GITHUB_OUTPUT": "", "SOURCE": "https://github.com/me/muster"}
        words = ["bash", "-ec", command]
        return subprocess.run(
            words, cwd=self.folder, env=rest | given, capture_output=True, text=True, check=False
        )

    def calls(self) -> Calls:
        """Since the last look."""
        file = self.folder / "calls"
        found = [line.split("\t") for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return found


@pytest.fixture
def release(tmp_path: Path) -> Release:
    for name in ("Makefile", "CHANGELOG.md", "pyproject.toml", "charts", "config", "e2e", "extender"):
        (tmp_path / name).symlink_to(ROOT / name)
    venv = tmp_path / ".venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(sys.executable)
    (venv.parent / ".made").touch()  # newer than what it is made from
    (tmp_path / "bin").mkdir()
    made = Release(tmp_path)
    for program, script in ANSWERS.items():
        made.answers(program, script)
    return made


PUSHED = [
    shlex.split("docker buildx imagetools inspect python:3.11-slim --format {{.Manifest.Digest}}"),
    shlex.split(
        f"docker buildx build --platform linux/amd64,linux/arm64 --build-arg BASE=python:3.11-slim@{BASE} "
        f"--sbom=true --provenance=mode=max --metadata-file out/image.json --tag ghcr.io/me/muster:{VERSION} --push ."
    ),
]
SIGNED = [
    ["cosign", "sign", f"ghcr.io/me/muster@{IMAGE}"],
    shlex.split(f"cosign attest --type cyclonedx --predicate out/muster.cdx.json ghcr.io/me/muster@{IMAGE}"),
]
CHARTED = [
    ["helm", "package", "out/chart/muster", "--destination", "out/chart"],
    ["helm", "push", f"out/chart/muster-{VERSION}.tgz", "oci://ghcr.io/me/charts"],
    ["cosign", "sign", f"ghcr.io/me/charts/muster@{CHART}"],
]


def test_the_workflows_steps_push_sign_and_publish_what_the_steps_before_made(release: Release) -> None:
    """Each step of .github/workflows/release.yaml that is a release's, as it stands; GitHub's words are filled in."""
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yaml").read_text())["jobs"]
    output = release.folder / "output"
    for name in ("muster.whl", f"muster-{VERSION}.tgz"):  # what actions/download-artifact lays there
        (release.folder / "out" / "release").mkdir(parents=True, exist_ok=True)
        (release.folder / "out" / "release" / name).touch()
    steps = [step for job in ("image", "chart", "github") for step in jobs[job]["steps"] if "run" in step]
    commands = [step["run"] for step in steps if step["run"] not in ("make setup", "make sbom")]
    assert [command.split()[1] for command in commands] == [
        "image-push", "image-sign", "chart", "chart-push", "release-notes", "release-publish",
    ]  # fmt: skip
    for command in commands:
        filled = re.sub(r"\$\{\{ github\.ref_name \}\}", f"v{VERSION}", command)
        told = dict(line.split("=", 1) for line in output.read_text().splitlines()) if output.exists() else {}
        filled = re.sub(r"\$\{\{ \w+\.\w+\.outputs\.(\w+) \}\}", lambda m, told=told: told[m[1]], filled)
        assert "${{" not in filled
        done = release.run(f"export GITHUB_OUTPUT={output}; {filled}")
        assert done.returncode == 0, done.stderr
    assert jobs["image"]["outputs"]["digest"] == "${{ steps.push.outputs.digest }}"
    assert output.read_text() == f"digest={IMAGE}\n"
    published = ["gh", "release", "create", f"v{VERSION}", f"out/release/muster-{VERSION}.tgz"]
    published += ["out/release/muster.whl", "--title", f"v{VERSION}", "--notes-file", "out/release-notes.md"]
    assert release.calls() == [*PUSHED, *SIGNED, *CHARTED, published]
    values = yaml.safe_load((release.folder / "out" / "chart" / "muster" / "values.yaml").read_text())
    assert values["image"]["repository"] == "ghcr.io/me/muster"
    assert values["image"]["digest"] == IMAGE
    notes = (release.folder / "out" / "release-notes.md").read_text()
    top = re.split(r"^## .*\n", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1]
    assert notes == top


def test_by_hand_the_images_digest_is_on_stdout_alone(release: Release) -> None:
    done = release.run('make image-push REGISTRY="$REGISTRY" PLATFORMS=linux/amd64')
    assert (done.returncode, done.stdout) == (0, f"{IMAGE}\n"), done.stderr
    assert "linux/amd64" in release.calls()[1]


@pytest.mark.parametrize(
    ("program", "answer", "target", "called"),
    [
        ("docker", "exit 1", "image-push", ["inspect"]),  # no registry answers
        ("docker", "exit 0", "image-push", ["inspect"]),  # it knows no digest
        ("docker", f"case $2 in imagetools) echo {BASE};; *) exit 1;; esac", "image-push", ["inspect", "build"]),
        ("cosign", "exit 1", f"image-sign DIGEST={IMAGE}", ["sign"]),
        ("helm", "echo 'Error: denied' >&2; exit 1", "chart-push", ["push"]),
        ("gh", "exit 1", f"release-publish TAG=v{VERSION}", ["create"]),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_the_end_of_its_step(
    release: Release, program: str, answer: str, target: str, called: list[str]
) -> None:
    release.answers(program, answer)
    done = release.run(f'make {target} REGISTRY="$REGISTRY" GITHUB_OUTPUT=told')
    assert (done.returncode, done.stdout) == (2, "")
    calls = release.calls()
    assert [{one[0] for one in calls}, len(calls)] == [{program}, len(called)]
    assert all(word in call for word, call in zip(called, calls, strict=True))
    assert not (release.folder / "told").exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("image-push", "REGISTRY= is missing"),
        ("image-sign", "REGISTRY= is missing"),
        ("image-sign REGISTRY=ghcr.io/me", "DIGEST= is missing (make image-push prints it)"),
        ("chart-push", "REGISTRY= is missing"),
    ],
)
def test_a_step_without_what_it_needs_says_so_and_calls_nothing(
    release: Release, target: str, said: str
) -> None:
    done = release.run(f"unset REGISTRY; make {target}")
    assert (done.returncode, said in done.stderr) == (2, True)
    assert release.calls() == []


def test_without_cosign_the_chart_is_pushed_and_not_signed(release: Release) -> None:
    (release.folder / "bin" / "cosign").unlink()
    (release.folder / "out" / "chart").mkdir(parents=True)
    (release.folder / "out" / "chart" / f"muster-{VERSION}.tgz").touch()
    done = release.run('make chart-push REGISTRY="$REGISTRY" HELM_PUSH=--plain-http')
    assert done.returncode == 0, done.stderr
    assert release.calls() == [[*CHARTED[1], "--plain-http"]]
