"""All of a job leaves to start again elsewhere, and Muster's leader changes meanwhile: its places are kept for it,
although another job waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from muster.core.gang_object import gang_codec
from muster.points import Profile
from muster.types import Evict, GangGone, Grants, Job, Outcome, Phase, SharingSnapshot, WriteGang
from muster_plugins.pack import Pack
from tests.cluster_fake import FakeCluster, Muster, node
from tests.core.test_index_zero import Hall
from tests.told import live


@dataclass
class Keeps:
    """A Share plugin that goes by what jobs have: who has GPUs keeps as many, or has what the scenario says; the rest
    is the queue's, who came last first."""

    replicas: dict[str, int] = field(default_factory=dict)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        table = snapshot.table
        shares = table.have.copy()
        for key, row in table.row.items():
            if shares[row]:
                shares[row] = self.replicas.get(key.name.removeprefix("job-"), int(shares[row]))
        left = table.gpus - int(shares @ table.unit)
        for row in reversed(range(len(table))):
            if not shares[row] and table.min[row] <= left:
                shares[row] = min(int(table.max[row]), left)
                left -= int(shares[row])
        return Grants(shares)


class Restarts(Hall):
    """a runs on some of the four GPUs of n0 and is to have another number, by a restart; b has come since and waits
    for more than a leaves free."""

    def __init__(self, ends: int, comes: int, before: int = 2, after: int = 4) -> None:
        super().__init__((4,), ends, comes)
        self.keeps = Keeps()
        self.profile = Profile(scores=((Pack(), 1.0),), shares=(self.keeps,), conserving=True)
        self.train("a", 4, on=("n0",) * before, resize="restart", sizes="1,2,4")
        others = self.cluster.job("f", 4 - before) if before < 4 else []
        for pod in others:
            self.cluster.update(pod, phase=Phase.BOUND, node="n0", pin="n0")
        self.muster = Muster(self.cluster, self.profile)
        self.turns(2)
        assert self.runs("a") == [*range(before)]
        self.cluster.now += 1.0
        self.train("b", 4, min_replicas="3")
        self.turns(2)
        for pod in others:
            self.cluster.end(pod.uid)
        self.keeps.replicas = {"a": after}

    def a(self) -> Job:
        jobs = self.muster.ledger.snapshot(self.cluster.now).jobs
        return next(job for key, job in jobs.items() if key.name == "job-a")


@pytest.mark.parametrize("requests", range(1, 9))
@pytest.mark.parametrize(("ends", "comes"), [(3, 4), (100, 20)])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_who_starts_again_elsewhere_has_its_places_whoever_leads(
    before: int, after: int, ends: int, comes: int, requests: int
) -> None:
    hall = Restarts(ends, comes, before, after)
    hall.dies_after(requests)
    hall.turns(ends + comes + 20)
    assert hall.runs("a") == [*range(after)]
    assert hall.evicted() == before


@pytest.mark.parametrize("requests", [3, 5, 7])
def test_it_has_its_places_also_where_the_next_leader_dies_too(requests: int) -> None:
    hall = Restarts(ends=3, comes=4, before=4, after=2)
    hall.dies_after(requests)
    hall.dies_after(1)
    hall.turns(1)
    hall.dies_after(0)
    hall.turns(30)
    assert (hall.runs("a"), hall.evicted()) == ([0, 1], 4)


@pytest.mark.parametrize("requests", range(2, 5))
def test_a_growth_by_a_restart_to_places_that_are_free_leaves_no_old_and_new_ones_together(
    requests: int,
) -> None:
    """The places are recorded before the first is evicted: one of the old and two of the new ones are no size."""
    hall = Restarts(ends=3, comes=4, before=1, after=2)
    hall.cluster.nodes["n1"] = node("n1", 4)
    hall.dies_after(requests)
    hall.keeps.replicas = {}
    hall.turns(30)
    assert (hall.runs("a"), hall.evicted()) == ([0, 1], 1)


def test_where_a_job_starts_again_is_told_with_what_its_gang_tells_anyway() -> None:
    """No write tells only that."""
    hall = Restarts(ends=3, comes=4)
    before = len(hall.cluster.sent)
    hall.turns(40)
    writes = [
        one for one in hall.cluster.sent[before:] if isinstance(one, WriteGang) and one.job.name == "job-a"
    ]
    told = [(one.status["state"], one.status["message"], one.reservations) for one in writes]
    assert all(one != next_one for one, next_one in pairwise(told))
    kept = [gang_codec.from_plain(one.status["ledger"]["elastic"][0]).get("restart_on", ()) for one in writes]
    assert kept[0] == ("n0",) * 4
    assert kept[-1] == ()


@pytest.mark.parametrize("found", ["no such node", "more than it may have"])
def test_what_a_gang_tells_of_places_that_are_none_is_not_obeyed(found: str) -> None:
    hall = Restarts(ends=3, comes=4, before=4, after=2)
    hall.turns(2)
    ((at, gang),) = [(at, gang) for at, gang in hall.cluster.gangs.items() if gang.key.name == "job-a"]
    assert gang.restart_on == ("n0", "n0")
    on = ("n0", "gone") if found == "no such node" else ("n0",) * 1000
    hall.cluster.gangs[at] = replace(gang, restart_on=on)
    hall.muster = Muster(hall.cluster, hall.profile)
    assert hall.a().restart_on == (() if found == "no such node" else ("n0",) * 4)


