"""Jobs in place on a lab of fake nodes: each of one pod beside which an agent is played, and the devices that agents
are told of count as replicas."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from e2e.agents import Played, PlayedAgents, in_place, playing
from e2e.bench.trainings import Seen, Trained, Trainings
from e2e.cluster import Cluster, Pod, Refused
from e2e.demo.drive import Watch, under_way
from e2e.lab import Lab
from e2e.reports import token
from e2e.scenario import delete_job

SPACE = "default"
BY_DEVICES = "bench/in-place"
"""The label of pods whose devices are counted, and not they."""
DEVICES = (
    "devices.enabled=true",
    "devices.keep=1s",
    rf"devices.namespaceSelector.matchLabels.kubernetes\.io/metadata\.name={SPACE}",
)
"""Values of the chart."""


def counted(name: str, gpus: str) -> dict[str, Any]:
    """The Job of one pod in place, on so many GPUs (as `muster.dev/gpus` says it), whose devices are counted."""
    made = in_place(name, gpus)
    meta = made["spec"]["template"]["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), BY_DEVICES: name}
    return made


class Agents:
    """Those of a run, as `trains` wants them. manifest: the Job of one, labelled; sizes: numbers of GPUs that it can
    train on; starting: s from when its pod runs until its agent does; pods: by the devices that they have, as
    trainings know these."""

    def __init__(
        self,
        agents: PlayedAgents,
        cluster: Cluster,
        watch: Watch[tuple[str, Pod, bool]],
        callers: ThreadPoolExecutor,
        manifest: Callable[[Trained], dict[str, Any]],
        sizes: Callable[[str], Sequence[int]],
        starting: float,
    ) -> None:
        self.pods: dict[str, Pod] = {}
        self._agents, self._cluster, self._watch, self._callers = agents, cluster, watch, callers
        self._manifest, self._sizes, self._starting = manifest, sizes, starting
        self._played: dict[str, tuple[Pod, Played]] = {}
        self._known: set[str] = set()
        self._newest: dict[str, str] = {}
        self._lock = threading.Lock()  # callers end an agent while another one begins
        self._have: dict[str, dict[str, Pod]] = {}
        self._calls: list[Future[None]] = []

    def submit(self, one: Trained) -> None:
        self._cluster.submit(self._manifest(one), namespace=SPACE)

    def finish(self, name: str) -> None:
        with self._lock:
            self._have.pop(name, None)  # where it trained is no news any more
            self._stop(name)
        delete_job(self._cluster, SPACE, name)

    def meanwhile(self, now: float, trainings: Trainings) -> None:
        """Pods that run get their agent, and pods that end lose it; devices that came or left since the last call are
        told, first those that anybody left."""
        for name, pod, runs in self._watch.seen():
            if not runs:
                self._ended(name, pod)
            elif pod.uid not in self._known:
                self._known.add(pod.uid)
                self._newest[name] = pod.uid
                self._calls.append(self._callers.submit(self._play, name, pod))
        for seen in self._changes():
            trainings.saw(seen, now)
        self._calls = under_way(self._calls)

    def _changes(self) -> list[Seen]:
        found = []
        with self._lock:
            for name in {**self._have, **self._played}:
                old, new = self._have.get(name, {}), dict[str, Pod]()
                if name in self._played:
                    pod, agent = self._played[name]
                    new = dict.fromkeys(agent.devices, pod)
                self._have[name] = new
                self.pods |= {f"{name}/{device}": pod for device, pod in new.items()}
                for over, devices in ((True, old.keys() - new), (False, new.keys() - old)):
                    pods = old if over else new
                    found += [Seen(name, f"{name}/{one}", pods[one].node, over) for one in devices]
        return sorted(found, key=lambda one: (not one.over, one.pod))

    def _play(self, name: str, pod: Pod) -> None:
        time.sleep(self._starting)
        try:
            bearer = token(self._cluster, pod, SPACE)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
            return  # it has ended meanwhile
        with self._lock:
            if self._newest.get(name) != pod.uid:
                return  # it is done, or has another pod meanwhile
            if name in self._played:  # it went to another node
                self._agents.end(self._played[name][0].uid)
            self._played[name] = (pod, self._agents.play(pod.uid, bearer, self._sizes(name)))

    def _ended(self, name: str, pod: Pod) -> None:
        with self._lock:
            if self._newest.get(name) == pod.uid:
                self._stop(name)

    def _stop(self, name: str) -> None:
        """It has no pod any more that trains."""
        self._newest.pop(name, None)
        if name in self._played:
            self._agents.end(self._played.pop(name)[0].uid)


def _named(pod: Pod, gone: bool) -> tuple[str, Pod, bool]:
    runs = pod.phase == "Running" and not gone and not pod.deleted
    return pod.labels.get(BY_DEVICES, ""), pod, runs


@contextlib.contextmanager
def with_agents(
    lab: Lab,
    cluster: Cluster,
    manifest: Callable[[Trained], dict[str, Any]],
    sizes: Callable[[str], Sequence[int]],
    starting: float = 0.0,
) -> Iterator[Agents]:
    """See `Agents`, which end with it."""
    with (
        playing(lab.service_url()) as agents,
        Watch(cluster, SPACE, _named) as watch,
        ThreadPoolExecutor(16) as callers,
    ):
        yield Agents(agents, cluster, watch, callers, manifest, sizes, starting)
