"""Pods that hold devices: what is written is what is read, and of writes that cross each other one fails."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

from muster.cluster.api import Api
from muster.cluster.holder_records import holder_record
from muster.cluster.holders import HolderExecutor, assign_patch, holder_object
from muster.cluster.holding import Holding
from muster.cluster.lease import Term
from muster.types import JobKey, Phase, PodSeen
from muster.types.devices import AgentKey
from muster.types.holders import (
    AssignHolder,
    ClearSeat,
    CreateHolder,
    DeleteHolder,
    HolderOutcome,
    HolderRecord,
    NameDevice,
)
from tests.devices_api import SPACE, DevicesApi

HOW = Holding(SPACE, "muster", "pause:1", "muster-devices", 65)
CREATE = CreateHolder("holder-1-1", "n1", JobKey("team", "job-a"), "")
AGENT = AgentKey("pod-a", "run-1")


def made() -> DevicesApi:
    api = DevicesApi()
    api.request("POST", f"/api/v1/namespaces/{SPACE}/pods", holder_object(CREATE, HOW))
    return api


def record(pod: dict[str, Any], phase: Phase = Phase.BOUND) -> HolderRecord | None:
    return holder_record(json.dumps(pod).encode(), phase)


def test_one_that_was_made_is_read_as_one_of_the_node_that_it_is_for() -> None:
    (pod,) = made().pods.values()
    assert record(pod, Phase.UNGATED) == HolderRecord("uid-holder-1-1", "n1")
    assert record({**pod, "metadata": {**pod["metadata"], "labels": {}}}) is None


def test_its_device_and_its_record_are_read_back() -> None:
    api = made()
    api.allocate(["GPU-1"])
    (pod,) = api.pods.values()
    version = pod["metadata"]["resourceVersion"]
    assign = AssignHolder("uid-holder-1-1", "holder-1-1", version, "GPU-1", 4294967297, AGENT, "")
    path = f"/api/v1/namespaces/{SPACE}/pods/holder-1-1"
    assert api.request("PATCH", path, assign_patch(assign))[0] == 200
    known = HolderRecord("uid-holder-1-1", "n1", "GPU-1", epoch=4294967297, agent=AGENT)
    assert record(pod) == known
    pod["metadata"]["deletionTimestamp"] = "2026-11-23T18:00:00Z"
    assert record(pod) == replace(known, leaving=True)


@pytest.mark.parametrize(
    ("device", "health", "found"),
    [
        ("GPU-1", "Unhealthy", ("GPU-1", False)),
        ("GPU-1", "Unknown", ("GPU-1", True)),
        ("GPU-1::3", "Healthy", ("", True)),
    ],
)
def test_a_device_that_is_ill_is_told_and_a_part_of_one_is_none(
    device: str, health: str, found: tuple[str, bool]
) -> None:
    api = made()
    api.allocate([device])
    (pod,) = api.pods.values()
    (resources,) = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    resources["resources"][0]["health"] = health
    read = record(pod)
    assert read is not None
    assert (read.device, read.healthy) == found


def test_a_record_that_cant_be_read_is_an_error_since_somebody_may_use_that_device() -> None:
    (pod,) = made().pods.values()
    pod["metadata"]["annotations"]["muster.dev/assigned"] = '{"epoch": "one"}'
    with pytest.raises(msgspec.DecodeError):
        record(pod)


def test_it_is_of_no_job_of_ours_whatever_its_scheduler() -> None:
    api = made()
    api.allocate(["GPU-1"])
    (event,) = api.told()
    assert isinstance(event, PodSeen)
    assert (event.pod.ours, event.pod.node, event.pod.shape.gpus) == (False, "n1", 1)
    assert event.pod.holder == HolderRecord("uid-holder-1-1", "n1", "GPU-1")


def test_a_deletion_and_an_assignment_that_cross_each_other_do_not_both_happen() -> None:
    api, outcomes = made(), list[HolderOutcome]()
    hands = HolderExecutor(cast(Api, api), HOW, outcomes.append)
    version = api.pods["holder-1-1"]["metadata"]["resourceVersion"]
    assign = AssignHolder("uid-holder-1-1", "holder-1-1", version, "GPU-1", 5, AGENT, "")
    delete = DeleteHolder("uid-holder-1-1", "holder-1-1", "", version)
    ever = Term(1e12)
    hands.carry_out((assign,), ever)
    hands.close(all_of_it=True)
    hands = HolderExecutor(cast(Api, api), HOW, outcomes.append)
    hands.carry_out((delete,), ever)
    hands.close(all_of_it=True)
    assert [(type(one.action), one.status) for one in outcomes] == [(AssignHolder, 200), (DeleteHolder, 409)]
    assert outcomes[0].version == api.pods["holder-1-1"]["metadata"]["resourceVersion"]


@pytest.mark.parametrize("second", [False, True])
def test_the_record_of_a_seat_is_taken_off_and_the_other_one_stays(second: bool) -> None:
    api = made()
    api.allocate(["GPU-1"])
    (pod,) = api.pods.values()
    path = f"/api/v1/namespaces/{SPACE}/pods/holder-1-1"
    other = AgentKey("pod-b", "run-2")
    for agent, seat in ((AGENT, False), (other, True)):
        at = pod["metadata"]["resourceVersion"]
        assign = AssignHolder("uid-holder-1-1", "holder-1-1", at, "GPU-1", 5 + seat, agent, "", second=seat)
        assert api.request("PATCH", path, assign_patch(assign))[0] == 200
    at = pod["metadata"]["resourceVersion"]
    outcomes: list[HolderOutcome] = []
    executor = HolderExecutor(cast(Api, api), HOW, outcomes.append)
    clear = ClearSeat("uid-holder-1-1", "holder-1-1", at, "GPU-1", second, "")
    executor.carry_out((clear, clear), Term(1e12))
    executor.close(all_of_it=True)
    assert sorted(one.status for one in outcomes) == [200, 409], "on the version that was read"
    found = record(pod)
    assert found is not None
    assert (found.agent, found.second) == ((AGENT, None) if second else (None, other))


def test_nothing_is_sent_once_the_term_is_over() -> None:
    api, outcomes = DevicesApi(), list[HolderOutcome]()
    hands = HolderExecutor(cast(Api, api), HOW, outcomes.append)
    over = Term(1e12)
    over.end()
    hands.carry_out((CREATE,), over)
    hands.close(all_of_it=True)
    assert (api.pods, [one.status for one in outcomes]) == ({}, [-1])


def test_a_device_that_its_container_told_is_read_where_the_status_does_not_say_it() -> None:
    api, outcomes = made(), list[HolderOutcome]()
    (pod,) = api.pods.values()
    version = pod["metadata"]["resourceVersion"]
    hands = HolderExecutor(cast(Api, api), HOW, outcomes.append)
    hands.carry_out((NameDevice("uid-holder-1-1", "holder-1-1", version, "GPU-1", ""),), Term(1e12))
    hands.close(all_of_it=True)
    assert [outcome.status for outcome in outcomes] == [200]
    assert record(pod) == HolderRecord("uid-holder-1-1", "n1", "GPU-1")
    api.allocate(["GPU-2"])
    assert record(pod) == HolderRecord("uid-holder-1-1", "n1", "GPU-2"), "the status knows better"


def test_one_that_is_to_tell_its_device_has_a_command_an_address_and_a_token_and_nothing_else() -> None:
    usual = holder_object(CREATE, HOW)["spec"]
    how = replace(HOW, url="https://muster:8080", authority=lambda: b"PEM")
    spec = holder_object(CREATE, how)["spec"]
    first = spec["containers"][0]
    assert first["command"] == ["muster", "hold"]
    assert {one["name"]: one["value"] for one in first["env"]} == {
        "MUSTER_URL": "https://muster:8080",
        "MUSTER_CA": "PEM",
    }
    assert [list(volume) for volume in spec["volumes"]] == [["name", "projected"]]
    assert "cpu" not in first["resources"]["limits"], "Python would start for 15 s"
    for name in ("command", "env", "volumeMounts"):
        del first[name]
    del spec["volumes"], first["resources"], usual["containers"][0]["resources"]
    assert spec == usual
