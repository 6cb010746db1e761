"""What a training in place is started with."""

from __future__ import annotations

import pytest

from muster_report.agent.trainer import Trainer, environment


def told(monkeypatch: pytest.MonkeyPatch, devices: list[str], **more: str) -> dict[str, str]:
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "MUSTER_GPU_MEMORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    trainer = Trainer()
    try:
        return environment(trainer, devices)
    finally:
        trainer.started()
        trainer.close()


MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/run/nvidia/mps/pipe", "MUSTER_GPU_MEMORY": "20480"}


def test_with_mps_the_memory_that_it_says_is_its_limit_on_each_of_its_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = told(monkeypatch, ["GPU-a", "GPU-b"], **MPS)
    assert found["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M,1=20480M"


@pytest.mark.parametrize("without", list(MPS))
def test_without_mps_or_where_it_does_not_say_there_is_no_limit(
    monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    found = told(monkeypatch, ["GPU-a"], **{name: value for name, value in MPS.items() if name != without})
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in found


def test_a_limit_of_its_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, ["GPU-a"], CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G", **MPS)
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=1G"
