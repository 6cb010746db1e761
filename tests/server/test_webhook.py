"""The gate by webhook, in memory; e2e/test_admission.py has it on a real apiserver."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from muster.server.webhook import make_webhook_app


def ask(spec: dict[str, Any]) -> Any:
    """The patch that a pod with this spec gets, None for none."""
    body = {"request": {"uid": "u1", "object": {"metadata": {"name": "p"}, "spec": spec}}}
    answer = TestClient(make_webhook_app()).post("/mutate", json=body).json()["response"]
    assert (answer["uid"], answer["allowed"]) == ("u1", True)
    return json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else None


def test_our_gate_is_added_alone_and_beside_others_and_once() -> None:
    ours = {"name": "muster.dev/queue"}
    assert ask({}) == [{"op": "add", "path": "/spec/schedulingGates", "value": [ours]}]
    assert ask({"schedulingGates": [{"name": "x"}]}) == [
        {"op": "add", "path": "/spec/schedulingGates/-", "value": ours}
    ]
    assert ask({"schedulingGates": [ours]}) is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"request": {"uid": "u"}}', b'{"request": 7}'])
def test_what_is_no_review_is_a_clear_error(body: bytes) -> None:
    answer = TestClient(make_webhook_app()).post("/mutate", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("expected an AdmissionReview of a pod")
