"""The referee: says of everything that runs what must never be. One for scenarios, soak, chaos and the demo.

    with watching(cluster, Rules(start=60)) as referee:
        ...
        referee.settles()             # nothing is under way that would become a fault if it stayed so
    assert referee.faults == []

It reads pods, nodes and their owners, by real watches, and judges at every event. Of Muster's it reads nothing but
the reason that stands on a pod that is evicted (`muster.dev/leaving`): no Gang, no plan, no page. What it knows of
jobs are the public names (design, section 8) and what owners declare.

| file | one idea |
|---|---|
| `objects.py` | what is read of a pod, a node and an owner, as values |
| `owners.py` | how many replicas an owner wants by role, kind by kind; whether it is over |
| `gangs.py` | which pods start together; what is whole, partly bound, doubled, lost |
| `capacity.py` | what pods hold on nodes, planned ones by their pin |
| `judge.py` | `Referee`: events in, sentences out; pure |
| `watch.py` | the shell: watches, threads, a clock that stands still while the API is away |

What it does not see: an idle GPU that a job could have (that needs the policy: `e2e/soak`), what a process does,
and who sent a request (the audit log)."""

from e2e.referee.judge import ENDS, Referee, Rules
from e2e.referee.watch import Watching, watching

__all__ = ["ENDS", "Referee", "Rules", "Watching", "watching"]
