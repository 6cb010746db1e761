"""Why a job finds no place: from "never, even on the empty cluster" to "not now", in words for its owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from muster.core.placement.capacity import Capacity, repels
from muster.core.placement.feasibility import static_mask, untolerated
from muster.core.placement.place import Need, candidates_of, filtered, place
from muster.core.placement.ruled_out import ruled_out
from muster.core.placement.together import joined
from muster.core.reasons.waiting import amount, asks, level, needs_words
from muster.core.reasons.words import plural
from muster.points import Filter, Profile
from muster.types import (
    HOSTNAME,
    Job,
    Nodes,
    Reason,
    Shape,
    Snapshot,
    State,
    Status,
    Toleration,
)


def refusal(
    capacity: Capacity, job: Job, needs: Sequence[Need], profile: Profile, snapshot: Snapshot
) -> Status:
    """Why a job does not fit on a room, from "never" to "not now"."""
    reason, why = _verdict(capacity.nodes, job, _with_gpus(job, needs), profile, snapshot)
    if why:
        return Status(State.WAITING, reason, f"{needs_words(job, needs)}: {why}")
    words, needs = needs_words(job, needs), _with_gpus(job, needs)
    if job.topology_required:
        free = _best_domain(capacity, job, needs)
        return Status(State.WAITING, Reason.TOPOLOGY, words, free)
    for plugin in profile.filters:
        words_of_plugin = _plugin_words(plugin, capacity, job, needs, snapshot)
        if words_of_plugin:
            return Status(State.WAITING, Reason.PLUGIN, words_of_plugin)
    return Status(State.WAITING, Reason.RESOURCES, words, _fit_now(capacity, needs) or _apart(job, snapshot))


def fits_now(capacity: Capacity, job: Job, needs: Sequence[Need]) -> str:
    """How much of what a job needs fits on a room now; "" where all of it does."""
    needs = _with_gpus(job, needs)
    return _best_domain(capacity, job, needs) if job.topology_required else _fit_now(capacity, needs)


def _fit_now(capacity: Capacity, needs: Sequence[Need]) -> str:
    parts = []
    for need in needs:
        fits = min(capacity.total_fits(need.role.shape), need.count)
        if fits < need.count:
            name = "" if len(needs) == 1 else f" {need.role.name}"
            parts.append(
                f"{fits} of {need.count}{name} {'replica fits' if need.count == 1 else 'replicas fit'} now"
            )
    return "; ".join(parts)


def never_fits(
    nodes: Nodes, job: Job, needs: Sequence[Need], profile: Profile, snapshot: Snapshot
) -> Status | None:
    """Said of a job that certainly could not start on the empty cluster either; None where it could, or may."""
    reason, why = _verdict(nodes, job, _with_gpus(job, needs), profile, snapshot)
    if reason is not Reason.NEVER_FITS:
        return None
    return Status(State.WAITING, reason, f"{needs_words(job, needs)}: {why}")


def _with_gpus(job: Job, needs: Sequence[Need]) -> Sequence[Need]:
    """Of a job of several pods in place each pod stands with its GPUs, or nowhere."""
    return needs if job.topology_required == HOSTNAME else joined(needs)


def _apart(job: Job, snapshot: Snapshot) -> str:
    """Each role alone would fit, and yet the job does not."""
    refused = {node for (key, _), nodes in snapshot.node_backoffs.items() if key == job.key for node in nodes}
    if refused:
        return f"left out for a while: {plural(len(refused), 'node')} that kube-scheduler refused for it"
    return "its roles fit one by one, but no arrangement of all of them was found"


def _verdict(
    nodes: Nodes, job: Job, needs: Sequence[Need], profile: Profile, snapshot: Snapshot
) -> tuple[Reason, str]:
    """Why the job could not start on the empty cluster: NEVER_FITS where that is certain, NO_ARRANGEMENT where none
    was found of its roles, or OK. Kept with the nodes: it changes with them."""
    key = (tuple((n.role.shape, n.count) for n in needs), job.topology_required)
    kept = nodes.verdicts.get(key)
    if kept is None:
        kept = _on_the_empty_cluster(nodes, job, needs, profile, snapshot)
        nodes.verdicts.put(key, kept)
    return kept


def _on_the_empty_cluster(
    nodes: Nodes, job: Job, needs: Sequence[Need], profile: Profile, snapshot: Snapshot
) -> tuple[Reason, str]:
    if not len(nodes):
        return Reason.NEVER_FITS, "the cluster has no nodes"
    empty = replace(
        snapshot, free=nodes.total, ports={}, node_backoffs={}, ours_on=np.zeros(len(nodes), dtype=np.int64)
    )
    capacity = Capacity(empty)
    if len(needs) == 1 and not job.topology_required and not repels(needs[0].role.shape):
        if capacity.total_fits(needs[0].role.shape) >= needs[0].count:
            return Reason.OK, ""  # replicas of one role anywhere: no need to find each its node
    elif place(Capacity(empty), job, needs, replace(profile, filters=()), empty) is not None:
        return Reason.OK, ""
    why = _short_of(capacity, needs)
    if why:
        return Reason.NEVER_FITS, why
    if _may_stand(capacity, job, needs):
        where = f" in one {level(job.topology_required)}" if job.topology_required else ""
        return (
            Reason.NO_ARRANGEMENT,
            f"no arrangement of its roles{where} was found on the empty cluster either",
        )
    if job.topology_required:
        best = _best_domain(capacity, job, needs, "")
        return Reason.NEVER_FITS, f"no {level(job.topology_required)} is large enough; {best}"
    return Reason.NEVER_FITS, "its roles do not fit together on the empty cluster"


def _may_stand(empty: Capacity, job: Job, needs: Sequence[Need]) -> bool:
    """Whether a job that found no place on the empty cluster may have one in an arrangement that was not tried."""
    if len(needs) == 1 or any(need.role.devices for need in needs):
        return False
    ids = np.zeros(len(empty.nodes), dtype=np.int64)
    if job.topology_required:
        ids, _ = empty.nodes.domains(job.topology_required)
    return not ruled_out(empty, needs, (ids == domain for domain in np.unique(ids[ids >= 0])))


def _short_of(capacity: Capacity, needs: Sequence[Need]) -> str:
    """Why a role of it could not stand on the empty cluster alone, or ""."""
    nodes = capacity.nodes
    for need in needs:
        shape = need.role.shape
        if shape.missing:
            return f"{shape.missing[0]} does not exist"
        allowed = static_mask(nodes, shape)
        vector = capacity.vector(shape)
        if vector is None:
            unknown = [r for r, v in shape.requests if v and r not in nodes.resource_index]
            return f"no node offers {', '.join(unknown)}"
        if not allowed.any():
            return (
                _kept_off(capacity, shape)
                or f"no node of {len(nodes)} has the labels it selects and only taints it tolerates"
            )
        if int(capacity.fits(shape).max(initial=0)) == 0:
            small = f"no node is large enough for {asks(shape)}" + _largest(capacity, shape)
            return _kept_off(capacity, shape) or small
        if capacity.total_fits(shape) < need.count:
            what = "GPUs" if need.role.devices else "replicas"
            return f"all nodes together, empty, take {capacity.total_fits(shape)} of {need.count} {what}"
    return ""


def _kept_off(capacity: Capacity, shape: Shape) -> str:
    """Where taints alone keep it off each node that has the labels and is large enough: by name, if it is one."""
    anywhere = replace(shape, tolerations=(Toleration(operator="Exists"),))
    rows = np.flatnonzero(capacity.fits(anywhere))
    if not len(rows):
        return ""
    ids, first = capacity.nodes.closed_by()
    kinds = [first[kind] for kind in np.unique(ids[rows])]
    taints = {taint for node in kinds for taint in untolerated(node, shape.tolerations)}
    what = "taints that it does not tolerate"
    if len(taints) == 1:
        [(key, value, effect)] = taints
        what = f"the taint {key}{f'={value}' if value else ''}:{effect}, which it does not tolerate"
    who = (
        "the node that could take it has"
        if len(rows) == 1
        else f"all {len(rows)} nodes that could take it have"
    )
    return f"{who} {what}"


def _largest(capacity: Capacity, shape: Shape) -> str:
    """The column that is short on every node, with the most any allowed node has."""
    vector = capacity.vector(shape)
    if vector is None:
        return ""
    allowed = static_mask(capacity.nodes, shape)
    for column, asked in zip(*vector, strict=True):
        most = int(capacity.nodes.total[allowed, column].max(initial=0))
        if most < asked:
            return f": the largest has {amount(capacity.nodes.resources[int(column)], most)}"
    return ""


def _best_domain(capacity: Capacity, job: Job, needs: Sequence[Need], free: str = " free") -> str:
    ids, names = capacity.nodes.domains(job.topology_required)
    if not names:
        return f"no node has the label {job.topology_required}"
    need = max(needs, key=lambda n: (n.count * n.role.shape.gpus, n.count))
    fits = capacity.fits(need.role.shape)
    inside = ids >= 0
    sums = np.bincount(ids[inside], weights=fits[inside], minlength=len(names)).astype(np.int64)
    best = int(sums.max(initial=0))
    unit = need.role.shape.gpus
    has = plural(best * unit, "GPU") if unit else plural(best, "place")
    return f"the best {level(job.topology_required)} has {has}{free}"


def _plugin_words(
    plugin: Filter, capacity: Capacity, job: Job, needs: Sequence[Need], snapshot: Snapshot
) -> str:
    for need in needs:
        mask, words = filtered(plugin, job, need.role, candidates_of(capacity, need), snapshot)
        if mask is not None and not mask.any():
            return words
    return ""
