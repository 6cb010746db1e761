"""The tables of devices and of pods in place (core/devices/transitions.py): whole, and told where they are left."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from muster.core.devices.transitions import (
    DEVICES,
    IMPOSSIBLE_DEVICES,
    IMPOSSIBLE_PODS,
    PODS,
    DeviceEvent,
    DeviceState,
    PodEvent,
    PodState,
    device_after,
    pod_after,
)
from muster.errors import InvariantError


def test_every_pair_of_state_and_event_is_in_a_table_or_impossible() -> None:
    assert DEVICES.keys() | IMPOSSIBLE_DEVICES.keys() == {(s, e) for s in DeviceState for e in DeviceEvent}
    assert not DEVICES.keys() & IMPOSSIBLE_DEVICES.keys()
    assert PODS.keys() | IMPOSSIBLE_PODS.keys() == {(s, e) for s in PodState for e in PodEvent}
    assert not PODS.keys() & IMPOSSIBLE_PODS.keys()


def table(what: str, states: type[StrEnum], events: type[StrEnum], pairs: Mapping[Any, StrEnum]) -> str:
    """A table of extender/README.md, as Markdown: the state after an event, by the state before it."""
    columns = [state for state in states if state != "completed"]  # nothing follows it
    lines = [f"| {what} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for event in events:
        cells = [str(pairs.get((state, event), "")) for state in columns]
        lines.append(f"| {event} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_readme_draws_the_tables_as_they_are() -> None:
    readme = (Path(__file__).parents[3] / "extender" / "README.md").read_text()
    for drawn in (
        table("a device", DeviceState, DeviceEvent, DEVICES),
        table("a pod", PodState, PodEvent, PODS),
    ):
        assert drawn in readme, f"extender/README.md is to say:\n{drawn}"


def test_every_state_is_come_to_and_no_device_is_new_again() -> None:
    assert set(DEVICES.values()) == set(DeviceState) - {DeviceState.NEW}
    assert set(PODS.values()) == set(PodState)


def test_only_what_its_user_let_go_or_can_not_have_any_more_is_idle_again() -> None:
    ways = {
        event for (state, event), to in DEVICES.items() if state is DeviceState.IN_USE and to is not state
    }
    assert ways == {DeviceEvent.RELEASED, DeviceEvent.EXPIRED, DeviceEvent.FAILED}


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE_DEVICES)
def test_what_can_not_become_of_a_device_is_told_with_the_reason(
    state: DeviceState, event: DeviceEvent
) -> None:
    with pytest.raises(InvariantError) as raised:
        device_after("GPU-1", state, event)
    assert f"device GPU-1: {event} while it is {state}" in str(raised.value)
    assert IMPOSSIBLE_DEVICES[state, event] in str(raised.value)


@pytest.mark.parametrize(("state", "event"), IMPOSSIBLE_PODS)
def test_what_can_not_become_of_a_pod_is_told_with_the_reason(state: PodState, event: PodEvent) -> None:
    with pytest.raises(InvariantError) as raised:
        pod_after("b", state, event)
    assert f"pod b: {event} while it is {state}" in str(raised.value)
    assert IMPOSSIBLE_PODS[state, event] in str(raised.value)
