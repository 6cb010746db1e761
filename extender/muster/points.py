"""Extension points, in kube-scheduler's words, and how a profile finds its plugins (design §4).

A plugin is a frozen dataclass whose fields are the policy's parameters and which implements any of the
protocols below. Plugins propose; the core enforces capacity, gang minimum, min and max and no double booking.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from muster.errors import ConfigurationError
from muster.types import BoolArray, FloatArray, IntArray, Job, Nodes, Role, Snapshot, Want

ENTRY_POINTS = "muster.plugins"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The nodes as they stand in the middle of a trial, for one role.

    fits: (N,) how many more replicas of the role each node takes (0 = infeasible); free: (N, R);
    own: (N,) pods of this job on each node, others: (N,) pods of other jobs of ours; count: replicas still
    to be placed.
    """

    nodes: Nodes
    free: IntArray
    fits: IntArray
    own: IntArray
    others: IntArray
    count: int


@runtime_checkable
class QueueSort(Protocol):
    """Which job is first. Smaller keys first; the core appends the job's key, so ties never flip."""

    def sort_key(self, job: Job, snapshot: Snapshot) -> tuple[Any, ...]: ...


@runtime_checkable
class Filter(Protocol):
    """Which nodes may take a role: a mask (None = all) and, where it takes nodes away, why, for the owner."""

    def filter(
        self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot
    ) -> tuple[BoolArray | None, str]: ...


@runtime_checkable
class Score(Protocol):
    """(N,) floats from 0 to 100: the more, the better the node for the next replica of the role."""

    def score(self, job: Job, role: Role, candidates: Candidates, snapshot: Snapshot) -> FloatArray: ...


@runtime_checkable
class Share(Protocol):
    """Replicas by role for each job; a chain in the profile's order, the first given what jobs have now."""

    def share(self, wants: Sequence[Want], snapshot: Snapshot) -> Sequence[Want]: ...


@dataclass(frozen=True, slots=True)
class Fifo:
    """QueueSort by default: priority, submission, then the job's key (design §4)."""

    def sort_key(self, job: Job, snapshot: Snapshot) -> tuple[Any, ...]:  # noqa: ARG002
        return (-job.priority, job.submitted)


@dataclass(frozen=True, slots=True)
class Profile:
    """Plugins with their weights, and the core's own settings.

    order: "backfill" or "strict". patience: seconds that a head of unknown run time waits before freed
    capacity is kept for it. timeout: seconds between a gang's first and last bind before it goes back to
    the gate. evidence: age in seconds of a refusal before it undoes a pin. owner_pause: seconds without a new
    pod after which an owner counts as waiting for its first pods. placement: "pinned" or "scored".
    preemption: whether the head of the queue may send whole gangs of lower priority back to the gate.
    """

    name: str = "fifo"
    sort: QueueSort = field(default_factory=Fifo)
    filters: tuple[Filter, ...] = ()
    scores: tuple[tuple[Score, float], ...] = ()
    shares: tuple[Share, ...] = ()
    order: str = "backfill"
    placement: str = "pinned"
    preemption: bool = False
    patience: float = 300.0
    timeout: float = 120.0
    evidence: float = 5.0
    owner_pause: float = 10.0
    forget: float = 3600.0
    topology_levels: tuple[str, ...] = ()


def installed() -> dict[str, Any]:
    """Plugin classes by the name of their entry point, without loading the others' modules twice."""
    return {e.name: e for e in entry_points(group=ENTRY_POINTS)}


def load(name: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """The plugin `name` with `arguments` as its fields.

    Raises ConfigurationError naming the plugin or the field that is not known.
    """
    found = installed()
    if name not in found:
        raise ConfigurationError(f"plugin {name!r} is not installed; installed: {', '.join(sorted(found))}")
    plugin = found[name].load()
    arguments = dict(arguments or {})
    if dataclasses.is_dataclass(plugin):
        known = {f.name for f in dataclasses.fields(plugin) if f.init}
        for argument in arguments:
            if argument not in known:
                raise ConfigurationError(
                    f"pluginArgs.{name}.{argument}: not a parameter of {name}; "
                    f"it has: {', '.join(sorted(known)) or 'none'}"
                )
    try:
        return plugin(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"pluginArgs.{name}: {error}") from error
