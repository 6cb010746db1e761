# Over 300 lines: each object that is drawn goes through every room of Muster.
"""Whatever the API server takes breaks nothing: through decoding, Ledger, cycle, Guard, View, pages and metrics.

And it changes nothing for others: the plan of a tenant is the same with and without another tenant's objects that can
never start. MUSTER_FUZZ=N draws N examples of each with a seed of its own, which is printed.
"""

from __future__ import annotations

import json
import os
import pickle
import random
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from muster import profiles
from muster.cluster import action_bodies, api_types, decode
from muster.cluster.resources import watched
from muster.core import snapshot_codec
from muster.core.ledger import Ledger
from muster.core.views import cluster_view, job_status
from muster.core.views.extender_rules import ExtenderRules
from muster.core.views.view import Board, View
from muster.core.views.view_changes import NOTHING, Copy, changes
from muster.points import Profile
from muster.server.answering import pack
from muster.server.metrics import ViewCollector
from muster.server.resize_metrics import Resizes
from muster.types import (
    GATE,
    GPU,
    Action,
    Event,
    Expose,
    GangSeen,
    LearnedSeen,
    NodeSeen,
    Outcome,
    Plan,
    PodGone,
    Reason,
    RecordEvent,
    Reported,
    State,
    Ungate,
    WriteGang,
)
from tests.anything import NODES, UIDS, Json, Maker
from tests.cluster_fake import node
from tests.server.reading import as_verbs_read

LONG_RUN = int(os.environ.get("MUSTER_FUZZ", "0"))
SEED = random.randrange(1 << 32) if LONG_RUN else 0
if LONG_RUN:
    print(f"MUSTER_FUZZ: seed {SEED}")
