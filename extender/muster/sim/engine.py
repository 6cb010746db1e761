"""The simulator's front: a workload, a cluster and a profile in, a Result out.

Two engines run the same plugins through the same core: `fluid` (any integer share, no placement: the steps 1 to
3 of a cycle on columns) and `placed` (the whole cycle on nodes).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.points import Profile
from muster.sim.result import Result
from muster.sim.workload import Cluster, Workload

Progress = Callable[[int, int, float], None]
"""Called now and then with jobs completed, jobs in all, and the simulated time (s); may raise Interrupted."""


class Interrupted(Exception):  # noqa: N818 - the end of a run, no error
    """Ctrl-C: the engine ends, and its Result says at which simulated time it was cut."""


@dataclass(frozen=True, slots=True)
class Options:
    """seed: of everything random. restart: seconds without progress when a job's configuration changes (or it is
    started again). migrate: the same where only its nodes change (None: as restart). checkpoint: seconds
    between checkpoints; work since the last is lost at a restart (0: nothing is lost). round: plan only at whole
    multiples of it (s). failures: mean seconds between failures of one node (0: none); repair: seconds until it
    is back. record: keep segments and queue. whole_seconds: arrivals and completions rounded up to whole
    seconds, as the AFS authors' simulator has them.
    """

    seed: int = 0
    restart: float = 0.0
    migrate: float | None = None
    checkpoint: float = 0.0
    round: float = 0.0
    failures: float = 0.0
    repair: float = 3600.0
    record: bool = False
    whole_seconds: bool = False


def simulate(
    workload: Workload,
    cluster: Cluster,
    profile: Profile,
    options: Options = Options(),
    progress: Progress | None = None,
) -> Result:
    """Run one profile. Deterministic: the same input and seed, the same Result."""
    if cluster.fluid:
        from muster.sim.fluid import run
    else:
        from muster.sim.placed import run
    return run(workload, cluster, profile, options, progress)
