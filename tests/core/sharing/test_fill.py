"""Who waits while GPUs idle is told what is really in its way (`core.sharing.fill`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.types import Grant, Grants, Job, SharingSnapshot, Snapshot
from tests.scenario import FIFO, NOW, job, plan, said, snapshot, starts

ONE_NODE = Grant(max_nodes=1)
WHOLE = Grant(roles={"worker": 3})
"""All of it or nothing."""
RESERVED = "Waiting Reserved: would fit, but the free capacity is kept for the job at the head of the queue"


@dataclass(frozen=True)
class Granting:
    """A Share plugin that grants what the scenario says, to those that still take part."""

    replicas: Mapping[str, int]
    wants: Mapping[str, Grant]
    until: Mapping[str, float] = field(default_factory=dict)

    def adjust(self, shares: Grants, snapshot: SharingSnapshot) -> Grants:
        numbers, details = shares.replicas.copy(), {}
        for key, row in snapshot.table.row.items():
            numbers[row] = self.replicas[key.name]
            if key.name in self.wants:
                details[row] = self.wants[key.name]
        until = {
            row: self.until[key.name] for key, row in snapshot.table.row.items() if key.name in self.until
        }
        return Grants(numbers, details, until=until)


def rigid(name: str, gpus: int, **words: object) -> Job:
    return job(name, worker=gpus, gpus=1, least=gpus, **words)


def behind_a_head(late: Job) -> Snapshot:
    """Four, three and three GPUs are idle; the head needs two nodes whole, and n0 and n1 are kept for it."""
    running = [rigid("one", 1, on=["n1"]), rigid("two", 1, on=["n2"])]
    return snapshot(nodes=3, gpus=4, jobs=[*running, job("head", worker=2, gpus=4, least=2), late])


def told(before: Snapshot, granted: Mapping[str, int], wants: Mapping[str, Grant]) -> str:
    """What `late` is told, on a cluster where no GPU is to idle."""
    after = plan(before, FIFO, shares=(Granting(granted, wants),), conserving=True, patience=0.0)
    assert "late" not in starts(after)
    assert (after.plugin_errors, after.failed) == ((), ())
    return said(after)["late"]


def test_a_job_for_which_only_one_node_is_too_small_is_told_so() -> None:
    idle = snapshot(nodes=2, gpus=4, jobs=[rigid("late", 6)])
    assert told(idle, {"late": 0}, {"late": ONE_NODE}) == (
        "Waiting Resources: needs 6 GPUs (6 replicas of 1) on one node; no node has 6 idle GPUs"
    )


def test_what_is_kept_for_the_head_is_in_the_way_only_of_who_would_fit_there_as_its_policy_says() -> None:
    granted = {"one": 1, "two": 1, "head": 2, "late": 0}
    assert told(behind_a_head(rigid("late", 4)), granted, {"late": ONE_NODE}) == RESERVED
    assert told(behind_a_head(rigid("late", 6)), granted, {}) == RESERVED
    assert told(behind_a_head(rigid("late", 6)), granted, {"late": Grant(max_nodes=2)}) == RESERVED
    assert told(behind_a_head(rigid("late", 6)), granted, {"late": ONE_NODE}) == (
        "Waiting Resources: needs 6 GPUs (6 replicas of 1) on one node; no node has 6 idle GPUs"
    )
    assert told(behind_a_head(rigid("late", 8)), granted, {"late": Grant(max_nodes=2)}) == (
        "Waiting Resources: needs 8 GPUs (8 replicas of 1) on 2 nodes; no 2 nodes have 8 idle GPUs"
    )


def test_who_waits_for_its_share_is_told_what_fits_now_of_what_it_needs_as_all_others() -> None:
    runs = rigid("runs", 6, on=["n0"] * 4 + ["n1"] * 2)
    full = snapshot(nodes=2, gpus=4, jobs=[runs, rigid("late", 3)])
    others = "Waiting Share: its share is 0: GPUs that would take it go to others first"
    assert told(full, {"runs": 6, "late": 0}, {}) == f"{others}; 2 of 3 replicas fit now"


def test_a_job_that_its_policy_has_wait_until_a_time_starts_on_idle_gpus_no_sooner() -> None:
    """What it is granted finds no place, or it is granted nothing; its least would find one."""
    jobs = [job("late", worker=3, gpus=4, least=1), job("other", worker=1, gpus=4, least=1)]

    def started(granted: int, until: float) -> set[str]:
        share = Granting({"late": granted, "other": 0}, {"late": WHOLE}, {"late": until})
        return {*starts(plan(snapshot(nodes=2, gpus=4, jobs=jobs), FIFO, shares=(share,), conserving=True))}

    for granted in (0, 3):
        assert started(granted, NOW + 1.0) == {"other"}, "whoever is behind it may have them"
        assert started(granted, NOW) == {"late", "other"}
