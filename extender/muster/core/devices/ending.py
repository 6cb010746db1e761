"""In place: GPUs that pods on their way out still use. They come free with them, and the plan counts on them: else
who waits for them finds no place meanwhile, and loses what it was granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.core.devices.granted import Grants
from muster.types import GPU, Job, Member, Phase, Role


def to_free(
    jobs: Sequence[Job],
    granted: Grants,
    due: Mapping[str, int],
    taken: Mapping[str, int],
    giving: Mapping[str, int],
    used: Mapping[tuple[str, str], int],
) -> dict[str, int]:
    """GPUs that each pod that ends still uses, by its uid, and that nobody else there is granted: they come free with
    it. giving: by pod, what others are to give besides; else as `to_give`."""
    left = {node: count - due.get(node, 0) for node, count in taken.items()}
    for one in (one for grants in granted.values() for one in grants):
        left[one.node] = left.get(one.node, 0) - giving.get(one.pod, 0)
    found: dict[str, int] = {}
    for pod in (pod for job in sorted(jobs, key=lambda job: job.key) for pod in that_end(job)):
        count = min(used.get((pod.uid, pod.node), 0), left.get(pod.node, 0))
        if count > 0:
            found[pod.uid] = count
            left[pod.node] -= count
    return found


def that_end(job: Job) -> list[Member]:
    """Its pods that end, on their nodes."""
    return [pod for role in job.roles for pod in role.on if pod.phase is Phase.ENDING]


def with_devices(pods: Role, frees: Sequence[int]) -> Role:
    """The pods, and those that end as if they requested the GPUs that come free with them. frees: of each of
    these."""
    if not any(frees):
        return pods
    ending = [pod for pod in pods.on if pod.phase is Phase.ENDING]
    counts = {pod.uid: count for pod, count in zip(ending, frees, strict=True) if count}
    return replace(
        pods,
        members=tuple([_asking(pod, counts[pod.uid]) if pod.uid in counts else pod for pod in pods.members]),
    )


def _asking(pod: Member, gpus: int) -> Member:
    others = tuple(request for request in pod.shape.requests if request[0] != GPU)
    return replace(pod, shape=replace(pod.shape, requests=(*others, (GPU, gpus))))
