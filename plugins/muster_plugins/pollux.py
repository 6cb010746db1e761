"""`pollux`: GPUs, places and batch sizes of all jobs together, by goodput (Pollux, Qiao et al., OSDI'21).

Every round a genetic search (section 4.2) looks for the places of all jobs with the greatest power mean of their
speedups. A job's speedup is its goodput (section 3, `muster.policylib.goodput`) at the batch size that is best there,
over that of a fair share of the cluster. What is chosen here, and by which source:

- p = -1: the power of the mean; the further below 0, the fairer (section 4.2; -1 in the artifact).
- A job that is placed again counts with (age - restarts x delay) / (age + delay) of its speedup, so that one that was
  restarted often stays where it is (section 4.2, re-allocation factor; delay 30 s).
- On a node there is one job at most that spans nodes (section 4.2, interference avoidance).
- A job grows to twice the replicas that it has tried, at most (section 4.1); one that tried nothing starts with its
  least, and is as fast as it has replicas until it reports.
- Jobs keep what two want in the order of attained service, then submission (artifact, simulator/pollux.py).
- A running job that can't be restarted (rigid, no `muster.dev/resize: restart`) stays (section 4.2: not preemptible).
- 100 states, 100 generations, mutations and the second aim: `muster_plugins.pollux_search` (artifact).

Deviations: each round's search begins with how jobs are placed, and not with the last one's other best states too,
since a policy keeps nothing between two answers; a batch size changes with rounds (the artifact's trainings also
choose a new one where an epoch ends). A job of which no batch size may be chosen (`Reported`) counts with its speed
by replicas, as the profile's Estimate has it. The search looks at the first of the jobs that wait, and of those that
run at as many as a second or two allow; the others keep what they have. It counts GPUs only: where a node does not
take a job for another reason, the core finds other places. Jobs with several roles, and those in place, are given
replicas and not nodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from muster.core.sharing.moving import by_node, can_change, on_shared_gpus
from muster.policylib.genetic import evolve
from muster.types import FloatArray, Grant, Grants, IntArray, Job, Phase, SharingSnapshot, Table, elastic_role
from muster_plugins.pollux_search import SPAN, Placements
from muster_plugins.pollux_trainings import MOST, Reported, Speedups, Trainings, speedups

CELLS = 12_000_000
"""Numbers (jobs x nodes) of all states of all generations: a search takes a second or two, whatever the cluster's
size; on 16 nodes 100 generations are within it up to 75 jobs."""
AT_ONCE, STATE = 1_000_000, 125_000
"""Numbers of a generation's states, 8 bytes each in a dozen arrays, and of one state."""
POWERS = -50.0, -0.01
"""Of the mean: beyond these, sums of powers of speedups are no numbers any more."""
WAITING = 64, 256
"""How many of the jobs that wait are looked at: as many as there are GPUs, within these."""
WAITS = "the GPUs raise the goodput of other jobs more"
LATER = "waiting jobs that had less service, or came before it, are looked at first"
OTHERS = "too few GPUs are free for its other roles, and no job gives any up for those"
MISSED = "this round's search found no places for all replicas that it starts with"


