"""Hand-overs read from what trainings tell: how long devices idle, and which steps were taken twice."""

from __future__ import annotations

import pytest

from e2e.bench.in_place import HandOver, hand_over, lost, rises, spans
from e2e.lab.errors import LabError

TOLD = """\
100.0 first a-0 1 G0,G1 2.1 1.0
110.0 last a-0 500 G0,G1 0 0.5
112.5 first b-0 1 G1 2.2 1.0
112.0 first a-0 501 G0 2.0 0.4
"""


def test_a_device_idles_from_the_last_step_of_one_to_the_first_of_the_next() -> None:
    assert hand_over(spans(TOLD), 108.0, "b-0") == HandOver(idle=2.5, both=4.5, started=4.5, own=2.2)


def test_steps_that_are_taken_again_are_lost() -> None:
    assert lost(spans(TOLD)) == 0
    assert lost(spans(TOLD.replace("501", "497"))) == 4


def test_a_training_that_was_killed_is_no_figure() -> None:
    with pytest.raises(LabError, match="a-0 was killed"):
        lost(spans(TOLD.replace("110.0 last a-0 500 G0,G1 0 0.5\n", "")))


def test_a_loss_that_is_not_below_that_of_the_last_step_before_is_a_rise() -> None:
    assert rises(spans(TOLD)) == 0
    assert rises(spans(TOLD.replace("0.4", "0.6"))) == 1
