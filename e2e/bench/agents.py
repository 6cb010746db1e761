"""Many agents of trainings in place on fake nodes: how soon an order arrives, what Muster uses, what a hand-over
writes.

Each node has two jobs on half of its GPUs; their agents are played by this process over real connections
(`e2e/agents.py`), and their trainings change at once. On one of the nodes a job ends, and the other one gets its
GPUs; a new one comes, and gets them back; and so on. All is measured from outside, so each figure has a way more
than its name says:

    ready -> order      from when the new job's agent says that it is ready until the other's order has arrived
    released -> start   from when the other says that it has let go until the new one's order has arrived: a write of
                        each device's record lies between
    recorded -> start   from the API server's answer to the last of these writes, by its audit log
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from e2e.agents import Played, PlayedAgents, Told, in_place, playing
from e2e.bench import figures
from e2e.bench.calls import concerns, quiet
from e2e.bench.course import lab_of
from e2e.bench.figures import median, percentile
from e2e.bench.report import Progress, Result
from e2e.cluster import Cluster, Pod
from e2e.in_place import SPACE
from e2e.lab import Lab, NodeGroup, Shape
from e2e.lab.audit import Log, Written
from e2e.lab.errors import LabError
from e2e.reports import token
from e2e.scenario import delete_job, wait_until

GPUS = 8
HALF, WHOLE = GPUS // 2, GPUS
SIZES = (HALF, WHOLE)
AIM = 0.1
WITHIN = 900.0
SENDERS = 4
"""Threads that submit jobs and ask for tokens."""
JOB_NAME = "batch.kubernetes.io/job-name"
NAMESPACE = "default"
MUSTER = "muster"


def shape(nodes: int) -> Shape:
    """The lab: shares follow max-min, what a change costs is not weighed, the report port speaks TLS."""
    values = (
        "profile=max-min",
        "config.resizeCost=false",
        "devices.enabled=true",
        "config.gang.timeout=30m",  # a thousand starts at once take their time
        "tls.mode=chart",
        rf"devices.namespaceSelector.matchLabels.kubernetes\.io/metadata\.name={NAMESPACE}",
    )
    return Shape(groups=(NodeGroup(nodes, GPUS),), set_values=values, audit=True)


@dataclass(frozen=True)
class HandOver:
    """One job's GPUs handed to a new one on its node. Seconds as above; writes: of Muster, by what and about what."""

    ready_to_order: float
    released_to_start: float
    recorded_to_start: float
    writes: Counter[str]


class Fleet:
    """Jobs in place on a lab, and their agents."""

    def __init__(self, lab: Lab, agents: PlayedAgents) -> None:
        self.lab, self._agents = lab, agents
        self._cluster = Cluster(lab.kubeconfig)
        self._log = Log(lab.audit)
        self.played: dict[str, Played] = {}
        self.nodes: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        self._created: dict[str, str] = {}

    def fill(self, jobs: int, said: Callable[[], object] = bool) -> None:
        """So many jobs, each on half of a node's GPUs."""
        waiting = {f"job-{number:04}" for number in range(jobs)}
        with ThreadPoolExecutor(SENDERS) as several:
            list(several.map(self._submit, sorted(waiting)))

            def running() -> bool:
                found = {pod.labels.get(JOB_NAME, ""): pod for pod in self._running()}
                new = sorted(found.keys() & waiting)
                tokens = several.map(lambda name: self._token(found[name]), new)
                for name, bearer in zip(new, tokens, strict=True):
                    self._play(name, found[name], bearer)
                    said()
                waiting.difference_update(new)
                time.sleep(len(waiting) / 500)  # what is asked is large
                return not waiting

            wait_until(running, within=WITHIN, what="every job has a pod that runs")
        self.have(dict.fromkeys(self.played, HALF))

    def hand_over(self, stays: str, comes: str) -> HandOver:
        """A job's neighbour ends, it gets all GPUs of their node, and a new job gets half of them again."""
        node = self.nodes[stays]
        (ends,) = (name for name, where in self.nodes.items() if where == node and name != stays)
        of = partial(_about, (ends, stays, comes))
        self.end(ends)
        self.have({stays: WHOLE})
        quiet(self._log, of)
        before = len(self.played[stays].told)
        self._submit(comes)
        pod = wait_until(
            lambda: next((p for p in self._cluster.pods(NAMESPACE, comes) if p.phase == "Running"), None),
            within=WITHIN,
            what=f"the pod of {comes} runs",
        )
        self._play(comes, pod, self._token(pod))
        self.have({stays: HALF, comes: HALF})
        if self.nodes[comes] != node:
            raise LabError(f"{comes} is on {self.nodes[comes]}, not beside {stays} on {node}")
        written = [one for one in quiet(self._log, of) if one.who == MUSTER and one.done and of(one)]
        fewer, start = self.played[stays].told[before], self.played[comes].told[-1]
        recorded = max(one.at for one in written if _records(one) and one.at <= start.at)
        return HandOver(
            fewer.at - self.played[comes].asked,
            start.at - fewer.said,
            start.at - recorded,
            Counter(f"{one.what} in {one.namespace}" for one in written),
        )

    def end(self, name: str) -> None:
        """A job is deleted, with its pod and its agent."""
        self._agents.end(self._uids.pop(name))
        del self.played[name], self.nodes[name]
        delete_job(self._cluster, NAMESPACE, name)

    def have(self, counts: dict[str, int]) -> None:
        """Wait until agents were told to use so many devices, and have told so."""

        def now() -> dict[str, int]:
            newest = {name: _newest(self.played[name]) for name in counts}
            return {name: len(told.order.devices) for name, told in newest.items() if told and told.said}

        wait_until(
            lambda: now() == counts,
            within=WITHIN,
            what="agents have the devices that their jobs are to have",
            also=lambda: str(Counter(now().values())),
        )

    @property
    def first(self) -> str:
        """The first in the queue's order, which is that of pods' creation, to the second, and then of names."""
        return min(self.played, key=self._place)

    @property
    def last(self) -> str:
        """The last in that order."""
        return max(self.played, key=self._place)

    def _place(self, name: str) -> tuple[str, str]:
        return self._created[name], name

    @property
    def answers(self) -> int:
        return sum(one.answers for one in self.played.values())

    @property
    def refused(self) -> Counter[int]:
        """Answers that were none, by status (0: no answer)."""
        return sum((Counter(one.refused) for one in self.played.values()), Counter())

    def _submit(self, name: str) -> None:
        self._cluster.submit(in_place(name, ",".join(map(str, SIZES))))

    def _play(self, name: str, pod: Pod, token: str) -> None:
        self.played[name] = self._agents.play(pod.uid, token, SIZES)
        self.nodes[name], self._uids[name] = pod.node, pod.uid
        self._created[name] = str(pod.raw["metadata"]["creationTimestamp"])

    def _running(self) -> list[Pod]:
        return [pod for pod in self._cluster.pods(NAMESPACE) if pod.phase == "Running"]

    def _token(self, pod: Pod) -> str:
        return token(self._cluster, pod, NAMESPACE)


