"""Fixtures of the e2e scenarios.

lab        the session's lab, as its tests find it: every process running, every node as made. Tests that
           need it have the marker `lab`; with E2E_KIND=true it is the kind cluster of `make kind`
           (e2e/kind/lab.py), with E2E_KUBECONFIG (another cluster) they are skipped
cluster    the lab's cluster, or the one of E2E_KIND or E2E_KUBECONFIG
namespace  a fresh one, deleted when the test ends
new_lab    makes further labs, ended with the test
room       16 GPUs: all other nodes of the lab are cordoned (for elastic jobs)
max_min    room, and Muster shares GPUs evenly; what a change costs is not weighed

The referee (e2e/referee) watches every cluster of a test, from when the test has it: what is under way when the
test ends has to come to its end, and no fault may have been found. `@pytest.mark.referee(start=30)` sets its
bounds for a test, `@pytest.mark.unsound("why", "pattern", ...)` announces faults by what they say; without a
pattern it may be any. A lab whose process has died unasked, or whose logs have complaints that nobody announced,
fails its test (Lab.troubles).

Scenarios may run side by side (pytest -n 2 --dist loadfile): the session is one process then, and so is its lab.

Environment: E2E_LAB=NAME uses a lab that stays (quick when writing scenarios: make lab NAME=dev; E2E_LAB=dev
pytest e2e); E2E_OPERATORS_LAB=NAME likewise, for scenarios with operators that this lab has.
E2E_OPERATORS=jobset@v0.10.1 runs these operators in another version that is pinned. E2E_K8S=1.34 makes labs
of that Kubernetes, where a scenario asks for no other. CI=true makes a skip a failure, but of scenarios with
operators that were not built before (marker operators), of what another cluster can't do ("not on kind: why"), and
for what LACKS="traces nginx" names (e2e/lacks.py).
With E2E_KIND scenarios are deselected whose lab the kind cluster can't be (OWN_LAB of their module says why)."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e import operated
from e2e.cluster import Cluster, Refused
from e2e.elastic import ROOM, only, shared_by
from e2e.kind import lab as kind
from e2e.kind import left_out
from e2e.kind.lab import KindLab
from e2e.lab import Lab, NodeGroup, Shape, end_orphans, operators
from e2e.lab.errors import LabError
from e2e.lab.versions import DEFAULT_KUBERNETES
from e2e.labs import ELSEWHERE, ON_KIND, lab_here
from e2e.referee import ENDS, Rules, Watching, watching
from e2e.scenario import show, wait_until

KUBERNETES = os.environ.get("E2E_K8S") or DEFAULT_KUBERNETES
OURS = {"lab", "new_lab", "cluster", "_session_lab"}
"""Fixtures of scenarios that are about a cluster with Muster."""
SHAPE = Shape(groups=(NodeGroup(16, gpus=8),), racks=4, kubernetes=KUBERNETES)
_numbers = itertools.count()
GARBAGE = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""Of the Go programs that labs run: a tenth of kube-apiserver's CPU for some hundred MiB more of memory each."""
WATCH: pytest.StashKey[Watching] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    for name, value in GARBAGE.items():
        os.environ.setdefault(name, value)
    config.addinivalue_line(
        "markers",
        "operators(names): runs where these operators were built before (make lab-build OPERATORS=...), in CI too",
    )
    config.addinivalue_line(
        "markers", "ends(reason): Muster ends a pod of this scenario for this reason (muster.types.EndReason)"
    )
    config.addinivalue_line(
        "markers", "unsound(why, *patterns): faults that the referee may find, and why; without patterns any"
    )
    config.addinivalue_line("markers", "referee(**bounds): seconds that what must not last may last (Rules)")
    config.addinivalue_line("markers", "complains(why, *patterns): what logs may complain of, and why")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if ON_KIND:
        reasons = {item: reason for item in items if (reason := _why_not_on_kind(item))}
        config.stash[left_out.REASONS] = list(reasons.values())
        items[:] = [item for item in items if item not in reasons]
        config.hook.pytest_deselected(items=list(reasons))


