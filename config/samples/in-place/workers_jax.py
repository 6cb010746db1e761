"""A jax training that changes its devices at its next step: `muster-agent --devices -- python workers_jax.py`.

As workers.py: the trainer opens no device and imports no jax; each device has a worker, a process of its own that
sees nothing else (here, without a GPU, each has a CPU device of its own). A new worker imports jax and compiles while
the others train on, and is dealt samples from when it is ready. So giving a device up costs what is left of a step,
and taking one costs the others nothing.

Settings, from the environment: STEPS, SECONDS (a step takes at least so long)."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection

import muster_report as muster  # or a copy of its devices.py beside this file: import devices as muster

STEPS, SECONDS = int(os.environ.get("STEPS", "1000")), float(os.environ.get("SECONDS", "0"))
RATE, SAMPLES, WIDTH = 0.1, 64, 8
SPAWN = multiprocessing.get_context("spawn")
Worker = tuple[multiprocessing.process.BaseProcess, Connection]
workers: dict[str, Worker] = {}
ready: set[str] = set()


def work(trainer: Connection) -> None:
    """In a worker: sums of gradients and losses of what it is dealt, until the trainer is gone."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def gradient(weights: jax.Array, key: jax.Array, dealt: jax.Array) -> tuple[jax.Array, jax.Array]:
        inputs = jax.random.uniform(key, (SAMPLES, WIDTH), minval=-1.0)
        wanted = inputs @ jnp.arange(1.0, WIDTH + 1.0)

        def loss(weights: jax.Array) -> jax.Array:
            return jnp.sum(jnp.where(dealt, (inputs @ weights - wanted) ** 2, 0.0))

        return jax.value_and_grad(loss)(weights)

    def taught(step: int, weights: list[float], samples: list[int]) -> tuple[float, list[float]]:
        dealt = jnp.isin(jnp.arange(SAMPLES), jnp.array(samples))
        loss, slope = gradient(jnp.array(weights), jax.random.key(step), dealt)
        return float(loss), slope.tolist()

    taught(0, [0.0] * WIDTH, [0])  # compiled before it is dealt anything
    try:
        trainer.send(None)
        while True:
            trainer.send(taught(*trainer.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def change(devices: tuple[str, ...]) -> None:
    """End the workers of devices that are gone, wait for them, and start those of new ones."""
    for device in workers.keys() - set(devices):
        process, trainer = workers.pop(device)
        ready.discard(device)
        process.kill()  # it keeps nothing: the weights are the trainer's
        process.join()
        trainer.close()
    for device in sorted(set(devices) - workers.keys()):
        ours, theirs = SPAWN.Pipe()
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # what the worker is started with
        process = SPAWN.Process(target=work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        workers[device] = (process, ours)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    print(f"workers on {','.join(devices)}", flush=True)


def compiled() -> list[str]:
    """Devices whose workers can be dealt samples; waits a moment where there is none."""
    for device, (_, trainer) in workers.items():
        if device not in ready and trainer.poll(0.0 if ready else 0.05):
            trainer.recv()
            ready.add(device)
    return sorted(ready)


def train() -> None:
    weights = [0.0] * WIDTH
    step = 0
    for devices in muster.devices(change):
        if not workers:
            change(devices)  # what it was started with
        if not (taking := compiled()):
            continue  # nobody can train yet, and devices may change meanwhile
        step += 1
        for at, device in enumerate(taking):
            workers[device][1].send((step, weights, list(range(SAMPLES))[at :: len(taking)]))
        parts = [workers[device][1].recv() for device in taking]
        loss = sum(part[0] for part in parts) / SAMPLES
        slopes = [sum(part[1][at] for part in parts) / SAMPLES for at in range(WIDTH)]
        weights = [weights[at] - RATE * slopes[at] for at in range(WIDTH)]
        print(f"muster: step={step} total={STEPS} loss={loss:.8f} workers={len(taking)}", flush=True)
        if step == STEPS:
            return
        time.sleep(SECONDS)


if __name__ == "__main__":
    train()
