"""What NVML says of the GPUs that a container has: the one place that knows NVIDIA's library (nvidia-ml-py).

It need not be installed. Not run on a GPU. NVML gives the PIDs of the host, of which nothing is known in a container:
processes are counted, not named. Where the driver hides them the memory that is in use tells of them.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any, NamedTuple

ILL = (15, 16, 999)
"""NVML's errors by which a GPU can't be used: it is lost, it is to be reset, and what NVML can't say (nvml.h,
nvmlReturn_t)."""


class Gpu(NamedTuple):
    """device: its UUID; healthy: whether NVML reads it and has nothing against it; processes: that have a context on
    it; memory: MiB that these use."""

    device: str
    healthy: bool = True
    processes: int = 0
    memory: int = 0


def gpus() -> list[Gpu] | None:
    """Each GPU that this container has; None where NVML can't be asked."""
    try:
        pynvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    found = []
    try:
        for at in range(pynvml.nvmlDeviceGetCount()):
            with contextlib.suppress(pynvml.NVMLError):  # one that is gone: who has it misses it
                found.append(_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(at)))
        return found
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> Gpu:
    name = nvml.nvmlDeviceGetUUID(handle)
    uuid = name.decode() if isinstance(name, bytes) else str(name)
    ill: list[bool] = []

    def ask(question: str, *arguments: Any, otherwise: Any, **named: Any) -> Any:
        """Its answer; `otherwise` where it has none, as with an old driver or a virtual GPU that are well."""
        try:
            return getattr(nvml, question)(handle, *arguments, **named)
        except nvml.NVMLError as error:
            ill.append(getattr(error, "value", None) in ILL)
            return otherwise

    memory = ask("nvmlDeviceGetMemoryInfo", version=nvml.nvmlMemory_v2, otherwise=None)
    pids = {
        one.pid
        for question in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
        for one in ask(question, otherwise=())
    }
    used = 0 if memory is None else int(memory.used >> 20)
    return Gpu(uuid, _remaps(nvml, handle) and not any(ill), len(pids), used)


def _remaps(nvml: Any, handle: Any) -> bool:
    """Whether rows of its memory that failed could be replaced; also where it has no such thing."""
    try:
        *_, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    except nvml.NVMLError:
        return True
    return not failed
