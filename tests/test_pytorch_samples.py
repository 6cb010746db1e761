"""The manifests of config/samples/pytorch agree with themselves: what Muster reads is what torchrun is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.core.workload.identity import MAX, MIN

SAMPLES = Path(__file__).parents[1] / "config" / "samples" / "pytorch"
Json = dict[str, Any]


def objects(name: str) -> list[Json]:
    return list(yaml.safe_load_all((SAMPLES / name).read_text()))


def templates(found: object, above: tuple[Json, ...] = ()) -> Iterator[tuple[Json, tuple[Json, ...]]]:
    """Every pod template of an object, and what it is in, from the outside in."""
    if isinstance(found, list):
        for each in found:
            yield from templates(each, above)
    elif isinstance(found, dict):
        if "containers" in found.get("spec", {}):
            yield found, above
        for each in found.values():
            yield from templates(each, (*above, found))


def replicas(above: tuple[Json, ...]) -> int:
    return next(each[key] for each in reversed(above) for key in ("completions", "replicas") if key in each)


def environment(template: Json) -> dict[str, str]:
    (container,) = template["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


@pytest.mark.parametrize("file", ["job.yaml", "rigid-job.yaml", "jobset.yaml", "rigid-jobset.yaml"])
def test_torchrun_is_told_the_sizes_that_muster_is_told(file: str) -> None:
    (found,) = objects(file)
    ((template, above),) = templates(found)
    annotations = template["metadata"]["annotations"]
    whole = str(replicas(above))
    sizes = [annotations.get(MIN, whole), annotations.get(MAX, whole)]
    assert environment(template)["NODES"] == ":".join(dict.fromkeys(sizes))
    assert sizes[1] == whole


@pytest.mark.parametrize("file", ["trainjob.yaml", "rigid-trainjob.yaml"])
def test_a_trainjob_has_as_many_nodes_as_torchrun_is_told(file: str) -> None:
    runtime, job = objects(file)
    ((template, _),) = templates(runtime)
    whole = str(job["spec"]["trainer"]["numNodes"])
    least = template["metadata"]["annotations"].get(MIN, whole)
    told = {each["name"]: each["value"] for each in job["spec"]["trainer"]["env"]}
    assert told["NODES"] == ":".join(dict.fromkeys([least, whole]))
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]


@pytest.mark.parametrize("file", ["pytorchjob.yaml", "rigid-pytorchjob.yaml"])
def test_a_pytorchjobs_elastic_policy_says_what_muster_is_told(file: str) -> None:
    (found,) = objects(file)
    ((template, above),) = templates(found)
    policy, annotations = found["spec"]["elasticPolicy"], template["metadata"]["annotations"]
    told, whole = [str(policy[key]) for key in ("minReplicas", "maxReplicas")], str(replicas(above))
    assert told == [annotations.get(MIN, whole), annotations.get(MAX, whole)]
    assert told[1] == whole


@pytest.mark.parametrize("kind", ["job", "jobset", "trainjob", "pytorchjob"])
def test_each_kind_has_an_elastic_and_a_rigid_file(kind: str) -> None:
    """rigid: nothing says that it has another size, and all of it decides how it ends."""
    elastic, rigid = (yaml.safe_dump_all(objects(f"{name}.yaml")) for name in (kind, f"rigid-{kind}"))
    assert MIN in elastic
    assert not {word for word in (MIN, MAX, "successPolicy") if word in rigid}


@pytest.mark.parametrize("file", ["job.yaml", "rigid-job.yaml"])
def test_workers_find_index_0_by_the_service(file: str) -> None:
    (service,), (job,) = objects("service.yaml"), objects(file)
    name, subdomain = job["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"]
    assert service["metadata"]["name"] == subdomain
    assert service["spec"]["selector"] == {"job-name": name}
    assert environment(job["spec"]["template"])["LEADER"] == f"{name}-0.{subdomain}"


def test_all_pods_are_musters() -> None:
    files = [file for file in SAMPLES.glob("*.yaml") if file.name != "lab.yaml"]
    found = [each for file in files for each in templates(objects(file.name))]
    assert len(found) >= len(files) - 2  # the Service and the claim have none
    assert {each["spec"].get("schedulerName") for each, _ in found} == {"muster"}
