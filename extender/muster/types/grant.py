"""What is granted to a job beside a number of replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from muster.types.values import JobKey


@dataclass(frozen=True, slots=True)
class Grant:
    """What a Share plugin grants a job beside a number of replicas; an empty field asks for nothing.

    roles: replicas by role, where the job has several that change; product: the GPU product; max_nodes: at
    most so many nodes (0 = any); batch: the global batch size; beside: the job whose GPUs it shares.
    gpu_memory: MiB that a replica uses at that batch, where it is not the job's own (0 = as the job says).
    nodes: names of the very nodes, one a replica of the elastic role; where one is not free, any others.
    measure: to be measured, a running job trains on so many replicas of the elastic role for the moment, 0 = on all;
    kept: the others of its share, which stay its own and idle. Of a job that is granted another number than both
    together it is not followed.
    """

    roles: Mapping[str, int] = field(default_factory=dict)
    product: str = ""
    max_nodes: int = 0
    batch: int = 0
    beside: JobKey | None = None
    restart: bool = False
    gpu_memory: int = 0
    nodes: tuple[str, ...] = ()
    measure: int = 0
    kept: int = 0

    @property
    def whole(self) -> Grant:
        """The same without a size to be measured at."""
        return replace(self, measure=0, kept=0) if self.measure or self.kept else self

    def within(self, count: int) -> Grant:
        """The same where so many replicas are granted."""
        return self if self.measure and self.measure + self.kept == count else self.whole
