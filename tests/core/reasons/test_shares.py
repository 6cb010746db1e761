"""Why a job has its share: sentences that its owner reads, and nobody else's names in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.reasons.shares import discreet, percent, words
from muster.core.reasons.words import clock
from muster.points import installed
from muster.types import Grant, Grants, JobKey, Table
from tests.tables import table

FLAT = [0.0, 1.0, 1.09, 1.09]
"""One more GPU gives +9 %, the third nothing."""
STEEP = [0.0, 1.0, 2.0, 2.62, 2.9]
"""+100 %, +31 %, +11 %."""


def why(
    of: Table, granted: Sequence[int], said: Mapping[int, str] | None = None, **more: object
) -> list[str]:
    """The sentence of each row, without the names' prefix."""
    found = words(of, Grants(np.array(granted, dtype=np.int64), why=dict(said or {})), **more)  # type: ignore[arg-type]
    return [found[key] for key in of.keys]


def two(**more: object) -> Table:
    """job-0 gains little, job-1 much; 4 GPUs."""
    return table(4, most=[3, 4], curve=[0, 1], curves=[FLAT, STEEP], **more)  # type: ignore[arg-type]


def test_what_the_next_gpu_would_gain_is_set_against_who_has_it() -> None:
    assert why(two(), [1, 3]) == [
        "at its minimum; 1 more GPU would speed it up by 9 %; job-1 is 31 % faster with it",
        "1 more GPU would speed it up by 11 %; all others are at their minimum",
    ]


def test_a_job_of_another_namespace_has_no_name() -> None:
    of = two()
    of.keys = [JobKey("mine", "job-0"), JobKey("theirs", "secret")]
    of.row = {key: row for row, key in enumerate(of.keys)}
    first, _ = why(of, [1, 3])
    assert first.endswith("; a job of another namespace is 31 % faster with it")


def test_replicas_of_several_gpus_and_steps_of_several_replicas_are_counted_in_gpus() -> None:
    of = table(16, most=[4, 4], unit=[2, 1], curve=[0, 0], curves=[[0, 1, 2, 3, 3.9]], sizes={1: (1, 2, 4)})
    assert why(of, [2, 4])[0] == "2 more GPUs would speed it up by 50 %, and are free"
    of.gpus = 9
    assert why(of, [2, 4])[0] == "2 more GPUs would speed it up by 50 %; job-1 is 95 % faster with them"
    assert (
        why(of, [3, 2])[1]
        == "2 more GPUs would speed it up by 95 %, but 1 job that gains less and is shorter comes first"
    )


def test_at_its_maximum_fixed_and_not_faster() -> None:
    of = table(9, most=[3, 4, 2], least=[1, 1, 2], curve=[0, 1, 0], curves=[FLAT, STEEP])
    assert why(of, [2, 4, 2]) == [
        "1 more GPU is not believed to make it faster",
        "at its maximum",
        "its size is fixed at 2 replicas",
    ]


def test_all_jobs_at_their_minimum() -> None:
    assert why(table(2, most=[4, 4]), [1, 1]) == ["all jobs at their minimum"] * 2


def test_where_gain_did_not_decide_the_number_and_the_policys_rule_are_said() -> None:
    of = table(
        6, most=[4, 3, 3], remaining=[100.0, 10.0, 20.0], curve=[1, 0, 0], curves=[[0, 1, 1.2, 1.3], STEEP]
    )
    first = why(of, [1, 2, 3], rule="the shortest come first")[0]
    assert first == (
        "at its minimum; 1 more GPU would speed it up by 100 %, "
        "but 2 jobs that gain less and are shorter come first: the shortest come first"
    )
    of.remaining = np.array([15.0, 10.0, 20.0])
    assert why(of, [1, 2, 3])[0].endswith("100 %, but 2 jobs that gain less come first")
    of.remaining = np.array([np.nan, 10.0, np.nan])
    assert why(of, [1, 2, 3])[0].endswith("100 %, but 2 jobs that gain less come first")


def test_what_it_asked_for_and_what_is_free() -> None:
    of = table(8, most=[4, 4], request=[2, 4])
    assert why(of, [2, 4]) == [
        "has the 2 replicas that it asked for; 1 more GPU would speed it up by 50 %",
        "at its maximum",
    ]


def test_a_waiting_job_is_told_nothing_that_changes_with_others() -> None:
    of = table(4, most=[4, 4, 4], least=[2, 1, 1], unit=[2, 1, 1])
    text = "needs 4 GPUs to start, and others come first: GPUs go round evenly"
    for shares in ([0, 4, 0], [0, 2, 2], [0, 1, 1]):
        assert why(of, shares, rule="GPUs go round evenly")[0] == text


