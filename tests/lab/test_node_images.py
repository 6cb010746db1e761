"""kind's own node images: those of the kind that is pinned, one for each Kubernetes that is supported, by digest."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field

import pytest

from e2e.kind import images, node_images, possible
from e2e.kind.node_images import NODE_IMAGES
from e2e.lab import versions


@dataclass
class Docker:
    """What is asked of Docker and its registry."""

    cgroup: str = "2\n"
    has: Container[str] = frozenset(NODE_IMAGES.values())
    asked: list[str] = field(default_factory=list)

    def pulled(self, name: str) -> bool:
        self.asked.append(name)
        return name in self.has


def test_the_table_is_of_the_kind_that_is_pinned() -> None:
    assert versions.kind_itself().version == node_images.RELEASE, "a new kind wants its own images here"


def test_each_supported_kubernetes_has_an_image_of_its_minor_version_by_digest() -> None:
    assert sorted(NODE_IMAGES) == sorted(versions.supported())
    for minor, image in NODE_IMAGES.items():
        assert re.fullmatch(rf"kindest/node:v{re.escape(minor)}\.\d+@sha256:[0-9a-f]{{64}}", image), image


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Docker:
    """A Docker on cgroup v2 whose registry has everything."""
    found = Docker()
    monkeypatch.setattr(node_images, "pulled", found.pulled)
    monkeypatch.setattr(node_images, "docker", lambda *_: found.cgroup)
    return found


@pytest.mark.parametrize("minor", ["1.34", "1.35", "1.36", "1.37"])
def test_it_is_what_kind_is_given_where_its_registry_has_it(minor: str, registry: Docker) -> None:
    assert images.node_image(minor) == NODE_IMAGES[minor]
    assert registry.asked == [NODE_IMAGES[minor]]
    assert images.node_image(minor, "my/node:1") == "my/node:1"


def test_on_cgroup_v1_one_is_built_where_the_kubelet_would_refuse(
    registry: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "built_node_image", lambda minor: f"built for {minor}")
    registry.cgroup = "1\n"
    assert images.node_image("1.37") == "built for 1.37"
    assert registry.asked == []
    assert images.node_image("1.34") == NODE_IMAGES["1.34"]


def test_a_version_that_is_not_built_here_can_run_only_where_it_is_pulled(
    registry: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(possible.engine, "why_not", lambda: "")
    monkeypatch.setattr(possible, "_privileged", lambda: None)
    monkeypatch.setattr(possible, "has_image", lambda _: False)
    registry.has = {NODE_IMAGES["1.35"]}
    assert possible.why_not("1.35") == ""
    assert possible.why_not("1.34").endswith("kind's node image with K8S=1.34: it is built for 1.37 only")
