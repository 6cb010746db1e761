"""Which Python files are over 300 lines without a reason in their first line (CONTRIBUTING.md); part of `make check`.

python -m tests.long_files          exit 1, and a line for each
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

MOST = 300
REASON = "# Over 300 lines: "
"""How the first line of a longer file begins."""
FOLDERS = ("extender", "plugins", "e2e", "tests")


def without_reason(top: Path) -> Iterator[str]:
    """What is wrong with each file below a checkout's folders, in a line: file, found, expected."""
    for path in sorted(path for folder in FOLDERS for path in (top / folder).rglob("*.py")):
        lines = path.read_text().splitlines()
        if len(lines) > MOST and not (lines[0].startswith(REASON) and lines[0].removeprefix(REASON).strip()):
            yield (
                f"{path.relative_to(top)}: {len(lines)} lines; expected at most {MOST}: split it where it has a seam "
                f"or say why not in its first line, {REASON + '...'!r}"
            )


if __name__ == "__main__":
    found = list(without_reason(Path(__file__).parents[1]))
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(bool(found))
