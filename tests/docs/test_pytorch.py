"""config/samples/pytorch/README.md, "In a cluster": who follows it has every file, object and name that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from muster.profiles import NAMED
from tests.docs.reference import TOP

FOLDER = TOP / "config" / "samples" / "pytorch"
SECTION = (FOLDER / "README.md").read_text().partition("## In a cluster\n")[2].partition("\n## ")[0]
COMMANDS = [re.findall(r"-f (\S+)", line) for line in re.findall(r"kubectl apply (.*)", SECTION)]
RIGID = [[*given[:-1], f"rigid-{given[-1]}"] for given in COMMANDS]
REFERENCES = {
    "claimName": "PersistentVolumeClaim",
    "subdomain": "Service",
    "runtimeRef": "ClusterTrainingRuntime",
}
"""Keys that name another object, and of which kind."""
Json = dict[str, Any]


def values(found: object) -> Iterator[tuple[str, Any]]:
    """Every key of an object and what it has, at any depth."""
    items = found if isinstance(found, list) else []
    if isinstance(found, dict):
        yield from found.items()
        items = list(found.values())
    for inner in items:
        yield from values(inner)


def applied(files: list[str]) -> list[Json]:
    return [each for file in files for each in yaml.safe_load_all((FOLDER / file).read_text())]


def test_every_file_that_the_section_names_is_there() -> None:
    assert len(COMMANDS) == 4
    copied = [one for line in re.findall(r"^COPY (.*) \S+$", SECTION, re.M) for one in line.split()]
    assert f"{(FOLDER / 'launch.sh').relative_to(TOP)}" in copied
    assert [one for one in copied if not (TOP / one).exists()] == []
    named = {*re.findall(r"`(\w[\w-]*\.\w+)`", SECTION), *(one for given in COMMANDS for one in given)}
    assert "claim.yaml" in named
    assert {one for one in named if not (FOLDER / one).is_file()} == set()


@pytest.mark.parametrize("files", [*COMMANDS, *RIGID], ids=lambda files: files[-1])
def test_what_an_object_refers_to_is_applied_with_it(files: list[str]) -> None:
    objects = applied(files)
    made = {(each["kind"], each["metadata"]["name"]) for each in objects}
    asked = {
        (REFERENCES[key], value["name"] if isinstance(value, dict) else value)
        for key, value in values(objects)
        if key in REFERENCES
    }
    assert ("PersistentVolumeClaim", "pytorch") in asked
    assert asked - made == set()


@pytest.mark.parametrize("files", [*COMMANDS, *RIGID], ids=lambda files: files[-1])
def test_pods_have_the_image_that_is_built_and_run_what_is_in_it(files: list[str]) -> None:
    found = list(values(applied(files)))
    [built] = re.findall(r"Build it from the top folder as `(\S+)`", SECTION)
    assert {value for key, value in found if key == "image"} == {built}
    programs = {
        word for key, value in found if key == "command" for word in value if re.search(r"\.(sh|py)$", word)
    }
    assert programs
    assert {one for one in programs if f"/{one} " not in SECTION} == set()


def test_any_node_may_mount_the_claim() -> None:
    [claim] = applied(["claim.yaml"])
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_profiles_that_it_names_share_gpus_and_the_charts_default_does_not() -> None:
    default = yaml.safe_load((TOP / "charts" / "muster" / "values.yaml").read_text())["profile"]
    assert f"The chart's default profile, `{default}`, shrinks no job" in SECTION
    assert not NAMED[default].shares
    named = re.findall(r"--set profile=([\w-]+)", SECTION)
    assert named == ["max-min", "afs-l"]
    assert all(NAMED[one].shares for one in named)
