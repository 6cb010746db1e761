"""Network packing: appendix E's propositions, and which of the legal shares it takes (papers/afs-coddl)."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.types import Grants, Table
from muster_plugins.network_packing import NetworkPacking, legal
from tests.tables import granted, snapshot, table


@st.composite
def plans(draw: st.DrawFn) -> tuple[int, int, list[int], list[int]]:
    """GPUs of a node (a power of two), nodes, and a plan that uses all of their GPUs; what jobs have now."""
    node = draw(st.sampled_from([1, 2, 4, 8]))
    nodes = draw(st.integers(1, 6))
    left = node * nodes
    plan: list[int] = []
    while left:
        plan.append(draw(st.integers(1, left)))
        left -= plan[-1]
    have = draw(st.lists(st.integers(0, node * nodes), min_size=len(plan), max_size=len(plan)))
    return node, nodes, draw(st.permutations(plan)), have


def jobs(node: int, nodes: int, plan: list[int], have: list[int]) -> Table:
    return table(node * nodes, most=[node * nodes] * len(plan), have=have, per_node=node)


def floor(share: int, node: int) -> int:
    """x of proposition 2: the largest legal share within the plan's."""
    return share // node * node if share > node else 1 << (share.bit_length() - 1) if share else 0


@given(case=plans())
def test_proposition_2_the_sum_stays_and_no_job_falls_below_its_floor(
    case: tuple[int, int, list[int], list[int]],
) -> None:
    node, nodes, plan, have = case
    packed = granted(NetworkPacking(), jobs(node, nodes, plan, have), plan=plan)
    assert all(legal(share, node) for share in packed)
    assert sum(packed) == sum(plan) == node * nodes
    assert all(share >= floor(wished, node) for share, wished in zip(packed, plan, strict=True))


@given(case=plans())
def test_proposition_1_first_fit_decreasing_places_every_job_on_its_fewest_nodes(
    case: tuple[int, int, list[int], list[int]],
) -> None:
    node, nodes, plan, have = case
    packed = granted(NetworkPacking(), jobs(node, nodes, plan, have), plan=plan)
    whole = sum(share // node for share in packed if share >= node)
    bins = [node] * (nodes - whole)
    for share in sorted((s for s in packed if 0 < s < node), reverse=True):
        place = next(
            n for n, free in enumerate(bins) if free >= share
        )  # StopIteration: the proposition is wrong
        bins[place] -= share


@settings(max_examples=30)
@given(case=plans())
def test_of_all_such_shares_the_nearest_then_most_jobs_that_keep_a_gpu_then_most_gpus_kept(
    case: tuple[int, int, list[int], list[int]],
) -> None:
    node, nodes, plan, have = case
    if len(plan) > 5:
        plan, have = plan[:5], have[:5]
    total = node * nodes
    full = sum(plan) == total

    def worth(shares: tuple[int, ...]) -> tuple[int, int, int]:
        kept = [min(s, h) for s, h in zip(shares, have, strict=True)]
        off = sum(abs(s - p) for s, p in zip(shares, plan, strict=True))
        return -off, sum(k > 0 for k in kept), sum(kept)

    choices = [[s for s in range(floor(p, node), total + 1) if legal(s, node)] for p in plan]
    best = max(
        worth(shares)
        for shares in itertools.product(*choices)
        if (sum(shares) == total if full else sum(shares) <= total)
    )
    packed = granted(NetworkPacking(), jobs(node, nodes, plan, have), plan=plan)
    assert worth(tuple(packed)) == best


@given(case=plans())
def test_the_quick_way_is_legal_too(case: tuple[int, int, list[int], list[int]]) -> None:
    node, nodes, plan, have = case
    packed = granted(NetworkPacking(table=0), jobs(node, nodes, plan, have), plan=plan)
    assert all(legal(share, node) for share in packed)
    assert sum(packed) <= node * nodes
    assert all(share >= floor(wished, node) for share, wished in zip(packed, plan, strict=True))


def test_a_share_of_three_becomes_two_or_four_and_a_job_stays_on_its_fewest_nodes() -> None:
    of = table(8, most=[8, 8, 8], per_node=4)
    plan = np.array([3, 3, 2])
    shares = NetworkPacking().adjust(Grants(plan), snapshot(of))
    assert shares.replicas.tolist() == [4, 2, 2]
    assert {row: grant.max_nodes for row, grant in shares.details.items()} == {0: 1, 1: 1, 2: 1}
    big = NetworkPacking().adjust(Grants(np.array([7, 0, 1])), snapshot(of))
    assert big.replicas.tolist() == [8, 0, 0] or sum(big.replicas.tolist()) == 8
    assert big.details[0].max_nodes == -(-int(big.replicas[0]) // 4)


def test_where_no_node_has_a_gpu_shares_stay() -> None:
    assert granted(NetworkPacking(), table(0, most=[8, 8], per_node=0), plan=[0, 0]) == [0, 0]


def test_a_job_that_has_no_legal_share_starts_with_its_least() -> None:
    rigid = table(8, most=[3, 6, 8], least=[3, 5, 1], per_node=8)
    assert granted(NetworkPacking(), rigid, plan=[3, 0, 5])[:2] == [3, 0]
    assert granted(NetworkPacking(), rigid, plan=[0, 6, 2]) == [0, 5, 2]


def test_who_has_gpus_keeps_them_where_two_shares_are_as_near() -> None:
    of = table(8, most=[8, 8, 8], have=[0, 4, 0], per_node=4)
    assert granted(NetworkPacking(), of, plan=[3, 3, 2]) == [2, 4, 2]


def test_least_sizes_and_a_replicas_gpus_are_kept() -> None:
    of = table(16, most=[6, 16, 16], least=[3, 1, 1], unit=[2, 1, 1], sizes={1: (1, 3, 6)}, per_node=4)
    packed = granted(NetworkPacking(), of, plan=[5, 3, 3])
    assert packed[0] in (4, 6)  # 8 or 12 GPUs
    assert packed[1] == 1  # of 1, 3 and 6 only 1 is legal
    assert packed[2] in (2, 4)
