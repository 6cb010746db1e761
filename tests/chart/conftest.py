"""Tests of the chart run with Helm 4, which the lab has, and with Helm 3, which many users and Argo CD have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chart.test_chart import MAJOR


@pytest.fixture(params=[4, 3], ids=["helm-4", "helm-3"], autouse=True)
def major(request: pytest.FixtureRequest) -> Iterator[int]:
    """The helm that the chart is rendered with."""
    before = MAJOR.set(request.param)
    yield request.param
    MAJOR.reset(before)
