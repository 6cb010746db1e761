"""Share `srsf`: shortest remaining service first, all or nothing (papers/afs-coddl, section 2.2; from Tiresias).

As `srtf`, but the order is that of remaining time x GPUs: a job that asks for many GPUs waits for those that
finish as soon with fewer. `size: most` (profile `srsf-max`, Fig. 6) grants the model's most GPUs.

Choices: a job of unknown length comes last. Ties go to the earlier submission.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from muster.policylib import greedy
from muster.types import Grants, SharingSnapshot


@dataclass(frozen=True, slots=True)
class Srsf:
    """size: "request" (what the owner asked for) or "most" (where the model stops gaining)."""

    RULE: ClassVar[str] = "those with the least GPU time left get what they asked for"

    size: str = "request"

    def __post_init__(self) -> None:
        greedy.check_size(self.size)

    def share(self, snapshot: SharingSnapshot) -> Grants:
        """The size or nothing, in the order of remaining service at that size (GPU-s)."""
        table = snapshot.table
        size = greedy.sized(table, self.size)
        service = greedy.cost(table, size) * greedy.times(table, size)
        return Grants(greedy.by_key(table, service, size))
