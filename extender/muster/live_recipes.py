"""What a live cluster adds to a profile, and what of one does not run there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from muster import points
from muster.errors import did_you_mean
from muster.profiles import NAMED, Recipe, recipe

MEASURING = ("reshape", "termination")
"""Plugins that predict with seconds of a paper, and with measured ones where they are told to (`measured`)."""

HAND_OVER = (
    "on a cluster running jobs hand GPUs over in place only (muster.dev/gpus): set devices.enabled, or take"
)

PAIRS = "on a cluster two jobs share a GPU in place only (muster.dev/gpus): set devices.enabled, or take"

IDLES = "is for simulations only: on a cluster no GPU idles while a job waits whose least fits there; leave it out"
GROWS = "grow-elsewhere"
"""What jobs in place go to another node by."""
SWEEP = "sweep"
"""What measures jobs at sizes below their share: on a cluster those in place."""
RESTARTS = "is for simulations only: on a cluster jobs in place (muster.dev/gpus) alone are measured at smaller sizes"
ESTIMATES = ("reported", "measured")
"""What the setting `estimate` puts into profiles that name none, and has parameters."""
KEEPS = (
    "on a cluster a job keeps its pods when it changes in place only (muster.dev/gpus): set devices.enabled, or "
    "leave it out"
)
MEASURED = "sweep measures jobs in place alone (muster.dev/gpus) on a cluster: set devices.enabled, or"
SHARED = "must be backfill where a policy shares GPUs, since that says who waits"


def on_a_cluster(recipe: Recipe, resize_cost: bool, estimate: str, *, devices: bool = False) -> Recipe:
    """The recipe with what a live cluster adds: changes have to be worth their cost, which is as measured where that
    was done, speeds are as reported, and no GPU idles while a job waits that fits there. devices: they are given in
    place, and who finds no more of them on its node goes where they idle."""
    shares, rebalance = recipe.shares, recipe.rebalance
    if not shares and not recipe.rebalance:
        return recipe  # sizes and places stay as they are
    if shares and resize_cost and "resize-cost" not in shares:
        last = tuple(share for share in shares if share == SWEEP)
        shares = (*(share for share in shares if share != SWEEP), "resize-cost", *last)
    arguments = dict(recipe.arguments)
    if SWEEP in shares:  # replicas that are pods would be ended for it
        arguments[SWEEP] = {**recipe.arguments.get(SWEEP, {}), "restart": False}
    for plugin in {*MEASURING} & {*shares}:
        arguments[plugin] = {"measured": True, **recipe.arguments.get(plugin, {})}
    if shares and devices and GROWS not in rebalance:
        rebalance = (*rebalance, GROWS)
    return replace(
        recipe,
        shares=shares,
        rebalance=rebalance,
        estimate=recipe.estimate or estimate,
        conserving=bool(shares),
        arguments=arguments,
    )


def not_on_a_cluster(
    name: str,
    known: Recipe,
    arguments: Mapping[str, Mapping[str, Any]],
    *,
    devices: bool = False,
    order: str = "backfill",
    estimate: str = "",
    reports: bool = True,
    answered: Collection[str] = (),
) -> list[str]:
    """Faults: what of a profile, its plugins' arguments and the settings beside it does not run on a cluster, or
    changes nothing there, and what to take instead. devices: they are given in place. order, estimate: as set.
    reports: Muster takes them. answered: plugins whose arguments are another profile's, too, the one in force, which
    was asked for them."""
    if known.simulation_only:
        return [f"profile: {name!r} runs in simulations only: {known.simulation_only}"]
    if faults := _of_the_simulator(name, known, estimate):
        return faults
    if known.pairs and not devices:
        return [f"profile: {name!r}: {PAIRS} {known.pairs}"]
    faults = [
        *_lost(name, known.shares),
        *(
            fault
            for plugin in known.shares
            for fault in _of_no_use(
                name, plugin, known, arguments.get(plugin, {}), asked=plugin not in answered
            )
        ),
    ]
    if not reports:
        faults += _unreported(name, known, arguments)
    if SWEEP in known.shares and SWEEP not in answered and arguments.get(SWEEP, {}).get("restart") is True:
        faults.append(f"pluginArgs.{SWEEP}.restart: {RESTARTS}; leave it out")
    if SWEEP in known.shares and not devices:
        faults.append(f"profile: {name!r}: {MEASURED} {_without_sweep(known)}")
    if known.round and not known.shares:
        faults.append(
            f"profile: {name!r} has a round, {known.round:g} s, and no shares to make in it: leave it out"
        )
    if known.resize != "restart" and not known.shares and not known.rebalance:
        why = f"has resize {known.resize}, and neither shares nor rebalance"
        return [*faults, f"profile: {name!r} {why}: leave it out"]
    if known.shares and order != "backfill":
        faults.append(f"order: {SHARED}, as profile {name!r} does; found {order!r}")
    if known.resize == "hand-over" and not devices:
        by_restarts = f"{name}-restart"
        instead = by_restarts if by_restarts in NAMED else "resize restart or in-place"
        faults.append(f"profile: {name!r} has resize hand-over: {HAND_OVER} {instead}")
    asked = {*known.shares} & {*arguments, *known.arguments} & {*points.installed()} if not devices else set()
    reshape = arguments.get("reshape", {}) if "reshape" in asked.difference(answered) else {}
    if reshape.get("restart") is False and reshape.get("measured") is not False:
        faults.append(f"pluginArgs.reshape.restart: {KEEPS}; found False")
    for plugin in sorted(asked.difference(answered)):
        given = {**known.arguments.get(plugin, {}), **arguments.get(plugin, {})}
        known_here = {f.name for f in fields(points.installed()[plugin].load())}
        faults += [
            f"pluginArgs.{plugin}.{key}: {PAIRS} false"
            for key in ("jp", "packed")
            if key in known_here and given.get(key) is True
        ]
    return faults


def unused(
    name: str,
    own: Mapping[str, Recipe],
    arguments: Mapping[str, Mapping[str, Any]],
    *,
    resize_cost: bool,
    estimate: str,
    devices: bool,
) -> list[str]:
    """Faults: arguments of plugins that neither the profile in force nor one of the configuration's own has, to which
    it may turn with a word. The other settings are as in `on_a_cluster`."""
    recipes = [recipe(name, own), *(one for other, one in own.items() if other != name)]

    def used(resize_cost: bool = resize_cost, estimate: str = estimate, devices: bool = devices) -> set[str]:
        return {
            plugin
            for one in recipes
            for plugin in on_a_cluster(one, resize_cost, estimate, devices=devices).plugins
        }

    here = used()
    who = f"profile {name!r} or another of profiles" if len(recipes) > 1 else f"profile {name!r}"
    faults = []
    for plugin in sorted({*arguments} & {*points.installed()} - here):
        if not arguments[plugin]:
            continue
        with_more = {
            "resizeCost: true": used(resize_cost=True),
            "devices.enabled: true": used(devices=True),
            f"estimate: {plugin}": used(estimate=plugin) if plugin in ESTIMATES else set(),
        }
        needs = "".join(f", {plugin} with {word}" for word, there in with_more.items() if plugin in there)
        faults.append(
            f"pluginArgs.{plugin}: must be of a plugin that {who} uses: {', '.join(sorted(here))}{needs}; "
            f"found {arguments[plugin]!r}"
        )
    return faults


def not_taken(name: str, own: Mapping[str, Recipe], estimate: str) -> list[str]:
    """Faults: the setting `estimate`, where it is no plugin for that, or the profile in force has an estimate of its
    own and none of the configuration's, to which it may turn with a word, takes this one."""
    known = {plugin: found.load() for plugin, found in points.installed().items()}
    estimates = sorted(plugin for plugin, made in known.items() if hasattr(made, "estimate"))
    if estimate not in estimates:
        meant = did_you_mean(estimate, estimates)
        return [f"estimate: must be one of {', '.join(estimates)}; found {estimate!r}{meant}"]
    here = recipe(name, own)
    take_it = [one for one in own.values() if not one.estimate and (one.shares or one.rebalance)]
    if here.estimate in ("", estimate) or take_it:
        return []
    return [
        f"estimate: profile {name!r} has its own, {here.estimate}, and looks at no other: leave it out; "
        f"found {estimate!r}"
    ]


