"""What a plugin remembers of each job, typed. The plugin says how it is read; who loads the plugin hands it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

from muster.types import Job

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Memory(Generic[T]):
    """One plugin's part of every job's memory: what its `observe` returned last, and a restart of Muster keeps.

    decode: from those plain values (JSON; empty where nothing is kept) to what the plugin works with. It is given
    what older versions wrote, too. name: of the plugin's entry point, under which Gangs, dumps and simulations have
    it; the plugin doesn't know it. Empty: nobody handed it in (a plugin made by hand), and nothing is remembered.
    """

    decode: Callable[[Mapping[str, object]], T]
    name: str = ""

    def of(self, job: Job) -> T:
        return self.decode(self.plain(job) or {})

    def plain(self, job: Job) -> Mapping[str, object] | None:
        """The same before it is decoded, as `observe` returned it; None where nothing is kept."""
        kept = job.memory.get(self.name)
        return kept if isinstance(kept, Mapping) else None


def remembers(decode: Callable[[Mapping[str, object]], T]) -> Memory[T]:
    """The field of a plugin that is its memory: `memory: Memory[Turn] = remembers(Turn.read)`. No parameter of it."""
    made: Memory[T] = field(default=Memory(decode), init=False, repr=False, compare=False)
    return made


def remembers_as(plugin: Any, name: str) -> bool:
    """Whether every memory that a plugin has is the one under `name`."""
    return all(own.name == name for _, own in _memories(plugin))


def hand_in(plugin: Any, name: str) -> None:
    """Gives a plugin that was just made the memory that stands under `name`, where it has a field for one."""
    for field_name, own in _memories(plugin):
        handed = replace(own, name=name)
        object.__setattr__(plugin, field_name, handed)  # frozen, and nobody else has it yet


def _memories(plugin: Any) -> list[tuple[str, Memory[Any]]]:
    """Its fields that are one."""
    found = [spec.name for spec in fields(plugin)] if is_dataclass(plugin) else []
    return [(name, own) for name in found if isinstance(own := getattr(plugin, name), Memory)]
