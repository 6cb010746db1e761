"""Every decision of these tests is compared with one that leaves no node out, and none looks at all nodes because it
is time for it: what is left out wrongly is to be seen."""

from __future__ import annotations

import math

import pytest

from muster.core.devices import device_ledger, fresh
from tests.core.devices.alike import decided


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "EVERY", math.inf)
    if device_ledger.decide.__module__.startswith("muster."):  # else a test has put its own there
        monkeypatch.setattr(device_ledger, "decide", decided)
