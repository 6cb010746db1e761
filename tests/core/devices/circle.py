"""The whole circle of jobs in place: Ledger, cycle, Coordinator, agents that keep to the protocol, and a cluster that
binds holders and has devices."""

from __future__ import annotations

from dataclasses import replace

from muster.core.devices.coordinator import Coordinator
from muster.core.devices.device_ledger import DeviceLedger
from muster.points import Profile, Rebalance, Share
from muster.types import GPU, Owner, OwnerRecord, Phase, PodRecord, Quota, QuotasSeen, Shape
from muster.types.devices import AgentKey
from muster.types.holders import (
    AssignHolder,
    ClearSeat,
    CreateHolder,
    DeleteHolder,
    HolderAction,
    HolderGone,
    HolderOutcome,
    HolderRecord,
    HolderSeen,
    TrainingEnded,
    TrainingGone,
)
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster, Muster
from tests.core.devices import world
from tests.core.devices.world import GRACE, KEEP, LEASE
from tests.table_of_states import obeys, states

ONE = Shape(requests=(("cpu", 10), (GPU, 1)))


class Agent(world.Agent):
    """Of any pod."""

    def report(self) -> world.AgentReport:
        world.SIZES.setdefault(self.pod, ())
        return super().report()


class Circle(Muster):
    """A second at a time. Its profile keeps the rules of a cluster (`Profile.conserving`); share: the policy of it,
    max-min where none is said. slow: uids of pods whose agents only ask; cut: of pods whose agents are not heard;
    imageless: jobs whose containers never start; late: pods, as JOB-INDEX, whose containers don't yet; ill: devices;
    refuse: so many requests about holders fail; attends: agents are heard between the stages of a cycle, too."""

    attends = False

    def __init__(
        self, gpus: int = 4, nodes: int = 1, share: Share | None = None, rebalance: tuple[Rebalance, ...] = ()
    ) -> None:
        self.profile = Profile("sharing", shares=(share or MaxMin(),), rebalance=rebalance, conserving=True)
        self.cluster = FakeCluster(nodes=nodes, gpus=gpus)
        self.records: dict[str, HolderRecord] = {}
        self.agents: list[Agent] = []
        self.term = 0
        self.slow: set[str] = set()
        self.cut: set[str] = set()
        self.imageless: set[str] = set()
        self.late: set[str] = set()
        self.ill: set[str] = set()
        self.pairs: set[frozenset[str]] = set()
        self.refuse = 0
        self.quotas: tuple[Quota, ...] = ()
        self.restart()

    def restart(self) -> None:
        """Muster starts again, and knows what the API says."""
        self.term += 1
        super().__init__(self.cluster, self.profile)
        self.devices = DeviceLedger(Coordinator(self.term, self.cluster.now, LEASE, GRACE, KEEP))
        self.ledger.give_devices(self.devices)
        self.watch()

    def train(self, name: str, gpus: str, pods: int = 1, **notes: str) -> PodRecord:
        """A Job in place; its first pod."""
        owner = Owner("batch/v1", "Job", name, f"job-team-{name}-{self.cluster.tick()}")
        self.cluster.owners[owner.uid] = OwnerRecord(owner, "team", size=pods, completions=pods)
        made = [self.cluster.pod(owner, at, 0, "team", 0, {"gpus": gpus, **notes}) for at in range(pods)]
        return made[0]

    # ---- the cluster ----

    def watch(self) -> None:
        """Every holder as it is."""
        for uid, record in list(self.records.items()):
            pod = self.cluster.pods.get(uid)
            if pod is None:
                del self.records[uid]
                self.devices.apply(HolderGone(uid), self.cluster.now)
                continue
            if pod.phase is Phase.BOUND and not record.device:
                taken = {r.device for r in self.records.values()}
                ids = (f"GPU-{pod.node}-{n}" for n in range(self.cluster.nodes[pod.node].allocatable[GPU]))
                device = next(i for i in ids if i not in taken)
                record = self.records[uid] = replace(record, device=device)
            seen = replace(record, healthy=record.device not in self.ill)
            self.devices.apply(HolderSeen(seen, pod.name, pod.version), self.cluster.now)

    def carry_out(self, action: HolderAction) -> None:
        cluster = self.cluster
        if self.refuse:
            self.refuse -= 1
            self.devices.apply(HolderOutcome(action, 500), cluster.now)
            return
        status, version = 200, ""
        match action:
            case CreateHolder(name, node):
                pod = PodRecord(
                    uid=f"uid-{name}",
                    namespace="muster-devices",
                    name=name,
                    ours=False,
                    phase=Phase.UNGATED,
                    nominated=node,
                    shape=ONE,
                )
                cluster.update(pod)
                self.records[pod.uid] = HolderRecord(pod.uid, node)
            case AssignHolder(uid) | ClearSeat(uid):
                held = cluster.pods.get(uid)
                if held is None or held.version != action.version:
                    status = 409 if held else 404
                else:
                    version = cluster.update(held).version
                    self.records[uid] = world.with_record(self.records[uid], action)
            case DeleteHolder(uid):
                status = 200 if cluster.pods.pop(uid, None) else 404
        self.devices.apply(HolderOutcome(action, status, version=version), cluster.now)

    # ---- a second ----

    def second(self) -> None:
        self.cluster.now += 1.0
        now = self.cluster.now
        self.sync()
        self.watch()
        self.ledger.apply(QuotasSeen("team", self.quotas), now)
        snapshot = self.ledger.snapshot(now)
        self.between()
        plan = self.ledger.plan(snapshot)
        self.between()
        before = states(self.ledger)
        actions = self.ledger.adopt(snapshot, plan)
        self.plan = self.ledger.queue
        obeys(before, self.plan, actions)
        for action in actions:
            for event in self.cluster.carry_out(action):
                self.ledger.apply(event, now)
        self.cluster.bind()
        self.check()
        self.kubelets()
        self.talk()

    def between(self) -> None:
        """What the driver does between two stages of a cycle: agents that have something new are heard."""
        if self.attends:
            self.talk(steps=1)

    def talk(self, steps: int = 3) -> None:
        """Each agent reports, and goes so many steps; then devices are decided about."""
        now = self.cluster.now
        for agent in self.agents:
            if agent.alive and agent.pod not in self.cut:
                answer = self.devices.heard(agent.pod, agent.report(), now)
                if answer is not None:
                    agent.take(answer, now, now)
            agent.look(now)
            for _ in range(0 if agent.pod in self.slow else steps):
                agent.step()
            self.check()
        assert self.ledger.in_place is not None
        for action in self.ledger.in_place.adopt(now)[0]:
            self.carry_out(action)
        self.check()

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def kubelets(self) -> None:
        """Containers of bound pods in place run, and no others."""
        for agent in self.agents:
            pod = self.cluster.pods.get(agent.pod)
            if agent.alive and (pod is None or pod.phase is not Phase.BOUND):
                agent.die()
            if pod is None:
                self.devices.apply(TrainingGone(agent.pod), self.cluster.now)
            elif pod.phase.ended:
                self.devices.apply(TrainingEnded(agent.pod), self.cluster.now)
        alive = {agent.pod for agent in self.agents if agent.alive}
        for pod in self.cluster.pods.values():
            if pod.name.split("-")[0] in self.imageless or pod.name.rpartition("-")[0] in self.late:
                continue
            if pod.phase is Phase.BOUND and "muster.dev/gpus" in pod.annotations and pod.uid not in alive:
                self.agents.append(Agent(pod.uid, f"run-{len(self.agents)}"))

    def away(self, node: str) -> None:
        """A node and all that is on it are gone."""
        del self.cluster.nodes[node]
        for pod in [p for p in self.cluster.pods.values() if p.node == node]:
            if pod.ours:
                self.cluster.delete(pod.uid)
            else:
                del self.cluster.pods[pod.uid]
        for agent in self.agents:
            if agent.pod not in self.cluster.pods:
                agent.die()

    def starts(self) -> set[str]:
        """Uids of jobs' pods that have not ended: one that was ended is another one now."""
        return {pod.uid for pod in self.cluster.pods.values() if pod.ours and not pod.phase.ended}

    def gone(self, uid: str) -> None:
        """A job is deleted, with its pod."""
        owner = self.cluster.pods[uid].controller
        assert owner is not None
        self.cluster.owners.pop(owner.uid, None)
        self.cluster.delete(uid)

    # ---- what is seen ----

    def pod(self, name: str) -> PodRecord:
        """The pod of a job."""
        (pod,) = [p for p in self.cluster.pods.values() if p.name.startswith(f"{name}-") and p.ours]
        return pod

    def pods(self, name: str) -> list[str]:
        """Uids of a job's pods, by index."""
        mine = [p for p in self.cluster.pods.values() if p.name.startswith(f"{name}-") and p.ours]
        return [p.uid for p in sorted(mine, key=lambda p: p.name) if not p.phase.ended]

    def uses(self, name: str) -> list[int]:
        """Devices that the training of each pod of a job on a node uses, by index."""
        on = [uid for uid in self.pods(name) if self.cluster.pods[uid].phase is Phase.BOUND]
        return [
            sum(len(agent.using) for agent in self.agents if agent.pod == uid and agent.alive) for uid in on
        ]

    def using(self, name: str) -> int:
        """Devices that a job's training uses."""
        return sum(
            len(agent.using)
            for agent in self.agents
            if agent.alive and self.cluster.pods[agent.pod].name.startswith(name)
        )

    def note_pairs(self) -> None:
        """Which pods are to share GPUs by the last plan."""
        planned = self.ledger.in_place
        assert planned is not None
        for key, other in planned.beside.items():
            self.pairs.add(frozenset(planned.granted[one][0].pod for one in (key, other)))

    def check(self) -> None:
        """No device is used by two that never were to be a pair, none that no bound holder keeps, and no node is
        over-committed."""
        bound = {
            record.device
            for uid, record in self.records.items()
            if record.device and uid in self.cluster.pods
        }
        self.note_pairs()
        memory = self.devices.coordinator
        using: dict[AgentKey, list[str]] = {}
        for key, held in memory.devices.items():
            for user in held.users:
                using.setdefault(user, []).append(key)
        assert memory.used_by == using
        users: dict[str, set[str]] = {}
        for agent in self.agents:
            for device in agent.using:
                known = users.setdefault(device.id, set())
                both = {*known, agent.pod}
                assert not known or both in self.pairs, f"{device.id} is used by {sorted(both)}"
                assert device.id in bound, f"{agent.pod} uses {device.id}, which no holder keeps"
                known.add(agent.pod)
        for name, found in self.cluster.nodes.items():
            used = sum(p.shape.gpus for p in self.cluster.pods.values() if p.phase.on_node and p.node == name)
            assert used <= found.allocatable[GPU], f"{name} holds {used} GPUs"
