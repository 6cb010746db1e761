"""Share `srtf`: shortest remaining time first, all or nothing (papers/afs-coddl, sections 2.2 and 5.1).

Jobs in the order of the time that they would still take on the GPUs that they asked for; each gets these GPUs or
none, and a job that doesn't fit is skipped, so a later one may run. What runs is preempted at every event if a
shorter job comes. `size: most` (profile `srtf-max`, Fig. 6) grants the model's most GPUs instead of the request.

Choices: a job of unknown length comes last. Ties go to the earlier submission.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from muster.policylib import greedy
from muster.types import Grants, SharingSnapshot


@dataclass(frozen=True, slots=True)
class Srtf:
    """size: "request" (what the owner asked for) or "most" (where the model stops gaining)."""

    RULE: ClassVar[str] = "those with the least time left get what they asked for"

    size: str = "request"

    def __post_init__(self) -> None:
        greedy.check_size(self.size)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """The size or nothing, in the order of remaining time at that size (s)."""
        table = snapshot.table
        size = greedy.sized(table, self.size)
        return Grants(greedy.by_key(table, greedy.times(table, size), size))
