"""The cluster as a picture: who has which GPUs, where, who waits and why; and one job in full.

Plain values for GET /v1/cluster and GET /v1/jobs/{namespace}/{name}, worked out from a View when somebody reads.
Kubernetes does not tell which device of a node a pod has: a node's cells are counts, in the order of the jobs'
keys; of jobs in place Muster knows them. The reader names the namespaces that he may see; of all other jobs he is
shown one thing, that they use a GPU: not how many they are, nor what they are called or wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from muster.core.progress.estimate import believed
from muster.core.progress.eta import Outlook, curve, outlook
from muster.core.reasons.shares import with_silence
from muster.core.views.devices_in_place import (
    OTHERS,
    InPlaceReading,
    OnNode,
    told_devices,
    told_hand_overs,
    told_in_place,
)
from muster.core.views.job_status import Sees, item, plain_number, standings, timestamp
from muster.core.views.view import View
from muster.points import Estimation
from muster.types import PRODUCT, Job, JobKey, Phase, Role

FOREIGN, KEPT = -1, -3
"""Cells of pods that are not Muster's, and of GPUs that Muster holds for jobs in place and none uses."""
BOUND, HELD, ENDING = "bound", "held", "ending"
RACKS = ("topology.kubernetes.io/rack", "topology.muster.dev/rack")
"""Labels by which nodes are grouped where the configuration names none (`topologyLevels`)."""
GONE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of a node that does not answer."""
HIDDEN = "a job of another namespace"

Json = dict[str, object]
Cells = list[tuple[int, str, int]]
"""Of one node: number of the job in `jobs` (or FOREIGN, OTHERS), state, GPUs."""


def cluster(view: View, sees: Sees, namespace: str | None = None, now: float = 0.0) -> Json:
    """GET /v1/cluster: nodes with the cells of their GPUs, sums, and every job that the reader sees.

    namespace: only its jobs are told apart. now: Unix s (0 = the View's: while nothing happens no View is made, and
    jobs go on). Times are RFC 3339; what is not known is null, beside the reason.
    """
    view = _at(view, now)
    read = standings(view, sees, namespace)
    number = {s.key: i for i, s in enumerate(read)}
    estimate = believed(view.snapshot, view.profile, [])
    devices = InPlaceReading(view)
    jobs = [item(s) | _share_of(view, s.key, estimate, devices) for s in read]
    nodes, sums = _nodes(view, number, devices)
    return {
        "profile": view.profile.name,
        "order": view.profile.order,
        "elastic": bool(view.profile.shares),
        "leading": view.leading,
        "observe": view.observe,
        "gpus": sums,
        "waiting": len(view.plan.order),
        "nodes": nodes,
        "jobs": jobs,
        "handOvers": told_hand_overs(devices, number),
    }


def job(view: View, sees: Sees, key: JobKey, now: float = 0.0) -> Json:
    """GET /v1/jobs/{namespace}/{name}: everything that is known of one job, for who may see it (`find`)."""
    view = _at(view, now)
    found = view.snapshot.jobs[key]
    (standing,) = [s for s in standings(view, sees, key.namespace) if s.key == key]
    facts = found.facts
    slotted = any(role.devices for role in found.roles)  # which are on its pod's node, whatever it asks for
    estimate = believed(view.snapshot, view.profile, [])
    speeds = curve(found, estimate(found))
    cost = facts.last_cost
    return (
        item(standing)
        | _share_of(view, key, estimate, InPlaceReading(view))
        | {
            "owner": {"kind": found.owner.kind, "name": found.owner.name} if found.owner else None,
            "model": found.model or None,
            "why": with_silence(_for_reader(view, sees, view.plan.whys.get(key, "")), found.silent) or None,
            "keeps": found.shrink_blocked_by or None,
            "topologyRequired": None if slotted else found.topology_required or None,
            "topologyPreferred": found.topology_preferred or None,
            "scored": list(found.scored),
            "sizes": list(found.elastic.sizes) if found.elastic else [],
            "shares": [[plain_number(at), count] for at, count in facts.shares],
            "speeds": {
                "unit": speeds.unit,
                "measured": [[n, plain_number(speed), nodes] for n, speed, nodes in speeds.measured],
                "estimated": [[n, plain_number(speed)] for n, speed in speeds.estimated],
            },
            "resizes": facts.resizes,
            "moves": facts.moves,
            "restarts": facts.restarts,
            "lastResize": timestamp(facts.last_resize),
            "resizeCost": plain_number(cost) if cost else None,
            "gpuSeconds": plain_number(facts.gpu_seconds.at(view.snapshot.now)),
            "report": _report(found),
            "replicas": _replicas(view, found),
        }
    )


def find(view: View, namespace: str, name: str, uid: str = "") -> JobKey | None:
    """The job of that name, the newest where the name was used again; of that owner's uid, if one is given."""
    keys = [k for k in view.snapshot.jobs if k.namespace == namespace and k.name == name]
    keys = [k for k in keys if uid in ("", k.uid)]
    return max(keys, key=lambda k: (view.snapshot.jobs[k].submitted, k.uid), default=None)


