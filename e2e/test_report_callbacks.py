"""The callbacks of muster-report in trainings of PyTorch Lightning and Hugging Face's Trainer, on Debian's torch.

They run in a virtual environment in the cache, with the last versions that accept that torch (callbacks.txt)."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.lab.build import only_one
from e2e.lab.places import CHECKOUT, lab_folder
from e2e.lab.ports import reserve
from e2e.lab.realnode import environments
from e2e.test_pytorch import no_torch
from tests.report_server import ReportServer, served

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(bool(no_torch()), reason=no_torch() or "-")]
PINNED = Path(__file__).with_name("callbacks.txt")
EXAMPLES, BATCH = 32, 4
DATA = f"""
import sys, torch
torch._UntypedStorage = torch.UntypedStorage  # Debian's 1.13 calls itself 1.13.0a0, which Lightning takes for 1.12
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return {EXAMPLES}
    def __getitem__(self, at):
        x = torch.tensor([at / {EXAMPLES}])
        return {{"x": x, "labels": 3 * x - 1}}
"""
LIGHTNING = """
from {package} import LightningModule, Trainer
from muster_report.lightning import MusterCallback
class Line(LightningModule):
    # torch 1.13 can't import its sharded tensors on Python 3.11.
    def _register_sharded_tensor_state_dict_hooks_if_available(self): pass
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
    def training_step(self, batch, at):
        return torch.nn.functional.mse_loss(self.line(batch["x"]), batch["labels"])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
def fit(epochs, ckpt_path=None):
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", devices={ranks}, strategy="{strategy}",
        callbacks=[MusterCallback()], default_root_dir=sys.argv[1],
        log_every_n_steps=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Line(), DataLoader(Numbers(), batch_size={batch}), ckpt_path=ckpt_path)
    trainer.save_checkpoint(sys.argv[1] + "/last.ckpt")
"""
HUGGING_FACE = """
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from muster_report.huggingface import MusterCallback
class Line(PreTrainedModel):
    config_class = PretrainedConfig
    def __init__(self, config):
        super().__init__(config)
        self.line = torch.nn.Linear(1, 1)
    def forward(self, x, labels):
        return {{"loss": torch.nn.functional.mse_loss(self.line(x), labels)}}
def fit(epochs, resume=None):
    told = TrainingArguments(
        output_dir=sys.argv[1], num_train_epochs=epochs, per_device_train_batch_size={batch}, use_cpu=True,
        logging_steps=1, save_strategy="epoch", report_to=[], disable_tqdm=True, save_safetensors=False,
    )
    Trainer(Line(PretrainedConfig()), told, train_dataset=Numbers(), callbacks=[MusterCallback()]).train(resume)
"""
FLUSH = "\nimport muster_report\nassert muster_report.report.flush(60)\n"


@pytest.fixture(scope="module")
def python() -> Path:
    """Debian's Python and torch with these packages, made once."""
    folder = environments() / f"callbacks-{hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]}"
    with only_one(folder):
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            bare = ("-m", "venv", "--without-pip", "--system-site-packages")
            subprocess.run(["/usr/bin/python3", *bare, folder], check=True, timeout=120)
            pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
            subprocess.run([*pip, "--no-deps", "-r", PINNED], check=True, timeout=600)
            (folder / "made").touch()
    return folder / "bin" / "python"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ReportServer]:
    with served(monkeypatch, tmp_path, token="t", every=1.0) as running:
        yield running


def trains(python: Path, code: str, folder: Path, ranks: Sequence[dict[str, str]] = ({},)) -> None:
    """One process for each rank, with these variables."""
    known = {**os.environ, "PYTHONPATH": str(CHECKOUT / "extender" / "report"), "HF_HUB_OFFLINE": "1"}
    command = [python, "-c", DATA + code + FLUSH, folder]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    running = [subprocess.Popen(command, env=known | rank, **both) for rank in ranks]
    try:
        said = [one.communicate(timeout=300)[0][-6000:] for one in running]
    finally:
        for one in running:
            one.kill()
    assert [one.returncode for one in running] == [0] * len(ranks), said


def told(server: ReportServer) -> dict[str, float]:
    """What the server knows after all reports: the newest of each value."""
    found: dict[str, float] = {}
    for _, body in server.bodies:
        found |= body
    return found


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_a_training_by_lightning_reports_and_goes_on_from_its_checkpoint(
    package: str, python: Path, server: ReportServer, tmp_path: Path
) -> None:
    steps = EXAMPLES // BATCH
    code = LIGHTNING.format(package=package, batch=BATCH, ranks=1, strategy="auto")
    trains(python, code + "fit(2)", tmp_path)
    found = told(server)
    loss = found.pop("loss")
    assert 0.0 < loss < 10.0
    assert found == {
        "step": 2 * steps, "total": 2 * steps, "epoch": 2, "steps_per_epoch": steps, "samples": 2 * EXAMPLES
    }  # fmt: skip
    del server.bodies[:]
    trains(python, code + "fit(3, sys.argv[1] + '/last.ckpt')", tmp_path)
    assert server.bodies[0][1]["samples"] > 2 * EXAMPLES, "samples go on"
    found = told(server)
    assert (found["step"], found["samples"], found["epoch"]) == (3 * steps, 3 * EXAMPLES, 3)


def test_of_two_ranks_by_lightning_one_reports_the_samples_of_both(
    python: Path, server: ReportServer, tmp_path: Path
) -> None:
    steps = EXAMPLES // BATCH // 2
    place = lab_folder(f"e2e-{os.getpid()}-callbacks")
    try:
        port = reserve(place, ["rendezvous"])["rendezvous"]
        # As torchrun sets them: with Debian's Python it starts one process only.
        names = {"TORCHELASTIC_RUN_ID": "two", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = [
            {**names, "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "GROUP_RANK": "0"} for rank in "01"
        ]
        code = LIGHTNING.format(package="lightning.pytorch", batch=BATCH, ranks=2, strategy="ddp")
        trains(python, code + "fit(2)", tmp_path, ranks)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    found = told(server)
    assert found.pop("loss") < 10.0
    assert found == {
        "step": 2 * steps, "total": 2 * steps, "epoch": 2, "steps_per_epoch": steps, "samples": 2 * EXAMPLES
    }  # fmt: skip


def test_a_training_by_hugging_face_reports_and_goes_on_from_its_checkpoint(
    python: Path, server: ReportServer, tmp_path: Path
) -> None:
    steps = EXAMPLES // BATCH
    code = HUGGING_FACE.format(batch=BATCH)
    trains(python, code + "fit(2)", tmp_path)
    found = told(server)
    loss = found.pop("loss")
    assert 0.0 < loss < 10.0
    assert found == {"step": 2 * steps, "total": 2 * steps, "epoch": 2, "samples": 2 * EXAMPLES}
    del server.bodies[:]
    trains(python, code + "fit(3, True)", tmp_path)
    assert server.bodies[0][1]["samples"] > 2 * EXAMPLES
    found = told(server)
    assert (found["step"], found["samples"], found["epoch"]) == (3 * steps, 3 * EXAMPLES, 3)
