"""Agents beside training, as many as there are pods: one process plays them over real connections (TLS, long polls,
each pod's own token). Only the training is missing: an order is carried out at once.

What a fake node's kubelet does for pods that hold devices is in kwok/stages.yaml."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from e2e.in_place import GPU_NUMBERS
from e2e.scenario import job
from muster.types.devices import AgentReport, AgentState, Order, plain_report, read_agent_answer
from muster_report.agent.poll import AGAIN, FIRST, HELD

COMMAND = ("muster-agent", "--devices", "--", "python", "train.py")


def in_place(name: str, gpus: str) -> dict[str, Any]:
    """A Job of one pod in place, for a fake node."""
    made = job(name, 1, gpus=0, cpu="10m", memory="128Mi", annotations={GPU_NUMBERS: gpus})
    made["spec"]["template"]["spec"]["containers"][0]["command"] = list(COMMAND)
    return made


@dataclass(frozen=True)
class Told:
    """An order that reached an agent. at: when; said: when the report that it is carried out was sent (Unix s)."""

    order: Order
    at: float
    said: float


@dataclass
class Played:
    """One agent. asked: when its first report was sent, Unix s; refused: answers that were none, by status."""

    pod: str
    token: str
    gpus: tuple[int, ...]
    asked: float = 0.0
    told: list[Told] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)
    answers: int = 0

    @property
    def devices(self) -> tuple[str, ...]:
        """Those of its newest order."""
        return tuple(one.id for one in self.told[-1].order.devices) if self.told else ()

    async def run(self, url: str, trusted: ssl.SSLContext | bool) -> None:
        """Ask, carry out what is ordered, and tell; for ever."""
        report = AgentReport("1", AgentState.READY, gpus=self.gpus)
        headers = {"Authorization": f"Bearer {self.token}"}
        last = None
        async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=HELD) as client:
            while True:
                sent = time.time()
                self.asked = self.asked or sent
                if self.told and self.told[-1].said == 0.0:
                    self.told[-1] = Told(self.told[-1].order, self.told[-1].at, sent)
                try:
                    found = await client.post(f"{url}/v1/agents", json=plain_report(report), headers=headers)
                    status = found.status_code
                except httpx.HTTPError:
                    status = 0
                if status != 200:
                    self.refused[status] = self.refused.get(status, 0) + 1
                    await asyncio.sleep(FIRST)
                    continue
                answer = read_agent_answer(found.json())
                self.answers += 1
                if answer.order is not None and answer.order.number > report.order:
                    self.told.append(Told(answer.order, time.time(), 0.0))
                    state = AgentState.RUNNING if answer.order.devices else AgentState.READY
                    report = AgentReport("1", state, answer.order.number, answer.order.devices, self.gpus)
                elif answer == last:
                    await asyncio.sleep(max(0.0, AGAIN - (time.time() - sent)))
                last = answer


class PlayedAgents:
    """All of them, in one thread. url: Muster's report port; authority: who signed its certificate, as text."""

    def __init__(self, url: str, authority: str = "") -> None:
        self._url = url
        self._trusted = ssl.create_default_context(cadata=authority) if authority else True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agents", daemon=True)
        self._thread.start()
        self._running: dict[str, asyncio.Future[None]] = {}

    def play(self, pod: str, token: str, gpus: Sequence[int]) -> Played:
        """The agent of a pod (its uid), which has just started."""
        agent = Played(pod, token, tuple(gpus))
        self._running[pod] = asyncio.run_coroutine_threadsafe(  # type: ignore[assignment]
            agent.run(self._url, self._trusted), self._loop
        )
        return agent

    def end(self, pod: str) -> None:
        """As when its pod is killed: it says nothing any more."""
        self._running.pop(pod).cancel()

    def close(self) -> None:
        """As when all pods are killed; the thread ends."""
        asyncio.run_coroutine_threadsafe(_end_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextlib.contextmanager
def playing(url: str, authority: str = "") -> Iterator[PlayedAgents]:
    agents = PlayedAgents(url, authority)
    try:
        yield agents
    finally:
        agents.close()
