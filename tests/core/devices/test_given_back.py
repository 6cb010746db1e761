"""What is written on holders again and again, though it leads to nothing: less and less often.

An agent that says of each order that it is carried out, and uses none of its devices; a record that the API keeps."""

from __future__ import annotations

from itertools import pairwise

from muster.core.devices.coordinator import Coordinator
from muster.core.devices.device_ledger import DeviceLedger
from muster.core.devices.on_node import Want
from muster.types import JobKey, PodRecord
from muster.types.devices import AgentKey
from muster.types.holders import (
    AssignHolder,
    ClearSeat,
    HolderAction,
    HolderOutcome,
    HolderRecord,
    HolderSeen,
    TrainingEnded,
)
from tests.core.devices.circle import Circle
from tests.core.devices.world import GRACE, KEEP, LEASE


class Writes(Circle):
    """Keeps when devices were recorded for each pod."""

    def __init__(self, gpus: int) -> None:
        self.written: dict[str, list[float]] = {}
        super().__init__(gpus)

    def carry_out(self, action: HolderAction) -> None:
        if isinstance(action, AssignHolder):
            self.written.setdefault(action.agent.pod, []).append(self.cluster.now)
        super().carry_out(action)


def gives_back(circle: Circle, pod: PodRecord) -> None:
    """From now on the pod's agent lets go of what it was told to use."""
    (agent,) = (agent for agent in circle.agents if agent.pod == pod.uid and agent.alive)

    def step() -> None:
        agent.using = frozenset()
        if agent.standing.wanted is not None:
            agent.standing = agent.standing.carried_out(agent.standing.wanted)

    agent.step = step  # type: ignore[method-assign]


def goes_on(circle: Circle, pod: PodRecord) -> None:
    """From now on it uses what it is told to."""
    (agent,) = (agent for agent in circle.agents if agent.pod == pod.uid and agent.alive)
    del agent.step  # type: ignore[method-assign]


def stuck(sizes: str = "2") -> tuple[Writes, PodRecord]:
    """a is told to use two GPUs, and gives them back each time."""
    circle = Writes(2)
    a = circle.train("a", sizes)
    while not circle.agents:
        circle.second()
    gives_back(circle, a)
    return circle, a


def test_who_gives_back_what_it_was_told_to_use_gets_it_again_later_and_later() -> None:
    circle, a = stuck()
    circle.seconds(300)
    times = sorted(set(circle.written[a.uid]))
    assert len(circle.written[a.uid]) == 2 * len(times), "both of them each time"
    gaps = [round(after - before) for before, after in pairwise(times)]
    assert gaps == sorted(gaps)
    assert len(times) <= 10, "1 s, 2, 4, 8, 16, 32, 64, and then as often"
    assert gaps[-1] >= 64


def test_another_one_gets_its_part_meanwhile() -> None:
    circle, _ = stuck("1,2")
    circle.seconds(60)
    circle.train("b", "1,2")
    circle.seconds(60)
    assert (circle.using("a"), circle.using("b")) == (0, 1)


def test_who_has_used_them_for_as_long_as_it_had_to_wait_begins_anew() -> None:
    circle, a = stuck()
    circle.seconds(30)
    goes_on(circle, a)
    circle.seconds(200)
    assert circle.using("a") == 2
    assert circle.devices.coordinator.gave_back == {}


def test_a_record_that_can_t_be_taken_off_is_tried_less_and_less_often() -> None:
    devices = DeviceLedger(Coordinator(2, 0.0, LEASE, GRACE, KEEP))
    a, b = AgentKey("pod-a", "1"), AgentKey("pod-b", "1")
    record = HolderRecord("h", "n0", "GPU-1", agent=a, epoch=5, second=b, second_epoch=6)
    devices.apply(HolderSeen(record, "holder-1-1", "10"), 1.0)
    devices.apply(TrainingEnded("pod-b"), 1.0)
    wanted, asked = [Want(JobKey("team", "a"), "pod-a", "n0", 1, (1,))], []
    for second in range(2, int(LEASE + GRACE)):
        for action in devices.adopt(wanted, float(second))[0]:
            if isinstance(action, ClearSeat):
                asked.append(second)
                devices.apply(HolderOutcome(action, 403, "forbidden"), float(second))
    assert [after - before for before, after in pairwise(asked)] == [2, 4, 8, 16, 32]
