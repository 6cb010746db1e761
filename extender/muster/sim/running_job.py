# Over 300 lines: a job's truth and what the scheduler sees of it are one state, in two parts.
"""One job of a simulation: what is planned for it, how it really runs, and what the scheduler sees of it.

A Training changes all the time; the Job that it shows is frozen, and made again only where something changed.
Times in s from the trace's start, steps in iterations, progress in seconds on one replica.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from muster.core.devices.slots import slots_of
from muster.core.placement.statement import without_gpus
from muster.core.progress.curves import at_count, interpolated
from muster.sim.physics import Running, Stage
from muster.sim.submission import Model, RoleSpec, Submission
from muster.types import (
    GPU,
    HOSTNAME,
    Config,
    Facts,
    Grant,
    Job,
    JobKey,
    Member,
    Meter,
    Phase,
    Report,
    Reservation,
    Role,
    Shape,
)

NAMESPACE = "trace"
NEVER_ZERO = 1e-9
"""The time 0 where 0 means never, as it may in Unix time."""
WORKER = "worker"
POD = Shape(requests=(("cpu", 10),))
"""What the one pod of a job in place asks for beside its GPUs."""
ZERO = Meter()
Spot = tuple[str, str]
"""Role and node of one replica."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where replicas are. spots: sorted; nodes: of each replica, sorted; gpus: by node; total: GPUs in all."""

    spots: tuple[Spot, ...] = ()
    nodes: tuple[str, ...] = ()
    gpus: Mapping[str, int] = field(default_factory=dict)
    total: int = 0


NOWHERE = Places()


@dataclass(frozen=True, slots=True)
class Alone:
    """What a job could do with the cluster to itself, whatever its profile: the yardstick of finish-time fairness.

    curve: speeds relative to one replica, by count; one: iterations/s of one; most: replicas.
    """

    curve: tuple[tuple[int, float], ...] = ()
    one: float = 0.0
    most: int = 1


