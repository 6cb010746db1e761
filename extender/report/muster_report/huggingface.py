"""Reports of a training by Hugging Face: `Trainer(..., callbacks=[muster_report.huggingface.MusterCallback()])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from muster_report.report import report


class MusterCallback(TrainerCallback):
    """Rank 0 tells Muster of each step, and of the loss when the Trainer logs it."""

    def on_step_end(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        try:
            samples = state.epoch * len(train_dataloader.dataset)  # epochs go on at another size, steps don't
        except (AttributeError, TypeError):  # a data set that streams has no length
            samples = None
        report(step=state.global_step, total=state.max_steps, epoch=int(state.epoch), samples=samples)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        if state.is_world_process_zero and logs and "loss" in logs:
            report(step=state.global_step, loss=logs["loss"])
