"""Statistics of Philly that workloads are drawn from: the demo's hour, and `muster workload philly-day`.

Of virtual cluster ee9e8c (Sept-Dec 2017; Jeon et al., ATC'19, in the form of the Pollux artifact, CC-BY-4.0), which
had about 128 GPUs in use. Worked out by `python -m e2e.demo.statistics FOLDER`, whose docstring says how; a test
compares them where TRACES names the folder with the trace. No line of the trace is in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CLASSES = (1, 4, 8, 128)
"""The greatest size of each class of durations."""


@dataclass(frozen=True)
class Statistics:
    """`sizes`: (GPUs, jobs). `durations`: for each of CLASSES, its quantiles (each 5 %) in seconds. `gaps`: quantiles
    of the gap between two submissions of a busy hour, in mean gaps. `busiest`: submissions in the busiest hour.
    `hours`: how many of the whole trace's jobs were submitted in each hour of the day (the trace's clock)."""

    cluster: str
    jobs: int
    mean_use: int
    busiest: int
    sizes: tuple[tuple[int, int], ...]
    durations: tuple[tuple[float, ...], ...]
    gaps: tuple[float, ...]
    hours: tuple[int, ...]


def quantile(values: Sequence[float], at: float) -> float:
    """The value at a share of 0 to 1, between quantiles evenly apart: linear."""
    place = at * (len(values) - 1)
    low = min(int(place), len(values) - 2)
    return values[low] + (values[low + 1] - values[low]) * (place - low)


PHILLY = Statistics(
    cluster="ee9e8c",
    jobs=1511,
    mean_use=116,
    busiest=42,
    sizes=((1, 597), (2, 109), (4, 266), (8, 420), (16, 96), (24, 1), (32, 13), (64, 6), (128, 3)),
    durations=(
        (
            1.0,
            4.0,
            9.0,
            141.0,
            790.0,
            1319.0,
            3686.0,
            8533.0,
            12837.0,
            17107.0,
            19341.0,
            26690.0,
            29231.0,
            32813.0,
            39173.0,
            46628.0,
            55780.0,
            69145.0,
            104564.0,
            163328.0,
            574145.0,
        ),
        (
            3.0,
            2111.0,
            4945.0,
            7742.0,
            11914.0,
            14194.0,
            19259.0,
            22103.0,
            24330.0,
            25791.0,
            28968.0,
            34378.0,
            39445.0,
            45894.0,
            52148.0,
            59078.0,
            66857.0,
            94538.0,
            120758.0,
            193337.0,
            794178.0,
        ),
        (
            1.0,
            132.0,
            4140.0,
            22295.0,
            31548.0,
            50754.0,
            65655.0,
            100012.0,
            112847.0,
            129771.0,
            144470.0,
            159174.0,
            181308.0,
            198544.0,
            235343.0,
            265608.0,
            339509.0,
            379485.0,
            456545.0,
            727224.0,
            1102767.0,
        ),
        (
            1.0,
            4.0,
            34.0,
            42.0,
            51.0,
            78.0,
            376.0,
            2488.0,
            3839.0,
            7694.0,
            12928.0,
            16141.0,
            31335.0,
            57565.0,
            72412.0,
            94780.0,
            132519.0,
            164729.0,
            190513.0,
            267551.0,
            891298.0,
        ),
    ),
    gaps=(
        0.016,
        0.116,
        0.19,
        0.195,
        0.229,
        0.255,
        0.255,
        0.295,
        0.319,
        0.343,
        0.398,
        0.428,
        0.529,
        0.657,
        0.719,
        0.865,
        0.912,
        1.084,
        1.87,
        3.001,
        30.271,
    ),
    hours=(
        4367,
        3374,
        3835,
        3780,
        2400,
        3950,
        5732,
        7159,
        3802,
        3447,
        3510,
        2979,
        2567,
        2415,
        2185,
        2224,
        3021,
        2289,
        2744,
        2496,
        3483,
        3142,
        3885,
        3461,
    ),
)
