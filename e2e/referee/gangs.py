"""Which pods start together, and what is wrong with them: partly bound, doubled, too many, lost. Pure values.

A gang is whole when each role has its minimum: `min-replicas`, else its count in `roles`, else (with one role) the
minimum of its PodGroup, else what the owner wants, else 1 (public names). Once whole it stays judged by the least
that its owner has wanted since: growth is no fault. Pods that have succeeded count as there; those that do not exist
are the owner's to create, except for a first start of an owner that creates all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from e2e.referee.objects import LWS, LWS_GROUP, LWS_SIZE, NATIVE_APIS, PodSeen, Reference
from e2e.referee.owners import OwnerSeen

Key = tuple[str, str]
"""Namespace, and how the gang is called: the uid of its topmost owner, or a name that pods share."""
Owners = Mapping[str, OwnerSeen]
Groups = Mapping[tuple[str, str], int]
"""Minimums of PodGroups by namespace and name."""


@dataclass
class Gang:
    """What is remembered of one. whole: minimums by role with which it was whole since it last began to run.
    well: those that have succeeded, by role, also when their objects are gone. failed: one of its pods has
    failed."""

    key: Key
    pods: dict[str, PodSeen] = field(default_factory=dict)
    whole: dict[str, int] | None = None
    well: dict[str, set[str]] = field(default_factory=dict)
    failed: bool = False

    def saw(self, pod: PodSeen) -> None:
        """A pod of it as it is now."""
        self.pods[pod.uid] = pod
        if pod.phase == "Succeeded" and not pod.deleted:
            self.well.setdefault(pod.role, set()).add(pod.index or pod.uid)
        self.failed |= pod.phase == "Failed" and not pod.evicted

    @property
    def owners(self) -> dict[str, Reference]:
        """Controllers of the pods that it has now, by uid."""
        return {
            pod.controller.uid: pod.controller for pod in self.pods.values() if pod.controller is not None
        }


def key_of(pod: PodSeen, owners: Owners) -> Key:
    """Whose pod this is: a label of several owners' pods, else the topmost owner, else the pod alone."""
    if name := pod.labels.get("muster.dev/job"):
        return pod.namespace, f"job {name}"
    if pod.group[1]:
        return pod.namespace, f"group {pod.group[1]}"
    if name := pod.labels.get(LWS):
        return pod.namespace, f"group {pod.labels.get(LWS_GROUP, '0')} of {name}"
    if pod.controller is None:
        return pod.namespace, pod.uid
    above = up(pod.controller.uid, owners)
    return pod.namespace, above[-1].uid if above else pod.controller.uid


def called(gang: Gang, owners: Owners) -> str:
    """For people: kind and name of its owner where the key is a uid."""
    namespace, name = gang.key
    known = owners.get(name)
    if known is not None:
        name = f"{known.kind} {known.name}"
    elif name in gang.pods:
        name = gang.pods[name].name
    return f"{namespace}/{name}"


def over(gang: Gang, owners: Owners) -> bool:
    """Whether an owner of it has ended, is being deleted, suspended or gone: its controller ends the rest then."""
    if any(uid not in owners and watched(one) for uid, one in gang.owners.items()):
        return True
    tops = [above[-1] for uid in gang.owners if (above := up(uid, owners))]
    return bool(tops) and all(one.over for one in tops)


def minimums(gang: Gang, owners: Owners, groups: Groups) -> dict[str, int]:
    """What must be bound at once, by role."""
    found: dict[str, int] = {}
    living = [pod for pod in gang.pods.values() if not pod.deleted]
    sets = {pod.labels[LWS] for pod in living if pod.labels.get(LWS)}
    declare = {} if sets else {one.uid: one for one in _declare(gang, owners)}
    for one in declare.values():
        for role, count in (one.sizes or {}).items():
            found[role] = found.get(role, 0) + count
    named = {groups.get((pod.namespace, pod.group[1]), 0) for pod in living} - {0}
    if named and len({*found, *(pod.role for pod in living)}) == 1:
        found = {living[0].role: max(named)}
    for pod in living:
        size = pod.labels.get(LWS_SIZE) or pod.notes.get(LWS_SIZE) or ""
        if size.isdecimal():
            ours = next((one.group for one in _sets(pod, owners) if one.group is not None), int(size))
            found.setdefault("worker", ours)
        parts = (
            part.split("=", 1) for part in pod.notes.get("muster.dev/roles", "").split(",") if "=" in part
        )
        found |= {role.strip(): int(count) for role, count in parts if count.strip().isdecimal()}
    for pod in living:
        least = pod.notes.get("muster.dev/min-replicas", "")
        if least.isdecimal():
            found[pod.role] = int(least)
        found.setdefault(pod.role, 1)
    return found