def test_who_runs_is_not_ended_because_of_what_its_gang_tells() -> None:
    hall = Restarts(ends=3, comes=4, before=4, after=4)
    ((at, gang),) = [(at, gang) for at, gang in hall.cluster.gangs.items() if gang.key.name == "job-a"]
    uids = frozenset(pod.uid for pod in hall.cluster.pods.values() if pod.name.startswith("a-"))
    hall.cluster.gangs[at] = replace(gang, restart_on=("n0",) * 4, leaves_whole=uids)
    hall.muster = Muster(hall.cluster, hall.profile)
    hall.turns(20)
    assert (hall.runs("a"), hall.evicted()) == ([0, 1, 2, 3], 0)


def test_a_gang_that_is_deleted_on_the_way_is_written_again_with_it() -> None:
    hall = Restarts(ends=20, comes=4)
    hall.turns(2)
    at = next(at for at, gang in hall.cluster.gangs.items() if gang.key.name == "job-a")
    gone = hall.cluster.gangs.pop(at)
    hall.muster.ledger.apply(GangGone(*at, gone.object_uid), hall.cluster.now)
    hall.turns(2)
    assert hall.cluster.gangs[at].restart_on == ("n0",) * 4
    hall.dies_after(0)
    hall.turns(50)
    assert hall.runs("a") == [0, 1, 2, 3]


FAMILIES = ("srtf", "afs-l-packed", "tide-packed", "themis")
SPEED = {"remaining_work": "9000", "speed": "1=1,2=1.9,4=3.5,8=6", "resize": "restart"}


def at_the_end(name: str, requests: int | None) -> dict[str, list[int]]:
    """Who runs on which indexes once a shorter job has come to one that had all GPUs of two nodes. requests: after so
    many of what follows Muster dies; None: it does not."""
    hall = Hall((4, 4), ends=3, comes=4)
    hall.profile = live(name)
    hall.muster = Muster(hall.cluster, hall.profile)
    hall.train("a", 8, **SPEED)
    hall.turns(10)
    assert hall.runs("a"), "it has started"
    hall.train("b", 8, **SPEED | {"remaining_work": "900"})
    if requests is not None:
        hall.dies_after(requests)
    hall.turns(60)
    return {name: hall.runs(name) for name in "ab"}


@pytest.mark.parametrize("name", FAMILIES)
def test_of_a_policy_of_the_catalogue_shares_are_the_same_at_the_end_whenever_muster_dies(name: str) -> None:
    expected = at_the_end(name, None)
    assert [at_the_end(name, requests) for requests in (1, 3, 5, 8)] == [expected] * 4


def _called_back(hall: Restarts, action: Evict) -> None:
    """An eviction that has not begun is called back, as `ActionExecutor.call_back` does it."""
    hall.muster.ledger.apply(Outcome(action, -1, "not wanted any more"), hall.cluster.now)


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_who_starts_again_is_not_called_back_by_the_next_plan(before: int, after: int) -> None:
    """The write was not answered before it: to a plan the job has nothing left, so it grows."""
    hall = Restarts(3, 4, before, after)
    hall.turns(1)
    assert sum(map(len, hall.muster.ledger.held_back.values())) == before
    hall.turns(1)
    assert hall.muster.ledger.overtaken == frozenset()
    assert hall.evicted() == before


def test_of_who_starts_again_a_later_write_still_tells_who_leaves() -> None:
    """Else a leader that dies among the evictions leaves a part of the job."""
    hall = Restarts(ends=20, comes=4)
    hall.turns(2)
    at = next(at for at, gang in hall.cluster.gangs.items() if gang.key.name == "job-a")
    recorded = hall.cluster.gangs[at].leaves_whole
    assert len(recorded) == 2
    gone = hall.cluster.gangs.pop(at)
    hall.muster.ledger.apply(GangGone(*at, gone.object_uid), hall.cluster.now)
    hall.turns(2)
    assert hall.cluster.gangs[at].leaves_whole == recorded


def test_who_is_not_evicted_after_all_is_not_ended_by_the_next_leader() -> None:
    """A job that goes on with a state that is not Running: its Gang must not tell that all of it leaves."""
    hall = Restarts(ends=3, comes=4)
    hall.turns(1)
    held = [action for each in hall.muster.ledger.held_back.values() for action in each]
    hall.muster.ledger.held_back.clear()
    for action in held:
        _called_back(hall, action)
    hall.keeps.replicas = {"a": 2}
    for pod in [pod for pod in hall.cluster.pods.values() if pod.name.startswith("a-")]:
        hall.cluster.update(pod, annotations={**pod.annotations, "muster.dev/min-replicas": "many"})
    hall.turns(5)
    hall.dies_after(0)
    hall.turns(5)
    assert (hall.runs("a"), hall.evicted()) == ([0, 1], 0)


def test_who_can_not_be_evicted_goes_on_whatever_the_gang_tells() -> None:
    """Nobody would ever end it, and its places would be taken for such as are about to come free."""
    cluster = FakeCluster(nodes=1)
    pods = [cluster.bare(f"c-{index}", "c", min_replicas="2", max_replicas="2") for index in range(2)]
    for pod in pods:
        cluster.update(pod, phase=Phase.BOUND, node="n0", pin="n0")
    muster = Muster(cluster)
    muster.settle()
    ((at, gang),) = cluster.gangs.items()
    cluster.gangs[at] = replace(gang, state="Resizing", leaves_whole=frozenset(pod.uid for pod in pods))
    muster = Muster(cluster)
    muster.turn()
    assert muster.state("c") == "Running"
    assert not any(isinstance(action, Evict) for action in cluster.sent)
