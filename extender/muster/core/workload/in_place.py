"""In place: the annotation of a pod whose devices are to change while it goes on, and why it can't be planned."""

from __future__ import annotations

import re
from collections.abc import Iterable

from muster.core.bounds import PLACES, shown
from muster.core.workload.identity import GPU_MEMORY, GPUS, WHOLE
from muster.errors import InputError
from muster.types import PodRecord

MEMORY = re.compile(r"([0-9]{1,9})(Mi|Gi)")
MIB_OF = {"Mi": 1, "Gi": 1024}
MOST_MEMORY = 1 << 20
"""MiB: a TiB, of which no GPU has as much."""


def parse_gpus(text: str) -> tuple[int, ...]:
    """ "1,2,4", "1-8" or "1,4-8": numbers of GPUs, in rising order, () where nothing is said. Raises InputError."""
    found: set[int] = set()
    parts = text.split(",") if text else []
    if len(parts) > PLACES.most:
        raise InputError(
            f"{GPUS}: expected at most {PLACES.most} numbers and ranges of them, found {len(parts)}"
        )
    for part in parts:
        ends = [end.strip() for end in part.split("-")]
        numbers = [int(end) for end in ends if WHOLE.fullmatch(end)]
        fits = len(numbers) == len(ends) <= 2 and 1 <= numbers[0] <= numbers[-1] <= PLACES.most
        if not fits:
            raise InputError(
                f'{GPUS}: expected numbers of GPUs from 1 to {PLACES.most}, as "1,2,4" or "1-8", found '
                f"{shown(part.strip())}"
            )
        found |= set(range(numbers[0], numbers[-1] + 1))
    return tuple(sorted(found))


def parse_gpu_memory(text: str) -> int:
    """ "20Gi" or "500Mi": MiB of each GPU, 0 where nothing is said. Raises InputError."""
    if not text:
        return 0
    found = MEMORY.fullmatch(text)
    mib = int(found[1]) * MIB_OF[found[2]] if found is not None else 0
    if not 1 <= mib <= MOST_MEMORY:
        raise InputError(
            f'{GPU_MEMORY}: expected memory of a GPU from "1Mi" to "{MOST_MEMORY // 1024}Gi", found {shown(text)}'
        )
    return mib


def refused(pods: Iterable[PodRecord], *, enabled: bool = False) -> str:
    """Why pods that declare it can't be planned, "" where they can or none does. enabled: something gives them
    devices."""
    for pod in pods:
        if GPUS not in pod.annotations:
            continue
        if pod.shape.gpus:
            return (
                f"pod {pod.name}: {GPUS}: expected containers that request no GPU, since Muster is to give the pod "
                f"its devices in place, found a request of {pod.shape.gpus}; leave one of both out"
            )
        if enabled:
            continue
        return (
            f"pod {pod.name}: {GPUS}: Muster gives no devices in place here (devices.enabled is off), and the pod "
            "would wait for them for ever; leave the annotation out and request GPUs"
        )
    return ""
