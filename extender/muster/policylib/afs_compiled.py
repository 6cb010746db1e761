"""The scans of `policylib.afs` compiled by numba: imported only where there is enough to scan to pay for the import.

What is compiled is kept beside this file or in the user's cache directory; where neither can be written to, it is
compiled again in each process (some seconds).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from muster.policylib.ladders import Ladders
from muster.types import FloatArray, IntArray

BLOCK = 32
"""Jobs of one block of `_ranked`."""
WIDE = 1 << 24
"""Numbers in the table of `_ranked` beyond which it takes more memory than it is worth."""


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        made: Callable[..., Any] = njit(cache=True, boundscheck=False)(function)
    except RuntimeError:  # no directory for the cache
        made = njit(boundscheck=False)(function)
    return made


def spread(steps: Ladders, kind: IntArray, remaining: FloatArray, left: int) -> IntArray:
    """The step of each job after `left` GPUs; jobs in the order of the scan, see `afs.distribute`."""
    place = np.zeros(len(kind), dtype=np.int64)
    ranks = _ranks(steps) if len(kind) >= 8 * BLOCK and (steps.price == 1).all() else None
    if ranks is None or ranks[3] * (len(kind) // BLOCK + 1) > WIDE:
        _scan(steps.gain, steps.loss, steps.speed, steps.price, steps.length, kind, remaining, left, place)
    else:
        _ranked(steps.gain, steps.loss, steps.speed, steps.length, *ranks, kind, remaining, left, place)
    return place


def spread_unknown(steps: Ladders, kind: IntArray, left: int, seed: int) -> IntArray:
    """The step of each job after `left` GPUs where lengths are unknown, see `afs.distribute_unknown`."""
    place = np.zeros(len(kind), dtype=np.int64)
    _unknown(steps.gain, steps.loss, steps.price, steps.length, kind, left, np.uint64(seed), place)
    return place


def _ranks(steps: Ladders) -> tuple[IntArray, IntArray, IntArray, int] | None:
    """For `_ranked`, by state (class and step): (C, S) its rank by gain among all states, the first rank that beats
    it if shorter (gain > its loss), the first that beats it in any case (loss >= its gain), and how many ranks.

    None where rounding or a step without gain breaks what `_ranked` builds on: loss grows with gain, and who beats
    a candidate as the longer job would beat it as the shorter one too.
    """
    live = np.isfinite(steps.gain)
    gains, losses = steps.gain[live], steps.loss[live]
    states = np.unique(np.stack((gains, losses), axis=1), axis=0)  # sorted by gain, then loss
    gain, loss = np.ascontiguousarray(states[:, 0]), np.ascontiguousarray(states[:, 1])
    if (np.diff(loss) < 0).any():
        return None
    rank = np.full(steps.gain.shape, -1, dtype=np.int64)
    shorter = np.zeros(steps.gain.shape, dtype=np.int64)
    longer = np.zeros(steps.gain.shape, dtype=np.int64)
    numbers = {(g, b): n for n, (g, b) in enumerate(zip(gain.tolist(), loss.tolist(), strict=True))}
    rank[live] = [numbers[pair] for pair in zip(gains.tolist(), losses.tolist(), strict=True)]
    shorter[live] = np.searchsorted(gain, losses, side="right")
    longer[live] = np.searchsorted(loss, gains, side="left")
    if (longer[live] < shorter[live]).any():
        return None
    return rank, shorter, longer, len(gain)


@_compiled
def _beats(job: Any, other: Any, length: Any, gain: Any, loss: Any) -> Any:
    """The rule of the chain (`afs.distribute`): the GPU goes to this job rather than to the other."""
    return gain[job] > loss[other] if length[job] < length[other] else loss[job] >= gain[other]


@_compiled
def _scan(
    gains: Any,
    losses: Any,
    speeds: Any,
    prices: Any,
    ends: Any,
    kind: Any,
    remaining: Any,
    left: int,
    place: Any,
) -> None:
    """`afs._scan`, line by line."""
    jobs = len(kind)
    length, gain, loss = np.empty(jobs), np.empty(jobs), np.empty(jobs)
    for job in range(jobs):
        length[job] = remaining[job] / speeds[kind[job], 0]
        gain[job] = gains[kind[job], 0]  # -inf: it has no next step, and beats nobody
        loss[job] = losses[kind[job], 0]
    chain = np.empty(jobs, dtype=np.int64)
    top = at = 0
    while left > 0:
        if top == 0:
            while at < jobs and gain[at] == -np.inf:
                at += 1
            if at == jobs:
                break
            chain[0] = at
            top = 1
            at += 1
        best = chain[top - 1]
        for job in range(at, jobs):
            if _beats(job, best, length, gain, loss):
                best = job
                chain[top] = job
                top += 1
        at = best + 1
        top -= 1
        step = place[best]
        price = prices[kind[best], step]
        fits = price <= left
        if fits:
            left -= price
            step += 1
            place[best] = step
        if not fits or step + 1 >= ends[kind[best]]:
            gain[best] = -np.inf
            loss[best] = -np.inf
            continue
        length[best] = remaining[best] / speeds[kind[best], step]
        gain[best] = gains[kind[best], step]
        loss[best] = losses[kind[best], step]
        if top == 0:
            chain[0] = best
            top = 1
        else:
            other = chain[top - 1]
            if _beats(best, other, length, gain, loss):
                chain[top] = best
                top += 1


@_compiled
def _ranked(
    gains: Any,
    losses: Any,
    speeds: Any,
    ends: Any,
    rank: Any,
    shorter: Any,
    longer: Any,
    ranks: int,
    kind: Any,
    remaining: Any,
    left: int,
    place: Any,
) -> None:
    """The same for steps of one GPU, blocks of jobs in which nobody beats the candidate skipped.

    least[r, b] is the smallest length in block b among jobs whose state has rank r or above (inf: there is none). A
    job beats the candidate c if its rank is `longer[c]` or above, or if it is `shorter[c]` or above and the job is
    shorter; so block b holds one exactly if least[longer[c], b] is finite or least[shorter[c], b] < length of c. Only
    a winner's state changes, and with it the few ranks between its old and its new one, in its block.
    """
    jobs = len(kind)
    blocks = (jobs + BLOCK - 1) // BLOCK
    length, gain, loss = np.empty(jobs), np.empty(jobs), np.empty(jobs)
    state = np.full(jobs, -1, dtype=np.int64)
    least = np.full((ranks + 1, blocks), np.inf)
    own = np.full(ranks + 1, np.inf)
    for job in range(jobs):
        length[job] = min(remaining[job] / speeds[kind[job], 0], 1e300)
        gain[job] = gains[kind[job], 0]
        loss[job] = losses[kind[job], 0]
        state[job] = rank[kind[job], 0]
    for block in range(blocks):
        for job in range(BLOCK * block, min(jobs, BLOCK * block + BLOCK)):
            if state[job] >= 0:
                least[state[job], block] = min(least[state[job], block], length[job])
        for r in range(ranks - 1, -1, -1):
            least[r, block] = min(least[r, block], least[r + 1, block])
    chain = np.empty(jobs, dtype=np.int64)
    top = at = 0
    while left > 0:
        if top == 0:
            while at < jobs and state[at] < 0:
                at += 1
            if at == jobs:
                break
            chain[0] = at
            top = 1
            at += 1
        best = chain[top - 1]
        k = kind[best]
        shorter_, longer_ = shorter[k, place[best]], longer[k, place[best]]
        limit = length[best]
        while at < jobs:
            block = at // BLOCK
            if at == BLOCK * block:  # at a block's first job: skip whole blocks
                while block < blocks and not (
                    least[shorter_, block] < limit or least[longer_, block] < np.inf
                ):
                    block += 1
                at = BLOCK * block
            last = min(jobs, BLOCK * block + BLOCK)
            while at < last:
                if _beats(at, best, length, gain, loss):
                    best = at
                    chain[top] = at
                    top += 1
                    k = kind[best]
                    shorter_, longer_ = shorter[k, place[best]], longer[k, place[best]]
                    limit = length[best]
                at += 1
        at = best + 1
        top -= 1
        left -= 1
        step = place[best] + 1
        place[best] = step
        old = state[best]
        if step + 1 >= ends[k]:
            state[best] = -1
            gain[best] = -np.inf
            loss[best] = -np.inf
            length[best] = np.inf
        else:
            state[best] = rank[k, step]
            gain[best] = gains[k, step]
            loss[best] = losses[k, step]
            length[best] = min(remaining[best] / speeds[k, step], 1e300)
            if top == 0:
                chain[0] = best
                top = 1
            else:
                other = chain[top - 1]
                if _beats(best, other, length, gain, loss):
                    chain[top] = best
                    top += 1
        # The block's column again, from the higher of the two ranks down to where nothing changes any more.
        block = best // BLOCK
        high = max(old, state[best])
        low = min(old, state[best])
        for job in range(BLOCK * block, min(jobs, BLOCK * block + BLOCK)):
            if 0 <= state[job] <= high:
                own[state[job]] = min(own[state[job]], length[job])
        running = least[high + 1, block]
        for r in range(high, -1, -1):
            running = min(running, own[r])
            if r < low and least[r, block] == running:
                break
            least[r, block] = running
        for job in range(BLOCK * block, min(jobs, BLOCK * block + BLOCK)):
            if state[job] >= 0:
                own[state[job]] = np.inf


@_compiled
def _unknown(
    gains: Any, losses: Any, prices: Any, ends: Any, kind: Any, left: int, seed: Any, place: Any
) -> None:
    """`afs._scan_unknown`, line by line; the coin is `afs.coin`."""
    jobs = len(kind)
    taking = np.empty(jobs, dtype=np.int64)
    gain, loss = np.empty(jobs), np.empty(jobs)
    count = 0
    for job in range(jobs):
        gain[job] = gains[kind[job], 0]
        loss[job] = losses[kind[job], 0]
        if ends[kind[job]] > 1:
            taking[count] = job
            count += 1
    throw = np.uint64(0)
    one = np.uint64(1)
    while left > 0 and count > 0:
        best, where = taking[0], 0
        for n in range(1, count):
            job = taking[n]
            if loss[job] < gain[best]:
                if loss[best] >= gain[job]:
                    continue
                throw += one
                mixed = seed + throw * np.uint64(0x9E3779B97F4A7C15)
                mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                if (mixed ^ (mixed >> np.uint64(31))) & one:
                    continue
            best, where = job, n
        step = place[best]
        price = prices[kind[best], step]
        fits = price <= left
        if fits:
            left -= price
            place[best] = step + 1
        if not fits or step + 2 >= ends[kind[best]]:
            for n in range(where, count - 1):
                taking[n] = taking[n + 1]
            count -= 1
        else:
            gain[best] = gains[kind[best], step + 1]
            loss[best] = losses[kind[best], step + 1]
