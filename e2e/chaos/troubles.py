"""What breaks and when: drawn of a seed before anything begins, so that the same seed has the same order of
troubles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

PROCESSES = (
    "kube-apiserver",
    "etcd",
    "kube-controller-manager",
    "kube-scheduler-0",
    "kube-scheduler-1",
    "muster-0",
    "muster-1",
    "verbs of muster-0",
    "verbs of muster-1",
)
MUSTERS = ("muster-0", "muster-1")
VERBS = "verbs of "
"""What precedes a muster's name: its process that answers the verbs, which it starts again by itself."""
FAULTS = (
    "429 after 0 PATCH x20; 429 after 0 POST x20",
    "fail after 0 PATCH x20; fail after 0 POST x20",
    "timeout after 3 PATCH x3; lost after 9 PATCH x3; lost after 0 POST x2",
    "409 after 0 PATCH x10; fail after 0 GET x10",
)
"""What the API answers Muster with (cluster/faults.py), from its restart on."""
CLOCKS = ("+45", "-45", "+3600", "-3600")
"""By how many seconds Muster's clock is off."""
EVERY, SOONEST = 6.0, 1.5
"""Mean and least seconds between two troubles."""
LONGEST = {"etcd": 8.0, "kube-apiserver": 12.0}
"""Seconds for which these are away at the most; others 25."""


class What(StrEnum):
    KILL = "kill"
    STOP = "stop"
    FREEZE = "freeze"
    ANSWERS = "answers"
    CLOCK = "clock"
    POD = "delete a pod"
    GANG = "delete a Gang"
    NODE = "delete a node"
    CORDON = "cordon"


WEIGHTS = {
    What.KILL: 5,
    What.STOP: 2,
    What.FREEZE: 4,
    What.ANSWERS: 2,
    What.CLOCK: 2,
    What.POD: 5,
    What.GANG: 4,
    What.NODE: 1,
    What.CORDON: 3,
}


@dataclass(frozen=True)
class Trouble:
    """at: seconds from the beginning. process: whose, "" for none. how: a fault's rule or a clock. seconds:
    until it is undone. pick: of what there is then, 0 to 1, in the order of names."""

    at: float
    what: What
    process: str
    how: str
    seconds: float
    pick: float

    def __str__(self) -> str:
        words = " ".join(filter(None, (self.what.value, self.process, self.how)))
        return f"{words} for {self.seconds:.1f} s" if self.seconds else words


def troubles(seed: int, seconds: float) -> Iterator[Trouble]:
    """What breaks within so many seconds. clocks: whether clocks can be wrong here; the others are the same
    without."""
    draw = np.random.default_rng([seed, 2])
    kinds, weights = list(WEIGHTS), np.array(list(WEIGHTS.values()), dtype=float)
    at = 5.0
    while at < seconds:
        what = kinds[int(draw.choice(len(kinds), p=weights / weights.sum()))]
        process, muster = str(draw.choice(PROCESSES)), str(draw.choice(MUSTERS))
        fault, clock = str(draw.choice(FAULTS)), str(draw.choice(CLOCKS))
        lasts, pick = float(draw.uniform(0.5, 25.0)), float(draw.random())
        gap = max(SOONEST, float(draw.exponential(EVERY)))
        whose = {What.ANSWERS: muster, What.CLOCK: muster}.get(
            what, process if what in (What.KILL, What.STOP, What.FREEZE) else ""
        )
        how = {What.ANSWERS: fault, What.CLOCK: clock}.get(what, "")
        at_once = what in (What.POD, What.GANG) or (whose.startswith(VERBS) and what is not What.FREEZE)
        seconds_off = 0.0 if at_once else min(lasts, LONGEST.get(whose, 25.0))
        yield Trouble(round(at, 2), what, whose, how, round(seconds_off, 2), pick)
        at += gap
