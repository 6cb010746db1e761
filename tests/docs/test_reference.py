"""config/reference.md says what the code says."""

from __future__ import annotations

import re

import pytest
from cogapp import Cog

from muster import profiles
from tests.docs import reference, tried
from tests.docs.reference import MUSTER, TOP


@pytest.mark.parametrize("page", ["config/reference.md", "charts/muster/README.md"])
def test_the_tables_of_a_page_are_those_of_the_code(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = Cog().main(["cog", "--check", "--diff", "-I", str(TOP), str(TOP / page)])
    assert code == 0, f"{page} is not up to date: run `make docs`\n{capsys.readouterr().out}"


def test_admission_knows_each_annotation_that_an_owner_may_write() -> None:
    policy = (TOP / "charts/muster/templates/admission-advice.yaml").read_text()
    known = re.search(r"- name: known\s+expression: >-\s+\[([^\]]*)\]", policy)
    assert known is not None
    owners = {name for name, (on, by, _, _) in reference.names().items() if not by and "annotation" in on}
    assert set(re.findall(r'"([^"]+)"', known[1])) == owners


def test_no_metric_of_the_code_is_missing() -> None:
    files = [*(MUSTER / "server").glob("*.py"), MUSTER / "serve.py", MUSTER / "threads.py"]
    named = set(re.findall(r'"(muster_[a-z_]+)"', "\n".join(file.read_text() for file in files)))
    assert {name.removesuffix("_total") for name in reference.metrics()} == {
        name.removesuffix("_total") for name in named
    }


@pytest.mark.parametrize("name", sorted(profiles.NAMED))
def test_of_each_profile_it_is_said_what_was_seen_of_it_on_a_cluster(name: str) -> None:
    """That those which run in simulations only are refused is in tests/server/test_settings.py."""
    recipe = profiles.NAMED[name]
    said = [name in tried.TRIED, name in tried.AS, bool(recipe.simulation_only)]
    assert sum(said) == 1, f"expected one of TRIED, AS and simulation_only; found {said}"
    if name in tried.AS:
        assert tried.AS[name] in tried.TRIED
    elif name in tried.TRIED and name != "fifo":  # the default needs no name
        assert name in tried.set_in((TOP / "e2e" / f"test_{tried.TRIED[name]}.py").read_text())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fifo", "live: tried (`e2e/test_gangs.py`), JCT +3.1 % of simulated"),
        (
            "optimus",
            "live: tried (`e2e/test_families.py`), JCT -1.0 % of simulated, with `resizeCost`; +9.0 % without",
        ),
        (
            "reshape",
            "live with `devices.enabled`: tried (`e2e/test_reshape_in_place.py`), JCT -0.7 % of simulated, on the 40 "
            "jobs of Workload One",
        ),
        (
            "sidecar-default",
            "live: tried (`e2e/test_families_default.py`), JCT -5.0 % of simulated, on the 40 jobs of Workload One",
        ),
        (
            "coddl",
            "live with `devices.enabled`: tried (`e2e/test_sweep_in_place.py`), JCT -0.5 % of simulated, on 24 jobs "
            "in place that report",
        ),
        ("srtf-max", "live as `srtf`, JCT -3.5 % of simulated"),
    ],
)
def test_a_figure_says_of_what_it_is_where_it_is_not_of_the_jobs_of_most(name: str, says: str) -> None:
    assert tried.words(name, profiles.NAMED[name]) == says


def test_a_profile_that_is_only_mentioned_is_not_tried() -> None:
    source = """
OURS = "reshape"
VALUES = (f"profile={OURS}", "devices.enabled=true")
@pytest.mark.parametrize("profile", ["srtf", "srsf"])
def test_gang(lab, profile):
    policy = {"gang": {"minCount": 1}}  # "afs-l"
    with configured(lab, profile="coach"), shared_by(lab, "max-min", text="themis"), configured(lab, **settings):
        run(quick("optimus"), {"profile": "own", "shares": ["tide"]}, "profile=afs-s", quick(), in_rounds(name))
"""
    assert tried.set_in(source) == {
        *("reshape", "srtf", "srsf", "coach", "max-min", "optimus", "own", "afs-s")
    }


def test_nothing_is_said_of_profiles_that_are_not_there() -> None:
    assert {
        *tried.TRIED,
        *tried.AS,
        *tried.NEAR,
        *tried.OWN,
        *tried.MEASURED,
    } <= profiles.NAMED.keys()
