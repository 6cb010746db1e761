"""Algorithm 1 of AFS as it stands, which every faster scan must equal (tests and `e2e.bench`)."""

from __future__ import annotations

from collections.abc import Sequence

from muster.policylib.ladders import Ladders


def plain_scan(steps: Ladders, kind: Sequence[int], remaining: Sequence[float], left: int) -> list[int]:
    """The step of each job after `left` GPUs, found GPU by GPU over all jobs."""
    place = [0] * len(kind)
    taking = [i for i, k in enumerate(kind) if steps.length[k] > 1]

    def state(job: int) -> tuple[float, float, float]:
        here = kind[job], place[job]
        return remaining[job] / steps.speed[here], float(steps.gain[here]), float(steps.loss[here])

    while left > 0 and taking:
        best = taking[0]
        for job in taking[1:]:
            (long_best, gain_best, loss_best), (long_job, gain_job, loss_job) = state(best), state(job)
            if long_job < long_best:
                wins = gain_job > loss_best
            else:
                wins = not gain_best > loss_job
            best = job if wins else best
        price = int(steps.price[kind[best], place[best]])
        if price > left:
            taking.remove(best)
            continue
        left -= price
        place[best] += 1
        if place[best] + 1 >= steps.length[kind[best]]:
            taking.remove(best)
    return place
