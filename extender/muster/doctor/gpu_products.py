"""Whether nodes have the GPU products that the configuration names."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.reasons.products import named_products, unknown_products
from muster.doctor.finding import Finding, fine, warn
from muster.doctor.patient import Patient
from muster.settings import profile_of
from muster.types import PRODUCT


def products(patient: Patient) -> Iterator[Finding]:
    """Products that arguments of plugins name are on nodes, where any are named."""
    named = named_products(profile_of(patient.settings))
    if not named:
        return
    labels = (node["metadata"].get("labels", {}).get(PRODUCT) for node in patient.every("v1", "nodes"))
    said = unknown_products(named, {product for product in labels if product})
    if said:
        yield warn("products", said, f"kubectl get nodes -L {PRODUCT} shows what they are called")
    else:
        yield fine("products", f"nodes have all that {', '.join(named)} names")
