"""POST /mutate: the gate by webhook, for clusters below 1.36 that have no MutatingAdmissionPolicy, and what a pod
needs to report (annotation `muster.dev/report: "true"`, or `muster.dev/gpus`): a token for us, and where to send it.

The chart's MutatingWebhookConfiguration has selected the pod already (our schedulerName, no node, not admitted
before, a namespace that takes part); here our gate is added beside whatever gates there are. With `binder: own` the
pod gets the toleration of the taint on Muster's nodes; with `binder: cluster` it is handed to the cluster's
scheduler, with a label that keeps what its schedulerName said.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from muster.core.workload import identity
from muster.errors import UsageError
from muster.server.access import AUDIENCE
from muster.types import GATE

REPORT = "muster.dev/report"
"""Annotation, `true`: admission gives the pod what `muster.report(...)` and `muster agent` need: a token and an
address."""
TOKEN_VOLUME, TOKEN_FOLDER = "muster-report", "/var/run/secrets/muster.dev"
"""Of the token in a pod that reports; what the chart's policy adds, and muster_report reads."""
TOKEN_SECONDS = 3600
"""Life of that token; the kubelet renews it at 80 %."""
MOST = 8 * 1024 * 1024
"""Bytes of the largest review that is read; etcd takes objects of 1.5 MB."""


@dataclass(frozen=True, slots=True)
class Admits:
    """What admission does with a pod of ours: add the gate; hand it from `scheduler` to `binder` ("" = to nobody);
    tell one that asks for it to report to `report_url` ("" = nothing is told), and who signed that server's
    certificate, PEM (`authority`; empty = who the container trusts)."""

    gate: bool = True
    scheduler: str = "muster"
    binder: str = ""
    lets_on: bool = False
    """Whether pods that `scheduler` binds get the toleration of its nodes' taint."""
    report_url: str = ""
    authority: Callable[[], bytes] = bytes


def make_webhook_app(admits: Admits | None = None) -> FastAPI:
    """The app for the webhook's port (HTTPS)."""
    what = admits or Admits()

    async def mutate(request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST:
                return JSONResponse({"error": f"larger than {MOST} bytes"}, 413)
        try:
            return JSONResponse(review(body, what))
        except UsageError as error:
            return JSONResponse({"error": str(error)}, 400)

    routes: list[Any] = [Route("/mutate", mutate, methods=["POST"])]
    return FastAPI(title="muster webhook", openapi_url=None, docs_url=None, redoc_url=None, routes=routes)


def review(body: bytes, admits: Admits | None = None) -> dict[str, Any]:
    """The AdmissionReview that answers one. Raises UsageError for what is none."""
    what = admits or Admits()
    try:
        asked = json.loads(body)["request"]
        pod = asked["object"]
        gates = pod.get("spec", {}).get("schedulingGates") or []
        labels = pod.get("metadata", {}).get("labels") or {}
        notes = pod.get("metadata", {}).get("annotations") or {}
        reports = notes.get(REPORT) == "true" or identity.GPUS in notes
        named = pod.get("spec", {}).get("schedulerName")
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        gated = any(gate.get("name") == GATE for gate in gates)
        tolerations = pod.get("spec", {}).get("tolerations") or []
        let_on = named != what.scheduler or any(
            identity.says_of_taint(one.get("key") or "", one.get("effect") or "") for one in tolerations
        )
        tells = reports and what.report_url
        authority = what.authority().decode() if tells else ""
        batches = identity.BATCH_SIZES in notes
        told = _told(pod.get("spec", {}), what.report_url, authority, batches) if tells else []
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"expected an AdmissionReview of a pod: {error!r}") from error
    patch: list[dict[str, Any]] = []
    if what.gate and not gated:
        entry = {"name": GATE}
        patch.append(
            {"op": "add", "path": "/spec/schedulingGates/-", "value": entry}
            if gates
            else {"op": "add", "path": "/spec/schedulingGates", "value": [entry]}
        )
    if what.lets_on and not let_on:
        patch += _append("/spec/tolerations", tolerations, [{"key": identity.TAINT, "operator": "Exists"}])
    if what.binder and named == what.scheduler:
        patch.append({"op": "add", "path": "/spec/schedulerName", "value": what.binder})
        key = identity.SCHEDULER.replace("/", "~1")
        patch.append(
            {"op": "add", "path": f"/metadata/labels/{key}", "value": what.scheduler}
            if labels
            else {"op": "add", "path": "/metadata/labels", "value": {identity.SCHEDULER: what.scheduler}}
        )
    patch += told
    if patch:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


def _told(spec: dict[str, Any], url: str, authority: str, batches: bool) -> list[dict[str, Any]]:
    """The patch that lets a pod report: its token for us, MUSTER_URL and MUSTER_CA, and MUSTER_BATCH where it
    declares batch sizes: an annotation that it gets when it starts. What it has of this stays."""
    volumes = spec.get("volumes") or []
    if any(volume.get("name") == TOKEN_VOLUME for volume in volumes):
        return []
    token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
    volume = {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}
    says = {"MUSTER_URL": url} | ({"MUSTER_CA": authority} if authority else {})
    patch = _append("/spec/volumes", volumes, [volume])
    for index, container in enumerate(spec.get("containers") or []):
        at = f"/spec/containers/{index}"
        env, mounts = container.get("env") or [], container.get("volumeMounts") or []
        has = {one.get("name") for one in env}
        new: list[dict[str, Any]] = [{"name": n, "value": value} for n, value in says.items() if n not in has]
        if batches and "MUSTER_BATCH" not in has:
            field = {"fieldPath": f"metadata.annotations['{identity.BATCH}']"}
            new.append({"name": "MUSTER_BATCH", "valueFrom": {"fieldRef": field}})
        patch += _append(f"{at}/env", env, new)
        if not any(one.get("mountPath") == TOKEN_FOLDER for one in mounts):
            mount = {"name": TOKEN_VOLUME, "mountPath": TOKEN_FOLDER, "readOnly": True}
            patch += _append(f"{at}/volumeMounts", mounts, [mount])
    return patch


def _append(path: str, to: Sequence[Any], values: Sequence[Any]) -> list[dict[str, Any]]:
    """More in a list, which may not be there yet."""
    if to or not values:
        return [{"op": "add", "path": f"{path}/-", "value": value} for value in values]
    return [{"op": "add", "path": path, "value": list(values)}]
