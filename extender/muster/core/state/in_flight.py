"""Requests about a job that are under way: one at a time about each object of the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from muster.errors import InvariantError
from muster.types import Action


class Request(NamedTuple):
    """Requests about one object of the API, one at a time: `sends`, and then `taken`, `refused` or `dropped`. The
    answer to another kind of request than the one under way (an earlier term sent it) ends nothing."""

    sent: type[Action] | None = None
    """What is under way; None: nothing is."""
    not_before: float = 0.0
    """When the next may be sent (Unix s)."""
    refusals: int = 0
    """In a row; an answer of a server that is away is none."""

    def sends(self, kind: type[Action], not_before: float = 0.0) -> Request:
        """A request of that kind is sent. not_before: of the one after it, where this one changes nothing."""
        if self.sent is not None:
            raise InvariantError(f"{kind.__name__} is sent while {self.sent.__name__} is under way")
        return Request(kind, max(self.not_before, not_before), self.refusals)

    def taken(self, kind: type[Action]) -> Request:
        """The API has done it."""
        return self.dropped(kind)._replace(refusals=0)

    def refused(self, kind: type[Action], not_before: float, refusals: int) -> Request:
        """The API has not done it, and it is not asked again before then."""
        return self.dropped(kind)._replace(not_before=not_before, refusals=refusals)

    def dropped(self, kind: type[Action] | None = None) -> Request:
        """It is not awaited any more, whatever became of it; None: whatever it was."""
        return self._replace(sent=None) if kind is None or kind is self.sent else self


IDLE = Request()


@dataclass
class InFlight:
    """Requests for a job whose answers are awaited, and when what was refused may be sent again."""

    gang: Request = IDLE
    """About its Gang: written or deleted."""
    nodes: Request = IDLE
    """About its ProvisioningRequest: an autoscaler is asked for nodes, or told that none are needed."""
    start: bool = False
    """The patch of its first pod, which carries the placement, is being sent."""
    pods: dict[str, Request] = field(default_factory=dict)  # about its pods, by uid, where any is
    told: tuple[str, str, str, str] = ("", "", "", "")  # by the write of its Gang, as `Recorded.told`
    leaves: frozenset[str] = frozenset()  # likewise, `Desired.leaves_whole`
    lost: bool = False  # the Gang that the request is about is gone, or is another object
    again: bool = False  # something else was wanted since that was sent
    wrote: bool = False  # since this leader leads: what its Gang says is not recalled

    def of(self, uid: str) -> Request:
        """About one of its pods."""
        return self.pods.get(uid, IDLE)

    def keep(self, uid: str, request: Request) -> None:
        """What is about one of its pods from now on."""
        if request == IDLE:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = request

    def lose(self) -> None:
        """The Gang is gone, or is another object: what is under way was about another one."""
        self.lost = self.gang.sent is not None

    def on_its_way(self) -> InFlight:
        """What is still to be answered, about the Gang and the pods."""
        wrote = self.wrote and self.gang.sent is not None
        return InFlight(gang=self.gang, pods=self.pods, lost=self.lost, wrote=wrote)

    def drop(self) -> None:
        """Nothing is awaited any more."""
        self.gang, self.nodes = self.gang.dropped(), self.nodes.dropped()
        self.start = self.lost = self.again = False
        for uid, request in list(self.pods.items()):
            self.keep(uid, request.dropped())