def authority(lab: Lab) -> str:
    """Who signed the report port's certificate, as every pod is told it."""
    path = "/api/v1/namespaces/muster-system/configmaps/muster-ca"
    return str(Cluster(lab.kubeconfig).get(path)["data"]["ca.crt"])


def _newest(agent: Played) -> Told | None:
    return agent.told[-1] if agent.told else None


def _about(jobs: Collection[str], one: Written) -> bool:
    """Whether it is about one of these jobs, or about a GPU. Among many jobs another one's Gang is written all the
    time."""
    return one.namespace == SPACE or any(concerns(one, name) for name in jobs)


def _records(one: Written) -> bool:
    return (one.what, one.namespace) == ("patch pods", SPACE)


def measure(
    progress: Progress,
    *,
    nodes: int = 500,
    hand_overs: int = 50,
    seconds: float = 60.0,
    keep: bool = False,
) -> Result:
    """One lab; see the module's docstring. seconds: for which nothing happens but that agents ask."""
    jobs = 2 * nodes
    result = Result("agents", f"{jobs} agents on {nodes} nodes x {GPUS} GPUs, {hand_overs} hand-overs")
    result.data["arguments"] = {"nodes": nodes, "hand_overs": hand_overs, "seconds": seconds}
    with (
        lab_of(f"bench-agents-{nodes}", shape(nodes), keep) as lab,
        playing(lab.service_url(), authority(lab)) as agents,
    ):
        fleet = Fleet(lab, agents)
        with progress.steps("jobs that train", jobs) as step:
            fleet.fill(jobs, step)
        quiet(Log(lab.audit))
        _rest(result, lab, fleet, seconds)
        found = []
        with progress.reading("hand-overs", hand_overs) as reading:
            for number in range(hand_overs):
                found.append(fleet.hand_over(fleet.first, f"later-{number:04}"))
                reading(number + 1)
        _rows(result, found)
        result.row("answers that agents were refused, by status", str(dict(fleet.refused)))
    return result


def _rest(result: Result, lab: Lab, fleet: Fleet, seconds: float) -> None:
    """Nothing happens but that agents ask: what Muster uses."""
    answered, before = fleet.answers, _used(lab)
    time.sleep(seconds)
    used, answers = (_used(lab) - before) / seconds, fleet.answers - answered
    result.data["rest"] = {"cores": used, "answers": answers}
    result.row("CPU of Muster while agents only ask (cores)", f"{used:.2f}")
    result.row("    requests of agents a second", f"{answers / seconds:.0f}")
    memory = figures.resident(_status(lab))
    result.data["memory"] = memory
    result.row("memory of Muster", f"{memory / 2**20:.0f} MiB")


def _rows(result: Result, found: Sequence[HandOver]) -> None:
    result.data["hand_overs"] = [
        {**{key: value for key, value in vars(one).items() if key != "writes"}, "writes": dict(one.writes)}
        for one in found
    ]
    for name, values in (
        ("the new agent is ready to the other's order", [one.ready_to_order for one in found]),
        ("released to the new one's order", [one.released_to_start for one in found]),
        ("    of it from its last record to its order", [one.recorded_to_start for one in found]),
    ):
        p99 = percentile(values, 0.99)
        result.row(
            f"{name}, p50, p99",
            f"{1000 * median(values):.0f} ms, {1000 * p99:.0f} ms",
            f"{1000 * AIM:.0f} ms",
            p99 <= AIM,
        )
    kinds = sorted({kind for one in found for kind in one.writes})
    for kind in kinds:
        counts = [one.writes[kind] for one in found]
        result.row(
            f"writes of Muster for a hand-over to a new job: {kind}, mean (most)",
            f"{sum(counts) / len(counts):.1f} ({max(counts)})",
        )


def _status(lab: Lab) -> str:
    return Path(f"/proc/{lab.pid('muster')}/status").read_text()


def _used(lab: Lab) -> float:
    """Seconds of CPU that muster has used."""
    ticks = figures.ticks(Path(f"/proc/{lab.pid('muster')}/stat").read_text())
    return ticks / os.sysconf("SC_CLK_TCK")
