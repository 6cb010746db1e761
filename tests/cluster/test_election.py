"""Muster's own Lease, held by the official client's election, whose API server may be away."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes.client import V1Lease
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection import leaderelection
from urllib3.exceptions import MaxRetryError, ReadTimeoutError

from muster.cluster import election
from muster.cluster.election import Lock, candidate

AWAY = MaxRetryError(None, "/apis", OSError("connection refused"))  # type: ignore[arg-type]
NO_ANSWER = ReadTimeoutError(None, "/apis", "timed out")  # type: ignore[arg-type]


class Coordination:
    """The Lease as the API server has it. trouble: raised by the next requests, in turn."""

    def __init__(self) -> None:
        self.lease: V1Lease | None = None
        self.trouble: list[Exception | None] = []
        self.asked: list[str] = []

    def _answers(self, what: str) -> None:
        self.asked.append(what)
        if self.trouble and (error := self.trouble.pop(0)) is not None:
            raise error

    def read_namespaced_lease(self, name: str, namespace: str) -> V1Lease:  # noqa: ARG002
        self._answers("read")
        if self.lease is None:
            error = ApiException(status=404, reason="Not Found")
            error.body = '{"code": 404}'
            raise error
        return self.lease

    def create_namespaced_lease(self, namespace: str, body: Any) -> V1Lease:  # noqa: ARG002
        self._answers("create")
        self.lease = V1Lease(metadata={"name": "l"}, spec=body.spec)
        return self.lease

    def replace_namespaced_lease(self, name: str, namespace: str, body: V1Lease) -> V1Lease:  # noqa: ARG002
        self._answers("renew")
        self.lease = body
        return body


def elected(api: Coordination, identity: str = "host-a_1") -> Any:
    return candidate(Lock(api, "n", "l", identity))


@pytest.mark.parametrize("error", [AWAY, NO_ANSWER, OSError("reset"), ApiException(status=503)], ids=repr)
@pytest.mark.parametrize("at", ["read", "create", "renew"])
def test_no_trouble_of_the_api_server_ends_the_election(error: Exception, at: str) -> None:
    api = Coordination()
    found = elected(api)
    if at == "renew":
        found.try_acquire_or_renew()
    api.trouble = [error] if at == "read" else [None, error]
    assert found.try_acquire_or_renew() is False
    assert found.try_acquire_or_renew() is True
    assert api.lease is not None
    assert api.lease.spec.holder_identity == "host-a_1"


class _EnoughError(Exception):
    """The test has seen what it wants."""


def test_who_lost_the_lease_while_the_server_was_away_tries_for_ever_and_leads_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = Coordination()
    found = elected(api)
    monkeypatch.setattr(leaderelection.time, "sleep", lambda _: None)
    found.election_config.renew_deadline = 0  # what fails once is lost
    answered = api._answers
    renewed = 0

    def answers(what: str) -> None:
        nonlocal renewed
        if what == "renew" and not api.trouble:
            renewed += 1
            api.trouble = [AWAY] * {3: 50, 6: 500}.get(renewed, 0)
            if renewed == 9:
                raise _EnoughError
        answered(what)

    monkeypatch.setattr(api, "_answers", answers)

    def terms() -> None:
        for _ in range(1000):
            election.term(found)

    with pytest.raises(_EnoughError):
        terms()
    assert api.asked.count("read") > 550
    assert api.lease is not None
    assert api.lease.spec.holder_identity == "host-a_1"


def test_another_holder_is_left_the_lease_until_it_has_run_out() -> None:
    api = Coordination()
    assert elected(api, "host-b_1").try_acquire_or_renew()
    late = elected(api, "host-a_1")
    assert late.try_acquire_or_renew() is False
    late.observed_time_milliseconds -= 16_000
    assert late.try_acquire_or_renew() is True


def test_each_request_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stands still answers nothing, and a Lease that waits for it is not renewed."""
    limits: list[float] = []
    monkeypatch.setattr(
        election.ApiClient, "call_api", lambda *_, **named: limits.append(named["_request_timeout"])
    )
    election._Punctual().call_api("GET", "/", _request_timeout=None)
    assert limits == [election.TIMEOUT]
    assert 2 * election.TIMEOUT <= election.DEADLINE < election.DURATION
