"""The arithmetic of the measures, on numbers that one can work out by hand."""

from __future__ import annotations

import pytest

from e2e.bench.figures import Binds, calls, median, percentile, ratio, ticks, writes_since


def test_two_clocks_one_from_the_start_and_one_from_the_first_bind() -> None:
    binds = Binds(started=10.0, times=(12.0, 16.0, 14.0))
    assert (binds.first, binds.whole, binds.span) == (2.0, 6.0, 4.0)
    assert binds.rate == 0.5  # two more pods in four seconds
    assert binds.rate_from_start == 0.5


def test_a_single_bind_has_no_rate_between_first_and_last() -> None:
    assert Binds(0.0, (3.0,)).rate == 0.0


def test_the_median_of_three_runs_is_the_middle_one() -> None:
    assert median([290.0, 86.0, 620.0]) == 290.0
    with pytest.raises(ValueError, match="median of nothing"):
        median([])


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 0.99) == 99.0
    assert percentile(values, 0.5) == 50.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile(values, 1.0) == 100.0


def test_a_ratio_is_of_medians_and_infinite_over_nothing() -> None:
    assert ratio([100.0, 300.0, 200.0], [100.0, 90.0, 400.0]) == 2.0
    assert ratio([1.0], [0.0]) == float("inf")


METRICS = """# HELP apiserver_request_total Counter of apiserver requests
apiserver_request_total{code="200",component="apiserver",resource="pods",subresource="status",verb="PATCH",version="v1"} 6
apiserver_request_total{code="409",component="apiserver",resource="pods",subresource="status",verb="PATCH",version="v1"} 2
apiserver_request_total{code="201",component="apiserver",resource="events",subresource="",verb="POST",version="v1"} 1e+03
apiserver_request_total{code="200",component="apiserver",resource="leases",subresource="",verb="PUT",version="v1"} 40
apiserver_request_total{code="200",component="apiserver",resource="pods",subresource="",verb="WATCH",version="v1"} 9
apiserver_request_duration_seconds_count{verb="GET"} 5
"""  # noqa: E501


def test_calls_are_added_up_over_status_codes_and_versions() -> None:
    assert calls(METRICS) == {
        "PATCH pods/status": 8,
        "POST events": 1000,
        "PUT leases": 40,
        "WATCH pods": 9,
    }


def test_writes_for_each_pod_leave_out_reads_leases_and_what_was_there_before() -> None:
    before = {"POST events": 400}
    assert writes_since(before, calls(METRICS), per=200) == {"POST events": 3.0, "PATCH pods/status": 0.04}


def test_cpu_ticks_of_a_process_whose_name_has_blanks_and_brackets() -> None:
    stat = "42 (kube (x) y) S " + " ".join(str(n) for n in range(4, 53))
    assert ticks(stat) == 14 + 15
