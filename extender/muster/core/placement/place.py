"""Placing a whole job on a trial: every replica gets a node, or none does.

1 topology: one domain where the job requires it; else the narrowest level that takes it whole, else as few
domains as possible. 2 roles, most demanding first; where that finds nothing anywhere, in other orders
(`role_orders`). 3 nodes by the profile's scores, filled one after another; the last part of a role goes where it
fits tightest by the same scores. All ties end in the node's name.

First fit is not an exact bin packing: a gang of several roles with different shapes may wait although some cleverer
arrangement exists. It never over-commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from muster.core.placement.capacity import AnyCapacity, repels
from muster.core.placement.role_orders import demand, orders
from muster.core.placement.ruled_out import short
from muster.core.placement.together import Assignment, Need, place_together
from muster.points import Candidates, Filter, Profile
from muster.types import BoolArray, FloatArray, IntArray, Job, Role, Snapshot

__all__ = ("Assignment", "Need", "candidates_of", "demand", "enough", "filtered", "place", "total_score")


def place(
    capacity: AnyCapacity,
    job: Job,
    needs: Sequence[Need],
    profile: Profile,
    snapshot: Snapshot,
    allowed: BoolArray | None = None,
    own: Mapping[int, int] | None = None,
) -> list[Assignment] | None:
    """Spots for all needs, already taken from `room`, or None with the room as before.

    allowed: (N,) nodes that may be used at all (None = all). own: replicas that the job has, by node row.
    """
    ordered = sorted((n for n in needs if n.count > 0), key=demand)
    if not enough(capacity, ordered) or (len(ordered) > 1 and short(capacity, ordered)):
        return None
    own = dict(own or {})
    if any(n.role.devices for n in ordered) and (own or len(ordered) > 1):
        return place_together(
            capacity,
            job,
            ordered,
            own,
            lambda pods: place(capacity, job, pods, profile, snapshot, allowed, own),
        )
    for turns in orders(capacity, ordered):
        best = turns is ordered or job.topology_required  # the other orders only to find a place at all
        for domain in _regions(capacity, job, ordered, profile, allowed, own) if best else (allowed,):
            mark = capacity.mark()
            assignments = _fill_all(capacity, job, turns, profile, snapshot, domain, own)
            if assignments is not None:
                return assignments
            capacity.undo(mark)
    return None


def enough(capacity: AnyCapacity, needs: Sequence[Need]) -> bool:
    """A quick necessary condition: each role alone fits somewhere."""
    return all(capacity.total_fits(n.role.shape) >= n.count for n in needs)


def _regions(
    capacity: AnyCapacity,
    job: Job,
    needs: Sequence[Need],
    profile: Profile,
    allowed: BoolArray | None,
    own: Mapping[int, int],
) -> Iterator[BoolArray | None]:
    """Node masks to try, best first (None = every node)."""
    if job.topology_required:
        yield from _single_domains(capacity, job.topology_required, needs, allowed, own)
        return
    levels = (job.topology_preferred,) if job.topology_preferred else profile.topology_levels
    for label in levels:
        yield from _single_domains(capacity, label, needs, allowed, own)
    if levels and not own:
        fewest = _fewest_domains(capacity, levels[-1], needs, allowed)
        if fewest is not None:
            yield fewest
    yield allowed


def _single_domains(
    capacity: AnyCapacity,
    label: str,
    needs: Sequence[Need],
    allowed: BoolArray | None,
    own: Mapping[int, int],
) -> Iterator[BoolArray]:
    """Domains that could take all needs, the one with the least room to spare first."""
    ids, names = capacity.nodes.domains(label)
    if not names:
        return
    possible = np.ones(len(names), dtype=np.bool_)
    spare = np.zeros(len(names), dtype=np.int64)
    for need in needs:
        fitting = _by_domain(capacity.fits(need.role.shape), ids, len(names), allowed)
        possible &= fitting >= need.count
        spare += fitting - need.count
    if own:  # replicas that run already decide the domain
        mine = {int(ids[node]) for node in own}
        possible &= np.array([i in mine and len(mine) == 1 for i in range(len(names))])
    candidates = np.flatnonzero(possible)
    for domain in candidates[np.argsort(spare[candidates], kind="stable")]:  # ties by name: `names` is sorted
        mask = ids == domain
        yield mask if allowed is None else mask & allowed


def _fewest_domains(
    capacity: AnyCapacity, label: str, needs: Sequence[Need], allowed: BoolArray | None
) -> BoolArray | None:
    """The shortest list of domains, largest first, that takes every role by count; None if none does."""
    ids, names = capacity.nodes.domains(label)
    if not names:
        return None
    capacities = [_by_domain(capacity.fits(n.role.shape), ids, len(names), allowed) for n in needs]
    order = sorted(range(len(names)), key=lambda d: (-sum(int(c[d]) for c in capacities), names[d]))
    chosen: list[int] = []
    for domain in order:
        chosen.append(domain)
        if all(int(c[chosen].sum()) >= n.count for c, n in zip(capacities, needs, strict=True)):
            mask = np.isin(ids, chosen)
            return mask if allowed is None else mask & allowed
    return None


def _by_domain(fits: IntArray, ids: IntArray, domains: int, allowed: BoolArray | None) -> IntArray:
    inside = ids >= 0
    if allowed is not None:
        inside = inside & allowed
    return np.bincount(ids[inside], weights=fits[inside], minlength=domains).astype(np.int64)


def _fill_all(
    capacity: AnyCapacity,
    job: Job,
    needs: Sequence[Need],
    profile: Profile,
    snapshot: Snapshot,
    region: BoolArray | None,
    own: Mapping[int, int],
) -> list[Assignment] | None:
    here = dict(own)
    assignments: list[Assignment] = []
    for need in needs:
        part = _fill(capacity, job, need, profile, snapshot, region, here)
        if part is None:
            return None
        for _, node, count in part:
            here[node] = here.get(node, 0) + count
        assignments += part
    return assignments


def _fill(
    capacity: AnyCapacity,
    job: Job,
    need: Need,
    profile: Profile,
    snapshot: Snapshot,
    region: BoolArray | None,
    own: Mapping[int, int],
) -> list[Assignment] | None:
    """One role: the best node by score first, as much as fits on it, until all replicas have one."""
    role, left = need.role, need.count
    node_backoffs = _barred(capacity, job, role, snapshot)
    apart = repels(role.shape)
    if apart:
        node_backoffs = _taken_by_role(capacity, job, role) | (
            False if node_backoffs is None else node_backoffs
        )
    assignments: list[Assignment] = []
    own_on = np.zeros(len(capacity.nodes), dtype=np.int64)
    for node, count in own.items():
        own_on[node] += count
    while left > 0:
        fits = capacity.fits(role.shape)
        if region is not None:
            fits = np.where(region, fits, 0)
        if node_backoffs is not None:
            fits = np.where(node_backoffs, 0, fits)
        others = np.maximum(capacity.ours - own_on, 0)
        candidates = Candidates(capacity.nodes, capacity.free, fits, own_on, others, left)
        for plugin in profile.filters:
            mask, _ = filtered(plugin, job, role, candidates, snapshot, capacity.plugin_errors)
            if mask is not None:
                fits = np.where(mask, fits, 0)
                candidates = Candidates(capacity.nodes, capacity.free, fits, own_on, others, left)
        if int(np.minimum(fits, left).sum()) < left:
            return None
        scores = total_score(job, role, candidates, profile, snapshot, capacity.plugin_errors)
        best = int(np.argmax(np.where(fits > 0, scores, -1.0)))  # the first of equals: lowest name
        count = min(int(fits[best]), left)
        capacity.take(best, role.shape, count)
        own_on[best] += count
        if apart and node_backoffs is not None:
            node_backoffs[best] = True
        assignments.append((role.name, best, count))
        left -= count
    return assignments


def candidates_of(capacity: AnyCapacity, need: Need) -> Candidates:
    """The nodes as a Filter sees them before anything of the need is placed."""
    nothing = np.zeros(len(capacity.nodes), dtype=np.int64)
    fits = capacity.fits(need.role.shape)
    return Candidates(capacity.nodes, capacity.free, fits, nothing, capacity.ours, need.count)


def filtered(
    plugin: Filter,
    job: Job,
    role: Role,
    candidates: Candidates,
    snapshot: Snapshot,
    plugin_errors: set[str] | None = None,
) -> tuple[BoolArray | None, str]:
    """The plugin's mask and words; one that fails or answers nonsense allows every node and is complained of."""
    try:
        mask, words = plugin.filter(job, role, candidates, snapshot)
        if mask is not None and (mask.shape != (len(candidates.nodes),) or mask.dtype != np.bool_):
            raise ValueError(f"expected {len(candidates.nodes)} booleans, found {mask.shape} {mask.dtype}")
    except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
        _complain(plugin_errors, plugin, "filter", error)
        return None, ""
    return mask, words


