# Over 300 lines: the engine's events change one state, and their order is the engine.
"""The simulator on nodes: events, and at each of them the whole cycle of the live cluster (core.cycle).

`event -> trainings -> Snapshot -> plan -> changes` (design §3). A plan is carried out at once: a pod that is to go is
gone, unless that takes its time (sim/leaving.py), and one that is planned runs, but for what the physics says of
preparing and pausing (sim/physics.py). Events are arrivals, ends of epochs and completions, ends of pauses and
preparations, GPUs that come free, failures and repairs of nodes, and the times at which the plan asks for the next
cycle; with rounds the cycle runs at their whole multiples only.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.core.actions.scale_down import restart_on
from muster.core.cycle import cycle
from muster.points import Profile
from muster.sim import physics as ph
from muster.sim import result_builder, stock
from muster.sim.leaving import Leaver, Leaving
from muster.sim.makers import Makers
from muster.sim.options import Interrupted, Options, Progress
from muster.sim.physics import Physics, Stage
from muster.sim.result import Result
from muster.sim.running_job import Training
from muster.sim.sim_nodes import Site
from muster.sim.truth import GONE, MEASURED, NODE, PAUSE, READY, Truth
from muster.sim.workload import Cluster, Workload
from muster.types import Job, JobKey, Plan, Report, Reservation, Snapshot

PATIENCE = 1000
"""Cycles of the whole cluster, and repairs, in a row that change nothing while nothing runs and nothing is to come:
then nothing ever will."""
TICK = 1e-3
"""No cycle that a plan asks for comes sooner after it (s), so that no plugin can stop the clock."""
EVERY = 256
"""Events between two words on progress."""


def run(
    workload: Workload,
    cluster: Cluster,
    profile: Profile,
    options: Options = Options(),
    progress: Progress | None = None,
) -> Result:
    """Simulate one profile on nodes. Deterministic: the same input and seed, the same Result."""
    return Engine(workload, cluster, profile, options, progress).run()


@dataclass(frozen=True, slots=True)
class Quiet:
    """What a cycle of a profile can't do, so that many of them need not run.

    rigid: no shares, moves or folds, so only free capacity changes anything. rounds: the cycle runs at whole
    multiples of it only (s; 0: whenever something happened, as on a cluster, where GPUs that are free between two
    rounds are not left idle).
    """

    rigid: bool
    rounds: float

    @staticmethod
    def of(profile: Profile, options: Options) -> Quiet:
        """What a profile's plugins leave out."""
        folds = bool(profile.observers)
        elastic = profile.shares or profile.rebalance or folds or profile.preemption
        return Quiet(not elastic, options.round or (0.0 if profile.conserving else profile.round))


