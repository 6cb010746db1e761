"""What every installed plugin keeps to, whoever wrote it."""

import ast
import copy
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.placement.capacity import Capacity
from muster.core.placement.place import Need, candidates_of
from muster.core.progress.estimate import declared
from muster.core.sharing.job_table import table_in
from muster.errors import ConfigurationError
from muster.points import (
    Adjust,
    Candidates,
    Estimate,
    Filter,
    Observe,
    Profile,
    QueueSort,
    Rebalance,
    Score,
    Share,
    Wake,
    installed,
    load,
)
from muster.types import Grants, Job, Snapshot
from tests.scenario import job, snapshot

PLUGINS_FOLDER = Path(__file__).parents[1] / "plugins"
PLUGINS = sorted(installed())
POINTS = {
    QueueSort: "sort_key",
    Filter: "filter",
    Score: "score",
    Share: "share",
    Adjust: "adjust",
    Rebalance: "moves",
    Estimate: "estimate",
    Observe: "observe",
    Wake: "wake",
}
OPTIONAL = {Observe, Wake}


def plugin(name: str) -> Any:
    """The plugin with its defaults."""
    return load(name)


def imported(folder: Path) -> set[tuple[str, str]]:
    """(module, name) of everything that the modules of a folder import by name."""
    trees = [ast.parse(file.read_text()) for file in folder.glob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    assert not [n for n in nodes if isinstance(n, ast.Import) for a in n.names if a.name.startswith("muster")]
    found = [n for n in nodes if isinstance(n, ast.ImportFrom)]
    return {(str(n.module), alias.name) for n in found for alias in n.names}


def test_plugins_import_of_the_core_what_their_readme_names_and_nothing_else() -> None:
    listed = {
        (row[0], name)
        for line in (PLUGINS_FOLDER / "README.md").read_text().splitlines()
        if line.startswith(("| `muster.core.", "| `muster.cached`"))
        for row in [re.findall(r"`([^`]+)`", line)]
        for name in row[1:]
    }
    public = ("muster.points", "muster.memory", "muster.types", "muster.policylib", "muster_plugins")
    used = imported(PLUGINS_FOLDER / "muster_plugins")
    assert {
        pair for pair in used if pair[0].startswith("muster") and not pair[0].startswith(public)
    } == listed


def test_the_plugins_of_the_profiles_are_installed() -> None:
    assert {"pack", "gang", "gang-pack"} <= set(PLUGINS)


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_is_a_frozen_dataclass_with_a_docstring_of_its_own(name: str) -> None:
    kind = type(plugin(name))
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")  # what dataclass writes by itself


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugin_implements_a_point_and_documents_it(name: str) -> None:
    made = plugin(name)
    implemented = {p for p in POINTS if isinstance(made, p)}
    assert implemented - OPTIONAL
    for point in implemented:
        assert getattr(type(made), POINTS[point]).__doc__, f"{name}.{POINTS[point]} has no docstring"


@pytest.mark.parametrize("name", [p for p in PLUGINS if isinstance(load(p), Observe)])
def test_a_plugin_that_observes_reads_its_own_memory_and_none_where_nothing_is_kept(name: str) -> None:
    made = plugin(name)
    assert made.memory.name == name
    assert made.memory.plain(job("x", memory={name: {"one": 1}, "another": {}})) == {"one": 1}
    assert made.memory.plain(job("x", memory={"another": {"one": 1}})) is None
    assert made.memory.of(job("x")) == made.memory.decode({})


def test_a_profile_refuses_a_plugin_that_was_not_handed_its_memory() -> None:
    by_hand = type(load("round-robin"))()
    with pytest.raises(ValueError, match="'round-robin' was not handed its memory"):
        Profile(named=(("round-robin", by_hand),))


@pytest.mark.parametrize("name", PLUGINS)
def test_an_argument_that_a_plugin_does_not_have_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"pluginArgs\.{name}\.no_such: not a parameter of {name}"):
        load(name, {"no_such": 1})


def test_a_plugin_that_is_not_installed_is_named_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'shuffle' is not installed; installed: .*gang, gang-pack"):
        load("shuffle")


