"""The trainings of config/samples/in-place under a real agent: their devices change, and no step is lost."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.muster_played import PlayedMuster, played
from tests.test_agent_in_place import Agent, pytestmark  # noqa: F401  (a PID namespace)

SAMPLES = Path(__file__).parents[1] / "config" / "samples" / "in-place"


@pytest.fixture
def muster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PlayedMuster]:
    """Reports of training go to it, too, and are not answered."""
    with played(monkeypatch, tmp_path) as running:
        monkeypatch.setenv("CHECKPOINT", str(tmp_path / "checkpoint.json"))
        monkeypatch.setenv("SECONDS", "0.02")
        monkeypatch.setenv("STEPS", "400")
        yield running


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Agent]]:
    started: list[Agent] = []

    def start(name: str) -> Agent:
        started.append(Agent("--gpus", "1-4", command=(sys.executable, str(SAMPLES / name))))
        return started[-1]

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def test_a_training_goes_on_from_its_checkpoint_with_other_devices(
    muster: PlayedMuster, run: Callable[[str], Agent]
) -> None:
    agent = run("train.py")
    me = muster.ready()[0]
    muster.order(me, ("GPU-a", 1))
    agent.says("from step 0 on GPU-a")
    steps, losses = followed(agent, 100)
    muster.order(me, ("GPU-b", 2), ("GPU-c", 2))
    more = []
    while not (line := agent.says()).startswith("from"):
        more.append(line)
    steps += [number("step", one) for one in more]
    assert line == f"from step {steps[-1]:.0f} on GPU-b,GPU-c"
    rest, last = followed(agent, 400 - len(steps))
    assert steps + rest == [float(one) for one in range(1, 401)]  # none lost, none done twice
    assert last[-1] < losses[-1] < losses[0]
    assert agent.end()[0] == 0


def test_a_training_with_a_worker_for_each_device_goes_on_through_changes(
    muster: PlayedMuster, run: Callable[[str], Agent]
) -> None:
    agent = run("workers.py")
    me = muster.ready()[0]
    muster.order(me, ("GPU-a", 1))
    agent.says("workers on GPU-a")
    steps, losses = followed(agent, 20)
    for devices in (("GPU-a", "GPU-b", "GPU-c"), ("GPU-c",)):
        order = muster.order(me, *((one, 1) for one in devices))
        while not (line := agent.says()).startswith("workers"):
            steps.append(number("step", line))
        assert line == f"workers on {','.join(devices)}"
        muster.has(me, order, *devices)
    rest, last = followed(agent, 400 - len(steps))
    assert steps + rest == [float(one) for one in range(1, 401)]
    assert last[-1] < losses[-1] < losses[0]
    assert agent.end()[0] == 0


def followed(agent: Agent, count: int) -> tuple[list[float], list[float]]:
    """Steps and losses of the next `count` reports."""
    lines = [agent.says("muster: step=") for _ in range(count)]
    return [number("step", one) for one in lines], [number("loss", one) for one in lines]


def number(name: str, line: str) -> float:
    found = re.search(rf"{name}=(\S+)", line)
    assert found is not None, line
    return float(found[1])
