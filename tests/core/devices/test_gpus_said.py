"""`muster.dev/gpus` is read by the core and, from MUSTER_GPUS, by the agent: both read the same."""

from __future__ import annotations

import argparse

import pytest

from muster.core.workload.in_place import parse_gpus
from muster.errors import InputError
from muster_report.agent.arguments import _sizes


@pytest.mark.parametrize("text", ["", "1", "1,2,4", "1-8", "1,4-8", "1-2, 4", "1 - 8", "1-4,8-16", "128"])
def test_both_take(text: str) -> None:
    assert _sizes(text) == parse_gpus(text)


@pytest.mark.parametrize("text", ["0", "129", "1-129", "4-2", "1,,2", "1-2-3", "two", "-3", "1,"])
def test_both_refuse(text: str) -> None:
    with pytest.raises(InputError):
        parse_gpus(text)
    with pytest.raises(argparse.ArgumentTypeError):
        _sizes(text)
