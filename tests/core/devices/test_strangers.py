"""A device that nobody was granted and that is used all the same: jobs on its node are told, once."""

from __future__ import annotations

from muster.core.devices.strangers import LEFT
from muster.types import Action, RecordEvent
from muster.types.holders import HolderSaid
from tests.core.devices.circle import Circle


class Watching(Circle):
    """Keeps what jobs are told."""

    def __init__(self) -> None:
        self.told: list[RecordEvent] = []
        super().__init__(gpus=2)
        carry_out = self.cluster.carry_out

        def kept(action: Action) -> object:
            if isinstance(action, RecordEvent) and action.reason == "DeviceInUse":
                self.told.append(action)
            return carry_out(action)

        self.cluster.carry_out = kept  # type: ignore[assignment, method-assign]

    def looks(self, processes: int, memory: int = 0) -> None:
        """NVML counts these on the device that nobody is granted."""
        (one,) = [uid for uid, record in self.records.items() if record.device == "GPU-n0-1"]
        said = HolderSaid(one, "GPU-n0-1", True, True, processes, memory)
        self.devices.apply(said, self.cluster.now)


def test_while_a_job_is_granted_a_device_who_uses_it_is_nobodys_business() -> None:
    circle = Watching()
    circle.train("a", "1,2")
    circle.seconds(8)
    assert circle.using("a") == 2
    circle.looks(3, 9000)
    circle.seconds(30)
    assert circle.told == []
    assert circle.devices.strangers(circle.cluster.now) == set()


def both() -> Watching:
    """a and b train on a GPU each, and Muster keeps these after the jobs."""
    circle = Watching()
    circle.devices.coordinator.keep = 3600.0
    circle.train("a", "1")
    circle.train("b", "1")
    circle.seconds(8)
    assert (circle.using("a"), circle.using("b")) == (1, 1)
    return circle


def idle() -> Watching:
    """Only a is there any more."""
    circle = both()
    circle.cluster.end(circle.pod("b").uid)
    circle.seconds(3)
    assert circle.using("a") == 1
    return circle


def test_a_device_that_is_nobodys_and_is_used_is_told_to_the_jobs_of_its_node_once_within_ten_seconds() -> (
    None
):
    circle = idle()
    circle.looks(2, 700)
    circle.seconds(10)
    words = "GPU GPU-n0-1 of n0 is granted to nobody and is used all the same: 2 processes, 700 MiB; whose they are"
    assert circle.told
    assert {one.job.name for one in circle.told} == {"job-a"}
    assert all(one.message.startswith(words) and one.warning for one in circle.told)
    count = len(circle.told)
    circle.looks(2, 900)
    circle.seconds(20)
    assert len(circle.told) == count, "once while it lasts"
    circle.looks(0)
    circle.seconds(2)
    assert circle.devices.strangers(circle.cluster.now) == set()
    circle.looks(0, 700)
    circle.seconds(2)
    assert len(circle.told) == 2 * count, "the driver may hide processes: memory tells of them"


def test_what_was_on_it_a_moment_before_it_was_let_go_is_not_held_against_it() -> None:
    circle = both()
    circle.looks(1, 900)
    circle.cluster.end(circle.pod("b").uid)
    circle.seconds(int(LEFT) - 2)
    circle.looks(0)
    circle.seconds(20)
    assert circle.told == []
