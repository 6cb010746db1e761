"""Why a job has its share, in one sentence for its owner: what its next step would gain, against who has those GPUs.

    2 more GPUs would speed it up by 9 %; job-7 is 31 % faster with its last 2
    at its minimum; 1 more GPU would speed it up by 40 %, but 3 jobs that gain less and are shorter come first: RULE

Facts first: gains are relative speeds of the share table (what the profile's Estimate believes), of the next count
that the job may have, compared per GPU with the last step of every job above its minimum; the weakest of these is
named. Where such a job gains less, it was not gain that decided: the sentence says how many there are, and the
policy's own rule. A plugin's own sentence (Shares.why) comes before all that.

Tenants read these sentences in their Gang: a job of another namespace has no name here. Waiting jobs are told nothing
that changes when others start or end (a status is written to the API; 10,000 jobs wait).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from muster.core.bounds import calendar
from muster.core.reasons.words import plural
from muster.types import STRANGER, FloatArray, Grants, IntArray, JobKey, Table

_named = re.compile(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def words(
    table: Table,
    shares: Grants,
    fixed: Mapping[int, str] | None = None,
    rule: str = "",
    stay: Mapping[JobKey, int] | None = None,
) -> Mapping[JobKey, str]:
    """By job of the table, why it has what `shares` grants it.

    stay: replicas of jobs that are not in the table, since they have one size and are never ended for a share.

    fixed: by row, why it can't change now. rule: by what the policy decides, a clause (the Share plugin's RULE, if it
    has one: "GPUs go round evenly"). The mapping is lazy: the first question costs 2 ms for 10,000 jobs, all their
    sentences together 30 ms.
    """
    return _Words(table, shares, dict(fixed or {}), rule, stay or {})


def discreet(text: str, namespace: str, table: Table) -> str:
    """The text with "namespace/name" of the table's jobs made fit for readers of one namespace."""
    if "/" not in text:
        return text
    spaces = _spaces(table)

    def said(found: re.Match[str]) -> str:
        space = found[0].partition("/")[0]
        return STRANGER if space in spaces and space != namespace else found[0]

    return _named.sub(said, text)


@lru_cache(maxsize=1)
def _spaces(table: Table) -> frozenset[str]:
    """Namespaces with jobs; kept since a plugin may say something of each of 10,000 rows."""
    return frozenset(key.namespace for key in table.keys)


def with_silence(why: str, since: float) -> str:
    """The sentence, and behind it that the job's training has told nothing `since` (Unix s, 0 = it reports). A time
    and no length, so that it stays true while it stands in a status."""
    when = calendar(since) if since else None
    if when is None:
        return why
    said = f"has not reported since {when:%H:%M}Z on {when.day} {when:%b}: its reports until then count"
    return f"{why}; it {said}" if why else said


def percent(gain: float) -> str:
    """ "9 %" of 0.09; what rounds to nothing is said so."""
    return f"{round(100 * gain)} %" if gain >= 0.005 else "less than 1 %"


@dataclass(frozen=True, eq=False)
class _Words(Mapping[JobKey, str]):
    table: Table
    shares: Grants
    fixed: Mapping[int, str]
    rule: str
    stay: Mapping[JobKey, int]

    def __getitem__(self, key: JobKey) -> str:
        if key in self.stay:
            return _one_size(self.stay[key])
        return _sentence(self, self.table.row[key])

    def __iter__(self) -> Iterator[JobKey]:
        yield from self.stay
        yield from self.table.keys

    def __len__(self) -> int:
        return len(self.stay) + len(self.table)

    def __contains__(self, key: object) -> bool:
        return key in self.table.row or key in self.stay

    @cached_property
    def margins(self) -> _Margins:
        return _margins(self.table, self.shares)


@dataclass(frozen=True)
class _Margins:
    """(J,) columns: following, the next count that a job may have (0 = none), its price in GPUs and relative gain;
    left, seconds at its share (inf = unknown); last, the gain of its last step above the minimum, which freed GPUs.

    holders: rows of the H jobs above their minimum, the weakest first; worth: (H,) their last gain per GPU, longest:
    (H,) the most seconds left up to there. free: GPUs that nobody is granted.
    """

    following: IntArray
    price: IntArray
    gain: FloatArray
    left: FloatArray
    last: FloatArray
    freed: IntArray
    holders: IntArray
    worth: FloatArray
    longest: FloatArray
    free: int


