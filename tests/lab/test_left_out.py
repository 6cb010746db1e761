"""What kind does not run says why, each scenario of it, and a run counts the reasons."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from e2e.kind import left_out, possible_shape
from e2e.lab import NodeGroup, Shape
from e2e.lab.places import CHECKOUT

ASKS = {"asks": True, "other_lab": False, "runs": False, "on_a_lab": True, "own_lab": ""}
"""A scenario that asks for the session's cluster."""


@pytest.mark.parametrize(
    ("differs", "reason"),
    [
        ({}, ""),
        ({"own_lab": "are about the lab itself"}, ""),
        ({"asks": False, "on_a_lab": False}, ""),
        ({"asks": False, "on_a_lab": False, "own_lab": "are about the lab itself"}, ""),
        ({"other_lab": True, "runs": True}, ""),
        (
            {"other_lab": True, "runs": True, "own_lab": "are about the lab itself"},
            "are about the lab itself",
        ),
        ({"asks": False, "own_lab": "are about the lab itself"}, "are about the lab itself"),
        ({"other_lab": True, "own_lab": "want a real node of the lab"}, "want a real node of the lab"),
        ({"other_lab": True}, left_out.UNSAID),
        ({"asks": False}, left_out.UNSAID),
    ],
)
def test_a_scenario_whose_lab_kind_cannot_be_is_left_out_for_a_reason(
    differs: dict[str, Any], reason: str
) -> None:
    assert left_out.why(**ASKS | differs) == reason


def test_a_run_counts_what_it_left_out_and_what_it_skipped_by_reason() -> None:
    words = ["not on kind: ports", "needs a second replica", "not on kind: ports"]
    skipped = [SimpleNamespace(longrepr=("e2e/test_a.py", 3, f"Skipped: {one}")) for one in words]
    ended = {"passed": [object()] * 7, "failed": [object()], "skipped": skipped, "warnings": [object()]}
    assert left_out.table(["b", "a", "b"], ended) == [
        "3 scenarios are left out:",
        "     2 b",
        "     1 a",
        "3 of 11 that were begun are skipped:",
        "     2 ports",
        "     1 needs a second replica",
    ]


def test_each_scenario_of_e2e_that_is_left_out_on_kind_has_a_reason() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", "e2e"]
    on_kind = {"E2E_KIND": "true", "E2E_KUBECONFIG": os.devnull}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        command, cwd=CHECKOUT, env=inherited | on_kind, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.partition("not on kind")[2]
    [total] = map(int, re.findall(r"^(\d+) scenarios are left out:$", said, re.MULTILINE))
    reasons = {reason: int(count) for count, reason in re.findall(r"^ +(\d+) (.+)$", said, re.MULTILINE)}
    assert left_out.UNSAID not in reasons
    assert {"run the demo, with labs of its own", "are about the lab itself"} < reasons.keys()
    assert sum(reasons.values()) == total > 10


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (Shape(), ""),
        (Shape(groups=(NodeGroup(2, gpus=4), NodeGroup(1, product="T4")), racks=0), ""),
        (Shape(set_values=("binder=cluster",), operators=("jobset",)), ""),
        (Shape(controller_args=("--controllers=*",)), ""),
        (Shape(controller_args=("--controllers=job",)), "flags of the control plane"),
        (Shape(real=1, pod_network=True, chart=False), ""),
        (Shape(chart=False), "a cluster without Muster"),
        (Shape(replicas=2), "a second replica that can be told apart from the first"),
        (Shape(kubernetes="1.34"), "Kubernetes 1.34"),
        (Shape(operators=("metrics-server",)), "a metrics server that reads fake nodes"),
    ],
)
def test_kind_can_be_put_into_shapes_that_differ_in_fake_nodes_values_and_operators(
    shape: Shape, reason: str
) -> None:
    assert possible_shape.why_not(shape, Shape()) == reason
