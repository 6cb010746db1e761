"""The simulator's front: a workload, a cluster and a profile in, a Result out.

Two engines run the same plugins through the same core: `fluid` (any integer share, no placement:
estimate, order and share on columns) and `placed` (the whole cycle on nodes).
"""

from __future__ import annotations

from muster.points import Profile
from muster.sim.options import Options, Progress
from muster.sim.result import Result
from muster.sim.workload import Cluster, Workload


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
