"""What a policy's bad day is made of: its settings, so quick that a minute sees its rounds, and jobs of every kind:
those that tell the truth, those that say nothing, liars, and rigid ones. Their trainings report as their pods."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import httpx

from e2e.chaos.machine import REFUSES, away, running
from e2e.cluster import Cluster, Json, Pod
from e2e.elastic import FREE, ROUND, in_rounds, train
from e2e.lab import Lab
from e2e.reports import AsPods, tell
from e2e.scenario import job
from e2e.soak.arrivals import Arrival
from muster import live_recipes, profiles
from muster.core.progress.curves import at_count, interpolated
from muster.core.workload.annotation_values import parse_speed

SPEEDS = "1=1,2=1.9,4=3.4,8=5.6"
LIES = "1=1,2=8,4=0.5,8=0.1"
NONSENSE: tuple[Callable[[float], Json], ...] = (
    lambda _: {"step": 1e9, "total": 1.0, "loss": 1e15, "workers": 500},
    lambda _: {"step": 0.0, "total": 1.0, "loss": 0.0, "workers": 500},
    lambda _: {"step": 1e15, "total": 1.0, "loss": 1.0, "workers": 500},
    lambda passed: {"step": 1e4 * passed, "total": 2e4 * passed, "samples": 1e12},
    lambda _: {"step": -5.0},
    lambda _: {"step": math.nan, "total": math.nan},
    lambda passed: {"step": 9.0 * passed, "boundary": True, "epoch": 1e9 + passed, "steps_per_epoch": 1e-9},
)
"""What a liar says, by the seconds since its first report, one after another: it is beyond its end, back, and done;
a thousand times too fast, with a total that grows; less than nothing; no number; at another epoch's end."""
SIZES = (1, 2, 4, 8)
TRUE = interpolated(parse_speed(SPEEDS))
"""How fast trainings are that tell the truth, at 0, 1, 2 ... replicas."""
RATE, TOTAL, AN_EPOCH = 3.0, 1000.0, 20.0
"""Steps a second on one replica, in all, and of an epoch."""
OFTEN = 40
SOON = 5.0
"""Seconds that an answer is waited for: a frozen Muster gives none."""
LIKE_VGG16 = "layers=16,parameters=137"
IN_ROUNDS: dict[str, dict[str, Any]] = {
    "gavel": {"round": float(ROUND), "interval": 8.0},
    "pollux": {"delay": 1.0},
    "similarity": {"mode": "gpu_ngpu_bs"},
}
"""Arguments of policies in rounds, by the first word of their name."""
QUICK: dict[str, dict[str, Any]] = {
    "afs-p": {"quantum": 10.0},
    "afs-s": {"quantum": 10.0},
    "reshape": {"settling": 3.0},
    "specon": {"alpha": 0.0005, "interval": 2.0, "smoothing": 0.0},
    "termination": {"settling": 3.0},
    "themis": {"lease": 5.0},
    "tiresias-l": {"threshold": 20.0},
}
"""Arguments of the others by plugin: hours become seconds."""
PROFILES = (
    "fifo", "gang", "gang-pack", "max-min", "afs-l", "afs-l-packed", "afs-p", "afs-s", "srtf", "srsf", "optimus",
    "tiresias-l", "themis", "tide", "specon", "similarity", "gavel-isolation", "coach", "termination",
    "reshape-restart", "pollux",
)  # fmt: skip
"""One of each family that runs on a cluster without devices in place."""
ON_A_CLUSTER = sorted(
    name for name, recipe in profiles.NAMED.items() if not live_recipes.not_on_a_cluster(name, recipe, {})
)
TURN = 30.0
"""Seconds that a job may be on its way out of its turn and into the next, where it is calm."""
IN_TURNS = ("gavel", "similarity", "themis", "afs-p", "afs-s")
"""First words of policies under which jobs take turns for ever."""


def turn(profile: str) -> float:
    return TURN if profile.startswith(IN_TURNS) else 0.0


class Kind(StrEnum):
    """Of a job, by its number."""

    RIGID = "rigid"
    TELLS = "tells"
    SILENT = "silent"
    LIES = "lies"
    RESTARTS = "restarts"


CYCLE = (Kind.RIGID, Kind.TELLS, Kind.SILENT, Kind.RIGID, Kind.LIES, Kind.RESTARTS)


def settings(profile: str) -> dict[str, Any]:
    """Values of the chart under which this profile has its bad day; what a change costs is not weighed."""
    recipe = profiles.NAMED[profile]
    if (family := profile.split("-")[0]) in IN_ROUNDS:
        (share,) = recipe.shares
        config = in_rounds(share, **{**recipe.arguments.get(share, {}), **IN_ROUNDS[family]})
    else:
        quick = {name: QUICK[name] for name in (*recipe.shares, *recipe.rebalance) if name in QUICK}
        config = {"profile": profile, "pluginArgs": quick, **FREE}
    return {"profile": config.pop("profile"), "config": config}


