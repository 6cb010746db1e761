"""How alike two models are, and what the nearest measured one tells (model similarity, equation (3), Algorithm 1).

Nothing here depends on a cluster's state, so it is all remembered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from muster.policylib.references import References

DESCRIBED = re.compile(r"layers=([0-9.]+),parameters=([0-9.]+)")
"""How an owner describes a model that is no reference: in its name, parameters in millions."""


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of the angle between two vectors of one length, 0 where one of them is null."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def nearest(
    vector: Sequence[float], references: Mapping[str, Sequence[float]], leave_out: str = ""
) -> str | None:
    """The reference with the greatest cosine (ties: the nearer in size, then the name), None where there is none.

    leave_out: a reference that does not count (leave-one-out).
    """
    names = sorted(name for name in references if name != leave_out)
    if not names:
        return None
    return max(
        names, key=lambda n: (round(cosine(vector, references[n]), 12), -math.dist(vector, references[n]))
    )


@lru_cache(maxsize=4096)
def reference(references: References, model: str, leave_out: bool) -> str | None:
    """The reference that is nearest to a model, None where nothing is known of it. leave_out: not its own."""
    name, measured = architecture(model), references.characteristics
    vector: Sequence[float] | None = measured.get(name)
    if vector is None:
        described = DESCRIBED.search(model.replace(" ", ""))
        vector = [float(v) for v in described.groups()] if described else None
    if vector is None:
        return None
    return nearest(vector, measured, name if leave_out else "")


def architecture(model: str) -> str:
    """The part of a model's name before its batch size: "VGG16@128" is a VGG16."""
    return model.split("@", 1)[0]


@lru_cache(maxsize=4096)
def ranked(
    references: References,
    unit: str,
    model: str,
    products: tuple[tuple[str, ...], ...],
    counts: tuple[int, ...],
    batches: tuple[int, ...],
) -> tuple[tuple[str, int, int], ...]:
    """(product as labelled, GPUs, batch) in descending order of the reference's throughput.

    Ties: fewer GPUs, the larger batch, then the product's name. products: (name among the references, label).
    """
    found = []
    for name, label in (p for p in products if len(p) == 2):
        for gpus in counts:
            for batch in batches:
                speed = references.speed(model, name, gpus, batch)
                fits = speed > 0.0 and references.memory(model, batch / gpus) <= references.room(name)
                if fits and gpus <= references.most:
                    value = speed / batch if unit == "iterations" else speed
                    found.append((-value, gpus, -batch, label))
    return tuple((label, gpus, -batch) for _, gpus, batch, label in sorted(found))


@lru_cache(maxsize=65536)
def pairings(
    references: References,
    unit: str,
    label: str,
    first: tuple[str, int],
    used: int,
    second: tuple[str, int],
    declared: int,
    others: tuple[int, ...],
    any_size: bool,
    kept: tuple[float, float] | None = None,
) -> tuple[tuple[int, int, float, float], ...]:
    """Ways to run `second` beside `first` (each: model, batch) on a GPU of that label: (batch and MiB of the second,
    throughput of the first, of both).

    Its own batch, or the largest below it of the `others` that it can train with that fits; every one that fits where
    any_size. used: MiB of
    the first, declared: of the second at its own batch (0 = not known: as the reference). kept: what each of the two
    keeps of its speed alone, where that was measured; it comes before what the references say.
    """
    product = next(iter(known(label, references)), "")
    capacity = references.room(product) - (used or references.memory(*first))
    model, own = second
    sizes = sorted({own, *(b for b in others if any_size or b < own)}, reverse=True)
    found = []
    for size in sizes:
        memory = declared if size == own and declared else references.memory(model, size)
        if memory <= capacity:
            one = references.speed(first[0], product, 1, first[1], (model, size))
            other = references.speed(model, product, 1, size, first)
            if kept is not None:
                one = kept[0] * references.speed(first[0], product, 1, first[1])
                other = kept[1] * references.speed(model, product, 1, size)
            if unit == "iterations":
                one, other = one / first[1], other / size
            if one > 0.0 and other > 0.0:
                found.append((size, memory, one, one + other))
    return tuple(found if any_size else found[:1])


@lru_cache(maxsize=4096)
def known(label: str, references: References) -> tuple[str, ...]:
    """The product of the references that a node's label names, as a tuple of one, or none.

    The longest name that stands in it, whatever its dashes: NVIDIA-GeForce-RTX-2080-Ti is RTX2080Ti.
    """
    plain = re.sub(r"[^a-z0-9]", "", label.lower())
    found = [p for p in references.products if re.sub(r"[^a-z0-9]", "", p.lower()) in plain]
    return (max(found, key=lambda p: (len(p), p)),) if found else ()
