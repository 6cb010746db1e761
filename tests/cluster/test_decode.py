# Over 300 lines: every kind of object that is read has its cases here.
"""From the API's bytes to records: what counts is what kube-scheduler counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster import gangs
from muster.cluster import decode, decode_pods, quantities
from muster.core.workload.owners import Owners
from muster.types import GATE, GPU, Condition, Owner, Phase, Recreation, Requirement, Step, Taint, Term

RUN = {"name": "c", "image": "x"}


def body(spec: dict[str, Any] | None = None, **more: Any) -> bytes:
    """A pod of ours as the API sends it."""
    metadata = {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-21T07:00:00Z",
        **more.pop("metadata", {}),
    }
    whole = {"schedulerName": "muster", "containers": [RUN], **(spec or {})}
    return json.dumps({"metadata": metadata, "spec": whole, "status": more.get("status", {})}).encode()


def asks(**requests: str) -> dict[str, Any]:
    """A container with requests."""
    return {**RUN, "resources": {"requests": {k.replace("gpu", GPU): v for k, v in requests.items()}}}


@pytest.mark.parametrize(
    ("text", "resource", "expected"),
    [
        ("100m", "cpu", 100),
        ("1", "cpu", 1000),
        ("0.5", "cpu", 500),
        ("1u", "cpu", 1),
        ("1Gi", "memory", 1 << 30),
        ("1e3", "memory", 1000),
        ("1500m", "memory", 2),
        ("8", GPU, 8),
    ],
)
def test_quantities_are_whole_numbers_rounded_up(text: str, resource: str, expected: int) -> None:
    assert quantities.quantity(resource, text) == expected


def test_containers_and_sidecars_add_up_and_the_largest_init_container_counts() -> None:
    pod = decode_pods.pod(
        body(
            {
                "containers": [asks(cpu="1", gpu="2"), asks(cpu="500m")],
                "initContainers": [
                    asks(cpu="3"),
                    {**asks(cpu="250m", memory="1Ki"), "restartPolicy": "Always"},
                    asks(cpu="2"),
                ],
                "overhead": {"cpu": "100m"},
            }
        ),
        "muster",
    )
    # init: 3; sidecar 0.25; then 2 + 0.25; containers and sidecar: 1.75 -> the peak is 3, plus overhead
    assert dict(pod.shape.requests) == {"cpu": 3100, GPU: 2, "memory": 1024}


def test_the_mark_of_a_schedulers_extender_entry_is_nothing_that_a_node_must_offer() -> None:
    pod = decode_pods.pod(body({"containers": [asks(gpu="1", **{"muster.dev/managed": "1"})]}), "muster")
    assert dict(pod.shape.requests) == {GPU: 1}


def test_requests_of_the_pod_replace_those_of_its_containers() -> None:
    pod = decode_pods.pod(
        body({"containers": [asks(cpu="1", gpu="1")], "resources": {"requests": {"cpu": "4"}}}), "muster"
    )
    assert dict(pod.shape.requests) == {"cpu": 4000, GPU: 1}


@pytest.mark.parametrize(
    ("spec", "more", "phase"),
    [
        ({"schedulingGates": [{"name": GATE}]}, {}, Phase.GATED),
        ({"schedulingGates": [{"name": GATE}, {"name": "kueue"}]}, {}, Phase.HELD),
        ({"schedulingGates": [{"name": "kueue"}]}, {}, Phase.HELD),
        ({}, {}, Phase.UNGATED),
        ({}, {"metadata": {"annotations": {"muster.dev/released": "true"}}}, Phase.RELEASED),
        ({"nodeName": "n"}, {}, Phase.BOUND),
        ({"nodeName": "n"}, {"metadata": {"deletionTimestamp": "2026-11-21T07:00:00Z"}}, Phase.ENDING),
        ({"nodeName": "n"}, {"status": {"phase": "Succeeded"}}, Phase.SUCCEEDED),
        ({"nodeName": "n"}, {"status": {"phase": "Failed"}}, Phase.FAILED),
    ],
)
def test_a_pod_stands_where_its_gates_node_and_phase_say(
    spec: dict[str, Any], more: dict[str, Any], phase: Phase
) -> None:
    assert decode_pods.pod(body(spec, **more), "muster").phase is phase


@pytest.mark.parametrize(
    ("gates", "foreign"), [([], False), ([GATE], False), ([GATE, "kueue"], False), (["kueue"], True)]
)
def test_a_pod_that_only_others_hold_back_never_waited_behind_our_gate(
    gates: list[str], foreign: bool
) -> None:
    held = body({"schedulingGates": [{"name": name} for name in gates]})
    assert decode_pods.pod(held, "muster").foreign is foreign


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    """Required node affinity."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


