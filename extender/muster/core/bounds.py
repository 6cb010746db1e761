"""What is taken for a mistake: the most of each thing that anybody may write into the cluster, in one table.

Everything is bounded where it enters: quantities by `cluster.decode`, annotations by `core.workload.annotations`,
sizes where Roles are made (`core.state.job_builder`, so of owners, labels, PodGroups and annotations alike), reports
by `server.reports` and `core.progress.history`. What is beyond its bound makes that job Invalid, with a sentence that
names the field, what is expected and what was found; it raises nowhere. Behind the bounds all sums stay below 2**63,
which columns of int64 hold, and no loop over replicas or roles takes longer than milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound. most: in `unit`; why: what a larger one would break, or why nobody needs it."""

    name: str
    most: int
    unit: str
    why: str

    def __str__(self) -> str:
        return f"at most {self.most:,} {self.unit}".replace(",", " ")

    def beyond(self, field: str, found: object) -> str:
        """The sentence for its owner: field, expected, found."""
        return f"{field}: expected {self}, found {shown(found)}"


AMOUNT = Bound(
    "amount",
    1 << 47,
    "(128 TiB in bytes)",
    "of one resource, in its own unit (cpu: millicores), that a pod asks for or a node has: no machine has more, and "
    "65,000 pods of it on one node are summed in int64",
)
GPUS = Bound("gpus", 1 << 20, "GPUs", "of one pod: times the replicas of 10,000 jobs it stays below 2**63")
PLACES = Bound("places", 128, "GPUs", "that a pod has in place: no node has more (types.devices)")
REPLICAS = Bound(
    "replicas", 10_000, "replicas", "of one role: planning and writing its status visit each of them"
)
JOB_REPLICAS = Bound("job replicas", 50_000, "replicas", "of all roles of one job, likewise")
ROLES = Bound("roles", 256, "roles", "of one job: each is a line of its Gang, which is one object of etcd")
BATCH = Bound("batch", 10**9, "samples", "of an iteration: larger than any data set is of no use")
BATCHES = Bound("batches", 64, "batch sizes", "of one job: policies weigh each with each number of replicas")
POINTS = Bound(
    "points",
    256,
    "counts of replicas",
    "of one declared speed curve, or list of sizes: admission compares each with each, and each pod's is read",
)
NOTE = Bound("note", 16_384, "bytes", "of one annotation of ours: 256 roles with long names are 16 kB")
KEY = Bound("key", 317, "characters", "of a node label's key: 253 of its prefix, a slash, 63 of its name")
NAME = Bound("name", 253, "characters", "of a model: as long as any name in Kubernetes")
WORK = Bound(
    "work",
    10**12,
    "seconds on one replica",
    "the largest trainings known take 3e11 s; what it means for the calendar is bounded by HORIZON",
)
SPEED = Bound("speed", 10**9, "times one replica", "a ratio; products with WORK stay finite")
HORIZON = Bound(
    "horizon",
    100 * 365 * 86_400,
    "seconds from now (100 years)",
    "an end that is expected later counts as unknown: calendars end with the year 9999",
)
TABLE = (
    *(
        AMOUNT,
        GPUS,
        PLACES,
        REPLICAS,
        JOB_REPLICAS,
        ROLES,
        BATCH,
        BATCHES,
        POINTS,
        NOTE,
        KEY,
        NAME,
        WORK,
        SPEED,
    ),
    HORIZON,
)

SHOWN = 80
"""Characters of what was found that a sentence repeats."""


def shown(found: object) -> str:
    """What was found, as a sentence can repeat it: cut, quoted where it is text."""
    if not isinstance(found, str):
        return (
            f"{found:,}".replace(",", " ")
            if isinstance(found, int) and abs(found) < 10**18
            else str(found)[:SHOWN]
        )
    return repr(found if len(found) <= SHOWN else f"{found[:SHOWN]}...")


def calendar(seconds: float) -> datetime | None:
    """A Unix time in UTC, None where it is none (NaN, infinite, before 1970, after the year 9999)."""
    if not seconds >= 0.0:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
