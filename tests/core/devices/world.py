"""A small world around the Coordinator: holders on an API that compares versions, a network that loses, repeats and
reorders, leaders that follow each other, and agents that keep to the protocol of types/devices.py."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from muster.core.devices.agents import answer_to, heard
from muster.core.devices.coordinator import Assign, Clear, Coordinator
from muster.core.devices.hand_over import Decisions
from muster.core.devices.holders import cleared, holder_gone, holder_seen, recorded
from muster.core.devices.on_node import Want
from muster.core.devices.settled import Settled
from muster.types import JobKey
from muster.types.devices import AgentAnswer, AgentReport, AgentState, Device, plain_answer
from muster.types.holders import AssignHolder, ClearSeat, HolderRecord
from muster_report.agent.standing import Standing, read_answer
from tests.core.devices.alike import decided

LEASE, GRACE, KEEP = 60.0, 5.0, 10.0
SIZES = {"a": (1, 2, 4), "b": (1, 2, 3, 4), "c": (1, 2)}
"""By pod: numbers of devices that it can train on."""
DEVICES = 4
NODE = "n1"


@dataclass
class Agent:
    """One run of an agent: the rules are the real one's (agent/standing.py), its child takes a step at a time. using:
    devices of its child, with the epochs that it was told."""

    pod: str
    incarnation: str
    alive: bool = True
    using: frozenset[Device] = frozenset()
    stopping: bool = False

    def __post_init__(self) -> None:
        self.standing = Standing(self.incarnation)

    def report(self) -> AgentReport:
        running = AgentState.RUNNING if self.using else AgentState.READY
        state = AgentState.STOPPING if self.stopping else running
        devices = tuple(sorted(self.using))
        return AgentReport(self.incarnation, state, self.standing.done, devices, SIZES[self.pod])

    def take(self, answer: AgentAnswer, sent: float, now: float) -> None:
        """An answer to the request that was sent then."""
        if self.alive:
            self.standing = self.standing.heard(read_answer(plain_answer(answer)), sent, now)

    def step(self) -> None:
        """One step of carrying out what is wanted: stop the child, then start it on other devices."""
        order = self.standing.wanted
        if not self.alive or order is None:
            return
        wanted = frozenset(Device(*device) for device in order.devices)
        if self.using and self.using != wanted and not self.stopping:
            self.stopping = True
        elif self.stopping:
            self.stopping, self.using = False, frozenset()
        else:
            self.using, self.standing = wanted, self.standing.carried_out(order)

    def look(self, now: float) -> None:
        """Without a lease the child ends, and what was ordered is not started."""
        if now >= self.standing.until:
            self.using, self.stopping = frozenset(), False
            self.standing = self.standing.expired()

    def die(self) -> None:
        """Its container ends, and with it all of its processes."""
        self.alive, self.using, self.stopping = False, frozenset(), False


def with_record(record: HolderRecord, assign: Assign | AssignHolder | Clear | ClearSeat) -> HolderRecord:
    """A holder once that is written on it, as cluster/holders.py writes it."""
    if isinstance(assign, Clear | ClearSeat):
        none = {"second_epoch": 0, "second": None} if assign.second else {"epoch": 0, "agent": None}
        return replace(record, **none)  # type: ignore[arg-type]
    if assign.second:
        return replace(record, second_epoch=assign.epoch, second=assign.agent)
    if assign.clears:
        record = replace(record, second_epoch=0, second=None)
    return replace(record, epoch=assign.epoch, agent=assign.agent)


@dataclass
class World:
    """All of it. `fault` methods are what may go wrong."""

    now: float = 1000.0
    term: int = 0
    stored: dict[str, tuple[int, HolderRecord]] = field(default_factory=dict)
    history: list[HolderRecord] = field(default_factory=list)
    agents: list[Agent] = field(default_factory=list)
    wants: dict[str, int] = field(default_factory=dict)
    beside: dict[str, str] = field(default_factory=dict)
    pairs: set[frozenset[str]] = field(default_factory=set)
    requests: list[tuple[str, AgentReport, float]] = field(default_factory=list)
    answers: list[tuple[str, AgentAnswer, float]] = field(default_factory=list)
    writes: list[tuple[Coordinator, Assign | Clear, int]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.leader = self.lead()

    # ---- the leader ----

    def lead(self) -> Coordinator:
        """A new leader: it lists holders afresh, and knows nothing else."""
        self.term += 1
        self.leader = Coordinator(self.term, self.now, LEASE, GRACE, KEEP)
        self.versions: dict[str, int] = {}
        self.settled: dict[str, Settled] = {}
        for uid in self.stored:
            self.watch(uid)
        return self.leader

    def watch(self, uid: str) -> None:
        """The leader sees a holder as it is."""
        version, record = self.stored[uid]
        self.versions[uid] = version
        holder_seen(self.leader, record, self.now)

    def decide(self) -> Decisions:
        wants = [
            Want(JobKey("team", pod), pod, NODE, count, SIZES[pod], beside=self.beside.get(pod, ""))
            for pod, count in sorted(self.wants.items())
        ]
        self.pairs |= {frozenset(pair) for pair in self.beside.items()}
        found = decided(self.leader, wants, self.now, settled=self.settled)
        writes = (*found.assigns, *found.clears)
        self.writes += [(self.leader, write, self.versions[write.holder]) for write in writes]
        return found

    def land(self, at: int, *, answered: bool) -> None:
        """A write reaches the API, which compares the version; the leader that sent it may hear of it."""
        leader, assign, version = self.writes.pop(at)
        known = self.stored.get(assign.holder)
        written = known is not None and known[0] == version
        if written and known is not None:
            record = with_record(known[1], assign)
            self.stored[assign.holder] = (version + 1, record)
            self.history.append(record)
        if leader is self.leader:
            if isinstance(assign, Assign):
                recorded(leader, assign, self.now, written=written and answered)
            elif written and answered:
                cleared(leader, assign.key)
            if written and answered:
                self.versions[assign.holder] = version + 1

    def make_holder(self, device: str) -> None:
        self.made += 1
        uid = f"holder-{self.made}"
        self.stored[uid] = (1, HolderRecord(uid, NODE, device))
        self.watch(uid)

    def set_health(self, uid: str, *, healthy: bool) -> None:
        version, record = self.stored[uid]
        self.stored[uid] = (version + 1, replace(record, healthy=healthy))
        self.watch(uid)

    def carry_out(self, found: Decisions) -> None:
        """Holders are made and go."""
        free = [f"GPU-{n}" for n in range(DEVICES)]
        free = [device for device in free if all(r.device != device for _, r in self.stored.values())]
        for device in free[: found.create.get(NODE, 0)]:
            self.make_holder(device)
        for uid in found.leave:
            self.stored.pop(uid, None)
            holder_gone(self.leader, uid, self.now)

    # ---- agents ----

    def start_agent(self, pod: str) -> None:
        """The pod's container starts, again where it ran: nothing of an earlier one is left."""
        for agent in self.living(pod):
            agent.die()
        self.agents.append(Agent(pod, f"{pod}-{len(self.agents)}"))

    def living(self, pod: str) -> list[Agent]:
        return [agent for agent in self.agents if agent.pod == pod and agent.alive]

    def ask(self, agent: Agent) -> None:
        if agent.alive:
            self.requests.append((agent.pod, agent.report(), self.now))

    def receive(self, at: int, *, again: bool = False) -> None:
        """A request reaches the leader, which answers."""
        pod, report, sent = self.requests[at] if again else self.requests.pop(at)
        agent = heard(self.leader, pod, report, self.now)
        if agent is not None:
            agent = self.leader.agents[agent.key]
            self.answers.append((report.incarnation, answer_to(self.leader, agent), sent))

    def deliver(self, at: int, *, again: bool = False) -> None:
        """An answer reaches its agent."""
        incarnation, answer, sent = self.answers[at] if again else self.answers.pop(at)
        for agent in self.agents:
            if agent.incarnation == incarnation:
                agent.take(answer, sent, self.now)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for agent in self.agents:
            agent.look(self.now)

    # ---- what must hold ----

    def shared(self) -> list[str]:
        """Devices that two use."""
        return sorted(device for device, users in self.in_use().items() if len(users) > 1)

    def in_use(self) -> dict[str, list[str]]:
        """Incarnations by the device that their child uses."""
        users: dict[str, list[str]] = {}
        for agent in self.agents:
            for device in agent.using:
                users.setdefault(device.id, []).append(agent.incarnation)
        return users

    def check(self) -> None:
        """No device is used by two that never were to be a pair."""
        for device, users in self.in_use().items():
            pods = frozenset(user.split("-")[0] for user in users)
            assert len(users) == 1 or (len(users) == len(pods) == 2 and pods in self.pairs), (
                f"{device} is used by {users}"
            )

    def calm(
        self, seconds: int, cut: frozenset[str] = frozenset(), slow: frozenset[str] = frozenset()
    ) -> None:
        """Everything gets through, once a second; not of pods that are cut off, and agents of slow ones do nothing
        but ask."""
        for _ in range(seconds):
            self.pass_time(1.0)
            for agent in self.agents:
                if agent.pod not in cut:
                    self.ask(agent)
            late = [request for request in self.requests if request[0] in cut]
            self.requests = [request for request in self.requests if request[0] not in cut]
            while self.requests:
                self.receive(0)
            self.requests = late
            self.carry_out(self.decide())
            while self.writes:
                self.land(0, answered=True)
            for uid in list(self.stored):
                self.watch(uid)
            self.carry_out(self.decide())
            while self.writes:
                self.land(0, answered=True)
            off = {agent.incarnation for agent in self.agents if agent.pod in cut}
            late_answers = [answer for answer in self.answers if answer[0] in off]
            self.answers = [answer for answer in self.answers if answer[0] not in off]
            while self.answers:
                self.deliver(0)
            self.answers = late_answers
            for agent in self.agents:
                for _ in range(0 if agent.pod in slow else 3):
                    agent.step()
                    self.check()
