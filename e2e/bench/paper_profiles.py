"""Which profiles are run on jobs of their own papers, and on which."""

from __future__ import annotations

from e2e.bench.paper import Paper
from e2e.bench.paper_in_place import InPlace, Packed

MIXED = {"experiment": "mixed-30"}
CNNS = {"span": 900.0}
MEASURED_PAIRS = {"jobs": 30, "span": 450.0, "longest": 1200.0}
PROGRAMMES = ("max-min", "ftf", "min-total-duration")
GAVEL = (
    "isolation",
    "fifo",
    *(f"{policy}{perf}" for policy in PROGRAMMES for perf in ("", "-perf")),
)
PAPERS = {
    one.profile: one
    for one in (
        Paper("specon", "specon", MIXED, 8.0),
        Paper("specon-default", "specon", MIXED, 8.0),
        Paper("similarity", "similarity", CNNS, 20.0),
        *(Paper(f"gavel-{policy}", "similarity", CNNS, 8.0) for policy in GAVEL),
        Paper("coach", "coach", {"experiment": "dynamic"}, 1.5, places=4),
        InPlace("coddl", "drawn", {"jobs": 24, "gpus": 16, "speed": 6.0, "longest": 2400.0}),
        *(Packed(f"gavel-{policy}-packed", "similarity-gavel", MEASURED_PAIRS) for policy in PROGRAMMES),
    )
}
