"""Labels, taints and affinity, as kube-scheduler decides them (each case named after its rule)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.placement.feasibility import allows, matches, matches_term, static_mask, tolerated, tolerates
from muster.types import NodeRecord, Nodes, Requirement, Shape, Taint, Term, Toleration

EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")


@pytest.mark.parametrize(
    ("value", "operator", "values", "expected"),
    [
        ("a", "In", ("a", "b"), True),
        ("c", "In", ("a", "b"), False),
        (None, "In", ("a",), False),
        ("c", "NotIn", ("a",), True),
        ("a", "NotIn", ("a",), False),
        (None, "NotIn", ("a",), True),
        ("", "Exists", (), True),
        (None, "Exists", (), False),
        (None, "DoesNotExist", (), True),
        ("x", "DoesNotExist", (), False),
        ("5", "Gt", ("4",), True),
        ("4", "Gt", ("4",), False),
        ("3", "Lt", ("4",), True),
        ("4", "Lt", ("4",), False),
        ("-1", "Lt", ("0",), True),
        (None, "Gt", ("4",), False),
        ("many", "Gt", ("4",), False),
        ("5", "Gt", ("few",), False),
        ("5", "Gt", (), False),
        ("a", "Approximately", ("a",), False),
    ],
)
def test_a_requirement_matches_as_the_api_defines(
    value: str | None, operator: str, values: tuple[str, ...], expected: bool
) -> None:
    assert matches(value, Requirement("key", operator, values)) is expected


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration("nvidia.com/gpu", "Equal", "present", "NoSchedule"), True, id="equal"),
        pytest.param(Toleration("nvidia.com/gpu", "Equal", "absent", "NoSchedule"), False, id="other value"),
        pytest.param(Toleration("nvidia.com/gpu", "", "present"), True, id="no operator is Equal"),
        pytest.param(Toleration("nvidia.com/gpu", "Exists"), True, id="exists, every effect"),
        pytest.param(Toleration("nvidia.com/gpu", "Exists", "", "NoExecute"), False, id="other effect"),
        pytest.param(Toleration("other", "Exists"), False, id="other key"),
        pytest.param(Toleration("", "Exists"), True, id="an empty key with Exists tolerates all"),
        pytest.param(Toleration("", "Exists", "", "NoExecute"), False, id="all taints of another effect"),
    ],
)
def test_a_toleration_tolerates_as_the_api_defines(toleration: Toleration, expected: bool) -> None:
    assert tolerated(GPU_TAINT, toleration) is expected


def test_every_taint_that_keeps_pods_off_must_be_tolerated() -> None:
    node = NodeRecord(
        "n", taints=(GPU_TAINT, Taint("draining", "", "NoExecute"), Taint("slow", "", "PreferNoSchedule"))
    )
    gpu, draining = Toleration("nvidia.com/gpu", "Exists"), Toleration("draining", "Exists")
    assert not tolerates(node, ())
    assert not tolerates(node, (gpu,))
    assert tolerates(node, (gpu, draining))


def test_a_cordoned_node_takes_only_who_tolerates_cordoning() -> None:
    node = NodeRecord("n", unschedulable=True)
    assert not allows(node, Shape())
    assert allows(node, Shape(tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),)))


def test_terms_are_ored_and_what_is_in_a_term_is_anded() -> None:
    zone_a = Requirement("zone", "In", ("a",))
    big = Requirement("size", "In", ("big",))
    node = NodeRecord("n", {"zone": "a", "size": "small"})
    assert not allows(node, Shape(affinity=(Term((zone_a, big)),)))
    assert allows(node, Shape(affinity=(Term((zone_a, big)), Term((zone_a,)))))


def test_a_term_may_name_the_node() -> None:
    here = Term((), (Requirement("metadata.name", "In", ("n1",)),))
    assert [matches_term(NodeRecord(n), here) for n in ("n0", "n1")] == [False, True]
    elsewhere = Term((), (Requirement("metadata.name", "NotIn", ("n1",)),))
    assert [matches_term(NodeRecord(n), elsewhere) for n in ("n0", "n1")] == [True, False]


def test_an_empty_term_matches_no_node() -> None:
    assert not matches_term(NodeRecord("n"), Term())
    assert not allows(NodeRecord("n"), Shape(affinity=(Term(),)))


def test_selector_and_affinity_hold_both() -> None:
    shape = Shape(selector=(("zone", "a"),), affinity=(Term((Requirement("gpu", "Exists"),)),))
    assert [
        allows(NodeRecord("n", labels), shape)
        for labels in ({"zone": "a", "gpu": ""}, {"zone": "a"}, {"gpu": ""}, {})
    ] == [True, False, False, False]


def test_a_pod_with_a_node_name_fits_there_only() -> None:
    nodes = Nodes([NodeRecord("n0"), NodeRecord("n1")])
    assert static_mask(nodes, Shape(node_name="n1")).tolist() == [False, True]


def test_a_mask_is_made_once_for_each_constraint() -> None:
    nodes = Nodes([NodeRecord("n0", {"zone": "a"}), NodeRecord("n1")])
    first = static_mask(nodes, Shape(requests=(("cpu", 1),), selector=(("zone", "a"),)))
    assert first.tolist() == [True, False]
    assert static_mask(nodes, Shape(requests=(("cpu", 2),), selector=(("zone", "a"),))) is first


names = st.sampled_from(["n0", "n1", "n2", "n9"])
labels = st.dictionaries(
    st.sampled_from(["zone", "size"]), st.sampled_from(["", "a", "b", "2", "10"]), max_size=3
)
taints = st.lists(
    st.builds(Taint, st.sampled_from(["gpu", "x"]), st.sampled_from(["", "a"]), st.sampled_from(EFFECTS)),
    max_size=2,
)
requirements = st.lists(
    st.builds(
        Requirement,
        st.sampled_from(["zone", "size", "no", "metadata.name", ""]),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Else"]),
        st.lists(st.sampled_from(["a", "b", "2", "5", "n0", "n1", ""]), max_size=2).map(tuple),
    ),
    max_size=2,
).map(tuple)
shapes = st.builds(
    Shape,
    selector=st.lists(st.tuples(st.sampled_from(["zone", "no"]), st.sampled_from(["a", ""])), max_size=2).map(
        tuple
    ),
    affinity=st.lists(st.builds(Term, requirements, requirements), max_size=2).map(tuple),
    tolerations=st.lists(
        st.builds(
            Toleration,
            st.sampled_from(["", "gpu", "x"]),
            st.sampled_from(["", "Equal", "Exists", "Gt"]),
            st.sampled_from(["", "a"]),
            st.sampled_from(["", *EFFECTS]),
        ),
        max_size=2,
    ).map(tuple),
    node_name=st.one_of(st.just(""), names),
)


@settings(max_examples=150)
@given(
    records=st.lists(
        st.builds(NodeRecord, names, labels, taints.map(tuple), st.booleans(), st.just({"cpu": 1})),
        max_size=4,
        unique_by=lambda node: node.name,
    ),
    shape=shapes,
)
def test_all_nodes_at_once_are_what_each_of_them_is(records: list[NodeRecord], shape: Shape) -> None:
    nodes = Nodes(records)
    assert static_mask(nodes, shape).tolist() == [allows(node, shape) for node in nodes.records]


def test_keys_that_no_node_has_are_kept_once() -> None:
    nodes = Nodes([NodeRecord("n0", {"zone": "a"}), NodeRecord("n1")])
    for number in range(200):
        nodes.domains(f"example.com/key-{number}")
    assert nodes.domains("example.com/none")[0].tolist() == [-1, -1]
    assert nodes.domains("zone")[0].tolist() == [0, -1]
    assert len(nodes._domains) == 2
