"""The process `muster serve`, as whoever starts it sees it: probes, exit codes, and what it says last."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import httpx
import pytest
import yaml

from muster.points import Profile
from muster.serve import _reload
from muster.settings import load_settings, profile_of
from tests.api_fake import Server, serving
from tests.docs import reference

if TYPE_CHECKING:
    from muster.live import Driver

T = TypeVar("T")


@pytest.fixture
def api() -> Iterator[Server]:
    """An API server that has no Gangs, pods or Leases for us."""
    with serving() as found:
        yield found


@contextmanager
def muster(folder: Path, api: Server, port: int, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """It runs until the block ends."""
    file = folder / "muster.yaml"
    file.write_text(
        yaml.safe_dump({"ports": {"service": port, "extender": port + 1, "address": "127.0.0.1"}})
    )
    command = [
        sys.executable,
        "-c",
        "from muster.cli import main; main()",
        "serve",
        "--config",
        str(file),
        "--kubeconfig",
        api.kubeconfig(folder),
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def comes(true: Callable[[], T], what: str) -> T:
    """It must come to be."""
    deadline = time.monotonic() + 60
    while True:
        try:
            if found := true():
                return found
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def port() -> int:
    """Nobody listens there, nor on the next one."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def asked(port: int, path: str) -> tuple[int, dict[str, object]]:
    answer = httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=30)
    return answer.status_code, answer.json()


def test_without_lists_it_is_alive_and_not_ready_and_ends_in_order_when_told(
    tmp_path: Path, api: Server, port: int
) -> None:
    with muster(tmp_path, api, port) as process:
        assert comes(lambda: asked(port, "/healthz"), "it answers") == (200, {"status": "ok"})
        status, found = asked(port, "/readyz")
        assert status == 503
        assert isinstance(found["missing"], list)
        assert {"pods", "nodes", "gangs"} & set(found["missing"])
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "ending on signal 15" in said


