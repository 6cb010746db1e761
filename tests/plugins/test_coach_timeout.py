"""A job of `coach` that can't have all of its counts waits for them, then takes what there is, simulated and live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.points import load
from tests.plugins.test_coach import counts, learner, planned
from tests.scenario import NOW, key

pytestmark = pytest.mark.parametrize("live", [False, True])


def test_fixed_counts_wait_for_room_until_the_timeout_then_take_what_there_is(live: bool) -> None:
    static = load("coach", {"static": (2, 2), "timeout": 60.0})
    waits = planned(learner("new"), cpu=4, coach=static, live=live)
    assert (waits.shares[key("new")], key("new") in waits.reservations, waits.requeue_at) == (
        0,
        False,
        NOW + 50,
    )
    says = waits.statuses[key("new")].message
    assert says == "it waits for room for 2 workers and 2 servers, 60 s at most"
    one = planned(learner("new"), cpu=3, coach=load("coach", {"static": (2, 1), "timeout": 60.0}), live=live)
    told = one.statuses[key("new")].message
    assert told == "it waits for room for 2 workers and 1 server, 60 s at most"
    starts = planned(learner("new", submitted=NOW - 60.0), cpu=4, coach=static, live=live)
    assert (counts(starts, "new"), len(starts.reservations[key("new")])) == ((2, 1), 4)
    assert counts(planned(learner("new"), coach=static, live=live), "new") == (2, 2)
    at_once = planned(learner("new"), cpu=4, coach=load("coach", {"static": (2, 2), "timeout": 0}), live=live)
    assert (counts(at_once, "new"), at_once.requeue_at) == ((2, 1), None)


def test_what_is_free_while_a_job_waits_for_more_is_its_successors(live: bool) -> None:
    static = load("coach", {"static": (2, 2), "timeout": 60.0})
    small = learner("small")
    small = replace(small, roles=tuple(replace(one, max=1, members=one.members[:1]) for one in small.roles))
    plan = planned(learner("new", submitted=NOW - 20.0), small, cpu=4, coach=static, live=live)
    assert plan.shares == {key("new"): 0, key("small"): 1}
    assert counts(plan, "small") == (1, 1)
