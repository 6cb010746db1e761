"""`helm test` of the chart where it is installed as it is shipped: `muster doctor` in its own pod, with its account,
and Muster's Service found by its name.

No test of `make test`: a lab resolves no Service's name. pytest is given this file's name (kind.mk)."""

from __future__ import annotations

import pytest

from e2e.lab import Lab
from e2e.lab.chart import NAMESPACE, RELEASE

pytestmark = pytest.mark.lab


def test_helm_test_passes_whole_in_its_pod(lab: Lab) -> None:
    said = lab.helm("test", RELEASE, "-n", NAMESPACE, "--timeout", "2m")
    assert "TEST SUITE:     muster-test" in said
    assert "Phase:          Succeeded" in said
