"""`make operators`: no scenario of an operator is left out, and the table at its end tells what passed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e import all_operators
from e2e.all_operators import FILES, Run, runs, summary
from e2e.lab import operators
from e2e.lab.errors import LabError
from e2e.lab.places import CHECKOUT
from e2e.lab.versions import Binary

MARKER = re.compile(r"pytest\.mark\.operators\(([^)]+)\)")
RESULT = """<testsuites><testsuite>
<testcase classname="e2e.test_operators_lws" name="test_whole" time="60.0"/>
<testcase classname="e2e.test_operators_lws" name="test_order" time="30.0"><failure message="no"/></testcase>
<testcase classname="e2e.test_operators_lws" name="test_end" time="0.0"><skipped message="needs root"/></testcase>
</testsuite></testsuites>"""


def test_every_file_of_scenarios_with_the_marker_operators_is_run_and_by_its_operators() -> None:
    marked = {
        file.stem: tuple(re.findall(r'"([^"]+)"', found[1]))
        for file in (CHECKOUT / "e2e").glob("test_*.py")
        if (found := MARKER.search(file.read_text()))
    }
    assert marked
    # what CI builds needs no marker
    assert marked | {"test_operators": ("jobset", "trainer")} == FILES
    assert {name for needed in FILES.values() for name in needed} == {
        one for one in operators.available() if "@" not in one
    }


def test_other_versions_have_a_run_of_their_own_after_the_newest() -> None:
    newest, others = runs(operators.available())
    assert newest == Run(tuple(FILES))
    assert others == Run(("test_operators", "test_kueue"), ("jobset@v0.10.1", "kueue@v0.14.8"))
    assert others.operators("test_operators") == ("jobset@v0.10.1", "trainer")
    assert {one.version for one in others.programs()} >= {"v0.10.1", "v0.14.8"}
    assert runs(["volcano"]) == [Run(("test_volcano",))]


def test_the_table_has_each_file_and_below_it_stands_what_did_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_operators, "RESULTS", tmp_path)
    (tmp_path / "newest.xml").write_text(RESULT)
    table, lines = summary(runs(["lws", "volcano", "kueue@v0.14.8"]))
    rows = list(zip(*(list(column.cells) for column in table.columns), strict=True))
    assert rows == [
        ("test_operators_lws.py", "lws", "1", "1", "1", "1.5"),
        ("test_volcano.py", "volcano", "did not run", "", "", ""),
        ("test_kueue.py", "jobset, kueue@v0.14.8", "did not run", "", "", ""),
    ]
    assert lines == [
        "failed: test_operators_lws.py::test_order (with lws)",
        "skipped: test_operators_lws.py::test_end: needs root (with lws)",
        "did not run: test_volcano.py with volcano",
        "did not run: test_kueue.py with jobset, kueue@v0.14.8",
    ]


def test_a_program_that_can_not_be_built_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def find(binary: Binary) -> Path:
        asked.append(binary.name)
        if binary.name == "lws":
            raise LabError("building lws failed (exit 1)")
        return Path(binary.name)

    monkeypatch.setattr(all_operators.build, "find", find)
    monkeypatch.setattr(all_operators.build, "is_built", lambda one: one.name == "jobset")
    wanted = [Binary(name, "v1.0.0", name, name) for name in ("jobset", "lws", "kueue", "lws")]
    assert all_operators.built(wanted) == ["building lws failed (exit 1)"]
    assert asked == ["lws", "kueue"]
