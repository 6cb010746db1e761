"""Labs whose process was killed are ended by the next one of their kind; nothing is started here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from e2e.lab import Lab, end_orphans, lab


def test_a_lab_is_ended_whose_process_is_no_more_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    names = [
        f"peers-{gone.pid}-kueue-partial-16x8",
        f"peers-{os.getpid()}-kueue-16x8",
        f"e2e-{gone.pid}",
        f"e2e-{gone.pid}-devices",
        "peers-stock-16x8",
        "default",
    ]
    ended: list[str] = []
    monkeypatch.setattr(lab, "all_labs", lambda: [Lab(name) for name in names])
    monkeypatch.setattr(Lab, "down", lambda one: ended.append(one.name))
    end_orphans("peers")
    assert ended == names[:1]
    end_orphans("e2e")
    assert ended == [names[0], names[2], names[3]]