class Engine:
    """Goes through the events of a simulation; what really happens to jobs is its `truth`."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        profile: Profile,
        options: Options,
        progress: Progress | None = None,
    ) -> None:
        self.workload, self.profile, self.options, self.progress = workload, profile, options, progress
        self.quiet = Quiet.of(profile, options)
        self.pods = profile.planner == "pods"
        site = self.site = Site(cluster)
        self.physics = physics_of(workload, options)
        self.truth = Truth(site, self.physics, options, profile.resize, late=self.pods)
        self.makers = Makers(workload.models, cluster, site.gpus, site.per_node, rigid=self.pods)
        width = len(str(max(0, len(workload.submissions) - 1)))
        held = at_request(profile, options)
        self.trainings = [
            self.makers.training(i, width, s, held=held) for i, s in enumerate(workload.submissions)
        ]
        for training in self.trainings:
            at = training.submission.submitted
            training.arrival = math.ceil(at - 1e-9) if options.whole_seconds else at
        self.jobs: dict[JobKey, Job] = {}  # as the scheduler last saw them
        self.leaving = Leaving(
            site, self.truth.pairs, options.release, self.jobs, silent=self.pods, spread=options.release_spread,
            seed=options.seed if options.release_seed is None else options.release_seed, rest=options.release_rest,
        )  # fmt: skip
        self.at_boundary: list[Training] = []
        self.next = math.inf  # when the next cycle is due
        self.events = self.completed = self.idle_cycles = 0
        self.plan = Plan()  # the last one
        self.plugin_errors: dict[str, list[float]] = {}  # of plugins: when first, and how often

    # ---- the loop ----

    def run(self) -> Result:
        """All events, then what came of them."""
        arrivals = sorted(self.trainings, key=lambda t: t.arrival)
        tally, heap, total = self.truth.tally, self.truth.heap, len(arrivals)
        now = arrivals[0].arrival if arrivals else 0.0
        tally.begin(now)
        self._expect_failures(now)
        arrived, told, cut, interrupted = 0, 0, "", False
        try:
            while self.completed < total:
                arrival = arrivals[arrived].arrival if arrived < total else math.inf
                now = min(arrival, self.next, heap[0][0] if heap else math.inf)
                if now == math.inf:
                    break
                tally.to(now)
                self._happen(now)
                while arrived < total and arrivals[arrived].arrival <= now:
                    self._arrive(arrivals[arrived], now)
                    arrived += 1
                if self.next <= now:
                    self._plan(now)
                    if self._stuck(now, more=arrived < total):
                        break
                if self.progress is not None and self.events - told >= EVERY:
                    told = self.events
                    self.progress(self.completed, total, now)
        except Interrupted:
            interrupted = True
            cut = f"interrupted at {now:.0f} s of the trace, after {self.completed} of {total} jobs"
        return result_builder.result(
            self.trainings,
            self.truth,
            self.workload,
            self.profile.name,
            self.events,
            now,
            cut,
            self.plan.statuses,
            self.plugin_errors,
            interrupted=interrupted,
        )

    def _wish(self, time: float) -> None:
        """A cycle at `time`, or at the first round from then on."""
        if self.quiet.rounds:
            time = math.ceil(time / self.quiet.rounds - 1e-9) * self.quiet.rounds
        self.next = min(self.next, time)

    def _happen(self, now: float) -> None:
        """Everything that is due, but arrivals and the cycle."""
        truth = self.truth
        while truth.heap and truth.heap[0][0] <= now:
            _, kind, index, token = heapq.heappop(truth.heap)
            if kind == NODE:
                self._node(index, now)
                continue
            training = self.trainings[index]
            if kind == GONE:
                self._gone(token, now)
            elif kind == MEASURED:
                if training in truth.fresh and truth.trained_long(training, now):
                    self._wish(now)
            elif kind == READY:
                if training.key not in truth.active:
                    continue
                if training not in truth.pending:
                    truth.intend(training, now)
                truth.settle(now)
                self._wish(now)
            elif token != training.token:
                continue  # something else came between
            elif kind == PAUSE:
                truth.go([training], now)
                if self.physics.pauses_tell and not self.quiet.rigid:
                    self._wish(now)
            else:
                self._end_of_stage(training, now)
            self.events += 1

    def _arrive(self, training: Training, now: float) -> None:
        self.events += 1
        self.makers.appear(training)
        self.truth.arrive(training, now)
        self._wish(now)

    def _leave(self, leavers: Sequence[Leaver]) -> None:
        for leaver in leavers:
            self.truth.push(leaver.until, GONE, leaver.training.index, leaver.number)

    def _gone(self, number: int, now: float) -> None:
        """A replica has left its node: others may have its GPUs."""
        training = self.leaving.gone(number)
        if training.key in self.truth.active:
            self.truth.stale[training] = None
        self._wish(now)

    def _end_of_stage(self, training: Training, now: float) -> None:
        """Its epoch has ended, or all of its work is done: on the clock at `due`, perhaps just before now."""
        truth, at, stage = self.truth, training.due, training.stage
        assert stage is not None
        few = len(training.spots) < training.full
        truth.tally.stragglers += few and (self.pods or bool(training.submission.roles))
        truth.advance(training, at)
        training.step = stage.until
        if stage.until >= stage.work:
            self.leaving.tell_all(training, at)
            truth.complete(training, at)
            self.completed += 1
            self._leave(self.leaving.done(training))
            if truth.active:
                self._wish(now)
            return
        if ph.stops(training.submission):
            training.boundary = True
            training.saved = training.step
            self.at_boundary.append(training)
            truth.stale[training] = None
            self._wish(now)
        truth.restage([training], at)
        if self.pods:
            truth.intend(training, now)
            truth.settle(now)

    def _stuck(self, now: float, *, more: bool) -> bool:
        """Whether nothing can happen any more that starts a job: none is running, arriving or being made ready."""
        truth = self.truth
        if more or truth.pending or self.leaving.by_number or any(moves(each, now) for each in truth.uses):
            self.idle_cycles = 0
            return False
        if self.site.down:  # a repair may start somebody, but the next of many that started nobody won't
            return self.idle_cycles > PATIENCE
        self.idle_cycles += 1
        return self.next == math.inf or self.idle_cycles > PATIENCE

    # ---- the plan ----

    def _plan(self, now: float) -> None:
        """One cycle, unless it can change nothing; then everything that it decided."""
        self.next = math.inf
        if not self.truth.active or (self.quiet.rigid and not self._could_start()):
            return
        self.events += 1
        changed = False
        for _ in range(2):  # whole gangs make way for the head of the queue first, then it starts
            plan = self._cycle(now)
            for words in plan.plugin_errors:
                self.plugin_errors.setdefault(words, [now, 0])[1] += 1
            moved = self._carry_out(plan, now)
            changed = changed or moved
            if not (moved and (plan.back or (plan.preempted and not self.profile.shares))):
                break
        if changed:
            self.idle_cycles = 0
        self.plan = plan
        if plan.requeue_at is not None:
            self._wish(max(plan.requeue_at, now + TICK))
        if self.quiet.rounds and not self.quiet.rigid:
            self.next = min(self.next, (math.floor(now / self.quiet.rounds + 1e-9) + 1) * self.quiet.rounds)

    def _could_start(self) -> bool:
        """Whether free GPUs suffice for any job that waits, or for one more replica of any that runs."""
        return any(self.site.free_gpus >= need for need in self.truth.short)

    def _cycle(self, now: float) -> Plan:
        """What the scheduler sees, and what it makes of it."""
        truth = self.truth
        truth.sample(now)
        if not self.physics.steady:
            for training in truth.uses:
                if self.physics.talkative or training.tells:
                    truth.stale[training] = None
        for training in truth.stale:
            self.jobs[training.key] = training.show(self._report(training, now))
        truth.stale.clear()
        snapshot = Snapshot(
            now=now,
            nodes=self.site.nodes,
            free=self.site.free.copy(),
            jobs=dict(self.jobs),
            ours_on=self.site.ours_on.copy(),
            seed=self.options.seed,
        )
        if self.pods:
            plan = stock.plan(snapshot, {key: t.wanted for key, t in truth.active.items()})
        else:
            plan = of_places(cycle(snapshot, self.profile), self.truth.active)
        for training in self.at_boundary:
            training.boundary = False
            if training.key in truth.active:
                truth.stale[training] = None
        self.at_boundary.clear()
        return plan

    def _report(self, training: Training, now: float) -> Report | None:
        if self.options.silent or not (self.physics.talkative or training.first_start is not None):
            return None
        self.truth.advance(training, now)
        stage = training.stage if training.going else None
        return self.physics.report(
            training.running(now), stage or Stage(0.0, math.inf, training.total), boundary=training.boundary
        )

    def _carry_out(self, plan: Plan, now: float) -> bool:
        """The plan's placements, and what follows; whether anything changed."""
        truth = self.truth
        changed: dict[Training, None] = {}
        for key in (*plan.back, *plan.preempted):
            training = truth.active[key]
            if training.placed:
                for uid in training.placed:
                    self.leaving.tell(training, uid, now)
                training.placed = {}
                changed[training] = None
        going: dict[JobKey, list[str]] = {}
        for shrink in plan.shrinks:
            going.setdefault(shrink.job, []).append(shrink.uid)
            training = truth.active[shrink.job]
            self.leaving.tell(training, shrink.uid, now)
            del training.placed[shrink.uid]
            changed[training] = None
        again = self._start_again(plan, going)
        # What others are still to leave is taken once it is free, by a plan of its own.
        for places in (plan.reservations, {} if self.leaving.seconds else plan.later):
            for key, reservations in places.items():
                if not reservations or key in again:
                    continue
                training = truth.active[key]
                changed[training] = None
                for reservation in reservations:
                    uid = reservation.uid
                    if not uid or uid in training.placed:
                        uid = next(
                            m.uid for m in training.members[reservation.role] if m.uid not in training.placed
                        )
                    training.placed[uid] = (reservation.role, reservation.node)
        for key, memory in plan.memory.items():
            if key not in truth.active:
                continue  # its training is done, and only its replicas are still to go
            training = truth.active[key]
            training.memory = {**training.memory, **memory}
            truth.stale[training] = None
        wishes = self._take_wants(plan, changed)
        for training in changed:
            training.roles_shown = None
        if changed or wishes:
            truth.carry_out([*changed, *(t for t in wishes if t not in changed)], now)
            self._leave(self.leaving.charge())
        for key in again:
            self.leaving.hold(truth.active[key], plan.reservations.get(key, ()))
        return bool(changed or wishes)

    def _start_again(self, plan: Plan, going: Mapping[JobKey, Sequence[str]]) -> list[JobKey]:
        """Jobs that have left all of their places, or are told to, and start again once all of the next are free."""
        result = []
        for key in plan.shares if self.leaving.seconds else ():
            training, on = (
                self.truth.active[key],
                restart_on(self.jobs[key], plan, going.get(key, ()), rounds=bool(self.profile.round)),
            )
            if training.holds:
                self.leaving.hold(training, ())
            if on or training.restart_on:
                self.truth.stale[training] = None
            training.restart_on = on
            if on:
                result.append(key)
        return result

    def _take_wants(self, plan: Plan, changed: Mapping[Training, None]) -> list[Training]:
        """What is granted beside a number of replicas; jobs for which that is something else than before."""
        result: list[Training] = []
        for key in plan.shares:
            training = self.truth.active[key]
            grant = plan.grants.get(key)
            if not training.placed and not training.restart_on:  # who starts again does as it was granted
                grant = None
            elif grant is None and training in self.truth.pairs.rides and training not in changed:
                continue  # it stays where it shares a GPU
            if grant != training.want:
                training.want = grant
                result.append(training)
        return result

    # ---- failures ----

    def _expect_failures(self, start: float) -> None:
        mean = self.options.failures
        if mean <= 0.0:
            return
        self.fates = [ph.rng(self.options.seed, i, "failure") for i in range(len(self.site.nodes))]
        for i, fate in enumerate(self.fates):
            self.truth.push(start + float(fate.exponential(mean)), NODE, i)

    def _node(self, index: int, now: float) -> None:
        """A node fails, or is back."""
        self.events += 1
        name = self.site.nodes.names[index]
        if name in self.site.down:
            self.site.set_down(name, down=False)
            self.idle_cycles += 1
            self.truth.push(now + float(self.fates[index].exponential(self.options.failures)), NODE, index)
        else:
            self.site.set_down(name, down=True)
            self.truth.push(now + self.options.repair, NODE, index)
            self.truth.fail(name, now)
        self._wish(now)


