"""What a report of a simulation assumed, for its page: cluster, options, problems of the trace."""

from __future__ import annotations

import dataclasses
from html import escape
from typing import TYPE_CHECKING

from muster.sim.options import Options
from muster.sim.workload import Cluster

if TYPE_CHECKING:
    from muster.sim.request import Outcome


PROBLEMS = 100


def assumptions(outcome: Outcome) -> str:
    placed = (
        "any integer share, no placement (fluid)" if outcome.cluster.fluid else "replicas placed on nodes"
    )
    told = [
        f"Cluster: {cluster_words(outcome.cluster)}; {placed}.",
        *_options(outcome.options),
        *outcome.notes,
        *outcome.terms,
    ]
    for name, result in outcome.results.items():
        told += [f"{name}: {note}" for note in result.notes]
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in dict.fromkeys(told)) + "</ul>"


def cluster_words(cluster: Cluster) -> str:
    groups = [
        f"{g.nodes} x {g.gpus}{f' {g.product}' if g.product else ''}"
        + (f" ({g.memory} MiB)" if g.memory else "")
        for g in cluster.groups
    ]
    return f"{cluster.gpus} GPUs (nodes x GPUs: {', '.join(groups)})"


def _options(options: Options) -> list[str]:
    """The settings that are not at their default, in words."""
    words = {
        "seed": "random seed {}",
        "restart": "{:g} s without progress when a job's configuration changes or it is started again",
        "migrate": "{:g} s without progress when only its nodes change",
        "release": "GPUs are free {:g} s after their replicas were told to leave or their job was done",
        "release_spread": "each replica's own is drawn between 1 - {0:g} and 1 + {0:g} times that",
        "release_rest": "of a job that is done all but the first leave {:g} s later than that",
        "measure": "speeds are known once a job has trained for {:g} s as it does",
        "silent": "jobs report nothing; what they have done is guessed by their declared speeds, pauses included",
        "checkpoint": "a checkpoint each {:g} s; work since the last is lost at a restart",
        "round": "plans only at whole multiples of {:g} s",
        "failures": "each node fails every {:g} s on average",
        "repair": "a failed node is back after {:g} s",
        "whole_seconds": "arrivals and completions are rounded up to whole seconds",
    }
    found = []
    for spec in dataclasses.fields(options):
        value = getattr(options, spec.name)
        if spec.name in words and (value != spec.default or spec.name == "seed"):
            if spec.name == "repair" and not options.failures:
                continue
            text = words[spec.name].format(value)
            found.append(text[0].upper() + text[1:] + ".")
    if not options.restart and not options.migrate:
        found.append("Restarts and changes cost nothing, unless a job's own model says so.")
    return found


def problems(outcome: Outcome) -> str:
    runs = [p for result in outcome.results.values() for p in result.problems]
    found = list(dict.fromkeys([*outcome.workload.problems, *runs]))
    if not found:
        return "<p>None: every line of it was used.</p>"
    rows = "".join(
        f'<tr><td>{p.line or ""}</td><td class="text">{escape(p.what)}</td>'
        f'<td class="text">{escape(p.done)}</td></tr>'
        for p in found[:PROBLEMS]
    )
    more = (
        f'<p class="note">and {len(found) - PROBLEMS:,} more in problems.csv</p>'
        if len(found) > PROBLEMS
        else ""
    )
    return (
        '<table><thead><tr><th>line</th><th class="text">what</th><th class="text">what was done</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{more}"
    )