@st.composite
def views(draw: st.DrawFn) -> tuple[Job, Candidates, Snapshot]:
    """A job that waits on a cluster in some state, and its candidates."""
    nodes = draw(st.integers(1, 6))
    gpus = draw(st.sampled_from([0, 1, 8]))
    where = st.lists(st.sampled_from([f"n{i}" for i in range(nodes)]), max_size=4)
    own, others = draw(where), draw(where)
    waiting = job("x", worker=len(own) + draw(st.integers(1, 20)), gpus=draw(st.integers(0, 9)), on=own)
    before = snapshot(nodes=nodes, gpus=gpus, jobs=[waiting, job("y", worker=len(others), on=others)])
    candidates = candidates_of(Capacity(before), Need(waiting.roles[0], draw(st.integers(1, 20))))
    mine = np.array([own.count(n) for n in before.nodes.names], dtype=np.int64)
    return waiting, dataclasses.replace(candidates, own=mine, others=candidates.others - mine), before


@pytest.mark.parametrize("name", [p for p in PLUGINS if isinstance(load(p), Score)])
@given(view=views())
def test_scores_are_one_a_node_from_0_to_100_and_the_same_again(
    name: str, view: tuple[Job, Candidates, Snapshot]
) -> None:
    waiting, candidates, before = view
    was = [a.copy() for a in (candidates.free, candidates.fits, candidates.own, candidates.others)]
    scores = plugin(name).score(waiting, waiting.roles[0], candidates, before)
    again = plugin(name).score(waiting, waiting.roles[0], candidates, before)
    assert scores.shape == (len(before.nodes),)
    assert np.isfinite(scores).all()
    assert scores.min() >= 0.0
    assert scores.max() <= 100.0
    assert (scores == again).all()
    now = (candidates.free, candidates.fits, candidates.own, candidates.others)
    assert all((a == b).all() for a, b in zip(was, now, strict=True)), "a plugin wrote to what it was shown"


@pytest.mark.parametrize("name", [p for p in PLUGINS if isinstance(load(p), Filter)])
@given(view=views())
def test_a_filter_answers_a_mask_or_none_and_says_why_where_it_takes_nodes_away(
    name: str, view: tuple[Job, Candidates, Snapshot]
) -> None:
    waiting, candidates, before = view
    mask, why = plugin(name).filter(waiting, waiting.roles[0], candidates, before)
    if mask is not None:
        assert mask.shape == (len(before.nodes),)
        assert mask.dtype == np.bool_
        assert mask.all() or why


@pytest.mark.parametrize("name", [p for p in PLUGINS if isinstance(load(p), QueueSort)])
@given(view=views())
def test_sort_keys_compare_with_each_other(name: str, view: tuple[Job, Candidates, Snapshot]) -> None:
    _, _, before = view
    keys = [plugin(name).sort_key(j, before) for j in before.jobs.values()]
    backwards = keys[::-1]
    assert sorted(keys) == sorted(backwards)


@pytest.mark.parametrize("name", [p for p in PLUGINS if isinstance(load(p), Share | Adjust)])
@given(waiting=st.integers(1, 4), running=st.integers(0, 3))
@settings(max_examples=10)
def test_a_policy_that_is_asked_twice_in_a_cycle_says_the_same_and_remembers_nothing(
    name: str, waiting: int, running: int
) -> None:
    jobs = [job(f"w{i}", worker=4, gpus=1, least=1, most=4) for i in range(waiting)]
    jobs += [job(f"r{i}", worker=4, gpus=1, least=1, most=4, on=["n0", "n1"]) for i in range(running)]
    before = snapshot(nodes=2, gpus=8, jobs=jobs)
    jobs = list(before.jobs.values())
    table = table_in(before, Capacity(before), {}, jobs, lambda each: declared(each, before.now))
    shown = before.with_table(table)
    made = plugin(name)
    was = copy.deepcopy(made)

    def ask() -> Grants:
        return made.adjust(Grants(table.have), shown) if isinstance(made, Adjust) else made.share(shown)

    first, again = ask(), ask()
    assert first.replicas.tolist() == again.replicas.tolist()
    assert (first.details, first.why, first.order) == (again.details, again.why, again.order)
    assert made == was
    assert all(before.jobs[each.key] is each for each in jobs), "a policy wrote to what it was shown"
