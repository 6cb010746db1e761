"""One self-contained HTML page that compares profiles on a trace: no external resources, good on paper too.

What is in it: figures beside each other, the three pictures, what was assumed, what was wrong with the trace, and a
table of jobs. No time of day and no path: the same run gives the same page.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from muster.sim import pictures, terminal_table
from muster.sim.figures import HOUR
from muster.sim.html_assumptions import assumptions, cluster_words, problems
from muster.sim.result import Result

if TYPE_CHECKING:
    from muster.sim.request import Outcome

ROWS = 2000
"""Jobs in the page's table; jobs.csv has all."""
LESS_IS_BETTER = (
    *("avg_jct_h", "p50_jct_h", "p99_jct_h", "avg_queueing_h", "makespan_h"),
    *("avg_queue", "blocking_index", "finish_time_fairness"),
)
MORE_IS_BETTER = ("cluster_efficiency",)
WORDS = {
    "JCT": "job completion time: from submission to completion; percentiles are linear between jobs (numpy's)",
    "wait for a start": "from submission to the job's first start",
    "makespan": "last completion minus first submission",
    "GPUs in use": "share of the GPUs that jobs hold, from first submission to last completion",
    "cluster efficiency": "CE = (1/M) x sum over running jobs of speed / speed on one GPU, M = GPUs of the cluster",
    "blocking index": "mean over waiting jobs of time waited / remaining time on one GPU",
    "finish-time fairness": "mean over jobs of JCT / JCT on an equal part of the cluster; 1 or less is fair",
    "restarts, migrations": "starts after the first and changes that needed one; changes of nodes alone",
}
SORT = """
document.querySelectorAll('.jobs th[data-sort]').forEach(function (head) {
  head.addEventListener('click', function () {
    var body = head.closest('table').tBodies[0], column = +head.dataset.sort, down = head.dataset.down !== '1';
    function key(row) { return row.cells[column].dataset.value; }
    head.dataset.down = down ? '1' : '0';
    Array.from(body.rows).sort(function (a, b) {
      var x = key(a), y = key(b), d = (+x) - (+y);
      if (isNaN(d)) { d = x < y ? -1 : x > y ? 1 : 0; }
      return down ? -d : d;
    }).forEach(function (row) { body.appendChild(row); });
  });
});
"""


def write(outcome: Outcome, folder: Path) -> None:
    """report.html and the pictures beside it. OSError where they can't be written."""
    drawn = list(pictures.all_of(outcome.results))
    for name, _, forms in drawn:
        for form, data in forms.items():
            (folder / f"{name}.{form}").write_bytes(data)
    shown = [(name, caption, forms["svg"]) for name, caption, forms in drawn]
    (folder / "report.html").write_text(page(outcome, shown), encoding="utf-8")


def page(outcome: Outcome, drawn: Sequence[tuple[str, str, bytes]]) -> str:
    """The whole page; `drawn` are pictures by name with caption and SVG."""
    title = _title(outcome)
    titles = {"jct": "Completion times", "gpus": "Who has the GPUs", "queue": "The queue"}
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{escape(_lead(outcome))}</p>',
        _cut(outcome),
        "<h2>Comparison</h2>",
        _comparison(outcome.results),
        *(
            f"<h2>{titles[name]}</h2><figure>{_image(data, titles[name])}<figcaption>{escape(caption)}</figcaption>"
            "</figure>"
            for name, caption, data in drawn
        ),
        "<h2>What was assumed</h2>",
        assumptions(outcome),
        "<h2>Problems of the trace</h2>",
        problems(outcome),
        "<h2>Jobs</h2>",
        _jobs(outcome),
        "<h2>Words</h2>",
        "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in WORDS.items()) + "</dl>",
        f"<footer>muster {escape(version('muster-scheduler'))}. The same input and seed give the same page.</footer>",
    ]
    css = files("muster.sim").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n<script>{SORT}</script>\n</body>\n</html>\n"
    )


def _title(outcome: Outcome) -> str:
    names = list(outcome.results)
    what = (
        names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "No profile"
    )
    request = outcome.request
    return f"{what} on {request.trace.name if request.trace else request.preset}"


def _lead(outcome: Outcome) -> str:
    jobs = len(outcome.workload.submissions)
    days = (outcome.workload.submissions[-1].submitted - outcome.workload.submissions[0].submitted) / 86400
    over = f" over {days:,.1f} days" if days >= 1 else f" over {24 * days:.1f} hours" if days else " at once"
    return f"{jobs:,} jobs, submitted{over}, on {cluster_words(outcome.cluster)}."