def _at(view: View, now: float) -> View:
    return replace(view, snapshot=replace(view.snapshot, now=now)) if now > view.snapshot.now else view


# ---- the nodes ----


def _nodes(view: View, number: Mapping[JobKey, int], devices: InPlaceReading) -> tuple[list[Json], Json]:
    """Every node that has GPUs, and sums over them; jobs without a number are OTHERS."""
    nodes = view.snapshot.nodes
    total = nodes.gpus(nodes.total)
    free_columns = view.free if len(view.free) == len(nodes) else view.snapshot.free
    left = nodes.gpus(free_columns)
    slices = nodes.mig_slices(nodes.total), np.maximum(nodes.mig_slices(free_columns), 0)
    cells: list[dict[tuple[int, str], int]] = [{} for _ in nodes.names]
    for key in sorted(view.snapshot.jobs):
        found = view.snapshot.jobs[key]
        for where, state, gpus in _places(view, found):
            row = nodes.index.get(where)
            if row is not None and gpus:
                kind = (number.get(key, OTHERS), state)
                cells[row][kind] = cells[row].get(kind, 0) + gpus
    racks = _racks(view)
    sums = {"total": 0, BOUND: 0, HELD: 0, ENDING: 0, "kept": 0, "foreign": 0, "closed": 0, "free": 0}
    told: list[Json] = []
    for row, record in enumerate(nodes.records):
        if not total[row]:
            continue
        ours = sum(cells[row].values())
        here = devices.nodes.get(record.name, OnNode())
        foreign = max(0, int(total[row] - max(0, left[row])) - ours - here.held)
        room = int(total[row]) - ours - foreign
        for key, *counts in here.counts(room):
            for state, gpus in zip((BOUND, ENDING, HELD), counts, strict=True):
                if gpus:
                    kind = (number.get(key, OTHERS), state)
                    cells[row][kind] = cells[row].get(kind, 0) + gpus
        kept = max(0, min(room, here.held) - (sum(cells[row].values()) - ours))
        ours = sum(cells[row].values())
        # By number, not by the key of jobs that may be hidden: their order would tell of their names.
        shown: Cells = [(of, state, count) for (of, state), count in sorted(cells[row].items(), key=_place)]
        if kept:
            shown.append((KEPT, BOUND, kept))
        if foreign:
            shown.append((FOREIGN, BOUND, foreign))
        free = max(0, int(total[row]) - ours - kept - foreign)
        sums["kept"] += kept
        closed = _closed(record.unschedulable, [taint.key for taint in record.taints])
        sums["total"] += int(total[row])
        sums["foreign"] += foreign
        sums["closed" if closed else "free"] += free
        for (_, state), count in cells[row].items():
            sums[state] += count
        told.append(
            {
                "name": record.name,
                "rack": racks[row],
                "product": record.labels.get(PRODUCT, ""),
                "gpus": int(total[row]),
                "closed": closed,
                "cells": shown,
            }
            | ({"slices": [int(slices[1][row]), int(slices[0][row])]} if slices[0][row] else {})
            | told_devices(here, number)
        )
    return told, dict(sums)


def _place(cell: tuple[tuple[int, str], int]) -> tuple[bool, int, str]:
    (of, state), _ = cell
    return of < 0, of, state


