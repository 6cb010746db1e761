"""The process that answers the verbs: what it is told, and what becomes of it, of its planner and of its port."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from muster.core.views.view import View
from muster.errors import ConfigurationError
from muster.server import answering
from muster.server.answering import Answering, sendable
from muster.server.extender_metrics import ExtenderMetrics
from muster.threads import Supervised
from muster_plugins.pack import Pack
from tests.scenario import FIFO, job, snapshot
from tests.server.reading import viewed


class Running:
    """One, with its thread, its metrics and its port."""

    def __init__(self) -> None:
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.client = httpx.Client(
            trust_env=False, timeout=30, limits=httpx.Limits(max_keepalive_connections=0)
        )
        self.registry = CollectorRegistry()
        self.it = Answering(self.port, "muster", ExtenderMetrics(self.registry))
        self.thread: Supervised = self.it.start()

    def passes(self, uid: str = "train-worker-0") -> list[str]:
        """The nodes of n0 and n1 that /filter lets it onto."""
        pod = {"metadata": {"uid": uid, "name": uid, "namespace": "team"}, "spec": {}}
        body = {"Pod": pod, "Nodes": None, "NodeNames": ["n0", "n1"]}
        url = f"http://127.0.0.1:{self.port}/filter"
        found = self.client.post(url, json=body).json()
        return list(found["NodeNames"] or [])

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"muster_extender_{name}", labels) or 0.0

    def pids(self) -> list[int]:
        """Of the processes that answer; those of this thread only."""
        children = f"/proc/self/task/{self.thread.native_id}/children"
        with open(children) as found:
            return [int(pid) for pid in found.read().split()]


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.it.stop()
    made.thread.join(20)
    assert not made.thread.is_alive()
    with pytest.raises(httpx.ConnectError):
        made.passes()


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if true():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


PIDFD_GETFD = 438  # the number of this system call on every architecture; os has no function of it
LISTENS = (socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def accepted(pid: int, port: int) -> Iterator[socket.socket]:
    """Copies of the connections that a child process has accepted on this port (pidfd_getfd(2))."""
    process = os.pidfd_open(pid)
    try:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if not os.readlink(path).startswith("socket:"):
                    continue
            copy = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, int(path.name), 0)
            if copy >= 0:
                with socket.socket(fileno=copy) as line:
                    internet = line.family == socket.AF_INET and not line.getsockopt(*LISTENS)
                    if internet and line.getsockname()[1] == port:
                        yield line
    finally:
        os.close(process)


def view(*jobs: str, **fields: bool) -> View:
    return viewed(snapshot(jobs=[job(name, worker=1, gpus=8) for name in jobs]), **fields)


def test_its_port_opens_with_the_first_view_of_a_planner_that_is_synced(running: Running) -> None:
    running.it.show(view(synced=False))
    until(lambda: running.it._told and running.it._took == 1, "it has taken that")
    assert (running.it.open, running.it.opened, running.it.ailing(1e12)) == (False, False, [])
    running.it.show(view("train"))
    until(lambda: running.it.open, "its port opens")
    assert running.passes() == ["n0"]


def test_no_answer_is_by_an_older_view_once_it_was_shown_and_all_calls_are_counted(running: Running) -> None:
    running.it.show(view())
    until(lambda: running.it.open, "its port opens")
    for number in range(50):
        running.it.show(view("train") if number % 2 else view("other", "train"))
        assert running.passes() == (["n0"] if number % 2 else ["n1"])
    until(lambda: running.count("seconds_count", verb="filter") == 50, "all calls are counted")
    assert running.count("requests_total", verb="filter", status="200") == 50
    assert running.count("verdicts_total", verb="filter", verdict="passed") == 50
    assert running.count("starts_total") == 1


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(running: Running) -> None:
    """With Nagle's algorithm each answer took 40 ms of kube-scheduler: 22 pods started a second, not 250."""
    running.it.show(view("train"))
    until(lambda: running.it.open, "its port opens")
    with socket.create_connection(("127.0.0.1", running.port)):
        (pid,) = running.pids()
        option = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
        until(lambda: [True for _ in accepted(pid, running.port)], "the connection is accepted")
        assert [bool(line.getsockopt(*option)) for line in accepted(pid, running.port)] == [True]


