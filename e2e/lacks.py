"""What a machine may lack, by name, and when a skip for it is permitted.

With CI=true a skip is a failure: nothing that was meant to run may go missing without anybody noticing. Whoever runs
the tests on a machine that can't have something names it: LACKS="traces" (.github/workflows). Other skips than those
stay failures, and so does each of them in `.ci/run`, which names nothing. Permitted everywhere: what another cluster
than a lab can't do, and operators that were not built before (e2e/conftest.py)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.lab import podnet
from e2e.lab.places import CHECKOUT
from e2e.lab.realnode import why_not

NOT_THE_LAB = re.compile("not on kind: |another cluster")
"""Reasons of what another cluster can't do."""


@dataclass(frozen=True)
class Lack:
    """`why_not` says why it is missing here, "" where it is there; `files` are skipped then, for a reason that
    matches `reason`."""

    what: str
    why_not: Callable[[], str]
    reason: str
    files: str


def _programs(*names: str) -> Callable[[], str]:
    return lambda: ", ".join(f"no {name}" for name in names if shutil.which(name) is None)


def _no_namespaces() -> str:
    if missing := _programs("unshare")():
        return missing
    probe = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return done.stderr.strip() if done.returncode else ""


def _no_traces() -> str:
    folder = Path(os.environ.get("TRACES") or CHECKOUT.parent / "shared" / "data")
    return "" if (folder / "README.md").exists() else "TRACES=folder"


LACKS: Mapping[str, Lack] = {
    "chromium": Lack(
        "Chromium (chromium, chromium-driver)",
        _programs("chromium", "chromedriver"),
        "apt-get install chromium",
        "e2e/test_page.py",
    ),
    "nginx": Lack("nginx", _programs("nginx"), "needs nginx", "e2e/test_existing_scheduler.py"),
    "root": Lack(
        "what real nodes need",
        lambda: why_not() or podnet.why_not(),
        "a real node needs|a pod network needs",
        "e2e/test_real_node.py, e2e/test_training.py, e2e/test_pytorch.py, e2e/test_pytorch_by_name.py, "
        "e2e/test_installed_for_real.py, e2e/test_device_plugin.py, e2e/test_agent_on_devices.py, "
        "e2e/test_devices_in_place.py, e2e/test_frameworks_in_place.py, e2e/test_holders_tell.py",
    ),
    "namespaces": Lack(
        "PID namespaces (root)",
        _no_namespaces,
        "needs a PID namespace",
        "tests/test_agent_in_place.py, tests/test_agent.py in part",
    ),
    "torch": Lack(
        "Debian's torch (python3-torch)",
        lambda: "" if Path("/usr/bin/torchrun").exists() else "no /usr/bin/torchrun",
        "python3-torch",
        "e2e/test_pytorch.py, e2e/test_pytorch_by_name.py, e2e/test_report_callbacks.py, "
        "e2e/test_frameworks_in_place.py in part",
    ),
    "traces": Lack(
        "traces",
        _no_traces,
        "TRACES",
        "tests of traces in tests/, e2e/test_reproduce.py in part",
    ),
}


def named() -> frozenset[str]:
    """Those of the variable LACKS. pytest.UsageError where it names another."""
    names = frozenset(os.environ.get("LACKS", "").split())
    if unknown := names - LACKS.keys():
        raise pytest.UsageError(
            f"LACKS={os.environ['LACKS']}: expected names of {', '.join(LACKS)}, found {', '.join(sorted(unknown))}"
        )
    return names


def permitted(reason: str, names: Collection[str], *, unbuilt: bool = False) -> bool:
    """Whether a test may be skipped for this reason with CI=true; `unbuilt`: its operators were never built."""
    return (
        unbuilt
        or NOT_THE_LAB.search(reason) is not None
        or any(re.search(LACKS[name].reason, reason) for name in names)
    )


def told() -> list[str]:
    """What this machine lacks, before anything runs."""
    missing = {name: problem for name, lack in LACKS.items() if (problem := lack.why_not())}
    lines = [
        f"this machine lacks {LACKS[name].what} ({problem}): skipped {LACKS[name].files}"
        for name, problem in missing.items()
    ]
    if os.environ.get("CI") == "true" and (failures := missing.keys() - named()):
        lines.append(f"CI=true: each skip for {', '.join(sorted(failures))} is a failure")
    return lines
