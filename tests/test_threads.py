"""Threads of `muster serve`: none is started elsewhere, and none dies silently."""

from __future__ import annotations

import ast
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import muster
from muster import threads
from muster.cluster.faults import Faults
from muster.threads import KilledError, Supervised, ThreadErrors, ailing, beat, supervised

SOURCES = Path(muster.__file__).parent
OF_OTHER_PROGRAMS = {"top.py", "report.py"}
"""`muster top` on a terminal; what runs inside of a training."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "PAUSE", 0.0)
    yield
    for thread in list(threads._started):
        if thread.name.startswith("test-"):
            thread.over = True
            threads._started.discard(thread)


def until(true: Callable[[], object]) -> None:
    """It must come to be."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.001)


def counted(name: str) -> float:
    registry = CollectorRegistry()
    registry.register(ThreadErrors())
    return registry.get_sample_value("muster_thread_errors_total", {"thread": name}) or 0.0


def test_every_thread_of_muster_is_started_in_one_place() -> None:
    """A thread that is started elsewhere may die without anybody knowing."""
    found = {
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", "") or getattr(node.func, "id", ""))
        in ("Thread", "Timer", "ThreadPoolExecutor", "start_new_thread")
    }
    # The agent and sim are other processes; so is `muster top`.
    others = ("sim/", "agent/")
    assert {
        f for f in found if f.partition(":")[0] not in OF_OTHER_PROGRAMS and not f.startswith(others)
    } == set()
    subclasses = [
        path.name
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and any("Thread" in ast.unparse(base) for base in node.bases)
    ]
    assert subclasses == ["threads.py"]


@pytest.mark.parametrize("error", [KeyError("metadata"), SystemExit(1), MemoryError()], ids=repr)
def test_what_escapes_in_a_thread_is_logged_and_counted_and_the_thread_goes_on(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    name, left = f"test-{type(error).__name__}", [error, error]

    def body() -> None:
        if left:
            raise left.pop()

    thread = supervised(name, body)
    thread.join(30)
    assert thread.over
    assert counted(name) == 2
    assert [r.message for r in caplog.records if r.exc_info] == [f"thread {name}"] * 2
    assert ailing(time.monotonic()) == []


def test_pauses_between_errors_grow_and_begin_again_after_a_quiet_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "PAUSE", 1.0)
    clock, slept, runs = [0.0], list[float](), [1.0, 1.0, 1.0, 1.0, 61.0, 1.0]
    monkeypatch.setattr(threads.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(threads.time, "sleep", slept.append)

    def body() -> None:
        if runs:
            clock[0] += runs.pop(0)
            raise ValueError

    Supervised("test-pauses", body, None).run()
    assert slept == [1.0, 2.0, 4.0, 5.0, 1.0, 2.0]


@pytest.mark.parametrize("error", [None, OSError("the port is taken")])
def test_the_process_ends_with_a_thread_that_it_cannot_do_without(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(Supervised, "ends", staticmethod(ended.append))

    def body() -> None:
        if error is not None:
            raise error

    supervised("test-vital", body, vital=True).join(30)
    assert ended == ["thread test-vital ended" + (": OSError: the port is taken" if error else "")]


def test_a_thread_that_is_dead_and_one_that_hangs_are_named() -> None:
    goes_on = threading.Event()

    def dies() -> None:
        raise KilledError

    def hangs() -> None:
        beat()
        goes_on.wait(30)

    dead = supervised("test-dead", dies, within=60.0)
    stuck = supervised("test-stuck", hangs, within=60.0)
    patient = supervised("test-patient", hangs)
    dead.join(30)
    now = stuck.beaten
    assert ailing(now + 59) == ["thread test-dead is dead"]
    assert ailing(now + 61) == [
        "thread test-dead is dead",
        "thread test-stuck has not gone on for 61 s",
    ]
    goes_on.set()
    stuck.join(30)
    patient.join(30)
    assert ailing(now + 61) == ["thread test-dead is dead"], "one that returned has done its work"


def test_threads_can_be_hurt_at_any_step(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults.parse(
        "raise after 2 THREAD test-hurt x1; end after 5 THREAD test-killed; 500 after 0 pods"
    )
    monkeypatch.setattr(Supervised, "injected", staticmethod(partial(faults.step, "THREAD")))
    steps = {"test-hurt": 0, "test-killed": 0}

    def body(name: str) -> None:
        for _ in range(10):
            beat()
            steps[name] += 1

    for name in steps:
        supervised(name, partial(body, name)).join(30)
    # Each begins with a step of its own.
    assert steps == {"test-hurt": 11, "test-killed": 4}
    assert counted("test-hurt") == 1
    assert ailing(0.0) == ["thread test-killed is dead"]
    until(lambda: not any(t.name == "test-killed" for t in threading.enumerate()))
