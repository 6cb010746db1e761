"""Estimate `reported`: what jobs report, as far as it goes, then what is declared, learned or known of their model.

The live cluster's own. Sources: papers/afs-coddl 4.5 (overestimate first, re-adjust later), Optimus's speed law and
loss curve (fits of papers/adaptive-gpu-scheduler-sidecar III-C and papers/gang-scheduler-coach 4.2).

**Speed** (`reported_speed`), the first of these that there is, and bounds by the later ones
(`core.progress.curves.curve`):

1. measured: the medians of the job's own reports (`core.progress.report_filter`), of one GPU product (the one that it
   runs on, else the one with most measured counts). Where it runs now counts before other placements of as many
   replicas, else the best of them does. With parameter servers: Coach's surface over workers and servers;
2. declared: `muster.dev/speed`. A job that has reported nothing is believed just as `declared` believes it;
3. learned: measured of a job with the same image and model before (`core.progress.learned`, in
`job.memory["learned"]`);
4. a reference table of models (`policylib.references`), by the model's name, the GPU product and the batch;
5. overestimate first: linear. A job that reports and is not measured yet is so up to its fair part of the GPUs, or
   what it has; one that reports nothing without a bound, since it may never: GPUs must not idle for it.

**Remaining** (`reported_remaining`; s on one replica), the first of these: iterations left (`total` - `step`; unknown
once the step is beyond its total) over the speed on one replica, or as a part of what is declared where no speed is
known; those that the loss curve (`reported_loss`) needs until the job's `target` (none left once it was there RUNNING
points in a row); declared work less progress; the iterations that such jobs took before; unknown.

`observe` keeps (bounded, and changed seldom since each change is written): `losses`, 64 points of the loss series,
ever wider apart, and `batch`, samples of an iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.core.progress.estimate import declared
from muster.core.progress.learned import learned_of
from muster.memory import Memory, remembers
from muster.points import Estimation
from muster.types import Job, Snapshot
from muster_plugins.reported_loss import Kept, thinned
from muster_plugins.reported_remaining import measured_batch, remaining
from muster_plugins.reported_speed import believed, speed_at


@dataclass(frozen=True, slots=True)
class Reported:
    """fair: whether a job that reports is bounded by its fair part until it is measured, where nothing else is known.
    ceiling: what evaluations rise towards where they rise (1.0: accuracies).
    """

    fair: bool = True
    ceiling: float = 1.0
    memory: Memory[Kept] = remembers(Kept.read)

    def estimate(self, job: Job, snapshot: Snapshot) -> Estimation:
        """Relative speeds at 0, 1 ... replicas of the elastic role, remaining work, and speed anywhere."""
        lesson = learned_of(job)
        if not job.samples and job.report is None and job.speed and lesson is None:
            return declared(job, snapshot.now)
        found = believed(job, snapshot, lesson, fair=self.fair)
        speeds = found.speeds
        one = speeds[1] if len(speeds) > 1 else 1.0
        return Estimation(
            remaining=remaining(job, self.memory.of(job), snapshot.now, found.one, lesson, self.ceiling),
            speeds=tuple([s / one for s in speeds]),
            speed=lambda config: speed_at(job, config, speeds),
        )

    def observe(self, job: Job, snapshot: Snapshot) -> Mapping[str, object] | None:
        """What is kept of a job's reports, None where nothing is new."""
        report = job.report
        if report is None:
            return None
        before, seen = self.memory.plain(job), self.memory.of(job)
        kept: dict[str, object] = dict(before or {})
        losses = thinned(seen.losses, report)
        if losses is not None:
            kept["losses"] = [list(point) for point in losses]
        batch = measured_batch(job, snapshot)
        if batch and abs(batch - seen.batch) > 0.02 * batch:
            kept["batch"] = float(f"{batch:.6g}")
        return kept if kept != before else None
