# Over 300 lines: it plays the whole API server, scheduler and owners for unit tests.
"""A cluster in memory, at the cluster seam: it takes Actions and answers with Events, as `cluster/` does.

Fakes exist in unit tests only; every scenario here has its twin on the real control plane in e2e/.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from muster.cluster import decode_pods
from muster.cluster.quantities import seconds
from muster.core.gang_object import gang_codec
from muster.core.ledger import Ledger
from muster.core.views.job_status import turns
from muster.core.views.view import View
from muster.core.workload.owners import watched
from muster.points import Profile
from muster.types import (
    GPU,
    Action,
    Condition,
    CreateProvisioningRequest,
    DeleteGang,
    DeleteProvisioningRequest,
    Event,
    Evict,
    Expose,
    GangGone,
    GangRecord,
    GangSeen,
    JobKey,
    NodeGone,
    NodeRecord,
    NodeSeen,
    Nominate,
    Outcome,
    Owner,
    OwnerGone,
    OwnerRecord,
    OwnerSeen,
    Phase,
    Plan,
    PodGone,
    PodRecord,
    PodSeen,
    RecordEvent,
    Recreation,
    Reservation,
    RestoreFinalizer,
    Shape,
    Step,
    TurnsSeen,
    Ungate,
    WriteGang,
    WriteLearned,
)
from tests.table_of_states import obeys, states


def node(name: str, gpus: int = 8, **labels: str) -> NodeRecord:
    """A node of 96 cpu, 1Ti and some GPUs."""
    return NodeRecord(
        name,
        labels={"kubernetes.io/hostname": name, **{k.replace("__", "/"): v for k, v in labels.items()}},
        allocatable={GPU: gpus, "cpu": 96_000, "memory": 1 << 40, "pods": 110},
    )


class FakeCluster:
    """Pods, nodes and Gangs, a kube-scheduler that binds pinned pods, and owners that re-create pods."""

    def __init__(self, nodes: int = 2, gpus: int = 8) -> None:
        self.now = 1_000_000.0
        self.version = 1
        self.nodes = {f"n{i}": node(f"n{i}", gpus) for i in range(nodes)}
        self.pods: dict[str, PodRecord] = {}
        self.gangs: dict[tuple[str, str], GangRecord] = {}
        self.owners: dict[str, OwnerRecord] = {}
        self.said: list[RecordEvent] = []
        self.requests: set[str] = set()
        self.sent: list[Action] = []
        self.counts = {"gang-writes": 0, "patches": 0}
        self._made = 0

    def tick(self) -> str:
        self.version += 1
        return str(self.version)

    # ---- what users and owners do ----

    def job(
        self,
        name: str,
        replicas: int,
        gpus: int = 1,
        *,
        exist: int | None = None,
        namespace: str = "team",
        priority: int = 0,
        **annotations: str,
    ) -> list[PodRecord]:
        """A Job of `replicas` pods, of which the first `exist` are created now."""
        owner = Owner("batch/v1", "Job", name, f"job-{namespace}-{name}-{self.tick()}")
        self.owners[owner.uid] = OwnerRecord(owner, namespace, size=replicas, completions=replicas)
        count = replicas if exist is None else exist
        return [self.pod(owner, i, gpus, namespace, priority, annotations) for i in range(count)]

    def stateful_set(
        self, name: str, replicas: int, gpus: int = 1, *, exist: int | None = None, **annotations: str
    ) -> Owner:
        """A StatefulSet of `replicas` pods, of which the first `exist` are created now."""
        owner = Owner("apps/v1", "StatefulSet", name, f"set-{name}-{self.tick()}")
        self.owners[owner.uid] = OwnerRecord(owner, "team")
        self.scale(owner, replicas, gpus, exist=exist, **annotations)
        return owner

    def scale(
        self, owner: Owner, replicas: int, gpus: int = 1, *, exist: int | None = None, **annotations: str
    ) -> None:
        """Its owner wants so many: those that are missing are created, those beyond it deleted."""
        self.owners[owner.uid] = replace(self.owners[owner.uid], size=replicas)
        mine = [p for p in self.pods.values() if p.controller == owner]
        for pod in mine[replicas:]:
            del self.pods[pod.uid]
        for index in range(len(mine), replicas if exist is None else exist):
            self.pod(owner, index, gpus, annotations=annotations)

    def bare(
        self, name: str, job: str, gpus: int = 1, namespace: str = "team", **annotations: str
    ) -> PodRecord:
        """A pod without an owner that names its job by label."""
        return self._add(
            PodRecord(
                uid=f"uid-{name}-{self.tick()}",
                namespace=namespace,
                name=name,
                created=self.now,
                shape=Shape(requests=(("cpu", 1000), (GPU, gpus))),
                labels={"muster.dev/job": job},
                annotations={f"muster.dev/{k.replace('_', '-')}": v for k, v in annotations.items()},
            )
        )

    def pod(
        self,
        owner: Owner,
        index: int,
        gpus: int = 1,
        namespace: str = "team",
        priority: int = 0,
        annotations: dict[str, str] | None = None,
    ) -> PodRecord:
        """One gated pod of an owner."""
        self._made += 1
        notes = {f"muster.dev/{k.replace('_', '-')}": v for k, v in (annotations or {}).items()}
        return self._add(
            PodRecord(
                uid=f"uid-{owner.name}-{index}-{self._made}",
                namespace=namespace,
                name=f"{owner.name}-{index}-{self._made}",
                created=self.now,
                shape=Shape(requests=(("cpu", 1000), (GPU, gpus))),
                priority=priority,
                controller=owner,
                labels={"batch.kubernetes.io/job-completion-index": str(index)},
                annotations=notes,
                tracked=True,
            )
        )

    def _add(self, pod: PodRecord) -> PodRecord:
        return self.update(pod)

    def update(self, pod: PodRecord, **changes: object) -> PodRecord:
        """The pod as the watch would show it. AssertionError where a label is one that the watch's decoder drops."""
        pod = replace(pod, version=self.tick(), **changes)  # type: ignore[arg-type]
        assert pod.labels.keys() <= decode_pods.LABELS, f"not decoded: {pod.labels}"
        self.pods[pod.uid] = pod
        return pod

    def end(self, uid: str, phase: Phase = Phase.SUCCEEDED) -> None:
        """A pod ends; a failed one of an owner is re-created."""
        pod = self.update(self.pods[uid], phase=phase)
        if phase is Phase.FAILED and pod.controller is not None:
            self.recreate(pod)

    def delete(self, uid: str) -> None:
        """A pod is gone; its owner re-creates it."""
        pod = self.pods.pop(uid)
        if pod.controller is not None and pod.controller.uid in self.owners and not pod.phase.ended:
            self.recreate(pod)

    def recreate(self, pod: PodRecord) -> None:
        assert pod.controller is not None
        index = int(pod.labels["batch.kubernetes.io/job-completion-index"])
        notes = {k.removeprefix("muster.dev/"): v for k, v in pod.annotations.items()}
        made = self.pod(pod.controller, index, pod.shape.gpus, pod.namespace, pod.priority, notes)
        if pod.labels != made.labels:
            self.update(made, labels=pod.labels)

    # ---- kube-scheduler ----

    def bind(self) -> int:
        """Bind ungated pods whose pinned (or nominated) node is there and has room; refuse the others."""
        bound = 0
        for pod in list(self.pods.values()):
            if pod.phase is not Phase.UNGATED:
                continue
            where = pod.pin or pod.nominated
            found = self.nodes.get(where)
            if found is None or found.unschedulable:
                self.update(pod, refusal="0/1 nodes are available")
                continue
            used = sum(p.shape.gpus for p in self.pods.values() if p.node == where and not p.phase.ended)
            if used + pod.shape.gpus > found.allocatable[GPU]:
                self.update(pod, refusal="Insufficient nvidia.com/gpu")
                continue
            self.update(pod, phase=Phase.BOUND, node=where, refusal="")
            bound += 1
        return bound

    # ---- the API server ----

    def bound(self, job: str) -> list[str]:
        """Nodes of a job's bound pods, by pod."""
        return [p.node for p in self.pods.values() if p.phase is Phase.BOUND and p.name.startswith(job)]

    def events(self) -> list[Event]:
        """Everything as a first list."""
        return [
            *(GangSeen(g) for g in self.gangs.values()),
            *(OwnerSeen(o) for o in self.owners.values()),
            *(NodeSeen(n) for n in self.nodes.values()),
            *(PodSeen(p) for p in self.pods.values()),
        ]

    def carry_out(self, action: Action) -> list[Event]:
        """One action as `cluster.act` does it, and its outcome."""
        self.sent.append(action)
        match action:
            case WriteGang():
                return self._write(action)
            case Ungate():
                pod = self.pods.get(action.uid)
                if pod is None or pod.name != action.pod:
                    return [Outcome(action, 404)]
                if pod.version != action.version:
                    return [Outcome(action, 409)]
                self.counts["patches"] += 1
                pin = action.node if action.pin else ""
                pod = self.update(pod, phase=Phase.UNGATED, pin=pin, carries=action.carries)
                return [PodSeen(pod), Outcome(action, 200)]
            case Nominate():
                pod = self.pods.get(action.uid)
                if pod is None:
                    return [Outcome(action, 404)]
                return [PodSeen(self.update(pod, nominated=action.node)), Outcome(action, 200)]
            case Evict():
                if action.uid not in self.pods:
                    return [Outcome(action, 404)]
                self.delete(action.uid)
                return [PodGone(action.uid), Outcome(action, 201)]
            case RestoreFinalizer():
                if action.uid not in self.pods:
                    return [Outcome(action, 404)]
                pod = self.pods[action.uid]
                notes = {k: v for k, v in pod.annotations.items() if k != "muster.dev/leaving"}
                pod = self.update(pod, tracked=True, annotations=notes)
                return [PodSeen(pod), Outcome(action, 200)]
            case WriteLearned():
                return [Outcome(action, 200)]
            case DeleteGang():
                self.gangs.pop((action.job.namespace, action.gang), None)
                return [GangGone(action.job.namespace, action.gang, action.object_uid), Outcome(action, 200)]
            case CreateProvisioningRequest() | DeleteProvisioningRequest():
                wanted = isinstance(action, CreateProvisioningRequest)
                (self.requests.add if wanted else self.requests.discard)(action.name)
                return [Outcome(action, 201)]
            case Expose():
                pod = self.pods.get(action.uid)
                if pod is None:
                    return [Outcome(action, 404)]
                notes = {**pod.annotations, "muster.dev/exposed": "true"}
                pod = self.update(pod, phase=Phase.UNGATED, annotations=notes)
                return [PodSeen(pod), Outcome(action, 200)]
            case RecordEvent():
                self.said.append(action)
                return [Outcome(action, 201)]

    def _write(self, action: WriteGang) -> list[Event]:
        key = (action.job.namespace, action.gang)
        events: list[Event] = []
        if action.replaces and key in self.gangs:
            old = self.gangs.pop(key)
            events.append(GangGone(*key, old.object_uid))
        self.counts["gang-writes"] += 1
        status = action.status
        placement: Sequence[dict[str, str]] = status["placement"]  # type: ignore[assignment]
        ledger = status["ledger"] or {}
        before = self.gangs.get(key)
        self.gangs[key] = GangRecord(
            key=action.job,
            name=action.gang,
            object_uid=before.object_uid if before else f"gang-{self.tick()}",
            owner=before.owner if before else action.owner,
            declared_by=before.declared_by if before else action.declared_by,
            version=self.tick(),
            state=str(status["state"]),
            reason=str(status["reason"]),
            message=gang_codec.unqueued(str(status["message"])),
            turn=action.turn,
            submitted=seconds(status["submitted"]),  # type: ignore[arg-type]
            since=seconds(status["since"]),  # type: ignore[arg-type]
            started=seconds(status["started"]),  # type: ignore[arg-type]
            ended=seconds(status["ended"]),  # type: ignore[arg-type]
            created=before.created if before else self.now,
            queued_from=float(ledger.get("queuedFrom") or 0.0),  # type: ignore[attr-defined]
            replicas=str(status["replicas"]),
            placement=tuple(
                Reservation(p["role"], p["node"], p.get("pod", ""), p.get("uid", "")) for p in placement
            ),
            backoff=int(ledger.get("backoff") or 0),  # type: ignore[attr-defined]
            not_before=float(ledger.get("notBefore") or 0.0),  # type: ignore[attr-defined]
            recreated=Recreation(**ledger.get("recreated") or {}),  # type: ignore[attr-defined]
            node_backoffs=tuple(action.node_backoffs),
            asked=action.asked,
            shrink_blocked_by=str(status.get("keeps") or ""),
            conditions=tuple(
                Condition(one["type"], one["status"], seconds(one["lastTransitionTime"]))
                for one in status["conditions"]  # type: ignore[attr-defined]
            ),
            story=tuple(Step(**step) for step in status["story"] or ()),  # type: ignore[attr-defined,arg-type]
            sizes=action.sizes,
            whole={w["role"]: w["min"] for w in ledger["whole"]} if ledger.get("whole") else None,  # type: ignore[attr-defined,index]
            **gang_codec.from_plain(json.loads(json.dumps((ledger.get("elastic") or [{}])[0]))),  # type: ignore[attr-defined]
        )
        return [*events, GangSeen(self.gangs[key]), Outcome(action, 200)]

    # ---- what must never be ----

    def check(self) -> None:
        """No node over-committed by what is bound or pinned."""
        for name, found in self.nodes.items():
            used = sum(
                p.shape.gpus for p in self.pods.values() if not p.phase.ended and (p.node or p.pin) == name
            )
            assert used <= found.allocatable[GPU], f"{name} holds {used} GPUs of {found.allocatable[GPU]}"


