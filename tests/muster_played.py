"""A server on this machine that plays Muster towards agents, by the protocol of POST /v1/agents, and nothing more."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.types.devices import plain_answer, plain_report, read_agent_answer, read_agent_report
from tests.json_server import PATIENT, Answer, JsonServer

Json = dict[str, Any]


class PlayedMuster:
    """`reports` are what came; `term`, `lease` and the order of each incarnation are what is answered. A request is
    held until the order's number is above that of the report, `hold` seconds at most."""

    def __init__(self, lease: float = 600.0) -> None:
        self.term, self.lease, self.hold = 1, lease, 20.0
        self.reports: list[Json] = []
        self.orders: dict[str, Json] = {}
        self.away = False  # takes requests and answers none
        self.changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._closed = False
        self._server = JsonServer(self._said, "HTTP/1.1")
        self.url = self._server.url

    def _said(self, path: str, who: str, body: Json) -> Answer | None:
        assert (path, who) == ("/v1/agents", "Bearer t")
        answer = self._answered(body)
        return None if answer is None else (200, answer, {})

    def _answered(self, body: Json) -> Json | None:
        assert plain_report(read_agent_report(body)) == body  # else the agent is not answered
        with self.changed:
            if not self.away:
                self.reports.append(body)
                self.changed.notify_all()

            def newer() -> bool:
                order = self.orders.get(body["incarnation"], {"number": 0})
                return self._closed or self.away or order["number"] > body["order"]

            if not self.away:
                self.changed.wait_for(newer, self.hold)
            if self.away:  # who waits is not answered when we are back, either
                self.changed.wait_for(lambda: self._closed or not self.away)
                return None
            if self._closed:
                return None
            order = self.orders.get(body["incarnation"])
            answer = {"term": self.term, "lease": self.lease, "order": order}
            return plain_answer(read_agent_answer(answer))

    def order(self, incarnation: str, *devices: tuple[str, int], number: int | None = None) -> int:
        """Order exactly these (id, epoch); the order's number."""
        with self.changed:
            number = next(self._numbers) if number is None else number
            plain = [{"id": one, "epoch": epoch} for one, epoch in devices]
            self.orders[incarnation] = {"number": number, "incarnation": incarnation, "devices": plain}
            self.changed.notify_all()
        return number

    def wait(self, fits: Callable[[Json], bool]) -> Json:
        """The first report that fits, from the beginning on."""

        def found() -> Json | None:
            return next((one for one in self.reports if fits(one)), None)

        with self.changed:
            assert self.changed.wait_for(found, PATIENT), self.reports
            report = found()
            assert report is not None
            return report

    def ready(self, count: int = 1) -> list[str]:
        """The incarnations of so many agents, in the order in which they came."""

        def known() -> list[str]:
            return list(dict.fromkeys(one["incarnation"] for one in self.reports))

        with self.changed:
            assert self.changed.wait_for(lambda: len(known()) >= count, PATIENT), self.reports
            return known()

    def has(self, incarnation: str, order: int, *devices: str) -> Json:
        """The report that this order is carried out: its child has exactly these devices."""
        return self.wait(
            lambda r: (
                (r["incarnation"], r["order"], [one["id"] for one in r["devices"]])
                == (incarnation, order, [*devices])
            )
        )

    def answered_since(self, incarnation: str, count: int) -> None:
        """Wait until the agent has asked again after `count` reports: what was answered before has reached it."""
        with self.changed:
            assert self.changed.wait_for(
                lambda: any(one["incarnation"] == incarnation for one in self.reports[count:]), PATIENT
            )

    def close(self) -> None:
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        self._server.close()


@contextlib.contextmanager
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lease: float = 600.0) -> Iterator[PlayedMuster]:
    """One that runs, where MUSTER_URL and MUSTER_TOKEN_FILE say."""
    running = PlayedMuster(lease)
    (tmp_path / "token").write_text("t")
    monkeypatch.setenv("MUSTER_URL", running.url)
    monkeypatch.setenv("MUSTER_TOKEN_FILE", str(tmp_path / "token"))
    try:
        yield running
    finally:
        running.close()


def until(true: Callable[[], object], what: str) -> None:
    """Wait for a state of processes that nobody tells."""
    deadline = time.monotonic() + PATIENT
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
