"""The process that `--preload` imports modules in, and that trainings are forked from. Run by its path, with the
training's own Python: nothing of Muster need be there, and nothing but the standard library is used.

    agent    {"modules": [...], "path": folder of the script}        told first; answered {"ready": true}
             or {"refused": "import jax left 13 threads"}
    agent    {"set": {...}, "agent": 1}, with files: muster.devices()'s, the locks', one that says when to begin
             answered {"pid": 7}: it is the agent's child, as if the agent had started it

A training is forked twice over, so that its parent is the agent, which inherits orphans and sees its end.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import time
import types

DEVICE_FILES = ("/dev/nvidia", "/dev/kfd")
PARENT_DEATH = 1
"""PR_SET_PDEATHSIG."""


def serve(agent: socket.socket) -> None:
    """Import, then fork a training for each request; returns in the training only."""
    asked = json.loads(agent.recv(65536))
    if not getattr(sys.flags, "safe_path", False):  # Python 3.11
        sys.path[0] = asked["path"]  # it was this file's own
    why = imported(asked["modules"])
    agent.send(json.dumps({"refused": why} if why else {"ready": True}).encode())
    if why:
        sys.exit(0)
    gc.freeze()  # what was imported is shared with the trainings for longer
    while True:
        body, files, _, _ = socket.recv_fds(agent, 65536, 256)
        if not body:
            sys.exit(0)
        between = os.fork()
        if between == 0:
            if os.fork() != 0:
                os._exit(0)
            begin(agent, json.loads(body), files)
            return
        os.waitpid(between, 0)
        for file in files:
            os.close(file)


def imported(modules: list[str]) -> str:
    """Why nothing can be forked after these imports; "" where it can."""
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:
            return f"import {name} failed: {error!r}"
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            return f"import {name} left {threads} threads: what is forked would have one of them"
        for file in os.listdir("/proc/self/fd"):
            try:
                opened = os.readlink(f"/proc/self/fd/{file}")
            except OSError:
                continue
            if opened.startswith(DEVICE_FILES):
                return f"import {name} opened {opened}: what is forked could not use a device"
    return ""


def begin(agent: socket.socket, asked: dict[str, object], files: list[int]) -> None:
    """In the training: become what the agent starts, and wait for its word."""
    while os.getppid() != asked["agent"]:  # until the process between has ended
        time.sleep(0.001)
    ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != asked["agent"]:
        os._exit(1)
    os.setpgid(0, 0)
    if asked["foreground"]:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        os.tcsetpgrp(0, os.getpid())
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    agent.send(json.dumps({"pid": os.getpid()}).encode())
    agent.close()
    trainer, *locks, go = files
    if not os.read(go, 1):
        os._exit(1)
    os.close(go)
    for file in (trainer, *locks):
        os.set_inheritable(file, True)
    os.environ.update(asked["set"], MUSTER_DEVICES_FD=str(trainer))  # type: ignore[call-overload]
    if "numpy" in sys.modules:  # a fresh process draws other numbers than the last one
        sys.modules["numpy"].random.seed()


def run(target: str, module: bool, arguments: list[str]) -> None:
    """As `python target ...` or `python -m target ...` does."""
    sys.argv = [target, *arguments]
    if module:
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=target, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    with io.open_code(os.path.abspath(target)) as file:
        code = compile(file.read(), target, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(os.environ.pop("MUSTER_PRELOAD_FD"))))
    run(sys.argv[2], sys.argv[1] == "-m", sys.argv[3:])
