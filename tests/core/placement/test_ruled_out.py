"""What is said never to stand together does so in no arrangement."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need
from muster.core.placement.ruled_out import ruled_out, short
from tests.scenario import asks, node, role, snapshot

Pair = tuple[int, int]
"""GPUs and cpu."""


def stands(free: list[Pair], replicas: list[Pair]) -> bool:
    """Each replica on each node, one after another."""
    if not replicas:
        return True
    (gpus, cpu), rest = replicas[0], replicas[1:]
    return any(
        stands([*free[:i], (has[0] - gpus, has[1] - cpu), *free[i + 1 :]], rest)
        for i, has in enumerate(free)
        if has[0] >= gpus and has[1] >= cpu and has not in free[:i]
    )


def said(free: list[Pair], wanted: list[tuple[int, int, int]]) -> bool:
    before = snapshot(nodes=[node(f"n{i}", gpus, cpu=cpu) for i, (gpus, cpu) in enumerate(free)])
    roles = [role(f"r{i}", n, shape=asks(gpus, cpu=cpu * 1000)) for i, (gpus, cpu, n) in enumerate(wanted)]
    return ruled_out(Capacity(before), [Need(r, r.min) for r in roles], [np.ones(len(free), dtype=np.bool_)])


@given(
    st.lists(st.tuples(st.sampled_from([4, 8]), st.sampled_from([32, 64, 96])), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([4, 16, 24, 32]), st.integers(1, 3)),
        min_size=2,
        max_size=3,
    ),
)
@settings(max_examples=150, deadline=None)
def test_of_a_few_nodes_it_is_exact(free: list[Pair], wanted: list[tuple[int, int, int]]) -> None:
    replicas = [(gpus, cpu) for gpus, cpu, count in wanted for _ in range(count)]
    assert said(free, wanted) == (not stands(free, replicas))


def test_of_many_nodes_only_what_all_of_them_lack_is_said() -> None:
    nodes = [(8, 96)] * 1000
    assert said(nodes, [(5, 1, 700), (4, 1, 1200)]), "8,300 GPUs of 8,000"
    assert not said(nodes, [(5, 1, 700), (4, 1, 700)]), "1,050 nodes would take it; that is not worked out"


def test_a_resource_that_nobody_asks_for_rules_nothing_out_however_far_it_is_used() -> None:
    shot = snapshot(nodes=[node("n0", 2, cpu=2)])
    shot.free[:, shot.nodes.resource_index["memory"]] = -5
    needs = [Need(role(name, 1, shape=asks(1, cpu=1000)), 1) for name in ("a", "b")]
    capacity = Capacity(shot)
    assert not short(capacity, needs)
    assert not ruled_out(capacity, needs, [np.ones(1, dtype=np.bool_)])
