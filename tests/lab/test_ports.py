"""Ports that labs side by side have: no two of them the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.lab import places
from e2e.lab.ports import reserve


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_labs_and_what_runs_beside_kind_have_ports_of_their_own_that_stay() -> None:
    folders = [places.lab_folder("one"), places.beside_kind(), places.lab_folder("two")]
    found = [reserve(folder, ["a", "b"]) for folder in folders]
    assert len({port for ports in found for port in ports.values()}) == 6
    assert [reserve(folder, ["b", "a"]) for folder in folders] == found
