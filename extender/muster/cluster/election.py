"""A Lease of our own, where Muster is registered with a scheduler that a team already runs (design §6).

The official client's leader election holds it; who leads is then read from the Lease as in the other case, where
kube-scheduler holds it, so the rest of Muster does not know the difference.

The client's loop ends with any error that is no answer of the API server (its Lock lets urllib3's through), waits for
an answer for ever, and starts a thread for each term. So the Lock here says "not this time" instead, each of its
requests has a time limit, and the two halves of that loop are called from one supervised thread, again and again.
"""

from __future__ import annotations

import copy
import logging
import threading
import uuid
from typing import Any

from kubernetes.client import ApiClient, Configuration, CoordinationV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from urllib3.exceptions import HTTPError

from muster.threads import STALLED, beat, supervised

log = logging.getLogger(__name__)

DURATION, DEADLINE, RETRY = 15, 10, 2
"""Seconds, as kube-scheduler's own: how long a Lease lasts, until when a renewal may be tried, and how often."""
TIMEOUT = 5.0
"""Seconds for one request: two are tried before the deadline."""


class Lock(LeaseLock):
    """The client's lock, for an API server that may be away."""

    def __init__(self, api: Any, namespace: str, name: str, identity: str) -> None:
        super().__init__(name, namespace, identity)  # type: ignore[no-untyped-call]
        self.api_instance = api

    def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        """Whether it is there, and it, or what the server said."""
        beat()
        try:
            found: tuple[bool, Any] = super().get(name, namespace)  # type: ignore[no-untyped-call]
        except (HTTPError, OSError) as error:
            log.warning("the Lease %s/%s can't be read: %s", namespace, name, error)
            return False, ApiException(status=0, reason=str(error))
        return found

    def create(self, name: str, namespace: str, election_record: Any) -> bool:
        """Whether it is made."""
        return self._tried(super().create, name, namespace, election_record)

    def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        """Whether it is written."""
        return self._tried(super().update, name, namespace, updated_record)

    @staticmethod
    def _tried(write: Any, name: str, namespace: str, record: Any) -> bool:
        try:
            return bool(write(name, namespace, record))
        except (HTTPError, OSError) as error:
            log.warning("the Lease %s/%s can't be written: %s", namespace, name, error)
            return False


class _Punctual(ApiClient):
    """Requests that end."""

    def call_api(self, *arguments: Any, **named: Any) -> Any:
        return super().call_api(*arguments, **{**named, "_request_timeout": TIMEOUT})


def campaign(config: Configuration, namespace: str, name: str, host: str, ended: threading.Event) -> None:
    """Try to hold the Lease, in a thread of its own, until `ended`. Identities are the host's name, "_" and a uid."""
    config = copy.copy(config)
    config.retries = False
    api = CoordinationV1Api(_Punctual(config))
    election = candidate(Lock(api, namespace, name, f"{host}_{uuid.uuid4()}"))

    def run() -> None:
        while not ended.is_set():
            term(election)

    supervised("election", run, within=STALLED)


def candidate(lock: Lock, duration: int = DURATION, deadline: int = DEADLINE, retry: float = RETRY) -> Any:
    """The client's election for a lock."""
    return leaderelection.LeaderElection(  # type: ignore[no-untyped-call]
        electionconfig.Config(  # type: ignore[no-untyped-call]
            lock, duration, deadline, retry, onstarted_leading=_nothing, onstopped_leading=_nothing
        )
    )


def term(election: Any) -> None:
    """One term: wait for the Lease, and renew it until that fails for longer than the deadline."""
    election.acquire()
    log.info("the Lease is ours")
    election.renew_loop()
    log.warning("the Lease could not be renewed; trying to get it again")


def _nothing() -> None:
    """Who leads is read from the Lease."""
