"""config/quickstart.md, block by block, in a shell like its reader's: on a lab by `test_quickstart.py`, on kind by
`kind/quickstart.py`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.lab import build
from e2e.lab.chart import muster_program
from e2e.lab.places import CHECKOUT
from e2e.lab.versions import binaries
from e2e.scenario import wait_until

PAGE = CHECKOUT / "config" / "quickstart.md"
BLOCK = re.compile(r"(?:^<!-- run: (\w+) -->\n)?^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """run: "" for a block that runs anywhere; kind: needs Docker; no: changes what the reader has; node: changes the
    node NODE, which has no GPUs; render: is only rendered here, since the lab has the chart already. shows: what the
    page says that it prints."""

    run: str
    text: str
    shows: str = ""


def blocks() -> list[Block]:
    """All of the page, in its order."""
    found: list[Block] = []
    for run, language, text in BLOCK.findall(PAGE.read_text()):
        if language == "text":
            found[-1] = Block(found[-1].run, found[-1].text, text)
        else:
            found.append(Block(run, text))
    return found


def rows(text: str) -> Iterator[dict[str, str]]:
    """Lines of a table of kubectl's, by column; columns begin where their names do."""
    header, *lines = text.splitlines() or [""]
    starts = [(found.start(), found[0]) for found in re.finditer(r"\S+", header)]
    ends = [start for start, _ in starts[1:]] + [None]
    for line in lines:
        yield {name: line[start:end].strip() for (start, name), end in zip(starts, ends, strict=True)}


def shows(output: str, expected: str) -> bool:
    """Whether each row of the page is in the output, as far as the page shows its columns; a line that begins with
    "Name:" as it is."""
    if re.match(r"\w+:", expected):
        return set(expected.splitlines()) <= set(output.splitlines())
    there = list(rows(output))
    return all(any(row.items() <= one.items() for one in there) for row in rows(expected))


class Shell:
    """A user's shell in the checkout: kubectl and helm of the lab's, its own muster, a kubeconfig for itself. What a
    block exports as KUBECONFIG the next ones have."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None) -> None:
        self._folder, self._exported = folder, folder / "exported"
        self.said = ""
        """By the last command, on stderr."""
        programs = {name: build.find(binaries()[name]) for name in ("kubectl", "helm")}
        (folder / "bin").mkdir()
        for name, program in (programs | {"muster": muster_program()}).items():
            (folder / "bin" / name).symlink_to(program)
        if kubeconfig is not None:
            own = folder / "kubeconfig"
            own.write_bytes(kubeconfig.read_bytes())
            own.chmod(0o600)
            self._exported.write_text(str(own))

    @property
    def kubeconfig(self) -> str:
        """What KUBECONFIG names, "" before a block has exported it."""
        return self._exported.read_text() if self._exported.exists() else ""

    def run(self, text: str) -> str:
        """What it prints. AssertionError where it fails."""
        homes = {f"HELM_{kind}_HOME": str(self._folder / "helm") for kind in ("CACHE", "CONFIG", "DATA")}
        own = {"PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}", "KUBECONFIG": self.kubeconfig}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'{text}\nprintf %s "$KUBECONFIG" > "$EXPORTED"'],
            cwd=CHECKOUT,
            env=os.environ | homes | own | {"REGISTRY": "registry.example", "EXPORTED": str(self._exported)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.said = done.stderr
        assert done.returncode == 0, f"{text}\nexited {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def do(self, block: Block) -> None:
        """Run it; until it shows what the page says, where that says something."""
        if not block.shows:
            self.run(block.text)
            return
        wait_until(
            lambda: shows(self.run(block.text), block.shows),
            what=f"{block.text} shows\n{block.shows}",
            also=lambda: self.run(block.text),
        )
