# Over 300 lines: every cache that tenants fill is filled with what is hostile to it.
"""Caches that tenants fill are bounded in bytes: each is filled with what is hostile, and its bytes are counted."""

from __future__ import annotations

import ast
import asyncio
import json
import pickle
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster import cached as caches
from muster.cached import CACHES, MIB, Cache, cached, weight
from muster.cluster import decode_pods, paths, quantities
from muster.core.placement import feasibility, usage
from muster.core.progress import curves
from muster.core.views.view import Board, empty_view
from muster.core.workload import annotations as declared
from muster.core.workload import volumes
from muster.policylib import completion, goodput, hull
from muster.policylib.goodput import Tried
from muster.server import access, response_cache
from muster.types import NodeRecord, Nodes, Shape
from muster_plugins import optimus_pollux, reported_loss
from tests.scenario import FIFO

TOP = Path(__file__).resolve().parents[1]
LONG = "x" * 4000


def pod(number: int) -> bytes:
    """One with 15 kB of selector, node affinity and annotations, none of which any other has."""
    terms = [
        {"matchExpressions": [{"key": f"k{number}-{i}", "operator": "In", "values": [f"{LONG[:200]}{i}"]}]}
        for i in range(15)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return json.dumps(
        {
            "metadata": {
                "uid": f"u{number}",
                "namespace": "team",
                "name": f"p{number}",
                "creationTimestamp": f"{number}{LONG}",
                "annotations": {"muster.dev/roles": f"{number}{LONG}", "muster.dev/sizes": LONG},
            },
            "spec": {
                "schedulerName": "muster",
                "schedulingGates": [{"name": "muster.dev/queue"}],
                "nodeSelector": {f"s{number}-{i}": LONG[:60] for i in range(15)},
                "affinity": {"nodeAffinity": required},
                "containers": [
                    {
                        "name": "c",
                        "resources": {"requests": {f"r{number}-{i}/{LONG[:50]}": "1" for i in range(10)}},
                    }
                ],
            },
        }
    ).encode()


def decoded(number: int) -> None:
    record = decode_pods.pod(pod(number), "muster")
    declared.declared(record)
    volumes._shape(record.shape, False, ())


def template(number: int) -> None:
    """The annotations of an owner's template, which no API server bounds where the kind has no schema."""
    declared.declared_of("worker", (("muster.dev/roles", f"{number}{LONG}"),))


def losses(number: int) -> tuple[tuple[float, float], ...]:
    return tuple((float(step), number + 1.0 / step) for step in range(1, 9))


FILLS: dict[str, Callable[[int], object]] = {
    "times": decoded,
    "quantities": lambda n: quantities.quantity("memory", f"{n}{'0' * 4000}"),
    "shapes": decoded,
    "node affinity": decoded,
    "annotations": template,
    "shapes with volumes": decoded,
    "paths": lambda n: paths.path(f"{'a' * 60}.{'b' * 60}/v1", "jobs", "team", f"{n}{LONG[:240]}"),
    "speed curves": lambda n: curves.curve(((1, 1.0 + n), (2, 1.5 + n)), 500),
    "speed surfaces": lambda n: curves.with_servers(
        ((1, 1, 1.0 + n), (2, 1, 1.7 + n), (1, 2, 1.2 + n), (2, 2, 2.1 + n)), 2, 50
    ),
    "declared curves": lambda n: curves.interpolated(((1, 1.0 + n), (500, 250.0 + n))),
    "ends of training": lambda n: completion._end(losses(n), 100.0, 0.5),
    "ends of training that reports": lambda n: reported_loss._end(losses(n), 0.5, 100.0),
    "hulls": lambda n: hull._steps((np.arange(100.0) + n).tobytes(), tuple(range(1, 100)), 1, 0),
    "goodput": lambda n: goodput.fitted(frozenset(Tried(1, 1, k, n + k / 7, 0.0) for k in range(1, 65))),
    "measured speeds": lambda n: optimus_pollux._speeds(((1, 1.0 + n), (500, 250.0 + n))),
}


FITTED = ("ends of training", "ends of training that reports", "speed surfaces")
"""A curve is fitted for each entry, which takes milliseconds."""
BRIEF = ("times", "quantities", "annotations", "paths")
"""Entries of a few kB: few are enough."""


@pytest.mark.parametrize("name", sorted(FILLS))
def test_a_cache_filled_with_what_is_hostile_stays_within_its_bytes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = (32 if name in FITTED else 64 if name in BRIEF else 256) * 1024
    for cache in CACHES.values():
        cache.clear()
        monkeypatch.setattr(cache, "most", most)
    FILLS[name](0)
    assert len(CACHES[name]) > 0, "the fill does not reach it"
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        number = 1
        while number < 3 * len(CACHES[name]):  # so long until two generations have gone
            FILLS[name](number)
            number += 1
            assert number < 5000, "nothing goes"
        after, _ = tracemalloc.get_traced_memory()
        assert CACHES[name].weight() <= most
    finally:
        tracemalloc.stop()
        for cache in CACHES.values():
            cache.clear()
    filled = len(CACHES) if FILLS[name] is decoded else 1
    assert after - before <= 1.2 * most * filled, "what Python says that it takes"


def test_every_cache_of_a_function_is_filled_here_and_stands_in_the_readme() -> None:
    assert CACHES.keys() == FILLS.keys()
    readme = (TOP / "extender" / "README.md").read_text()
    for name, cache in CACHES.items():
        assert f"| {name} | {cache.most // MIB} MiB |" in readme, name


BY_COUNT = {
    "core/gang_object/conditions.py": {"_second", "statuses"},  # by whole seconds; by our own enums
    "core/plain_values.py": {"_hints", "_defaults"},  # by our own types
    "core/reasons/waiting.py": {"_steady"},  # by two counts
    "core/views/job_status.py": {"_written"},  # by whole seconds
    "core/reasons/shares.py": {"_spaces"},  # one
    "core/placement/backfill.py": {"leaves"},  # of one plan
    # by a model's name (bounds.NAME) and tables of references
    "policylib/similar.py": {"reference", "ranked", "pairings", "known"},
}
"""Caches that are bounded by a count, since no entry can be large."""


def test_no_other_function_keeps_what_it_was_asked() -> None:
    found: dict[str, set[str]] = {}
    for top in (TOP / "extender" / "muster", TOP / "plugins"):
        for file in sorted(top.rglob("*.py")):
            if "sim" in file.relative_to(top).parts:
                continue  # of one run, of one's own files
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef):
                    by = {
                        ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in node.decorator_list
                    }
                    if by & {"lru_cache", "cache"}:
                        found.setdefault(str(file.relative_to(top)), set()).add(node.name)
                elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("lru_cache", ".cache")):
                    assert len(node.args) <= 1, "one that wraps a function elsewhere"
    assert found == BY_COUNT


