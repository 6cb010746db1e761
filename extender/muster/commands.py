"""Commands and numbers of the command line whose errors say whose they are, what was expected and what was found.

Only click is imported: `muster --help` must not feel numpy.
"""

from __future__ import annotations

import math
from typing import Any

import click


class Command(click.Command):
    """Its usage errors all know whose they are, so that usage and example stand with them. click's parser does not
    tell, of an option without its value for one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


class WholeNumber(click.IntRange):
    """A whole number; what is none is told with what was expected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected a whole number{_range(self.min, self.max)}, found {value!r}", param, ctx)


class Number(click.FloatRange):
    """A number that is one (not nan); what is none is told with what was expected."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            found = super().convert(value, param, ctx)
        except click.BadParameter:
            found = math.nan
        if math.isnan(found):
            self.fail(f"expected a number{_range(self.min, self.max)}, found {value!r}", param, ctx)
        return found


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    return f" from {least:g} on" if most is None else f" from {least:g} to {most:g}"
