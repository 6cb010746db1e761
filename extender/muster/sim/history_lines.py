"""A run's history as lines to draw: who has the GPUs, how long the queue is. numpy only, nothing is drawn here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.sim.result import Result
from muster.types import FloatArray

POINTS = 1200
"""Steps of time in a picture: more than it has pixels to show."""


@dataclass(frozen=True)
class Bands:
    """GPUs in use by job: edges (T+1,) s; means (B, T) GPUs in each step; names of the bands. Where there are
    `others`, the last band has no name and is all of them."""

    edges: FloatArray
    means: FloatArray
    names: tuple[str, ...]
    others: int


def largest(results: Sequence[Result], most: int) -> list[int]:
    """The `most` jobs that used the most GPU-seconds in all runs together, in order of submission."""
    used = np.sum([result.gpu_seconds for result in results], axis=0)
    # Ties by place in the trace, so that the same run gives the same picture.
    rows = np.sort(np.lexsort((np.arange(len(used)), -used))[:most])
    found: list[int] = rows[used[rows] > 0].tolist()
    return found


def gpus_by_job(result: Result, span: tuple[float, float], chosen: Sequence[int]) -> Bands:
    """The chosen jobs, one band each in their order, then all others."""
    edges = np.linspace(span[0], span[1], POINTS + 1)
    job = np.array([s.job for s in result.segments], dtype=np.int64)
    start = np.array([s.start for s in result.segments])
    end = np.array([s.end for s in result.segments])
    gpus = np.array([float(s.gpus) for s in result.segments])
    others = len(np.unique(job[~np.isin(job, chosen)]))
    shown = [_means(edges, start[job == one], end[job == one], gpus[job == one]) for one in chosen]
    if others:
        small = ~np.isin(job, chosen)
        shown.append(_means(edges, start[small], end[small], gpus[small]))
    names = tuple(result.names[one] for one in chosen)
    return Bands(edges, np.array(shown).reshape(len(shown), POINTS), names, others)


def queue(result: Result, span: tuple[float, float]) -> tuple[FloatArray, FloatArray]:
    """Edges (T+1,) s and the mean number of waiting jobs in each step (T,)."""
    edges = np.linspace(span[0], span[1], POINTS + 1)
    at = np.array([moment for moment, _ in result.queue])
    length = np.array([float(jobs) for _, jobs in result.queue])
    until = np.append(at[1:], max(span[1], float(at[-1]))) if len(at) else at
    return edges, _means(edges, at, until, length)


def distribution(values: FloatArray, most: int = POINTS) -> tuple[FloatArray, FloatArray]:
    """Values in order and the share of all that are not above each; thinned evenly where there are many."""
    ordered = np.sort(values)
    shares = np.arange(1, len(ordered) + 1) / max(1, len(ordered))
    if len(ordered) > most:
        kept = np.unique(np.linspace(0, len(ordered) - 1, most).astype(np.int64))
        ordered, shares = ordered[kept], shares[kept]
    return ordered, shares


def span_of(results: Sequence[Result]) -> tuple[float, float]:
    """From the first submission to the last thing that happened in any of the runs (s)."""
    first = min((float(r.submitted.min()) for r in results if len(r.submitted)), default=0.0)
    last = first + 1.0
    for result in results:
        ends = [float(np.nanmax(result.ended))] if np.isfinite(result.ended).any() else []
        last = max(last, *ends, *(segment.end for segment in result.segments[-1:]), first)
    return first, last


def _means(edges: FloatArray, start: FloatArray, end: FloatArray, height: FloatArray) -> FloatArray:
    """The mean of a sum of boxes in each step: exact, by the integral at the edges."""
    at = np.concatenate([start, end])
    change = np.concatenate([height, -height])
    order = np.argsort(at, kind="stable")
    at, level = at[order], np.cumsum(change[order])
    if not len(at):
        return np.zeros(len(edges) - 1)
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at))])
    # Between two changes the integral grows by the level; before the first and after the last it stays.
    place = np.searchsorted(at, edges, side="right") - 1
    inside = place >= 0
    held = np.where(place == len(at) - 1, 0.0, level[place])
    integral = np.where(inside, area[place] + held * (edges - at[place]), 0.0)
    means: FloatArray = np.diff(integral) / np.diff(edges)
    return np.maximum(means, 0.0)
