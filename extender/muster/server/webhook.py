"""POST /mutate: the gate by webhook, for clusters below 1.36 that have no MutatingAdmissionPolicy.

The chart's MutatingWebhookConfiguration has selected the pod already (our schedulerName, no node, no gate of
ours, a namespace that takes part); here our gate is added beside whatever gates there are.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from muster.errors import UsageError
from muster.types import GATE

MOST = 8 * 1024 * 1024
"""Bytes of the largest review that is read; etcd takes objects of 1.5 MB."""


def make_webhook_app() -> FastAPI:
    """The app for the webhook's port (HTTPS)."""
    routes: list[Any] = [Route("/mutate", _mutate, methods=["POST"])]
    return FastAPI(title="muster webhook", openapi_url=None, docs_url=None, redoc_url=None, routes=routes)


async def _mutate(request: Request) -> Response:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST:
            return JSONResponse({"error": f"larger than {MOST} bytes"}, 413)
    try:
        return JSONResponse(review(body))
    except UsageError as error:
        return JSONResponse({"error": str(error)}, 400)


def review(body: bytes) -> dict[str, Any]:
    """The AdmissionReview that answers one. Raises UsageError for what is none."""
    try:
        asked = json.loads(body)["request"]
        gates = asked["object"].get("spec", {}).get("schedulingGates") or []
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        gated = any(gate.get("name") == GATE for gate in gates)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"expected an AdmissionReview of a pod: {error!r}") from error
    if not gated:
        entry = {"name": GATE}
        patch = (
            {"op": "add", "path": "/spec/schedulingGates/-", "value": entry}
            if gates
            else {"op": "add", "path": "/spec/schedulingGates", "value": [entry]}
        )
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps([patch]).encode()).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
