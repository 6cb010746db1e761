"""Locks of devices in a folder of the node that jobs of several users share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from muster_report.agent.locks import Locks
from muster_report.agent.standing import Device


def test_a_lock_file_that_is_there_is_not_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux refuses O_CREAT of another user's file in a folder like /tmp."""
    (tmp_path / "GPU-a.lock").touch()
    real, flags = os.open, []

    def opened(path: Any, how: int, *more: Any, **named: Any) -> int:
        flags.append(how & os.O_CREAT)
        return real(path, how, *more, **named)

    monkeypatch.setattr(os, "open", opened)
    locks = Locks(str(tmp_path))
    assert locks.take([Device("GPU-a", 1)]) is None
    assert flags == [0]
    assert locks.take([Device("GPU-b", 1)]) is None
    assert flags == [0, 0, os.O_CREAT]
    locks.keep(())


def test_a_lock_that_can_t_be_had_is_waited_for(tmp_path: Path) -> None:
    locks = Locks(str(tmp_path / "not-there"))
    why = locks.take([Device("GPU-a", 1)])
    assert why is not None
    assert "device GPU-a: its lock can't be had" in why
    (tmp_path / "not-there").mkdir()
    assert locks.take([Device("GPU-a", 1)]) is None
    locks.keep(())
