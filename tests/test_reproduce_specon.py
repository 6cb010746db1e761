"""The authors' run of SpeCon, row by row: what follows from the algorithms, or can't, or hangs on what is open."""

from __future__ import annotations

from collections import Counter

import pytest

from e2e.reproduce import run
from e2e.reproduce._specon_replay import Verdict, replay
from e2e.reproduce._specon_run import Decision, decisions

LATER = Decision(30.0, 1, 1, 4)
"""Of a container that runs on node 1 until then."""


@pytest.mark.parametrize(
    ("target", "jobs", "verdict"),
    [
        (2, 2, "yes"),  # two on node 1, and nobody on the others
        (None, 2, "no"),
        (2, 3, "undecidable"),  # a third one, of which nothing is known, may be on node 2
        (None, 4, "no"),  # two more can't be on three nodes
        (None, 5, "undecidable"),
    ],
)
def test_a_choice_of_algorithm_2_follows_or_not_where_nothing_that_is_open_can_change_it(
    target: int | None, jobs: int, verdict: Verdict
) -> None:
    rows = (Decision(0.0, 2, 1, target), LATER)
    assert replay(rows, jobs, numbered=True)[0].target == verdict


def test_without_an_order_of_arrival_the_other_container_may_not_be_there_yet() -> None:
    rows = (
        Decision(0.0, 2, 1, None),
        Decision(30.0, 1, 2, 4),
        Decision(60.0, 3, 3, 4),
        Decision(60.0, 4, 4, 1),
    )
    assert [replay(rows, 4, numbered=numbered)[0].target for numbered in (False, True)] == ["undecidable"] * 2
    near = (Decision(0.0, 4, 1, None), *rows[1:3], Decision(60.0, 2, 4, 1))
    assert [replay(near, 4, numbered=numbered)[0].target for numbered in (False, True)] == [
        "undecidable",
        "yes",
    ]


@pytest.mark.parametrize(("job", "container"), [(4, "yes"), (1, "no")])
def test_algorithm_3_takes_the_container_that_was_marked_last(job: int, container: Verdict) -> None:
    stay = [Decision(0.1 * number, number, 1, None) for number in (1, 2, 3, 4)]
    later = [Decision(60.0, number, 1, 3) for number in (1, 2, 3, 4) if number != job]
    row = replay((*stay, Decision(30.0, job, 1, 2), *later), 4)[4]
    assert (row.algorithm, row.target, row.container) == (3, "yes", container)


def test_algorithm_3_moves_to_no_node_that_has_as_many_as_the_others() -> None:
    stay = [Decision(0.1 * number, number, number, None) for number in (1, 2, 3, 4)]
    later = [Decision(60.0, number, number, 1) for number in (1, 2, 3)]
    row = replay((*stay, Decision(30.0, 4, 4, 2), *later), 4)[4]
    assert (row.target, row.container) == ("no", "no")


def test_no_decision_of_the_authors_run_can_be_told_from_its_file() -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    rows = decisions(run.DATA)
    for numbered in (False, True):
        found = replay(rows, numbered=numbered)
        assert Counter((row.algorithm, row.target, row.container) for row in found) == {
            (2, "undecidable", None): 26,
            (3, "undecidable", "undecidable"): 3,
        }
    assert str(found[17]) == (
        "247.4 s, container 11, node 2, to node 1: Algorithm 3, target undecidable, container undecidable"
    )


def test_the_first_places_of_the_authors_run_are_not_the_papers_even_ones() -> None:
    if not run.DATA.is_dir():
        pytest.skip("no folder of traces: set TRACES to one (see e2e/README.md, Traces)")
    first: dict[int, int] = {}
    for row in decisions(run.DATA):
        first.setdefault(row.job, row.origin)
    assert Counter(first.values()) == {1: 12, 2: 6, 4: 5, 3: 3}
    assert sum(node == (job - 1) % 4 + 1 for job, node in first.items()) == 3
