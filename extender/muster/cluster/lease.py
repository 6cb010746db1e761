"""Who may act: the replica whose kube-scheduler holds the scheduler's Lease, for as long as that lasts (design §6).

A Term is one time of leading. It is over for good once its Lease has run out, another holds it, or it went through
other hands meanwhile; everything that is sent belongs to a Term and asks it right before (cluster.api). So what was
queued is not sent after the deadline, not even by a process that stood still in between and wakes up as "the leader".

Times are of a clock that nobody sets (monotonic), as in client-go: a Lease that was renewed between two looks was so
after the first of them, and lasts from then. Only the first look of a process believes the holder's clock, which is
that of the same pod.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from muster.cluster import api_types
from muster.cluster.api import Api
from muster.cluster.paths import path
from muster.cluster.quantities import seconds
from muster.errors import ClusterError

_lease = msgspec.json.Decoder(api_types.Lease)
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Record:
    """The Lease as it stood when somebody looked. renewed: Unix s by the holder's clock; lasts: s."""

    identity: str = ""
    acquired: str = ""
    transitions: int = 0
    renewed: float = 0.0
    lasts: float = 0.0

    @property
    def tenure(self) -> tuple[str, str, int]:
        """Who holds it since when: the same as long as nobody else held it in between."""
        return self.identity, self.acquired, self.transitions

    def of(self, host: str) -> bool:
        """Whether the scheduler on `host` holds it: identities are the host's name, "_" and a uid."""
        return self.identity.startswith(f"{host}_")

    def follows(self, before: Record, host: str) -> bool:
        """Whether nobody but `host` can have led between the two: its scheduler went on, or was started again."""
        if before.tenure == self.tenure:
            return True
        restarted = self.identity != before.identity and self.transitions == before.transitions + 1
        return restarted and before.of(host) and self.of(host)


NOBODY = Record()


class Term:
    """One time of leading, until `until` (monotonic s) unless its Lease is renewed."""

    def __init__(self, until: float, clock: Clock = time.monotonic) -> None:
        self._until, self._clock, self._over = until, clock, False

    def open(self) -> bool:
        """Whether it lasts; what was over once stays so."""
        if not self._over and self._clock() >= self._until:
            self._over = True
        return not self._over

    def renew(self, until: float) -> None:
        """Its Lease lasts until then."""
        self._until = until

    def end(self) -> None:
        """It is over before its time."""
        self._over = True


class Following:
    """The Lease, look by look, on one host. `look` by one thread; `term` is read by all."""

    def __init__(self, host: str, clock: Clock = time.monotonic, wall: Clock = time.time) -> None:
        self._host, self._clock, self._wall = host, clock, wall
        self._looked: float | None = None  # when the last look that got an answer began
        self._written = -math.inf  # the record was written after that
        self.record = NOBODY
        self.term: Term | None = None
        """The last term of this host; None before the first."""

    def look(self, read: Callable[[], Record]) -> None:
        """Read it once. Raises ClusterError where no answer came."""
        began, wall = self._clock(), self._wall()
        found, before = read(), self.record
        if self._looked is None:
            self._written = began - max(0.0, wall - found.renewed)
        elif (found.tenure, found.renewed) != (before.tenure, before.renewed):
            self._written = self._looked
        self._looked, self.record = began, found
        until = self._written + found.lasts
        if self.term is not None and self.term.open():
            if found.of(self._host) and found.tenure == before.tenure:
                self.term.renew(until)
                return
            self.term.end()
        if found.of(self._host) and self._clock() < until:
            self.term = Term(until, self._clock)


def read(api: Api, namespace: str, name: str) -> Record:
    """The Lease now; nobody's where there is none. Raises ClusterError when the server does not answer."""
    try:
        spec = _lease.decode(api.get(path("coordination.k8s.io/v1", "leases", namespace, name))).spec
    except ClusterError as error:
        if error.status == 404:
            return NOBODY
        raise
    except msgspec.DecodeError as error:
        raise ClusterError(f"Lease {namespace}/{name} can't be read: {error}") from error
    return Record(
        spec.holder_identity or "",
        spec.acquire_time or "",
        spec.lease_transitions or 0,
        seconds(spec.renew_time),
        float(spec.lease_duration_seconds or 0),
    )
