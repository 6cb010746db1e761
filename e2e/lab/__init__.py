"""The lab: a real Kubernetes control plane on this machine, with fake GPU nodes and Muster in it."""

from e2e.lab.errors import BadRequestError, LabError, NotReadyError
from e2e.lab.lab import Lab, all_labs, end_orphans
from e2e.lab.shape import NodeGroup, Shape

__all__ = [
    "BadRequestError",
    "Lab",
    "LabError",
    "NodeGroup",
    "NotReadyError",
    "Shape",
    "all_labs",
    "end_orphans",
]
