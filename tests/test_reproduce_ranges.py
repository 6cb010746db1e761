"""What `make reproduce` makes of a range, and what each paper's figures have one over."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from e2e.reproduce import pollux, run, sidecar, similarity, specon
from e2e.reproduce.entry import Entry, Expect, Range
from muster.policylib.references import PAPER, Law


def entry(target: float | None, expect: Expect, *ends: float, **fields: bool) -> Entry:
    return Entry("figure", target, "h", 0.05, "because", True, lambda: Range(*ends), expect, **fields)


@pytest.mark.parametrize(
    ("expect", "target", "ends", "met", "in_part"),
    [
        ("sign", -34.0, (-16.4, -30.0, -1.7), True, False),
        ("sign", -34.0, (-16.4, -30.0, 3.6), False, True),
        ("sign", -34.0, (-16.4, -30.0, 0.0), False, True),
        ("sign", -34.0, (0.1, -36.4, 25.0), False, False),
        ("sign", 34.0, (16.4, 1.7, 30.0), True, False),
        ("at most", 40.0, (39.0, 31.0, 42.0), True, False),
        ("at most", 40.0, (39.0, 31.0, 44.7), False, True),
        ("at least", 0.05, (0.07, 0.01, 1.0), False, True),
        ("at least", 1.0, (0.0, 0.0, 4.0), False, False),
        ("within", 10.0, (10.1, 9.6, 10.4), True, False),
        ("within", 10.0, (10.1, 9.6, 10.6), False, True),
        ("inside", 10.0, (10.1, 9.6, 10.4), True, False),
        ("inside", 10.0, (10.1, 10.05, 10.4), False, False),
        ("at most", None, (10.1, 10.05, 10.4), True, False),
    ],
)
def test_a_range_meets_its_target_with_both_its_ends_or_in_part(
    expect: Expect, target: float | None, ends: tuple[float, float, float], met: bool, in_part: bool
) -> None:
    made = entry(target, expect, *ends)
    assert (made.met(Range(*ends)), made.in_part(Range(*ends))) == (met, in_part)


@pytest.mark.parametrize(
    ("ends", "fields", "verdict", "failed"),
    [
        ((-2.0, -3.0, -1.0), {}, "met", False),
        ((-2.0, -3.0, 1.0), {}, "FAILS", True),
        ((-2.0, -3.0, 1.0), {"claimed": False}, "holds, not claimed", False),
        ((-2.0, -3.0, -1.0), {"short": True}, "met", False),
        ((-2.0, -3.0, 1.0), {"short": True}, "holds, not claimed", False),
        ((2.0, -3.0, 3.0), {"short": True}, "missed", False),
        ((-2.0, -3.0, 1.0), {"claimed": False, "fitted": True}, "by construction", False),
        ((2.0, -3.0, 3.0), {"claimed": False, "fitted": True}, "missed", False),
    ],
)
def test_a_range_that_meets_its_target_in_part_is_no_met_one(
    monkeypatch: pytest.MonkeyPatch,
    ends: tuple[float, float, float],
    fields: dict[str, bool],
    verdict: str,
    failed: bool,
) -> None:
    made = types.ModuleType("e2e.reproduce.somebody")
    made.entries = lambda _: [entry(-1.0, "sign", *ends, **fields)]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "e2e.reproduce.somebody", made)
    (row,) = run.measure("somebody", quick=True)
    assert (row.verdict, row.failed, row.reproduced) == (verdict, failed, verdict == "met")


def test_similaritys_figures_are_ranges_over_laws_and_sets_of_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def figure(law: Law, draws: int) -> float:
        return round(1e5 * law.launch) + law.reached + draws

    assert similarity._over_laws(figure) == Range(10.5, 5.5, 60.5), "10 + 0.5; 5 + 0.5; 60 + 0.5"
    monkeypatch.setattr(similarity, "SEEDS", 1)
    monkeypatch.setattr(similarity, "LAWS", (PAPER,))
    monkeypatch.setattr(similarity, "SETS", 2)
    found = similarity._left_out()
    assert found.low <= found.value <= found.high


def test_sidecars_figures_are_means_of_draws_and_ranges_over_speeds_too() -> None:
    def figure(seed: int, speeds: sidecar.Speeds) -> float:
        return seed + 100.0 * (speeds.k80 - 0.275) + 10.0 * (speeds.small - 1.0)

    assert sidecar._over_speeds("1", figure) == Range(12.5, -5.0, 25.0), "26 draws; half the speed; no K80"
    assert sidecar._over_speeds("3", figure) == Range(3.5, -5.0, 13.0), (
        "8 draws; half the speed; double of it"
    )


def test_sidecars_worst_workload_is_the_worst_in_the_mean_and_in_any_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gains = {
        "1": Range(-34.0, -47.0, -26.0),
        "2": Range(-7.0, -12.0, 2.0),
        "3": Range(-11.0, -35.0, 28.0),
        "4": Range(-17.0, -42.0, 31.0),
    }
    monkeypatch.setattr(sidecar, "_gain", lambda number, *_: gains[number])
    assert sidecar._worst("table-iv", sidecar.TERMINATION, "makespan") == Range(-7.0, -12.0, 31.0)


def test_the_order_of_sidecar_and_its_baselines_is_claimed_alike_of_all_four(tmp_path: Path) -> None:
    orders = [one for one in sidecar.entries(tmp_path) if one.name.startswith("worst workload")]
    assert [one.claimed for one in orders] == [True] * 8
    assert [one.name for one in orders if one.short] == [
        "worst workload, makespan against termination, scaling 1.7, 2.4",
        "worst workload, makespan against default, scaling 1.32",
        "worst workload, makespan against termination, scaling 1.32",
    ]


def test_polluxs_own_policy_is_not_claimed_and_allowed_what_its_draws_differ_by(tmp_path: Path) -> None:
    own = {one.name: one for one in pollux.entries(tmp_path) if "pollux" in one.name}
    assert len(own) == 8
    assert not any(one.claimed for one in own.values())
    drawn = own.pop("workload-6 at 0.5x, pollux, average JCT")
    assert (drawn.expect, drawn.ranged) == ("inside", True)
    assert {(one.expect, one.tolerance) for one in own.values()} == {("within", pollux.APART)}


def test_of_the_authors_decisions_alone_nothing_is_claimed() -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    alone = [one for one in run.entries("specon", quick=False) if one.source == specon.AUTHORS]
    assert [one.name for one in alone if one.claimed and one.target is not None] == []
