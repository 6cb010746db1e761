"""PyTorch, started again with other devices: `muster-agent --devices --preload torch -- python train_torch.py`.

Data parallel over the devices of this start within one process. Where there is no GPU it trains on the CPU.

Settings, from the environment: CHECKPOINT (a file), STEPS, SECONDS (a step takes at least so long)."""

from __future__ import annotations

import os
import signal
import sys
import time

import torch

FILE = os.environ.get("CHECKPOINT", "checkpoint.pt")
STEPS, SECONDS = int(os.environ.get("STEPS", "1000")), float(os.environ.get("SECONDS", "0"))
ending = False


def end(*_: object) -> None:
    global ending
    ending = True


signal.signal(signal.SIGTERM, end)
device = (
    "cuda" if torch.cuda.is_available() else "cpu"
)  # the first use of a device: after the fork of --preload
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
step = 0
if os.path.exists(FILE):
    found = torch.load(FILE, map_location=device)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    step = found["step"]
print(f"from step {step} on {os.environ.get('CUDA_VISIBLE_DEVICES')}", flush=True)
parallel = torch.nn.DataParallel(model) if torch.cuda.device_count() > 1 else model
while step < STEPS and not ending:
    draw = torch.Generator().manual_seed(step)
    inputs = torch.randn(1024, 8, generator=draw).to(device)
    loss = (parallel(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    print(f"muster: step={step} total={STEPS} loss={loss.item():.6f}", flush=True)
    time.sleep(SECONDS)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f"{FILE}.new")
os.replace(f"{FILE}.new", FILE)
sys.exit(143 if ending else 0)