def _of_the_simulator(name: str, known: Recipe, estimate: str) -> list[str]:
    """Faults: plugins of the profile, or the estimate beside it, that say that they run in simulations only."""
    faults = [
        f"profile: {name!r}: plugin {plugin!r} runs in simulations only: {why}"
        for plugin in sorted(known.plugins - {known.estimate})
        if (why := _simulated(plugin))
    ]
    if known.estimate and _simulated(known.estimate):
        faults.append(f"profile: {name!r}: {_estimated(known.estimate)}")
    elif not known.estimate and (known.shares or known.rebalance) and _simulated(estimate):
        faults.append(f"estimate: {_estimated(estimate)}")
    return faults


def _simulated(plugin: str) -> str:
    """Why no cluster runs it, and what to take (its SIMULATION_ONLY); empty: clusters do, or it is not installed."""
    found = points.installed().get(plugin)
    return str(getattr(found.load(), "SIMULATION_ONLY", "")) if found is not None else ""


def _estimated(plugin: str) -> str:
    return f"the estimate {plugin!r} is for simulations only; take reported or declared"


def _without_sweep(known: Recipe) -> str:
    """What to take where nothing is measured below its share: a named profile that does all else the same."""
    rest = tuple(share for share in known.shares if share != SWEEP)
    arguments = {plugin: given for plugin, given in known.arguments.items() if plugin != SWEEP}
    same = replace(known, shares=rest, arguments=arguments)
    return next((f"take {name}" for name, one in NAMED.items() if one == same), f"leave {SWEEP} out")


