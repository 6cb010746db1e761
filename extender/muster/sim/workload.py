"""What a simulation is given: submissions, the models that they train, and a cluster.

Units: times in seconds from the trace's start, work in iterations of the job's model, speeds in iterations/s,
memory in MiB. A replica has `gpus` GPUs (one in every trace that we read).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.sim.submission import Model, Submission

if TYPE_CHECKING:
    from muster.sim.options import Options
    from muster.sim.physics import Physics


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one kind. memory: MiB of one GPU; cpu in millicores; racks: the group is spread over so many."""

    nodes: int
    gpus: int
    product: str = ""
    memory: int = 0
    cpu: int = 96_000
    racks: int = 1


@dataclass(frozen=True, slots=True)
class Cluster:
    """Groups of nodes. fluid: any integer share, no placement: one node a product, however large."""

    groups: tuple[Group, ...]
    fluid: bool = False

    @property
    def gpus(self) -> int:
        return sum(g.nodes * g.gpus for g in self.groups)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a trace that is not as it should be: where, what, and what was done about it."""

    line: int
    what: str
    done: str


@dataclass(frozen=True)
class Workload:
    """Submissions by time (ties: the trace's order) and what they need to be understood.

    cluster: the one that a preset or paper belongs to, None = the user's. origin: which format it was read from.
    physics: a paper's own overheads and laws (sim/physics.py), or what makes them of the user's Options; None =
    what Options say.
    """

    submissions: Sequence[Submission]
    models: Mapping[str, Model]
    problems: tuple[Problem, ...] = ()
    cluster: Cluster | None = None
    origin: str = ""
    physics: Physics | Callable[[Options], Physics] | None = None
