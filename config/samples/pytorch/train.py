"""A plain DDP training that survives every change of its size. torchrun starts it, once for each GPU.

torchrun ends all workers when one comes, goes or dies, and starts as many as there are then; this script goes on from
its checkpoint. Rank 0 writes one every EVERY steps, at the end, and at SIGTERM: who is told to leave says so in the
step that is being taken, all stop after the same step, and none is lost. Where a worker dies without a word, rank 0
keeps the last whole step if its collective raises (gloo does; NCCL may end the process: EVERY steps at most are
taken again).

torchrun takes a worker for dead that it has not heard of for 15 s (a machine under load), and never tells it: that
worker would train on by itself, and write checkpoints over those of the group that the others form. So a group says
on the volume that it has begun, and an older one ends then; torchrun starts its workers again, and they join.

Settings, from the environment:
    STEPS, EVERY    steps in all; steps from checkpoint to checkpoint
    BATCH, RATE     samples of a step and learning rate of one worker; both times the number of workers
    CHECKPOINTS     a folder that all workers see
    STEP_SECONDS    a stand-in for the accelerator where there is none: a step takes at least so long. 0 on GPUs
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from datetime import timedelta
from pathlib import Path

leaving = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leaving.set())  # before torch: its import takes seconds

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import muster_report as muster  # noqa: E402

STEPS, EVERY = int(os.environ.get("STEPS", "1000")), int(os.environ.get("EVERY", "50"))
BATCH, RATE = int(os.environ.get("BATCH", "128")), float(os.environ.get("RATE", "0.01"))
FOLDER = Path(os.environ.get("CHECKPOINTS", "/checkpoints"))
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
PATIENCE = timedelta(seconds=60)  # for a collective whose peer says nothing
INPUTS, HIDDEN = 8, 64


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))


class Training:
    """What a checkpoint has: parameters, the optimizer's state, steps taken and samples seen."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.rank, self.workers = device, dist.get_rank(), dist.get_world_size()
        self.teacher = network(1).to(device)  # what is learned: what a fixed random network says
        module = network(2).to(device)
        self.model = DistributedDataParallel(module)
        # Linear scaling: as the batch grows with the workers, so does the rate.
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE * self.workers, momentum=0.9)
        self.step = self.samples = 0
        self.group = uuid.uuid4().hex  # rank 0's is the one that counts
        self.enough = False  # somebody has asked for the end, by a file: all have to end after the same step

    def resume(self) -> None:
        """The last checkpoint, the same one for all; the rate is that of so many workers as there are now."""
        self.begin()
        file = FOLDER / "checkpoint.pt"
        if file.exists():
            found = torch.load(file, map_location=self.device)
            self.model.module.load_state_dict(found["model"])
            self.optimizer.load_state_dict(found["optimizer"])
            self.step, self.samples = found["step"], found["samples"]
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * self.workers
        dist.barrier()  # nobody writes the next one before all have read this one
        self.log({"start": self.step, "workers": self.workers})

    def begin(self) -> None:
        """Say that this group has begun; from here on no older one writes anything."""
        if self.rank == 0:
            (FOLDER / "group").write_text(self.group)
        dist.barrier()

    def give_way(self) -> None:
        """End rank 0, and with it its group, where another one has begun since."""
        if (FOLDER / "group").read_text() != self.group:
            print(f"rank 0 at step {self.step}: another group has begun", file=sys.stderr, flush=True)
            sys.exit(143)

    def batch(self) -> torch.Tensor:
        """This worker's samples of the next step. Their number since the beginning is all of their data, so none is
        seen twice or left out, whoever sees it: in a training of yours, an offset into the shuffled data."""
        first = self.samples + self.rank * BATCH
        made = torch.Generator().manual_seed(first)
        return torch.randn(BATCH, INPUTS, generator=made).to(self.device)

    def take_step(self) -> bool:
        """One step; whether somebody has to leave. RuntimeError where a worker is gone: nothing has changed then."""
        began = time.monotonic()
        inputs = self.batch()
        with torch.no_grad():
            wanted = self.teacher(inputs)
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(inputs), wanted)
        loss.backward()
        told = [loss.item(), float(leaving.is_set()), float((FOLDER / "enough").exists())]
        tally = torch.tensor(told, device=self.device)
        dist.all_reduce(tally)
        self.enough = tally[2].item() > 0
        self.optimizer.step()
        self.step, self.samples = self.step + 1, self.samples + BATCH * self.workers
        self.tell(tally[0].item() / self.workers)
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - began)))
        return tally[1].item() > 0

    def tell(self, loss: float) -> None:
        if self.rank == 0:
            self.log({"step": self.step, "loss": round(loss, 6), "workers": self.workers})
            muster.report(step=self.step, total=STEPS, loss=loss, samples=self.samples, workers=self.workers)

    def save(self) -> None:
        """A checkpoint that is there whole or not at all."""
        if self.rank == 0:
            self.give_way()
            half_done = FOLDER / ".checkpoint.pt"
            state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save({**state, "step": self.step, "samples": self.samples}, half_done)
            with open(half_done, "rb") as written:
                os.fsync(written.fileno())
            half_done.rename(FOLDER / "checkpoint.pt")
            self.log({"checkpoint": self.step})

    def log(self, what: dict[str, float]) -> None:
        if self.rank == 0:
            self.give_way()
            line = json.dumps({"at": round(time.time(), 3), **what})
            print(line, flush=True)
            with open(FOLDER / "log.jsonl", "a") as file:
                file.write(line + "\n")


def train(training: Training) -> int:
    """Exit code: 0 when it is done; 143 where torchrun is to start it again, or this worker is to leave."""
    training.resume()
    try:
        while training.step < STEPS and not training.enough:
            if training.take_step():
                training.save()
                return 143
            if training.step % EVERY == 0:
                training.save()
    except RuntimeError as lost:  # a worker has died: the state is that of the last whole step
        print(f"rank {training.rank} at step {training.step}: {lost}", file=sys.stderr, flush=True)
        training.save()
        return 143
    training.save()
    muster.flush()
    return 0


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
    return train(Training(device))


if __name__ == "__main__":
    sys.exit(main())