def _lost(name: str, shares: Sequence[str]) -> list[str]:
    """Faults: a Share plugin that is not the first. It decides anew, so what those before it did would be lost."""
    found = points.installed()
    made = {plugin: found[plugin].load() for plugin in shares if plugin in found}
    anew = [i for i, plugin in enumerate(shares) if plugin in made and not hasattr(made[plugin], "adjust")]
    if not anew or anew == [0]:
        return []
    place, first = anew[-1], anew[0]
    instead = "leave one of them out" if len(anew) > 1 else f"put {shares[first]} first"
    return [
        f"profile: {name!r}: shares: {shares[place]} decides anew, and what {shares[place - 1]} made before it would "
        f"be lost: {instead}"
    ]


def _unreported(name: str, known: Recipe, arguments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Faults: plugins that do nothing without reports (their NEEDS_REPORTS: by parameter that is true, "" = always,
    what to take)."""
    faults, found = [], points.installed()
    for plugin in sorted(known.plugins & {*found}):
        made = found[plugin].load()
        whole = _whole(made, plugin, known, arguments.get(plugin, {}))
        for key, instead in getattr(made, "NEEDS_REPORTS", {}).items():
            if not key or whole.get(key) is True:
                by = f"{plugin} with {key}: true" if key else plugin
                do = f"set reporting.enabled, or take {instead}"
                faults.append(f"profile: {name!r}: {by} goes by what training reports: {do}")
    return faults


def _whole(made: Any, plugin: str, known: Recipe, given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a plugin, the class `made`: the configuration's before the profile's before its defaults."""
    return {**{one.name: one.default for one in fields(made)}, **known.arguments.get(plugin, {}), **given}


def _of_no_use(
    name: str, plugin: str, known: Recipe, given: Mapping[str, Any], *, asked: bool = True
) -> list[str]:
    """Faults: arguments of a Share plugin that a cluster would not follow: what leaves GPUs idle (its LEAVES_IDLE),
    what is looked at only with another argument (its ONLY_WITH), or without it (its NOT_WITH), and another round than
    the profile's. asked: whether it is this profile that answers for the arguments."""
    if plugin not in points.installed():
        return []  # `build` says so
    made = points.installed()[plugin].load()
    own = given if asked else {}
    faults = [f"pluginArgs.{plugin}.{key}: {IDLES}" for key in getattr(made, "LEAVES_IDLE", ()) if key in own]
    whole = _whole(made, plugin, known, given)
    faults += [
        f"pluginArgs.{plugin}.{key}: is looked at only with {needed}: true; leave it out"
        for key, needed in getattr(made, "ONLY_WITH", {}).items()
        if key in own and whole.get(needed) is not True
    ]
    faults += [
        f"pluginArgs.{plugin}.{key}: is not looked at with {other}; leave one of them out"
        for key, other in getattr(made, "NOT_WITH", {}).items()
        if key in own and whole.get(other)
    ]
    counted = whole.get("round")
    if counted is not None and not known.round:
        faults.append(
            f"profile: {name!r}: {plugin} works in rounds; give the profile its round, {counted!r} s"
        )
    elif counted is not None and counted != known.round and asked:
        faults.append(
            f"pluginArgs.{plugin}.round: must be the round of profile {name!r}, {known.round:g} s; "
            f"found {counted!r}"
        )
    return faults
