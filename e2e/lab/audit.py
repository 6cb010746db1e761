"""Who writes what to the lab's API: kube-apiserver's audit log (`Shape.audit`, off by default), read and named.

Reads, watches and Leases are left out here; of the chart's own accounts the log has them, too (lab/rights.py). What
Muster, its kube-scheduler and the Job controller write is kept with its body (what an eviction is for stands there
only), of all others who, what and which object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

MUSTER = "system:serviceaccount:muster-system:muster"
SCHEDULER = "system:serviceaccount:muster-system:muster-scheduler"
"""Of the kube-scheduler beside muster."""
HOOKS = "system:serviceaccount:muster-system:muster-hooks"
JOBS = "system:serviceaccount:kube-system:job-controller"
LEASES = "coordination.k8s.io"
READS = frozenset({"get", "list", "watch"})
MEGABYTES = 1024

Json = dict[str, Any]


def policy(*, writes: bool = True) -> Json:
    """The audit.k8s.io/v1 Policy: all that the chart's accounts ask for (lab/rights.py), and with `writes` what
    everybody writes."""
    ours = [MUSTER, HOOKS]
    rules: list[Json] = [
        {"level": "None", "nonResourceURLs": ["*"]},
        {"level": "Metadata", "users": ours, "verbs": ["get", "list", "watch"]},
        {"level": "Metadata", "users": ours, "resources": [{"group": LEASES, "resources": ["leases"]}]},
    ]
    if writes:
        rules += [
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "None", "resources": [{"group": LEASES, "resources": ["leases"]}]},
            {"level": "Request", "users": [MUSTER, SCHEDULER, JOBS]},
            {"level": "Metadata"},
        ]
    else:
        rules += [{"level": "Metadata", "users": ours}, {"level": "None"}]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": rules,
    }


def flags(policy_file: Path, log: Path) -> list[str]:
    """What kube-apiserver is told; an answer is sent when its line is written."""
    return [
        f"--audit-policy-file={policy_file}",
        f"--audit-log-path={log}",
        f"--audit-log-maxsize={MEGABYTES}",
    ]


@dataclass(frozen=True)
class Written:
    """One request that was answered. who: muster, kube-scheduler, job-controller, kwok, ...; what: "eviction", else
    verb and resource as "patch pods/status"; name: the object's, of an Event that of what it is about; at: Unix s."""

    who: str
    what: str
    namespace: str
    name: str
    code: int
    at: float = field(default=0.0, compare=False)

    @property
    def done(self) -> bool:
        return 200 <= self.code < 300


class Log:
    """Reads a log from where it was read last: `Log(lab.audit).more()`."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def more(self) -> list[Written]:
        """What was written since the last call, in order."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return list(_all(whole))


def _all(text: bytes) -> Iterator[Written]:
    for line in text.splitlines():
        event = json.loads(line)
        if event.get("stage") != "ResponseComplete" or "objectRef" not in event:
            continue
        if event["verb"] not in READS and event["objectRef"]["resource"] != "leases":
            yield named(event)


def named(event: Mapping[str, Any]) -> Written:
    """One line of the log."""
    about, body = event["objectRef"], event.get("requestObject") or {}
    metadata = body.get("metadata") or {}
    name = about.get("name") or metadata.get("name") or metadata.get("generateName") or ""
    if about["resource"] == "events":
        name = ((body.get("involvedObject") or body.get("regarding")) or {}).get("name", name)
    return Written(
        _who(event["user"]["username"]),
        _what(event["verb"], about, body, metadata),
        about.get("namespace", ""),
        name,
        int((event.get("responseStatus") or {}).get("code", 0)),
        datetime.fromisoformat(event["stageTimestamp"]).timestamp() if "stageTimestamp" in event else 0.0,
    )


def _who(user: str) -> str:
    return "kube-scheduler" if user == SCHEDULER else user.rpartition(":")[2]


def _what(verb: str, about: Mapping[str, Any], body: Json, metadata: Json) -> str:
    resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
    if resource == "pods/eviction":
        return "dry-run eviction" if (body.get("deleteOptions") or {}).get("dryRun") else "eviction"
    if (verb, resource) == ("patch", "pods"):
        if "schedulingGates" in (body.get("spec") or {}):
            return "gate off"
        if "$deleteFromPrimitiveList/finalizers" in metadata:
            return "finalizer off"
    return f"{verb} {resource}"
