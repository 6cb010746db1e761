"""The tables of README.md, written from a run's rows: one for each paper, between two comments.

A figure's line says what is asked for and by a capital whose that is, what came out, the range, what that is called,
and by a letter where the constants come from; both are listed below the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase

from e2e.reproduce.entry import BASES, Entry, Row
from e2e.reproduce.table import EXACT, cells, counts, number, percent

README = Path(__file__).with_name("README.md")
HEAD = "| figure | target | here | range | | constants from |\n|---|---|---|---|---|---|"
TOTALS = re.compile(r"(<!-- totals -->\n).*?(<!-- end -->)", re.DOTALL)
WHOLE = re.compile(r"\.00\b")
BLOCK = re.compile(r"(<!-- figures of (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def target_of(of: Entry | Row) -> str:
    """What is asked for, in words, and by a letter who says it."""
    if of.target is None:
        return "-"
    plain = WHOLE.sub("", number(of.target))
    match of.expect:
        case "sign":
            plain = "below 0" if of.target < 0.0 else "above 0"
        case "at least" | "at most":
            plain = f"{of.expect} {plain}"
    if of.tolerance > EXACT and of.expect != "sign":
        plain += f" ± {percent(of.tolerance)}"
    return f"{plain} ({BASES[of.basis][0]})" if of.basis else plain


def lines(rows: Sequence[Row]) -> str:
    """One paper's table and list of sources."""
    sources = list(dict.fromkeys(row.source for row in rows))
    letters = dict(zip(sources, ascii_lowercase, strict=False))
    made = [HEAD]
    for row in rows:
        figure, _, _, result, spread, *_ = (WHOLE.sub("", cell) for cell in cells(row))
        bold = f"**{row.verdict}**" if row.verdict == "missed" else row.verdict
        made.append(f"| {figure} | {target_of(row)} | {result} | {spread} | {bold} | {letters[row.source]} |")
    made += ["", *(f"- {letters[source]}: {source}" for source in sources)]
    used = {row.basis for row in rows}
    made += [f"- {letter}: {words}" for basis, (letter, words) in BASES.items() if basis in used]
    return "\n".join(made) + "\n"


def written(page: str, rows: Sequence[Row]) -> str:
    """The page with the tables of the papers that there are rows of, and the totals of all that it has then."""
    tables = {paper: lines(list(group)) for paper, group in groupby(rows, key=lambda row: row.paper)}
    page = BLOCK.sub(lambda m: f"{m[1]}{tables.get(m[2], m[3])}{m[4]}", page)
    return TOTALS.sub(lambda m: f"{m[1]}{totals(page)}\n{m[2]}", page)


def totals(page: str) -> str:
    """Of the tables on the page, in a sentence."""
    found = figures(page)
    rows = [row for rows in found.values() for row in rows]
    papers = ", ".join(f"`{paper}`" for paper in sorted(found))
    met = Counter(target[-2] for _, target, verdict, _ in rows if verdict == "met" and target.endswith(")"))
    whose = (
        f"{met['P']} are numbers that a paper prints, {met['D']} a direction of a paper's, {met['A']} what its "
        f"authors' code, data or artifact has, {met['O']} bounds of our own"
    )
    verdicts = counts(verdict for *_, verdict, _ in rows)
    return f"The tables below, of {papers}, have {len(rows)} figures: {verdicts}. Of those met {whose}."


def figures(page: str) -> dict[str, list[tuple[str, str, str, str]]]:
    """By paper what a run's table of it on the page has: figure, what is asked for, what it is called, constants."""
    found = {}
    for _, paper, table, _ in BLOCK.findall(page):
        sources = dict(re.findall(r"^- (\w): (.*)$", table, re.MULTILINE))
        made = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
        if table.startswith(HEAD):
            found[paper] = [(m[0], m[1], m[4].strip("*"), sources[m[5]]) for m in made[1:]]
    return found
