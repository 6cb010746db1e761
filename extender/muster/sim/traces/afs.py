"""AFS's traces: columns submit_time (s), service (s), num_jobs, model_name; app_id is the job's name.

num_jobs is the number of GPUs that its owner asked for. service = iterations x time of one iteration on 1 GPU, so
the work is service / time_per_iter_s[0] iterations of the model (the data's README). sleep_time (the gap to the job
before) says nothing new and is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from muster.sim.submission import Curve, Model, Submission
from muster.sim.traces.source import Asked, Row, collect, columns, count, duration, known, moment
from muster.sim.workload import Problem
from muster.types import Config

NAME = "AFS"
COLUMNS = ("submit_time", "service", "num_jobs", "model_name")
MODELS = "measured"


def read(
    asked: Asked, rows: Iterator[Row], models: Mapping[str, Model]
) -> tuple[list[Submission], list[Problem]]:
    header = next(rows)
    time, service, gpus, model = columns(asked.path, header, COLUMNS)
    names = [name.strip() for name in header[1]]
    name = names.index("app_id") if "app_id" in names else -1
    one = Config(roles=(("worker", 1),), nodes=(1,))
    # As it was measured where that is known: 1 / (1 / t) is not always t, and references are equal to the second.
    alone = {
        key: found.seconds[0] if isinstance(found, Curve) and found.seconds else 1.0 / found.speed(one)
        for key, found in models.items()
    }
    numbers = iter(range(1 << 62))

    def job(row: Sequence[str]) -> Submission:
        number = next(numbers)
        trains = row[model]
        if trains not in alone:
            trains = known(trains.strip(), list(alone))
        return Submission(
            row[name] if name >= 0 else str(number),
            moment(row[time], "submit_time"),
            trains,
            duration(row[service], "service") / alone[trains],
            count(row[gpus], "num_jobs"),
        )

    return collect(asked, rows, max(time, service, gpus, model, name) + 1, job)
