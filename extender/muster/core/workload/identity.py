"""Whose pod is this: a job's name, the pod's role and index, and our labels and annotations by name (design §8).

Job, in this order: our label, the native group, the TrainJob above its JobSet, the well-known labels, the topmost
controlling owner, the pod alone. What the annotations declare of a job's size is in `declared`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.types import JobKey, Owner, OwnerRecord, PodRecord

CONTROLLER = "batch.kubernetes.io/controller-uid"
"""The label by which a Job's controller knows its pods."""
JOB = "muster.dev/job"
"""Label, `NAME`: the job's name. Pods of several owners may share it, and are one job then."""
ROLE = "muster.dev/role"
"""Annotation, `NAME`: the pod's role within its job. Default: `worker`."""
ROLES = "muster.dev/roles"
"""Annotation, `scheduler=1,server=2,worker=4`: all roles of the job, with the replicas of each."""
MIN = "muster.dev/min-replicas"
"""Annotation, `1` to `10000`: replicas of this role that the job needs to start, and never falls below."""
MAX = "muster.dev/max-replicas"
"""Annotation, `1` to `10000`: the most replicas of this role that the job can use."""
SIZES = "muster.dev/sizes"
"""Annotation, `1,2,4`: the only numbers of replicas that this role may have."""
TOPOLOGY_REQUIRED = "muster.dev/topology-required"
"""Annotation, `NODE-LABEL`: the whole job within one domain of this node label (a rack, a zone)."""
TOPOLOGY_PREFERRED = "muster.dev/topology-preferred"
"""Annotation, `NODE-LABEL`: the job within as few domains of this node label as possible."""
SPEED = "muster.dev/speed"
"""Annotation, `1=1,2=1.9,4=3.4`: speed relative to one replica, by number of replicas; in place, of one GPU, by GPUs
of all its pods together. Default: linear."""
REMAINING = "muster.dev/remaining-work"
"""Annotation, `SECONDS`: how long the job runs on one replica (of several roles: of the one that can grow, else
of the first with GPUs); in place, on one GPU. Backfilling and expected starts go by it."""
SCHEDULER = "muster.dev/scheduler"
"""Label by Muster: the schedulerName that the pod had before admission gave it the cluster's (`binder: cluster`)."""
TAINT = SCHEDULER
"""Key of the taint that keeps other schedulers off Muster's nodes (`binder: own`)."""
MARK = "muster.dev/managed"
"""Resource by Muster: marks the pods about which a team's own kube-scheduler asks Muster (config/existing-scheduler).
It is an amount of nothing."""
EXPOSED = "muster.dev/exposed"
"""Annotation by Muster: the gate was removed without a place, so that an autoscaler sees the pod."""
PLAN = "muster.dev/plan"
"""Annotation by Muster: the placement of a whole small job, on its first pod, as in a Gang's status."""
EVICTABLE = "muster.dev/evictable"
"""Annotation, `true`: this bare pod may be evicted; on a pod with an owner, although its operator would count that as
a failure."""
LEAVING = "muster.dev/leaving"
"""Annotation by Muster: why it ends this pod (an EndReason). A Job's pod gets it in the PATCH that removes the Job
controller's finalizer (cluster.evict)."""
MODEL = "muster.dev/model"
"""Label or annotation, `NAME`: what is trained. Image and model together identify jobs that were seen before, from
whose speeds a new job starts."""
BATCH_SIZES = "muster.dev/batch-sizes"
"""Annotation, `64,128,256`: global batch sizes (samples of an iteration, of all replicas together) that the job can
train with, for policies that choose one. With `muster.dev/report` its pods get the chosen one as `MUSTER_BATCH`."""
BATCH = "muster.dev/batch"
"""Annotation by Muster: the global batch size that was chosen when this pod started."""
RESIZE = "muster.dev/resize"
"""Annotation, `in-place` or `restart`: when the job changes size, survivors go on, or all its replicas end first. A
running job of one size, without batch sizes or GPUs in place, is stopped for a share only with `restart`."""
RESIZE_AT = "muster.dev/resize-at"
"""Annotation, `boundary`: the job changes size only where its training reports a boundary."""
GPUS = "muster.dev/gpus"
"""Annotation, `1,2,4` or `1-8`: numbers of GPUs that the pod can train on, in place under `muster agent
--devices`. Of a job of several pods each has as many, on its own node, and their number is fixed. Without
`devices.enabled` its job is Invalid."""
GPU_MEMORY = "muster.dev/gpu-memory"
"""Annotation, `20Gi` or `500Mi`: what the pod needs of the memory of each of its GPUs, in place. A job without it
never shares a GPU with another, nor does a job of several pods."""
REQUEST = "muster.dev/request"
"""Annotation, `1` to `10000`: replicas that rigid policies (SRTF, Tiresias-L, ...) grant, from min to max. Default:
max."""
PLACEMENT = "muster.dev/placement"
"""Annotation, `pinned` or `scored`: Muster picks the node, or kube-scheduler does, by Muster's score."""
RELEASED = "muster.dev/released"
"""Annotation by Muster: `muster release` removed the gate; the pod has passed the queue without a plan."""

