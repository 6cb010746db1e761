"""Job objects from the fluid engine's columns, built only when a plugin asks for one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from muster.core.progress.estimate import believed
from muster.core.sharing.job_table import curves
from muster.points import Observe, Profile
from muster.sim import fluid_truth as col
from muster.sim.columns import Columns
from muster.sim.fluid_truth import speed_of
from muster.sim.workload import Cluster, Workload
from muster.types import (
    GPU,
    PODS,
    PRODUCT,
    Config,
    Facts,
    Job,
    JobKey,
    Member,
    Meter,
    NodeRecord,
    Nodes,
    Phase,
    Report,
    Role,
    Shape,
    Snapshot,
)

PLENTY = 1 << 50
"""Of what the fluid engine does not count: CPU, memory, pods."""


def nodes_of(cluster: Cluster) -> Nodes:
    """One node a group, as large as the whole group."""
    return Nodes(
        [
            NodeRecord(
                f"group-{number}",
                {PRODUCT: group.product} if group.product else {},
                allocatable={
                    GPU: group.nodes * group.gpus,
                    "cpu": PLENTY,
                    "memory": PLENTY,
                    PODS: PLENTY,
                },
            )
            for number, group in enumerate(cluster.groups)
        ]
    )


class LazyJobs(Mapping[JobKey, Job]):
    """The jobs of a table: their number is known at once, a job when it is asked for."""

    def __init__(self, workload: Workload, table: Columns) -> None:
        self.workload, self.table = workload, table
        self.made: dict[JobKey, Job] = {}
        self.row: Mapping[JobKey, int] | None = None

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self.table.keys)

    def __getitem__(self, key: JobKey) -> Job:
        if key not in self.made:
            if self.row is None:
                self.row = self.table.row
            self.made[key] = self._job(key, self.row[key])
        return self.made[key]

    def _job(self, key: JobKey, row: int) -> Job:
        table, known = self.table, self.table.truth
        number = int(table.job[row])
        submission = self.workload.submissions[number]
        name, others = known.roles[number]
        have, now = int(table.have[row]), table.now
        floats = table.floats[:, row].tolist()
        held = int(table.unit[row]) * have + (int(table.fixed[row]) if have else 0)
        shape = Shape(requests=((GPU, int(table.unit[row])),))
        members = tuple(
            Member(f"{key.name}-{n}", f"{key.name}-{n}", Phase.BOUND, shape, n, "group-0")
            for n in range(have)
        )
        roles = [
            Role(name, int(table.min[row]), int(table.max[row]), shape, table.sizes.get(row, ()), members)
        ]
        roles += [Role(other, count, count, Shape()) for other, count in others]
        table.flush()
        remaining = float(table.floats[col.REMAINING, row])
        curve = int(table.ints[col.CURVE, row])
        seconds = known.seconds[curve, 1]
        total = float(known.floats[col.WORK, number])
        never = math.inf
        return Job(
            key,
            priority=int(table.priority[row]),
            submitted=floats[col.SUBMITTED],
            roles=tuple(roles),
            started=have > 0,
            remaining_work=None if math.isnan(remaining) else total * float(seconds),
            speed=self._speeds(curve),
            memory={
                **{
                    plugin: {field: float(column[row]) for field, column in fields.items()}
                    for plugin, fields in table.memory.items()
                },
                **table.kept.get(number, {}),
            },
            request=int(table.request[row]),
            model=submission.model,
            batch=submission.batch,
            batch_sizes=submission.batch_sizes,
            gpu_memory=submission.gpu_memory,
            facts=Facts(
                first_start=None if floats[col.FIRST] == never else floats[col.FIRST],
                run_start=None if floats[col.RUN] == never else floats[col.RUN],
                gpu_seconds=Meter(floats[col.GPU_SECONDS], held, floats[col.SINCE]),
                run_gpu_seconds=Meter(floats[col.RUN_GPU_SECONDS], held, floats[col.SINCE]),
                executed=Meter(floats[col.EXECUTED], float(have > 0), floats[col.SINCE]),
                progress=Meter((total - self._left(row)) * float(seconds), 0.0, now),
                last_resize=None if floats[col.RESIZE] == -never else floats[col.RESIZE],
                restarts=int(table.ints[col.RESTARTS, row]),
                between=not have,
            ),
            report=Report(now, total - self._left(row), total if submission.known else 0.0),
            samples=self._samples(row, number, have),
        )

    def _left(self, row: int) -> float:
        self.table.flush()
        return float(self.table.floats[col.WORK, row])

    def _samples(self, row: int, number: int, have: int) -> dict[Config, float]:
        """Measured speeds: of every count up to the largest that the job has had for a while (AFS section 4.5:
        measuring the smaller ones costs next to nothing, so the engine has them measured for nothing)."""
        table = self.table
        tried = int(table.ints[col.TRIED, row])
        if have and table.now > float(table.floats[col.SINCE, row]):
            tried = max(tried, have)
        if not tried:
            return {}
        return dict(self._configs(number, int(table.ints[col.CURVE, row]))[:tried])

    def _speeds(self, curve: int) -> tuple[tuple[int, float], ...]:
        """What owners declare: the truth, relative to one replica."""
        made = self.table.speeds
        if curve not in made:
            relative = self.table.truth.relative[curve].tolist()
            made[curve] = tuple((n, s) for n, s in enumerate(relative) if n and s > 0.0)
        return made[curve]

    def _configs(self, number: int, curve: int) -> tuple[tuple[Config, float], ...]:
        """Configurations of the elastic role by count, with the iterations/s that they have."""
        table, made = self.table, self.table.configs
        if curve not in made:
            submission = self.workload.submissions[number]
            name, others = table.truth.roles[number]
            batch = submission.batch
            model = self.workload.models[submission.model]
            made[curve] = tuple(
                (
                    Config(roles=tuple(sorted([(name, n), *others])), batch=batch),
                    speed_of(model, name, n, others, table.per_node, "", batch),
                )
                for n in range(1, table.truth.seconds.shape[1])
            )
        return made[curve]


def observed(
    name: str, plugin: Observe, snapshot: Snapshot, table: Columns, plugin_errors: list[str]
) -> None:
    """A plugin's fold over the jobs, one by one, into their memory."""
    jobs = snapshot.jobs
    for number, key in zip(table.job.tolist(), table.keys, strict=True):
        try:
            kept = plugin.observe(jobs[key], snapshot)
        except Exception as error:  # a plugin's mistake must not stop the queue (design §3)
            plugin_errors.append(f"{type(plugin).__name__}.observe: {error!r}, left out")
            continue
        if kept is not None:
            table.kept.setdefault(number, {})[name] = kept
            if isinstance(jobs, LazyJobs):
                jobs.made.pop(key, None)


def estimated(snapshot: Snapshot, profile: Profile, table: Columns, plugin_errors: list[str]) -> None:
    """What the profile's Estimate believes, in the table's columns for this event."""
    believe = believed(snapshot, profile, plugin_errors)
    found = [believe(snapshot.jobs[key]) for key in table.keys]
    table.believe(
        [e.remaining for e in found], *curves([e.speeds for e in found], int(table.max.max(initial=1)))
    )
