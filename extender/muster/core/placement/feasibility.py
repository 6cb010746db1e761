"""Which nodes a shape may use, whatever is free on them: taints, selectors, node affinity.

Each distinct constraint is evaluated once for each set of nodes and kept as a mask with it (kube-scheduler's
NodeAffinity, NodeName, TaintToleration and NodeUnschedulable plugins, in one), by the distinct values of a label and
the distinct taints: tenants write selectors, and each change of a node makes all of their masks again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

import numpy as np

from muster.types import (
    NAMESPACE_NAME,
    BoolArray,
    Namespaces,
    NodeRecord,
    Nodes,
    Requirement,
    Shape,
    Taint,
    Term,
    Toleration,
)

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
NAME_FIELD = "metadata.name"


def static_mask(nodes: Nodes, shape: Shape) -> BoolArray:
    """(N,) bool: nodes that the shape's selector, affinity and tolerations allow; none where it lacks something."""
    if shape.missing:
        return np.zeros(len(nodes), dtype=np.bool_)
    key = (shape.selector, shape.affinity, shape.tolerations, shape.node_name)
    mask = nodes.masks.get(key)
    if mask is None:
        mask = _tolerated(nodes, shape.tolerations)
        if shape.node_name:
            mask = mask & _named(nodes, (shape.node_name,))
        for label, value in shape.selector:
            mask = mask & _matching(nodes, Requirement(label, "In", (value,)))
        if shape.affinity:
            mask = mask & np.logical_or.reduce([_admitted(nodes, term) for term in shape.affinity])
        nodes.masks.put(key, mask)
    return mask


def _tolerated(nodes: Nodes, tolerations: tuple[Toleration, ...]) -> BoolArray:
    ids, kinds = nodes.closed_by()
    return np.array([tolerates(kind, tolerations) for kind in kinds], dtype=np.bool_)[ids]


def _admitted(nodes: Nodes, term: Term) -> BoolArray:
    """(N,) nodes that meet all of a term; none where it has no requirement (as the API says)."""
    if not term.expressions and not term.fields:
        return np.zeros(len(nodes), dtype=np.bool_)
    mask = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.expressions:
        mask &= _matching(nodes, requirement)
    for requirement in term.fields:
        if requirement.key == NAME_FIELD and requirement.operator == "In":
            mask &= _named(nodes, requirement.values)
        elif requirement.key == NAME_FIELD:
            mask &= np.array([matches(name, requirement) for name in nodes.names], dtype=np.bool_)
        elif not matches(None, requirement):
            mask[:] = False
    return mask


def _named(nodes: Nodes, names: tuple[str, ...]) -> BoolArray:
    mask = np.zeros(len(nodes), dtype=np.bool_)
    mask[[nodes.index[name] for name in names if name in nodes.index]] = True
    return mask


def _matching(nodes: Nodes, requirement: Requirement) -> BoolArray:
    """(N,) nodes whose labels meet a requirement: decided once for each value that the label has."""
    ids, values = nodes.domains(requirement.key)
    table = np.zeros(len(values) + 1, dtype=np.bool_)  # the last: of nodes without the label, whose id is -1
    if requirement.operator in ("In", "NotIn"):
        for value in requirement.values:
            at = bisect_left(values, value)
            if at < len(values) and values[at] == value:
                table[at] = True
        if requirement.operator == "NotIn":
            table = ~table
    else:
        table[:-1] = [matches(value, requirement) for value in values]
        table[-1] = matches(None, requirement)
    return table[ids]


def allows(node: NodeRecord, shape: Shape) -> bool:
    """Whether a node's labels and taints admit the shape."""
    if shape.missing or (shape.node_name and node.name != shape.node_name):
        return False
    if not tolerates(node, shape.tolerations):
        return False
    if any(node.labels.get(key) != value for key, value in shape.selector):
        return False
    return not shape.affinity or any(matches_term(node, term) for term in shape.affinity)


def tolerates(node: NodeRecord, tolerations: tuple[Toleration, ...]) -> bool:
    """Every NoSchedule and NoExecute taint is tolerated, cordoning included."""
    return next(untolerated(node, tolerations), None) is None


def untolerated(node: NodeRecord, tolerations: tuple[Toleration, ...]) -> Iterator[Taint]:
    """The taints that keep a pod off a node, cordoning included."""
    taints = node.taints
    if node.unschedulable and UNSCHEDULABLE not in taints:
        taints = (*taints, UNSCHEDULABLE)
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerated(taint, t) for t in tolerations):
            yield taint


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


def takes_part(chosen: Namespaces, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a namespace with these labels has opted in; its name counts as its label, whatever they say."""
    named = {**labels, NAMESPACE_NAME: namespace}
    return namespace not in chosen.left_out and all(matches(named.get(r.key), r) for r in chosen.selector)


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
