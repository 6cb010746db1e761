# Over 300 lines: it has a way to each transition of the table.
"""How each usual transition of a job's state comes about, and a crash around each of its requests.

The table is core/actions/transitions.py; the next leader comes to the same end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from muster.core.actions.transitions import NEW, TRANSITIONS, JobEvent, event_of
from muster.core.state.quarantine import set_aside
from muster.points import Profile
from muster.types import Evict, JobKey, Phase, PodRecord, State
from muster_plugins.max_min import MaxMin
from tests.cluster_fake import FakeCluster, Muster
from tests.table_of_states import states, under_way

E = JobEvent
MAX_MIN = Profile(name="max-min", shares=(MaxMin(),), conserving=True)


class Scene:
    """A cluster and its Muster, up to the cycle that finds the event."""

    def __init__(self, profile: Profile | None = None, nodes: int = 2) -> None:
        self.cluster = FakeCluster(nodes, gpus=4)
        self.profile = profile or Profile()
        self.muster = Muster(self.cluster, self.profile)

    def comes(
        self, name: str = "a", size: int = 2, gpus: int = 4, *, priority: int = 0, **notes: str
    ) -> Scene:
        """A Job of so many pods, known for long enough that its state is worth a write."""
        self.cluster.job(name, size, gpus, priority=priority, **notes)
        return self.later()

    def runs(self, name: str = "a", size: int = 2, gpus: int = 4, **notes: str) -> Scene:
        """A Job of which every pod is bound, or waits for room."""
        return self.comes(name, size, gpus, **notes).settled()

    def half(self, *pods: str) -> Scene:
        """Bare pods of the gang b, which is of two."""
        for pod in pods:
            self.cluster.bare(pod, "b", 4, roles="worker=2")
        return self.later()

    def has(self, replicas: int, exist: int | None = None) -> Scene:
        """The StatefulSet b wants so many."""
        owner = next((r.owner for r in self.cluster.owners.values() if r.owner.kind == "StatefulSet"), None)
        if owner is None:
            self.cluster.stateful_set("b", replicas, 4, exist=exist)
        else:
            self.cluster.scale(owner, replicas, 4, exist=exist)
        return self.later()

    def later(self, seconds: float = 3.0) -> Scene:
        self.cluster.now += seconds
        return self

    def settled(self) -> Scene:
        self.muster.settle()
        return self

    def turns(self, count: int) -> Scene:
        """Cycles without a bind."""
        for _ in range(count):
            self.muster.turn()
        return self

    def pods(self, name: str, phase: Phase | None = None) -> list[PodRecord]:
        found = [pod for pod in self.cluster.pods.values() if pod.name.startswith(f"{name}-")]
        return [pod for pod in found if phase in (None, pod.phase)]

    def each(self, name: str, **changes: Any) -> Scene:
        """All pods of a job change."""
        for pod in self.pods(name):
            self.cluster.update(pod, **changes)
        return self

    def first(self, name: str, **changes: Any) -> Scene:
        self.cluster.update(self.pods(name)[0], **changes)
        return self

    def bound(self, *pods: PodRecord) -> Scene:
        """kube-scheduler binds these and no others."""
        for pod in pods:
            self.cluster.update(pod, phase=Phase.BOUND, node=pod.pin)
        return self

    def ends(self, name: str) -> Scene:
        return self.each(name, phase=Phase.SUCCEEDED)

    def deleted(self, *pods: PodRecord, again: bool = True) -> Scene:
        """again: their owner makes them again."""
        for pod in pods:
            self.cluster.delete(pod.uid) if again else self.cluster.pods.pop(pod.uid)
        return self

    def suspended(self, name: str, suspended: bool = True) -> Scene:
        for uid, record in self.cluster.owners.items():
            if record.owner.name == name:
                self.cluster.owners[uid] = replace(record, suspended=suspended)
        return self

    def cordoned(self, *nodes: str) -> Scene:
        for name in nodes:
            self.cluster.nodes[name] = replace(self.cluster.nodes[name], unschedulable=True)
        return self

    def gone(self, node: str) -> Scene:
        del self.cluster.nodes[node]
        return self

    def put_aside(self, name: str) -> Scene:
        key = next(key for key in self.muster.ledger.entries if key.name == f"job-{name}")
        set_aside(self.muster.ledger, key, "plan", ValueError("a fault of ours"), self.cluster.now)
        return self


def shared(nodes: int = 1) -> Scene:
    return Scene(MAX_MIN, nodes)


def lent() -> Scene:
    """b has two of four GPUs and may have three; a, which has the others, ends."""
    return shared().runs("a", 2, 1).runs("b", 3, 1, min_replicas="1").ends("a")


def started() -> Scene:
    """Both gates of a are off, and nothing is bound."""
    return Scene(nodes=3).comes().turns(2)


NONSENSE = {"muster.dev/sizes": "nonsense"}
SCENES: dict[tuple[str, JobEvent], Callable[[], Scene]] = {
    (NEW, E.PODS_MISSING): lambda: Scene().half("b-0"),
    (State.WAITING, E.PODS_MISSING): lambda: _waits_half(),
    (State.FINISHED, E.PODS_MISSING): lambda: Scene().has(2).settled().has(0).settled().has(2, exist=1),
    (NEW, E.OTHER_GATE): lambda: Scene().comes().first("a", phase=Phase.HELD),
    (State.INCOMPLETE, E.OTHER_GATE): lambda: (
        Scene().half("b-0").settled().half("b-1").first("b", phase=Phase.HELD)
    ),
    (State.WAITING, E.OTHER_GATE): lambda: Scene().runs().runs("b").first("b", phase=Phase.HELD),
    (NEW, E.QUEUED): lambda: Scene().runs().comes("b"),
    (State.INCOMPLETE, E.QUEUED): lambda: Scene().runs().half("b-0").settled().half("b-1"),
    (State.STARTING, E.QUEUED): lambda: Scene(Profile(carried=0)).comes().turns(1).cordoned("n0"),
    (State.RUNNING, E.QUEUED): lambda: _all_lost(),
    (State.SUSPENDED, E.QUEUED): lambda: (
        Scene().runs().comes("b").suspended("b").settled().suspended("b", False)
    ),
    (State.INVALID, E.QUEUED): lambda: Scene().runs().runs("b", sizes="nonsense").each("b", annotations={}),
    (NEW, E.NO_SHARE): lambda: shared().runs("a", 4, 1).comes("b", 4, 1),
    (State.INCOMPLETE, E.NO_SHARE): lambda: shared(2).runs().half("b-0").settled().half("b-1"),
    (State.STARTING, E.PLACE_REFUSED): lambda: _bare_on_a_cordoned_node().turns(1),
    (State.STARTING, E.SENT_BACK): lambda: _half_bound().turns(1).later(121.0),
    (State.RUNNING, E.PREEMPTED): lambda: Scene(Profile(preemption=True)).runs().comes("b", priority=9),
    (State.WAITING, E.RELEASED): lambda: Scene().runs().runs("b").each("b", phase=Phase.RELEASED),
    (State.WAITING, E.RELEASED_STARTS): lambda: _released_of_which_one_is_bound(),
    (NEW, E.PLACED): lambda: Scene().comes(),
    (State.INCOMPLETE, E.PLACED): lambda: Scene().half("b-0").settled().half("b-1"),
    (State.WAITING, E.PLACED): lambda: Scene().runs().runs("b").ends("a"),
    (State.RUNNING, E.PLACED): lambda: _one_lost(Scene(nodes=3).runs()),
    (State.RESIZING, E.PLACED): lambda: _all_lost_while_it_grows(),
    (State.RUNNING, E.NO_PLACE): lambda: _one_lost_with_its_node(),
    (State.STARTING, E.PIN_REFUSED): lambda: _pinned_on_a_node_that_is_gone(),
    (State.RUNNING, E.OWNER_AWAITED): lambda: _one_lost(Scene().runs(), again=False),
    (State.STARTING, E.OWNER_AWAITED): lambda: _one_missing(),
    (State.STARTING, E.WHOLE): lambda: _bound(started()),
    (State.RESIZING, E.WHOLE): lambda: _bound(lent().turns(3)),
    (State.INVALID, E.WHOLE): lambda: (
        Scene().runs().each("a", annotations=NONSENSE).settled().each("a", annotations={})
    ),
    (State.RUNNING, E.GROWS): lent,
    (State.STARTING, E.GROWS): lambda: _minimum_bound(),
    (State.RUNNING, E.SHRINKS): lambda: (
        shared().runs("a", 4, 1, min_replicas="1").comes("b", 4, 1, min_replicas="1")
    ),
    (State.WAITING, E.SUSPENDED): lambda: Scene().runs().runs("b").suspended("b"),
    (State.RUNNING, E.SUSPENDED): lambda: _all_gone(Scene().runs().suspended("a")),
    (State.WAITING, E.ENDED): lambda: Scene().runs().has(2).settled().has(0),
    (State.RUNNING, E.ENDED): lambda: Scene().runs().ends("a"),
    (NEW, E.REJECTED): lambda: Scene().comes(sizes="nonsense"),
    (State.INCOMPLETE, E.REJECTED): lambda: Scene().half("b-0").settled().each("b", annotations=NONSENSE),
    (State.WAITING, E.REJECTED): lambda: Scene().runs().runs("b").each("b", annotations=NONSENSE),
    (State.STARTING, E.REJECTED): lambda: started().each("a", annotations=NONSENSE),
    (State.RUNNING, E.REJECTED): lambda: Scene().runs().each("a", annotations=NONSENSE),
    (State.WAITING, E.PUT_ASIDE): lambda: Scene().runs().runs("b").put_aside("b"),
    (State.RUNNING, E.PUT_ASIDE): lambda: Scene().runs().put_aside("a"),
}
"""Every usual transition: the next cycle finds the event in that state."""


def _waits_half() -> Scene:
    scene = Scene().runs().half("b-0", "b-1").settled()
    return scene.deleted(scene.pods("b")[0], again=False).later()


def _released_of_which_one_is_bound() -> Scene:
    scene = Scene(nodes=3).runs().runs("b").each("b", phase=Phase.RELEASED).turns(1)
    return scene.first("b", phase=Phase.BOUND, node="n2")


def _all_lost() -> Scene:
    scene = Scene().runs().cordoned("n0")
    return scene.deleted(*scene.pods("a"))


def _one_lost(scene: Scene, *, again: bool = True) -> Scene:
    return scene.deleted(scene.pods("a")[0], again=again)


def _one_missing() -> Scene:
    scene = Scene().has(2).turns(2)
    return scene.deleted(scene.pods("b")[0], again=False).bound(*scene.pods("b"))


def _all_gone(scene: Scene) -> Scene:
    return scene.deleted(*scene.pods("a"), again=False)


def _bare_on_a_cordoned_node() -> Scene:
    return Scene().half("b-0", "b-1").turns(2).cordoned("n0", "n1")


def _half_bound() -> Scene:
    scene = started()
    return scene.bound(scene.pods("a")[0])


def _all_lost_while_it_grows() -> Scene:
    scene = lent().turns(1)
    return scene.deleted(*scene.pods("b", Phase.BOUND))


def _one_lost_with_its_node() -> Scene:
    scene = Scene().runs()
    pod = scene.pods("a")[0]
    return scene.gone(pod.node).deleted(pod)


def _pinned_on_a_node_that_is_gone() -> Scene:
    scene = started()
    return scene.gone(scene.pods("a")[0].pin)


def _bound(scene: Scene) -> Scene:
    scene.cluster.bind()
    return scene


def _minimum_bound() -> Scene:
    scene = Scene().comes("a", 4, 2, min_replicas="2").turns(2)
    return scene.bound(*scene.pods("a")[:2])


def _found(scene: Scene, before: Mapping[JobKey, str]) -> set[tuple[str, JobEvent]]:
    return {(before.get(key, NEW), event_of(status)) for key, status in scene.muster.plan.statuses.items()}


def the_end(scene: Scene, muster: Muster) -> tuple[object, ...]:
    """What has become of everything once all clocks have run down."""
    for seconds in (0.1, 12.0, 0.1, 130.0, 0.1, 130.0):
        muster.settle(20, seconds)
        scene.cluster.now += 1.0
    cluster = scene.cluster
    return (
        {key.name: status.state for key, status in muster.plan.statuses.items()},
        {name[1]: gang.state for name, gang in cluster.gangs.items()},
        Counter((pod.name.split("-")[0], pod.phase) for pod in cluster.pods.values() if not pod.phase.ended),
        under_way(muster.ledger),
    )


def evictions(scene: Scene) -> int:
    return sum(isinstance(action, Evict) for action in scene.cluster.sent)


def test_every_usual_transition_has_a_scene() -> None:
    assert SCENES.keys() == {pair for pair, found in TRANSITIONS.items() if found.usual}


@pytest.mark.parametrize(
    ("state", "event"), SCENES, ids=[f"{state or 'New'} {event}" for state, event in SCENES]
)
def test_a_usual_transition_is_found_and_a_crash_around_any_request_of_it_comes_to_the_same_end(
    state: str, event: JobEvent
) -> None:
    scene = SCENES[state, event]()
    before = states(scene.muster.ledger)
    requests = scene.muster.turn()
    assert (state, event) in _found(scene, before)
    scene.cluster.bind()
    expected = the_end(scene, scene.muster)
    evicted = evictions(scene)
    for step in range(requests + 1):
        again = SCENES[state, event]()
        again.muster.turn(die_after=step)
        again.cluster.bind()
        until = evictions(again)
        assert the_end(again, Muster(again.cluster, again.profile)) == expected, f"after {step} requests"
        assert evictions(again) - until <= evicted, f"the successor, after {step} requests"
