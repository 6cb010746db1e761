"""A training that is started again with other devices: `muster-agent --devices -- python train.py`.

It learns a line by gradient descent, in plain Python, so that it runs anywhere; what matters is around it: it goes on
from its checkpoint, saves on SIGTERM, and says how far it is. CUDA_VISIBLE_DEVICES has the devices of this start.

Settings, from the environment: CHECKPOINT (a file), STEPS, SECONDS (a step takes at least so long)."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

FILE = Path(os.environ.get("CHECKPOINT", "checkpoint.json"))
STEPS, SECONDS = int(os.environ.get("STEPS", "1000")), float(os.environ.get("SECONDS", "0"))
RATE, SAMPLES = 0.05, 32
ending = False


def end(*_: object) -> None:
    global ending
    ending = True


def save(step: int, weight: float, bias: float) -> None:
    """Whole or not at all: a process may be killed while it writes."""
    half_done = FILE.with_suffix(".new")
    half_done.write_text(json.dumps([step, weight, bias]))
    half_done.rename(FILE)


signal.signal(signal.SIGTERM, end)
step, weight, bias = json.loads(FILE.read_text()) if FILE.exists() else (0, 0.0, 0.0)
print(f"from step {step} on {os.environ.get('CUDA_VISIBLE_DEVICES')}", flush=True)
while step < STEPS and not ending:
    data = random.Random(step)
    inputs = [data.uniform(-1, 1) for _ in range(SAMPLES)]
    errors = [weight * x + bias - (3 * x - 1) for x in inputs]
    weight -= RATE * sum(e * x for e, x in zip(errors, inputs, strict=True)) / SAMPLES
    bias -= RATE * sum(errors) / SAMPLES
    step += 1
    loss = sum(e * e for e in errors) / SAMPLES
    print(f"muster: step={step} total={STEPS} loss={loss:.6f}", flush=True)
    time.sleep(SECONDS)
save(step, weight, bias)
sys.exit(143 if ending else 0)
