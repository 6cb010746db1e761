"""`muster hold`: it tells the device of its environment until Muster has recorded it, then waits to be ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from types import ModuleType, SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from muster_report.hold import look, main, named, worth_telling
from muster_report.nvml import Gpu, gpus
from tests.server.on_loopback import serving

PATIENT = 60.0


@dataclass
class Muster:
    """Answers one after another, the last one again and again; keeps what it was asked."""

    answers: list[JSONResponse]
    asked: list[tuple[str, object]] = field(default_factory=list)
    came: Condition = field(default_factory=Condition)
    port: int = 0

    async def post(self, request: Request) -> JSONResponse:
        with self.came:
            self.asked.append((request.headers["authorization"], json.loads(await request.body())))
            self.came.notify_all()
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def was_asked(self, times: int) -> None:
        with self.came:
            assert self.came.wait_for(lambda: len(self.asked) >= times, PATIENT), self.asked


@pytest.fixture
def holder() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def hold(port: int, tmp_path: Path, device: str) -> subprocess.Popen[str]:
    token = tmp_path / "token"
    token.write_text("of-this-pod\n")
    env = {
        **os.environ,
        "NVIDIA_VISIBLE_DEVICES": device,
        "MUSTER_URL": f"http://127.0.0.1:{port}",
        "MUSTER_TOKEN_FILE": str(token),
    }
    command = [sys.executable, "-m", "muster.cli", "hold"]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def test_it_asks_until_its_device_is_recorded_and_then_waits_to_be_ended(
    tmp_path: Path, holder: list[subprocess.Popen[str]]
) -> None:
    no = {"error": "expected the id of a device"}
    muster = Muster(
        [
            JSONResponse(no, 400),
            JSONResponse(no, 400),
            JSONResponse({"recorded": False}),
            JSONResponse({"recorded": True}),
        ]
    )
    with serving(Starlette(routes=[Route("/v1/holders", muster.post, methods=["POST"])])) as port:
        process = hold(port, tmp_path, "GPU-1")
        holder.append(process)
        assert process.stdout is not None
        said = [process.stdout.readline(), process.stdout.readline()]
        assert "NVIDIA_VISIBLE_DEVICES is 'GPU-1'" in said[0]
        assert "expected the id of a device" in said[0]
        assert said[1] == "holds GPU-1\n", "one problem is said once"
        assert muster.asked == [("Bearer of-this-pod", {"device": "GPU-1"})] * 4
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENT) == 0


def seen(monkeypatch: pytest.MonkeyPatch, *found: Gpu) -> None:
    """What NVML sees in the container from now on."""
    monkeypatch.setattr("muster_report.hold.gpus", lambda: list(found))


def test_where_the_environment_names_no_device_it_is_the_one_that_nvml_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen(monkeypatch, Gpu("GPU-a"))
    assert [named(said) for said in ("void", "", "all", "GPU-b")] == ["GPU-a", "GPU-a", "GPU-a", "GPU-b"]
    seen(monkeypatch, Gpu("GPU-a"), Gpu("GPU-b"))
    assert named("void") == "void", "which of two it has nobody knows"
    monkeypatch.setattr("muster_report.hold.gpus", lambda: None)
    assert named("void") == "void"
    assert look("GPU-a") is None


def test_a_device_that_nvml_does_not_see_any_more_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen(monkeypatch, Gpu("GPU-a", processes=2, memory=700))
    assert look("GPU-a") == Gpu("GPU-a", processes=2, memory=700)
    assert look("GPU-b") == Gpu("GPU-b", healthy=False)


def test_it_tells_when_processes_come_or_leave_and_of_a_quiet_device_nothing() -> None:
    quiet, busy = Gpu("GPU-a", memory=3), Gpu("GPU-a", processes=1, memory=900)
    assert not worth_telling(quiet, quiet._replace(memory=5), 1e6)
    assert worth_telling(quiet, busy, 0.0)
    assert worth_telling(busy, quiet, 0.0)
    assert not worth_telling(busy, busy._replace(memory=950), 2.0)
    assert worth_telling(busy, busy, 30.0), "another replica may lead"
    assert worth_telling(quiet, quiet._replace(healthy=False), 0.0)


NOT_SUPPORTED, LOST = 3, 15
"""Of nvmlReturn_t."""


class Nvml(ModuleType):
    """NVIDIA's library, of one GPU."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(
        self, pids: list[int], used: int, remaps: tuple[int, ...] = (0, 0, 0, 0), fails: int = 0
    ) -> None:
        super().__init__("pynvml")
        self.pids, self.used, self.remaps, self.fails = pids, used, remaps, fails
        self.nvmlInit = self.nvmlShutdown = lambda: None
        self.nvmlDeviceGetCount = lambda: 1
        self.nvmlDeviceGetHandleByIndex = lambda at: at
        self.nvmlDeviceGetUUID = lambda _: b"GPU-a"
        self.nvmlDeviceGetGraphicsRunningProcesses = lambda _: [SimpleNamespace(pid=pid) for pid in pids[:1]]
        self.nvmlDeviceGetComputeRunningProcesses = lambda _: [SimpleNamespace(pid=pid) for pid in pids]
        self.nvmlDeviceGetRemappedRows = lambda _: self.remaps

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int) -> SimpleNamespace:  # noqa: N802
        if self.fails:
            raise self.NVMLError(self.fails)
        assert (handle, version) == (0, 2)
        return SimpleNamespace(used=self.used << 20)


