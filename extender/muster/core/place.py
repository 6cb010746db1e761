"""Placing a whole job on a trial: every replica gets a node, or none does.

1 topology: one domain where the job requires it; else the narrowest level that takes it whole, else as few
domains as possible. 2 roles, most demanding first. 3 nodes by the profile's scores, filled one after another;
the last part of a role goes where it fits tightest by the same scores. All ties end in the node's name.

First fit by decreasing demand is not an exact bin packing: a gang of several roles with different shapes may
wait although some cleverer arrangement exists. It never over-commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from muster.core.room import Space, repels
from muster.points import Candidates, Filter, Profile
from muster.types import BoolArray, FloatArray, IntArray, Job, Role, Snapshot


@dataclass(frozen=True, slots=True)
class Need:
    """`count` more replicas of a role."""

    role: Role
    count: int


Spot = tuple[str, int, int]
"""Role name, node row, replicas there."""


def place(
    room: Space,
    job: Job,
    needs: Sequence[Need],
    profile: Profile,
    snapshot: Snapshot,
    allowed: BoolArray | None = None,
    own: Mapping[int, int] | None = None,
) -> list[Spot] | None:
    """Spots for all needs, already taken from `room`, or None with the room as before.

    allowed: (N,) nodes that may be used at all (None = all). own: replicas that the job has, by node row.
    """
    ordered = sorted((n for n in needs if n.count > 0), key=_demand)
    if not enough(room, ordered):
        return None
    own = dict(own or {})
    for domain in _regions(room, job, ordered, profile, allowed, own):
        mark = room.mark()
        spots = _fill_all(room, job, ordered, profile, snapshot, domain, own)
        if spots is not None:
            return spots
        room.undo(mark)
    return None


def enough(room: Space, needs: Sequence[Need]) -> bool:
    """A quick necessary condition: each role alone fits somewhere."""
    return all(room.total_fits(n.role.shape) >= n.count for n in needs)


def _demand(need: Need) -> tuple[object, ...]:
    shape = need.role.shape
    return (-shape.gpus, -shape.request("cpu"), -shape.request("memory"), need.role.name)


def _regions(
    room: Space,
    job: Job,
    needs: Sequence[Need],
    profile: Profile,
    allowed: BoolArray | None,
    own: Mapping[int, int],
) -> Iterator[BoolArray | None]:
    """Node masks to try, best first (None = every node)."""
    if job.topology_required:
        yield from _single_domains(room, job.topology_required, needs, allowed, own)
        return
    levels = (job.topology_preferred,) if job.topology_preferred else profile.topology_levels
    for label in levels:
        yield from _single_domains(room, label, needs, allowed, own)
    if levels and not own:
        fewest = _fewest_domains(room, levels[-1], needs, allowed)
        if fewest is not None:
            yield fewest
    yield allowed


def _single_domains(
    room: Space, label: str, needs: Sequence[Need], allowed: BoolArray | None, own: Mapping[int, int]
) -> Iterator[BoolArray]:
    """Domains that could take all needs, the one with the least room to spare first."""
    ids, names = room.nodes.domains(label)
    if not names:
        return
    possible = np.ones(len(names), dtype=np.bool_)
    spare = np.zeros(len(names), dtype=np.int64)
    for need in needs:
        capacity = _by_domain(room.fits(need.role.shape), ids, len(names), allowed)
        possible &= capacity >= need.count
        spare += capacity - need.count
    if own:  # replicas that run already decide the domain
        mine = {int(ids[node]) for node in own}
        possible &= np.array([i in mine and len(mine) == 1 for i in range(len(names))])
    candidates = np.flatnonzero(possible)
    for domain in candidates[np.argsort(spare[candidates], kind="stable")]:  # ties by name: `names` is sorted
        mask = ids == domain
        yield mask if allowed is None else mask & allowed


def _fewest_domains(
    room: Space, label: str, needs: Sequence[Need], allowed: BoolArray | None
) -> BoolArray | None:
    """The shortest list of domains, largest first, that takes every role by count; None if none does."""
    ids, names = room.nodes.domains(label)
    if not names:
        return None
    capacities = [_by_domain(room.fits(n.role.shape), ids, len(names), allowed) for n in needs]
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
    room: Space,
    job: Job,
    needs: Sequence[Need],
    profile: Profile,
    snapshot: Snapshot,
    region: BoolArray | None,
    own: Mapping[int, int],
) -> list[Spot] | None:
    here = dict(own)
    spots: list[Spot] = []
    for need in needs:
        part = _fill(room, job, need, profile, snapshot, region, here)
        if part is None:
            return None
        for _, node, count in part:
            here[node] = here.get(node, 0) + count
        spots += part
    return spots


def _fill(
    room: Space,
    job: Job,
    need: Need,
    profile: Profile,
    snapshot: Snapshot,
    region: BoolArray | None,
    own: Mapping[int, int],
) -> list[Spot] | None:
    """One role: the best node by score first, as much as fits on it, until all replicas have one."""
    role, left = need.role, need.count
    barred = _barred(room, job, role, snapshot)
    apart = repels(role.shape)
    if apart:
        barred = _taken_by_role(room, job, role) | (False if barred is None else barred)
    spots: list[Spot] = []
    own_on = np.zeros(len(room.nodes), dtype=np.int64)
    for node, count in own.items():
        own_on[node] += count
    while left > 0:
        fits = room.fits(role.shape)
        if region is not None:
            fits = np.where(region, fits, 0)
        if barred is not None:
            fits = np.where(barred, 0, fits)
        others = np.maximum(room.ours - own_on, 0)
        candidates = Candidates(room.nodes, room.free, fits, own_on, others, left)
        for plugin in profile.filters:
            mask, _ = filtered(plugin, job, role, candidates, snapshot, room.complaints)
            if mask is not None:
                fits = np.where(mask, fits, 0)
                candidates = Candidates(room.nodes, room.free, fits, own_on, others, left)
        if int(np.minimum(fits, left).sum()) < left:
            return None
        scores = total_score(job, role, candidates, profile, snapshot, room.complaints)
        best = int(np.argmax(np.where(fits > 0, scores, -1.0)))  # the first of equals: lowest name
        count = min(int(fits[best]), left)
        room.take(best, role.shape, count)
        own_on[best] += count
        if apart and barred is not None:
            barred[best] = True
        spots.append((role.name, best, count))
        left -= count
    return spots


def candidates_of(room: Space, need: Need) -> Candidates:
    """The nodes as a Filter sees them before anything of the need is placed."""
    nothing = np.zeros(len(room.nodes), dtype=np.int64)
    fits = room.fits(need.role.shape)
    return Candidates(room.nodes, room.free, fits, nothing, room.ours, need.count)


def filtered(
    plugin: Filter,
    job: Job,
    role: Role,
    candidates: Candidates,
    snapshot: Snapshot,
    complaints: set[str] | None = None,
) -> tuple[BoolArray | None, str]:
    """The plugin's mask and words; one that fails or answers nonsense allows every node and is complained of."""
    try:
        mask, words = plugin.filter(job, role, candidates, snapshot)
        if mask is not None and (mask.shape != (len(candidates.nodes),) or mask.dtype != np.bool_):
            raise ValueError(f"expected {len(candidates.nodes)} booleans, found {mask.shape} {mask.dtype}")
    except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
        _complain(complaints, plugin, "filter", error)
        return None, ""
    return mask, words


