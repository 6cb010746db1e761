"""What agents and Muster tell each other about devices (types/devices.py): each field is read back as it was written,
and what can't be is named by its field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.types.devices import (
    DEVICES,
    HIGHEST,
    PER_TERM,
    AgentAnswer,
    AgentReport,
    AgentState,
    Device,
    MalformedError,
    Order,
    device_id,
    numbered,
    plain_answer,
    plain_report,
    read_agent_answer,
    read_agent_report,
)

NUMBERS = st.integers(1, HIGHEST)
WORDS = st.text("0123456789abcdef-", min_size=1, max_size=36)
LISTED = st.dictionaries(WORDS.map("GPU-{}".format), NUMBERS, max_size=8).map(
    lambda found: tuple(sorted(Device(id_, epoch) for id_, epoch in found.items()))
)
REPORTS = st.builds(
    AgentReport,
    WORDS,
    st.sampled_from(AgentState),
    st.integers(0, HIGHEST),
    LISTED,
    st.lists(st.integers(1, DEVICES), max_size=4).map(tuple),
)
ANSWERS = st.builds(
    AgentAnswer, NUMBERS, st.floats(1.0, 3600.0), st.none() | st.builds(Order, NUMBERS, WORDS, LISTED)
)


@given(REPORTS)
def test_a_report_is_read_as_it_was_written(report: AgentReport) -> None:
    assert read_agent_report(json.loads(json.dumps(plain_report(report)))) == report


@given(ANSWERS)
def test_an_answer_is_read_as_it_was_written(answer: AgentAnswer) -> None:
    assert read_agent_answer(json.loads(json.dumps(plain_answer(answer)))) == answer


GOOD: dict[str, Any] = {
    "incarnation": "0f8c",
    "state": "running",
    "order": 7,
    "gpus": [1, 2],
    "devices": [{"id": "GPU-1", "epoch": 3}],
}


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("incarnation", "", "incarnation"),
        ("incarnation", "a" * 65, "incarnation"),
        ("state", "idle", "state"),
        ("state", ["ready"], "state"),
        ("order", -1, "order"),
        ("order", True, "order"),
        ("order", 2**60, "order"),
        ("gpus", "1,2", "gpus"),
        ("gpus", [1, 0], "gpus[1]"),
        ("devices", None, "devices"),
        ("devices", [{"id": "GPU-1"}], "devices[0].epoch"),
        ("devices", [{"id": "GPU-1::0", "epoch": 1}], "devices[0].id"),
        ("devices", [{"id": "GPU-1,GPU-2", "epoch": 1}], "devices[0].id"),
        ("devices", [{"id": "GPU-1", "epoch": 1, "job": "mine"}], "devices[0].job"),
        ("devices", [{"id": "GPU-1", "epoch": 1}, {"id": "GPU-1", "epoch": 2}], "devices"),
        ("devices", [{"id": f"GPU-{i}", "epoch": 1} for i in range(DEVICES + 1)], "devices"),
        ("pod", "team/train-0", "pod"),
    ],
)
def test_what_can_not_be_in_a_report_is_named_by_its_field(field: str, value: object, named: str) -> None:
    with pytest.raises(MalformedError) as raised:
        read_agent_report(GOOD | {field: value})
    assert raised.value.field == named
    assert str(raised.value).startswith(f"{named}: expected ")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ([], "body"),
        ({"term": 1, "lease": 0}, "lease"),
        ({"term": 1, "lease": float("nan")}, "lease"),
        ({"term": -1, "lease": 60}, "term"),
        ({"term": 1, "lease": 60, "order": {"number": 0}}, "order.number"),
        ({"term": 1, "lease": 60, "order": {"number": 1, "incarnation": 5}}, "order.incarnation"),
    ],
)
def test_what_can_not_be_in_an_answer_is_named_by_its_field(answer: object, named: str) -> None:
    with pytest.raises(MalformedError) as raised:
        read_agent_answer(answer)
    assert raised.value.field == named


def test_a_device_that_a_plugin_slices_by_time_is_none() -> None:
    with pytest.raises(MalformedError, match="the id of a whole device"):
        device_id("id", "GPU-6a::3")


@given(st.integers(0, 1000), st.integers(1, PER_TERM - 1), st.integers(1, PER_TERM - 1))
def test_every_number_of_a_term_is_above_all_of_the_terms_before(term: int, count: int, later: int) -> None:
    assert numbered(term, count) < numbered(term + 1, later) <= HIGHEST


@pytest.mark.parametrize("count", [0, PER_TERM])
def test_a_term_has_no_number_of_another_term(count: int) -> None:
    with pytest.raises(ValueError, match="a count from 1"):
        numbered(1, count)