def _why_not_on_kind(item: pytest.Item) -> str:
    """ "" where it runs there. A module whose lab is made by `own_lab` says RUNS_ON_KIND."""
    names = set(getattr(item, "fixturenames", ()))
    manager = item.session._fixturemanager
    found = [manager.getfixturedefs(name, item) for name in ("lab", "cluster", "_session_lab")]
    module = item.module  # type: ignore[attr-defined]
    return left_out.why(
        asks=bool(OURS & names),
        other_lab="new_lab" in names or any(defined[-1].baseid != "e2e" for defined in found if defined),
        runs=bool({"new_lab"} & names or _operators_of(item)) or getattr(module, "RUNS_ON_KIND", False),
        on_a_lab=item.get_closest_marker("lab") is not None,
        own_lab=getattr(module, "OWN_LAB", ""),
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """On kind: how many scenarios did not run, and why."""
    if ON_KIND:
        terminalreporter.section("not on kind")
        for line in left_out.table(config.stash.get(left_out.REASONS, []), terminalreporter.stats):
            terminalreporter.line(line)


def pytest_sessionfinish() -> None:
    try:
        kind.give_back()
    except LabError as error:  # what the run has found is told all the same
        print(f"\nkind is not as it was, `make kind` makes it so again: {error}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if missing := operators.missing(operated.in_versions(_operators_of(item))):
        pytest.skip(f"not built: make lab-build OPERATORS={','.join(missing)}")


def _operators_of(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("operators") for name in mark.args]


@pytest.fixture(scope="session")
def _session_lab() -> Iterator[Lab | KindLab]:
    if ON_KIND:
        yield kind.the_lab()
        return
    end_orphans("e2e")
    if name := os.environ.get("E2E_LAB"):
        if "PYTEST_XDIST_WORKER" in os.environ:
            pytest.fail("scenarios side by side need a lab each, and E2E_LAB is one: make e2e JOBS=0")
        lab = Lab(name)
        yield lab.up(lab.shape if lab.exists else SHAPE)
        return
    with lab_here(f"e2e-{os.getpid()}", SHAPE) as lab:
        yield lab


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The session's lab; put right again when the test ends."""
    if ELSEWHERE:
        pytest.skip("needs control of the lab's processes, and E2E_KUBECONFIG names another cluster")
    found: Lab = request.getfixturevalue("_session_lab")
    found.begin(*_announced(request, "complains"))
    yield found
    troubles = found.troubles()
    found.restore()
    if troubles:
        pytest.fail("\n".join(troubles), pytrace=False)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    given = os.environ.get("E2E_KUBECONFIG")
    # Through `lab`, so that what a scenario breaks is fixed after each.
    if ON_KIND:  # what changes nothing but objects needs nothing put right
        given = str(request.getfixturevalue("_session_lab").kubeconfig)
    found = Cluster(Path(given) if given else request.getfixturevalue("lab").kubeconfig)
    with _judged(request, found) as watch:
        request.node.stash[WATCH] = watch
        yield found


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
def new_lab(request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """`new_lab(Shape(...))`: another lab, watched by the referee and ended with the test; or kind in this shape."""
    if ELSEWHERE:
        pytest.skip("starts labs, and E2E_KUBECONFIG names another cluster")
    troubles: list[str] = []
    with contextlib.ExitStack() as stack:

        def make(shape: Shape | None = None) -> Lab:
            if ON_KIND and shape is not None:
                lab: Lab = stack.enter_context(kind.the_lab().shaped(shape))  # type: ignore[arg-type]
                lab.begin(*_announced(request, "complains"))
                stack.callback(lambda: troubles.extend(lab.troubles()))
                stack.enter_context(_judged(request, Cluster(lab.kubeconfig), lab))
                return lab
            lab = Lab(f"e2e-{os.getpid()}-{next(_numbers)}")
            stack.callback(lab.down)
            if shape is None:
                return lab
            if shape.kubernetes == DEFAULT_KUBERNETES:
                shape = replace(shape, kubernetes=KUBERNETES)
            lab.begin(*_announced(request, "complains"))
            stack.callback(lambda: troubles.extend(lab.troubles()))
            lab.up(shape)
            if shape.chart:
                stack.enter_context(_judged(request, Cluster(lab.kubeconfig), lab))
            return lab

        yield make
    if troubles:
        pytest.fail("\n".join(troubles), pytrace=False)


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
        for mark in request.node.iter_markers("ends"):
            _ended_for(cluster, name, mark.args[0])
        _settles(request, request.node.stash[WATCH])
    finally:
        # By name first: the deletion of a namespace begins with a wait of 5 s. And from the top: a JobSet that only
        # lost its Jobs makes new ones.
        operated.clear(cluster, name)
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


@contextlib.contextmanager
def _judged(request: pytest.FixtureRequest, cluster: Cluster, lab: Lab | None = None) -> Iterator[Watching]:
    """The referee watches until the end; the test fails with what it found."""
    bounds: dict[str, float] = {}
    for mark in reversed(list(request.node.iter_markers("referee"))):
        bounds |= mark.kwargs
    patterns = _announced(request, "unsound")
    with watching(cluster, Rules(reasons=ENDS, **bounds), patterns) as watch:
        yield watch
        if lab is not None and lab.exists and lab.alive("kube-apiserver") and lab.ready("kube-apiserver"):
            _settles(request, watch)
    if watch.faults:
        pytest.fail("the referee has found:\n" + "\n".join(watch.faults), pytrace=False)


def _settles(request: pytest.FixtureRequest, watch: Watching) -> None:
    """A gang that is starting or going back to the gate may take its moment."""
    if request.node.get_closest_marker("unsound") is None:
        wait_until(
            lambda: not watch.open(), what="nothing is under way", also=lambda: "\n".join(watch.open())
        )


def _announced(request: pytest.FixtureRequest, marker: str) -> tuple[str, ...]:
    """Patterns of a marker whose first argument says why; "" (any) where one has none."""
    marks = list(request.node.iter_markers(marker))
    return tuple(pattern for mark in marks for pattern in mark.args[1:] or ("",))


def _ended_for(cluster: Cluster, namespace: str, reason: str) -> None:
    """Muster has said on one of the pods that it ends it for this reason."""

    def said() -> list[str]:
        found = [event for event in cluster.events(namespace) if event["involvedObject"]["kind"] == "Pod"]
        return [event["message"] for event in found if event["reason"] == reason]

    wait_until(said, what=f"an Event {reason} on a pod", also=lambda: str(cluster.events(namespace)))
