"""What the annotations of a job's pods declare, and how many replicas each role has from it (design §8).

Size, in this order: min/max annotations of the role, the count in `muster.dev/roles`, the owner's declared size, and
where nothing is declared anywhere: 1, and pods start as they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.cached import MIB, cached
from muster.core.bounds import KEY, NAME, NOTE, REPLICAS, SHOWN, shown
from muster.core.workload.annotation_values import (
    ROLE_NAME,
    count_of,
    number_of,
    parse_batch_sizes,
    parse_roles,
    parse_sizes,
    parse_speed,
    text_of,
)
from muster.core.workload.identity import (
    BATCH_SIZES,
    DEFAULT_ROLE,
    EVICTABLE,
    GPU_MEMORY,
    GPUS,
    LWS_SIZE,
    MAX,
    MIN,
    MODEL,
    PLACEMENT,
    REMAINING,
    REQUEST,
    RESIZE,
    RESIZE_AT,
    ROLE,
    ROLES,
    SIZES,
    SPEED,
    TOPOLOGY_PREFERRED,
    TOPOLOGY_REQUIRED,
    WHOLE,
    role_of,
)
from muster.core.workload.in_place import parse_gpu_memory, parse_gpus
from muster.errors import InputError
from muster.types import PodRecord

_READ = (
    *(ROLES, MIN, MAX, LWS_SIZE, SIZES, PLACEMENT, EVICTABLE, RESIZE, RESIZE_AT, TOPOLOGY_REQUIRED),
    *(TOPOLOGY_PREFERRED, REMAINING, SPEED, MODEL, REQUEST, GPUS, GPU_MEMORY, BATCH_SIZES),
)
"""Annotations that say something of the job: others are no part of what is remembered of them."""


@dataclass(frozen=True, slots=True)
class RoleSize:
    """What a job declares of one role; None where it says nothing."""

    min: int | None = None
    max: int | None = None
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """What the annotations of one pod declare of its job; `error` names the annotation that can't be read."""

    role: str = DEFAULT_ROLE
    roles: tuple[tuple[str, int], ...] = ()
    size: RoleSize = field(default_factory=RoleSize)
    topology_required: str = ""
    topology_preferred: str = ""
    placement: str = ""
    evictable: bool = False
    remaining_work: float | None = None
    speed: tuple[tuple[int, float], ...] = ()
    model: str = ""
    resize: str = ""
    resize_at: str = ""
    request: int = 0
    gpus: tuple[int, ...] = ()  # of a pod in place: numbers that it can train on
    batch_sizes: tuple[int, ...] = ()
    gpu_memory: int = 0  # MiB of each
    error: str = ""


def declared(pod: PodRecord) -> Declared:
    """What the pod's annotations declare; a mistake is named in `error`, never raised. Pods that declare the same get
    the same object: nearly all pods of a job do, and it is asked again at each change of one of them."""
    notes = tuple([(key, pod.annotations[key]) for key in _READ if key in pod.annotations])
    found = _read(role_of(pod), pod.labels.get(MODEL, ""), notes)
    return replace(found, error=f"pod {pod.name}: {found.error}") if found.error else found


def declared_of(role: str, notes: tuple[tuple[str, str], ...]) -> RoleSize:
    """What the annotations of a template declare of a role that has no pod yet; a mistake is named when it has."""
    return _read(role, "", notes).size if notes else RoleSize()


@cached("annotations", 32 * MIB)
def _read(role: str, model: str, annotations: tuple[tuple[str, str], ...]) -> Declared:
    try:
        return _declared(role, model, dict(annotations))
    except InputError as error:
        return Declared(role=role[: NAME.most], error=str(error))


def _declared(role: str, model: str, notes: Mapping[str, str]) -> Declared:
    if not ROLE_NAME.fullmatch(role) or len(role) > 63:
        raise InputError(
            f"{ROLE}: expected a name of lower-case letters, digits and '-', found {shown(role)}"
        )
    for key, text in notes.items():
        if len(text) > NOTE.most:
            raise InputError(NOTE.beyond(key, f"{text[:40]}..."))
    roles = parse_roles(notes.get(ROLES, ""))
    if roles and role not in dict(roles):
        names = _cut(", ".join(name for name, _ in roles))
        raise InputError(f"{ROLE}: expected one of the roles in {ROLES} ({names}), found {shown(role)}")
    least, most = count_of(notes, MIN), count_of(notes, MAX)
    if least is not None and most is not None and least > most:
        raise InputError(f"{MIN}: expected at most {MAX} ({most}), found {least}")
    if least is None and most is None and WHOLE.fullmatch(notes.get(LWS_SIZE, "")):
        least = most = int(notes[LWS_SIZE])  # a LeaderWorkerSet's group is the gang
    sizes = parse_sizes(notes.get(SIZES, ""))
    if sizes and not [s for s in sizes if (least or 1) <= s <= (most or REPLICAS.most)]:
        raise InputError(
            f"{SIZES}: expected a count from {MIN} ({least or 1}) to {MAX} ({most or 'not set'}), "
            f"found {shown(notes[SIZES])}"
        )
    placement = notes.get(PLACEMENT, "")
    if placement not in ("", "pinned", "scored"):
        raise InputError(f"{PLACEMENT}: expected pinned or scored, found {shown(placement)}")
    evictable = notes.get(EVICTABLE, "")
    if evictable not in ("", "true", "false"):
        raise InputError(f'{EVICTABLE}: expected "true" or "false", found {shown(evictable)}')
    resize, resize_at = notes.get(RESIZE, ""), notes.get(RESIZE_AT, "")
    if resize not in ("", "in-place", "restart"):
        raise InputError(f"{RESIZE}: expected in-place or restart, found {shown(resize)}")
    if resize_at not in ("", "boundary"):
        raise InputError(f"{RESIZE_AT}: expected boundary, found {shown(resize_at)}")
    return Declared(
        role=role,
        roles=roles,
        size=RoleSize(least, most, sizes),
        topology_required=text_of(notes, TOPOLOGY_REQUIRED, KEY),
        topology_preferred=text_of(notes, TOPOLOGY_PREFERRED, KEY),
        placement=placement,
        evictable=evictable == "true",
        remaining_work=number_of(notes, REMAINING),
        speed=parse_speed(notes.get(SPEED, "")),
        model=model or text_of(notes, MODEL, NAME),
        resize=resize,
        resize_at=resize_at,
        request=count_of(notes, REQUEST) or 0,
        gpus=parse_gpus(notes.get(GPUS, "")),
        batch_sizes=parse_batch_sizes(notes.get(BATCH_SIZES, "")),
        gpu_memory=parse_gpu_memory(notes.get(GPU_MEMORY, "")),
    )