# --- those that belong to an object --------------------------------------------------------------------------


def selecting(number: int) -> Shape:
    return Shape(requests=(("cpu", 1),), selector=tuple((f"s{number}-{i}", LONG[:60]) for i in range(30)))


def test_masks_of_constraints_stay_within_their_bytes_while_no_node_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = Nodes([NodeRecord(name=f"n{i}", allocatable={"cpu": 1000}) for i in range(500)])
    monkeypatch.setattr(nodes.masks, "most", MIB)
    for number in range(500):
        assert not feasibility.static_mask(nodes, selecting(number)).any()
    assert 0 < len(nodes.masks) < 500
    assert nodes.masks.weight() <= MIB


def test_what_shapes_use_stays_within_its_bytes_while_no_node_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = usage.Usage()
    used.node_seen(NodeRecord(name="n", allocatable={"cpu": 1000}))
    free = used.free()
    monkeypatch.setattr(used._vectors, "most", MIB)
    for number in range(500):
        used.charge(number, "n", selecting(number), ours=True)
        used.charge(number, "", selecting(number), ours=True)
    assert 0 < len(used._vectors) < 500
    assert used._vectors.weight() <= MIB
    assert np.array_equal(used.free(), free), "and what is counted is right all the same"


def groups(_: str, path: str, body: bytes) -> tuple[int, bytes]:
    """An API server whose users have 100 groups with long names."""
    if path.endswith("tokenreviews"):
        token = json.loads(body)["spec"]["token"]
        user = {"username": token, "groups": [f"{token}-{i}-{LONG[:200]}" for i in range(100)]}
        status: dict[str, Any] = {"authenticated": True, "user": user, "audiences": ["muster.dev"]}
    else:
        status = {"allowed": True}
    return 201, json.dumps({"status": status}).encode()


