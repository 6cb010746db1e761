"""Which nodes a shape may use, whatever is free on them: taints, selectors, node affinity.

Each distinct constraint is evaluated once for each set of nodes and kept as a mask with it
(kube-scheduler's NodeAffinity, NodeName, TaintToleration and NodeUnschedulable plugins, in one).
"""

from __future__ import annotations

import numpy as np

from muster.types import BoolArray, NodeRecord, Nodes, Requirement, Shape, Taint, Term, Toleration

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def static_mask(nodes: Nodes, shape: Shape) -> BoolArray:
    """(N,) bool: nodes that the shape's selector, affinity and tolerations allow."""
    key = (shape.selector, shape.affinity, shape.tolerations, shape.node_name)
    mask = nodes.masks.get(key)
    if mask is None:
        if shape.selector or shape.affinity or shape.node_name:
            mask = np.array([allows(node, shape) for node in nodes.records], dtype=np.bool_)
        else:  # a healthy node has no taint to ask about
            mask = nodes.open.copy()
            for row, node in enumerate(nodes.records):
                if node.taints or node.unschedulable:
                    mask[row] = tolerates(node, shape.tolerations)
        nodes.masks[key] = mask
    return mask


def allows(node: NodeRecord, shape: Shape) -> bool:
    """Whether a node's labels and taints admit the shape."""
    if shape.node_name and node.name != shape.node_name:
        return False
    if not tolerates(node, shape.tolerations):
        return False
    if any(node.labels.get(key) != value for key, value in shape.selector):
        return False
    return not shape.affinity or any(matches_term(node, term) for term in shape.affinity)


def tolerates(node: NodeRecord, tolerations: tuple[Toleration, ...]) -> bool:
    """Every NoSchedule and NoExecute taint is tolerated, cordoning included."""
    taints = node.taints
    if node.unschedulable and UNSCHEDULABLE not in taints:
        taints = (*taints, UNSCHEDULABLE)
    return all(
        taint.effect == "PreferNoSchedule" or any(tolerated(taint, t) for t in tolerations)
        for taint in taints
    )


def tolerated(taint: Taint, toleration: Toleration) -> bool:
    """As in k8s.io/component-helpers: an empty effect matches all, an empty key with Exists matches all."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator not in ("", "Equal"):
        return False  # Gt and Lt are alpha: taken as not tolerated, which never over-promises
    return bool(toleration.key) and toleration.value == taint.value


def matches_term(node: NodeRecord, term: Term) -> bool:
    """A term without requirements matches nothing (as the API says)."""
    if not term.expressions and not term.fields:
        return False
    return all(matches(node.labels.get(r.key), r) for r in term.expressions) and all(
        matches(node.name if r.key == "metadata.name" else None, r) for r in term.fields
    )


def matches(value: str | None, requirement: Requirement) -> bool:
    """One requirement against a label's value (None = no such label)."""
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                found, bound = int(value or ""), int(requirement.values[0])
            except (ValueError, IndexError):
                return False
            return found > bound if requirement.operator == "Gt" else found < bound
    return False