class SlowEnds(FakeCluster):
    """A replica that is told to end is on its node until it is `over`; its owner makes the next one then."""

    def carry_out(self, action: Action) -> list[Event]:
        if not isinstance(action, Evict) or self.pods[action.uid].phase is not Phase.BOUND:
            return super().carry_out(action)
        self.sent.append(action)
        ending = self.update(self.pods[action.uid], deleting=True, phase=Phase.ENDING)
        return [PodSeen(ending), Outcome(action, 201)]

    def over(self) -> None:
        for pod in [p for p in self.pods.values() if p.phase is Phase.ENDING]:
            self.delete(pod.uid)


class Muster:
    """The circle over a FakeCluster, one turn at a time; `die_after` n actions it stops half-way."""

    def __init__(self, cluster: FakeCluster, profile: Profile | None = None) -> None:
        self.cluster = cluster
        self.ledger = Ledger(profile or Profile())
        self.plan = Plan()
        self._seen: dict[str, str] = {}
        for event in cluster.events():
            self.ledger.apply(event, cluster.now)
        self.ledger.take_over(cluster.now)
        self._known = set(cluster.pods)

    def sync(self) -> None:
        """Deliver everything that is; uids and nodes that vanished too."""
        for uid in self._known - set(self.cluster.pods):
            self.ledger.apply(PodGone(uid), self.cluster.now)
        self._known = set(self.cluster.pods)
        records = self.ledger.owners.records.values()
        gone = [r.owner for r in records if r.owner.uid not in self.cluster.owners and watched(r.owner)]
        for owner in gone:
            self.ledger.apply(OwnerGone(owner.uid), self.cluster.now)
        for name in [n for n in self.ledger.charges.nodes if n not in self.cluster.nodes]:
            self.ledger.apply(NodeGone(name), self.cluster.now)
        for event in self.cluster.events():
            self.ledger.apply(event, self.cluster.now)

    def turn(self, die_after: int | None = None, seconds: float = 0.1) -> int:
        """One cycle and its actions; returns how many were carried out."""
        self.cluster.now += seconds
        self.sync()
        snapshot = self.ledger.snapshot(self.cluster.now)
        self.plan = self.ledger.plan(snapshot)
        before = states(self.ledger)
        actions = self.ledger.adopt(snapshot, self.plan)
        obeys(before, self.plan, actions)
        for number, action in enumerate(actions):
            if die_after is not None and number >= die_after:
                return number
            for event in self.cluster.carry_out(action):
                self.ledger.apply(event, self.cluster.now)
        return len(actions)

    def settle(self, turns: int = 12, seconds: float = 0.1) -> None:
        """Turns with kube-scheduler binding in between, until nothing happens any more."""
        for _ in range(turns):
            done = self.turn(seconds=seconds)
            bound = self.cluster.bind()
            self.cluster.check()
            if not done and not bound:
                return

    def look(self) -> View:
        """The queue is played forward, as muster.turns does; what was read of it."""
        snapshot = self.ledger.snapshot(self.cluster.now)
        view = self.ledger.view(snapshot, self.ledger.plan(snapshot), leading=True, synced=True)
        if (found := turns(view)) != self.ledger.turns:
            self.ledger.apply(TurnsSeen(found), self.cluster.now)
        return view

    def state(self, name: str, namespace: str = "team") -> str:
        """status.state of a job by name."""
        status = next(
            (s for k, s in self.plan.statuses.items() if (k.namespace, k.name) == (namespace, name)), None
        )
        return str(status.state) if status else "none"

    def key(self, name: str) -> JobKey:
        """The key of a job by name."""
        return next(k for k in self.plan.statuses if k.name == name)
