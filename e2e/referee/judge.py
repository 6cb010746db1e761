"""The referee's core: what the watches show goes in, in their order; sentences on what must never be come out.

Pure: no clock, no client; all times are seconds of the caller's clock, which stands still while nobody answers.
What is a fault at once is told at once; what may be for a moment is open until it is over, or a fault when it
lasts for too long."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.cluster import Json
from e2e.referee import gangs
from e2e.referee.capacity import Capacity
from e2e.referee.gangs import Gang, Key
from e2e.referee.objects import PodSeen, node, pod
from e2e.referee.owners import OwnerSeen, minimum, owner

LEAVING = "muster.dev/leaving"
"""The annotation of a pod that Muster ends, with its reason."""
ENDS = frozenset(("EndedByShare", "EndedByPreemption", "EndedStartFailed", "EndedLostMembers", "EndedToMove"))
"""The reasons for which a pod that runs may be ended."""


@dataclass(frozen=True)
class Rules:
    """Seconds that what is only right for a moment may last.

    start: a gang partly bound. Muster itself takes one back after gang.timeout, 120 s.
    again: the same once it was whole, where a scenario knows that nothing takes long; None: as start.
    planned: a node for which more is planned than it has. doubled: more of an owner than it wants: owners are slow.
    lost: an owner that wants pods, and none waits or runs. headless: index 0 waits while others of its owner run.
    reasons: the words for which a pod that runs may be evicted, on the pod itself; empty: no eviction needs one."""

    start: float = 150.0
    again: float | None = None
    planned: float = 20.0
    doubled: float = 30.0
    lost: float = 300.0
    headless: float = 90.0
    reasons: frozenset[str] = frozenset()


@dataclass
class _Open:
    """Something that must not last."""

    since: float
    limit: float
    sentence: str
    told: bool = False


class Referee:
    """What was seen so far. faults: sentences with the second at which they were found; announced: those that a
    scenario said would come, by patterns."""

    def __init__(self, rules: Rules | None = None, announced: Sequence[str] = ()) -> None:
        self.rules = rules or Rules()
        self.faults: list[str] = []
        self.announced: list[str] = []
        self._patterns = [re.compile(one) for one in announced]
        self.owners: dict[str, OwnerSeen] = {}
        self.gangs: dict[Key, Gang] = {}
        self.groups: dict[tuple[str, str], int] = {}  # minimums of PodGroups
        self.capacity = Capacity()
        self._key: dict[str, Key] = {}  # by pod uid
        self._open: dict[tuple[str, object], _Open] = {}
        self._ended: set[str] = set()  # uids of pods whose eviction was judged
        self._shared: dict[Key, None] = {}  # gangs called by a name, not by an owner's uid
        self._children: dict[str, set[str]] = {}  # uids of owners by that of the owner above them

    # ---- what happens ----

    def saw(self, kind: str, plain: Json, at: float, *, gone: bool = False) -> None:
        """One object as a watch showed it; gone: it was there last."""
        if kind == "Pod":
            self._pod(pod(plain), at, gone)
        elif kind == "Node":
            seen = node(plain)
            self.capacity.node(None if gone else seen, seen.name)
            self._plans(seen.name, at)
        elif kind == "PodGroup":
            self._group(plain, at, gone)
        else:
            self._owner(owner(plain), at, gone)

    def tick(self, at: float) -> None:
        """Time passes: what lasts for too long is a fault."""
        for found in self._open.values():
            if at - found.since > found.limit and not found.told:
                found.told = True
                self._fault(at, f"{found.sentence}, for {at - found.since:.0f} s")

    def open(self) -> list[str]:
        """What would be a fault if it stayed as it is. Left out are lost jobs (an owner may be slow for minutes) and
        those without index 0 (it may wait for a place as long as others use it)."""
        return [found.sentence for (what, _), found in self._open.items() if what not in ("lost", "headless")]

    def pods(self, namespace: str) -> list[PodSeen]:
        """Every pod of a namespace, as it was seen last."""
        return [one for gang in self.gangs.values() if gang.key[0] == namespace for one in gang.pods.values()]

    # ---- one at a time ----

    def _pod(self, seen: PodSeen, at: float, gone: bool) -> None:
        touched = self.capacity.where(seen.uid)
        if gone:
            self.capacity.gone(seen)
        elif fault := self.capacity.saw(seen):
            self._fault(at, fault)
        for name in touched | self.capacity.where(seen.uid):
            self._plans(name, at)
        if not seen.ours:
            return
        before = self._key.get(seen.uid)
        key = gangs.key_of(seen, self.owners)
        if before is not None and before != key:
            self._leaves(seen.uid, before, at)
        self._key[seen.uid] = key
        gang = self._gang(key)
        known = gang.pods.get(seen.uid)
        self._end(seen, known, at)
        gang.saw(seen)
        if gone:
            self._leaves(seen.uid, key, at)
        self._judge(key, at)

    def _gang(self, key: Key) -> Gang:
        if key not in self.gangs:
            self.gangs[key] = Gang(key)
            if " " in key[1]:
                self._shared[key] = None
        return self.gangs[key]

    def _leaves(self, uid: str, key: Key, at: float) -> None:
        gang = self.gangs[key]
        tops = {top for top in map(self._top, gang.owners) if top is not None}
        gang.pods.pop(uid, None)
        self._key.pop(uid, None)
        self._judge(key, at)
        if not gang.pods and key[1] not in self.owners:
            self.gangs.pop(key)
            self._shared.pop(key, None)
        for top in tops:
            self._lost(top, at)

    def _owner(self, seen: OwnerSeen, at: float, gone: bool) -> None:
        known = self.owners.pop(seen.uid, None)
        if gone:
            self._holds(("lost", seen.uid), "", 0.0, at)
        else:
            self.owners[seen.uid] = seen
        if seen.parent is not None:
            self._children.setdefault(seen.parent.uid, set()).add(seen.uid)
        if known is None or known.parent != seen.parent:  # pods below it were thought to be of another gang
            for uid in (seen.uid, *self._children.get(seen.uid, ())):
                for pod_uid in list(self.gangs.get((seen.namespace, uid), Gang(("", ""))).pods):
                    self._rekey(pod_uid, at)
        for key in self._hang(seen.uid):
            self._judge(key, at)
        for uid in (
            seen.uid,
            *self._children.get(seen.uid, ()),
        ):  # who was thought to be on top may be no more
            if self._top(uid) != uid:
                self._open.pop(("lost", uid), None)
        if (top := self._top(seen.uid)) is not None:
            self._lost(top, at)

    def _group(self, plain: Json, at: float, gone: bool) -> None:
        named = str(plain["metadata"]["namespace"]), str(plain["metadata"]["name"])
        least = 0 if gone else minimum(plain)
        if least:
            self.groups[named] = least
        else:
            self.groups.pop(named, None)
        for key, gang in list(self.gangs.items()):
            if any((one.namespace, one.group[1]) == named for one in gang.pods.values()):
                self._judge(key, at)

    def _rekey(self, uid: str, at: float) -> None:
        old = self._key[uid]
        seen = self.gangs[old].pods[uid]
        new = gangs.key_of(seen, self.owners)
        if new == old:
            return
        self._leaves(uid, old, at)
        self._key[uid] = new
        self._gang(new).saw(seen)
        self._judge(new, at)

    def _hang(self, uid: str) -> list[Key]:
        """Gangs of this owner: by its uid, by that of the topmost above it, or by a name that several owners
        share."""
        known = self.owners.get(uid)
        tops = {uid, self._top(uid) or uid}
        named = [key for key in self._shared if uid in self.gangs[key].owners]
        by_uid = [(known.namespace, one) for one in tops] if known else []
        return [key for key in by_uid if key in self.gangs] + named

    # ---- the rules ----

    def _judge(self, key: Key, at: float) -> None:
        gang = self.gangs.get(key)
        if gang is None:
            for what in ("partly", "headless"):
                self._holds((what, key), "", 0.0, at)
            return
        first = gang.whole is None
        told = gangs.partly(gang, self.owners, self.groups)
        again = self.rules.start if self.rules.again is None else self.rules.again
        self._holds(("partly", key), told, self.rules.start if first else again, at)
        over = gangs.over(gang, self.owners)
        twice = "" if over else "; ".join(gangs.doubled(gang, self.owners))
        self._holds(("doubled", key), twice, self.rules.doubled, at)
        without = "" if over else "; ".join(gangs.headless(gang, self.owners))
        self._holds(("headless", key), without, self.rules.headless, at)
        many = "; ".join(gangs.too_many(gang, self.owners))
        if self._holds(("many", key), many, math.inf, at):
            self._fault(at, many)
        for top in {key[1], *map(self._top, gang.owners)} - {None}:
            self._lost(str(top), at)

    def _lost(self, uid: str, at: float) -> None:
        seen = self.owners.get(uid)
        if seen is None or (seen.parent is not None and seen.parent.uid in self.owners):
            self._open.pop(("lost", uid), None)
            return
        own = self.gangs.get((seen.namespace, uid))
        hangs = [self.gangs[key] for key in self._shared if uid in map(self._top, self.gangs[key].owners)]
        hangs += [own] if own else []
        pods = [
            one for gang in hangs for one in gang.pods.values() if one.controller and self._is_of(one, uid)
        ]
        told = gangs.lost(seen, pods, any(gang.failed for gang in hangs))
        self._holds(("lost", uid), told, self.rules.lost, at)

    def _end(self, seen: PodSeen, known: PodSeen | None, at: float) -> None:
        """A pod that ran is being ended by an Eviction: who may do that, and for what reason?"""
        if not seen.evicted or not seen.node or seen.uid in self._ended or known is None or known.ended:
            return
        self._ended.add(seen.uid)
        if seen.controller is None and seen.notes.get("muster.dev/evictable") != "true":
            self._fault(at, f"{seen.namespace}/{seen.name} was evicted: a bare pod, which nobody makes again")
        word = seen.notes.get(LEAVING, "")
        if self.rules.reasons and word not in self.rules.reasons:
            self._fault(
                at, f"{seen.namespace}/{seen.name} was evicted while it ran; its reason: {word or 'none'}"
            )

    def _is_of(self, one: PodSeen, top: str) -> bool:
        return one.controller is not None and (self._top(one.controller.uid) or one.controller.uid) == top

    def _plans(self, name: str, at: float) -> None:
        self._holds(("planned", name), self.capacity.over_planned(name), self.rules.planned, at)

    def _top(self, uid: str) -> str | None:
        """The topmost owner that is known above this one."""
        known = self.owners.get(uid)
        for _ in range(8):
            if known is None or known.parent is None or known.parent.uid not in self.owners:
                break
            known = self.owners[known.parent.uid]
        return known.uid if known else None

    def _holds(self, what: tuple[str, object], sentence: str, limit: float, at: float) -> bool:
        """Note that this is so, or no more so; whether it is new."""
        if not sentence:
            self._open.pop(what, None)
            return False
        found = self._open.get(what)
        if found is None:
            self._open[what] = _Open(at, limit, sentence)
            return True
        found.sentence, found.limit = sentence, limit
        return False

    def _fault(self, at: float, sentence: str) -> None:
        expected = any(pattern.search(sentence) for pattern in self._patterns)
        (self.announced if expected else self.faults).append(f"{at:.1f} s: {sentence}")