PIN = {"key": "metadata.name", "operator": "In", "values": ["n3"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}


def test_the_pin_is_told_from_the_owners_own_affinity() -> None:
    plain = decode_pods.pod(body(affinity({"matchFields": [PIN]})), "muster")
    assert (plain.pin, plain.shape.affinity) == ("n3", ())
    own = decode_pods.pod(
        body(affinity({"matchExpressions": [ZONE], "matchFields": [PIN]}, {"matchFields": [PIN]})), "muster"
    )
    assert own.pin == "n3"
    assert own.shape.affinity == (Term((Requirement("zone", "In", ("a", "b")),)), Term())
    none = decode_pods.pod(body(affinity({"matchExpressions": [ZONE]}, {"matchFields": [PIN]})), "muster")
    assert none.pin == ""
    gated = decode_pods.pod(
        body({"schedulingGates": [{"name": GATE}], **affinity({"matchFields": [PIN]})}), "muster"
    )
    assert (gated.pin, len(gated.shape.affinity)) == ("", 1)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}, ()),
        (
            {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
            ("topologySpreadConstraints DoNotSchedule",),
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, ("resourceClaims",)),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, ("persistent volumes",)),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, ()),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]
                    }
                }
            },
            ("podAntiAffinity",),
        ),
    ],
)
def test_what_the_planner_does_not_model_is_named(spec: dict[str, Any], why: tuple[str, ...]) -> None:
    assert decode_pods.pod(body(spec), "muster").shape.unmodelled == why


def test_foreign_pods_are_node_requests_and_priority() -> None:
    pod = decode_pods.pod(
        body(
            {
                "schedulerName": "default-scheduler",
                "nodeName": "n",
                "priority": 5,
                "containers": [asks(gpu="4")],
            }
        ),
        "muster",
    )
    assert (pod.ours, pod.node, pod.priority, pod.shape.gpus, pod.labels) == (False, "n", 5, 4, {})


