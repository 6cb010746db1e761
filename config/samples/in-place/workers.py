"""A training that changes its devices at its next step: `muster-agent --devices -- python workers.py`.

The trainer opens no device. Each device has a worker, a process of its own that sees nothing else; the trainer deals
a step's samples to those that are there and adds their gradients. So a device is given up by ending its worker, and
no step is lost, whatever Muster takes or gives. In plain Python: `work` is where a framework would be.

Settings, from the environment: STEPS, SECONDS (a step takes at least so long)."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from multiprocessing.connection import Connection

import muster_report as muster  # or a copy of its devices.py beside this file: import devices as muster

STEPS, SECONDS = int(os.environ.get("STEPS", "1000")), float(os.environ.get("SECONDS", "0"))
RATE, SAMPLES = 0.05, 32
SPAWN = multiprocessing.get_context("spawn")
Worker = tuple[multiprocessing.process.BaseProcess, Connection]
workers: dict[str, Worker] = {}


def work(trainer: Connection) -> None:
    """In a worker: gradients of what it is dealt, until the trainer is gone."""
    device = os.environ["CUDA_VISIBLE_DEVICES"]  # the only one; a framework opens it here
    try:
        while True:
            step, samples, weight, bias = trainer.recv()
            data = random.Random(step)
            inputs = [data.uniform(-1, 1) for _ in range(SAMPLES)]
            errors = [(weight * x + bias - (3 * x - 1), x) for x in (inputs[one] for one in samples)]
            trainer.send((device, [(e * x, e, e * e) for e, x in errors]))
    except EOFError:
        return


def change(devices: tuple[str, ...]) -> None:
    """End the workers of devices that are gone, wait for them, and start those of new ones."""
    for device in workers.keys() - set(devices):
        process, trainer = workers.pop(device)
        trainer.close()
        process.join()
    for device in sorted(set(devices) - workers.keys()):
        ours, theirs = SPAWN.Pipe()
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # what the worker is started with
        process = SPAWN.Process(target=work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        workers[device] = (process, ours)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    print(f"workers on {','.join(devices)}", flush=True)


def train() -> None:
    weight = bias = 0.0
    for step, devices in enumerate(muster.devices(change), start=1):
        if not workers:
            change(devices)  # what it was started with
        dealt = {device: range(SAMPLES)[at :: len(devices)] for at, device in enumerate(devices)}
        for device, samples in dealt.items():
            workers[device][1].send((step, list(samples), weight, bias))
        parts = [part for device in dealt for part in workers[device][1].recv()[1]]
        weight -= RATE * sum(part[0] for part in parts) / SAMPLES
        bias -= RATE * sum(part[1] for part in parts) / SAMPLES
        loss = sum(part[2] for part in parts) / SAMPLES
        print(f"muster: step={step} total={STEPS} loss={loss:.6f}", flush=True)
        if step == STEPS:
            return
        time.sleep(SECONDS)


if __name__ == "__main__":
    train()