def test_one_that_is_killed_is_started_again_and_knows_the_whole_plan_that_nobody_tells_again(
    running: Running,
) -> None:
    running.it.show(view("train"))
    running.it.show(view("train", "other"))
    until(lambda: running.passes() == ["n0"], "it answers")
    before = running.pids()
    os.kill(before[0], signal.SIGKILL)
    until(lambda: running.count("starts_total") == 2 and running.it.open, "it is back")
    assert running.pids() != before
    assert (running.passes(), running.passes("other-worker-0")) == (["n0"], ["n1"])
    assert running.it.ailing(1e12) == []


def test_one_that_hangs_is_killed_and_nobody_waits_for_it_for_ever(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "TAKES", 2.0)
    running.it.show(view("train"))
    until(lambda: running.it.open, "its port opens")
    (pid,) = running.pids()
    os.kill(pid, signal.SIGSTOP)
    running.it.show(view("other", "train"))
    assert not running.it.open, "it may not answer by the older one"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    until(lambda: running.passes() == ["n1"], "another one answers")


def test_a_port_that_is_taken_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    running = Running()
    with closing(socket.socket()) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", running.port))
        taken.listen()
        running.it.show(view("train"))
        until(lambda: running.count("starts_total") >= 2, "it is tried again")
        assert running.it.ailing(time.monotonic()) == []
        assert running.it.ailing(time.monotonic() + 60)[0].startswith("nobody has answered the verbs for 6")
    until(lambda: running.passes() == ["n0"], "it answers when the port is free")
    assert running.it.ailing(time.monotonic() + 60) == []
    running.it.stop()
    running.thread.join(20)
    assert "has ended; it is started again" in caplog.text


def test_who_waits_for_it_is_let_go_when_it_is_stopped() -> None:
    running = Running()
    running.it.show(view("train"))
    until(lambda: running.it.open, "its port opens")
    (pid,) = running.pids()
    os.kill(pid, signal.SIGSTOP)
    waits = threading.Thread(target=running.it.show, args=(view("train"),))
    waits.start()
    running.it.stop()
    waits.join(20)
    running.thread.join(20)
    assert not waits.is_alive()
    assert not running.thread.is_alive()


def test_a_plugin_that_cannot_be_sent_is_refused_with_the_configuration() -> None:
    class Local(Pack):
        """Nobody else can import it."""

    with pytest.raises(
        ConfigurationError, match="profile fifo: plugin Local: expected a plugin of plain values"
    ):
        sendable(replace(FIFO, scores=((Pack(), 1.0), (Local(), 1.0))))
    assert sendable(FIFO) is FIFO


def test_plans_come_whole_or_not_at_all_while_calls_go_on(running: Running) -> None:
    """1,000 jobs in 40 parts; each answer is by one View: the pod is on the one node or the other."""
    many = [f"j{number:04d}" for number in range(1000)]
    first = viewed(snapshot(nodes=1000, jobs=[job(name, worker=1, gpus=8) for name in many]))

    def placed(node: str) -> View:
        return replace(
            first,
            reservations={
                uid: (key, replace(reservation, node=node))
                for uid, (key, reservation) in first.reservations.items()
            },
        )

    first, second = placed("n0"), placed("n1")
    running.it.show(second)
    until(lambda: running.it.open, "its port opens")
    seen: set[tuple[str, ...]] = set()
    shown = threading.Event()

    def shows() -> None:
        for number in range(10):
            running.it.show(second if number % 2 else first)
        shown.set()

    showing = threading.Thread(target=shows)
    showing.start()
    while not shown.is_set():
        seen.add(tuple(running.passes("j0000-worker-0")))
        seen.add(tuple(running.passes("j0999-worker-0")))
    showing.join()
    assert seen <= {("n0",), ("n1",)}
    assert seen
