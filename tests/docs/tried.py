"""What was seen of each profile on a cluster: the scenario that shows its own idea, or whose way it is carried out.

Average JCT live against `muster simulate` stands in e2e/bench/README.md (Policies), where it was measured.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from muster.live_recipes import SWEEP
from muster.profiles import Recipe

TRIED: Mapping[str, str] = {
    "fifo": "gangs",
    "gang": "gang_profile",
    "gang-pack": "scored",
    "max-min": "elastic",
    "afs-l": "elastic",
    "afs-l-packed": "elastic",
    "afs-p": "families",
    "afs-s": "families_more",
    "srtf": "families",
    "srsf": "families",
    "optimus": "families",
    "tide": "families",
    "tiresias-l": "families",
    "themis": "families_more",
    "specon": "families_more",
    "specon-default": "families_default",
    "similarity": "families_more",
    "pollux": "pollux",
    "gavel-isolation": "gavel",
    "gavel-fifo": "gavel",
    "gavel-max-min-perf": "gavel",
    "gavel-ftf-perf": "gavel",
    "gavel-min-total-duration-perf": "gavel",
    "gavel-max-min-packed": "gavel_packed",
    "gavel-ftf-packed": "gavel_packed",
    "gavel-min-total-duration-packed": "gavel_packed",
    "coach": "coach",
    "termination": "families_more",
    "reshape-restart": "families_more",
    "sidecar-default": "families_default",
    "reshape": "reshape_in_place",
    "coddl": "sweep_in_place",
}
"""By profile: NAME of the scenarios e2e/test_NAME.py, which set that profile (`set_in`)."""

AS: Mapping[str, str] = {
    "srtf-max": "srtf",
    "srtf-e": "srtf",
    "srsf-max": "srsf",
    "srsf-e": "srsf",
    "tiresias-l-max": "tiresias-l",
    "afs-p-packed": "afs-l-packed",
    "tide-packed": "afs-l-packed",
    **{
        f"gavel-{name}": "gavel-isolation"
        for name in ("max-min", "ftf", "min-total-duration")
    },
}  # fmt: skip
"""By profile without a scenario: the one that is carried out in the same way (grants of the same kind, or none)."""

NEAR: Mapping[str, float] = {
    "fifo": 3.1,
    "gang": 3.3,
    "gang-pack": 0.7,
    "afs-l": -0.7,
    "afs-l-packed": -0.3,
    "srtf-max": -3.5,
    "srtf-e": -1.0,
    "srsf-max": -1.8,
    "srsf-e": 1.0,
    "tiresias-l-max": -3.3,
    "afs-p-packed": -4.4,
    "tide-packed": 0.5,
    "max-min": -0.9,
    "optimus": -1.0,
    "tiresias-l": 0.5,
    "srtf": 0.7,
    "srsf": 1.0,
    "afs-p": 0.1,
    "afs-s": -0.5,
    "themis": -1.7,
    "tide": -1.5,
    "pollux": -7.0,
    "reshape": -0.7,
    "reshape-restart": 1.8,
    "sidecar-default": -5.0,
    "termination": -0.3,
    "coddl": -0.5,
}
"""Average JCT live against simulated, % (e2e/bench/README.md): of 30 jobs, shares without `resize-cost` (Policies),
where MEASURED says nothing else."""
MEASURED: Mapping[str, str] = {
    "optimus": "with `resizeCost`; +9.0 % without",
    "pollux": "with `resizeCost`",
    "reshape": "on the 40 jobs of Workload One",
    "sidecar-default": "on the 40 jobs of Workload One",
    "coddl": "on 24 jobs in place that report",
}
"""What else a figure is of: settings (Policies), the SideCar paper's Workload One (In place), `coddl`'s own jobs (On
their papers' jobs)."""

OWN: Mapping[str, float] = {
    "specon": 1.7,
    "specon-default": 0.1,
    "similarity": 0.9,
    "gavel-isolation": -2.6,
    "gavel-max-min": -1.0,
    "gavel-max-min-perf": -3.8,
    "gavel-ftf": -2.4,
    "gavel-ftf-perf": -1.9,
    "gavel-min-total-duration": 4.5,
    "gavel-min-total-duration-perf": -3.4,
    "gavel-fifo": 4.2,
    "gavel-max-min-packed": 2.6,
    "gavel-ftf-packed": 3.6,
    "gavel-min-total-duration-packed": -2.8,
    "coach": 0.2,
}
"""The same of jobs that the profile was made for (On their papers' jobs)."""

SETTERS: Mapping[str, int] = {"shared_by": 1, "in_rounds": 0, "quick": 0}
"""Functions of scenarios that set a profile, or a share in rounds, and which argument names it."""


def set_in(source: str) -> set[str]:
    """Names of profiles that a module of scenarios sets: by one of SETTERS, as `profile=NAME` (of a call, or in a
    chart's value), as "profile" of settings, or each of a scenario's parameters "profile". A name that is only
    mentioned, in a comment or as something else, is none."""
    tree = ast.parse(source)
    known = {
        target.id: one.value.value
        for one in tree.body
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    found: list[object] = []

    def text(value: ast.expr) -> object:
        match value:
            case ast.Constant(value=plain):
                return plain
            case ast.Name(id=name):
                return known.get(name)
            case ast.JoinedStr(values=parts):
                return "".join(str(text(part)) for part in parts)
            case ast.FormattedValue(value=inner):
                return text(inner)
        return None

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=given) if len(given) > SETTERS.get(name, len(given)):
                found.append(text(given[SETTERS[name]]))
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[ast.Constant(value="profile"), each]):
                found += [text(one) for one in getattr(each, "elts", ())]
            case ast.keyword(arg="profile", value=value):
                found.append(text(value))
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                found += [text(value) for key, value in pairs if key and text(key) == "profile"]
            case ast.Constant() | ast.JoinedStr():
                name, equals, profile = str(text(node)).partition("=")
                found.append(profile if equals and name == "profile" else None)
    return {one for one in found if isinstance(one, str) and one}


def words(name: str, recipe: Recipe) -> str:
    """Whether a profile runs on a cluster, and what was seen of it there. KeyError where nothing is said of it."""
    if recipe.simulation_only:
        return f"simulation only: {recipe.simulation_only}"
    in_place = bool(recipe.pairs) or recipe.resize == "hand-over" or SWEEP in recipe.shares
    live = "live with `devices.enabled`" if in_place else "live"
    near = "JCT not compared"
    figures = {**NEAR, **OWN}
    if name in figures:
        of = "on its paper's jobs" if name in OWN else MEASURED.get(name, "")
        near = f"JCT {figures[name]:+.1f} % of simulated{', ' * bool(of)}{of}"
    if name not in TRIED:
        return f"live as `{AS[name]}`, {near}"
    return f"{live}: tried (`e2e/test_{TRIED[name]}.py`), {near}"