DEFAULT_ROLE = "worker"

NAME_LABELS: tuple[tuple[str, str], ...] = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset"),
    ("training.kubeflow.org/job-name", "kubeflow"),
    ("ray.io/cluster", "raycluster"),
    ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset"),
    ("scheduling.x-k8s.io/pod-group", "podgroup"),
    ("volcano.sh/job-name", "volcano"),
    ("scheduling.k8s.io/group-name", "podgroup"),
)
"""Labels by which other projects name a job, and the prefix of ours. Volcano's pod group is an annotation."""

ROLE_LABELS: tuple[str, ...] = (
    "training.kubeflow.org/replica-type",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "ray.io/group",
    "volcano.sh/task-spec",
)
INDEX_KEYS: tuple[str, ...] = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "volcano.sh/task-index",
)
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
REVISION_LABELS: tuple[str, ...] = (
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
    "pod-template-hash",
    "controller-revision-hash",
)
"""By which owners tell the pods of one template from those of the next."""
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
LWS_SIZE = "leaderworkerset.sigs.k8s.io/size"

WHOLE = re.compile(r"[0-9]{1,9}")
"""What int() takes for certain: str.isdigit() is also true of "\u00b2" and of a number of a million digits."""


def lives_elsewhere(record: OwnerRecord | None, namespace: str) -> bool:
    """Whether an owner is known to be of another namespace: a reference to it counts for nothing, as in Kubernetes,
    whose garbage collector takes that owner for gone. A record that says nothing is of one that was not found there.
    """
    return (
        record is not None
        and record.namespace not in (namespace, "")
        and record != OwnerRecord(record.owner, record.namespace)
    )


def above(record: OwnerRecord, owners: Mapping[str, OwnerRecord]) -> Owner | None:
    """The controller of an owner, where that reference counts."""
    parent = record.parent
    return None if parent is None or lives_elsewhere(owners.get(parent.uid), record.namespace) else parent


OWNERS = 16
"""How many of a pod's controllers are followed, one above the other; none that is used has more than four."""


def topmost(pod: PodRecord, owners: Mapping[str, OwnerRecord]) -> Owner | None:
    """The end of the chain of controllers, as far as they are known, OWNERS at most; each run of a CronJob is its own
    job."""
    owner = pod.controller
    seen: set[str] = set()
    while owner is not None and owner.uid not in seen and len(seen) < OWNERS:
        seen.add(owner.uid)
        record = owners.get(owner.uid)
        parent = above(record, owners) if record is not None else None
        if parent is None or parent.kind == "CronJob":
            return owner
        owner = parent
    return owner


def named_after(owner: Owner | None, namespace: str, owners: Mapping[str, OwnerRecord]) -> Owner | None:
    """Whom a job of this topmost owner is named after, where that is not the owner itself: a JobSet's TrainJob."""
    record = owners.get(owner.uid) if owner is not None else None
    return record.named_after if record is not None and record.namespace == namespace else None


def job_key(pod: PodRecord, owners: Mapping[str, OwnerRecord]) -> JobKey:
    """The key of the pod's job."""
    owner = topmost(pod, owners)
    named = named_after(owner, pod.namespace, owners)
    if named is None or pod.labels.get(JOB) or pod.group:
        return plain_key(pod, owner)
    return JobKey(pod.namespace, f"{named.kind}-{named.name}".lower(), named.uid)


