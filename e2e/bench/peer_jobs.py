"""(d) of `python -m e2e.bench peers`: the jobs of `elastic` under each peer; trainings only count (trainings.py).

A job has the size that it asks for, but under `afs-l`, which changes it, and where Kueue may admit a part of it (from
1 pod; it keeps what it was admitted with). All profiles of Muster are told speeds and lengths, as there; no other
peer can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from e2e.bench import live
from e2e.bench.drawn import Drawing
from e2e.bench.figures import percentile
from e2e.bench.live import Going
from e2e.bench.peer import OF, Made, Peer
from e2e.bench.peer_parts import Found, On
from e2e.bench.predicted import GPUS_A_NODE, PAUSE, Side
from e2e.bench.trainings import Trained, Trainings
from e2e.cluster import Refused
from e2e.scenario import RUN_SECONDS, a_namespace


@dataclass
class Use:
    """What of a cluster's GPUs was in no use, by one look after another. gpus: it has; idle: GPU-seconds that nobody
    held; in_vain: GPU-seconds held by pods of gangs that weren't whole."""

    gpus: int
    idle: float = 0.0
    in_vain: float = 0.0
    _since: float = 0.0
    _held: int = 0
    _vain: int = 0

    def look(self, now: float, held: int, vain: int) -> None:
        """From now on pods hold so many GPUs, `vain` of them in gangs that aren't whole. now: s of one clock."""
        self.idle += (self.gpus - self._held) * (now - self._since)
        self.in_vain += self._vain * (now - self._since)
        self._since, self._held, self._vain = now, held, vain


def held(trainings: Trainings) -> tuple[int, int]:
    """GPUs that jobs hold, and how many of them those hold that have less than their least; a pod has one."""
    going = [one for one in trainings.jobs.values() if one.ended is None]
    return (
        sum(len(one.on) for one in going),
        sum(len(one.on) for one in going if len(one.on) < one.job.least),
    )


def nodes(drawing: Drawing) -> int:
    return drawing.gpus // GPUS_A_NODE


def sized(peer: Peer, one: Trained) -> Trained:
    """The job as this peer may have it: least and most pods."""
    if peer.partial:
        return replace(one, least=1, most=one.request)
    return Side(peer.name, peer.profile or "fifo").has(one)


def run(on: On, going: Going, drawn: Sequence[Trained], drawing: Drawing) -> Found:
    """All jobs once: average JCT, its p99 and makespan in trace seconds; GPU-hours (of the trace's clock) idle, and
    held by gangs that weren't whole."""
    use = Use(drawing.gpus)

    def body(namespace: str, one: Trained) -> Made:
        if on.peer.profile:
            ((path, _),) = on.peer.gang(namespace, one.name, 1)
            return [(path, live.manifest(one))]
        return on.peer.gang(namespace, one.name, one.request, stop_seconds=0)

    with a_namespace(on.cluster, "peers") as namespace:
        on.peer.prepare(on.cluster, namespace)
        trainings, seconds = live.trains(
            going,
            on.peer.name,
            on.cluster,
            namespace,
            [sized(on.peer, one) for one in drawn],
            Trainings(PAUSE / drawing.speed),
            submit=lambda one: on.submit(body(namespace, one)),
            finish=lambda name: _finish(on, namespace, name),
            meanwhile=lambda now, trained: use.look(now, *held(trained)),
        )
    use.look(seconds, 0, 0)
    lengths = [(one.ended or 0.0) - one.submitted for one in trainings.jobs.values()]
    hours = drawing.speed / 3600.0
    return {
        "jct_s": round(trainings.jct() * drawing.speed),
        "p99_s": round(percentile(lengths, 0.99) * drawing.speed),
        "makespan_s": round(seconds * drawing.speed),
        "idle_gpu_h": round(use.idle * hours, 1),
        "in_vain_gpu_h": round(use.in_vain * hours, 1),
    }


def _finish(on: On, namespace: str, name: str) -> None:
    """All of its pods end well; what still waits behind a gate is ended by its owner's success policy, and a pod that
    is gone meanwhile has ended by it."""
    for pod in on.cluster.pods(namespace):
        if pod.labels.get(OF) == name and pod.node and not pod.deleted:
            notes = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
            try:
                on.cluster.patch(f"/api/v1/namespaces/{namespace}/pods/{pod.name}", notes)
            except Refused as refused:
                if refused.status != 404:
                    raise
