"""What the process of the verbs is sent of Views: applying what changed gives what sending the whole gives."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.views.extender_rules import ExtenderRules
from muster.core.views.view import View
from muster.core.views.view_changes import MOST, NOTHING, Copy, Part, changes
from muster.server.answering import pack
from muster.types import Port
from tests.core.test_properties import PROFILES, jobs, nodes
from tests.scenario import job, node, snapshot
from tests.server.reading import as_verbs_read, viewed


def sent(parts: list[Part]) -> list[Part]:
    """As they arrive."""
    return [pickle.loads(pack(part)) for part in parts]


def copied(*views: View) -> View:
    """The last of them, told one by one."""
    copy, before = Copy(), NOTHING
    for view in views:
        for part in sent(list(changes(before, view))):
            copy.take(part)
        before = view
    return copy.view()


def verbs(view: View) -> list[object]:
    """What they answer."""
    guard = ExtenderRules(view)
    names = [*view.snapshot.nodes.names, "unknown"]
    uids = sorted(m.uid for j in view.snapshot.jobs.values() for role in j.roles for m in role.members)
    return [
        *((guard.passes(uid, names), guard.scores(uid, names), guard.waited(uid)) for uid in [*uids, "none"]),
        guard.holds("devices/h", names),
        guard.spared({name: uids[i::3] for i, name in enumerate(names)}),
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[View]:
    """Views of one cluster whose nodes, jobs and places come, change and go; some that follow are the same."""
    views: list[View] = []
    for number in range(draw(st.integers(1, 5))):
        before = views[-1] if views else None
        kept = draw(st.booleans()) if before is not None else False
        records = list(before.snapshot.nodes.records) if before is not None and kept else draw(nodes())
        found = snapshot(nodes=records, jobs=draw(jobs([one.name for one in records])), now=1000.0 + number)
        if before is not None and kept:
            mixed = {key: one for key, one in before.snapshot.jobs.items() if draw(st.booleans())}
            found = replace(found, nodes=before.snapshot.nodes, jobs={**found.jobs, **mixed})
        found = replace(
            found,
            ports={0: frozenset([Port("TCP", "", draw(st.integers(1, 3)))])} if draw(st.booleans()) else {},
            node_backoffs={(next(iter(found.jobs)), "worker"): {"n0": 1e9}} if draw(st.booleans()) else {},
        )
        views.append(
            viewed(
                found,
                draw(st.sampled_from(PROFILES)),
                released=frozenset(draw(st.sets(st.sampled_from(["a", "b"])))),
                holders={"devices/h": draw(st.sampled_from(["n0", "n1"]))} if draw(st.booleans()) else {},
                **{flag: draw(st.booleans()) for flag in ("leading", "synced", "observe")},
            )
        )
    return views


@settings(max_examples=40, deadline=None)
@given(histories())
def test_what_changed_applied_one_by_one_is_the_view_itself_and_answers_the_same(views: list[View]) -> None:
    by_changes, whole = copied(*views), copied(views[-1])
    assert as_verbs_read(by_changes) == as_verbs_read(whole) == as_verbs_read(views[-1])
    assert verbs(by_changes) == verbs(whole) == verbs(views[-1])


def test_nothing_is_sent_of_what_did_not_change() -> None:
    view = viewed(snapshot(jobs=[job("train", worker=2, gpus=8), job("other", worker=1)]))
    assert list(changes(view, view)) == []
    key = next(iter(view.snapshot.jobs))
    changed = replace(view.snapshot.jobs[key], priority=7)
    later = replace(
        view, snapshot=replace(view.snapshot, now=2000.0, jobs={**view.snapshot.jobs, key: changed})
    )
    assert list(changes(view, later)) == [Part("now", None, 2000.0), Part("jobs", (), {key: changed})]


def test_of_a_column_only_the_rows_that_differ_are_sent() -> None:
    view = viewed(snapshot(nodes=4))
    free = view.free.copy()
    free[2] += 1
    (part,) = changes(view, replace(view, free=free))
    assert (part.what, part.gone.tolist(), part.there.tolist()) == ("free", [2], [free[2].tolist()])


def test_a_view_of_many_jobs_comes_in_small_parts_and_shows_none_of_them_before_the_last() -> None:
    many = viewed(snapshot(jobs=[job(f"j{i}", worker=1) for i in range(3 * MOST + 1)]))
    parts = sent(list(changes(NOTHING, many)))
    assert max(len(part.there) for part in parts if part.what == "jobs") == MOST
    copy = Copy()
    shown = copy.view()
    for part in parts:
        copy.take(part)
        assert as_verbs_read(shown) == as_verbs_read(Copy().view())
    assert as_verbs_read(copy.view()) == as_verbs_read(many)
    assert shown.snapshot.jobs == {}


def test_a_shapes_hash_is_by_the_process_that_reads_it() -> None:
    """Hashes of strings are other ones in each process; masks and fits are kept by them."""
    view = viewed(snapshot(jobs=[job("train", worker=1)], nodes=[node("n0", 8)]))
    parts = sent(list(changes(NOTHING, view)))
    theirs = next(iter(next(part for part in parts if part.what == "jobs").there.values())).roles[0].shape
    ours = next(iter(view.snapshot.jobs.values())).roles[0].shape
    assert b"_hash" not in pack(ours)
    assert (theirs, hash(theirs), theirs.gpus) == (ours, hash(ours), ours.gpus)
    assert np.array_equal(view.snapshot.nodes.total, copied(view).snapshot.nodes.total)
