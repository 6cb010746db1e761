"""The named profiles: which plugins a name stands for. A configuration may add its own (`profiles:`).

A plugin that stands at several points is made once, with the arguments that `pluginArgs` gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from muster import points
from muster.errors import ConfigurationError, did_you_mean
from muster.points import Adjust, Estimate, Filter, Profile, QueueSort, Rebalance, Score, Share


@dataclass(frozen=True, slots=True)
class Recipe:
    """Plugins by extension point. An empty sort is the core's: priority, submission, key.

    arguments: plugins' parameters where the profile needs other than their defaults; a configuration's own
    `pluginArgs` win over them. round (s), resize, planner, conserving: as in `Profile`. order: where it needs one.
    simulation_only: why no cluster runs it, and what to take there instead; empty: clusters run it. pairs: what to
    take where no devices are given in place, of a profile that puts two jobs on a GPU; empty: it puts none.
    """

    sort: str = ""
    filters: tuple[str, ...] = ()
    scores: tuple[tuple[str, float], ...] = ()
    shares: tuple[str, ...] = ()
    rebalance: tuple[str, ...] = ()
    estimate: str = ""
    placement: str = "pinned"
    order: str = ""
    round: float = 0.0
    resize: str = "restart"
    planner: str = "cycle"
    conserving: bool = False
    simulation_only: str = ""
    pairs: str = ""
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def plugins(self) -> set[str]:
        """All that it names, at any point."""
        scores = (score for score, _ in self.scores)
        named = {self.sort, *self.filters, *scores, *self.shares, *self.rebalance, self.estimate}
        return named - {""}


PACK = (("pack", 1.0),)
"""The Score of profiles whose policy says nothing of places."""

NAMED: Mapping[str, Recipe] = {
    # the default: priority, submission, and nodes filled one after another
    "fifo": Recipe(scores=(("pack", 1.0),)),
    # no gangs at all, pod by pod: what the others are compared with, in simulations only
    "kube-default": Recipe(
        planner="pods",
        simulation_only="it plans no gangs and does as the plain default scheduler; for that leave Muster out",
    ),
    # Coach's gang scheduler, all three hooks; kube-scheduler picks the nodes by its score (Algorithm 3)
    "gang": Recipe(sort="gang", filters=("gang",), scores=(("gang", 1.0),), placement="scored"),
    # the same order and filter, but nodes already in use first: Algorithm 3 leaves remainders on many nodes
    "gang-pack": Recipe(sort="gang", filters=("gang",), scores=(("gang-pack", 1.0),), placement="scored"),
    # AFS and what it is compared with. Lengths known: SRTF, SRSF (all or nothing), Optimus, AFS-L; unknown:
    # Tiresias-L (all or nothing), Max-Min, Themis, AFS-P, AFS-S. -max: at the model's most GPUs; -e: leftovers too
    "srtf": Recipe(scores=PACK, shares=("srtf",)),
    "srtf-max": Recipe(scores=PACK, shares=("srtf",), arguments={"srtf": {"size": "most"}}),
    "srtf-e": Recipe(scores=PACK, shares=("srtf", "altruistic")),
    "srsf": Recipe(scores=PACK, shares=("srsf",)),
    "srsf-max": Recipe(scores=PACK, shares=("srsf",), arguments={"srsf": {"size": "most"}}),
    "srsf-e": Recipe(scores=PACK, shares=("srsf", "altruistic")),
    "tiresias-l": Recipe(scores=PACK, shares=("tiresias-l",)),
    "tiresias-l-max": Recipe(scores=PACK, shares=("tiresias-l",), arguments={"tiresias-l": {"size": "most"}}),
    "optimus": Recipe(scores=PACK, shares=("optimus",)),
    "max-min": Recipe(scores=PACK, shares=("max-min",)),
    "themis": Recipe(scores=PACK, shares=("themis",)),
    "afs-l": Recipe(scores=PACK, shares=("afs-l",)),
    "afs-p": Recipe(scores=PACK, shares=("afs-p",)),
    "afs-s": Recipe(scores=PACK, shares=("afs-s",)),
    # AFS as CoDDL runs it on nodes: shares that share no network, speeds as they are measured
    "afs-l-packed": Recipe(scores=PACK, shares=("afs-l", "network-packing"), resize="in-place"),
    "afs-p-packed": Recipe(
        scores=PACK, shares=("afs-p", "network-packing"), estimate="measured", resize="in-place"
    ),
    # CoDDL as its authors ran it (Fig. 7): AFS-P, and each new job is measured at all sizes below its share (4.5)
    "coddl": Recipe(
        scores=PACK,
        shares=("afs-p", "network-packing", "sweep"),
        estimate="measured",
        resize="in-place",
        arguments={"sweep": {"restart": True}},  # nothing is restarted: here all jobs change in place
    ),
    # our own: marginal gain weighed by rank
    "tide": Recipe(scores=PACK, shares=("tide",)),
    "tide-packed": Recipe(scores=PACK, shares=("tide", "network-packing"), resize="in-place"),
    # SpeCon: slow-growing jobs are moved; and what it is compared with, the same first places and no moves
    "specon": Recipe(scores=(("round-robin", 1.0),), rebalance=("specon",)),
    "specon-default": Recipe(scores=(("round-robin", 1.0),)),
    # model similarity: product, GPUs and batch size by the nearest reference model, in rounds
    "similarity": Recipe(scores=(("pack", 1.0),), shares=("similarity",), round=180.0),
    # Pollux: GPUs, places and batch sizes by goodput, in rounds of a minute
    "pollux": Recipe(scores=PACK, shares=("pollux",), round=60.0),
    # what the Pollux artifact compares with: rounds of a minute, the emptiest node first
    "tiresias-pollux": Recipe(
        sort="tiresias-pollux",
        scores=(("emptiest", 1.0),),
        shares=("tiresias-pollux",),
        round=60.0,
        simulation_only="it repeats a simulator's figures; take tiresias-l",
    ),
    "optimus-pollux": Recipe(
        scores=(("emptiest", 1.0),),
        shares=("optimus-pollux",),
        estimate="optimus-pollux",
        round=60.0,
        simulation_only="it repeats a simulator's figures; take optimus",
    ),
    # Gavel: shares of time by GPU product in rounds of six minutes; -perf knows how fast jobs are on each,
    # -packed also beside another job on the same GPUs
    "gavel-fifo": Recipe(scores=(("pack", 1.0),), shares=("gavel-fifo",), round=360.0),
    "gavel-isolation": Recipe(scores=(("pack", 1.0),), shares=("gavel-isolation",), round=360.0),
    **{
        f"gavel-{name}{ending}": Recipe(
            scores=(("pack", 1.0),),
            shares=(f"gavel-{name}",),
            round=360.0,
            arguments={f"gavel-{name}": {"perf": bool(ending), "packed": ending == "-packed"}},
            pairs=f"gavel-{name}-perf" if ending == "-packed" else "",
        )
        for name in ("max-min", "ftf", "min-total-duration")
        for ending in ("", "-perf", "-packed")
    },
    # SideCar: smaller for a job that arrives, larger when GPUs idle; handed over while both keep their pods
    "reshape": Recipe(
        scores=(("pack", 1.0),),
        shares=("reshape",),
        estimate="reshape",
        resize="hand-over",
    ),
    # the same choices carried out by restarts: what its case study calls the advanced approach (Fig. 3(b))
    "reshape-restart": Recipe(
        scores=(("pack", 1.0),),
        shares=("reshape",),
        estimate="reshape",
        arguments={"reshape": {"restart": True}},
    ),
    # what SideCar is compared with: one GPU at arrival, more by restarts; a random number that stays
    "termination": Recipe(scores=(("pack", 1.0),), shares=("termination",), estimate="termination"),
    "sidecar-default": Recipe(scores=(("pack", 1.0),), shares=("sidecar-default",)),
    # Coach: workers and servers by a fitted speed surface, on the gang scheduler
    "coach": Recipe(
        sort="gang", filters=("gang",), scores=(("gang", 1.0),), shares=("coach",), estimate="coach"
    ),
}


def recipe(name: str, own: Mapping[str, Recipe] | None = None) -> Recipe:
    """The recipe of a name. `own` are the configuration's; they win over NAMED. Raises ConfigurationError."""
    known = {**NAMED, **(own or {})}
    if name not in known:
        raise ConfigurationError(
            f"profile: must be one of {', '.join(sorted(known))}; found {name!r}{did_you_mean(name, known)}"
        )
    return known[name]


