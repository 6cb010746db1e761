"""config/quickstart.md on kind, from the block that makes the cluster to its end: `make quickstart-kind`.

No test of `make test`, which needs no Docker; pytest is given this file's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kind import cluster
from e2e.quickstart_page import Shell, blocks


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """What was begun ends, also when a block fails."""
    try:
        yield Shell(tmp_path)
    finally:
        cluster.down()


@pytest.mark.timeout(1800)
def test_the_quickstart_runs_on_kind_as_it_stands(shell: Shell) -> None:
    ran = [block for block in blocks() if block.run in ("", "kind")]
    assert [block.run for block in ran].count("kind") == 2, "one makes the cluster, one deletes it"
    assert (ran[0].run, ran[-1].run) == ("kind", "kind")
    for block in ran:
        shell.do(block)
        assert shell.kubeconfig, f"the first block exports where the cluster's is; it said:\n{shell.said}"