def _cut(outcome: Outcome) -> str:
    if not outcome.cut:
        return ""
    words = [f"{name}: {result.cut}" for name, result in outcome.results.items() if result.cut]
    if outcome.skipped:
        words.append(f"not run at all: {', '.join(outcome.skipped)}")
    told = f"{'; '.join(words)}. Figures are of what had happened until then."
    return f'<div class="cut"><b>This report is partial.</b> {escape(told)}</div>'


# ---- figures ----


def _comparison(results: Mapping[str, Result]) -> str:
    rows = []
    for figure, label, unit, values in terminal_table.rows(results):
        best = _best(figure, [_shown(value, unit) for value in values], values)
        cells = "".join(
            _cell(value, unit, i in best, values[0] if i else None) for i, value in enumerate(values)
        )
        rows.append(f"<tr><td>{escape(label)}</td>{cells}</tr>")
    heads = "".join(f"<th>{escape(name)}</th>" for name in results)
    first = next(iter(results), "")
    note = f"Marked: the best of a row. Small: times the figure of {first}." if len(results) > 1 else ""
    return (
        f'<div class="wide keep"><table><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
        f'<p class="note">{escape(note)}</p>'
    )


def _best(figure: str, words: Sequence[str], values: Sequence[float]) -> set[int]:
    """The columns to mark: those that read as the best one does, unless all of them do."""
    real = [v for v in values if not math.isnan(v)]
    if not real or figure not in LESS_IS_BETTER + MORE_IS_BETTER:
        return set()
    best = words[values.index(min(real) if figure in LESS_IS_BETTER else max(real))]
    found = {column for column, word in enumerate(words) if word == best}
    return set() if len(found) == len(words) else found


def _shown(value: float, unit: str) -> str:
    whole = not unit and not math.isnan(value) and value == int(value)
    return terminal_table.number(int(value) if whole else value, unit)


def _cell(value: float, unit: str, best: bool, base: float | None) -> str:
    ratio = ""
    if base and not math.isnan(value) and not math.isnan(base):
        ratio = f'<span class="ratio">×{value / base:.2f}</span>'
    return f"<td{' class=best' if best else ''}>{_shown(value, unit)}{ratio}</td>"


def _image(svg: bytes, alt: str) -> str:
    return f'<img alt="{escape(alt)}" src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}">'


# ---- what was assumed ----


# ---- jobs ----


def _jobs(outcome: Outcome) -> str:
    """A row a job, with completion time, wait and restarts under each profile."""
    results = list(outcome.results.items())
    jobs = outcome.workload.submissions
    if not results:
        return "<p>No profile was run.</p>"
    chosen: Iterable[int] = range(len(jobs))
    words = f"All {len(jobs):,} jobs"
    if len(jobs) > ROWS:
        length = results[0][1].ended - results[0][1].submitted
        order = np.argsort(-np.nan_to_num(length, nan=np.inf), kind="stable")[:ROWS]
        chosen, words = (
            np.sort(order).tolist(),
            f"The {ROWS:,} jobs of {len(jobs):,} that take longest under {results[0][0]}",
        )
    head = "".join(f'<th colspan="3">{escape(name)}</th>' for name, _ in results)
    names = ["job", "model", "GPUs", "submitted (h)"] + ["JCT (h)", "wait (h)", "restarts"] * len(results)
    heads = "".join(f'<th data-sort="{i}">{escape(name)}</th>' for i, name in enumerate(names))
    rows = []
    for row in chosen:
        job = jobs[row]
        cells = [
            f'<td data-value="{escape(job.name)}">{escape(job.name)}</td>',
            f'<td class="text" data-value="{escape(job.model)}">{escape(job.model)}</td>',
            f'<td data-value="{job.request}">{job.request}</td>',
            _value(job.submitted / HOUR),
        ]
        for _, result in results:
            cells += [
                _value(float(result.ended[row] - result.submitted[row]) / HOUR, "first"),
                _value(float(result.started[row] - result.submitted[row]) / HOUR),
                f'<td data-value="{result.restarts[row]}">{result.restarts[row]}</td>',
            ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<p class="note">{escape(words)}; jobs.csv has every one with all columns.'
        '<span class="screen"> A click on a heading sorts.</span></p>'
        f'<div class="wide"><table class="jobs"><thead><tr><th colspan="4"></th>{head}</tr><tr>{heads}</tr></thead>'
        f"<tbody>\n{chr(10).join(rows)}\n</tbody></table></div>"
    )


def _value(value: float, kind: str = "") -> str:
    shown = "-" if math.isnan(value) else f"{value:,.2f}"
    order = "" if math.isnan(value) else f"{value:.6g}"
    return f'<td{f" class={kind}" if kind else ""} data-value="{order}">{shown}</td>'