PROFILES = [  # as they are on a cluster: no GPU idles for a job that can't take it
    profiles.build("fifo"),
    *(replace(profiles.build(name), conserving=True) for name in ("max-min", "afs-l")),
]
FUZZ = settings(
    max_examples=LONG_RUN or 25,
    derandomize=not LONG_RUN,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
RESOURCES = {resource.name: resource for resource in watched("muster")}
NOW = 1_795_377_600.0  # 2026-11-22T20:00:00Z


def told(name: str, found: Json, version: int) -> tuple[str, Event]:
    """The event of an object as the watch of `name` sends it."""
    body = {**found, "metadata": {**found["metadata"], "resourceVersion": str(version)}}
    line = json.dumps({"type": "MODIFIED", "object": body}).encode()
    return RESOURCES[name].decode(msgspec.json.decode(line, type=api_types.WatchEvent).object)


class World:
    """A Ledger, and everybody who reads what it leaves."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.ledger = Ledger(profile)
        self.board = Board(NOTHING)
        self.registry = CollectorRegistry()
        self.registry.register(ViewCollector(self.board))
        self.resizes = Resizes(self.registry)
        self.now = NOW
        self.version = 1
        self.plan = Plan()
        self.guard: ExtenderRules | None = None
        self.copy = Copy()
        for number, name in enumerate(NODES):
            self.ledger.apply(NodeSeen(node(name, 8, rack="ab"[number % 2])), self.now)
        self.ledger.take_over(self.now)

    def see(self, name: str, found: Json) -> str:
        self.version += 1
        identity, event = told(name, found, self.version)
        self.ledger.apply(event, self.now)
        return identity

    def turn(self, seconds: float = 0.1, answer: int = 200) -> tuple[Action, ...]:
        """One cycle; the API answers each action so, and everybody reads."""
        self.now += seconds
        snapshot = self.ledger.snapshot(self.now)
        self.plan = self.ledger.plan(snapshot)
        actions = self.ledger.adopt(snapshot, self.plan)
        self.read(self.ledger.view(snapshot, self.plan, leading=True, synced=True))
        for action in actions:
            self.send(action, answer)
        for action in self.ledger.proceed(self.now):
            self.send(action, answer)
        for fault in self.ledger.take_faults():
            raise fault.error
        return actions

    def send(self, action: Action, answer: int) -> None:
        match action:
            case Ungate():
                json.loads(action_bodies.ungate_patch(action))
            case Expose():
                json.dumps(action_bodies.expose_patch(action), allow_nan=False)
            case RecordEvent():
                json.dumps(action_bodies.event_object(action), allow_nan=False).encode()
            case WriteGang():
                written = json.dumps(action_bodies.gang_object(action), allow_nan=False).encode()
                json.dumps(action_bodies.gang_patch(action), allow_nan=False)
                assert len(written) < 1 << 20
                gang = decode.gang(written)
                if answer == 200:
                    self.version += 1
                    gang = replace(gang, object_uid=f"made-{gang.name}", version=str(self.version))
                    self.ledger.apply(GangSeen(gang), self.now)
        self.ledger.apply(Outcome(action, answer), self.now)

    def read(self, view: View) -> None:
        """The verbs and the process that answers them, the pages, the metrics and the dump."""
        for part in changes(self.board.view, view):
            self.copy.take(pickle.loads(pack(part)))
        assert as_verbs_read(self.copy.view()) == as_verbs_read(view)
        self.board.view = view
        self.guard = ExtenderRules(view, self.guard)
        for uid in UIDS:
            self.guard.passes(uid, [*NODES, "nowhere"])
            self.guard.scores(uid, [*NODES, "nowhere"])
        self.guard.spared({"n0": UIDS})
        for sees in (lambda _: True, lambda space: space == "team"):
            msgspec.json.encode(cluster_view.cluster(view, sees, None, self.now))
            msgspec.json.encode([job_status.item(one) for one in job_status.standings(view, sees)])
            for key in [key for key in view.snapshot.jobs if sees(key.namespace)]:
                msgspec.json.encode(cluster_view.job(view, sees, key, self.now))
        self.resizes.look(view)
        generate_latest(self.registry)
        json.dumps(snapshot_codec.dump(view), allow_nan=False)


@seed(SEED)
@FUZZ
@given(profile=st.sampled_from(PROFILES), seeds=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=40))
def test_nothing_that_the_api_server_takes_raises_anywhere(profile: Profile, seeds: list[int]) -> None:
    world = World(profile)
    for number in seeds:
        kind, what = Maker(number).step()
        match kind:
            case "turn":
                world.turn(*what)
            case "report":
                world.ledger.apply(Reported(*what), world.now)
            case "gone":
                world.ledger.apply(PodGone(what), world.now)
            case "learned":
                world.ledger.apply(LearnedSeen(what), world.now)
            case _:
                world.see(kind, what)
    world.turn(6.0)
    world.turn(40.0)


# ---- nobody else's plan changes ----


def gang(name: str, replicas: int, gpus: int, created: int, namespace: str, **more: Any) -> list[Json]:
    """Gated pods of a job that names its size, as they are first seen; more: notes, spec, requests."""
    notes = {"muster.dev/roles": f"worker={more.get('declared', replicas)}", **more.get("notes", {})}
    requests = {"cpu": "1", GPU: str(gpus), **more.get("requests", {})}
    return [
        {
            "metadata": {
                "uid": f"{name}-{index}",
                "name": f"{name}-{index}",
                "namespace": namespace,
                "creationTimestamp": f"2026-11-22T19:{created // 60:02d}:{created % 60:02d}Z",
                "labels": {"muster.dev/job": name},
                "annotations": notes,
            },
            "spec": {
                "schedulerName": "muster",
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                "schedulingGates": [{"name": GATE}],
                **more.get("spec", {}),
            },
        }
        for index in range(replicas)
    ]


NEVER: dict[str, Json] = {
    "asks for 10P of CPU": {"requests": {"cpu": "10P"}},
    "asks for 14Ei of memory": {"requests": {"memory": "14Ei"}},
    "asks for 9e18 GPUs": {"requests": {GPU: "9000000000000000000"}},
    "asks for more GPUs than a node has": {"requests": {GPU: "9"}},
    "asks for what no node has": {"requests": {"example.com/none": "1"}},
    "asks for more CPU than a node has": {"requests": {"cpu": "97"}},
    "has a typing error in its selector": {"spec": {"nodeSelector": {"rakc": "a"}}},
    "contradicts itself": {"notes": {"muster.dev/min-replicas": "3", "muster.dev/max-replicas": "2"}},
    "is incomplete": {"declared": 40},
    "is larger than may be": {"notes": {"muster.dev/max-replicas": "99999"}},
    "has too many roles": {"notes": {"muster.dev/roles": ",".join(f"r{i}=1" for i in range(20_000))}},
    "has a topology that no node has": {"notes": {"muster.dev/topology-required": "no-such-level"}},
    "takes for ever": {"declared": 40, "notes": {"muster.dev/remaining-work": "999999999999"}},
}
tenants = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4, 8]), st.integers(0, 900), st.booleans()),
    min_size=1,
    max_size=4,
)
attackers = st.lists(
    st.tuples(
        st.sampled_from(sorted(NEVER)),
        st.integers(1, 4),
        st.integers(0, 900),
        st.sampled_from([-5, 0, 1_000_000]),
    ),
    min_size=1,
    max_size=6,
)


def planned(profile: Profile, jobs: list[list[Json]], namespace: str) -> dict[str, object]:
    """After a few turns in which what is ungated is bound: state, code and places of a namespace's jobs."""
    world = World(profile)
    pods = {one["metadata"]["uid"]: one for each in jobs for one in each}
    for one in pods.values():
        world.see("pods", one)
    for _ in range(5):
        for action in world.turn(6.0):
            if isinstance(action, Ungate):
                spec = {k: v for k, v in pods[action.uid]["spec"].items() if k != "schedulingGates"}
                pods[action.uid] = {**pods[action.uid], "spec": {**spec, "nodeName": action.node}}
                world.see("pods", pods[action.uid])
    found: dict[str, object] = {}
    for key, status in world.plan.statuses.items():
        job = world.ledger.jobs[key]
        if key.namespace == namespace:
            places = sorted((m.pod, m.node) for role in job.roles for m in role.on)
            found[key.name] = status.state, status.reason, places
        else:
            assert not job.running, f"{key} can never start, and runs"
    order = [key.name for key in world.plan.order if key.namespace == namespace]
    return found | {"order": order}


@seed(SEED)
@FUZZ
@given(profile=st.sampled_from(PROFILES), tenant=tenants, attacker=attackers)
def test_the_plan_of_a_tenant_is_the_same_without_the_objects_of_another_that_can_never_start(
    profile: Profile, tenant: list[tuple[int, int, int, bool]], attacker: list[tuple[str, int, int, int]]
) -> None:
    ours = [
        gang(
            f"b{n}", replicas, gpus, created, "team", notes={"muster.dev/min-replicas": "1"} if grows else {}
        )
        for n, (replicas, gpus, created, grows) in enumerate(tenant)
    ]
    theirs = []
    for n, (how, replicas, created, priority) in enumerate(attacker):
        more = dict(NEVER[how])
        more["spec"] = {**more.get("spec", {}), "priority": priority}
        theirs.append(gang(f"a{n}", replicas, 1, created, "attacker", **more))
    assert planned(profile, [*theirs, *ours], "team") == planned(profile, ours, "team")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.name)
def test_each_of_them_says_why_it_never_starts(profile: Profile) -> None:
    world = World(profile)
    for n, how in enumerate(sorted(NEVER)):
        for one in gang(f"a{n}", 1, 1, 0, "attacker", **NEVER[how]):
            world.see("pods", one)
    world.turn(6.0)
    world.turn(6.0)
    for n, how in enumerate(sorted(NEVER)):
        status = next(s for k, s in world.plan.statuses.items() if k.name == f"a{n}")
        assert status.state in (State.INVALID, State.INCOMPLETE, State.WAITING), how
        assert status.reason in (Reason.INVALID, Reason.PODS_MISSING, Reason.NEVER_FITS), (how, status)
