"""Which shapes of a lab the kind cluster can be given for a scenario: other fake nodes, other values of the chart,
operators and real nodes beside it. What takes another control plane it can't."""

from __future__ import annotations

from collections.abc import Callable

from e2e.lab.metrics_server import NAME as METRICS_SERVER
from e2e.lab.shape import Shape
from e2e.lab.versions import DEFAULT_KUBERNETES

_ITS_OWN = ((), ("--controllers=*",))
"""Flags of kube-controller-manager that say what kubeadm's does by itself."""
_LACKS: tuple[tuple[Callable[[Shape], object], str], ...] = (
    (lambda shape: not shape.chart and not shape.real, "a cluster without Muster"),
    (lambda shape: not shape.scheduler, "a cluster without its own scheduler"),
    (lambda shape: shape.audit, "kube-apiserver's audit log"),
    (lambda shape: shape.replicas > 1, "a second replica that can be told apart from the first"),
    (lambda shape: shape.feature_gates, "feature gates of the control plane"),
    (
        lambda shape: shape.apiserver_args or shape.scheduler_args or shape.controller_args not in _ITS_OWN,
        "flags of the control plane",
    ),
    (lambda shape: shape.helm_3, "an installation by Helm 3"),
    (
        lambda shape: METRICS_SERVER in shape.operators,
        "a metrics server that reads fake nodes",
    ),
)


def why_not(shape: Shape, session: Shape) -> str:
    """Why the cluster, made with the shape `session`, can't be given this one; "" where it can."""
    if shape.kubernetes not in (session.kubernetes, DEFAULT_KUBERNETES):
        return f"Kubernetes {shape.kubernetes}"
    return next((what for lacks, what in _LACKS if lacks(shape)), "")
