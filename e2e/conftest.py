"""Fixtures of the e2e scenarios.

lab        the session's lab, as its tests find it: every process running, every node as made. Tests that
           need it have the marker `lab`; with E2E_KUBECONFIG (another cluster, kind for one) they are skipped
cluster    the lab's cluster, or the one of E2E_KUBECONFIG
namespace  a fresh one; when the test ends it is checked (scenario.unsound) and deleted
new_lab    makes further labs, ended with the test
room       16 GPUs: all other nodes of the lab are cordoned (for elastic jobs)
max_min    room, and Muster shares GPUs evenly; what a change costs is not weighed

Scenarios may run side by side (pytest -n 2 --dist loadfile): the session is one process then, and so is its lab.

Environment: E2E_LAB=NAME uses a lab that stays (quick when writing scenarios: make lab NAME=dev; E2E_LAB=dev
pytest e2e). E2E_K8S=1.34 makes labs of that Kubernetes, where a scenario asks for no other. CI=true makes a skip a
failure."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster import Cluster, Refused
from e2e.elastic import ROOM, only, shared_by
from e2e.lab import Lab, NodeGroup, Shape, all_labs
from e2e.lab.versions import DEFAULT_KUBERNETES
from e2e.scenario import show, unsound, wait_until

KUBERNETES = os.environ.get("E2E_K8S") or DEFAULT_KUBERNETES
SHAPE = Shape(groups=(NodeGroup(16, gpus=8),), racks=4, kubernetes=KUBERNETES)
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "unsound(why): gangs of this scenario may be partly bound when it ends, and why"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # In CI nothing that was meant to run may go missing without anybody noticing.
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def _session_lab() -> Iterator[Lab]:
    for orphan in all_labs():  # of a pytest that was killed
        prefix, _, rest = orphan.name.partition("-")
        pid = rest.partition("-")[0]
        if prefix == "e2e" and pid.isdigit() and not _runs(int(pid)):
            orphan.down()
    if name := os.environ.get("E2E_LAB"):
        if "PYTEST_XDIST_WORKER" in os.environ:
            pytest.fail("scenarios side by side need a lab each, and E2E_LAB is one: make e2e JOBS=0")
        lab = Lab(name)
        yield lab.up(lab.shape if lab.exists else SHAPE)
        return
    lab = Lab(f"e2e-{os.getpid()}")
    try:
        yield lab.up(SHAPE)
    finally:
        if os.environ.get("E2E_KEEP") != "true":
            lab.down()


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The session's lab; put right again when the test ends."""
    if "E2E_KUBECONFIG" in os.environ:
        pytest.skip("needs control of the lab's processes, and E2E_KUBECONFIG names another cluster")
    found: Lab = request.getfixturevalue("_session_lab")
    yield found
    found.restore()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if given := os.environ.get("E2E_KUBECONFIG"):
        return Cluster(Path(given))
    # Through `lab`, so that what a scenario breaks is mended after each.
    return Cluster(request.getfixturevalue("lab").kubeconfig)


@pytest.fixture
def namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    with _namespace(request, cluster) as name:
        yield name


@pytest.fixture
def new_namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Further namespaces, checked and deleted like `namespace`."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(_namespace(request, cluster))


@pytest.fixture
def new_lab() -> Iterator[Callable[..., Lab]]:
    """`new_lab(Shape(...))`: another lab, ended with the test."""
    if "E2E_KUBECONFIG" in os.environ:
        pytest.skip("starts labs, and E2E_KUBECONFIG names another cluster")
    made: list[Lab] = []

    def make(shape: Shape | None = None) -> Lab:
        lab = Lab(f"e2e-{os.getpid()}-{next(_numbers)}")
        made.append(lab)
        if shape is not None and shape.kubernetes == DEFAULT_KUBERNETES:
            shape = replace(shape, kubernetes=KUBERNETES)
        return lab.up(shape) if shape is not None else lab

    try:
        yield make
    finally:
        for lab in made:
            lab.down()


@pytest.fixture
def room(lab: Lab, cluster: Cluster) -> None:
    """Two nodes are open: 16 GPUs."""
    only(lab, cluster, *ROOM)


@pytest.fixture
def max_min(lab: Lab, room: None) -> Iterator[None]:  # noqa: ARG001
    """GPUs are shared evenly, and what a change costs is not weighed."""
    with shared_by(lab, "max-min"):
        yield


@contextlib.contextmanager
def _namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    made = cluster.request(
        "POST",
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "e2e-"}},
    )
    name: str = made["metadata"]["name"]
    wait_until(
        lambda: cluster.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"),
        what=f"service account default in namespace {name}",
    )
    try:
        yield name
        if request.node.get_closest_marker("unsound") is None:
            # A gang that is starting or going back to the gate may take its moment.
            wait_until(
                lambda: not unsound(cluster, name),
                what="no node over-committed, no gang partly bound",
                also=lambda: "\n".join(unsound(cluster, name)),
            )
    finally:
        # By name first: the deletion of a namespace begins with a wait of 5 s.
        for kind in ("batch/v1/jobs", "apps/v1/deployments", "apps/v1/statefulsets", "v1/pods"):
            group, plural = kind.rsplit("/", 1)
            path = f"/{'apis' if '/' in group else 'api'}/{group}/namespaces/{name}/{plural}"
            with contextlib.suppress(Refused):
                cluster.delete(path, propagationPolicy="Background")
        with contextlib.suppress(Refused):
            cluster.delete(f"/api/v1/namespaces/{name}")
        # The next scenario wants the room. Finalizers that a scenario added are its own to remove.
        wait_until(
            lambda: not cluster.pods(name),
            within=180,
            what=f"the pods of namespace {name} are gone",
            also=lambda: show(cluster.pods(name)),
        )


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
