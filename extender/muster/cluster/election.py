"""A Lease of our own, where Muster is registered with a scheduler that a team already runs (design §6).

The official client's leader election holds it; who leads is then read from the Lease as in the other case, where
kube-scheduler holds it, so the rest of Muster does not know the difference.
"""

from __future__ import annotations

import threading
import uuid

from kubernetes.client import ApiClient, Configuration, CoordinationV1Api
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

DURATION, DEADLINE, RETRY = 15, 10, 2
"""Seconds, as kube-scheduler's own: how long a Lease lasts, until when a renewal may be tried, and how often."""


def campaign(config: Configuration, namespace: str, name: str, host: str, ended: threading.Event) -> None:
    """Try to hold the Lease, in a thread of its own, until `ended`. Identities are the host's name, "_" and a uid."""
    lock = LeaseLock(name, namespace, f"{host}_{uuid.uuid4()}")  # type: ignore[no-untyped-call]
    lock.api_instance = CoordinationV1Api(ApiClient(config))
    election = leaderelection.LeaderElection(  # type: ignore[no-untyped-call]
        electionconfig.Config(  # type: ignore[no-untyped-call]
            lock, DURATION, DEADLINE, RETRY, onstarted_leading=ended.wait, onstopped_leading=lambda: None
        )
    )

    def run() -> None:
        while not ended.is_set():
            election.run()  # type: ignore[no-untyped-call]  # returns when a renewal failed

    threading.Thread(target=run, name="election", daemon=True).start()