def total_score(
    job: Job,
    role: Role,
    candidates: Candidates,
    profile: Profile,
    snapshot: Snapshot,
    complaints: set[str] | None = None,
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
            _complain(complaints, plugin, "score", error)
            continue
        if not np.isfinite(score).all():
            score = np.nan_to_num(score)
        total += weight * np.clip(score, 0.0, 100.0)
        weights += weight
    return total / weights if weights else total


def _complain(complaints: set[str] | None, plugin: object, point: str, error: Exception) -> None:
    if complaints is not None:
        complaints.add(f"{type(plugin).__name__}.{point}: {error!r}, left out")


def _taken_by_role(room: Space, job: Job, role: Role) -> BoolArray:
    """Nodes where the role has a replica or a place: no second one where replicas repel each other."""
    mask = np.zeros(len(room.nodes), dtype=np.bool_)
    names = [m.node for m in role.members] + [h.node for h in job.holds if h.role == role.name]
    mask[[room.nodes.index[name] for name in names if name in room.nodes.index]] = True
    return mask


def _barred(room: Space, job: Job, role: Role, snapshot: Snapshot) -> BoolArray | None:
    """Nodes left out for this role since kube-scheduler refused a pin there."""
    names = snapshot.barred.get((job.key, role.name))
    if not names:
        return None
    mask = np.zeros(len(room.nodes), dtype=np.bool_)
    for name, until in names.items():
        row = room.nodes.index.get(name)
        if row is not None and until > snapshot.now:
            mask[row] = True
    return mask
