"""A picture of Muster's page while the demo runs, by a real browser (e2e/browser.py): the README's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from e2e import browser
from e2e.browser import Page
from e2e.demo.course import Course

COLOURS = 64
WINDOW = (1500, 1150)


class Camera:
    """Takes one picture, of the elastic job that runs on most GPUs at the moment `at` (s of the trace's clock)."""

    def __init__(
        self, page: Page, token: str, at: float, course: Course, file: Path, one: ThreadPoolExecutor
    ) -> None:
        self._page, self._token, self._at, self._file = page, token, at, file
        self._course, self._one = course, one
        self.taken: Future[None] | None = None

    def step(self, now: float) -> None:
        if self.taken is None and now >= self._at:
            running = [job for job in self._course.jobs.values() if job.runs and job.submission.speeds]
            shown = max(running, key=lambda job: len(job.bound) * job.submission.pod_gpus, default=None)
            self.taken = self._one.submit(self._take, "" if shown is None else shown.submission.name)

    def _take(self, job: str) -> None:
        self._page.open(self._token)
        if job:
            name = next(name for name in self._page.rows("jobs") if name.endswith(f"/job-{job}"))
            self._page.open(self._token, f"job={name}")
            self._page.until(lambda: len(self._page.all("#job svg")) == 2, "the job's charts")
        self._page.picture(self._file)


@contextlib.contextmanager
def camera(file: Path, address: str, token: str, at: float, course: Course) -> Iterator[Camera]:
    """A browser that stands ready. LookupError or AssertionError where the page did not show what it should."""
    from PIL import Image  # comes with matplotlib

    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as one:
        chrome = browser.start(Path(folder))
        try:
            chrome.set_window_size(*WINDOW)
            made = Camera(Page(chrome, address), token, at, course, file, one)
            yield made
            if made.taken is not None:
                made.taken.result()
        finally:
            chrome.quit()
    taken = Image.open(file).convert("RGB")
    taken.crop((0, 0, taken.width, min(taken.height, WINDOW[1]))).quantize(COLOURS).save(file, optimize=True)
