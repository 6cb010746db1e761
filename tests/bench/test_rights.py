"""What the chart's account may do against what it did, from audit logs."""

from __future__ import annotations

import json
from typing import Any

from e2e.lab.audit import HOOKS, MUSTER
from e2e.lab.rights import Kept, asked, compare, rights_of

PODS = {"resource": "pods", "namespace": "n", "name": "train-0"}


def line(
    verb: str, about: dict[str, str] | None, user: str = MUSTER, decision: str = "allow", **more: Any
) -> str:
    event: dict[str, Any] = {"verb": verb, "user": {"username": user}, "requestURI": "/api/v1/x"}
    event["annotations"] = {"authorization.k8s.io/decision": decision}
    return json.dumps(event | ({"objectRef": about} if about else {}) | more)


def test_rules_are_counted_by_verb_and_resource() -> None:
    rules = [
        {"apiGroups": ["", "g"], "resources": ["pods"], "verbs": ["get", "patch"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["one"],
            "verbs": ["get"],
        },
    ]
    assert rights_of("muster", rules) == {
        "muster get pods", "muster patch pods", "muster get g/pods", "muster patch g/pods",
        "muster get coordination.k8s.io/leases",
    }  # fmt: skip


def test_a_log_tells_what_was_used_and_what_was_refused() -> None:
    found = asked(
        [
            line("patch", PODS | {"subresource": "status"}),
            line("get", {"resource": "jobsets", "apiGroup": "jobset.x-k8s.io"}),
            line("delete", PODS, decision="forbid"),
            line("patch", PODS, user=HOOKS),
            line("patch", PODS, user="someone"),
            line("patch", PODS, impersonatedUser={"username": "someone"}),
            line("get", None),
        ]
    )
    assert found.used == {
        "muster patch pods/status",
        "muster get jobset.x-k8s.io/jobsets",
        "muster-hooks patch pods",
    }
    assert found.refused == {"muster delete pods: /api/v1/x"}


def test_an_unused_rule_and_a_refusal_are_named() -> None:
    kept = Kept(
        granted={"muster get pods", "muster get nodes"},
        used={"muster get pods"},
        refused={"muster list secrets: /s"},
    )
    assert compare(kept) == [
        "no scenario uses the right: muster get nodes",
        "refused for want of a right: muster list secrets: /s",
    ]
    not_yet = Kept({"muster get pods"}, {"muster get pods"}, {"muster get pods: /api/v1/pods"})
    assert compare(not_yet) == [], "an API server that has just started"
    assert compare(Kept({"muster get ray.io/rayclusters"}, set(), set())) == [], "not built everywhere"
    assert compare(Kept({"muster get pods"}, {"muster get pods"}, set())) == []
