"""Twenty agents in place on fake nodes, played over real connections: what a hand-over writes, and that no device is
two jobs' at once (`e2e/bench/agents.py` measures the same with a thousand).

Whoever stays gets what its neighbour leaves, and only it can take that up: all other GPUs are in use on other nodes.
So it is tried with the first in the policy's order, and with the last, whom nineteen go before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from e2e.agents import playing
from e2e.bench.agents import HALF, Fleet, authority, shape
from e2e.in_place import SPACE
from e2e.lab import Lab

NODES = 10
RECORDS = f"patch pods in {SPACE}"
GANGS = "patch gangs in default"
MOST_GANGS = 8
"""Of both jobs: places, and what their owners read; 5 at most were measured."""


def test_twenty_agents_hand_over_with_a_record_for_each_device_and_no_holder_is_made(
    new_lab: Callable[..., Lab],
) -> None:
    lab = new_lab(shape(NODES))
    with playing(lab.service_url(), authority(lab)) as agents:
        fleet = Fleet(lab, agents)
        fleet.fill(2 * NODES)
        alone(fleet)
        for number in range(2):
            writes = fleet.hand_over(fleet.first if number else fleet.last, f"later-{number}").writes
            assert writes[RECORDS] == HALF, writes
            assert not writes.keys() & {f"create pods in {SPACE}", f"delete pods in {SPACE}"}, writes
            assert (writes["gate off in default"], writes["create gangs in default"]) == (1, 1), writes
            assert writes[GANGS] <= MOST_GANGS, writes
            alone(fleet)


def alone(fleet: Fleet) -> None:
    """Every agent has half of its node, and no device is another one's."""
    devices = Counter(
        (fleet.nodes[name], one) for name, agent in fleet.played.items() for one in agent.devices
    )
    assert len(devices) == 2 * NODES * HALF
    assert set(devices.values()) == {1}
