"""Reading kube-apiserver's audit log: who wrote what about which object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.bench.calls import about, by_kind
from e2e.lab.audit import JOBS, MUSTER, SCHEDULER, Log, Written, named, policy


def line(verb: str, resource: str, user: str = MUSTER, agent: str = "muster", **more: Any) -> dict[str, Any]:
    resource, _, part = resource.partition("/")
    ref = {"resource": resource, "subresource": part, "namespace": "n", "name": more.pop("name", "train-0-x")}
    return {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "userAgent": agent,
        "objectRef": {key: value for key, value in ref.items() if value},
        "responseStatus": {"code": more.pop("code", 200)},
        "requestObject": more,
    }


def test_the_steps_of_an_eviction_are_told_apart() -> None:
    steps = [
        line("create", "pods/eviction", deleteOptions={"dryRun": ["All"]}),
        line("patch", "pods", metadata={"$deleteFromPrimitiveList/finalizers": ["f"]}),
        line("create", "pods/eviction", deleteOptions={"preconditions": {"uid": "u"}}),
        line("patch", "pods", spec={"schedulingGates": [{"$patch": "delete", "name": "g"}]}),
        line("patch", "pods", metadata={"finalizers": ["f"]}),
    ]
    found = [named(one).what for one in steps]
    assert found == ["dry-run eviction", "finalizer off", "eviction", "gate off", "patch pods"]


def test_writers_have_short_names_and_kube_scheduler_is_told_from_muster_by_its_account() -> None:
    writers = [
        line("patch", "gangs"),
        line("create", "pods/binding", user=SCHEDULER),
        line("create", "pods", user=JOBS),
        line("patch", "pods/status", user="kwok"),
    ]
    assert [named(one).who for one in writers] == ["muster", "kube-scheduler", "job-controller", "kwok"]


def test_an_event_is_about_its_object_and_a_new_pod_has_the_name_that_it_is_generated_from() -> None:
    event = line("create", "events", name="", involvedObject={"name": "train"})
    pod = line("create", "pods", user=JOBS, name="", metadata={"generateName": "train-3-"})
    assert [named(one).name for one in (event, pod)] == ["train", "train-3-"]


def test_counts_are_of_one_job_and_of_what_was_done() -> None:
    written = [
        Written("muster", "eviction", "n", "train-3-abcde", 201),
        Written("muster", "eviction", "n", "train-4-abcde", 429),
        Written("muster", "patch gangs", "n", "job-train", 200),
        Written("muster", "patch gangs", "n", "job-other", 200),
        Written("muster", "eviction", "elsewhere", "train-3-abcde", 201),
    ]
    assert by_kind(about(written, "n", "train")) == {"muster: eviction": 1, "muster: patch gangs": 1}


def test_a_log_gives_whole_lines_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    first, second = (json.dumps(line("patch", "gangs", name=f"job-{n}")) for n in "ab")
    path.write_text(f"{first}\n{second[:40]}")
    log = Log(path)
    assert [one.name for one in log.more()] == ["job-a"]
    assert log.more() == []
    path.write_text(f"{first}\n{second}\n")
    assert [one.name for one in log.more()] == ["job-b"]


def test_reads_watches_and_leases_are_not_kept() -> None:
    none = [rule for rule in policy()["rules"] if rule["level"] == "None"]
    assert {verb for rule in none for verb in rule.get("verbs", ())} == {"get", "list", "watch"}
    assert any("leases" in group["resources"] for rule in none for group in rule.get("resources", ()))
