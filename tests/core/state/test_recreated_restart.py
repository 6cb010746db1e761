"""An owner takes back all of a job and makes it again, and Muster restarts within that: its place is kept.

The next leader is a new process: it knows what the API tells, and the time when it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.ledger import Ledger
from muster.core.state.recreated import RETURN
from muster.points import Profile
from muster.types import GangRecord, Job, Phase, Recreation, WriteGang
from tests.cluster_fake import FakeCluster, Muster
from tests.core.state.test_recreated import NODES, SET, STEP, Played

MOST = Profile().incomplete


class Restarted(Played):
    """Muster dies at a moment, some of its requests with it, and the next leader lists everything."""

    leads = True

    def plan(self) -> None:
        if self.leads:
            super().plan()

    def dies(self, away: float) -> None:
        """away: seconds until the next leader plans."""
        self.ledger, self.leads = Ledger(self.ledger.profile), False
        self.goes_on(away)
        self.ledger, self.leads = Ledger(self.ledger.profile), True
        self.heard = {line: len(told) for line, told in self.cluster.lines.items()}
        told = self.cluster.events()
        for event in self.rng.sample(told, len(told)):
            self.ledger.apply(event, self.cluster.now)
        self.hear()
        self.ledger.take_over(self.cluster.now)

    def takes_all_back(self) -> None:
        """What is left then is the JobSet, which is to make a Job. Its pods had run for a while."""
        self.jumps(10.0)
        self.cluster.says("jobs", self.job("Failed"))
        for uid in self.pods:
            self.cluster.update(self.cluster.pods[uid], phase=Phase.FAILED, deleting=True)
            self.cluster.gone(uid)
        self.cluster.owner_gone(self.job().owner.uid)
        self.pods = []

    def makes_all_again(self) -> None:
        self.makes_a_job()
        self.pods = [self.makes_a_pod(index) for index in range(NODES)]

    def passes(self, within: float) -> float:
        """Seconds until the later job has the GPUs; an AssertionError where that is later."""
        began = self.cluster.now
        while not self.passed:
            assert self.cluster.now < began + within
            self.goes_on(STEP)
        return self.cluster.now - began

    def jumps(self, seconds: float) -> None:
        """Nothing happens for most of so long."""
        self.cluster.now += seconds - 3 * STEP
        self.goes_on(3 * STEP)

    @property
    def writes(self) -> int:
        """Of its Gang."""
        return sum(isinstance(one, WriteGang) and one.gang == self.gang.name for one in self.cluster.sent)

    @property
    def gang(self) -> GangRecord:
        return self.cluster.gangs[("team", "trainjob-tune")]

    @property
    def tune(self) -> Job:
        (job,) = (job for key, job in self.ledger.jobs.items() if key.name == "trainjob-tune")
        return job


@pytest.mark.parametrize("on_term", [Phase.FAILED, Phase.SUCCEEDED], ids=["exit-143", "exit-0"])
@pytest.mark.parametrize("slowly", [0.3, 3.0], ids=["fast", "slow"])
@pytest.mark.parametrize("away", [0.5, 3.0, 20.0])
def test_a_trainjob_keeps_its_place_when_muster_restarts_while_its_runtime_restarts_it(
    away: float, slowly: float, on_term: Phase
) -> None:
    for seed in range(8):
        it = Restarted(seed, later=1)
        it.late(0.3)
        it.restarts(slowly, on_term)
        last = max(at for at, _ in it.coming)
        it.goes_on(it.rng.uniform(0.0, last - it.cluster.now))
        it.dies(away)
        it.comes_back(f"seed {seed}")


@pytest.mark.parametrize("deaths", [0, 1, 5])
def test_the_time_for_which_its_place_is_kept_is_not_begun_again_by_a_restart(deaths: int) -> None:
    it = Restarted(0, later=1)
    it.takes_all_back()
    began = it.cluster.now
    for _ in range(deaths):
        it.goes_on(4.0)
        it.dies(0.5)
    it.passes(RETURN + 1.0)
    assert it.cluster.now - began == pytest.approx(RETURN, abs=3 * STEP)


def test_a_restart_that_goes_on_for_too_long_is_not_believed_by_the_next_leader_either() -> None:
    """A Job that has failed is there for ever, so its JobSet seems to be about to make it again."""
    it = Restarted(0, later=1)
    it.cluster.says("jobs", it.job("Failed"))
    for uid in it.pods:
        it.cluster.gone(uid)
    began = it.cluster.now
    while it.cluster.now < began + MOST - 60:
        it.goes_on(4.0)
        it.jumps(20.0)
        it.dies(0.5)
    assert it.passed == []
    it.passes(120.0)
    assert it.cluster.now - began == pytest.approx(MOST, abs=1.0)


def test_what_prolongs_it_and_is_over_is_written_down_once() -> None:
    """Its Job is there for a minute after its pods: the next leader, who sees nothing of it, knows until when."""
    it = Restarted(0, later=1)
    it.jumps(10.0)
    it.cluster.says("jobs", it.job("Failed"))
    for uid in it.pods:
        it.cluster.gone(uid)
    writes = it.writes
    for _ in range(60):
        it.jumps(1.0)
    assert it.writes == writes + 1, "that it is Starting"
    it.cluster.owner_gone(it.job().owner.uid)
    gone = it.cluster.now
    it.goes_on(3.0)
    assert it.writes == writes + 2
    it.dies(0.5)
    it.goes_on(10.0)
    assert it.passed == []
    it.passes(RETURN)
    assert it.cluster.now - gone == pytest.approx(RETURN, abs=1.0)
    assert it.writes == writes + 3, "that it is Incomplete"


def test_a_restart_within_which_muster_goes_on_costs_no_write_of_its_own() -> None:
    it = Restarted(0, later=1)
    it.takes_all_back()
    writes = it.writes
    it.goes_on(4.0)
    assert it.gang.recreated.since
    it.makes_all_again()
    it.goes_on(5.0)
    assert it.bound("tune") == NODES
    assert it.gang.recreated == Recreation()
    assert it.writes == writes + 2, "that it is Starting, and that it runs"


@pytest.mark.parametrize("how", ["ends", "deleted", "never came back"])
def test_a_job_that_is_over_when_the_next_leader_comes_holds_nothing(how: str) -> None:
    it = Restarted(0, later=1)
    it.takes_all_back()
    it.goes_on(4.0)
    if how == "ends":
        it.cluster.says("jobsets", replace(it.cluster.owners[SET.uid], over="Failed"))
    elif how == "deleted":
        del it.cluster.owners[SET.uid]
        del it.cluster.gangs[("team", "trainjob-tune")]
    it.dies(10 * RETURN if how == "never came back" else 0.5)
    assert it.passes(1.0) < 1.0


def test_a_gang_that_says_running_after_a_long_time_without_muster_keeps_its_place_for_the_first_moments() -> (
    None
):
    it = Restarted(0, later=1)
    it.takes_all_back()
    it.dies(10 * RETURN)
    assert it.gang.state == "Running"
    it.goes_on(4.0)
    for _ in range(3):
        it.dies(0.5)
        it.goes_on(0.5)
    assert it.passed == []
    assert it.passes(RETURN) == pytest.approx(RETURN - 7.0, abs=4 * STEP)


@pytest.mark.parametrize("since", [1.0, -1.0, 1e6, 1e14])
@pytest.mark.parametrize("until", [1.0, 1e6 + 1, 1e14])
def test_a_forged_record_is_believed_no_further_than_it_can_be_true(since: float, until: float) -> None:
    it = Restarted(0, later=1)
    it.takes_all_back()
    it.goes_on(40.0)
    assert len(it.passed) == 1
    it.cluster.job("last", NODES, gpus=8)
    it.cluster.gangs[("team", "trainjob-tune")] = replace(it.gang, recreated=Recreation(since, until))
    it.dies(0.5)
    it.goes_on(RETURN + 1.0)
    assert not it.tune.restarting
    assert it.gang.recreated == Recreation()


def test_a_forged_record_brings_a_job_to_no_other_place_in_the_queue() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("runs", 1, gpus=8)
    Muster(cluster).settle()
    for name in ("first", "forger"):
        cluster.now += 10
        cluster.job(name, 1, gpus=8)
        Muster(cluster).settle()
    found = cluster.gangs[("team", "job-forger")]
    cluster.gangs[("team", "job-forger")] = replace(found, recreated=Recreation(cluster.now, 1e14))
    after = Muster(cluster)
    after.turn()
    assert [key.name for key in after.plan.order] == ["job-first", "job-forger"]


def test_who_follows_learns_from_the_gang_that_it_was_not_its_owner_who_took_a_job_back() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.job("low", 1, gpus=8)
    leader = Muster(cluster, Profile(preemption=True))
    leader.settle()
    follower = Muster(cluster)
    follower.ledger.snapshot(cluster.now)
    cluster.job("high", 1, gpus=8, priority=10)
    for _ in range(5):
        leader.turn()
        cluster.bind()
        follower.sync()
        follower.ledger.snapshot(cluster.now)
    assert len(cluster.bound("high")) == 1
    follower.ledger.take_over(cluster.now)
    jobs = follower.ledger.snapshot(cluster.now).jobs
    assert [job.restarting for key, job in sorted(jobs.items())] == [False, False]


def test_of_pods_that_nobody_describes_the_next_leader_holds_none() -> None:
    """A Job's template is not read: what its pods asked for went with them."""
    cluster = FakeCluster(nodes=1)
    cluster.job("train", 2, gpus=4)
    Muster(cluster).settle()
    gone = list(cluster.pods.values())
    cluster.pods.clear()
    after = Muster(cluster)
    after.settle()
    (job,) = after.ledger.snapshot(cluster.now).jobs.values()
    assert (job.restarting, job.reservations) == (False, ())
    for pod in gone:
        cluster.recreate(pod)
    after.settle()
    assert len(cluster.bound("train")) == 2
