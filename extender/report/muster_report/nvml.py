"""What NVML says of the GPUs that a container has: the one place that knows NVIDIA's library (nvidia-ml-py).

It need not be installed. Not run on a GPU. NVML gives the PIDs of the host, of which nothing is known in a container:
processes are counted, not named. Where the driver hides them the memory that is in use tells of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


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
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
        return [_gpu(pynvml, handle) for handle in handles]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, handle: Any) -> Gpu:
    name = nvml.nvmlDeviceGetUUID(handle)
    uuid = name.decode() if isinstance(name, bytes) else str(name)
    try:
        used = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used >> 20
        found = [*nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        found += nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
    except nvml.NVMLError:  # it is lost, or is to be reset
        return Gpu(uuid, healthy=False)
    return Gpu(uuid, _remaps(nvml, handle), len({one.pid for one in found}), int(used))


def _remaps(nvml: Any, handle: Any) -> bool:
    """Whether rows of its memory that failed could be replaced; also where it has no such thing."""
    try:
        *_, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    except nvml.NVMLError:
        return True
    return not failed
