"""The requests that actions become, literally."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.cluster import decode_pods
from muster.cluster.action_bodies import event_object, gang_object, ungate_patch
from muster.cluster.faults import Faults
from muster.errors import ClusterError, ConfigurationError
from muster.types import JobKey, Owner, RecordEvent, Reservation, Ungate, WriteGang

JOB = JobKey("team", "job-train", "u1")
FIELD = {"key": "metadata.name", "operator": "In", "values": ["n1"]}


def ungate(terms: bytes = b"", pin: bool = True) -> Any:
    """The patch that takes the gate off."""
    return json.loads(ungate_patch(Ungate(JOB, "u", "p", "7", "n1", pin, "start", terms)))


def test_the_gate_goes_and_the_pin_comes_in_one_patch_with_preconditions() -> None:
    assert ungate() == {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": "muster.dev/queue"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchFields": [FIELD]}]
                    }
                }
            },
        },
    }


def test_the_first_pod_of_a_start_carries_the_placement_and_it_is_read_back() -> None:
    reservations = (Reservation("worker", "n1", "p", "u"), Reservation("ps", "n2", "q", "v"))
    sent = json.loads(
        ungate_patch(
            Ungate(JOB, "u", "p", "7", "n1", pin=True, cause="start", carries=reservations, batch=64)
        )
    )
    assert sent["metadata"]["resourceVersion"] == "7"
    note, batch = sent["metadata"]["annotations"].items()
    assert batch == ("muster.dev/batch", "64")
    spec = {"schedulerName": "muster", "containers": [], "affinity": sent["spec"]["affinity"]}
    pod = {"metadata": {"name": "p", "uid": "u", "annotations": dict([note])}, "spec": spec}
    found = decode_pods.pod(json.dumps(pod).encode(), "muster")
    assert (found.pin, found.carries, found.annotations) == ("n1", reservations, {})


@pytest.mark.parametrize("text", ["", "{", "{}", '[{"node": 1}]', "null"])
def test_a_placement_that_cannot_be_read_is_none(text: str) -> None:
    spec = {"schedulerName": "muster", "containers": [], **ungate()["spec"]}
    del spec["schedulingGates"]
    pod = {"metadata": {"name": "p", "uid": "u", "annotations": {"muster.dev/plan": text}}, "spec": spec}
    found = decode_pods.pod(json.dumps(pod).encode(), "muster")
    assert (found.pin, found.carries) == ("n1", ())


def test_a_pod_that_waits_carries_nothing() -> None:
    note = {"muster.dev/plan": '[{"role": "worker", "node": "n1", "pod": "p", "uid": "u"}]'}
    spec = {"schedulerName": "muster", "containers": [], **ungate()["spec"]}
    spec["schedulingGates"] = [{"name": "muster.dev/queue"}]
    pod = {"metadata": {"name": "p", "uid": "u", "annotations": note}, "spec": spec}
    assert decode_pods.pod(json.dumps(pod).encode(), "muster").carries == ()


def test_the_pin_is_appended_to_every_term_of_the_owner() -> None:
    zone = {"key": "zone", "operator": "Exists"}
    own = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
    terms = [{"matchExpressions": [zone]}, {"matchFields": [own]}]
    sent = ungate(json.dumps(terms).encode())["spec"]["affinity"]["nodeAffinity"]
    assert sent["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
        {"matchExpressions": [zone], "matchFields": [FIELD]},
        {"matchFields": [own, FIELD]},
    ]


def test_a_scored_pod_is_not_pinned() -> None:
    assert "affinity" not in ungate(pin=False)["spec"]


def test_a_scored_pod_can_be_kept_within_its_domain_by_a_label() -> None:
    rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    zone = {"key": "zone", "operator": "Exists"}

    def terms(before: bytes) -> Any:
        action = Ungate(JOB, "u", "p", "7", "n1", False, "start", before, ("rack", "r1"))
        affinity = json.loads(ungate_patch(action))["spec"]["affinity"]["nodeAffinity"]
        return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert terms(b"") == [{"matchExpressions": [rack]}]
    assert terms(json.dumps([{"matchExpressions": [zone]}]).encode()) == [{"matchExpressions": [zone, rack]}]


def test_a_gang_is_owned_by_its_jobs_owner() -> None:
    status = {"state": "Waiting", "ended": None}
    write = WriteGang(JOB, "job-train", Owner("batch/v1", "Job", "train", "u1"), status, exists=False)
    assert gang_object(write) == {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {
            "name": "job-train",
            "namespace": "team",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1"}],
        },
        "spec": {
            "job": "job-train",
            "uid": "u1",
            "owner": {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1"},
        },
        "status": {"state": "Waiting"},
    }


def test_an_event_names_what_it_is_about() -> None:
    event = event_object(RecordEvent(JOB, "Resources", "needs 8 GPUs", pod="p", uid="u"))
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "namespace": "team"}
    assert (event["involvedObject"], event["type"], event["reason"]) == (about, "Normal", "Resources")


def test_faults_are_counted_by_method_and_path() -> None:
    faults = Faults.parse("409 after 1 PATCH pods x2; timeout after 0 POST eviction x1")
    assert faults.before("PATCH", "/api/v1/namespaces/a/pods/p") is None
    for _ in range(2):
        with pytest.raises(ClusterError, match="409"):
            faults.before("PATCH", "/api/v1/namespaces/a/pods/p")
    assert faults.before("PATCH", "/api/v1/namespaces/a/pods/p") is None
    with pytest.raises(ClusterError, match="no answer"):
        faults.before("POST", "/pods/p/eviction")
    with pytest.raises(ConfigurationError, match=r"expected .* found 'explode'"):
        Faults.parse("explode")