_OF_JOB = {
    ROLES: "roles",
    TOPOLOGY_REQUIRED: "topology_required",
    TOPOLOGY_PREFERRED: "topology_preferred",
    PLACEMENT: "placement",
    SPEED: "speed",
    REMAINING: "remaining_work",
    MODEL: "model",
    RESIZE: "resize",
    RESIZE_AT: "resize_at",
    REQUEST: "request",
    GPUS: "gpus",
    BATCH_SIZES: "batch_sizes",
    GPU_MEMORY: "gpu_memory",
}
"""Fields of what is declared for the whole job, by their annotations: the same on every pod that carries one."""


def merge(parts: Sequence[tuple[str, Declared]]) -> tuple[Declared, dict[str, RoleSize]]:
    """What all pods of a job declare together, as (pod name, declared) in the pods' order.

    Returns the job-wide values and each role's size. Raises InputError where pods contradict each other,
    naming them.
    """
    alike = parts[0][1] if parts else Declared()
    if not alike.error and all(part is alike for _, part in parts):  # nearly every job
        return alike, {alike.role: alike.size} if alike.size != RoleSize() else {}
    whole: dict[str, tuple[str, object]] = {}
    sizes: dict[str, tuple[str, RoleSize]] = {}

    def agree(annotation: str, pod: str, value: object, found: dict[str, tuple[str, object]]) -> None:
        if not value:
            return
        first = found.setdefault(annotation, (pod, value))
        if first[1] != value:
            raise InputError(
                f"{annotation}: expected the same on every pod that carries it; "
                f"found {_written(first[1])} on {first[0]} and {_written(value)} on {pod}"
            )

    before: Declared | None = None
    for pod, part in parts:
        if part is before:
            continue
        before = part
        if part.error:
            raise InputError(part.error)
        for annotation, name in _OF_JOB.items():
            agree(annotation, pod, getattr(part, name), whole)
        if part.size != RoleSize():
            first = sizes.setdefault(part.role, (pod, part.size))
            if first[1] != part.size:
                key, one, other = next(
                    (key, one, other)
                    for key, one, other in zip(
                        (MIN, MAX, SIZES), _parts(first[1]), _parts(part.size), strict=True
                    )
                    if one != other
                )
                raise InputError(
                    f"{key}: expected the same on every pod of role {part.role!r}; "
                    f"found {_written(one)} on {first[0]} and {_written(other)} on {pod}"
                )
    roles: tuple[tuple[str, int], ...] = whole.get(ROLES, ("", ()))[1]  # type: ignore[assignment]
    if roles:
        counts = dict(roles)
        for pod, part in parts:
            if part.role not in counts:
                names = _cut(", ".join(name for name, _ in roles))
                raise InputError(f"{ROLE}: expected one of {names}, found {part.role!r} on pod {pod}")

    job = Declared(**{_OF_JOB[annotation]: value for annotation, (_, value) in whole.items()})  # type: ignore[arg-type]
    return job, {role: size for role, (_, size) in sizes.items()}


def _parts(size: RoleSize) -> tuple[object, object, object]:
    return size.min, size.max, size.sizes


def _written(value: object) -> str:
    """A value as its annotation has it: "worker=2,server=1", "1,2,4"; `nothing` where there is none; cut."""
    return _cut(_whole(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _whole(value: object) -> str:
    if isinstance(value, tuple):
        pairs = ("=".join(map(_whole, part)) if isinstance(part, tuple) else _whole(part) for part in value)
        return ",".join(pairs) or "nothing"
    return "nothing" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


def role_bounds(
    size: RoleSize,
    in_roles: int | None,
    owner_size: int | None,
    ended: int,
    present: int,
    owned: bool,
    owner_least: int | None = None,
) -> tuple[int, int]:
    """(min, max) of a role at this moment.

    in_roles: its count in muster.dev/roles; owner_size: replicas that its owners want to exist now (ended
    ones already taken off); owner_least: with how few of them it may run, None = it does not say; ended: replicas
    that ended well; present: members that exist; owned: by an owner
    that re-creates what fails.
    """
    whole = in_roles if in_roles is not None else owner_size
    least = size.min if size.min is not None else whole
    most = size.max if size.max is not None else whole
    if size.min is None and in_roles is None and owner_least is not None:
        least = owner_least
    if least is None:
        least = 1
    if most is None:
        most = max(present + ended, least)
    if size.max is None:
        most = max(most, least)
    least = min(least, most)
    allowed = [s for s in size.sizes if least <= s <= most]
    if allowed:
        least, most = allowed[0], allowed[-1]
    if owned and owner_size is not None:  # the owner's own word on how many it will have now
        return min(least, owner_size), min(most, owner_size)
    return max(0, least - ended), max(0, most - ended)
