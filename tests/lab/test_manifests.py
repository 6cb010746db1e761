"""What a lab reads of a module's kustomizations."""

from __future__ import annotations

from pathlib import Path

from e2e.lab.manifests import conversions, namespace_selectors, objects

PATCH = """\
kind: CustomResourceDefinition
metadata: {name: queues.example.com}
spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1]}}}
"""
INLINE = """\
patches:
- patch: |-
    kind: MutatingWebhookConfiguration
    webhooks:
    - {name: pods.example.com, namespaceSelector: {matchLabels: {a: b}}}
    - {name: jobs.example.com, timeoutSeconds: 5}
"""


def test_conversions_are_those_of_the_patches_that_the_kustomization_names(tmp_path: Path) -> None:
    (tmp_path / "named.yaml").write_text(PATCH)
    (tmp_path / "left-out.yaml").write_text(PATCH.replace("queues", "flavors"))
    file = tmp_path / "kustomization.yaml"
    file.write_text("patches:\n- path: named.yaml\n#- path: left-out.yaml\n")
    assert conversions(file) == {
        "queues.example.com": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}
    }


def test_a_kustomization_whose_patches_are_all_left_out_patches_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kustomization.yaml"
    file.write_text("patches:\n#- path: left-out.yaml\n")
    assert conversions(file) == {}


def test_namespaces_are_selected_where_a_patch_says_so(tmp_path: Path) -> None:
    file = tmp_path / "kustomization.yaml"
    file.write_text(INLINE)
    assert namespace_selectors(file) == {"pods.example.com": {"matchLabels": {"a": "b"}}}
    assert conversions(file) == {}


def test_objects_of_a_folder_are_those_of_a_kind(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: A\n---\n---\nkind: B\n")
    (tmp_path / "b.yaml").write_text("kind: A\nmetadata: {name: second}\n")
    assert [one["kind"] for one in objects(tmp_path)] == ["A", "B", "A"]
    assert [one.get("metadata") for one in objects(tmp_path, "A")] == [None, {"name": "second"}]