def kind(one: Arrival) -> Kind:
    return CYCLE[one.number % len(CYCLE)]


def manifest(one: Arrival) -> Json:
    """Its Job. It bears failures: nodes die and pods are deleted."""
    ends: dict[str, Any] = {
        "run_seconds": round(one.life) if one.by_itself else None,
        "stop_seconds": one.stop,
        "backoff_limit": 1000,
    }
    sizes = [size for size in SIZES if one.least <= size <= one.most]
    reports = {"muster.dev/report": "true"}
    match kind(one):
        case Kind.RIGID:
            return job(one.name, one.least, **ends)
        case Kind.SILENT:
            return train(one.name, least=one.least, most=one.most, **ends)
        case Kind.LIES:
            lies = {**reports, "muster.dev/model": "layers=0,parameters=1"}
            return train(
                one.name, least=one.least, most=one.most, speeds=LIES, work=1.0, annotations=lies, **ends
            )
        case Kind.TELLS:
            true = {**reports, "muster.dev/model": LIKE_VGG16, "muster.dev/batch-sizes": "64,128"}
            return train(
                one.name,
                least=one.least,
                most=one.most,
                speeds=SPEEDS,
                work=3.0 * one.life,
                annotations=true,
                **ends,
            )
        case Kind.RESTARTS:
            return train(
                one.name, least=one.least, most=one.most, speeds=SPEEDS, work=3.0 * one.life, restart=True,
                sizes=",".join(map(str, sizes)), annotations=reports, **ends,
            )  # fmt: skip


class Trainings:
    """A look for `looking`: the first pod of each job that runs reports, some the truth and some anything."""

    def __init__(self, lab: Lab, cluster: Cluster, namespace: str, kinds: dict[str, Kind]) -> None:
        """kinds: by job; jobs are added while this is in use."""
        self._lab, self._cluster, self._namespace, self._kinds = lab, cluster, namespace, kinds
        self._pods = AsPods(lab, cluster)
        self._began: dict[str, float] = {}
        self._done: dict[str, tuple[float, float]] = {}
        self.taken = self.refused = 0
        """Reports, by whether Muster took them."""
        self._heard: Counter[Kind] = Counter()
        self._tried: Counter[Kind] = Counter()

    def __call__(self) -> None:
        first: dict[str, tuple[Pod, int]] = {}
        for one in running(self._cluster.pods(self._namespace)):
            name = one.labels.get("batch.kubernetes.io/job-name", "")
            leader, count = first.get(name, (one, 0))
            first[name] = (min(leader, one, key=lambda each: each.name), count + 1)
        for name, (leader, count) in first.items():
            body = self._said(name, count)
            if body is not None:
                self._tried[self._kinds[name]] += 1
                self._heard[self._kinds[name]] += self._tell(leader, body)

    def unheard(self) -> list[str]:
        """Kinds of jobs that reported OFTEN and were never heard."""
        return [kind for kind, count in self._tried.items() if count >= OFTEN and not self._heard[kind]]

    def _said(self, name: str, count: int) -> Json | None:
        passed = time.monotonic() - self._began.setdefault(name, time.monotonic())
        match self._kinds.get(name):
            case Kind.TELLS | Kind.RESTARTS:
                before, step = self._done.get(name, (passed, 0.0))
                step += (passed - before) * RATE * at_count(TRUE, count)
                self._done[name] = passed, step
                return {
                    "step": step,
                    "total": TOTAL,
                    "samples": 64.0 * step,
                    "epoch": step // AN_EPOCH,
                    "steps_per_epoch": AN_EPOCH,
                    "boundary": True,
                    "workers": count,
                    "loss": 1.0 + (1.0 + passed) ** -2.0,  # never flat: SpeCon waits for ever smaller gains
                    "batch": 64,
                    "noise": 100.0 + passed,
                }
            case Kind.LIES:
                return NONSENSE[int(passed) % len(NONSENSE)](passed)
            case _:
                return None

    def _tell(self, one: Pod, body: Json) -> bool:
        """Whether it was taken. To whichever replica takes it: while everything breaks perhaps none does."""
        for replica in range(self._lab.shape.replicas):
            try:
                answer = tell(self._lab, self._pods.bearer(one), body, replica, SOON)
            except (*REFUSES, httpx.HTTPError) as error:
                if not isinstance(error, httpx.HTTPError) and not away(error):
                    return False  # the pod has gone
                continue
            if answer.status_code == 200:
                self.taken += 1
                return True
        self.refused += 1
        return False
