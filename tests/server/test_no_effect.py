"""What a configuration says and nothing looks at, as its other settings are."""

from __future__ import annotations

import pytest

from muster.no_effect import for_simulations, no_effect
from muster.settings import load_settings, profile_of

OWN = "profiles: [{name: own, shares: [max-min]}]"
COST = "resizeCost: is looked at only with a profile that shares GPUs"
ESTIMATE = "estimate: is looked at only with a profile that shares or moves jobs and has none of its own"


def said(text: str) -> list[str]:
    """Of a configuration that is accepted."""
    settings = load_settings(text)
    profile_of(settings)
    return no_effect(settings)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "{profile: fifo, resizeCost: true, estimate: declared}",
            [f"{COST}, unlike 'fifo'; found True", f"{ESTIMATE}, unlike 'fifo'; found 'declared'"],
        ),
        ("{profile: specon, resizeCost: false}", [f"{COST}, unlike 'specon'; found False"]),
        (
            "{profile: own, profiles: [{name: own, shares: [max-min, resize-cost]}], resizeCost: false}",
            [f"{COST} and does not name resize-cost itself, unlike 'own'; found False"],
        ),
        (
            "{profile: fifo, profiles: [{name: own, shares: [max-min], estimate: measured}], estimate: reported}",
            [f"{ESTIMATE}, unlike 'fifo'; found 'reported'"],
        ),
        (
            "{order: strict, patience: 10m}",
            ["patience: is looked at only with order backfill; found 600 s"],
        ),
        (
            "{binder: cluster, profiles: [{name: own, placement: scored}]}",
            ["profiles[0].placement: is looked at only with binder own; found 'scored'"],
        ),
    ],
)
def test_a_setting_that_one_other_value_takes_out_of_effect_is_said(text: str, says: list[str]) -> None:
    assert said(text) == says


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{profile: specon, estimate: declared}",
        "{profile: max-min, resizeCost: false, estimate: declared, patience: 10m}",
        f"{{profile: fifo, resizeCost: false, estimate: declared, {OWN}}}",
        "{order: strict, profiles: [{name: own, placement: scored}]}",
    ],
)
def test_nothing_is_said_of_what_counts_or_would_with_another_profile_of_the_configuration(text: str) -> None:
    assert said(text) == []


@pytest.mark.parametrize(("devices", "resize"), [("false", "in-place"), ("true", "hand-over")])
def test_how_jobs_change_in_simulations_of_ones_own_profile_is_said_to_be_for_those(
    devices: str, resize: str
) -> None:
    """`muster simulate --profile muster.yaml` reads the same file, so it is no fault."""
    text = f"profiles: [{{name: a}}, {{name: b, shares: [max-min], resize: {resize}}}]"
    settings = load_settings(f"{text}\ndevices: {{enabled: {devices}}}")
    profile_of(settings)
    assert no_effect(settings) == []
    assert for_simulations(settings) == [
        f"profiles[1].resize: {resize} is how jobs change in simulations; here each job says it "
        "(muster.dev/resize, muster.dev/gpus)"
    ]
