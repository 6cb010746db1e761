"""Step 5 of a cycle: how many replicas each job gets. The profile's chain of Share plugins, then what is legal.

Plugins propose on columns; the core sees to 0 or min..max, allowed sizes and capacity (in order of priority
and submission), whatever they say. A plugin that raises or returns nonsense is left out and complained of.
The live cycle, the simulator on nodes and the fluid simulator all share by this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from muster.core.sharing.priority_class import by_priority
from muster.points import Adjust, Share
from muster.types import Grant, Grants, IntArray, SharingSnapshot, Table


def shares_of(
    snapshot: SharingSnapshot,
    chain: Sequence[Share | Adjust],
    plugin_errors: list[str],
    settled: Sequence[int] = (),
    floors: Sequence[int] = (),
    *,
    preemption: bool = False,
    raised: list[Exception] | None = None,
) -> Grants | None:
    """What each row of the snapshot's table is granted: legal, whatever the plugins answer.

    settled: rows of running jobs that may not change now; they keep what they have, before all others. floors: rows
    of those that may only grow now. preemption: running jobs may be stopped for those of higher priority
    (`core.sharing.priority_class`). raised: takes what plugins raised; `core.state.quarantine` finds over which job.
    None where every plugin of the chain failed: then nothing is shared, and jobs start all or nothing, in order.
    """
    table = snapshot.table
    shares = Grants(table.have)
    failed = 0
    for plugin in chain:
        point = "adjust" if isinstance(plugin, Adjust) else "share"
        try:
            proposed = (
                plugin.adjust(shares, snapshot) if isinstance(plugin, Adjust) else plugin.share(snapshot)
            )
            replicas = proposed.replicas
            if replicas.shape != table.have.shape or replicas.dtype.kind != "i":
                raise ValueError(
                    f"expected {len(table)} integers, found {replicas.shape} of {replicas.dtype}"
                )
        except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
            plugin_errors.append(f"{type(plugin).__name__}.{point}: {error!r}, left out")
            if raised is not None:
                raised.append(error)
            failed += 1
            continue
        shares = proposed
    if failed == len(chain):
        return None
    low = [row for row in floors if shares.replicas[row] < table.have[row]]
    settled = [*settled, *low] if low else settled
    proposed = legal(shares, table, plugin_errors)
    if settled:  # that others may not shrink for it is no fault of the plugin's
        proposed = legal(_kept(proposed, snapshot, settled), table, [], settled)
    return by_priority(proposed, table, (*settled, *floors), stop=preemption)


def _kept(shares: Grants, snapshot: SharingSnapshot, settled: Sequence[int]) -> Grants:
    """The shares with what jobs have where they may not change."""
    table, rows = snapshot.table, list(settled)
    replicas = shares.replicas.copy()
    replicas[rows] = table.have[rows]
    grants = dict(shares.details)
    for row in rows:
        grant = snapshot.jobs[table.keys[row]].grant
        grants.pop(row, None)
        if grant is not None:
            grants[row] = grant
    return replace(shares, replicas=replicas, details=grants)


def legal(shares: Grants, table: Table, plugin_errors: list[str], settled: Sequence[int] = ()) -> Grants:
    """The shares themselves where they are legal, else the nearest that are, from below."""
    replicas = shares.replicas
    granted_rows = replicas.nonzero()[0]  # few, where thousands of jobs wait
    some = replicas[granted_rows]
    wrong = (some > table.max[granted_rows]) | (some < table.min[granted_rows])
    wrong &= (
        some != table.have[granted_rows]
    )  # one that lost replicas may go on as it is until it gets them back
    if np.count_nonzero(wrong):
        plugin_errors.append(f"shares of {int(wrong.sum())} jobs were outside min..max, clipped")
        replicas = np.minimum(replicas, table.max)
        replicas = np.where((replicas < table.min) & (replicas != table.have), 0, replicas)
    for row, sizes in table.sizes.items():
        granted = int(replicas[row])
        if granted and granted not in sizes and granted != table.have[row]:
            if replicas is shares.replicas:
                replicas = replicas.copy()
            replicas[row] = max((s for s in sizes if s <= granted), default=0)
    if replicas is shares.replicas and not shares.details:
        used_by = some @ table.unit[granted_rows] + np.add.reduce(table.fixed[granted_rows])
        if used_by <= table.gpus:
            return shares
    used = _used(replicas, table, shares.details)
    if int(used.sum()) > table.gpus:
        plugin_errors.append(f"shares of {int(used.sum())} GPUs for {table.gpus}: the last in the queue wait")
        replicas = _within(replicas, used, table, settled)
    return shares if replicas is shares.replicas else replace(shares, replicas=replicas)


def _used(replicas: IntArray, table: Table, grants: Mapping[int, Grant]) -> IntArray:
    """(J,) GPUs of each grant; a job beside another uses that one's."""
    used: IntArray = replicas * table.unit
    if table.fixed.any():
        used = used + np.where(replicas > 0, table.fixed, 0)
    if grants:
        beside = [row for row, grant in grants.items() if grant.beside is not None]
        if beside:
            used = used.copy()
            used[beside] = 0
    return used


def _within(replicas: IntArray, used: IntArray, table: Table, settled: Sequence[int]) -> IntArray:
    """Grants while they fit, of who has something before those that would start, by priority and submission; one that
    does not fit waits."""
    result = np.zeros_like(replicas)
    left = table.gpus
    free = np.ones(len(table), dtype=np.int64)
    free[list(settled)] = 0
    starts = (table.have == 0).astype(np.int64)
    for row in np.lexsort((np.arange(len(table)), -table.priority, starts, free)):
        if used[row] <= left:
            result[row] = replicas[row]
            left -= int(used[row])
    return result