def of_places(plan: Plan, trainings: Mapping[JobKey, Training]) -> Plan:
    """What it says of the pods of jobs in place is left out: where their GPUs are, there they are."""
    if not any(training.in_place for training in trainings.values()):
        return plan

    def own(key: JobKey, role: str) -> bool:
        return key not in trainings or role in trainings[key].shapes

    def kept(places: Mapping[JobKey, tuple[Reservation, ...]]) -> dict[JobKey, tuple[Reservation, ...]]:
        return {key: tuple(one for one in found if own(key, one.role)) for key, found in places.items()}

    return replace(
        plan,
        shrinks=tuple(one for one in plan.shrinks if own(one.job, one.role)),
        reservations=kept(plan.reservations),
        later=kept(plan.later),
    )


def moves(training: Training, now: float) -> bool:
    """Whether something will happen to a job that has places, if nothing else does."""
    if training.config is None:
        return training.has_minimum(training.spots) and now < training.expires(now) < math.inf
    return not training.going or (training.stage is not None and training.stage.speed > 0.0)


def at_request(profile: Profile, options: Options) -> bool:
    """Whether jobs hold what they asked for: nobody shares, so a range would be growth that no policy decided.
    (Pod by pod, the stock scheduler's jobs have their request in any case.)"""
    return not options.ranges and not profile.shares and profile.planner == "cycle"


def physics_of(workload: Workload, options: Options) -> Physics:
    """The workload's own, made of the options where it says how; else what the options say."""
    given = workload.physics
    if given is None:
        return ph.by_options(options)
    return given(options) if callable(given) else given
