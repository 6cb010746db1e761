# Over 300 lines: how a simulated job really runs is one state, changed by pauses, moves and ends.
"""How jobs really run on the nodes of a simulation: changes of their placement, pauses, speeds, ends of epochs.

What is decided comes in as `placed` of each Training (`intend`), and is carried out by `settle` as soon as it is
ready; what is to happen later goes out as events. Nothing here asks a scheduler anything.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from muster.errors import InvariantError
from muster.sim import physics as ph
from muster.sim.handover import Pending, difference, due
from muster.sim.options import Options
from muster.sim.pairs import Pairs
from muster.sim.physics import Change, Cost, Physics, Stage
from muster.sim.running_job import NOWHERE, Places, Spot, Training
from muster.sim.sim_nodes import Site
from muster.sim.tally import Tally
from muster.types import Config, JobKey

STAGE, PAUSE, READY, NODE, GONE, MEASURED = range(6)
"""Kinds of events, in the order in which those of one time are handled; arrivals come last."""


class Truth:
    """The cluster as it is. mechanism: how running jobs change (Profile.resize). late: replicas of a job with
    `resizeAt: boundary` that get a place after the others (pods placed one by one) join at the next boundary.

    active: jobs that were submitted and have not ended. stale: those of which the scheduler must see something new.
    fresh: in a configuration whose speed was not seen yet. heap: events (time, kind, index, token), see `STAGE`.
    """

    def __init__(
        self, site: Site, physics: Physics, options: Options, mechanism: str, *, late: bool = False
    ) -> None:
        self.site, self.physics, self.options = site, physics, options
        self.mechanism, self.late = mechanism, late
        self.active: dict[JobKey, Training] = {}
        self.stale: dict[Training, None] = {}
        self.fresh: dict[Training, None] = {}
        self.pending: dict[Training, Pending] = {}
        self.pairs = Pairs(self.active)
        self.busy: dict[str, int] = dict.fromkeys(site.by_name, 0)  # GPUs really in use
        self.uses: dict[Training, tuple[int, int]] = {}  # GPUs that count as used by it, and without progress
        self.here: dict[str, dict[Training, None]] = {name: {} for name in site.by_name}
        self.freed: dict[str, float] = {}  # when a job last left a node
        self.heap: list[tuple[float, int, int, int]] = []
        self.short: dict[int, int] = {}  # by GPUs that must be free for it: jobs that may start or grow
        self.tally = Tally(options.record)

    def push(self, time: float, kind: int, index: int, token: int = 0) -> None:
        """An event: of a job (by its index), meant for it while it is as it is now; or of a node."""
        heapq.heappush(self.heap, (time, kind, index, token))

    # ---- jobs come and go ----

    def arrive(self, training: Training, now: float) -> None:
        """A job is submitted."""
        self.active[training.key] = training
        self.stale[training] = None
        training.since = now
        if self.options.silent:
            training.believed = training.progress
        self._want_more(training)
        self.tally.alive += 1
        self.tally.waits(training, now)
        self.tally.segment(training, now, 0, (), "")

    def _want_more(self, training: Training) -> None:
        """Whether, and from how many free GPUs on, it may start or have one more replica."""
        if training.short is not None:
            self.short[training.short] -= 1
            if not self.short[training.short]:
                del self.short[training.short]
        training.short = None
        if training.key in self.active and len(training.placed) < training.full:
            need = training.unit if training.placed else max(training.unit, training.need)
            training.short = need
            self.short[need] = self.short.get(need, 0) + 1

    def complete(self, training: Training, at: float) -> None:
        """Its work is done: others have its places."""
        training.ended = at
        self.pending.pop(training, None)
        self.site.charge(training.charged, -1)
        training.charged = []
        training.placed = {}
        neighbours = self._occupy(training, NOWHERE, at)
        training.token += 1
        training.members = {}
        training.job = None
        del self.active[training.key]
        self._want_more(training)
        self.stale.pop(training, None)
        self.fresh.pop(training, None)
        self.tally.alive -= 1
        self.tally.close(training, at)
        paired = self.pair([training])
        self.pairs.recharge(self.site, paired)
        self.settle(at)
        self.meet(paired, at)
        self.restage(list(neighbours), at)

    def fail(self, name: str, now: float) -> None:
        """A node fails: its jobs go back to the gate and lose what they did since their checkpoint."""
        hit = [
            training
            for training in self.active.values()
            if name in training.at.gpus or any(n == name for _, n in training.placed.values())
        ]
        for training in hit:
            training.placed = {}
            training.want = None
            training.roles_shown = None
            self._want_more(training)
            self.stale[training] = None
            self.pending.pop(training, None)
        paired = self.pair(hit)
        self.pairs.recharge(self.site, {**dict.fromkeys(hit), **paired})
        for training in hit:
            if training.spots:
                self.switch(
                    [(training, Pending(ph.STOP, Cost(lost=True), now, NOWHERE, training.batch))], now
                )
        self.settle(now)
        self.meet(paired, now)

    # ---- what is decided ----

    def carry_out(self, trainings: Sequence[Training], now: float) -> None:
        """Jobs whose places or grants (`placed`, `want`) are other ones now: capacity, and what follows."""
        self.stale |= dict.fromkeys(trainings)
        paired = self.pair(trainings)
        self.pairs.recharge(self.site, {**dict.fromkeys(trainings), **paired})
        for training in trainings:
            self._want_more(training)
            self.intend(training, now)
        for training in paired:
            self.mark(training, now)
        self.settle(now)
        self.meet(paired, now)

    def sample(self, now: float) -> None:
        """Speeds of configurations in which jobs have made progress are measured by now; what an offline profile says
        of them stays. Of who reports nothing, none are."""
        if self.options.silent:
            self.fresh.clear()
        for training in list(self.fresh):
            stage, config = training.stage, training.config
            if not training.going or not self.trained_long(training, now):
                continue
            if now > training.began and stage is not None and config is not None:
                if config not in training.samples or not training.submission.tags.get("profiled"):
                    training.samples[config] = stage.speed
                    self.stale[training] = None
                del self.fresh[training]

    def trained_long(self, training: Training, now: float) -> bool:
        """Whether it has trained as it does for as long as it takes until a speed is known."""
        return now >= training.began + self._takes(training)

    def _takes(self, training: Training) -> float:
        """Seconds of training as it does until its speed is known."""
        beside = training.config is not None and training.config.beside
        return max(self.options.measure, self.options.measure_beside if beside else 0.0)

    def _expect_measure(self, training: Training) -> None:
        if takes := self._takes(training):
            self.push(training.began + takes, MEASURED, training.index)

    # ---- two jobs on the same GPUs ----

    def pair(self, trainings: Iterable[Training]) -> dict[Training, None]:
        """Jobs whose neighbour on a GPU came or went, after these were placed."""
        changed, alone = self.pairs.after(trainings)
        for training in alone:
            self.stale[training] = None
        return changed

    def meet(self, paired: Mapping[Training, None], now: float) -> None:
        """Their neighbour on a GPU came or went."""
        for training in paired:
            self.mark(training, now)
        self.restage(list(paired), now)

    # ---- changes ----

    def intend(self, training: Training, now: float) -> None:
        """From what is planned and what runs: the change that is to come, if any."""
        spots = training.trains_on()
        batch = (training.want.batch if training.want is not None else 0) or training.submission.batch
        before = self.pending.pop(training, None)
        runs = training.may_run(spots, now)
        if (
            spots == training.spots
            and runs == (training.config is not None)
            and (batch == training.batch or not spots)
        ):
            return
        if (
            self.late
            and training.config is not None
            and training.submission.tags.get("resize_at")
            and not training.boundary
        ):
            return  # a late replica joins at the next boundary
        if spots and not runs and "timeout" in training.submission.tags:
            self.push(training.expires(now), READY, training.index)
        kind = self._kind(training, spots) if runs or not spots else ph.BIND
        config = self._config(training, spots, batch) if spots else training.config or training.home
        places = training.places(spots)
        after = replace(training.running(now, config), nodes=places.nodes)
        newly = difference(training.at.gpus, places.gpus)
        last = max((self.freed.get(n, -math.inf) for n, c in newly.items() if c > 0), default=-math.inf)
        cost = Cost()
        if kind != ph.BIND:
            leaves = bool(training.at.gpus and places.gpus) and not {*training.at.gpus} & {*places.gpus}
            cost = self.physics.cost(
                Change(kind, self.mechanism, training.config, after, now - last, training.ran, leaves)
            )
        ready = now + cost.prepare
        if (
            before is not None
            and before.ready < ready
            and set(spots) <= set(before.places.spots) | set(training.spots)
        ):
            ready = max(now, before.ready)  # what it is to have is being made ready already
        self.pending[training] = Pending(kind, cost, ready, places, batch)
        if ready > now:
            self.push(ready, READY, training.index)

    @staticmethod
    def _kind(training: Training, spots: Sequence[Spot]) -> str:
        if not spots:
            return ph.STOP
        if training.config is None:
            return ph.START if math.isnan(training.started) else ph.RESUME
        if len(spots) != len(training.spots):
            return ph.GROW if len(spots) > len(training.spots) else ph.SHRINK
        moved = tuple(spots) != training.spots and training.counts(spots) == training.counts(training.spots)
        return ph.MOVE if moved else ph.CHANGE

    def settle(self, now: float) -> None:
        """Carry out the changes that are ready; what one job leaves, another takes in the same instant."""
        if not self.pending:
            return
        free = self._really_free
        for group in due(self.pending, now, free):
            for training, _ in group:
                del self.pending[training]
            self.switch(group, now)

    def _really_free(self, node: str) -> int:
        return self.site.gpus_of(node) - self.busy[node]

    def switch(self, group: Sequence[tuple[Training, Pending]], now: float) -> None:
        """Changes that belong together: all leave, then all take."""
        release: dict[str, float] = {}
        for training, change in group:
            if change.cost.release > 0.0:
                for node, count in difference(training.at.gpus, change.places.gpus).items():
                    if count < 0:
                        release[node] = max(release.get(node, 0.0), change.cost.release)
        touched: dict[Training, None] = {}
        group = sorted(group, key=lambda item: len(item[1].places.spots) > len(item[0].spots))
        for training, change in group:
            self.advance(training, now)
            pause = change.cost.pause
            if release:
                took = difference(training.at.gpus, change.places.gpus)
                pause = max([pause, *(release.get(node, 0.0) for node, count in took.items() if count > 0)])
            if change.cost.lost and self.physics.checkpoint > 0.0:
                self._lose(training, now)
            ran = training.config is not None
            left = training.resumes - now if ran and not training.going else 0.0
            training.token += 1
            training.going = False
            training.batch = change.batch
            touched |= self._occupy(training, change.places, now, anew=change.cost.anew)
            self._count(training, change, now, ran=ran)
            if training.config is None:
                continue
            pause = max(pause, left)
            training.resumes = now + pause
            if change.kind in (ph.START, ph.RESUME) or change.cost.lost:
                training.saved, training.clock = training.step, now + pause
            if pause > 0.0:
                self.push(now + pause, PAUSE, training.index, training.token)
                self.mark(training, now, change.kind)
            else:
                self.go([training], now, restage=False)
                touched[training] = None
            other = self.pairs.beside(training)
            if other is not None:
                touched[other] = None
        if self.pairs.rides:  # a job may go on where it is and from now on share that GPU with one that comes
            here = {training for training, _ in group}
            for rider, owner in self.pairs.rides.items():
                if rider in here or owner in here:
                    self.mark(rider, now)
        self._check(group)
        self.restage(list(touched), now)

    def _count(self, training: Training, change: Pending, now: float, *, ran: bool) -> None:
        """Facts and tallies of a change that has taken place."""
        kind = change.kind
        self.tally.changes[kind] = self.tally.changes.get(kind, 0) + 1
        measures = self._measures(training, len(change.places.spots))
        if kind in (ph.GROW, ph.SHRINK, ph.MOVE) and ran and not measures:
            training.last_resize = now
            training.resizes += kind != ph.MOVE
            training.moves += kind == ph.MOVE
        free = kind == ph.CHANGE and change.cost == Cost()  # another batch size, told to it while it runs
        if kind == ph.RESUME or (ran and kind != ph.STOP and self.mechanism == ph.RESTART and not free):
            training.restarts += 1
        if kind not in (ph.STOP, ph.BIND):
            training.last_cost = self._told(training, change, now)
        self.stale[training] = None

    def _measures(self, training: Training, count: int) -> bool:
        """Whether it goes to a part of its share to be measured there, or back from it: no resize."""
        before, training.part = training.part, len(training.placed) if count < len(training.placed) else 0
        return bool(training.part) or before == count

    def _told(self, training: Training, change: Pending, now: float) -> float:
        """Seconds that a change took, as far as anybody was told: without reports until all replicas ran again."""
        if not self.options.silent:
            return change.cost.prepare + change.cost.pause
        restarts = change.kind == ph.RESUME and not math.isnan(training.stopped)
        return now - training.stopped if restarts else training.last_cost

    def _lose(self, training: Training, now: float) -> None:
        """Work since the last checkpoint is to be done again."""
        lost = max(0.0, training.step - training.saved)
        training.step -= lost
        if training.one > 0.0:
            training.progress = training.progress.turned(now, 0.0)._replace(
                total=training.step / training.one
            )

    def _occupy(
        self, training: Training, places: Places, now: float, *, anew: bool = False
    ) -> dict[Training, None]:
        """It uses these places from now on: facts, gauges; gives those whose speed may change by it."""
        before, waited, spots = training.at, training.config is None, places.spots
        touched: dict[Training, None] = {}
        if self.physics.shared:
            for node in before.gpus:
                self.here[node].pop(training, None)
                touched |= self.here[node]
        for node, count in before.gpus.items():
            if node not in places.gpus or places.gpus[node] < count:
                self.freed[node] = now
        training.at = places
        complete = training.may_run(spots, now)
        training.config = self._config(training, spots, training.batch) if complete else None
        training.ran = training.config or training.ran
        if not complete and not waited:
            training.stopped = now if training.restart_on else math.nan
        training.believe(now)
        gpus = float(places.total)
        if spots and (anew or not before.spots):
            training.run_start = now
            training.run_gpu_seconds = training.run_gpu_seconds._replace(total=0.0, rate=0.0, since=now)
            if training.first_start is None:
                training.first_start = now
        training.gpu_seconds = training.gpu_seconds.turned(now, gpus)
        training.run_gpu_seconds = training.run_gpu_seconds.turned(now, gpus)
        training.executed = training.executed.turned(now, 1.0 if spots else 0.0)
        training.progress = training.progress.turned(now, 0.0)
        products = {self.site.product(n) for n in places.gpus}
        for product in sorted({*training.by_product, *products}):
            meter = training.by_product.get(
                product, training.executed._replace(total=0.0, rate=0.0, since=now)
            )
            training.by_product[product] = meter.turned(now, 1.0 if product in products else 0.0)
        training.going = False
        if complete:
            if math.isnan(training.started):
                training.started = now
            self.fresh[training] = None
        if waited and complete:
            self.tally.waits_no_more(training, now)
        elif not waited and not complete and math.isnan(training.ended):
            self.tally.waits(training, now)
        self.mark(training, now, "incomplete" if spots and not complete else "")
        return touched

    def mark(self, training: Training, now: float, note: str | None = None) -> None:
        """GPUs in use by it, and whether for nothing, in the gauges and the history. note: None = as it was."""
        training.note = training.note if note is None else note
        held, lost = self.uses.pop(training, (0, 0))
        self.tally.held -= held
        self.tally.lost -= lost
        for node, count in training.used.items():
            self.busy[node] -= count
        training.used = {}
        if training.spots:
            owner = self.pairs.rides.get(training)
            training.used = training.at.gpus
            if owner is not None:
                training.used = dict(training.used)
                for node in owner.at.gpus.keys() & training.used.keys():
                    training.used[node] = 0
            for node, count in training.used.items():
                self.busy[node] += count
            held = sum(training.used.values())
            lost = 0 if training.going else held
            self.uses[training] = (held, lost)
            self.tally.held += held
            self.tally.lost += lost
        self.tally.segment(training, now, training.at.total, training.at.nodes, training.note)

    def _check(self, group: Sequence[tuple[Training, Pending]]) -> None:
        """No GPU is used twice, whatever was planned."""
        for node in {node for training, _ in group for node in training.at.gpus}:
            if self.busy[node] > self.site.gpus_of(node):
                raise InvariantError(f"{self.busy[node]} GPUs of {node} are in use, which has fewer")

    # ---- speed ----

    def _config(self, training: Training, spots: Sequence[Spot], batch: int) -> Config:
        """How it runs there: of several products the slowest, since replicas wait for each other."""
        elastic = {r.name for r in training.roles if r.gpus} or {r.name for r in training.roles}
        counts: dict[str, int] = {}
        for role, node in spots:
            if role in elastic:
                counts[node] = counts.get(node, 0) + 1
        products = sorted({self.site.product(node) for node in counts})
        config = Config(
            training.counts(spots),
            tuple(sorted(counts.values(), reverse=True)),
            products[0] if products else "",
            batch,
        )
        if len(products) > 1:
            config = min(
                (replace(config, product=p) for p in products),
                key=lambda c: (training.model.speed(c), c.product),
            )
        return config

    def advance(self, training: Training, now: float) -> None:
        if training.one > 0.0:
            self.tally.relative += training.advance(now, self.physics.checkpoint) / training.one
        else:
            training.advance(now, self.physics.checkpoint)

    def go(self, trainings: Sequence[Training], now: float, *, restage: bool = True) -> None:
        """They make progress from now on."""
        for training in trainings:
            training.going = True
            training.since = training.began = now
            self.stale[training] = None
            if training in self.fresh:
                self._expect_measure(training)
            self.mark(training, now, "")
            if self.physics.shared:
                for node in training.at.gpus:
                    self.here[node][training] = None
        if restage:
            self.restage(trainings, now)

    def restage(self, trainings: Sequence[Training], now: float) -> None:
        """Speeds of these trainings, and of all that hang together with them by nodes where those matter."""
        going = list(dict.fromkeys(training for training in trainings if training.going))
        if self.physics.shared:
            going = self._together(going)
        if not going:
            return
        running = []
        for training in going:
            self.advance(training, now)
            assert training.config is not None
            if self.pairs.rides or training.config.beside:
                other = self.pairs.beside(training)
                beside = ""
                if other is not None:
                    beside = other.submission.model
                    if other.batch != other.submission.batch:
                        beside = f"{beside}@{other.batch}"
                if beside != training.config.beside:
                    training.config = replace(training.config, beside=beside)
                    self.fresh[training] = None
                    training.began = training.since
                    self._expect_measure(training)
            running.append(training.running(training.since))
        stages = self.physics.stages(running, self.site.by_name)
        for training, stage in zip(going, stages, strict=True):
            if stage != training.stage:
                self.stale[training] = None
            training.stage, training.total = stage, stage.work
            rate = stage.speed / training.one if training.one > 0.0 else 0.0
            training.progress = training.progress.turned(training.since, rate)._replace(
                total=training.step / training.one if training.one > 0.0 else 0.0
            )
            self._expect_end(training, stage)

    def _together(self, trainings: Iterable[Training]) -> list[Training]:
        found = dict.fromkeys(trainings)
        queue = list(found)
        for training in queue:  # grows while it is gone through
            for node in sorted(training.at.gpus):
                for other in self.here[node]:
                    if other not in found:
                        found[other] = None
                        queue.append(other)
        return sorted(found, key=lambda t: t.index)

    def _expect_end(self, training: Training, stage: Stage) -> None:
        """The event at the end of the stage. On whole seconds it comes no earlier than it truly is: a cycle in
        between still sees the job, as in the Pollux artifact's simulator, which rounds when it gets there."""
        training.token += 1
        if stage.speed <= 0.0:
            return
        length = max(0.0, (stage.until - training.step) / stage.speed)
        at = when = training.since + length
        if stage.whole:
            at = (
                training.since + round(length)
                if training.since == math.floor(training.since)
                else float(round(when))
            )
            when = max(when, at)
        elif self.options.whole_seconds and stage.until >= stage.work:
            at = when = float(math.ceil(when - 1e-9))
        training.due = at
        self.push(when, STAGE, training.index, training.token)
