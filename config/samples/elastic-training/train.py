"""An elastic data-parallel training with jax: workers come and go, and no step is lost.

Index 0 is the leader. It holds the parameters, deals each step's micro-batches to whoever is connected (itself
too), averages their gradients and takes the step; so the group is formed again at every step. What a worker that
left was computing is dealt again, and gradients are added in the order of micro-batches: the same losses come out,
whoever computed them. The leader's address and a key lie on the volume of the checkpoints, where the others look.

SIGTERM: a worker hands in what it has and leaves, the leader writes a checkpoint first; both exit 143. Killed, it
goes on from the last checkpoint, at most EVERY steps back. A file `enough` on that volume ends training well.

Settings, from the environment:
    JOB_COMPLETION_INDEX   which worker this is; an Indexed Job sets it
    ADDRESS                where the leader listens: an address of its pod
    STEPS, EVERY           steps in all; steps from checkpoint to checkpoint
    DEVICE_SECONDS         a stand-in for the accelerator, where there is none: a micro-batch takes at least so long.
                           Its gradient is computed all the same, on the CPU. 0 on real devices
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from typing import Any

INDEX = int(os.environ.get("JOB_COMPLETION_INDEX", "0"))
ADDRESS = os.environ.get("ADDRESS", "127.0.0.1")
STEPS, EVERY = int(os.environ.get("STEPS", "1000")), int(os.environ.get("EVERY", "20"))
DEVICE_SECONDS = float(os.environ.get("DEVICE_SECONDS", "0"))
FOLDER = Path(os.environ.get("CHECKPOINTS", "/checkpoints"))
# Micro-batches of a step, samples of a micro-batch: the batch is the same however many workers there are.
MICRO_BATCHES, SAMPLES = 8, 128
INPUTS, HIDDEN = 8, 64
RATE, MOMENTUM = 0.01, 0.9
PATIENCE = 15.0  # seconds for a worker's gradients; then it is taken for dead
leaving = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leaving.set())  # before jax: its import takes seconds

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import muster_report as muster  # noqa: E402

# --- what is learned: what a fixed random network says -------------------------------------------------------


SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,))  # weights and biases of two layers


def network(seed: int) -> np.ndarray:
    """Parameters as one row: random weights, no biases."""
    rng = np.random.default_rng(seed)
    scale = [0.0 if len(shape) == 1 else shape[0] ** -0.5 for shape in SHAPES]
    parts = [rng.normal(size=shape).ravel() * by for shape, by in zip(SHAPES, scale, strict=True)]
    return np.concatenate(parts).astype(np.float32)


def answer(parameters: jax.Array, inputs: jax.Array) -> jax.Array:
    ends = np.cumsum([np.prod(shape) for shape in SHAPES])[:-1]
    parts = jnp.split(parameters, ends)
    weights, biases, weights2, biases2 = (
        part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)
    )
    return jnp.tanh(inputs @ weights * 2 + biases) @ weights2 + biases2


TEACHER, START = network(1), network(2)


@jax.jit
@jax.value_and_grad
def loss_and_gradient(parameters: jax.Array, inputs: jax.Array) -> jax.Array:
    """Mean squared error, and its gradient by the parameters."""
    return jnp.mean((answer(parameters, inputs) - answer(TEACHER, inputs)) ** 2)


def compute(parameters: np.ndarray, step: int, batches: Iterable[int]) -> dict[int, np.ndarray]:
    """Loss and gradient of each of these micro-batches of a step, as one row: loss first. A micro-batch's number
    since the beginning is all of its data."""
    rows = {}
    for batch in batches:
        began = time.monotonic()
        rng = np.random.default_rng([3, step * MICRO_BATCHES + batch])
        inputs = rng.normal(size=(SAMPLES, INPUTS)).astype(np.float32)
        loss, gradient = loss_and_gradient(parameters, inputs)
        rows[batch] = np.concatenate([np.asarray(loss)[None], np.asarray(gradient)])
        time.sleep(max(0.0, DEVICE_SECONDS - (time.monotonic() - began)))
    return rows


# --- the group -----------------------------------------------------------------------------------------------


def tell(peer: Connection, what: dict[str, Any], numbers: np.ndarray) -> None:
    peer.send_bytes(json.dumps(what).encode())
    peer.send_bytes(numbers.astype(np.float32).tobytes())


def hear(peer: Connection) -> tuple[dict[str, Any], np.ndarray]:
    return json.loads(peer.recv_bytes()), np.frombuffer(peer.recv_bytes(), np.float32)


class Group:
    """Who works with the leader now: connections by index. Joining takes effect at the next step."""

    def __init__(self) -> None:
        key = secrets.token_bytes(32)
        self._listener = Listener((ADDRESS, 0), backlog=16, authkey=key)
        self._joining: queue.Queue[tuple[int, Connection]] = queue.Queue()
        self.members: dict[int, Connection] = {}
        threading.Thread(target=self._admit, daemon=True).start()
        where = {"address": ADDRESS, "port": self._listener.address[1], "key": key.hex()}
        put(FOLDER / "leader", json.dumps(where).encode())

    def _admit(self) -> None:
        while True:
            try:
                peer = self._listener.accept()
                self._joining.put((int(hear(peer)[0]["index"]), peer))
            except Exception as problem:  # a stranger, or gone again: the next one, please
                print(f"somebody did not join: {problem!r}", flush=True)

    def formed(self) -> list[int]:
        """Indexes that take part in the next step."""
        while not self._joining.empty():
            index, peer = self._joining.get()
            self.members[index] = peer
        return [INDEX, *sorted(self.members)]

    def work(self, step: int, parameters: np.ndarray) -> np.ndarray:
        """All rows of a step, in the order of micro-batches; what somebody lost is dealt again."""
        rows: dict[int, np.ndarray] = {}
        while missing := [batch for batch in range(MICRO_BATCHES) if batch not in rows]:
            hands = self.formed()
            dealt = {index: missing[place :: len(hands)] for place, index in enumerate(hands)}
            asked = [
                index
                for index in hands[1:]
                if dealt[index] and self._ask(index, step, dealt[index], parameters)
            ]
            rows |= compute(parameters, step, dealt[INDEX])
            until = time.monotonic() + PATIENCE
            while asked:
                ready = wait([self.members[index] for index in asked], max(0.0, until - time.monotonic()))
                for index in [index for index in asked if not ready or self.members[index] in ready]:
                    asked.remove(index)
                    rows |= self._take(index, dealt[index]) if ready else self._lose(index)
        return np.stack([rows[batch] for batch in range(MICRO_BATCHES)])

    def _ask(self, index: int, step: int, batches: list[int], parameters: np.ndarray) -> bool:
        try:
            tell(self.members[index], {"step": step, "batches": batches}, parameters)
            return True
        except OSError:
            return bool(self._lose(index))

    def _take(self, index: int, batches: list[int]) -> dict[int, np.ndarray]:
        try:
            _, numbers = hear(self.members[index])
            return dict(zip(batches, numbers.reshape(len(batches), -1), strict=True))
        except (OSError, EOFError, ValueError):
            return self._lose(index)

    def _lose(self, index: int) -> dict[int, np.ndarray]:
        self.members.pop(index).close()
        return {}

    def end(self) -> None:
        for peer in self.members.values():
            with contextlib.suppress(OSError):
                tell(peer, {"done": True}, np.zeros(0))


# --- the leader ----------------------------------------------------------------------------------------------


def lead() -> int:
    step, parameters, speed = resume()
    print(f"the leader goes on from step {step}", flush=True)
    compute(parameters, step, [0])  # compiled before anybody waits
    group = Group()
    saved, done = step, step >= STEPS
    while not done and not leaving.is_set():
        began, hands = time.monotonic(), group.formed()
        rows = group.work(step, parameters)
        loss, gradient = float(rows[:, 0].mean()), rows[:, 1:].mean(axis=0)
        speed = MOMENTUM * speed - RATE * gradient
        parameters, step = parameters + speed, step + 1
        seconds = round(time.monotonic() - began, 3)
        log({"step": step, "loss": round(loss, 6), "workers": hands, "seconds": seconds})
        samples = step * MICRO_BATCHES * SAMPLES
        muster.report(step=step, total=STEPS, loss=loss, samples=samples, workers=len(hands))
        done = step >= STEPS or (FOLDER / "enough").exists()
        if step % EVERY == 0:
            saved = save(step, parameters, speed)
    if saved != step:
        save(step, parameters, speed)
    if not done:
        log({"left": step})
        return 143
    log({"done": step})
    group.end()
    muster.flush()
    return 0


def resume() -> tuple[int, np.ndarray, np.ndarray]:
    """Step, parameters and their momentum from the last checkpoint, or from the beginning."""
    try:
        with np.load(FOLDER / "checkpoint.npz") as found:
            return int(found["step"]), found["parameters"], found["speed"]
    except FileNotFoundError:
        return 0, START, np.zeros_like(START)


def save(step: int, parameters: np.ndarray, speed: np.ndarray) -> int:
    """Write a checkpoint; its step."""

    def write(file: Path) -> None:
        with open(file, "wb") as opened:
            np.savez(opened, step=step, parameters=parameters, speed=speed)

    put(FOLDER / "checkpoint.npz", write)
    log({"checkpoint": step})
    return step


def put(path: Path, content: bytes | Callable[[Path], None]) -> None:
    """A file that is there whole or not at all."""
    half_done = path.with_name(f".{path.name}.{os.getpid()}")
    if isinstance(content, bytes):
        half_done.touch(mode=0o600)
        half_done.write_bytes(content)
    else:
        content(half_done)
    with open(half_done, "rb") as written:
        os.fsync(written.fileno())
    half_done.rename(path)


def log(what: dict[str, Any]) -> None:
    line = json.dumps({"at": round(time.time(), 3), **what})
    print(line, flush=True)
    with open(FOLDER / "log.jsonl", "a") as file:
        file.write(line + "\n")


# --- the others ----------------------------------------------------------------------------------------------


def follow() -> int:
    signal.signal(signal.SIGALRM, overdue)
    compute(START, 0, [0])  # compiled before the leader waits
    while not leaving.is_set():
        try:
            with find_leader() as leader:
                tell(leader, {"index": INDEX}, np.zeros(0))
                print(f"worker {INDEX} has joined", flush=True)
                if serve(leader):
                    return 0
        except (OSError, EOFError, ValueError, AuthenticationError) as problem:  # no leader yet, or no more
            print(f"worker {INDEX} looks for the leader: {problem!r}", flush=True)
            leaving.wait(0.5)
    return 143


def find_leader() -> Connection:
    where = json.loads((FOLDER / "leader").read_text())
    signal.alarm(5)  # an address that is gone may not answer for minutes
    try:
        return Client((where["address"], where["port"]), authkey=bytes.fromhex(where["key"]))
    finally:
        signal.alarm(0)


def overdue(*_: object) -> None:
    raise TimeoutError("it does not answer")


def serve(leader: Connection) -> bool:
    """Compute what the leader asks for, until training is done (True) or this worker is to leave (False)."""
    while not leaving.is_set():
        if not leader.poll(0.2):
            continue
        what, parameters = hear(leader)
        if what.get("done"):
            return True
        rows = compute(parameters, what["step"], what["batches"])
        tell(leader, {}, np.stack(list(rows.values())))
    return False


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    sys.exit(lead() if INDEX == 0 else follow())
