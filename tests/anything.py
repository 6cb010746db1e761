# Over 300 lines: it draws every kind of object that the API server takes.
"""Anything that the API server would take, as it would send it: JSON of pods, owners, PodGroups and Gangs.

Made by a random generator of Python's, many times faster than hypothesis draws objects of this size; hypothesis draws
its seeds, one a step, so what fails is still cut to the fewest steps. Values come from a few pools, so that objects
meet: the same uids, owners, groups and nodes come again. What is no valid object at all (a name with a slash, a
negative request) the API server refuses.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from muster.types import GATE, GPU, Report

Json = dict[str, Any]
NODES = ("n0", "n1", "n2")
UIDS = tuple(f"uid-{i}" for i in range(9))
OWNERS = tuple(f"owner-{i}" for i in range(5))
LONG = "x" * 262_000

QUANTITIES = (
    *("0", "1", "2", "8", "100m", "1n", "1Gi", "10P", "7Ei", "9E", "1e18", "1e3", "123456789012345678"),
    *("9223372036854775807", "9223372036854775807m", "0.5", "1.5Gi", "999999999999999999"),
)
RESOURCES = (
    *("cpu", "memory", "ephemeral-storage", GPU, "amd.com/gpu", "example.com/gpu", "hugepages-2Mi"),
    "example.com/x",
)
COUNTS = (0, 1, 2, 3, 4, 2_147_483_647, 10_000, 10_001, 1_000_000)
WORDS = ("", "a", "team", "9" * 63, "A.b_c-9", "0", "1", "true", "worker", "x" * 63)
NOTES = (
    *("", "0", "1", "2", "4", "-1", "1e999", "nan", "inf", "-inf", "999999999999", "1e-300", "0x10"),
    *("true", "false", "scored", "pinned", "restart", "in-place", "boundary", "1=1,2=1.9,4=3"),
    *("worker=4", "a=1,b=2", "a=1,a=1", "1,2,4", "\u00b2", "\u0661\u0662", "1_0", " 1 ", "\x00", "\u202e"),
    *("\U0001f600", "rack", ",".join(f"r{i}=1" for i in range(300))),
    *(",".join(f"r{i}=1" for i in range(20_000)), ",".join(f"{i}={i}" for i in range(1, 4000))),
    *("9" * 5000, LONG, '[{"role":"worker","node":"n0","pod":"p","uid":"uid-1"}]', '[{"role":1}]'),
)
OURS = (
    *("role", "roles", "min-replicas", "max-replicas", "sizes", "topology-required", "topology-preferred"),
    *(
        "speed",
        "remaining-work",
        "evictable",
        "placement",
        "released",
        "plan",
        "model",
        "resize",
        "resize-at",
    ),
    *("request", "exposed", "leaving", "gpus", "gpu-memory", "no-such-thing"),
)
ANNOTATIONS = (
    *(f"muster.dev/{name}" for name in OURS),
    *("scheduling.k8s.io/group-name", "leaderworkerset.sigs.k8s.io/size", "kubernetes.io/anything"),
)
LABELS = (
    *("muster.dev/job", "muster.dev/job", "muster.dev/model", "muster.dev/scheduler", "app"),
    *("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-replicas"),
    *("jobset.sigs.k8s.io/replicatedjob-name", "training.kubeflow.org/replica-type", "ray.io/cluster"),
    *("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    *("scheduling.x-k8s.io/pod-group", "batch.kubernetes.io/job-completion-index"),
    *("apps.kubernetes.io/pod-index", "volcano.sh/job-name"),
)
KINDS = (
    *(("batch/v1", "Job"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("apps/v1", "Deployment")),
    *(
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "CronJob"),
        ("v1", "Node"),
        ("../healthz", "PyTorchJob"),
        ("", ""),
    ),
    *(("kubeflow.org/v1", "PyTorchJob"), ("jobset.x-k8s.io/v1alpha2", "JobSet")),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
)
TIMES = ("2026-11-22T20:00:00Z", "2026-11-22T20:00:01Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
WORKLOADS = ("jobs", "replicasets", "statefulsets", "deployments")
NUMBERS = (
    *(0.0, 1.0, 2.0, 100.0, 1e-300, 1e15, 1e12, 1e300, float("nan"), float("inf"), float("-inf"), -1.0),
    5e-324,
)


class Maker:
    """One seed, one step."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.one = self.rng.choice

    def likely(self, part: float = 0.5) -> bool:
        return self.rng.random() < part

    def some(self, most: int, made: Callable[[], Any]) -> list[Any]:
        return [made() for _ in range(self.rng.randint(0, most))]

    def pairs(self, most: int, keys: Any, values: Any) -> Json:
        return {self.one(keys): self.one(values) for _ in range(self.rng.randint(0, most))}

    def given(self, part: float, **fields: Callable[[], Any]) -> Json:
        return {name: make() for name, make in fields.items() if self.likely(part)}

    def amounts(self) -> Json:
        return self.pairs(3, RESOURCES, QUANTITIES)

    def container(self) -> Json:
        return {"name": "c", "image": self.one(["", "i", LONG[:5000], "\U0001f600"])} | self.given(
            0.4,
            resources=lambda: self.given(0.7, requests=self.amounts, limits=self.amounts),
            restartPolicy=lambda: "Always",
            ports=lambda: [{"hostPort": self.one([0, 80, 65535]), "hostIP": self.one(WORDS)}],
        )

    def requirement(self) -> Json:
        return {
            "key": self.one(["kubernetes.io/hostname", "rack", "no-such-label", "metadata.name"]),
            "operator": self.one(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        } | self.given(0.8, values=lambda: self.some(3, lambda: self.one(["n0", "a", "9" * 63, "", "-1"])))

    def term(self) -> Json:
        return self.given(
            0.6,
            matchExpressions=lambda: self.some(2, self.requirement),
            matchFields=lambda: self.some(2, self.requirement),
        )

    def affinity(self) -> Json:
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        return self.given(
            0.6,
            nodeAffinity=lambda: {required: {"nodeSelectorTerms": [self.term(), *self.some(1, self.term)]}},
            podAntiAffinity=lambda: {required: [{}]},
        )

    def spec(self) -> Json:
        return (
            {
                "containers": [self.container(), *self.some(1, self.container)],
                "schedulerName": "muster" if self.likely(0.8) else "other",
            }
            | self.given(
                0.15,
                initContainers=lambda: self.some(2, self.container),
                overhead=self.amounts,
                resources=lambda: {"requests": self.amounts()},
                nodeName=lambda: self.one([*NODES, "nowhere"]),
                nodeSelector=lambda: self.pairs(2, ["rack", "no-such-label"], WORDS),
                affinity=self.affinity,
                tolerations=lambda: [{"key": self.one(WORDS), "operator": self.one(["Exists", "Gt"])}],
                priority=lambda: self.one([-2_147_483_648, -1, 1, 1_000_000_000, 2_147_483_647]),
                schedulingGroup=lambda: {"podGroupName": "group"},
                resourceClaims=lambda: [{"name": "x"}],
                volumes=lambda: [{"name": "v", "persistentVolumeClaim": {"claimName": "../../healthz"}}],
                topologySpreadConstraints=lambda: [{"whenUnsatisfiable": "DoNotSchedule"}],
            )
            | self.given(
                0.8, schedulingGates=lambda: [{"name": GATE}, *self.some(1, lambda: {"name": "a.b/c"})]
            )
        )

    def references(self) -> list[Json]:
        def reference() -> Json:
            version, kind = self.one(KINDS)
            uid = self.one(OWNERS)
            return {
                "apiVersion": version,
                "kind": kind,
                "name": f"of-{uid}",
                "uid": uid,
                "controller": self.likely(0.8),
            }

        return self.some(2, reference)

    def note(self) -> str:
        if self.likely(0.7):
            return self.one(NOTES)
        return "".join(chr(self.rng.choice([*range(128), 0xD7FF, 0xFFFD, 0x1F600])) for _ in range(6))

    def annotations(self) -> Json:
        return {self.one(ANNOTATIONS): self.note() for _ in range(self.rng.randint(0, 3))}

    def pod(self) -> Json:
        uid = self.one(UIDS)
        status: Json = {"phase": self.one(["", "Pending", "Running", "Pending", "Succeeded", "Failed"])}
        if self.likely(0.2):
            refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            status["conditions"] = [refused | {"message": self.note()[:9000]}]
        return {
            "metadata": {
                "uid": uid,
                "name": self.one([f"p-{uid[-1]}", "p" * 253, "0", "a.b-c"]),
                "namespace": self.one(["attacker", "team"]),
                "creationTimestamp": self.one(TIMES[:2]) if self.likely(0.9) else self.one(TIMES),
                "labels": self.pairs(2, LABELS, WORDS),
                "annotations": self.annotations(),
                "ownerReferences": self.references(),
            }
            | self.given(
                0.2,
                deletionTimestamp=lambda: self.one(TIMES),
                finalizers=lambda: ["batch.kubernetes.io/job-tracking"],
            ),
            "spec": self.spec(),
            "status": status,
        }

    def workload(self) -> Json:
        """A Job, ReplicaSet, StatefulSet or Deployment."""
        uid = self.one(OWNERS)
        counts = self.given(0.6, **dict.fromkeys(("replicas", "parallelism", "completions"), self.count))
        rule = {"succeededIndexes": self.one(["0", "0-2147483646", "1,3-5", ""])}
        over = [{"type": self.one(["Complete", "Failed", "Suspended"]), "status": "True"}]
        return {
            "metadata": {
                "uid": uid,
                "name": f"of-{uid}",
                "namespace": "attacker",
                "creationTimestamp": self.one(TIMES),
                "ownerReferences": self.references(),
            },
            "spec": {
                **counts,
                "suspend": self.likely(0.2),
                "completionMode": self.one(["", "Indexed", "NonIndexed"]),
                "podManagementPolicy": self.one(["", "Parallel", "OrderedReady"]),
            }
            | self.given(
                0.5,
                successPolicy=lambda: {"rules": [rule]},
                template=lambda: {"metadata": {"annotations": self.annotations()}, "spec": self.spec()},
            ),
            "status": {"succeeded": self.count(), "conditions": over if self.likely(0.2) else None},
        }

    def count(self) -> int:
        return self.one(COUNTS)

    def group(self) -> Json:
        """A PodGroup, native or another project's."""
        least = self.count()
        spec = self.one([{"minMember": least}, {"schedulingPolicy": {"gang": {"minCount": least}}}, {}])
        return {
            "metadata": {"uid": "g", "name": self.one(["group", "a"]), "namespace": "attacker"},
            "spec": spec,
        }

    def gang(self) -> Json:
        """A Gang as somebody with every right in a namespace may have written it: its schema says little of the
        ledger."""
        number = (0, 1, -1, 1e300, -1e300, 2**62, 1e15, 1_795_377_600.5)
        values: tuple[Any, ...] = (*number, [], "x", [1e300, -1, None], {}, {"a": 1e300}, None, True)
        names = (
            *(
                "first_start",
                "gpu_seconds",
                "form",
                "config",
                "speeds",
                "newest",
                "heard",
                "replicas",
                "roles",
            ),
            *("batch", "beside", "shares", "costs", "since", "change", "usual", "by_product", "last_resize"),
        )

        def hold() -> Json:
            return {
                "role": "worker",
                "node": self.one([*NODES, "nowhere"]),
                "pod": "p",
                "uid": self.one(["", *UIDS]),
            }

        return {
            "metadata": {
                "uid": "gang-uid",
                "name": self.one(["p-0", "job-of-owner-0"]),
                "namespace": "attacker",
            },
            "spec": {
                "job": self.one(["", "pod-p-1", "job-of-owner-0"]),
                "uid": self.one(["", "uid-1", *OWNERS]),
            },
            "status": {
                "state": self.one(["", "Waiting", "Running", "Finished", "Invalid", "Nonsense"]),
                **{name: self.one(["", *TIMES]) for name in ("since", "submitted", "started", "ended")},
                "replicas": self.one(["", "0/1", "1/1", "/", "x"]),
                "placement": self.some(3, hold),
                "ledger": {
                    "backoff": self.one([0, 1, 63, 2_147_483_647]),
                    "notBefore": self.one(number),
                    "asked": self.one(number),
                    "recreated": self.one([None, {}, {"since": self.one(number), "until": self.one(number)}]),
                    "barred": [
                        {
                            "role": "worker",
                            "node": "n0",
                            "until": self.one(number),
                            "seconds": self.one(number),
                        }
                    ],
                    "elastic": [
                        {
                            part: self.one(values) if self.likely(0.2) else self.pairs(4, names, values)
                            for part in ("facts", "track", "memory", "want")
                            if self.likely()
                        }
                    ],
                },
            },
        }

    def number(self) -> float:
        return self.one(NUMBERS) if self.likely(0.7) else self.rng.uniform(0.0, 1e6)

    def report(self) -> Report:
        return Report(
            at=self.one([*NUMBERS, 1_795_377_600.0]),
            step=self.number(),
            total=self.number(),
            epoch=self.one([0, 1, -1, 2**63]),
            steps_per_epoch=self.number(),
            loss=self.one([None, self.number()]),
            speed=self.number(),
            boundary=self.likely(),
            target=self.one([None, self.number()]),
            samples=self.number(),
            workers=self.one([0, 1, -1, 10**9]),
        )

    def step(self) -> tuple[str, Any]:
        """What happens next: its kind, and the object."""
        kind = self.rng.choices(
            ["pods", "workload", "group", "gangs", "report", "gone", "learned", "turn"],
            [40, 12, 4, 8, 10, 4, 2, 20],
        )[0]
        match kind:
            case "pods":
                return "pods", self.pod()
            case "workload":
                return self.one(WORKLOADS), self.workload()
            case "group":
                return "podgroups of scheduling.k8s.io/v1beta1", self.group()
            case "gangs":
                return "gangs", self.gang()
            case "report":
                return "report", (self.one(UIDS), self.report())
            case "gone":
                return "gone", self.one(UIDS)
            case "learned":
                return "learned", self.one([None, [], {"form": 1, "models": 3}, {"lessons": [1]}])
        return "turn", (self.one([0.1, 3.0, 130.0, 1e6]), self.one([200, 200, 404, 409, 0]))
