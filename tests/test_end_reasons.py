"""Each reason for which Muster ends a pod has a scenario on the lab that sees it: the marker `ends` (e2e/conftest.py
fails a scenario whose namespace has no Event of it)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from e2e.referee import ENDS
from muster.types import EndReason

E2E = Path(__file__).parent.parent / "e2e"


def marked(file: Path) -> Iterator[str]:
    """Reasons in the `ends` markers of a file's scenarios."""
    for each in ast.walk(ast.parse(file.read_text())):
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_"):
            for mark in each.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.ends":
                    yield from (str(ast.literal_eval(argument)) for argument in mark.args)


def test_every_reason_for_ending_a_pod_has_a_scenario() -> None:
    found = [reason for file in sorted(E2E.glob("test_*.py")) for reason in marked(file)]
    assert set(found) == {reason.value for reason in EndReason}


def test_the_referee_knows_every_reason_for_ending_a_replica_that_runs() -> None:
    assert set(EndReason) - {EndReason.PIN_UNDONE, EndReason.LEFTOVER} == ENDS


def test_reasons_can_be_told_from_all_other_events() -> None:
    """Whoever reads Events and pods only knows an end of Muster's by its first word."""
    assert all(reason.startswith("Ended") for reason in EndReason)
