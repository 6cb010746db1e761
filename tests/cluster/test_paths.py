"""Names become paths in one place, and no name reaches another path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import muster.cluster
from muster.cluster.paths import path, segment
from muster.errors import InputError


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("v1", "pods"), "/api/v1/pods"),
        (("v1", "pods", "team", "train-0", "eviction"), "/api/v1/namespaces/team/pods/train-0/eviction"),
        (("batch/v1", "jobs", "team", "train"), "/apis/batch/v1/namespaces/team/jobs/train"),
        (("jobset.x-k8s.io/v1alpha2",), "/apis/jobset.x-k8s.io/v1alpha2"),
        (("v1", "persistentvolumes", "", "pv:1"), "/api/v1/persistentvolumes/pv:1"),
    ],
)
def test_a_path_of_the_api(parts: tuple[str, ...], expected: str) -> None:
    assert path(*parts) == expected


@pytest.mark.parametrize(
    "parts",
    [
        ("../healthz", "pods"),
        ("batch/v1/../..", "jobs"),
        ("batch/v1?x", "jobs"),
        ("", "pods"),
        ("batch/", "jobs"),
        ("batch", "jobs"),
        ("v1", "../secrets"),
        ("v1", "pods", "../kube-system"),
        ("v1", "pods", "Team"),
        ("v1", "pods", "team", "../../../../../healthz"),
        ("v1", "pods", "team", ".."),
        ("v1", "pods", "team", "a%2fb"),
        ("v1", "pods", "team", "a?b"),
        ("v1", "pods", "team", "a\r\nHost: b"),
        ("v1", "pods", "team", "x" * 254),
        ("v1", "pods", "team", "x", "log/.."),
    ],
)
def test_what_can_be_no_path_is_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(InputError):
        path(*parts)


def test_a_name_is_one_segment() -> None:
    assert segment("käse") == "k%C3%A4se"


def test_nobody_else_in_cluster_makes_paths_of_names() -> None:
    folder = Path(muster.cluster.__file__).parent
    made = re.compile(r'f"/apis?/[^"]*\{|urllib\.parse')
    found = [file.name for file in sorted(folder.glob("*.py")) if made.search(file.read_text())]
    assert found == ["paths.py"]
