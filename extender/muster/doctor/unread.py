"""Whether all that the configuration says counts on this cluster."""

from __future__ import annotations

from collections.abc import Iterator

from muster.doctor.finding import Finding, fine, warn
from muster.doctor.patient import Patient
from muster.no_effect import for_simulations, no_effect


def unread(patient: Patient) -> Iterator[Finding]:
    """Settings that change nothing as the others are, and those that simulations alone read, where there are any."""
    for says in no_effect(patient.settings):
        yield warn("configuration", says, "leave it out, unless you mean to go back to where it counts")
    for says in for_simulations(patient.settings):
        yield fine("configuration", says)
