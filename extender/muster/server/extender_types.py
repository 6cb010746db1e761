"""The extender's wire format, exactly as k8s.io/kube-scheduler/extender/v1 marshals it.

That package's types have no JSON tags: outer keys are the Go names, unset pointers, maps and slices are null,
no key is left out. Pods and nodes inside are ordinary Kubernetes JSON. Only what is read is decoded: a pod's
uid, namespace, name and schedulerName, node names, victims' uids; nodes that are sent back are the bytes that came.
tests/wire compares with what the Go package itself writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from muster.errors import UsageError

T = TypeVar("T")


class PodMeta(msgspec.Struct, gc=False):
    """The part of a pod's metadata that is read."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    annotations: dict[str, str] | None = None


class PodSpec(msgspec.Struct, gc=False, rename="camel"):
    """The part of a pod's spec that is read."""

    scheduler_name: str = ""


class Pod(msgspec.Struct, gc=False):
    """A pod, as far as it is read."""

    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class NodeList(msgspec.Struct, gc=False):
    """Nodes as they came."""

    items: list[msgspec.Raw] | None = None


class Args(msgspec.Struct, gc=False, rename="pascal"):
    """ExtenderArgs: with nodeCacheCapable names come, else whole nodes."""

    pod: Pod | None = None
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class FilterResult(msgspec.Struct, gc=False, rename="pascal"):
    """ExtenderFilterResult."""

    nodes: msgspec.Raw | None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class HostPriority(msgspec.Struct, gc=False, rename="pascal"):
    """One element of HostPriorityList."""

    host: str
    score: int


class MetaPod(msgspec.Struct, gc=False):
    """A victim by its uid; Go's name of the field is UID."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(msgspec.Struct, gc=False):
    """Victims on a node by uid: the form of every answer."""

    pods: list[MetaPod] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Victims(msgspec.Struct, gc=False):
    """Victims on a node as whole pods: what comes where nodeCacheCapable is false."""

    pods: list[Pod] | None = msgspec.field(name="Pods", default=None)
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptionArgs(msgspec.Struct, gc=False):
    """ExtenderPreemptionArgs."""

    pod: Pod | None = msgspec.field(name="Pod", default=None)
    victims: dict[str, Victims] | None = msgspec.field(name="NodeNameToVictims", default=None)
    meta: dict[str, MetaVictims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)


class PreemptionResult(msgspec.Struct, gc=False):
    """ExtenderPreemptionResult: always the Meta form."""

    meta: dict[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims", default_factory=dict)


class _Named(msgspec.Struct, gc=False):
    metadata: PodMeta = msgspec.field(default_factory=PodMeta)


_encoder = msgspec.json.Encoder()
_args = msgspec.json.Decoder(Args)
_preemption = msgspec.json.Decoder(PreemptionArgs)
_node = msgspec.json.Decoder(_Named)


def read_args(body: bytes) -> Args:
    """ExtenderArgs of /filter and /prioritize. Raises UsageError naming what can't be understood."""
    return _read(_args, body)


def read_preemption(body: bytes) -> PreemptionArgs:
    """ExtenderPreemptionArgs. Raises UsageError naming what can't be understood."""
    return _read(_preemption, body)


def node_names(nodes: Sequence[msgspec.Raw]) -> list[str]:
    """The names of whole nodes. Raises UsageError where one is no node."""
    names = [_read(_node, bytes(node)).metadata.name for node in nodes]
    if not all(names):
        raise UsageError("Nodes.items: a node has no metadata.name")
    return names


def filter_names(passed: Sequence[str], failed: Mapping[str, str], error: str = "") -> bytes:
    """The answer for nodeCacheCapable: true."""
    result = FilterResult(
        node_names=list(passed), failed_and_unresolvable_nodes=dict(failed) or None, error=error
    )
    return _encoder.encode(result)


def filter_nodes(passed: Sequence[msgspec.Raw], failed: Mapping[str, str], error: str = "") -> bytes:
    """The answer for nodeCacheCapable: false, which reads whole nodes only."""
    items = b",".join(bytes(node) for node in passed)
    result = FilterResult(
        nodes=msgspec.Raw(b'{"metadata":{},"items":[' + items + b"]}"),
        failed_and_unresolvable_nodes=dict(failed) or None,
        error=error,
    )
    return _encoder.encode(result)


def filter_error(error: str) -> bytes:
    """An answer that makes kube-scheduler try the pod again later, with the text in its event."""
    return _encoder.encode(FilterResult(error=error))


def priorities(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """HostPriorityList: a bare list, it has no place for an error."""
    return _encoder.encode([HostPriority(n, s) for n, s in zip(names, scores, strict=True)])


def preemption(kept: Mapping[str, MetaVictims]) -> bytes:
    """The nodes that stay candidates, with their victims."""
    return _encoder.encode(PreemptionResult(dict(kept)))


def error(text: str) -> bytes:
    """An error of a verb whose answer has no place for one; kube-scheduler reads the status only."""
    return _encoder.encode({"Error": text})


def _read(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the body can't be understood: {error}") from error
