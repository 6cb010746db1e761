"""A device goes from one training to another: real agents with real processes, and the real Coordinator, over HTTP.

What stands between them on a cluster (pods, tokens, holders on the API) is played."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.core.devices.agents import answer_to, heard
from muster.core.devices.coordinator import Coordinator
from muster.core.devices.hand_over import decide
from muster.core.devices.holders import holder_seen, recorded
from muster.core.devices.on_node import Want
from muster.core.devices.transitions import PodState
from muster.types import JobKey
from muster.types.devices import AgentKey, plain_answer, read_agent_report
from muster.types.holders import HolderRecord
from muster_report.agent.poll import boottime
from tests.muster_played import PlayedMuster, until
from tests.test_agent_in_place import Agent, agents, pytestmark

__all__ = ["agents", "pytestmark"]

TRAINING = """
import os, pathlib, signal, sys, time
devices = os.environ["CUDA_VISIBLE_DEVICES"]
folders = [pathlib.Path(sys.argv[1], device) for device in devices.split(",")]
for folder in folders:
    folder.mkdir()  # raises where another training has the device
def end(*_):
    for folder in folders:
        folder.rmdir()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
print("start", devices, flush=True)
while True: time.sleep(60)
"""
"""One that notices when another has its device."""


class Coordinated(PlayedMuster):
    """Muster with a real Coordinator: what it wants recorded is recorded. Pods are a, b, ... as their agents come."""

    def __init__(self, lease: float) -> None:
        super().__init__(lease)
        self.hold = 0.2
        self.memory = Coordinator(1, boottime(), lease, grace=0.5, keep=600.0)
        self.wants: dict[str, int] = {}
        self.pods: dict[str, str] = {}
        for number in range(2):
            holder_seen(self.memory, HolderRecord(f"h{number}", "n1", f"GPU-{number}"), boottime())

    def want(self, **counts: int) -> None:
        with self.changed:
            self.wants = counts
            self._cycle()

    def _cycle(self) -> None:
        wants = [Want(JobKey("team", pod), pod, "n1", n, (1, 2)) for pod, n in self.wants.items()]
        for assign in decide(self.memory, wants, boottime()).assigns:
            recorded(self.memory, assign, boottime(), written=True)
        decide(self.memory, wants, boottime())
        self.changed.notify_all()

    def _answered(self, body: dict[str, Any]) -> dict[str, Any] | None:
        with self.changed:
            self.reports.append(body)
            pod = self.pods.setdefault(body["incarnation"], "abc"[len(self.pods)])
            key = AgentKey(pod, body["incarnation"])
            assert heard(self.memory, pod, read_agent_report(body), boottime()) is not None
            self._cycle()

            def newer() -> bool:
                order = self.memory.agents[key].order
                return self._closed or (order is not None and order.number > body["order"])

            self.changed.wait_for(newer, self.hold)
            return None if self._closed else plain_answer(answer_to(self.memory, self.memory.agents[key]))

    def state(self, pod: str) -> PodState | None:
        with self.changed:
            return self.memory.pods.get(pod)


@pytest.fixture
def muster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Coordinated]:
    running = Coordinated(lease=4.0)
    (tmp_path / "token").write_text("t")
    monkeypatch.setenv("MUSTER_URL", running.url)
    monkeypatch.setenv("MUSTER_TOKEN_FILE", str(tmp_path / "token"))
    yield running
    running.close()


def start(agents: list[Agent], tmp_path: Path) -> Agent:
    agents.append(Agent("--gpus", "1,2", command=(sys.executable, "-u", "-c", TRAINING, str(tmp_path))))
    return agents[-1]


def test_a_gives_a_device_when_b_is_ready_and_both_go_on(
    muster: Coordinated, agents: list[Agent], tmp_path: Path
) -> None:
    muster.want(a=2)
    a = start(agents, tmp_path)
    a.says("start GPU-0,GPU-1")
    until(lambda: muster.state("a") is PodState.RUNNING, "A runs")
    muster.want(a=1, b=1)
    assert muster.state("a") is PodState.RUNNING  # B's agent isn't there, and A isn't told
    b = start(agents, tmp_path)
    b.says("start GPU-1")
    a.says("start GPU-0")
    until(lambda: {muster.state("a"), muster.state("b")} == {PodState.RUNNING}, "both run")
    muster.want(a=2)
    a.says("start GPU-0,GPU-1")
    until(lambda: muster.state("b") is PodState.INITIALIZED, "B waits for devices again")


def test_b_has_what_a_had_when_the_lease_of_a_is_over(
    muster: Coordinated, agents: list[Agent], tmp_path: Path
) -> None:
    muster.want(a=2)
    a = start(agents, tmp_path)
    a.says("start GPU-0,GPU-1")
    muster.want(b=2)
    a.process.kill()  # its namespace ends with it; nobody tells Muster
    a.process.wait()
    for device in ("GPU-0", "GPU-1"):
        (tmp_path / device).rmdir()
    b = start(agents, tmp_path)
    b.says("start GPU-0,GPU-1")
    assert muster.state("a") is None
