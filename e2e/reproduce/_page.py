"""The tables of README.md, written from a run's rows: one for each paper, between two comments.

A figure's line says what the paper has, what came out, the range, what that is called, and by a letter where the
constants come from, which are listed below the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase

from e2e.reproduce.entry import Entry, Row
from e2e.reproduce.table import EXACT, cells, counts, number

README = Path(__file__).with_name("README.md")
HEAD = "| figure | paper | here | range | | constants from |\n|---|---|---|---|---|---|"
TOTALS = re.compile(r"(<!-- totals -->\n).*?(<!-- end -->)", re.DOTALL)
WHOLE = re.compile(r"\.00\b")
BLOCK = re.compile(r"(<!-- figures of (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def target_of(of: Entry | Row) -> str:
    """What is asked for, in words."""
    if of.target is None:
        return "-"
    plain = WHOLE.sub("", number(of.target))
    match of.expect:
        case "sign":
            return "below 0" if of.target < 0.0 else "above 0"
        case "at least" | "at most":
            plain = f"{of.expect} {plain}"
    return f"{plain} ± {100.0 * of.tolerance:g} %" if of.tolerance > EXACT else plain


def lines(rows: Sequence[Row]) -> str:
    """One paper's table and list of sources."""
    sources = list(dict.fromkeys(row.source for row in rows))
    letters = dict(zip(sources, ascii_lowercase, strict=False))
    made = [HEAD]
    for row in rows:
        figure, _, result, spread, *_ = (WHOLE.sub("", cell) for cell in cells(row))
        bold = f"**{row.verdict}**" if row.verdict == "missed" else row.verdict
        made.append(f"| {figure} | {target_of(row)} | {result} | {spread} | {bold} | {letters[row.source]} |")
    made += ["", *(f"- {letters[source]}: {source}" for source in sources)]
    return "\n".join(made) + "\n"


def written(page: str, rows: Sequence[Row]) -> str:
    """The page with the tables of the papers that there are rows of, and the totals of all that it has then."""
    tables = {paper: lines(list(group)) for paper, group in groupby(rows, key=lambda row: row.paper)}
    page = BLOCK.sub(lambda m: f"{m[1]}{tables.get(m[2], m[3])}{m[4]}", page)
    return TOTALS.sub(lambda m: f"{m[1]}{totals(page)}\n{m[2]}", page)


def totals(page: str) -> str:
    """Of the tables on the page, in a sentence."""
    found = figures(page)
    verdicts = [verdict for rows in found.values() for *_, verdict, _ in rows]
    papers = ", ".join(f"`{paper}`" for paper in sorted(found))
    return f"The tables below, of {papers}, have {len(verdicts)} figures: {counts(verdicts)}."


def figures(page: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """By paper what a run's table of it on the page has: figure, what is asked for, what it is called, constants."""
    found = {}
    for _, paper, table, _ in BLOCK.findall(page):
        sources = dict(re.findall(r"^- (\w): (.*)$", table, re.MULTILINE))
        made = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
        if table.startswith(HEAD):
            found[paper] = [(m[0], m[1], m[4].strip("*"), sources[m[5]]) for m in made[1:]]
    return found