def test_answers_about_tokens_stay_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ANSWERS", MIB)
    asked = access.ReviewedAccess(groups, clock=lambda: 0.0, reviews=10_000.0)
    for number in range(1000):
        assert asked.may_list(f"token-{number}", "team") is access.Verdict.ALLOWED
    assert 0 < len(asked._callers) < 100
    assert sum(map(weight, asked._callers.values())) <= MIB
    for number in range(3000):
        asked.may_list("token-1", f"team-{number}")
    assert 0 < len(asked._verdicts) < 3000


def test_one_whose_groups_are_larger_than_the_cache_is_answered_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "ANSWERS", 10_000)
    asked = access.ReviewedAccess(groups, clock=lambda: 0.0)
    assert asked.may_list("token", "team") is access.Verdict.ALLOWED
    assert len(asked._callers) == 0


def test_rendered_answers_stay_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "KEPT", MIB)
    kept = response_cache.Answers(Board(empty_view(FIFO)), fresh=60.0)

    async def ask() -> None:
        for number in range(40):
            await kept.get((str(number),), lambda _: b"{" + b" " * 100_000 + b"}")

    asyncio.run(ask())
    assert ("39",) in kept._kept
    assert 5 < len(kept._kept) < 15
    assert sum(len(one.body) for one in kept._kept.values()) <= MIB + 200_000


# --- the class -------------------------------------------------------------------------------------------------


def test_what_is_asked_for_stays_and_what_is_not_goes() -> None:
    cache: Cache[str, str] = Cache(100_000)
    cache.put("often", "yes")
    for number in range(1000):
        cache.put(f"seldom {number}", LONG[:500])
        assert cache.get("often") == "yes"
    assert cache.get("seldom 0") is None
    assert cache.get("seldom 999") == LONG[:500]
    assert cache.weight() <= 100_000


def test_one_that_is_too_large_pushes_nothing_out() -> None:
    cache: Cache[str, str] = Cache(100_000)
    cache.put("small", "yes")
    cache.put("large", "x" * 20_000)
    assert (cache.get("small"), cache.get("large", "none")) == ("yes", "none")


def test_a_function_is_asked_once_and_none_is_an_answer() -> None:
    asked: list[tuple[int, str]] = []

    @cached("of a test", MIB)
    def function(number: int, word: str = "") -> None:
        asked.append((number, word))

    try:
        for _ in range(3):
            assert function(1) is None
            assert function(1, "x") is None
            assert function(1, word="x") is None
        assert asked == [(1, ""), (1, "x"), (1, "x")]
    finally:
        del CACHES["of a test"]


def test_what_raises_is_not_kept() -> None:
    for _ in range(2):
        with pytest.raises(Exception, match="expected an apiVersion"):
            paths.path("../healthz")


def test_several_threads_may_use_it_at_once() -> None:
    cache: Cache[int, str] = Cache(200_000)

    def use(first: int) -> None:
        for number in range(first, first + 3000):
            cache.put(number, LONG[:100])
            found = cache.get(number - 1)
            assert found in (None, LONG[:100])

    threads = [threading.Thread(target=use, args=(i * 1500,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < cache.weight() <= 200_000


def test_a_copy_in_another_process_begins_empty() -> None:
    cache: Cache[str, str] = Cache(1000)
    cache.put("a", "b")
    other = pickle.loads(pickle.dumps(cache))
    assert (other.most, len(other)) == (1000, 0)


@pytest.mark.parametrize(
    "value",
    [
        LONG,
        LONG.encode(),
        tuple(float(i) for i in range(5000)),
        tuple(range(5000)),
        [str(i) for i in range(5000)],
        {str(i): float(i) for i in range(5000)},
        np.zeros(50_000),
        lambda: selecting(1),
    ],
    ids=lambda v: type(v).__name__,
)
def test_weights_are_what_python_takes(value: Any) -> None:
    copy: Callable[[], Any] = value if callable(value) else lambda: pickle.loads(pickle.dumps(value))
    copy()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = copy()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before <= 1.1 * weight(made) + caches.ENTRY