def _places(view: View, found: Job) -> list[tuple[str, str, int]]:
    """Node, state and GPUs of each replica that has a place: on a node, or planned and not bound yet."""
    result, seen = [], set()
    shapes = {role.name: role.shape.gpus for role in found.roles if not role.devices}
    for role in found.roles:
        if role.devices:
            continue  # OnNode
        for member in role.on:
            seen.add(member.uid)
            state = ENDING if member.phase is Phase.ENDING else BOUND
            result.append((member.node, state, member.shape.gpus))
    reservations = view.plan.reservations.get(found.key, found.reservations)
    return result + [(h.node, HELD, shapes.get(h.role, 0)) for h in reservations if h.uid not in seen]


def _racks(view: View) -> list[str]:
    """The group of each node: by the narrowest configured level that any node has, else by a rack label."""
    nodes = view.snapshot.nodes
    for label in (*view.profile.topology_levels, *RACKS):
        ids, names = nodes.domains(label)
        if names:
            return ["" if i < 0 else names[i] for i in ids.tolist()]
    return [""] * len(nodes)


def _closed(unschedulable: bool, taints: Sequence[str]) -> str:
    """Why nothing new starts on a node, "" where it is open."""
    if any(key in GONE for key in taints):
        return "not ready"
    return "cordoned" if unschedulable else ""


# ---- the jobs ----


def _share_of(
    view: View, key: JobKey, estimate: Callable[[Job], Estimation], devices: InPlaceReading
) -> Json:
    """What an item of /v1/cluster has beside those of /v1/jobs."""
    found = view.snapshot.jobs[key]
    # Waiting jobs can be thousands, and nothing of them runs: no plugin is asked about those.
    seen = outlook(found, estimate(found), view.snapshot.now) if found.bound else Outlook()
    role = found.elastic
    in_place = told_in_place(view, found, devices)
    return {
        "uid": key.uid,
        "priority": found.priority,
        "submitted": timestamp(found.submitted),
        "started": timestamp(found.started_at),
        "elastic": role.name if role and not role.devices else "",
        "unit": role.shape.gpus if role else 0,
        "target": view.plan.shares.get(key),
        "progress": None if seen.progress is None else round(seen.progress, 3),
        "end": timestamp(seen.end),
        "endUnknown": seen.unknown or None,
        "inPlace": in_place,
    }


def _report(found: Job) -> Json | None:
    report = found.report
    if report is None:
        return None
    return {
        "at": timestamp(report.at),
        "step": plain_number(report.step),
        "total": plain_number(report.total) if report.total else None,
        "epoch": report.epoch or None,
        "loss": plain_number(report.loss),
        "speed": plain_number(report.speed) if report.speed else None,
    }


def _replicas(view: View, found: Job) -> list[Json]:
    """Each replica that exists or has a place: its pod ("" = not created yet), its node and what it does."""
    held = {h.uid: h.node for h in view.plan.reservations.get(found.key, found.reservations) if h.uid}
    rows: list[Json] = [
        _replica(
            role,
            member.pod,
            member.node or held.get(member.uid, ""),
            _doing(member.phase, member.uid in held),
        )
        for role in found.roles
        if not role.devices
        for member in role.members
    ]
    open_places = [h for h in view.plan.reservations.get(found.key, found.reservations) if not h.uid]
    roles = {role.name: role for role in found.roles if not role.devices}
    return rows + [_replica(roles[h.role], "", h.node, HELD) for h in open_places if h.role in roles]


def _replica(role: Role, pod: str, node: str, state: str) -> Json:
    return {"role": role.name, "pod": pod, "node": node, "state": state, "gpus": role.shape.gpus}


def _doing(phase: Phase, held: bool) -> str:
    if held and not phase.on_node:
        return HELD
    return "waiting" if phase is Phase.GATED else phase.value


def _for_reader(view: View, sees: Sees, words: str) -> str:
    """A reason without the names of jobs that the reader may not see."""
    for key in view.snapshot.jobs:
        if not sees(key.namespace) and str(key) in words:
            words = words.replace(str(key), HIDDEN)
    return words
