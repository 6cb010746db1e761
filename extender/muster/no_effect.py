"""Settings that are written, are no mistake, and change nothing as the others are: `muster serve` logs them and
`muster doctor` warns of them. What only a mistake can be is refused instead (`settings.ONLY_WITH`).

They are those that one other value takes in and out of effect: who tries `profile: fifo` for a day, by the chart's
value, keeps the rest of his configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from muster import profiles
from muster.settings import ProfileSettings, Settings

RESIZE_COST = "resize-cost"


def no_effect(settings: Settings) -> list[str]:
    """A sentence for each, in the words of the faults. settings: those that `profile_of` takes."""
    return [*_of_the_core(settings), *_of_profiles(settings)]


def for_simulations(settings: Settings) -> list[str]:
    """What `muster simulate --profile` reads of the same file, and a cluster does not: a sentence each."""
    return [
        f"profiles[{at}].resize: {one.resize} is how jobs change in simulations; here each job says it "
        "(muster.dev/resize, muster.dev/gpus)"
        for at, one in enumerate(settings.profiles)
        if one.resize != "restart"
    ]


def _of_the_core(settings: Settings) -> Iterator[str]:
    given, every = settings.model_fields_set, _profiles(settings)
    if "patience" in given and settings.order == "strict":
        yield f"patience: is looked at only with order backfill; found {settings.patience:g} s"
    if "resize_cost" in given and not any(one.shares and RESIZE_COST not in one.shares for one in every):
        own = f" and does not name {RESIZE_COST} itself" if any(one.shares for one in every) else ""
        yield (
            f"resizeCost: is looked at only with a profile that shares GPUs{own}, unlike {settings.profile!r}; "
            f"found {settings.resize_cost}"
        )
    if "estimate" in given and not any((one.shares or one.rebalance) and not one.estimate for one in every):
        yield (
            "estimate: is looked at only with a profile that shares or moves jobs and has none of its own, unlike "
            f"{settings.profile!r}; found {settings.estimate!r}"
        )


def _of_profiles(settings: Settings) -> Iterator[str]:
    for at, one in enumerate(settings.profiles):
        if one.placement == "scored" and settings.binder == "cluster":
            yield f"profiles[{at}].placement: is looked at only with binder own; found 'scored'"


def _profiles(settings: Settings) -> list[ProfileSettings | profiles.Recipe]:
    """The profile in force, and the configuration's own, to which it may turn with a word."""
    own = {one.name: one for one in settings.profiles}
    in_force = own.get(settings.profile) or profiles.NAMED[settings.profile]
    return [in_force, *(one for one in own.values() if one is not in_force)]