def plain_key(pod: PodRecord, owner: Owner | None) -> JobKey:
    """The key of the pod's job by its topmost owner, whatever that is named after: of a TrainJob's pod the JobSet's.
    It counts where the JobSet can't be read, and for a job that an older version has named so."""
    uid = owner.uid if owner else ""
    named = pod.labels.get(JOB)
    if named:
        return JobKey(pod.namespace, named, "")  # pods of several owners may share it
    if pod.group:
        return JobKey(pod.namespace, f"podgroup-{pod.group}", "")
    for label, prefix in NAME_LABELS:
        name = pod.labels.get(label) or (
            pod.annotations.get(label) if label == "scheduling.k8s.io/group-name" else None
        )
        if name:
            if prefix == "leaderworkerset":
                name = f"{name}-{pod.labels.get(LWS_GROUP, '0')}"
            # the pods of one group have several owners (a LeaderWorkerSet's workers: the leader's StatefulSet)
            shared = prefix in ("podgroup", "leaderworkerset")
            return JobKey(pod.namespace, f"{prefix}-{name}".lower(), "" if shared else uid)
    if owner is not None:
        return JobKey(pod.namespace, f"{owner.kind}-{owner.name}".lower(), owner.uid)
    return JobKey(pod.namespace, f"pod-{pod.name}", pod.uid)


def group_of(pod: PodRecord) -> str:
    """The PodGroup that the pod names: the native one, scheduler-plugins' or Volcano's; "" for none."""
    label = pod.labels.get("scheduling.x-k8s.io/pod-group", "")
    return pod.group or label or pod.annotations.get("scheduling.k8s.io/group-name", "")


def leads(pod: PodRecord) -> bool:
    """Whether it leads a group of a LeaderWorkerSet: the StatefulSet of its workers is owned by the pod itself."""
    return LWS_NAME in pod.labels and pod.labels.get(LWS_INDEX) == "0"


def group_index(key: JobKey) -> int:
    """The number of a LeaderWorkerSet's group, by its job's name."""
    tail = key.name.rpartition("-")[2]
    return int(tail) if WHOLE.fullmatch(tail) else 0


def role_of(pod: PodRecord) -> str:
    """The pod's role: our annotation, a well-known label, else `worker`."""
    role = pod.annotations.get(ROLE)
    if role:
        return role
    for label in ROLE_LABELS:
        if pod.labels.get(label):
            return pod.labels[label].lower()
    return DEFAULT_ROLE


def revision_of(pod: PodRecord) -> tuple[str, str]:
    """Whose template a pod was made from, and which version of it; the version is "" where that is not known.

    A Deployment's ReplicaSets have its name and the version for theirs; leader and workers of a LeaderWorkerSet are
    pods of several StatefulSets and of one version.
    """
    label = next((label for label in REVISION_LABELS if label in pod.labels), "")
    version = pod.labels.get(label, "")
    if label == REVISION_LABELS[0] or pod.controller is None:
        return "", version
    return pod.controller.name.removesuffix(f"-{version}"), version


def says_of_taint(key: str, effect: str) -> bool:
    """Whether who has this toleration says itself what it tolerates of TAINT: admission adds none then."""
    return key == TAINT or not (key or effect)


def index_of(pod: PodRecord) -> int:
    """The replica's index in its role, -1 where it has none."""
    for key in INDEX_KEYS:
        text = pod.labels.get(key) or pod.annotations.get(key)
        if text and WHOLE.fullmatch(text):
            return int(text)
    owner = pod.controller
    if owner is not None and owner.kind == "StatefulSet":
        tail = pod.name.rsplit("-", 1)[-1]
        if WHOLE.fullmatch(tail):
            return int(tail)
    return -1


def gang_name(job: str) -> str:
    """A DNS name for the Gang object: the job's name, made fit where a label value is not."""
    name = re.sub(r"-*\.[-.]*", ".", re.sub(r"[^a-z0-9.-]+", "-", job.lower())).strip("-.")
    return name[:253].rstrip("-.") or "job"
