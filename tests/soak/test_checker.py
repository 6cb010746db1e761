"""What a policy owes those who share is found when it is missing, and nothing else."""

from __future__ import annotations

from e2e.soak.checker import Checker, Rules, Sighting, Stand

RULES = Rules({"n0": 2, "n1": 2}, idle=10.0, cost=2.0, overhead=0.2)  # a change is paid for after 10 s


def sees(
    checker: Checker, at: float, job: str, number: int, stand: Stand, node: str = "", **more: bool
) -> None:
    checker.pod(Sighting(f"{job}-{number}", f"{job}-{number}", job, node, stand, **more), at)


def two_jobs() -> Checker:
    """a has started again at 1 s, on n0 with both of its GPUs; b of 1 to 2 has come."""
    checker = Checker(RULES)
    checker.submitted("a", 1, 4, 0.0)
    checker._jobs["a"].ran = True
    checker.submitted("b", 1, 2, 0.0)
    for number in range(4):
        sees(checker, 0.5, "a", number, Stand.GATED)
    for number in range(2):
        sees(checker, 1.0, "a", number, Stand.BOUND, "n0")
        sees(checker, 1.0, "b", number, Stand.GATED)
    return checker


def ticks(checker: Checker, first: float, last: float) -> None:
    for second in range(int(first * 2), int(last * 2) + 1):
        checker.tick(second / 2)


def test_an_idle_gpu_that_a_waiting_job_could_have_is_found_after_ten_seconds() -> None:
    checker = two_jobs()
    ticks(checker, 1.0, 11.0)
    assert checker.faults == []
    ticks(checker, 11.5, 12.0)
    assert checker.faults == ["11.5 s: 2 GPUs idle for 10.5 s while b has 0 of 1 to 2"]


def test_a_gpu_beside_one_that_is_being_vacated_is_not_idle_yet() -> None:
    checker = two_jobs()
    sees(checker, 1.0, "b", 0, Stand.BOUND, "n1")
    sees(checker, 2.0, "b", 0, Stand.LEAVING, "n1")
    checker.ends("b")
    checker.submitted("c", 2, 2, 2.0)
    for number in range(2):
        sees(checker, 2.0, "c", number, Stand.GATED)
    ticks(checker, 2.0, 20.0)
    assert checker.faults == []
    sees(checker, 20.0, "b", 0, Stand.OVER, "n1")
    ticks(checker, 20.0, 30.5)
    assert checker.faults[-1] == "30.5 s: 2 GPUs idle for 10.5 s while c has 0 of 2 to 2"


def test_a_job_that_runs_may_have_more_only_once_its_last_change_is_paid_for() -> None:
    checker = two_jobs()
    sees(checker, 2.0, "b", 0, Stand.BOUND, "n1")
    sees(checker, 2.0, "b", 1, Stand.BOUND, "n1")
    checker.ends("b")
    for number in range(2):
        sees(checker, 5.0, "b", number, Stand.OVER, "n1")
    ticks(checker, 5.0, 21.0)  # a started at 1.0 and may have more from 11.0 on
    assert checker.faults == []
    ticks(checker, 21.5, 22.0)
    assert checker.faults == ["22.0 s: 2 GPUs idle for 10.5 s while a has 2 of 1 to 4"]


def test_growth_before_the_last_change_is_paid_for_is_found() -> None:
    for at, faults in ((5.0, 1), (11.5, 0)):
        checker = two_jobs()
        checker.ends("b")
        ticks(checker, 1.0, 4.5)
        sees(checker, at, "a", 2, Stand.BOUND, "n1")
        ticks(checker, at, at + 3)
        assert len(checker.faults) == faults, checker.faults
        assert checker.tally.growths == 1
    checker = two_jobs()
    checker.costs("a", 0.4)  # measured: paid for after 2 s, but it was not known at the start
    assert checker.faults == []


def test_a_shrink_before_the_last_change_is_paid_for_is_found() -> None:
    for at, faults in ((4.5, 1), (11.5, 0)):
        checker = two_jobs()
        checker.ends("b")
        ticks(checker, 1.0, 4.0)
        sees(checker, at, "a", 1, Stand.LEAVING, "n0")
        sees(checker, at + 0.5, "a", 1, Stand.OVER, "n0")
        ticks(checker, at, at + 3)
        assert len(checker.faults) == faults, checker.faults
        assert checker.tally.shrinks == 1
    checker = two_jobs()
    ticks(checker, 1.0, 4.0)
    sees(checker, 4.2, "a", 1, Stand.LEAVING, "n0")
    ticks(checker, 4.0, 6.0)
    assert checker.faults == [], "it has not left yet"
    sees(checker, 6.2, "a", 1, Stand.OVER, "n0")
    ticks(checker, 6.5, 7.0)
    assert checker.faults == [
        "6.5 s: a shrank from 2 to 1 at 4.2 s, 6.8 s before its last change was paid for"
    ]


def test_a_change_that_is_seen_late_counts_from_when_its_gang_says_that_it_was_decided() -> None:
    for told, faults in ((6.5, 0), (-1.0, 1)):  # the other one is of the start before
        checker = two_jobs()
        checker.ends("b")
        ticks(checker, 1.0, 10.5)
        sees(checker, 11.5, "a", 2, Stand.BOUND, "n1")
        checker.tells("a", "Running", [told, 1.0])
        ticks(checker, 11.5, 16.0)
        sees(checker, 16.6, "a", 3, Stand.BOUND, "n1")
        ticks(checker, 17.0, 19.0)
        assert len(checker.faults) == faults, checker.faults


def test_what_comes_in_parts_is_one_change_while_its_gang_says_so() -> None:
    for state, granted, growths in (("Resizing", 4, 1), ("Running", 4, 1), ("Running", 3, 2)):
        checker = two_jobs()
        checker.ends("b")
        ticks(checker, 1.0, 11.0)
        checker.tells("a", state, [], granted)
        sees(checker, 11.5, "a", 2, Stand.BOUND, "n1")
        ticks(checker, 11.5, 16.0)
        sees(checker, 16.5, "a", 3, Stand.BOUND, "n1")
        checker.tells("a", "Running", [], 4)
        ticks(checker, 16.5, 19.0)
        assert checker.tally.growths == growths
        assert len(checker.faults) == growths - 1, checker.faults


def test_who_is_ended_before_he_could_start_is_counted_apart() -> None:
    checker = Checker(RULES)
    for name, at in (("soon", 5.0), ("late", 25.0), ("ran", 5.0)):
        checker.submitted(name, 1, 1, 0.0)
        if name == "ran":
            sees(checker, 1.0, name, 0, Stand.BOUND, "n0")
        checker.ends(name, at)
    assert (checker.tally.arrivals, checker.tally.starts, checker.tally.brief) == (3, 1, 1)
