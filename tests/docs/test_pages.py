"""Every page in Markdown: its links lead somewhere, and the commands that it names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin

from muster.cli import main
from tests.docs.reference import TOP, names

OURS = ("charts", "config", "e2e", "extender", "plugins", "tests", ".github")
PAGES = sorted({*TOP.glob("*.md"), *chain.from_iterable((TOP / folder).rglob("*.md") for folder in OURS)})


@cache
def tokens(page: Path) -> tuple[Token, ...]:
    """Of a page as GitHub reads it, inline ones too; headings have the ids that GitHub gives them."""
    markdown = MarkdownIt("commonmark").enable("table").use(anchors_plugin, max_level=6)
    return tuple(t for token in markdown.parse(page.read_text()) for t in (token, *(token.children or ())))


def anchors(page: Path) -> set[str]:
    return {str(t.attrs["id"]) for t in tokens(page) if t.type == "heading_open"}


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        if token.type in ("link_open", "image"):
            yield str(token.attrs["href" if token.type == "link_open" else "src"])


def commands(page: Path) -> Iterator[str]:
    """What stands in code, line by line."""
    for token in tokens(page):
        if token.type == "code_inline":
            yield token.content
        elif token.type in ("fence", "code_block"):
            yield from token.content.splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    broken = []
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        where, _, heading = unquote(link).partition("#")
        target = (page.parent / where).resolve() if where else page
        if not target.exists() or (heading and heading not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_command_that_a_page_names_exists() -> None:
    makefiles = [TOP / "Makefile", *TOP.glob("*/*.mk")]
    targets = set(re.findall(r"^([a-z0-9-]+):", "\n".join(file.read_text() for file in makefiles), re.M))
    muster = set(main.list_commands(click.Context(main)))
    unknown = []
    for page in PAGES:
        for line in commands(page):
            for kind, name in re.findall(
                r"(?:^|\$\(|[\"'] )\s*(muster|make|.*python -m) ([a-z][\w.-]*)", line
            ):
                known = {"muster": name in muster, "make": name in targets}
                if not known.get(kind, kind not in known and find_spec(name) is not None):
                    unknown.append(f"{page.relative_to(TOP)}: {line}")
    assert unknown == []


def test_every_program_that_a_page_names_is_in_the_checkout() -> None:
    """By its path from some folder, or, where it has none, below the page."""
    files = [f"/{file.relative_to(TOP)}" for folder in OURS for file in (TOP / folder).rglob("*.*")]
    missing = []
    for page in PAGES:
        for token in tokens(page):
            named = token.content if token.type == "code_inline" else ""
            if re.fullmatch(r"(\w[\w./-]*/)?\w+\.(py|sh|mk)", named) and not (
                any(file.endswith(f"/{named}") for file in files)
                if "/" in named
                else any(page.parent.rglob(named))
            ):
                missing.append(f"{page.relative_to(TOP)}: {named}")
    assert missing == []


def test_each_place_that_a_newcomer_looks_for_is_two_files_away_and_the_first_names_the_second() -> None:
    page = (TOP / "extender" / "README.md").read_text()
    table = page.partition("| where is ...? | first | then |\n")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([\w/]+)\.py`", row) for row in table.splitlines()[1:]]
    assert len(rows) >= 6
    for first, then in rows:
        text = (TOP / "extender" / "muster" / f"{first}.py").read_text()
        assert re.search(rf"{then}|{then.replace('/', '.')}|{then.rpartition('/')[2]} import", text), (
            first,
            then,
        )


def test_every_name_of_ours_that_a_page_shows_is_in_the_reference() -> None:
    known = {
        *names(),
        *(
            "muster.dev/lab-python",
            "muster.dev/elastic-training",
            "muster.dev/pytorch",
            "muster.dev/topology",
        ),  # images; topology-*
        "muster.dev/enabled",  # an example of a namespace's label
        "muster.dev/devices",  # of a namespace, as the next one
        "muster.dev/any-command",
    }
    unknown = []
    for page in PAGES:
        for line in commands(page):
            found = re.findall(r"(?<![\w.])muster\.dev/[a-z]+(?:-[a-z]+)*\b", line)
            unknown += [f"{page.relative_to(TOP)}: {name}" for name in found if name not in known]
    assert unknown == []


def test_whatever_a_page_has_pip_install_is_there_to_be_installed() -> None:
    """A folder of this checkout, what an image has copied from one, or a package that config/constraints.txt pins.

    Not ours by their names: they are on no index, and `muster` there is another project's."""
    lines = (TOP / "config" / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0] for line in lines}
    found, wrong = 0, []
    for page in PAGES:
        copied = {}
        for line in commands(page):
            if copy := re.match(r"COPY (\S+) (/\S+)$", line):
                copied[copy[2]] = copy[1]
            for told in re.findall(r"\bpip install ([^`#&;|]+)", line):
                for one in told.split():
                    folder = TOP / copied.get(one, one).partition("[")[0]
                    if one.startswith("-"):
                        continue
                    found += 1
                    if one not in pinned and not (folder / "pyproject.toml").exists():
                        wrong.append(f"{page.relative_to(TOP)}: {line}")
    assert wrong == []
    assert found >= 5
