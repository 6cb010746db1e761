"""Two jobs on a GPU in tide's price: what it would gain on Gavel's measured pairs (issue 16). No plugin does it.

The jobs of Gavel's traces on GPUs of one product, made elastic: each may have as many GPUs as it was measured on and
is faster with. A trial of its own, without nodes, restarts and rounds, planned at arrivals and ends: the simulator
does not carry out pairs of jobs whose numbers change. Once GPUs are given, while jobs outnumber them, a job without
one goes beside a job that has one where that gains weighted speed: w x its speed there above w' x what the other
loses by it, and both together do LEAST times what one does. The best first, two jobs on a GPU at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from muster.points import Share
from muster.profiles import build
from muster.sim.models.gavel import Configuration
from muster.sim.traces import Asked, read
from muster.types import FloatArray, IntArray, JobKey, Nodes, SharingSnapshot, Table
from muster_plugins.tide import Tide

COUNTS = (1, 2, 4, 8)
LEAST = 1.1


@dataclass(frozen=True)
class Jobs:
    """submitted, work (s on one GPU): (J,). kind: (J,) configurations' rows of curves (C, 9), speed relative to one
    GPU, sizes, and beside (C, C), what is left of a row's speed beside a column's (0: not measured)."""

    submitted: FloatArray
    work: FloatArray
    kind: IntArray
    curves: FloatArray
    sizes: tuple[tuple[int, ...], ...]
    beside: FloatArray


@lru_cache(maxsize=8)
def jobs(data: Path, trace: str, product: str) -> Jobs:
    """Those of a trace that run on one GPU of the product."""
    folder = data / "gavel"
    asked = Asked(folder / f"traces/{trace}.trace", folder / "simulation_throughputs.json.gz")
    workload, _ = read(asked)
    models = {n: m for n, m in workload.models.items() if isinstance(m, Configuration)}
    there = [s for s in workload.submissions if models[s.model].alone.get((product, 1), 0.0) > 0.0]
    names = sorted({s.model for s in there})
    one = np.array([models[name].alone[product, 1] for name in names])
    curves = np.zeros((len(names), COUNTS[-1] + 1))
    sizes = []
    for row, name in enumerate(names):
        speeds = {n: models[name].alone.get((product, n), 0.0) / one[row] for n in COUNTS}
        best = {n: speeds[n] for n in COUNTS if all(speeds[n] > speeds[m] for m in COUNTS if m < n)}
        curves[row] = [
            max((v for n, v in best.items() if n <= k), default=0.0) for k in range(curves.shape[1])
        ]
        sizes.append(tuple(best))
    rates = [[models[name].packed.get((product, 1, other), 0.0) for other in names] for name in names]
    kind = np.array([names.index(s.model) for s in there])
    return Jobs(
        np.array([s.submitted for s in there]),
        np.array([s.work for s in there]) / one[kind],
        kind,
        curves,
        tuple(sizes),
        np.array(rates) / one[:, None],
    )


def completion(of: Jobs, gpus: int, profile: str, *, pairs: bool = False) -> FloatArray:
    """(J,) s from submission to end. pairs: with tide only."""
    policy = build(profile).shares[0]
    assert isinstance(policy, Share)
    ended = np.full(len(of.work), math.inf)
    done, executed = np.zeros(len(of.work)), np.zeros(len(of.work))
    have = np.zeros(len(of.work), dtype=np.int64)
    now = float(of.submitted.min())
    while np.isinf(ended).any():
        there = np.flatnonzero((of.submitted <= now) & np.isinf(ended))
        arrival = float(of.submitted[of.submitted > now].min(initial=math.inf))
        if not len(there):
            now = arrival
            continue
        table = _table(of, there, gpus, have, done, executed)
        nodes = Nodes([])
        have[there] = policy.share(SharingSnapshot(now, nodes, nodes.total, {}, table=table)).replicas
        speed = of.curves[of.kind[there], have[there]]
        if pairs and isinstance(policy, Tide):
            beside = of.beside[np.ix_(of.kind[there], of.kind[there])]
            _, _, weight = policy.ranked(table, now)
            speed = paired(have[there], speed, weight, beside, gpus)
        with np.errstate(divide="ignore"):
            ends = now + table.remaining / speed
        until = min(arrival, float(ends.min()))
        done[there] += speed * (until - now)
        executed[there] += (speed > 0.0) * (until - now)
        ended[there[ends <= until]] = until
        now = until
    times: FloatArray = ended - of.submitted
    return times


def paired(
    granted: IntArray, speed: FloatArray, weight: FloatArray, beside: FloatArray, gpus: int
) -> FloatArray:
    """(J,) speeds once jobs without GPUs have gone beside jobs with one, as the module says.

    granted, speed, weight: (J,) GPUs, speed on them relative to one, price of a delay. beside: (J, J) what is left of
    a row's speed beside a column's.
    """
    hosts, guests = np.flatnonzero(granted == 1), np.flatnonzero(granted == 0)
    result = speed.copy()
    if len(granted) <= gpus or not len(hosts) or not len(guests):
        return result
    own, left = beside[np.ix_(guests, hosts)], beside[np.ix_(hosts, guests)].T
    gain = weight[guests][:, None] * own - weight[hosts] * (1.0 - left)
    gain[(own <= 0.0) | (left <= 0.0) | (own + left <= LEAST)] = -1.0
    while gain.max() > 0.0:
        guest, host = np.unravel_index(int(gain.argmax()), gain.shape)
        result[guests[guest]], result[hosts[host]] = own[guest, host], left[guest, host]
        gain[guest, :] = gain[:, host] = -1.0
    return result


def _table(
    of: Jobs, there: IntArray, gpus: int, have: IntArray, done: FloatArray, executed: FloatArray
) -> Table:
    one, none = np.ones(len(there), dtype=np.int64), np.zeros(len(there), dtype=np.int64)
    made = Table()
    made.keys = [JobKey("gavel", f"{number:04d}") for number in there.tolist()]
    made.row = {key: row for row, key in enumerate(made.keys)}
    made.gpus = made.per_node = gpus
    made.products = {}
    made.curves, made.curve = of.curves, of.kind[there]
    made.sizes = {row: of.sizes[kind] for row, kind in enumerate(made.curve.tolist())}
    made.max = np.array([sizes[-1] for sizes in made.sizes.values()])
    made.min = made.request = made.unit = one
    made.fixed = made.priority = none
    made.have, made.submitted = have[there], of.submitted[there]
    made.progress, made.executed = done[there], executed[there]
    made.remaining = of.work[there] - done[there]
    made.first_start = made.run_start = made.submitted
    made.last_resize = np.full(len(there), -math.inf)
    made.gpu_seconds = made.run_gpu_seconds = made.executed
    return made
