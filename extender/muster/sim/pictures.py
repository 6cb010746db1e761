"""The comparison as pictures: JCT CDF, GPUs over time by job, queue length. PNG and SVG, always the same bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from muster.errors import UsageError
from muster.sim import history_lines
from muster.sim.figures import HOUR
from muster.sim.result import Result
from muster.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

LINES = ("#2f6fbf", "#d8433b", "#3d9a50", "#8a5bb5", "#d98a1f", "#4aa8b8", "#b0527f", "#7a7a2a", "#555555")
DASHES = ("-", "--", "-.", ":")
BANDS = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#ff9da7", "#9c755f"),
    *("#86bcb6", "#d4a6c8", "#8cd17d", "#f1ce63", "#a0cbe8", "#ffbe7d"),
)
OTHERS = "#c9ced6"
INK, FAINT = "#333a45", "#d9dde3"
SHOWN = 30
"""Jobs that get a band of their own; the others share one."""
WIDTH = 9.6
SETTINGS: Any = {
    "svg.hashsalt": "muster",
    "svg.fonttype": "path",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def required() -> None:
    """Raises UsageError where matplotlib is not installed: before a long run, not after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError("--report needs matplotlib: pip install matplotlib") from None


def all_of(results: Mapping[str, Result]) -> Iterator[tuple[str, str, Mapping[str, bytes]]]:
    """Name, caption and the files (png, svg) of each picture that the results can give."""
    import matplotlib as mpl

    with mpl.rc_context(SETTINGS):
        if any(np.isfinite(result.ended).any() for result in results.values()):
            yield (
                "jct",
                "Share of all jobs that were done so long after their submission.",
                _files(_jct(results)),
            )
        if any(segment.gpus for result in results.values() for segment in result.segments):
            caption = (
                "GPUs in use, one band a job, by submission from below; its colour is the same in each run."
            )
            if max(len(result.names) for result in results.values()) > SHOWN:
                caption += f" The {SHOWN} jobs with the most GPU-hours have one, all others are grey."
            yield "gpus", caption, _files(_gpus(results))
        if any(result.queue for result in results.values()):
            yield "queue", "Jobs that were submitted and had no GPU.", _files(_queue(results))


def _files(figure: Figure) -> Mapping[str, bytes]:
    found = {}
    for form, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=130, metadata=metadata)
        found[form] = buffer.getvalue()
    return found


def _jct(results: Mapping[str, Result]) -> Figure:
    figure, (axes,) = _panels(1, 3.7)
    for number, (name, result) in enumerate(results.items()):
        ended = np.isfinite(result.ended)
        jct = np.maximum((result.ended - result.submitted)[ended] / HOUR, 1 / HOUR)
        if not len(jct):
            continue
        at, shares = history_lines.distribution(jct)
        # A job that never ended is missing at the top: the share is of all jobs.
        shares = shares * len(jct) / len(result.names)
        axes.step(at, shares, where="post", label=f"{name}: average {jct.mean():,.2f} h", **_line(number))
    axes.set_xscale("log")
    axes.set(xlabel="job completion time", ylabel="jobs completed", ylim=(0, 1.02))
    _hours(axes)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.grid(color=FAINT, linewidth=0.7)
    axes.legend(loc="upper left", frameon=False)
    return figure


def _gpus(results: Mapping[str, Result]) -> Figure:
    shown = {name: result for name, result in results.items() if result.segments}
    figure, panels = _panels(len(shown), 2.3)
    span, chosen = (
        history_lines.span_of(list(shown.values())),
        history_lines.largest(list(shown.values()), SHOWN),
    )
    for axes, (name, result) in zip(panels, shown.items(), strict=True):
        bands = history_lines.gpus_by_job(result, span, chosen)
        colours = [BANDS[i % len(BANDS)] for i in range(len(bands.names))] + [OTHERS] * bool(bands.others)
        edges, scale, unit = _time(bands.edges, span)
        axes.add_collection(_bands(edges, bands.means, colours), autolim=False)
        axes.axhline(result.gpus, color=INK, linewidth=0.8, linestyle="--")
        end = float(np.nanmax(result.ended)) if np.isfinite(result.ended).any() else span[1]
        axes.axvline((end - span[0]) / scale, color=INK, linewidth=0.8)
        axes.set(xlim=(0, edges[-1] * 1.005), ylim=(0, max(result.gpus, 1) * 1.06), ylabel="GPUs")
        words = f"cut short: {result.cut}" if result.cut else f"last job done after {_length(end - span[0])}"
        axes.set_title(f"{name}: {words}", loc="left", fontsize=10, fontweight="bold")
        axes.set_xlabel(f"{unit} since the first submission" if axes is panels[-1] else "")
    return figure