@dataclass(frozen=True)
class Pollux:
    """power: p of the mean, from -50 to -0.01. delay: s that a restart costs. population, generations: of the search.
    noise: gradient noise scale in samples by model (`muster.dev/model`), of jobs that report none; where none is
    known, no batch size is chosen. trainings: what is known of them in place of reports, given in code only.
    """

    power: float = -1.0
    delay: float = 30.0
    population: int = 100
    generations: int = 100
    noise: Mapping[str, float] = field(default_factory=dict)
    trainings: Trainings | None = None

    def __post_init__(self) -> None:
        if not POWERS[0] <= self.power <= POWERS[1]:
            raise ValueError(f"power: expected a number from {POWERS[0]} to {POWERS[1]}, found {self.power}")
        if not 0.0 <= self.delay < math.inf:
            raise ValueError(f"delay: expected seconds from 0, found {self.delay}")
        for name in ("population", "generations"):
            value = getattr(self, name)
            if type(value) is not int or not 2 <= value <= 1000:
                raise ValueError(f"{name}: expected an integer from 2 to 1000, found {value!r}")
        if not isinstance(self.noise, Mapping):
            raise ValueError(f"noise: expected a mapping of models to samples, found {self.noise!r}")
        for model, noise in self.noise.items():
            if not isinstance(model, str):
                raise ValueError(f"noise: expected names of models, found {model!r}")
            if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0.0 < noise < math.inf:
                raise ValueError(f"noise.{model}: expected samples above 0, found {noise!r}")
        if self.trainings is not None and not hasattr(self.trainings, "tried"):
            raise ValueError(f"trainings: given in code only, found {self.trainings!r}")

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """1 what is, 2 what each job makes of what it may have, 3 the search, 4 grants for what was found."""
        table, grants = snapshot.table, dict[int, Grant]()
        replicas = np.zeros(len(table), dtype=np.int64)
        jobs = [snapshot.jobs[key] for key in table.keys]
        # 1 running jobs that can't be placed again stay; the others, in the order in which they keep what two want
        shared = on_shared_gpus(snapshot)
        stay = {row for row, job in enumerate(jobs) if table.have[row] and not can_change(job, shared)}
        ranks = np.lexsort((np.arange(len(jobs)), table.submitted, table.gpu_seconds)).tolist()
        able = [row for row in ranks if row not in stay]
        order = searched(table, able, len(snapshot.nodes.names))
        stay |= {row for row in set(able) - set(order) if table.have[row]}
        for row in sorted(stay):
            replicas[row], kept = table.have[row], jobs[row].grant
            grants |= {row: kept} if kept is not None else {}
        names, room = capacity(snapshot, [jobs[row] for row in order])
        if not order or not names:
            return Grants(replicas, grants)
        base = np.array([placed(jobs[row], names) for row in order], dtype=np.int64)
        room, without = reserved(table, order, room, base)
        if without:
            base = base[[place for place, row in enumerate(order) if row not in without]]
            order = [row for row in order if row not in without]
        if not order or not room.any():
            return Grants(replicas, grants, dict.fromkeys(without, OTHERS))
        # 2 with a fair share as the unit
        made = [self._speedups(snapshot, jobs[row], room, len(able)) for row in order]
        most = np.array([one.most for one in made], dtype=np.int64)
        width = int(most.max()) + 1
        found = Placements(
            base=base,
            room=room,
            unit=table.unit[order],
            most=most,
            span=np.array([span(table, row, room) for row in order], dtype=np.int64),
            allowed=np.stack(
                [allowed(table, row, one.most, width) for row, one in zip(order, made, strict=True)]
            ),
            speedups=np.stack([np.pad(one.of, ((0, 0), (0, width - 1 - one.most))) for one in made]),
            kept=np.array([self.kept(jobs[row], snapshot.now) for row in order]),
            power=self.power,
        )
        # 3 the best mean of those that nothing beats in both aims
        population = max(2, min(self.population, AT_ONCE // base.size))
        generations = max(2, min(self.generations, CELLS // (population * base.size)))
        states, aims = evolve(found, found.starts(), snapshot.rng("pollux"), population, generations)
        chosen = states[int(np.lexsort((aims[:, 1], aims[:, 0]))[0])]
        # 4 the very nodes, and the batch size that is best there
        for place, row in enumerate(order):
            on = [name for name, count in zip(names, chosen[place], strict=True) for _ in range(count)]
            replicas[row] = len(on)
            if on:
                batch = made[place].batches.get((min(2, len(set(on))), len(on)), 0)
                exact = tuple(on) if len(jobs[row].roles) == 1 and not elastic_role(jobs[row]).devices else ()
                grants[row] = Grant(nodes=exact, batch=batch)
        left = room - found.unit @ chosen
        first = f"{np.count_nonzero(table.have[order] == 0)} {LATER}"
        why = {row: first for row in able if not replicas[row] and needs(table, row) <= table.gpus}
        why |= {row: waits(table, row, room, left) for row in order if not replicas[row]}
        why |= dict.fromkeys(without, OTHERS)
        return Grants(replicas, grants, why, order=tuple(order), settled=True)

    def kept(self, job: Job, now: float) -> float:
        """Part of its speedup that counts where a job is placed again."""
        age = max(0.0, now - job.submitted)
        return max(age - job.facts.restarts * self.delay, 0.0) / (age + self.delay or 1.0)

    def _speedups(self, snapshot: SharingSnapshot, job: Job, room: IntArray, jobs: int) -> Speedups:
        table, row = snapshot.table, snapshot.table.row[job.key]
        unit, gpus = int(table.unit[row]), int(room.sum())
        least, have = int(table.min[row]), int(table.have[row])
        most = min(int(table.max[row]), gpus // unit, max(MOST, least, have))
        fair = math.ceil(len(room) * unit / gpus), math.ceil(gpus / unit / jobs)
        trainings = self.trainings or Reported(tuple(sorted(self.noise.items())))
        limits = trainings.limits(job)
        if limits is not None and least <= min(most, limits.most // limits.least_local):
            return speedups(trainings, job, limits, min(most, max(least, have)), most, fair)
        return Speedups(np.outer((0.0, 1.0, 1.0), by_speed(table, row, most, fair[1])), most, {})


def searched(table: Table, able: Sequence[int], nodes: int) -> list[int]:
    """Of rows in order those that the search looks at: the first that wait, and the first that run."""
    most, gpus = max(2, STATE // max(1, nodes)), max(WAITING[0], table.gpus)
    waiting = [row for row in able if not table.have[row] and needs(table, row) <= table.gpus]
    waiting = waiting[: min(gpus, WAITING[1], most // 2)]
    chosen = {*waiting, *[row for row in able if table.have[row]][: most - len(waiting)]}
    return [row for row in able if row in chosen]


def needs(table: Table, row: int) -> int:
    """GPUs that the job starts with."""
    return int(table.min[row] * table.unit[row] + table.fixed[row])


def by_speed(table: Table, row: int, most: int, fair: int) -> FloatArray:
    """(most + 1,) speed by replicas over that of a fair share, as the profile's Estimate has it."""
    curve = table.curves[int(table.curve[row])]
    speeds = curve[np.minimum(np.arange(most + 1), len(curve) - 1)]
    return np.asarray(speeds / (float(speeds[min(fair, most)]) or 1.0))


def allowed(table: Table, row: int, most: int, width: int) -> IntArray:
    """(width,) by a number of replicas the most that the job may have of them: from min to most, where it names sizes
    only those, and what it has, as one that lost replicas may go on."""
    least, have = int(table.min[row]), int(table.have[row])
    sizes = {size for size in table.sizes.get(row, range(least, most + 1)) if least <= size <= most}
    counts = np.array(sorted({0, *sizes, *({have} if have <= most else ())}), dtype=np.int64)
    return np.asarray(counts[np.searchsorted(counts, np.arange(width), side="right") - 1])


def span(table: Table, row: int, room: IntArray) -> int:
    """Nodes that the job may be on: SPAN, or as many as its least replicas, or those it has, need."""
    count = max(int(table.min[row]), int(table.have[row]))
    fit = np.sort(room // int(table.unit[row]))[::-1].cumsum()
    return max(SPAN, int(np.searchsorted(fit, count)) + 1)


def waits(table: Table, row: int, room: IntArray, left: IntArray) -> str:
    """Why a job waits, for its owner. left: (N,) GPUs that the search gave to none."""
    unit, least = int(table.unit[row]), int(table.min[row])
    fit, free = int((room // unit).sum()), int((left // unit).sum())
    if fit < least:
        return f"it starts with {least} replicas, and nodes have room for {fit} beside jobs that stay"
    return MISSED if free >= least else WAITS


def capacity(snapshot: SharingSnapshot, jobs: Sequence[Job]) -> tuple[list[str], IntArray]:
    """Names of nodes on which these jobs' elastic roles have GPUs or any are free, and (N,) how many those are."""
    nodes = snapshot.nodes
    room = np.where(nodes.usable(), np.maximum(nodes.gpus(snapshot.free), 0), 0).astype(np.int64)
    for name, here in by_node({job.key: job for job in jobs}).items():
        if name in nodes.index:
            room[nodes.index[name]] += sum(
                m.shape.gpus for job in here for m in elastic_role(job).on if m.node == name
            )
    for job in jobs:
        role = elastic_role(job)
        there = {member.uid for member in role.on}
        for held in job.reservations:
            if held.role == role.name and held.node in nodes.index and held.uid not in there:
                room[nodes.index[held.node]] += role.shape.gpus
    used = np.flatnonzero(room)
    return [nodes.names[row] for row in used.tolist()], room[used]


def reserved(
    table: Table, order: Sequence[int], room: IntArray, base: IntArray
) -> tuple[IntArray, list[int]]:
    """The room without GPUs of other roles of jobs that wait, from where most are free; and the rows of those for
    which too few are: they wait, as the search moves elastic roles only."""
    left, room, without = room - table.unit[order] @ base, room.copy(), list[int]()
    for row in order:
        if not table.fixed[row] or table.have[row]:
            continue
        if left.sum() < table.fixed[row]:
            without.append(row)
            continue
        on = np.argsort(-left, kind="stable")
        taken = np.zeros_like(room)
        taken[on] = np.diff(np.minimum(left[on].cumsum(), table.fixed[row]), prepend=0)
        left, room = left - taken, room - taken
    return room, without


def placed(job: Job, names: Sequence[str]) -> list[int]:
    """(N,) replicas of its elastic role that are bound there or have a place held."""
    role = elastic_role(job)
    held = [one for one in job.reservations if one.role == role.name]
    uids = {one.uid for one in held if one.uid}
    on = Counter(m.node for m in role.members if m.phase is Phase.BOUND and m.uid not in uids)
    on.update(one.node for one in held)
    return [on[name] for name in names]
