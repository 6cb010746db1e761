"""What a live job attains: its meters turn whenever its running replicas change, and stay the same value meanwhile.

A job runs while every role has its minimum on nodes; its GPUs count as used while a replica is on a node, so also
while the job waits for the rest. Progress without reports is what the owner declares of its speed, by replicas of the
elastic role, linear where nothing is declared; an Estimate that reads reports knows better (plugin `reported`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from muster.core.progress.runtime import speed_of
from muster.types import (
    NOTHING,
    SHARES_KEPT,
    Config,
    Facts,
    Meter,
    Role,
    elastic_of,
)


def attained(
    facts: Facts,
    roles: Sequence[Role],
    config: Config,
    declared: Sequence[tuple[int, float]],
    now: float,
    *,
    changing: bool,
) -> Facts:
    """The facts from `now` on; the same object where nothing changed.

    changing: places are held or replicas are ending, so its number of replicas is not settled yet.
    """
    used = sum(len(role.on) * role.shape.gpus for role in roles)
    bound = sum(role.bound for role in roles)
    runs = bound > 0 and all(role.bound >= role.min for role in roles)
    starts = runs and facts.between
    first, start, restarts = facts.first_start, facts.run_start, facts.restarts
    run_seconds = facts.run_gpu_seconds
    if starts:
        restarts += first is not None
        first, start, run_seconds = (now if first is None else first), now, NOTHING
    shares = facts.shares
    elastic = elastic_of(roles) if roles else None
    settled = 0 if elastic is None or not runs else elastic.bound
    if not changing and (settled != (shares[-1][1] if shares else 0)) and (runs or not bound):
        shares = (*shares, (now, settled))[-SHARES_KEPT:]
    between = not runs and (facts.between or not used)  # a replica that crashes does not end the others' run
    turned: dict[str, Any] = {
        "gpu_seconds": _turned(facts.gpu_seconds, now, float(used)),
        "run_gpu_seconds": _turned(run_seconds, now, float(used)),
        "executed": _turned(facts.executed, now, float(runs)),
        "progress": _turned(facts.progress, now, speed_of(declared, settled) if runs else 0.0),
    }
    by_product = dict(facts.by_product)
    for product in {*by_product, config.product if runs else ""} - {""}:
        meter = by_product.get(product, NOTHING)
        by_product[product] = _turned(meter, now, float(runs and product == config.product))
    same = (
        not starts
        and between is facts.between
        and shares is facts.shares
        and all(getattr(facts, name) is meter for name, meter in turned.items())
        and all(facts.by_product.get(product) is meter for product, meter in by_product.items())
    )
    if same:
        return facts
    return replace(
        facts,
        first_start=first,
        run_start=start,
        restarts=restarts,
        shares=shares,
        by_product=by_product,
        between=between,
        **turned,
    )


def _turned(meter: Meter, now: float, rate: float) -> Meter:
    return meter if meter.rate == rate else meter.turned(now, rate)