@dataclass(slots=True, eq=False)
class Training:
    """A submission on its way. `placed`: role and node by member uid, as planned (what the scheduler sees as
    bound); `at`: where it uses nodes now. They differ only while a hand-over is prepared."""

    index: int
    key: JobKey
    submission: Submission
    model: Model
    roles: tuple[RoleSpec, ...]
    shapes: Mapping[str, Shape]
    one: float  # iterations/s on one replica, the unit of progress
    curve: tuple[tuple[int, float], ...]  # what its owner declares
    home: Config  # the configuration that it asked for, for reports before it ran
    declared: float  # seconds of the whole job on one replica, as its owner declares them, 0 = unknown
    arrival: float = 0.0
    members: dict[str, tuple[Member, ...]] = field(default_factory=dict)  # behind the gate, by role
    placed: dict[str, Spot] = field(default_factory=dict)
    part: int = 0  # replicas of its share, while it trains on fewer to be measured
    leaving: dict[str, Spot] = field(default_factory=dict)  # on their way off their nodes (sim/leaving.py)
    restart_on: tuple[str, ...] = ()  # all of it leaves to start again: where, of its elastic role
    holds: tuple[Reservation, ...] = ()  # what is free of that already, and kept for it
    want: Grant | None = None
    memory: Mapping[str, object] = field(default_factory=dict)
    charged: list[tuple[int, Shape, int]] = field(default_factory=list)
    # the truth
    at: Places = NOWHERE
    batch: int = 0
    config: Config | None = None  # of what runs; None while it has too few replicas to run
    ran: Config | None = None  # the last one that it had
    going: bool = False  # it makes progress: neither waiting nor in a pause
    stage: Stage | None = None
    step: float = 0.0
    since: float = 0.0  # when `step` was true
    began: float = 0.0  # when it last began to make progress after a pause
    resumes: float = 0.0  # when its last pause ends or ended
    clock: float = 0.0  # checkpoints are counted from here
    saved: float = 0.0  # step of the last checkpoint
    note: str = ""  # of the history: why it makes no progress
    token: int = 0  # of the events that are meant for it as it is now
    due: float = math.inf  # when its stage ends, on the clock
    total: float = 0.0  # iterations that it will do, as last known
    used: Mapping[str, int] = field(default_factory=dict)  # GPUs that count as used by it, by node
    # what happened
    boundary: bool = False
    samples: dict[Config, float] = field(default_factory=dict)
    first_start: float | None = None
    run_start: float | None = None
    gpu_seconds: Meter = ZERO
    run_gpu_seconds: Meter = ZERO
    executed: Meter = ZERO
    progress: Meter = ZERO
    by_product: dict[str, Meter] = field(default_factory=dict)
    last_resize: float | None = None
    resizes: int = 0
    moves: int = 0
    restarts: int = 0
    last_cost: float = 0.0
    believed: Meter | None = None  # of one that reports nothing: its progress, as far as anybody can tell
    stopped: float = math.nan  # when it left to start again at once, if that is how it last stopped
    started: float = math.nan
    ended: float = math.nan
    # what the scheduler sees
    job: Job | None = None
    roles_shown: tuple[Role, ...] | None = None  # None: its placement has changed since
    # of the submission
    tells: bool = False  # its model has a loss or epochs: its report is news at every cycle
    wanted: Mapping[str, int] = field(default_factory=dict)  # replicas that there are, by role
    minimum: Mapping[str, int] = field(default_factory=dict)  # replicas without which it can't run, by role
    full: int = 0  # replicas at most
    unit: int = 0  # GPUs of its smallest replica
    short: int | None = None  # GPUs that must be free for it to start or grow; None: it has all
    need: int = 0  # GPUs that must be free before it can start
    alone: Alone = Alone()

    # ---- the truth ----

    def work_left(self) -> float:
        """Iterations to do, by the work of its stage."""
        work = self.stage.work if self.stage is not None else self.submission.work
        return max(0.0, work - self.step)

    def advance(self, now: float, checkpoint: float) -> float:
        """Progress up to `now` at the stage's speed; iterations done. checkpoint: s between two of them."""
        done = 0.0
        if self.going and self.stage is not None and now > self.since:
            done = self.stage.speed * (now - self.since)
            if checkpoint > 0.0:
                last = self.clock + math.floor((now - self.clock) / checkpoint + 1e-9) * checkpoint
                if last >= self.since:
                    self.saved = self.step + self.stage.speed * (last - self.since)
            self.step += done
        self.since = max(self.since, now)
        return done

    def believe(self, now: float) -> None:
        """Of one that reports nothing: from now on it is taken to train at its curve's speed while it has what it
        needs, pauses included."""
        if self.believed is None:
            return
        count = 0 if self.config is None else self.config.replicas
        self.believed = self.believed.turned(now, at_count(interpolated(self.curve), count))

    def running(self, now: float, config: Config | None = None) -> Running:
        """As the physics sees it."""
        config = config or self.config or self.home
        return Running(self.index, self.submission, self.model, config, self.at.nodes, self.step, now)

    @property
    def in_place(self) -> bool:
        """Whether it has one pod, and its replicas are GPUs of that."""
        return bool(self.submission.tags.get("in_place"))

    @property
    def spots(self) -> tuple[Spot, ...]:
        """Where its replicas are now."""
        return self.at.spots

    def trains_on(self) -> tuple[Spot, ...]:
        """Where it is to train now: on all of its places, or to be measured on some of them (`Grant.measure`): where
        it has most of them."""
        spots = tuple(sorted(self.placed.values()))
        elastic = elastic_spec(self.roles).name
        count = sum(role == elastic for role, _ in spots)
        grant = self.want.within(count) if self.want is not None else None
        if grant is None or not grant.measure:
            return spots
        on = Counter(node for role, node in spots if role == elastic)
        mine = sorted([s for s in spots if s[0] == elastic], key=lambda s: (-on[s[1]], s[1]))
        return tuple(sorted([s for s in spots if s[0] != elastic] + mine[: grant.measure]))

    def counts(self, spots: Sequence[Spot]) -> tuple[tuple[str, int], ...]:
        """Replicas by role, every role named, sorted by name."""
        found = dict.fromkeys(sorted(r.name for r in self.roles), 0)
        for role, _ in spots:
            found[role] += 1
        return tuple(found.items())

    def may_run(self, spots: Sequence[Spot], now: float) -> bool:
        """Whether it can run there: every role has its minimum. A job with a timeout (s) of its own begins with less
        than all of its replicas only so long after the first had a place."""
        if not self.has_minimum(spots):
            return False
        if self.config is not None or len(spots) >= self.full or "timeout" not in self.submission.tags:
            return True
        return now >= self.expires(now)

    def has_minimum(self, spots: Sequence[Spot]) -> bool:
        """Whether every role has the replicas that it can't run without."""
        found = dict(self.counts(spots))
        return bool(spots) and all(found[name] >= least for name, least in self.minimum.items())

    def expires(self, now: float) -> float:
        """When it begins with less than all of its replicas."""
        since = self.run_start if self.spots and self.run_start is not None else now
        return since + float(self.submission.tags.get("timeout", math.inf))

    def places(self, spots: Sequence[Spot]) -> Places:
        """What it uses on these (sorted) spots."""
        if not spots:
            return NOWHERE
        gpus: dict[str, int] = {}
        for role, node in spots:
            gpus[node] = gpus.get(node, 0) + self.shapes[role].gpus
        return Places(tuple(spots), tuple(sorted([node for _, node in spots])), gpus, sum(gpus.values()))

    def shape_of(self, role: str, *, rides: bool = False) -> Shape:
        """What a replica asks for, without the GPUs where it uses another's."""
        return without_gpus(self.shapes[role]) if rides else self.shapes[role]

    # ---- what the scheduler sees ----

    def facts(self) -> Facts:
        """What a Ledger would have observed."""
        return Facts(
            first_start=self.first_start,
            run_start=self.run_start,
            gpu_seconds=self.gpu_seconds,
            run_gpu_seconds=self.run_gpu_seconds,
            executed=self.executed,
            progress=self.progress if self.believed is None else self.believed,
            by_product=dict(self.by_product),
            last_resize=self.last_resize,
            resizes=self.resizes,
            moves=self.moves,
            restarts=self.restarts,
            last_cost=self.last_cost,
            between=not self.spots,
        )

    def show(self, report: Report | None) -> Job:
        """The frozen Job, made again."""
        submission, placed = self.submission, self.placed
        if self.roles_shown is None:
            self.roles_shown = self._members()
        known = submission.known
        batch = self.want.batch if self.want is not None else 0
        memory = submission.gpu_memory
        uses = getattr(self.model, "memory", None)
        if batch and uses is not None:
            memory = int(uses(max(1, batch // max(1, len(placed)))))
        self.job = Job(
            key=self.key,
            priority=submission.priority,
            submitted=submission.submitted,
            roles=self.roles_shown,
            started=bool(placed),
            started_at=(self.run_start or NEVER_ZERO) if placed else 0.0,
            not_before=submission.submitted,  # traces may begin before 0
            since=submission.submitted,
            remaining_work=self.declared if known and self.declared > 0.0 else None,
            speed=self.curve if known else (),
            memory=self.memory,
            request=submission.request,
            model=submission.model,
            batch=submission.batch,
            batch_sizes=submission.batch_sizes,
            gpu_memory=memory,
            resize="restart" if submission.tags.get("resize") == "restart" else "",
            resize_at="boundary" if submission.tags.get("resize_at") == "boundary" else "",
            facts=self.facts(),
            report=report,
            samples=dict(self.samples),
            grant=self.want,
            reservations=self.holds,
            restart_on=() if placed else self.restart_on,
            topology_required=HOSTNAME if self.in_place else "",
            expects=self.in_place,
            newest_pod=math.inf if self.in_place else submission.submitted,
            shareable=memory > 0 or not self.in_place,
        )
        return self.job

    def _members(self) -> tuple[Role, ...]:
        placed, result = self.placed, []
        for spec in self.roles:
            members = self.members[spec.name]
            if placed:
                members = tuple([bound(m, placed[m.uid][1]) if m.uid in placed else m for m in members])
            if self.leaving:
                members += ending(self.leaving, spec.name, self.shapes[spec.name], self.submission.submitted)
            sizes = self.submission.sizes if not self.submission.roles else ()
            result.append(Role(spec.name, spec.min, spec.max, self.shapes[spec.name], sizes, members))
        return tuple(result) if not self.in_place else self._slots(*result)

    def _slots(self, found: Role) -> tuple[Role, Role]:
        """As a cluster plans GPUs in place (`core.devices.slots`): a pod, and a slot for each of its GPUs."""
        where = next((m.node for m in found.members if m.phase is Phase.BOUND), "")
        uid = pod_of(self.key)
        pod = Member(
            uid, uid, Phase.BOUND if where else Phase.GATED, POD, 0, where, self.submission.submitted
        )
        pods = Role(WORKER, 1, 1, POD, members=(pod,))
        counts = found.sizes or tuple(range(found.min, found.max + 1))
        return pods, slots_of(pods, counts, found.on)


def pod_of(key: JobKey) -> str:
    """The uid of a job's only pod, whose GPUs change in place; the n-th of those is PARTS and n after it."""
    return f"{key.name}-{WORKER}-0"


def bound(member: Member, node: str) -> Member:
    """The member on a node (a constructor's call is several times faster than dataclasses.replace)."""
    return Member(member.uid, member.pod, Phase.BOUND, member.shape, member.index, node, member.created)


def ending(leaving: Mapping[str, Spot], role: str, asked: Shape, created: float) -> tuple[Member, ...]:
    """Replicas of a role on their way off their nodes. leaving: role and node by uid."""
    return tuple(
        Member(uid, uid, Phase.ENDING, asked, -1, node, created)
        for uid, (its, node) in leaving.items()
        if its == role
    )


@lru_cache(maxsize=4096)
def shape(spec: RoleSpec, *, named: bool) -> Shape:
    """What a replica asks for; a plain submission's asks for its GPU only."""
    requests = {GPU: spec.gpus}
    if named:
        requests |= {"cpu": spec.cpu, "memory": spec.memory}
    return Shape(requests=tuple(sorted((r, v) for r, v in requests.items() if v)))


def elastic_spec(roles: Sequence[RoleSpec]) -> RoleSpec:
    """As core.sharing.job_table's elastic role: the first whose max is above its min, else the first."""
    return next((r for r in roles if r.max > r.min), roles[0])


def packed(count: int, roles: Sequence[RoleSpec], elastic: RoleSpec, per_node: int, batch: int) -> Config:
    """`count` replicas of the elastic role, on as few nodes as can be, and the least of the others."""
    each = max(1, per_node // max(1, elastic.gpus)) if per_node else 1
    nodes = (*[each] * (count // each), *([count % each] if count % each else []))
    numbers = sorted((r.name, count if r is elastic else max(r.min, 0)) for r in roles)
    return Config(tuple(numbers), nodes, "", batch)


def home_of(submission: Submission, roles: Sequence[RoleSpec], per_node: int) -> Config:
    """The configuration that its owner asked for."""
    elastic = elastic_spec(roles)
    count = min(elastic.max, max(elastic.min, submission.request if not submission.roles else elastic.max))
    return packed(count, roles, elastic, per_node, submission.batch)