def _bands(edges: FloatArray, means: FloatArray, colours: Sequence[str]) -> PolyCollection:
    """Stairs, one on top of another: a band is flat within a step, so nothing slopes that did not."""
    from matplotlib.collections import PolyCollection

    across = np.repeat(edges, 2)[1:-1]
    tops = np.vstack([np.zeros(len(edges) - 1), np.cumsum(means, axis=0)])
    outlines = [
        np.column_stack(
            [np.append(across, across[::-1]), np.append(np.repeat(top, 2), np.repeat(floor, 2)[::-1])]
        )
        for floor, top in pairwise(tops)
    ]
    return PolyCollection(outlines, facecolors=colours, linewidths=0, rasterized=True)


def _queue(results: Mapping[str, Result]) -> Figure:
    figure, (axes,) = _panels(1, 3.1)
    span = history_lines.span_of(list(results.values()))
    unit = "hours"
    for number, (name, result) in enumerate(results.items()):
        if result.queue:
            edges, means = history_lines.queue(result, span)
            edges, _, unit = _time(edges, span)
            axes.step(edges[:-1], means, where="post", label=name, **_line(number))
    axes.set(xlabel=f"{unit} since the first submission", ylabel="jobs waiting")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(color=FAINT, linewidth=0.7)
    axes.legend(loc="upper right", frameon=False)
    return figure


def _panels(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, 1, squeeze=False, sharex=True)
    return figure, [axes for (axes,) in panels]


def _line(number: int) -> dict[str, Any]:
    """Colour and, for printing in black, dashes."""
    dash = DASHES[number % len(DASHES)]
    return {"color": LINES[number % len(LINES)], "linestyle": dash, "linewidth": 1.8}


def _time(edges: Any, span: tuple[float, float]) -> tuple[Any, float, str]:
    """Edges from 0 in a unit that fits the span, seconds in that unit, and its name."""
    length = span[1] - span[0]
    scale, unit = (
        (86400.0, "days")
        if length > 4 * 86400
        else (HOUR, "hours")
        if length > 2 * HOUR
        else (60.0, "minutes")
    )
    return (edges - span[0]) / scale, scale, unit


def _length(seconds: float) -> str:
    """2.3 days, 7.4 h, 12 min."""
    if seconds > 4 * 86400:
        return f"{seconds / 86400:,.1f} days"
    return f"{seconds / HOUR:.1f} h" if seconds > 2 * HOUR else f"{seconds / 60:.0f} min"


def _hours(axes: Axes) -> None:
    """Ticks of a logarithmic axis of hours, in words."""
    from matplotlib.ticker import FixedLocator, NullLocator

    marks = {
        1 / 3600: "1 s", 10 / 3600: "10 s", 1 / 60: "1 min", 10 / 60: "10 min", 1: "1 h", 6: "6 h", 24: "1 d",
        168: "1 w", 720: "30 d", 8760: "1 y",
    }  # fmt: skip
    low, high = axes.get_xlim()
    inside = {at: word for at, word in marks.items() if low <= at <= high}
    if len(inside) < 2:  # all jobs take about the same: the axis' own ticks tell more
        axes.xaxis.set_major_formatter("{x:g} h")
        return
    axes.xaxis.set_major_locator(FixedLocator(list(inside)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(list(inside.values()))
