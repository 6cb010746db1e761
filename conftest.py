"""For unit tests and scenarios alike: a skip is a failure in CI, what this machine lacks is said before anything
runs, and long files come first."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence

import pytest

from e2e import lacks
from e2e.lab import operators

LONGEST_FIRST = (
    "e2e/test_gangs.py",
    "e2e/test_pytorch_by_name.py",
    "e2e/test_failures.py",
    "e2e/test_alive.py",
    "e2e/test_resize_owners.py",
    "e2e/test_training.py",
    "e2e/test_devices_in_place.py",
    "e2e/test_elastic_failures.py",
    "e2e/test_devices_chart.py",
    "e2e/test_soak.py",
    "e2e/test_chaos.py",
    "e2e/test_etcd_restored.py",
    "e2e/test_hostile_objects.py",
    "e2e/test_pytorch.py",
    "e2e/test_binder_hostile.py",
    "e2e/test_nothing_healthy_ends.py",
    "e2e/test_elastic.py",
    "e2e/test_families_more.py",
    "e2e/test_gavel.py",
    "e2e/test_gavel_packed.py",
    "e2e/test_coach.py",
    "e2e/test_families_failing.py",
    "e2e/test_report.py",
    "e2e/test_operators.py",
    "e2e/test_custom_owners.py",
    "e2e/test_installed_for_real.py",
    "e2e/test_operations.py",
    "e2e/test_lab.py",
    "e2e/test_demo.py",
    "e2e/test_page.py",
    "e2e/test_agent_on_devices.py",
    "e2e/test_device_plugin.py",
    "e2e/test_say_why.py",
    "e2e/test_operators_ray.py",
    "e2e/test_operators_lws.py",
    "e2e/test_operators_pytorch.py",
    "e2e/test_frameworks_in_place.py",
    "e2e/test_sweep_in_place.py",
    "e2e/test_admission.py",
    "e2e/test_words.py",
    "e2e/test_no_way_round.py",
    "e2e/test_reproduce.py",
    "e2e/test_bench_policies.py",
    "e2e/test_tls.py",
    "e2e/test_real_node.py",
    "e2e/test_quickstart.py",
    "e2e/test_gitops.py",
    "e2e/test_elastic_idle.py",
    "e2e/test_specon_use.py",
    "e2e/test_kueue.py",
    "tests/chart/test_in_a_cluster.py",
    "e2e/test_install.py",
    "e2e/test_reshape_in_place.py",
    "e2e/test_owners.py",
    "e2e/test_doctor.py",
    "e2e/test_families.py",
    "e2e/test_binder.py",
    "e2e/test_autoscaler.py",
)
"""Files that take minutes, longest first: side by side (xdist, --no-loadscope-reorder) a file that begins last
would be waited for alone. `make e2e` prints how long each took."""
_seconds: dict[str, float] = {}


def pytest_configure() -> None:
    lacks.named()  # a name that there is not is an error before anything runs


def pytest_report_header() -> list[str]:
    """Said before anything runs."""
    return lacks.told()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whole files, the long ones first; the rest as they were found. Scenarios marked `long` only where asked for."""
    if os.environ.get("E2E_LONG") != "true":
        long = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI=true a skip is a failure, but for what is permitted (e2e/lacks.py)."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        # (file, line, reason) of a skip
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        unbuilt = operators.missing([name for mark in item.iter_markers("operators") for name in mark.args])
        if not lacks.permitted(reason, lacks.named(), unbuilt=bool(unbuilt)):
            report.outcome = "failed"
            report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """How long each file takes; side by side the reports of all processes come here."""
    file = report.nodeid.partition("::")[0]
    _seconds[file] = _seconds.get(file, 0.0) + report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The longest files, where there are any."""
    long = sorted(((s, file) for file, s in _seconds.items() if s >= 60.0), reverse=True)
    if long:
        terminalreporter.section("files of a minute or more")
        for seconds, file in long:
            terminalreporter.line(f"{seconds:6.0f} s  {file}")
        misplaced = _out_of_order([file for _, file in long])
        if misplaced:
            terminalreporter.line(f"conftest.py does not have them first: {', '.join(misplaced)}")


def _out_of_order(files: Sequence[str]) -> list[str]:
    return [file for file in files if file not in LONGEST_FIRST]
