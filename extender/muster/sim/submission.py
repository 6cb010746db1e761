"""A job of a workload: what its owner submits, and the model that it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from muster.types import Config


class Model(Protocol):
    """The truth about a model: how fast it trains, whatever a policy believes.

    max: replicas beyond which it gains nothing (elastic policies stop there). speed: iterations/s in a
    configuration, 0 where it can't run so.
    """

    @property
    def name(self) -> str: ...
    @property
    def max(self) -> int: ...
    def speed(self, config: Config) -> float: ...


class Learns(Protocol):
    """What a model may tell besides, where a policy looks at it (each is optional: asked for with getattr).

    loss: the evaluation function's value after so many iterations. steps_per_epoch: iterations of one epoch, 0 =
    no epochs. memory: MiB that one replica uses at a batch size a GPU.
    """

    @property
    def steps_per_epoch(self) -> float: ...
    def loss(self, step: float) -> float: ...
    def memory(self, batch: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Linear:
    """A model of which nothing is known: n replicas are n times as fast as one."""

    name: str = "linear"
    max: int = 1 << 30

    def speed(self, config: Config) -> float:
        return float(config.replicas)


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured speeds by number of replicas: iterations/s at 1, 2, ... replicas.

    seconds: the same as seconds of one iteration, where that is what was measured (nothing is rounded twice).
    """

    name: str
    speeds: tuple[float, ...]
    seconds: tuple[float, ...] = ()

    @property
    def max(self) -> int:
        return len(self.speeds)

    def speed(self, config: Config) -> float:
        count = min(config.replicas, len(self.speeds))
        return self.speeds[count - 1] if count else 0.0


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """One role of a submission: replicas from `min` to `max`, and what one of them asks for."""

    name: str
    min: int
    max: int
    gpus: int = 1
    cpu: int = 1000  # millicores
    memory: int = 1 << 30  # bytes


@dataclass(frozen=True, slots=True)
class Submission:
    """One job of a trace.

    request: replicas (GPUs) that its owner asked for: what rigid policies grant. work: iterations. min, max:
    what elastic policies may grant (max 0: the model's). sizes: allowed counts, empty = every one. roles:
    where it has several (empty: one role `worker` of `request` replicas). batch: global batch size, 0 = the
    model's; batch_sizes: those that it can train with, empty = no other. known: whether its length is declared to
    policies. gpu_memory: MiB a replica uses. priority as in Kubernetes. tags: what a paper's own law or policy needs
    besides; `resize` and `resize_at` as the annotations of these names; `in_place`: its GPUs are, which is what those
    have to be that share them on a cluster.
    """

    name: str
    submitted: float
    model: str
    work: float
    request: int = 1
    min: int = 1
    max: int = 0
    sizes: tuple[int, ...] = ()
    roles: tuple[RoleSpec, ...] = ()
    batch: int = 0
    batch_sizes: tuple[int, ...] = ()
    known: bool = True
    gpu_memory: int = 0
    priority: int = 0
    tags: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def ranges(self) -> bool:
        """Whether it could have another number of replicas than it asks for. (Roles name their own ranges.)"""
        return not self.roles and not (self.min == self.max == self.request)

    def at_request(self) -> Submission:
        """The same, rigid at what its owner asked for. (It can still be placed again, as an elastic job can.)"""
        if not self.ranges:
            return self
        tags = {"resize": "restart", **self.tags}
        return replace(self, min=self.request, max=self.request, sizes=(), tags=tags)
