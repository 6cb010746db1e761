"""Runs of drawn jobs on labs: jobs are created as they come, counted as they train, and snapshots dumped meanwhile;
afterwards the plans of the dumps are made again."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import yaml

from e2e.bench.course import lab_of
from e2e.bench.drawn import Drawing
from e2e.bench.predicted import GPUS_A_NODE, PAUSE, Side
from e2e.bench.trainings import Seen, Trained, Trainings
from e2e.cluster import Cluster, Pod, Refused
from e2e.demo.drive import TICK, Watch, under_way
from e2e.elastic import INDEX, reader
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.errors import LabError
from e2e.scenario import a_namespace, ends_now, job, wait_until
from muster.sim.replaying import replay

DUMP_EVERY = 1.0
APART = 15.0
"""Seconds between the beginnings of runs side by side: they have the same jobs, and submissions would meet."""
LIMIT = 1800.0

Run = dict[str, Any]


def manifest(one: Trained) -> dict[str, Any]:
    """The Job with all the replicas that it may have."""
    speed = ",".join(f"{n}={one.speeds[n]:.6f}" for n in range(1, one.most + 1))
    notes = {
        "muster.dev/remaining-work": f"{one.work:.3f}",
        "muster.dev/speed": speed,
        "muster.dev/request": str(one.request),
    }
    return job(
        one.name,
        one.most,
        success_on="0",
        min_replicas=one.least,
        max_replicas=one.most,
        annotations=notes,
        labels={"bench/job": one.name},
        backoff_limit=0,
        stop_seconds=0,
    )


@dataclass
class Going:
    """Runs that go on at the same time. over: all of them are to stop; done: jobs that each has seen end."""

    reading: Callable[[int], object]
    over: threading.Event = field(default_factory=threading.Event)
    done: dict[str, int] = field(default_factory=dict)

    def has(self, run: str, done: int) -> None:
        self.done[run] = done
        self.reading(sum(self.done.values()))


def wave(
    going: Going,
    todo: Sequence[tuple[Side, int]],
    drawn: Sequence[Trained],
    drawing: Drawing,
    folder: Path,
    keep: bool = False,
    labs_named: str = "bench",
    made: Callable[[Side, int, Run], object] | None = None,
) -> list[Run]:
    """A run of each (side, number), at the same time, each on a lab of its own; all labs are up before any begins,
    and they begin APART. labs_named: how the labs' names begin; made: told of each as it ends. LabError where one
    failed, when the others have ended."""

    def one(place: int, lab: Lab, later: float) -> Run:
        side, number = todo[place]
        pause = PAUSE / drawing.speed
        run = _run(going, lab, side, drawn, pause, folder / f"{side.name}-{number}", later)
        if made is not None:
            made(side, number, run)
        return run

    shapes = [(f"{labs_named}-{side.name}-{number}", _shape(side, drawing, folder)) for side, number in todo]
    return side_by_side(going, shapes, one, keep)


def side_by_side(
    going: Going,
    shapes: Sequence[tuple[str, Shape]],
    one: Callable[[int, Lab, float], Run],
    keep: bool = False,
) -> list[Run]:
    """A run on each of these labs (name and shape), at the same time: `one(place, lab, later)`, which begins so much
    later (s) that they begin APART. All labs are up before. LabError where one failed, when the others have ended."""
    with contextlib.ExitStack() as labs:
        ready = [labs.enter_context(lab_of(name, shape, keep)) for name, shape in shapes]
        with ThreadPoolExecutor(len(ready)) as several:
            runs = [several.submit(one, place, lab, place * APART) for place, lab in enumerate(ready)]
            try:
                wait(runs)
            except BaseException:
                going.over.set()
                raise
            return [run.result() for run in runs]


def _shape(side: Side, drawing: Drawing, folder: Path) -> Shape:
    """Nodes of a drawing's GPUs; the side's settings as values of the chart, in a file there."""
    settings = side.settings()
    values = {key: settings.pop(key) for key in ("profile", "order")} | {"config": settings}
    file = folder.resolve() / f"{side.name}.values.yaml"
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    nodes = drawing.gpus // GPUS_A_NODE
    return Shape(groups=(NodeGroup(nodes, GPUS_A_NODE),), values=(str(file),))


def seen(pod: Pod, gone: bool) -> Seen:
    over = gone or pod.terminal or pod.deleted
    return Seen(pod.labels.get("bench/job", ""), pod.name, pod.node, over, gone)


def trains(
    going: Going,
    who: str,
    cluster: Cluster,
    namespace: str,
    jobs: Sequence[Trained],
    trainings: Trainings,
    *,
    submit: Callable[[Trained], None],
    finish: Callable[[str], None],
    meanwhile: Callable[[float, Trainings], object],
    reads: Callable[[Pod, bool], Seen] | None = None,
) -> tuple[Trainings, float]:
    """Jobs are submitted as they come, counted as they train, and told to end when they are done; how they went, and
    how long it took (s of this machine). who: whose run it is; trainings: which count them, of no jobs yet;
    meanwhile: called at each step; reads: of a pod, else `seen`. LabError where they are not done within LIMIT."""
    waiting = list(jobs)
    now = 0.0
    with Watch(cluster, namespace, reads or seen) as watch, ThreadPoolExecutor(8) as callers:
        calls: list[Future[None]] = []
        trainings.began, began = time.time(), time.monotonic()
        while not going.over.is_set():
            now = time.monotonic() - began
            while waiting and waiting[0].at <= now:
                trained = waiting.pop(0)
                trainings.submitted(trained, now)
                calls.append(callers.submit(submit, trained))
            for sighting in watch.seen():
                trainings.saw(sighting, now)
            calls += [callers.submit(finish, name) for name in trainings.due(now)]
            calls = under_way(calls)
            meanwhile(now, trainings)
            going.has(who, len(jobs) - len(waiting) - trainings.left)
            if (not waiting and not trainings.left) or now > LIMIT:
                break
            time.sleep(TICK)
        under_way(calls)
    if left := len(waiting) + trainings.left:
        raise LabError(f"bench: {left} jobs of {who} were not done within {LIMIT:.0f} s")
    return trainings, now


def _run(
    going: Going, one: Lab, side: Side, drawn: Sequence[Trained], pause: float, folder: Path, later: float
) -> Run:
    """One run of all jobs, begun so much later (s): average JCT and delay (s of this machine), how many changes,
    dumped snapshots."""
    going.over.wait(later)
    cluster = Cluster(one.kubeconfig)
    with a_namespace(cluster, f"bench-{side.profile}") as namespace, ThreadPoolExecutor(1) as dumper:
        dumping = Dumping(one, cluster, folder, dumper)
        trainings, seconds = trains(
            going,
            one.name,
            cluster,
            namespace,
            [side.has(job) for job in drawn],
            Trainings(pause, side.round),
            submit=lambda job: _submit(cluster, manifest(job), namespace),
            finish=lambda name: finish(cluster, namespace, name),
            meanwhile=lambda now, _: dumping.look(now),
        )
    return told_of(trainings, seconds, dumping)


class Dumping:
    """Snapshots of a run, each DUMP_EVERY s if it is another one than before, into a folder that has no others."""

    def __init__(self, one: Lab, cluster: Cluster, folder: Path, several: ThreadPoolExecutor) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()
        self.dumps: dict[float, Path] = {}
        self._lab, self._token, self._folder, self._several = one, reader(cluster), folder, several
        self._dump: Future[None] | None = None
        self._last = 0.0

    def look(self, now: float) -> None:
        """Begins the next one where it is due. LabError where a process of the lab has ended."""
        if (self._dump is None or self._dump.done()) and now - self._last >= DUMP_EVERY:
            self._last = now
            if ended := self._lab.ended():
                raise LabError("bench: " + "\n".join(ended))
            self._dump = self._several.submit(dump_of, self._lab, self._token, self._folder, self.dumps)


def told_of(trainings: Trainings, seconds: float, dumping: Dumping) -> Run:
    """What is kept of a run; s of this machine."""
    return {
        "jct_s": round(trainings.jct(), 3),
        "delay_s": round(trainings.delay(), 3),
        "usual_delay_s": round(trainings.usual_delay(), 3),
        "release_s": round(trainings.release(), 3),
        "place_s": round(trainings.place(), 3),
        "wait_s": round(trainings.wait(), 3),
        "changes": sum(t.changes for t in trainings.jobs.values()),
        "binds": len(trainings.delays),
        "seconds": round(seconds, 1),
        "began": round(trainings.began, 3),
        "dumps": [str(path) for path in dumping.dumps.values()],
        "jobs": {name: round((t.ended or 0.0) - t.submitted, 3) for name, t in trainings.jobs.items()},
        "course": trainings.course,
    }


def _submit(cluster: Cluster, body: dict[str, Any], namespace: str) -> None:
    cluster.submit(body, namespace=namespace)


def finish(cluster: Cluster, namespace: str, name: str) -> None:
    """Its leader ends well, once it runs where it was just placed again; the Job's successPolicy ends the rest."""

    def ends() -> bool:
        found = [pod for pod in cluster.pods(namespace, name) if pod.labels.get(INDEX) == "0"]
        leaders = [pod for pod in found if pod.node and not pod.deleted]
        try:
            ends_now(cluster, *leaders)
        except Refused as refused:
            if refused.status != 404:
                raise
            return False  # it is placed once more
        return bool(leaders)

    wait_until(ends, what=f"index 0 of {name} runs, and ends")


def dump_of(one: Lab, token: str, folder: Path, dumps: dict[float, Path]) -> None:
    """The newest snapshot and its plan, kept in the folder, if it is another one than before."""
    answer = httpx.get(
        f"{one.service_url()}/debug/snapshot",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        timeout=30,
    )
    if answer.status_code != 200:
        return  # the right was given a moment ago
    text = answer.text
    at = float(json.loads(text)["snapshot"]["now"])
    if at not in dumps:
        path = folder / f"{at:.3f}.json"
        path.write_text(text)
        dumps[at] = path


def replays(path: Path) -> bool:
    """Whether `muster replay` makes the very plan that is in the dump: all of it, shares too, which the differences
    that it lists for people leave out."""
    again = json.loads(replay(str(path), None, True, False))["plan"]
    return bool(again == json.loads(path.read_text())["plan"])


def differing(dumps: Sequence[Path]) -> list[str]:
    """The dumps whose plan comes out differently."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as several:
        same = list(several.map(replays, dumps, chunksize=20))
    return [str(path) for path, one in zip(dumps, same, strict=True) if not one]
