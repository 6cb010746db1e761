"""In place: what the plan grants each pod of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.types import JobKey

PARTS = "/"
"""Between a pod's uid and the number of its slot, in a slot's uid."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Devices that a pod is to have on its node."""

    pod: str
    node: str
    count: int


Grants = Mapping[JobKey, tuple[Granted, ...]]
"""By job in place: what each of its pods is to have, all of them alike."""
Sizes = Mapping[JobKey, tuple[int, ...]]
"""By job in place: numbers of GPUs that each of its pods can train on, rising."""
