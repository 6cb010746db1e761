"""What an autoscaler is sent."""

from __future__ import annotations

from typing import Any, cast

from muster.cluster.api import Api
from muster.cluster.provisioning_requests import ask, drop, request, template
from muster.types import (
    GPU,
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    JobKey,
    Requirement,
    Shape,
    Term,
    Toleration,
)

SHAPE = Shape(
    requests=(("cpu", 1500), ("memory", 1 << 30), (GPU, 8)),
    selector=(("pool", "gpu"),),
    affinity=(Term((Requirement("zone", "In", ("a", "b")),), (Requirement("metadata.name", "NotIn", ("n1",)),)),),
    tolerations=(Toleration("gpu", "Exists"),),
)  # fmt: skip
ACTION = CreateProvisioningRequest(
    JobKey("team", "job-train"), "job-train", "job-train", "g1", "check-capacity.autoscaling.x-k8s.io",
    (("worker", 4, SHAPE),), "test",
)  # fmt: skip


class FakeApi:
    def __init__(self, **answers: int) -> None:
        self.asked: list[str] = []
        self.answers = answers

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        kind = "requests" if "provisioningrequests" in path else "templates"
        self.asked.append(f"{method} {kind}{'' if body else ' ' + path.rsplit('/', 1)[-1]}")
        return self.answers.get(kind, 201), b'{"message": "no"}'


def test_a_request_names_the_minimum_of_each_role_and_is_owned_by_the_gang() -> None:
    made = request(ACTION)
    assert made["spec"] == {
        "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
        "podSets": [{"podTemplateRef": {"name": "job-train-worker"}, "count": 4}],
    }
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Gang", "job-train", "g1")


def test_a_template_asks_of_a_node_what_a_replica_asks() -> None:
    made = template(ACTION, "worker", SHAPE)
    asks = {"cpu": "1500m", "memory": str(1 << 30), GPU: "8"}
    assert made["metadata"]["name"] == "job-train-worker"
    spec = made["template"]["spec"]
    assert spec["containers"][0]["resources"] == {"requests": asks, "limits": asks}
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}],
    }


def test_templates_come_before_the_request_and_go_after_it() -> None:
    api = FakeApi()
    assert ask(cast(Api, api), ACTION)[0] == 201
    gone = DeleteProvisioningRequest(ACTION.job, "job-train", ("job-train-worker",), "test")
    assert drop(cast(Api, api), gone)[0] == 200
    assert api.asked == [
        "POST templates",
        "POST requests",
        "DELETE requests job-train",
        "DELETE templates job-train-worker",
    ]


def test_what_is_there_or_gone_already_is_as_wanted_and_a_refusal_is_told() -> None:
    assert ask(cast(Api, FakeApi(requests=409, templates=409)), ACTION)[0] == 201
    gone = DeleteProvisioningRequest(ACTION.job, "job-train", ("job-train-worker",), "test")
    assert drop(cast(Api, FakeApi(requests=404, templates=404)), gone)[0] == 200
    assert ask(cast(Api, FakeApi(requests=404)), ACTION) == (404, "no")