def test_a_pod_that_admission_gave_to_the_clusters_scheduler_is_ours_by_its_label() -> None:
    spec = {"schedulerName": "default-scheduler", "schedulingGates": [{"name": "muster.dev/queue"}]}
    labelled = {"labels": {"muster.dev/scheduler": "muster"}}
    pod = decode_pods.pod(body(spec, metadata=labelled), "muster")
    assert (pod.ours, pod.phase) == (True, Phase.GATED)
    assert not decode_pods.pod(body(spec, metadata=labelled), "team-b").ours
    assert not decode_pods.pod(body(spec), "muster").ours


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({}, "its Job's successPolicy is met"),
        ({"finalizers": []}, ""),  # counted before
        (
            {"labels": {"batch.kubernetes.io/job-completion-index": "0"}},
            "",
        ),  # not made by the Job's controller
    ],
)
def test_a_job_is_over_by_what_the_api_says_of_its_leader(change: dict[str, Any], met: str) -> None:
    uid = "the-job"
    spec = {"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    plain = {"metadata": {"name": "train", "namespace": "team", "uid": uid}, "spec": spec}
    owners = Owners()
    owners.seen(decode.workload("Job", "batch/v1")(json.dumps(plain).encode()))
    leader = {
        "labels": {
            "batch.kubernetes.io/job-completion-index": "0",
            "batch.kubernetes.io/controller-uid": uid,
        },
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    pod = decode_pods.pod(body(metadata=leader | change, status={"phase": "Succeeded"}), "muster")
    assert owners.met(uid, [pod]) == met


def test_pods_of_one_template_share_one_shape() -> None:
    first = decode_pods.pod(body({"containers": [asks(gpu="4")]}), "muster")
    second = decode_pods.pod(body({"containers": [asks(gpu="4")]}, metadata={"uid": "v"}), "muster")
    assert first.shape is second.shape


def test_a_refusal_is_unschedulable_and_not_the_gate() -> None:
    def condition(reason: str) -> dict[str, Any]:
        return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": "m"}]}

    assert decode_pods.pod(body(status=condition("Unschedulable")), "muster").refusal == "m"
    assert decode_pods.pod(body(status=condition("SchedulingGated")), "muster").refusal == ""


def test_nodes_and_owners_carry_what_the_planner_reads() -> None:
    node = decode.node(
        json.dumps(
            {
                "metadata": {"name": "n", "labels": {"rack": "r"}},
                "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
                "status": {"allocatable": {"cpu": "96", GPU: "8", "pods": "110"}},
            }
        ).encode()
    )
    assert (node.unschedulable, node.taints) == (True, (Taint("k", "", "NoSchedule"),))
    assert node.allocatable == {"cpu": 96_000, GPU: 8, "pods": 110}
    job = decode.workload("Job", "batch/v1")(
        json.dumps(
            {
                "metadata": {
                    "name": "j",
                    "namespace": "team",
                    "uid": "u",
                    "ownerReferences": [
                        {
                            "apiVersion": "jobset.x-k8s.io/v1alpha2",
                            "kind": "JobSet",
                            "name": "s",
                            "uid": "su",
                            "controller": True,
                        }
                    ],
                },
                "spec": {"parallelism": 4, "completions": 8},
                "status": {"succeeded": 2},
            }
        ).encode()
    )
    assert (job.size, job.completions, job.succeeded, job.queue) == (4, 8, 2, False)
    assert job.parent == Owner("jobset.x-k8s.io/v1alpha2", "JobSet", "s", "su")


@pytest.mark.parametrize("condition", ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"])
def test_a_job_that_is_over_wants_no_more_replicas_whatever_its_completions_say(condition: str) -> None:
    body = {
        "metadata": {"name": "j", "namespace": "team", "uid": "u"},
        "spec": {"parallelism": 4, "completions": 4, "completionMode": "Indexed"},
        "status": {"succeeded": 1, "conditions": [{"type": condition, "status": "True"}]},
    }
    over = decode.workload("Job", "batch/v1")(json.dumps(body).encode())
    assert (over.size, over.whole) == (0, True)


@pytest.mark.parametrize(
    ("requests", "kept", "words"),
    [
        ([{"cpu": "10P"}], ("cpu", 1 << 47), "requests of cpu (millicores): expected at most"),
        ([{"memory": "7Ei"}, {"memory": "7Ei"}], ("memory", 1 << 47), "requests of memory (bytes): "),
        ([{"gpu": "9000000000000000000"}], (GPU, 1 << 20), "requests of nvidia.com/gpu: expected at most 1 048 576 "),
        ([{"ephemeral-storage": "9Ei"}], ("ephemeral-storage", 1 << 47), "requests of ephemeral-storage (bytes): "),
        ([{"example.com/thing": "1e1000000"}], ("example.com/thing", 1 << 47), "requests of example.com/thing: "),
    ],
)  # fmt: skip
def test_a_quantity_beyond_its_bound_is_cut_to_it_and_named(
    requests: list[dict[str, str]], kept: tuple[str, int], words: str
) -> None:
    spec = {"containers": [asks(**one) for one in requests]}
    pod = decode_pods.pod(body(spec), "muster")
    assert pod.shape.requests == (kept,)
    assert pod.beyond.startswith(words)
    foreign = decode_pods.pod(body({**spec, "schedulerName": "other", "nodeName": "n"}), "muster")
    assert (foreign.ours, foreign.shape.requests) == (False, (kept,))


def test_who_asks_for_the_most_fits_on_no_node_whatever_it_says_of_itself() -> None:
    node = decode.node(
        json.dumps(
            {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "9E", "memory": "8Ei", GPU: "-1"}}}
        ).encode()
    )
    assert node.allocatable == {"cpu": (1 << 47) - 1, "memory": (1 << 47) - 1, GPU: 0}


def test_of_an_annotation_no_more_is_kept_than_shows_that_it_is_too_long() -> None:
    notes = {"muster.dev/roles": "a" * 262_144, "muster.dev/plan": "[" * 262_144}
    pod = decode_pods.pod(body(metadata={"annotations": notes}), "muster")
    assert len(pod.annotations["muster.dev/roles"]) == 16_385
    assert pod.carries == ()


@pytest.mark.parametrize(
    ("written", "old"),
    [
        ({"reason": "Resources", "message": "needs 8 GPUs"}, False),
        ({"code": "Resources", "reason": "needs 8 GPUs"}, True),
        # an older leader, for the moment of an upgrade, over what a new one wrote: a merge patch leaves `message`
        ({"code": "Resources", "reason": "needs 8 GPUs", "message": "1 replica running"}, True),
    ],
)
def test_a_gang_of_an_older_version_tells_its_word_and_its_sentence(
    written: dict[str, str], old: bool
) -> None:
    found = {"metadata": {"name": "g", "namespace": "team"}, "spec": {"job": "g"}, "status": written}
    read = decode.gang(json.dumps(found).encode())
    assert (read.reason, read.message, read.old) == ("Resources", "needs 8 GPUs", old)
    assert (gangs.reason(found), gangs.message(found)) == ("Resources", "needs 8 GPUs")


def test_what_a_gang_says_for_people_is_read_back_as_it_was_written() -> None:
    status = {
        "state": "Running",
        "keeps": "a PodDisruptionBudget refuses",
        "ledger": {"recreated": {"since": 7.5, "until": 37.5}},
        "story": [{"at": 7.5, "state": "Running", "event": "Whole", "cause": "2 replicas running"}],
        "conditions": [
            {"type": "Running", "status": "True", "reason": "Ok", "message": "2 replicas running",
             "lastTransitionTime": "1970-01-01T00:00:07Z"},
        ],
    }  # fmt: skip
    found = {"metadata": {"name": "g", "namespace": "team"}, "spec": {"job": "g"}, "status": status}
    read = decode.gang(json.dumps(found).encode())
    assert read.shrink_blocked_by == "a PodDisruptionBudget refuses"
    assert read.recreated == Recreation(7.5, 37.5)
    assert read.story == (Step(7.5, "Running", "Whole", "2 replicas running"),)
    assert (read.conditions, read.old) == ((Condition("Running", "True", 7.0),), False)
    assert decode.gang(json.dumps(found | {"status": status | {"conditions": []}}).encode()).old