def _margins(table: Table, shares: Grants) -> _Margins:
    have = shares.replicas
    rows = np.arange(len(table))
    following = np.where(have < table.min, table.min, have + 1)
    following = np.where(following <= table.max, following, 0)
    before = np.where(have > table.min, have - 1, have)
    for row, sizes in table.sizes.items():
        n = int(have[row])
        following[row] = min((s for s in sizes if s > n), default=0)
        before[row] = max((s for s in sizes if s < n), default=n)
    price = np.maximum(following - have, 0) * table.unit + np.where(have == 0, table.fixed, 0)
    freed = (have - before) * table.unit
    speed, faster, slower = (_speeds(table, n) for n in (have, following, before))
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.nan_to_num(faster / speed - 1.0, nan=0.0, posinf=0.0)
        last = np.nan_to_num(speed / slower - 1.0, nan=0.0, posinf=0.0)
        left = table.remaining / np.where(have > 0, speed, _speeds(table, table.min))
        worth = np.where(freed > 0, last / freed, np.inf)
    holders = rows[freed > 0]
    holders = holders[np.lexsort((holders, worth[holders]))]
    left = np.where(np.isnan(left), np.inf, left)
    used = have * table.unit + np.where(have > 0, table.fixed, 0)
    for row, grant in shares.details.items():
        if grant.beside is not None:  # it uses that job's GPUs
            used[row] = 0
    return _Margins(
        following=following,
        price=price,
        gain=gain,
        left=left,
        last=last,
        freed=freed,
        holders=holders,
        worth=worth[holders],
        longest=np.maximum.accumulate(left[holders]) if len(holders) else left[:0],
        free=table.gpus - int(used.sum()),
    )


def _speeds(table: Table, replicas: IntArray) -> FloatArray:
    at = np.clip(replicas, 0, table.curves.shape[1] - 1)
    speeds: FloatArray = table.curves[table.curve, at]
    return speeds


def _one_size(have: int) -> str:
    return f"its size is fixed at {plural(have, 'replica')}"


def _sentence(of: _Words, row: int) -> str:
    key = of.table.keys[row]
    said = discreet(of.shares.why.get(row, ""), key.namespace, of.table)
    have = int(of.shares.replicas[row])
    if not have:
        return said or _waiting(of, row)
    why = of.fixed.get(row)
    if why:
        why = discreet(f"keeps its {plural(have, 'replica')}: {why}", key.namespace, of.table)
    else:
        why = _step(of, row, have)
    return f"{said}; {why}" if said else why


def _waiting(of: _Words, row: int) -> str:
    """Without counts of others: they change with every start."""
    gpus = plural(int(of.margins.price[row]), "GPU")
    return f"needs {gpus} to start, and others come first" + (f": {of.rule}" if of.rule else "")


def _step(of: _Words, row: int, have: int) -> str:
    table, margins = of.table, of.margins
    if table.min[row] == table.max[row]:
        return _one_size(have)
    if not margins.following[row]:
        return "at its maximum"
    low = "at its minimum; " if have <= table.min[row] else ""
    price, gain = int(margins.price[row]), float(margins.gain[row])
    more = f"{price} more {'GPU' if price == 1 else 'GPUs'}"
    if gain <= 0.0:
        return f"{low}{more} {'is' if price == 1 else 'are'} not believed to make it faster"
    gains = f"{low}{more} would speed it up by {percent(gain)}"
    if price <= margins.free:
        if have == table.request[row]:
            return f"has the {plural(have, 'replica')} that it asked for; {more} would speed it up by {percent(gain)}"
        return f"{gains}, and {'is' if price == 1 else 'are'} free"
    others = [int(holder) for holder in margins.holders[:2] if holder != row]
    if not others:
        return "all jobs at their minimum" if low else f"{gains}; all others are at their minimum"
    less = int(np.searchsorted(margins.worth, gain / price, side="left"))
    itself = margins.freed[row] > 0 and margins.last[row] / margins.freed[row] < gain / price
    count = less - int(itself)
    if not count:
        return f"{gains}; {_who(table, row, others[0])} is {_last(margins, others[0], price)}"
    shorter = not itself and margins.longest[less - 1] < margins.left[row]
    return f"{gains}, but {_first(count, shorter)}" + (f": {of.rule}" if of.rule else "")


def _first(count: int, shorter: bool) -> str:
    if count == 1:
        return f"1 job that gains less{' and is shorter' if shorter else ''} comes first"
    return f"{count} jobs that gain less{' and are shorter' if shorter else ''} come first"


def _last(margins: _Margins, holder: int, price: int) -> str:
    """How much faster a holder is by its last step; "with them" where that is as many GPUs."""
    freed = int(margins.freed[holder])
    same = "it" if price == 1 else "them"
    return f"{percent(float(margins.last[holder]))} faster with " + (
        same if freed == price else f"its last {freed}"
    )


def _who(table: Table, row: int, other: int) -> str:
    key = table.keys[other]
    return key.name if key.namespace == table.keys[row].namespace else STRANGER
