"""Whether a metrics server tells what nodes use, where that decides anything."""

from __future__ import annotations

from collections.abc import Iterator

from muster.cluster.use_reader import GROUP
from muster.core.reasons.words import plural
from muster.doctor.finding import Finding, fine, warn
from muster.doctor.patient import Patient
from muster.errors import ClusterError
from muster.settings import profile_of


def use(patient: Patient) -> Iterator[Finding]:
    """What nodes use is served, where the profile weighs them by it."""
    profile = profile_of(patient.settings)
    if not profile.reads_use:
        return
    instead = f"{profile.name} weighs nodes by what pods request"
    try:
        found = patient.get(GROUP, "nodes").get("items") or ()
        yield fine("use", f"metrics.k8s.io tells it of {plural(len(found), 'node')}")
    except ClusterError as error:
        if error.status in (0, 401, 403):
            raise
        says = "metrics.k8s.io is not served" if error.status == 404 else str(error)
        do = "install a metrics server; kubectl describe apiservice v1beta1.metrics.k8s.io"
        yield warn("use", f"{says}: {instead}", do)
