"""Whether a kind cluster can run here."""

from __future__ import annotations

import contextlib
import os
import shutil

from e2e.kind import engine, images
from e2e.kind.engine import PACKAGES, docker, has_image
from e2e.kind.node_images import public
from e2e.lab import versions
from e2e.lab.errors import LabError


def why_not(kubernetes: str) -> str:
    """What is missing: Docker, privileged containers, or a node image of this version; "" for nothing."""
    if problem := engine.why_not():
        return problem
    try:
        _privileged()
    except LabError as refused:
        return " ".join(str(refused).split())[-300:]
    try:
        built = has_image(images.built_name(versions.kind_binaries(kubernetes)))
    except LabError as refused:  # not of this version
        return "" if public(kubernetes) else f"kind's own image can't be had, and {refused}"
    if built or public(kubernetes) or (os.geteuid() == 0 and shutil.which("debootstrap")):
        return ""
    return f"kind's own image can't be had, and building one needs root and debootstrap ({PACKAGES})"


def _privileged() -> None:
    """Run a privileged container, as kind's nodes are. LabError where that is refused."""
    name = f"muster-probe-{os.getpid()}"
    try:
        docker(
            *("run", "--detach", "--name", name, "--privileged", "--network", "none", images.sleeper()),
            within=120,
        )
    finally:
        with contextlib.suppress(LabError):
            docker("rm", "--force", name)
