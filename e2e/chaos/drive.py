"""The shell around chaos: jobs come and go, troubles begin and end, the referee watches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from e2e.chaos.days import Kind, Trainings, kind, manifest
from e2e.chaos.end import Fate, fates, told
from e2e.chaos.machine import REFUSES, Machine, away, running
from e2e.chaos.troubles import troubles
from e2e.cluster import Cluster, Pod, Refused
from e2e.lab import Lab
from e2e.referee import ENDS, Rules, Watching, watching
from e2e.scenario import delete_job, looking
from e2e.soak.arrivals import Arrival, Course, arrivals

RULES = Rules(start=300.0, planned=90.0, doubled=120.0, lost=420.0, reasons=ENDS)
"""Bounds in which who is frozen, killed and restarted comes back to it."""
CALM = 300.0
"""Seconds after the last trouble in which every job comes to be done, whole, or to say why it waits."""
TOLD = 5.0
"""Seconds between two lines of progress."""
REPORTS = 1.0
"""Seconds between two reports of a training."""


@dataclass
class Outcome:
    seed: int
    seconds: float
    arrivals: int = 0
    troubles: int = 0
    reports: int = 0
    refused: int = 0
    faults: list[str] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    calm_after: float = 0.0


def drive(
    lab: Lab,
    cluster: Cluster,
    namespace: str,
    course: Course,
    log: Path | None,
    tell: Callable[[str], None],
    turn: float = 0.0,
) -> Outcome:
    """The whole run, until all is calm. log: where the troubles are written as they come; tell: lines of
    progress; turn: seconds that a job may be on its way then, where the policy has jobs take turns."""
    outcome = Outcome(course.seed, course.seconds)
    began = time.monotonic()

    def say(line: str) -> None:
        outcome.log.append(f"{time.monotonic() - began:7.1f} s  {line}")
        if log is not None:
            with open(log, "a") as file:
                file.write(outcome.log[-1] + "\n")

    impatient = Cluster(cluster.kubeconfig, timeout=2.0, retries=0)  # this loop has to go on
    machine = Machine(lab, impatient, namespace, say)
    coming = list(arrivals(course))
    breaking = list(troubles(course.seed, course.seconds))
    kinds: dict[str, Kind] = {}
    trainings = Trainings(lab, Cluster(cluster.kubeconfig, timeout=2.0, retries=0), namespace, kinds)
    due: list[tuple[float, str]] = []
    calls: list[Future[None]] = []
    shown = 0.0
    with (
        watching(cluster, RULES) as referee,
        ThreadPoolExecutor(4) as several,
        looking(trainings, REPORTS, away),
    ):
        while (at := time.monotonic() - began) < course.seconds:
            while coming and coming[0].at <= at:
                one = coming.pop(0)
                outcome.arrivals += 1
                kinds[one.name] = kind(one)
                calls.append(
                    several.submit(_until_it_is_taken, lambda one=one: _submit(cluster, namespace, one))
                )
                if not one.by_itself:
                    due.append((one.at + one.life, one.name))
            for when, name in [d for d in due if d[0] <= at]:
                due.remove((when, name))
                calls.append(
                    several.submit(_until_it_is_taken, lambda name=name: _gone(cluster, namespace, name))
                )
            while breaking and breaking[0].at <= at:
                outcome.troubles += 1
                machine.begins(breaking.pop(0))
            machine.turns(time.monotonic())
            if at - shown >= TOLD:
                shown = at
                found = len(referee.faults) + len(machine.faults)
                last = outcome.log[-1][11:] if outcome.log else "nothing yet"
                standing = _standing(impatient, namespace)
                tell(f"{at:5.0f} s  {standing}; {outcome.troubles} troubles, {found} faults; last: {last}")
            time.sleep(0.1)
        machine.calms()
        say("calm")
        tell("calm: every process runs")
        for _, name in due:
            calls.append(
                several.submit(_until_it_is_taken, lambda name=name: _gone(cluster, namespace, name))
            )
        for call in calls:
            call.result()
        calm = time.monotonic()
        outcome.fates, left = _settled(cluster, namespace, referee, tell, turn)
        outcome.reports, outcome.refused = trainings.taken, trainings.refused
        if unheard := trainings.unheard():
            outcome.faults.append(f"of no job of this kind was a report taken: {', '.join(unheard)}")
        outcome.calm_after = time.monotonic() - calm
        outcome.faults += [*referee.faults, *left]
    outcome.faults += machine.faults + lab.troubles()
    outcome.faults += [f"{one.job} {one.what}" for one in outcome.fates if not one.well]
    return outcome


def _settled(
    cluster: Cluster, namespace: str, referee: Watching, tell: Callable[[str], None], turn: float
) -> tuple[list[Fate], list[str]]:
    """What has become of all jobs, and what the referee has open: as soon as all is well and each has had its GPUs,
    else after CALM s. Where a policy has jobs take turns some are on their way at any time: well is who was so
    within `turn` s. (Asked once more, it may not have seen yet what pods have told since.)"""
    end = time.monotonic() + CALM
    shown = 0.0
    well: dict[str, tuple[float, Fate]] = {}
    ran: set[str] = set()
    while True:
        now, found = time.monotonic(), fates(cluster, namespace)
        well |= {one.job: (now, one) for one in found if one.well}
        ran |= {one.job for one in found if one.what in ("done", "whole")}
        found = [_lately(one, well, now - turn) for one in found]
        opened = referee.open()
        over = all(one.well for one in found) and ran >= {one.job for one in found}
        if (over and not opened) or now > end:
            return found, opened
        if now - shown >= 2 * TOLD:
            shown = now
            tell(f"  calm: {told(found)}; {sum(not one.well for one in found)} not well")
        time.sleep(1.0)


def _lately(one: Fate, well: Mapping[str, tuple[float, Fate]], since: float) -> Fate:
    """A job that is on its way from one state to the next is as it was before, if that is not too long ago."""
    at, before = well.get(one.job, (-math.inf, one))
    return one if one.well or at < since else before


def _standing(cluster: Cluster, namespace: str) -> str:
    try:
        pods = cluster.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    except REFUSES:
        return "the API is away"
    living = [Pod(item) for item in pods]
    return f"{len(running(living))} GPUs in use, {sum(one.gated and not one.deleted for one in living)} pods wait"


def _submit(cluster: Cluster, namespace: str, one: Arrival) -> None:
    try:
        cluster.submit(manifest(one), namespace=namespace)
    except Refused as refused:
        if refused.status != 409:  # the answer to an earlier try was lost
            raise


def _gone(cluster: Cluster, namespace: str, name: str) -> None:
    try:
        delete_job(cluster, namespace, name)
    except Refused as refused:
        if refused.status != 404:
            raise


def _until_it_is_taken(call: Callable[[], None]) -> None:
    while True:
        try:
            call()
            return
        except Exception as error:
            if not away(error):
                raise
        time.sleep(0.5)
