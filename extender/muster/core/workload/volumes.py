"""Which persistent volumes are no obstacle: those of claims that are bound to a volume without node affinity.

A pod whose claims are all so may be pinned (design §2); any other takes the scored way. One with a claim that does
not exist fits on no node, for kube-scheduler as for us: it is granted nothing that it could not use. The claims are
read by name when a pod of ours that waits has them, so a pod stays apart for a moment until they are known.
"""

from __future__ import annotations

from dataclasses import replace

from muster.cached import MIB, cached
from muster.types import ClaimSeen, Phase, PodRecord, Shape

VOLUMES = "persistent volumes"
"""What a shape says that the planner does not model."""
CLAIM_PATIENCE = 5.0
"""Seconds after which a pod whose claims could not be read is placed the scored way."""

Claim = tuple[str, str]  # namespace, name


class Claims:
    """The claims of pods that wait, and what is known of them."""

    def __init__(self) -> None:
        self.wanted: frozenset[Claim] = frozenset()
        """To be read; a new set when it changes, since another thread reads the old one."""
        self._anew: set[Claim] = set()
        self._read: dict[Claim, ClaimSeen] = {}
        self._pods: dict[Claim, set[str]] = {}
        self._of: dict[str, tuple[Claim, ...]] = {}

    def follow(self, pod: PodRecord) -> None:
        """The pod's claims are wanted as long as it waits."""
        waits = pod.phase in (Phase.GATED, Phase.HELD)
        claims = tuple((pod.namespace, name) for name in pod.claims) if waits else ()
        if self._of.get(pod.uid, ()) == claims:
            return
        self.leave(pod.uid)
        if claims:
            self._of[pod.uid] = claims
            for claim in claims:
                if claim not in self._pods:
                    self._anew.add(claim)
                self._pods.setdefault(claim, set()).add(pod.uid)
            self._want()

    def leave(self, uid: str) -> None:
        """The pod waits no longer, or is gone."""
        for claim in self._of.pop(uid, ()):
            pods = self._pods[claim]
            pods.discard(uid)
            if not pods:
                del self._pods[claim]
                self._read.pop(claim, None)
                self._want()

    def take_anew(self) -> frozenset[Claim]:
        """Those that nobody waited for before, since this was last asked: to be read at once, though they may have
        been read long ago."""
        anew, self._anew = self._anew, set()
        return frozenset(anew)

    def seen(self, found: ClaimSeen) -> frozenset[str]:
        """What was read of a claim; uids of the pods that change by it."""
        claim = (found.namespace, found.name)
        if claim not in self._pods or self._read.get(claim) == found:
            return frozenset()
        self._read[claim] = found
        return frozenset(self._pods[claim])

    def unread(self, pod: PodRecord) -> bool:
        """Whether a claim of the pod was never read."""
        return any(claim not in self._read for claim in self._of.get(pod.uid, ()))

    def settled(self, pod: PodRecord) -> PodRecord:
        """The pod with the shape that the planner is to see."""
        if not pod.claims:
            return pod
        # A pod that was pinned had none in its way; its claims are not followed any more.
        found = [self._read.get((pod.namespace, name)) for name in pod.claims]
        anywhere = bool(pod.pin) or all(one is not None and one.anywhere for one in found)
        missing = () if anywhere else tuple(f"claim {c.name}" for c in found if c is not None and c.missing)
        shape = _shape(pod.shape, anywhere, missing)
        return pod if shape == pod.shape else replace(pod, shape=shape)

    def _want(self) -> None:
        self.wanted = frozenset(self._pods)


@cached("shapes with volumes", 16 * MIB)
def _shape(shape: Shape, anywhere: bool, missing: tuple[str, ...]) -> Shape:
    """Kept, so that pods of one template share one Shape object."""
    rest = tuple(why for why in shape.unmodelled if why != VOLUMES)
    return replace(shape, unmodelled=rest if anywhere else (*rest, VOLUMES), missing=missing)