def test_a_plugins_own_sentence_comes_first() -> None:
    costs = "1 more replica would gain 12 s within 600 s, a resize costs 30 s"
    told = why(table(4, most=[4, 0 + 4]), [2, 1], {0: costs, 1: "waits for its turn"})
    assert told[0] == f"{costs}; 1 more GPU would speed it up by 50 %, and is free"
    assert why(two(), [0, 3], {0: "no node has 3 idle GPUs"})[0] == "no node has 3 idle GPUs"


def test_a_job_that_cannot_change_now_is_told_why() -> None:
    assert why(two(), [1, 3], fixed={1: "a PodDisruptionBudget refuses"})[1] == (
        "keeps its 3 replicas: a PodDisruptionBudget refuses"
    )


def test_names_in_a_plugins_sentence_are_made_fit_for_the_reader() -> None:
    of = two()
    of.keys = [JobKey("mine", "job-0"), JobKey("theirs", "secret")]
    of.row = {key: row for row, key in enumerate(of.keys)}
    said = "2 of its GPUs go to theirs/secret, which arrives; mine/other too; 1/2 of 3 GPU/s"
    assert discreet(said, "mine", of) == (
        "2 of its GPUs go to a job of another namespace, which arrives; mine/other too; 1/2 of 3 GPU/s"
    )
    assert "secret" not in why(of, [1, 3], {0: said})[0]


def test_two_jobs_on_the_same_gpus_use_them_once() -> None:
    of = table(2, most=[3, 1, 2], curve=[0, 0, 0], curves=[STEEP])
    beside = Grants(np.array([1, 1, 1]), {1: Grant(beside=of.keys[0])})
    assert words(of, beside)[of.keys[0]] == "all jobs at their minimum"


def test_only_rows_of_the_table_have_a_sentence_and_none_is_made_unasked() -> None:
    found = words(two(), Grants(np.array([1, 3])))
    assert (len(found), JobKey("test", "job-0") in found, JobKey("test", "x") in found) == (2, True, False)
    assert found.get(JobKey("test", "x")) is None
    assert "margins" not in vars(found)
    assert dict(found) == words(two(), Grants(np.array([1, 3])))


@pytest.mark.parametrize(
    ("gain", "text"), [(0.09, "9 %"), (0.004, "less than 1 %"), (0.306, "31 %"), (11.5, "1150 %")]
)
def test_gains_are_whole_percent(gain: float, text: str) -> None:
    assert percent(gain) == text


def test_an_end_is_a_time_of_day_in_utc_and_from_tomorrow_on_a_day() -> None:
    now = 1_795_304_000.0  # 2026-11-21T23:33:20Z
    assert clock(now + 1000, now) == "23:50Z"
    assert clock(now + 7200, now) == "01:33Z"
    assert clock(now + 86_400, now) == "22 Nov"
    assert clock(None, now) == clock(0.0, now) == ""


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Table, list[int]]:
    count = draw(st.integers(1, 8))
    sizes = st.integers(1, 5)
    least = draw(st.lists(sizes, min_size=count, max_size=count))
    most = [low + draw(st.integers(0, 4)) for low in least]
    growth = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.1, 2.0]), min_size=9, max_size=9)
    curves = [[0.0, *np.cumprod([1.0, *draw(growth)]).tolist()][: max(most) + 1] for _ in range(2)]
    of = table(
        draw(st.integers(1, 60)),
        most=most,
        least=least,
        unit=draw(st.lists(st.sampled_from([1, 2, 8]), min_size=count, max_size=count)),
        remaining=draw(st.lists(st.sampled_from([1.0, 5.0, np.nan]), min_size=count, max_size=count)),
        curve=draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)),
        curves=curves,
    )
    granted = [
        draw(st.sampled_from([0, *range(low, high + 1)])) for low, high in zip(least, most, strict=True)
    ]
    return of, granted


@given(crowds())
def test_every_job_has_a_short_sentence_whatever_the_curves(crowd: tuple[Table, list[int]]) -> None:
    of, granted = crowd
    for text in why(of, granted):
        assert text
        assert len(text) <= 200
        assert "nan" not in text
        assert "inf" not in text


def test_rules_of_plugins_are_clauses() -> None:
    rules = {name: getattr(entry.load(), "RULE", "") for name, entry in installed().items()}
    told = {name: rule for name, rule in rules.items() if rule}
    assert {"afs-l", "afs-p", "max-min", "optimus", "srtf", "themis", "tiresias-l"} <= set(told)
    for name, rule in told.items():
        assert len(rule) <= 90, name
        assert not rule.endswith("."), name
