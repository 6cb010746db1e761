"""A lab of a module's own: `with own_lab("small", Shape(...)) as lab`, in a fixture of its scope. On kind it is that
cluster, put into this shape and back (RUNS_ON_KIND = True says so). Who has its cluster not by the fixture `cluster`
of conftest.py has no referee by that either: `with judged(Cluster(lab.kubeconfig))`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster
from e2e.kind import lab as kind
from e2e.lab import Lab, Shape
from e2e.referee import ENDS, Rules, Watching, watching
from e2e.scenario import wait_until

ON_KIND = os.environ.get("E2E_KIND") == "true"
ELSEWHERE = "E2E_KUBECONFIG" in os.environ and not ON_KIND
"""Scenarios run against another cluster, of which they have nothing but a kubeconfig."""


@contextlib.contextmanager
def own_lab(name: str, shape: Shape) -> Iterator[Lab]:
    if ELSEWHERE:
        pytest.skip("starts a lab, and E2E_KUBECONFIG names another cluster")
    if ON_KIND:
        with kind.the_lab().shaped(shape) as there:
            yield there  # type: ignore[misc]
        return
    with lab_here(f"e2e-{os.getpid()}-{name}", shape) as lab:
        yield lab


@contextlib.contextmanager
def judged(cluster: Cluster) -> Iterator[Watching]:
    """The referee watches for as long as the block lasts: then nothing is under way, and it has found nothing."""
    with watching(cluster, Rules(reasons=ENDS)) as watch:
        yield watch
        wait_until(
            lambda: not watch.open(), what="nothing is under way", also=lambda: "\n".join(watch.open())
        )
    assert watch.faults == []


@contextlib.contextmanager
def lab_here(name: str, shape: Shape) -> Iterator[Lab]:
    """On this machine, whatever the scenarios run on; it stays where E2E_KEEP says so."""
    lab = Lab(name)
    try:
        yield lab.up(shape)
    finally:
        if os.environ.get("E2E_KEEP") != "true":
            lab.down()