def partly(gang: Gang, owners: Owners, groups: Groups) -> str:
    """A sentence where some of it runs and a role has fewer than its minimum; "" else. Remembers that it was
    whole."""
    runs = Counter(pod.role for pod in gang.pods.values() if pod.runs)
    if not runs or over(gang, owners):
        if not runs:
            gang.whole = None
        return ""
    needs = minimums(gang, owners, groups)
    if gang.whole is not None:
        needs = {role: min(count, needs.get(role, 0)) for role, count in gang.whole.items()}
    there = {role: runs[role] + len(gang.well.get(role, ())) for role in needs}
    short = [role for role, count in needs.items() if there[role] < count]
    if not short:
        gang.whole = needs
        return ""
    waits = {pod.role for pod in gang.pods.values() if pod.living and not pod.node}
    creates = gang.whole is not None or any(one.ordered for uid in gang.owners for one in up(uid, owners))
    if creates and not waits.intersection(short):
        return ""  # what is missing is the owner's to create
    told = ", ".join(f"{there[role]} of at least {needs[role]} {role} pods" for role in sorted(short))
    first = "has never been whole" if gang.whole is None else "was whole before"
    return f"{called(gang, owners)} is partly bound: {told} run, and it {first}"


def doubled(gang: Gang, owners: Owners) -> Iterator[str]:
    """Two that run for one index of one owner, or more of an owner than it wants."""
    runs = [pod for pod in gang.pods.values() if pod.runs and pod.controller is not None]
    indexes = Counter(
        (pod.controller.uid, pod.role, pod.index) for pod in runs if pod.controller and pod.index
    )
    for (_, role, index), count in indexes.items():
        if count > 1:
            yield f"{called(gang, owners)} runs {count} pods of {role} index {index}"
    by_owner = Counter(pod.controller.uid for pod in runs if pod.controller)
    for uid, count in by_owner.items():
        grants = owners.get(uid)
        if grants is not None and grants.own is not None and not grants.over and count > grants.own:
            yield f"{grants.kind} {grants.namespace}/{grants.name} runs {count} pods and wants {grants.own}"


def headless(gang: Gang, owners: Owners) -> Iterator[str]:
    """An owner's index 0 that waits while others of its role run: what they meet at, and what ends them, is there."""
    of = {pod.uid: (pod.controller.uid, pod.role) for pod in gang.pods.values() if pod.controller}
    indexed = [pod for pod in gang.pods.values() if pod.uid in of and pod.index]
    runs = {of[pod.uid] for pod in indexed if pod.runs and pod.index != "0"}
    first = [pod for pod in indexed if pod.index == "0"]
    there = {of[pod.uid] for pod in first if pod.node and pod.phase != "Failed"}
    for pod in first:
        if of[pod.uid] in runs - there and pod.living:
            yield f"{called(gang, owners)} runs without {pod.role} index 0"


def too_many(gang: Gang, owners: Owners) -> Iterator[str]:
    """More of a role than its `max-replicas`."""
    runs = [pod for pod in gang.pods.values() if pod.runs]
    counts = Counter(pod.role for pod in runs)
    for role, count in counts.items():
        told = {pod.notes["muster.dev/max-replicas"] for pod in runs if pod.role == role and _has_most(pod)}
        most = max((int(value) for value in told if value.isdecimal()), default=count)
        if count > most:
            yield f"{called(gang, owners)} runs {count} {role} pods of at most {most}"


def lost(owner: OwnerSeen, pods: Iterable[PodSeen], failed: bool) -> str:
    """An owner that wants pods of ours and has none that lives; "" where it has, is over, or may be backing off."""
    if owner.over or owner.failed or failed or not sum((owner.sizes or {}).values()):
        return ""
    if any(not pod.ended for pod in pods):
        return ""
    return f"{owner.kind} {owner.namespace}/{owner.name} wants pods, and none waits or runs"


def _has_most(pod: PodSeen) -> bool:
    return "muster.dev/max-replicas" in pod.notes


def _declare(gang: Gang, owners: Owners) -> Iterator[OwnerSeen]:
    """Of each chain of owners the highest that says how many there are."""
    for uid in gang.owners:
        found = [one for one in up(uid, owners) if one.sizes is not None]
        yield from found[-1:]


def _sets(pod: PodSeen, owners: Owners) -> Iterator[OwnerSeen]:
    """The LeaderWorkerSet of a pod: its workers' owners end at their leader, and name it by a label only."""
    for one in owners.values():
        if one.kind == "LeaderWorkerSet" and (one.namespace, one.name) == (
            pod.namespace,
            pod.labels.get(LWS),
        ):
            yield one


def up(uid: str, owners: Owners) -> list[OwnerSeen]:
    """An owner and those above it, as far as they are known; each run of a CronJob is a job of its own."""
    found: list[OwnerSeen] = []
    known = owners.get(uid)
    while known is not None and len(found) < 8:
        found.append(known)
        known = owners.get(known.parent.uid) if known.parent and known.parent.kind != "CronJob" else None
    return found


EVERYWHERE = frozenset(("Job", "StatefulSet", "ReplicaSet", "Deployment"))


def watched(owner: Reference) -> bool:
    """Whether its kind is watched from the beginning: one of these that is not there is gone."""
    return owner.kind in EVERYWHERE and owner.api in NATIVE_APIS