def rebuilt(recorded: Mapping[str, Any], name: str) -> Profile:
    """The profile that `core.snapshot_codec.recorded` wrote down. Raises ConfigurationError where a plugin is not
    known."""
    at = recorded["points"]
    made = Recipe(
        sort=at["sort"],
        filters=tuple(at["filters"]),
        scores=tuple((plugin, weight) for plugin, weight in at["scores"]),
        shares=tuple(at["shares"]),
        rebalance=tuple(at["rebalance"]),
        estimate=at["estimate"],
    )
    core: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in recorded["core"].items()
    }
    return replace(build(name, recorded["arguments"], {name: made}), **core)


def strangers(arguments: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Faults: arguments of what is no plugin."""
    known = sorted(points.installed())
    return [
        f"pluginArgs.{name}: not a plugin; installed: {', '.join(known)}{did_you_mean(name, known)}"
        for name in sorted(set(arguments) - set(known))
    ]


def misplaced(name: str, made: Recipe) -> list[str]:
    """Faults: plugins of a recipe that are not installed, or stand where they can't."""
    found = points.installed()
    named: list[tuple[str, str, tuple[type, ...]]] = [
        ("sort", made.sort, (QueueSort,)),
        *(("filters", plugin, (Filter,)) for plugin in made.filters),
        *(("scores", plugin, (Score,)) for plugin, _ in made.scores),
        *(("shares", plugin, (Share, Adjust)) for plugin in made.shares),
        *(("rebalance", plugin, (Rebalance,)) for plugin in made.rebalance),
        ("estimate", made.estimate, (Estimate,)),
    ]
    faults = []
    for where, plugin, point in named:
        if plugin and plugin not in found:
            faults.append(
                f"profile {name}: {where}: plugin {plugin!r} is not installed; installed: {', '.join(sorted(found))}"
                f"{did_you_mean(plugin, found)}"
            )
        elif plugin and not issubclass(found[plugin].load(), point):
            wanted = " or ".join(one.__name__ for one in point)
            faults.append(f"profile {name}: {where}: plugin {plugin!r} is no {wanted}")
    return faults


def build(
    name: str,
    arguments: Mapping[str, Mapping[str, Any]] | None = None,
    own: Mapping[str, Recipe] | None = None,
) -> Profile:
    """The profile `name` with its plugins loaded. `own` are the configuration's recipes; they win over NAMED.

    Raises ConfigurationError naming the profile or plugin that is not known, or stands where it can't.
    """
    arguments = arguments or {}
    made = recipe(name, own)
    if wrong := misplaced(name, made):
        raise ConfigurationError("\n".join(wrong))
    found = assembled(name, made, arguments)
    if stray := strangers(arguments):
        raise ConfigurationError(stray[0])
    return found


def assembled(name: str, made: Recipe, arguments: Mapping[str, Mapping[str, Any]]) -> Profile:
    """The profile of a recipe that is known to have no plugin misplaced. Raises ConfigurationError for arguments that
    a plugin does not take."""
    plugins = {
        plugin: points.load(plugin, {**made.arguments.get(plugin, {}), **arguments.get(plugin, {})})
        for plugin in sorted(made.plugins)
    }
    optional: dict[str, Any] = {}
    if made.sort:
        optional["sort"] = plugins[made.sort]
    if made.estimate:
        optional["estimate"] = plugins[made.estimate]
    if made.order:
        optional["order"] = made.order
    return Profile(
        name=name,
        filters=tuple(plugins[one] for one in made.filters),
        scores=tuple((plugins[one], weight) for one, weight in made.scores),
        shares=tuple(plugins[one] for one in made.shares),
        rebalance=tuple(plugins[one] for one in made.rebalance),
        placement=made.placement,
        round=made.round,
        resize=made.resize,
        planner=made.planner,
        conserving=made.conserving,
        named=tuple(plugins.items()),
        **optional,
    )
