"""The arithmetic of the measures. Pure: times and texts in, figures out."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_CALLS = re.compile(r"^apiserver_request_total\{([^}]*)\} ([0-9.e+]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
QUIET_VERBS = frozenset({"GET", "LIST", "WATCH"})


@dataclass(frozen=True)
class Binds:
    """When pods were bound. `times` in seconds on one clock, in any order; `started` is the schedulers' start."""

    started: float
    times: tuple[float, ...]

    @property
    def first(self) -> float:
        """Seconds from the schedulers' start to the first bind."""
        return min(self.times) - self.started

    @property
    def whole(self) -> float:
        """Seconds from the schedulers' start to the last bind: the first clock."""
        return max(self.times) - self.started

    @property
    def span(self) -> float:
        """Seconds from the first bind to the last: the second clock, which ratios use."""
        return max(self.times) - min(self.times)

    @property
    def rate(self) -> float:
        """Pods a second by the second clock; 0 where there are fewer than two."""
        return (len(self.times) - 1) / self.span if len(self.times) > 1 and self.span > 0 else 0.0

    @property
    def rate_from_start(self) -> float:
        """Pods a second by the first clock."""
        return len(self.times) / self.whole if self.whole > 0 else 0.0


def median(values: Iterable[float]) -> float:
    """The middle value; of two, their mean. ValueError where there is none."""
    found = list(values)
    if not found:
        raise ValueError("the median of nothing")
    return float(statistics.median(found))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all do not exceed. ValueError where there is none."""
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)
    return ordered[min(len(ordered), max(1, rank)) - 1]


def calls(metrics: str) -> Counter[str]:
    """Requests that an apiserver has answered, from its /metrics: "PATCH pods/status" -> how many."""
    found: Counter[str] = Counter()
    for labels, value in _CALLS.findall(metrics):
        named = dict(_LABEL.findall(labels))
        resource = named.get("resource", "")
        if named.get("subresource"):
            resource += f"/{named['subresource']}"
        found[f"{named.get('verb', '')} {resource}"] += int(float(value))
    return found


def writes_since(before: Mapping[str, int], after: Mapping[str, int], *, per: int) -> dict[str, float]:
    """Writing calls between two readings for each of `per` things, the most frequent first; leases left out."""
    more = {
        call: count - before.get(call, 0)
        for call, count in after.items()
        if count > before.get(call, 0) and call.split()[0] not in QUIET_VERBS and "leases" not in call
    }
    return {call: count / per for call, count in sorted(more.items(), key=lambda pair: (-pair[1], pair[0]))}


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
    """Median over median; infinite where theirs is 0."""
    below = median(theirs)
    return median(ours) / below if below else float("inf")


def held_in_part(bound: Sequence[float], needed: int, until: float, gpus: int) -> float:
    """GPU-seconds that the bound pods of a gang held before it was whole.

    bound: s at which its pods were bound, in any order; needed: pods of it; until: s at which nobody looks any more;
    gpus: of a pod."""
    at = sorted(bound)
    whole = at[needed - 1] if len(at) >= needed else until
    return gpus * sum(whole - one for one in at if one < whole)


def ticks(stat: str) -> int:
    """CPU time that a process has used, in clock ticks, from its /proc/PID/stat."""
    fields = stat[stat.rindex(")") + 2 :].split()
    return int(fields[11]) + int(fields[12])


def resident(status: str) -> int:
    """Resident bytes of a process, from its /proc/PID/status. ValueError where it has ended."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError("expected a line VmRSS, found none: the process has ended")
