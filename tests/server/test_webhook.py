"""The gate by webhook, in memory; e2e/test_admission.py has it on a real apiserver."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from muster.server.webhook import Admits, make_webhook_app


def ask(spec: dict[str, Any], admits: Admits | None = None, labels: dict[str, str] | None = None) -> Any:
    """The patch that a pod with this spec gets, None for none."""
    metadata: dict[str, Any] = {"name": "p"} | ({"labels": labels} if labels else {})
    body = {"request": {"uid": "u1", "object": {"metadata": metadata, "spec": spec}}}
    answer = TestClient(make_webhook_app(admits)).post("/mutate", json=body).json()["response"]
    assert (answer["uid"], answer["allowed"]) == ("u1", True)
    return json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else None


def test_our_gate_is_added_alone_and_beside_others_and_once() -> None:
    ours = {"name": "muster.dev/queue"}
    assert ask({}) == [{"op": "add", "path": "/spec/schedulingGates", "value": [ours]}]
    assert ask({"schedulingGates": [{"name": "x"}]}) == [
        {"op": "add", "path": "/spec/schedulingGates/-", "value": ours}
    ]
    assert ask({"schedulingGates": [ours]}) is None


def test_a_pod_that_our_scheduler_binds_tolerates_its_nodes_taint_unless_it_says_what_it_tolerates() -> None:
    own, gated = Admits(lets_on=True), {"schedulingGates": [{"name": "muster.dev/queue"}]}
    ours, other = {"key": "muster.dev/scheduler", "operator": "Exists"}, {"key": "team", "operator": "Exists"}
    pod: dict[str, Any] = {"schedulerName": "muster", **gated}
    assert ask(pod, own) == [{"op": "add", "path": "/spec/tolerations", "value": [ours]}]
    assert ask(pod | {"tolerations": [other]}, own) == [
        {"op": "add", "path": "/spec/tolerations/-", "value": ours}
    ]
    for says in (ours, {"key": "muster.dev/scheduler", "value": "theirs"}, {"operator": "Exists"}):
        assert ask(pod | {"tolerations": [says]}, own) is None
    evicted_by_none = {"operator": "Exists", "effect": "NoExecute"}
    assert ask(pod | {"tolerations": [evicted_by_none]}, own) is not None
    assert ask(pod | {"schedulerName": "other"}, own, {"muster.dev/scheduler": "muster"}) is None
    assert ask(pod, Admits()) is None


def test_with_the_clusters_binder_the_pod_is_handed_over_and_a_label_keeps_what_it_asked_for() -> None:
    cluster = Admits(binder="default-scheduler")
    gate = {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "muster.dev/queue"}]}
    name = {"op": "add", "path": "/spec/schedulerName", "value": "default-scheduler"}
    assert ask({"schedulerName": "muster"}, cluster) == [
        gate,
        name,
        {"op": "add", "path": "/metadata/labels", "value": {"muster.dev/scheduler": "muster"}},
    ]
    assert ask({"schedulerName": "muster"}, cluster, {"app": "x"}) == [
        gate,
        name,
        {"op": "add", "path": "/metadata/labels/muster.dev~1scheduler", "value": "muster"},
    ]
    # Opted in by the label: only the gate is missing.
    assert ask({"schedulerName": "other"}, cluster, {"muster.dev/scheduler": "muster"}) == [gate]


def test_in_mode_observe_the_pod_is_handed_over_without_a_gate() -> None:
    patch = ask({"schedulerName": "muster"}, Admits(gate=False, binder="default-scheduler"))
    assert [step["path"] for step in patch] == ["/spec/schedulerName", "/metadata/labels"]
    assert ask({"schedulerName": "muster"}, Admits(gate=False)) is None


def test_a_pod_that_asks_to_report_gets_a_token_and_the_url_once() -> None:
    admits = Admits(gate=False, report_url="http://muster:8080")

    def patched(
        spec: dict[str, Any], wants: str = "true", admits: Admits = admits, note: str = "report"
    ) -> Any:
        metadata = {"name": "p", "annotations": {f"muster.dev/{note}": wants}}
        body = {"request": {"uid": "u1", "object": {"metadata": metadata, "spec": spec}}}
        answer = TestClient(make_webhook_app(admits)).post("/mutate", json=body).json()["response"]
        return json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else None

    token = {"audience": "muster.dev", "expirationSeconds": 3600, "path": "token"}
    volume = {"name": "muster-report", "projected": {"sources": [{"serviceAccountToken": token}]}}
    mount = {"name": "muster-report", "mountPath": "/var/run/secrets/muster.dev", "readOnly": True}
    url = {"name": "MUSTER_URL", "value": "http://muster:8080"}
    other = {"name": "MUSTER_URL", "value": "mine"}
    spec = {
        "containers": [{"name": "a"}, {"name": "b", "env": [other], "volumeMounts": [{"mountPath": "/x"}]}]
    }
    assert patched(spec) == [
        {"op": "add", "path": "/spec/volumes", "value": [volume]},
        {"op": "add", "path": "/spec/containers/0/env", "value": [url]},
        {"op": "add", "path": "/spec/containers/0/volumeMounts", "value": [mount]},
        {"op": "add", "path": "/spec/containers/1/volumeMounts/-", "value": mount},
    ]
    assert patched(spec, "1,2", note="gpus") == patched(spec), "its agent needs it"
    assert patched(spec | {"volumes": [{"name": "x"}]})[0]["path"] == "/spec/volumes/-"
    assert patched(spec | {"volumes": [volume]}) is None
    assert patched(spec, wants="false") is None
    assert patched(spec, admits=Admits(gate=False)) is None
    field = {"fieldPath": "metadata.annotations['muster.dev/batch']"}
    declares = {"muster.dev/report": "true", "muster.dev/batch-sizes": "64,128"}
    body = {"request": {"uid": "u1", "object": {"metadata": {"annotations": declares}, "spec": spec}}}
    answer = TestClient(make_webhook_app(admits)).post("/mutate", json=body).json()["response"]["patch"]
    batch = {"name": "MUSTER_BATCH", "valueFrom": {"fieldRef": field}}
    assert [step for step in json.loads(base64.b64decode(answer)) if "/env" in step["path"]] == [
        {"op": "add", "path": "/spec/containers/0/env", "value": [url, batch]},
        {"op": "add", "path": "/spec/containers/1/env/-", "value": batch},
    ]
    signed = replace(admits, authority=lambda: b"PEM")
    own = {"name": "MUSTER_CA", "value": "PEM"}
    assert [step for step in patched(spec, admits=signed) if "/env" in step["path"]] == [
        {"op": "add", "path": "/spec/containers/0/env", "value": [url, own]},
        {"op": "add", "path": "/spec/containers/1/env/-", "value": own},
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": {"uid": "u"}}', b'{"request": 7}'])
def test_what_is_no_review_is_a_clear_error(body: bytes) -> None:
    answer = TestClient(make_webhook_app()).post("/mutate", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("expected an AdmissionReview of a pod")
