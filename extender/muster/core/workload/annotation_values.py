"""The values of annotations: roles, sizes, speeds, counts, text and numbers, each with what is expected of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.core.bounds import BATCH, BATCHES, POINTS, REPLICAS, WORK, Bound, shown
from muster.core.bounds import SPEED as FASTEST
from muster.core.workload.identity import (
    BATCH_SIZES,
    ROLES,
    SIZES,
    SPEED,
    WHOLE,
)
from muster.errors import InputError

ROLE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def parse_roles(text: str) -> tuple[tuple[str, int], ...]:
    """ "scheduler=1,server=2,worker=4" in its order. Raises InputError with what was expected and found."""
    if not text:
        return ()
    roles: dict[str, int] = {}
    for part in text.split(","):
        name, sign, count = (p.strip() for p in part.partition("="))
        if not sign or not ROLE_NAME.fullmatch(name) or not WHOLE.fullmatch(count):
            raise InputError(
                f'{ROLES}: expected "role=count,...", found {shown(part.strip())} in {shown(text)}'
            )
        if name in roles:
            raise InputError(f"{ROLES}: expected each role once, found {name!r} twice in {shown(text)}")
        if not 1 <= int(count) <= REPLICAS.most:
            raise InputError(f"{ROLES}: expected a count from 1 to {REPLICAS.most}, found {name}={count}")
        roles[name] = int(count)
    return tuple(roles.items())


def parse_sizes(text: str) -> tuple[int, ...]:
    """ "1,2,4" in rising order. Raises InputError."""
    if not text:
        return ()
    sizes: list[int] = []
    parts = text.split(",")
    if len(parts) > POINTS.most:
        raise InputError(POINTS.beyond(SIZES, len(parts)))
    for part in parts:
        if not WHOLE.fullmatch(part.strip()) or not 1 <= int(part) <= REPLICAS.most:
            raise InputError(
                f'{SIZES}: expected counts from 1 to {REPLICAS.most} as "1,2,4", found {shown(part.strip())}'
            )
        sizes.append(int(part))
    return tuple(sorted(set(sizes)))


def parse_batch_sizes(text: str) -> tuple[int, ...]:
    """ "64,128" in rising order. Raises InputError."""
    if not text:
        return ()
    parts = text.split(",")
    if len(parts) > BATCHES.most:
        raise InputError(BATCHES.beyond(BATCH_SIZES, len(parts)))
    for part in parts:
        if not WHOLE.fullmatch(part.strip()) or not 1 <= int(part) <= BATCH.most:
            raise InputError(
                f'{BATCH_SIZES}: expected global batch sizes from 1 to {BATCH.most} as "64,128", '
                f"found {shown(part.strip())}"
            )
    return tuple(sorted({int(part) for part in parts}))


def parse_speed(text: str) -> tuple[tuple[int, float], ...]:
    """ "1=1.0,2=1.9": replicas and relative speed, by replicas. Raises InputError."""
    if not text:
        return ()
    points: dict[int, float] = {}
    parts = text.split(",")
    if len(parts) > POINTS.most:
        raise InputError(POINTS.beyond(SPEED, len(parts)))
    for part in parts:
        count, _, speed = (p.strip() for p in part.partition("="))
        try:
            replicas, points[replicas] = int(count), float(speed)
        except ValueError as error:
            raise InputError(
                f'{SPEED}: expected "replicas=speed,...", found {shown(part.strip())} in {shown(text)}'
            ) from error
        if not 1 <= replicas <= REPLICAS.most or not 1 / FASTEST.most <= points[replicas] <= FASTEST.most:
            raise InputError(
                f"{SPEED}: expected positive numbers, {FASTEST}, of 1 to {REPLICAS.most} replicas, "
                f"found {shown(part.strip())}"
            )
    return tuple(sorted(points.items()))


def count_of(notes: Mapping[str, str], key: str) -> int | None:
    text = notes.get(key)
    if text is None:
        return None
    if not WHOLE.fullmatch(text) or not 1 <= int(text) <= REPLICAS.most:
        raise InputError(f"{key}: expected a whole number from 1 to {REPLICAS.most}, found {shown(text)}")
    return int(text)


def text_of(notes: Mapping[str, str], key: str, bound: Bound) -> str:
    text = notes.get(key, "")
    if len(text) > bound.most:
        raise InputError(bound.beyond(key, text))
    return text


def number_of(notes: Mapping[str, str], key: str) -> float | None:
    text = notes.get(key)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < WORK.most:
        raise InputError(f"{key}: expected seconds on one replica (a number from 0), found {shown(text)}")
    return number
