"""Kubeflow Trainer's `TrainJob.status.trainerStatus` as reports, where it is served and filled in.

The API (kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go, since v2.2, alpha gate TrainJobStatus) has
progressPercentage (0 to 100), estimatedRemainingSeconds, metrics ([{name, value}], both text, names as the training
chose them) and lastUpdatedTime. From that a Report: step, total, samples, epoch and loss of metrics with a
well-known name; without a step, the percentage is the step and 100 the total. Thin: a percent is coarse, and what is
read every EVERY seconds is at best known to that; a process that calls muster.report tells more.

A TrainJob's pods hang below the JobSet that Trainer makes, of the TrainJob's name, which owns the job where its
TrainJob is not known. Only the replica that leads reads.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

from muster.cluster.api import Api, message
from muster.cluster.paths import path
from muster.cluster.watch import Sink
from muster.core.views.view import Board
from muster.errors import ClusterError
from muster.threads import STALLED, beat, supervised
from muster.types import Job, Phase, Report, Reported

log = logging.getLogger(__name__)

VERSION = "trainer.kubeflow.org/v1alpha1"
KINDS = frozenset({"TrainJob", "JobSet"})
EVERY = 10.0
"""Seconds between looks at a job's status."""
ABSENT = 60.0
"""Seconds between looks whether the API is served; of a JobSet that is no TrainJob's, until it is asked for again."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "steps"),
    "total": ("total", "total_steps", "max_steps"),
    "samples": ("samples", "num_samples", "samples_seen", "examples"),
    "epoch": ("epoch",),
    "loss": ("loss", "train_loss", "eval_loss", "val_loss"),
}
"""Metrics that are understood, by field of a Report; the first that is there counts."""
FAR = 1e15

Json = Mapping[str, Any]


def read_status(status: Json, now: float) -> Report | None:
    """The report of a TrainJob's `status.trainerStatus`, at `now` (Unix s); None where it tells no progress."""
    told: dict[str, float] = {}
    for metric in status.get("metrics") or ():
        try:
            number = float(metric["value"])
        except (KeyError, TypeError, ValueError):
            continue
        if math.isfinite(number) and abs(number) <= FAR:
            told[str(metric.get("name", "")).lower()] = number
    values = {
        field: next((told[name] for name in names if name in told), None) for field, names in NAMES.items()
    }
    counts = {field: value for field, value in values.items() if field != "loss" and value is not None}
    if any(value < 0 for value in counts.values()):
        return None
    percent = status.get("progressPercentage")
    if "step" not in counts:
        if not isinstance(percent, int) or not 0 <= percent <= 100:
            return None
        counts |= {"step": float(percent), "total": 100.0}
        counts.pop("samples", None)
    epoch = min(counts.pop("epoch", 0.0), 1e9)
    return Report(
        at=now,
        step=counts["step"],
        total=counts.get("total", 0.0),
        samples=counts.get("samples", 0.0),
        epoch=int(epoch),
        loss=values["loss"],
    )


class TrainerStatus:
    """The thread that reads them. `sink` gets each status once, as Reported of the job's first replica on a node."""

    def __init__(self, api: Api, board: Board, sink: Sink) -> None:
        self._api, self._board, self._sink = api, board, sink
        self._seen: dict[str, str] = {}  # lastUpdatedTime by the job's uid
        self._not_before: dict[str, float] = {}  # monotonic, by the job's uid
        self._served_until = 0.0
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin."""
        supervised("trainer", self._run, within=STALLED)

    def stop(self) -> None:
        """End soon."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            beat()
            try:
                self.look(time.monotonic(), time.time())
            except ClusterError as error:
                log.warning("reading TrainJobs: %s", error)

    def look(self, clock: float, now: float) -> None:
        """Read every running TrainJob once; clock: monotonic s, now: Unix s. Raises ClusterError: no answer."""
        view = self._board.view
        jobs = {uid: job for job in view.snapshot.jobs.values() if (uid := _of_trainer(job))}
        self._seen = {uid: at for uid, at in self._seen.items() if uid in jobs}
        self._not_before = {uid: at for uid, at in self._not_before.items() if uid in jobs or not uid}
        if not view.leading or not jobs or not self._served(clock):
            return
        for uid, job in sorted(jobs.items()):
            first = min(
                (m for role in job.roles for m in role.members if m.phase is Phase.BOUND),
                key=lambda m: (m.index, m.pod),
                default=None,
            )
            if first is None or clock < self._not_before.get(uid, 0.0) or job.owner is None:
                continue
            beat()
            status = self._read(job.key.namespace, job.owner.name)
            if status is None:
                self._not_before[uid] = clock + ABSENT
                continue
            updated = str(status.get("lastUpdatedTime", ""))
            report = read_status(status, now)
            if report is not None and updated and self._seen.get(uid) != updated:
                self._seen[uid] = updated
                self._sink([Reported(first.uid, report)])

    def _served(self, clock: float) -> bool:
        if clock < self._served_until:
            return True
        if clock < self._not_before.get("", 0.0):
            return False
        code, _ = self._api.request("GET", path(VERSION))
        if code == 200:
            self._served_until = clock + ABSENT
            return True
        self._not_before[""] = clock + ABSENT
        return False

    def _read(self, namespace: str, name: str) -> Json | None:
        """`status.trainerStatus`, {} while there is none yet, None where there is no such TrainJob for us."""
        code, body = self._api.request("GET", path(VERSION, "trainjobs", namespace, name))
        if code in (401, 403, 404):
            return None
        if code != 200:
            raise ClusterError(message(body), code)
        try:
            status = json.loads(body).get("status", {}).get("trainerStatus", {})
        except (ValueError, AttributeError):
            return {}
        return status if isinstance(status, dict) else {}


def _of_trainer(job: Job) -> str:
    """The uid of the job's owner where that may be Trainer's, else ""."""
    return job.owner.uid if job.owner is not None and job.owner.kind in KINDS else ""