def test_nvml_counts_the_processes_of_a_gpu_and_knows_whether_it_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def has(library: Nvml | None) -> list[Gpu] | None:
        monkeypatch.setitem(sys.modules, "pynvml", library)  # type: ignore[arg-type]
        return gpus()

    assert has(Nvml([11, 12], 900)) == [Gpu("GPU-a", True, 2, 900)]
    assert has(Nvml([], 3, remaps=(0, 1, 0, 1))) == [Gpu("GPU-a", False, 0, 3)]
    assert has(Nvml([], 3, fails=LOST)) == [Gpu("GPU-a", False)]
    assert has(Nvml([11], 3, fails=NOT_SUPPORTED)) == [Gpu("GPU-a", True, 1)], "it answers the rest"
    gone = Nvml([], 3)
    gone.nvmlDeviceGetHandleByIndex = lambda at: gone.nvmlDeviceGetMemoryInfo(at, 2) if gone.fails else at
    gone.fails = LOST
    assert has(gone) == [], "who holds it says that it is not well"
    assert has(None) is None, "it is not installed"


def told_by(monkeypatch: pytest.MonkeyPatch, environment: str, *answers: list[Gpu] | None) -> list[object]:
    """What Muster is told while NVML answers this, one answer a time that it is asked."""
    said: list[object] = []
    left = list(answers)

    def tells(body: dict[str, object]) -> bool:
        said.append(body)
        return body["device"] not in ("", "void")

    def ends(_: float) -> None:
        if not left:
            raise KeyboardInterrupt

    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", environment)
    monkeypatch.setattr("muster_report.hold.gpus", lambda: left.pop(0))
    monkeypatch.setattr("muster_report.hold.told", tells)
    monkeypatch.setattr("muster_report.hold.time.sleep", ends)
    monkeypatch.setattr("muster_report.hold.signal.signal", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        main()
    return said


def test_nvml_that_answers_a_moment_later_is_asked_again_which_device_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    well = [Gpu("GPU-a")]
    assert told_by(monkeypatch, "void", None, [], well, well) == [
        {"device": "void"},
        {"device": "void"},
        {"device": "GPU-a"},
    ]


def test_a_device_is_ill_by_two_looks_and_well_again_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    well, ill = [Gpu("GPU-a")], [Gpu("GPU-a", healthy=False)]
    assert told_by(monkeypatch, "GPU-a", well, ill, well, ill, ill, well) == [
        {"device": "GPU-a"},
        Gpu("GPU-a", healthy=False)._asdict(),
        Gpu("GPU-a")._asdict(),
    ]
    assert told_by(monkeypatch, "MIG-a") == [{"device": "MIG-a"}], "NVML's list has the whole GPU"
