"""Reports of a training by PyTorch Lightning: `Trainer(callbacks=[muster_report.lightning.MusterCallback()])`."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec
from typing import Any

# Both may be installed, and each takes callbacks of its own only: that of the training, which is imported before.
if "lightning.pytorch" in sys.modules or ("pytorch_lightning" not in sys.modules and find_spec("lightning")):
    from lightning.pytorch.callbacks import Callback
else:
    from pytorch_lightning.callbacks import Callback

from muster_report.report import report


class MusterCallback(Callback):
    """Rank 0 tells Muster of each step. The loss is read as often as the Trainer logs: it may wait for the GPU."""

    def __init__(self) -> None:
        self.samples = 0  # by all ranks together; kept in checkpoints, so it goes on at another size

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        size = getattr(trainer.train_dataloader, "batch_size", None)
        self.samples += (size or 0) * trainer.world_size
        if not trainer.is_global_zero:
            return
        total = trainer.estimated_stepping_batches
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        steps_per_epoch = trainer.num_training_batches / trainer.accumulate_grad_batches
        report(
            step=trainer.global_step,
            total=total if math.isfinite(total) else None,
            epoch=trainer.current_epoch,
            steps_per_epoch=steps_per_epoch if math.isfinite(steps_per_epoch) else None,
            samples=self.samples or None,
            loss=loss if trainer.global_step % max(1, trainer.log_every_n_steps) == 0 else None,
        )

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            report(epoch=trainer.current_epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        return {"samples": self.samples}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.samples = state_dict["samples"]
