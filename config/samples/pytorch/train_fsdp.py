"""train.py with FSDP in place of DDP: parameters and the optimizer's state are in shards, and so is the checkpoint.
NOT TRIED: no GPU was to be had. Needs torch 2.3 or newer; torchrun starts it as it does train.py.

A sharded checkpoint is written by all ranks and read by any number of them: torch.distributed.checkpoint cuts it
again. Every rank has to be there to write one, so after a crash at most EVERY steps are taken again."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import train  # beside this file: settings, SIGTERM, the step
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel


class Sharded(train.Training):
    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.model = FullyShardedDataParallel(train.network(2).to(device))
        rate = train.RATE * self.workers
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)

    def resume(self) -> None:
        """The newest checkpoint that all ranks have written to its end."""
        self.begin()
        newest = train.FOLDER / "newest"
        if newest.exists():
            model, optimizer = get_state_dict(self.model, self.optimizer)
            state = {"model": model, "optimizer": optimizer, "step": 0, "samples": 0}
            checkpoint.load(state, checkpoint_id=str(train.FOLDER / newest.read_text()))
            set_state_dict(
                self.model,
                self.optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
            )
            self.step, self.samples = state["step"], state["samples"]
        for group in self.optimizer.param_groups:
            group["lr"] = train.RATE * self.workers
        dist.barrier()
        self.log({"start": self.step, "workers": self.workers})

    def save(self) -> None:
        if self.rank == 0:
            self.give_way()
        model, optimizer = get_state_dict(self.model, self.optimizer)
        state = {"model": model, "optimizer": optimizer, "step": self.step, "samples": self.samples}
        name = f"step-{self.step}"
        checkpoint.save(
            state, checkpoint_id=str(train.FOLDER / name)
        )  # a collective: ends when all have written
        if self.rank == 0:
            half_done = train.FOLDER / ".newest"
            half_done.write_text(name)
            half_done.rename(train.FOLDER / "newest")
            self.log({"checkpoint": self.step})


def main() -> int:
    train.FOLDER.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=train.PATIENCE)
    training = Sharded(device)
    training.resume()
    while training.step < train.STEPS and not training.enough:
        leave = training.take_step()
        if leave or training.step % train.EVERY == 0:
            training.save()
        if leave:
            return 143
    training.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
