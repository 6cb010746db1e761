# Over 300 lines: requests of an eviction are tried in every order in which they can fail.
"""Evictions at the seam of the API: which requests are sent, in which order, and what becomes of the pod.

The API here is one pod with a version, a finalizer and a budget; what is scripted happens just before a request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from muster.cluster.action_executor import ActionExecutor
from muster.cluster.api import Api
from muster.cluster.evict import verdict
from muster.errors import ClusterError
from muster.types import (
    NEVER_RAN,
    Action,
    EndReason,
    Event,
    Evict,
    JobKey,
    Outcome,
    Phase,
    PodSeen,
    RestoreFinalizer,
)

JOB = JobKey("team", "job-train", "u1")
TRACKING = "batch.kubernetes.io/job-tracking"
LEAVING = "muster.dev/leaving"
ONE_BUDGET = {
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "status": "Failure",
    "code": 429,
    "details": {
        "causes": [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget keep needs 4 healthy pods and has 4 currently",
            }
        ]
    },
}
TWO_BUDGETS = {
    "message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    "status": "Failure",
    "code": 500,
}


def _change(metadata: Mapping[str, Any]) -> str:
    if "$deleteFromPrimitiveList/finalizers" in metadata:
        return " off"
    return " back" if metadata["annotations"][LEAVING] is None else " mark"


@dataclass
class OnePod:
    """The API server of one pod `p`. before: what happens just before the request of that number (from 0)."""

    before: Mapping[int, Callable[[OnePod], None]] = field(default_factory=dict)
    uid: str = "u"
    version: int = 7
    phase: str = "Running"
    node: str = "n0"
    finalizers: list[str] = field(default_factory=lambda: [TRACKING])
    annotations: dict[str, str] = field(default_factory=dict)
    deleting: bool = False
    there: bool = True
    refusal: tuple[int, dict[str, Any]] | None = None
    asked: list[str] = field(default_factory=list)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "",  # noqa: ARG002
        *,
        patient: bool = True,
    ) -> tuple[int, bytes]:
        number = len(self.asked)
        metadata = body.get("metadata", {}) if body else {}
        if path.endswith("/eviction"):
            assert not patient, "a budget that refuses is not asked again at once"
            dry = "dryRun" in body["deleteOptions"]
            self.asked.append("dry run" if dry else "evict")
        else:
            self.asked.append(f"{method}{_change(metadata) if body else ''}")
        if number in self.before:
            self.before[number](self)
        status, answer = self._answer(path, body, metadata)
        return status, json.dumps(answer).encode()

    def _answer(self, path: str, body: Any, metadata: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        if not self.there:
            return 404, {"message": 'pods "p" not found'}
        if body is None:
            return 200, self._object()
        if path.endswith("/eviction"):
            wanted = body["deleteOptions"]["preconditions"]
            if not self._is(wanted):
                return 409, {"message": "the precondition does not match"}
            if self.refusal is not None:
                return self.refusal
            if "dryRun" not in body["deleteOptions"]:
                self.deleting, self.version = True, self.version + 1
            return 201, {"status": "Success", "code": 201}
        if not self._is(metadata):
            return 409, {"message": "the object has been modified"}
        if "finalizers" in metadata:
            if self.deleting:
                return 422, {"message": "no new finalizers can be added if the object is being deleted"}
            self.finalizers = [*metadata["finalizers"]]
        elif "$deleteFromPrimitiveList/finalizers" in metadata:
            self.finalizers = []
        for key, value in metadata["annotations"].items():
            self.annotations.pop(key, None)
            if value is not None:
                self.annotations[key] = value
        self.version += 1
        return 200, self._object()

    def _is(self, wanted: Mapping[str, Any]) -> bool:
        version = wanted.get("resourceVersion", str(self.version))
        return bool(wanted["uid"] == self.uid and version == str(self.version))

    def _object(self) -> dict[str, Any]:
        metadata = {
            "uid": self.uid,
            "name": "p",
            "namespace": "team",
            "resourceVersion": str(self.version),
            "finalizers": self.finalizers,
            "annotations": self.annotations,
        }
        if self.deleting:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        spec = {"schedulerName": "muster", "containers": []} | ({"nodeName": self.node} if self.node else {})
        return {"metadata": metadata, "spec": spec, "status": {"phase": self.phase}}

    # ---- what may happen meanwhile ----

    def changes(self) -> None:
        self.version += 1

    def is_bound(self) -> None:
        self.node, self.phase, self.version = "n0", "Running", self.version + 1

    def succeeds(self) -> None:
        self.phase, self.version = "Succeeded", self.version + 1

    def is_given_back(self) -> None:
        self.finalizers, self.version = [TRACKING], self.version + 1

    def goes(self) -> None:
        self.there = False

    def comes_again(self) -> None:
        self.uid, self.version = "another", self.version + 1

    def is_guarded(self) -> None:
        self.refusal = (429, ONE_BUDGET)

    def does_not_answer(self) -> None:
        raise ClusterError("no answer", 0)


def done(api: OnePod, action: Action, called_back: frozenset[str] = frozenset()) -> list[Event]:
    """What the hands say of one action, the outcome last."""
    heard: list[Event] = []
    hands = ActionExecutor(cast(Api, api), heard.extend, "muster")
    hands.call_back(called_back)
    hands.carry_out((action,))
    hands.close(all_of_it=True)
    return heard


def outcome(heard: list[Event]) -> tuple[int, str]:
    last = heard[-1]
    assert isinstance(last, Outcome)
    return last.status, last.message


OF_A_JOB = Evict(JOB, "u", "p", "7", tracked=True, reason=EndReason.SHARE, cause="test", by_job=True)
BEGUN = Evict(JOB, "u", "p", "7", tracked=False, reason=EndReason.SHARE, cause="test", by_job=True)
OF_A_SET = Evict(JOB, "u", "p", "7", tracked=False, reason=EndReason.SHARE, cause="test")


def test_a_pod_of_a_job_is_tried_dry_then_untracked_then_evicted() -> None:
    api = OnePod()
    heard = done(api, OF_A_JOB)
    assert api.asked == ["dry run", "PATCH off", "evict"]
    assert outcome(heard) == (201, "")
    assert api.deleting
    assert (api.finalizers, api.annotations) == ([], {LEAVING: "EndedByShare"})


def test_a_pod_that_no_job_counts_is_marked_with_the_reason_and_then_evicted() -> None:
    api = OnePod(finalizers=[])
    assert outcome(done(api, OF_A_SET)) == (201, "")
    assert api.asked == ["PATCH mark", "evict"]
    assert api.annotations == {LEAVING: "EndedByShare"}


def test_a_pod_that_no_job_counts_and_that_stays_loses_its_mark_and_gets_no_finalizer() -> None:
    api = OnePod(finalizers=[], refusal=(429, ONE_BUDGET))
    assert outcome(done(api, OF_A_SET))[0] == 429
    assert api.asked == ["PATCH mark", "evict", "PATCH back"]
    assert (api.finalizers, api.annotations) == ([], {})


def test_a_mark_without_an_answer_may_be_on() -> None:
    api = OnePod(before={0: OnePod.does_not_answer}, finalizers=[])
    assert outcome(done(api, OF_A_SET))[0] == 0
    assert api.asked == ["PATCH mark", "PATCH back"]
    assert api.finalizers == []


def test_an_eviction_that_was_begun_is_finished_without_a_dry_run() -> None:
    api = OnePod(finalizers=[])
    assert outcome(done(api, BEGUN)) == (201, "")
    assert api.asked == ["evict"]


def test_a_budget_that_refuses_leaves_the_finalizer_alone_and_is_named() -> None:
    api = OnePod(refusal=(429, ONE_BUDGET))
    assert outcome(done(api, OF_A_JOB)) == (
        429,
        "The disruption budget keep needs 4 healthy pods and has 4 currently",
    )
    assert api.asked == ["dry run"]


@pytest.mark.parametrize("action", [OF_A_JOB, BEGUN], ids=["tracked", "begun"])
def test_a_pod_of_two_budgets_is_refused_although_the_answer_is_201(action: Evict) -> None:
    api = OnePod(refusal=(201, TWO_BUDGETS), finalizers=[TRACKING] if action.tracked else [])
    status, text = outcome(done(api, action))
    assert status == 429
    assert text.startswith("This pod has more than one PodDisruptionBudget")
    assert api.finalizers == [TRACKING]


def test_a_budget_that_refuses_after_the_dry_run_gets_the_finalizer_put_back() -> None:
    api = OnePod(before={2: OnePod.is_guarded})
    heard = done(api, OF_A_JOB)
    assert outcome(heard)[0] == 429
    assert api.asked == ["dry run", "PATCH off", "evict", "PATCH back"]
    assert (api.finalizers, api.annotations) == ([TRACKING], {})
    seen = [event.pod for event in heard if isinstance(event, PodSeen)]
    assert [pod.tracked for pod in seen] == [False, True]


@pytest.mark.parametrize(
    ("when", "asked"),
    [
        (0, ["dry run", "GET"]),
        (1, ["dry run", "PATCH off", "GET"]),
        (2, ["dry run", "PATCH off", "evict", "GET", "PATCH back"]),
    ],
)
def test_a_pod_that_succeeds_meanwhile_is_left_for_its_job_to_count(when: int, asked: list[str]) -> None:
    api = OnePod(before={when: OnePod.succeeds})
    heard = done(api, OF_A_JOB)
    assert outcome(heard)[0] == 409
    assert api.asked == asked
    assert (api.deleting, api.finalizers, api.annotations) == (False, [TRACKING], {})
    seen = [event.pod for event in heard if isinstance(event, PodSeen)]
    assert seen[-1].phase is Phase.SUCCEEDED


def test_a_pod_of_an_operator_that_succeeds_meanwhile_is_not_deleted() -> None:
    api = OnePod(before={0: OnePod.succeeds}, finalizers=[])
    assert outcome(done(api, OF_A_SET))[0] == 409
    assert api.asked == ["PATCH mark", "GET"]
    assert not api.deleting


@pytest.mark.parametrize(
    ("when", "asked"),
    [
        (0, ["dry run", "GET", "dry run", "PATCH off", "evict"]),
        (1, ["dry run", "PATCH off", "GET", "dry run", "PATCH off", "evict"]),
        (2, ["dry run", "PATCH off", "evict", "GET", "evict"]),
    ],
)
def test_a_pod_that_only_changed_meanwhile_is_evicted_as_it_is_now(when: int, asked: list[str]) -> None:
    api = OnePod(before={when: OnePod.changes})
    assert outcome(done(api, OF_A_JOB)) == (201, "")
    assert api.asked == asked
    assert api.deleting


@pytest.mark.parametrize("reason", sorted(NEVER_RAN))
@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_pod_that_is_bound_before_it_is_ended_for_never_having_run_stays(
    reason: EndReason, when: int
) -> None:
    api = OnePod(before={when: OnePod.is_bound}, node="", phase="Pending")
    assert outcome(done(api, replace(OF_A_JOB, reason=reason)))[0] == 409
    assert "evict" not in api.asked[when + 1 :]
    assert (api.deleting, api.finalizers, api.annotations) == (False, [TRACKING], {})


def test_a_finalizer_that_another_leader_puts_back_goes_off_again_before_the_end() -> None:
    api = OnePod(before={2: OnePod.is_given_back})
    assert outcome(done(api, OF_A_JOB)) == (201, "")
    assert api.asked == ["dry run", "PATCH off", "evict", "GET", "dry run", "PATCH off", "evict"]
    assert (api.deleting, api.finalizers) == (True, [])


def test_a_pod_that_never_stands_still_is_left_to_the_next_cycle() -> None:
    api = OnePod(before=dict.fromkeys(range(9), OnePod.changes))
    assert outcome(done(api, OF_A_JOB))[0] == 409
    assert api.asked == ["dry run", "GET"] * 3
    assert api.finalizers == [TRACKING]


@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_pod_that_is_gone_meanwhile_is_no_news(when: int) -> None:
    api = OnePod(before={when: OnePod.goes})
    assert outcome(done(api, OF_A_JOB))[0] == 404
    assert "PATCH back" not in api.asked


def test_the_next_pod_of_the_same_name_is_not_touched() -> None:
    api = OnePod(before={0: OnePod.comes_again})
    assert outcome(done(api, OF_A_JOB))[0] == 409
    assert (api.deleting, api.finalizers) == (False, [TRACKING])


def test_an_eviction_without_an_answer_gets_the_finalizer_put_back() -> None:
    api = OnePod(before={2: OnePod.does_not_answer})
    assert outcome(done(api, OF_A_JOB))[0] == 0
    assert api.asked == ["dry run", "PATCH off", "evict", "PATCH back"]
    assert api.finalizers == [TRACKING]


def test_a_patch_without_an_answer_may_have_taken_the_finalizer_off() -> None:
    api = OnePod(before={1: OnePod.does_not_answer})
    assert outcome(done(api, OF_A_JOB))[0] == 0
    assert api.asked == ["dry run", "PATCH off", "PATCH back"]


def test_a_pod_on_its_way_out_takes_no_finalizer_and_needs_none() -> None:
    api = OnePod(deleting=True, finalizers=[])
    assert outcome(done(api, RestoreFinalizer(JOB, "u", "p", "test")))[0] == 422


def test_what_was_called_back_before_it_began_is_not_sent() -> None:
    api = OnePod()
    assert outcome(done(api, OF_A_JOB, frozenset({"u"}))) == (-1, "not wanted any more")
    assert api.asked == []
    # One that was begun is done: its pod runs uncounted meanwhile.
    assert outcome(done(OnePod(finalizers=[]), BEGUN, frozenset({"u"})))[0] == 201


def test_a_refusal_of_the_server_itself_is_no_budgets() -> None:
    busy = json.dumps({"message": "too many requests, please try again later", "code": 429}).encode()
    assert verdict(429, busy) == (503, "too many requests, please try again later")
    assert verdict(403, b"forbidden by a proxy") == (403, "forbidden by a proxy")
    crowded = ONE_BUDGET | {"code": 403}
    assert verdict(403, json.dumps(crowded).encode())[0] == 429
