"""PriorityClass under shares: who gives, how much, and who never does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.core.sharing.chain import legal, shares_of
from muster.core.sharing.priority_class import WHY, by_priority
from muster.types import Grant, Grants, JobKey, Table
from muster_plugins.max_min import MaxMin
from tests.tables import snapshot, table

URGENT = 1000


def made(gpus: int, priority: Sequence[int], **columns: object) -> Table:
    found = table(gpus, **{"most": [8] * len(priority), **columns})  # type: ignore[arg-type]
    found.priority = np.array(priority, dtype=np.int64)
    return found


def given_to(of: Table, proposed: Sequence[int], fixed: Sequence[int] = (), **how: object) -> list[int]:
    whole = bool(how.pop("whole", False))
    shares = Grants(np.array(proposed, dtype=np.int64), whole=whole)
    found: list[int] = by_priority(shares, of, fixed, **how).replicas.tolist()  # type: ignore[arg-type]
    return found


def test_jobs_of_one_priority_are_as_the_policy_has_them() -> None:
    shares = Grants(np.array([4, 4, 0]))
    assert by_priority(shares, made(8, [5, 5, 5])) is shares


def test_a_job_of_higher_priority_gets_its_least_from_the_lowest() -> None:
    of = made(8, [10, 0, URGENT], have=[4, 4, 0], least=[1, 1, 2])
    assert given_to(of, [4, 4, 0]) == [4, 2, 2]


def test_of_equal_ones_the_last_submitted_gives_first_and_says_why() -> None:
    of = made(8, [0, 0, URGENT], have=[4, 4, 0], least=[1, 1, 4])
    found = by_priority(Grants(np.array([4, 4, 0])), of)
    assert found.replicas.tolist() == [3, 1, 4]
    assert found.why == {0: WHY, 1: WHY}


def test_free_gpus_are_taken_before_anybodys() -> None:
    of = made(8, [0, 0, URGENT], have=[3, 2, 0], least=[1, 1, 4])
    assert given_to(of, [3, 2, 0]) == [3, 1, 4]


def test_nobody_is_stopped_while_what_others_have_above_their_least_is_enough() -> None:
    of = made(8, [0, 0, URGENT], have=[4, 4, 0], least=[1, 1, 6])
    assert given_to(of, [4, 4, 0], stop=True) == [1, 1, 6]


def test_a_lower_start_is_put_off_before_a_running_job_is_stopped() -> None:
    of = made(4, [0, 0, URGENT], have=[2, 0, 0], least=2)
    assert given_to(of, [2, 2, 0]) == [2, 0, 2]
    assert given_to(of, [2, 2, 0], stop=True) == [2, 0, 2]


def test_what_others_have_above_their_least_is_given_before_anybody_is_put_off_or_stopped() -> None:
    """The last submitted would give first, but has nothing above its least."""
    put_off = made(6, [0, 0, URGENT], have=[4, 0, 0], least=[1, 2, 2])
    assert given_to(put_off, [4, 2, 0]) == [2, 2, 2]
    stopped = made(7, [0, 0, URGENT], have=[5, 2, 0], least=[1, 2, 3])
    assert given_to(stopped, [5, 2, 0], stop=True) == [2, 2, 3]


def test_running_jobs_are_stopped_only_where_preemption_is_on() -> None:
    of = made(4, [0, 0, URGENT], have=2, least=2)
    of.have = np.array([2, 2, 0])
    assert given_to(of, [2, 2, 0]) == [2, 2, 0]
    assert given_to(of, [2, 2, 0], stop=True) == [2, 0, 2]


def test_what_a_stopped_job_gives_too_much_goes_back() -> None:
    of = made(12, [0, 0, URGENT], have=[8, 4, 0], least=[2, 4, 8])
    assert given_to(of, [8, 4, 0], stop=True) == [4, 0, 8]


def test_of_several_that_wait_the_highest_is_first_and_takes_nothing_from_its_equals() -> None:
    of = made(4, [0, 10, URGENT, URGENT], have=[4, 0, 0, 0], least=[1, 3, 3, 3])
    assert given_to(of, [4, 0, 0, 0]) == [1, 0, 3, 0]


def test_those_that_may_not_change_give_nothing() -> None:
    of = made(8, [0, 0, URGENT], have=[4, 4, 0], least=[1, 1, 2])
    assert given_to(of, [4, 4, 0], [1]) == [2, 4, 2]
    assert given_to(of, [4, 4, 0], [0, 1], stop=True) == [4, 4, 0]


def test_allowed_sizes_hold_for_who_gives() -> None:
    of = made(8, [0, URGENT], have=[8, 0], least=[1, 3], sizes={0: (1, 2, 4, 8)})
    assert given_to(of, [8, 0]) == [4, 3]


def test_a_rigid_policy_grants_requests_and_stops_whole_jobs() -> None:
    of = made(8, [0, 0, URGENT], have=[4, 4, 0], least=1, request=[4, 4, 2])
    assert given_to(of, [4, 4, 0], whole=True) == [4, 4, 0]
    assert given_to(of, [4, 4, 0], whole=True, stop=True) == [4, 0, 2]


def test_jobs_on_the_same_gpus_give_nothing() -> None:
    of = made(4, [0, 0, URGENT], have=[4, 4, 0], least=[1, 1, 2])
    shares = Grants(np.array([4, 4, 0]), details={1: Grant(beside=JobKey("test", "job-0"))})
    assert by_priority(shares, of, stop=True) is shares


def test_a_policy_that_knows_no_priorities_serves_them_by_the_core() -> None:
    of = made(4, [0, 0, 0, 0, URGENT], have=[1, 1, 1, 1, 0], run_start=0.0)
    plugin_errors: list[str] = []
    for preemption, expected in ((False, [1, 1, 1, 1, 0]), (True, [1, 1, 1, 0, 1])):
        found = shares_of(snapshot(of), (MaxMin(),), plugin_errors, preemption=preemption)
        assert found is not None
        assert found.replicas.tolist() == expected
    assert not plugin_errors


def test_a_stopped_job_is_told_of_priority_as_long_as_that_keeps_it_out() -> None:
    def told(gpus: int, least: Sequence[int], granted: Sequence[int], **ran: object) -> dict[int, str]:
        of = made(gpus, [0, 0, URGENT], least=least, **ran)
        return dict(by_priority(Grants(np.array(granted), why={0: "of the policy"}), of).why)

    policy = {0: "of the policy"}
    # The policy itself grants the urgent one what it has by now; without that, job-1 would fit.
    assert told(16, [8, 8, 8], [8, 0, 8], first_start=1.0) == {**policy, 1: WHY}
    # As long as that runs job-1 can't, whatever the policy has others do.
    assert told(16, [8, 16, 8], [8, 0, 8], first_start=1.0) == {**policy, 1: WHY}
    # The urgent one's single GPU would not be enough, and job-0 could make room: that was the policy's choice.
    assert told(16, [8, 8, 1], [8, 0, 8], first_start=1.0) == policy
    assert told(16, [8, 8, 8], [0, 0, 8], first_start=1.0) == {**policy, 1: WHY}, (
        "the policy's own word comes first"
    )
    assert told(16, [8, 8, 8], [8, 0, 8]) == policy, "it never ran: as many others"


def test_a_job_on_another_ones_gpus_has_none_to_give() -> None:
    of = made(6, [0, 0, 0, 5], have=[4, 1, 1, 0])
    beside = {2: Grant(beside=of.keys[0])}
    found = by_priority(Grants(np.array([4, 2, 3, 0]), details=beside), of)
    assert found.replicas.tolist() == [4, 1, 3, 1]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Table, Grants, list[int], bool]:
    jobs = draw(st.integers(1, 7))
    each = st.lists(st.integers(1, 4), min_size=jobs, max_size=jobs)
    least, unit = draw(each), draw(each)
    most = [low + draw(st.integers(0, 5)) for low in least]
    gpus = draw(st.integers(1, 30))
    of = table(gpus, most=most, least=least, unit=unit, request=most)
    of.priority = np.array(draw(st.lists(st.integers(0, 3), min_size=jobs, max_size=jobs)), dtype=np.int64)
    of.fixed = np.array(draw(st.lists(st.integers(0, 2), min_size=jobs, max_size=jobs)), dtype=np.int64)
    of.sizes = {0: tuple(sorted({least[0], most[0]}))} if draw(st.booleans()) else {}
    counts = st.tuples(*(st.sampled_from([0, low, high]) for low, high in zip(least, most, strict=True)))
    of.have = np.array(draw(counts), dtype=np.int64)
    proposed = legal(Grants(np.array(draw(counts), dtype=np.int64), whole=draw(st.booleans())), of, [])
    fixed = [row for row in range(jobs) if of.have[row] and proposed.replicas[row] == of.have[row]]
    return (
        of,
        proposed,
        draw(st.lists(st.sampled_from(fixed), unique=True)) if fixed else [],
        draw(st.booleans()),
    )


@given(cases())
def test_what_holds_whatever_is_proposed(case: tuple[Table, Grants, list[int], bool]) -> None:
    of, proposed, fixed, stop = case
    before = proposed.replicas.tolist()
    found = by_priority(proposed, of, fixed, stop=stop)
    after = found.replicas.tolist()
    assert proposed.replicas.tolist() == before
    plugin_errors: list[str] = []
    assert legal(replace(found), of, plugin_errors).replicas.tolist() == after
    assert not plugin_errors, "legal as it is"
    gained = [row for row in range(len(of)) if after[row] > before[row]]
    lost = [row for row in range(len(of)) if after[row] < before[row]]
    assert all(before[row] == 0 for row in gained)
    for row in lost:
        assert of.priority[row] < max(of.priority[row] for row in gained)
        assert row not in fixed or after[row] >= of.have[row]
        assert stop or not of.have[row] or after[row] >= min(before[row], int(of.min[row]))
    again = by_priority(found, of, fixed, stop=stop)
    assert again.replicas.tolist() == after, "once is enough"
