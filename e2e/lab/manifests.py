"""What lies in a Go module for kustomize: objects, and the patches of CRDs and webhooks that a lab needs.

Kustomize is not here. Read are a kustomization's own lists of patches, of which a lab takes two kinds: the conversion
of a CRD's versions, and the namespaces that a webhook leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e2e.lab import libyaml
from e2e.lab.api import Json


def objects(where: Path, kind: str = "") -> Iterator[dict[str, Any]]:
    """The objects of a YAML file, or of a folder's files; of one kind, where it is given."""
    for file in sorted(where.glob("*.yaml")) if where.is_dir() else [where]:
        for found in libyaml.load_all(file.read_text()):
            if found and kind in ("", found.get("kind")):
                yield found


def conversions(kustomization: Path) -> dict[str, Json]:
    """`spec.conversion` by CRD's name, of the patches that this kustomization.yaml names."""
    return {
        patch["metadata"]["name"]: patch["spec"]["conversion"]
        for patch in _patches(kustomization)
        if "conversion" in patch.get("spec", {})
    }


def namespace_selectors(kustomization: Path) -> dict[str, Json]:
    """`namespaceSelector` by webhook's name, of the patches in this kustomization.yaml."""
    return {
        webhook["name"]: webhook["namespaceSelector"]
        for patch in _patches(kustomization)
        for webhook in patch.get("webhooks", ())
        if "namespaceSelector" in webhook
    }


def _patches(kustomization: Path) -> Iterator[Json]:
    for one in libyaml.load(kustomization.read_text()).get("patches") or ():  # or none of its lines is in use
        text = one["patch"] if "patch" in one else (kustomization.parent / one["path"]).read_text()
        yield libyaml.load(text)