def total_score(
    job: Job,
    role: Role,
    candidates: Candidates,
    profile: Profile,
    snapshot: Snapshot,
    plugin_errors: set[str] | None = None,
) -> FloatArray:
    """(N,) weighted mean of the profile's Score plugins, 0 to 100; nonsense counts as 0 (design §3)."""
    total = np.zeros(len(candidates.nodes), dtype=np.float64)
    weights = 0.0
    for plugin, weight in profile.scores:
        try:
            score = np.asarray(plugin.score(job, role, candidates, snapshot), dtype=np.float64)
            if score.shape != total.shape:
                raise ValueError(f"expected scores of shape {total.shape}, found {score.shape}")
        except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
            _complain(plugin_errors, plugin, "score", error)
            continue
        if not np.isfinite(score).all():
            score = np.nan_to_num(score)
        total += weight * np.clip(score, 0.0, 100.0)
        weights += weight
    return total / weights if weights else total


def _complain(plugin_errors: set[str] | None, plugin: object, point: str, error: Exception) -> None:
    if plugin_errors is not None:
        plugin_errors.add(f"{type(plugin).__name__}.{point}: {error!r}, left out")


def _taken_by_role(capacity: AnyCapacity, job: Job, role: Role) -> BoolArray:
    """Nodes where the role has a replica or a place: no second one where replicas repel each other."""
    mask = np.zeros(len(capacity.nodes), dtype=np.bool_)
    names = [m.node for m in role.members] + [h.node for h in job.reservations if h.role == role.name]
    mask[[capacity.nodes.index[name] for name in names if name in capacity.nodes.index]] = True
    return mask


def _barred(capacity: AnyCapacity, job: Job, role: Role, snapshot: Snapshot) -> BoolArray | None:
    """Nodes left out for this role since kube-scheduler refused a pin there."""
    names = snapshot.node_backoffs.get((job.key, role.name))
    if not names:
        return None
    mask = np.zeros(len(capacity.nodes), dtype=np.bool_)
    for name, until in names.items():
        row = capacity.nodes.index.get(name)
        if row is not None and until > snapshot.now:
            mask[row] = True
    return mask
