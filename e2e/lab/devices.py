"""The devices of a real node, as a file: who writes it decides, and the node's device plugin tells the kubelet."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"  # as the kubelet's API has them


@dataclass(frozen=True)
class Devices:
    """path: {"GPU-6a...": "Healthy"}. Beside it, in `told`, what the kubelet was last told, and by which process."""

    path: Path

    @property
    def told(self) -> Path:
        return self.path.with_suffix(".told")

    def read(self) -> dict[str, str]:
        """Health by id."""
        found: dict[str, str] = json.loads(self.path.read_text())
        return found

    def write(self, devices: Mapping[str, str]) -> None:
        """From now on these, whole or not at all."""
        half_done = self.path.with_suffix(".new")
        half_done.write_text(json.dumps(dict(devices), indent=1))
        half_done.rename(self.path)


def device_ids(node: str, count: int) -> list[str]:
    """UUIDs as NVIDIA's driver gives them; the same each time that the node is made."""
    return [f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}.muster.dev')}" for index in range(count)]
