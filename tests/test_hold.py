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

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

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