def test_it_may_open_as_many_files_as_the_machine_lets_it(tmp_path: Path, api: Server, port: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with muster(tmp_path, api, port) as process:
        resource.prlimit(
            process.pid, resource.RLIMIT_NOFILE, (most - 1, most)
        )  # before it reads its configuration
        comes(lambda: asked(port, "/healthz"), "it answers")
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (most, most)


@pytest.mark.parametrize("stopped", [False, True], ids=["", "stopped"])
def test_the_process_that_answers_the_verbs_ends_with_one_that_is_killed(
    tmp_path: Path, api: Server, port: int, stopped: bool
) -> None:
    with muster(tmp_path, api, port) as process:
        (child,) = comes(lambda: children(process.pid), "it starts it")
        comes(lambda: asked(port, "/healthz"), "it answers")
        comes(lambda: loops(child), "it is in its loop")
        if stopped:
            os.kill(child, signal.SIGSTOP)
        process.kill()
        process.wait()
    comes(lambda: not alive(child), "it ends, too")


def children(pid: int) -> list[int]:
    """Of all of its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(found) for task in tasks for found in task.read_text().split()]


def loops(pid: int) -> bool:
    """Whether it waits for what it is told."""
    try:
        return any("eventpoll" in os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:  # closed meanwhile
        return False


def alive(pid: int) -> bool:
    """Whether it runs; nobody may be there to take leave of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_thread_that_is_dead_fails_the_probe_and_an_error_in_one_is_counted(
    tmp_path: Path, api: Server, port: int
) -> None:
    faults = "end after 2 THREAD lease; raise after 3 THREAD reload x2"
    with muster(tmp_path, api, port, MUSTER_FAULTS=faults):
        found = comes(lambda: (got := asked(port, "/healthz"))[0] == 500 and got[1], "the probe fails")
        assert found == {"status": "failing", "failing": ["thread lease is dead"]}
        counted = 'muster_thread_errors_total{thread="reload"} 2.0'
        comes(lambda: counted in httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text, counted)


def test_a_port_that_is_taken_ends_the_process_and_the_last_line_says_why(
    tmp_path: Path, api: Server
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with muster(tmp_path, api, taken.getsockname()[1]) as process:
            _, said = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert re.search(r"address already in use", said)
    assert said.strip().splitlines()[-1].startswith("muster: thread service ended: SystemExit")


# ---- the configuration ----


class Looks(threading.Event):
    """So many looks at the file, and it is over."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        self.left -= 1
        return self.left < 0


class Plans:
    """The profiles by which it was told to plan."""

    def __init__(self) -> None:
        self.used: list[Profile] = []

    def use(self, profile: Profile) -> None:
        self.used.append(profile)


@pytest.mark.parametrize(("order", "taken_up"), [("strict", ["strict"]), ("backfill", [])])
def test_a_configuration_that_changes_while_muster_starts_is_taken_up(
    tmp_path: Path, order: str, taken_up: list[str]
) -> None:
    file = tmp_path / "muster.yaml"
    file.write_text("order: backfill\n")
    settings, plans = load_settings(file), Plans()
    file.write_text(f"order: {order}\n")  # before the thread that looks at it has begun
    _reload(file, settings, cast("Driver", plans), Looks(3))
    assert [profile.order for profile in plans.used] == taken_up


def reloaded(folder: Path, before: str, after: str) -> list[Profile]:
    """Profiles that a process which was started with one configuration takes up from another."""
    file = folder / "muster.yaml"
    file.write_text(before)
    settings, plans = load_settings(file), Plans()
    file.write_text(after)
    _reload(file, settings, cast("Driver", plans), Looks(2))
    return plans.used


CHANGED = {
    "schedulerName": "gangs",
    "mode": "observe",
    "binder": "cluster",
    "clusterScheduler": "theirs",
    "namespaceSelector": {"matchLabels": {"team": "ml"}},
    "leader": {"namespace": "elsewhere"},
    "ports": {"service": 9090},
    "tls": {"certificates": "/tls"},
    "webhook": {"port": 9444},
    "health": {"cycle": "2m"},
    "readers": {"apiServerTokens": True},
    "reporting": {"enabled": False},
    "devices": {"enabled": True},
    "deviceResources": ["*/gpu", "google.com/tpu"],
}
"""Another value of each setting that is read at the start only."""


@pytest.mark.parametrize("key", CHANGED)
def test_what_is_read_at_the_start_only_is_said_and_changes_no_plan_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    beside = {"binder": "cluster"} if key == "clusterScheduler" else {}
    before, after = ({"patience": patience, **beside} for patience in (60, 61))
    used = reloaded(tmp_path, yaml.safe_dump(before), yaml.safe_dump({**after, key: CHANGED[key]}))
    assert used == [profile_of(load_settings(yaml.safe_dump(after)))]
    assert caplog.messages == [f"configuration: {key} takes effect at the next start only"]


def test_what_is_read_at_the_start_only_is_what_the_reference_says_so_of() -> None:
    rows = reference.setting_rows().splitlines()
    assert {row.split("`")[1] for row in rows if "At start only" in row} == {*CHANGED}


def test_a_profile_that_needs_what_comes_with_the_next_start_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert reloaded(tmp_path, "", "profile: coddl\ndevices: {enabled: true}") == []
    assert caplog.messages[0] == "configuration: devices takes effect at the next start only"
    assert "the last good one stays in force" in caplog.messages[1]


def test_what_has_no_effect_is_said_when_it_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reloaded(tmp_path, "profile: max-min\nresizeCost: false", "profile: fifo\nresizeCost: false")
    assert caplog.messages == [
        "configuration: resizeCost: is looked at only with a profile that shares GPUs, unlike 'fifo'; found False; "
        "it has no effect"
    ]


def test_lessons_are_shared_from_a_reload_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (used,) = reloaded(tmp_path, "", "reporting: {shareLessons: true}")
    assert used.shared_lessons
    assert caplog.messages == []
