# Over 300 lines: the engine's events change one state, and their order is the engine.
"""The fluid engine: any integer share, no placement (as the AFS authors' simulator), one event after another.

Estimate, order and share as in a cycle, on columns (`sim.columns`), by the same plugins and the same
`core.sharing.chain` as the live cluster. An event is an arrival, a completion, a time at which a plugin asked to be
woken, or a round. Between two events nothing changes but the running jobs' progress.

What it does not do: nodes, products and failures (a GPU is a GPU), and jobs beside others on the same GPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from muster.core.sharing.chain import shares_of
from muster.points import Fifo, Fold, Profile
from muster.sim import fluid_truth as col
from muster.sim.columns import Columns
from muster.sim.fluid_truth import truth
from muster.sim.gauges import Gauges
from muster.sim.lazy_jobs import LazyJobs, estimated, nodes_of, observed
from muster.sim.options import Interrupted, Options, Progress
from muster.sim.result import NO_SPEED, NOTHING_COMES, Result, Segment
from muster.sim.workload import Cluster, Workload
from muster.types import FloatArray, Grants, IntArray, SharingSnapshot

TELL = 512
"""Events between two calls of `progress`."""
PATIENCE = 1000
"""Wake-ups in a row at which nobody is started although nothing runs, before the run is ended."""


def run(
    workload: Workload,
    cluster: Cluster,
    profile: Profile,
    options: Options = Options(),
    progress: Progress | None = None,
) -> Result:
    """One profile on one workload. Deterministic: the same input and seed, the same Result."""
    return _Run(workload, cluster, profile, options, progress).result()


class _Run:
    """One simulation. Running jobs are kept apart from the table, as short arrays in the order of their rows."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        profile: Profile,
        options: Options,
        progress: Progress | None,
    ) -> None:
        self.workload, self.cluster, self.profile, self.options = workload, cluster, profile, options
        self.progress = progress
        self.truth = truth(workload, cluster, options.whole_seconds)
        names = [job.name for job in workload.submissions]
        per_node = max((g.gpus for g in cluster.groups), default=1)
        self.table = Columns(self.truth, names, cluster.gpus, per_node)
        self.arrivals: list[float] = self.truth.floats[col.SUBMITTED].tolist()
        self.relative: list[list[float]] = self.truth.relative.tolist()
        self.nodes = nodes_of(cluster)
        self.round = options.round or profile.round
        self.wakers = profile.wakers
        self.folds = [(name, plugin) for name, plugin in profile.named if isinstance(plugin, Fold)]
        self.observers = [
            (name, plugin) for name, plugin in profile.observers if not isinstance(plugin, Fold)
        ]
        count = len(names)
        self.started = np.full(count, np.nan)
        self.ended = np.full(count, np.nan)
        self.restarts = np.zeros(count, dtype=np.int64)
        self.gpu_seconds = np.zeros(count)
        self.rows: IntArray = np.zeros(0, dtype=np.int64)
        self.left: FloatArray = np.zeros(0)  # iterations
        self.pace: FloatArray = np.zeros(0)  # s of one iteration
        self.pause: FloatArray = np.zeros(0)  # no progress before
        self.alone: FloatArray = np.zeros(0)  # s of one iteration on one replica
        self.finish: FloatArray = np.zeros(0)
        self.soonest = math.inf  # the smallest of `finish`, or of `expected`
        # by job, where kept: the first second at which its run was expected to end (`_first_expected`)
        self.expected = np.full(count, math.inf) if options.whole_seconds and profile.wakers else None
        self.moved = False  # rows or shares have changed: the arrays above are not right any more
        self.now = self.arrivals[0] if self.arrivals else 0.0
        self.gauges = Gauges(self.now, self.now)
        self.segments: list[Segment] = []
        self.queue: list[tuple[float, int]] = []
        self.open: dict[int, tuple[float, int]] = {}  # job -> start and GPUs of its open segment
        self.plugin_errors: list[str] = []
        self.arrived = 0
        self.completed = 0
        self.events = 0
        self.idle = 0  # events in a row with nothing running and nobody to come
        self.stuck = False  # there are jobs, and nothing will change any more
        self.cut = ""  # when it was interrupted

    # ---- the circle ----

    def result(self) -> Result:
        try:
            self._events()
        except Interrupted:
            self.cut = f"interrupted at {self.now:.0f} s of simulated time"
        self._close_segments()
        return self._result()

    def _events(self) -> None:
        """Event after event, until no job is left or nothing can happen any more."""
        total = len(self.arrivals)
        while True:
            self.events += 1
            if self.progress is not None and self.events % TELL == 0:
                self.progress(self.completed, total, self.now)
            self._arrive()
            self._advance()
            wake = math.inf
            if not len(self.table):
                self._finishes()
            else:
                if not self.round or _at_round(self.now, self.round):
                    self._share()
                    wake = self._wake()
                else:
                    self._finishes()
                if self.round:
                    wake = min(wake, (math.floor(self.now / self.round + 1e-9) + 1) * self.round)
            if self.options.record:
                self.queue.append((self.now, self.gauges.waiting))
            following = min(wake, self.soonest)
            if self.arrived < total:
                following = min(following, self.arrivals[self.arrived])
            elif not len(self.table):
                break
            elif len(self.rows) and following < math.inf:
                self.idle = 0
            elif not self._may_change(wake):
                self.stuck = True
                break
            self.gauges.advance(following, len(self.table))
            self.now = following
        if self.progress is not None:
            self.progress(self.completed, total, self.now)

    def _may_change(self, wake: float) -> bool:
        """Whether a wake-up may start somebody although nothing runs and nobody comes: not for ever."""
        self.idle += 1
        return not math.isinf(wake) and self.idle <= PATIENCE

    def _arrive(self) -> None:
        first = self.arrived
        while self.arrived < len(self.arrivals) and self.arrivals[self.arrived] <= self.now:
            self.arrived += 1
        if self.arrived > first:
            self.table.add(range(first, self.arrived))
            for job in range(first, self.arrived):
                self.gauges.waits(self.arrivals[job], float(self.truth.floats[col.REMAINING, job]))

    def _advance(self) -> None:
        """Progress of the running jobs since the event before, and the end of those that are done."""
        table, now = self.table, self.now
        length = now - table.now
        table.now = now
        if length > 0.0 and len(self.rows):
            if self.options.restart:
                length = np.maximum(now - np.maximum(self.pause, now - length), 0.0)
            self.left -= length / self.pace
            table.stale = self.rows, self.left, self.alone
        if self.soonest <= now:
            self._complete(self.finish <= now)

    def _complete(self, done: np.ndarray[Any, Any]) -> None:
        table, gauges = self.table, self.gauges
        table.flush()
        ended = self.rows[done].tolist()
        for row, finish in zip(ended, self.finish[done].tolist(), strict=True):
            have, unit, fixed, _, curve, job, restarts = table.ints[col.HAVE : col.RESTARTS + 1, row].tolist()
            held = have * unit + fixed
            self.ended[job] = finish
            self.started[job] = table.floats[col.FIRST, row]
            self.restarts[job] = restarts
            since = float(table.floats[col.SINCE, row])
            self.gpu_seconds[job] = table.floats[col.GPU_SECONDS, row] + held * (finish - since)
            gauges.used -= held
            gauges.speed -= self.relative[curve][have]
            self._stood(curve, have, since, float(table.floats[col.PAUSE, row]), finish)
            self._segment(job, finish, 0)
        self.completed += len(ended)
        table.remove(ended)
        self.moved = True

    def _running(self) -> None:
        """The running jobs' arrays again, after rows or shares have changed."""
        table, known = self.table, self.truth
        self.moved = False
        self.rows = rows = table.have.nonzero()[0]
        curve = table.ints[col.CURVE][rows]
        self.left = table.floats[col.WORK][rows]
        self.pace = known.seconds[curve, table.have[rows]]
        self.alone = known.seconds[curve, 1]
        if self.options.restart:
            self.pause = table.floats[col.PAUSE][rows]

    # ---- 3 share ----

    def _snapshot(self) -> SharingSnapshot:
        table, nodes = self.table, self.nodes
        return SharingSnapshot(
            self.now, nodes, nodes.total, LazyJobs(self.workload, table), table=table, seed=self.options.seed
        )

    def _share(self) -> None:
        table, profile = self.table, self.profile
        snapshot = self._snapshot()
        for name, fold in self.folds:
            table.memory[name] = dict(fold.fold(snapshot, table.memory.get(name, {})))
        for name, plugin in self.observers:
            observed(name, plugin, snapshot, table, self.plugin_errors)
        if profile.estimate is not None:
            estimated(snapshot, profile, table, self.plugin_errors)
        shares = None
        if profile.shares:
            shares = shares_of(snapshot, profile.shares, self.plugin_errors, preemption=profile.preemption)
        if shares is None:
            shares = Grants(self._in_queue_order(snapshot))
        self._apply(shares)

    def _in_queue_order(self, snapshot: SharingSnapshot) -> IntArray:
        """Without a Share plugin: who runs goes on, who waits starts whole at its request, in the queue's order; what
        doesn't fit is skipped (strict: everybody behind it waits). No reservations: nothing is placed here."""
        table, profile = self.table, self.profile
        granted: IntArray = table.have.copy()
        left = table.gpus - int((granted * table.unit + np.where(granted > 0, table.fixed, 0)).sum())
        waiting = np.flatnonzero(granted == 0)
        if isinstance(profile.sort, Fifo):
            waiting = waiting[np.argsort(-table.priority[waiting], kind="stable")]
        else:
            keys = table.keys
            sort = profile.sort.sort_key
            order = sorted((*sort(snapshot.jobs[keys[r]], snapshot), keys[r], r) for r in waiting.tolist())
            waiting = np.array([item[-1] for item in order], dtype=np.int64)
        for row in waiting.tolist():
            need = int(table.request[row] * table.unit[row] + table.fixed[row])
            if need <= left:
                granted[row] = table.request[row]
                left -= need
            elif profile.order == "strict":
                break
        return granted

    def _apply(self, shares: Grants) -> None:
        """The shares become what jobs have; running jobs' finishes are worked out again."""
        table = self.table
        changed = (shares.replicas != table.have).nonzero()[0]
        if len(changed):
            table.flush()
            for row, will in zip(changed.tolist(), shares.replicas[changed].tolist(), strict=True):
                self._change(row, will)
            self.moved = True
        self._finishes()

    def _finishes(self) -> None:
        """When each running job will be done, if nothing changes before."""
        if self.moved:
            self._running()
        self.finish = self.left * self.pace
        if self.options.restart:
            self.finish += np.maximum(self.now, self.pause)
        else:
            self.finish += self.now
        if self.options.whole_seconds:
            np.ceil(self.finish, out=self.finish)
        self.soonest = float(np.minimum.reduce(self.finish, initial=math.inf))
        if self.expected is not None and len(self.rows):
            self.soonest = self._first_expected(self.expected)

    def _first_expected(self, kept: FloatArray) -> float:
        """The next second at which a run ends, or was expected to since it has what it has. As the AFS authors'
        simulator (github.com/abdullahfsm/AFS, `sim.py`), in whole seconds and under policies that wake: what is left
        is summed up anew at each event, and its last digit can move an end from E to E + 1; a job's next event can
        only come earlier, so they decide at E, too. That splits progress at another point, and so on."""
        jobs = self.table.job[self.rows]
        before = kept[jobs]
        first = np.minimum(np.where(before > self.now, before, math.inf), self.finish)
        kept[jobs] = first
        return float(first.min())

    def _change(self, row: int, will: int) -> None:
        """One job from what it has to `will` replicas: its facts, the gauges, and what the change costs."""
        table, gauges, now = self.table, self.gauges, self.now
        floats = table.floats[:, row].tolist()
        was, unit, fixed, _, curve, job, restarts, tried = table.ints[col.HAVE :, row].tolist()
        if self.expected is not None:
            self.expected[job] = math.inf
        length = now - floats[col.SINCE]
        trained = max(0.0, now - max(floats[col.SINCE], floats[col.PAUSE]))
        relative = self.relative[curve]
        if was:
            held = was * unit + fixed
            floats[col.GPU_SECONDS] += held * length
            floats[col.RUN_GPU_SECONDS] += held * length
            floats[col.EXECUTED] += length
            gauges.used -= held
            gauges.speed -= relative[was]
            self._stood(curve, was, floats[col.SINCE], floats[col.PAUSE], now)
            if will:
                floats[col.RESIZE] = now
        else:
            gauges.runs(floats[col.SINCE], floats[col.REMAINING])
            floats[col.RUN_GPU_SECONDS] = 0.0
            floats[col.RUN] = now
        if will:
            gauges.used += will * unit + fixed
            gauges.speed += relative[will]
            again = floats[col.FIRST] < math.inf
            if not again:
                floats[col.FIRST] = now
            elif self.profile.resize == "restart" or not was:
                restarts += 1
            if again and self.options.restart:
                floats[col.PAUSE] = now + self.options.restart
        if was and self.options.checkpoint and (not will or self.profile.resize == "restart"):
            lost = trained % self.options.checkpoint / float(self.truth.seconds[curve, was])
            floats[col.WORK] += lost  # what was done since the last checkpoint
            floats[col.REMAINING] += lost * float(self.truth.seconds[curve, 1])
        if not will:
            gauges.waits(now, floats[col.REMAINING])
        floats[col.SINCE] = now
        table.floats[:, row] = floats
        table.ints[col.HAVE, row] = will
        table.ints[col.RESTARTS, row] = restarts
        if was > tried and length > 0.0:
            table.ints[col.TRIED, row] = was
        self._segment(job, now, will * unit + (fixed if will else 0))

    def _stood(self, curve: int, have: int, since: float, pause: float, until: float) -> None:
        """A stretch on so many replicas ends: in its pause the job counted at their speed, and stood still."""
        self.gauges.speed_s -= self.relative[curve][have] * max(0.0, min(pause, until) - since)

    def _wake(self) -> float:
        """When a plugin wants to be asked again, with the shares as they are now."""
        if not self.wakers:
            return math.inf
        snapshot = self._snapshot()
        wake = math.inf
        for plugin in self.wakers:
            at = plugin.wake(snapshot)
            if at is not None and at > self.now:
                wake = min(wake, math.ceil(at) if self.options.whole_seconds else at)
        return wake

    # ---- the outcome ----

    def _segment(self, job: int, now: float, gpus: int) -> None:
        if self.options.record:
            start, held = self.open.pop(job, (now, 0))
            if held and now > start:
                self.segments.append(Segment(job, start, now, held))
            if gpus:
                self.open[job] = now, gpus

    def _close_segments(self) -> None:
        for job in sorted(self.open):
            self._segment(job, self.now, 0)

    def _result(self) -> Result:
        table, known = self.table, self.truth
        for row, job in enumerate(table.job.tolist()):  # cut short: what did not end
            first = float(table.first_start[row])
            self.started[job] = first if math.isfinite(first) else math.nan
            self.restarts[job] = table.ints[col.RESTARTS, row]
            since, pause = table.floats[[col.SINCE, col.PAUSE], row].tolist()
            self._stood(int(table.ints[col.CURVE, row]), int(table.have[row]), since, pause, self.now)
        if len(table):
            self.gpu_seconds[table.job] = table.gpu_seconds
        submitted = known.floats[col.SUBMITTED]
        gauges = self.gauges.means(self.cluster.gpus)
        lengths = (
            known.floats[col.WORK] * known.seconds[known.ints[col.CURVE], 1] if len(submitted) else submitted
        )
        if gauges:
            curve, most = known.ints[col.CURVE], known.ints[col.MAX]
            gauges["finish_time_fairness"] = self.gauges.fairness(
                submitted, self.ended, lengths, curve, known.relative, most, self.cluster.gpus
            )
        return Result(
            profile=self.profile.name,
            names=self.table.names,
            submitted=submitted,
            started=self.started,
            ended=self.ended,
            restarts=self.restarts,
            moves=np.zeros(len(submitted), dtype=np.int64),
            gpu_seconds=self.gpu_seconds,
            gpus=self.cluster.gpus,
            gauges=gauges,
            segments=tuple(self.segments),
            queue=tuple(self.queue),
            problems=self.workload.problems,
            notes=self._notes(),
            cut=self.cut,
            interrupted=bool(self.cut),
            events=self.events,
            requests=[job.request for job in self.workload.submissions],
            models=[job.model for job in self.workload.submissions],
        )

    def _notes(self) -> tuple[str, ...]:
        never = zip(self.table.keys, self.table.have.tolist(), strict=True) if self.stuck else ()
        notes = [f"job {key.name} never ends: {NO_SPEED if have else NOTHING_COMES}" for key, have in never]
        notes += dict.fromkeys(self.plugin_errors)
        if self.options.failures:
            notes.append("node failures are not simulated without placement")
        if len({g.product for g in self.cluster.groups}) > 1:
            notes.append(
                "GPU products are not distinguished without placement: every GPU counts as the first group's"
            )
        return tuple(notes)


def _at_round(now: float, length: float) -> bool:
    return abs(now - round(now / length) * length) < 1e-6
