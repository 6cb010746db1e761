"""The page and the pictures: self-contained, complete, the same every time; curves that keep their area."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim import arguments, history_lines, html_report, pictures
from muster.sim.options import Options
from muster.sim.request import Outcome, Request
from muster.sim.result import Result, Segment
from muster.sim.submission import Linear, Submission
from muster.sim.workload import Cluster, Group, Problem, Workload
from tests.sim_fake import fifo

RECORD = Options(record=True, restart=30.0)
PNG = b"\x89PNG\r\n"


def outcome(jobs: int = 5, **fields: object) -> Outcome:
    """Two profiles on a few jobs with awkward names, one line of the trace broken."""
    names = [f"job-{i}" for i in range(jobs - 1)] + ["<b>&"]
    submissions = [
        Submission(name, 60.0 * i, "linear", 3600.0 * (i % 3 + 1), i % 2 + 1) for i, name in enumerate(names)
    ]
    problems = (Problem(7, "service must be above 0; found '<x>'", "left out"),)
    workload = Workload(submissions, {"linear": Linear()}, problems)
    cluster = Cluster((Group(1, 2, "v100"),))
    results = {
        text: fifo(workload, cluster, arguments.profile(text), RECORD)
        for text in ("fifo", "fifo:order=strict")
    }
    request = Request(("fifo", "fifo:order=strict"), Path("somewhere/trace.csv"))
    made = Outcome(request, workload, cluster, RECORD, results, ("a note",))
    return made if not fields else Outcome(**{**vars(made), **fields})  # type: ignore[arg-type]


class Page(HTMLParser):
    """The words of a page, its sources, and whether its tags close in order."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.sources: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.sources += [str(value) for key, value in attrs if key in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def test_the_page_needs_nothing_from_elsewhere_and_has_its_pictures_beside_it(
    tmp_path: Path,
) -> None:
    made = outcome()
    html_report.write(made, tmp_path)
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert len(page.sources) == 3
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert not re.search(r"https?://|@import|url\(", re.sub(r'src="[^"]*"', "", text))
    assert "somewhere" not in text  # no path of the machine it was made on
    told = " ".join(page.words)
    for words in (
        "fifo and fifo:order=strict on trace.csv",
        "5 jobs, submitted over 0.1 hours, on 2 GPUs (nodes x GPUs: 1 x 2 v100).",
        "30 s without progress when a job's configuration changes",
        "a note",
        "service must be above 0; found '<x>' left out",
        "<b>&",
        "average JCT (h)",
        "All 5 jobs",
    ):
        assert words in told
    assert "partial" not in told
    for name in ("jct", "gpus", "queue"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
        assert b"<svg" in (tmp_path / f"{name}.svg").read_bytes()


def test_a_run_that_was_cut_before_anything_ended_still_gives_a_page(tmp_path: Path) -> None:
    nothing = fifo(outcome().workload, outcome().cluster, arguments.profile("fifo"))
    never = np.full(5, np.nan)
    cut = Result(
        **{**vars(nothing), "started": never, "ended": never, "cut": "interrupted at 0 s", "gauges": {}}
    )
    made = outcome(results={"fifo": cut}, skipped=("gang",))
    html_report.write(made, tmp_path)
    told = " ".join(Page((tmp_path / "report.html").read_text()).words)
    assert "This report is partial. fifo: interrupted at 0 s; not run at all: gang." in told
    assert not list(tmp_path.glob("*.png"))
    html_report.write(outcome(results={}, skipped=("fifo",)), tmp_path)
    assert "No profile was run." in (tmp_path / "report.html").read_text()


def test_a_long_trace_lists_its_longest_jobs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_report, "ROWS", 3)
    text = html_report.page(outcome(30), [])
    assert "The 3 jobs of 30 that take longest under fifo" in text
    assert text.count('<td data-value="job-') + text.count('<td data-value="&lt;b&gt;&amp;"') == 3


def test_the_best_of_a_row_is_marked_only_where_there_is_a_better() -> None:
    def marked(figure: str, *values: float) -> set[int]:
        return html_report._best(figure, [f"{value:.1f}" for value in values], values)

    assert marked("avg_jct_h", 2.0, 1.0, 3.0, 1.01) == {1, 3}
    assert marked("cluster_efficiency", 0.2, 0.9, np.nan) == {1}
    assert marked("avg_jct_h", 2.0, 2.04) == set()
    assert marked("restarts", 1, 2) == set()


def test_more_jobs_than_bands_share_a_grey_one() -> None:
    made = outcome(50)
    runs = list(made.results.values())
    chosen = history_lines.largest(runs, pictures.SHOWN)
    bands = history_lines.gpus_by_job(runs[0], history_lines.span_of(runs), chosen)
    assert (len(bands.names), bands.others, len(bands.means)) == (30, 20, 31)
    assert chosen == sorted(chosen)
    assert min(runs[0].gpu_seconds[chosen]) >= max(np.delete(runs[0].gpu_seconds, chosen))


boxes = st.tuples(st.floats(0, 900), st.floats(0.1, 100), st.integers(1, 8))


@given(st.lists(boxes, min_size=1, max_size=12), st.integers(1, 4))
def test_bands_keep_the_area_of_the_segments(found: list[tuple[float, float, int]], shown: int) -> None:
    segments = [Segment(i, start, start + length, gpus) for i, (start, length, gpus) in enumerate(found)]
    area = sum(length * gpus for _, length, gpus in found)
    blank = np.zeros(len(found))
    none = blank.astype(int)
    names = [str(s.job) for s in segments]
    result = Result("p", names, blank, blank, blank, none, none, blank, 8, segments=segments)
    bands = history_lines.gpus_by_job(result, (0.0, 1001.0), range(min(shown, len(found))))
    assert float((bands.means * np.diff(bands.edges)).sum()) == pytest.approx(area)
    assert (bands.means >= 0).all()


@given(st.lists(st.tuples(st.floats(0, 900), st.integers(0, 50)), min_size=1, max_size=20))
def test_the_queues_mean_is_kept_by_its_curve(found: list[tuple[float, int]]) -> None:
    steps = sorted(dict(found).items())
    blank = np.zeros(1)
    result = Result(
        "p", ["a"], blank, blank, blank, blank.astype(int), blank.astype(int), blank, 8, queue=steps
    )
    edges, means = history_lines.queue(result, (0.0, 1000.0))
    ends = [at for at, _ in steps[1:]] + [1000.0]
    area = sum((end - at) * length for (at, length), end in zip(steps, ends, strict=True))
    assert float((means * np.diff(edges)).sum()) == pytest.approx(area, abs=1e-6)


def test_a_distribution_of_many_keeps_its_ends() -> None:
    at, shares = history_lines.distribution(np.arange(10_000.0), most=100)
    assert (len(at), at[0], at[-1], shares[-1]) == (100, 0.0, 9999.0, 1.0)
