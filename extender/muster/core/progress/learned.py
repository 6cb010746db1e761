"""What is learned of jobs for those of their namespace that come after them with the same image and model label.

A tenant neither learns what another's training is like, nor teaches it anything, nor makes it forgotten: of one
namespace OF_ONE lessons are kept at most. Where the profile says `shared_lessons`, all namespaces share theirs.

A `Lesson` is what a job's Track has in the end: its speed curve by replicas, what a change costs it, what it keeps of
its speed beside others on a GPU, and how many iterations or samples it took if it ended well. `Lessons` keeps the
MOST last used ones, as one JSON object. A job that is seen for the first time is given its lesson in its memory
(`job.memory["learned"]`, plain values), where the Estimate `reported` and the Share `resize-cost` read it: what the
job itself reports comes before all of it. Nothing is learned of jobs without a model label: an image alone
("pytorch:2.4") says nothing of what is trained. Lessons are written as a Track is (`core.progress.history`); why not
as a dump is: `core.plain_values`.
"""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from muster.core.progress.curves import curve
from muster.core.progress.history import Track, number, positive, short, text, whole
from muster.types import Config, Job

MEMORY = "learned"
"""Where a lesson stands in a job's memory."""
MOST, OF_ONE = 500, 50
"""Lessons that are kept, of all namespaces and of one; the one that was used longest ago goes first."""
BYTES = 1 << 19
"""Of all lessons as JSON: a ConfigMap holds a MiB."""
NAMES = 512
"""Characters of an image's name, and of a model's: nothing is learned of a job with a longer one."""
COUNTS = 32
"""Numbers of replicas of one lesson."""
NEIGHBOURS = 8
"""Jobs beside which one lesson knows a part that is kept, measured last: each is as long as a model's name may be."""
ENDS = 3
"""Lengths whose median is believed."""
FORM = 3
"""Of what is written. 1 did not say whose a lesson is, 2 on which GPU product: they are not read."""
Key = tuple[str, str, str]
"""Namespace ("" where all share), image, model."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """speeds: (role, replicas, speed) by role and replicas, in samples/s where `counts_samples`, else iterations/s,
    all on GPUs of `product` and at the global batch size `batch` (0 = none is told): of two, the step between them
    would be no speed-up. cost: s of a change, 0 = none was measured. ends: lengths of the last jobs that ended well,
    in samples or iterations likewise. beside: (GPU product, neighbour, part of the speed alone that is kept),
    measured longest ago first (`core.progress.pairs`). apart: jobs in a row that were measured on another product or
    at another batch size.
    """

    speeds: tuple[tuple[str, int, float], ...] = ()
    cost: float = 0.0
    ends: tuple[float, ...] = ()
    counts_samples: bool = False
    beside: tuple[tuple[str, str, float], ...] = ()
    product: str = ""
    batch: int = 0
    apart: int = 0

    def parts(self) -> dict[tuple[str, str], float]:
        """What is kept, by product and neighbour."""
        return {(product, name): part for product, name, part in self.beside}

    @property
    def work(self) -> float:
        """Samples (else iterations) of such a job, 0 = unknown."""
        return median(self.ends) if self.ends else 0.0

    def points(self, role: str) -> tuple[tuple[int, float], ...]:
        """(replicas, speed) of a role, by replicas."""
        return tuple((n, s) for r, n, s in self.speeds if r == role)

    def curve(self, role: str) -> tuple[float, ...]:
        """Speeds at 0, 1 ... replicas up to the largest that was measured; empty where nothing was."""
        points = self.points(role)
        return curve(points, points[-1][0]) if points else ()


def part_of(samples: Mapping[Config, float], config: Config, known: Lesson | None) -> float | None:
    """What is kept of the speed alone in a configuration beside another job: over what was measured alone, else over
    what is known of such jobs, in the same unit; None where neither is there."""
    alone = samples.get(replace(config, beside=""), 0.0)
    if not alone and known is not None and len(config.roles) == 1 and known.product == config.product:
        role, count = config.roles[0]
        alone = dict(known.points(role)).get(count, 0.0)
    return min(1.0, samples[config] / alone) if alone > 0.0 else None  # faster beside another is nobody


def lesson(track: Track, *, ended_well: bool, known: Lesson | None = None) -> Lesson:
    """What a job's track teaches, at the batch size that it had last and on the GPU product where most numbers of
    replicas were measured (else: last); of several placements of as many replicas the fastest counts. known: what was
    taught before of such jobs."""
    on: dict[str, dict[tuple[str, int], float]] = {}
    beside: dict[tuple[str, str], float] = {}
    same_unit = known if known is not None and known.counts_samples == bool(track.batch) else None
    for config, speed in track.medians.items():
        if config.batch not in (0, track.told_batch):
            continue
        if config.beside:
            part = part_of(track.medians, config, same_unit)
            if part is not None and max(len(config.product), len(config.beside)) <= NAMES:
                beside.pop((config.product, config.beside), None)  # the newest of several is the last
                beside[config.product, config.beside] = part
            continue
        best = on[config.product] = on.pop(config.product, {})  # measured last, the last
        for counted in config.roles:
            best[counted] = max(speed, best.get(counted, 0.0))
    product = max(reversed(on), key=lambda name: len(on[name]), default="")
    newest = track.newest
    done = 0.0
    if newest is not None and ended_well:
        done = newest.samples if track.batch else newest.step
    return Lesson(
        tuple((role, n, short(s)) for (role, n), s in sorted(on.get(product, {}).items())[:COUNTS]),
        round(median(track.costs), 1) if track.costs else 0.0,
        (short(done),) if done > 0.0 else (),
        bool(track.batch),
        tuple((*where, short(part)) for where, part in beside.items())[-NEIGHBOURS:],
        product[:NAMES],
        track.told_batch if on else 0,
    )


def merged(old: Lesson | None, new: Lesson) -> Lesson:
    """Both: of a speed that both have the new one, three quarters of the way; in another unit the new one alone. On
    another product, or at another batch size, the speeds of whichever has more of them (else, and of the third job in
    a row: the new one). What is kept beside others is as it was measured last."""
    if old is None or (old.counts_samples != new.counts_samples and (new.speeds or new.ends)):
        return new
    of, apart = old, old.apart + bool(new.speeds)
    speeds = {(r, n): s for r, n, s in old.speeds}
    if (new.product, new.batch) == (old.product, old.batch):
        apart = 0
        for r, n, s in new.speeds:
            before = speeds.get((r, n))
            speeds[r, n] = s if before is None else short(0.25 * before + 0.75 * s)
    elif new.speeds and (len(new.speeds) >= len(old.speeds) or apart >= ENDS):
        of, apart = new, 0
        speeds = {(r, n): s for r, n, s in new.speeds}
    return Lesson(
        tuple((r, n, s) for (r, n), s in sorted(speeds.items())[:COUNTS]),
        new.cost or old.cost,
        (*old.ends, *new.ends)[-ENDS:],
        new.counts_samples if new.speeds or new.ends else old.counts_samples,
        (*(row for row in old.beside if row[:2] not in new.parts()), *new.beside)[-NEIGHBOURS:],
        of.product,
        of.batch,
        apart,
    )


class Lessons:
    """By namespace, image and model, least recently used first. Changed in place by its one owner, the Ledger."""

    def __init__(self, *, shared: bool = False) -> None:
        self._kept: OrderedDict[Key, Lesson] = OrderedDict()
        self.shared = shared
        """Whether namespaces learn from each other; of what was learned the other way nothing is used."""
        self.changed = False
        """Whether there is something to write since `plain` was last called."""

    def __len__(self) -> int:
        return len(self._kept)

    def learn(self, job: Job, track: Track, *, ended_well: bool) -> None:
        """At the end of a job. Does nothing for one without a model, or that never was measured."""
        key = self._key(job)
        if key is None:
            return
        new = lesson(track, ended_well=ended_well, known=self._kept.get(key))
        if new == Lesson(counts_samples=new.counts_samples):
            return
        self._kept[key] = merged(self._kept.get(key), new)
        self._kept.move_to_end(key)
        self._forget()
        self.changed = True

    def of(self, job: Job) -> Lesson | None:
        """What is known of such jobs."""
        key = self._key(job)
        if key is None or key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def plain(self) -> dict[str, object]:
        """JSON values, least recently used first; of more than BYTES the newest."""
        self.changed = False
        rows: list[list[object]] = []
        size = 0
        for (namespace, image, model), kept in reversed(self._kept.items()):
            row: list[object] = [namespace, image, model, plain_lesson(kept)]
            size += len(json.dumps(row)) + 1
            if size > BYTES:
                break
            rows.append(row)
        return {"form": FORM, "lessons": rows[::-1]}

    def read(self, value: object) -> None:
        """Takes in what `plain` wrote, as older than what it has; anything else is nothing."""
        found: OrderedDict[Key, Lesson] = OrderedDict()
        if isinstance(value, Mapping) and value.get("form") == FORM:
            rows = value.get("lessons")
            for row in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ():
                try:
                    namespace, image, model, plain = row
                    kept = lesson_of(plain)
                    if kept is not None:
                        found[text(namespace), text(image), text(model)] = kept
                except (TypeError, ValueError):
                    continue
        found.update(self._kept)
        self._kept = found
        self._forget()

    def _key(self, job: Job) -> Key | None:
        """None for a job without a model, and for names that nobody gives."""
        if not job.model or max(len(job.image), len(job.model)) > NAMES:
            return None
        return "" if self.shared else job.key.namespace, job.image, job.model

    def _forget(self) -> None:
        """Down to OF_ONE lessons of each namespace, and MOST of all."""
        counts = Counter(key[0] for key in self._kept)
        for key in list(self._kept):
            if (key[0] and counts[key[0]] > OF_ONE) or len(self._kept) > MOST:
                del self._kept[key]
                counts[key[0]] -= 1


def plain_lesson(kept: Lesson) -> dict[str, object]:
    """JSON values; what `job.memory["learned"]` holds."""
    return {
        "speeds": [list(row) for row in kept.speeds],
        "cost": kept.cost,
        "ends": list(kept.ends),
        "samples": kept.counts_samples,
        "product": kept.product,
        "batch": kept.batch,
        "apart": kept.apart,
        **({"beside": [list(row) for row in kept.beside]} if kept.beside else {}),
    }


def lesson_of(value: object) -> Lesson | None:
    """The lesson that `plain_lesson` wrote, None for anything else."""
    if not isinstance(value, Mapping) or not value:
        return None
    try:
        return _lesson(value)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


def learned_of(job: Job) -> Lesson | None:
    """What was learned of jobs like this one, as its memory has it."""
    return lesson_of(job.memory.get(MEMORY))


def _lesson(value: Mapping[str, Any]) -> Lesson:
    speeds = {(text(r), whole(n)): positive(s) for r, n, s in value["speeds"]}
    cost = number(value["cost"])
    return Lesson(
        tuple((r, n, s) for (r, n), s in sorted(speeds.items())[:COUNTS] if n > 0),
        cost if 0.0 <= cost < math.inf else 0.0,
        tuple(positive(end) for end in value["ends"])[-ENDS:],
        bool(value["samples"]),
        tuple((text(p), text(name), positive(part)) for p, name, part in value.get("beside", ()))[
            -NEIGHBOURS:
        ],
        text(value["product"]),
        whole(value["batch"]),
        whole(value["apart"]),
    )
