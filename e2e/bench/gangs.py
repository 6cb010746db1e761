"""1,000 gangs of 3 single-GPU pods wait on 5,000 nodes of 8 GPUs; the schedulers start: pods bound a second.

Muster (the stock kube-scheduler and muster, both started at t0, the chart's configuration) against (a) the
stock kube-scheduler on the same pods without gangs and (b) native gang scheduling (PodGroup). Runs alternate.
Beside them, what the gate costs by itself: a bare loop of patches and the stock kube-scheduler (`gates`).
Two clocks: from the schedulers' start to the last bind, and from the first bind to the last (ratios)."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.bench.course import NATIVE_FLAGS, VARIANTS, Course, Run, Variant, lab_of, shape
from e2e.bench.figures import median, ratio
from e2e.bench.report import Progress, Result

FLOOR = {"stock": 0.9, "native": 3.0}
AIM = {"stock": 1.5}
NAMES = {
    "muster": "Muster with the stock kube-scheduler",
    "stock": "(a) stock kube-scheduler, no gangs",
    "native": "(b) native gangs (PodGroup)",
    "gates": "gates taken off by a bare loop, stock kube-scheduler",
}


def measure(
    progress: Progress,
    *,
    nodes: int = 5000,
    gangs: int = 1000,
    size: int = 3,
    rounds: int = 3,
    variants: Sequence[str] = tuple(VARIANTS),
    kwok: bool = False,
    keep: bool = False,
    name: str = "",
) -> Result:
    """Runs of all variants, one after the other, `rounds` times."""
    runs: list[Run] = []
    with lab_of(name or f"bench-{nodes}", shape(nodes), keep) as lab:
        course = Course(lab, progress, kwok=kwok)
        course.settle()
        for number in range(rounds):
            for variant in _turn([VARIANTS[one] for one in variants], number):
                runs.append(course.run(variant, gangs, size))
                said = runs[-1].binds
                progress.say(
                    f"  round {number + 1} {variant.name}: {said.rate:.0f} pods/s, {said.span:.1f} s"
                )
    result = Result(
        "gangs",
        f"{gangs} gangs of {size} single-GPU pods on {nodes} nodes x 8 GPUs, median of {rounds}"
        + ("" if kwok else ", kwok stopped for all"),
        data={
            "arguments": {"nodes": nodes, "gangs": gangs, "size": size, "rounds": rounds, "kwok": kwok},
            "apiserver_flags": list(NATIVE_FLAGS),
            "runs": [run.to_json() for run in runs],
        },
    )
    told(result, runs)
    return result


def _turn(variants: list[Variant], number: int) -> list[Variant]:
    """Each round begins with another variant, so that none is always the first after a change."""
    by = number % len(variants)
    return variants[by:] + variants[:by]


def told(result: Result, runs: Sequence[Run]) -> None:
    """The rows: rates by both clocks, ratios, where the CPU went, calls for each pod."""
    of = {name: [run for run in runs if run.variant == name] for name in VARIANTS}
    of = {name: found for name, found in of.items() if found}
    for name, found in of.items():
        rates = [run.binds.rate for run in found]
        each = ", ".join(f"{rate:.0f}" for rate in rates)
        result.row(f"{NAMES[name]}: pods/s, first to last bind", f"{median(rates):.0f} ({each})")
    for name, found in of.items():
        begin, end = (median(getattr(run.binds, clock) for run in found) for clock in ("first", "whole"))
        rate = median(run.binds.rate_from_start for run in found)
        result.row(
            f"{NAMES[name]}: start to first, to last bind", f"{begin:.1f} s, {end:.1f} s = {rate:.0f} pods/s"
        )
    ours = [run.binds.rate for run in of.get("muster", ())]
    for name in ("stock", "native"):
        if ours and name in of:
            found_ratio = ratio(ours, [run.binds.rate for run in of[name]])
            aim = f"floor {FLOOR[name]}" + (f", aim {AIM[name]}" if name in AIM else "")
            result.row(f"Muster / {NAMES[name]}", f"{found_ratio:.2f}", aim, found_ratio >= FLOOR[name])
            result.data.setdefault("ratios", {})[name] = round(found_ratio, 3)
    if "gates" in of and "stock" in of:
        least = ratio([run.binds.rate for run in of["gates"]], [run.binds.rate for run in of["stock"]])
        result.row("bare loop of gates / (a) stock kube-scheduler", f"{least:.2f}")
    for name, found in of.items():
        processes = dict.fromkeys(process for run in found for process in run.cpu)
        spent = {one: median(run.cpu.get(one, 0.0) for run in found) for one in processes}
        pods = len(found[0].binds.times)
        text = ", ".join(f"{one} {value * 1000 / pods:.2f}" for one, value in spent.items() if value >= 0.005)
        result.row(f"{name}: CPU ms a pod, start to last bind", text)
    for name, found in of.items():
        calls = list(found[-1].writes.items())[:6]
        result.row(f"{name}: API writes a pod", ", ".join(f"{call} {count:.2f}" for call, count in calls))
