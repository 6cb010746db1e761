"""What a log of the lab complains of is found, with the lines that belong to it, and nothing else."""

from __future__ import annotations

import re

from e2e.lab.complaints import MOST, found

START = b"--- 2026-01-01T00:00:00+0000 muster serve --config=x\n"
ERROR = b"2026-01-01 00:00:01,000 ERROR muster.live a cycle failed\n"
TRACE = b"Traceback (most recent call last):\n  File x, line 1, in f\nValueError: year out of range\n"
FINE = b"2026-01-01 00:00:02,000 WARNING muster.live reading the scheduler's Lease: no answer\n"


def test_an_error_of_muster_is_told_with_its_traceback_once() -> None:
    assert found("muster-0", (START + FINE + ERROR + TRACE + FINE).splitlines(keepends=True)) == [
        "muster-0 complains: 2026-01-01 00:00:01,000 ERROR muster.live a cycle failed\n"
        "    Traceback (most recent call last):\n      File x, line 1, in f\n    ValueError: year out of range"
    ]


def test_a_traceback_of_its_own_and_a_go_panic_are_complaints_of_whoever_has_them() -> None:
    assert len(found("muster-1", (FINE + TRACE + FINE).splitlines(keepends=True))) == 1
    assert found("kwok", [b"I0101 fine\n", b"panic: boom\n", b"goroutine 1\n", b"E0101 12 x\n"]) == [
        "kwok complains: panic: boom\n    goroutine 1"
    ]


def test_warnings_and_what_others_call_errors_are_none_and_many_are_told_in_part() -> None:
    assert found("muster-0", [START, FINE]) == []
    assert found("kube-scheduler-0", [b"E0101 00:00:00 reflector: connection refused\n", ERROR]) == []
    assert len(found("muster-0", [ERROR] * 50)) == MOST


def test_what_is_expected_hides_nothing_that_comes_after_it() -> None:
    ours = b"2026-01-01 00:00:01,000 ERROR muster.verbs the process (7) has ended\n"
    expected = [re.compile(r"process \(7\)")]
    assert found("muster-0", [ours] * 50, expected) == []
    assert len(found("muster-0", [ours] * 50 + [ours.replace(b"7", b"8"), ERROR], expected)) == 2
