"""Files that nobody can hold in their head: none is added without a reason."""

from pathlib import Path

import pytest

from tests.long_files import without_reason


@pytest.mark.parametrize(
    ("first", "lines", "found"),
    [
        ('"""A file."""', 300, 0),
        ('"""A file."""', 301, 1),
        ("# Over 300 lines: one table of cases.", 301, 0),
        ("# Over 300 lines: ", 301, 1),
    ],
)
def test_a_file_of_more_than_300_lines_gives_a_reason_in_its_first_line(
    tmp_path: Path, first: str, lines: int, found: int
) -> None:
    folder = tmp_path / "extender" / "muster"
    folder.mkdir(parents=True)
    (folder / "long.py").write_text("\n".join([first, *["x = 1"] * (lines - 1)]))
    said = list(without_reason(tmp_path))
    assert len(said) == found
    assert all(
        one.startswith(f"extender/muster/long.py: {lines} lines; expected at most 300") for one in said
    )
